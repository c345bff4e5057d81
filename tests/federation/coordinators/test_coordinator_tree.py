"""The tree as data: invariants after every change of random histories, and what each change does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import NetworkError
from headwater.federation.coordinators.changes import (
    build_tree,
    elect_parents,
    join_tree,
    leave_tree,
)
from headwater.federation.coordinators.invariants import broken_invariants, outdated_parents
from headwater.federation.coordinators.tree import Cluster, CoordinatorTree


def plane(count: int, seed: int) -> np.ndarray:
    """Distances of random points: a metric."""
    points = np.random.default_rng(seed).random((count, 2))
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def any_square(count: int, seed: int) -> np.ndarray:
    """Latencies that obey no triangle inequality, as measured ones do."""
    square = np.random.default_rng(seed).random((count, count))
    result = square + square.T
    np.fill_diagonal(result, 0.0)
    return result


def random_history(
    k: int, latencies: np.ndarray, seed: int, changes: int
) -> Iterator[CoordinatorTree]:
    """Trees after joins, leaves and elections; the number of providers rises and falls by turns."""
    random = np.random.default_rng(seed)
    tree = CoordinatorTree(k)
    swing = max(1, changes // 6)
    for change in range(changes):
        outside = [p for p in range(len(latencies)) if p not in tree.capabilities]
        grow = 0.85 if (change // swing) % 2 == 0 else 0.25
        if outside and (not tree.capabilities or random.random() < grow):
            capability = float(random.integers(0, 5))
            tree, _ = join_tree(tree, latencies, int(random.choice(outside)), capability)
        else:
            tree = leave_tree(tree, latencies, int(random.choice(tree.providers)))
        if random.random() < 0.05:
            tree = elect_parents(tree, latencies)
            assert outdated_parents(tree, latencies) == []
        yield tree


def check_history(k: int, latencies: np.ndarray, seed: int, changes: int) -> set[int]:
    """Invariants after each change; returns the depths that occurred."""
    depths = set()
    for tree in random_history(k, latencies, seed, changes):
        assert broken_invariants(tree, latencies) == []
        depths.add(tree.depth)
    return depths


@settings(max_examples=12)
@given(st.sampled_from([2, 3, 4]), st.integers(0, 2**32), st.booleans())
def test_invariants_hold_after_every_change(k: int, seed: int, metric: bool) -> None:
    latencies = (plane if metric else any_square)(40, seed)
    assert len(check_history(k, latencies, seed, 70)) > 1


@pytest.mark.long
def test_invariants_hold_after_each_of_ten_thousand_changes() -> None:
    assert len(check_history(4, plane(80, 2), 2, 10_000)) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("k", "seed"), [(2, 1), (4, 2), (8, 3)])
def test_invariants_hold_in_large_trees(k: int, seed: int) -> None:
    assert len(check_history(k, plane(300, seed), seed, 10_000)) > 1


@settings(max_examples=20)
@given(st.integers(0, 60), st.sampled_from([2, 4]), st.integers(0, 2**32))
def test_a_tree_built_at_once_is_right(count: int, k: int, seed: int) -> None:
    latencies = plane(max(count, 1), seed)
    tree = build_tree(latencies, range(count), k)
    assert broken_invariants(tree, latencies) == []
    assert outdated_parents(tree, latencies) == []
    assert tree.providers == tuple(range(count))


def test_a_tree_built_at_once_is_that_of_its_joins() -> None:
    latencies = plane(100, 5)
    tree = CoordinatorTree()
    for provider in range(100):
        tree, _ = join_tree(tree, latencies, provider)
    assert elect_parents(tree, latencies) == build_tree(latencies, range(100))


def test_the_view_sums_what_is_below() -> None:
    """Providers and capabilities against a walk up from each provider."""
    latencies = plane(120, 7)
    capabilities = {provider: provider % 5 / 2 for provider in range(120)}
    tree = build_tree(latencies, range(120), 3, capabilities)
    below: dict[tuple[int, int], set[int]] = {}
    for provider in range(120):
        node = provider
        for level, clusters in enumerate(tree.levels, start=1):
            node = next(c.parent for c in clusters.values() if node in c.members)
            below.setdefault((level, node), set()).add(provider)
        assert node == tree.root
    assert {at: set(view.providers) for at, view in tree.coordinators.items()} == below
    for at, view in tree.coordinators.items():
        assert view.capability == pytest.approx(sum(capabilities[p] for p in below[at]))
        children = tree.child_coordinators(view)
        assert [child.node for child in children] == list(view.children if view.level > 1 else ())


def test_a_join_asks_the_children_of_one_coordinator_per_level() -> None:
    latencies = plane(400, 11)
    tree = build_tree(latencies, range(300), 4)
    assert tree.depth > 2
    for provider in range(300, 310):
        after, probes = join_tree(tree, latencies, provider)
        assert probes <= (tree.depth - 1) * tree.max_size
        assert provider in after.capabilities and provider not in tree.capabilities


def line(*places: float) -> np.ndarray:
    points = np.array(places)
    return np.abs(points[:, None] - points[None])


def test_the_twelfth_member_splits_a_cluster_and_a_root_is_added() -> None:
    latencies = line(*range(6), *range(100, 106))
    tree = build_tree(latencies, range(11))
    assert tree.depth == 1
    tree, _ = join_tree(tree, latencies, 11)
    assert {c.members for c in tree.levels[0].values()} == {tuple(range(6)), tuple(range(6, 12))}
    assert tree.depth == 2 and {*tree.levels[0]} == {2, 8}


def test_a_cluster_too_small_is_merged_and_the_root_is_removed() -> None:
    latencies = line(*range(6), *range(100, 106))
    tree = build_tree(latencies, range(12))
    for provider in (6, 7):
        tree = leave_tree(tree, latencies, provider)
        assert tree.depth == 2
    tree = leave_tree(tree, latencies, 8)
    assert tree.depth == 1 and next(iter(tree.levels[0].values())).members == tree.providers


def test_a_merge_that_grows_too_large_is_split_again() -> None:
    latencies = line(*range(6), *range(20, 26), *range(6, 11))
    tree = build_tree(latencies, range(17))
    assert sorted(len(c.members) for c in tree.levels[0].values()) == [6, 11]
    for provider in (6, 7, 8):
        tree = leave_tree(tree, latencies, provider)
        assert broken_invariants(tree, latencies) == []
    sizes = sorted(len(c.members) for c in tree.levels[0].values())
    assert len(sizes) == 2 and sum(sizes) == 14 and sizes[0] >= 6


def test_a_parent_is_replaced_only_by_one_clearly_nearer() -> None:
    """The totals of 0 and 1 are 10 and 9: not below 0.9 of it; then 10 and 8.75: below."""
    for between, parent in ((8.0, 0), (7.75, 1)):
        latencies = np.array([[0, 1, 9], [1, 0, between], [9, between, 0]], float)
        members = (0, 1, 2)
        tree = CoordinatorTree(4, ({0: Cluster(0, members, (0,))},), dict.fromkeys(members, 1.0))
        assert elect_parents(tree, latencies).root == parent


def test_what_is_not_there_cannot_leave_and_what_is_there_cannot_join() -> None:
    latencies = plane(3, 0)
    tree = build_tree(latencies, range(2))
    with pytest.raises(NetworkError, match="provider 1 is in the tree already"):
        join_tree(tree, latencies, 1)
    with pytest.raises(NetworkError, match="provider 2 is not in the tree"):
        leave_tree(tree, latencies, 2)
    with pytest.raises(NetworkError, match="k = 1"):
        CoordinatorTree(1)


def test_the_last_provider_leaves_an_empty_tree() -> None:
    latencies = plane(1, 0)
    tree = leave_tree(build_tree(latencies, [0]), latencies, 0)
    assert tree.depth == 0 and tree.root is None and broken_invariants(tree, latencies) == []


def broken(tree: CoordinatorTree, latencies: np.ndarray, level: int, cluster: Cluster) -> str:
    levels = [dict(clusters) for clusters in tree.levels]
    levels[level][cluster.parent] = cluster
    return "; ".join(broken_invariants(replace(tree, levels=tuple(levels)), latencies))


def test_broken_invariants_are_named() -> None:
    latencies = plane(40, 3)
    tree = build_tree(latencies, range(40))
    parent, cluster = next(iter(tree.levels[0].items()))
    stranger = next(p for p in range(40) if p not in cluster.members)
    extra = tuple(sorted((*cluster.members, stranger)))
    few = tuple(sorted({parent, *cluster.members[:2]}))
    other = next(m for m in cluster.members if m != parent)
    worst = max(cluster.members, key=lambda m: latencies[m, list(cluster.members)].sum())
    assert f"provider {stranger} is in 2 leaf clusters" in broken(
        tree, latencies, 0, replace(cluster, members=extra)
    )
    assert "members" in broken(tree, latencies, 0, replace(cluster, members=few))
    assert "in 0 leaf clusters" in broken(tree, latencies, 0, replace(cluster, members=few))
    assert f"{other} is a member, but coordinates nothing below" in broken(
        tree, latencies, 1, replace(tree.levels[1][tree.root or 0], members=(other,))
    )
    swapped = {**tree.levels[0], worst: replace(cluster, parent=worst)}
    assert "was not the median" in "; ".join(
        broken_invariants(replace(tree, levels=(swapped, *tree.levels[1:])), latencies)
    )
    alone = replace(tree, levels=tree.levels[:1])
    assert any("at the highest level" in text for text in broken_invariants(alone, latencies))
