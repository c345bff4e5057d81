"""Adaptive redistribution: in rounds, level by level, load is diffused and the mapping refined.

A round starts from where the queries run. Each coordinator balances its children by the flow of least
norm, choosing vertices that gain most, and then refines: back to where a vertex was unless its move pays,
or on to where it is cheaper by enough to pay for its state. Queries move after all decisions of a round. Against
the printed algorithm every loop ends, flows shrink by what was moved, and no move is made that does
not pay, so that a world without changes stops moving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwater.federation.distribution.hierarchy import (
    OUTSIDE,
    Branch,
    Federation,
    HierarchySettings,
    build_levels,
    members,
)
from headwater.federation.distribution.kernel import (
    NOWHERE,
    TOLERANCE,
    Arrays,
    State,
    added_violation,
    excess,
    exchange,
    fill_row,
    map_greedily,
    move,
    single_cost,
    sweep,
    violation,
)
from headwater.federation.distribution.mapping import places_of
from headwater.federation.distribution.model import Floats, Indices, Problem, QueryGraph
from headwater.federation.distribution.objective import (
    least_cost,
    mapped_state,
    search_arrays,
)
from headwater.jit import cached_njit

ROUND_SECONDS = 200.0
"""How often the root begins a round."""

FIT = 0.9
"""A vertex may be moved for a flow of at least so much of its load."""

LEAST_GAIN = 0.10
"""Of what a vertex costs, so that a move is worth it.

