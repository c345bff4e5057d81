"""A small evaluator, for as much of the language as the random conditions use.

It works on tables: for each column a list of values, one for each row. Arithmetic is exact and
NULL outside the limits of its type.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headwater.algebra.conditions.predicate import Box
from headwater.algebra.expressions import Call, Column, Expr, Literal, columns_of
from headwater.algebra.types import DATE, INTERVAL, TIMESTAMP
from strategies import UNIVERSE

DAY = 86_400_000_000
Table = dict[Column, list[Any]]


def table_of(columns: Iterable[Column]) -> Table:
    """Every combination of the values that distinguish conditions."""
    unique = sorted(set(columns), key=str)
    if not unique:
        return {}
    values = [[v for v in UNIVERSE[c.type] if v is not None or c.nullable] for c in unique]
    rows = list(itertools.product(*values))
    return {column: [row[i] for row in rows] for i, column in enumerate(unique)}


def evaluate(expr: Expr, table: Table) -> list[Any]:
    """The value of an expression on each row."""
    size = max((len(values) for values in table.values()), default=1)
    if isinstance(expr, Column):
        return table[expr]
    if isinstance(expr, Literal):
        return [expr.value] * size
    args = [evaluate(arg, table) for arg in expr.args]
    function = FUNCTIONS[expr.name]
    return [function(expr, *row) for row in zip(*args, strict=True)]


def truths(expr: Expr | None, table: Table) -> list[bool]:
    """On which rows a condition is true."""
    if expr is None:
        return [True] * max((len(values) for values in table.values()), default=1)
    return [value is True for value in evaluate(expr, table)]


def rows_of(box: Box, table: Table) -> list[bool]:
    """Which rows are in a box."""
    size = max((len(values) for values in table.values()), default=1)
    inside = [not box.empty] * size
    for constraint in box.constraints:
        columns = [evaluate(term, table) for term in constraint.terms]
        for i, values in enumerate(zip(*columns, strict=True)):
            same = all(compare(values[0], value) == 0 for value in values[1:])
            inside[i] &= same and constraint.domain.contains(values[0])
    for term in box.terms:
        inside = [a and b for a, b in zip(inside, truths(term, table), strict=True)]
    return inside


def within(a: Sequence[bool], b: Sequence[bool]) -> bool:
    return all(y for x, y in zip(a, b, strict=True) if x)


def columns_in(*things: Box | Expr | None) -> set[Column]:
    found: set[Column] = set()
    for thing in things:
        if isinstance(thing, Box):
            terms = (*(t for c in thing.constraints for t in c.terms), *thing.terms)
            found.update(column for term in terms for column in columns_of(term))
        elif thing is not None:
            found |= columns_of(thing)
    return found


# ---- functions


def compare(a: Any, b: Any) -> int | None:
    """-1, 0 or 1; None if one is NULL."""
    if a is None or b is None:
        return None
    x, y = (a != a, 0 if a != a else a), (b != b, 0 if b != b else b)
    return (x > y) - (x < y)


def _compared(test: Callable[[int, int], bool]) -> Callable[..., bool | None]:
    def function(expr: Call, a: Any, b: Any) -> bool | None:
        types = [arg.type for arg in expr.args]
        if types == [DATE, TIMESTAMP] and a is not None:
            a *= DAY
        if types == [TIMESTAMP, DATE] and b is not None:
            b *= DAY
        order = compare(a, b)
        return None if order is None else test(order, 0)

    return function


def _computed(compute: Callable[..., Any]) -> Callable[..., Any]:
    def function(expr: Call, *args: Any) -> Any:
        if None in args:
            return None
        if expr.name == "-" and expr.type == INTERVAL:
            args = tuple(
                value * DAY if arg.type == DATE else value
                for value, arg in zip(args, expr.args, strict=True)
            )
        value = compute(*args)
        bounds = expr.type.bounds
        return value if bounds is None or value is None or bounds[0] <= value <= bounds[1] else None

    return function


def _remainder(a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def _and(expr: Call, *args: bool | None) -> bool | None:
    return False if False in args else None if None in args else True


def _or(expr: Call, *args: bool | None) -> bool | None:
    return True if True in args else None if None in args else False


def _in(expr: Call, value: Any, *members: Any) -> bool | None:
    orders = [compare(value, member) for member in members]
    return True if 0 in orders else None if None in orders else False


def _same(expr: Call, a: Any, b: Any) -> bool:
    return (a is None and b is None) or compare(a, b) == 0


def _case(expr: Call, *args: Any) -> Any:
    for condition, value in zip(args[:-1:2], args[1::2], strict=True):
        if condition:
            return value
    return args[-1]


def _extreme(wanted: int) -> Callable[..., Any]:
    def function(expr: Call, *args: Any) -> Any:
        best = None
        for value in args:
            if value is not None and (best is None or compare(value, best) == wanted):
                best = value
        return best

    return function


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda expr, *args: None if None in args else function(*args)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "=": _compared(operator.eq),
    "<>": _compared(operator.ne),
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "<=>": _same,
    "and": _and,
    "or": _or,
    "not": lambda expr, a: None if a is None else not a,
    "is_null": lambda expr, a: a is None,
    "in": _in,
    "+": _computed(operator.add),
    "-": _computed(operator.sub),
    "*": _computed(operator.mul),
    "%": _computed(_remainder),
    "neg": _computed(operator.neg),
    "cast": lambda expr, a: a,
    "case": _case,
    "coalesce": lambda expr, *args: next((a for a in args if a is not None), None),
    "nullif": lambda expr, a, b: None if compare(a, b) == 0 else a,
    "greatest": _extreme(1),
    "least": _extreme(-1),
    "upper": _strict(str.upper),
    "startswith": _strict(str.startswith),
}
