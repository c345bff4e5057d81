"""DISTINCT."""

from __future__ import annotations

from headwater.algebra.nodes import Distinct
from headwater.runtime.compile.lifetimes.matches import covered_sql
from headwater.runtime.compile.lifetimes.rows import (
    FROM,
    ID,
    TO,
    Timeline,
    flat_names,
    value_id_sql,
)


def distinct_sql(timeline: Timeline, node: Distinct, text: str) -> str:
    """Each value while any row has it: the union of the lifetimes of equal rows."""
    columns = flat_names(node.columns)
    stretches = covered_sql([*timeline.keys, *columns], text)
    identity = f"{value_id_sql(node.columns)} AS {ID}"
    return f"(SELECT {timeline.select([FROM, TO, identity, *columns])} FROM {stretches})"
