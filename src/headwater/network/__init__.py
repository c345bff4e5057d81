"""Sites and the links between them: where they come from, and how far apart they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import exported

if TYPE_CHECKING:
    from headwater.network.clusters import Regions, near, regions
    from headwater.network.gml import load_gml
    from headwater.network.matrix import load_latencies
    from headwater.network.model import Link, Network, Site
    from headwater.network.paths import Routes, routes, usage
    from headwater.network.transit_stubs import (
        COSMOS,
        COSMOS_DISSEMINATION,
        STREAMREUSE,
        Shape,
        Tier,
        transit_stub,
    )

__all__ = [
    "COSMOS",
    "COSMOS_DISSEMINATION",
    "STREAMREUSE",
    "Link",
    "Network",
    "Regions",
    "Routes",
    "Shape",
    "Site",
    "Tier",
    "load_gml",
    "load_latencies",
    "near",
    "regions",
    "routes",
    "transit_stub",
    "usage",
]

__getattr__ = exported(
    __name__,
    {
        "load_gml": "headwater.network.gml",
        "load_latencies": "headwater.network.matrix",
        "Link": "headwater.network.model",
        "Network": "headwater.network.model",
        "Site": "headwater.network.model",
        "Routes": "headwater.network.paths",
        "routes": "headwater.network.paths",
        "usage": "headwater.network.paths",
        "Regions": "headwater.network.clusters",
        "near": "headwater.network.clusters",
        "regions": "headwater.network.clusters",
        "COSMOS": "headwater.network.transit_stubs",
        "COSMOS_DISSEMINATION": "headwater.network.transit_stubs",
        "STREAMREUSE": "headwater.network.transit_stubs",
        "Shape": "headwater.network.transit_stubs",
        "Tier": "headwater.network.transit_stubs",
        "transit_stub": "headwater.network.transit_stubs",
    },
)
