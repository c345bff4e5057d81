"""Coarsening: alike queries become one vertex, until a coordinator has few enough of them to map.

Every vertex in random order is merged with the neighbour of the heaviest edge, which is found through
an index from substreams to vertices. Against the printed algorithm a vertex without a partner
is passed over (it would loop forever), no vertex grows above a weight that could no longer be balanced, and
queries never merge with origins or homes, whose place is fixed. Counts of substreams add up, so
the WEC of a coarse mapping is that of the fine mapping it represents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.federation.distribution.model import (
    Floats,
    Indices,
    QueryGraph,
    Substreams,
    sums_by,
)
from headwater.jit import cached_njit

ALL_NEIGHBOURS = 400
"""With at most this many vertices, every other vertex is considered; otherwise CANDIDATES of them."""

CANDIDATES = 64

ROOM = 1.5
"""The largest weight of a merged vertex, in mean weights of the vertices that are wanted."""


@dataclass(frozen=True, eq=False)
class Coarse:
    """A coarse graph, and for each finer vertex the coarse one it went into."""

    graph: QueryGraph
    label: Indices


def default_vertex_limit(children: int) -> int:
    """How many vertices a coordinator maps: the thesis has no number for it."""
    return max(200, 30 * children)


def coarsen(
    graph: QueryGraph,
    substreams: Substreams,
    vertices: int,
    generator: np.random.Generator,
    group: Indices | None = None,
    homes: Floats | None = None,
    reach: float = 1.0,
) -> Coarse:
    """Merge vertices until at most `vertices` are left, or no two may be merged.

    Only vertices of the same `group` merge. With `homes`, latencies between homes, an edge counts what
    it saves to have both at one place: the data that both want over a distance of `reach`, less the
    results that have to travel. Without, it is the data that both want, each pair of queries once.
    """
    weight_limit = ROOM * float(graph.load.sum()) / max(vertices, 1)
    label = np.arange(len(graph), dtype=np.int32)
    while len(graph) > vertices:
        groups = np.zeros(len(graph), np.int32) if group is None else group
        order = generator.permutation(len(graph))
        merged, size = _match(
            graph.start,
            graph.substream,
            graph.count,
            graph.load,
            _inverse(graph, len(substreams)),
            substreams.rate,
            groups,
            graph.main_home,
            graph.result_start,
            graph.result,
            np.zeros((0, 0)) if homes is None else homes,
            reach,
            order,
            len(graph) - vertices,
            weight_limit,
        )
        # No two may be merged: here Algorithm 3.1 would not end.
        if size == len(graph):
            break
        if group is not None:
            group = _first_of_each(merged, size, groups)
        graph = merge(graph, merged, size)
        label = merged[label]
    return Coarse(graph, label)


def _first_of_each(label: Indices, size: int, values: Indices) -> Indices:
    result = np.empty(size, np.int32)
    # Backwards, so that the first of each label is what stays.
    result[label[::-1]] = values[::-1]
    return result


def merge(graph: QueryGraph, label: Indices, size: int) -> QueryGraph:
    """The graph in which all vertices of one label are one: loads, counts, results and state add up."""
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(size + 1))
    start, substream, count = _sum_rows(
        order, first, graph.start, graph.substream, graph.count, _width(graph.substream)
    )
    result_start, home, result = _sum_rows(
        order, first, graph.result_start, graph.home, graph.result, _width(graph.home)
    )
    return QueryGraph(
        start,
        substream,
        count,
        sums_by(label, graph.load, size),
        result_start,
        home,
        result,
        sums_by(label, graph.state, size),
    )


def _width(columns: Indices) -> int:
    return int(columns.max()) + 1 if len(columns) else 0


def _inverse(graph: QueryGraph, substreams: int) -> tuple[Any, Any]:
    """For each substream the vertices that want it: at first[s]..first[s+1]."""
    vertex = np.repeat(np.arange(len(graph), dtype=np.int32), np.diff(graph.start))
    order = np.argsort(graph.substream, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(graph.substream, minlength=substreams))))
    return first, vertex[order]


@cached_njit
def _sum_rows(order: Any, first: Any, start: Any, column: Any, value: Any, width: int) -> Any:
    """Rows of a sparse matrix added up by group, with columns in ascending order."""
    size = len(first) - 1
    sums = np.zeros(width)
    is_there = np.zeros(width, np.bool_)
    touched = np.empty(width, np.int32)
    offsets = np.zeros(size + 1, np.int64)
    columns = np.empty(len(column), np.int32)
    values = np.empty(len(column))
    filled = 0
    for group in range(size):
        number = 0
        for member in range(first[group], first[group + 1]):
            row = order[member]
            for at in range(start[row], start[row + 1]):
                c = column[at]
                if not is_there[c]:
                    is_there[c] = True
                    touched[number] = c
                    number += 1
                sums[c] += value[at]
        for c in np.sort(touched[:number]):
            columns[filled], values[filled] = c, sums[c]
            filled += 1
            sums[c], is_there[c] = 0.0, False
        offsets[group + 1] = filled
    return offsets, columns[:filled].copy(), values[:filled].copy()


@cached_njit
def _match(
    start: Any,
    substream: Any,
    count: Any,
    load: Any,
    inverse: Any,
    rate: Any,
    group: Any,
    home: Any,
    result_start: Any,
    result: Any,
    homes: Any,
    reach: float,
    order: Any,
    most: int,
    weight_limit: float,
) -> Any:
    """One pass: labels of the merged graph in the order of its first members, and its size."""
    vertices = len(load)
    first, member = inverse
    partner = np.full(vertices, -1, np.int64)
    is_matched = np.zeros(vertices, np.bool_)
    own = np.zeros(len(rate))
    seen = np.full(vertices, -1, np.int64)
    candidates = np.empty(vertices, np.int64)
    merged = 0
    for u in order:
        if merged == most:
            break
        if is_matched[u]:
            continue
        number = 0
        if vertices <= ALL_NEIGHBOURS:
            for v in range(vertices):
                candidates[number] = v
                number += 1
        else:
            # From every substream's list a few, at an offset that differs by vertex.
            size = start[u + 1] - start[u]
            each = max(1, (2 * CANDIDATES + size - 1) // max(size, 1))
            for turn in range(size):
                # A prime step visits the substreams in scattered order and, unless it divides their
                # number, each once.
                at = start[u] + (turn * 7919 + u) % size
                s = substream[at]
                length = first[s + 1] - first[s]
                for pick in range(min(each, length)):
                    v = member[first[s] + (u * 31 + pick * 17 + turn) % length]
                    if seen[v] != u:
                        seen[v] = u
                        candidates[number] = v
                        number += 1
                if number >= CANDIDATES:
                    break
        for at in range(start[u], start[u + 1]):
            own[substream[at]] = count[at]
        best, heaviest = -1, 0.0
        results_u = result[result_start[u] : result_start[u + 1]].sum()
        for c in range(number):
            v = candidates[c]
            if v == u or is_matched[v] or group[v] != group[u]:
                continue
            if load[u] + load[v] > weight_limit:
                continue
            weight = 0.0
            if len(homes) == 0:
                for at in range(start[v], start[v + 1]):
                    weight += rate[substream[at]] * count[at] * own[substream[at]]
            else:
                for at in range(start[v], start[v + 1]):
                    if own[substream[at]] > 0.0:
                        weight += rate[substream[at]]
                results_v = result[result_start[v] : result_start[v + 1]].sum()
                # Both run at the home of one, best of the one with more results: those of the other
                # travel.
                weight = weight * reach - min(results_u, results_v) * homes[home[u], home[v]]
            is_edge = weight > 0.0 or len(homes) > 0
            if is_edge and (best == -1 or weight > heaviest or (weight == heaviest and v < best)):
                best, heaviest = v, weight
        # Only what was written: the array is as long as there are substreams.
        for at in range(start[u], start[u + 1]):
            own[substream[at]] = 0.0
        is_matched[u] = True
        if best != -1:
            is_matched[best] = True
            partner[u], partner[best] = best, u
            merged += 1
    label = np.full(vertices, -1, np.int32)
    size = 0
    for u in range(vertices):
        if label[u] == -1:
            label[u] = size
            if partner[u] != -1:
                label[partner[u]] = size
            size += 1
    return label, size
