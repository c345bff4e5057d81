"""BSD made cheap, with the cost of its own decisions counted: figures 13 and 14."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headwater.reproduce.figure import Cell, Claim, Plot, Report, Settings, Table, spread
from headwater.reproduce.progress import in_parallel
from headwater.reproduce.scheduling.runs import (
    chains_for,
    line_of,
    mean_of,
    on_off,
    outcome,
    seeds_of,
)
from headwater.schedule import POLICIES, Waiting
from headwater.schedule.clusters import Clusters, logarithmic, singles, uniform
from headwater.sim.arrivals import OnOff
from headwater.sim.clustered import run_clustered

LOAD = 0.95
COUNTS = (2, 4, 6, 8, 10, 12, 16, 20, 25, 30)
PAPER_COUNT = 12
TUPLES = 1000
SMALL = 4


def standings(arrivals: OnOff, seed: int) -> list[float]:
    """The standing of each query under BSD."""
    bsd = POLICIES["bsd"]
    chains = chains_for(arrivals, LOAD, seed)
    return [bsd.standing(Waiting("", 0.0, (chain.segment(),))) for chain in chains]


def _against_ideal(
    arrivals: OnOff,
    clustering: Callable[[Sequence[float]], Clusters],
    seed: int,
    pruned: bool = True,
    together: bool = True,
    price: float | None = None,
) -> float:
    """The l2 norm of a cheap form by that of BSD whose decisions cost nothing."""
    clusters = clustering(standings(arrivals, seed))
    chains = chains_for(arrivals, LOAD, seed)
    run = run_clustered(chains, clusters, arrivals, seed, pruned, together, price)
    return run.metrics().l2 / outcome("bsd", arrivals, LOAD, seed).metrics().l2


def by_clusters(settings: Settings) -> Report:
    """Figure 13."""
    arrivals, seeds = on_off(settings, TUPLES), seeds_of(settings)
    forms: dict[str, tuple[Callable[[Sequence[float], int], Clusters], float | None]] = {
        "logarithmic": (logarithmic, None),
        "uniform": (uniform, None),
        "logarithmic, decisions free": (logarithmic, 0.0),
    }
    counts = (SMALL, PAPER_COUNT) if settings.quick else COUNTS
    cells = [(form, count) for form in forms for count in counts]
    jobs = [
        partial(
            _against_ideal,
            arrivals,
            partial(_counted, forms[form][0], count),
            seed,
            price=forms[form][1],
        )
        for form, count in cells
        for seed in seeds
    ]
    done = in_parallel("clusters", jobs)
    size = len(seeds)
    values = {cell: done[n * size : (n + 1) * size] for n, cell in enumerate(cells)}
    hnr = [
        outcome("hnr", arrivals, LOAD, seed).metrics().l2
        / outcome("bsd", arrivals, LOAD, seed).metrics().l2
        for seed in seeds
    ]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (m, *(mean_of(values[form, m]) for form in forms)) for m in counts
    )
    at_twelve = values["logarithmic", PAPER_COUNT]
    free = values["logarithmic, decisions free", PAPER_COUNT]
    lines = [line_of(form, counts, [values[form, m] for m in counts]) for form in forms]
    lines.append(line_of("hnr", counts, [hnr for _ in counts]))
    title = f"l2 norm against ideal BSD at load {LOAD}"
    return Report(
        (Table(title, ("clusters", *forms), rows),),
        (
            _within("12 logarithmic clusters against ideal BSD, decisions free", free),
            _within("12 logarithmic clusters against ideal BSD, decisions paid for", at_twelve),
            Claim(
                "12 logarithmic clusters, paid for, are better than 12 uniform ones",
                "yes",
                f"{spread(at_twelve, 2)} against {spread(values['uniform', PAPER_COUNT], 2)}",
                _all_below(at_twelve, values["uniform", PAPER_COUNT]),
            ),
            Claim(
                f"{SMALL} logarithmic clusters are no better than HNR",
                "may exceed it below 6",
                f"{spread(values['logarithmic', SMALL], 2)} against {spread(hnr, 2)}",
                _mean(values["logarithmic", SMALL]) > _mean(hnr),
            ),
        ),
        (Plot("scheduling-clusters", title, "clusters", "l2 / ideal", tuple(lines), True),),
    )


def _counted(
    clustering: Callable[[Sequence[float], int], Clusters], count: int, values: Sequence[float]
) -> Clusters:
    return clustering(values, count)


def _within(what: str, ours: Sequence[float]) -> Claim:
    more = [100 * (value - 1) for value in ours]
    return Claim(what, "+5 %", spread(more, 1, " %"), _mean(more) <= 5 * 4 / 3)


def _all_below(ours: Sequence[float], others: Sequence[float]) -> bool:
    return all(one < other for one, other in zip(ours, others, strict=True))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def steps(settings: Settings) -> Report:
    """Figure 14."""
    arrivals, seeds = on_off(settings, TUPLES), seeds_of(settings)
    twelve = partial(_counted, logarithmic, PAPER_COUNT)
    forms: dict[str, tuple[Callable[[Sequence[float]], Clusters], bool, bool]] = {
        "every query at every decision": (singles, False, False),
        "12 logarithmic clusters": (twelve, False, False),
        "and Fagin's pruning": (twelve, True, False),
        "and clustered processing": (twelve, True, True),
    }
    jobs = [
        partial(_against_ideal, arrivals, clustering, seed, pruned, together)
        for clustering, pruned, together in forms.values()
        for seed in seeds
    ]
    done = in_parallel("implementation", jobs)
    size = len(seeds)
    values = {form: done[n * size : (n + 1) * size] for n, form in enumerate(forms)}
    naive, *better = values.values()
    falling = all(
        _all_below(after, before) for before, after in zip([naive, *better], better, strict=False)
    )
    rows = tuple((form, mean_of(some)) for form, some in values.items())
    return Report(
        (Table(f"l2 norm against ideal BSD at load {LOAD}", ("form", "l2 / ideal"), rows),),
        (
            Claim(
                "deciding naively raises the l2 norm many times",
                "+6470 %",
                spread([100 * (v - 1) for v in naive], 0, " %"),
                min(naive) > 10,
            ),
            Claim("every step lowers it", "yes", "on every seed" if falling else "no", falling),
        ),
    )
