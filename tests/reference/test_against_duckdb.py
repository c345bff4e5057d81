"""The reference evaluator against the second oracle, on random queries and random data."""

from __future__ import annotations

from typing import Any

import pytest
from duckdb_oracle import Unsupported, duckdb_evaluate, supports
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from strategies import SECOND, queries, streams, tables

from headwater.algebra.nodes import Query
from headwater.reference import Result, evaluate
from headwater.reference.values import normal_row, row_order

EXAMPLES = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
Rows = dict[str, list[Any]]


def ordered(results: list[Result]) -> list[tuple[Any, ...]]:
    rows = [(result.tau, *normal_row(result.values)) for result in results]
    return sorted(rows, key=row_order)


def check_equal(query: Query, streams: Rows, tables: Rows, **bounds: Any) -> None:
    assert supports(query)
    note(repr(query))
    expected = duckdb_evaluate(query, streams, tables, **bounds)
    assert ordered(evaluate(query, streams, tables, **bounds)) == ordered(expected)


@given(queries(), streams(), tables())
@settings(EXAMPLES, max_examples=3000)
def test_both_oracles_agree(query: Query, streams: Rows, tables: Rows) -> None:
    check_equal(query, streams, tables)
