"""Figure 4: how many queries are admitted, one by one, in batches, and by how much they overlap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from headwater.plan.placement.bound import certified, optimistic
from headwater.plan.placement.samples import PLENTY, TIGHT, Setting, sample
from headwater.reproduce.figure import Cell, Claim, Plot, Report, Settings, Table, spread
from headwater.reproduce.sqpr.runs import (
    OURS,
    Outcome,
    curve,
    flags,
    halved,
    mean,
    samples,
    scaled,
    seeds_of,
    shrunk,
    steps_of,
    submit,
)

FAST = (OURS, "heuristic", "soda")
"""Those that can be run at the paper's size."""

PART = 10
"""SQPR's own form is run on a tenth of the system: 5 hosts, as dense as 50."""


def admissions(settings: Settings) -> Report:
    """Figure 4a: submitted and admitted queries."""
    limits = (0.5,) if settings.quick else (0.5, 3.0)
    reports = [_small(scaled(TIGHT, PART), settings, limits)]
    for name, setting in (("tight", TIGHT), ("plenty", PLENTY)):
        reports.append(_curves(name, halved(setting, settings), settings))
    return joined(reports)


def joined(reports: list[Report]) -> Report:
    """Several reports as one."""
    return Report(
        tuple(table for report in reports for table in report.tables),
        tuple(claim for report in reports for claim in report.claims),
        tuple(plot for report in reports for plot in report.plots),
    )


def _curves(name: str, setting: Setting, settings: Settings) -> Report:
    """Our planner and the baselines, with the paper's bound; the certified one for the first half,
    as it takes long and says little when twice as much is submitted as fits."""
    problems = samples(setting, settings)
    steps = steps_of(setting.queries)
    runs = {planner: [submit(planner, p) for p in problems] for planner in FAST}
    hopeful = [optimistic(p, range(setting.queries)) for p in problems]
    lines = [curve(planner, [flags(o) for o in runs[planner]], steps) for planner in FAST]
    lines.append(curve("optimistic bound", hopeful, steps))
    rows = tuple((step, *(round(line.y[at], 1) for line in lines)) for at, step in enumerate(steps))
    title = f"{setting.hosts} hosts of {setting.bandwidth:g} Mbit/s ({name})"
    columns = ("submitted", *(line.name for line in lines))
    half = setting.queries // 2
    gaps = [
        100 * (1 - o.admitted() / max(1, sum(h))) for o, h in zip(runs[OURS], hopeful, strict=True)
    ]
    to_bound = [
        100 * (1 - o.admitted(half) / certified(p, range(half)))
        for o, p in zip(runs[OURS], problems, strict=True)
    ]
    claims = (
        _more(f"{title}: {OURS} admits more than the heuristic", runs[OURS], runs["heuristic"]),
        _more(f"{title}: the heuristic admits more than SODA", runs["heuristic"], runs["soda"]),
        Claim(
            f"{title}: {OURS} below the optimistic bound",
            "< 25 %",
            spread(gaps, 1, " %"),
            max(gaps) < 25,
        ),
        Claim(
            f"{title}: {OURS} below the certified bound, first half",
            "(ours)",
            spread(to_bound, 1, " %"),
            None,
        ),
    )
    plot = Plot(f"sqpr-fig4a-{name}", title, "submitted", "admitted", tuple(lines))
    return Report((Table(title, columns, rows), _detail(title, runs)), claims, (plot,))


def _detail(title: str, runs: dict[str, list[Outcome]]) -> Table:
    """The first refusal, admissions by number of streams, and time, for the first seed."""
    rows = []
    for planner, outcomes in runs.items():
        one = outcomes[0]
        ways = ", ".join(f"{w}-way {yes}/{of}" for w, (yes, of) in one.by_ways().items())
        times = f"{one.seconds(0.5) * 1e3:.2f} / {one.seconds(0.95) * 1e3:.1f}"
        rows.append((planner, one.admitted(), one.first_refusal, ways, times))
    columns = ("planner", "admitted", "first refusal", "by number of streams", "ms p50 / p95")
    return Table(f"{title}: in detail, seed 1", columns, tuple(rows))


