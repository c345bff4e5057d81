"""Queries over one stream as the load grows: figures 5 to 11."""

from __future__ import annotations

from collections.abc import Callable

from headwater.reproduce.figure import Claim, Plot, Report, Settings, Table, spread
from headwater.reproduce.scheduling.runs import (
    HIGHEST,
    LOADS,
    BySeed,
    below,
    chains_for,
    line_of,
    lower,
    mean_of,
    on_off,
    outcome,
    outcomes,
    plot_by_load,
    seeds_of,
    table_by_load,
)
from headwater.sim.metrics import Metrics
from headwater.sim.workload import cost_class

EVERY = ("fcfs", "rr", "srpt", "hr", "hnr", "lsf", "bsd", "bsd-early")


def slowdown(metrics: Metrics) -> float:
    return metrics.slowdown


def response_time(metrics: Metrics) -> float:
    return metrics.response


def largest(metrics: Metrics) -> float:
    return metrics.maximum


def norm(metrics: Metrics) -> float:
    return metrics.l2


def _runs(settings: Settings, title: str) -> BySeed:
    loads = LOADS[2::4] if settings.quick else LOADS
    return outcomes(title, EVERY, on_off(settings), loads, seeds_of(settings))


def _figure(
    settings: Settings,
    name: str,
    title: str,
    metric: Callable[[Metrics], float],
    claims: Callable[[BySeed], tuple[Claim, ...]],
) -> Report:
    runs = _runs(settings, title)
    return Report(
        (table_by_load(title, runs, EVERY, metric),),
        claims(runs),
        (plot_by_load(name, title, title, runs, EVERY, metric),),
    )


def average(settings: Settings) -> Report:
    """Figure 5."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        paper = {0.7: (74, 51, 18), HIGHEST: (75, 53, 20)}
        return tuple(
            lower(
                f"HNR's average slowdown at {load} against {other.upper()}",
                size,
                below(runs["hnr", load], runs[other, load], slowdown),
            )
            for load, sizes in paper.items()
            for other, size in zip(("rr", "srpt", "hr"), sizes, strict=True)
        )

    return _figure(settings, "scheduling-average", "average slowdown", slowdown, claims)


def response(settings: Settings) -> Report:
    """Figure 6."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        found = []
        for load, paper in ((0.7, 4), (HIGHEST, 7)):
            more = [-v for v in below(runs["hnr", load], runs["hr", load], response_time)]
            what = f"HNR's response at {load} against HR: a little higher"
            found.append(Claim(what, f"+{paper} %", spread(more, 1, " %"), min(more) > 0))
        return tuple(found)

    return _figure(settings, "scheduling-response", "average response", response_time, claims)


def maximum(settings: Settings) -> Report:
    """Figure 7."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        values = below(runs["lsf", HIGHEST], runs["hnr", HIGHEST], largest)
        return (lower(f"LSF's maximum slowdown at {HIGHEST} against HNR", 80, values),)

    return _figure(settings, "scheduling-maximum", "maximum slowdown", largest, claims)


def tradeoff(settings: Settings) -> Report:
    """Figures 8 and 9."""
    load = HIGHEST if settings.quick else 0.95
    runs = _runs(settings, "average and maximum slowdown")
    rows = tuple(
        (
            policy,
            mean_of([slowdown(one) for one in runs[policy, load]]),
            mean_of([largest(one) for one in runs[policy, load]]),
        )
        for policy in ("hnr", "lsf", "bsd", "bsd-early")
    )
    return Report(
        (Table(f"average and maximum at load {load}", ("policy", "average", "maximum"), rows),),
        (
            lower(
                f"BSD's maximum slowdown at {load} against HNR",
                44,
                below(runs["bsd", load], runs["hnr", load], largest),
            ),
            lower(
                f"BSD's average slowdown at {load} against LSF",
                80,
                below(runs["bsd", load], runs["lsf", load], slowdown),
            ),
        ),
    )


def l2(settings: Settings) -> Report:
    """Figure 10."""

    def claims(runs: BySeed) -> tuple[Claim, ...]:
        return tuple(
            lower(
                f"BSD's l2 norm at {HIGHEST} against {other.upper()}",
                size,
                below(runs["bsd", HIGHEST], runs[other, HIGHEST], norm),
            )
            for other, size in (("lsf", 57), ("hnr", 24))
        )

    return _figure(settings, "scheduling-l2", "l2 norm of slowdowns", norm, claims)


def classes(settings: Settings) -> Report:
    """Figure 11: the cheapest queries, by their selectivity."""
    arrivals, seeds, policies = on_off(settings), seeds_of(settings), ("hr", "hnr", "bsd")
    outcomes("slowdown by class", policies, arrivals, [HIGHEST], seeds)
    tenths = range(1, 10)
    by_class = {
        policy: [[_of_class(policy, settings, seed, tenth) for seed in seeds] for tenth in tenths]
        for policy in policies
    }
    rows = tuple(
        (f"{n / 10:.1f} .. {(n + 1) / 10:.1f}", *(mean_of(by_class[p][n - 1]) for p in policies))
        for n in tenths
    )
    unfair = {
        policy: [low / high for low, high in zip(values[0], values[-1], strict=True)]
        for policy, values in by_class.items()
    }
    return Report(
        (Table("slowdown of the cheapest queries", ("selectivity", *policies), rows),),
        tuple(
            Claim(
                f"{a.upper()} treats low selectivity worse than {b.upper()}: lowest / highest class",
                "more",
                f"{spread(unfair[a])} against {spread(unfair[b])}",
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
                tuple(line_of(p, [n / 10 for n in tenths], by_class[p]) for p in policies),
                logarithmic=True,
            ),
        ),
    )


def _of_class(policy: str, settings: Settings, seed: int, tenth: int) -> float:
    """The slowdown of the cheapest queries of one seed whose selectivity is in that tenth."""
    arrivals = on_off(settings)
    chains = chains_for(arrivals, HIGHEST, seed)
    chosen = [
        query
        for query, chain in enumerate(chains)
        if cost_class(chains, query) == 0
        and min(9, int(chain.operators[0].selectivity * 10)) == tenth
    ]
    return outcome(policy, arrivals, HIGHEST, seed).metrics(chosen).slowdown
