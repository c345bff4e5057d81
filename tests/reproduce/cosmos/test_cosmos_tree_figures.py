"""The figures of the coordinator tree and of representative queries: what they compute, and that they can say no."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headwater.reference.values import Result
from headwater.reproduce import FIGURES, FigureSettings
from headwater.reproduce.cosmos import representative, tree


def plane(count: int) -> np.ndarray:
    points = np.random.default_rng(5).random((count, 2))
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_a_changed_tree_is_measured() -> None:
    run = tree.run_tree(plane(120), 60, 3, 60, seed=1)
    assert run.broken == () and run.checks == 61
    assert 0 < max(run.probes) <= tree.max_probes(run)
    assert min(run.sizes) >= 3 and max(run.sizes) <= 8 and 60 <= run.most_providers < 120


def test_the_claims_about_trees_can_fail() -> None:
    right = tree.run_tree(plane(120), 64, 4, 40, seed=1)
    large = replace(right, providers=256, most_providers=256)

    def verdicts(*runs: tree.TreeRun) -> list[bool | None]:
        by_size = {(run.k, run.providers): [run] for run in runs}
        return [claim.holds for claim in tree._tree_claims(by_size)]

    small = tree.run_tree(plane(40), 4, 2, 200, seed=2)
    assert small.broken == () and 4 <= small.most_providers <= 40
    assert verdicts(right, large) == [True, True, True]
    assert verdicts(right, replace(large, broken=("level 1: ..",))) == [False, True, True]
    linear = replace(large, probes=tuple(4 * p for p in right.probes))
    assert verdicts(right, linear)[2] is False
    assert verdicts(right, replace(large, probes=(10_000,)))[1] is False


def test_profiles_keep_what_is_on_the_edge_of_a_window() -> None:
    hour = representative.HOUR
    rows = [
        Result(5 * hour, (1, 2, 3, opened, 9, 5 * hour)) for opened in (0, 2 * hour - 1, 2 * hour)
    ]
    assert [row.values[3] for row in representative.filter_by_p1(rows)] == [2 * hour]
    assert len(representative.filter_by_p2(rows)) == 3


@pytest.mark.parametrize("durations", representative.DURATIONS.values())
def test_the_profiles_give_exactly_the_queries(durations: representative.Durations) -> None:
    run = representative.run_streams(durations, 40, seed=3)
    assert run.exact and run.rows[1] == run.rows[2] >= run.rows[0]


def test_s5_saves_only_where_results_overlap_enough() -> None:
    within = representative.run_streams(lambda random, count: np.full(count, 1.0), 30, 1)
    beyond = representative.run_streams(lambda random, count: np.full(count, 4.0), 30, 1)
    assert within.rows[0] == within.rows[1] and within.share < 1
    assert beyond.rows[0] == 0 and beyond.share > 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["cosmos-tree", "cosmos-representative"])
def test_a_quick_figure_has_tables_and_claims(name: str) -> None:
    report = FIGURES[name].run(FigureSettings(1, quick=True))
    assert report.tables and report.claims
    assert report.claims[0].holds
