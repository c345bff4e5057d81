"""How a new query is deployed: which joins it gets, in which order, where, and what it reuses.

The cheapest plan is found over sets of streams: what it costs over the query's lifetime to have the
join of a set at each site. A set is had by joining two smaller ones, or from an operator that runs
already, as it is or relaxed. Strategies differ in the last alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwater.reproduce.streamreuse.deployment import Changes, RunningOperator, SimulatedDeployment
from headwater.reproduce.streamreuse.question import PreparedQuery
from headwater.reproduce.streamreuse.rates import Streams
from headwater.reproduce.streamreuse.world import Floats
from headwater.reuse import Operator, relax


@dataclass(frozen=True)
class Reuse:
    """Take what is needed from an operator, after these changes; the price is over the lifetime."""

    running: RunningOperator
    changes: Changes
    price: float


@dataclass(frozen=True)
class Submission:
    """A query for the time that it stays: where it is asked, from when, and for how long."""

    query: PreparedQuery
    sink: int
    submitted_at: float
    lifetime: float


@dataclass(frozen=True, eq=False)
class PlanSearch:
    """The search for a plan: the regions in which operators are looked for, and what was found.

    `added` remembers for each operator what it is when it serves the query too, and what that adds.
    """

    state: SimulatedDeployment
    submission: Submission
    near: int
    added: dict[RunningOperator, tuple[Operator, float]] = field(default_factory=dict)

    def candidates(self, streams: Streams) -> list[RunningOperator]:
        """The operators that could serve a part of the query."""
        return self.state.candidates(self.submission.query.parts[streams], self.near)

    def reuse(self, top: RunningOperator) -> Reuse:
        """Let an operator and all that feed it serve the query.

        Each is relaxed by the query's own part of its streams: then it has all the rows that make up
        a result of the query, whatever else the operators above it could use.
        """
        price, changes = 0.0, {}
        for running in top.tree:
            if running not in self.added:
                self.added[running] = self._serving_cost(running)
            operator, more = self.added[running]
            price += more
            if operator is not running.operator:
                changes[running] = operator
        return Reuse(top, changes, price)

    def _serving_cost(self, running: RunningOperator) -> tuple[Operator, float]:
        """What it costs over the lifetime that an operator serves the query too.

        While others use it, that is its wider input; after the last of them has left, all its
        input is there for this query alone.
        """
        submission, query = self.submission, self.submission.query
        wider = relax(running.operator, query.parts[running.streams])
        shared = min(submission.lifetime, max(0.0, running.until - submission.submitted_at))
        more = 0.0
        if wider is not running.operator:
            more += shared * (self.state.price(running, wider) - running.price)
        if shared < submission.lifetime:
            alone = self.state.price(running, query.operators[running.streams])
            more += (submission.lifetime - shared) * alone
        return wider, more


Offer = Callable[[PlanSearch, Streams], list[Reuse]]
"""What may be reused for a part of a query."""


@dataclass(frozen=True)
class Strategy:
    """What a new query may reuse: joins, and feeds.

    With `foresight` a join that no other query is likely to need costs more by this share: of two
    orders that cost the same, the one with joins that others will want is the better.
    """

    joins: Offer
    feeds: Offer
    foresight: float = 0.0


def offer_nothing(search: PlanSearch, streams: Streams) -> list[Reuse]:
    """Every query for itself."""
    return []


def offer_equal(search: PlanSearch, streams: Streams) -> list[Reuse]:
    """Operators that compute exactly what is wanted."""
    wanted = search.submission.query.operators[streams]
    return [
        search.reuse(running)
        for running in search.candidates(streams)
        if running.operator == wanted
    ]


def offer_overlapping(search: PlanSearch, streams: Streams) -> list[Reuse]:
    """Operators that serve the part as they are, or relaxed."""
    return [search.reuse(running) for running in search.candidates(streams)]


NO_REUSE = "NO REUSE"
NO_REWRITING = "NO REWRITING"
HEADWATER = "Headwater"

STRATEGIES = {
    NO_REUSE: Strategy(offer_nothing, offer_nothing),
    NO_REWRITING: Strategy(offer_equal, offer_nothing),
    HEADWATER: Strategy(offer_overlapping, offer_overlapping, foresight=0.15),
}

VARIANTS = {
    "exact matches, equal streams sent once": Strategy(offer_equal, offer_equal),
    "Headwater, every join with streams of its own": Strategy(
        offer_overlapping, offer_nothing, foresight=0.15
    ),
    "Headwater, whatever others are likely to ask for": Strategy(
        offer_overlapping, offer_overlapping
    ),
}
"""Strategies in between, which show what each kind of reuse contributes."""


@dataclass(frozen=True)
class PlanNode:
    """How some streams are had at a site: from an operator, or from new ones."""

    streams: Streams
    site: int
    reuse: Reuse | None = None
    inputs: tuple[PlanNode, ...] = ()


def plan_query(state: SimulatedDeployment, submission: Submission, strategy: Strategy) -> PlanNode:
    """The cheapest way to answer a query."""
    world, query, lifetime = state.world, submission.query, submission.lifetime
    near = world.near[submission.sink]
    for stream in query.streams:
        near |= world.near[world.source[stream]]
    search = PlanSearch(state, submission, near)
    sent = {streams: rate * lifetime for streams, rate in query.rates.items()}
    table = _PlanTable(
        world.join_sites, world.transit[np.ix_(world.join_sites, world.join_sites)], sent
    )
    for stream in sorted(query.streams):
        streams = frozenset({stream})
        arriving = sent[streams] * world.transit[world.source[stream], world.join_sites]
        table.feed(streams, arriving, strategy.feeds(search, streams))
    for streams in query.joins:
        dearer = 1 + strategy.foresight / (1 + state.expected_requests(streams))
        price = dearer * state.prices.join * lifetime
        table.join(streams, strategy.joins(search, streams), price)
    to_sink = world.transit[world.join_sites, submission.sink] * sent[query.streams]
    return table.cheapest(query.streams, to_sink)


def deploy_plan(
    state: SimulatedDeployment, number: int, submission: Submission, step: PlanNode
) -> None:
    """Carry out a plan."""
    source = _start_operators(state, submission.query, step)
    state.subscribe(
        number,
        submission.query,
        source,
        submission.sink,
        submission.submitted_at + submission.lifetime,
    )


def _start_operators(
    state: SimulatedDeployment, query: PreparedQuery, step: PlanNode
) -> RunningOperator:
    if step.reuse is not None:
        state.change(step.reuse.changes)
        return step.reuse.running
    inputs = tuple(_start_operators(state, query, child) for child in step.inputs)
    return state.add(query.operators[step.streams], step.site, inputs)


class _PlanTable:
    """For each set of streams what it costs to have their join at each place, and how.

    `sent` is what each set gives over the lifetime.
    """

    def __init__(
        self, places: NDArray[np.intp], between: Floats, sent: Mapping[Streams, float]
    ) -> None:
        self._sent = sent
        self._places = places
        self._between = between
        self._all_positions = np.arange(len(places))
        self._cost: dict[Streams, Floats] = {}
        self._reuse_at: dict[Streams, dict[int, Reuse]] = {}
        self._split: dict[Streams, tuple[list[Streams], NDArray[np.intp]]] = {}
        self._delivered: dict[Streams, tuple[Floats, NDArray[np.intp]]] = {}

    def feed(self, stream: Streams, arriving: Floats, offered: Sequence[Reuse]) -> None:
        """Enter what it costs to bring a stream to each place."""
        self._enter(stream, arriving, offered)
        self._delivered[stream] = self._cost[stream], self._all_positions

    def join(self, streams: Streams, offered: Sequence[Reuse], price: float) -> None:
        """Find the cheapest ways for a set after all smaller ones; `price` is that of a join."""
        halves = self._halves(streams)
        ways = np.array([self._delivered[h][0] + self._delivered[streams - h][0] for h in halves])
        best = ways.argmin(axis=0)
        self._split[streams] = halves, best
        self._enter(streams, ways[best, self._all_positions] + price, offered)
        travelling = self._cost[streams][:, None] + self._sent[streams] * self._between
        origin = travelling.argmin(axis=0)
        self._delivered[streams] = travelling[origin, self._all_positions], origin

    def cheapest(self, streams: Streams, on_top: Floats) -> PlanNode:
        """The steps to the place where a set and what comes on top cost least."""
        return self._step(streams, int((self._cost[streams] + on_top).argmin()))

    def _enter(self, streams: Streams, cost: Floats, offered: Sequence[Reuse]) -> None:
        cost, reused = cost.copy(), dict[int, Reuse]()
        for reuse in offered:
            position = int(np.searchsorted(self._places, reuse.running.site))
            if reuse.price < cost[position]:
                cost[position], reused[position] = reuse.price, reuse
        self._cost[streams], self._reuse_at[streams] = cost, reused

    def _halves(self, streams: Streams) -> list[Streams]:
        """One half of each way to cut a set into two that can be had."""
        first = min(streams)
        return [
            half
            for half in self._delivered
            if first in half and half < streams and streams - half in self._delivered
        ]

    def _step(self, streams: Streams, position: int) -> PlanNode:
        site = int(self._places[position])
        if position in self._reuse_at[streams]:
            return PlanNode(streams, site, reuse=self._reuse_at[streams][position])
        if len(streams) == 1:
            return PlanNode(streams, site)
        halves, best = self._split[streams]
        half = halves[best[position]]
        inputs = (
            self._step(part, int(self._delivered[part][1][position]))
            for part in (half, streams - half)
        )
        return PlanNode(streams, site, inputs=tuple(inputs))
