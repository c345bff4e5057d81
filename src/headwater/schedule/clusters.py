"""BSD for many queries: clusters of queries, and the best cluster found without looking at all.

A rank under BSD is a static priority times a wait that grows. Queries of similar static priority form
a cluster, with one queue and the priority of its lower edge. With logarithmic edges, all priorities in a
cluster are within a factor `ratio` of its edge, so the chosen query ranks within that factor of the
best. Uniform edges give no such guarantee: their lowest cluster has priorities of every magnitude.

Fagin's algorithm finds the best cluster exactly: it reads the list by priority and the list by wait
in parallel, until one cluster has been seen in both. No cluster further down can rank higher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.errors import ScheduleError


@dataclass(frozen=True)
class Clusters:
    """Clusters in descending static priority, with the positions of their queries.

    `ratio` is the largest factor by which the priority of a query exceeds that of its cluster.
    """

    static_priorities: tuple[float, ...]
    queries: tuple[tuple[int, ...], ...]
    ratio: float


@dataclass(frozen=True)
class ClusterChoice:
    """A chosen cluster, and how many priorities had to be computed to find it."""

    cluster: int
    computed: int

    @property
    def operations(self) -> int:
        """Priorities computed and compared."""
        # n products and n - 1 comparisons.
        return 2 * self.computed - 1


def logarithmic_clusters(priorities: Sequence[float], count: int) -> Clusters:
    """A number of clusters whose edges are a constant factor apart."""
    low, high = _priority_range(priorities, count)
    edges = np.geomspace(low, high, count + 1)
    return _build_clusters(priorities, edges)


def uniform_clusters(priorities: Sequence[float], count: int) -> Clusters:
    """A number of clusters whose edges are a constant distance apart."""
    low, high = _priority_range(priorities, count)
    return _build_clusters(priorities, np.linspace(low, high, count + 1))


def singleton_clusters(priorities: Sequence[float]) -> Clusters:
    """Each query for itself."""
    order = sorted(range(len(priorities)), key=lambda place: -priorities[place])
    return Clusters(tuple(priorities[p] for p in order), tuple((p,) for p in order), 1.0)


def _priority_range(priorities: Sequence[float], count: int) -> tuple[float, float]:
    if count < 1:
        raise ScheduleError(f"there is at least one cluster, not {count}")
    if not priorities or min(priorities) <= 0:
        raise ScheduleError("clusters are of standings above 0; leave out queries without results")
    return min(priorities), max(priorities)


def _build_clusters(priorities: Sequence[float], edges: np.ndarray) -> Clusters:
    # The largest priority equals the last edge and would fall behind it: clip it into the last
    # cluster.
    cluster_of = np.clip(np.searchsorted(edges, priorities, side="right") - 1, 0, len(edges) - 2)
    clusters = [
        (float(edges[number]), tuple(np.flatnonzero(cluster_of == number).tolist()))
        for number in reversed(range(len(edges) - 1))
        if (cluster_of == number).any()
    ]
    ratio = max(max(priorities[m] for m in queries) / edge for edge, queries in clusters)
    return Clusters(tuple(e for e, _ in clusters), tuple(m for _, m in clusters), ratio)


def scan_best_cluster(
    priorities: Sequence[float], since: Sequence[float | None], now: float
) -> ClusterChoice:
    """The best cluster by computing the priority of each that has something pending."""
    pending = [cluster for cluster, time in enumerate(since) if time is not None]
    return _best_cluster(priorities, since, now, pending)


def fagin_best_cluster(
    priorities: Sequence[float], since: Sequence[float | None], now: float
) -> ClusterChoice:
    """The best cluster by Fagin's algorithm; `priorities` must descend. Returns the same cluster as
    `scan_best_cluster`."""
    by_priority = [cluster for cluster, time in enumerate(since) if time is not None]
    # The sort stands in for a queue by arrival that a real scheduler maintains anyway, so it is not
    # counted among the operations.
    by_wait = sorted(by_priority, key=lambda place: since[place] or 0.0)
    # Sorted, because `max` takes the first of equals: ties are then decided as in the full scan.
    return _best_cluster(priorities, since, now, sorted(set(_walk_until_met(by_priority, by_wait))))


def _walk_until_met(first: Sequence[int], second: Sequence[int]) -> Iterator[int]:
    """The items of two lists read in parallel, up to the first that has been seen in both."""
    seen: tuple[set[int], set[int]] = (set(), set())
    for pair in zip(first, second, strict=True):
        for own, other, item in ((0, 1, pair[0]), (1, 0, pair[1])):
            seen[own].add(item)
            yield item
            if item in seen[other]:
                return


def _best_cluster(
    priorities: Sequence[float], since: Sequence[float | None], now: float, clusters: Sequence[int]
) -> ClusterChoice:
    if not clusters:
        raise ScheduleError("there is nothing to choose from; ask when something is pending")
    best = max(clusters, key=lambda place: priorities[place] * (now - (since[place] or 0.0)))
    return ClusterChoice(best, len(clusters))
