"""What is distributed: substreams, queries over them, and the places that may run the queries.

All of it is arrays. The edges between queries that share data are never stored: a query carries its
substreams, and whoever maps it computes the edges from them, in memory that is linear in the input.
A coarse vertex is a query graph's vertex like any other, with counts instead of ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headwater.errors import PlanError
from headwater.federation.distribution.delivery import DeliveryTrees

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]
Offsets = NDArray[np.int64]

ALPHA = 0.10
"""By how much the load of a place may exceed its share."""


@dataclass(frozen=True, eq=False)
class Substreams:
    """The parts into which all streams are cut: bytes a second, and the anchor where each arises."""

    rate: Floats
    origin: Indices

    def __post_init__(self) -> None:
        if len(self.rate) != len(self.origin):
            raise PlanError(f"{len(self.rate)} rates, but {len(self.origin)} origins")
        if np.any(self.rate < 0):
            raise PlanError("the rate of a substream is not negative")

    def __len__(self) -> int:
        return len(self.rate)


@dataclass(frozen=True, eq=False)
class QueryGraph:
    """Query vertices: those of vertex i are at start[i]..start[i+1] of `substream` and `count`.

    `count` is how many queries of the vertex want the substream. Results are bytes a second by home,
    stored the same way; `load` is CPU seconds a second, `state` the bytes that a move has to fetch.
    """

    start: Offsets
    substream: Indices
    count: Floats
    load: Floats
    result_start: Offsets
    home: Indices
    result: Floats
    state: Floats

    def __post_init__(self) -> None:
        if not len(self.start) == len(self.result_start) == len(self.load) + 1:
            raise PlanError("every vertex of a query graph has substreams, results and a load")
        if np.any(self.load < 0) or np.any(self.result < 0) or np.any(self.count <= 0):
            raise PlanError("loads, results and counts of a query graph are not negative")

    def __len__(self) -> int:
        return len(self.load)

    @cached_property
    def main_home(self) -> Indices:
        """For each vertex the home that gets most of its results, the first of several."""
        # Every vertex has a home, so as many entries as vertices means one each.
        if len(self.home) == len(self):
            return self.home
        found = np.empty(len(self), np.int32)
        for vertex in range(len(self)):
            part = slice(self.result_start[vertex], self.result_start[vertex + 1])
            found[vertex] = self.home[part][np.argmax(self.result[part])]
        return found

    def input_rates(self, substreams: Substreams) -> Floats:
        """Bytes a second that each vertex reads, a substream once however many of its queries want it."""
        rates = np.concatenate(([0.0], np.cumsum(substreams.rate[self.substream])))
        return np.diff(rates[self.start])

    def select(self, vertices: Indices) -> QueryGraph:
        """The graph of some vertices, in that order."""
        start, at = _slices(self.start, vertices)
        result_start, result_at = _slices(self.result_start, vertices)
        return QueryGraph(
            start,
            self.substream[at],
            self.count[at],
            self.load[vertices],
            result_start,
            self.home[result_at],
            self.result[result_at],
            self.state[vertices],
        )


def _slices(start: Offsets, vertices: Indices) -> tuple[Offsets, Offsets]:
    """Offsets of the chosen rows, and where their entries are."""
    sizes = (start[1:] - start[:-1])[vertices]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - start[:-1][vertices], sizes)
    return offsets, at


def make_query_graph(
    interests: Sequence[Sequence[int]],
    load: Sequence[float],
    home: Sequence[int],
    result: Sequence[float],
    state: Sequence[float] | None = None,
) -> QueryGraph:
    """Queries as they are submitted: each wants some substreams once and has one home."""
    start = np.concatenate(([0], np.cumsum([len(one) for one in interests]))).astype(np.int64)
    substream = np.array([s for one in interests for s in sorted(one)], np.int32)
    size = len(interests)
    return QueryGraph(
        start,
        substream,
        np.ones(len(substream)),
        np.array(load, np.float64),
        np.arange(size + 1, dtype=np.int64),
        np.array(home, np.int32),
        np.array(result, np.float64),
        np.ones(size) if state is None else np.array(state, np.float64),
    )


def concatenate(graphs: Sequence[QueryGraph]) -> QueryGraph:
    """The vertices of several graphs, one graph after the other."""
    return QueryGraph(
        _joined_offsets([graph.start for graph in graphs]),
        np.concatenate([graph.substream for graph in graphs]),
        np.concatenate([graph.count for graph in graphs]),
        np.concatenate([graph.load for graph in graphs]),
        _joined_offsets([graph.result_start for graph in graphs]),
        np.concatenate([graph.home for graph in graphs]),
        np.concatenate([graph.result for graph in graphs]),
        np.concatenate([graph.state for graph in graphs]),
    )


def sums_by(label: Indices, values: Floats, size: int) -> Floats:
    """The sum of the values of each label."""
    return np.bincount(label, values, size).astype(np.float64)


def _joined_offsets(offsets: Sequence[Offsets]) -> Offsets:
    sizes = np.concatenate([np.diff(one) for one in offsets])
    return np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Places:
    """Where queries may run: the providers, or the children of a coordinator.

    `latency[k, l]` is that between places, `anchor[a, k]` that from an anchor (an origin or a home) to
    a place, in seconds; `trees` say over which ways substreams reach the places. The origins are the
    first of the anchors, and only they have trees.
    """

    capability: Floats
    latency: Floats
    anchor: Floats
    trees: DeliveryTrees

    def __post_init__(self) -> None:
        size = len(self.capability)
        if self.latency.shape != (size, size) or self.anchor.shape[1] != size:
            raise PlanError(f"latencies between {size} places and their anchors are missing")
        if np.any(np.diag(self.latency) != 0):
            raise PlanError("a place is at no distance from itself")
        if np.any(self.capability < 0) or not np.any(self.capability > 0):
            raise PlanError("no place is able to run anything")

    def __len__(self) -> int:
        return len(self.capability)


@dataclass(frozen=True, eq=False)
class Problem:
    """Queries to be mapped onto places; `bound` is the load that each place may have."""

    substreams: Substreams
    queries: QueryGraph
    places: Places
    bound: Floats

    def with_queries(self, queries: QueryGraph) -> Problem:
        """The same places and bounds for other queries."""
        return replace(self, queries=queries)


def make_problem(
    substreams: Substreams,
    queries: QueryGraph,
    places: Places,
    alpha: float = ALPHA,
    share: float | None = None,
) -> Problem:
    """A problem in which a place may have 1 + alpha of its share.

    `share` is the load for each unit of capability: that of all of the federation where the places are
    only a part of it, else that of these queries on these places.
    """
    if share is None:
        share = float(queries.load.sum() / places.capability.sum())
    return Problem(substreams, queries, places, (1 + alpha) * share * places.capability)
