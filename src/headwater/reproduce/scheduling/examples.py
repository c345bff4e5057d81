"""The two tables of the paper: an example worked out, and shared operators."""

from __future__ import annotations

from functools import partial
from itertools import count

import numpy as np

from headwater.reproduce.figure import Claim, FigureSettings, Report, ReportTable
from headwater.reproduce.progress import run_in_parallel
from headwater.reproduce.scheduling.loads import l2_norm, slowdown
from headwater.reproduce.scheduling.runs import (
    claim_lower,
    format_mean,
    on_off_arrivals,
    percent_below,
    seed_range,
)
from headwater.schedule import POLICIES, SHARING_RULES
from headwater.sim.arrivals import FixedTimes, mean_gap
from headwater.sim.chains import run_chains
from headwater.sim.coin_flips import coin_flip, pass_threshold, run_key
from headwater.sim.metrics import Metrics
from headwater.sim.sets import run_sets
from headwater.sim.workload import Chain, SimulatedOperator, paper_sets

LOAD = 0.95

EXAMPLE = (Chain((SimulatedOperator(5.0),)), Chain((SimulatedOperator(2.0, 0.33),)))
"""Two queries of one operator, in milliseconds."""

PENDING = FixedTimes((0.0, 0.0, 0.0))


def example_seed() -> int:
    """The first seed by which the second query accepts the middle tuple alone, as in the paper."""
    accepted = pass_threshold(EXAMPLE[1].operators[0].selectivity)
    return next(
        seed
        for seed in count()
        if [coin_flip(run_key(seed), number, 1) < accepted for number in range(3)]
        == [False, True, False]
    )


def table1(settings: FigureSettings) -> Report:
    """Example 1: three tuples are pending for both queries."""
    seed = example_seed()
    by_policy = {
        policy: run_chains(EXAMPLE, POLICIES[policy], PENDING, seed).metrics()
        for policy in ("hr", "hnr")
    }
    paper = {"hr": (12.25, 3.875), "hnr": (13.0, 2.9)}
    rows = tuple(
        (policy, metrics.response, metrics.slowdown) for policy, metrics in by_policy.items()
    )
    return Report(
        (ReportTable("Table 1", ("policy", "response", "slowdown"), rows),),
        tuple(
            Claim(
                f"{policy.upper()}: response / slowdown",
                f"{expected[0]:g} / {expected[1]:g}",
                f"{by_policy[policy].response:.12g} / {by_policy[policy].slowdown:.12g}",
                bool(
                    np.allclose(
                        (by_policy[policy].response, by_policy[policy].slowdown), expected, 1e-12
                    )
                ),
            )
            for policy, expected in paper.items()
        ),
    )


def table2(settings: FigureSettings) -> Report:
    """Ten queries share a select, ranked in different ways."""
    seeds = seed_range(settings)
    cells = [(policy, sharing) for policy in ("hnr", "bsd") for sharing in SHARING_RULES]
    jobs = [
        partial(_run_shared, policy, sharing_rule, seed, settings)
        for policy, sharing_rule in cells
        for seed in seeds
    ]
    done = run_in_parallel("shared operators", jobs)
    size = len(seeds)
    runs = {cell: done[n * size : (n + 1) * size] for n, cell in enumerate(cells)}
    measured = {"hnr": ("average slowdown", slowdown), "bsd": ("l2 norm", l2_norm)}
    rows = tuple(
        (
            name,
            policy,
            *(
                format_mean([metric(metrics) for metrics in runs[policy, sharing_rule]])
                for sharing_rule in SHARING_RULES
            ),
        )
        for policy, (name, metric) in measured.items()
    )
    paper = {("hnr", "max"): 23, ("hnr", "sum"): 18, ("bsd", "max"): 10, ("bsd", "sum"): 6}
    return Report(
        (ReportTable("Table 2", ("metric", "policy", *SHARING_RULES), rows),),
        tuple(
            claim_lower(
                f"{measured[policy][0]} of {policy.upper()} with PDT against {sharing_rule}",
                size,
                percent_below(runs[policy, "pdt"], runs[policy, sharing_rule], measured[policy][1]),
            )
            for (policy, sharing_rule), size in paper.items()
        ),
    )


def _run_shared(policy: str, sharing_rule: str, seed: int, settings: FigureSettings) -> Metrics:
    arrivals = on_off_arrivals(settings)
    sets = paper_sets(seed, LOAD, mean_gap(arrivals, seed))
    ranked = POLICIES[policy].with_sharing(SHARING_RULES[sharing_rule])
    return run_sets(sets, ranked, arrivals, seed).metrics()
