"""Window joins over two Poisson streams: figure 12."""

from __future__ import annotations

from functools import partial

from headwater.reproduce.figure import Claim, FigureSettings, Report, format_spread
from headwater.reproduce.progress import run_in_parallel
from headwater.reproduce.scheduling.loads import l2_norm
from headwater.reproduce.scheduling.runs import (
    claim_lower,
    percent_below,
    plot_by_load,
    seed_range,
    table_by_load,
)
from headwater.schedule import POLICIES
from headwater.sim.arrivals import Poisson
from headwater.sim.joins import run_joins
from headwater.sim.metrics import Metrics
from headwater.sim.workload import paper_joins

# The paper does not say how dense its streams are; so dense, a window holds 1 to 10 tuples.
GAP = 1.0
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
ALL_POLICIES = tuple(POLICIES)


def by_load(settings: FigureSettings) -> Report:
    """The l2 norm of all policies as the load grows."""
    seeds, loads = seed_range(settings), LOADS[-1:] if settings.quick else LOADS
    cells = [(policy, load) for policy in ALL_POLICIES for load in loads]
    tuples = 100 if settings.quick else 400
    jobs = [partial(_run, policy, load, seed, tuples) for policy, load in cells for seed in seeds]
    done = run_in_parallel("window joins", jobs)
    count = len(seeds)
    runs = {cell: done[n * count : (n + 1) * count] for n, cell in enumerate(cells)}
    title, load = "l2 norm of slowdowns, two streams", LOADS[-1]
    bsd = runs["bsd", load]
    return Report(
        (table_by_load(title, runs, ALL_POLICIES, l2_norm),),
        (
            claim_lower(
                f"BSD's l2 norm at {load} against HNR",
                14,
                percent_below(bsd, runs["hnr", load], l2_norm),
            ),
            _claim_times_lower(f"BSD's l2 norm at {load} against RR", 17, bsd, runs["rr", load]),
            _claim_times_lower(
                f"BSD's l2 norm at {load} against FCFS", 15, bsd, runs["fcfs", load]
            ),
        ),
        (plot_by_load("scheduling-multistream", title, "l2 norm", runs, ALL_POLICIES, l2_norm),),
    )


def _run(policy: str, load: float, seed: int, tuples: int) -> Metrics:
    streams = (Poisson(tuples, GAP), Poisson(tuples, GAP))
    joins = paper_joins(seed, load, (GAP, GAP))
    return run_joins(joins, POLICIES[policy], streams, seed).metrics()


def _claim_times_lower(what: str, paper: int, ours: list[Metrics], others: list[Metrics]) -> Claim:
    times = [l2_norm(other) / l2_norm(mine) for mine, other in zip(ours, others, strict=True)]
    return Claim(what, f"{paper} times lower", format_spread(times, 1, " times"), min(times) > 1)
