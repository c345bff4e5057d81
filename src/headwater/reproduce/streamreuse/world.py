"""Where the simulated queries run: a network with streams on some of its sites."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from headwater.cost import network_prices
from headwater.network import (
    STREAMREUSE,
    Network,
    Regions,
    TransitStubShape,
    cluster_regions,
    nearest_regions,
    shortest_routes,
    transit_stub_network,
)

Floats = NDArray[np.float64]

REGIONS = 16
"""As many as there are stub domains on the network of the paper."""

NEAREST = 4
"""How many regions around a source or sink are searched for operators."""


@dataclass(frozen=True, eq=False)
class World:
    """A network, what a byte per second costs and how long it takes between its sites.

    `near` has for each site the bit vector of the regions that are searched around it, `source` is
    where streams arise, and `join_sites` are the sites on which joins may run, in order.
    """

    network: Network
    transit: Floats
    delay: Floats
    regions: Regions
    near: tuple[int, ...]
    source: dict[str, int]
    join_sites: NDArray[np.intp]


def build_world(
    streams: list[str],
    seed: int,
    shape: TransitStubShape = STREAMREUSE,
    joins_at_sources: bool = False,
) -> World:
    """A random transit-stub network with the streams on different random hosts.

    The site of a stream selects and projects; joins run there only if `joins_at_sources`.
    """
    network = transit_stub_network(shape, seed)
    delay = shortest_routes(network).distance
    clusters = cluster_regions(delay, REGIONS, seed)
    hosts = Random(f"sources {seed}").sample(network.hosts, len(streams))
    free = network.hosts if joins_at_sources else {*network.hosts} - {*hosts}
    return World(
        network,
        network_prices(network).transit,
        delay,
        clusters,
        tuple(
            nearest_regions(delay, clusters, site, NEAREST) for site in range(len(network.sites))
        ),
        dict(zip(streams, hosts, strict=True)),
        np.array(sorted(free), np.intp),
    )
