"""Scalar expressions: columns, constants and calls of functions.

An operator is a call too (`+`, `=`, `and`, `case`, `cast`, ...), so every walk over an expression
has three cases. Calls are built with `functions.build_call`, which finds the function, checks the
arguments and computes the type of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    NULL,
    STRING,
    Type,
    Value,
    bounded_decimal,
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the relation called `relation` (its alias in the query).

    `nullable` does not take part in equality: the same column may be nullable in one place only.
    """

    relation: str
    name: str
    type: Type
    nullable: bool = field(default=True, compare=False)

    def __hash__(self) -> int:
        # Without the type, which rarely differs where both names agree: hashing is frequent.
        return hash((self.relation, self.name))

    def __str__(self) -> str:
        return f"{self.relation}.{self.name}" if self.relation else self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. NaN is one object and zero has no sign, so equal constants are equal objects."""

    value: Value
    type: Type

    def __post_init__(self) -> None:
        if isinstance(self.value, float):
            if math.isnan(self.value):
                object.__setattr__(self, "value", math.nan)
            elif self.value == 0:
                object.__setattr__(self, "value", 0.0)

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator applied to arguments; build it with `functions.build_call`."""

    name: str
    args: tuple[Expr, ...]
    type: Type

    def __str__(self) -> str:
        if self.name == "cast":
            return f"cast({self.args[0]} as {self.type})"
        return f"{self.name}({', '.join(map(str, self.args))})"


Expr = Column | Literal | Call

TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)


def literal(value: Value) -> Literal:
    """A constant with the type that Spark SQL gives it when it is written in a query."""
    match value:
        case None:
            return Literal(None, NULL)
        # Before int, because in Python a bool is one.
        case bool():
            return Literal(value, BOOLEAN)
        case int():
            return Literal(value, INT if -(2**31) <= value < 2**31 else BIGINT)
        case float():
            return Literal(value, DOUBLE)
        case Decimal():
            digits = len(value.as_tuple().digits)
            exponent = value.as_tuple().exponent
            scale = max(0, -exponent) if isinstance(exponent, int) else 0
            return Literal(value, bounded_decimal(max(digits, scale, 1), scale))
        case str():
            return Literal(value, STRING)


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all below it, parents first."""
    yield expr
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from walk(arg)


def columns_of(expr: Expr) -> set[Column]:
    """Every column an expression reads."""
    if isinstance(expr, Column):  # as most are
        return {expr}
    return {e for e in walk(expr) if isinstance(e, Column)}


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to every part, arguments first."""
    if isinstance(expr, Call) and expr.args:
        args = tuple(transform(arg, change) for arg in expr.args)
        if args != expr.args:
            expr = Call(expr.name, args, expr.type)
    return change(expr)


def substitute(expr: Expr, mapping: Mapping[Any, Expr]) -> Expr:
    """The expression with every part that is a key of `mapping` replaced, larger parts first."""
    if expr in mapping:
        return mapping[expr]
    if isinstance(expr, Call) and expr.args:
        return Call(expr.name, tuple(substitute(arg, mapping) for arg in expr.args), expr.type)
    return expr


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """The operands of nested ANDs; none for no condition."""
    if expr is None or expr == TRUE:
        return ()
    if isinstance(expr, Call) and expr.name == "and":
        return tuple(part for arg in expr.args for part in conjuncts(arg))
    return (expr,)


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """One flat AND of conditions; None if there are none."""
    flat = tuple(part for expr in parts for part in conjuncts(expr))
    if not flat:
        return None
    return flat[0] if len(flat) == 1 else Call("and", flat, BOOLEAN)
