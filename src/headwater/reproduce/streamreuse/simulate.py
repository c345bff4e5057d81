"""One run: queries arrive and leave, and what the system uses is written down every minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import thread_time

from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.reproduce.streamreuse.deployment import Deployment, Prices
from headwater.reproduce.streamreuse.planner import Stay, Strategy, deploy, plan
from headwater.reproduce.streamreuse.question import question
from headwater.reproduce.streamreuse.workload import MINUTE, Workload
from headwater.reproduce.streamreuse.world import World


@dataclass(frozen=True)
class Sample:
    """What runs at a moment: usage is bytes in transit, weighted by the cost of links."""

    time: float
    usage: float
    queries: int
    joins: int
    selections: int


@dataclass(frozen=True)
class Planned:
    """A query that was deployed: CPU seconds of planning, and how long its tuples travel."""

    planning: float
    latency: float


@dataclass(frozen=True)
class Trace:
    """A run of one strategy."""

    samples: tuple[Sample, ...]
    planned: tuple[Planned, ...]


def read(workload: Workload, world: World, seed: int, infer: bool = False) -> list[Stay]:
    """Parse the queries of a workload; each is asked at a random host."""
    names = Namespace.of(
        one.stream for one in parse(workload.declarations) if isinstance(one, CreateStream)
    )
    random = Random(f"sinks {seed}")
    return [
        Stay(
            question(parse_query(arrival.text, names), workload.statistics, infer),
            random.choice(world.network.hosts),
            arrival.time,
            arrival.lifetime,
        )
        for arrival in workload.arrivals
    ]


def simulate(
    strategy: Strategy,
    stays: Sequence[Stay],
    workload: Workload,
    world: World,
    hours: float,
    prices: Prices,
) -> Trace:
    """Deploy the queries in the order of their arrival, and let them leave at their time."""
    state = Deployment(world, workload.statistics, prices)
    planned, samples = [], []
    waiting = list(enumerate(stays))[::-1]
    for minute in range(1, round(hours * 60) + 1):
        now = minute * MINUTE
        while waiting and waiting[-1][1].now <= now:
            number, stay = waiting.pop()
            _leave(state, stay.now)
            started = thread_time()
            step = plan(state, stay, strategy)
            took = thread_time() - started
            deploy(state, number, stay, step)
            planned.append(Planned(took, state.latency(number)))
        _leave(state, now)
        samples.append(
            Sample(now, state.usage(), len(state.queries), state.joins, state.selections)
        )
    return Trace(tuple(samples), tuple(planned))


def _leave(state: Deployment, now: float) -> None:
    """End the queries whose time is over, in the order of their ends."""
    ended = [(query.until, number) for number, query in state.queries.items() if query.until <= now]
    for _, number in sorted(ended):
        state.leave(number)
