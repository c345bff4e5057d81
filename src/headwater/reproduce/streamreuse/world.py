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

from headwater.algebra.expressions import columns_of
from headwater.algebra.predicate import Box, Constraint
from headwater.cost import (
    Input,
    StreamStatistics,
    held,
    join_rate,
    network_prices,
    selectivity,
)
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
from headwater.reproduce.streamreuse.question import Streams
from headwater.reuse import Operator

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


def rate(operator: Operator, streams: Streams, statistics: Mapping[str, StreamStatistics]) -> float:
    """What the part of an operator that reads some of its streams gives: a stream, or a join."""
    scans = [scan for scan in operator.scans if scan.stream in streams]
    known = {scan.alias: statistics[scan.stream] for scan in scans}
    box = _restricted(operator.where, known)
    values = {
        column: known[column.relation].columns[column.name]
        for term in (*(t for c in box.constraints for t in c.terms), *box.terms)
        for column in columns_of(term)
    }
    inputs = [Input(known[s.alias].rate, held(s.window, known[s.alias].rate)) for s in scans]
    size = max(one.tuple_bytes for one in known.values())
    return join_rate(inputs, selectivity(box, values)) * size


def _restricted(where: Box, known: Mapping[str, object]) -> Box:
    """What a condition says of some sources alone, as far as rates are concerned."""
    constraints = []
    for c in where.constraints:
        terms = tuple(t for t in c.terms if all(x.relation in known for x in columns_of(t)))
        if terms:
            constraints.append(Constraint(terms, c.domain))
    inside = [t for t in where.terms if all(x.relation in known for x in columns_of(t))]
    return Box(tuple(constraints), tuple(inside))
