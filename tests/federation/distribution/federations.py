"""Federations for the tests of distribution: tiny ones at random, and the thesis's world made small."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from headwater.federation.coordinators.changes import build_tree
from headwater.federation.distribution.delivery import star_trees
from headwater.federation.distribution.hierarchy import Federation, HierarchySettings, branch_of
from headwater.federation.distribution.kernel import TOLERANCE
from headwater.federation.distribution.mapping import MappingSettings
from headwater.federation.distribution.model import (
    Indices,
    Places,
    Problem,
    QueryGraph,
    Substreams,
    make_problem,
    make_query_graph,
)
from headwater.federation.distribution.objective import OBJECTIVES, Objective
from headwater.federation.distribution.workload import (
    WorkloadSetting,
    choose_sites,
    draw_queries,
    draw_substreams,
)
from headwater.network import Routes, TransitStubShape, shortest_routes, transit_stub_network

ORIGINS, PROVIDERS = 12, 24

FAST: dict[Objective, HierarchySettings] = {
    objective: HierarchySettings(
        MappingSettings(objective, rounds=3, tries=8, kicks=1), vertices=60
    )
    for objective in OBJECTIVES
}


def tiny_problem(seed: int, most_queries: int = 7) -> Problem:
    """Two to four places in the plane, three to seven queries, bounds that are often tight."""
    generator = np.random.default_rng(seed)
    places = int(generator.integers(2, 5))
    size = int(generator.integers(3, most_queries + (places < 4)))
    origins, substreams = int(generator.integers(1, 4)), int(generator.integers(4, 15))
    points = generator.random((origins + places, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    loads = (
        generator.choice([1.0, 2.0, 3.0, 5.0], size)
        if generator.random() < 0.5
        else generator.uniform(1, 3, size)
    )
    queries = make_query_graph(
        [
            generator.permutation(substreams)[: generator.integers(1, substreams + 1)].tolist()
            for _ in range(size)
        ],
        loads.tolist(),
        (origins + generator.integers(0, places, size)).tolist(),
        generator.uniform(0, 10, size).tolist(),
    )
    anchor = distance[:, origins:].copy()
    return make_problem(
        Substreams(
            generator.uniform(1, 10, substreams),
            generator.integers(0, origins, substreams).astype(np.int32),
        ),
        queries,
        Places(
            generator.choice([1.0, 1.0, 2.0], places),
            distance[origins:, origins:].copy(),
            anchor,
            star_trees(anchor[:origins]),
        ),
        alpha=float(generator.choice([0.1, 0.3])),
    )


def all_mappings(problem: Problem) -> Iterator[Indices]:
    for places in itertools.product(range(len(problem.places)), repeat=len(problem.queries)):
        yield np.array(places, np.int32)


def violation_of(problem: Problem, place: Indices) -> float:
    """The load above the bounds, recomputed."""
    load = np.bincount(place, problem.queries.load, len(problem.places))
    return float((load - problem.bound)[load > problem.bound * (1 + TOLERANCE)].sum())


@cache
def small_routes() -> Routes:
    shape = TransitStubShape(domains=2, transit=3, stubs=2, hosts=5)
    return shortest_routes(transit_stub_network(shape, 1))


def home_loving_federation(seed: int, result_share: float) -> tuple[Federation, QueryGraph]:
    """A small federation in which every provider is as able as what is submitted to it needs."""
    federation, queries = small_federation(seed, 150, k=2, result_share=result_share)
    at_home = np.bincount(queries.home - ORIGINS, queries.load, PROVIDERS)
    able = replace(federation.places, capability=np.maximum(at_home, 1e-3))
    return replace(federation, places=able), queries


def small_federation(
    seed: int,
    queries: int = 400,
    k: int = 4,
    providers: int = PROVIDERS,
    result_share: float = 0.1,
    fewest: int = 10,
) -> tuple[Federation, QueryGraph]:
    """The thesis's world in small: random sites of a transit-stub network, groups with hot spots."""
    generator = np.random.default_rng(seed)
    sites = choose_sites(small_routes(), ORIGINS, providers, generator)
    setting = WorkloadSetting(1000, queries, 6, 0.8, fewest, 2 * fewest, result_share)
    substreams = draw_substreams(setting, ORIGINS, generator)
    homes = np.arange(ORIGINS, ORIGINS + providers, dtype=np.int32)
    graph = draw_queries(setting, substreams, homes, generator)
    tree = build_tree(sites.places.latency, range(providers), k)
    return Federation(substreams, sites.places, branch_of(tree)), graph
