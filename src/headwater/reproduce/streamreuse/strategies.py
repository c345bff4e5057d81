"""What a simulated query may reuse, and what that costs in the network.

There is no planner here: a submission is put before the decision of `reuse.planning.decision`, which is the one
that `CREATE QUERY` asks, with the prices of a network. Strategies differ in what they let it reuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from headwater.reproduce.streamreuse.deployment import RunningOperator, SimulatedDeployment
from headwater.reproduce.streamreuse.question import PreparedQuery
from headwater.reproduce.streamreuse.rates import Streams
from headwater.reproduce.streamreuse.world import Floats
from headwater.reuse import Operator
from headwater.reuse.planning.decision import (
    PlanChoice,
    PlanStep,
    Reuse,
    ReusePricing,
    decide,
    foreseeing,
)
from headwater.reuse.planning.graph import Changes, Node
from headwater.reuse.planning.places import NetworkPlaces


@dataclass(frozen=True)
class Submission:
    """A query for the time that it stays: where it is asked, from when, and for how long."""

    query: PreparedQuery
    sink: int
    submitted_at: float
    lifetime: float


Offer = Callable[["NetworkSetting", Streams], Sequence[RunningOperator]]
"""What may be reused for a part of a query."""


@dataclass(frozen=True)
class Strategy:
    """What a new query may reuse: joins, and feeds; and how much it looks ahead to others."""

    joins: Offer
    feeds: Offer
    foresight: float = 0.0


def offer_nothing(setting: NetworkSetting, streams: Streams) -> Sequence[RunningOperator]:
    """Every query for itself."""
    return []


def offer_equal(setting: NetworkSetting, streams: Streams) -> Sequence[RunningOperator]:
    """Operators that compute exactly what the query needs."""
    needed = setting.submission.query.operators[streams]
    return [running for running in setting.candidates(streams) if running.operator == needed]


def offer_overlapping(setting: NetworkSetting, streams: Streams) -> Sequence[RunningOperator]:
    """Operators that serve the part as they are, or relaxed."""
    return setting.candidates(streams)


NO_REUSE = "NO REUSE"
NO_REWRITING = "NO REWRITING"
HEADWATER = "Headwater"

STRATEGIES = {
    NO_REUSE: Strategy(offer_nothing, offer_nothing),
    # As the paper has it: equal joins are shared, but equal streams are sent to each query.
    NO_REWRITING: Strategy(offer_equal, offer_nothing),
    # With 0.3 RW has slightly fewer joins, and a seed of EW saves less than the paper's 96 %.
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


@dataclass(frozen=True, eq=False)
class NetworkSetting:
    """A submission, what runs, and what both cost in bytes in transit over the query's lifetime."""

    state: SimulatedDeployment
    submission: Submission
    strategy: Strategy
    max_reads: None = None

    @property
    def whole(self) -> Streams:
        return self.submission.query.streams

    @property
    def single_sources(self) -> Sequence[Streams]:
        return [frozenset({stream}) for stream in sorted(self.whole)]

    @property
    def joins(self) -> Sequence[Streams]:
        return self.submission.query.joins

    @cached_property
    def places(self) -> NetworkPlaces:
        world = self.state.world
        return NetworkPlaces(
            world.join_sites, world.transit[np.ix_(world.join_sites, world.join_sites)]
        )

    def feed_costs(self, source: Streams) -> Floats:
        (stream,) = source
        world = self.state.world
        transit: Floats = world.transit[world.source[stream], world.join_sites]
        return self.sent(source) * transit

    def sent(self, sources: Streams) -> float:
        return self.submission.query.rates[sources] * self.submission.lifetime

    def join_price(self, sources: Streams) -> float:
        price = self.state.prices.join * self.submission.lifetime
        expected = self.state.expected_requests(sources)
        return foreseeing(price, self.strategy.foresight, expected)

    def result_costs(self) -> Floats:
        world = self.state.world
        transit: Floats = world.transit[world.join_sites, self.submission.sink]
        return transit * self.sent(self.whole)

    def offers(self, sources: Streams) -> list[Reuse]:
        allowed = self.strategy.feeds if len(sources) == 1 else self.strategy.joins
        return [self._pricing.reuse(running) for running in allowed(self, sources)]

    # ---- operators that run

    def candidates(self, streams: Streams) -> list[RunningOperator]:
        """The operators that could serve a part of the query, in the regions where it is looked for."""
        return self.state.candidates(self.submission.query.parts[streams], self._near)

    @cached_property
    def _near(self) -> int:
        """The regions around the sink and the sources."""
        world = self.state.world
        near = world.near[self.submission.sink]
        for stream in self.whole:
            near |= world.near[world.source[stream]]
        return near

    @cached_property
    def _pricing(self) -> ReusePricing:
        return ReusePricing(self.submission.query.parts.__getitem__, self._serving_price)

    def _serving_price(self, node: Node, wider: Operator, sources: Streams) -> float:
        """What it costs over the lifetime that an operator serves the query too.

        While others use it, that is its wider input; after the last of them has left, all its
        input is there for this query alone.
        """
        running, submission = cast(RunningOperator, node), self.submission
        shared = min(submission.lifetime, max(0.0, running.until - submission.submitted_at))
        more = 0.0
        if wider is not running.operator:
            more += shared * (self.state.price(running, wider) - running.price)
        if shared < submission.lifetime:
            alone = self.state.price(running, submission.query.operators[sources])
            more += (submission.lifetime - shared) * alone
        return more


def decide_plan(
    state: SimulatedDeployment, submission: Submission, strategy: Strategy
) -> PlanChoice:
    """The decision for a submission."""
    return decide(NetworkSetting(state, submission, strategy))


def deploy_plan(
    state: SimulatedDeployment, number: int, submission: Submission, step: PlanStep
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
    state: SimulatedDeployment, query: PreparedQuery, step: PlanStep
) -> RunningOperator:
    if step.reuse is not None:
        state.change(cast(Changes[RunningOperator], step.reuse.changes))
        return cast(RunningOperator, step.reuse.node)
    inputs = tuple(_start_operators(state, query, child) for child in step.inputs)
    return state.add(query.operators[step.sources], step.place, inputs)
