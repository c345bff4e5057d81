"""One run: queries arrive and leave, and what the system uses is written down every minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter

from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.reproduce.streamreuse.definition import Definition, definition
from headwater.reproduce.streamreuse.deployment import Deployment
from headwater.reproduce.streamreuse.planner import STRATEGIES, deploy, plan
from headwater.reproduce.streamreuse.workload import MINUTE, Workload
from headwater.reproduce.streamreuse.world import Rates, World


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
    """A query that was deployed: how many joins ran then, how long planning took, its latency."""

    joins: int
    planning: float
    latency: float


@dataclass(frozen=True)
class Trace:
    """A run of one strategy."""

    strategy: str
    samples: tuple[Sample, ...]
    planned: tuple[Planned, ...]


@dataclass(frozen=True)
class Asked:
    """An arrival whose text has been read: what it wants, and where."""

    time: float
    until: float
    wanted: Definition
    sink: int


def read(workload: Workload, world: World, seed: int, infer: bool = False) -> list[Asked]:
    """Parse the queries of a workload; each is asked at a random host."""
    names = Namespace.of(
        one.stream for one in parse(workload.declarations) if isinstance(one, CreateStream)
    )
    random = Random(f"sinks {seed}")
    return [
        Asked(
            arrival.time,
            arrival.time + arrival.lifetime,
            definition(parse_query(arrival.text, names), infer),
            random.choice(world.network.hosts),
        )
        for arrival in workload.arrivals
    ]


def simulate(
    strategy: str, asked: Sequence[Asked], workload: Workload, world: World, hours: float
) -> Trace:
    """Deploy the queries in the order of their arrival, and let them leave at their time."""
    state = Deployment(world, Rates(workload.statistics))
    offer = STRATEGIES[strategy]
    planned, samples = [], []
    waiting = list(enumerate(asked))[::-1]
    for minute in range(1, round(hours * 60) + 1):
        now = minute * MINUTE
        while waiting and waiting[-1][1].time <= now:
            number, one = waiting.pop()
            _leave(state, one.time)
            started = perf_counter()
            step = plan(state, one.wanted, one.sink, one.time, one.until - one.time, offer)
            took = perf_counter() - started
            deploy(state, number, one.wanted, one.sink, one.until, step)
            planned.append(Planned(state.joins, took, state.latency(number)))
        _leave(state, now)
        samples.append(
            Sample(now, state.usage(), len(state.queries), state.joins, state.selections)
        )
    return Trace(strategy, tuple(samples), tuple(planned))


def _leave(state: Deployment, now: float) -> None:
    """End the queries whose time is over, in the order of their ends."""
    ended = [(query.until, number) for number, query in state.queries.items() if query.until <= now]
    for _, number in sorted(ended):
        state.leave(number)
