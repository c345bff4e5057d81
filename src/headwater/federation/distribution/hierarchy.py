"""Distribution over a tree of coordinators: graphs go up coarsened, mappings come down level by level.

A coordinator knows its children, latencies from their nodes, and the vertices that the children sent; no
coordinator sees all queries. Bounds are taken from the load of the whole federation, and their slack is
spread over the levels, so that a provider ends within 1 + alpha of its share and not within
that to the power of the levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headwater.errors import PlanError
from headwater.federation.coordinators.tree import Coordinator, CoordinatorTree
from headwater.federation.distribution.coarsening import coarsen, default_vertex_limit
from headwater.federation.distribution.delivery import star_trees
from headwater.federation.distribution.mapping import MappingSettings, map_queries
from headwater.federation.distribution.model import (
    ALPHA,
    Floats,
    Indices,
    Places,
    Problem,
    QueryGraph,
    Substreams,
    concatenate,
    make_problem,
)
from headwater.federation.distribution.objective import Objective, least_cost

OUTSIDE = -1
"""The child of a vertex or anchor that is below another coordinator."""


@dataclass(frozen=True)
class Branch:
    """A provider, or the coordinator that runs at one and the branches below it."""

    node: int
    branches: tuple[Branch, ...] = ()

    def __post_init__(self) -> None:
        if len({branch.height for branch in self.branches}) > 1:
            raise PlanError("all providers are equally deep below a coordinator")

    @cached_property
    def height(self) -> int:
        """Levels of coordinators: 0 for a provider."""
        return 1 + self.branches[0].height if self.branches else 0

    @cached_property
    def providers(self) -> Indices:
        """The providers below, or the provider itself."""
        if not self.branches:
            return np.array([self.node], np.int32)
        return np.concatenate([branch.providers for branch in self.branches])

    def coordinators(self) -> Iterator[Branch]:
        """All coordinators of this branch, children before their parents."""
        for branch in self.branches:
            yield from branch.coordinators()
        if self.branches:
            yield self


@dataclass(frozen=True, eq=False)
class Federation:
    """Substreams, the providers as places, and the tree over them.

    The anchors of the places are the origins and then the providers, as homes.
    """

    substreams: Substreams
    places: Places
    tree: Branch
    alpha: float = ALPHA

    @property
    def first_home(self) -> int:
        """The anchor of provider 0."""
        return len(self.places.anchor) - len(self.places)

    @cached_property
    def home_latency(self) -> Floats:
        """Latencies between anchors that are homes; 0 for origins, which are none."""
        size = len(self.places.anchor)
        result = np.zeros((size, size))
        result[:, self.first_home :] = self.places.anchor
        return result

    def problem(self, queries: QueryGraph) -> Problem:
        """Queries on all providers, as only an observer of the whole sees them."""
        return make_problem(self.substreams, queries, self.places, self.alpha)

    def child_places(self, branch: Branch) -> Places:
        """The children of a coordinator: an anchor inside a child is at no distance from it."""
        nodes = [child.node for child in branch.branches]
        anchor = self.places.anchor[:, nodes].copy()
        for k, child in enumerate(branch.branches):
            anchor[self.first_home + child.providers, k] = 0.0
        capability = [self.places.capability[child.providers].sum() for child in branch.branches]
        return Places(
            np.array(capability),
            self.places.latency[np.ix_(nodes, nodes)],
            anchor,
            # A coordinator knows latencies, but not which links its children share.
            star_trees(anchor[: self.first_home]),
        )

    def child_problem(self, branch: Branch, queries: QueryGraph, share: float) -> Problem:
        """What a coordinator maps; `share` is the load of the whole federation by its capability."""
        level = self.tree.height - branch.height + 1
        # The slacks of all levels multiply to 1 + alpha at the providers.
        slack = (1 + self.alpha) ** (level / self.tree.height) - 1
        places = self.child_places(branch)
        return make_problem(self.substreams, queries, places, slack, share)

    def share(self, queries: QueryGraph) -> float:
        """The load for each unit of capability."""
        return float(queries.load.sum() / self.places.capability.sum())

    def child_of(self, branch: Branch) -> Indices:
        """For each provider the child of the coordinator that it is below, or OUTSIDE."""
        child = np.full(len(self.places), OUTSIDE, np.int32)
        for k, one in enumerate(branch.branches):
            child[one.providers] = k
        return child


@dataclass(frozen=True)
class HierarchySettings:
    """How coordinators map; `vertices` is how many each sends up (None: by the number of children)."""

    mapping: MappingSettings = field(default_factory=lambda: MappingSettings(rounds=6, tries=12))
    vertices: int | None = None

    @property
    def objective(self) -> Objective:
        return self.mapping.objective


DEFAULT_HIERARCHY = HierarchySettings()


@dataclass(frozen=True, eq=False)
class Level:
    """The vertices that all coordinators of one height sent up, one coordinator after the other.

    `label` gives for each vertex of the level below the vertex it went into; the level below the lowest
    is the queries themselves. `owner` is the tag: the node of the coordinator that knows its members.
    """

    graph: QueryGraph
    label: Indices
    owner: Indices


@dataclass(frozen=True, eq=False)
class Distributed:
    """Where the queries are to run; seconds of the longest chain of coordinators, and of all."""

    place: Indices
    response_seconds: float
    total_seconds: float


class _Times:
    """Seconds that each coordinator worked, and the moment at which it was done."""

    def __init__(self, clock: Callable[[], float] | None) -> None:
        self.clock = clock or (lambda: 0.0)
        self.total = 0.0
        self.done: dict[tuple[int, int], float] = {}

    def work(self, branch: Branch, begun: float, after: float) -> float:
        """Account for work of a coordinator that began when something else was done."""
        seconds = self.clock() - begun
        self.total += seconds
        self.done[branch.height, branch.node] = after + seconds
        return after + seconds


def build_levels(
    federation: Federation,
    queries: QueryGraph,
    at: Indices,
    settings: HierarchySettings,
    seed: int,
    by_child: bool = False,
    times: _Times | None = None,
) -> list[Level]:
    """The graphs of all heights but the root's, bottom up; query i is known below provider `at[i]`.

    With `by_child` no vertex mixes queries of different children of a coordinator, as it has to be where
    vertices have a place already.
    """
    times = times or _Times(None)
    levels: list[Level] = []
    graph, where = queries, at
    for height in range(1, federation.tree.height):
        branches = [b for b in federation.tree.coordinators() if b.height == height]
        parts, owners, new_where = [], [], []
        label = np.full(len(graph), OUTSIDE, np.int32)
        size = 0
        for branch in branches:
            begun = times.clock()
            child = federation.child_of(branch)[where]
            own = np.flatnonzero(child != OUTSIDE).astype(np.int32)
            generator = np.random.default_rng((seed, height, branch.node))
            is_traffic = settings.objective == "traffic"
            coarse = coarsen(
                graph.select(own),
                federation.substreams,
                settings.vertices or default_vertex_limit(len(branch.branches)),
                generator,
                child[own] if by_child else None,
                federation.home_latency if is_traffic else None,
                float(federation.places.anchor[: federation.first_home].mean()),
            )
            label[own] = coarse.label + size
            size += len(coarse.graph)
            parts.append(coarse.graph)
            owners.append(np.full(len(coarse.graph), branch.node, np.int32))
            # A vertex is known below its coordinator; any provider there stands for it.
            new_where.append(np.full(len(coarse.graph), branch.providers[0], np.int32))
            below = [times.done.get((height - 1, b.node), 0.0) for b in branch.branches]
            times.work(branch, begun, max(below))
        graph, where = concatenate(parts), np.concatenate(new_where)
        levels.append(Level(graph, label, np.concatenate(owners)))
    return levels


def distribute(
    federation: Federation,
    queries: QueryGraph,
    settings: HierarchySettings = DEFAULT_HIERARCHY,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
) -> Distributed:
    """Map all queries: each is submitted at its home, and decided on by one coordinator of each level.

    By its objective the result is never worse than all queries at their homes.
    """
    times = _Times(clock)
    home = queries.main_home - federation.first_home
    levels = build_levels(federation, queries, home, settings, seed, times=times)
    graphs = [queries, *(level.graph for level in levels)]
    share = federation.share(queries)
    place = np.full(len(queries), OUTSIDE, np.int32)
    root = federation.tree
    ready = max(
        (times.done.get((root.height - 1, b.node), 0.0) for b in root.branches), default=0.0
    )
    todo = [(root, np.arange(len(graphs[root.height - 1]), dtype=np.int32), ready)]
    last = 0.0
    while todo:
        branch, vertices, after = todo.pop()
        begun = times.clock()
        graph = graphs[branch.height - 1].select(vertices)
        problem = federation.child_problem(branch, graph, share)
        chosen = map_queries(problem, settings.mapping, seed)
        done = times.work(branch, begun, after)
        last = max(last, done)
        for k, child in enumerate(branch.branches):
            own = vertices[chosen == k]
            if branch.height == 1:
                place[own] = child.node
            else:
                todo.append((child, members(levels[branch.height - 2], own), done))
    # Coordinators price ways as if they shared no link, and merge queries of different homes.
    place = least_cost(federation.problem(queries), settings.objective, place, home)
    return Distributed(place, last, times.total)


def members(level: Level, vertices: Indices) -> Indices:
    """The vertices one level below that were merged into these."""
    is_chosen = np.zeros(len(level.graph), np.bool_)
    is_chosen[vertices] = True
    return np.flatnonzero(is_chosen[level.label]).astype(np.int32)


def branch_of(tree: CoordinatorTree) -> Branch:
    """The coordinators of a tree as nested branches; raises PlanError for a tree without providers."""
    if tree.root is None:
        raise PlanError("a tree without providers distributes nothing")
    return _branch(tree, tree.coordinators[tree.depth, tree.root])


def _branch(tree: CoordinatorTree, coordinator: Coordinator) -> Branch:
    if coordinator.level == 1:
        return Branch(coordinator.node, tuple(Branch(node) for node in coordinator.children))
    below = tuple(_branch(tree, child) for child in tree.child_coordinators(coordinator))
    return Branch(coordinator.node, below)
