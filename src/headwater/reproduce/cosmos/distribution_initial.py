"""Table 3.2 and figure 3.8: the first distribution of queries, its cost and its time; what these depend on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from headwater.federation.distribution import baselines
from headwater.federation.distribution.delivery import star_trees
from headwater.federation.distribution.hierarchy import distribute
from headwater.federation.distribution.model import (
    Indices,
    Places,
    Problem,
    QueryGraph,
    Substreams,
    make_problem,
    make_query_graph,
)
from headwater.federation.distribution.objective import Objective, check
from headwater.reproduce.cosmos.distribution_worlds import (
    MEASURED_COLUMNS,
    DistributionWorld,
    Measured,
    hierarchy_settings,
    line,
    make_world,
    mapping_settings,
    measure,
    measured_cells,
    percent,
    seed_range,
    world_size,
)
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

NAIVE, GREEDY, CENTRALIZED, HIERARCHICAL = "naive", "greedy", "centralized", "hierarchical"
OURS = "hierarchical, traffic"
THESIS = (NAIVE, GREEDY, CENTRALIZED, HIERARCHICAL)

LOT = 0.20
"""By how much greedy has to be below naive to be "a lot better"."""

SIMILAR = 0.10
"""How far apart two costs may be that are "similar"."""

Run = tuple[str, int, int, Measured]
"""The algorithm, how many queries, the seed, and what came out."""


def example_problem() -> Problem:
    """Four queries of equal load, two origins with two substreams each, two providers.

    The numbers of the thesis's figure are lost; these are ours, small enough to compute by hand.
    """
    anchor = np.array([[1.0, 3.0], [3.0, 1.0], [0.0, 4.0], [4.0, 0.0]])
    places = Places(np.ones(2), np.array([[0.0, 4.0], [4.0, 0.0]]), anchor, star_trees(anchor[:2]))
    substreams = Substreams(np.array([10.0, 5.0, 10.0, 5.0]), np.array([0, 0, 1, 1], np.int32))
    interests = [[1, 2, 3], [0, 2], [0, 2, 3], [0, 1, 3]]
    queries = make_query_graph(interests, [1.0] * 4, [2, 3, 2, 3], [1.0] * 4)
    return make_problem(substreams, queries, places)


EXAMPLE_BY_HAND = {"home": 415.0, "best without sharing": 381.0, "best": 373.0}


def example_mappings(problem: Problem) -> dict[str, Indices]:
    """At home; the least cost if no two queries shared anything; the least WEC."""
    balanced = [
        np.array(places, np.int32)
        for places in itertools.product(range(2), repeat=4)
        if sum(places) == 2
    ]
    alone = [problem.with_queries(problem.queries.select(np.array([i]))) for i in range(4)]

    def unshared(place: Indices) -> float:
        return sum(check(one, place[i : i + 1]).wec for i, one in enumerate(alone))

    return {
        "home": baselines.naive(problem),
        "best without sharing": min(balanced, key=unshared),
        "best": min(balanced, key=lambda place: check(problem, place).wec),
    }


def example(settings: FigureSettings) -> Report:
    """Table 3.2 on an example of our own."""
    problem = example_problem()
    mappings = example_mappings(problem)
    found = {name: check(problem, place) for name, place in mappings.items()}
    rows = tuple(
        (
            name,
            " ".join(f"n{place + 1}" for place in mappings[name]),
            " / ".join(f"{load:g}" for load in one.load),
            one.wec,
            EXAMPLE_BY_HAND[name],
        )
        for name, one in found.items()
    )
    mapped = baselines.centralized(problem, mapping_settings(settings, "wec"))
    wecs = [one.wec for one in found.values()]
    return Report(
        (ReportTable("Three mappings", ("mapping", "queries at", "load", "WEC", "by hand"), rows),),
        (
            Claim(
                "home is worst, and sharing changes which mapping is best",
                "165 > 115 > 110",
                " > ".join(f"{wec:g}" for wec in wecs),
                wecs[0] > wecs[1] > wecs[2],
            ),
            Claim(
                "our mapping finds the best of all",
                "-",
                f"{check(problem, mapped).wec:g}",
                check(problem, mapped).wec == wecs[2],
            ),
        ),
    )


def run_algorithm(
    name: str, world: DistributionWorld, queries: QueryGraph, settings: FigureSettings
) -> Indices:
    problem = world.federation.problem(queries)
    if name == NAIVE:
        return baselines.naive(problem)
    if name == GREEDY:
        return baselines.greedy(problem, "wec")
    objective: Objective = "traffic" if name.endswith("traffic") else "wec"
    if name.startswith(CENTRALIZED):
        return baselines.centralized(problem, mapping_settings(settings, objective))
    return distribute(world.federation, queries, hierarchy_settings(settings, objective)).place


def query_numbers(settings: FigureSettings) -> tuple[int, ...]:
    return (200, 400, 800) if settings.quick else (5_000, 10_000, 20_000)


def by_queries(settings: FigureSettings) -> Report:
    """Figure 3.8(a): the cost of the first distribution; with measured latencies and rates too where they are given."""
    names = (*THESIS, OURS)
    runs = _runs("figure 3.8(a)", names, settings)
    reports = [_cost_report("COSMOS 3.8(a)", "cosmos-fig3-8a", names, runs)]
    claims = [*_order_claims(runs, ""), *_own_claims(runs)]
    if settings.data is not None:
        measured = _runs("measured latencies and rates", names, settings, on_data=True)
        title = "COSMOS 3.8(a) with measured latencies and rates"
        reports.append(_cost_report(title, "cosmos-fig3-8a-measured", names, measured))
        claims += _order_claims(measured, ", measured latencies and rates")
    return Report(
        tuple(table for one in reports for table in one.tables),
        tuple(claims),
        tuple(plot for one in reports for plot in one.plots),
    )


def _runs(
    title: str, names: Sequence[str], settings: FigureSettings, on_data: bool = False
) -> list[Run]:
    jobs: list[Callable[[], Run]] = []
    data = settings.data if on_data else None
    for seed in seed_range(settings):
        world = make_world(world_size(settings), seed, data=data)
        for number in query_numbers(settings):
            queries = world.queries(number, seed)
            for name in names:
                jobs.append(_job(name, number, seed, world, queries, settings))
    return run_in_parallel(title, jobs)


def _job(
    name: str,
    number: int,
    seed: int,
    world: DistributionWorld,
    queries: QueryGraph,
    settings: FigureSettings,
) -> Callable[[], Run]:
    def run() -> Run:
        place = run_algorithm(name, world, queries, settings)
        return name, number, seed, measure(world, queries, place)

    return run


def _cost_report(title: str, plot: str, names: Sequence[str], runs: Sequence[Run]) -> Report:
    rows: list[tuple[Cell, ...]] = [
        (number, name, *measured_cells(one)) for name, number, _, one in runs
    ]
    numbers = sorted({number for _, number, _, _ in runs})
    lines = tuple(
        line(name, {float(n): float(np.mean(_values(runs, name, n))) for n in numbers})
        for name in names
    )
    return Report(
        (ReportTable(title, ("queries", "algorithm", *MEASURED_COLUMNS), tuple(rows)),),
        (),
        (Plot(plot, title, "queries", "communication cost (bytes)", lines),),
    )


def _values(runs: Sequence[Run], name: str, number: int | None = None) -> list[float]:
    """Costs of an algorithm, in the order of the runs."""
    return [one.cost for n, size, _, one in runs if n == name and number in (None, size)]


def _ratios(runs: Sequence[Run], name: str, by: str) -> list[float]:
    # Both in the order of seeds and numbers: each pair is of the same queries.
    pairs = zip(_values(runs, name), _values(runs, by), strict=True)
    return [mine / other for mine, other in pairs]


def _percentages(ratios: Sequence[float]) -> str:
    return format_spread([100 * (ratio - 1) for ratio in ratios], 1, " %")


def _order_claims(runs: Sequence[Run], where: str) -> list[Claim]:
    """The thesis's sentences on figure 3.8(a); each has to hold for every number of queries and seed."""
    greedy, central = _ratios(runs, GREEDY, NAIVE), _ratios(runs, CENTRALIZED, GREEDY)
    others = [_ratios(runs, name, NAIVE) for name in (GREEDY, CENTRALIZED, HIERARCHICAL)]
    similar = _ratios(runs, HIERARCHICAL, CENTRALIZED)
    hierarchical = _ratios(runs, HIERARCHICAL, GREEDY)
    return [
        Claim(
            f"naive is the worst{where}: the best of the others against it",
            "worst",
            _percentages([min(ratios) for ratios in zip(*others, strict=True)]),
            all(ratio < 1 for ratios in others for ratio in ratios),
        ),
        Claim(
            f"greedy against naive{where}",
            "a lot better",
            _percentages(greedy),
            max(greedy) < 1 - LOT,
        ),
        Claim(
            f"centralized and hierarchical are best{where}: against greedy",
            "best",
            f"{_percentages(central)}; {_percentages(hierarchical)}",
            max(*central, *hierarchical) < 1,
        ),
        Claim(
            f"hierarchical against centralized{where}",
            "similar",
            _percentages(similar),
            max(abs(ratio - 1) for ratio in similar) <= SIMILAR,
        ),
    ]


