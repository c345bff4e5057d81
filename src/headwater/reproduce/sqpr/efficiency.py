"""Figure 4: how many queries are admitted, one by one, in batches, and by how much they overlap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from headwater.plan.placement.bound import certified_bound, optimistic_admissions
from headwater.plan.placement.samples import AMPLE, TIGHT, SampleSetting, sample_problem
from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Plot,
    Report,
    ReportTable,
    format_spread,
)
from headwater.reproduce.sqpr.runs import (
    OURS,
    SubmissionOutcome,
    admission_curve,
    admission_flags,
    curve_steps,
    halve_setting,
    mean,
    sample_problems,
    scale_setting,
    seed_range,
    shrink_if_quick,
    submit_queries,
)

FAST_PLANNERS = (OURS, "heuristic", "soda")
"""Those that can be run at the paper's size."""

SCALE_DOWN = 10
"""SQPR's own form is run on a tenth of the system: 5 hosts, as dense as 50."""


def admissions(settings: FigureSettings) -> Report:
    """Figure 4a: submitted and admitted queries."""
    limits = (0.5,) if settings.quick else (0.5, 3.0)
    reports = [_sqpr_report(scale_setting(TIGHT, SCALE_DOWN), settings, limits)]
    for name, setting in (("tight", TIGHT), ("plenty", AMPLE)):
        reports.append(_curves_report(name, halve_setting(setting, settings), settings))
    return merge_reports(reports)


def merge_reports(reports: list[Report]) -> Report:
    """Several reports as one."""
    return Report(
        tuple(table for report in reports for table in report.tables),
        tuple(claim for report in reports for claim in report.claims),
        tuple(plot for report in reports for plot in report.plots),
    )


def _curves_report(name: str, setting: SampleSetting, settings: FigureSettings) -> Report:
    """Our planner and the baselines, with the paper's bound; the certified one for the first half,
    as it takes long and says little when twice as much is submitted as fits."""
    problems = sample_problems(setting, settings)
    steps = curve_steps(setting.queries)
    runs = {planner: [submit_queries(planner, p) for p in problems] for planner in FAST_PLANNERS}
    hopeful = [optimistic_admissions(p, range(setting.queries)) for p in problems]
    lines = [
        admission_curve(planner, [admission_flags(o) for o in runs[planner]], steps)
        for planner in FAST_PLANNERS
    ]
    lines.append(admission_curve("optimistic bound", hopeful, steps))
    rows = tuple((step, *(round(line.y[at], 1) for line in lines)) for at, step in enumerate(steps))
    title = f"{setting.hosts} hosts of {setting.bandwidth:g} Mbit/s ({name})"
    columns = ("submitted", *(line.name for line in lines))
    half = setting.queries // 2
    gaps = [
        100 * (1 - o.admitted_count() / max(1, sum(h)))
        for o, h in zip(runs[OURS], hopeful, strict=True)
    ]
    to_bound = [
        100 * (1 - o.admitted_count(half) / certified_bound(p, range(half)))
        for o, p in zip(runs[OURS], problems, strict=True)
    ]
    claims = (
        _claim_admits_more(
            f"{title}: {OURS} admits more than the heuristic", runs[OURS], runs["heuristic"]
        ),
        _claim_admits_more(
            f"{title}: the heuristic admits more than SODA", runs["heuristic"], runs["soda"]
        ),
        Claim(
            f"{title}: {OURS} below the optimistic bound",
            "< 25 %",
            format_spread(gaps, 1, " %"),
            max(gaps) < 25,
        ),
        Claim(
            f"{title}: {OURS} below the certified bound, first half",
            "(ours)",
            format_spread(to_bound, 1, " %"),
            None,
        ),
    )
    plot = Plot(f"sqpr-fig4a-{name}", title, "submitted", "admitted", tuple(lines))
    return Report((ReportTable(title, columns, rows), _detail_table(title, runs)), claims, (plot,))


def _detail_table(title: str, runs: dict[str, list[SubmissionOutcome]]) -> ReportTable:
    """The first refusal, admissions by number of streams, and time, for the first seed."""
    rows = []
    for planner, outcomes in runs.items():
        first = outcomes[0]
        ways = ", ".join(f"{w}-way {yes}/{of}" for w, (yes, of) in first.admitted_by_ways().items())
        times = (
            f"{first.seconds_quantile(0.5) * 1e3:.2f} / {first.seconds_quantile(0.95) * 1e3:.1f}"
        )
        # Far beyond what fits, a mere count rewards refusing large queries early.
        rows.append((planner, first.admitted_count(), first.first_refusal, ways, times))
    columns = ("planner", "admitted", "first refusal", "by number of streams", "ms p50 / p95")
    return ReportTable(f"{title}: in detail, seed 1", columns, tuple(rows))


