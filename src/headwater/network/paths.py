"""Shortest routes between all sites.

One search per site over arrays, compiled by Numba: 4096 sites take seconds. A route
is stored as its last link, so that any other value of links can be summed along it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwater.errors import NetworkError
from headwater.jit import cached_njit
from headwater.network.model import Network

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]
RouteMetric = Literal["latency", "cost"]

NO_LINK = -1


@dataclass(frozen=True, eq=False)
class Routes:
    """The best way from each site to each other.

    `distance[a, b]` is infinite where there is none; `last_link[a, b]` is the link by which the route
    from `a` arrives at `b`, NO_LINK where there is none.
    """

    network: Network
    distance: Floats
    last_link: Indices

    def links(self, a: int, b: int) -> tuple[int, ...]:
        """The links from one site to another in their order; raises NetworkError if there are none."""
        if not np.isfinite(self.distance[a, b]):
            names = self.network.sites[a].name, self.network.sites[b].name
            raise NetworkError(f"no way leads from {names[0]} to {names[1]}")
        path = []
        while b != a:
            at = int(self.last_link[a, b])
            path.append(at)
            link = self.network.links[at]
            b = link.a if link.b == b else link.b
        return tuple(reversed(path))

    def sum_along(self, values: Floats) -> Floats:
        """For each two sites the sum along the way between them of a value that each link has."""
        ends = _link_ends(self.network)
        result: Floats = _sum_along_paths(self.last_link, ends, np.asarray(values, np.float64))
        return np.where(np.isfinite(self.distance), result, np.inf)


def shortest_routes(network: Network, by: RouteMetric = "latency") -> Routes:
    """The ways of least latency, or of least cost, between all sites."""
    weights = link_values(network, by)
    start, to, link = _adjacency(network)
    distance, last = _shortest_paths(start, to, link, weights)
    return Routes(network, distance, last)


def link_values(network: Network, name: RouteMetric) -> Floats:
    """The latency or the cost of each link."""
    return np.array([getattr(link, name) for link in network.links], np.float64)


def transit_costs(paths: Routes) -> Floats:
    """What one byte per second costs from site to site: latency times cost, over the links."""
    network = paths.network
    return paths.sum_along(link_values(network, "latency") * link_values(network, "cost"))


def _link_ends(network: Network) -> Indices:
    return np.array([(link.a, link.b) for link in network.links], np.int32).reshape(-1, 2)


def _adjacency(network: Network) -> tuple[Indices, Indices, Indices]:
    """The links by site: those of site s are at start[s]..start[s+1], with where they lead."""
    ends = _link_ends(network)
    origins, targets = np.concatenate((ends[:, 0], ends[:, 1])), ends[:, ::-1].T.ravel()
    order = np.argsort(origins, kind="stable")
    count = np.bincount(origins, minlength=len(network.sites))
    start = np.concatenate(([0], np.cumsum(count)))
    number = np.tile(np.arange(len(network.links)), 2)
    return start.astype(np.int32), targets[order], number[order].astype(np.int32)


@cached_njit
def _shortest_paths(start: Any, to: Any, link: Any, weights: Any) -> Any:
    """Dijkstra's algorithm from every site, with a binary heap of (distance, site)."""
    count = len(start) - 1
    distance = np.full((count, count), np.inf)
    last = np.full((count, count), NO_LINK, np.int32)
    # At most one push for each direction of a link, and the origin.
    keys = np.empty(len(to) + 1)
    heap = np.empty(len(to) + 1, np.int32)
    for origin in range(count):
        row, arrived = distance[origin], last[origin]
        row[origin] = 0.0
        keys[0], heap[0], size = 0.0, origin, 1
        while size:
            key, site = keys[0], heap[0]
            size -= 1
            moved_key, moved, hole = keys[size], heap[size], 0
            while 2 * hole + 1 < size:
                child = 2 * hole + 1
                if child + 1 < size and keys[child + 1] < keys[child]:
                    child += 1
                if keys[child] >= moved_key:
                    break
                keys[hole], heap[hole] = keys[child], heap[child]
                hole = child
            keys[hole], heap[hole] = moved_key, moved
            # A stale entry: the heap has no decrease-key, a shorter distance was pushed as a second
            # entry.
            if key > row[site]:
                continue
            for at in range(start[site], start[site + 1]):
                target, reached = to[at], key + weights[link[at]]
                if reached < row[target]:
                    row[target], arrived[target] = reached, link[at]
                    hole = size
                    size += 1
                    while hole and keys[(hole - 1) // 2] > reached:
                        keys[hole], heap[hole] = keys[(hole - 1) // 2], heap[(hole - 1) // 2]
                        hole = (hole - 1) // 2
                    keys[hole], heap[hole] = reached, target
    return distance, last


@cached_njit
def _sum_along_paths(last: Any, ends: Any, values: Any) -> Any:
    """Sums along the ways; each is the sum up to the site before, which is found first."""
    count = len(last)
    total = np.zeros((count, count))
    is_done = np.empty(count, np.bool_)
    back = np.empty(count, np.int32)
    for origin in range(count):
        is_done[:] = False
        is_done[origin] = True
        for target in range(count):
            site, steps = target, 0
            # Back to a site whose sum is known, then forward again: each site is computed once,
            # without recursion.
            while not is_done[site] and last[origin, site] != NO_LINK:
                back[steps] = site
                steps += 1
                at = last[origin, site]
                site = ends[at, 0] if ends[at, 1] == site else ends[at, 1]
            while steps:
                steps -= 1
                after = back[steps]
                total[origin, after] = total[origin, site] + values[last[origin, after]]
                is_done[after] = True
                site = after
    return total
