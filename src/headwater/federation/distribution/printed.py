"""The thesis's algorithms as they are printed, to show where they loop, violate bounds or lose.

In plain Python over explicit edges, for small graphs. Each loop that may not end has a limit of steps, and
says so when it was reached.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.federation.distribution.adaptation import diffusion
from headwater.federation.distribution.model import Floats, Indices, Problem, sums_by
from headwater.federation.distribution.objective import check

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PrintedOutcome:
    """What a printed algorithm ends with: a mapping or the numbers of vertices, and whether it ended."""

    place: Indices
    ended: bool
    stuck_queries: int = 0
    """Queries that were merged with an origin or home, and can be mapped no more."""


@dataclass(frozen=True, eq=False)
class ExplicitEdges:
    """The query graph with its edges: between vertices, and from vertices to anchors."""

    pair: Floats
    anchor: Floats


def explicit_edges(problem: Problem) -> ExplicitEdges:
    """All edges of a small graph."""
    graph, substreams = problem.queries, problem.substreams
    size = len(graph)
    wants = np.zeros((size, len(substreams)))
    vertex = np.repeat(np.arange(size), np.diff(graph.start))
    wants[vertex, graph.substream] = graph.count
    pair = wants * substreams.rate @ wants.T
    np.fill_diagonal(pair, 0.0)
    anchor = np.zeros((size, len(problem.places.anchor)))
    np.add.at(
        anchor,
        (vertex, substreams.origin[graph.substream]),
        substreams.rate[graph.substream] * graph.count,
    )
    vertex = np.repeat(np.arange(size), np.diff(graph.result_start))
    np.add.at(anchor, (vertex, graph.home), graph.result)
    return ExplicitEdges(pair, anchor)


def explicit_wec(problem: Problem, edges: ExplicitEdges, place: Indices) -> float:
    """WEC from the edges, each once."""
    apart = problem.places.latency[np.ix_(place, place)]
    to_anchors = problem.places.anchor[:, place].T
    return float((edges.pair * apart).sum() / 2 + (edges.anchor * to_anchors).sum())


def printed_coarsen(problem: Problem, vertices: int, limit: int = 1_000) -> PrintedOutcome:
    """Algorithm 3.1: `place` is the vertex that each query went into.

    Origins and homes count as vertices and take queries in. A vertex without a neighbour that may be merged
    stays unmatched, so that the loop over unmatched vertices never ends.
    """
    edges = explicit_edges(problem)
    queries, anchors = edges.anchor.shape
    size = queries + anchors
    weight = np.zeros((size, size))
    weight[:queries, :queries] = edges.pair
    weight[:queries, queries:] = edges.anchor
    weight[queries:, :queries] = edges.anchor.T
    label = np.arange(size)
    is_anchor = np.arange(size) >= queries
    alive, steps = np.ones(size, np.bool_), 0
    generator = np.random.default_rng(0)
    while alive.sum() > vertices:
        unmatched = alive.copy()
        while unmatched.any() and alive.sum() > vertices:
            steps += 1
            if steps > limit:
                return _coarsened(label, is_anchor, queries, ended=False)
            u = int(generator.choice(np.flatnonzero(unmatched)))
            may = unmatched & (weight[u] > 0) & ~(is_anchor & is_anchor[u])
            may[u] = False
            if not may.any():
                continue
            v = int(np.argmax(np.where(may, weight[u], -1.0)))
            weight[u] += weight[v]
            weight[:, u] = weight[u]
            weight[u, u] = 0.0
            weight[v] = weight[:, v] = 0.0
            is_anchor[u] |= is_anchor[v]
            label[label == v] = u
            alive[v] = unmatched[u] = unmatched[v] = False
    return _coarsened(label, is_anchor, queries, ended=True)


def _coarsened(label: Indices, is_anchor: Flags, queries: int, ended: bool) -> PrintedOutcome:
    stuck = int(is_anchor[label[:queries]].sum())
    return PrintedOutcome(label[:queries].astype(np.int32), ended, stuck)


def printed_map(problem: Problem, start: Indices) -> PrintedOutcome:
    """Algorithm 3.2 from a start: matched vertices stay so, and the least WEC wins even if it violates."""
    edges = explicit_edges(problem)
    best = start.copy()
    least = explicit_wec(problem, edges, best)
    is_matched = np.zeros(len(start), np.bool_)
    while True:
        before, place = least, best.copy()
        while (move := _printed_move(problem, edges, place, is_matched)) is not None:
            vertex, target = move
            is_matched[vertex] = True
            place[vertex] = target
            wec = explicit_wec(problem, edges, place)
            if wec < least:
                least, best = wec, place.copy()
        if least == before:
            return PrintedOutcome(best, ended=True)


def _printed_move(
    problem: Problem, edges: ExplicitEdges, place: Indices, is_matched: Flags
) -> tuple[int, int] | None:
    """The unmatched vertex and place of the largest gain that violates no bound or improves one."""
    load = sums_by(place, problem.queries.load, len(problem.places))
    violation, wec = check(problem, place).violation, explicit_wec(problem, edges, place)
    found: tuple[int, int] | None = None
    largest = -np.inf
    for vertex in np.flatnonzero(~is_matched):
        for k in range(len(problem.places)):
            if k == place[vertex]:
                continue
            after = place.copy()
            after[vertex] = k
            fits = load[k] + problem.queries.load[vertex] <= problem.bound[k] * (1 + 1e-9)
            if fits or check(problem, after).violation < violation:
                gain = wec - explicit_wec(problem, edges, after)
                if gain > largest:
                    found, largest = (int(vertex), k), gain
    return found


def printed_balance(
    problem: Problem, place: Indices, seed: int = 0, limit: int = 1_000
) -> PrintedOutcome:
    """Algorithm 3.3: flows are not reduced by what was moved, and a flow that nothing fits has no exit."""
    edges = explicit_edges(problem)
    place = place.copy()
    load = sums_by(place, problem.queries.load, len(problem.places))
    flow = diffusion(load, problem.places.capability)
    generator = np.random.default_rng(seed)
    pairs = np.argwhere(flow > 1e-9 * load.sum())
    for _ in range(limit):
        if not len(pairs):
            return PrintedOutcome(place, ended=True)
        i, j = pairs[generator.integers(len(pairs))]
        fits = (place == i) & (0.9 * problem.queries.load < flow[i, j])
        if not fits.any():
            continue
        own = np.flatnonzero(fits)
        wec = explicit_wec(problem, edges, place)
        benefit = []
        for vertex in own:
            after = place.copy()
            after[vertex] = j
            benefit.append(wec - explicit_wec(problem, edges, after))
        place[own[int(np.argmax(benefit))]] = j
    return PrintedOutcome(place, ended=not len(pairs))