def _claim_admits_more(
    what: str, left: list[SubmissionOutcome], right: list[SubmissionOutcome], of: int | None = None
) -> Claim:
    """Whether one admits more than the other of the first queries, or of all."""
    pairs = [(a.admitted_count(of), b.admitted_count(of)) for a, b in zip(left, right, strict=True)]
    shown = ", ".join(f"{a} against {b}" for a, b in pairs)
    return Claim(what, "yes", shown, all(a > b for a, b in pairs))


def _sqpr_report(
    setting: SampleSetting, settings: FigureSettings, limits: tuple[float, ...]
) -> Report:
    """SQPR's own form under limits of time, beside the others."""
    queries = setting.queries // 2 if settings.quick else setting.queries
    problems = sample_problems(setting, settings)
    steps = curve_steps(queries)
    runs = {
        f"sqpr {s:g} s": [submit_queries("sqpr", p, queries, s) for p in problems] for s in limits
    }
    runs |= {
        planner: [submit_queries(planner, p, queries) for p in problems]
        for planner in FAST_PLANNERS
    }
    lines = [
        admission_curve(name, [admission_flags(o) for o in outcomes], steps)
        for name, outcomes in runs.items()
    ]
    hopeful = [optimistic_admissions(p, range(queries)) for p in problems]
    lines.append(admission_curve("optimistic bound", hopeful, steps))
    title = f"{setting.hosts} hosts of {setting.bandwidth:g} Mbit/s, with SQPR's own form"
    rows = tuple((step, *(round(x.y[at], 1) for x in lines)) for at, step in enumerate(steps))
    best = runs[f"sqpr {limits[-1]:g} s"]
    gaps = [
        100 * (1 - o.admitted_count() / max(1, sum(h))) for o, h in zip(best, hopeful, strict=True)
    ]
    # About as many as fit: of twice as many, who refuses large queries early admits more.
    half, longest = setting.queries // 2, f"SQPR with {limits[-1]:g} s"
    claims = [
        _claim_admits_more(
            f"{title}: {longest} admits more than the heuristic of the first {half}",
            best,
            runs["heuristic"],
            half,
        ),
        _claim_admits_more(f"{title}: {longest} admits more than SODA", best, runs["soda"]),
        Claim(
            f"{title}: {longest} below the optimistic bound",
            "< 25 %",
            format_spread(gaps, 1, " %"),
            max(gaps) < 25,
        ),
        Claim(
            f"{title}: {OURS} admits at least as many as SQPR",
            "(ours)",
            ", ".join(
                f"{a.admitted_count()} against {b.admitted_count()}"
                for a, b in zip(runs[OURS], best, strict=True)
            ),
            all(
                a.admitted_count() >= b.admitted_count()
                for a, b in zip(runs[OURS], best, strict=True)
            ),
        ),
    ]
    if queries > half:
        beyond = f"{title}: the same of all {queries}, twice what fits"
        claims.insert(1, _claim_admits_more(beyond, best, runs["heuristic"]))
    plot = Plot("sqpr-fig4a-form", title, "submitted", "admitted", tuple(lines))
    columns = ("submitted", *(line.name for line in lines))
    return Report(
        (ReportTable(title, columns, rows), _detail_table(title, runs)), tuple(claims), (plot,)
    )


def batches(settings: FigureSettings) -> Report:
    """Figure 4b: several queries planned together, with proportionally more time."""
    setting = scale_setting(TIGHT, SCALE_DOWN)
    queries = 30 if settings.quick else setting.queries // 2
    seconds = 0.3 if settings.quick else 2.0
    sizes = (1, 2, 5) if settings.quick else (1, 2, 5, 10)
    problems = sample_problems(setting, settings)
    runs = {
        (planner, size): [submit_queries(planner, p, queries, seconds, size) for p in problems]
        for planner in ("sqpr", OURS)
        for size in sizes
    }
    rows = tuple(
        (
            size,
            *(mean(o.admitted_count() for o in runs[planner, size]) for planner in ("sqpr", OURS)),
        )
        for size in sizes
    )
    title = f"{setting.hosts} hosts, {queries} queries, {seconds:g} s for each query of a batch"
    alone = [o.admitted_count() for o in runs["sqpr", 1]]
    large = [o.admitted_count() for o in runs["sqpr", sizes[-1]]]
    ours = [[o.admitted_count() for o in runs[OURS, size]] for size in (1, sizes[-1])]
    claims = (
        Claim(
            "SQPR admits fewer in batches",
            "yes",
            f"{mean(large):g} in batches of {sizes[-1]} against {mean(alone):g}",
            mean(large) < mean(alone),
        ),
        Claim(
            f"{OURS} admits no fewer in batches",
            "(ours)",
            f"{mean(ours[1]):g} against {mean(ours[0]):g}",
            mean(ours[1]) >= mean(ours[0]),
        ),
    )
    return Report((ReportTable(title, ("batch", "sqpr", OURS), rows),), claims)


