"""BSD for many queries: clusters of queries, and the best cluster found without looking at all.

A rank under BSD is a standing that stays times a wait that grows. Queries of similar standing form
a cluster, with one queue and the standing of its lower edge. With logarithmic edges, all standings in a
cluster are within a factor `ratio` of its edge, and so the query that is chosen ranks within that factor of
the best. Uniform edges make no such promise: their lowest cluster holds standings of every size.

Fagin's algorithm finds the best cluster exactly: it walks down the list by standing and the list by wait
side by side, until a cluster was met in both. No cluster below can rank higher than that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.errors import ScheduleError


@dataclass(frozen=True)
class Clusters:
    """Clusters in descending standing, with the places of their members.

    `ratio` is the most by which the standing of a member exceeds that of its cluster.
    """

    standing: tuple[float, ...]
    members: tuple[tuple[int, ...], ...]
    ratio: float


@dataclass(frozen=True)
class Found:
    """A chosen cluster, and how many priorities had to be computed to find it."""

    cluster: int
    computed: int

    @property
    def operations(self) -> int:
        """Priorities computed and compared."""
        return 2 * self.computed - 1


def logarithmic(standings: Sequence[float], count: int) -> Clusters:
    """So many clusters whose edges are a constant factor apart."""
    low, high = _range(standings, count)
    edges = np.geomspace(low, high, count + 1)
    return _clustered(standings, edges)


def uniform(standings: Sequence[float], count: int) -> Clusters:
    """So many clusters whose edges are a constant distance apart."""
    low, high = _range(standings, count)
    return _clustered(standings, np.linspace(low, high, count + 1))


def singles(standings: Sequence[float]) -> Clusters:
    """Each query for itself."""
    order = sorted(range(len(standings)), key=lambda place: -standings[place])
    return Clusters(tuple(standings[p] for p in order), tuple((p,) for p in order), 1.0)


def _range(standings: Sequence[float], count: int) -> tuple[float, float]:
    if count < 1:
        raise ScheduleError(f"there is at least one cluster, not {count}")
    if not standings or min(standings) <= 0:
        raise ScheduleError("clusters are of standings above 0; leave out queries without results")
    return min(standings), max(standings)


def _clustered(standings: Sequence[float], edges: np.ndarray) -> Clusters:
    places = np.clip(np.searchsorted(edges, standings, side="right") - 1, 0, len(edges) - 2)
    kept = [
        (float(edges[number]), tuple(np.flatnonzero(places == number).tolist()))
        for number in reversed(range(len(edges) - 1))
        if (places == number).any()
    ]
    ratio = max(max(standings[m] for m in members) / edge for edge, members in kept)
    return Clusters(tuple(e for e, _ in kept), tuple(m for _, m in kept), ratio)


def scan(standing: Sequence[float], since: Sequence[float | None], now: float) -> Found:
    """The best cluster by computing the priority of each that has something pending."""
    pending = [place for place, time in enumerate(since) if time is not None]
    return _best(standing, since, now, pending)


def fagin(standing: Sequence[float], since: Sequence[float | None], now: float) -> Found:
    """The best cluster by Fagin's algorithm; `standing` descends. The same cluster as by `scan`."""
    by_standing = [place for place, time in enumerate(since) if time is not None]
    by_wait = sorted(by_standing, key=lambda place: since[place] or 0.0)
    return _best(standing, since, now, sorted(set(_met(by_standing, by_wait))))


def _met(first: Sequence[int], second: Sequence[int]) -> Iterator[int]:
    """What is met on the way down two lists, up to the first that is met in both."""
    seen: tuple[set[int], set[int]] = (set(), set())
    for pair in zip(first, second, strict=True):
        for own, other, one in ((0, 1, pair[0]), (1, 0, pair[1])):
            seen[own].add(one)
            yield one
            if one in seen[other]:
                return


def _best(
    standing: Sequence[float], since: Sequence[float | None], now: float, places: Sequence[int]
) -> Found:
    if not places:
        raise ScheduleError("there is nothing to choose from; ask when something is pending")
    best = max(places, key=lambda place: standing[place] * (now - (since[place] or 0.0)))
    return Found(best, len(places))
