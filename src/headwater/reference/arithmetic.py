"""Arithmetic and numeric functions.

Integers and decimals are exact and NULL where the result does not fit its type; FLOAT and DOUBLE are
IEEE numbers, except that division by zero is NULL.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headwater.algebra.expressions import Call
from headwater.algebra.types import BIGINT, DATE, INTERVAL, Type, Value
from headwater.reference.values import (
    DAY,
    DECIMAL_CONTEXT,
    Function,
    FunctionBuilder,
    double_to_decimal,
    fit_decimal,
    fit_integer,
    float_converter,
    quotient,
    untyped,
)


def _remainder(a: int, b: int) -> int | None:
    """The remainder with the sign of the dividend; Python's % has that of the divisor."""
    if b == 0:
        return None
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _float_remainder(a: float, b: float) -> float | None:
    if b == 0:
        return None
    # fmod raises for an infinite dividend, where IEEE has NaN.
    return math.nan if math.isinf(a) else math.fmod(a, b)


def _decimal_remainder(a: Decimal, b: Decimal) -> Decimal | None:
    return None if b == 0 else DECIMAL_CONTEXT.remainder(a, b)


def _positive(remainder: Callable[[Any, Any], Any], add: Callable[[Any, Any], Any]) -> Function:
    def pmod(a: Any, b: Any) -> Any:
        rest = remainder(a, b)
        return remainder(add(rest, b), b) if rest is not None and rest < 0 else rest

    return pmod


_INTEGER_ARITHMETIC: dict[str, Function] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": _remainder,
    "pmod": _positive(_remainder, operator.add),
}
_FLOATING_ARITHMETIC: dict[str, Function] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": _float_remainder,
    "pmod": _positive(_float_remainder, operator.add),
}
_DECIMAL_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": DECIMAL_CONTEXT.add,
    "-": DECIMAL_CONTEXT.subtract,
    "*": DECIMAL_CONTEXT.multiply,
    "%": _decimal_remainder,
    "pmod": _positive(_decimal_remainder, DECIMAL_CONTEXT.add),
}


def _arithmetic(call: Call) -> Function:
    if call.type.is_decimal:
        return _decimal_arithmetic(call.name, call.type)
    if call.type.is_floating:
        return _floating_arithmetic(call.name, call.type)
    operation, result = _INTEGER_ARITHMETIC[call.name], call.type
    # Two dates differ by an interval, so their days become microseconds.
    a, b = (DAY if result == INTERVAL and arg.type == DATE else 1 for arg in call.args)

    def exact(x: int, y: int) -> Value:
        value: Any = operation(x * a, y * b)
        return None if value is None else fit_integer(value, result)

    return exact


def _floating_arithmetic(name: str, result: Type) -> Function:
    operation, convert = _FLOATING_ARITHMETIC[name], float_converter(result)

    def rounded(x: Any, y: Any) -> Value:
        # Operands are rounded too: an integer beside a FLOAT is a FLOAT before it is added.
        value: Any = operation(convert(x), convert(y))
        return None if value is None else convert(value)

    return rounded


def _decimal_arithmetic(name: str, result: Type) -> Function:
    if name == "/":
        return lambda x, y: (
            None if y == 0 else fit_decimal(quotient(Decimal(x), Decimal(y), result.scale), result)
        )
    operation = _DECIMAL_ARITHMETIC[name]

    def fitted(x: Any, y: Any) -> Value:
        value = operation(Decimal(x), Decimal(y))
        return None if value is None else fit_decimal(value, result)

    return fitted


def _whole_division(a: int, b: int) -> Value:
    if b == 0:
        return None
    # Towards zero; // alone rounds down. Only -2**63 div -1 does not fit.
    size = abs(a) // abs(b)
    return fit_integer(size if (a < 0) == (b < 0) else -size, BIGINT)


def _negative(call: Call) -> Function:
    if call.type.is_floating or call.type.is_decimal:
        return operator.neg if call.type.is_floating else DECIMAL_CONTEXT.minus
    return lambda value: fit_integer(-value, call.type)


def _absolute(call: Call) -> Function:
    if call.type.is_floating or call.type.is_decimal:
        return abs if call.type.is_floating else DECIMAL_CONTEXT.abs
    return lambda value: fit_integer(abs(value), call.type)


# ---- numbers


def _to_whole(up: bool) -> Callable[[Call], Function]:
    """CEIL and FLOOR; NaN becomes 0, as Java converts it, and a result beyond BIGINT is NULL."""
    rounding: Callable[[Any], int] = math.ceil if up else math.floor

    def whole(value: Any) -> Value:
        if isinstance(value, float) and not math.isfinite(value):
            return 0 if value != value else None
        return fit_integer(rounding(value), BIGINT)

    def make(call: Call) -> Function:
        if call.type.is_decimal:
            return lambda value: fit_decimal(Decimal(rounding(value)), call.type)
        return whole

    return make


def _round(call: Call) -> Function:
    digits: Any = call.args[1].value if len(call.args) > 1 else 0  # type: ignore[union-attr]
    result = call.type
    if result.is_integer:
        return lambda value, *_: value
    if result.is_decimal:
        return lambda value, *_: fit_decimal(value, result)
    step, convert = Decimal((0, (1,), -digits)), float_converter(result)

    def rounded(value: float, *_: Value) -> Value:
        if not math.isfinite(value):
            return value
        # Rounded as written, half up: round(2.675, 2) is 2.68, though the double is a little less.
        return convert(double_to_decimal(value).quantize(step, context=DECIMAL_CONTEXT))

    return rounded


def _sign(value: Any) -> Value:
    number = float(value)
    return number if number == 0 or number != number else math.copysign(1.0, number)


def _sqrt(value: Any) -> Value:
    number = float(value)
    return math.nan if number < 0 else math.sqrt(number)


def _exp(value: Any) -> Value:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _logarithm(log: Callable[[float], float]) -> Function:
    def of_positive(value: Any) -> Value:
        number = float(value)
        return None if number <= 0 else log(number)

    return of_positive


def _pow(base: Any, exponent: Any) -> Value:
    a, b = float(base), float(exponent)
    # Java differs from C here: pow(1, NaN) and pow(1, inf) are NaN.
    if b != b or (abs(a) == 1 and math.isinf(b)):
        return math.nan
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:  # a root of a negative number, or zero to a negative power
        if a != 0:
            return math.nan
        return -math.inf if math.copysign(1, a) < 0 and b % 2 == 1 else math.inf


ARITHMETIC: dict[str, FunctionBuilder] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "pmod"), _arithmetic),
    "div": untyped(_whole_division),
    "neg": _negative,
    "abs": _absolute,
    "ceil": _to_whole(up=True),
    "floor": _to_whole(up=False),
    "round": _round,
    "sign": untyped(_sign),
    "sqrt": untyped(_sqrt),
    "exp": untyped(_exp),
    "ln": untyped(_logarithm(math.log)),
    "log10": untyped(_logarithm(math.log10)),
    "log2": untyped(_logarithm(lambda x: math.log(x) / math.log(2.0))),
    "pow": untyped(_pow),
}
