"""The world of chapter 3 for its figures: network, substreams, queries, tree; and what is measured of a mapping.

A full run has the thesis's 4,096 nodes, 100 origins, 256 providers and 20,000 substreams, a quick one about
a tenth of each. Seeds of figures begin at 101: nothing was tuned on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from headwater.federation.coordinators.changes import build_tree
from headwater.federation.distribution.adaptation import AdaptationSettings
from headwater.federation.distribution.hierarchy import (
    Federation,
    HierarchySettings,
    branch_of,
)
from headwater.federation.distribution.mapping import MappingSettings
from headwater.federation.distribution.model import Indices, QueryGraph
from headwater.federation.distribution.objective import MappingCheck, Objective, check
from headwater.federation.distribution.workload import (
    FederationSites,
    WorkloadSetting,
    choose_sites,
    draw_hot_spots,
    draw_queries,
    draw_substreams,
)
from headwater.network import (
    COSMOS,
    Routes,
    TransitStubShape,
    shortest_routes,
    transit_stub_network,
)
from headwater.reproduce.cosmos.measured import cell_rates, measured_routes
from headwater.reproduce.figure import FigureSettings, PlotLine

FIRST_SEED = 101

SMALL = TransitStubShape(domains=2, transit=4, stubs=4, hosts=6)


@dataclass(frozen=True)
class WorldSize:
    """How large the world of a figure is."""

    shape: TransitStubShape
    origins: int
    providers: int
    workload: WorkloadSetting


FULL = WorldSize(COSMOS, 100, 256, WorkloadSetting())
QUICK = WorldSize(SMALL, 12, 24, WorkloadSetting(2000, 400, 8, 0.8, 15, 30))


@dataclass(frozen=True, eq=False)
class DistributionWorld:
    """A federation, and where its queries come from."""

    federation: Federation
    workload: WorkloadSetting
    hot_spots: Indices

    def queries(self, number: int, seed: int) -> QueryGraph:
        """A number of queries of the same groups; the same seed draws the same ones."""
        federation = self.federation
        homes = np.arange(federation.first_home, len(federation.places.anchor), dtype=np.int32)
        return draw_queries(
            replace(self.workload, queries=number),
            federation.substreams,
            homes,
            np.random.default_rng((seed, number)),
            self.hot_spots,
        )


def world_size(settings: FigureSettings) -> WorldSize:
    return QUICK if settings.quick else FULL


def seed_range(settings: FigureSettings) -> range:
    return range(FIRST_SEED, FIRST_SEED + settings.seeds)


def make_world(
    size: WorldSize,
    seed: int,
    k: int = 4,
    data: Path | None = None,
    workload: WorkloadSetting | None = None,
) -> DistributionWorld:
    """The world of a seed; with `data` with measured latencies and rates instead of generated ones."""
    sites = _sites(size, seed, data)
    setting = workload or size.workload
    generator = np.random.default_rng(seed)
    substreams = draw_substreams(setting, size.origins, generator)
    if data:
        drawn = np.random.default_rng([seed, 1]).choice(cell_rates(data), len(substreams))
        # As much in all as without, so that costs can be compared.
        drawn *= substreams.rate.sum() / drawn.sum()
        substreams = replace(substreams, rate=drawn)
    tree = build_tree(sites.places.latency, range(size.providers), k)
    federation = Federation(substreams, sites.places, branch_of(tree))
    return DistributionWorld(federation, setting, draw_hot_spots(setting, generator))


@lru_cache(maxsize=4)
def _sites(size: WorldSize, seed: int, data: Path | None) -> FederationSites:
    routes = measured_routes(data) if data else _generated_routes(size.shape, seed)
    return choose_sites(routes, size.origins, size.providers, np.random.default_rng(seed))


def _generated_routes(shape: TransitStubShape, seed: int) -> Routes:
    return shortest_routes(transit_stub_network(shape, seed))


def mapping_settings(settings: FigureSettings, objective: Objective) -> MappingSettings:
    """How hard centralized mapping searches."""
    return MappingSettings(objective, rounds=6 if settings.quick else 4, tries=12)


def hierarchy_settings(settings: FigureSettings, objective: Objective) -> HierarchySettings:
    mapping = MappingSettings(objective, rounds=4, tries=12)
    return HierarchySettings(mapping, 60 if settings.quick else None)


def adaptation_settings(settings: FigureSettings, objective: Objective) -> AdaptationSettings:
    return AdaptationSettings(hierarchy_settings(settings, objective))


@dataclass(frozen=True)
class Measured:
    """What the figures show of a mapping: communication cost is the exact traffic."""

    cost: float
    of_results: float
    wec: float
    largest: float
    """The largest load by its share."""
    deviation: float
    """The standard deviation of loads by their shares."""


def measure(world: DistributionWorld, queries: QueryGraph, place: Indices) -> Measured:
    problem = world.federation.problem(queries)
    found: MappingCheck = check(problem, place)
    loads = found.relative_loads(problem)
    return Measured(
        found.traffic,
        found.result_traffic,
        found.wec,
        float(loads.max()),
        float(loads.std()),
    )


MEASURED_COLUMNS = ("cost", "of it results", "WEC", "max load/share", "std. load/share")


def measured_cells(one: Measured) -> tuple[float, ...]:
    return (
        round(one.cost),
        round(one.of_results),
        round(one.wec),
        round(one.largest, 2),
        round(one.deviation, 3),
    )


def line(name: str, points: dict[float, float]) -> PlotLine:
    return PlotLine(name, tuple(points), tuple(points.values()))


def percent(value: float, by: float) -> str:
    """By how much a value is above or below another."""
    return f"{100 * (value / by - 1):+.1f} %"
