"""Queries over one stream as the load grows: figures 5 to 11."""

from __future__ import annotations

from collections.abc import Callable

from headwater.reproduce.figure import (
    Claim,
    FigureSettings,
    Plot,
    Report,
    ReportTable,
    format_spread,
)
from headwater.reproduce.scheduling.runs import (
    HIGHEST,
    LOADS,
    BySeed,
    build_chains,
    claim_lower,
    format_mean,
    mean_line,
    on_off_arrivals,
    percent_below,
    plot_by_load,
    run_policies,
    run_policy,
    seed_range,
    table_by_load,
)
from headwater.sim.metrics import Metrics
from headwater.sim.workload import cost_class

ALL_POLICIES = ("fcfs", "rr", "srpt", "hr", "hnr", "lsf", "bsd", "bsd-early")


def slowdown(metrics: Metrics) -> float:
    return metrics.slowdown


def response_time(metrics: Metrics) -> float:
    return metrics.response


def maximum_slowdown(metrics: Metrics) -> float:
    return metrics.max_slowdown


def l2_norm(metrics: Metrics) -> float:
    return metrics.l2


def _run_loads(settings: FigureSettings, title: str) -> BySeed:
    # 0.7 and the highest: the claims speak of these.
    loads = LOADS[2::4] if settings.quick else LOADS
    return run_policies(title, ALL_POLICIES, on_off_arrivals(settings), loads, seed_range(settings))


def _report_by_load(
    settings: FigureSettings,
    name: str,
    title: str,
    metric: Callable[[Metrics], float],
    claims: Callable[[BySeed], tuple[Claim, ...]],
) -> Report:
    runs = _run_loads(settings, title)
    return Report(
        (table_by_load(title, runs, ALL_POLICIES, metric),),
        claims(runs),
        (plot_by_load(name, title, title, runs, ALL_POLICIES, metric),),
    )


def average(settings: FigureSettings) -> Report:
    """Figure 5."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        paper = {0.7: (74, 51, 18), HIGHEST: (75, 53, 20)}
        return tuple(
            claim_lower(
                f"HNR's average slowdown at {load} against {other.upper()}",
                size,
                percent_below(runs["hnr", load], runs[other, load], slowdown),
            )
            for load, sizes in paper.items()
            for other, size in zip(("rr", "srpt", "hr"), sizes, strict=True)
        )

    return _report_by_load(settings, "scheduling-average", "average slowdown", slowdown, claims)


def response(settings: FigureSettings) -> Report:
    """Figure 6."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        collected = []
        for load, paper in ((0.7, 4), (HIGHEST, 7)):
            more = [-v for v in percent_below(runs["hnr", load], runs["hr", load], response_time)]
            what = f"HNR's response at {load} against HR: a little higher"
            collected.append(
                Claim(what, f"+{paper} %", format_spread(more, 1, " %"), min(more) > 0)
            )
        return tuple(collected)

    return _report_by_load(
        settings, "scheduling-response", "average response", response_time, claims
    )


def maximum(settings: FigureSettings) -> Report:
    """Figure 7."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        values = percent_below(runs["lsf", HIGHEST], runs["hnr", HIGHEST], maximum_slowdown)
        return (claim_lower(f"LSF's maximum slowdown at {HIGHEST} against HNR", 80, values),)

    return _report_by_load(
        settings, "scheduling-maximum", "maximum slowdown", maximum_slowdown, claims
    )


def tradeoff(settings: FigureSettings) -> Report:
    """Figures 8 and 9."""
    load = HIGHEST if settings.quick else 0.95
    runs = _run_loads(settings, "average and maximum slowdown")
    rows = tuple(
        (
            policy,
            format_mean([slowdown(metrics) for metrics in runs[policy, load]]),
            format_mean([maximum_slowdown(metrics) for metrics in runs[policy, load]]),
        )
        for policy in ("hnr", "lsf", "bsd", "bsd-early")
    )
    return Report(
        (
            ReportTable(
                f"average and maximum at load {load}", ("policy", "average", "maximum"), rows
            ),
        ),
        (
            claim_lower(
                f"BSD's maximum slowdown at {load} against HNR",
                44,
                percent_below(runs["bsd", load], runs["hnr", load], maximum_slowdown),
            ),
            claim_lower(
                f"BSD's average slowdown at {load} against LSF",
                80,
                percent_below(runs["bsd", load], runs["lsf", load], slowdown),
            ),
        ),
    )


def l2(settings: FigureSettings) -> Report:
    """Figure 10."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        return tuple(
            claim_lower(
                f"BSD's l2 norm at {HIGHEST} against {other.upper()}",
                size,
                percent_below(runs["bsd", HIGHEST], runs[other, HIGHEST], l2_norm),
            )
            for other, size in (("lsf", 57), ("hnr", 24))
        )

    return _report_by_load(settings, "scheduling-l2", "l2 norm of slowdowns", l2_norm, claims)


def classes(settings: FigureSettings) -> Report:
    """Figure 11: the cheapest queries, by their selectivity."""
    arrivals, seeds, policies = (
        on_off_arrivals(settings),
        seed_range(settings),
        ("hr", "hnr", "bsd"),
    )
    # In parallel; `run_policy` keeps each run, from which the classes are read below.
    run_policies("slowdown by class", policies, arrivals, [HIGHEST], seeds)
    tenths = range(1, 10)
    by_class = {
        policy: [
            [_class_slowdown(policy, settings, seed, tenth) for seed in seeds] for tenth in tenths
        ]
        for policy in policies
    }
    rows = tuple(
        (
            f"{n / 10:.1f} .. {(n + 1) / 10:.1f}",
            *(format_mean(by_class[p][n - 1]) for p in policies),
        )
        for n in tenths
    )
    unfair = {
        policy: [low / high for low, high in zip(values[0], values[-1], strict=True)]
        for policy, values in by_class.items()
    }
    return Report(
        (ReportTable("slowdown of the cheapest queries", ("selectivity", *policies), rows),),
        tuple(
            Claim(
                f"{a.upper()} treats low selectivity worse than {b.upper()}: lowest / highest class",
                "more",
                f"{format_spread(unfair[a])} against {format_spread(unfair[b])}",
                all(x > y for x, y in zip(unfair[a], unfair[b], strict=True)),
            )
            for a, b in (("hr", "hnr"), ("hnr", "bsd"))
        ),
        (
            Plot(
                "scheduling-classes",
                "slowdown of the cheapest queries",
                "selectivity",
                "slowdown",
                tuple(mean_line(p, [n / 10 for n in tenths], by_class[p]) for p in policies),
                logarithmic=True,
            ),
        ),
    )


def _class_slowdown(policy: str, settings: FigureSettings, seed: int, tenth: int) -> float:
    """The slowdown of the cheapest queries of one seed whose selectivity is in that tenth."""
    arrivals = on_off_arrivals(settings)
    chains = build_chains(arrivals, HIGHEST, seed)
    chosen = [
        query
        for query, chain in enumerate(chains)
        if cost_class(chains, query) == 0
        # A selectivity of 1 belongs to the last class.
        and min(9, int(chain.operators[0].selectivity * 10)) == tenth
    ]
    return run_policy(policy, arrivals, HIGHEST, seed).metrics(chosen).slowdown
