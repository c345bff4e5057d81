"""What changes a tree of coordinators: join, leave, split, merge and election, each an exact function.

A change works on a draft that knows for each level the cluster of each member. A parent that is replaced is
replaced in the cluster above as well, where it may have been the parent too; sizes are put right afterwards,
from the bottom up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from headwater.errors import NetworkError
from headwater.federation.coordinators.clusters import Floats, best_split, median_member
from headwater.federation.coordinators.tree import DEFAULT_K, Cluster, CoordinatorTree

HYSTERESIS = 0.9
"""A member replaces the parent if its total latency is below this share of the parent's."""


def build_tree(
    latencies: Floats,
    providers: Iterable[int],
    k: int = DEFAULT_K,
    capabilities: Mapping[int, float] | None = None,
) -> CoordinatorTree:
    """The tree after these providers joined in their order, and an election in every cluster.

    Capabilities are 1 if they are not given.
    """
    draft = _Draft(CoordinatorTree(k), latencies)
    for provider in providers:
        draft.join(provider, 1.0 if capabilities is None else capabilities[provider])
    draft.elect_parents()
    return draft.tree()


def join_tree(
    tree: CoordinatorTree, latencies: Floats, provider: int, capability: float = 1.0
) -> tuple[CoordinatorTree, int]:
    """The tree with one more provider, and how many latencies the provider had to measure."""
    draft = _Draft(tree, latencies)
    probes = draft.join(provider, capability)
    return draft.tree(), probes


def leave_tree(tree: CoordinatorTree, latencies: Floats, provider: int) -> CoordinatorTree:
    """The tree without a provider that left or died: once noticed, both are the same."""
    draft = _Draft(tree, latencies)
    draft.leave(provider)
    return draft.tree()


def elect_parents(tree: CoordinatorTree, latencies: Floats) -> CoordinatorTree:
    """The tree after an election in every cluster, from the bottom up."""
    draft = _Draft(tree, latencies)
    draft.elect_parents()
    return draft.tree()


