"""Recipe: an aggregate from outside of the package is typed, evaluated, compiled and kept in panes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.functions import (
    AGGREGATES,
    AggregateFunction,
    build_aggregate,
    is_mergeable,
)
from headwater.algebra.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, STRING, Type
from headwater.algebra.types import decimal as decimal_type
from headwater.cql import CreateStream, parse, parse_query, unparse
from headwater.errors import AlgebraError, CqlError
from headwater.reference import evaluate
from headwater.reference.aggregates import supported_aggregates
from headwater.reuse import SharingKind, signature_of
from headwater.runtime.api import open_state
from headwater.runtime.compile import Panes, compile_query
from headwater.runtime.engine.engine import Engine
from headwater.runtime.spark.aggregates import (
    AGGREGATE_SQL,
    AggregateSpec,
    AggregateSql,
    SqlCall,
    merged_by,
    partial_aggregate,
    register_aggregate,
    unregister_aggregate,
)

STREAM = "CREATE STREAM s (k INT, v BIGINT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
QUERY = "SELECT k, parity(v) AS p FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE v > 0 GROUP BY k"
SECOND = 1_000_000
ROWS = [(1, 5, 1 * SECOND), (1, 3, 4 * SECOND), (2, 9, 6 * SECOND), (1, None, 7 * SECOND)]

# ---- the aggregate, as somebody else would write it


def parity_type(name: str, args: Sequence[Expr]) -> Type:
    if not args[0].type.is_integer:
        raise AlgebraError(f"{name} takes a whole number, not {args[0].type}")
    return args[0].type


PARITY = AggregateSpec(
    AggregateFunction("parity", parity_type, merges=lambda argument: True),
    summary=lambda argument, result: lambda values: reduce(xor, values) if values else None,
    sql=AggregateSql(lambda argument: SqlCall("bit_xor"), merged_by("bit_xor")),
)


@pytest.fixture
def names() -> Iterator[Namespace]:
    register_aggregate(PARITY)
    (declared,) = parse(STREAM)
    assert isinstance(declared, CreateStream)
    yield Namespace.of([declared.stream])
    unregister_aggregate("parity")


# ---- what follows from it


def test_it_is_typed_and_written_back(names: Namespace) -> None:
    query = parse_query(QUERY, names)
    assert [str(column.type) for column in query.columns] == ["INT", "BIGINT"]
    assert parse_query(unparse(query), names) == query
    with pytest.raises(CqlError, match="parity takes a whole number, not TIMESTAMP"):
        parse_query("SELECT parity(ts) AS p FROM s [NOW]", names)
    with pytest.raises(CqlError, match="WHERE cannot hold an aggregate"):
        parse_query("SELECT k FROM s [NOW] WHERE parity(v) > 1", names)


def test_it_is_evaluated_by_the_reference(names: Namespace) -> None:
    results = evaluate(parse_query(QUERY, names), {"s": ROWS})
    assert [(r.tau // SECOND, *r.values) for r in results] == [(5, 1, 6), (10, 1, 6), (10, 2, 9)]


def test_panes_and_sharing_follow_from_its_parts(names: Namespace) -> None:
    canonical = canonicalize(parse_query(QUERY, names))
    plan = compile_query(canonical)
    assert isinstance(plan, Panes) and plan.partial_aggregates is not None
    assert "bit_xor(x0) AS m0" in plan.delta_sql(["SELECT 1"])
    assert "bit_xor(m0) AS m0" in plan.compaction_sql(0)
    assert signature_of(canonical).kind is SharingKind.GROUP


def test_where_it_does_not_merge_rows_are_kept(names: Namespace) -> None:
    query = parse_query(QUERY.replace("parity(v)", "parity(DISTINCT v)"), names)
    plan = compile_query(canonicalize(query))
    assert isinstance(plan, Panes) and plan.partial_aggregates is None
    assert "bit_xor(DISTINCT `x0`)" in plan.result_sql(None, [5 * SECOND])


@pytest.mark.spark
def test_spark_agrees_with_the_reference(names: Namespace, spark: Any, tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater._engine = Engine(headwater.catalog, headwater.state, spark)
        headwater.execute(f"{STREAM}; CREATE QUERY q AS {QUERY}")
        rows = [(k, v, datetime.fromtimestamp(ts // SECOND, UTC)) for k, v, ts in ROWS]
        headwater.push("s", rows)
        headwater.execute("END STREAM s")
        headwater.run(until_idle=True)
        found = sorted((row["k"], row["p"]) for row in headwater.query("q").results())
    assert found == sorted(r.values for r in evaluate(parse_query(QUERY, names), {"s": ROWS}))


def test_without_it_the_call_is_refused() -> None:
    (declared,) = parse(STREAM)
    assert isinstance(declared, CreateStream)
    with pytest.raises(CqlError, match="unknown function parity"):
        parse_query(QUERY, Namespace.of([declared.stream]))
    with pytest.raises(AlgebraError, match="unknown aggregate parity; "):
        unregister_aggregate("parity")
    with pytest.raises(AlgebraError, match="there is a function sum already"):
        register_aggregate(
            AggregateSpec(AGGREGATES["sum"], PARITY.summary, AggregateSql(lambda _: SqlCall("sum")))
        )


# ---- the aggregates that come with Headwater


def test_every_aggregate_has_a_meaning_and_sql() -> None:
    assert set(AGGREGATES) == supported_aggregates() == set(AGGREGATE_SQL)


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize(
    "type_",
    [
        INT,
        BIGINT,
        DOUBLE,
        BOOLEAN,
        DATE,
        STRING,
        INTERVAL,
        decimal_type(28, 2),
        decimal_type(29, 2),
    ],
    ids=str,
)
def test_what_merges_has_parts(name: str, type_: Type) -> None:
    try:
        call = build_aggregate(name, Column("s", "v", type_))
    except AlgebraError:
        return  # it does not take such an argument
    assert is_mergeable(call) == (partial_aggregate(call, 0) is not None)
