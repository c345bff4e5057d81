"""What should read something else by now, as others came later than it: planned changes, as data.

A join of three that ran before a join of two of its sources computes that again; so do two joins of three
with two sources in common. A plan is made for one query at a time, so it does not touch them; here is said
what would be saved if they did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.algebra.canonical import Block
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.nodes import Output
from headwater.reuse.decide import SharingCosts, estimate_load
from headwater.reuse.graph import Graph, Node, Sources
from headwater.reuse.operator import Operator, minimal_operator, relax
from headwater.reuse.signature import QuerySignature, SharingKind, bounds_of
from headwater.reuse.single_site import READ_SHARE, QueryPart, QueryParts, SiteSetting

MIN_SAVING = 0.25
"""A change is planned if it saves this share of the work for the join that is to be read."""


@dataclass(frozen=True)
class Rewiring:
    """Nodes are to read some of their sources, joined, from another one from now on.

    `reads` names that node; None for one that has to be made for them. `operator` is what it computes
    then, and `saves` the work in a second that nobody does twice any more.
    """

    readers: tuple[str, ...]
    reads: str | None
    operator: Operator
    saves: float


@dataclass(frozen=True)
class Merging:
    """The queries of a node are to be served by another one from now on, which computes `operator` then;
    `saves` is the work in a second that is not done twice any more."""

    merged: str
    into: str
    operator: Operator
    saves: float


def plan_merging(graph: Graph[Node], node: Node, costs: SharingCosts) -> Merging | None:
    """The node with the same sharing key that is best merged into one that is new, or computes more than
    before; None if that would not save work.

    A query that came between two selective ones may have got an operator of its own, which one that
    came later makes superfluous.
    """
    own, best = _as_query(node.operator), None
    if node.operator.kind is not SharingKind.JOIN:
        return None
    for other in graph.candidates(own):
        if other is node or other.inputs or node.inputs:
            continue
        wider = relax(node.operator, _as_query(other.operator))
        parts = estimate_load(node.operator, costs) + estimate_load(other.operator, costs)
        saves = parts - estimate_load(wider, costs)
        if saves > (0.0 if best is None else best.saves):
            best = Merging(other.name, node.name, wider, saves)
    return best


def plan_rewirings(graph: Graph[Node], node: Node, costs: SharingCosts) -> list[Rewiring]:
    """The changes that a node suggests that is new, or computes more than before; the best first."""
    if node.operator.kind is not SharingKind.JOIN or len(node.operator.sources) < 2:
        return []
    found = [*_reading_node(graph, node, costs), *_with_common_part(graph, node, costs)]
    return sorted(found, key=lambda change: -change.saves)


def _reading_node(graph: Graph[Node], node: Node, costs: SharingCosts) -> Iterator[Rewiring]:
    """Joins of more sources that could read the node, which reads nothing itself."""
    if node.inputs:
        return
    for reader in graph.over_more_sources(node):
        own = _OwnWork.of(reader, costs)
        part = own.part(node.sources)
        if part is None or part.signature.sharing_key != node.operator.sharing_key:
            continue
        wider = relax(node.operator, part.signature)
        more = own.load(wider) - own.load(node.operator)
        saves = own.saved_by_reading(node.sources) - more
        if saves > MIN_SAVING * own.work(node.sources):
            yield Rewiring((reader.name,), node.name, wider, saves)


def _with_common_part(graph: Graph[Node], node: Node, costs: SharingCosts) -> Iterator[Rewiring]:
    """Joins of as many sources that have a join of fewer in common with the node, which nobody makes."""
    if node.inputs or len(node.operator.sources) < 3:
        return
    mine = _OwnWork.of(node, costs)
    for sources in mine.parts.aliases:
        part = mine.part(sources)
        if part is None or graph.candidates(part.signature):
            continue
        for other in _others_with(graph, node, part):
            theirs = _OwnWork.of(other, costs)
            same = theirs.part(sources)
            if same is None or same.signature.sharing_key != part.signature.sharing_key:
                continue
            common = relax(minimal_operator(part.signature), same.signature)
            saves = mine.saved_by_reading(sources) + theirs.saved_by_reading(sources)
            saves -= mine.load(common)
            if saves > MIN_SAVING * (mine.work(sources) + theirs.work(sources)):
                yield Rewiring((other.name, node.name), None, common, saves)


def _others_with(graph: Graph[Node], node: Node, part: QueryPart) -> Iterator[Node]:
    probe = Node("", minimal_operator(part.signature))
    return (other for other in graph.over_more_sources(probe) if other is not node)


@dataclass(frozen=True)
class _OwnWork:
    """The work of a node, seen as a query of its own."""

    node: Node
    parts: QueryParts
    setting: SiteSetting

    @staticmethod
    def of(node: Node, costs: SharingCosts) -> _OwnWork:
        parts = QueryParts(_as_query(node.operator))
        return _OwnWork(node, parts, SiteSetting(parts, lambda *_: (), costs))

    def part(self, sources: Sources) -> QueryPart | None:
        if self.node.inputs or sources not in self.parts.aliases:
            return None
        return self.parts.part(sources)

    def load(self, operator: Operator) -> float:
        return estimate_load(operator, self.setting.costs)

    def saved_by_reading(self, sources: Sources) -> float:
        """What it saves to read the join of some sources, instead of reading and joining them."""
        return self._reading(sources) + (1 - READ_SHARE) * self.setting.join_price(sources)

    def work(self, sources: Sources) -> float:
        """What it takes to have the join of some sources."""
        return self._reading(sources) + self.setting.join_price(sources)

    def _reading(self, sources: Sources) -> float:
        return sum(float(self.setting.feed_costs(frozenset({label}))[0]) for label in sources)


def _as_query(operator: Operator) -> QuerySignature:
    """The query that wants all rows of an operator."""
    items = tuple(sorted(operator.columns, key=canonical_text))
    block = Block(operator.sources, operator.where, (), None, items, False)
    bounds = bounds_of(operator.kind, block)
    key = operator.sharing_key
    return QuerySignature(key, operator.kind, key, Output.ISTREAM, block, bounds)
