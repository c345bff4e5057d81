"""The reuse lattice: which running operators could serve a query, without looking at all of them.

A tree whose levels divide operators by sources, by join conditions and by how they group (together the
sharing key), then by a value that their rows have in common, by condition, columns and windows. Every node
knows the regions of the network in which its operators run, as a bit vector, so that a search for some
regions enters no node without them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from headwater.algebra.conditions.domain import Cut
from headwater.algebra.conditions.predicate import Box, implies
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.windows import Range
from headwater.reuse.operator import Operator, finer_window, pane_keys
from headwater.reuse.signature import (
    QuerySignature,
    SharingKind,
    leaves_of,
    source_name,
)

ALL_REGIONS = -1
"""The bit vector of all regions."""

MAX_CONDITIONS_SEARCHED = 1_000
"""How many different conditions of one sharing key are tested, newest first, for one that serves."""

MAX_RELAXATIONS_TRIED = 4
"""How many operators that would have to be relaxed for a query are priced, newest first: older
ones were passed over by the queries that came after them."""


@dataclass
class LatticeNode:
    """Operators that have a key in common at each level above, and their regions."""

    children: dict[Hashable, LatticeNode] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    regions: int = 0

    def update_regions(self) -> None:
        self.regions = 0
        for node in self.children.values():
            self.regions |= node.regions
        for regions in self.operators.values():
            self.regions |= regions


class Lattice:
    """Running operators by name, each with the regions in which it runs."""

    def __init__(self) -> None:
        self._root = LatticeNode()
        self._operators: dict[str, tuple[Operator, int]] = {}

    def __len__(self) -> int:
        return len(self._operators)

    def __contains__(self, name: str) -> bool:
        return name in self._operators

    def operator(self, name: str) -> Operator:
        return self._operators[name][0]

    def insert(self, name: str, operator: Operator, regions: int = 1) -> None:
        """Add an operator, or put another in its place."""
        if name in self._operators:
            self.remove(name)
        self._operators[name] = (operator, regions)
        path = self._path(operator)
        path[-1].operators[name] = regions
        for node in path:
            node.regions |= regions

    def remove(self, name: str) -> None:
        operator, _ = self._operators.pop(name)
        path = self._path(operator)
        del path[-1].operators[name]
        keys = _level_keys(operator)
        # From the leaf up, so that a node that became empty is gone before its parent is examined.
        for node, above, key in zip(path[:0:-1], path[-2::-1], keys[::-1], strict=True):
            if not node.children and not node.operators:
                del above.children[key]
        # Bits can only be added with |=; after a removal the vectors are recomputed, children
        # first.
        for node in reversed(path):
            node.update_regions()

    def _path(self, operator: Operator) -> list[LatticeNode]:
        path = [self._root]
        for key in _level_keys(operator):
            path.append(path[-1].children.setdefault(key, LatticeNode()))
        return path

    # ---- searching

    def candidates(self, signature: QuerySignature, regions: int = ALL_REGIONS) -> list[str]:
        """The operators with the query's sharing key in those regions: it can join each of them, relaxed."""
        node = self._find_node(signature, regions)
        return [] if node is None else list(_operators_below(node, regions))

    def serving(
        self, signature: QuerySignature, regions: int = ALL_REGIONS, most: int | None = None
    ) -> Iterator[str]:
        """The operators in those regions that serve the query as they are, newest first; with `most`
        of those with the newest conditions alone."""
        top = self._find_node(signature, regions)
        if top is None:
            return
        for node in _nearest_nodes(top, signature):
            yield from _serving_below(node, signature, regions, most)

    def nearest(self, signature: QuerySignature, regions: int = ALL_REGIONS) -> Iterator[str]:
        """Those that serve the query as they are, then some that could if they are relaxed: first
        those whose rows have a value in common with its own, and the newest."""
        top = self._find_node(signature, regions)
        if top is None:
            return
        serving = list[str]()
        for name in self.serving(signature, regions, MAX_CONDITIONS_SEARCHED):
            serving.append(name)
            yield name
        near = _nearest_nodes(top, signature)
        far = (
            node
            for _, node in _newest_first(top, regions)
            if not any(node is close for close in near)
        )
        names = (name for node in chain(near, far) for name in _operators_below(node, regions))
        yield from islice((name for name in names if name not in serving), MAX_RELAXATIONS_TRIED)

    def has_sources(self, sources: Iterable[Scan | TableScan]) -> bool:
        """Whether any operator reads exactly these sources."""
        return _source_names(sorted(sources, key=source_name)) in self._root.children

    def _find_node(self, signature: QuerySignature, regions: int) -> LatticeNode | None:
        node = self._root
        for key in _sharing_keys(signature):
            child = node.children.get(key)
            if child is None or not child.regions & regions:
                return None
            node = child
        return node


