"""A world as frozen data: what `headwater simulate` reads from a file, and Python code builds itself.

Numbers that differ from provider to provider, substream to substream or query to query are given
as a span, from which each is drawn uniformly by the seed of the run. So one world is many runs, and
the same seed is always the same run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from headwater.errors import SimulationError
from headwater.network.model import Network
from headwater.network.paths import shortest_routes
from headwater.network.transit_stubs import TransitStubShape, transit_stub_network

Span = tuple[float, float]
"""The least and the largest value of something that is drawn uniformly."""

OBJECTIVES = ("wec", "traffic")
DISTRIBUTION_POLICIES = (
    "naive",
    "random",
    "greedy",
    "centralized",
    "hierarchical",
    "online",
    "adaptive",
    "remapping",
)
STATIC_TREES = ("greedy", "annealing", "dita", "source", "random")
TREE_POLICIES = (*STATIC_TREES, *(f"{tree}+adaptive" for tree in STATIC_TREES))


@dataclass(frozen=True)
class NetworkSource:
    """A network that was read from a file, or the shape of one that each run draws.

    `mean_latency` scales all latencies so that the mean between two hosts is this one. A drawn
    network has the seed of the run unless it has its own.
    """

    fixed: Network | None = None
    shape: TransitStubShape | None = None
    seed: int | None = None
    mean_latency: float | None = None

    def network(self, seed: int) -> Network:
        """The network of the run with that seed."""
        if self.fixed is not None:
            network = self.fixed
        elif self.shape is not None:
            network = transit_stub_network(self.shape, seed if self.seed is None else self.seed)
        else:
            raise SimulationError("a world needs a network or the shape of one")
        return network if self.mean_latency is None else _scale(network, self.mean_latency)

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names of the sites that may be providers; those of a shape are always the same."""
        network = self.network(0)
        return tuple(network.sites[host].name for host in network.hosts)


def _scale(network: Network, mean_latency: float) -> Network:
    distance = shortest_routes(network).distance[np.ix_(network.hosts, network.hosts)]
    # Without the diagonal: a host is no distance from itself.
    pairs = len(network.hosts) * (len(network.hosts) - 1)
    mean = float(distance.sum()) / pairs if pairs else 0.0
    if not 0 < mean < math.inf:
        raise SimulationError("latencies can be scaled if all hosts are connected, at a distance")
    factor = mean_latency / mean
    links = tuple(replace(link, latency=link.latency * factor) for link in network.links)
    return Network(network.sites, links)


@dataclass(frozen=True)
class ProviderSettings:
    """Which hosts are providers: named, or a number drawn at random; all if neither is given.

    A provider whose capability is not given by name draws it from the span.
    """

    names: tuple[str, ...] = ()
    count: int | None = None
    capability: Span = (1.0, 1.0)
    capabilities: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StreamSettings:
    """The substreams: how many, their rates in bytes a second, and where they arise.

    Each of the groups ranks all substreams in an order of its own; a query belongs to a group and
    draws its substreams by Zipf's law over that order.
    """

    substreams: int
    rate: Span = (1.0, 10.0)
    origins: int | tuple[str, ...] = 1
    groups: int = 20
    zipf: float = 0.8


@dataclass(frozen=True)
class QuerySettings:
    """The queries at the start, and how many arrive in a second afterwards.

    A query reads some substreams, sends a share of its input rate to its home, and loads its host
    by `load` for each byte a second that it reads.
    """

    count: int
    substreams: Span = (100.0, 200.0)
    result_share: float = 0.1
    arrivals: float = 0.0
    load: float = 1.0


@dataclass(frozen=True)
class DistributionSettings:
    """How queries are assigned to providers: which policies are compared, for how many rounds."""

    policies: tuple[str, ...]
    objective: str = "traffic"
    k: int = 4
    alpha: float = 0.1
    rounds: int = 5
    period: float = 200.0

    @property
    def duration(self) -> float:
        return self.rounds * self.period


@dataclass(frozen=True, eq=False)
class PriceTrace:
    """The values of an object: from each time on (seconds, ascending) it has a value."""

    name: str
    times: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class DisseminationSettings:
    """How the updates of objects reach the providers: which trees are compared, for how long.

    A provider wants an object with the probability `interest`. Without a tolerance it wants this many messages a second of
    it; with one, drawn for each object it wants, what keeps its copy in tolerance. The objects then are
    prices: those of the traces, or random walks if there are none.
    """

    policies: tuple[str, ...]
    objects: int = 1
    rate: Span = (0.5, 1.5)
    traces: tuple[PriceTrace, ...] = ()
    interest: float = 1.0
    tolerance: Span | None = None
    filter_time: Span = (0.001, 0.009)
    transmit_time: Span = (0.000125, 0.001875)
    source: str | None = None
    period: float = 200.0
    duration: float = 2000.0

    @property
    def rounds(self) -> int:
        """How many periods end within the duration."""
        return int(self.duration / self.period + 1e-9)


class FailureKind(StrEnum):
    """What can happen to a world while it is simulated."""

    dies = "dies"
    returns = "returns"
    slows = "slows"
    rates = "rates"


@dataclass(frozen=True)
class Failure:
    """What happens at a time: to a named provider, to a number of providers drawn at random, or to a number of substreams.

    A provider that slows by a factor of 2 has half its capability and takes twice as long for each message;
    substreams whose rates change by a factor have that many times their bytes a second.
    """

    at: float
    kind: FailureKind
    provider: str | None = None
    count: int = 1
    factor: float = 1.0


@dataclass(frozen=True)
class SimulatedWorld:
    """All of it; what is not to be simulated is None."""

    network: NetworkSource
    providers: ProviderSettings = ProviderSettings()
    streams: StreamSettings | None = None
    queries: QuerySettings | None = None
    distribution: DistributionSettings | None = None
    dissemination: DisseminationSettings | None = None
    failures: tuple[Failure, ...] = ()
    seeds: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if self.distribution is None and self.dissemination is None:
            raise SimulationError("a world needs a distribution or a dissemination to simulate")
        if self.distribution is not None and (self.streams is None or self.queries is None):
            raise SimulationError("a distribution needs streams and queries")
