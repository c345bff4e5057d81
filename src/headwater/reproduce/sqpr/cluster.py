"""Figure 7: 15 hosts and 250 queries of two and three streams; SQPR against SODA.

The paper ran this on a cluster; here it is planned with the same numbers, not run. As there, the
objective is to balance load; what else a plan takes only decides between equals.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.plan.placement.loads import site_loads
from headwater.plan.placement.model import ObjectiveWeights
from headwater.plan.placement.samples import CLUSTER, sample_problem
from headwater.reproduce.figure import Cell, Claim, FigureSettings, Plot, Report, ReportTable
from headwater.reproduce.sqpr.runs import (
    OURS,
    SubmissionOutcome,
    admission_curve,
    admission_flags,
    mean,
    scale_setting,
    seed_range,
    submit_queries,
)

QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
BALANCE_WEIGHTS = ObjectiveWeights(network=0.01, cpu=0.01, balance=1.0)


def _run_planners(
    settings: FigureSettings, queries: int | None = None
) -> dict[str, list[SubmissionOutcome]]:
    setting = scale_setting(CLUSTER, 3) if settings.quick else CLUSTER
    count = queries or setting.queries
    problems = [
        replace(sample_problem(replace(setting, queries=count), seed), weights=BALANCE_WEIGHTS)
        for seed in seed_range(settings)
    ]
    limit = 0.3 if settings.quick else 1.0
    return {
        "sqpr": [submit_queries("sqpr", p, seconds=limit) for p in problems],
        OURS: [submit_queries(OURS, p) for p in problems],
        "soda": [submit_queries("soda", p, seconds=limit) for p in problems],
    }


def admissions(settings: FigureSettings) -> Report:
    """Figure 7a: admitted after every 50 queries."""
    runs = _run_planners(settings)
    count = len(runs["soda"][0].decisions)
    steps = [count * k // 5 for k in range(1, 6)]
    lines = tuple(
        admission_curve(n, [admission_flags(o) for o in outcomes], steps)
        for n, outcomes in runs.items()
    )
    rows = tuple((step, *(round(x.y[at], 1) for x in lines)) for at, step in enumerate(steps))
    counts = {name: mean(o.admitted_count() for o in outcomes) for name, outcomes in runs.items()}
    claims = (
        Claim(
            "SQPR admits more than SODA",
            "yes",
            f"{counts['sqpr']:g} against {counts['soda']:g}",
            counts["sqpr"] > counts["soda"],
        ),
        Claim(
            f"{OURS} admits at least as many as SQPR",
            "(ours)",
            f"{counts[OURS]:g} against {counts['sqpr']:g}",
            counts[OURS] >= counts["sqpr"],
        ),
    )
    title = "Admitted on the cluster"
    plot = Plot("sqpr-fig7a", title, "submitted", "admitted", lines)
    return Report((ReportTable(title, ("submitted", *runs), rows),), claims, (plot,))


def _load_spread(settings: FigureSettings, what: str) -> Report:
    """How a load is spread over hosts when a fifth, and when three fifths of queries are in."""
    total = 50 if settings.quick else 250
    rows: list[tuple[Cell, ...]] = []
    even: dict[str, float] = {}
    for queries in (total // 5, total * 3 // 5):
        for name, outcomes in _run_planners(settings, queries).items():
            loads = [_load_shares(one, what) for one in outcomes]
            shown = [mean(float(np.quantile(one, q)) for one in loads) for q in QUARTILES]
            rows.append((f"{name}-{queries}", *(round(100 * v, 1) for v in shown)))
            even[f"{name}-{queries}"] = shown[3] - shown[1]
    columns = ("planner-queries", "least %", "25 %", "median %", "75 %", "most %")
    late = {name: even[f"{name}-{total * 3 // 5}"] for name in ("sqpr", "soda", OURS)}
    claims = tuple(
        Claim(
            f"{name} balances {what}: middle half of the hosts within 25 points",
            "yes" if name != OURS else "(ours)",
            f"{100 * apart:.0f} points",
            apart < 0.25,
        )
        for name, apart in late.items()
    )
    return Report((ReportTable(f"{what} of hosts", columns, tuple(rows)),), claims)


def _load_shares(outcome: SubmissionOutcome, what: str) -> list[float]:
    sites = site_loads(outcome.problem, outcome.plan)
    if what == "CPU":
        return [site.cpu.share for site in sites]
    # Hosts of these samples can receive as much as they can send.
    return [
        (s.bandwidth_in.used + s.bandwidth_out.used) / (2 * s.bandwidth_in.capacity) for s in sites
    ]


def cpu(settings: FigureSettings) -> Report:
    """Figure 7b: CPU over hosts."""
    return _load_spread(settings, "CPU")


def network(settings: FigureSettings) -> Report:
    """Figure 7c: data sent and received over hosts."""
    return _load_spread(settings, "network")
