"""The functions of dates and timestamps, in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from headwater.algebra.expressions import Call, Literal
from headwater.algebra.types import BIGINT, DATE, TIMESTAMP, Value
from headwater.errors import EvaluationError, nearest
from headwater.reference.casts import caster
from headwater.reference.values import (
    DAY,
    Function,
    Maker,
    civil,
    days_of,
    plain,
    within,
    year_text,
)


def _of_day(part: Callable[[int], int]) -> Maker:
    """A function of the day since the epoch, for DATE and TIMESTAMP."""

    def make(call: Call) -> Function:
        if call.args[0].type == DATE:
            return part
        return lambda micros: part(micros // DAY)

    return make


def _of_clock(part: Callable[[int], int]) -> Maker:
    """A function of the microsecond of the day; a DATE is midnight."""

    def make(call: Call) -> Function:
        if call.args[0].type == DATE:
            return lambda days: part(0)
        return lambda micros: part(micros % DAY)

    return make


def _of_time(part: Callable[[int], int]) -> Maker:
    """A function of the microseconds since the epoch."""

    def make(call: Call) -> Function:
        if call.args[0].type == DATE:
            return lambda days: within(part(days * DAY), BIGINT)
        return part

    return make


def _to_time(size: int) -> Function:
    return lambda count: within(count * size, TIMESTAMP)


def _first_of_month(days: int, months: int) -> int:
    """The first day of the month, quarter or year (of 1, 3 or 12 months) that holds the day."""
    year, month, _ = civil(days)
    return days_of(year, (month - 1) // months * months + 1, 1)


_DAY_TRUNCATION: dict[str, Callable[[int], int]] = {
    "year": lambda days: _first_of_month(days, 12),
    "quarter": lambda days: _first_of_month(days, 3),
    "month": lambda days: _first_of_month(days, 1),
    "week": lambda days: days - (days + 3) % 7,
}
_CLOCK_TRUNCATION = {
    "day": DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
}


def _date_trunc(call: Call) -> Function:
    unit = str(call.args[0].value).lower()  # type: ignore[union-attr]
    convert = caster(call.args[1].type, TIMESTAMP) or (lambda micros: micros)

    def truncated(_: str, time: int) -> Value:
        micros: Any = convert(time)
        if micros is None:
            return None
        if unit in _CLOCK_TRUNCATION:
            return within(micros - micros % _CLOCK_TRUNCATION[unit], TIMESTAMP)
        return within(_DAY_TRUNCATION[unit](micros // DAY) * DAY, TIMESTAMP)

    return truncated


_FORMAT_PARTS: dict[str, Callable[[int], str]] = {
    "yyyy": lambda micros: year_text(civil(micros // DAY)[0]),
    "MM": lambda micros: f"{civil(micros // DAY)[1]:02d}",
    "dd": lambda micros: f"{civil(micros // DAY)[2]:02d}",
    "HH": lambda micros: f"{micros % DAY // 3_600_000_000:02d}",
    "mm": lambda micros: f"{micros // 60_000_000 % 60:02d}",
    "ss": lambda micros: f"{micros // 1_000_000 % 60:02d}",
    "SSS": lambda micros: f"{micros // 1_000 % 1_000:03d}",
}
_FORMAT_TOKEN = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z'\[\]#{}]+")


def _format_part(token: str, pattern: str) -> Callable[[int], str]:
    if token in _FORMAT_PARTS:
        return _FORMAT_PARTS[token]
    if token[0].isascii() and token[0].isalpha():
        raise EvaluationError(
            f"date_format: {token} in {pattern!r} is not known here; {nearest(token, _FORMAT_PARTS)}"
        )
    text = "'" if token == "''" else token
    if token.startswith("'") and len(token) > 2:
        text = token[1:-1].replace("''", "'")
    return lambda micros: text


def _date_format(call: Call) -> Function:
    pattern = call.args[1]
    if not (isinstance(pattern, Literal) and isinstance(pattern.value, str)):
        raise EvaluationError("date_format: the pattern must be a constant here")
    parts = [_format_part(token, pattern.value) for token in _format_tokens(pattern.value)]
    scale = DAY if call.args[0].type == DATE else 1
    return lambda time, _: "".join(part(time * scale) for part in parts)


def _format_tokens(pattern: str) -> Iterator[str]:
    place = 0
    while place < len(pattern):
        token = _FORMAT_TOKEN.match(pattern, place)
        if token is None:
            raise EvaluationError(
                f"date_format: {pattern[place:]!r} in {pattern!r} is not known here"
            )
        yield token.group()
        place = token.end()


MOMENTS: dict[str, Maker] = {
    "year": _of_day(lambda days: civil(days)[0]),
    "quarter": _of_day(lambda days: (civil(days)[1] + 2) // 3),
    "month": _of_day(lambda days: civil(days)[1]),
    "day": _of_day(lambda days: civil(days)[2]),
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
    "timestamp_seconds": plain(_to_time(1_000_000)),
    "timestamp_millis": plain(_to_time(1_000)),
    "timestamp_micros": plain(_to_time(1)),
}
