"""The one decision: what a new query uses of what runs, as it is or relaxed, and what is made for it.

A dynamic program over the connected sets of a query's sources: to have the join of a set at a place costs
what its cheapest way costs, which is a node that runs, or a join of two smaller sets. What things cost
is asked of a `Setting`: a single site has one place, and a network has many with links between them. The
dearer ways to have the whole are kept, so that a plan can be explained by what it was preferred to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from math import inf
from typing import Any, Protocol

from headwater.reuse.operator import Operator, relax
from headwater.reuse.planning.graph import Node, Sources
from headwater.reuse.signature import QuerySignature

Costs = Any
"""A price for each place: a tuple of one, or an array."""

MAX_ALTERNATIVES = 4
"""How many of the ways that were found dearer are kept."""


@dataclass(frozen=True)
class Reuse:
    """Take what is needed from a node, after these changes; the price is over the query's lifetime."""

    node: Node
    changes: Mapping[Node, Operator]
    price: float


@dataclass(frozen=True)
class PlanStep:
    """How the join of some sources is had at a place: from a node, or made of its inputs."""

    sources: Sources
    place: int
    reuse: Reuse | None = None
    inputs: tuple[PlanStep, ...] = ()

    @property
    def reused(self) -> tuple[Reuse, ...]:
        """All that it takes from nodes that run."""
        if self.reuse is not None:
            return (self.reuse,)
        return tuple(reuse for step in self.inputs for reuse in step.reused)


@dataclass(frozen=True)
class PricedPlan:
    """A plan and its price over the query's lifetime."""

    price: float
    step: PlanStep


@dataclass(frozen=True)
class PlanChoice:
    """The cheapest plan, and the next cheapest ones that differ in what they use. `unshared` is the
    least price of a plan that reads no node; None where the setting does not count reads, or where one
    costs nothing."""

    best: PricedPlan
    alternatives: tuple[PricedPlan, ...] = ()
    unshared: float | None = None


class PlanPlaces(Protocol):
    """Where joins may run, and what it costs to get from one place to another."""

    def at(self, index: int) -> int:
        """The site of a place."""

    def index(self, site: int) -> int:
        """The place of a site."""

    def with_price(self, costs: Costs, price: float) -> Costs:
        """Costs that are higher by a price everywhere."""

    def least(self, ways: Sequence[tuple[Costs, Costs]]) -> tuple[Costs, Sequence[int]]:
        """The cheapest sum of two for each place, and which it is."""

    def with_offers(
        self, costs: Costs | None, offers: Iterable[Reuse]
    ) -> tuple[Costs, dict[int, Reuse]]:
        """Costs (None: nothing can be made), or what is offered at a place for less."""

    def carried(self, costs: Costs, sent: float) -> tuple[Costs, Sequence[int]]:
        """What it costs each place to get something, and the place that it comes from."""

    def cheapest(self, costs: Costs) -> tuple[float, int]:
        """The least of the costs, and its place."""

    def sum(self, a: Costs, b: Costs) -> Costs: ...

    def price_at(self, costs: Costs, index: int) -> float: ...


class Setting(Protocol):
    """What a query's parts cost, and what there is that could serve them."""

    @property
    def places(self) -> PlanPlaces: ...

    @property
    def whole(self) -> Sources: ...

    @property
    def single_sources(self) -> Sequence[Sources]: ...

    @property
    def joins(self) -> Sequence[Sources]:
        """The sets of two sources and more that can be joined, small ones first and the whole last."""

    @property
    def max_reads(self) -> int | None:
        """How many nodes a new operator may read; None for any number."""

    def feed_costs(self, source: Sources) -> Costs:
        """What it costs each place to get a source as it arises."""

    def sent(self, sources: Sources) -> float:
        """How much of a set is sent wherever it is needed."""

    def join_price(self, sources: Sources) -> float:
        """What it costs to make the join of a set from two smaller ones."""

    def result_costs(self) -> Costs:
        """What it costs to bring the result from each place to where it is read."""

    def offers(self, sources: Sources) -> Iterable[Reuse]:
        """What runs and may be used for a set, the preferred first."""


def decide(setting: Setting) -> PlanChoice:
    """The cheapest way to answer a query, and what it was preferred to.

    What costs nothing is taken without looking at anything else.
    """
    table = _PlanTable(setting)
    free = table.free_plan()
    if free is not None:
        return PlanChoice(free)
    for source in setting.single_sources:
        if source != setting.whole:
            table.enter_source(source)
    for sources in setting.joins:
        if sources != setting.whole:
            table.enter_join(sources)
    return table.decision()


