"""Which tuples a step has to look at, if only what changes is emitted.

Where all sources of a query are tied by equal columns, its result is the union of those over the tuples of each
value of these columns: a *part* for each value. A part to which no tuple comes and from which none leaves does not
change. So a step reads the tuples whose values are those of a tuple that enters a window or leaves one; of the others
nothing can be emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from headwater.algebra.expressions import Call, Column, Expr, conjuncts
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
    walk_relations,
)
from headwater.algebra.windows import Range


@dataclass(frozen=True)
class Part:
    """The column of each scan, by its alias, in which the tuples of a part are equal; None: each tuple of
    that scan, the only one, is a part."""

    columns: Mapping[str, Column | None]
    spine: str | None = None
    """The scan of which each result has one tuple, and is a matter of that tuple and of the other scans: then
    of its tuples those alone matter that move, or are in the part of one of another scan that does."""

    @property
    def others(self) -> dict[str, Column]:
        """The columns of the scans beside the spine."""
        return {a: c for a, c in self.columns.items() if c is not None and a != self.spine}


@dataclass(frozen=True)
class _Parting:
    """A way to part a relation. Several parts are independent of each other: the branches of a UNION ALL.
    `shown` are the columns of the relation that have the value of the part, if it is one alone."""

    parts: tuple[Part, ...]
    shown: frozenset[Column] = frozenset()


def parts_of(root: Relation) -> tuple[Part, ...]:
    """The parts of a query; none if every tuple may change any row, as in an aggregate
    without keys."""
    found = _partings(root, _Aliases())
    if not found:
        return ()
    parts = _finest(found).parts
    spine = _spine(root)
    scans = [node for node in walk_relations(root) if isinstance(node, Scan)]
    at = next((f"v{i}" for i, scan in enumerate(scans) if scan is spine), None)
    return tuple(replace(part, spine=at if at in part.columns else None) for part in parts)


def _spine(node: Relation) -> Scan | None:
    """The scan of which each row of a relation has one tuple, if its window is by time."""
    match node:
        case Scan():
            return node if isinstance(node.window, Range) else None
        case Select() | Project():
            return _spine(node.input)
        case Join():
            return next((s for part in node.inputs if (s := _spine(part)) is not None), None)
        case SemiJoin():
            return _spine(node.left)
        case OuterJoin() if not node.full:
            return _spine(node.left)
        case _:
            return None


def _finest(partings: Sequence[_Parting]) -> _Parting:
    """The one in which most scans part tuple by tuple: of these the tuples that stay need not be read."""
    return min(
        partings,
        key=lambda p: sum(c is not None for part in p.parts for c in part.columns.values()),
    )


class _Aliases:
    """The aliases that a plan gives to scans, in the order in which they are walked."""

    def __init__(self) -> None:
        self._numbers = count()

    def next(self) -> str:
        return f"v{next(self._numbers)}"


def _partings(node: Relation, aliases: _Aliases, above: Sequence[Expr] = ()) -> list[_Parting]:
    """The ways to part a relation; `above` are conditions on its rows."""
    match node:
        case Scan():
            alias = aliases.next()
            by_column = [_Parting((Part({alias: c}),), frozenset((c,))) for c in node.columns]
            return [*by_column, _Parting((Part({alias: None}),))]
        case TableScan():
            return []
        case Select():
            return _partings(node.input, aliases, [*above, *conjuncts(node.condition)])
        case Project():
            return _renamed(_partings(node.input, aliases), node)
        case Join():
            return _joined(node, aliases, [*above, *conjuncts(node.condition)])
        case SemiJoin():
            return _beside(
                node, _partings(node.left, aliases), _partings(node.right, aliases), False
            )
        case OuterJoin():
            return _beside(
                node, _partings(node.left, aliases), _partings(node.right, aliases), node.full
            )
        case Aggregate():
            return _grouped(_partings(node.input, aliases), node)
        case Distinct():
            return [parting for parting in _partings(node.input, aliases) if parting.shown]
        case UnionAll():
            return _united(node, [_partings(part, aliases) for part in node.inputs])


def _renamed(partings: Iterable[_Parting], node: Project) -> list[_Parting]:
    return [
        _Parting(
            parting.parts,
            frozenset(
                column
                for item, column in zip(node.items, node.columns, strict=True)
                if item.expr in parting.shown
            ),
        )
        for parting in partings
    ]


def _grouped(partings: Iterable[_Parting], node: Aggregate) -> list[_Parting]:
    """Groups whose rows are all in one part: those by a column that has its value."""
    found = []
    for parting in partings:
        keys = node.columns[: len(node.keys)]
        shown = [c for key, c in zip(node.keys, keys, strict=True) if key in parting.shown]
        if shown:
            found.append(_Parting(parting.parts, frozenset(shown)))
    return found


def _joined(node: Join, aliases: _Aliases, conditions: Sequence[Expr]) -> list[_Parting]:
    """Rows meet within a part if equalities tie all inputs that have streams."""
    inputs = [_partings(part, aliases) for part in node.inputs]
    moving = [found for found, part in zip(inputs, node.inputs, strict=True) if _has_stream(part)]
    classes = _equal_columns(conditions)
    if len(moving) == 1:
        return [_Parting(p.parts, _with_equals(p.shown, classes)) for p in moving[0]]
    found = []
    for equal in classes:
        tied = [next((p for p in partings if p.shown & equal), None) for partings in moving]
        usable = [parting for parting in tied if parting is not None]
        if len(usable) == len(moving):
            found.append(_Parting((_merged(usable),), frozenset(equal)))
    return found


def _beside(
    node: SemiJoin | OuterJoin, left: list[_Parting], right: list[_Parting], full: bool
) -> list[_Parting]:
    """A row is without a match for all that happens in other parts, if matches are in its own."""
    if not _has_stream(node.right) and not full:
        return left
    own = {*node.left.columns}
    found = []
    for equal in _equal_columns(conjuncts(node.condition)):
        one = next((p for p in left if p.shown & equal), None)
        other = next((p for p in right if p.shown & equal), None)
        missing = (one is None and _has_stream(node.left)) or (
            other is None and _has_stream(node.right)
        )
        sides = [parting for parting in (one, other) if parting is not None]
        if missing or not sides or not (equal & own) or equal <= own:
            continue
        # In a row that is padded the columns of the other side are NULL.
        shown = frozenset() if full else frozenset(equal & own)
        found.append(_Parting((_merged(sides),), shown))
    return found


def _united(node: UnionAll, branches: Sequence[list[_Parting]]) -> list[_Parting]:
    """The branches part by a column that all of them show at one place; else each for itself."""
    moving = [
        (found, part)
        for found, part in zip(branches, node.inputs, strict=True)
        if _has_stream(part)
    ]
    result = []
    for at, column in enumerate(node.columns):
        tied = [
            next((p for p in found if part.columns[at] in p.shown), None) for found, part in moving
        ]
        usable = [parting for parting in tied if parting is not None]
        if len(usable) == len(moving) and all(
            part.columns[at].type == column.type for _, part in moving
        ):
            result.append(_Parting((_merged(usable),), frozenset((column,))))
    if all(found for found, _ in moving):
        result.append(_Parting(tuple(p for found, _ in moving for p in _finest(found).parts)))
    return result


def _merged(partings: Iterable[_Parting]) -> Part:
    """One part of several that have equal values."""
    return Part(
        {a: c for parting in partings for part in parting.parts for a, c in part.columns.items()}
    )


def _has_stream(relation: Relation) -> bool:
    return any(isinstance(node, Scan) for node in walk_relations(relation))


def _equal_columns(conditions: Iterable[Expr]) -> list[set[Column]]:
    """The classes of columns that conditions make equal."""
    classes: list[set[Column]] = []
    for condition in conditions:
        if not (isinstance(condition, Call) and condition.name in ("=", "<=>")):
            continue
        a, b = condition.args
        if not (isinstance(a, Column) and isinstance(b, Column) and _comparable(a, b)):
            continue
        touched = [c for c in classes if a in c or b in c]
        classes = [c for c in classes if c not in touched]
        classes.append({a, b}.union(*touched))
    return classes


def _comparable(a: Column, b: Column) -> bool:
    return a.type == b.type or (a.type.is_integer and b.type.is_integer)


def _with_equals(shown: frozenset[Column], classes: Sequence[set[Column]]) -> frozenset[Column]:
    return shown.union(*(equal for equal in classes if equal & shown))
