"""The moments of a run at which something is decided: the start, each failure, each round.

A moment is the distribution problem at that time: the providers that live, with the capability
they have left, the rates of the substreams, and the queries that run. It is the same for all policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from headwater.errors import SimulationError
from headwater.federation.distribution.delivery import DeliveryTrees
from headwater.federation.distribution.model import (
    Indices,
    Places,
    Problem,
    QueryGraph,
    Substreams,
    make_problem,
)
from headwater.sim.worlds.draw import DrawnQueries, DrawnSites, Happening
from headwater.sim.worlds.model import DistributionSettings, FailureKind, QuerySettings

STATE_SECONDS = 60.0
"""How many seconds of its input a query that moves has to fetch."""


class MomentKind(StrEnum):
    """Why something is decided."""

    start = "start"
    arrivals = "arrivals"
    failure = "failure"
    round = "round"


@dataclass(frozen=True, eq=False)
class Moment:
    """The federation at a time: place p of the problem is provider alive[p], vertex v is query running[v]."""

    time: float
    kind: MomentKind
    problem: Problem
    alive: Indices
    running: Indices


class FederationState:
    """The federation after the failures so far, and the queries that have arrived."""

    def __init__(
        self,
        sites: DrawnSites,
        demand: DrawnQueries,
        asked: QuerySettings,
        settings: DistributionSettings,
    ) -> None:
        self.sites, self.demand, self.asked, self.settings = sites, demand, asked, settings
        self.is_alive = np.ones(len(sites.providers), np.bool_)
        self.slowness = np.ones(len(sites.providers))
        self.growth = np.ones(len(demand.substreams))

    def apply(self, happening: Happening) -> None:
        """Let a failure happen."""
        if happening.kind is FailureKind.rates:
            self.growth[happening.targets] *= happening.factor
        elif happening.kind is FailureKind.slows:
            self.slowness[happening.targets] *= happening.factor
        else:
            self.is_alive[happening.targets] = happening.kind is FailureKind.returns

    def moment(self, time: float, kind: MomentKind) -> Moment:
        """The federation as it is now; a query whose home is dead does not run."""
        alive = np.flatnonzero(self.is_alive).astype(np.int32)
        substreams = self._substreams()
        origins = len(self.demand.origins)
        homes = self.demand.queries.home - origins
        runs = self.is_alive[homes] & (self.demand.arrival <= time)
        running = np.flatnonzero(runs).astype(np.int32)
        if not self.demand.places.capability[alive].any():
            raise SimulationError(
                f"at {time:g} seconds no provider is left that can run a query; "
                "give others a capability above 0"
            )
        places = living_places(self.demand, alive)
        places = replace(places, capability=places.capability / self.slowness[alive])
        queries = self._priced(self.demand.queries.select(running), substreams)
        # Homes are anchors, and those of the dead are gone.
        home = origins + np.searchsorted(alive, homes[running])
        queries = replace(queries, home=home.astype(np.int32))
        problem = make_problem(substreams, queries, places, self.settings.alpha)
        return Moment(time, kind, problem, alive, running)

    def _substreams(self) -> Substreams:
        """With the rates of now; a dead provider sends nothing of what arises there."""
        position = {int(site): at for at, site in enumerate(self.sites.providers)}
        sends = np.array(
            [
                self.is_alive[position[s]] if s in position else True
                for s in self.demand.origins.tolist()
            ]
        )
        substreams = self.demand.substreams
        # Its queries still want them: so the substreams stay, at rate 0.
        rate = substreams.rate * self.growth * sends[substreams.origin]
        return replace(substreams, rate=rate)

    def _priced(self, queries: QueryGraph, substreams: Substreams) -> QueryGraph:
        """Loads, results and states follow from the rates of what is read."""
        rate = queries.input_rates(substreams)
        return replace(
            queries,
            load=self.asked.load * rate,
            result=self.asked.result_share * rate,
            state=STATE_SECONDS * rate,
        )


def living_places(demand: DrawnQueries, alive: Indices) -> Places:
    """The providers that live, as places and as homes; the ways to the others are still there, and empty."""
    places, trees, origins = demand.places, demand.places.trees, len(demand.origins)
    anchors = np.concatenate((np.arange(origins), origins + alive))
    return Places(
        places.capability[alive],
        places.latency[np.ix_(alive, alive)],
        places.anchor[np.ix_(anchors, alive)],
        DeliveryTrees(trees.parent, trees.length, trees.node[:, alive], trees.size),
    )


def moments(state: FederationState, happenings: list[Happening]) -> Iterator[Moment]:
    """All moments of a run in the order of time; at equal times failures come before rounds."""
    settings = state.settings
    yield state.moment(0.0, MomentKind.start)
    rounds = [(n * settings.period, None) for n in range(1, settings.rounds + 1)]
    events = [(one.at, one) for one in happenings if one.at < settings.duration]
    before = 0.0
    for time, happening in sorted(
        [*events, *rounds], key=lambda event: (event[0], event[1] is None)
    ):
        arrived = (state.demand.arrival > before) & (state.demand.arrival <= time)
        before = time
        # Who came before the failure was given a host before it.
        if happening is not None and arrived.any():
            yield state.moment(time, MomentKind.arrivals)
        if happening is None:
            yield state.moment(time, MomentKind.round)
        else:
            state.apply(happening)
            yield state.moment(time, MomentKind.failure)
