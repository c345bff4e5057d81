"""Figures 5 and 6: more hosts, stronger hosts, larger queries; and how long planning takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from headwater.plan.placement.bound import optimistic_admissions
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.planner import Budget
from headwater.plan.placement.planners.registry import make_planner
from headwater.plan.placement.samples import AMPLE, TIGHT, SampleSetting, sample_problem
from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Plot,
    PlotLine,
    Report,
    ReportTable,
)
from headwater.reproduce.sqpr.runs import OURS, halve_setting, mean, seed_range, submit_queries

COMPARED_PLANNERS = (OURS, "heuristic")
QUERIES_A_HOST = TIGHT.queries // TIGHT.hosts

PAPERS_LIMIT = 100.0
"""Seconds that SQPR had for a query in figure 6."""


def _mean_admitted(setting: SampleSetting, settings: FigureSettings) -> dict[str, float]:
    problems = [sample_problem(setting, seed) for seed in seed_range(settings)]
    means = {
        p: mean(submit_queries(p, one).admitted_count() for one in problems)
        for p in COMPARED_PLANNERS
    }
    means["optimistic bound"] = mean(
        sum(optimistic_admissions(p, range(setting.queries))) for p in problems
    )
    return means


def _admission_report(
    title: str, what: str, admitted: dict[float, dict[str, float]], name: str
) -> Report:
    columns = (what, *next(iter(admitted.values())))
    rows = tuple((x, *(round(v, 1) for v in values.values())) for x, values in admitted.items())
    lines = tuple(
        PlotLine(planner, tuple(admitted), tuple(v[planner] for v in admitted.values()))
        for planner in columns[1:]
    )
    return Report(
        (ReportTable(title, columns, rows),), (), (Plot(name, title, what, "admitted", lines),)
    )


def _bound_shares(admitted: dict[float, dict[str, float]]) -> list[float]:
    return [values[OURS] / values["optimistic bound"] for values in admitted.values()]


def _format_shares(near: Sequence[float]) -> str:
    return ", ".join(f"{100 * v:.0f} %" for v in near)


def hosts(settings: FigureSettings) -> Report:
    """Figure 5a: more hosts over the same streams.

    As many queries are submitted for each host: with the same number for all, small systems would
    have more to choose from, and count more of the small queries.
    """
    sizes = (5, 10, 20) if settings.quick else (12, 25, 37, 50)
    base = halve_setting(TIGHT, settings)
    admitted = {
        float(n): _mean_admitted(replace(base, hosts=n, queries=QUERIES_A_HOST * n), settings)
        for n in sizes
    }
    report = _admission_report("Admitted by number of hosts", "hosts", admitted, "sqpr-fig5a")
    each = [values[OURS] / n for n, values in admitted.items()]
    near = _bound_shares(admitted)
    claims = (
        Claim(
            "admissions grow more than linearly with hosts",
            "yes",
            ", ".join(f"{v:.1f} a host at {n:g}" for v, n in zip(each, admitted, strict=True)),
            all(a < b for a, b in pairwise(each)),
        ),
        Claim(
            "the gap to the optimistic bound widens with hosts",
            "yes",
            _format_shares(near),
            near[-1] < near[0],
        ),
    )
    return replace(report, claims=claims)


def resources(settings: FigureSettings) -> Report:
    """Figure 5b: 10 Gbit/s, and hosts with more CPU."""
    factors = (1.0, 2.0) if settings.quick else (1.0, 2.0, 3.0, 4.0)
    base = replace(halve_setting(AMPLE, settings), bandwidth=10_000.0, link=10_000.0)
    base = replace(base, queries=base.queries * 2)
    admitted = {f: _mean_admitted(replace(base, cpu=base.cpu * f), settings) for f in factors}
    report = _admission_report("Admitted by CPU of hosts", "times the CPU", admitted, "sqpr-fig5b")
    near = _bound_shares(admitted)
    claim = Claim(
        "near the optimistic bound at any CPU",
        "near optimal",
        _format_shares(near),
        min(near) > 0.9,
    )
    return replace(report, claims=(claim,))


def complexity(settings: FigureSettings) -> Report:
    """Figure 5c: all queries are joins of the same number of streams."""
    base = halve_setting(TIGHT, settings)
    ways = (2, 3, 4) if settings.quick else (2, 3, 4, 5)
    admitted = {float(w): _mean_admitted(replace(base, ways=(w,)), settings) for w in ways}
    report = _admission_report(
        "Admitted by number of streams in a join", "streams", admitted, "sqpr-fig5c"
    )
    counts, near = [values[OURS] for values in admitted.values()], _bound_shares(admitted)
    claims = (
        Claim(
            "larger queries: fewer admitted",
            "yes",
            ", ".join(f"{v:g}" for v in counts),
            all(a > b for a, b in pairwise(counts)),
        ),
        Claim(
            "the share of the optimistic bound hardly depends on it",
            "more or less",
            _format_shares(near),
            max(near) - min(near) < 0.15,
        ),
    )
    return replace(report, claims=claims)


def _planning_times(
    planner: str, setting: SampleSetting, queries: int, seconds: float
) -> list[tuple[float, bool]]:
    """The time of each query while 75 to 95 % of the CPU is in use, and whether it was in time."""
    problem = sample_problem(setting, 1)
    ledger, fill = Ledger(problem), make_planner("dynamic")
    measured = make_planner(planner)
    times: list[tuple[float, bool]] = []
    capacity = float(ledger.capacity[0].sum())
    for query in range(len(problem.queries)):
        used = 1 - float(ledger.free[0].sum()) / capacity
        if used < 0.75:
            # Filled by the fast planner, so that only what is measured takes the time of the slow
            # one.
            list(fill(ledger, [query], Budget(seconds)))
            continue
        if used > 0.95 or len(times) == queries:
            break
        (decision,) = measured(ledger, [query], Budget(seconds))
        times.append((decision.seconds, decision.seconds < seconds))
    return times


def _timing_table(
    title: str,
    what: str,
    settings: FigureSettings,
    cases: Sequence[tuple[float, SampleSetting]],
    most_for_form: float,
    seconds: float,
    queries: int,
) -> tuple[ReportTable, dict[str, dict[float, float]], dict[float, int]]:
    rows: list[tuple[Cell, ...]] = []
    times: dict[str, dict[float, float]] = {"sqpr": {}, OURS: {}}
    in_time: dict[float, int] = {}
    for x, setting in cases:
        ours = [t for t, _ in _planning_times(OURS, setting, 100, seconds)]
        times[OURS][x] = mean(ours)
        theirs = _planning_times("sqpr", setting, queries, seconds) if x <= most_for_form else []
        if theirs:
            times["sqpr"][x] = mean(t for t, _ in theirs)
            in_time[x] = sum(done for _, done in theirs)
        rows.append(
            (
                x,
                times["sqpr"].get(x),
                f"{in_time[x]} of {len(theirs)}" if theirs else "",
                times[OURS][x],
                max(ours),
            )
        )
    columns = (what, "sqpr s", "solved in time", f"{OURS} s", f"{OURS} max s")
    return ReportTable(title, columns, tuple(rows)), times, in_time


def time_by_hosts(settings: FigureSettings) -> Report:
    """Figure 6a: the time to plan a query when most of the CPU is in use."""
    seconds, queries = (2.0, 3) if settings.quick else (PAPERS_LIMIT, 2)
    sizes = (5, 10) if settings.quick else (5, 10, 25, 50, 100, 200)
    cases = [(float(n), _dense_setting(n)) for n in sizes]
    title = f"Time to plan a query at 75 to 95 % of the CPU; SQPR's limit is {seconds:g} s"
    table, times, in_time = _timing_table(title, "hosts", settings, cases, 10.0, seconds, queries)
    both = [x for x in times["sqpr"] if x in times[OURS]]
    ratio = [times["sqpr"][x] / times[OURS][x] for x in both]
    missed = any(in_time[x] < queries for x in both) and seconds >= PAPERS_LIMIT
    claims = (
        Claim(
            "SQPR's form is solved to the optimum up to 100 hosts",
            f"yes, in {PAPERS_LIMIT:g} s",
            ", ".join(f"{x:g} hosts: {in_time[x]} of {queries} in {seconds:g} s" for x in both),
            # The form is not run beyond ten hosts: the claim may fail here, but cannot be shown to
            # hold.
            False if missed else None,
        ),
        Claim(
            f"{OURS} takes a fraction of the time",
            "(ours)",
            ", ".join(f"{r:,.0f}x at {x:g} hosts" for r, x in zip(ratio, both, strict=True)),
            min(ratio, default=0) > 1,
        ),
    )
    return Report((table,), claims)


def time_by_ways(settings: FigureSettings) -> Report:
    """Figure 6b: the same by number of streams in a join."""
    seconds, queries = (2.0, 3) if settings.quick else (30.0, 3)
    ways = (2, 3) if settings.quick else (2, 3, 4, 5)
    size = 5
    cases = [(float(w), replace(_dense_setting(size), ways=(w,))) for w in ways]
    title = f"Time to plan a query on {size} hosts at 75 to 95 % of the CPU; limit {seconds:g} s"
    table, times, _ = _timing_table(title, "streams", settings, cases, 5.0, seconds, queries)
    # The solver overruns its limit, each time by another amount.
    sqpr = [min(t, seconds) for t in times["sqpr"].values()]
    claim = Claim(
        "larger queries take longer to plan",
        "yes",
        ", ".join(f"{t:.1f} s" if t < seconds else f"over {seconds:g} s" for t in sqpr),
        all(a <= b for a, b in pairwise(sqpr)) and sqpr[0] < sqpr[-1],
    )
    return Report((table,), (claim,))


def _dense_setting(hosts: int) -> SampleSetting:
    """A number of hosts, each with as many streams and queries as in the paper."""
    return replace(TIGHT, hosts=hosts, base_streams=10 * hosts, queries=20 * hosts)
