"""Metrics of a tally, and confidence intervals."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sim.coin_flips import CERTAIN, coin_flip, fast_coin_flip, pass_threshold, run_key
from headwater.sim.metrics import (
    SimulationResult,
    confidence_interval,
    empty_tally,
    record_result,
    student_t_quantile,
)

QUICK = settings(max_examples=50, deadline=None)

results = st.lists(
    st.tuples(st.integers(0, 3), st.floats(0.1, 100.0), st.floats(1.0, 1000.0)),
    min_size=1,
    max_size=30,
)


@QUICK
@given(results)
def test_metrics_are_those_of_the_list_of_results(some: list[tuple[int, float, float]]) -> None:
    tally = empty_tally(4)
    for query, response, slowdown in some:
        record_result(tally, query, response, slowdown)
    for chosen in (None, [some[0][0]]):
        kept = [one for one in some if chosen is None or one[0] in chosen]
        found = SimulationResult(tally, 0.0, 0, 0).metrics(chosen)
        assert found.results == len(kept)
        assert found.response == pytest.approx(statistics.fmean(r for _, r, _ in kept))
        assert found.slowdown == pytest.approx(statistics.fmean(h for _, _, h in kept))
        assert found.max_slowdown == max(h for _, _, h in kept)
        assert found.max_response == max(r for _, r, _ in kept)
        assert found.l2 == pytest.approx(math.sqrt(sum(h * h for _, _, h in kept)))


def test_without_results_there_are_no_means() -> None:
    found = SimulationResult(empty_tally(2), 0.0, 0, 0).metrics()
    assert (found.results, found.l2) == (0, 0.0)
    assert math.isnan(found.slowdown)


@pytest.mark.parametrize(
    ("freedom", "confidence", "quantile"),
    [
        (1, 0.95, 12.7062),
        (4, 0.95, 2.7764),
        (9, 0.95, 2.2622),
        (10, 0.99, 3.1693),
        (200, 0.9, 1.6525),
    ],
)
def test_students_quantiles_are_those_of_the_tables(
    freedom: int, confidence: float, quantile: float
) -> None:
    assert student_t_quantile(freedom, confidence) == pytest.approx(quantile, abs=5e-5)


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    found = [confidence_interval(rng.normal(5.0, 2.0, 6).tolist()) for _ in range(2000)]
    share = sum(one.low <= 5.0 <= one.high for one in found) / len(found)
    assert share == pytest.approx(0.95, abs=0.02)
    assert confidence_interval([3.0]).margin == math.inf


# ---- fates


@QUICK
@given(st.integers(0, 2**40), st.integers(0, 2**62), st.integers(0, 10**6))
def test_the_compiled_fate_is_the_plain_one(seed: int, number: int, operator: int) -> None:
    key = run_key(seed)
    assert fast_coin_flip(np.uint64(key), number, operator) == coin_flip(key, number, operator)


def test_as_many_tuples_pass_as_the_selectivity_says() -> None:
    key = run_key(3)
    for share in (0.0, 0.1, 0.7, 1.0):
        passed = [coin_flip(key, number, 5) < pass_threshold(share) for number in range(20_000)]
        assert sum(passed) / 20_000 == pytest.approx(share, abs=0.01)
    assert pass_threshold(1.0) == CERTAIN


def test_fates_of_operators_are_independent() -> None:
    key = run_key(4)
    both = [
        coin_flip(key, n, 1) < CERTAIN // 2 and coin_flip(key, n, 2) < CERTAIN // 2
        for n in range(20_000)
    ]
    assert sum(both) / 20_000 == pytest.approx(0.25, abs=0.01)
