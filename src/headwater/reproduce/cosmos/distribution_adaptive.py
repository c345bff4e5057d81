"""Figures 3.9 to 3.12: adaptation from a bad start, new queries, sizes of clusters, and changes of rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from headwater.federation.distribution import baselines
from headwater.federation.distribution.adaptation import ROUND_SECONDS, adapt
from headwater.federation.distribution.hierarchy import distribute
from headwater.federation.distribution.model import QueryGraph, Substreams, concatenate
from headwater.federation.distribution.routing import OnlineRouter, make_table, route_batch
from headwater.reproduce.cosmos.distribution_worlds import (
    MEASURED_COLUMNS,
    DistributionWorld,
    Measured,
    adaptation_settings,
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

NEAR = 0.10
"""How far above another a cost may be that "approaches" it or is "close" to it."""

THESIS_RATE = 800_000

Series = dict[str, list[Measured]]


def start_queries(settings: FigureSettings) -> int:
    return 400 if settings.quick else 15_000


def inaccurate(settings: FigureSettings) -> Report:
    """Figure 3.9: rounds of adaptation from a random mapping and from a good one."""
    runs = [_inaccurate_series(settings, seed) for seed in seed_range(settings)]
    names = ("NA-Inaccurate", "A-Inaccurate", "A-Accurate")
    ends = [{name: series[name][-1] for name in names} for series, _ in runs]
    first = [series["A-Inaccurate"][0] for series, _ in runs]
    near = [end["A-Inaccurate"].cost / end["A-Accurate"].cost - 1 for end in ends]
    report = _series_report("COSMOS 3.9", "cosmos-fig3-9", runs[0][0], ROUND_SECONDS)
    return replace(
        report,
        claims=(
            Claim(
                "cost of A-Inaccurate in the end, against A-Accurate",
                "approaches it",
                format_spread([100 * one for one in near], 1, " %"),
                max(near) <= NEAR,
            ),
            Claim(
                "deviation of loads in the end: A-Inaccurate, A-Accurate",
                "approaches it",
                "; ".join(
                    f"{end['A-Inaccurate'].deviation:.3f}, {end['A-Accurate'].deviation:.3f}"
                    for end in ends
                ),
                all(
                    abs(end["A-Inaccurate"].deviation - end["A-Accurate"].deviation) <= 0.05
                    and end["A-Inaccurate"].deviation < start.deviation
                    for end, start in zip(ends, first, strict=True)
                ),
            ),
            Claim(
                "cost of A-Inaccurate in the end, against NA-Inaccurate",
                "lower",
                "; ".join(
                    percent(end["A-Inaccurate"].cost, end["NA-Inaccurate"].cost) for end in ends
                ),
                all(end["A-Inaccurate"].cost < end["NA-Inaccurate"].cost for end in ends),
            ),
        ),
    )


def _inaccurate_series(settings: FigureSettings, seed: int) -> tuple[Series, dict[str, list[int]]]:
    world = make_world(world_size(settings), seed)
    queries = world.queries(start_queries(settings), seed)
    problem = world.federation.problem(queries)
    drawn = baselines.random_mapping(problem, seed)
    good = distribute(world.federation, queries, hierarchy_settings(settings, "wec")).place
    series: Series = {"NA-Inaccurate": [], "A-Inaccurate": [], "A-Accurate": []}
    places = {"NA-Inaccurate": drawn, "A-Inaccurate": drawn, "A-Accurate": good}
    moves: dict[str, list[int]] = {name: [] for name in places}
    for _ in range(6 if settings.quick else 8):
        for name, place in places.items():
            series[name].append(measure(world, queries, place))
            if name != "NA-Inaccurate":
                done = adapt(world.federation, queries, place, adaptation_settings(settings, "wec"))
                places[name] = done.place
                moves[name].append(done.migrations)
    return series, moves


def _series_report(title: str, name: str, series: Series, step: float) -> Report:
    rows: list[tuple[Cell, ...]] = [
        (at * step, curve, *measured_cells(one))
        for curve, values in series.items()
        for at, one in enumerate(values)
    ]

    def plot(suffix: str, y: str, value: Callable[[Measured], float]) -> Plot:
        lines = tuple(
            line(curve, {at * step: value(one) for at, one in enumerate(values)})
            for curve, values in series.items()
        )
        return Plot(f"{name}{suffix}", title, "seconds", y, lines)

    return Report(
        (ReportTable(title, ("seconds", "curve", *MEASURED_COLUMNS), tuple(rows)),),
        (),
        (
            plot("a", "communication cost (bytes)", lambda one: one.cost),
            plot("b", "standard deviation of load by share", lambda one: one.deviation),
        ),
    )


def arrivals(settings: FigureSettings) -> Report:
    """Figure 3.10: new queries at every interval, placed at random, routed, routed and adapted."""
    runs = [_arrival_series(settings, seed) for seed in seed_range(settings)]
    report = _series_report("COSMOS 3.10", "cosmos-fig3-10", runs[0], ROUND_SECONDS)
    ends = [{name: values[-1] for name, values in series.items()} for series in runs]
    starts = [{name: values[0] for name, values in series.items()} for series in runs]
    return replace(
        report,
        claims=(
            Claim(
                "cost in the end: Random against Online",
                "Random is worse",
                "; ".join(percent(end["Random"].cost, end["Online"].cost) for end in ends),
                all(end["Random"].cost > end["Online"].cost for end in ends),
            ),
            Claim(
                "deviation of loads with Online: at first, in the end",
                "grows",
                "; ".join(
                    f"{start['Online'].deviation:.3f}, {end['Online'].deviation:.3f}"
                    for start, end in zip(starts, ends, strict=True)
                ),
                all(
                    end["Online"].deviation > start["Online"].deviation
                    for start, end in zip(starts, ends, strict=True)
                ),
            ),
            Claim(
                "cost in the end: Online-Adaptive against Online",
                "best",
                "; ".join(percent(end["Online-Adaptive"].cost, end["Online"].cost) for end in ends),
                all(
                    end["Online-Adaptive"].cost <= min(end["Online"].cost, end["Random"].cost)
                    for end in ends
                ),
            ),
            Claim(
                "deviation of loads in the end: Online-Adaptive, Online, Random",
                "Online-Adaptive is best",
                "; ".join(
                    ", ".join(
                        f"{end[name].deviation:.3f}"
                        for name in ("Online-Adaptive", "Online", "Random")
                    )
                    for end in ends
                ),
                all(
                    end["Online-Adaptive"].deviation
                    <= min(end["Online"].deviation, end["Random"].deviation)
                    for end in ends
                ),
            ),
        ),
    )


def _arrival_series(settings: FigureSettings, seed: int) -> Series:
    world = make_world(world_size(settings), seed)
    federation = world.federation
    known = world.queries(start_queries(settings), seed)
    place = distribute(federation, known, hierarchy_settings(settings, "wec")).place
    places = {"Random": place, "Online": place, "Online-Adaptive": place}
    series: Series = {name: [measure(world, known, place)] for name in places}
    for step in range(5 if settings.quick else 10):
        new = world.queries(start_queries(settings) // 20, 1000 * seed + step)
        drawn = np.random.default_rng((seed, step)).integers(0, len(federation.places), len(new))
        together = concatenate([known, new])
        for name, before in places.items():
            if name == "Random":
                hosts = drawn.astype(np.int32)
            else:
                # The thesis routes by WEC alone.
                hosts = OnlineRouter(federation, known, before, "wec", bounded=False).route(new)
            after = np.concatenate((before, hosts))
            if name == "Online-Adaptive":
                rounds = adaptation_settings(settings, "wec")
                after = adapt(federation, together, after, rounds).place
            places[name] = after
            series[name].append(measure(world, together, after))
        known = together
    return series


def cluster_sizes(settings: FigureSettings) -> Report:
    """Figure 3.11: the least size k of clusters, how fast the root routes, and the cost."""
    sizes = (2, 4, 8) if settings.quick else (2, 4, 8, 16)
    rows: list[tuple[Cell, ...]] = []
    rates: dict[int, list[float]] = {k: [] for k in sizes}
    costs: dict[int, list[float]] = {k: [] for k in sizes}
    children: dict[int, list[int]] = {k: [] for k in sizes}
    for seed in seed_range(settings):
        for k in sizes:
            world = make_world(world_size(settings), seed, k)
            queries = world.queries(start_queries(settings), seed)
            hierarchy = hierarchy_settings(settings, "wec")
            place = distribute(world.federation, queries, hierarchy).place
            rate = _routing_rate(world, queries, place)
            found = measure(world, queries, place)
            rates[k].append(rate)
            costs[k].append(found.cost)
            children[k].append(len(world.federation.tree.branches))
            rows.append((k, children[k][-1], round(rate), *measured_cells(found)))
    mean = {k: float(np.mean(rates[k])) for k in sizes}
    cost = {k: float(np.mean(costs[k])) for k in sizes}
    title = "COSMOS 3.11"
    columns = ("k", "children of the root", "queries/s at the root", *MEASURED_COLUMNS)
    return Report(
        (ReportTable(title, columns, tuple(rows)),),
        (
            Claim(
                "queries a second that the root routes, by k",
                "higher with smaller k",
                _by_k({k: f"{rate:,.0f}" for k, rate in mean.items()}),
                mean[sizes[0]] > mean[sizes[-1]],
            ),
            Claim(
                "cost by k",
                "lower with larger k",
                _by_k({k: f"{one:,.0f}" for k, one in cost.items()}),
                cost[sizes[0]] > cost[sizes[-1]],
            ),
            Claim(
                "queries a second at the root with k = 4, one core",
                f"more than {THESIS_RATE:,}",
                f"{mean[4]:,.0f}",
                mean[4] > THESIS_RATE,
            ),
        ),
        (
            Plot(
                "cosmos-fig3-11",
                title,
                "k",
                "queries a second at the root",
                (line("root", {float(k): rate for k, rate in mean.items()}),),
            ),
            Plot(
                "cosmos-fig3-11-cost",
                title,
                "k",
                "communication cost (bytes)",
                (line("hierarchical", {float(k): one for k, one in cost.items()}),),
            ),
        ),
    )


def _by_k(texts: dict[int, str]) -> str:
    return ", ".join(f"{k}: {text}" for k, text in texts.items())


def _routing_rate(world: DistributionWorld, queries: QueryGraph, place: np.ndarray) -> float:
    """Queries that the root routes in a second of the processor; the best of several runs."""
    federation = world.federation
    new = world.queries(max(2_000, len(queries)), 99)
    best = np.inf
    for _ in range(5):
        # Routing writes into its table, so each run has a new one, which is not timed; the first
        # run also compiles.
        table = make_table(federation, federation.tree, queries, place, "wec")
        begun = time.process_time()
        route_batch(table, new)
        best = min(best, time.process_time() - begun)
    return len(new) / best


def rate_changes(settings: FigureSettings) -> Report:
    """Figure 3.12: rates of some substreams rise (I) and fall (D), several times, by 5 and by 2."""
    reports = [_rate_change_report(settings, factor) for factor in (5.0, 2.0)]
    return Report(
        tuple(table for report in reports for table in report.tables),
        tuple(claim for report in reports for claim in report.claims),
        tuple(plot for report in reports for plot in report.plots),
    )


CHANGES = "IIDIDD"


def _rate_change_report(settings: FigureSettings, factor: float) -> Report:
    names = ("Adaptive", "Re-mapping", "Non-Adaptive")
    rows: list[tuple[Cell, ...]] = []
    near, ratios, deviations = [], [], []
    first: Series = {}
    for seed in seed_range(settings):
        series, moves = _rate_change_series(settings, seed, factor)
        first = first or series
        for at, change in enumerate(CHANGES):
            for name in names:
                cells = measured_cells(series[name][at])
                rows.append((f"{at + 1} {change}", name, moves[name][at], *cells))
        pairs = zip(series["Adaptive"], series["Re-mapping"], strict=True)
        near += [mine.cost / other.cost - 1 for mine, other in pairs]
        ratios.append(sum(moves["Re-mapping"]) / max(sum(moves["Adaptive"]), 1))
        deviations.append(
            (
                float(np.mean([one.deviation for one in series["Adaptive"]])),
                float(np.mean([one.deviation for one in series["Non-Adaptive"]])),
            )
        )
    title = f"COSMOS 3.12, rates by {factor:g}"
    columns = ("change", "curve", "migrations", *MEASURED_COLUMNS)
    return Report(
        (ReportTable(title, columns, tuple(rows)),),
        (
            Claim(
                f"by {factor:g}: cost of Adaptive against Re-mapping",
                "close",
                format_spread([100 * one for one in near], 1, " %"),
                max(near) <= NEAR,
            ),
            Claim(
                f"by {factor:g}: mean deviation of loads, Adaptive and Non-Adaptive",
                "rebalances",
                "; ".join(f"{mine:.3f}, {other:.3f}" for mine, other in deviations),
                all(mine < other for mine, other in deviations),
            ),
            Claim(
                f"by {factor:g}: migrations of Re-mapping by those of Adaptive",
                "about 7",
                format_spread(ratios, 1),
                min(ratios) >= 5,
            ),
        ),
        tuple(_change_plots(title, f"cosmos-fig3-12-by-{factor:g}", first, names)),
    )


def _change_plots(title: str, name: str, series: Series, names: Sequence[str]) -> list[Plot]:
    def lines(value: Callable[[Measured], float]) -> Plot:
        curves = tuple(
            line(one, {float(at + 1): value(found) for at, found in enumerate(series[one])})
            for one in names
        )
        return Plot(name, title, f"change ({CHANGES})", "", curves)

    return [
        replace(lines(lambda one: one.cost), name=f"{name}-a", y="communication cost (bytes)"),
        replace(
            lines(lambda one: one.deviation),
            name=f"{name}-b",
            y="standard deviation of load by share",
        ),
    ]


def _rate_change_series(
    settings: FigureSettings, seed: int, factor: float
) -> tuple[Series, dict[str, list[int]]]:
    world = make_world(world_size(settings), seed)
    queries = world.queries(start_queries(settings), seed)
    start = distribute(world.federation, queries, hierarchy_settings(settings, "wec")).place
    places = {"Adaptive": start, "Re-mapping": start, "Non-Adaptive": start}
    series: Series = {name: [] for name in places}
    moves: dict[str, list[int]] = {name: [] for name in places}
    generator = np.random.default_rng((seed, 12))
    for at, change in enumerate(CHANGES):
        world, queries = _changed(
            world, queries, factor if change == "I" else 1 / factor, generator
        )
        problem = world.federation.problem(queries)
        for name, before in places.items():
            after = before
            if name == "Adaptive":
                rounds = adaptation_settings(settings, "wec")
                after = adapt(world.federation, queries, before, rounds).place
            elif name == "Re-mapping":
                after = baselines.remapping(problem, mapping_settings(settings, "wec"), at)
            moves[name].append(int(np.count_nonzero(after != before)))
            places[name] = after
            series[name].append(measure(world, queries, after))
    return series, moves


def _changed(
    world: DistributionWorld, queries: QueryGraph, factor: float, generator: np.random.Generator
) -> tuple[DistributionWorld, QueryGraph]:
    """A twenty-fifth of the substreams (800 of 20,000) at other rates; loads follow the input."""
    substreams = world.federation.substreams
    rate = substreams.rate.copy()
    rate[generator.permutation(len(rate))[: len(rate) // 25]] *= factor
    after = Substreams(rate, substreams.origin)
    federation = replace(world.federation, substreams=after)
    load = queries.input_rates(after)
    share = world.workload.result_share
    return replace(world, federation=federation), replace(
        queries, load=load, result=share * load, state=60.0 * load
    )
