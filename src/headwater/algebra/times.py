"""Times as exact integers: microseconds since the epoch in UTC, and days for dates."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from headwater.errors import AlgebraError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)

LEAST_TIMESTAMP = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND
LARGEST_TIMESTAMP = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - EPOCH) // _MICROSECOND


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch; a time without a zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def parse_timestamp(text: str) -> int:
    """ISO 8601 (date alone, `T` or blank between, any zone) to microseconds; raises AlgebraError."""
    try:
        micros = to_micros(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        raise AlgebraError(
            f"{text!r} is not a timestamp; write it like '2026-01-31 12:30:00' or '2026-01-31T12:30:00.5Z'"
        ) from None
    if not LEAST_TIMESTAMP <= micros <= LARGEST_TIMESTAMP:
        raise AlgebraError(f"{text!r} is outside the years 1 to 9999 in UTC")
    return micros


def format_timestamp(micros: int) -> str:
    """ISO form with microseconds and Z; an instant outside the years 1 to 9999 as plain number."""
    if not LEAST_TIMESTAMP <= micros <= LARGEST_TIMESTAMP:
        return f"{micros} us"
    return from_micros(micros).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse_date(text: str) -> int:
    """ISO date to days since the epoch; raises AlgebraError."""
    try:
        return date.fromisoformat(text.strip()).toordinal() - _EPOCH_DAY
    except ValueError:
        raise AlgebraError(f"{text!r} is not a date; write it like '2026-01-31'") from None


def to_days(day: date) -> int:
    return day.toordinal() - _EPOCH_DAY


def from_days(days: int) -> date:
    return date.fromordinal(days + _EPOCH_DAY)


def format_date(days: int) -> str:
    return from_days(days).isoformat()