def _more(what: str, one: list[Outcome], other: list[Outcome], of: int | None = None) -> Claim:
    """Whether one admits more than the other of the first queries, or of all."""
    pairs = [(a.admitted(of), b.admitted(of)) for a, b in zip(one, other, strict=True)]
    shown = ", ".join(f"{a} against {b}" for a, b in pairs)
    return Claim(what, "yes", shown, all(a > b for a, b in pairs))


def _small(setting: Setting, settings: Settings, limits: tuple[float, ...]) -> Report:
    """SQPR's own form under limits of time, beside the others."""
    queries = setting.queries // 2 if settings.quick else setting.queries
    problems = samples(setting, settings)
    steps = steps_of(queries)
    runs = {f"sqpr {s:g} s": [submit("sqpr", p, queries, s) for p in problems] for s in limits}
    runs |= {planner: [submit(planner, p, queries) for p in problems] for planner in FAST}
    lines = [curve(name, [flags(o) for o in outcomes], steps) for name, outcomes in runs.items()]
    hopeful = [optimistic(p, range(queries)) for p in problems]
    lines.append(curve("optimistic bound", hopeful, steps))
    title = f"{setting.hosts} hosts of {setting.bandwidth:g} Mbit/s, with SQPR's own form"
    rows = tuple((step, *(round(x.y[at], 1) for x in lines)) for at, step in enumerate(steps))
    best = runs[f"sqpr {limits[-1]:g} s"]
    gaps = [100 * (1 - o.admitted() / max(1, sum(h))) for o, h in zip(best, hopeful, strict=True)]
    half, longest = setting.queries // 2, f"SQPR with {limits[-1]:g} s"
    claims = [
        _more(
            f"{title}: {longest} admits more than the heuristic of the first {half}",
            best,
            runs["heuristic"],
            half,
        ),
        _more(f"{title}: {longest} admits more than SODA", best, runs["soda"]),
        Claim(
            f"{title}: {longest} below the optimistic bound",
            "< 25 %",
            spread(gaps, 1, " %"),
            max(gaps) < 25,
        ),
        Claim(
            f"{title}: {OURS} admits at least as many as SQPR",
            "(ours)",
            ", ".join(
                f"{a.admitted()} against {b.admitted()}"
                for a, b in zip(runs[OURS], best, strict=True)
            ),
            all(a.admitted() >= b.admitted() for a, b in zip(runs[OURS], best, strict=True)),
        ),
    ]
    if queries > half:
        beyond = f"{title}: the same of all {queries}, twice what fits"
        claims.insert(1, _more(beyond, best, runs["heuristic"]))
    plot = Plot("sqpr-fig4a-form", title, "submitted", "admitted", tuple(lines))
    columns = ("submitted", *(line.name for line in lines))
    return Report((Table(title, columns, rows), _detail(title, runs)), tuple(claims), (plot,))


def batches(settings: Settings) -> Report:
    """Figure 4b: several queries planned together, with so many times the time."""
    setting = scaled(TIGHT, PART)
    queries = 30 if settings.quick else setting.queries // 2
    seconds = 0.3 if settings.quick else 2.0
    sizes = (1, 2, 5) if settings.quick else (1, 2, 5, 10)
    problems = samples(setting, settings)
    runs = {
        (planner, size): [submit(planner, p, queries, seconds, size) for p in problems]
        for planner in ("sqpr", OURS)
        for size in sizes
    }
    rows = tuple(
        (size, *(mean(o.admitted() for o in runs[planner, size]) for planner in ("sqpr", OURS)))
        for size in sizes
    )
    title = f"{setting.hosts} hosts, {queries} queries, {seconds:g} s for each query of a batch"
    alone = [o.admitted() for o in runs["sqpr", 1]]
    large = [o.admitted() for o in runs["sqpr", sizes[-1]]]
    ours = [[o.admitted() for o in runs[OURS, size]] for size in (1, sizes[-1])]
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
    return Report((Table(title, ("batch", "sqpr", OURS), rows),), claims)


