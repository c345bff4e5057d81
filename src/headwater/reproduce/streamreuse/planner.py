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

from headwater.reproduce.streamreuse.deployment import Changes, Deployment, Running
from headwater.reproduce.streamreuse.question import Question
from headwater.reproduce.streamreuse.rates import Streams
from headwater.reproduce.streamreuse.world import Floats
from headwater.reuse import Operator, relaxed


@dataclass(frozen=True)
class Reuse:
    """Take what is needed from an operator, after these changes; the price is over the lifetime."""

    running: Running
    changes: Changes
    price: float


@dataclass(frozen=True)
class Stay:
    """A query for the time that it stays: where it is asked, from when, and for how long."""

    asked: Question
    sink: int
    now: float
    lifetime: float


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a plan: the regions in which operators are looked for, and what was found.

    `added` remembers for each operator what it is when it serves the query too, and what that adds.
    """

    state: Deployment
    stay: Stay
    near: int
    added: dict[Running, tuple[Operator, float]] = field(default_factory=dict)

    def candidates(self, streams: Streams) -> list[Running]:
        """The operators that could serve a part of the query."""
        return self.state.candidates(self.stay.asked.parts[streams], self.near)

    def reuse(self, top: Running) -> Reuse:
        """Let an operator and all that feed it serve the query.

        Each is relaxed by the query's own part of its streams: then it has all the rows that make up
        a result of the query, whatever else the operators above it could use.
        """
        price, changes = 0.0, {}
        for one in top.tree:
            if one not in self.added:
                self.added[one] = self._add(one)
            operator, more = self.added[one]
            price += more
            if operator is not one.operator:
                changes[one] = operator
        return Reuse(top, changes, price)

    def _add(self, one: Running) -> tuple[Operator, float]:
        """What it costs over the lifetime that an operator serves the query too.

        While others use it, that is its wider input; after the last of them has left, all its
        input is there for this query alone.
        """
        stay, asked = self.stay, self.stay.asked
        wider = relaxed(one.operator, asked.parts[one.streams])
        shared = min(stay.lifetime, max(0.0, one.until - stay.now))
        more = 0.0
        if wider is not one.operator:
            more += shared * (self.state.price(one, wider) - one.price)
        if shared < stay.lifetime:
            alone = self.state.price(one, asked.operators[one.streams])
            more += (stay.lifetime - shared) * alone
        return wider, more


Offer = Callable[[Search, Streams], list[Reuse]]
"""What may be reused for a part of a query."""


@dataclass(frozen=True)
class Strategy:
    """What a new query may reuse: joins, and feeds.

    With `foresight` a join that nobody else is likely to ask for is dearer by this share: of two
    orders that cost the same, the one with joins that others will want is the better.
    """

    joins: Offer
    feeds: Offer
    foresight: float = 0.0


def nothing(search: Search, streams: Streams) -> list[Reuse]:
    """Every query for itself."""
    return []


def equal(search: Search, streams: Streams) -> list[Reuse]:
    """Operators that compute exactly what is wanted."""
    wanted = search.stay.asked.operators[streams]
    return [search.reuse(one) for one in search.candidates(streams) if one.operator == wanted]


def overlapping(search: Search, streams: Streams) -> list[Reuse]:
    """Operators that serve the part as they are, or relaxed."""
    return [search.reuse(one) for one in search.candidates(streams)]


NO_REUSE = "NO REUSE"
NO_REWRITING = "NO REWRITING"
HEADWATER = "Headwater"

STRATEGIES = {
    NO_REUSE: Strategy(nothing, nothing),
    NO_REWRITING: Strategy(equal, nothing),
    HEADWATER: Strategy(overlapping, overlapping, foresight=0.15),
}

VARIANTS = {
    "exact matches, equal streams sent once": Strategy(equal, equal),
    "Headwater, every join with streams of its own": Strategy(overlapping, nothing, foresight=0.15),
    "Headwater, whatever others are likely to ask for": Strategy(overlapping, overlapping),
}
"""Strategies in between, which show what each kind of reuse contributes."""


@dataclass(frozen=True)
class Step:
    """How some streams are had at a site: from an operator, or from new ones."""

    streams: Streams
    site: int
    reuse: Reuse | None = None
    inputs: tuple[Step, ...] = ()


def plan(state: Deployment, stay: Stay, strategy: Strategy) -> Step:
    """The cheapest way to answer a query."""
    world, asked, lifetime = state.world, stay.asked, stay.lifetime
    near = world.near[stay.sink]
    for stream in asked.streams:
        near |= world.near[world.source[stream]]
    search = Search(state, stay, near)
    sent = {streams: rate * lifetime for streams, rate in asked.rates.items()}
    table = _Table(world.places, world.transit[np.ix_(world.places, world.places)], sent)
    for stream in sorted(asked.streams):
        streams = frozenset({stream})
        arriving = sent[streams] * world.transit[world.source[stream], world.places]
        table.feed(streams, arriving, strategy.feeds(search, streams))
    for streams in asked.joins:
        dearer = 1 + strategy.foresight / (1 + state.likely(streams))
        price = dearer * state.prices.join * lifetime
        table.join(streams, strategy.joins(search, streams), price)
    to_sink = world.transit[world.places, stay.sink] * sent[asked.streams]
    return table.cheapest(asked.streams, to_sink)


def deploy(state: Deployment, number: int, stay: Stay, step: Step) -> None:
    """Carry out a plan."""
    source = _running(state, stay.asked, step)
    state.attach(number, stay.asked, source, stay.sink, stay.now + stay.lifetime)


def _running(state: Deployment, asked: Question, step: Step) -> Running:
    if step.reuse is not None:
        state.change(step.reuse.changes)
        return step.reuse.running
    inputs = tuple(_running(state, asked, one) for one in step.inputs)
    return state.add(asked.operators[step.streams], step.site, inputs)


class _Table:
    """For each set of streams what it costs to have their join at each place, and how.

    `sent` is what each set gives over the lifetime.
    """

    def __init__(
        self, places: NDArray[np.intp], between: Floats, sent: Mapping[Streams, float]
    ) -> None:
        self._sent = sent
        self._places = places
        self._between = between
        self._every = np.arange(len(places))
        self._cost: dict[Streams, Floats] = {}
        self._reused: dict[Streams, dict[int, Reuse]] = {}
        self._split: dict[Streams, tuple[list[Streams], NDArray[np.intp]]] = {}
        self._moved: dict[Streams, tuple[Floats, NDArray[np.intp]]] = {}

    def feed(self, stream: Streams, arriving: Floats, offered: Sequence[Reuse]) -> None:
        """Enter what it costs to bring a stream to each place."""
        self._enter(stream, arriving, offered)
        self._moved[stream] = self._cost[stream], self._every

    def join(self, streams: Streams, offered: Sequence[Reuse], price: float) -> None:
        """Find the cheapest ways for a set after all smaller ones; `price` is that of a join."""
        halves = self._halves(streams)
        ways = np.array([self._moved[h][0] + self._moved[streams - h][0] for h in halves])
        best = ways.argmin(axis=0)
        self._split[streams] = halves, best
        self._enter(streams, ways[best, self._every] + price, offered)
        travelling = self._cost[streams][:, None] + self._sent[streams] * self._between
        origin = travelling.argmin(axis=0)
        self._moved[streams] = travelling[origin, self._every], origin

    def cheapest(self, streams: Streams, on_top: Floats) -> Step:
        """The steps to the place where a set and what comes on top cost least."""
        return self._step(streams, int((self._cost[streams] + on_top).argmin()))

    def _enter(self, streams: Streams, cost: Floats, offered: Sequence[Reuse]) -> None:
        cost, reused = cost.copy(), dict[int, Reuse]()
        for reuse in offered:
            at = int(np.searchsorted(self._places, reuse.running.site))
            if reuse.price < cost[at]:
                cost[at], reused[at] = reuse.price, reuse
        self._cost[streams], self._reused[streams] = cost, reused

    def _halves(self, streams: Streams) -> list[Streams]:
        """One half of each way to cut a set into two that can be had."""
        first = min(streams)
        return [
            half
            for half in self._moved
            if first in half and half < streams and streams - half in self._moved
        ]

    def _step(self, streams: Streams, at: int) -> Step:
        site = int(self._places[at])
        if at in self._reused[streams]:
            return Step(streams, site, reuse=self._reused[streams][at])
        if len(streams) == 1:
            return Step(streams, site)
        halves, best = self._split[streams]
        one = halves[best[at]]
        inputs = (self._step(part, int(self._moved[part][1][at])) for part in (one, streams - one))
        return Step(streams, site, inputs=tuple(inputs))
