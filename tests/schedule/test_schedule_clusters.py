"""BSD over clusters: what it promises, and that pruning changes no choice."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ScheduleError
from headwater.schedule.clusters import (
    fagin_best_cluster,
    logarithmic_clusters,
    scan_best_cluster,
    singleton_clusters,
    uniform_clusters,
)

QUICK = settings(max_examples=50, deadline=None)

standings = st.lists(st.floats(1e-6, 1e3, allow_subnormal=False), min_size=1, max_size=40)


@QUICK
@given(standings, st.integers(1, 15))
def test_clusters_hold_every_query_once_at_or_below_its_standing(
    values: list[float], count: int
) -> None:
    for clusters in (
        logarithmic_clusters(values, count),
        uniform_clusters(values, count),
        singleton_clusters(values),
    ):
        assert sorted(m for members in clusters.queries for m in members) == list(
            range(len(values))
        )
        assert list(clusters.static_priorities) == sorted(clusters.static_priorities, reverse=True)
        for edge, members in zip(clusters.static_priorities, clusters.queries, strict=True):
            assert all(edge * (1 - 1e-9) <= values[m] for m in members)


@QUICK
@given(standings, st.integers(1, 15))
def test_logarithmic_clusters_keep_their_ratio(values: list[float], count: int) -> None:
    wanted = (max(values) / min(values)) ** (1 / count)
    assert logarithmic_clusters(values, count).ratio <= wanted * (1 + 1e-9)


queues = st.lists(
    st.tuples(st.floats(0.001, 1000.0), st.none() | st.floats(0.0, 100.0)), min_size=1, max_size=20
).filter(lambda some: any(time is not None for _, time in some))


@QUICK
@given(queues)
def test_pruning_finds_what_a_scan_finds(some: list[tuple[float, float | None]]) -> None:
    some = sorted(some, key=lambda pair: -pair[0])
    standing, since = [s for s, _ in some], [t for _, t in some]
    pruned, whole = (
        fagin_best_cluster(standing, since, 100.0),
        scan_best_cluster(standing, since, 100.0),
    )
    rank = [0.0 if t is None else s * (100.0 - t) for s, t in some]
    assert rank[pruned.cluster] == rank[whole.cluster] == max(rank)
    assert pruned.computed <= whole.computed
    assert whole.operations == 2 * whole.computed - 1


@QUICK
@given(standings, st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_choice_is_within_the_ratio_of_the_best(
    values: list[float], count: int, random: Random
) -> None:
    """Members of a cluster may have heads of different age; the oldest stands for the cluster."""
    clusters = logarithmic_clusters(values, count)
    waits = [random.uniform(0.0, 100.0) for _ in values]
    oldest = [max(waits[m] for m in members) for members in clusters.queries]
    found = fagin_best_cluster(clusters.static_priorities, [-wait for wait in oldest], 0.0).cluster
    head = max(clusters.queries[found], key=lambda m: waits[m])
    best = max(standing * wait for standing, wait in zip(values, waits, strict=True))
    assert values[head] * waits[head] * clusters.ratio >= best * (1 - 1e-9)


def test_uniform_clusters_throw_the_small_ones_together() -> None:
    values = [1.0, 2.0, 40.0, 100.0]
    assert uniform_clusters(values, 2).queries == ((3,), (0, 1, 2))
    assert uniform_clusters(values, 2).ratio == 40.0
    assert logarithmic_clusters(values, 2).queries == ((2, 3), (0, 1))
    assert math.isclose(logarithmic_clusters(values, 2).ratio, 10.0)


def test_what_cannot_be_clustered_is_refused() -> None:
    with pytest.raises(ScheduleError, match="at least one cluster"):
        logarithmic_clusters([1.0], 0)
    with pytest.raises(ScheduleError, match="above 0"):
        uniform_clusters([0.0, 1.0], 3)
    with pytest.raises(ScheduleError, match="nothing to choose"):
        scan_best_cluster([1.0], [None], 0.0)
