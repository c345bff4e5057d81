"""How a new query is deployed: which joins it gets, in which order, where, and what it reuses.

The cheapest left-deep plan is found over sets of streams: what it costs over the query's lifetime to
have the join of a set at each site. A set is had by joining one more stream to a smaller set, or
from an operator that runs already, as it is or relaxed. Strategies differ in the last alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.reproduce.streamreuse.deployment import Changes, Deployment, Running
from headwater.reproduce.streamreuse.question import Question, Streams
from headwater.reproduce.streamreuse.world import Floats


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


Offer = Callable[[Deployment, Stay, Streams, int], list[Reuse]]
"""What may be reused for a part of a query, from the regions of a bit vector."""


@dataclass(frozen=True)
class Strategy:
    """What a new query may reuse: joins, and feeds."""

    joins: Offer
    feeds: Offer


def nothing(state: Deployment, stay: Stay, streams: Streams, near: int) -> list[Reuse]:
    """Every query for itself."""
    return []


def equal(state: Deployment, stay: Stay, streams: Streams, near: int) -> list[Reuse]:
    """Operators that compute exactly what is wanted."""
    form, wanted = stay.asked.parts[streams], stay.asked.operators[streams]
    found = [one for one in state.candidates(form, near) if one.operator == wanted]
    return [Reuse(one, {}, _price(state, stay, one, {})) for one in found]


def overlapping(state: Deployment, stay: Stay, streams: Streams, near: int) -> list[Reuse]:
    """Operators that serve the part as they are, or relaxed."""
    found = []
    for one in state.candidates(stay.asked.parts[streams], near):
        changes = state.relaxations(one, stay.asked)
        found.append(Reuse(one, changes, _price(state, stay, one, changes)))
    return found


NO_REUSE = "NO REUSE"
NO_REWRITING = "NO REWRITING"
HEADWATER = "Headwater"

STRATEGIES = {
    NO_REUSE: Strategy(nothing, nothing),
    NO_REWRITING: Strategy(equal, nothing),
    HEADWATER: Strategy(overlapping, overlapping),
}

VARIANTS = {
    "exact matches, equal streams sent once": Strategy(equal, equal),
    "Headwater, every join with streams of its own": Strategy(overlapping, nothing),
}
"""Strategies in between, which show what each kind of reuse contributes."""


def _price(state: Deployment, stay: Stay, top: Running, changes: Changes) -> float:
    """What a reuse adds over a lifetime.

    While others use an operator, that is its wider input; after the last of them has left, all its
    input is there for this query alone.
    """
    total = 0.0
    for one in top.tree:
        shared = min(stay.lifetime, max(0.0, one.until - stay.now))
        if one in changes:
            wider = state.price(one, changes[one]) - state.price(one, one.operator)
            total += shared * wider
        if shared < stay.lifetime:
            alone = state.price(one, stay.asked.operators[one.streams])
            total += (stay.lifetime - shared) * alone
    return total


@dataclass(frozen=True)
class Step:
    """How some streams are had at a site: from an operator, or from new ones."""

    streams: Streams
    site: int
    reuse: Reuse | None = None
    inputs: tuple[Step, ...] = ()


def plan(state: Deployment, stay: Stay, strategy: Strategy) -> Step:
    """The cheapest way to answer a query."""
    world, asked = state.world, stay.asked
    table = _Table(world.places, world.transit[np.ix_(world.places, world.places)])
    near = world.near[stay.sink]
    for stream in asked.streams:
        near |= world.near[world.source[stream]]
    sent = {}
    for stream in sorted(asked.streams):
        streams = frozenset({stream})
        sent[streams] = state.rate(asked.operators[streams]) * stay.lifetime
        arriving = sent[streams] * world.transit[world.source[stream], world.places]
        table.feed(streams, arriving, strategy.feeds(state, stay, streams, near))
    for streams in asked.joins:
        sent[streams] = state.rate(asked.operators[streams]) * stay.lifetime
        offered = strategy.joins(state, stay, streams, near)
        table.join(streams, offered, sent, state.prices.handling)
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
    """For each set of streams what it costs to have their join at each place, and how."""

    def __init__(self, places: NDArray[np.intp], between: Floats) -> None:
        self._places = places
        self._between = between
        self._every = np.arange(len(places))
        self._cost: dict[Streams, Floats] = {}
        self._reused: dict[Streams, dict[int, Reuse]] = {}
        self._right: dict[Streams, NDArray[np.intp]] = {}
        self._moved: dict[Streams, tuple[Floats, NDArray[np.intp]]] = {}

    def feed(self, stream: Streams, arriving: Floats, offered: Sequence[Reuse]) -> None:
        """Enter what it costs to bring a stream to each place."""
        self._enter(stream, arriving, offered)
        self._moved[stream] = self._cost[stream], self._every

    def join(
        self,
        streams: Streams,
        offered: Sequence[Reuse],
        sent: Mapping[Streams, float],
        handling: float,
    ) -> None:
        """Find the cheapest ways for a set after all smaller ones; `sent` is what each gives."""
        ways = np.array([self._joined(streams, r, sent, handling) for r in sorted(streams)])
        self._right[streams] = ways.argmin(axis=0)
        self._enter(streams, ways[self._right[streams], self._every], offered)
        travelling = self._cost[streams][:, None] + sent[streams] * self._between
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

    def _joined(
        self, streams: Streams, name: str, sent: Mapping[Streams, float], handling: float
    ) -> Floats:
        """What it costs at each place to join a stream to the others; infinite if that is none."""
        right = frozenset({name})
        left = streams - right
        if left not in self._moved:
            return np.full(len(self._places), np.inf)
        handled = handling * (sent[left] + sent[right])
        return self._moved[left][0] + self._cost[right] + handled

    def _step(self, streams: Streams, at: int) -> Step:
        site = int(self._places[at])
        if at in self._reused[streams]:
            return Step(streams, site, reuse=self._reused[streams][at])
        if len(streams) == 1:
            return Step(streams, site)
        right = frozenset({sorted(streams)[self._right[streams][at]]})
        left = streams - right
        origin = int(self._moved[left][1][at])
        return Step(streams, site, inputs=(self._step(left, origin), self._step(right, at)))
