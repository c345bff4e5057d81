"""Every aggregate against values worked out by hand."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from headwater.algebra.expressions import Column, Expr, literal
from headwater.algebra.functions import AGGREGATES, AggregateCall, build_aggregate, build_call
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TINYINT,
    Type,
    Value,
    decimal,
)
from headwater.errors import EvaluationError
from headwater.reference.aggregates import compile_aggregate, supported_aggregates

INF, NAN = math.inf, math.nan
CASES: list[tuple[str, Type, list[Value], Value]] = [
    ("count", INT, [], 0),
    ("count", INT, [1, None, 1], 2),
    ("count distinct", DOUBLE, [0.0, -0.0, float("nan"), float("nan"), None, 1.0], 3),
    ("sum", INT, [], None),
    ("sum", INT, [None], None),
    ("sum", TINYINT, [100, 100, None], 200),
    ("sum", BIGINT, [2**63 - 1, 1], None),
    ("sum", BIGINT, [2**63 - 1, 1, -1], 2**63 - 1),
    ("sum distinct", INT, [2, 2, 3, None], 5),
    ("sum", DOUBLE, [1e16, 1.0, -1e16], 1.0),
    ("sum", DOUBLE, [0.1] * 10, 1.0),
    ("sum", DOUBLE, [INF, -INF], NAN),
    ("sum", DOUBLE, [INF, 1.0], INF),
    ("sum", DOUBLE, [1e308, 1e308], INF),
    ("sum", DOUBLE, [1e308, 1e308, -1e308], 1e308),
    ("sum", DOUBLE, [NAN, 1.0], NAN),
    ("sum", decimal(4, 2), [Decimal("1.25"), Decimal("-0.50")], Decimal("0.75")),
    ("sum", decimal(38, 0), [Decimal("9" * 38), Decimal(1)], None),
    ("sum", INTERVAL, [5, 6], 11),
    ("sum", INTERVAL, [2**62, 2**62], None),
    ("avg", INT, [], None),
    ("avg", INT, [1, 2, None], 1.5),
    ("avg distinct", INT, [1, 1, 4], 2.5),
    ("avg", decimal(4, 2), [Decimal(1), Decimal(0), Decimal(0)], Decimal("0.333333")),
    ("avg", decimal(4, 2), [Decimal(1), Decimal(1), Decimal(0)], Decimal("0.666667")),
    ("min", INT, [3, None, 1], 1),
    ("min", INT, [None], None),
    ("min", DOUBLE, [NAN, 5.0], 5.0),
    ("min", STRING, ["b", "B", "a"], "B"),
    ("max", DOUBLE, [NAN, INF], NAN),
    ("max", STRING, [], None),
    ("max", BOOLEAN, [False, True], True),
    ("var_samp", DOUBLE, [1.0], None),
    ("var_samp", DOUBLE, [1.0, 3.0], 2.0),
    ("var_samp", DOUBLE, [], None),
    ("var_pop", DOUBLE, [1.0], 0.0),
    ("var_pop", INT, [1, 3, None], 1.0),
    ("var_pop", decimal(4, 2), [Decimal(1), Decimal(3)], 1.0),
    ("var_pop", DOUBLE, [1.0, INF], NAN),
    ("var_pop", DOUBLE, [], None),
    ("stddev_samp", DOUBLE, [1.0], None),
    ("stddev_samp", DOUBLE, [0.0, 0.0, 3.0], math.sqrt(3.0)),
    ("stddev_pop", DOUBLE, [1.0, 5.0], 2.0),
    ("stddev_pop", DOUBLE, [1.0], 0.0),
    ("bool_and", BOOLEAN, [True, None], True),
    ("bool_and", BOOLEAN, [True, False], False),
    ("bool_and", BOOLEAN, [None], None),
    ("bool_or", BOOLEAN, [False, None], False),
    ("bool_or", BOOLEAN, [False, True], True),
    ("bool_or", BOOLEAN, [], None),
]


@pytest.mark.parametrize(("what", "type_", "values", "expected"), CASES)
def test_value(what: str, type_: Type, values: list[Value], expected: Value) -> None:
    name, _, distinct = what.partition(" ")
    column = Column("r", "v", type_)
    compute = compile_aggregate(build_aggregate(name, column, bool(distinct)), (column,))
    for rows in ([(v,) for v in values], [(v,) for v in reversed(values)]):
        value = compute(rows)
        assert value == expected or (value != value and expected != expected)
        assert type(value) is type(expected)


def test_count_star_and_filter() -> None:
    column = Column("r", "v", INT)
    rows = [(1,), (None,), (5,)]

    def counted(arg: Expr | None, filter: Expr | None) -> Value:
        return compile_aggregate(build_aggregate("count", arg, filter=filter), (column,))(rows)

    large = build_call(">", column, literal(1))
    assert counted(None, None) == 3
    assert counted(None, large) == 1
    assert counted(None, build_call("is_null", column)) == 1
    assert counted(column, build_call("is_null", column)) == 0


def test_every_aggregate_has_a_meaning_and_a_case() -> None:
    assert supported_aggregates() == set(AGGREGATES)
    assert {what.split()[0] for what, *_ in CASES} == set(AGGREGATES)


def test_an_unknown_aggregate_is_refused() -> None:
    with pytest.raises(EvaluationError, match="unknown aggregate mode"):
        compile_aggregate(AggregateCall("mode", literal(1), INT), ())
