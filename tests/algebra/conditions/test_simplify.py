"""Simplified expressions: one form, the same value on every row, texts that distinguish all."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from three_valued import columns_in, evaluate, table_of

from headwater.algebra.conditions.simplify import UNKNOWN, canonical_text, may_be_null, simplify
from headwater.algebra.expressions import FALSE, TRUE, Call, Column, Expr, Literal, literal
from headwater.algebra.functions import build_call, cast
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    TINYINT,
    decimal,
)
from strategies import columns_named, logicals, scalars

A, B, C = columns_named(INT, "t.a", "t.b", "t.c")
N = Column("t", "n", INT, nullable=False)
BIG = Column("t", "big", BIGINT)
D, E = columns_named(DOUBLE, "t.d", "t.e")
S, T = columns_named(STRING, "t.s", "t.t")
F, G = columns_named(BOOLEAN, "t.f", "t.g")
M = Column("t", "m", decimal(10, 2))
TS = Column("t", "ts", TIMESTAMP)
DAY = Column("t", "day", DATE)
MISSING = Literal(None, INT)


def e(name: str, *args: Expr | int | float | str | Decimal | bool | None) -> Expr:
    """A call, with constants written plainly."""
    return build_call(
        name, *(a if isinstance(a, Column | Literal | Call) else literal(a) for a in args)
    )


PAIRS = {
    "constant on the left": (e("<", 5, A), e(">", A, 5)),
    "columns by text": (e(">", B, A), e("<", A, B)),
    "equality by text": (e("=", B, A), e("=", A, B)),
    "same on both sides": (e("<=", A, A), e("=", A, A)),
    "less than itself": (e("<", A, A), e("<>", A, A)),
    "a column that is there equals itself": (e("=", N, N), TRUE),
    "null-safe equality with itself": (e("<=>", A, A), TRUE),
    "null-safe equality with NULL": (e("<=>", A, MISSING), e("is_null", A)),
    "null-safe equality of what is there": (e("<=>", N, 5), e("=", N, 5)),
    "comparison with NULL": (e("<", A, MISSING), UNKNOWN),
    "constants compare": (e("<", 3, 5), TRUE),
    "constants of two types compare": (e("=", 3, Decimal("3.0")), TRUE),
    "NaN is the largest": (e(">", math.nan, math.inf), TRUE),
    "double negation": (e("not", e("not", e("like", S, "a%"))), e("like", S, "a%")),
    "not less": (e("not", e("<", A, B)), e(">=", A, B)),
    "De Morgan": (
        e("not", e("and", e("<", A, 5), e("=", B, 1))),
        e("or", e("<>", B, 1), e(">=", A, 5)),
    ),
    "not unknown": (e("not", UNKNOWN), UNKNOWN),
    "nested and": (
        e("and", e("and", e("<", A, 5), F), e("and", G, F)),
        e("and", e("<", A, 5), F, G),
    ),
    "and with true": (e("and", TRUE, F), F),
    "and with false": (e("and", F, FALSE), FALSE),
    "and with unknown": (e("and", F, Literal(None, NULL)), e("and", UNKNOWN, F)),
    "or with true": (e("or", F, TRUE), TRUE),
    "equalities of one term": (
        e("or", e("=", A, 2), e("=", 1, A)),
        e("in", A, 1, 2),
    ),
    "equalities and lists of one term": (
        e("or", e("in", A, 5, 1), e("=", A, 2), F),
        e("or", e("in", A, 1, 2, 5), F),
    ),
    "inequalities of one term": (
        e("and", e("<>", A, 2), e("not", e("in", A, 3, 1))),
        e("not", e("in", A, 1, 2, 3)),
    ),
    "less or equal": (e("or", e("<", A, B), e("=", B, A)), e("<=", A, B)),
    "less and different": (e("and", e("<=", A, B), e("<>", A, B)), e("<", A, B)),
    "list of one": (e("in", A, 5), e("=", A, 5)),
    "list in order": (e("in", A, 10, 2, 10), e("in", A, 2, 10)),
    "list of constants only": (e("in", 3, 1, 3, MISSING), TRUE),
    "list with NULL that may be it": (e("in", 3, 1, MISSING), UNKNOWN),
    "flag is true": (e("=", F, True), F),
    "flag is not true": (e("<>", F, True), e("not", F)),
    "condition is false": (e("=", e("<", A, B), False), e(">=", A, B)),
    "is null of a constant": (e("is_null", 5), FALSE),
    "is null of what is there": (e("is_null", N), FALSE),
    "is null of a comparison": (
        e("is_null", e("<", A, B)),
        e("or", e("is_null", A), e("is_null", B)),
    ),
    "sums of constants": (e("+", 1, e("*", 2, 3)), literal(7)),
    "overflow is NULL": (e("+", 2**31 - 1, 1), MISSING),
    "whole division": (e("div", -7, 2), Literal(-3, BIGINT)),
    "remainder": (e("%", -7, 2), literal(-1)),
    "remainder of zero": (e("%", 7, 0), MISSING),
    "decimals": (
        e("+", Decimal("1.50"), Decimal("2.5")),
        Literal(Decimal("4.00"), decimal(4, 2)),
    ),
    "time and interval": (
        e("+", Literal(5, TIMESTAMP), Literal(7, INTERVAL)),
        Literal(12, TIMESTAMP),
    ),
    "days between dates": (
        e("-", Literal(5, DATE), Literal(3, DATE)),
        Literal(2 * 86_400_000_000, INTERVAL),
    ),
    "sum with NULL": (e("+", A, MISSING), MISSING),
    "plus zero": (e("+", 0, A), A),
    "times one": (e("*", A, 1), A),
    "operands swap": (e("+", B, A), e("+", A, B)),
    "constant last": (e("*", 2, A), e("*", A, 2)),
    "the date stays first": (e("+", DAY, A), e("+", DAY, A)),
    "sums are not regrouped": (e("+", e("+", A, 1), 2), e("+", e("+", A, 1), 2)),
    "floats are left alone": (e("+", D, e("+", 0.1, 0.2)), e("+", e("+", 0.1, 0.2), D)),
    "constant as the column's type": (
        e("=", BIG, 5),
        Call("=", (BIG, Literal(5, BIGINT)), BOOLEAN),
    ),
    "decimal as an integer": (e("<", A, Decimal("5.0")), e("<", A, 5)),
    "decimal that is no integer": (e("<", A, Decimal("5.5")), e("<", A, Decimal("5.5"))),
    "integer as a double": (e("<", D, 5), e("<", D, 5.0)),
    "integer as a decimal": (
        e("<", M, 5),
        Call("<", (M, Literal(Decimal("5.00"), M.type)), BOOLEAN),
    ),
    "date as a timestamp": (
        e("<", TS, Literal(1, DATE)),
        e("<", TS, Literal(86_400_000_000, TIMESTAMP)),
    ),
    "case of constants": (e("case", FALSE, A, TRUE, B, C), B),
    "case without a choice": (e("case", F, A, G, A, A), A),
    "case keeps its type": (e("case", TRUE, A, D), cast(A, DOUBLE)),
    "case drops the impossible": (e("case", FALSE, A, F, B, C), e("case", F, B, C)),
    "coalesce of what is there": (e("coalesce", A, N, B), e("coalesce", A, N)),
    "nested coalesce": (e("coalesce", e("coalesce", A, B), MISSING, A), e("coalesce", A, B)),
    "greatest in order": (e("greatest", B, e("greatest", C, A), B), e("greatest", A, B, C)),
    "least of one": (e("least", A, A, MISSING), A),
    "cast of a number": (cast(literal(5), BIGINT), Literal(5, BIGINT)),
    "cast beyond the limits": (cast(literal(300), TINYINT), Literal(None, TINYINT)),
    "cast of a decimal": (cast(literal(Decimal("-5.7")), INT), literal(-5)),
    "cast to a decimal": (cast(literal(5), decimal(5, 2)), Literal(Decimal("5.00"), decimal(5, 2))),
    "cast of a text": (cast(literal("12"), INT), literal(12)),
    "cast of a text to a date": (cast(literal("1970-01-03"), DATE), Literal(2, DATE)),
    "cast to a text": (cast(literal(12), STRING), literal("12")),
    "cast that is not plain": (cast(literal(" 12 "), INT), cast(literal(" 12 "), INT)),
    "cast of a float": (cast(literal(1.5), INT), cast(literal(1.5), INT)),
    "cast of NULL": (cast(MISSING, STRING), Literal(None, STRING)),
}


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS.keys())
def test_pair(before: Expr, after: Expr) -> None:
    assert canonical_text(simplify(before)) == canonical_text(after)
    assert simplify(before) == after
    assert simplify(after) == after


TINY = [
    *columns_named(TINYINT, "a.x", "a.y"),
    *columns_named(TINYINT, "a.z", nullable=False),
]


def check_same_value(expr: Expr) -> None:
    table = table_of(columns_in(expr))
    simple = simplify(expr)
    assert evaluate(simple, table) == evaluate(expr, table)
    assert simplify(simple) == simple
    assert simple.type == expr.type or simple == Literal(None, NULL)
    if not may_be_null(expr):
        assert None not in evaluate(expr, table)


@settings(max_examples=300, deadline=None)
@given(st.one_of(scalars(TINY), logicals(TINY)))
def test_the_value_stays_the_same(expr: Expr) -> None:
    check_same_value(expr)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=None)
@given(st.one_of(scalars(TINY), logicals(TINY)))
def test_the_value_stays_the_same_at_length(expr: Expr) -> None:
    check_same_value(expr)


DISTINCT: list[Expr] = [
    literal(1),
    Literal(1, BIGINT),
    literal(1.0),
    Literal(1.0, FLOAT),
    literal(Decimal(1)),
    Literal(Decimal(1), decimal(5, 2)),
    literal("1"),
    literal(True),
    literal("TRUE"),
    Literal(1, DATE),
    Literal(1, TIMESTAMP),
    Literal(1, INTERVAL),
    literal(None),
    Literal(None, INT),
    literal("NULL"),
    literal(""),
    literal("'"),
    literal("''"),
    A,
    B,
    Column("t", "a", BIGINT),
    Column("t.a", "a", INT),
    Column("t", "a.a", INT),
    Column("", "a", INT),
    literal("t.a:INT"),
    e("+", A, B),
    e("-", A, B),
    e("neg", A),
    e("in", A, 1, 2),
    e("in", A, 12),
    cast(A, STRING),
    cast(A, BIGINT),
    e("concat", "a", "b"),
    e("concat", "a,b"),
    e("concat", "a','b"),
]


def test_texts_distinguish_expressions() -> None:
    texts = [canonical_text(expr) for expr in DISTINCT]
    assert len(set(texts)) == len(DISTINCT)


def test_equal_expressions_have_equal_texts() -> None:
    same = decimal(5, 2)
    assert canonical_text(Literal(Decimal("1.50"), same)) == canonical_text(
        Literal(Decimal("1.5"), same)
    )
    assert canonical_text(Literal(Decimal("-0"), same)) == canonical_text(Literal(Decimal(0), same))
    assert canonical_text(literal(-0.0)) == canonical_text(literal(0.0))
    assert canonical_text(literal(math.nan)) == canonical_text(literal(-math.nan))
    assert canonical_text(Column("t", "a", INT, nullable=False)) == canonical_text(A)


@pytest.mark.parametrize(
    ("expr", "answer"),
    [
        (A, True),
        (N, False),
        (e("+", N, 1), True),
        (e("<", N, 1), False),
        (e("in", N, 1, 2), False),
        (e("in", N, 1, MISSING), True),
        (e("is_null", A), False),
        (e("coalesce", A, N), False),
        (e("case", F, N, 1), False),
        (e("case", F, A, 1), True),
        (e("greatest", A, N), False),
    ],
    ids=str,
)
def test_may_be_null(expr: Expr, answer: bool) -> None:
    assert may_be_null(expr) == answer
