"""What distribution is compared with: by name, each from a federation and queries to a mapping.

Random and naive know nothing of interests, sorting knows the groups that a generator drew, greedy and
centralized see all queries at once, which no coordinator of a large federation could.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.federation.distribution.mapping import (
    DEFAULT_MAPPING,
    MappingSettings,
    greedy_mapping,
    home_mapping,
    map_queries,
)
from headwater.federation.distribution.model import Floats, Indices, Problem
from headwater.federation.distribution.objective import Objective


def naive(problem: Problem) -> Indices:
    """Each query at its home."""
    return home_mapping(problem)


def random_mapping(problem: Problem, seed: int) -> Indices:
    """Each query anywhere, by the capabilities."""
    chance = problem.places.capability / problem.places.capability.sum()
    generator = np.random.default_rng(seed)
    return generator.choice(len(chance), len(problem.queries), p=chance).astype(np.int32)


def greedy(problem: Problem, objective: Objective = "wec") -> Indices:
    """Only the greedy start of the mapping algorithm."""
    return greedy_mapping(problem, objective)


def centralized(
    problem: Problem, settings: MappingSettings = DEFAULT_MAPPING, seed: int = 0
) -> Indices:
    """The mapping algorithm on all queries and all providers at once."""
    return map_queries(problem, settings, seed)


def remapping(
    problem: Problem, settings: MappingSettings = DEFAULT_MAPPING, seed: int = 0
) -> Indices:
    """Centralized from scratch at each change: the places of before do not matter."""
    return map_queries(problem, replace(settings, starts=("greedy", "clusters")), seed)


def sorted_by_group(problem: Problem, group: Indices) -> Indices:
    """Queries in the order of their groups, dealt onto a walk over neighbouring providers."""
    walk = _neighbour_walk(problem.places.latency)
    order = np.argsort(group, kind="stable")
    capability = problem.places.capability[walk]
    ends = np.cumsum(capability) / capability.sum() * problem.queries.load.sum()
    middle = np.cumsum(problem.queries.load[order]) - problem.queries.load[order] / 2
    place = np.empty(len(order), np.int32)
    # Rounding may put the last query behind the end of the last place.
    place[order] = walk[np.minimum(np.searchsorted(ends, middle), len(walk) - 1)]
    return place


def _neighbour_walk(latency: Floats) -> Indices:
    """All places, each the nearest to the one before that was not visited yet."""
    rest = set(range(1, len(latency)))
    walk = [0]
    while rest:
        walk.append(min(rest, key=lambda k: (latency[walk[-1], k], k)))
        rest.remove(walk[-1])
    return np.array(walk, np.int32)
