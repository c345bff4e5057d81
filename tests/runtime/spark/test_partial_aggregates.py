"""Partial aggregates: however rows are cut into parts, and parts merged, the value is that of the reference.

Every random case is one group of one table, so that Spark runs a few statements for all of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.expressions import Column
from headwater.algebra.functions import AGGREGATES, AggregateCall, build_aggregate, is_mergeable
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    decimal,
)
from headwater.errors import AlgebraError
from headwater.reference.aggregates import compile_aggregate
from headwater.reference.values import normalize_value
from headwater.runtime.spark.aggregates import partial_aggregate
from headwater.runtime.spark.sql import spark_type

CASES = 40
EXTREMES: dict[Type, Sequence[Any]] = {
    INT: (0, 1, -1, 2**31 - 1, -(2**31), 7, 7),
    BIGINT: (0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1),
    DOUBLE: (0.0, -0.0, 0.5, -2.25, 1e9, 1e9 + 0.5),
    FLOAT: (0.0, -0.0, 0.5, 1.5),
    decimal(9, 2): tuple(map(Decimal, ("0.00", "1.10", "-1.10", "9999999.99", "-9999999.99"))),
    decimal(20, 4): tuple(map(Decimal, ("0.0000", "1234567890123456.7891", "1.1000"))),
    STRING: ("", "a", "b", "ä", "a "),
    BOOLEAN: (True, False),
    DATE: (0, 1, 20_000),
    TIMESTAMP: (0, 1, 1_700_000_000_000_000),
}
UNUSUAL = (math.nan, math.inf, -math.inf)


def mergeable_calls(type_: Type) -> list[AggregateCall]:
    """Every aggregate of a column of that type that has parts, also with DISTINCT."""
    column = Column("s", "v", type_)
    calls = []
    for name in AGGREGATES:
        for distinct in (False, True):
            try:
                call = build_aggregate(name, column, distinct)
            except AlgebraError:
                continue
            if is_mergeable(call) and (call.distinct or not distinct):
                calls.append(call)
    return calls


def random_cases(rng: random.Random, type_: Type) -> list[list[list[Any]]]:
    """Groups, each of which is a list of parts, each of which is a list of values; some have none."""

    def value() -> Any:
        if rng.random() < 0.15:
            return None
        if type_ == DOUBLE and rng.random() < 0.02:
            return rng.choice(UNUSUAL)
        return rng.choice(EXTREMES[type_])

    sizes = [[rng.choice([0, 1, 1, 2, 5]) for _ in range(rng.randint(1, 5))] for _ in range(CASES)]
    return [[[value() for _ in range(size)] for size in case] for case in sizes]


def literal(value: Any, type_: Type) -> str:
    if value is None:
        return f"CAST(NULL AS {spark_type(type_)})"
    if type_ == DATE:
        return f"date_from_unix_date({value})"
    if type_ == TIMESTAMP:
        return f"timestamp_micros({value}L)"
    return f"CAST('{value}' AS {spark_type(type_)})"


def merged_values(
    spark: Any,
    cases: Sequence[Sequence[Sequence[Any]]],
    type_: Type,
    calls: Sequence[AggregateCall],
) -> dict[int, Sequence[Any]]:
    """What Spark makes of each case: parts of rows, parts merged two by two, and all of them."""
    rows = [
        f"({case}, {part}, {literal(value, type_)})"
        for case, parts in enumerate(cases)
        for part, values in enumerate(parts)
        for value in values
    ]
    partials = [partial_aggregate(call, n) for n, call in enumerate(calls)]
    known = [p for p in partials if p is not None]
    assert len(known) == len(calls)
    columns = [column for partial in known for column in partial.columns]
    arguments = ", ".join(f"v AS x{n}" for n in range(len(calls)))
    built = ", ".join(f"{c.build} AS {c.name}" for c in columns)
    merged = ", ".join(f"{c.merge_sql(c.name)} AS {c.name}" for c in columns)
    merge = {c.name: c.merge_sql(c.name) for c in columns}
    values = ", ".join(p.finish_sql(merge.__getitem__) for p in known)
    found = spark.sql(
        f"WITH r AS (SELECT k, p, {arguments} FROM VALUES {', '.join(rows)} AS t(k, p, v)), "
        f"parts AS (SELECT k, p, {built} FROM r GROUP BY k, p), "
        f"fewer AS (SELECT k, p DIV 2 AS p, {merged} FROM parts GROUP BY k, p DIV 2) "
        f"SELECT k, {values} FROM fewer GROUP BY k"
    ).toArrow()
    return {row[0]: row[1:] for row in zip(*(c.to_pylist() for c in found.columns), strict=True)}


@pytest.mark.spark
@pytest.mark.parametrize("type_", EXTREMES, ids=str)
def test_merged_parts_have_the_value_of_all_rows(spark: Any, type_: Type) -> None:
    cases = random_cases(random.Random(str(type_)), type_)
    calls = [c for c in mergeable_calls(type_) if c.name not in ("min", "max")]
    found = merged_values(spark, cases, type_, calls)
    for at, parts in enumerate(cases):
        values = [value for part in parts for value in part]
        if not values:
            continue
        for call, value in zip(calls, found[at], strict=True):
            column = call.arg
            assert isinstance(column, Column)
            wanted = compile_aggregate(call, (column,))([(v,) for v in values])
            assert_same(value, wanted, is_exact(call), f"{call} of {parts}")


def is_exact(call: AggregateCall) -> bool:
    """Whether parts are merged without rounding; sums of doubles and of what is squared as such are not."""
    assert call.arg is not None
    type_ = call.arg.type
    if call.name.startswith(("stddev", "var")):
        return type_ == INT or (type_.is_decimal and type_.precision <= 9)
    return not (call.type == DOUBLE and type_.is_floating)


def assert_same(found: Any, wanted: Any, exact: bool, what: str) -> None:
    if not exact and isinstance(wanted, float) and isinstance(found, float):
        assert found == pytest.approx(wanted, rel=1e-9, abs=1e-6, nan_ok=True), what
        return
    assert normalize_value(found) == normalize_value(wanted), what


@pytest.mark.spark
def test_the_spread_of_equal_values_is_zero_and_a_large_mean_does_not_hide_it(spark: Any) -> None:
    calls = [build_aggregate(name, Column("s", "v", DOUBLE)) for name in ("var_pop", "stddev_samp")]
    equal = [[0.1, 0.1, 0.1], [0.1], [0.1, 0.1]]
    far = [[1e12 + n / 4 for n in range(m, m + 3)] for m in range(0, 9, 3)]
    found = merged_values(spark, [equal, far], DOUBLE, calls)
    assert list(found[0]) == [0.0, 0.0]
    for value, call in zip(found[1], calls, strict=True):
        assert isinstance(call.arg, Column)
        rows = [(v,) for part in far for v in part]
        assert value == pytest.approx(compile_aggregate(call, (call.arg,))(rows), rel=1e-12)


# ---- the meaning, without Spark


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=30), st.randoms())
def test_the_variance_follows_from_number_sum_and_sum_of_squares(
    values: list[int], rng: random.Random
) -> None:
    cut = rng.randrange(len(values))
    parts = [values[:cut], values[cut:]]
    n, total, squares = (sum(sum(v**power for v in part) for part in parts) for power in (0, 1, 2))
    column = Column("s", "v", INT)
    shuffled = [(v,) for v in rng.sample(values, len(values))]
    for name, divisor in (("var_pop", n), ("var_samp", n - 1)):
        variance = float(n * squares - total**2) / float(n * divisor)
        assert compile_aggregate(build_aggregate(name, column), (column,))(shuffled) == variance
        root = compile_aggregate(build_aggregate(name.replace("var", "stddev"), column), (column,))
        assert root(shuffled) == math.sqrt(variance)


@given(st.lists(st.lists(st.integers(0, 5) | st.none())))
def test_distinct_values_of_parts_are_those_of_all(parts: list[list[int | None]]) -> None:
    column = Column("s", "v", INT)
    distinct = compile_aggregate(build_aggregate("count", column, distinct=True), (column,))
    union = set().union(*(set(part) - {None} for part in parts))
    assert distinct([(v,) for part in parts for v in part]) == len(union)