def _sharing_keys(served: QuerySignature | Operator) -> tuple[Hashable, ...]:
    """Sources, what joins them, and how they group."""
    block = None if isinstance(served, Operator) else served.block
    sources = (
        served.sources
        if isinstance(served, Operator)
        else ()
        if block is None
        else leaves_of(block)
    )
    return (_source_names(sources), served.sharing_key, served.kind)


def _source_names(sources: Iterable[Scan | TableScan]) -> tuple[str, ...]:
    return tuple(s.stream.lower() if isinstance(s, Scan) else s.table.lower() for s in sources)


def _level_keys(operator: Operator) -> tuple[Hashable, ...]:
    output = OperatorOutput(operator.columns, operator.keys, operator.calls)
    windows = tuple(scan.window for scan in operator.scans)
    # One pinned value is enough for the level; a search looks under each value that the query pins,
    # so it finds the operator whichever of its values was used.
    pin = next(_pinned_terms(operator.where), None)
    return (*_sharing_keys(operator), pin, operator.where, output, windows)


def _pinned_terms(where: Box) -> Iterator[tuple[Expr, Cut]]:
    """The terms that have a single value, with that value."""
    for constraint in where.constraints:
        if constraint.domain.is_point:
            yield from ((term, constraint.domain.cuts[0]) for term in constraint.terms)


def _nearest_nodes(top: LatticeNode, signature: QuerySignature) -> list[LatticeNode]:
    """Below the node of a sharing key, those of the query's own values, and of operators without one."""
    pins = (*_pinned_terms(signature.content.where), None)
    return [top.children[pin] for pin in pins if pin in top.children]


def _serving_below(
    node: LatticeNode, signature: QuerySignature, regions: int, most: int | None
) -> Iterator[str]:
    for where, by_columns in islice(_newest_first(node, regions), most):
        assert isinstance(where, Box)
        if not implies(signature.content.where, where):
            continue
        for output, by_window in _newest_first(by_columns, regions):
            if not _emits_all(output, signature):
                continue
            for windows, leaf in _newest_first(by_window, regions):
                if _windows_cover(windows, signature):
                    yield from _operators_below(leaf, regions)


def _operators_below(node: LatticeNode, regions: int) -> Iterator[str]:
    """The operators below a node, newest first."""
    yield from (name for name, where in reversed(node.operators.items()) if where & regions)
    for _, child in _newest_first(node, regions):
        yield from _operators_below(child, regions)


def _newest_first(node: LatticeNode, regions: int) -> Iterator[tuple[Hashable, LatticeNode]]:
    return (
        (key, child) for key, child in reversed(node.children.items()) if child.regions & regions
    )


class OperatorOutput(NamedTuple):
    """What an operator emits of its rows."""

    columns: frozenset[Column]
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]


def _emits_all(output: Hashable, signature: QuerySignature) -> bool:
    assert isinstance(output, OperatorOutput)
    if signature.kind is SharingKind.GROUP:
        keys, calls = set(pane_keys(signature)), set(signature.calls)
        return keys <= set(output.keys) and calls <= set(output.calls)
    return signature.columns <= output.columns


def _windows_cover(windows: Hashable, signature: QuerySignature) -> bool:
    """Whether windows hold all that the query's own do, at the instants at which these slide."""
    assert isinstance(windows, tuple)
    for theirs, own in zip(windows, signature.scans, strict=True):
        window = own.window
        assert isinstance(theirs, Range) and isinstance(window, Range)
        if signature.kind is SharingKind.GROUP:
            if finer_window(theirs, window) != theirs:
                return False
            continue
        if theirs.slide != window.slide:
            # An operator that slides sees only its own instants. One that does not must be longer
            # by a slide: a window that slides keeps a tuple up to that much beyond its range.
            if theirs.slide is not None:
                return False
            size = None if window.size is None else window.size + (window.slide or 0)
        else:
            size = window.size
        if theirs.size is not None and (size is None or size > theirs.size):
            return False
    return True
