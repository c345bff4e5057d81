"""The reuse lattice: which running operators could serve a query, without looking at all of them.

A tree whose levels part operators by sources, by what joins them and by how they group (together the
base), then by a value that their rows have in common, by condition, columns and windows. Every node
knows the regions of the network in which its operators run, as a bit vector, so that a search for some
regions enters no node without them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from headwater.algebra.canonical import canonicalize
from headwater.algebra.domain import Cut
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Query, Scan
from headwater.algebra.predicate import Box, implies
from headwater.algebra.windows import Range
from headwater.reuse.form import Form, Kind, form_of, leaves_of, prefixes
from headwater.reuse.operator import Operator, finer

EVERYWHERE = -1
"""The bit vector of all regions."""

MOST_LOOKED_AT = 1_000
"""Of so many different conditions of one base, the newest are looked at to find one that serves."""

MOST_TRIED = 4
"""Of so many operators that would have to be relaxed for a query, the newest are looked at: those
that are older did not take in what came after them."""


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

    def serving(
        self, form: Form, regions: int = EVERYWHERE, most: int | None = None
    ) -> Iterator[str]:
        """The operators in those regions that serve the query as they are, newest first; with `most`
        of those with the newest conditions alone."""
        top = self._of_base(form, regions)
        if top is None:
            return
        for node in _near(top, form):
            yield from _serving(node, form, regions, most)

    def nearest(self, form: Form, regions: int = EVERYWHERE) -> Iterator[str]:
        """Those that serve the query as they are, then some that could if they are relaxed: first
        those whose rows have a value in common with its own, and the newest."""
        top = self._of_base(form, regions)
        if top is None:
            return
        serving = list[str]()
        for name in self.serving(form, regions, MOST_LOOKED_AT):
            serving.append(name)
            yield name
        near = _near(top, form)
        far = (node for _, node in _newest(top, regions) if not any(node is one for one in near))
        found = (name for node in chain(near, far) for name in _leaves(node, regions))
        yield from islice((name for name in found if name not in serving), MOST_TRIED)

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
    pin = next(_pins(operator.where), None)
    return (*_base_keys(operator), pin, operator.where, told, windows)


def _pins(where: Box) -> Iterator[tuple[Expr, Cut]]:
    """The terms that have a single value, with that value."""
    for constraint in where.constraints:
        if constraint.domain.is_point:
            yield from ((term, constraint.domain.cuts[0]) for term in constraint.terms)


def _near(top: Node, form: Form) -> list[Node]:
    """Below the node of a base, those of the query's own values, and of operators without one."""
    pins = (*_pins(form.content.where), None)
    return [top.below[pin] for pin in pins if pin in top.below]


def _serving(node: Node, form: Form, regions: int, most: int | None) -> Iterator[str]:
    for where, by_columns in islice(_newest(node, regions), most):
        assert isinstance(where, Box)
        if not implies(form.content.where, where):
            continue
        for told, by_window in _newest(by_columns, regions):
            if not _tells(told, form):
                continue
            for windows, leaf in _newest(by_window, regions):
                if _holds(windows, form):
                    yield from _leaves(leaf, regions)


def _leaves(node: Node, regions: int) -> Iterator[str]:
    """The operators below a node, newest first."""
    yield from (name for name, where in reversed(node.operators.items()) if where & regions)
    for _, below in _newest(node, regions):
        yield from _leaves(below, regions)


def _newest(node: Node, regions: int) -> Iterator[tuple[Hashable, Node]]:
    return ((key, below) for key, below in reversed(node.below.items()) if below.regions & regions)


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
        if form.kind is Kind.GROUP:
            if finer(theirs, window) != theirs:
                return False
            continue
        if theirs.slide != window.slide:
            if theirs.slide is not None:
                return False
            size = None if window.size is None else window.size + (window.slide or 0)
        else:
            size = window.size
        if theirs.size is not None and (size is None or size > theirs.size):
            return False
    return True
