"""Sites and the links between them: where they come from, and how far apart they are."""

from __future__ import annotations

from headwater.network.gml import load_gml
from headwater.network.matrix import load_latencies
from headwater.network.model import Link, Network, Site
from headwater.network.paths import Routes, routes, usage
from headwater.network.regions import Regions, near, regions
from headwater.network.transit_stub import (
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
