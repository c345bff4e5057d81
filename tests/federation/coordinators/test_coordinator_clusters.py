"""Median and split of a cluster against the definition, tried member by member and split by split."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.coordinators.clusters import (
    MAX_EXACT_SIZE,
    best_split,
    median_member,
    smallest_half,
)


@st.composite
def squares(draw: st.DrawFn, sizes: st.SearchStrategy[int]) -> np.ndarray:
    """Latencies in whole units, so that sums are exact in any order; few values, so that ties occur."""
    size = draw(sizes)
    largest = draw(st.sampled_from([3, 1000]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    upper = np.triu(random.integers(1, largest + 1, (size, size)), 1)
    return (upper + upper.T).astype(float)


def radius(latencies: np.ndarray, members: tuple[int, ...]) -> float:
    totals = [sum(latencies[a, b] for b in members) for a in members]
    median = members[totals.index(min(totals))]
    return max(latencies[median, member] for member in members)


def larger_radius(latencies: np.ndarray, first: tuple[int, ...]) -> float:
    second = tuple(m for m in range(len(latencies)) if m not in first)
    return max(radius(latencies, first), radius(latencies, second))


def least_radius(latencies: np.ndarray, least: int) -> float:
    count = len(latencies)
    return min(
        larger_radius(latencies, first)
        for size in range(least, count - least + 1)
        for first in combinations(range(count), size)
    )


def members(chosen: np.ndarray) -> tuple[int, ...]:
    return tuple(int(m) for m in np.flatnonzero(chosen))


@given(squares(st.integers(1, 12)))
def test_the_median_has_the_least_total(latencies: np.ndarray) -> None:
    totals = [sum(row) for row in latencies]
    assert median_member(latencies) == totals.index(min(totals))


@settings(max_examples=30)
@given(squares(st.integers(6, 9)), st.sampled_from([2]))
def test_splits_equal_brute_force(latencies: np.ndarray, k: int) -> None:
    chosen = members(best_split(latencies, k))
    assert smallest_half(k) <= len(chosen) <= len(latencies) - smallest_half(k)
    assert larger_radius(latencies, chosen) == least_radius(latencies, smallest_half(k))


@pytest.mark.long
@settings(max_examples=12)
@given(squares(st.integers(12, 14)))
def test_splits_of_full_clusters_equal_brute_force(latencies: np.ndarray) -> None:
    assert larger_radius(latencies, members(best_split(latencies, 4))) == least_radius(latencies, 6)


@settings(max_examples=30)
@given(squares(st.integers(MAX_EXACT_SIZE + 1, 40)), st.sampled_from([4, 5]))
def test_a_large_split_keeps_the_size_bound(latencies: np.ndarray, k: int) -> None:
    chosen = members(best_split(latencies, k))
    assert smallest_half(k) <= len(chosen) <= len(latencies) - smallest_half(k)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(9, 16))
def test_a_large_split_separates_two_far_groups(seed: int, size: int) -> None:
    """Where the answer is plain, the heuristic has to give it: its larger radius is that of a group."""
    random = np.random.default_rng(seed)
    side = random.permutation([0] * size + [1] * size)
    points = random.random((2 * size, 2)) + 100 * side[:, None]
    latencies = np.linalg.norm(points[:, None] - points[None], axis=2)
    chosen = best_split(latencies, 4)
    assert (chosen == side).all() or (chosen == 1 - side).all()


def test_the_best_split_may_be_uneven() -> None:
    """Six far members and eight near ones: sizes are bounded, not equal."""
    latencies = np.full((14, 14), 100.0)
    latencies[:6, :6] = latencies[6:, 6:] = 1.0
    np.fill_diagonal(latencies, 0.0)
    assert members(best_split(latencies, 4)) in (tuple(range(6)), tuple(range(6, 14)))


def test_a_small_cluster_is_not_split() -> None:
    with pytest.raises(ValueError, match="11 members make no two clusters of 6 or more"):
        best_split(np.zeros((11, 11)), 4)
