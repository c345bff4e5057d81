"""The three-stream run has the same rows in every order, and predictions are of each query."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from headwater.cost.operators import CostTable, OperatorCost
from headwater.reproduce.on_spark import (
    OPTIMISED,
    WRITTEN,
    compare_predictions,
    predict_rate,
    random_query,
    rank_correlation,
    run_three_streams,
)

COSTS = CostTable(
    {
        **CostTable().costs,
        **{kind: OperatorCost(1e-6, 1e-6) for kind in ("emit", "join", "project", "aggregate")},
        "select": OperatorCost(1e-7),
    }
)


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert rank_correlation([1, 1, 2], [5, 5, 7]) == pytest.approx(1)
    assert -1 < rank_correlation([1, 1, 2, 3], [7, 5, 5, 1]) < -0.7


@pytest.mark.long
def test_more_work_is_predicted_to_run_slower() -> None:
    window = "[RANGE 10 SECONDS]"
    one = predict_rate(f"SELECT a.k FROM a {window}", COSTS, 2)
    few = predict_rate(f"SELECT a.k FROM a {window}, b {window} WHERE a.k = b.k", COSTS, 2)
    many = predict_rate(f"SELECT a.k FROM a {window}, b {window} WHERE a.m = b.m", COSTS, 2)
    assert one > few > many
    assert predict_rate(f"SELECT a.k FROM a {window}", COSTS, 4) == pytest.approx(2 * one)


def test_every_random_query_has_a_prediction() -> None:
    rng = random.Random(3)
    assert all(predict_rate(random_query(rng), COSTS, 2) > 0 for _ in range(20))


@pytest.mark.spark
def test_three_streams_in_every_order(spark: Any, tmp_path: Path) -> None:
    """Results are compared by the run itself, which fails if they differ."""
    found = run_three_streams(spark, tmp_path, rows=40_000, files=2, rate=200)
    assert [one.name for one in found][::2] == [WRITTEN, OPTIMISED]
    assert len({one.results for one in found}) == pytest.approx(1)
    assert found[0].results > 0


@pytest.mark.spark
def test_rates_are_measured(spark: Any, tmp_path: Path) -> None:
    ((text, wanted, rate),) = compare_predictions(spark, tmp_path, 1, 2_000, 1, COSTS, 2)
    assert wanted == predict_rate(text, COSTS, 2)
    assert rate > 0
