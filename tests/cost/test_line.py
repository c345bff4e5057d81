"""A line through measurements: exact where they lie on one, unmoved by a few that do not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cost.line import MIN_FIXED_SHARE, fit_line

costs = st.floats(0.01, 10.0)


@given(costs, st.floats(0.0, 1e-4), st.integers(0, 2**32))
def test_a_line_is_found_despite_cold_steps(fixed: float, per_row: float, seed: int) -> None:
    rng = random.Random(seed)
    rows = [rng.randrange(10, 2_000) for _ in range(12)]
    points = [(float(n), fixed + per_row * n) for n in rows]
    cold = [(float(n), 30 * (fixed + per_row * n)) for n in rows[:2]]
    found, slope = fit_line([*cold, *points])
    usual = sorted(rows)[len(rows) // 2]
    assert found + slope * usual == pytest.approx(fixed + per_row * usual, rel=0.35)
    assert found >= 0 and slope >= 0


@given(costs, st.floats(0.0, 1e-5))
def test_without_noise_it_is_exact(fixed: float, per_row: float) -> None:
    points = [(float(n), fixed + per_row * n) for n in (10, 20, 50, 80, 100)]
    assert fit_line(points) == pytest.approx((fixed, per_row), rel=1e-6, abs=1e-9)


def test_part_of_a_step_is_fixed_whatever_was_measured() -> None:
    fixed, slope = fit_line([(100.0, 1.0), (200.0, 2.0), (300.0, 3.0)])
    assert slope * 200 <= (1 - MIN_FIXED_SHARE) * 2 * (1 + 1e-9)
    assert fixed > 0
    assert fit_line([(50.0, 0.3)]) == (0.3, 0.0)
