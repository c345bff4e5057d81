"""Draws a world from a seed: which hosts are providers and origins, and which queries arrive when.

All of it is drawn before anything is simulated, from random streams of their own for each purpose, so
every policy meets the same world, and what one chapter draws does not change the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from headwater.errors import SimulationError
from headwater.federation.distribution.delivery import path_trees
from headwater.federation.distribution.model import (
    Floats,
    Indices,
    Places,
    QueryGraph,
    Substreams,
)
from headwater.federation.distribution.workload import (
    WorkloadSetting,
    draw_hot_spots,
    draw_queries,
)
from headwater.network.paths import Routes, shortest_routes
from headwater.sim.worlds.model import (
    FailureKind,
    QuerySettings,
    SimulatedWorld,
    Span,
    StreamSettings,
)


@dataclass(frozen=True, eq=False)
class DrawnSites:
    """The providers of a run, with the routes between all sites of the network."""

    routes: Routes
    providers: Indices
    capability: Floats

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.routes.network.sites[site].name for site in self.providers)


@dataclass(frozen=True, eq=False)
class DrawnQueries:
    """The demand of a run: substreams, the queries of the start and then those that arrive, and when."""

    places: Places
    substreams: Substreams
    origins: Indices
    queries: QueryGraph
    arrival: Floats


@dataclass(frozen=True, eq=False)
class Happening:
    """A failure of a run: its time, and the numbers of the providers or substreams that it meets."""

    at: float
    kind: FailureKind
    targets: Indices
    factor: float


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A random stream of its own for each purpose."""
    return np.random.default_rng((seed, *purpose.encode()))


def draw_span(span: Span, size: int, random: np.random.Generator) -> Floats:
    """Values of a span, drawn uniformly."""
    return random.uniform(span[0], span[1], size)


def draw_sites(world: SimulatedWorld, seed: int) -> DrawnSites:
    """The providers, by name or drawn among the hosts."""
    routes = shortest_routes(world.network.network(seed))
    network, settings = routes.network, world.providers
    random = generator(seed, "providers")
    if settings.names:
        chosen = [network.position_of(name) for name in settings.names]
    elif settings.count is not None:
        if settings.count > len(network.hosts):
            raise SimulationError(f"{settings.count} providers, but {len(network.hosts)} hosts")
        chosen = sorted(random.permutation(network.hosts)[: settings.count].tolist())
    else:
        chosen = list(network.hosts)
    # Drawn for those with a given capability, too, so that naming one does not change the others.
    capability = draw_span(settings.capability, len(chosen), random)
    for at, site in enumerate(chosen):
        capability[at] = settings.capabilities.get(network.sites[site].name, capability[at])
    return DrawnSites(routes, np.array(chosen, np.int32), capability)


def draw_demand(world: SimulatedWorld, sites: DrawnSites, seed: int) -> DrawnQueries:
    """Substreams, queries and arrivals; needs a world with streams, queries and a distribution."""
    streams, asked, settings = world.streams, world.queries, world.distribution
    if streams is None or asked is None or settings is None:
        raise SimulationError("a distribution needs streams and queries")
    random = generator(seed, "streams")
    origins = _origins(streams, sites, random)
    substreams = Substreams(
        draw_span(streams.rate, streams.substreams, random),
        random.integers(0, len(origins), streams.substreams).astype(np.int32),
    )
    anchors = np.concatenate((origins, sites.providers))
    distance, providers = sites.routes.distance, sites.providers
    places = Places(
        sites.capability,
        distance[np.ix_(providers, providers)],
        distance[np.ix_(anchors, providers)],
        path_trees(sites.routes, origins.tolist(), providers.tolist()),
    )
    arrival = _arrivals(asked, settings.duration, generator(seed, "arrivals"))
    setting = WorkloadSetting(
        streams.substreams,
        len(arrival),
        streams.groups,
        streams.zipf,
        int(asked.substreams[0]),
        int(asked.substreams[1]),
        asked.result_share,
    )
    random = generator(seed, "queries")
    homes = np.arange(len(origins), len(anchors), dtype=np.int32)
    queries = draw_queries(setting, substreams, homes, random, draw_hot_spots(setting, random))
    return DrawnQueries(
        places, substreams, origins, replace(queries, load=asked.load * queries.load), arrival
    )


def _origins(streams: StreamSettings, sites: DrawnSites, random: np.random.Generator) -> Indices:
    """By name, or drawn: of the hosts that are no providers if there are enough of them."""
    network = sites.routes.network
    if not isinstance(streams.origins, int):
        return np.array([network.position_of(name) for name in streams.origins], np.int32)
    taken = set(sites.providers.tolist())
    free = [host for host in network.hosts if host not in taken]
    among = free if len(free) >= streams.origins else list(network.hosts)
    return np.array(random.permutation(among)[: streams.origins], np.int32)


def _arrivals(asked: QuerySettings, end: float, random: np.random.Generator) -> Floats:
    """Zero for the queries of the start, then the times of the others up to the end, ascending."""
    number = int(random.poisson(asked.arrivals * end))
    times = np.sort(random.uniform(0, end, number))
    return np.concatenate((np.zeros(asked.count), times))


def draw_failures(world: SimulatedWorld, sites: DrawnSites, seed: int) -> list[Happening]:
    """Which provider each failure hits, in order of time; drawn where the world names none."""
    random = generator(seed, "failures")
    dead: set[int] = set()
    happenings = []
    for failure in sorted(world.failures, key=lambda failure: failure.at):
        if failure.kind is FailureKind.rates:
            among = list(range(world.streams.substreams if world.streams else 0))
        elif failure.provider is not None:
            among = [sites.names.index(failure.provider)]
        elif failure.kind is FailureKind.returns:
            among = sorted(dead)
        else:
            among = [provider for provider in range(len(sites.names)) if provider not in dead]
        targets = np.sort(random.permutation(among)[: failure.count]).astype(np.int32)
        if failure.kind is FailureKind.dies:
            dead |= set(targets.tolist())
        elif failure.kind is FailureKind.returns:
            dead -= set(targets.tolist())
        happenings.append(Happening(failure.at, failure.kind, targets, failure.factor))
    return happenings
