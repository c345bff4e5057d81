"""The meaning of every aggregate, over the rows of a group.

Sums are exact before they are rounded once, so they depend neither on the order of the rows nor on
how the rows were split into parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import Any

from headwater.algebra.expressions import Column
from headwater.algebra.functions import AGGREGATES, AggregateCall
from headwater.algebra.types import Type, Value
from headwater.errors import EvaluationError, suggest
from headwater.reference.scalar import compile_condition, compile_expr
from headwater.reference.values import (
    DECIMAL_CONTEXT,
    Row,
    fit_decimal,
    fit_integer,
    normalize_value,
    order_key,
    quotient,
)

Aggregation = Callable[[Sequence[Row]], Value]
Summary = Callable[[list[Any]], Value]


def compile_aggregate(call: AggregateCall, columns: Sequence[Column]) -> Aggregation:
    """The aggregate as a function of the rows of a group; raises EvaluationError as
    `compile_expr` does."""
    if call.name not in _SUMMARIES:
        raise EvaluationError(f"unknown aggregate {call.name}; {suggest(call.name, AGGREGATES)}")
    condition = None if call.filter is None else compile_condition(call.filter, columns)
    if call.arg is None:
        return lambda rows: sum(1 for row in rows if condition is None or condition(row))
    argument = compile_expr(call.arg, columns)
    summary = _SUMMARIES[call.name](call.arg.type, call.type)

    def aggregated(rows: Sequence[Row]) -> Value:
        chosen = rows if condition is None else [row for row in rows if condition(row)]
        values = [v for row in chosen if (v := argument(row)) is not None]
        # DISTINCT by normalized value: in Python NaN is not equal to itself, and zero has a sign.
        return summary(
            list({normalize_value(v): v for v in values}.values()) if call.distinct else values
        )

    return aggregated


def supported_aggregates() -> frozenset[str]:
    """The names of all aggregates that are defined here."""
    return frozenset(_SUMMARIES)


def add_summary(name: str, summary: Callable[[Type, Type], Summary]) -> None:
    """Define an aggregate: from the types of its argument and its result, a function of the values
    of a group, none of them NULL."""
    _SUMMARIES[name] = summary


def remove_summary(name: str) -> None:
    """Remove the definition of an aggregate."""
    del _SUMMARIES[name]


def _total(values: Sequence[float]) -> float:
    """The sum of doubles, rounded once; NaN and infinities behave as in addition."""
    if all(map(math.isfinite, values)):
        try:
            return math.fsum(values)
        except OverflowError:
            # fsum overflows on partial sums too; the whole sum may still be finite.
            return _to_float(sum(map(Fraction, values), Fraction(0)))
    return sum(value for value in values if not math.isfinite(value))


def _to_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _exact_total(values: Sequence[Decimal]) -> Decimal:
    return reduce(DECIMAL_CONTEXT.add, values, Decimal(0))


def _sum(argument: Type, result: Type) -> Summary:
    if result.is_decimal:
        return lambda values: fit_decimal(_exact_total(values), result) if values else None
    if result.is_floating:
        return lambda values: _total(values) if values else None
    return lambda values: fit_integer(sum(values), result) if values else None


def _avg(argument: Type, result: Type) -> Summary:
    if result.is_decimal:
        return lambda values: (
            fit_decimal(quotient(_exact_total(values), Decimal(len(values)), result.scale), result)
            if values
            else None
        )
    total = _total if argument.is_floating else lambda values: _to_float(Fraction(sum(values)))
    return lambda values: total(values) / len(values) if values else None


def _variance(sample: bool, root: bool) -> Callable[[Type, Type], Summary]:
    def make(argument: Type, result: Type) -> Summary:
        unit = 10**argument.scale if argument.is_decimal else 1

        def spread(values: list[Any]) -> Value:
            # The variance of a sample divides by n - 1; a single value has none, so NULL.
            count = len(values) - (1 if sample else 0)
            if not values or count == 0:
                return None
            value = (
                _rounded_variance(values, count)
                if argument.is_floating
                else _exact_variance([int(Fraction(v) * unit) for v in values], unit, count)
            )
            return math.sqrt(value) if root else value

        return spread

    return make


def _exact_variance(values: Sequence[int], unit: int, count: int) -> float:
    """The variance of exact numbers, given in 1/`unit`: one whole number divided by another, each
    rounded once."""
    above = len(values) * sum(v * v for v in values) - sum(values) ** 2
    below = len(values) * count * unit * unit
    return _to_float(Fraction(above)) / _to_float(Fraction(below))


def _rounded_variance(values: Sequence[float], count: int) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = _total(values) / len(values)
    return _total([(x - mean) * (x - mean) for x in values]) / count


def _extreme(choose: Callable[..., Any]) -> Callable[[Type, Type], Summary]:
    def make(argument: Type, result: Type) -> Summary:
        key = order_key(argument)
        return lambda values: choose(values, key=key) if values else None

    return make


def _untyped(summary: Summary) -> Callable[[Type, Type], Summary]:
    return lambda argument, result: summary


_SUMMARIES: dict[str, Callable[[Type, Type], Summary]] = {
    "count": _untyped(len),
    "sum": _sum,
    "avg": _avg,
    "min": _extreme(min),
    "max": _extreme(max),
    "stddev_samp": _variance(sample=True, root=True),
    "stddev_pop": _variance(sample=False, root=True),
    "var_samp": _variance(sample=True, root=False),
    "var_pop": _variance(sample=False, root=False),
    "bool_and": _untyped(lambda values: all(values) if values else None),
    "bool_or": _untyped(lambda values: any(values) if values else None),
}