class _Draft:
    """A tree that is being changed."""

    def __init__(self, tree: CoordinatorTree, latencies: Floats) -> None:
        self.k, self.max_size, self.latencies = tree.k, tree.max_size, latencies
        self.capabilities = dict(tree.capabilities)
        self.levels = [dict(clusters) for clusters in tree.levels]
        self.parent_of = [
            {member: cluster.parent for cluster in clusters.values() for member in cluster.members}
            for clusters in self.levels
        ]

    def tree(self) -> CoordinatorTree:
        return CoordinatorTree(self.k, tuple(self.levels), self.capabilities)

    def join(self, provider: int, capability: float) -> int:
        """Add a provider to the leaf cluster that a descent from the root finds; returns the probes."""
        if provider in self.capabilities:
            raise NetworkError(f"provider {provider} is in the tree already")
        self.capabilities[provider] = capability
        if not self.levels:
            self._add_level((provider,))
            return 0
        parent = next(iter(self.levels[-1]))
        probes = 0
        for clusters in reversed(self.levels[1:]):
            children = clusters[parent].members
            probes += len(children)
            parent = min(children, key=lambda child: (self.latencies[provider, child], child))
        self._set_members(0, parent, (*self.levels[0][parent].members, provider))
        self._put_sizes_right(0, parent)
        return probes

    def leave(self, provider: int) -> None:
        if provider not in self.capabilities:
            raise NetworkError(f"provider {provider} is not in the tree")
        del self.capabilities[provider]
        parent = self._remove_member(0, provider)
        if parent is not None:
            self._put_sizes_right(0, parent)

    def elect_parents(self) -> None:
        for level in range(len(self.levels)):
            for parent in sorted(self.levels[level]):
                # Bottom up: who replaces a parent is by then a member of the cluster above, and may
                # win that as well.
                totals = self._latencies_of(self.levels[level][parent].members).sum(axis=1)
                members = self.levels[level][parent].members
                if totals.min() < HYSTERESIS * totals[members.index(parent)]:
                    self._replace_parent(level, parent, members[int(np.argmin(totals))])

    def _latencies_of(self, members: tuple[int, ...]) -> Floats:
        return self.latencies[np.ix_(members, members)]

    def _median(self, members: tuple[int, ...]) -> int:
        return members[median_member(self._latencies_of(members))]

    def _set_members(self, level: int, parent: int, members: tuple[int, ...]) -> None:
        """Change the members of a cluster that keeps its parent."""
        # Who was asked when the parent was elected: only among these does it have to be the median.
        electorate = self.levels[level][parent].electorate
        self.levels[level][parent] = Cluster(parent, tuple(sorted(members)), electorate)
        self.parent_of[level].update((member, parent) for member in members)

    def _add_cluster(self, level: int, members: tuple[int, ...]) -> int:
        """Add a cluster, whose parent is its median; returns the parent."""
        members = tuple(sorted(members))
        parent = self._median(members)
        self.levels[level][parent] = Cluster(parent, members, members)
        self.parent_of[level].update((member, parent) for member in members)
        return parent

    def _add_level(self, members: tuple[int, ...]) -> None:
        self.levels.append({})
        self.parent_of.append({})
        self._add_cluster(len(self.levels) - 1, members)

    def _remove_member(self, level: int, member: int) -> int | None:
        """Remove a member; returns the parent its cluster has then, or None if the cluster is empty.

        Where it was the parent, the median of the others takes over, and its place in the cluster above.
        """
        parent = self.parent_of[level].pop(member)
        members = tuple(m for m in self.levels[level][parent].members if m != member)
        if member != parent:
            self._set_members(level, parent, members)
            return parent
        del self.levels[level][parent]
        if not members:
            self._drop_levels_from(level)
            return None
        successor = self._add_cluster(level, members)
        self._replace_above(level, parent, (successor,))
        return successor

    def _replace_parent(self, level: int, parent: int, successor: int) -> None:
        members = self.levels[level].pop(parent).members
        self.levels[level][successor] = Cluster(successor, members, members)
        self.parent_of[level].update((member, successor) for member in members)
        self._replace_above(level, parent, (successor,))

    def _replace_above(self, level: int, parent: int, successors: tuple[int, ...]) -> None:
        """Let the parents of new clusters take the place of a former one in the cluster above."""
        above = level + 1
        if above == len(self.levels):
            if len(successors) > 1:
                self._add_level(successors)
            return
        if parent in successors:
            grandparent = self.parent_of[above][parent]
        else:
            grandparent = self.parent_of[above].pop(parent)
        cluster = self.levels[above][grandparent]
        members = tuple(sorted({*cluster.members, *successors} - ({parent} - {*successors})))
        # Else the one replaced was the parent there, too: one machine may coordinate several
        # levels.
        if grandparent in members:
            self._set_members(above, grandparent, members)
        else:
            del self.levels[above][grandparent]
            self._replace_above(above, grandparent, (self._add_cluster(above, members),))

    def _put_sizes_right(self, level: int, parent: int) -> None:
        """Split or merge a cluster, and those above it, until all sizes are in their bounds."""
        while level < len(self.levels):
            size = len(self.levels[level][parent].members)
            is_top = level + 1 == len(self.levels)
            if size > self.max_size:
                parent = self._split(level, parent)
            elif is_top:
                # A root with one child coordinates nothing; at the lowest level it is the only
                # provider.
                if level and size == 1:
                    self._drop_levels_from(level)
                return
            elif size < self.k:
                parent = self._merge(level, parent)
            # The cluster above has one member more or less than before, or the same.
            level += 1
            if level < len(self.levels):
                parent = self.parent_of[level][parent]

    def _split(self, level: int, parent: int) -> int:
        """Split a cluster; returns the parent of one of the parts."""
        members = self.levels[level].pop(parent).members
        chosen = best_split(self._latencies_of(members), self.k)
        parts = [
            tuple(m for m, first in zip(members, chosen, strict=True) if first == side)
            for side in (True, False)
        ]
        parents = tuple(self._add_cluster(level, part) for part in parts)
        self._replace_above(level, parent, parents)
        # Either will do: both are in the same cluster above.
        return parents[0]

    def _merge(self, level: int, parent: int) -> int:
        """Merge a cluster with that of the nearest sibling; returns the parent of one that results."""
        above = level + 1
        siblings = self.levels[above][self.parent_of[above][parent]].members
        others = [sibling for sibling in siblings if sibling != parent]
        nearest = min(others, key=lambda other: (self.latencies[parent, other], other))
        members = self.levels[level].pop(parent).members
        union = (*self.levels[level][nearest].members, *members)
        self._set_members(level, nearest, union)
        self._remove_member(above, parent)
        # k - 1 members and up to 3k - 1 others may be too many for one cluster, which the thesis
        # passes over.
        return nearest if len(union) <= self.max_size else self._split(level, nearest)

    def _drop_levels_from(self, level: int) -> None:
        del self.levels[level:], self.parent_of[level:]
