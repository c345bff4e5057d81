"""Runs of the paper's workloads, each computed once, and the tables, plots and claims drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Plot,
    PlotLine,
    ReportTable,
    format_spread,
)
from headwater.reproduce.progress import run_in_parallel
from headwater.schedule import POLICIES
from headwater.sim.arrivals import Arrivals, OnOff, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.metrics import Metrics, SimulationResult, confidence_interval
from headwater.sim.workload import Chain, paper_chains

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97)
HIGHEST = LOADS[-1]
SIZE_TOLERANCE = 1 / 3

BySeed = Mapping[tuple[str, float], Sequence[Metrics]]
"""The metrics of each policy at each load, one for each seed."""


def on_off_arrivals(settings: FigureSettings, tuples: int = 2000) -> OnOff:
    """The arrivals that stand in for the paper's trace."""
    return OnOff(tuples // 10 if settings.quick else tuples)


def seed_range(settings: FigureSettings) -> range:
    return range(1, settings.seeds + 1)


@cache
def build_chains(arrivals: Arrivals, load: float, seed: int) -> tuple[Chain, ...]:
    """The queries of a seed, scaled to the load by the arrivals of that seed."""
    return paper_chains(seed, load, mean_gap(arrivals, seed))


@cache
def run_policy(policy: str, arrivals: Arrivals, load: float, seed: int) -> SimulationResult:
    """A run at query level."""
    return run_chains(build_chains(arrivals, load, seed), POLICIES[policy], arrivals, seed)


def run_policies(
    title: str, policies: Sequence[str], arrivals: Arrivals, loads: Sequence[float], seeds: range
) -> BySeed:
    """Runs of all policies at all loads, in parallel."""
    cells = [(policy, load) for policy in policies for load in loads]
    jobs = [
        partial(run_policy, policy, arrivals, load, seed)
        for policy, load in cells
        for seed in seeds
    ]
    done = [run.metrics() for run in run_in_parallel(title, jobs)]
    count = len(seeds)
    return {cell: done[n * count : (n + 1) * count] for n, cell in enumerate(cells)}


# ---- tables and plots


def table_by_load(
    title: str, runs: BySeed, policies: Sequence[str], metric: Callable[[Metrics], float]
) -> ReportTable:
    """Means with 95 % confidence intervals, a row for each load."""
    loads = sorted({load for _, load in runs})
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            load,
            *(
                format_mean([metric(metrics) for metrics in runs[policy, load]])
                for policy in policies
            ),
        )
        for load in loads
    )
    return ReportTable(title, ("load", *policies), rows)


def format_mean(values: Sequence[float]) -> str:
    """The mean of a metric over the seeds with its confidence interval."""
    estimate = confidence_interval(values)
    return _format_number(estimate.mean) + (
        f" ±{_format_number(estimate.margin)}" if len(values) > 1 else ""
    )


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def plot_by_load(
    name: str,
    title: str,
    y: str,
    runs: BySeed,
    policies: Sequence[str],
    metric: Callable[[Metrics], float],
) -> Plot:
    """The means of each policy. Seeds differ far more than policies do on the same seed, so bands
    would cover it all."""
    loads = tuple(sorted({load for _, load in runs}))
    lines = tuple(
        PlotLine(
            policy,
            loads,
            tuple(
                confidence_interval([metric(metrics) for metrics in runs[policy, load]]).mean
                for load in loads
            ),
        )
        for policy in policies
    )
    return Plot(name, title, "load", y, lines, logarithmic=True)


def mean_line(name: str, x: Sequence[float], values: Sequence[Sequence[float]]) -> PlotLine:
    """The means of some values at each x, and their confidence intervals if there are any."""
    intervals = [confidence_interval(some) for some in values]
    means = tuple(estimate.mean for estimate in intervals)
    if any(len(some) == 1 for some in values):
        return PlotLine(name, tuple(x), means)
    # These plots are logarithmic, and have no place for an interval that reaches below zero.
    low = tuple(max(estimate.low, estimate.mean / 10) for estimate in intervals)
    return PlotLine(name, tuple(x), means, low, tuple(estimate.high for estimate in intervals))


# ---- claims


def percent_below(
    ours: Sequence[Metrics], others: Sequence[Metrics], metric: Callable[[Metrics], float]
) -> list[float]:
    """By how many percent a metric is lower, seed by seed."""
    return [
        100 * (1 - metric(mine) / metric(other)) for mine, other in zip(ours, others, strict=True)
    ]


def claim_lower(what: str, paper: float, ours: Sequence[float]) -> Claim:
    """A claim that something is lower by a given percentage: it holds if it is lower on every seed."""
    return Claim(what, f"-{paper:g} %", format_decrease(paper, ours), min(ours) > 0)


def format_decrease(paper: float, ours: Sequence[float]) -> str:
    """The percents by which ours is lower, and whether their mean differs much from the paper's."""
    mean = sum(ours) / len(ours)
    shown = format_spread([-value for value in ours], 0, " %")
    return f"{shown}, another size" if abs(mean - paper) > SIZE_TOLERANCE * paper else shown
