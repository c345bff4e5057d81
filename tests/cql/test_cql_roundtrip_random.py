"""Text -> algebra -> text -> algebra gives the same, for random queries and statements."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from headwater.algebra.nodes import Query
from headwater.cql import parse_query, unparse
from strategies import SOURCES, queries

QUICK = settings(
    max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@QUICK
@given(queries())
def test_a_query_reads_back_from_its_text(query: Query) -> None:
    assert parse_query(unparse(query), SOURCES) == query
