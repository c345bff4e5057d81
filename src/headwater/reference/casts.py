"""CAST between all pairs of types that the algebra allows; a cast that fails gives NULL.

Texts are read and written as Spark SQL's TRY_CAST does in ANSI mode, in UTC. Not read, and so NULL:
hexadecimal numbers, names of time zones other than UTC and GMT, and times without a date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from headwater.algebra.types import BOOLEAN, DATE, NULL, STRING, TIMESTAMP, Type, Value
from headwater.errors import EvaluationError
from headwater.reference.values import (
    DAY,
    LONG_BOUNDS,
    date_text,
    days_since_epoch,
    double_to_decimal,
    fit_decimal,
    fit_integer,
    float_converter,
    round_to_single,
)

ValueCast = Callable[[Any], Value]

# Spark trims all of these, Python's strip() other ones.
_BLANKS = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,18})?")
_DATE = r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE_TEXT = re.compile(_DATE + r"(?:[ T].*)?)?)?", re.DOTALL)
_ZONE = r"\s*(?:Z|UTC|GMT|UT)?([+-][0-9]{1,2}(?::?[0-9]{1,2})?)?"
_TIME = rf"([0-9]{{1,2}})(?::([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:\.([0-9]*))?{_ZONE})?)?"
_TIMESTAMP_TEXT = re.compile(_DATE + rf"(?:[ T]{_TIME})?)?)?")
_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}
_SPECIAL = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}


def find_cast(source: Type, target: Type) -> ValueCast | None:
    """The function from a value (not NULL) of `source` to one of `target`, or None if none is
    needed; raises EvaluationError for a pair that has no cast."""
    if source in (target, NULL):
        return None
    if target == STRING:
        return _to_text(source)
    if source == STRING:
        return _from_text(target)
    if target == BOOLEAN:
        return bool
    if target.is_integer:
        return lambda value: _to_integer(value, target)
    if target.is_floating:
        return float_converter(target)
    if target.is_decimal:
        return lambda value: fit_decimal(_as_decimal(value), target)
    if (source, target) == (DATE, TIMESTAMP):
        return lambda days: fit_integer(days * DAY, TIMESTAMP)
    if (source, target) == (TIMESTAMP, DATE):
        return lambda micros: micros // DAY
    raise EvaluationError(f"there is no cast from {source} to {target}")


def _as_decimal(value: Any) -> Decimal:
    if isinstance(value, float):
        return double_to_decimal(value) if math.isfinite(value) else Decimal("NaN")
    return Decimal(value)


def _to_integer(value: Any, target: Type) -> int | None:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if target.name == "BIGINT" and value == 2.0**63:
            return LONG_BOUNDS[1]  # Spark compares with the limit as a double, which is 2**63
    return fit_integer(int(value), target)


# ---- to text


def _to_text(source: Type) -> ValueCast:
    if source == BOOLEAN:
        return lambda value: "true" if value else "false"
    if source.is_floating:
        return float_text if source.name == "FLOAT" else double_text
    if source.is_decimal:
        return lambda value: _decimal_text(fit_decimal(value, source))
    if source == DATE:
        return date_text
    if source == TIMESTAMP:
        return timestamp_text
    if source.is_integer:
        return str
    raise EvaluationError(f"there is no cast from {source} to STRING")


def _decimal_text(value: Decimal | None) -> str | None:
    return None if value is None else f"{value:f}"


def double_text(value: float) -> str:
    """The text of a double in Java: 0.001, 1.0E-4, 1234567.0, 1.0E7."""
    return _java_text(value, repr(value))


def float_text(value: float) -> str:
    """The text of a float in Java: the fewest digits that distinguish it from its neighbours."""
    texts = (f"{value:.{digits}e}" for digits in range(9))
    return _java_text(
        value, next((t for t in texts if round_to_single(float(t)) == value), repr(value))
    )


def _java_text(value: float, text: str) -> str:
    if value != value:
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if math.isinf(value):
        return sign + "Infinity"
    if value == 0:
        return sign + "0.0"
    number = abs(Decimal(text)).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    exponent = number.adjusted()
    if -3 <= exponent < 7:
        plain = f"{number:f}"
        return sign + (plain if "." in plain else plain + ".0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def timestamp_text(micros: int) -> str:
    days, rest = divmod(micros, DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    text = f"{date_text(days)} {minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return text + (f".{fraction:06d}".rstrip("0") if fraction else "")


# ---- from text


def _from_text(target: Type) -> ValueCast:
    if target == BOOLEAN:
        return _read_boolean
    if target.is_integer:
        return lambda text: _read_integer(text, target)
    if target.is_floating:
        return lambda text: _read_double(text, float_converter(target))
    if target.is_decimal:
        return lambda text: _read_decimal(text, target)
    if target == DATE:
        return _read_date
    if target == TIMESTAMP:
        return _read_timestamp
    raise EvaluationError(f"there is no cast from STRING to {target}")


def _read_boolean(text: str) -> bool | None:
    word = text.strip(_BLANKS).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _read_integer(text: str, target: Type) -> int | None:
    digits = text.strip(_BLANKS)
    return fit_integer(int(digits), target) if _INTEGER.fullmatch(digits) else None


def _read_double(text: str, convert: Callable[[Any], float]) -> float | None:
    word = text.strip(_BLANKS)
    if _NUMBER.fullmatch(word.rstrip("dDfF")) and len(word) - len(word.rstrip("dDfF")) <= 1:
        return convert(word.rstrip("dDfF"))
    sign = -1.0 if word.startswith("-") else 1.0
    # An infinity may have a sign, NaN may not.
    special = _SPECIAL.get(word.lower().removeprefix("-" if sign < 0 else "+"))
    if special is None or (special != special and word.lower() != "nan"):
        return None
    return sign * special


def _read_decimal(text: str, target: Type) -> Decimal | None:
    digits = text.strip(_BLANKS)
    if not _NUMBER.fullmatch(digits):
        return None
    try:
        return fit_decimal(Decimal(digits), target)
    except InvalidOperation:
        return None


def _days(year: str, month: str | None, day: str | None) -> int | None:
    try:
        return fit_integer(days_since_epoch(int(year), int(month or 1), int(day or 1)), DATE)
    except ValueError:
        return None


def _read_date(text: str) -> int | None:
    parts = _DATE_TEXT.fullmatch(text.strip(_BLANKS))
    return _days(*parts.groups()) if parts else None


def _read_timestamp(text: str) -> int | None:
    parts = _TIMESTAMP_TEXT.fullmatch(text.strip(_BLANKS))
    if not parts:
        return None
    year, month, day, hour, minute, second, fraction, offset = parts.groups()
    days = _days(year, month, day)
    shift = _offset_minutes(offset or "+0")
    h, m, s = (int(part or 0) for part in (hour, minute, second))
    if days is None or shift is None or h > 23 or m > 59 or s > 59:
        return None
    # Digits beyond microseconds are cut off, not rounded.
    micros = int((fraction or "").ljust(6, "0")[:6])
    seconds = ((h * 60 + m) - shift) * 60 + s
    return fit_integer(days * DAY + seconds * 1_000_000 + micros, TIMESTAMP)


def _offset_minutes(offset: str) -> int | None:
    digits = offset[1:]
    hours, minutes = digits.split(":") if ":" in digits else (digits[:2], digits[2:] or "0")
    total = int(hours) * 60 + int(minutes)
    # Java has no zone farther than 18 hours from UTC.
    if int(minutes) > 59 or total > 18 * 60:
        return None
    return -total if offset[0] == "-" else total
