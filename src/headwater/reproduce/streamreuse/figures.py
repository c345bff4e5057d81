"""The evaluation of StreamReuse as figures: EW, RW, and how they depend on what the paper leaves open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean

from headwater.network import STREAMREUSE, Shape
from headwater.reproduce.figure import Claim, Line, Plot, Report, Settings, Table, spread
from headwater.reproduce.streamreuse.deployment import Prices
from headwater.reproduce.streamreuse.planner import (
    HEADWATER,
    NO_REUSE,
    NO_REWRITING,
    STRATEGIES,
    VARIANTS,
    Strategy,
)
from headwater.reproduce.streamreuse.simulate import Planned, Sample, Trace, read, simulate
from headwater.reproduce.streamreuse.workload import HOUR, Airline, Rfid, Workload, airline, rfid
from headwater.reproduce.streamreuse.world import world

HOURS = 5.0
SHORT_HOURS = 2.0
QUICK_HOURS = 0.5

Run = dict[str, Trace]
"""The traces of one seed by strategy."""


@dataclass(frozen=True)
class Setup:
    """All that a run depends on but the seed."""

    workload: Callable[[int, float], Workload]
    hours: float = HOURS
    shape: Shape = STREAMREUSE
    joins_at_sources: bool = False
    infer: bool = False
    prices: Prices = field(default_factory=Prices)


def run(setup: Setup, seed: int, strategies: dict[str, Strategy]) -> Run:
    """Simulate strategies on the same network and arrivals."""
    workload = setup.workload(seed, setup.hours)
    place = world(list(workload.statistics), seed, setup.shape, setup.joins_at_sources)
    stays = read(workload, place, seed, setup.infer)
    return {
        name: simulate(strategy, stays, workload, place, setup.hours, setup.prices)
        for name, strategy in strategies.items()
    }


# ---- what is read off traces


def of_samples(trace: Trace, value: Callable[[Sample], float]) -> float:
    """The mean over time."""
    return mean(value(sample) for sample in trace.samples)


def of_queries(trace: Trace, value: Callable[[Planned], float]) -> float:
    """The mean over queries."""
    return mean(value(one) for one in trace.planned)


def saved(run: Run, value: Callable[[Sample], float], strategy: str = HEADWATER) -> float:
    """How many percent a strategy is below NO REUSE."""
    return 100 * (1 - of_samples(run[strategy], value) / of_samples(run[NO_REUSE], value))


def added(run: Run, value: Callable[[Planned], float]) -> float:
    """How many milliseconds Headwater is above NO REUSE."""
    return 1000 * (of_queries(run[HEADWATER], value) - of_queries(run[NO_REUSE], value))


def usage(sample: Sample) -> float:
    return sample.usage


def joins(sample: Sample) -> float:
    return sample.joins


def selections(sample: Sample) -> float:
    return sample.selections


def latency(one: Planned) -> float:
    return one.latency


def planning(one: Planned) -> float:
    return one.planning


# ---- the two figures


def enterprise(settings: Settings) -> Report:
    """EW: figures 3, 5, 7 and 8 of the paper."""
    runs = _runs(Setup(airline), settings)
    below, fewer = _each(runs, lambda r: saved(r, usage)), _each(runs, lambda r: saved(r, joins))
    late, slow = _each(runs, lambda r: added(r, latency)), _each(runs, lambda r: added(r, planning))
    claims = (
        Claim("network usage below NO REUSE", "96 %", spread(below, unit=" %"), mean(below) >= 96),
        _no_rewriting(runs),
        Claim(
            "joins below NO REUSE",
            "an order of magnitude",
            spread(fewer, unit=" %"),
            mean(fewer) >= 90,
        ),
        _more_selections(runs),
        Claim("latency added", "13 ms", spread(late, 2, " ms"), mean(late) <= 13),
        Claim("planning time added", "1 ms", spread(slow, 2, " ms"), mean(slow) <= 1),
    )
    return Report(_tables("EW", runs), claims, _plots("streamreuse-ew", "EW", runs))


def tracking(settings: Settings) -> Report:
    """RW: figures 4 and 6 of the paper."""
    runs = _runs(Setup(rfid), settings)
    below, fewer = _each(runs, lambda r: saved(r, usage)), _each(runs, lambda r: saved(r, joins))
    late = _each(runs, lambda r: added(r, latency))
    claims = (
        Claim("network usage below NO REUSE", "28 %", spread(below, unit=" %"), mean(below) >= 28),
        _no_rewriting(runs),
        Claim("joins below NO REUSE", "28 %", spread(fewer, unit=" %"), mean(fewer) >= 28),
        Claim("latency added", "3.7 ms", spread(late, 2, " ms"), mean(late) <= 3.7),
    )
    return Report(_tables("RW", runs), claims, _plots("streamreuse-rw", "RW", runs))


def _runs(setup: Setup, settings: Settings) -> list[Run]:
    setup = replace(setup, hours=QUICK_HOURS if settings.quick else HOURS)
    return [run(setup, seed, STRATEGIES) for seed in range(1, settings.seeds + 1)]


def _each(runs: Sequence[Run], value: Callable[[Run], float]) -> list[float]:
    return [value(one) for one in runs]


def _no_rewriting(runs: Sequence[Run]) -> Claim:
    below = _each(runs, lambda r: saved(r, usage, NO_REWRITING))
    return Claim(
        "NO REWRITING degrades to NO REUSE (usage below it)",
        "about 0 %",
        spread(below, unit=" %"),
        mean(below) < 5,
    )


def _more_selections(runs: Sequence[Run]) -> Claim:
    more = _each(runs, lambda r: -saved(r, selections))
    return Claim("selections above NO REUSE", "slightly", spread(more, unit=" %"), None)


def _tables(name: str, runs: Sequence[Run]) -> tuple[Table, ...]:
    count = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
    hours = range(1, 1 + int(runs[0][NO_REUSE].samples[-1].time // HOUR))
    overall = Table(
        f"{name}, mean of the whole time, {count}",
        ("strategy", "usage", "joins", "selections", "latency ms", "planning ms"),
        tuple((strategy, *_means([one[strategy] for one in runs])) for strategy in STRATEGIES),
    )
    hourly = Table(
        f"{name}, at the end of each hour",
        (
            "hour",
            "queries",
            *(f"usage: {s}" for s in STRATEGIES),
            *(f"joins: {s}" for s in STRATEGIES),
        ),
        tuple(
            (
                hour,
                mean(_at(one[NO_REUSE], hour).queries for one in runs),
                *(mean(_at(one[s], hour).usage for one in runs) for s in STRATEGIES),
                *(mean(_at(one[s], hour).joins for one in runs) for s in STRATEGIES),
            )
            for hour in hours
        ),
    )
    return (overall, hourly) if hours else (overall,)


def _means(traces: Sequence[Trace]) -> list[float]:
    over_time = [mean(of_samples(t, value) for t in traces) for value in (usage, joins, selections)]
    of_each = [1000 * mean(of_queries(t, value) for t in traces) for value in (latency, planning)]
    return [*over_time, *of_each]


def _at(trace: Trace, hour: int) -> Sample:
    return next(sample for sample in trace.samples if sample.time >= hour * HOUR)


def _plots(file: str, name: str, runs: Sequence[Run]) -> tuple[Plot, ...]:
    return (
        Plot(
            f"{file}-usage",
            f"{name}: network usage",
            "hours",
            "bytes in transit, weighted by link cost",
            tuple(_over_time(strategy, runs, strategy, usage) for strategy in STRATEGIES),
            logarithmic=True,
        ),
        Plot(
            f"{file}-operators",
            f"{name}: deployed operators",
            "hours",
            "operators",
            tuple(
                _over_time(f"{kind}, {strategy}", runs, strategy, value)
                for strategy in (NO_REUSE, HEADWATER)
                for kind, value in (("joins", joins), ("selections", selections))
            ),
        ),
        Plot(
            f"{file}-latency",
            f"{name}: end-to-end latency of queries, in order",
            "query",
            "ms",
            tuple(_in_order(strategy, runs[0][strategy]) for strategy in (NO_REUSE, HEADWATER)),
        ),
        Plot(
            f"{file}-planning",
            f"{name}: total planning time",
            "queries deployed",
            "ms",
            tuple(_summed(strategy, runs[0][strategy]) for strategy in STRATEGIES),
        ),
    )


def _over_time(
    name: str, runs: Sequence[Run], strategy: str, value: Callable[[Sample], float]
) -> Line:
    times = tuple(sample.time / HOUR for sample in runs[0][strategy].samples)
    columns = list(
        zip(*([value(sample) for sample in one[strategy].samples] for one in runs), strict=True)
    )
    return Line(
        name,
        times,
        tuple(mean(column) for column in columns),
        tuple(min(column) for column in columns),
        tuple(max(column) for column in columns),
    )


def _in_order(name: str, trace: Trace) -> Line:
    values = sorted(1000 * one.latency for one in trace.planned)
    return Line(name, tuple(range(1, len(values) + 1)), tuple(values))


def _summed(name: str, trace: Trace) -> Line:
    total, sums = 0.0, []
    for one in trace.planned:
        total += 1000 * one.planning
        sums.append(total)
    return Line(name, tuple(range(1, len(sums) + 1)), tuple(sums))


# ---- what the paper leaves open


def _level(shape: Shape) -> Shape:
    """The same network, with links that all cost the same."""
    tiers = {
        name: replace(getattr(shape, name), cost=1.0) for name in ("backbone", "access", "local")
    }
    return replace(shape, **tiers)


AS_IT_IS = "as it is"

OTHERWISE: tuple[tuple[str, str, Setup], ...] = (
    ("EW", AS_IT_IS, Setup(airline)),
    ("EW", "bounds go over equalities to all streams", Setup(airline, infer=True)),
    ("EW", "joins may run where streams arise", Setup(airline, joins_at_sources=True)),
    (
        "EW",
        "joins may run where streams arise, and cost nothing",
        Setup(airline, joins_at_sources=True, prices=Prices(join=0.0)),
    ),
    ("EW", "all links cost the same", Setup(airline, shape=_level(STREAMREUSE))),
    ("EW", "joins cost nothing but their input", Setup(airline, prices=Prices(join=0.0))),
    (
        "EW",
        "flights are told of 4 times as often",
        Setup(partial(airline, numbers=Airline(updates=20))),
    ),
    ("EW", "weather 10 times as often", Setup(partial(airline, numbers=Airline(forecasts=240)))),
    (
        "EW",
        "monitoring without flights wants 10 times as much",
        Setup(partial(airline, numbers=Airline(watched=0.1))),
    ),
    ("RW", AS_IT_IS, Setup(rfid)),
    ("RW", "joins may run where streams arise", Setup(rfid, joins_at_sources=True)),
    ("RW", "joins cost nothing but their input", Setup(rfid, prices=Prices(join=0.0))),
    ("RW", "all readers are asked for alike", Setup(partial(rfid, numbers=Rfid(skew=0.0)))),
    (
        "RW",
        "some readers are asked for more (Zipf 1)",
        Setup(partial(rfid, numbers=Rfid(skew=1.0))),
    ),
    ("RW", "queries want a third as much", Setup(partial(rfid, numbers=Rfid(share=0.1)))),
    (
        "RW",
        "queries want a third as much, and joins cost nothing",
        Setup(partial(rfid, numbers=Rfid(share=0.1)), prices=Prices(join=0.0)),
    ),
    ("RW", "queries want twice as much", Setup(partial(rfid, numbers=Rfid(share=0.6)))),
)


def sensitivity(settings: Settings) -> Report:
    """How the savings depend on assumptions, and what each kind of reuse contributes."""
    rows = []
    hours = QUICK_HOURS if settings.quick else SHORT_HOURS
    for name, what, setup in OTHERWISE:
        setup = replace(setup, hours=hours)
        compared = {HEADWATER: STRATEGIES[HEADWATER]} | (VARIANTS if what == AS_IT_IS else {})
        strategies = {NO_REUSE: STRATEGIES[NO_REUSE]} | compared
        runs = [run(setup, seed, strategies) for seed in range(1, settings.seeds + 1)]
        rows += [_row(name, what, strategy, runs) for strategy in compared]
    columns = ("workload", "what is different", "strategy", "usage saved %", "joins saved %")
    title = f"Savings against NO REUSE in the first {hours:g} hours"
    return Report((Table(title, columns, tuple(rows)),))


def _row(
    name: str, what: str, strategy: str, runs: Sequence[Run]
) -> tuple[str, str, str, float, float]:
    return (
        name,
        what,
        strategy,
        mean(_each(runs, lambda r: saved(r, usage, strategy))),
        mean(_each(runs, lambda r: saved(r, joins, strategy))),
    )
