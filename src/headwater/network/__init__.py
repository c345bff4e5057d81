"""Sites and the links between them: where they come from, and how far apart they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import lazy_exports

if TYPE_CHECKING:
    from headwater.network.clusters import Regions, cluster_regions, nearest_regions
    from headwater.network.gml import load_gml
    from headwater.network.matrix import load_latencies
    from headwater.network.model import Link, Network, Site
    from headwater.network.paths import Routes, shortest_routes, transit_costs
    from headwater.network.transit_stubs import (
        COSMOS,
        COSMOS_DISSEMINATION,
        STREAMREUSE,
        Tier,
        TransitStubShape,
        transit_stub_network,
    )

__all__ = [
    "COSMOS",
    "COSMOS_DISSEMINATION",
    "STREAMREUSE",
    "Link",
    "Network",
    "Regions",
    "Routes",
    "Site",
    "Tier",
    "TransitStubShape",
    "cluster_regions",
    "load_gml",
    "load_latencies",
    "nearest_regions",
    "shortest_routes",
    "transit_costs",
    "transit_stub_network",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "load_gml": "headwater.network.gml",
        "load_latencies": "headwater.network.matrix",
        "Link": "headwater.network.model",
        "Network": "headwater.network.model",
        "Site": "headwater.network.model",
        "Routes": "headwater.network.paths",
        "shortest_routes": "headwater.network.paths",
        "transit_costs": "headwater.network.paths",
        "Regions": "headwater.network.clusters",
        "nearest_regions": "headwater.network.clusters",
        "cluster_regions": "headwater.network.clusters",
        "COSMOS": "headwater.network.transit_stubs",
        "COSMOS_DISSEMINATION": "headwater.network.transit_stubs",
        "STREAMREUSE": "headwater.network.transit_stubs",
        "TransitStubShape": "headwater.network.transit_stubs",
        "Tier": "headwater.network.transit_stubs",
        "transit_stub_network": "headwater.network.transit_stubs",
    },
)
