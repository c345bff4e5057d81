"""The functions of dates and timestamps, in UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.algebra.expressions import Call, Literal
from headwater.algebra.patterns import format_tokens
from headwater.algebra.types import DATE, TIMESTAMP, Type, Value
from headwater.reference.casts import find_cast
from headwater.reference.values import (
    DAY,
    Function,
    FunctionBuilder,
    civil_date,
    days_since_epoch,
    fit_integer,
    integer_limits,
    untyped,
    year_text,
)


def _of_day(part: Callable[[int], int]) -> FunctionBuilder:
    """A function of the day since the epoch, for DATE and TIMESTAMP."""

    def make(call: Call) -> Function:
        if call.args[0].type == DATE:
            return part
        return lambda micros: part(micros // DAY)

    return make


def _of_clock(part: Callable[[int], int]) -> FunctionBuilder:
    """A function of the microsecond of the day; a DATE is midnight."""

    def make(call: Call) -> Function:
        if call.args[0].type == DATE:
            return lambda days: None if fit_integer(days * DAY, TIMESTAMP) is None else part(0)
        return lambda micros: part(micros % DAY)

    return make


def _of_time(part: Callable[[int], int]) -> FunctionBuilder:
    """A function of the microseconds since the epoch."""

    def make(call: Call) -> Function:
        if call.args[0].type == DATE:
            return lambda days: (
                None if fit_integer(days * DAY, TIMESTAMP) is None else part(days * DAY)
            )
        return part

    return make


def _to_time(size: int) -> Function:
    return lambda count: fit_integer(count * size, TIMESTAMP)


def _first_of_month(days: int, months: int) -> int:
    """The first day of the month, quarter or year (of 1, 3 or 12 months) that holds the day."""
    year, month, _ = civil_date(days)
    return days_since_epoch(year, (month - 1) // months * months + 1, 1)


_DAY_TRUNCATION: dict[str, Callable[[int], int]] = {
    "year": lambda days: _first_of_month(days, 12),
    "quarter": lambda days: _first_of_month(days, 3),
    "month": lambda days: _first_of_month(days, 1),
    # The epoch was a Thursday; weeks begin on Monday.
    "week": lambda days: days - (days + 3) % 7,
}
_CLOCK_TRUNCATION = {
    "day": DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
}


def _as_time(type_: Type) -> Callable[[int], int | None]:
    """From a DATE or TIMESTAMP to microseconds; None for a day beyond the range of TIMESTAMP."""
    convert: Any = find_cast(type_, TIMESTAMP)
    return convert or (lambda micros: micros)


FIRST_TRUNCATED = integer_limits(TIMESTAMP)[0] + 367 * DAY
"""Earlier times are in the first year of TIMESTAMP, whose start is out of range."""


def _date_trunc(call: Call) -> Function:
    unit = str(call.args[0].value).lower()  # type: ignore[union-attr]
    to_time = _as_time(call.args[1].type)

    def truncated(_: str, time: int) -> Value:
        micros = to_time(time)
        # One bound for all units, as on Spark, where an overflow of the same addition tests it.
        if micros is None or micros < FIRST_TRUNCATED:
            return None
        if unit in _CLOCK_TRUNCATION:
            return fit_integer(micros - micros % _CLOCK_TRUNCATION[unit], TIMESTAMP)
        return fit_integer(_DAY_TRUNCATION[unit](micros // DAY) * DAY, TIMESTAMP)

    return truncated


_MONTHS = "January February March April May June July August September October November December"
_MONTH_NAMES = _MONTHS.split()
_DAY_NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def _month(micros: int) -> int:
    return civil_date(micros // DAY)[1]


def _hour(micros: int) -> int:
    return micros % DAY // 3_600_000_000


def _weekday(micros: int) -> str:
    return _DAY_NAMES[(micros // DAY + 3) % 7]


_FORMAT_PARTS: dict[str, Callable[[int], str]] = {
    "yyyy": lambda micros: year_text(civil_date(micros // DAY)[0]),
    "MM": lambda micros: f"{_month(micros):02d}",
    "M": lambda micros: f"{_month(micros)}",
    "MMM": lambda micros: _MONTH_NAMES[_month(micros) - 1][:3],
    "MMMM": lambda micros: _MONTH_NAMES[_month(micros) - 1],
    "dd": lambda micros: f"{civil_date(micros // DAY)[2]:02d}",
    "d": lambda micros: f"{civil_date(micros // DAY)[2]}",
    "EEE": lambda micros: _weekday(micros)[:3],
    "EEEE": _weekday,
    "HH": lambda micros: f"{_hour(micros):02d}",
    "H": lambda micros: f"{_hour(micros)}",
    "hh": lambda micros: f"{(_hour(micros) + 11) % 12 + 1:02d}",
    "h": lambda micros: f"{(_hour(micros) + 11) % 12 + 1}",
    "a": lambda micros: "AM" if _hour(micros) < 12 else "PM",
    "mm": lambda micros: f"{micros // 60_000_000 % 60:02d}",
    "m": lambda micros: f"{micros // 60_000_000 % 60}",
    "ss": lambda micros: f"{micros // 1_000_000 % 60:02d}",
    "s": lambda micros: f"{micros // 1_000_000 % 60}",
}


def _format_part(token: str, is_part: bool) -> Callable[[int], str]:
    if not is_part:
        return lambda micros: token
    if token[0] == "S":
        return lambda micros: f"{micros % 1_000_000:06d}"[: len(token)]
    return _FORMAT_PARTS[token]


def _date_format(call: Call) -> Function:
    pattern = call.args[1]
    assert isinstance(pattern, Literal)
    parts = [_format_part(*token) for token in format_tokens(str(pattern.value))]
    to_time = _as_time(call.args[0].type)

    def formatted(time: int, _: str) -> Value:
        micros = to_time(time)
        return None if micros is None else "".join(part(micros) for part in parts)

    return formatted


DATETIME_FUNCTIONS: dict[str, FunctionBuilder] = {
    "year": _of_day(lambda days: civil_date(days)[0]),
    "quarter": _of_day(lambda days: (civil_date(days)[1] + 2) // 3),
    "month": _of_day(lambda days: civil_date(days)[1]),
    "day": _of_day(lambda days: civil_date(days)[2]),
    "dayofweek": _of_day(lambda days: (days + 4) % 7 + 1),
    "dayofyear": _of_day(lambda days: days - _first_of_month(days, 12) + 1),
    "hour": _of_clock(lambda micros: micros // 3_600_000_000),
    "minute": _of_clock(lambda micros: micros // 60_000_000 % 60),
    "second": _of_clock(lambda micros: micros // 1_000_000 % 60),
    "date_trunc": _date_trunc,
    "date_format": _date_format,
    "unix_seconds": _of_time(lambda micros: micros // 1_000_000),
    "unix_millis": _of_time(lambda micros: micros // 1_000),
    "unix_micros": _of_time(lambda micros: micros),
    "timestamp_seconds": untyped(_to_time(1_000_000)),
    "timestamp_millis": untyped(_to_time(1_000)),
    "timestamp_micros": untyped(_to_time(1)),
}
