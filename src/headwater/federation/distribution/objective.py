"""What a mapping costs and whether it keeps the bounds: weighted edge cut, exact traffic, loads.

WEC is the thesis's objective: every two queries pay for the data that both want by the distance between
them, each pair once. Traffic is what the links carry: a substream once over the union of its
paths, each result from host to home. Both are bytes a second times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headwater.errors import PlanError
from headwater.federation.distribution.kernel import (
    NOWHERE,
    TOLERANCE,
    TRAFFIC,
    WEC,
    Arrays,
    State,
    put,
    result_cost,
)
from headwater.federation.distribution.model import Floats, Indices, Problem, sums_by
from headwater.jit import cached_njit

Objective = Literal["wec", "traffic"]
OBJECTIVES: dict[Objective, int] = {"wec": WEC, "traffic": TRAFFIC}


@dataclass(frozen=True)
class MappingCheck:
    """What a mapping amounts to; `violation` is the load above the bounds, summed over places."""

    load: Floats
    violation: float
    wec: float
    traffic: float
    result_traffic: float
    """The part of the traffic that results cause."""

    @property
    def feasible(self) -> bool:
        return self.violation == 0

    def relative_loads(self, problem: Problem) -> Floats:
        """The load of each place that is able to run queries, by its share of the sum."""
        able = problem.places.capability > 0
        capability = problem.places.capability[able]
        return self.load[able] * capability.sum() / (capability * max(self.load.sum(), 1e-300))


def check(problem: Problem, place: Indices) -> MappingCheck:
    """Recompute everything about a mapping; raises PlanError for one that maps a vertex nowhere."""
    if len(place) != len(problem.queries):
        raise PlanError(f"{len(problem.queries)} vertices, but {len(place)} places for them")
    if len(place) and not (place.min() >= 0 and place.max() < len(problem.places)):
        raise PlanError(f"places go from 0 to {len(problem.places) - 1}")
    # Neither cost below looks at the objective in the arrays, so one set serves both.
    arrays = search_arrays(problem, "wec")
    results = float(_results_cost(arrays, place))
    return MappingCheck(
        _loads(problem, place),
        _violation(problem, place),
        float(_pair_cost(arrays, place)) + results,
        float(_tree_cost(arrays, place)) + results,
        results,
    )


def _loads(problem: Problem, place: Indices) -> Floats:
    return sums_by(place, problem.queries.load, len(problem.places))


def _violation(problem: Problem, place: Indices) -> float:
    load = _loads(problem, place)
    over = load - problem.bound
    return float(over[load > problem.bound * (1 + TOLERANCE)].sum())


def least_cost(problem: Problem, objective: Objective, *places: Indices) -> Indices:
    """The mapping of the least violation, then of the least cost; of equal ones the first.

    Nobody has to know all queries for that: each origin knows which places want its substreams, each host its
    load and its results, and the root adds up what they say before anything moves.
    """
    total = max(float(problem.queries.load.sum()), 1e-300)
    # As in the search: to nine digits, else rounding would decide before the cost does.
    values = [
        (round(_violation(problem, place) / total, 9), cost(problem, place, objective))
        for place in places
    ]
    return places[values.index(min(values))]


def cost(problem: Problem, place: Indices, objective: Objective) -> float:
    """The cost of a mapping by one objective."""
    arrays = search_arrays(problem, objective)
    data = _pair_cost if objective == "wec" else _tree_cost
    return float(data(arrays, place)) + float(_results_cost(arrays, place))


def search_arrays(problem: Problem, objective: Objective) -> Arrays:
    """A problem as the compiled functions take it."""
    graph, places, trees = problem.queries, problem.places, problem.places.trees
    return Arrays(
        OBJECTIVES[objective],
        graph.start,
        graph.substream,
        graph.count,
        graph.load,
        graph.result_start,
        graph.home,
        graph.result,
        problem.substreams.rate,
        problem.substreams.origin,
        places.latency,
        places.anchor,
        trees.parent,
        trees.length,
        trees.node,
        trees.size,
        problem.bound,
    )


def empty_state(problem: Problem, objective: Objective) -> State:
    """The state of a search in which nothing is mapped."""
    substreams, places = problem.substreams, problem.places
    nodes = places.trees.parent.shape[1]
    # The matrix of the other objective stays empty: of 20,000 substreams by 256 places it has 41
    # MB.
    if objective == "wec":
        price = substreams.rate[:, None] * places.anchor[substreams.origin]
        wanted = np.zeros((0, nodes), np.int32)
    else:
        price = np.zeros((0, len(places)))
        wanted = np.zeros((len(substreams), nodes), np.int32)
    return State(
        np.full(len(problem.queries), NOWHERE, np.int64),
        np.zeros(len(places)),
        price,
        wanted,
        np.zeros(nodes),
    )


def mapped_state(arrays: Arrays, problem: Problem, objective: Objective, place: Indices) -> State:
    """The state of a search at a mapping; vertices that are NOWHERE stay there."""
    state = empty_state(problem, objective)
    _put_all(arrays, state, place.astype(np.int64))
    return state


@cached_njit
def _put_all(a: Any, state: Any, place: Any) -> None:
    for vertex in range(len(place)):
        if place[vertex] != NOWHERE:
            put(a, state, vertex, place[vertex])


@cached_njit
def _results_cost(a: Any, place: Any) -> float:
    total = 0.0
    for vertex in range(len(place)):
        total += result_cost(a, vertex, place[vertex])
    return total


@cached_njit
def _pair_cost(a: Any, place: Any) -> float:
    """Edges to origins and between vertices: by substream, from how many queries each place has."""
    places = len(a.bound)
    count = np.zeros((len(a.rate), places))
    for vertex in range(len(place)):
        for at in range(a.start[vertex], a.start[vertex + 1]):
            count[a.substream[at], place[vertex]] += a.count[at]
    total = 0.0
    for s in range(len(a.rate)):
        cost = 0.0
        for k in range(places):
            if count[s, k] > 0.0:
                apart = a.anchor[a.origin[s], k]
                # Each pair once; equation (3.4) sums ordered pairs, which is twice as much.
                for other in range(k):
                    apart += count[s, other] * a.latency[k, other]
                cost += count[s, k] * apart
        total += a.rate[s] * cost
    return total


@cached_njit
def _tree_cost(a: Any, place: Any) -> float:
    """Each substream once over every link between its origin and the places that want it."""
    is_wanted = np.zeros((len(a.rate), a.parent.shape[1]), np.bool_)
    total = 0.0
    for vertex in range(len(place)):
        for at in range(a.start[vertex], a.start[vertex + 1]):
            s = a.substream[at]
            origin = a.origin[s]
            n = a.node[origin, place[vertex]]
            while n > 0 and not is_wanted[s, n]:
                is_wanted[s, n] = True
                total += a.rate[s] * a.length[origin, n]
                n = a.parent[origin, n]
    return total
