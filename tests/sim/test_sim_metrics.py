"""Metrics of a tally, and confidence intervals."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sim.fate import CERTAIN, fast_fate, fate, key_of, threshold
from headwater.sim.metrics import Outcome, empty_tally, interval, record, student

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
        record(tally, query, response, slowdown)
    for chosen in (None, [some[0][0]]):
        kept = [one for one in some if chosen is None or one[0] in chosen]
        found = Outcome(tally, 0.0, 0, 0).metrics(chosen)
        assert found.results == len(kept)
        assert found.response == pytest.approx(statistics.fmean(r for _, r, _ in kept))
        assert found.slowdown == pytest.approx(statistics.fmean(h for _, _, h in kept))
        assert found.maximum == max(h for _, _, h in kept)
        assert found.longest == max(r for _, r, _ in kept)
        assert found.l2 == pytest.approx(math.sqrt(sum(h * h for _, _, h in kept)))


def test_without_results_there_are_no_means() -> None:
    found = Outcome(empty_tally(2), 0.0, 0, 0).metrics()
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
    assert student(freedom, confidence) == pytest.approx(quantile, abs=5e-5)


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    found = [interval(rng.normal(5.0, 2.0, 6).tolist()) for _ in range(2000)]
    share = sum(one.low <= 5.0 <= one.high for one in found) / len(found)
    assert share == pytest.approx(0.95, abs=0.02)
    assert interval([3.0]).margin == math.inf


# ---- fates


@QUICK
@given(st.integers(0, 2**40), st.integers(0, 2**62), st.integers(0, 10**6))
def test_the_compiled_fate_is_the_plain_one(seed: int, number: int, operator: int) -> None:
    key = key_of(seed)
    assert fast_fate(np.uint64(key), number, operator) == fate(key, number, operator)


def test_as_many_tuples_pass_as_the_selectivity_says() -> None:
    key = key_of(3)
    for share in (0.0, 0.1, 0.7, 1.0):
        passed = [fate(key, number, 5) < threshold(share) for number in range(20_000)]
        assert sum(passed) / 20_000 == pytest.approx(share, abs=0.01)
    assert threshold(1.0) == CERTAIN


def test_fates_of_operators_are_independent() -> None:
    key = key_of(4)
    both = [
        fate(key, n, 1) < CERTAIN // 2 and fate(key, n, 2) < CERTAIN // 2 for n in range(20_000)
    ]
    assert sum(both) / 20_000 == pytest.approx(0.25, abs=0.01)
