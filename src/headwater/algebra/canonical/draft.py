"""Merging nested queries: a tree of relations becomes as few blocks as its meaning allows.

A draft is a block under construction. Selections, projections and joins of plain drafts are merged;
a grouped or distinct draft absorbs what commutes with it (a condition above a group is HAVING) and
otherwise becomes a source of the draft above it. Every leaf gets an alias of its own, so that
nothing clashes when scopes are merged, and every visible column becomes an expression over the
leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from headwater.algebra.canonical.block import GROUP
from headwater.algebra.conditions.simplify import simplify
from headwater.algebra.expressions import Column, Expr, substitute
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
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
from headwater.algebra.types import Type


@dataclass
class OuterDraft:
    """An outer join whose sides are drafts; `condition` is over l0, .. and r0, .. of `alias`."""

    alias: str
    left: Draft
    right: Draft
    condition: Expr
    full: bool


@dataclass
class UnionDraft:
    """Drafts whose outputs correspond by position."""

    branches: list[Draft]
    types: list[Type]


@dataclass
class SemiDraft:
    """EXISTS over sources of its own."""

    sources: dict[str, SourceDraft]
    conditions: list[Expr]
    anti: bool


@dataclass
class GroupDraft:
    """Grouping by keys; conditions and outputs above it are over $agg.k0, .. and $agg.a0, .."""

    keys: list[Expr]
    calls: list[AggregateCall]
    having: list[Expr]


@dataclass
class Draft:
    """A block under construction: `outputs` are its columns, over the leaves or the group."""

    sources: dict[str, SourceDraft]
    outputs: dict[Column, Expr]
    conditions: list[Expr] = field(default_factory=list)
    semis: list[SemiDraft] = field(default_factory=list)
    group: GroupDraft | None = None
    distinct: bool = False
    by_value: bool = False
    """Rows are identified by the values of the outputs, so no output may be dropped."""

    @property
    def is_plain(self) -> bool:
        return self.group is None and not self.distinct


SourceDraft = Scan | TableScan | Draft | OuterDraft | UnionDraft


class Drafter:
    """Turns relations into drafts and numbers the leaves in the order of the tree.

    Where changes are emitted (ISTREAM, DSTREAM), rows of a group that are equal in all its outputs
    are the same row, so the outputs of a grouped query are part of its meaning.
    """

    def __init__(self, emits_changes: bool) -> None:
        self._emits_changes = emits_changes
        self._aliases = (f"$t{i}" for i in count())
        self._used_aliases: set[str] = {GROUP}

    def draft(self, relation: Relation) -> Draft:
        match relation:
            case Scan() | TableScan():
                return self._draft_leaf(relation)
            case Select():
                return _add_condition(self.draft(relation.input), relation.condition)
            case Project():
                return self._draft_project(relation)
            case Join():
                return self._draft_join(relation)
            case Aggregate():
                return self._draft_aggregate(relation)
            case Distinct():
                below = self.draft(relation.input)
                if not _outputs_all_keys(below):
                    below.distinct = below.by_value = True
                return below
            case SemiJoin():
                return self._draft_semi_join(relation)
            case OuterJoin():
                return self._draft_outer_join(relation)
            case UnionAll():
                return self._draft_union(relation)

    def _draft_leaf(self, relation: Scan | TableScan) -> Draft:
        """A source under its own alias, or a new one if that is taken."""
        if relation.alias not in self._used_aliases:
            self._used_aliases.add(relation.alias)
            return Draft({relation.alias: relation}, {c: c for c in relation.columns})
        alias = next(self._aliases)
        outputs: dict[Column, Expr] = {
            c: Column(alias, c.name, c.type, c.nullable) for c in relation.columns
        }
        return Draft({alias: relation}, outputs)

    def _draft_project(self, node: Project) -> Draft:
        below = self.draft(node.input)
        outputs = {
            column: substitute(item.expr, below.outputs)
            for column, item in zip(node.columns, node.items, strict=True)
        }
        # Dropping a column above DISTINCT can leave equal rows that are still several, so it cannot
        # be merged into the block below.
        if below.distinct or (below.by_value and _drops_output(below, outputs)):
            return self._project_from(self._nest(below), node)
        below.outputs = outputs
        below.by_value = below.group is not None and self._emits_changes
        return below

    def _project_from(self, below: Draft, node: Project) -> Draft:
        items = zip(node.columns, node.items, strict=True)
        below.outputs = {column: substitute(item.expr, below.outputs) for column, item in items}
        return below

    def _draft_join(self, node: Join) -> Draft:
        parts = [self._ensure_plain(self.draft(relation)) for relation in node.inputs]
        joined = Draft({}, {})
        for part in parts:
            joined.sources |= part.sources
            joined.outputs |= part.outputs
            joined.conditions += part.conditions
            joined.semis += part.semis
        return joined if node.condition is None else _add_condition(joined, node.condition)

    def _draft_aggregate(self, node: Aggregate) -> Draft:
        below = self._ensure_plain(self.draft(node.input))

        def over_leaves(expr: Expr | None) -> Expr | None:
            return None if expr is None else substitute(expr, below.outputs)

        below.group = GroupDraft(
            [substitute(key, below.outputs) for key in node.keys],
            [replace(c, arg=over_leaves(c.arg), filter=over_leaves(c.filter)) for c in node.calls],
            [],
        )
        below.outputs = {c: replace(c, relation=GROUP) for c in node.columns}
        return below

    def _draft_semi_join(self, node: SemiJoin) -> Draft:
        left, right = self.draft(node.left), self.draft(node.right)
        # A block tests its EXISTS before it groups, so one above a group needs a block of its own.
        # DISTINCT may stay, on the left because the test reads outputs only, on the right because
        # EXISTS does not count partners.
        if left.group is not None:
            left = self._nest(left)
        if right.group is not None or right.semis:
            right = self._nest(right)
        conditions = list(right.conditions)
        if node.condition is not None:
            conditions.append(substitute(node.condition, {**left.outputs, **right.outputs}))
        left.semis.append(SemiDraft(right.sources, conditions, node.anti))
        return left

    def _draft_outer_join(self, node: OuterJoin) -> Draft:
        alias = next(self._aliases)
        left, right = self.draft(node.left), self.draft(node.right)
        outputs: dict[Column, Expr] = {}
        inside: dict[Column, Expr] = {}
        # One iterator for both sides: zip asks `part.outputs` first, so the end of the left side
        # consumes nothing of it.
        visible = iter(node.columns)
        for side, part in (("l", left), ("r", right)):
            for i, (column, shown) in enumerate(zip(part.outputs, visible, strict=False)):
                inside[column] = replace(column, relation=alias, name=f"{side}{i}")
                outputs[shown] = replace(shown, relation=alias, name=f"{side}{i}")
        condition = substitute(node.condition, inside)
        return Draft({alias: OuterDraft(alias, left, right, condition, node.full)}, outputs)

    def _draft_union(self, node: UnionAll) -> Draft:
        branches: list[Draft] = []
        for part in map(self.draft, node.inputs):
            inner = trivial_union(part)
            branches += [part] if inner is None else _reorder_branches(inner, part)
        alias = next(self._aliases)
        union = UnionDraft(branches, [c.type for c in node.columns])
        return Draft({alias: union}, _number_columns(node.columns, alias))

    def _ensure_plain(self, draft: Draft) -> Draft:
        return draft if draft.is_plain else self._nest(draft)

    def _nest(self, draft: Draft) -> Draft:
        """A draft whose only source is the given one."""
        alias = next(self._aliases)
        return Draft({alias: draft}, _number_columns(tuple(draft.outputs), alias))


def _outputs_all_keys(draft: Draft) -> bool:
    """Rows of a group differ in a key, so DISTINCT has no effect where all keys are outputs."""
    if draft.group is None:
        return False
    # Without keys this is true as well: there is a single row.
    names = {e.name for e in draft.outputs.values() if isinstance(e, Column)}
    return all(f"k{n}" in names for n in range(len(draft.group.keys)))


def _drops_output(draft: Draft, outputs: Mapping[Column, Expr]) -> bool:
    """Whether some output of a draft is not among the new ones."""
    return not set(map(simplify, draft.outputs.values())) <= set(map(simplify, outputs.values()))


def trivial_union(draft: Draft) -> UnionDraft | None:
    """The union below a draft that does nothing but pass its columns on; None for other drafts."""
    if len(draft.sources) != 1 or not draft.is_plain or draft.conditions or draft.semis:
        return None
    (source,) = draft.sources.values()
    plain = all(isinstance(expr, Column) for expr in draft.outputs.values())
    return source if isinstance(source, UnionDraft) and plain else None


def union_positions(draft: Draft) -> list[int]:
    """Which columns of its union a trivial draft passes on, in its own order."""
    return [int(e.name[1:]) for e in draft.outputs.values() if isinstance(e, Column)]


def _reorder_branches(union: UnionDraft, draft: Draft) -> list[Draft]:
    positions = union_positions(draft)
    result = []
    for branch in union.branches:
        columns = list(branch.outputs.items())
        # Other outputs would change by what the rows of this branch are identified.
        if branch.by_value and positions != list(range(len(columns))):
            return [draft]
        outputs = {
            shown: columns[at][1] for shown, at in zip(draft.outputs, positions, strict=True)
        }
        result.append(replace(branch, outputs=outputs))
    return result


def _number_columns(columns: Sequence[Column], alias: str) -> dict[Column, Expr]:
    return {c: replace(c, relation=alias, name=f"c{i}") for i, c in enumerate(columns)}


def _add_condition(draft: Draft, condition: Expr) -> Draft:
    """A condition above a group is HAVING; above a distinct it commutes; else it is WHERE."""
    condition = substitute(condition, draft.outputs)
    conditions = draft.conditions if draft.group is None else draft.group.having
    conditions.append(condition)
    return draft
