"""Window joins over two Poisson streams: figure 12."""

from __future__ import annotations

from functools import partial

from headwater.reproduce.figure import Claim, Report, Settings, spread
from headwater.reproduce.progress import in_parallel
from headwater.reproduce.scheduling.loads import norm
from headwater.reproduce.scheduling.runs import (
    below,
    lower,
    plot_by_load,
    seeds_of,
    table_by_load,
)
from headwater.schedule import POLICIES
from headwater.sim.arrivals import Poisson
from headwater.sim.joins import run_joins
from headwater.sim.metrics import Metrics
from headwater.sim.workload import paper_joins

GAP = 1.0
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)
EVERY = tuple(POLICIES)


def by_load(settings: Settings) -> Report:
    """The l2 norm of all policies as the load grows."""
    seeds, loads = seeds_of(settings), LOADS[-1:] if settings.quick else LOADS
    cells = [(policy, load) for policy in EVERY for load in loads]
    tuples = 100 if settings.quick else 400
    jobs = [partial(_run, policy, load, seed, tuples) for policy, load in cells for seed in seeds]
    done = in_parallel("window joins", jobs)
    count = len(seeds)
    runs = {cell: done[n * count : (n + 1) * count] for n, cell in enumerate(cells)}
    title, load = "l2 norm of slowdowns, two streams", LOADS[-1]
    bsd = runs["bsd", load]
    return Report(
        (table_by_load(title, runs, EVERY, norm),),
        (
            lower(f"BSD's l2 norm at {load} against HNR", 14, below(bsd, runs["hnr", load], norm)),
            _times(f"BSD's l2 norm at {load} against RR", 17, bsd, runs["rr", load]),
            _times(f"BSD's l2 norm at {load} against FCFS", 15, bsd, runs["fcfs", load]),
        ),
        (plot_by_load("scheduling-multistream", title, "l2 norm", runs, EVERY, norm),),
    )


def _run(policy: str, load: float, seed: int, tuples: int) -> Metrics:
    streams = (Poisson(tuples, GAP), Poisson(tuples, GAP))
    joins = paper_joins(seed, load, (GAP, GAP))
    return run_joins(joins, POLICIES[policy], streams, seed).metrics()


def _times(what: str, paper: int, ours: list[Metrics], others: list[Metrics]) -> Claim:
    times = [norm(other) / norm(one) for one, other in zip(ours, others, strict=True)]
    return Claim(what, f"{paper} times lower", spread(times, 1, " times"), min(times) > 1)
