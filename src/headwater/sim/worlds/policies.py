"""The policies that a world compares: who decides where a query runs, at the start and when things change.

| policy | at the start | a new query, or one whose host died | at a round |
|---|---|---|---|
| naive | its home | its home | |
| random | a provider at random | a provider at random | |
| greedy | the heaviest first, where it adds least | where it adds least | |
| centralized | mapped with all others | where it adds least | |
| remapping | mapped with all others | where it adds least | all are mapped again |
"""

from __future__ import annotations

import numpy as np

from headwater.federation.distribution.kernel import NOWHERE, map_greedily
from headwater.federation.distribution.mapping import (
    MappingSettings,
    greedy_mapping,
    home_mapping,
    map_queries,
)
from headwater.federation.distribution.model import Indices, Problem
from headwater.federation.distribution.objective import Objective, mapped_state, search_arrays
from headwater.sim.worlds.distribution import Decide
from headwater.sim.worlds.draw import generator
from headwater.sim.worlds.model import DistributionSettings
from headwater.sim.worlds.timeline import Moment, MomentKind


def make_policy(name: str, settings: DistributionSettings, seed: int) -> Decide:
    """The policy of a name, with random numbers of its own."""
    if name == "naive":
        return lambda moment, _: home_mapping(moment.problem)
    if name == "random":
        return _Random(seed)
    return _Mapped(name, settings, seed)


class _Random:
    def __init__(self, seed: int) -> None:
        self.generator = generator(seed, "random policy")

    def __call__(self, moment: Moment, before: Indices) -> Indices:
        able = np.flatnonzero(moment.problem.places.capability > 0).astype(np.int32)
        drawn = self.generator.choice(able, len(before))
        return np.where(before == NOWHERE, drawn, before).astype(np.int32)


class _Mapped:
    """Policies that map the global graph at the start, and put what comes later where it adds least."""

    def __init__(self, name: str, settings: DistributionSettings, seed: int) -> None:
        self.name, self.seed = name, seed
        self.objective: Objective = "traffic" if settings.objective == "traffic" else "wec"

    def __call__(self, moment: Moment, before: Indices) -> Indices:
        problem = moment.problem
        if moment.kind is MomentKind.round and self.name == "remapping":
            return self._map(problem)
        if moment.kind is not MomentKind.start:
            return add_greedily(problem, before, self.objective)
        if self.name == "greedy":
            return greedy_mapping(problem, self.objective)
        return self._map(problem)

    def _map(self, problem: Problem) -> Indices:
        return map_queries(problem, MappingSettings(self.objective), self.seed)


def add_greedily(problem: Problem, before: Indices, objective: Objective) -> Indices:
    """Put each query that is NOWHERE where it adds least, in their order; the others stay."""
    arrays = search_arrays(problem, objective)
    state = mapped_state(arrays, problem, objective, before)
    map_greedily(arrays, state, np.flatnonzero(before == NOWHERE))
    return np.asarray(state.place, np.int32)
