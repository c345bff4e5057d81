"""The reuse lattice: which running operators could serve a query, without looking at all of them.

A tree whose levels part operators by sources, by what joins them and by how they group (together the
base), then by condition, columns and windows. Every node knows the regions of the network in which
its operators run, as a bit vector, so that a search for some regions enters no node without them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.algebra.canonical import canonicalize
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Query, Scan
from headwater.algebra.predicate import Box, implies
from headwater.algebra.windows import Range
from headwater.reuse.form import Form, Kind, form_of, leaves_of, prefixes
from headwater.reuse.operator import Operator

EVERYWHERE = -1
"""The bit vector of all regions."""

BASE_LEVELS = 3
LEVELS = 6


@dataclass
class Node:
    """Operators that have a key in common at each level above, and their regions."""

    below: dict[Hashable, Node] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    regions: int = 0

    def settle(self) -> None:
        self.regions = 0
        for node in self.below.values():
            self.regions |= node.regions
        for regions in self.operators.values():
            self.regions |= regions


class Lattice:
    """Running operators by name, each with the regions in which it runs."""

    def __init__(self) -> None:
        self._root = Node()
        self._known: dict[str, tuple[Operator, int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def operator(self, name: str) -> Operator:
        return self._known[name][0]

    def insert(self, name: str, operator: Operator, regions: int = 1) -> None:
        """Add an operator, or put another in its place."""
        if name in self._known:
            self.remove(name)
        self._known[name] = (operator, regions)
        path = self._path(operator)
        path[-1].operators[name] = regions
        for node in path:
            node.regions |= regions

    def remove(self, name: str) -> None:
        operator, _ = self._known.pop(name)
        path = self._path(operator)
        del path[-1].operators[name]
        keys = _keys(operator)
        for node, above, key in zip(path[:0:-1], path[-2::-1], keys[::-1], strict=True):
            if not node.below and not node.operators:
                del above.below[key]
        for node in reversed(path):
            node.settle()

    def _path(self, operator: Operator) -> list[Node]:
        path = [self._root]
        for key in _keys(operator):
            path.append(path[-1].below.setdefault(key, Node()))
        return path

    # ---- searching

    def candidates(self, form: Form, regions: int = EVERYWHERE) -> list[str]:
        """The operators of the query's base in those regions: it can join each of them, relaxed."""
        node = self._of_base(form, regions)
        return [] if node is None else list(_leaves(node, regions))

    def serving(self, form: Form, regions: int = EVERYWHERE) -> list[str]:
        """The operators in those regions that serve the query as they are."""
        top = self._of_base(form, regions)
        if top is None:
            return []
        found: list[str] = []
        for where, by_columns in top.below.items():
            assert isinstance(where, Box)
            if not by_columns.regions & regions or not implies(form.content.where, where):
                continue
            for told, by_window in by_columns.below.items():
                if not by_window.regions & regions or not _tells(told, form):
                    continue
                for windows, leaf in by_window.below.items():
                    if leaf.regions & regions and _holds(windows, form):
                        found += _leaves(leaf, regions)
        return found

    def parts(self, form: Form, regions: int = EVERYWHERE) -> list[tuple[Query, list[str]]]:
        """The joins of some of the query's sources that run, or could by relaxing; largest first."""
        found = []
        for part in prefixes(form):
            if names := self.candidates(form_of(canonicalize(part)), regions):
                found.append((part, names))
        return found

    def _of_base(self, form: Form, regions: int) -> Node | None:
        node = self._root
        for key in _base_keys(form):
            below = node.below.get(key)
            if below is None or not below.regions & regions:
                return None
            node = below
        return node


def _base_keys(one: Form | Operator) -> tuple[Hashable, ...]:
    """Sources, what joins them, and how they group."""
    block = None if isinstance(one, Operator) else one.block
    sources = (
        one.sources if isinstance(one, Operator) else () if block is None else leaves_of(block)
    )
    names = tuple(s.stream.lower() if isinstance(s, Scan) else s.table.lower() for s in sources)
    return (names, one.base, one.kind)


def _keys(operator: Operator) -> tuple[Hashable, ...]:
    told = Told(operator.columns, operator.keys, operator.calls)
    windows = tuple(scan.window for scan in operator.scans)
    return (*_base_keys(operator), operator.where, told, windows)


def _leaves(node: Node, regions: int) -> Iterator[str]:
    if not node.regions & regions:
        return
    yield from (name for name, where in node.operators.items() if where & regions)
    for below in node.below.values():
        yield from _leaves(below, regions)


class Told(NamedTuple):
    """What an operator tells of its rows."""

    columns: frozenset[Column]
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]


def _tells(told: Hashable, form: Form) -> bool:
    assert isinstance(told, Told)
    if form.kind is Kind.GROUP:
        return set(form.keys) <= set(told.keys) and set(form.calls) <= set(told.calls)
    return form.columns <= told.columns


def _holds(windows: Hashable, form: Form) -> bool:
    """Whether windows hold all that the query's own do, at the instants at which these slide."""
    assert isinstance(windows, tuple)
    for theirs, own in zip(windows, form.scans, strict=True):
        window = own.window
        assert isinstance(theirs, Range) and isinstance(window, Range)
        if theirs.slide != window.slide:
            if theirs.slide is not None:
                return False
            size = None if window.size is None else window.size + (window.slide or 0)
        else:
            size = window.size
        if theirs.size is not None and (size is None or size > theirs.size):
            return False
    return True
