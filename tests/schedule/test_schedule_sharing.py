"""Shared operators: the priority-defining tree against every possible choice of segments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.schedule import POLICIES, SHARING_RULES, Candidate, WorkEstimate

QUICK = settings(max_examples=50, deadline=None)

segments = st.lists(st.tuples(st.floats(0.01, 10.0), st.floats(0.0, 10.0)), min_size=1, max_size=7)


def together(
    gains: Sequence[float], costs: Sequence[float], shared: float, members: Sequence[int]
) -> float:
    cost = sum(costs[m] for m in members) - (len(members) - 1) * shared
    return sum(gains[m] for m in members) / cost


def best_subset(gains: Sequence[float], costs: Sequence[float], shared: float) -> float:
    places = range(len(gains))
    subsets = (s for n in range(1, len(gains) + 1) for s in itertools.combinations(places, n))
    return max(together(gains, costs, shared, s) for s in subsets)


@QUICK
@given(segments, st.floats(0.1, 10.0))
def test_the_densest_tree_is_the_best_of_all(
    pairs: list[tuple[float, float]], shared: float
) -> None:
    gains, costs = [g for g, _ in pairs], [shared + rest for _, rest in pairs]
    tree = SHARING_RULES["densest"](gains, costs, shared)
    assert tree.priority == pytest.approx(best_subset(gains, costs, shared))
    assert tree.priority == pytest.approx(together(gains, costs, shared, tree.segment_positions))


@QUICK
@given(segments, st.floats(0.1, 10.0))
def test_the_tree_of_the_paper_lies_between_the_best_segment_and_the_best_tree(
    pairs: list[tuple[float, float]], shared: float
) -> None:
    gains, costs = [g for g, _ in pairs], [shared + rest for _, rest in pairs]
    tree = SHARING_RULES["pdt"](gains, costs, shared)
    assert tree.priority == pytest.approx(together(gains, costs, shared, tree.segment_positions))
    assert tree.priority >= max(g / c for g, c in zip(gains, costs, strict=True)) * (1 - 1e-12)
    assert tree.priority <= best_subset(gains, costs, shared) * (1 + 1e-9)


def test_the_tree_of_the_paper_may_miss_the_best() -> None:
    """The cheap third segment ranks last alone, so the second, which ends the tree, comes before."""
    gains, costs, shared = [6.0, 5.0, 0.9], [2.0, 5.0, 1.1], 1.0
    assert SHARING_RULES["pdt"](gains, costs, shared).segment_positions == (0,)
    densest = SHARING_RULES["densest"](gains, costs, shared)
    assert densest.segment_positions == (2, 0)
    assert densest.priority == pytest.approx(6.9 / 2.1)


def test_max_and_sum_run_all() -> None:
    gains, costs = [1.0, 3.0], [1.0, 2.0]
    assert SHARING_RULES["max"](gains, costs, 0.5).priority == 1.5
    assert SHARING_RULES["sum"](gains, costs, 0.5).priority == 2.5
    assert SHARING_RULES["max"](gains, costs, 0.5).segment_positions == (1, 0)


def test_a_shared_unit_ranks_above_its_best_query_alone() -> None:
    segments = (WorkEstimate(0.5, 4.0, 6.0), WorkEstimate(0.4, 4.5, 6.5))
    alone, shared = (
        Candidate("a", 0.0, segments[:1]),
        Candidate("b", 0.0, segments, shared_cost=3.5),
    )
    for name in ("hr", "hnr", "bsd"):
        assert POLICIES[name].rank(shared, 9.0) > POLICIES[name].rank(alone, 9.0)
