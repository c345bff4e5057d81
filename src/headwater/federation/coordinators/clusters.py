"""Arithmetic of one cluster: its median, and its best split into two.

Both work on a square of latencies between the members alone, so the tree as data and a coordinator
that knows only its own cluster share them. A tie goes to the member that comes first.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Members = NDArray[np.bool_]

MAX_EXACT_SIZE = 16
"""The largest cluster whose splits are all tried: at most 25,883 of them."""


def median_member(latencies: Floats) -> int:
    """The position of the member with the least total latency to all members."""
    return int(np.argmin(latencies.sum(axis=1)))


def smallest_half(k: int) -> int:
    """The least size of either cluster after a split."""
    return 3 * k // 2


def best_split(latencies: Floats, k: int) -> Members:
    """Which members form the first of the two clusters that minimise the larger radius.

    The radius of a cluster is the largest latency to its median. All splits are tried up to
    MAX_EXACT_SIZE members; in a larger cluster each pair of members in turn attracts those who are
    nearer to it than to the other. Raises ValueError for a cluster too small to be split.
    """
    count, least = len(latencies), smallest_half(k)
    if count < 2 * least:
        raise ValueError(f"{count} members make no two clusters of {least} or more")
    if count <= MAX_EXACT_SIZE:
        splits = _all_splits(count, least)
    else:
        splits = _splits_by_medoids(latencies, least)
    first, second = _radii(latencies, splits), _radii(latencies, ~splits)
    # The smaller radius decides between splits whose larger radius is the same.
    order = np.lexsort((np.minimum(first, second), np.maximum(first, second)))
    result: Members = splits[order[0]]
    return result


@lru_cache(maxsize=64)
def _all_splits(count: int, least: int) -> Members:
    """All splits into two parts of at least `least`, the first of which has the first member."""
    # Fixing the side of the first member counts each split once, and not with its mirror image.
    chosen = [
        (0, *others)
        for size in range(least, count - least + 1)
        for others in combinations(range(1, count), size - 1)
    ]
    splits = np.zeros((len(chosen), count), np.bool_)
    for row, members in enumerate(chosen):
        splits[row, list(members)] = True
    return splits


def _splits_by_medoids(latencies: Floats, least: int) -> Members:
    """For each pair of members: the rest by which of the two is nearer, within the size bound."""
    count = len(latencies)
    a, b = np.triu_indices(count, 1)
    # How much nearer to `a` than to `b`: negative is nearer. The two themselves come first and last.
    preference = latencies[a] - latencies[b]
    rows = np.arange(len(a))
    preference[rows, a], preference[rows, b] = -np.inf, np.inf
    rank = np.argsort(np.argsort(preference, axis=1, kind="stable"), axis=1, kind="stable")
    size = np.clip((preference < 0).sum(axis=1), least, count - least)
    return np.asarray(rank < size[:, None])


def _radii(latencies: Floats, chosen: Members) -> Floats:
    """The radius of the cluster of the members chosen in each row."""
    # Infinity for the others: the median of a cluster is one of its members.
    totals = np.where(chosen, chosen.astype(np.float64) @ latencies.T, np.inf)
    medians = np.argmin(totals, axis=1)
    radii: Floats = np.where(chosen, latencies[medians], 0.0).max(axis=1)
    return radii
