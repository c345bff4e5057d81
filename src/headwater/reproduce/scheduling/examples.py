"""The two tables of the paper: an example worked out, and shared operators."""

from __future__ import annotations

from functools import partial
from itertools import count

import numpy as np

from headwater.reproduce.figure import Claim, Report, Settings, Table
from headwater.reproduce.progress import in_parallel
from headwater.reproduce.scheduling.loads import norm, slowdown
from headwater.reproduce.scheduling.runs import below, lower, mean_of, on_off, seeds_of
from headwater.schedule import POLICIES, SHARING
from headwater.sim.arrivals import Times, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.fate import fate, key_of, threshold
from headwater.sim.metrics import Metrics
from headwater.sim.sets import run_sets
from headwater.sim.workload import Chain, Operator, paper_sets

LOAD = 0.95

EXAMPLE = (Chain((Operator(5.0),)), Chain((Operator(2.0, 0.33),)))
"""Two queries of one operator, in milliseconds."""

PENDING = Times((0.0, 0.0, 0.0))


def example_seed() -> int:
    """The first seed by which the second query accepts the middle tuple alone, as in the paper."""
    accepted = threshold(EXAMPLE[1].operators[0].selectivity)
    return next(
        seed
        for seed in count()
        if [fate(key_of(seed), number, 1) < accepted for number in range(3)] == [False, True, False]
    )


def table1(settings: Settings) -> Report:
    """Example 1: three tuples are pending for both queries."""
    seed = example_seed()
    found = {
        policy: run_chains(EXAMPLE, POLICIES[policy], PENDING, seed).metrics()
        for policy in ("hr", "hnr")
    }
    paper = {"hr": (12.25, 3.875), "hnr": (13.0, 2.9)}
    rows = tuple((policy, one.response, one.slowdown) for policy, one in found.items())
    return Report(
        (Table("Table 1", ("policy", "response", "slowdown"), rows),),
        tuple(
            Claim(
                f"{policy.upper()}: response / slowdown",
                f"{wanted[0]:g} / {wanted[1]:g}",
                f"{found[policy].response:.12g} / {found[policy].slowdown:.12g}",
                bool(np.allclose((found[policy].response, found[policy].slowdown), wanted, 1e-12)),
            )
            for policy, wanted in paper.items()
        ),
    )


def table2(settings: Settings) -> Report:
    """Ten queries share a select, ranked in different ways."""
    seeds = seeds_of(settings)
    cells = [(policy, sharing) for policy in ("hnr", "bsd") for sharing in SHARING]
    jobs = [
        partial(_shared, policy, how, seed, settings) for policy, how in cells for seed in seeds
    ]
    done = in_parallel("shared operators", jobs)
    size = len(seeds)
    runs = {cell: done[n * size : (n + 1) * size] for n, cell in enumerate(cells)}
    measured = {"hnr": ("average slowdown", slowdown), "bsd": ("l2 norm", norm)}
    rows = tuple(
        (name, policy, *(mean_of([metric(one) for one in runs[policy, how]]) for how in SHARING))
        for policy, (name, metric) in measured.items()
    )
    paper = {("hnr", "max"): 23, ("hnr", "sum"): 18, ("bsd", "max"): 10, ("bsd", "sum"): 6}
    return Report(
        (Table("Table 2", ("metric", "policy", *SHARING), rows),),
        tuple(
            lower(
                f"{measured[policy][0]} of {policy.upper()} with PDT against {how}",
                size,
                below(runs[policy, "pdt"], runs[policy, how], measured[policy][1]),
            )
            for (policy, how), size in paper.items()
        ),
    )


def _shared(policy: str, how: str, seed: int, settings: Settings) -> Metrics:
    arrivals = on_off(settings)
    sets = paper_sets(seed, LOAD, mean_gap(arrivals, seed))
    ranked = POLICIES[policy].shared_by(SHARING[how])
    return run_sets(sets, ranked, arrivals, seed).metrics()
