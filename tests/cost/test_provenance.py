"""What is known better counts, and says so."""

from __future__ import annotations

from headwater.cost.provenance import Estimate, Provenance, calibrated, declared, measured


def test_confidence_grows_from_a_guess_to_a_measurement() -> None:
    ways = [Estimate(1.0), declared(1.0), calibrated(1.0), measured(1.0, 1_000)]
    assert [one.provenance for one in ways] == sorted(Provenance)
    assert sorted(ways, key=lambda one: one.confidence) == ways
    assert [str(known) for known in Provenance] == ["default", "declared", "calibrated", "measured"]


def test_what_was_measured_more_often_is_trusted_more() -> None:
    assert measured(2.0, 1).confidence < measured(1.0, 100).confidence < 1
