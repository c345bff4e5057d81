"""Times as exact integers: microseconds since the epoch in UTC, and days for dates.

The texts of times are defined by patterns that mean the same to Python, Java and Arrow, so that
every reader accepts the same texts. A number is a time only where its unit is declared.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

from headwater.errors import AlgebraError, suggest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)

MIN_TIMESTAMP = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND
MAX_TIMESTAMP = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - EPOCH) // _MICROSECOND

TIMESTAMP_UNITS: dict[str, int | Decimal] = {
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
    "ns": Decimal("0.001"),
}
"""Microseconds in each unit that a number since the epoch may be given in."""

DATE_TEXT = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
# Zones reach to 18 hours, as far as Java's offsets do.
TIMESTAMP_TEXT = (
    DATE_TEXT
    + "([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?"
    + "(Z|[+-]((0[0-9]|1[0-7])(:?[0-5][0-9])?|18(:?00)?))?)?"
)
NUMBER_TEXT = "[+-]?[0-9]{1,30}([.][0-9]{1,30})?([eE][+-]?[0-9]{1,2})?"
BLANKS = " \t\r\n"
"""The characters that may surround a time in a text."""

_DATE = re.compile(DATE_TEXT)
_TIMESTAMP = re.compile(TIMESTAMP_TEXT)
_NUMBER = re.compile(NUMBER_TEXT)
_EXACT = Context(prec=80)
_BILLIONTH = Decimal("1e-9")


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch; a time without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def parse_timestamp(text: str, unit: str | None = None) -> int:
    """ISO 8601 (date alone, `T` or blank between, any zone) to microseconds; with a unit, also a
    number of such units since the epoch. Raises AlgebraError."""
    word = text.strip(BLANKS)
    if _NUMBER.fullmatch(word):
        return timestamp_from_number(Decimal(word), unit)
    try:
        if not _TIMESTAMP.fullmatch(word):
            raise ValueError(word)
        micros = to_micros(datetime.fromisoformat(word))
    except (ValueError, OverflowError):
        raise AlgebraError(
            f"{text!r} is not a timestamp; write it like '2026-01-31 12:30:00' or '2026-01-31T12:30:00.5Z'"
        ) from None
    return _check_years(micros, repr(text))


def timestamp_from_number(number: int | Decimal, unit: str | None) -> int:
    """The number of units as microseconds since the epoch, rounded down. Raises AlgebraError if no
    unit is given, or there is none of that name."""
    if unit is None:
        raise AlgebraError(
            f"{number} is not a timestamp but a number; declare its timestamp_unit: "
            f"{', '.join(TIMESTAMP_UNITS)}"
        )
    if unit not in TIMESTAMP_UNITS:
        raise AlgebraError(f"no timestamp_unit {unit}; {suggest(unit, TIMESTAMP_UNITS)}")
    exact = Decimal(number).quantize(_BILLIONTH, ROUND_HALF_UP, _EXACT)
    micros = _EXACT.multiply(exact, Decimal(TIMESTAMP_UNITS[unit]))
    return _check_years(int(micros.to_integral_value(ROUND_FLOOR)), f"{number} {unit}")


def _check_years(micros: int, written: str) -> int:
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        raise AlgebraError(f"{written} is outside the years 1 to 9999 in UTC")
    return micros


def format_timestamp(micros: int) -> str:
    """ISO form with microseconds and Z; an instant outside the years 1 to 9999 as plain number."""
    if not MIN_TIMESTAMP <= micros <= MAX_TIMESTAMP:
        return f"{micros} us"
    # strftime does not pad years before 1000.
    return from_micros(micros).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse_date(text: str) -> int:
    """ISO date to days since the epoch; raises AlgebraError."""
    word = text.strip(BLANKS)
    try:
        if not _DATE.fullmatch(word):
            raise ValueError(word)
        return date.fromisoformat(word).toordinal() - _EPOCH_DAY
    except ValueError:
        raise AlgebraError(f"{text!r} is not a date; write it like '2026-01-31'") from None


def to_days(day: date) -> int:
    return day.toordinal() - _EPOCH_DAY


def from_days(days: int) -> date:
    return date.fromordinal(days + _EPOCH_DAY)


def format_date(days: int) -> str:
    return from_days(days).isoformat()
