"""The tree of coordinators as frozen data: clusters of providers, clusters of their parents, and so on.

The parent of a cluster is one of its members and, one level up, a member again: so a provider and a level name at
most one cluster. Providers are numbers, rows of a square of latencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.errors import NetworkError

DEFAULT_K = 4
"""The least size of a cluster in the thesis's evaluation; the largest is 3k - 1."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The members in ascending order, the parent, and among whom the parent was the median when elected."""

    parent: int
    members: tuple[int, ...]
    electorate: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Coordinator:
    """What distribution sees of a coordinator.

    The children of level 1 are providers, those of a higher level are the nodes of the coordinators
    one level below. `capability` is the sum over all the providers below.
    """

    level: int
    node: int
    children: tuple[int, ...]
    providers: tuple[int, ...]
    capability: float


@dataclass(frozen=True)
class CoordinatorTree:
    """The clusters of each level by their parent, leaf clusters (level 1) first; no level if empty."""

    k: int = DEFAULT_K
    levels: tuple[Mapping[int, Cluster], ...] = ()
    capabilities: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.k < 2:
            raise NetworkError(f"a cluster has at least 2 members, not k = {self.k}")

    @property
    def depth(self) -> int:
        """The number of levels of coordinators."""
        return len(self.levels)

    @property
    def max_size(self) -> int:
        """The largest size of a cluster."""
        return 3 * self.k - 1

    @property
    def max_depth(self) -> float:
        """The largest depth allowed for a tree of this many providers."""
        return 1 + math.log(max(len(self.capabilities), 1), self.k)

    @property
    def root(self) -> int | None:
        """The provider that coordinates the highest level; None in an empty tree."""
        return next(iter(self.levels[-1])) if self.levels else None

    @property
    def providers(self) -> tuple[int, ...]:
        """All the providers in ascending order."""
        return tuple(sorted(self.capabilities))

    @cached_property
    def coordinators(self) -> Mapping[tuple[int, int], Coordinator]:
        """Every coordinator by level and node; levels ascend, so children come before their parent."""
        view: dict[tuple[int, int], Coordinator] = {}
        for level, clusters in enumerate(self.levels, start=1):
            for node, cluster in sorted(clusters.items()):
                providers = tuple(sorted(self._providers_below(view, level, cluster.members)))
                # Exact, so that the order in which members came does not show in the last digit.
                capability = math.fsum(self.capabilities[provider] for provider in providers)
                view[level, node] = Coordinator(level, node, cluster.members, providers, capability)
        return view

    def child_coordinators(self, coordinator: Coordinator) -> tuple[Coordinator, ...]:
        """The coordinators one level below; none below level 1."""
        if coordinator.level == 1:
            return ()
        return tuple(
            self.coordinators[coordinator.level - 1, node] for node in coordinator.children
        )

    @staticmethod
    def _providers_below(
        view: Mapping[tuple[int, int], Coordinator], level: int, members: tuple[int, ...]
    ) -> Iterator[int]:
        for member in members:
            if level == 1:
                yield member
            else:
                yield from view[level - 1, member].providers
