"""The evaluation of StreamReuse as figures: EW, RW, and how they depend on what the paper leaves open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean

from headwater.network import STREAMREUSE, TransitStubShape
from headwater.reproduce.figure import (
    Claim,
    FigureSettings,
    Plot,
    PlotLine,
    Report,
    ReportTable,
    format_spread,
)
from headwater.reproduce.streamreuse.deployment import JoinPrices
from headwater.reproduce.streamreuse.simulate import (
    QueryTiming,
    StrategyTrace,
    UsageSample,
    prepare_submissions,
    simulate,
)
from headwater.reproduce.streamreuse.strategies import (
    HEADWATER,
    NO_REUSE,
    NO_REWRITING,
    STRATEGIES,
    VARIANTS,
    Strategy,
)
from headwater.reproduce.streamreuse.workload import (
    HOUR,
    Airline,
    Rfid,
    Workload,
    airline_workload,
    rfid_workload,
)
from headwater.reproduce.streamreuse.world import build_world

HOURS = 5.0
SHORT_HOURS = 2.0
QUICK_HOURS = 0.5

TracesByStrategy = dict[str, StrategyTrace]
"""The traces of one seed by strategy."""


@dataclass(frozen=True)
class Setup:
    """All that a run depends on but the seed."""

    workload: Callable[[int, float], Workload]
    hours: float = HOURS
    shape: TransitStubShape = STREAMREUSE
    joins_at_sources: bool = False
    infer: bool = False
    prices: JoinPrices = field(default_factory=JoinPrices)


def run_strategies(setup: Setup, seed: int, strategies: dict[str, Strategy]) -> TracesByStrategy:
    """Simulate strategies on the same network and arrivals."""
    workload = setup.workload(seed, setup.hours)
    simulated_world = build_world(
        list(workload.statistics), seed, setup.shape, setup.joins_at_sources
    )
    submissions = prepare_submissions(workload, simulated_world, seed, setup.infer)
    return {
        name: simulate(strategy, submissions, workload, simulated_world, setup.hours, setup.prices)
        for name, strategy in strategies.items()
    }


# ---- what is read off traces


def mean_over_time(trace: StrategyTrace, value: Callable[[UsageSample], float]) -> float:
    """The mean over time."""
    return mean(value(sample) for sample in trace.samples)


def mean_over_queries(trace: StrategyTrace, value: Callable[[QueryTiming], float]) -> float:
    """The mean over queries."""
    return mean(value(timing) for timing in trace.timings)


def percent_saved(
    run: TracesByStrategy, value: Callable[[UsageSample], float], strategy: str = HEADWATER
) -> float:
    """How many percent a strategy is below NO REUSE."""
    return 100 * (1 - mean_over_time(run[strategy], value) / mean_over_time(run[NO_REUSE], value))


def milliseconds_added(run: TracesByStrategy, value: Callable[[QueryTiming], float]) -> float:
    """How many milliseconds Headwater is above NO REUSE."""
    return 1000 * (
        mean_over_queries(run[HEADWATER], value) - mean_over_queries(run[NO_REUSE], value)
    )


def network_usage(sample: UsageSample) -> float:
    return sample.usage


def join_count(sample: UsageSample) -> float:
    return sample.joins


def selection_count(sample: UsageSample) -> float:
    return sample.selections


def latency_seconds(timing: QueryTiming) -> float:
    return timing.latency


def planning_seconds(timing: QueryTiming) -> float:
    return timing.planning


# ---- the two figures


def enterprise(settings: FigureSettings) -> Report:
    """EW: figures 3, 5, 7 and 8 of the paper."""
    runs = _run_seeds(Setup(airline_workload), settings)
    below, fewer = (
        _per_seed(runs, lambda r: percent_saved(r, network_usage)),
        _per_seed(runs, lambda r: percent_saved(r, join_count)),
    )
    late, slow = (
        _per_seed(runs, lambda r: milliseconds_added(r, latency_seconds)),
        _per_seed(runs, lambda r: milliseconds_added(r, planning_seconds)),
    )
    claims = (
        Claim(
            "network usage below NO REUSE",
            "96 %",
            format_spread(below, unit=" %"),
            mean(below) >= 96,
        ),
        _no_rewriting_claim(runs),
        Claim(
            "joins below NO REUSE",
            "an order of magnitude",
            format_spread(fewer, unit=" %"),
            mean(fewer) >= 90,
        ),
        _more_selections_claim(runs),
        Claim("latency added", "13 ms", format_spread(late, 2, " ms"), mean(late) <= 13),
        Claim("planning time added", "1 ms", format_spread(slow, 2, " ms"), mean(slow) <= 1),
    )
    return Report(_tables("EW", runs), claims, _plots("streamreuse-ew", "EW", runs))


def tracking(settings: FigureSettings) -> Report:
    """RW: figures 4 and 6 of the paper."""
    runs = _run_seeds(Setup(rfid_workload), settings)
    below, fewer = (
        _per_seed(runs, lambda r: percent_saved(r, network_usage)),
        _per_seed(runs, lambda r: percent_saved(r, join_count)),
    )
    late = _per_seed(runs, lambda r: milliseconds_added(r, latency_seconds))
    claims = (
        Claim(
            "network usage below NO REUSE",
            "28 %",
            format_spread(below, unit=" %"),
            mean(below) >= 28,
        ),
        _no_rewriting_claim(runs),
        Claim("joins below NO REUSE", "28 %", format_spread(fewer, unit=" %"), mean(fewer) >= 28),
        Claim("latency added", "3.7 ms", format_spread(late, 2, " ms"), mean(late) <= 3.7),
    )
    return Report(_tables("RW", runs), claims, _plots("streamreuse-rw", "RW", runs))


def _run_seeds(setup: Setup, settings: FigureSettings) -> list[TracesByStrategy]:
    setup = replace(setup, hours=QUICK_HOURS if settings.quick else HOURS)
    return [run_strategies(setup, seed, STRATEGIES) for seed in range(1, settings.seeds + 1)]


def _per_seed(
    runs: Sequence[TracesByStrategy], value: Callable[[TracesByStrategy], float]
) -> list[float]:
    return [value(traces) for traces in runs]


def _no_rewriting_claim(runs: Sequence[TracesByStrategy]) -> Claim:
    below = _per_seed(runs, lambda r: percent_saved(r, network_usage, NO_REWRITING))
    return Claim(
        "NO REWRITING degrades to NO REUSE (usage below it)",
        "about 0 %",
        format_spread(below, unit=" %"),
        mean(below) < 5,
    )


def _more_selections_claim(runs: Sequence[TracesByStrategy]) -> Claim:
    more = _per_seed(runs, lambda r: -percent_saved(r, selection_count))
    # No verdict: the paper says no number.
    return Claim("selections above NO REUSE", "slightly", format_spread(more, unit=" %"), None)


def _tables(name: str, runs: Sequence[TracesByStrategy]) -> tuple[ReportTable, ...]:
    count = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
    hours = range(1, 1 + int(runs[0][NO_REUSE].samples[-1].time // HOUR))
    overall = ReportTable(
        f"{name}, mean of the whole time, {count}",
        ("strategy", "usage", "joins", "selections", "latency ms", "planning ms"),
        tuple(
            (strategy, *_strategy_means([traces[strategy] for traces in runs]))
            for strategy in STRATEGIES
        ),
    )
    hourly = ReportTable(
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
                mean(_sample_at(traces[NO_REUSE], hour).queries for traces in runs),
                *(mean(_sample_at(traces[s], hour).usage for traces in runs) for s in STRATEGIES),
                *(mean(_sample_at(traces[s], hour).joins for traces in runs) for s in STRATEGIES),
            )
            for hour in hours
        ),
    )
    # A quick run ends within the first hour.
    return (overall, hourly) if hours else (overall,)


def _strategy_means(traces: Sequence[StrategyTrace]) -> list[float]:
    over_time = [
        mean(mean_over_time(t, value) for t in traces)
        for value in (network_usage, join_count, selection_count)
    ]
    of_each = [
        1000 * mean(mean_over_queries(t, value) for t in traces)
        for value in (latency_seconds, planning_seconds)
    ]
    return [*over_time, *of_each]


def _sample_at(trace: StrategyTrace, hour: int) -> UsageSample:
    return next(sample for sample in trace.samples if sample.time >= hour * HOUR)


def _plots(file: str, name: str, runs: Sequence[TracesByStrategy]) -> tuple[Plot, ...]:
    return (
        Plot(
            f"{file}-usage",
            f"{name}: network usage",
            "hours",
            "bytes in transit, weighted by link cost",
            tuple(_over_time(strategy, runs, strategy, network_usage) for strategy in STRATEGIES),
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
                for kind, value in (("joins", join_count), ("selections", selection_count))
            ),
        ),
        Plot(
            f"{file}-latency",
            f"{name}: end-to-end latency of queries, in order",
            "query",
            "ms",
            # Seeds have different numbers of queries, so the first one stands for all.
            tuple(_in_order(strategy, runs[0][strategy]) for strategy in (NO_REUSE, HEADWATER)),
        ),
        Plot(
            f"{file}-planning",
            f"{name}: total planning time",
            "queries deployed",
            "ms",
            tuple(_cumulative(strategy, runs[0][strategy]) for strategy in STRATEGIES),
        ),
    )


def _over_time(
    name: str,
    runs: Sequence[TracesByStrategy],
    strategy: str,
    value: Callable[[UsageSample], float],
) -> PlotLine:
    times = tuple(sample.time / HOUR for sample in runs[0][strategy].samples)
    columns = list(
        zip(
            *([value(sample) for sample in traces[strategy].samples] for traces in runs),
            strict=True,
        )
    )
    return PlotLine(
        name,
        times,
        tuple(mean(column) for column in columns),
        tuple(min(column) for column in columns),
        tuple(max(column) for column in columns),
    )


def _in_order(name: str, trace: StrategyTrace) -> PlotLine:
    values = sorted(1000 * timing.latency for timing in trace.timings)
    return PlotLine(name, tuple(range(1, len(values) + 1)), tuple(values))


def _cumulative(name: str, trace: StrategyTrace) -> PlotLine:
    total, sums = 0.0, []
    for timing in trace.timings:
        total += 1000 * timing.planning
        sums.append(total)
    return PlotLine(name, tuple(range(1, len(sums) + 1)), tuple(sums))


# ---- what the paper leaves open


def _with_equal_costs(shape: TransitStubShape) -> TransitStubShape:
    """The same network, with links that all cost the same."""
    tiers = {
        name: replace(getattr(shape, name), cost=1.0) for name in ("backbone", "access", "local")
    }
    return replace(shape, **tiers)


BASELINE = "as it is"

PAPER_OVERLAP_ATTRIBUTES = 350
"""With queries that join on one of so many attributes, about 5 of those that run at a time have a join in
common with another one."""

SENSITIVITY_CASES: tuple[tuple[str, str, Setup], ...] = (
    ("EW", BASELINE, Setup(airline_workload)),
    ("EW", "bounds go over equalities to all streams", Setup(airline_workload, infer=True)),
    ("EW", "joins may run where streams arise", Setup(airline_workload, joins_at_sources=True)),
    (
        "EW",
        "joins may run where streams arise, and cost nothing",
        Setup(airline_workload, joins_at_sources=True, prices=JoinPrices(join=0.0)),
    ),
    (
        "EW",
        "all links cost the same",
        Setup(airline_workload, shape=_with_equal_costs(STREAMREUSE)),
    ),
    (
        "EW",
        "joins cost nothing but their input",
        Setup(airline_workload, prices=JoinPrices(join=0.0)),
    ),
    (
        "EW",
        "flights are updated 4 times as often",
        Setup(partial(airline_workload, numbers=Airline(updates=20))),
    ),
    (
        "EW",
        "weather 10 times as often",
        Setup(partial(airline_workload, numbers=Airline(forecasts=240))),
    ),
    (
        "EW",
        "monitoring without flights wants 10 times as much",
        Setup(partial(airline_workload, numbers=Airline(watched=0.1))),
    ),
    ("RW", BASELINE, Setup(rfid_workload)),
    ("RW", "joins may run where streams arise", Setup(rfid_workload, joins_at_sources=True)),
    ("RW", "joins cost nothing but their input", Setup(rfid_workload, prices=JoinPrices(join=0.0))),
    (
        "RW",
        "all readers are asked for alike",
        Setup(partial(rfid_workload, numbers=Rfid(skew=0.0))),
    ),
    (
        "RW",
        "some readers are asked for more (Zipf 1)",
        Setup(partial(rfid_workload, numbers=Rfid(skew=1.0))),
    ),
    (
        "RW",
        "about 5 running queries have a join in common, as in the paper",
        Setup(partial(rfid_workload, numbers=Rfid(attributes=PAPER_OVERLAP_ATTRIBUTES))),
    ),
    ("RW", "queries want a third as much", Setup(partial(rfid_workload, numbers=Rfid(share=0.1)))),
    (
        "RW",
        "queries want a third as much, and joins cost nothing",
        Setup(partial(rfid_workload, numbers=Rfid(share=0.1)), prices=JoinPrices(join=0.0)),
    ),
    ("RW", "queries want twice as much", Setup(partial(rfid_workload, numbers=Rfid(share=0.6)))),
)


def sensitivity(settings: FigureSettings) -> Report:
    """How the savings depend on assumptions, and what each kind of reuse contributes."""
    rows = []
    hours = QUICK_HOURS if settings.quick else SHORT_HOURS
    for name, what, setup in SENSITIVITY_CASES:
        setup = replace(setup, hours=hours)
        compared = {HEADWATER: STRATEGIES[HEADWATER]} | (VARIANTS if what == BASELINE else {})
        strategies = {NO_REUSE: STRATEGIES[NO_REUSE]} | compared
        runs = [run_strategies(setup, seed, strategies) for seed in range(1, settings.seeds + 1)]
        rows += [_sensitivity_row(name, what, strategy, runs) for strategy in compared]
    columns = ("workload", "what is different", "strategy", "usage saved %", "joins saved %")
    title = f"Savings against NO REUSE in the first {hours:g} hours"
    return Report((ReportTable(title, columns, tuple(rows)),))


def _sensitivity_row(
    name: str, what: str, strategy: str, runs: Sequence[TracesByStrategy]
) -> tuple[str, str, str, float, float]:
    return (
        name,
        what,
        strategy,
        mean(_per_seed(runs, lambda r: percent_saved(r, network_usage, strategy))),
        mean(_per_seed(runs, lambda r: percent_saved(r, join_count, strategy))),
    )