def overlap(settings: FigureSettings) -> Report:
    """Figure 4c: fewer base streams, or a steeper choice among them, let queries share more."""
    setting = halve_setting(TIGHT, settings)
    streams = [setting.base_streams * k // 2 for k in (1, 2, 4)]
    exponents = (0.0, 0.5, 1.0, 1.5)
    rows, admitted = [], {}
    for count in streams:
        for zipf in exponents:
            varied = replace(setting, base_streams=count, zipf=zipf)
            runs = [
                submit_queries(OURS, sample_problem(varied, seed)) for seed in seed_range(settings)
            ]
            admitted[count, zipf] = mean(o.admitted_count() for o in runs)
            rows.append((count, zipf, admitted[count, zipf]))
    title = f"{setting.hosts} hosts, {setting.queries} queries submitted"
    chance = setting.queries / 100  # a difference of this size is no trend
    by_zipf = all(
        admitted[c, a] <= admitted[c, b] + chance for c in streams for a, b in pairwise(exponents)
    )
    by_streams = all(
        admitted[a, z] + chance >= admitted[b, z] for z in exponents for a, b in pairwise(streams)
    )
    claims = (
        Claim(
            "a steeper choice of streams: more admitted",
            "yes",
            _format_ends(admitted, streams[1], exponents),
            by_zipf,
        ),
        Claim(
            "fewer base streams: more admitted",
            "yes",
            f"Zipf 1: {', '.join(f'{admitted[c, 1.0]:g} of {c}' for c in streams)}",
            by_streams,
        ),
    )
    return Report((ReportTable(title, ("base streams", "Zipf", "admitted"), tuple(rows)),), claims)


def _format_ends(
    admitted: dict[tuple[int, float], float], streams: int, exponents: tuple[float, ...]
) -> str:
    first, last = (admitted[streams, z] for z in (exponents[0], exponents[-1]))
    return f"{streams} streams: {first:g} at {exponents[0]:g}, {last:g} at {exponents[-1]:g}"


def sweep(settings: FigureSettings) -> Report:
    """Ours: the first half of the queries over host bandwidths, against the certified bound."""
    bandwidths = (65.0, 1000.0) if settings.quick else (50.0, 65.0, 80.0, 120.0, 250.0, 1000.0)
    rows: list[tuple[Cell, ...]] = []
    claims: list[Claim] = []
    for bandwidth in bandwidths:
        setting = replace(shrink_if_quick(TIGHT, settings), bandwidth=bandwidth)
        half = setting.queries // 2
        problems = sample_problems(setting, settings)
        runs = {
            planner: [submit_queries(planner, p, half) for p in problems]
            for planner in FAST_PLANNERS
        }
        bounds = [certified_bound(p, range(half)) for p in problems]
        counts = {planner: [o.admitted_count() for o in runs[planner]] for planner in FAST_PLANNERS}
        gaps = [100 * (1 - a / b) for a, b in zip(counts[OURS], bounds, strict=True)]
        refusals = [o.first_refusal or half for o in runs[OURS]]
        ways = [o.admitted_by_ways(half) for o in runs[OURS]]
        shown = ", ".join(
            f"{w}-way {sum(one[w][0] for one in ways)}/{sum(one[w][1] for one in ways)}"
            for w in ways[0]
        )
        rows.append(
            (
                bandwidth,
                *(mean(counts[p]) for p in FAST_PLANNERS),
                mean(bounds),
                format_spread(gaps, 1, " %"),
                mean(refusals),
                shown,
            )
        )
        claims.append(
            Claim(
                f"{bandwidth:g} Mbit/s: {OURS} admits at least as many as each other",
                "(ours)",
                f"{mean(counts[OURS]):g} against {mean(counts['heuristic']):g} and {mean(counts['soda']):g}",
                all(
                    ours >= max(counts[p][at] for p in FAST_PLANNERS[1:])
                    for at, ours in enumerate(counts[OURS])
                ),
            )
        )
        limit = {65.0: 8, 1000.0: 3}.get(bandwidth)
        if limit is not None and not settings.quick:
            what = f"{bandwidth:g} Mbit/s: at most {limit} % below the certified bound"
            claims.append(Claim(what, "(ours)", format_spread(gaps, 1, " %"), max(gaps) <= limit))
    columns = (
        "Mbit/s",
        *FAST_PLANNERS,
        "certified",
        "below it",
        "first refusal",
        "by number of streams",
    )
    title = "Admitted of the first half, by host bandwidth"
    return Report((ReportTable(title, columns, tuple(rows)),), tuple(claims))