def overlap(settings: Settings) -> Report:
    """Figure 4c: fewer base streams, or a steeper choice among them, let queries share more."""
    setting = halved(TIGHT, settings)
    streams = [setting.base_streams * k // 2 for k in (1, 2, 4)]
    exponents = (0.0, 0.5, 1.0, 1.5)
    rows, found = [], {}
    for count in streams:
        for zipf in exponents:
            one = replace(setting, base_streams=count, zipf=zipf)
            runs = [submit(OURS, sample(one, seed)) for seed in seeds_of(settings)]
            found[count, zipf] = mean(o.admitted() for o in runs)
            rows.append((count, zipf, found[count, zipf]))
    title = f"{setting.hosts} hosts, {setting.queries} queries submitted"
    chance = setting.queries / 100  # so many more or less are no trend
    by_zipf = all(
        found[c, a] <= found[c, b] + chance for c in streams for a, b in pairwise(exponents)
    )
    by_streams = all(
        found[a, z] + chance >= found[b, z] for z in exponents for a, b in pairwise(streams)
    )
    claims = (
        Claim(
            "a steeper choice of streams: more admitted",
            "yes",
            _ends(found, streams[1], exponents),
            by_zipf,
        ),
        Claim(
            "fewer base streams: more admitted",
            "yes",
            f"Zipf 1: {', '.join(f'{found[c, 1.0]:g} of {c}' for c in streams)}",
            by_streams,
        ),
    )
    return Report((Table(title, ("base streams", "Zipf", "admitted"), tuple(rows)),), claims)


def _ends(found: dict[tuple[int, float], float], streams: int, exponents: tuple[float, ...]) -> str:
    first, last = (found[streams, z] for z in (exponents[0], exponents[-1]))
    return f"{streams} streams: {first:g} at {exponents[0]:g}, {last:g} at {exponents[-1]:g}"


def sweep(settings: Settings) -> Report:
    """Ours: the first half of the queries over host bandwidths, against the certified bound."""
    bandwidths = (65.0, 1000.0) if settings.quick else (50.0, 65.0, 80.0, 120.0, 250.0, 1000.0)
    rows: list[tuple[Cell, ...]] = []
    claims: list[Claim] = []
    for bandwidth in bandwidths:
        setting = replace(shrunk(TIGHT, settings), bandwidth=bandwidth)
        half = setting.queries // 2
        problems = samples(setting, settings)
        runs = {planner: [submit(planner, p, half) for p in problems] for planner in FAST}
        bounds = [certified(p, range(half)) for p in problems]
        counts = {planner: [o.admitted() for o in runs[planner]] for planner in FAST}
        gaps = [100 * (1 - a / b) for a, b in zip(counts[OURS], bounds, strict=True)]
        refusals = [o.first_refusal or half for o in runs[OURS]]
        ways = [o.by_ways(half) for o in runs[OURS]]
        shown = ", ".join(
            f"{w}-way {sum(one[w][0] for one in ways)}/{sum(one[w][1] for one in ways)}"
            for w in ways[0]
        )
        rows.append(
            (
                bandwidth,
                *(mean(counts[p]) for p in FAST),
                mean(bounds),
                spread(gaps, 1, " %"),
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
                    ours >= max(counts[p][at] for p in FAST[1:])
                    for at, ours in enumerate(counts[OURS])
                ),
            )
        )
        limit = {65.0: 8, 1000.0: 3}.get(bandwidth)
        if limit is not None and not settings.quick:
            what = f"{bandwidth:g} Mbit/s: at most {limit} % below the certified bound"
            claims.append(Claim(what, "(ours)", spread(gaps, 1, " %"), max(gaps) <= limit))
    columns = ("Mbit/s", *FAST, "certified", "below it", "first refusal", "by number of streams")
    title = "Admitted of the first half, by host bandwidth"
    return Report((Table(title, columns, tuple(rows)),), tuple(claims))