With 0.01 rounds that follow a change of rates move half again to twice as many queries, for 1 % of the cost.
"""


@dataclass(frozen=True)
class AdaptationSettings:
    """`near` is the thesis's x: how far below the largest benefit a vertex may be chosen.

    A refining move has to save `least_gain` of what the vertex costs, and within `horizon` seconds more than
    its state costs to move.
    """

    hierarchy: HierarchySettings = field(default_factory=HierarchySettings)
    near: float = 0.10
    least_gain: float = LEAST_GAIN
    horizon: float = 600.0
    passes: int = 8


DEFAULT_ADAPTATION = AdaptationSettings()


@dataclass(frozen=True, eq=False)
class AdaptationRound:
    """Where the queries run after a round, and how many of them moved."""

    place: Indices
    migrations: int


def diffusion(load: Floats, capability: Floats) -> Floats:
    """The flow between any two children that balances them, of least Euclidean norm.

    The sum of row i is what child i has above its share of the sum; m[i, j] = -m[j, i].
    """
    surplus = load - capability * load.sum() / capability.sum()
    flow: Floats = (surplus[:, None] - surplus[None, :]) / len(load)
    return flow


def adapt(
    federation: Federation,
    queries: QueryGraph,
    place: Indices,
    settings: AdaptationSettings = DEFAULT_ADAPTATION,
    seed: int = 0,
) -> AdaptationRound:
    """One round: the graphs go up by host, the decisions come down.

    A function of the world and the seed: after a round without a move, the same seed moves nothing until
    something changes. A round that would save nothing and mend no violation moves nothing.
    """
    levels = build_levels(federation, queries, place, settings.hierarchy, seed, by_child=True)
    graphs = [queries, *(level.graph for level in levels)]
    hosts = _hosts_by_level(place, [level.label for level in levels])
    share = federation.share(queries)
    result = place.copy()
    root = federation.tree
    todo = [(root, np.arange(len(graphs[root.height - 1]), dtype=np.int32))]
    while todo:
        branch, vertices = todo.pop()
        graph = graphs[branch.height - 1].select(vertices)
        before = federation.child_of(branch)[hosts[branch.height - 1][vertices]]
        problem = federation.child_problem(branch, graph, share)
        # By coordinator: what one decides does not depend on which others were visited before it.
        generator = np.random.default_rng((seed, branch.height, branch.node))
        chosen = redistribute(problem, before, settings, generator)
        for k, child in enumerate(branch.branches):
            own = vertices[chosen == k]
            if branch.height == 1:
                result[own] = child.node
            elif len(own):
                todo.append((child, members(levels[branch.height - 2], own)))
    # What each coordinator finds better for its children may be worse for all together.
    result = least_cost(federation.problem(queries), settings.hierarchy.objective, place, result)
    return AdaptationRound(result, int(np.count_nonzero(result != place)))


def _hosts_by_level(place: Indices, labels: list[Indices]) -> list[Indices]:
    """For the vertices of each level a provider that runs one of its queries."""
    hosts = [place]
    for label in labels:
        above = np.empty(int(label.max(initial=-1)) + 1, np.int32)
        # Backwards, so that of several values the first one stays.
        above[label[::-1]] = hosts[-1][::-1]
        hosts.append(above)
    return hosts


def redistribute(
    problem: Problem,
    before: Indices,
    settings: AdaptationSettings,
    generator: np.random.Generator,
) -> Indices:
    """What one coordinator decides for vertices that are at its children, or come from OUTSIDE."""
    if len(problem.queries) == 0:
        return np.zeros(0, np.int32)
    arrays = search_arrays(problem, settings.hierarchy.objective)
    start = before.astype(np.int64)
    state = mapped_state(arrays, problem, settings.hierarchy.objective, before)
    newcomers = np.flatnonzero(before == OUTSIDE)
    order = newcomers[np.argsort(-problem.queries.load[newcomers], kind="stable")]
    map_greedily(arrays, state, order)
    # OUTSIDE is NOWHERE for the kernels: newcomers have no place to keep, and move in any case.
    is_dirty = before == OUTSIDE
    # With all bounds kept, flows would only move queries that may stay.
    if violation(arrays, state) > 0:
        balance(problem, arrays, state, is_dirty, settings, generator)
        # Diffusion ends when no vertex fits its flow; what is still above a bound is moved singly.
        if violation(arrays, state) > 0:
            _lower_violation(arrays, state, generator.permutation(len(start)), settings.passes)
    toll = problem.queries.state / settings.horizon
    tries = settings.hierarchy.mapping.tries
    for _ in range(settings.passes):
        order = generator.permutation(len(start))
        moves = settle(arrays, state, start, order, toll, settings.least_gain)
        exchanged = exchange(arrays, state, order, tries, start, toll, settings.least_gain)
        if moves + exchanged[0] == 0:
            break
    return places_of(state)


def balance(
    problem: Problem,
    arrays: Arrays,
    state: State,
    is_dirty: Any,
    settings: AdaptationSettings,
    generator: np.random.Generator,
) -> None:
    """Move vertices along the flows of the diffusion, until none fits any more.

    Only children above their bound give load away: flows between the others would move queries that may stay.
    """
    is_over = state.used > problem.bound * (1 + TOLERANCE)
    flow = diffusion(state.used.copy(), problem.places.capability)
    # What has no state moves for nothing, so it is the densest.
    density = problem.queries.load / np.maximum(problem.queries.state, 1e-300)
    flows = (flow > TOLERANCE * state.used.sum()) & is_over[:, None]
    pairs = [(int(i), int(j)) for i, j in np.argwhere(flows)]
    while pairs:
        at = int(generator.integers(len(pairs)))
        i, j = pairs[at]
        vertex = select_vertex(arrays, state, is_dirty, density, i, j, flow[i, j], settings.near)
        if vertex == NOWHERE:
            # Algorithm 3.3 has no exit here, and would choose the pair again for ever.
            pairs.pop(at)
            continue
        move(arrays, state, vertex, j)
        is_dirty[vertex] = True
        # Not printed in Algorithm 3.3, which would go on until child i is empty.
        flow[i, j] -= problem.queries.load[vertex]


@cached_njit
def select_vertex(
    a: Any, state: Any, is_dirty: Any, density: Any, i: int, j: int, flow: float, near: float
) -> int:
    """Of the vertices at child i that fit the flow to j, the one to move; NOWHERE if none fits.

    Those whose benefit is near the largest; of these the ones that move in this round anyway; of
    these the one of the largest load by state.
    """
    vertices = len(state.place)
    benefit = np.empty(vertices)
    largest = -np.inf
    for vertex in range(vertices):
        benefit[vertex] = -np.inf
        if state.place[vertex] == i and 0.0 < FIT * a.load[vertex] < flow:
            here = single_cost(a, state, vertex, i)
            benefit[vertex] = here - single_cost(a, state, vertex, j)
            largest = max(largest, benefit[vertex])
    best = NOWHERE
    for vertex in range(vertices):
        # Of the absolute value: a share of a negative benefit would rule out even the largest.
        if benefit[vertex] == -np.inf or largest - benefit[vertex] > near * abs(largest):
            continue
        # To go back may cost what it would take to bring the state along.
        if (
            best == NOWHERE
            or (is_dirty[vertex] and not is_dirty[best])
            or (is_dirty[vertex] == is_dirty[best] and density[vertex] > density[best])
        ):
            best = vertex
    return best


@cached_njit
def _lower_violation(a: Any, state: Any, order: Any, passes: int) -> None:
    """Single moves that lower the violation, each to the cheapest of such places."""
    row = np.empty(len(a.bound))
    for _ in range(passes):
        moves = 0
        for vertex in order:
            here = state.place[vertex]
            if excess(state.used[here], a.bound[here]) == 0.0:
                continue
            fill_row(a, state, vertex, row)
            best = NOWHERE
            for k in range(len(row)):
                is_cheaper = best == NOWHERE or row[k] < row[best]
                if k != here and is_cheaper and added_violation(a, state, vertex, k) < 0.0:
                    best = k
            if best != NOWHERE:
                move(a, state, vertex, best)
                moves += 1
        if moves == 0:
            break


@cached_njit
def settle(a: Any, state: Any, start: Any, order: Any, toll: Any, least: float) -> int:
    """One pass of refinement by single moves; returns how many there were."""
    row = np.empty(len(a.bound))
    moves = 0
    for vertex in order:
        here, origin = state.place[vertex], start[vertex]
        fill_row(a, state, vertex, row)
        slack = max(least, TOLERANCE) * abs(row[here])
        is_away = origin != NOWHERE and origin != here
        if (
            is_away
            and row[origin] <= row[here] + slack + toll[vertex] * a.latency[here, origin]
            and added_violation(a, state, vertex, origin) <= 0.0
        ):
            move(a, state, vertex, origin)
            moves += 1
            continue
        best = here
        for k in range(len(row)):
            if row[k] < row[best] and added_violation(a, state, vertex, k) <= 0.0:
                best = k
        gain = row[here] - row[best]
        # One that leaves its place in this round anyway brings its state along either way.
        price = 0.0
        if here == origin:
            price = toll[vertex] * a.latency[here, best]
        if best != here and gain > max(slack, price):
            move(a, state, vertex, best)
            moves += 1
    return moves


def leave_provider(
    federation: Federation,
    queries: QueryGraph,
    place: Indices,
    provider: int,
    settings: AdaptationSettings = DEFAULT_ADAPTATION,
) -> Indices:
    """The mapping after a provider has left as planned: its queries move to others, and no query else.

    The lowest coordinator above it that has room for them decides; without room, the root does.
    """
    leaving = np.flatnonzero(place == provider)
    able = federation.places.capability.copy()
    able[provider] = 0.0
    bound = (1 + federation.alpha) * able * float(queries.load.sum() / able.sum())
    room = np.maximum(bound - np.bincount(place, queries.load, len(able)), 0.0)
    room[provider] = 0.0
    asked = [b for b in federation.tree.coordinators() if provider in b.providers]
    wanted = float(queries.load[leaving].sum())
    # Children come before parents: the first with room is the lowest, the last is the root.
    chosen = next((b for b in asked if room[b.providers].sum() >= wanted), asked[-1])
    return _rehost(federation, queries, place, leaving, chosen, bound, settings)


def _rehost(
    federation: Federation,
    queries: QueryGraph,
    place: Indices,
    leaving: Any,
    branch: Branch,
    bound: Floats,
    settings: AdaptationSettings,
) -> Indices:
    """Map some queries onto the providers of a branch, with all others fixed."""
    providers = branch.providers
    flat = Branch(branch.node, tuple(Branch(int(node)) for node in providers))
    position = federation.child_of(flat)
    kept = np.flatnonzero((position[place] != OUTSIDE) & ~np.isin(np.arange(len(place)), leaving))
    graph = queries.select(np.concatenate((kept, leaving)).astype(np.int32))
    places = federation.child_places(flat)
    problem = Problem(federation.substreams, graph, places, bound[providers])
    objective = settings.hierarchy.objective
    arrays = search_arrays(problem, objective)
    before = np.concatenate((position[place[kept]], np.full(len(leaving), NOWHERE)))
    state = mapped_state(arrays, problem, objective, before)
    # Only those that leave are in the order, so nothing else can move.
    order = len(kept) + np.argsort(-queries.load[leaving], kind="stable")
    map_greedily(arrays, state, order)
    for _ in range(settings.passes):
        moves, _ = sweep(arrays, state, order)
        if moves == 0:
            break
    result = place.copy()
    result[leaving] = providers[state.place[len(kept) :]]
    return result
