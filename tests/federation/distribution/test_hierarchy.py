"""Distribution over a tree of coordinators: shares after several levels, quality, and who knows what."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from federations import (
    FAST,
    ORIGINS,
    PROVIDERS,
    home_loving_federation,
    small_federation,
)

from headwater.errors import PlanError
from headwater.federation.coordinators.tree import CoordinatorTree
from headwater.federation.distribution import baselines
from headwater.federation.distribution.hierarchy import (
    Branch,
    branch_of,
    build_levels,
    distribute,
    members,
)
from headwater.federation.distribution.mapping import MappingSettings
from headwater.federation.distribution.objective import Objective, check, cost


def nested(nodes: list[int], height: int) -> Branch:
    """A tree of so many levels in which every coordinator has two children, or more at the lowest."""
    if height == 1:
        return Branch(nodes[0], tuple(Branch(node) for node in nodes))
    half = len(nodes) // 2
    return Branch(nodes[0], (nested(nodes[:half], height - 1), nested(nodes[half:], height - 1)))


@pytest.mark.long
@pytest.mark.parametrize("objective", FAST)
def test_every_provider_is_within_its_share_after_four_levels(objective: Objective) -> None:
    federation, queries = small_federation(1, 500)
    nearest = np.argsort(federation.places.latency[0], kind="stable")
    federation = replace(federation, tree=nested(nearest.tolist(), 4))
    assert federation.tree.height == 4
    found = check(
        federation.problem(queries), distribute(federation, queries, FAST[objective]).place
    )
    assert found.feasible
    assert found.relative_loads(federation.problem(queries)).max() <= 1.10 * (1 + 1e-9)


@pytest.mark.long
@pytest.mark.parametrize("objective", FAST)
def test_hierarchical_is_near_centralized(objective: Objective) -> None:
    """On a world that fits on one node: not far above it, and better than knowing nothing."""
    federation, queries = small_federation(5, 400)
    problem = federation.problem(queries)
    ours = distribute(federation, queries, FAST[objective]).place
    central = baselines.centralized(problem, MappingSettings(objective, rounds=4))
    drawn = baselines.random_mapping(problem, 1)
    assert cost(problem, ours, objective) < 1.15 * cost(problem, central, objective)
    assert cost(problem, ours, objective) < cost(problem, drawn, objective)


@pytest.mark.parametrize("objective", FAST)
def test_it_is_never_worse_than_homes_that_keep_the_bounds(objective: Objective) -> None:
    """Also where results are large, so that it is best to stay at home."""
    for result_share in (0.1, 0.5):
        federation, queries = home_loving_federation(1, result_share)
        problem = federation.problem(queries)
        naive = baselines.naive(problem)
        assert check(problem, naive).feasible
        found = distribute(federation, queries, FAST[objective]).place
        assert check(problem, found).feasible
        least = cost(problem, naive, objective)
        assert cost(problem, found, objective) <= least * (1 + 1e-9)


def test_levels_nest_and_keep_every_query_below_its_home() -> None:
    federation, queries = small_federation(2, 300, k=2)
    home = queries.main_home - ORIGINS
    levels = build_levels(federation, queries, home, FAST["wec"], seed=1)
    assert len(levels) == federation.tree.height - 1
    vertices = np.arange(len(queries))
    for height, level in enumerate(levels, start=1):
        vertices = level.label[vertices]
        assert level.graph.load.sum() == pytest.approx(queries.load.sum())
        assert np.bincount(vertices, queries.load) == pytest.approx(level.graph.load)
        owners = {b.node: b for b in federation.tree.coordinators() if b.height == height}
        for query in range(0, len(queries), 17):
            assert home[query] in owners[level.owner[vertices[query]]].providers
    below = levels[-2].graph if len(levels) > 1 else queries
    parts = [members(levels[-1], np.array([v], np.int32)) for v in range(len(levels[-1].graph))]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(below)))


def test_coordinators_see_only_their_children() -> None:
    federation, _ = small_federation(3, 50)
    for branch in federation.tree.coordinators():
        places = federation.child_places(branch)
        assert len(places) == len(branch.branches)
        for k, child in enumerate(branch.branches):
            homes = ORIGINS + child.providers
            assert np.all(places.anchor[homes, k] == 0)
            outside = np.setdiff1d(np.arange(PROVIDERS), child.providers)
            assert places.anchor[ORIGINS + outside, k] == pytest.approx(
                federation.places.latency[outside, child.node]
            )


def test_times_of_a_chain_are_less_than_of_all() -> None:
    federation, queries = small_federation(3, 100, k=2)
    ticks = count()
    found = distribute(federation, queries, FAST["wec"], clock=lambda: float(next(ticks)))
    below_root = [b for b in federation.tree.coordinators() if b is not federation.tree]
    # Every coordinator maps once, and all but the root coarsen before: a tick each.
    assert found.total_seconds == 2 * len(below_root) + 1
    assert found.response_seconds == 2 * federation.tree.height - 1


def test_a_tree_has_to_be_one() -> None:
    with pytest.raises(PlanError, match="without providers"):
        branch_of(CoordinatorTree())
    with pytest.raises(PlanError, match="equally deep"):
        Branch(0, (Branch(1), Branch(2, (Branch(2),))))
