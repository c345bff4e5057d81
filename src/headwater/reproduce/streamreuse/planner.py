"""How a new query is deployed: which joins it gets, in which order, where, and what it reuses.

The cheapest left-deep plan is found over sets of streams: what it costs over the query's lifetime to
have the join of a set at each site. A set is had by joining one more stream to a smaller set, or
from an operator that runs already, as it is or relaxed. Strategies differ in the last alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from headwater.reproduce.streamreuse.definition import Definition, fed, restrict
from headwater.reproduce.streamreuse.deployment import Changes, Deployment, Operator
from headwater.reproduce.streamreuse.world import Floats


@dataclass(frozen=True)
class Reuse:
    """Take what is needed from an operator, after these changes; the price is over the lifetime."""

    operator: Operator
    changes: Changes
    price: float


Offer = Callable[[Deployment, Definition, int, float, float], list[Reuse]]
"""A strategy: what may be reused for a definition, in some regions, now, for a lifetime."""


def no_reuse(
    state: Deployment, wanted: Definition, near: int, now: float, lifetime: float
) -> list[Reuse]:
    """Every query for itself."""
    return []


def no_rewriting(
    state: Deployment, wanted: Definition, near: int, now: float, lifetime: float
) -> list[Reuse]:
    """Operators with exactly the wanted definition."""
    return [Reuse(op, {}, 0.0) for op in state.candidates(wanted, near) if op.definition == wanted]


def relaxing(
    state: Deployment, wanted: Definition, near: int, now: float, lifetime: float
) -> list[Reuse]:
    """Operators that contain what is wanted, or do so after a relaxation."""
    found = []
    for op in state.candidates(wanted, near):
        changes = state.relaxations(op, wanted)
        found.append(Reuse(op, changes, _price(state, op, changes, wanted, now, lifetime)))
    return found


def _price(
    state: Deployment,
    op: Operator,
    changes: Changes,
    wanted: Definition,
    now: float,
    lifetime: float,
) -> float:
    """What a reuse adds to network usage over a lifetime.

    While others use an operator, that is its wider input; after the last of them has left, all its
    input is there for this query alone.
    """
    price = 0.0
    for one in op.all:
        shared = min(lifetime, max(0.0, one.until - now))
        if one in changes:
            wider = state.input_usage(one, changes[one])
            price += shared * (wider - state.input_usage(one, one.definition))
        if shared < lifetime:
            price += (lifetime - shared) * state.input_usage(one, one.part(wanted))
    return price


STRATEGIES: dict[str, Offer] = {
    "NO REUSE": no_reuse,
    "NO REWRITING": no_rewriting,
    "Headwater": relaxing,
}


@dataclass(frozen=True)
class Step:
    """How some streams are had at a site: from an operator, or from new ones."""

    streams: frozenset[str]
    site: int
    reuse: Reuse | None = None
    inputs: tuple[Step, ...] = ()


def plan(
    state: Deployment, wanted: Definition, sink: int, now: float, lifetime: float, offer: Offer
) -> Step:
    """The cheapest way to answer a query over two streams or more."""
    world, rates = state.world, state.rates
    table = _Table(world.places, world.transit[np.ix_(world.places, world.places)])
    near = world.near[sink]
    for stream in wanted.streams:
        near |= world.near[world.source[stream]]
    for stream in sorted(wanted.streams):
        part = fed(restrict(wanted, {stream}))
        sent = rates.sent(part, stream) * lifetime
        arriving = sent * world.transit[world.source[stream], world.places]
        table.feed(stream, arriving, offer(state, part, near, now, lifetime))
    for streams in _connected_sets(wanted):
        part = restrict(wanted, streams)
        offered = offer(state, part, near, now, lifetime)
        table.join(streams, offered, rates.joined(part) * lifetime)
    to_sink = world.transit[world.places, sink] * rates.joined(wanted) * lifetime
    return table.cheapest(wanted.streams, to_sink)


def deploy(
    state: Deployment, number: int, wanted: Definition, sink: int, until: float, step: Step
) -> None:
    """Carry out a plan."""
    state.attach(number, wanted, _operator(state, wanted, until, step), sink, until)


def _operator(state: Deployment, wanted: Definition, until: float, step: Step) -> Operator:
    if step.reuse is not None:
        state.change(step.reuse.changes)
        return step.reuse.operator
    inputs = tuple(_operator(state, wanted, until, one) for one in step.inputs)
    part = restrict(wanted, step.streams)
    return state.add(part if inputs else fed(part), step.site, inputs, until)


def _connected_sets(wanted: Definition) -> list[frozenset[str]]:
    """The sets of two streams or more that join conditions hold together, small ones first."""
    streams = sorted(wanted.streams)
    sets = (
        frozenset(chosen)
        for size in range(2, len(streams) + 1)
        for chosen in combinations(streams, size)
    )
    return [chosen for chosen in sets if restrict(wanted, chosen).connected]


class _Table:
    """For each set of streams what it costs to have their join at each place, and how."""

    def __init__(self, places: NDArray[np.intp], between: Floats) -> None:
        self._places = places
        self._between = between
        self._every = np.arange(len(places))
        self._cost: dict[frozenset[str], Floats] = {}
        self._reused: dict[frozenset[str], dict[int, Reuse]] = {}
        self._right: dict[frozenset[str], NDArray[np.intp]] = {}
        self._moved: dict[frozenset[str], tuple[Floats, NDArray[np.intp]]] = {}

    def feed(self, stream: str, arriving: Floats, offered: Sequence[Reuse]) -> None:
        """Enter what it costs to bring a stream to each place."""
        streams = frozenset({stream})
        self._enter(streams, arriving, offered)
        self._moved[streams] = self._cost[streams], self._every

    def join(self, streams: frozenset[str], offered: Sequence[Reuse], results: float) -> None:
        """Find the cheapest ways for a set after all smaller ones; `results` is what it sends on."""
        ways = np.array([self._joined(streams, right) for right in sorted(streams)])
        self._right[streams] = ways.argmin(axis=0)
        self._enter(streams, ways[self._right[streams], self._every], offered)
        travelling = self._cost[streams][:, None] + results * self._between
        origin = travelling.argmin(axis=0)
        self._moved[streams] = travelling[origin, self._every], origin

    def cheapest(self, streams: frozenset[str], on_top: Floats) -> Step:
        """The steps to the place where a set and what comes on top cost least."""
        return self._step(streams, int((self._cost[streams] + on_top).argmin()))

    def _enter(self, streams: frozenset[str], cost: Floats, offered: Sequence[Reuse]) -> None:
        cost, reused = cost.copy(), dict[int, Reuse]()
        for reuse in offered:
            at = int(np.searchsorted(self._places, reuse.operator.site))
            if reuse.price < cost[at]:
                cost[at], reused[at] = reuse.price, reuse
        self._cost[streams], self._reused[streams] = cost, reused

    def _joined(self, streams: frozenset[str], right: str) -> Floats:
        """What it costs at each place to join a stream to the others; infinite if that is none."""
        left = streams - {right}
        if left not in self._moved:
            return np.full(len(self._places), np.inf)
        return self._moved[left][0] + self._cost[frozenset({right})]

    def _step(self, streams: frozenset[str], at: int) -> Step:
        site = int(self._places[at])
        if at in self._reused[streams]:
            return Step(streams, site, reuse=self._reused[streams][at])
        if len(streams) == 1:
            return Step(streams, site)
        right = frozenset({sorted(streams)[self._right[streams][at]]})
        left = streams - right
        origin = int(self._moved[left][1][at])
        return Step(streams, site, inputs=(self._step(left, origin), self._step(right, at)))
