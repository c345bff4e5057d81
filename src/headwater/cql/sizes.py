"""The size of the expressions of a query once nested queries are merged into one.

`WITH b AS (SELECT a || a AS a FROM s), c AS (SELECT a || a AS a FROM b) ..` doubles with every name,
so a short text can expand to an expression that no machine can hold.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.algebra.expressions import Call, Column, Expr
from headwater.algebra.nodes import (
    Aggregate,
    Join,
    OuterJoin,
    Project,
    Relation,
    Select,
    SemiJoin,
    UnionAll,
)

Sizes = dict[Column, int]


def largest_expression(relation: Relation) -> int:
    """The number of parts of the largest expression in the merged query."""
    sizes = [1]
    _sizes(relation, sizes)
    return max(sizes)


def _sizes(relation: Relation, all_sizes: list[int]) -> Sizes:
    """The size of each column as an expression over streams and tables; all go to `all_sizes`."""
    parts = [_sizes(part, all_sizes) for part in relation.inputs]
    below = {column: size for part in parts for column, size in part.items()}

    def size(expr: Expr) -> int:
        if isinstance(expr, Column):
            return below.get(expr, 1)
        return 1 + sum(map(size, expr.args)) if isinstance(expr, Call) else 1

    def note(exprs: Iterable[Expr | None]) -> list[int]:
        sizes = [size(expr) for expr in exprs if expr is not None]
        all_sizes.extend(sizes)
        return sizes

    match relation:
        case Select() | Join() | OuterJoin() | SemiJoin():
            note([relation.condition])
        case Aggregate():
            note(relation.keys)
            note(part for call in relation.calls for part in (call.arg, call.filter))
            # Above an aggregation its columns are not replaced by what they aggregate.
            return {}
        case Project():
            sizes = note(item.expr for item in relation.items)
            return dict(zip(relation.columns, sizes, strict=True))
        case UnionAll():
            inputs = zip(*(part.columns for part in relation.inputs), strict=True)
            # A column above may become what it is in any of the inputs: the largest counts.
            widest = (max(below.get(column, 1) for column in columns) for columns in inputs)
            return dict(zip(relation.columns, widest, strict=True))
    return below
