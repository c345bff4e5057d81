"""What is known better counts, and says so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.cost.provenance import (
    Estimate,
    Provenance,
    best_known,
    calibrated,
    declared,
    measured,
)

ESTIMATES = [Estimate(1.0), declared(2.0), calibrated(3.0), measured(4.0, 1)]


@given(st.sets(st.sampled_from(ESTIMATES), min_size=1))
def test_what_is_known_best_is_taken(some: set[Estimate]) -> None:
    assert best_known(*some, None) == max(some, key=lambda one: one.value)


def test_what_was_measured_more_often_is_trusted_more() -> None:
    often, once = measured(1.0, 100), measured(2.0, 1)
    assert best_known(once, often) == best_known(often, once) == often
    assert [str(known) for known in Provenance] == ["default", "declared", "calibrated", "measured"]