def _own_claims(runs: Sequence[Run]) -> list[Claim]:
    ours = _ratios(runs, OURS, HIERARCHICAL)
    largest = max(one.largest for name, _, _, one in runs if name in (HIERARCHICAL, OURS))
    return [
        Claim(
            "ours: traffic as objective against WEC, both hierarchical",
            "-",
            _percentages(ours),
            max(ours) < 1,
        ),
        Claim(
            "ours: largest load by its share, hierarchical",
            "1.10 is allowed",
            f"{largest:.3f}",
            largest <= 1.10 * (1 + 1e-9),
        ),
    ]


def times(settings: FigureSettings) -> Report:
    """Figure 3.8(b): seconds of the mapping, of the longest chain of coordinators and of all."""
    rows: list[tuple[Cell, ...]] = []
    curves: dict[str, dict[float, float]] = {name: {} for name in _TIME_CURVES}
    ratios = []
    for seed in seed_range(settings):
        world = make_world(world_size(settings), seed)
        # What is compiled by the first call is not part of the time.
        few = world.queries(50, seed)
        for name in (CENTRALIZED, HIERARCHICAL):
            run_algorithm(name, world, few, settings)
        for number in query_numbers(settings):
            queries = world.queries(number, seed)
            begun = time.process_time()
            run_algorithm(CENTRALIZED, world, queries, settings)
            central = time.process_time() - begun
            hierarchy = hierarchy_settings(settings, "wec")
            found = distribute(world.federation, queries, hierarchy, clock=time.process_time)
            seconds = (central, found.response_seconds, found.total_seconds)
            rows.append((number, seed, *(round(one, 3) for one in seconds)))
            for name, one in zip(_TIME_CURVES, seconds, strict=True):
                curves[name][float(number)] = one
            ratios.append((found.response_seconds / central, found.total_seconds / central))
    title = "Seconds of the first distribution"
    response, total = zip(*ratios, strict=True)
    return Report(
        (ReportTable(title, ("queries", "seed", *_TIME_CURVES), tuple(rows)),),
        (
            Claim(
                "response time of hierarchical, by centralized",
                "much lower",
                format_spread(response, 2),
                max(response) < 0.5,
            ),
            Claim(
                "total time of hierarchical, by centralized",
                "much lower",
                format_spread(total, 2),
                max(total) < 0.5,
            ),
        ),
        (
            Plot(
                "cosmos-fig3-8b",
                title,
                "queries",
                "seconds",
                tuple(line(name, points) for name, points in curves.items()),
                logarithmic=True,
            ),
        ),
    )


