"""The basics of values below every function: order and equality, rounding, and the calendar.

Spark's rules: NaN equals itself and is larger than any number, zero has no sign, FLOAT rounds to
single precision, a decimal rounds half up and is NULL if it does not fit, and the calendar is
the Gregorian one in all years.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from typing import Any

from headwater.algebra.expressions import Call
from headwater.algebra.types import Type, Value

Row = tuple[Value, ...]


@dataclass(frozen=True)
class Result:
    """A result row and the instant at which it is emitted."""

    tau: int
    values: Row


Function = Callable[..., Value]
FunctionBuilder = Callable[[Call], Function]  # builds the function of a call, which never gets NULL

# A row of a relation is identified by the tuples it was made of, or by its values where an
# aggregate or DISTINCT made it: two rows with one identity are the same row, at whatever instant.
Identity = tuple[Hashable, ...]
Entry = tuple[Identity, Row]
Content = Callable[[int], list[Entry]]  # the rows of a relation at an instant

DAY = 86_400_000_000
LONG_BOUNDS = (-(2**63), 2**63 - 1)
# Wide enough that + - * on operands of 38 digits never round before they are fitted to their type.
DECIMAL_CONTEXT = Context(prec=400, rounding=ROUND_HALF_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)

_ERA_DAYS = 146_097  # 400 years
_ERA_START = date(2000, 1, 1).toordinal()
_EPOCH = date(1970, 1, 1).toordinal()


# ---- order and equality


def normalize_value(value: Value) -> Value:
    """One representative of all equal values, for use as a key: one NaN, one zero."""
    if isinstance(value, float):
        if value != value:
            return math.nan  # one object: as a key, NaN is found by identity
        return value + 0.0  # -0.0 + 0.0 is 0.0
    return value


def normalize_row(row: Sequence[Value]) -> Row:
    return tuple(map(normalize_value, row))


def order_key(type_: Type) -> Callable[[Any], Any]:
    """A function by which values of the type sort; NaN is the largest."""
    if type_.is_floating:
        return lambda value: (value != value, 0.0 if value != value else value)
    return lambda value: value


def row_order_key(row: Sequence[Value]) -> tuple[Hashable, ...]:
    """A key that sorts any rows of one schema; NULL is the largest."""
    return tuple((v is None, v != v, 0 if v is None or v != v else v) for v in row)


# ---- rounding and limits


def round_to_single(value: float) -> float:
    """The nearest number of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def float_converter(type_: Type) -> Callable[[Any], float]:
    """Any number as a value of that FLOAT or DOUBLE type."""
    return (lambda value: round_to_single(float(value))) if type_.name == "FLOAT" else float


def integer_limits(type_: Type) -> tuple[int, int]:
    """The least and the largest integer that represent a value of the type."""
    if type_.name == "DATE":
        return (-(2**31), 2**31 - 1)
    return type_.bounds or LONG_BOUNDS


def fit_integer(value: int, type_: Type) -> int | None:
    least, largest = integer_limits(type_)
    return value if least <= value <= largest else None


def fit_decimal(value: Decimal, type_: Type) -> Decimal | None:
    """The decimal rounded half up to the scale of the type; None if it has too many digits."""
    # Far beyond 38 digits: refused before it is written out to be rounded.
    if not value.is_finite() or value.adjusted() > 60:
        return None
    rounded = value.quantize(Decimal((0, (1,), -type_.scale)), context=DECIMAL_CONTEXT)
    # After rounding, because 9.99 rounds to 10.0, which has a digit more.
    if rounded and rounded.adjusted() >= type_.precision - type_.scale:
        return None
    return rounded if rounded else abs(rounded)


def quotient(a: Decimal, b: Decimal, scale: int) -> Decimal:
    """a / b, rounded half up once, at that scale."""
    # In integers, because dividing decimals would round once and fitting the scale again.
    (an, ad), (bn, bd) = a.as_integer_ratio(), b.as_integer_ratio()
    over, under = an * bd * 10**scale, ad * bn
    whole = (2 * abs(over) + abs(under)) // (2 * abs(under))
    sign = int((over < 0) != (under < 0))
    return Decimal(-whole if sign else whole).scaleb(-scale, DECIMAL_CONTEXT)


def double_to_decimal(value: float) -> Decimal:
    """A finite double as the decimal of its shortest text: 0.1 is 0.1."""
    return Decimal(repr(value))


# ---- calendar


def civil_date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day since the epoch, in any year."""
    # Python has the years 1 to 9999 only; the calendar repeats every 400 years.
    era, rest = divmod(days + _EPOCH - _ERA_START, _ERA_DAYS)
    day = date.fromordinal(_ERA_START + rest)
    return day.year + 400 * era, day.month, day.day


def days_since_epoch(year: int, month: int, day: int) -> int:
    """The day since the epoch; raises ValueError if there is no such date."""
    era, rest = divmod(year - 2000, 400)
    return date(2000 + rest, month, day).toordinal() - _EPOCH + era * _ERA_DAYS


def year_text(year: int) -> str:
    if 0 <= year <= 9999:
        return f"{year:04d}"
    return f"{year:+05d}"


def date_text(days: int) -> str:
    year, month, day = civil_date(days)
    return f"{year_text(year)}-{month:02d}-{day:02d}"


def untyped(function: Function) -> FunctionBuilder:
    """A function whose meaning does not depend on the types of its arguments."""
    return lambda call: function