def foreseeing(price: float, foresight: float, expected: float) -> float:
    """The price of a join with regard to others: one that nobody else is likely to ask for is dearer by
    that share, so that of two orders that cost the same, the one with joins that others will want is
    the better."""
    return price * (1 + foresight / (1 + expected))


# ---- what a node costs that runs

ServingPrice = Callable[[Node, Operator, Sources], float]
"""What it costs over a query's lifetime that a node computes that, for the query's part as well."""


@dataclass(frozen=True)
class ReusePricing:
    """Prices what it takes to let nodes serve a query; each node is looked at once for all its users."""

    part: Callable[[Sources], QuerySignature]
    serving_price: ServingPrice
    _added: dict[Node, tuple[Operator, float]] = field(default_factory=dict)

    def reuse(self, top: Node) -> Reuse:
        """Let a node and all that feed it serve the query.

        Each is relaxed by the query's own part of its sources: then it has all the rows that make up
        a result of the query, whatever else the nodes above it could use.
        """
        price, changes = 0.0, dict[Node, Operator]()
        for node in top.tree:
            if node not in self._added:
                wider = relax(node.operator, self.part(node.sources))
                self._added[node] = wider, self.serving_price(node, wider, node.sources)
            operator, more = self._added[node]
            price += more
            if operator is not node.operator:
                changes[node] = operator
        return Reuse(top, changes, price)


# ---- the dynamic program

State = tuple[Sources, int]
"""A set of sources, and how many nodes are read to have it."""


