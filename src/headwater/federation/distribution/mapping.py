"""Mapping queries onto places: several starts, each improved by moves and exchanges, the best one wins.

Mappings are compared by violation of the bounds first and by cost second. The starts are the homes,
a greedy mapping, and a mapping of clusters of alike queries; so the result is never worse than any of these.
Keeping the bounds is bin packing: where no start finds a mapping that does, a bounded exhaustive search
looks for one, and a violation that remains is reported, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.federation.distribution.coarsening import coarsen
from headwater.federation.distribution.kernel import (
    NOWHERE,
    Arrays,
    State,
    climb,
    exchange,
    map_greedily,
    move,
    pack,
    sweep,
    violation,
)
from headwater.federation.distribution.model import Indices, Problem
from headwater.federation.distribution.objective import (
    Objective,
    cost,
    empty_state,
    mapped_state,
    search_arrays,
)

CLUSTERS_EACH = 8
"""Clusters of alike queries for each place."""

EXACT = 64
"""With at most this many vertices, all gains are computed again after every move."""

KICKED = 3
"""Vertices that a kick moves at random, where there are few enough to try that."""

PACKING_STEPS = 200_000


@dataclass(frozen=True)
class MappingSettings:
    """How hard to search; `patience` is how many moves may pass without a better mapping."""

    objective: Objective = "traffic"
    starts: tuple[str, ...] = ("home", "greedy", "clusters")
    rounds: int = 12
    tries: int = 24
    kicks: int = 8
    patience: int | None = None

    def patience_for(self, vertices: int) -> int:
        return 50 + vertices // 20 if self.patience is None else self.patience


DEFAULT_MAPPING = MappingSettings()


def map_queries(
    problem: Problem,
    settings: MappingSettings = DEFAULT_MAPPING,
    seed: int = 0,
    extra: Sequence[Indices] = (),
) -> Indices:
    """The best mapping found, from the starts of the settings and from `extra` mappings."""
    if len(problem.queries) == 0:
        return np.zeros(0, np.int32)
    generator = np.random.default_rng(seed)
    arrays = search_arrays(problem, settings.objective)
    starts = [*extra, *(_start(problem, name, settings, generator) for name in settings.starts)]
    found = [_refined(problem, arrays, start, settings, generator) for start in starts]
    best = min(found, key=lambda one: one[0])
    if best[0][0] > 0:
        order = np.argsort(-problem.queries.load, kind="stable")
        fits, place = pack(problem.queries.load, problem.bound, order, PACKING_STEPS)
        if fits:
            best = _refined(problem, arrays, place, settings, generator)
    return best[1]


def home_mapping(problem: Problem) -> Indices:
    """Every vertex where it is submitted: the place nearest to its main home."""
    nearest: Indices = np.argmin(problem.places.anchor, axis=1).astype(np.int32)
    return nearest[problem.queries.main_home]


def places_of(state: State) -> Indices:
    """The present mapping of a search."""
    place: Indices = state.place.astype(np.int32)
    return place


def greedy_mapping(problem: Problem, objective: Objective) -> Indices:
    """The vertices by descending load, each where it adds least among the places with room."""
    arrays, state = search_arrays(problem, objective), empty_state(problem, objective)
    map_greedily(arrays, state, np.argsort(-problem.queries.load, kind="stable"))
    return places_of(state)


def cluster_mapping(
    problem: Problem, settings: MappingSettings, generator: np.random.Generator
) -> Indices:
    """Alike queries agglomerated into clusters, and these mapped: neighbours by what they share."""
    coarse = coarsen(
        problem.queries, problem.substreams, CLUSTERS_EACH * len(problem.places), generator
    )
    # Clusters of one query each would be the greedy start again, refined twice.
    if len(coarse.graph) == len(problem.queries):
        return greedy_mapping(problem, settings.objective)
    inner = problem.with_queries(coarse.graph)
    start = greedy_mapping(inner, settings.objective)
    arrays = search_arrays(inner, settings.objective)
    return _refined(inner, arrays, start, settings, generator)[1][coarse.label]


def _start(
    problem: Problem, name: str, settings: MappingSettings, generator: np.random.Generator
) -> Indices:
    if name == "home":
        return home_mapping(problem)
    if name == "greedy":
        return greedy_mapping(problem, settings.objective)
    return cluster_mapping(problem, settings, generator)


def _refined(
    problem: Problem,
    arrays: Arrays,
    start: Indices,
    settings: MappingSettings,
    generator: np.random.Generator,
) -> tuple[tuple[float, float], Indices]:
    """The start improved, with (violation, cost) before it."""
    state = mapped_state(arrays, problem, settings.objective, start)
    refine(arrays, state, settings, generator)
    best = _value(problem, arrays, state, settings)
    for _ in range(settings.kicks if len(start) <= EXACT else 0):
        _kick(arrays, state, generator)
        refine(arrays, state, settings, generator)
        best = min(best, _value(problem, arrays, state, settings), key=lambda one: one[0])
        # Each kick starts from the best mapping, whether the one before helped or not.
        state = mapped_state(arrays, problem, settings.objective, best[1])
    return best


def _value(
    problem: Problem, arrays: Arrays, state: State, settings: MappingSettings
) -> tuple[tuple[float, float], Indices]:
    place = places_of(state)
    # Violations are compared to nine digits, else rounding would decide before the cost does.
    above = round(float(violation(arrays, state)) / max(float(arrays.load.sum()), 1e-300), 9)
    return (above, cost(problem, place, settings.objective)), place


def _kick(arrays: Arrays, state: State, generator: np.random.Generator) -> None:
    """Move a few vertices anywhere."""
    for vertex in generator.permutation(len(state.place))[:KICKED]:
        place = int(generator.integers(len(arrays.bound)))
        if place != state.place[vertex]:
            move(arrays, state, int(vertex), place)


def refine(
    arrays: Arrays, state: State, settings: MappingSettings, generator: np.random.Generator
) -> None:
    """Improve a mapping in place: moves, exchanges and passes of moves that may lose for a while."""
    vertices = len(state.place)
    assert NOWHERE not in state.place
    patience = settings.patience_for(vertices)
    exact = vertices <= EXACT
    nowhere, no_toll = np.full(vertices, NOWHERE), np.zeros(vertices)
    for _ in range(settings.rounds):
        order = generator.permutation(vertices)
        less, gain = climb(arrays, state, patience, 0.0, exact)
        moves, _ = sweep(arrays, state, order)
        exchanges, _ = exchange(arrays, state, order, settings.tries, nowhere, no_toll, 0.0)
        found = moves + exchanges > 0 or less > 0 or gain > 0
        for penalty in _penalties(arrays) if exact else ():
            less, gain = climb(arrays, state, patience, penalty, exact)
            found = found or less > 0 or gain > 0
        if not found:
            break


def _penalties(arrays: Arrays) -> tuple[float, ...]:
    """What a unit of load above a bound may cost: some multiples of what data costs for each."""
    reach = float(arrays.anchor.mean())
    each = (
        reach * float(arrays.rate[arrays.substream].sum()) / max(float(arrays.load.sum()), 1e-300)
    )
    return tuple(factor * each for factor in (0.3, 1.0, 3.0) if each > 0)
