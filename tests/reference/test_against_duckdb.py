"""The reference evaluator against the second oracle, on random queries and random data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from duckdb_oracle import Unsupported, duckdb_evaluate, supports
from headwater.algebra.functions import build_aggregate
from headwater.algebra.nodes import Aggregate, Item, Output, Project, Query
from headwater.algebra.windows import UNBOUNDED
from headwater.reference import Result, evaluate
from headwater.reference.values import normalize_row, row_order_key
from strategies import BIDS, SECOND, queries, streams, tables

EXAMPLES = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
Rows = dict[str, list[Any]]


def ordered(results: list[Result]) -> list[tuple[Any, ...]]:
    rows = [(result.tau, *normalize_row(result.values)) for result in results]
    return sorted(rows, key=row_order_key)


def check_equal(query: Query, streams: Rows, tables: Rows, **bounds: Any) -> None:
    note(repr(query))
    expected = duckdb_evaluate(query, streams, tables, **bounds)
    assert ordered(evaluate(query, streams, tables, **bounds)) == ordered(expected)


@given(queries(), streams(), tables())
@settings(EXAMPLES, max_examples=150)
def test_both_oracles_agree(query: Query, streams: Rows, tables: Rows) -> None:
    assert supports(query)
    check_equal(query, streams, tables)


@pytest.mark.slow
@given(queries(), streams(12), tables())
@settings(EXAMPLES, max_examples=4000)
def test_both_oracles_agree_at_length(query: Query, streams: Rows, tables: Rows) -> None:
    check_equal(query, streams, tables)


SECONDS = st.integers(0, 8).map(lambda count: count * SECOND)


@given(queries(), streams(), tables(), SECONDS, SECONDS, st.fixed_dictionaries({"bids": SECONDS}))
@settings(EXAMPLES, max_examples=40)
def test_both_oracles_agree_from_a_start_to_an_end(
    query: Query, streams: Rows, tables: Rows, start: int, length: int, keep: dict[str, int]
) -> None:
    check_equal(query, streams, tables, start=start, end=start + length, keep=keep)


def test_the_second_oracle_says_what_it_cannot_do() -> None:
    scan = BIDS.scan(UNBOUNDED)
    node = Aggregate(scan, (), (build_aggregate("stddev_pop", scan.columns[2]),), "$agg")
    query = Query(Output.RSTREAM, Project(node, (Item("v", node.columns[0]),)))
    assert not supports(query)
    with pytest.raises(Unsupported, match="stddev_pop"):
        duckdb_evaluate(query, {"Bids": []})