class _PlanTable:
    """For each set of sources what it costs to have their join at each place, and how."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._places = setting.places
        most = setting.max_reads
        self._reads = range(1) if most is None else range(most + 1)
        self._reads_of_offer = 0 if most is None else 1
        self._delivered: dict[State, tuple[Costs, Sequence[int]]] = {}
        self._reuse_at: dict[State, dict[int, Reuse]] = {}
        self._ways: dict[State, tuple[list[tuple[State, State]], Sequence[int]]] = {}

    def free_plan(self) -> PricedPlan | None:
        """The whole from a node, for nothing; None if there is no such node."""
        for price, make in self._whole_offers:
            if price <= 0.0:
                return PricedPlan(price, make())
        return None

    @cached_property
    def _whole_offers(self) -> list[tuple[float, Callable[[], PlanStep]]]:
        setting, places = self._setting, self._places
        result = setting.result_costs()
        found: list[tuple[float, Callable[[], PlanStep]]] = []
        for reuse in setting.offers(setting.whole):
            price = reuse.price + places.price_at(result, places.index(reuse.node.site))
            found.append((price, _known(PlanStep(setting.whole, reuse.node.site, reuse))))
        return found

    def enter_source(self, source: Sources) -> None:
        """Enter what it costs to bring a source to each place: it is sent to where it is needed."""
        raw = self._setting.feed_costs(source)
        for reads in self._reads:
            offers = self._offers(source, reads)
            if reads == 0 or offers:
                costs, reused = self._places.with_offers(raw if reads == 0 else None, offers)
                self._reuse_at[source, reads] = reused
                self._delivered[source, reads] = costs, ()

    def enter_join(self, sources: Sources) -> None:
        """Find the cheapest ways for a set, after all smaller ones."""
        price = self._setting.join_price(sources)
        for reads in self._reads:
            ways = self._all_ways(sources, reads)
            offers = self._offers(sources, reads)
            costs = None
            if ways:
                costs, best = self._places.least([self._costs(way) for way in ways])
                costs = self._places.with_price(costs, price)
                self._ways[sources, reads] = ways, best
            if costs is not None or offers:
                costs, reused = self._places.with_offers(costs, offers)
                self._reuse_at[sources, reads] = reused
                self._delivered[sources, reads] = self._places.carried(
                    costs, self._setting.sent(sources)
                )

    def decision(self) -> PlanChoice:
        """The ways to have the whole at the place where it and bringing its result cost least."""
        setting, places, whole = self._setting, self._places, self._setting.whole
        result = setting.result_costs()
        found = list(self._whole_offers)
        prices_unshared: list[float] = []
        price = setting.join_price(whole)
        ways = [way for reads in self._reads for way in self._all_ways(whole, reads)]
        if not ways:
            costs = places.sum(places.with_price(self._all_sources(), price), result)
            least, place = places.cheapest(costs)
            found.append((least, _known(self._flat(place))))
            prices_unshared.append(least)
        for way in ways:
            costs, _ = places.least([self._costs(way)])
            least, place = places.cheapest(places.sum(places.with_price(costs, price), result))
            found.append((least, _later(self._made, whole, way, place)))
            if not way[0][1] + way[1][1]:
                prices_unshared.append(least)
        counts_reads = setting.max_reads is not None
        unshared = min(prices_unshared) if counts_reads else None
        found.sort(key=_price)
        best, *others = _distinct(found)
        return PlanChoice(best, tuple(others), unshared)

    # ---- ways

    def _offers(self, sources: Sources, reads: int) -> list[Reuse]:
        return list(self._setting.offers(sources)) if reads == self._reads_of_offer else []

    def _all_ways(self, sources: Sources, reads: int) -> list[tuple[State, State]]:
        """The ways to cut a set into two that can be had with that many reads together."""
        if len(sources) == 1:
            return []
        first = min(sources)
        halves = [
            state
            for state in self._delivered
            if first in state[0] and state[0] < sources and state[1] <= reads
        ]
        others = ((half, (sources - half[0], reads - half[1])) for half in halves)
        return [(half, other) for half, other in others if other in self._delivered]

    def _costs(self, way: tuple[State, State]) -> tuple[Costs, Costs]:
        return self._delivered[way[0]][0], self._delivered[way[1]][0]

    # ---- plans

    def _all_sources(self) -> Costs:
        """What it costs each place to get all sources as they arise."""
        first, *others = map(self._setting.feed_costs, self._setting.single_sources)
        return reduce(self._places.sum, others, first)

    def _flat(self, place: int) -> PlanStep:
        """The plan of a lone source, or of sources that no conditions connect."""
        site, sources = self._places.at(place), self._setting.single_sources
        inputs = tuple(PlanStep(source, site) for source in sources) if len(sources) > 1 else ()
        return PlanStep(self._setting.whole, site, inputs=inputs)

    def _made(self, sources: Sources, way: tuple[State, State], place: int) -> PlanStep:
        inputs = tuple(self._step(state, self._origin(state, place)) for state in way)
        return PlanStep(sources, self._places.at(place), inputs=inputs)

    def _origin(self, state: State, place: int) -> int:
        _, origins = self._delivered[state]
        return int(origins[place]) if len(origins) else place

    def _step(self, state: State, place: int) -> PlanStep:
        sources, _ = state
        if place in self._reuse_at[state]:
            return PlanStep(sources, self._places.at(place), self._reuse_at[state][place])
        if len(sources) == 1:
            return PlanStep(sources, self._places.at(place))
        ways, best = self._ways[state]
        return self._made(sources, ways[int(best[place])], place)


def _known(step: PlanStep) -> Callable[[], PlanStep]:
    return lambda: step


def _later(
    make: Callable[[Sources, tuple[State, State], int], PlanStep],
    sources: Sources,
    way: tuple[State, State],
    place: int,
) -> Callable[[], PlanStep]:
    return lambda: make(sources, way, place)


def _price(found: tuple[float, Callable[[], PlanStep]]) -> float:
    return found[0]


def _distinct(found: Sequence[tuple[float, Callable[[], PlanStep]]]) -> list[PricedPlan]:
    """The first plans that differ in what they take from where; the list is in order of price."""
    plans: list[PricedPlan] = []
    seen = set[frozenset[tuple[str, Sources]]]()
    for price, make in found:
        if len(plans) > MAX_ALTERNATIVES:
            break
        step = make()
        uses = frozenset((reuse.node.name, reuse.node.sources) for reuse in step.reused)
        if uses not in seen:
            seen.add(uses)
            plans.append(PricedPlan(price, step))
    return plans


# ---- a single place


@dataclass(frozen=True)
class OnePlace:
    """The places of a single site: nothing is carried anywhere."""

    def at(self, index: int) -> int:
        return index

    def index(self, site: int) -> int:
        return site

    def with_price(self, costs: Costs, price: float) -> Costs:
        return (costs[0] + price,)

    def least(self, ways: Sequence[tuple[Costs, Costs]]) -> tuple[Costs, Sequence[int]]:
        sums = [a[0] + b[0] for a, b in ways]
        best = min(range(len(sums)), key=sums.__getitem__)
        return (sums[best],), (best,)

    def with_offers(
        self, costs: Costs | None, offers: Iterable[Reuse]
    ) -> tuple[Costs, dict[int, Reuse]]:
        cost, reused = (inf if costs is None else costs[0]), dict[int, Reuse]()
        for reuse in offers:
            if reuse.price < cost:
                cost, reused = reuse.price, {0: reuse}
        return (cost,), reused

    def carried(self, costs: Costs, sent: float) -> tuple[Costs, Sequence[int]]:  # noqa: ARG002
        return costs, ()

    def cheapest(self, costs: Costs) -> tuple[float, int]:
        return costs[0], 0

    def sum(self, a: Costs, b: Costs) -> Costs:
        return (a[0] + b[0],)

    def price_at(self, costs: Costs, index: int) -> float:
        return float(costs[index])
