"""Cheaper forms of BSD, with the cost of their own decisions counted: figures 13 and 14."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headwater.reproduce.figure import (
    Cell,
    Claim,
    FigureSettings,
    Plot,
    Report,
    ReportTable,
    format_spread,
)
from headwater.reproduce.progress import run_in_parallel
from headwater.reproduce.scheduling.runs import (
    build_chains,
    format_mean,
    mean_line,
    on_off_arrivals,
    run_policy,
    seed_range,
)
from headwater.schedule import POLICIES, Candidate
from headwater.schedule.clusters import (
    Clusters,
    logarithmic_clusters,
    singleton_clusters,
    uniform_clusters,
)
from headwater.sim.arrivals import OnOff
from headwater.sim.clustered import run_clustered

LOAD = 0.95
COUNTS = (2, 4, 6, 8, 10, 12, 16, 20, 25, 30)
PAPER_COUNT = 12
TUPLES = 1000
SMALL = 4


def static_priorities(arrivals: OnOff, seed: int) -> list[float]:
    """The static priority of each query under BSD."""
    bsd = POLICIES["bsd"]
    chains = build_chains(arrivals, LOAD, seed)
    return [bsd.static_priority(Candidate("", 0.0, (chain.segment(),))) for chain in chains]


def _against_ideal(
    arrivals: OnOff,
    clustering: Callable[[Sequence[float]], Clusters],
    seed: int,
    pruned: bool = True,
    together: bool = True,
    price: float | None = None,
) -> float:
    """The l2 norm of a cheap variant divided by that of BSD whose decisions cost nothing."""
    clusters = clustering(static_priorities(arrivals, seed))
    chains = build_chains(arrivals, LOAD, seed)
    run = run_clustered(chains, clusters, arrivals, seed, pruned, together, price)
    return run.metrics().l2 / run_policy("bsd", arrivals, LOAD, seed).metrics().l2


def by_clusters(settings: FigureSettings) -> Report:
    """Figure 13."""
    arrivals, seeds = on_off_arrivals(settings, TUPLES), seed_range(settings)
    variants: dict[str, tuple[Callable[[Sequence[float], int], Clusters], float | None]] = {
        "logarithmic": (logarithmic_clusters, None),
        "uniform": (uniform_clusters, None),
        # What the approximation itself costs, without the time that deciding takes.
        "logarithmic, decisions free": (logarithmic_clusters, 0.0),
    }
    counts = (SMALL, PAPER_COUNT) if settings.quick else COUNTS
    cells = [(variant, count) for variant in variants for count in counts]
    jobs = [
        partial(
            _against_ideal,
            arrivals,
            partial(_cluster_with_count, variants[variant][0], count),
            seed,
            price=variants[variant][1],
        )
        for variant, count in cells
        for seed in seeds
    ]
    done = run_in_parallel("clusters", jobs)
    size = len(seeds)
    values = {cell: done[n * size : (n + 1) * size] for n, cell in enumerate(cells)}
    hnr = [
        run_policy("hnr", arrivals, LOAD, seed).metrics().l2
        / run_policy("bsd", arrivals, LOAD, seed).metrics().l2
        for seed in seeds
    ]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (m, *(format_mean(values[variant, m]) for variant in variants)) for m in counts
    )
    at_twelve = values["logarithmic", PAPER_COUNT]
    free = values["logarithmic, decisions free", PAPER_COUNT]
    lines = [
        mean_line(variant, counts, [values[variant, m] for m in counts]) for variant in variants
    ]
    lines.append(mean_line("hnr", counts, [hnr for _ in counts]))
    title = f"l2 norm against ideal BSD at load {LOAD}"
    return Report(
        (ReportTable(title, ("clusters", *variants), rows),),
        (
            _claim_within("12 logarithmic clusters against ideal BSD, decisions free", free),
            _claim_within(
                "12 logarithmic clusters against ideal BSD, decisions paid for", at_twelve
            ),
            Claim(
                "12 logarithmic clusters, paid for, are better than 12 uniform ones",
                "yes",
                f"{format_spread(at_twelve, 2)} against {format_spread(values['uniform', PAPER_COUNT], 2)}",
                _all_below(at_twelve, values["uniform", PAPER_COUNT]),
            ),
            Claim(
                f"{SMALL} logarithmic clusters are no better than HNR",
                "may exceed it below 6",
                f"{format_spread(values['logarithmic', SMALL], 2)} against {format_spread(hnr, 2)}",
                _mean(values["logarithmic", SMALL]) > _mean(hnr),
            ),
        ),
        (Plot("scheduling-clusters", title, "clusters", "l2 / ideal", tuple(lines), True),),
    )


def _cluster_with_count(
    clustering: Callable[[Sequence[float], int], Clusters], count: int, values: Sequence[float]
) -> Clusters:
    return clustering(values, count)


def _claim_within(what: str, ours: Sequence[float]) -> Claim:
    more = [100 * (value - 1) for value in ours]
    # The paper's figure, with a tolerance of a third.
    return Claim(what, "+5 %", format_spread(more, 1, " %"), _mean(more) <= 5 * 4 / 3)


def _all_below(ours: Sequence[float], others: Sequence[float]) -> bool:
    return all(mine < other for mine, other in zip(ours, others, strict=True))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def implementation_steps(settings: FigureSettings) -> Report:
    """Figure 14."""
    arrivals, seeds = on_off_arrivals(settings, TUPLES), seed_range(settings)
    twelve = partial(_cluster_with_count, logarithmic_clusters, PAPER_COUNT)
    variants: dict[str, tuple[Callable[[Sequence[float]], Clusters], bool, bool]] = {
        "every query at every decision": (singleton_clusters, False, False),
        "12 logarithmic clusters": (twelve, False, False),
        "and Fagin's pruning": (twelve, True, False),
        "and clustered processing": (twelve, True, True),
    }
    jobs = [
        partial(_against_ideal, arrivals, clustering, seed, pruned, together)
        for clustering, pruned, together in variants.values()
        for seed in seeds
    ]
    done = run_in_parallel("implementation", jobs)
    size = len(seeds)
    values = {variant: done[n * size : (n + 1) * size] for n, variant in enumerate(variants)}
    naive, *better = values.values()
    falling = all(
        _all_below(after, before) for before, after in zip([naive, *better], better, strict=False)
    )
    rows = tuple((variant, format_mean(some)) for variant, some in values.items())
    return Report(
        (ReportTable(f"l2 norm against ideal BSD at load {LOAD}", ("form", "l2 / ideal"), rows),),
        (
            Claim(
                "deciding naively raises the l2 norm many times",
                "+6470 %",
                format_spread([100 * (v - 1) for v in naive], 0, " %"),
                # Not the paper's number: that depends on how long queues grow, and so on how long a
                # run is.
                min(naive) > 10,
            ),
            Claim("every step lowers it", "yes", "on every seed" if falling else "no", falling),
        ),
    )
