"""One run: queries arrive and leave, and what the system uses is written down every minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import thread_time

from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.reproduce.streamreuse.deployment import JoinPrices, SimulatedDeployment
from headwater.reproduce.streamreuse.question import prepare_query
from headwater.reproduce.streamreuse.strategies import (
    Strategy,
    Submission,
    decide_plan,
    deploy_plan,
)
from headwater.reproduce.streamreuse.workload import MINUTE, Workload
from headwater.reproduce.streamreuse.world import World


@dataclass(frozen=True)
class UsageSample:
    """What runs at a moment: usage is bytes in transit, weighted by the cost of links."""

    time: float
    usage: float
    queries: int
    joins: int
    selections: int


@dataclass(frozen=True)
class QueryTiming:
    """A query that was deployed: CPU seconds of planning, and how long its tuples travel."""

    planning: float
    latency: float


@dataclass(frozen=True)
class StrategyTrace:
    """A run of one strategy."""

    samples: tuple[UsageSample, ...]
    timings: tuple[QueryTiming, ...]


def prepare_submissions(
    workload: Workload, world: World, seed: int, infer: bool = False
) -> list[Submission]:
    """Parse the queries of a workload; each is asked at a random host."""
    names = Namespace.of(
        statement.stream
        for statement in parse(workload.declarations)
        if isinstance(statement, CreateStream)
    )
    # Not the random numbers of the workload, so that one can change without the other.
    random = Random(f"sinks {seed}")
    return [
        Submission(
            prepare_query(parse_query(arrival.text, names), workload.statistics, infer),
            random.choice(world.network.hosts),
            arrival.time,
            arrival.lifetime,
        )
        for arrival in workload.arrivals
    ]


def simulate(
    strategy: Strategy,
    submissions: Sequence[Submission],
    workload: Workload,
    world: World,
    hours: float,
    prices: JoinPrices,
) -> StrategyTrace:
    """Deploy the queries in the order of their arrival, and let them leave at their time."""
    state = SimulatedDeployment(world, workload.statistics, prices)
    timings, samples = [], []
    pending = list(enumerate(submissions))[::-1]
    for minute in range(1, round(hours * 60) + 1):
        now = minute * MINUTE
        while pending and pending[-1][1].submitted_at <= now:
            number, submission = pending.pop()
            # Nobody shares with a query that had left before.
            _remove_expired(state, submission.submitted_at)
            # Of the search alone: parsing and canonicalising are the same for all strategies.
            started = thread_time()
            decision = decide_plan(state, submission, strategy)
            elapsed = thread_time() - started
            deploy_plan(state, number, submission, decision.best.step)
            timings.append(QueryTiming(elapsed, state.latency(number)))
        _remove_expired(state, now)
        samples.append(
            UsageSample(now, state.usage(), len(state.queries), state.joins, state.selections)
        )
    return StrategyTrace(tuple(samples), tuple(timings))


def _remove_expired(state: SimulatedDeployment, now: float) -> None:
    """End the queries whose time is over, in the order of their ends."""
    ended = [(query.until, number) for number, query in state.queries.items() if query.until <= now]
    for _, number in sorted(ended):
        state.remove_query(number)
