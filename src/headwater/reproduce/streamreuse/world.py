"""Where the simulated queries run: a network with streams on some of its sites, and their rates.

All rates are bytes per second. Records have one size throughout, as in the paper, so what an operator
sends depends only on how many records pass it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from headwater.algebra.box import Box
from headwater.algebra.expressions import Column
from headwater.cost import Input, StreamStatistics, Values, join_rate, network_prices, selectivity
from headwater.network import (
    STREAMREUSE,
    Network,
    Regions,
    Shape,
    near,
    regions,
    routes,
    transit_stub,
)
from headwater.reproduce.streamreuse.definition import Definition, columns_of_box

Floats = NDArray[np.float64]

REGIONS = 16
"""As many as there are stub domains on the network of the paper."""

NEAREST = 4
"""How many regions around a source or sink are searched for operators."""


@dataclass(frozen=True, eq=False)
class World:
    """A network, what a byte per second costs and how long it takes between its sites.

    `near` has for each site the bit vector of the regions that are searched around it, `source` is
    where streams arise, and `places` are the sites on which joins may run, in order.
    """

    network: Network
    transit: Floats
    delay: Floats
    regions: Regions
    near: tuple[int, ...]
    source: dict[str, int]
    places: NDArray[np.intp]


def world(
    streams: list[str], seed: int, shape: Shape = STREAMREUSE, joins_at_sources: bool = False
) -> World:
    """A random transit-stub network with the streams on different random hosts.

    The site of a stream selects and projects; joins run there only if `joins_at_sources`.
    """
    network = transit_stub(shape, seed)
    delay = routes(network).distance
    found = regions(delay, REGIONS, seed)
    hosts = Random(f"sources {seed}").sample(network.hosts, len(streams))
    free = network.hosts if joins_at_sources else {*network.hosts} - {*hosts}
    return World(
        network,
        network_prices(network).transit,
        delay,
        found,
        tuple(near(delay, found, site, NEAREST) for site in range(len(network.sites))),
        dict(zip(streams, hosts, strict=True)),
        np.array(sorted(free), np.intp),
    )


class Rates:
    """The rates of streams and joins by their definition; each is computed once."""

    def __init__(self, statistics: Mapping[str, StreamStatistics]) -> None:
        self._statistics = statistics
        self._sent: dict[tuple[str, Box], float] = {}
        self._joined: dict[Definition, float] = {}

    def sent(self, wanted: Definition, stream: str) -> float:
        """What a source sends of its stream for a definition of it."""
        key = stream, wanted.where
        if key not in self._sent:
            known = self._statistics[stream]
            share = selectivity(wanted.where, self._values(wanted.where))
            self._sent[key] = known.rate * known.tuple_bytes * share
        return self._sent[key]

    def joined(self, wanted: Definition) -> float:
        """What the join of all the streams of a definition gives."""
        if wanted not in self._joined:
            known = [(self._statistics[stream], reading) for stream, reading in wanted.readings]
            inputs = [Input(one.rate, one.rate * reading.range / 1e6) for one, reading in known]
            share = selectivity(wanted.where, self._values(wanted.where))
            size = max(one.tuple_bytes for one, _ in known)
            self._joined[wanted] = join_rate(inputs, share) * size
        return self._joined[wanted]

    def _values(self, box: Box) -> dict[Column, Values]:
        return {
            column: self._statistics[column.relation].columns[column.name]
            for column in columns_of_box(box)
        }
