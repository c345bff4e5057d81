"""Runs of the paper's workloads, each computed once, and what tables, plots and claims make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from headwater.reproduce.figure import Cell, Claim, Line, Plot, Settings, Table, spread
from headwater.reproduce.progress import in_parallel
from headwater.schedule import POLICIES
from headwater.sim.arrivals import Arrivals, OnOff, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.metrics import Metrics, Outcome, interval
from headwater.sim.workload import Chain, paper_chains

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97)
HIGHEST = LOADS[-1]
THIRD = 1 / 3

BySeed = Mapping[tuple[str, float], Sequence[Metrics]]
"""The metrics of each policy at each load, one for each seed."""


def on_off(settings: Settings, tuples: int = 2000) -> OnOff:
    """The arrivals that stand in for the paper's trace."""
    return OnOff(tuples // 10 if settings.quick else tuples)


def seeds_of(settings: Settings) -> range:
    return range(1, settings.seeds + 1)


@cache
def chains_for(arrivals: Arrivals, load: float, seed: int) -> tuple[Chain, ...]:
    """The queries of a seed, scaled to the load by the arrivals of that seed."""
    return paper_chains(seed, load, mean_gap(arrivals, seed))


@cache
def outcome(policy: str, arrivals: Arrivals, load: float, seed: int) -> Outcome:
    """A run at query level."""
    return run_chains(chains_for(arrivals, load, seed), POLICIES[policy], arrivals, seed)


def outcomes(
    title: str, policies: Sequence[str], arrivals: Arrivals, loads: Sequence[float], seeds: range
) -> BySeed:
    """Runs of all policies at all loads, in parallel."""
    cells = [(policy, load) for policy in policies for load in loads]
    jobs = [
        partial(outcome, policy, arrivals, load, seed) for policy, load in cells for seed in seeds
    ]
    done = [run.metrics() for run in in_parallel(title, jobs)]
    count = len(seeds)
    return {cell: done[n * count : (n + 1) * count] for n, cell in enumerate(cells)}


# ---- tables and plots


def table_by_load(
    title: str, runs: BySeed, policies: Sequence[str], metric: Callable[[Metrics], float]
) -> Table:
    """Means with 95 % confidence intervals, a row for each load."""
    loads = sorted({load for _, load in runs})
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (load, *(mean_of([metric(one) for one in runs[policy, load]]) for policy in policies))
        for load in loads
    )
    return Table(title, ("load", *policies), rows)


def mean_of(values: Sequence[float]) -> str:
    """The mean of a metric over the seeds with its confidence interval."""
    found = interval(values)
    return _text(found.mean) + (f" ±{_text(found.margin)}" if len(values) > 1 else "")


def _text(value: float) -> str:
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
        Line(
            policy,
            loads,
            tuple(interval([metric(one) for one in runs[policy, load]]).mean for load in loads),
        )
        for policy in policies
    )
    return Plot(name, title, "load", y, lines, logarithmic=True)


def line_of(name: str, x: Sequence[float], values: Sequence[Sequence[float]]) -> Line:
    """The means of some values at each x, and their confidence intervals if there are any."""
    found = [interval(some) for some in values]
    means = tuple(one.mean for one in found)
    if any(len(some) == 1 for some in values):
        return Line(name, tuple(x), means)
    low = tuple(max(one.low, one.mean / 10) for one in found)
    return Line(name, tuple(x), means, low, tuple(one.high for one in found))


# ---- claims


def below(
    ours: Sequence[Metrics], others: Sequence[Metrics], metric: Callable[[Metrics], float]
) -> list[float]:
    """By how many percent a metric is lower, seed by seed."""
    return [
        100 * (1 - metric(one) / metric(other)) for one, other in zip(ours, others, strict=True)
    ]


def lower(what: str, paper: float, ours: Sequence[float]) -> Claim:
    """A claim that something is lower by so many percent: it holds if it is lower on every seed."""
    return Claim(what, f"-{paper:g} %", sized(paper, ours), min(ours) > 0)


def sized(paper: float, ours: Sequence[float]) -> str:
    """The percents by which ours is lower, and whether their mean differs much from the paper's."""
    mean = sum(ours) / len(ours)
    shown = spread([-value for value in ours], 0, " %")
    return f"{shown}, another size" if abs(mean - paper) > THIRD * paper else shown