_TIME_CURVES = ("centralized", "hierarchical, response", "hierarchical, total")


def objectives(settings: FigureSettings) -> Report:
    """Ours: the same algorithms with WEC and with traffic as objective."""
    names = (NAIVE, HIERARCHICAL, OURS, CENTRALIZED, f"{CENTRALIZED}, traffic")
    runs = _runs("objectives", names, settings)
    report = _cost_report("WEC or traffic as objective", "cosmos-objective", names, runs)
    pairs = ((HIERARCHICAL, OURS), (CENTRALIZED, f"{CENTRALIZED}, traffic"))
    claims = tuple(
        Claim(
            f"{by_wec}: cost by traffic against by WEC",
            "-",
            _percentages(_ratios(runs, by_traffic, by_wec)),
            max(_ratios(runs, by_traffic, by_wec)) < 1,
        )
        for by_wec, by_traffic in pairs
    )
    return replace(report, claims=claims)


def sensitivity(settings: FigureSettings) -> Report:
    """Ours: where "naive is the worst" holds, by rate of results, skew and number of groups."""
    size = world_size(settings)
    base = size.workload
    number = query_numbers(settings)[1]
    variants = {
        **{f"results {share:.0%}": replace(base, result_share=share) for share in RESULT_SHARES},
        **{f"Zipf {zipf:g}": replace(base, zipf=zipf) for zipf in (1.0, 1.2)},
        **{f"{groups} groups": replace(base, groups=groups) for groups in (5, 100)},
    }
    names = (NAIVE, GREEDY, HIERARCHICAL, OURS)
    rows, holds = [], []
    for variant, workload in variants.items():
        jobs = []
        for seed in seed_range(settings):
            world = make_world(size, seed, workload=workload)
            queries = world.queries(number, seed)
            jobs += [_job(name, number, seed, world, queries, settings) for name in names]
        runs = run_in_parallel(variant, jobs)
        costs = {name: float(np.mean(_values(runs, name))) for name in names}
        worst = all(costs[NAIVE] > costs[name] for name in (GREEDY, HIERARCHICAL))
        holds.append((variant, worst))
        rows.append(
            (
                variant,
                round(costs[NAIVE]),
                *(percent(costs[name], costs[NAIVE]) for name in names[1:]),
                "yes" if worst else "no",
            )
        )
    claim = Claim(
        "naive is the worst, whatever the rate of results, skew and groups",
        "worst",
        "not with " + ", ".join(name for name, worst in holds if not worst)
        if not all(worst for _, worst in holds)
        else "everywhere",
        all(worst for _, worst in holds),
    )
    columns = ("world", NAIVE, *(f"{name} against it" for name in names[1:]), "naive is worst")
    title = f"Communication cost of {number:,} queries"
    return Report((ReportTable(title, columns, tuple(rows)),), (claim,))


# The thesis does not say how large results are, and the order of its curves depends on it.
RESULT_SHARES = (0.0, 0.01, 0.05, 0.10, 0.50)
