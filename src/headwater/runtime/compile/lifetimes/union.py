"""UNION ALL."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.algebra.nodes import UnionAll
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name
from headwater.runtime.spark.sql import spark_type


def union_sql(timeline: Timeline, node: UnionAll, texts: Sequence[str]) -> str:
    """The rows of all branches with the lifetimes that they have; those of different branches differ, even
    if the same tuples made them."""
    parts = []
    for n, (branch, text) in enumerate(zip(node.inputs, texts, strict=True)):
        columns = [
            f"CAST({flat_name(source)} AS {spark_type(target.type)}) AS {flat_name(target)}"
            for source, target in zip(branch.columns, node.columns, strict=True)
        ]
        selected = timeline.select([FROM, TO, f"concat('{n}/', {ID}) AS {ID}", *columns])
        parts.append(f"SELECT {selected} FROM {text}")
    return f"({' UNION ALL '.join(parts)})"
