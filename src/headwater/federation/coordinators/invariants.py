"""What must hold of a tree of coordinators after every change, with the name of what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headwater.federation.coordinators.changes import HYSTERESIS
from headwater.federation.coordinators.clusters import Floats
from headwater.federation.coordinators.tree import Cluster, CoordinatorTree

ROUNDING = 1e-9
"""By how much a sum of latencies may differ because it was added up in another order."""


def broken_invariants(tree: CoordinatorTree, latencies: Floats) -> list[str]:
    """A sentence for each invariant that is broken; none if the tree is right."""
    broken = [
        *_misplaced_providers(tree),
        *_broken_clusters(tree, latencies),
        *_unlinked_levels(tree),
        *_wrong_depth(tree),
    ]
    # Only a tree whose levels are linked has providers below each coordinator to sum up.
    return broken or [*_wrong_sums(tree)]


def outdated_parents(tree: CoordinatorTree, latencies: Floats) -> list[str]:
    """A sentence for each parent that an election would replace; none right after elections."""
    return [
        f"level {level}: {cluster.parent} is no longer nearest to its cluster {cluster.members}"
        for level, clusters in enumerate(tree.levels, start=1)
        for cluster in clusters.values()
        if not _is_median(cluster.parent, cluster.members, latencies, HYSTERESIS)
    ]


def _misplaced_providers(tree: CoordinatorTree) -> Iterator[str]:
    leaves = tree.levels[0].values() if tree.levels else ()
    places = Counter(member for cluster in leaves for member in cluster.members)
    for provider in sorted({*tree.capabilities} | {*places}):
        if provider not in tree.capabilities:
            yield f"{provider} is in a leaf cluster, but is no provider of the tree"
        elif places[provider] != 1:
            yield f"provider {provider} is in {places[provider]} leaf clusters"


def _broken_clusters(tree: CoordinatorTree, latencies: Floats) -> Iterator[str]:
    for level, clusters in enumerate(tree.levels, start=1):
        for name, cluster in clusters.items():
            what = f"level {level}, cluster of {name}"
            if name != cluster.parent:
                yield f"{what}: its parent is {cluster.parent}"
            if cluster.parent not in cluster.members:
                yield f"{what}: its parent is not a member"
            if cluster.members != tuple(sorted(set(cluster.members))):
                yield f"{what}: {cluster.members} are not in order, or not different"
            if not _is_size_allowed(tree, level, cluster):
                yield f"{what}: {len(cluster.members)} members"
            if not _is_median(cluster.parent, cluster.electorate, latencies, 1.0):
                yield f"{what}: its parent was not the median of {cluster.electorate}"


def _is_size_allowed(tree: CoordinatorTree, level: int, cluster: Cluster) -> bool:
    least = tree.k
    if level == tree.depth:
        # A root with one child would coordinate nothing, unless that child is the only provider.
        least = 1 if level == 1 else 2
    return least <= len(cluster.members) <= tree.max_size


def _is_median(parent: int, members: tuple[int, ...], latencies: Floats, hysteresis: float) -> bool:
    totals = latencies[list(members)][:, list(members)].sum(axis=1)
    own = latencies[parent, list(members)].sum()
    return parent in members and bool(hysteresis * own <= totals.min() + ROUNDING)


def _unlinked_levels(tree: CoordinatorTree) -> Iterator[str]:
    for level in range(1, tree.depth):
        parents = {*tree.levels[level - 1]}
        above = Counter(m for cluster in tree.levels[level].values() for m in cluster.members)
        for node in sorted(parents | {*above}):
            if node not in parents:
                yield f"level {level + 1}: {node} is a member, but coordinates nothing below"
            elif above[node] != 1:
                yield f"coordinator {node} of level {level} is in {above[node]} clusters above"
    if tree.levels and len(tree.levels[-1]) != 1:
        yield f"{len(tree.levels[-1])} clusters at the highest level"


def _wrong_depth(tree: CoordinatorTree) -> Iterator[str]:
    if tree.depth > tree.max_depth + ROUNDING:
        yield f"depth {tree.depth}: {len(tree.capabilities)} providers allow {tree.max_depth:.2f}"
    if bool(tree.levels) != bool(tree.capabilities):
        yield f"{len(tree.capabilities)} providers on {tree.depth} levels"


def _wrong_sums(tree: CoordinatorTree) -> Iterator[str]:
    total = sum(tree.capabilities.values())
    for level in range(1, tree.depth + 1):
        sums = [c.capability for (at, _), c in tree.coordinators.items() if at == level]
        if abs(sum(sums) - total) > ROUNDING * max(1.0, total):
            yield f"level {level}: capabilities sum up to {sum(sums)}, not {total}"
