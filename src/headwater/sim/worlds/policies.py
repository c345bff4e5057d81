"""The policies that a world compares: who decides where a query runs, at the start and when things change.

| policy | at the start | a new query, or one whose host died | at a round |
|---|---|---|---|
| naive | its home | its home | |
| random | a provider at random | a provider at random | |
| greedy | the heaviest first, where it adds least | where it adds least | |
| centralized | mapped with all others | where it adds least | |
| remapping | mapped with all others | where it adds least | all are mapped again |
| hierarchical | mapped by the tree of coordinators | routed down the tree | |
| online | routed down the tree | routed down the tree | |
| adaptive | mapped by the tree of coordinators | routed down the tree | redistributed by the tree |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headwater.federation.coordinators.changes import elect_parents, join_tree, leave_tree
from headwater.federation.coordinators.tree import Coordinator, CoordinatorTree
from headwater.federation.distribution.adaptation import AdaptationSettings, adapt
from headwater.federation.distribution.hierarchy import (
    Branch,
    Federation,
    HierarchySettings,
    distribute,
)
from headwater.federation.distribution.kernel import NOWHERE, map_greedily
from headwater.federation.distribution.mapping import (
    MappingSettings,
    greedy_mapping,
    home_mapping,
    map_queries,
)
from headwater.federation.distribution.model import Floats, Indices, Problem, QueryGraph
from headwater.federation.distribution.objective import Objective, mapped_state, search_arrays
from headwater.federation.distribution.routing import OnlineRouter
from headwater.sim.worlds.distribution import Decide
from headwater.sim.worlds.draw import generator
from headwater.sim.worlds.model import DistributionSettings
from headwater.sim.worlds.timeline import Moment, MomentKind


def make_policy(name: str, settings: DistributionSettings, latencies: Floats, seed: int) -> Decide:
    """The policy of a name, for providers with these latencies; it has random numbers of its own."""
    if name == "naive":
        return lambda moment, _: home_mapping(moment.problem)
    if name == "random":
        return _Random(seed)
    if name in ("hierarchical", "online", "adaptive"):
        return _Coordinated(name, settings, latencies, seed)
    return _Mapped(name, settings, seed)


def _objective(settings: DistributionSettings) -> Objective:
    return "traffic" if settings.objective == "traffic" else "wec"


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
        self.objective = _objective(settings)

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


class _Coordinated:
    """Policies of the tree of coordinators, which providers leave when they die and join when they return."""

    def __init__(
        self, name: str, settings: DistributionSettings, latencies: Floats, seed: int
    ) -> None:
        self.name, self.settings, self.seed = name, settings, seed
        self.latencies = latencies
        self.objective = _objective(settings)
        self.mapping = HierarchySettings(MappingSettings(self.objective, rounds=6, tries=12))
        self.tree = CoordinatorTree(settings.k)

    def __call__(self, moment: Moment, before: Indices) -> Indices:
        problem = moment.problem
        self._follow(moment)
        position = {int(provider): at for at, provider in enumerate(moment.alive)}
        federation = Federation(
            problem.substreams,
            problem.places,
            coordinator_branch(self.tree, position),
            self.settings.alpha,
        )
        if moment.kind is MomentKind.start and self.name != "online":
            return distribute(federation, problem.queries, self.mapping, self.seed).place
        place = self._route(federation, problem.queries, before)
        if moment.kind is MomentKind.round and self.name == "adaptive":
            adaptation = AdaptationSettings(self.mapping)
            return adapt(federation, problem.queries, place, adaptation, self.seed).place
        return place

    def _follow(self, moment: Moment) -> None:
        """Let the tree follow who lives, and replace the parents that are no longer medians."""
        alive = set(moment.alive.tolist())
        for provider in sorted(set(self.tree.providers) - alive):
            self.tree = leave_tree(self.tree, self.latencies, provider)
        for provider in sorted(alive - set(self.tree.providers)):
            self.tree, _ = join_tree(self.tree, self.latencies, provider)
        self.tree = elect_parents(self.tree, self.latencies)

    def _route(self, federation: Federation, queries: QueryGraph, before: Indices) -> Indices:
        """Route down the tree what has no host, in the order of arrival."""
        place = before.copy()
        hosted = np.flatnonzero(before != NOWHERE).astype(np.int32)
        new = np.flatnonzero(before == NOWHERE).astype(np.int32)
        if len(new):
            router = OnlineRouter(
                federation, queries.select(hosted), before[hosted], self.objective
            )
            place[new] = router.route(queries.select(new))
        return place


def coordinator_branch(tree: CoordinatorTree, position: Mapping[int, int]) -> Branch:
    """The tree as distribution takes it, with providers by their positions among the places."""
    (root,) = (c for c in tree.coordinators.values() if c.level == tree.depth)
    return _branch(tree, root, position)


def _branch(tree: CoordinatorTree, coordinator: Coordinator, position: Mapping[int, int]) -> Branch:
    below = tuple(_branch(tree, child, position) for child in tree.child_coordinators(coordinator))
    if coordinator.level == 1:
        below = tuple(Branch(position[provider]) for provider in coordinator.children)
    return Branch(position[coordinator.node], below)
