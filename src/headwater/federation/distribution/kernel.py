"""The compiled search over mappings: what a vertex costs at each place, moves and exchanges.

Both objectives have the same three operations: the row of costs of one vertex over all places, one cost
of it, and its move. For WEC a matrix of substreams by places holds what one more query that wants
a substream would cost at a place; for traffic a count for each substream and node of its delivery
tree says where it runs already. Ties are broken by number, so that a run repeats exactly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headwater.jit import cached_njit

WEC = 0
TRAFFIC = 1

NOWHERE = -1
"""The place of a vertex that is not mapped yet."""

TOLERANCE = 1e-9
"""Relative: loads and costs that differ by less are the same, because both are sums kept up to date."""


class Arrays(NamedTuple):
    """What a search does not change: see QueryGraph, Substreams, Places and Problem."""

    objective: int
    start: Any
    substream: Any
    count: Any
    load: Any
    result_start: Any
    home: Any
    result: Any
    rate: Any
    origin: Any
    latency: Any
    anchor: Any
    parent: Any
    length: Any
    node: Any
    size: Any
    bound: Any


class State(NamedTuple):
    """A mapping while it is searched: the place of each vertex, and sums that follow from it."""

    place: Any
    used: Any
    price: Any
    """WEC: [substream, place], the cost there of one more query that wants the substream."""
    wanted: Any
    """Traffic: [substream, tree node], how many vertices at or below the node want the substream."""
    scratch: Any
    """One number for each node of a delivery tree."""


@cached_njit
def result_cost(a: Any, vertex: int, place: int) -> float:
    cost = 0.0
    for at in range(a.result_start[vertex], a.result_start[vertex + 1]):
        cost += a.result[at] * a.anchor[a.home[at], place]
    return cost


@cached_njit
def put(a: Any, state: Any, vertex: int, place: int) -> None:
    """Map a vertex that is mapped nowhere."""
    _change(a, state, vertex, place, 1.0)
    state.place[vertex] = place
    state.used[place] += a.load[vertex]


@cached_njit
def take(a: Any, state: Any, vertex: int) -> None:
    """Map a vertex nowhere."""
    place = state.place[vertex]
    _change(a, state, vertex, place, -1.0)
    state.place[vertex] = NOWHERE
    state.used[place] -= a.load[vertex]


@cached_njit
def _change(a: Any, state: Any, vertex: int, place: int, sign: float) -> None:
    for at in range(a.start[vertex], a.start[vertex + 1]):
        s = a.substream[at]
        if a.objective == WEC:
            weight = sign * a.rate[s] * a.count[at]
            for k in range(len(a.bound)):
                state.price[s, k] += weight * a.latency[k, place]
        else:
            origin = a.origin[s]
            n = a.node[origin, place]
            step = 1 if sign > 0 else -1
            while n > 0:
                state.wanted[s, n] += step
                n = a.parent[origin, n]


@cached_njit
def move(a: Any, state: Any, vertex: int, place: int) -> None:
    """Map a vertex elsewhere."""
    here = state.place[vertex]
    if a.objective == WEC:
        for at in range(a.start[vertex], a.start[vertex + 1]):
            s = a.substream[at]
            weight = a.rate[s] * a.count[at]
            for k in range(len(a.bound)):
                state.price[s, k] += weight * (a.latency[k, place] - a.latency[k, here])
        state.place[vertex] = place
        state.used[here] -= a.load[vertex]
        state.used[place] += a.load[vertex]
    else:
        take(a, state, vertex)
        put(a, state, vertex, place)


@cached_njit
def fill_row(a: Any, state: Any, vertex: int, row: Any) -> None:
    """What the vertex adds to the cost at each place, as if it were mapped nowhere now."""
    here = state.place[vertex]
    for k in range(len(row)):
        row[k] = 0.0
    if a.objective == WEC:
        own = 0.0
        for at in range(a.start[vertex], a.start[vertex + 1]):
            s, count = a.substream[at], a.count[at]
            own += a.rate[s] * count * count
            for k in range(len(row)):
                row[k] += count * state.price[s, k]
        # The prices count its own queries as those of others; to itself they cost it nothing.
        if here != NOWHERE:
            for k in range(len(row)):
                row[k] -= own * a.latency[k, here]
    else:
        if here != NOWHERE:
            take(a, state, vertex)
        need = state.scratch
        for at in range(a.start[vertex], a.start[vertex + 1]):
            s = a.substream[at]
            origin, rate = a.origin[s], a.rate[s]
            # Parents come before children; the need of node 0, the origin, is never written and
            # stays 0.
            for n in range(1, a.size[origin]):
                if state.wanted[s, n] > 0:
                    need[n] = 0.0
                else:
                    need[n] = need[a.parent[origin, n]] + rate * a.length[origin, n]
            for k in range(len(row)):
                row[k] += need[a.node[origin, k]]
        if here != NOWHERE:
            put(a, state, vertex, here)
    for k in range(len(row)):
        row[k] += result_cost(a, vertex, k)


@cached_njit
def single_cost(a: Any, state: Any, vertex: int, place: int) -> float:
    """One number of the row of a vertex."""
    here = state.place[vertex]
    cost = 0.0
    if a.objective == WEC:
        own = 0.0
        for at in range(a.start[vertex], a.start[vertex + 1]):
            s, count = a.substream[at], a.count[at]
            own += a.rate[s] * count * count
            cost += count * state.price[s, place]
        if here != NOWHERE:
            cost -= own * a.latency[place, here]
    else:
        if here != NOWHERE:
            take(a, state, vertex)
        for at in range(a.start[vertex], a.start[vertex + 1]):
            s = a.substream[at]
            origin = a.origin[s]
            n = a.node[origin, place]
            while n > 0 and state.wanted[s, n] == 0:
                cost += a.rate[s] * a.length[origin, n]
                n = a.parent[origin, n]
        if here != NOWHERE:
            put(a, state, vertex, here)
    return cost + result_cost(a, vertex, place)


@cached_njit
def excess(load: float, bound: float) -> float:
    """By how much a load exceeds its bound; rounding does not count."""
    return load - bound if load > bound * (1.0 + TOLERANCE) else 0.0


@cached_njit
def violation(a: Any, state: Any) -> float:
    total = 0.0
    for k in range(len(a.bound)):
        total += excess(state.used[k], a.bound[k])
    return total


@cached_njit
def added_violation(a: Any, state: Any, vertex: int, place: int) -> float:
    """By how much the violation grows if the vertex moves, or is put where it was nowhere."""
    load, here = a.load[vertex], state.place[vertex]
    if here == place:
        return 0.0
    used = state.used[place]
    change = excess(used + load, a.bound[place]) - excess(used, a.bound[place])
    if here != NOWHERE:
        used = state.used[here]
        change += excess(used - load, a.bound[here]) - excess(used, a.bound[here])
    return change


@cached_njit
def map_greedily(a: Any, state: Any, order: Any) -> None:
    """Each vertex to the place with room where it costs least; without room, to the least violation."""
    row = np.empty(len(a.bound))
    for vertex in order:
        fill_row(a, state, vertex, row)
        best, least = NOWHERE, 0.0
        for k in range(len(row)):
            more = added_violation(a, state, vertex, k)
            if best == NOWHERE or more < least or (more == least and row[k] < row[best]):
                best, least = k, more
        put(a, state, vertex, best)


@cached_njit
def best_move(a: Any, state: Any, vertex: int, penalty: float, row: Any) -> Any:
    """Where to move a vertex: the place, its gain, and by how much the violation changes.

    Without a penalty a place has to keep its bound, or the violation has to fall, and places that lower the
    violation go first; NOWHERE if there is none. With a penalty for each unit of violation every
    place is possible.
    """
    fill_row(a, state, vertex, row)
    here = state.place[vertex]
    best, gain, change = NOWHERE, 0.0, 0.0
    for k in range(len(row)):
        if k == here:
            continue
        more = added_violation(a, state, vertex, k)
        is_over = excess(state.used[k] + a.load[vertex], a.bound[k]) > 0.0
        # From one place above its bound to another, a violation would only move.
        if penalty == 0.0 and (more > 0.0 or (more == 0.0 and is_over)):
            continue
        found = row[here] - row[k]
        if best == NOWHERE or is_better(found, more, gain, change, penalty):
            best, gain, change = k, found, more
    return best, gain, change


@cached_njit
def is_better(gain: float, change: float, than: float, than_change: float, penalty: float) -> bool:
    """Whether one move is preferred to another: see best_move."""
    if penalty > 0.0:
        return gain - penalty * change > than - penalty * than_change
    falls, fell = change < 0.0, than_change < 0.0
    return (falls and not fell) or (falls == fell and gain > than)


@cached_njit
def sweep(a: Any, state: Any, order: Any) -> Any:
    """Move each vertex once if that lowers the violation or the cost; the moves, and what they gain."""
    row = np.empty(len(a.bound))
    moves, gained = 0, 0.0
    for vertex in order:
        best, gain, change = best_move(a, state, vertex, 0.0, row)
        here = row[state.place[vertex]]
        if best != NOWHERE and (change < 0.0 or gain > TOLERANCE * abs(here)):
            move(a, state, vertex, best)
            moves += 1
            gained += gain
    return moves, gained


@cached_njit
def climb(a: Any, state: Any, patience: int, penalty: float, exact: bool) -> Any:
    """A pass of single moves, the largest gain first, each vertex once, also at a loss.

    Ends after a number of moves without a better mapping, and returns to the best one; returns by how much
    violation and cost fell. With a penalty (see best_move) it may pass through mappings that violate
    bounds. Unless `exact`, only the gain that seems the largest is computed again.
    """
    vertices = len(state.place)
    row = np.empty(len(a.bound))
    target = np.empty(vertices, np.int64)
    gain = np.empty(vertices)
    change = np.empty(vertices)
    is_free = np.ones(vertices, np.bool_)
    computed = np.full(vertices, -1, np.int64)
    journal = np.empty((vertices, 2), np.int64)
    moves, kept = 0, 0
    cost, best_cost = 0.0, 0.0
    before = violation(a, state)
    over = before
    best_over = before
    while moves < vertices and moves - kept < patience:
        top = NOWHERE
        for vertex in range(vertices):
            if not is_free[vertex]:
                continue
            if computed[vertex] == -1 or (exact and computed[vertex] != moves):
                found = best_move(a, state, vertex, penalty, row)
                target[vertex], gain[vertex], change[vertex] = found
                computed[vertex] = moves
            if target[vertex] == NOWHERE:
                continue
            if top == NOWHERE or is_better(
                gain[vertex], change[vertex], gain[top], change[top], penalty
            ):
                top = vertex
        if top == NOWHERE:
            break
        # Its gain may be from before other moves. Computed again, it need not be the largest any
        # more.
        if computed[top] != moves:
            computed[top] = -1
            continue
        journal[moves, 0], journal[moves, 1] = top, state.place[top]
        move(a, state, top, target[top])
        is_free[top] = False
        moves += 1
        cost -= gain[top]
        over = violation(a, state)
        slack = TOLERANCE * (1.0 + abs(best_cost))
        if over < best_over - TOLERANCE * best_over or (
            over <= best_over and cost < best_cost - slack
        ):
            best_over, best_cost, kept = over, cost, moves
    while moves > kept:
        moves -= 1
        move(a, state, journal[moves, 0], journal[moves, 1])
    return before - best_over, -best_cost


@cached_njit
def exchange(
    a: Any, state: Any, order: Any, tries: int, start: Any, toll: Any, least: float
) -> Any:
    """Exchange two vertices where a better place of one has no room; the exchanges, and the gain.

    An exchange has to gain `least` of what the vertex costs, and the toll, for each second of distance,
    of each of the two that is where it started: what it costs to take its state along.

    For each vertex the places that would gain most are asked; there at most `tries` vertices, spread
    over all of them, whose loads keep both bounds. What seems best is done, and undone if it does not pay.
    """
    places, vertices = len(a.bound), len(state.place)
    # The vertices of each place as lists; one that was exchanged since is passed over.
    first = np.zeros(places + 1, np.int64)
    for vertex in range(vertices):
        first[state.place[vertex] + 1] += 1
    for k in range(places):
        first[k + 1] += first[k]
    member = np.empty(vertices, np.int64)
    fill = first[:-1].copy()
    for vertex in range(vertices):
        k = state.place[vertex]
        member[fill[k]] = vertex
        fill[k] += 1
    row = np.empty(places)
    shared = np.zeros(len(a.rate))
    exchanges, gained = 0, 0.0
    for vertex in order:
        fill_row(a, state, vertex, row)
        here = state.place[vertex]
        for at in range(a.start[vertex], a.start[vertex + 1]):
            shared[a.substream[at]] = a.count[at]
        for _ in range(2):
            there = here
            for k in range(places):
                if row[k] < row[there]:
                    there = k
            if there == here:
                break
            gain = row[here] - row[there]
            needed = max(least, TOLERANCE) * abs(row[here])
            if start[vertex] == here:
                needed += toll[vertex] * a.latency[here, there]
            best, best_gain = NOWHERE, needed
            size = first[there + 1] - first[there]
            stride = max(1, size // tries)
            for at in range(first[there] + vertex % stride, first[there + 1], stride):
                other = member[at]
                if state.place[other] != there or not _may_exchange(a, state, vertex, other):
                    continue
                back = single_cost(a, state, other, there) - single_cost(a, state, other, here)
                both = gain + back - _double_counted(a, other, here, there, shared)
                if start[other] == there:
                    both -= toll[other] * a.latency[here, there]
                if both > best_gain:
                    best, best_gain = other, both
            if best != NOWHERE:
                move(a, state, vertex, there)
                back = single_cost(a, state, best, there) - single_cost(a, state, best, here)
                if start[best] == there:
                    needed += toll[best] * a.latency[here, there]
                # The estimate is exact for WEC only: two that exchange may share ways of delivery.
                if gain + back > needed:
                    move(a, state, best, here)
                    exchanges += 1
                    gained += gain + back
                    break
                move(a, state, vertex, here)
            # The second turn asks the next best place.
            row[there] = np.inf
        for at in range(a.start[vertex], a.start[vertex + 1]):
            shared[a.substream[at]] = 0.0
    return exchanges, gained


@cached_njit
def _may_exchange(a: Any, state: Any, one: int, other: int) -> bool:
    """Whether the exchange leaves no place further above its bound."""
    here, there = state.place[one], state.place[other]
    more = a.load[other] - a.load[one]
    after = excess(state.used[here] + more, a.bound[here])
    after += excess(state.used[there] - more, a.bound[there])
    before = excess(state.used[here], a.bound[here]) + excess(state.used[there], a.bound[there])
    return after <= before


@cached_njit
def _double_counted(a: Any, other: int, here: int, there: int, shared: Any) -> float:
    """What both halves of an exchange count as saved, though the two stay as far apart as they were."""
    if a.objective != WEC:
        return 0.0
    weight = 0.0
    for at in range(a.start[other], a.start[other + 1]):
        s = a.substream[at]
        weight += a.rate[s] * a.count[at] * shared[s]
    return 2.0 * weight * a.latency[here, there]


@cached_njit
def pack(load: Any, bound: Any, order: Any, limit: int) -> Any:
    """Places such that every bound holds, by exhaustive search of at most `limit` steps.

    The vertices in the given order, each first where most room is left. Returns whether there is such
    a mapping; nothing is said about one that needs more steps.
    """
    vertices, places = len(order), len(bound)
    room = bound * (1.0 + TOLERANCE)
    place = np.full(vertices, NOWHERE, np.int64)
    tried = np.zeros((vertices, places), np.bool_)
    depth, steps = 0, 0
    while depth < vertices and steps < limit:
        steps += 1
        vertex = order[depth]
        if place[vertex] != NOWHERE:
            room[place[vertex]] += load[vertex]
            place[vertex] = NOWHERE
        best = NOWHERE
        for k in range(places):
            is_largest = best == NOWHERE or room[k] > room[best]
            if is_largest and not tried[depth, k] and load[vertex] <= room[k]:
                best = k
        if best == NOWHERE:
            tried[depth, :] = False
            depth -= 1
            if depth < 0:
                break
            continue
        for k in range(places):
            # A place with as much room would end the same way.
            if room[k] == room[best]:
                tried[depth, k] = True
        place[vertex] = best
        room[best] -= load[vertex]
        depth += 1
    return depth == vertices, place
