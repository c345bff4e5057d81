"""Text -> algebra -> text -> algebra gives the same, for random queries and statements."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from headwater.algebra.expressions import columns_of
from headwater.algebra.nodes import Aggregate, Project, Query, Select, relations
from headwater.cql import parse_query, unparse
from strategies import SOURCES, queries

QUICK = settings(max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def is_written_out(query: Query) -> bool:
    """Every aggregate is named in its SELECT list or HAVING, as one that was read from a text is."""
    return all(
        _names_its_calls(node) for node in relations(query.root) if isinstance(node, Project)
    )


def _names_its_calls(block: Project) -> bool:
    exprs = [item.expr for item in block.items]
    below = block.input
    if isinstance(below, Select):
        exprs.append(below.condition)
        below = below.input
    if not isinstance(below, Aggregate):
        return True
    named = {column for expr in exprs for column in columns_of(expr)}
    return set(below.columns[len(below.keys) :]) <= named


@QUICK
@given(queries())
def test_a_query_reads_back_from_its_text(query: Query) -> None:
    again = parse_query(unparse(query), SOURCES)
    if is_written_out(query):
        assert again == query
    else:
        assert unparse(parse_query(unparse(again), SOURCES)) == unparse(again)
