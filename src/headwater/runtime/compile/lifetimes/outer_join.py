"""LEFT, RIGHT and FULL joins."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import OuterJoin
from headwater.runtime.compile.lifetimes.join import join_sql
from headwater.runtime.compile.lifetimes.rows import FROM, ID, TO, Timeline, flat_name, flat_names
from headwater.runtime.compile.lifetimes.semi_join import anti_join_sql
from headwater.runtime.spark.sql import spark_type


def outer_join_sql(timeline: Timeline, node: OuterJoin, texts: tuple[str, str]) -> str:
    """The inner join, and the rows of the left (FULL: of the right too) while they have no match, with
    NULLs beside them."""
    left, right = texts
    columns = flat_names((*node.left.columns, *node.right.columns))
    head = timeline.select([FROM, TO])
    joined = join_sql(timeline, node.inputs, node.condition, texts)
    parts = [f"SELECT {head}, {ID}, {', '.join(columns)} FROM {joined}"]
    lone = anti_join_sql(timeline, node.left, node.right, node.condition, texts)
    beside = [*flat_names(node.left.columns), *_nulls(node.right.columns)]
    parts.append(f"SELECT {head}, concat({ID}, '|-') AS {ID}, {', '.join(beside)} FROM {lone}")
    if node.full:
        lone = anti_join_sql(timeline, node.right, node.left, node.condition, (right, left))
        beside = [*_nulls(node.left.columns), *flat_names(node.right.columns)]
        parts.append(f"SELECT {head}, concat('-|', {ID}) AS {ID}, {', '.join(beside)} FROM {lone}")
    return f"({' UNION ALL '.join(parts)})"


def _nulls(columns: Sequence[Column]) -> list[str]:
    return [f"CAST(NULL AS {spark_type(c.type)}) AS {flat_name(c)}" for c in columns]
