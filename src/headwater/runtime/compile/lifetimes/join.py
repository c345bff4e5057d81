"""Inner joins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from headwater.algebra.expressions import Expr
from headwater.algebra.nodes import Relation
from headwater.runtime.compile.lifetimes.rows import (
    FROM,
    ID,
    TO,
    Timeline,
    flat_name,
    flat_names,
    overlap_sql,
)
from headwater.runtime.spark.sql import expression_sql


def join_sql(
    timeline: Timeline,
    inputs: Sequence[Relation],
    condition: Expr | None,
    texts: Sequence[str],
) -> str:
    """Combinations of rows that meet the condition, for as long as all of them are there: the lifetime is
    the intersection of theirs."""
    names = [f"j{n}" for n in range(len(inputs))]
    columns = [
        c for name, part in zip(names, inputs, strict=True) for c in flat_names(part.columns, name)
    ]
    lifetime = [
        f"greatest({', '.join(f'{name}.{FROM}' for name in names)}) AS {FROM}",
        f"least({', '.join(f'{name}.{TO}' for name in names)}) AS {TO}",
        f"concat_ws('|', {', '.join(f'{name}.{ID}' for name in names)}) AS {ID}",
    ]
    # Intervals of which any two overlap have a part in common.
    conditions = [overlap_sql(a, b) for a, b in combinations(names, 2)]
    conditions += [text for name in names[1:] for text in timeline.same(names[0], name)]
    if condition is not None:
        conditions.append(expression_sql(condition, flat_name))
    sources = " CROSS JOIN ".join(f"{text} {name}" for text, name in zip(texts, names, strict=True))
    selected = timeline.select([*lifetime, *columns], names[0])
    return f"(SELECT {selected} FROM {sources} WHERE {' AND '.join(conditions)})"
