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

from headwater.reproduce.streamreuse.definition import Definition, restrict
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

    While the others are there, it is the wider inputs; after the last of them has left, the inputs
    are there for this query alone.
    """
    shared = min(lifetime, max(0.0, op.until - now))
    wider = sum(
        state.input_usage(one, definition) - state.input_usage(one, one.definition)
        for one, definition in changes.items()
    )
    price = wider * shared
    if shared < lifetime:
        alone = sum(
            state.input_usage(one, restrict(wanted, one.definition.streams)) for one in op.chain
        )
        price += alone * (lifetime - shared)
    return price


STRATEGIES: dict[str, Offer] = {
    "NO REUSE": no_reuse,
    "NO REWRITING": no_rewriting,
    "Headwater": relaxing,
}


@dataclass(frozen=True)
class Step:
    """How the join of a set of streams is had at a site: from an operator, or by joining `right`."""

    streams: frozenset[str]
    site: int
    reuse: Reuse | None = None
    left: Step | str = ""
    right: str = ""


def plan(
    state: Deployment, wanted: Definition, sink: int, now: float, lifetime: float, offer: Offer
) -> Step:
    """The cheapest way to answer a query over two streams or more."""
    world, rates = state.world, state.rates
    table = _Table(world.places, world.transit[np.ix_(world.places, world.places)])
    near = world.near[sink]
    for stream in wanted.streams:
        near |= world.near[world.source[stream]]
        sent = rates.sent(wanted, stream) * lifetime
        table.arriving[stream] = sent * world.transit[world.source[stream], world.places]
    for streams in _connected_sets(wanted):
        part = restrict(wanted, streams)
        offered = offer(state, part, near, now, lifetime)
        table.fill(streams, offered, rates.joined(part) * lifetime)
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
    left = step.left if isinstance(step.left, str) else _operator(state, wanted, until, step.left)
    return state.add(restrict(wanted, step.streams), step.site, left, step.right, until)


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
        self.arriving: dict[str, Floats] = {}
        self._places = places
        self._between = between
        self._cost: dict[frozenset[str], Floats] = {}
        self._right: dict[frozenset[str], NDArray[np.intp]] = {}
        self._reused: dict[frozenset[str], dict[int, Reuse]] = {}
        self._moved: dict[frozenset[str], tuple[Floats, NDArray[np.intp]]] = {}

    def fill(self, streams: frozenset[str], offered: Sequence[Reuse], results: float) -> None:
        """Find the cheapest ways for a set after all smaller ones; `results` is what it sends on."""
        ordered = sorted(streams)
        ways = [self._joined(streams, right) for right in ordered]
        every = np.array(ways)
        right = every.argmin(axis=0)
        cost = every[right, np.arange(len(self._places))]
        reused: dict[int, Reuse] = {}
        for reuse in offered:
            at = int(np.searchsorted(self._places, reuse.operator.site))
            if reuse.price < cost[at]:
                cost[at] = reuse.price
                reused[at] = reuse
        self._cost[streams], self._right[streams], self._reused[streams] = cost, right, reused
        travelling = cost[:, None] + results * self._between
        source = travelling.argmin(axis=0)
        self._moved[streams] = travelling[source, np.arange(len(cost))], source

    def cheapest(self, streams: frozenset[str], on_top: Floats) -> Step:
        """The steps to the place where a set and what comes on top cost least."""
        return self._step(streams, int((self._cost[streams] + on_top).argmin()))

    def _joined(self, streams: frozenset[str], right: str) -> Floats:
        """What it costs at each place to join a stream to the others; infinite if that is none."""
        left = streams - {right}
        if len(left) == 1:
            return self.arriving[min(left)] + self.arriving[right]
        if left not in self._moved:
            return np.full(len(self._places), np.inf)
        return self._moved[left][0] + self.arriving[right]

    def _step(self, streams: frozenset[str], at: int) -> Step:
        site = int(self._places[at])
        if at in self._reused[streams]:
            return Step(streams, site, reuse=self._reused[streams][at])
        right = sorted(streams)[self._right[streams][at]]
        left = streams - {right}
        if len(left) == 1:
            return Step(streams, site, left=min(left), right=right)
        return Step(streams, site, left=self._step(left, self._moved[left][1][at]), right=right)
