"""Providers that keep the tree by messages: whatever happens, once it is quiet the tree is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.coordinators.invariants import broken_invariants, outdated_parents
from headwater.sim.federation import FederationSimulation

QUIET_SECONDS = 900.0
"""Time for a few rounds of elections, one a minute and level, after the last change."""


def plane(count: int, seed: int) -> np.ndarray:
    """Latencies of up to 70 ms between random points."""
    points = np.random.default_rng(seed).random((count, 2))
    return 0.05 * np.linalg.norm(points[:, None] - points[None], axis=2)


def complaints(federation: FederationSimulation) -> list[str]:
    tree = federation.tree()
    return [
        *broken_invariants(tree, federation.latencies),
        *outdated_parents(tree, federation.latencies),
        *federation.disagreements(),
    ]


def run_until_right(federation: FederationSimulation) -> None:
    """Run until the tree is right, then for two minutes: it has to stay right."""
    end = federation.now + QUIET_SECONDS
    while complaints(federation) and federation.now < end:
        federation.run_for(20.0)
    federation.run_for(120.0)
    assert complaints(federation) == []


def started(
    count: int, seed: int, k: int = 3, spare: int = 0, **faults: float
) -> FederationSimulation:
    federation = FederationSimulation(plane(count + spare, seed), k, seed, **faults)
    federation.start(0)
    for provider in range(1, count):
        federation.start(provider, (0,), capability=float(provider % 3))
        federation.run_for(0.5)
    return federation


def make_changes(federation: FederationSimulation, seed: int, changes: int, cuts: bool) -> None:
    """Joins, leaves and kills about every three seconds; the number of providers hovers."""
    random = np.random.default_rng(seed)
    count = len(federation.latencies)
    for _ in range(changes):
        inside = sorted(federation.nodes)
        outside = [p for p in range(count) if p not in federation.nodes]
        if outside and random.random() < 1 - len(inside) / count:
            contacts = random.choice(inside, min(3, len(inside)), replace=False)
            federation.start(int(random.choice(outside)), [int(c) for c in contacts])
        elif random.random() < 0.5:
            federation.leave(int(random.choice(inside)))
        else:
            federation.kill(int(random.choice(inside)))
        if cuts and random.random() < 0.1:
            side = random.random(count) < 0.5
            federation.cut([np.flatnonzero(side), np.flatnonzero(~side)])
        elif random.random() < 0.3:
            federation.heal()
        federation.run_for(float(random.random()) * 6.0)
    federation.heal()


def test_providers_that_join_form_one_right_tree() -> None:
    federation = started(25, seed=1)
    run_until_right(federation)
    tree = federation.tree()
    assert tree.depth == 2 and tree.providers == tuple(range(25))
    assert federation.confirmed_roots() == [tree.root]
    root = federation.nodes[tree.root or 0].membership
    assert root.load(root.top + 1).capability == sum(float(p % 3) for p in range(1, 25)) + 1
    assert all(node.membership.tree == root.tree for node in federation.nodes.values())


def test_a_run_repeats_exactly() -> None:
    runs = [started(12, seed=4, loss=0.1, duplicates=0.1) for _ in range(2)]
    for federation in runs:
        federation.run_for(40.0)
    assert runs[0].sent == runs[1].sent and runs[0].tree() == runs[1].tree()
    assert runs[0].lost == runs[1].lost > 0
    other = started(12, seed=5, loss=0.1, duplicates=0.1)
    other.run_for(40.0)
    assert other.sent != runs[0].sent


@settings(max_examples=4)
@given(st.integers(0, 2**16), st.sampled_from([2, 3]))
def test_small_random_histories_end_in_a_right_tree(seed: int, k: int) -> None:
    federation = started(8, seed, k, spare=6)
    make_changes(federation, seed, 10, cuts=False)
    run_until_right(federation)


@pytest.mark.long
@settings(max_examples=10)
@given(st.integers(0, 2**16), st.sampled_from([2, 3, 4]), st.sampled_from([0.0, 0.1, 0.2]))
def test_random_histories_with_loss_and_cuts_end_in_a_right_tree(
    seed: int, k: int, loss: float
) -> None:
    federation = started(20, seed, k, spare=15, loss=loss, duplicates=loss / 2)
    make_changes(federation, seed, 50, cuts=True)
    # Lost messages look like deaths now and then: the tree is right again only when none is lost.
    federation.lose_nothing()
    run_until_right(federation)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_providers_end_in_a_right_tree(seed: int) -> None:
    federation = started(300, seed, 4, spare=100, loss=0.02)
    make_changes(federation, seed, 200, cuts=False)
    federation.lose_nothing()
    run_until_right(federation)
    assert federation.tree().depth >= 3


def test_a_crowd_that_joins_at_once_is_split_in_time() -> None:
    """Faster than members can measure each other: no cluster may grow without bound meanwhile."""
    federation = FederationSimulation(plane(40, 6), 3, 6)
    federation.start(0)
    for provider in range(1, 40):
        federation.start(provider, (0,))
        federation.run_for(0.1)
    largest = 0
    for _ in range(30):
        federation.run_for(2.0)
        clusters = federation.tree().levels[0].values()
        largest = max(largest, *(len(cluster.members) for cluster in clusters))
    # More than a cluster may have, but never more than twice as many.
    assert 8 < largest <= 16
    run_until_right(federation)


def test_a_dead_leaf_coordinator_is_succeeded_by_the_median_of_the_living() -> None:
    federation = started(20, seed=2)
    run_until_right(federation)
    before = federation.tree()
    victim = next(parent for parent in before.levels[0] if parent != before.root)
    living = [m for m in before.levels[0][victim].members if m != victim]
    totals = {m: federation.latencies[m, living].sum() for m in living}
    federation.kill(victim)
    federation.run_for(16.0)
    after = federation.tree()
    assert min(totals, key=lambda m: totals[m]) in after.levels[0]
    assert victim not in after.levels[-1][after.root or 0].members
    run_until_right(federation)


def test_a_dead_root_is_succeeded_with_the_consent_of_its_cluster() -> None:
    federation = started(25, seed=3)
    run_until_right(federation)
    former = federation.tree().root
    assert former is not None
    federation.kill(former)
    run_until_right(federation)
    (root,) = federation.confirmed_roots()
    assert root != former and root == federation.tree().root


def test_a_leaving_root_hands_over_at_once() -> None:
    """Nobody has to be missed first: well before a silent provider counts as dead, there is a tree."""
    federation = started(25, seed=3)
    run_until_right(federation)
    former = federation.tree().root
    assert former is not None
    federation.leave(former)
    federation.run_for(5.0)
    assert former not in {m for c in federation.tree().levels[0].values() for m in c.members}
    assert federation.sent["Vote"] == 0
    run_until_right(federation)
    assert len(federation.confirmed_roots()) == 1


@pytest.mark.long
def test_of_a_cut_network_only_the_side_with_most_of_the_root_cluster_has_a_root() -> None:
    federation = started(30, seed=7)
    run_until_right(federation)
    tree = federation.tree()
    cluster = tree.levels[-1][tree.root or 0]
    assert len(cluster.members) >= 3
    # The root alone, with its own leaf cluster, on the lesser side.
    lesser = tree.coordinators[1, cluster.parent].providers
    greater = [p for p in federation.nodes if p not in lesser]
    federation.cut([lesser, greater])
    federation.run_for(60.0)
    (root,) = federation.confirmed_roots()
    assert root in greater
    for side in (lesser, greater):
        assert broken_invariants(federation.tree(side), federation.latencies) == []
    federation.heal()
    run_until_right(federation)
    assert len(federation.confirmed_roots()) == 1


def test_without_a_majority_there_is_a_tree_but_no_root() -> None:
    """Two providers of whom one dies: the other cannot know whether it was cut off."""
    federation = started(2, seed=1)
    run_until_right(federation)
    assert len(federation.confirmed_roots()) == 1
    federation.kill(0)
    run_until_right(federation)
    assert federation.confirmed_roots() == [] and federation.tree().providers == (1,)


@pytest.mark.long
def test_a_run_does_not_depend_on_how_names_are_hashed() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from test_federation_simulation import make_changes, started;"
        "federation = started(12, 3, spare=6, loss=0.1);"
        "make_changes(federation, 3, 10, cuts=True);"
        "print(sorted(federation.sent.items()), federation.tree())"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
