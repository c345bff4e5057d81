"""From a block back to a tree of relations, so that a canonical query can be shown and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from headwater.algebra.canonical.block import GROUP, Block, Body, Outer, Semi, Source, Union
from headwater.algebra.conditions.predicate import Box, to_expr
from headwater.algebra.expressions import (
    Column,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
    literal,
    substitute,
)
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Item,
    Join,
    OuterJoin,
    Project,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
)


class RelationBuilder:
    """Turns bodies into relations; items of a body are called c0, c1, .."""

    def __init__(self) -> None:
        self._exists = count()

    def build(self, body: Body, alias: str = "") -> Relation:
        if isinstance(body, Union):
            return UnionAll(tuple(self._block(branch, alias) for branch in body.branches), alias)
        return self._block(body, alias)

    def _block(self, block: Block, alias: str) -> Relation:
        names: dict[Expr, Expr] = {}
        base = self._from(block.sources, "s", names)
        base = _select(base, block.where, names)
        for semi in block.semis:
            base = self._semi(base, semi, names)
        if block.group is not None:
            base, names = self._group(base, block, alias, names)
        items = tuple(Item(f"c{i}", substitute(e, names)) for i, e in enumerate(block.items))
        result: Relation = Project(base, items, alias)
        return Distinct(result) if block.distinct else result

    def _from(self, sources: Sequence[Source], prefix: str, names: dict[Expr, Expr]) -> Relation:
        """The sources joined; the names of their columns in the tree are added to `names`."""
        inputs = [self._source(source, f"{prefix}{i}", names) for i, source in enumerate(sources)]
        return inputs[0] if len(inputs) == 1 else Join(tuple(inputs))

    def _source(self, source: Source, alias: str, names: dict[Expr, Expr]) -> Relation:
        match source:
            case Scan() | TableScan():
                return replace(source, alias=alias)
            case Outer():
                return self._outer(source, alias, names)
            case _:
                return self.build(source, alias)

    def _outer(self, outer: Outer, alias: str, names: dict[Expr, Expr]) -> Relation:
        """The join; its sides are called `alias`l and `alias`r, with columns l0, .. and r0, .."""
        left = self.build(outer.left, f"{alias}l")
        right = self.build(outer.right, f"{alias}r")
        inside: dict[Expr, Expr] = {}
        for side, relation in (("l", left), ("r", right)):
            for i, c in enumerate(relation.columns):
                inside[Column("", f"{side}{i}", c.type)] = c
        condition = to_expr(outer.condition) or literal(True)
        joined = OuterJoin(left, right, substitute(condition, inside), outer.full)
        for i, c in enumerate(joined.columns):
            at = i if i < len(left.columns) else i - len(left.columns)
            side = "l" if i < len(left.columns) else "r"
            names[Column(alias, f"{side}{at}", c.type)] = c
        return joined

    def _group(
        self, base: Relation, block: Block, alias: str, names: dict[Expr, Expr]
    ) -> tuple[Relation, dict[Expr, Expr]]:
        assert block.group is not None
        keys = tuple(substitute(key, names) for key in block.group.keys)
        calls = tuple(
            replace(
                call,
                arg=None if call.arg is None else substitute(call.arg, names),
                filter=None if call.filter is None else substitute(call.filter, names),
            )
            for call in block.group.calls
        )
        grouped = Aggregate(base, keys, calls, f"{alias}{GROUP}")
        above: dict[Expr, Expr] = {replace(c, relation=GROUP): c for c in grouped.columns}
        return _select(grouped, block.group.having, above), above

    def _semi(self, left: Relation, semi: Semi, names: dict[Expr, Expr]) -> Relation:
        """The semi-join; conditions on the inner sources alone stay inside, the others join."""
        # Every EXISTS of a block calls its sources e0, e1, ..; in one tree they have to differ.
        number = next(self._exists)
        inner: dict[Expr, Expr] = {}
        base = self._from(semi.sources, f"e{number}_", inner)
        own = set(base.columns)

        def named(column: Column) -> Expr:
            if column in names or column.relation[0] != "e":
                return names.get(column, column)
            moved = replace(column, relation=f"e{number}_{column.relation[1:]}")
            return inner.get(moved, moved)

        inside: list[Expr] = []
        across: list[Expr] = []
        for part in conjuncts(to_expr(semi.where)):
            renamed = substitute(part, {c: named(c) for c in columns_of(part)})
            read = columns_of(renamed)
            (inside if read and read <= own else across).append(renamed)
        if (condition := conjunction(inside)) is not None:
            base = Select(base, condition)
        # Sorted, because the order of a set differs between processes and the tree is shown.
        needed = sorted({c for e in across for c in columns_of(e) if c in own}, key=str)
        items = tuple(Item(f"c{i}", c) for i, c in enumerate(needed)) or (Item("c0", literal(1)),)
        right = Project(base, items, f"$exists{number}")
        shown: dict[Expr, Expr] = dict(zip(needed, right.columns, strict=False))
        correlated = conjunction(substitute(e, shown) for e in across)
        return SemiJoin(left, right, correlated, semi.anti)


def _select(relation: Relation, box: Box, names: dict[Expr, Expr]) -> Relation:
    condition = to_expr(box)
    return relation if condition is None else Select(relation, substitute(condition, names))
