"""The thesis's world of chapter 3 as a generator: groups of users with hot spots of their own.

What the thesis leaves open is a setting here: how much of its input a query returns, where queries are
submitted, and how alike they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.errors import PlanError
from headwater.federation.distribution.delivery import path_trees
from headwater.federation.distribution.model import Indices, Places, QueryGraph, Substreams
from headwater.network.paths import Routes


@dataclass(frozen=True)
class WorkloadSetting:
    """Numbers of the thesis; `result_share` is not in it, and homes are drawn uniformly."""

    substreams: int = 20_000
    queries: int = 30_000
    groups: int = 20
    zipf: float = 0.8
    fewest: int = 100
    most: int = 200
    result_share: float = 0.10

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most <= self.substreams:
            raise PlanError(f"a query cannot want {self.fewest} to {self.most} substreams")


@dataclass(frozen=True, eq=False)
class FederationSites:
    """Which sites of a network are origins and which are providers, and how they are connected."""

    origins: Indices
    providers: Indices
    places: Places


def choose_sites(
    routes: Routes, origins: int, providers: int, generator: np.random.Generator
) -> FederationSites:
    """Random sites that are no routers; anchors are the origins, then the providers as homes."""
    hosts = [at for at, site in enumerate(routes.network.sites) if not site.router]
    if len(hosts) < origins + providers:
        raise PlanError(f"{origins} origins and {providers} providers, but {len(hosts)} hosts")
    chosen = generator.permutation(hosts)[: origins + providers].astype(np.int32)
    sources, places = chosen[:origins], chosen[origins:]
    trees = path_trees(routes, sources.tolist(), places.tolist())
    return FederationSites(
        sources,
        places,
        Places(
            np.ones(providers),
            routes.distance[np.ix_(places, places)],
            routes.distance[np.ix_(chosen, places)],
            trees,
        ),
    )


def draw_substreams(
    setting: WorkloadSetting, origins: int, generator: np.random.Generator
) -> Substreams:
    """Substreams on random origins, each with 1 to 10 bytes a second."""
    return Substreams(
        generator.uniform(1, 10, setting.substreams),
        generator.integers(0, origins, setting.substreams).astype(np.int32),
    )


def draw_queries(
    setting: WorkloadSetting,
    substreams: Substreams,
    homes: Indices,
    generator: np.random.Generator,
    hot_spots: Indices | None = None,
) -> QueryGraph:
    """Queries of random groups; a query's load is its input rate, its state what it reads in a minute.

    `hot_spots` are the groups' permutations of the substreams, drawn if they are not given.
    """
    if hot_spots is None:
        hot_spots = draw_hot_spots(setting, generator)
    weights = np.arange(1, setting.substreams + 1) ** -setting.zipf
    cumulated = np.cumsum(weights) / weights.sum()
    group = generator.integers(0, setting.groups, setting.queries)
    sizes = generator.integers(setting.fewest, setting.most + 1, setting.queries)
    chosen = [
        np.sort(hot_spots[g][_draw_ranks(cumulated, int(size), generator)])
        for g, size in zip(group, sizes, strict=True)
    ]
    start = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    substream = np.concatenate(chosen).astype(np.int32) if chosen else np.zeros(0, np.int32)
    # For an empty query this would give another's rate; `fewest` is at least 1, so there is none.
    rate = np.add.reduceat(substreams.rate[substream], start[:-1]) if chosen else np.zeros(0)
    return QueryGraph(
        start,
        substream,
        np.ones(len(substream)),
        rate,
        np.arange(setting.queries + 1, dtype=np.int64),
        generator.choice(homes, setting.queries).astype(np.int32),
        setting.result_share * rate,
        60.0 * rate,
    )


def draw_hot_spots(setting: WorkloadSetting, generator: np.random.Generator) -> Indices:
    """A permutation of the substreams for each group: the first ones are its hot spots."""
    return np.array(
        [generator.permutation(setting.substreams) for _ in range(setting.groups)], np.int32
    )


def _draw_ranks(cumulated: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Ranks by the cumulated distribution, without repetition."""
    found = np.zeros(0, np.int64)
    while len(found) < size:
        drawn = np.searchsorted(cumulated, generator.random(2 * size))
        # In the order of drawing: cut in the order of ranks, the ranks kept would be the low ones.
        _, at = np.unique(np.concatenate((found, drawn)), return_index=True)
        found = np.concatenate((found, drawn))[np.sort(at)]
    return found[:size]
