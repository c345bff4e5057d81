"""Where an estimate comes from: assumed, declared, calibrated on this machine, or measured as it runs.

What is known better replaces what is known less well, and every estimate says which it is, so that
whoever reads a price can tell a guess from a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Provenance(IntEnum):
    """How something is known, worst first."""

    DEFAULT = 0
    DECLARED = 1
    CALIBRATED = 2
    MEASURED = 3

    def __str__(self) -> str:
        return self.name.lower()


CONFIDENCE = {
    Provenance.DEFAULT: 0.1,
    Provenance.DECLARED: 0.5,
    Provenance.CALIBRATED: 0.7,
}
"""How much an estimate is trusted that was not measured, from 0 to 1."""

TRUSTED_AFTER = 5
"""How many measurements make an estimate half certain."""


@dataclass(frozen=True)
class Estimate:
    """A value, how it is known, and how much it is trusted, from 0 to 1."""

    value: float
    provenance: Provenance = Provenance.DEFAULT
    confidence: float = CONFIDENCE[Provenance.DEFAULT]


Known = Mapping[str, Provenance]
"""How each of the things is known from which something was computed, by what it is called."""


def declared(value: float) -> Estimate:
    return Estimate(value, Provenance.DECLARED, CONFIDENCE[Provenance.DECLARED])


def calibrated(value: float) -> Estimate:
    return Estimate(value, Provenance.CALIBRATED, CONFIDENCE[Provenance.CALIBRATED])


def measured(value: float, times: float) -> Estimate:
    """What was measured that many times."""
    return Estimate(value, Provenance.MEASURED, times / (times + TRUSTED_AFTER))


def describe_known(known: Known) -> str:
    """The same in words: `rate measured, selectivity declared`."""
    return ", ".join(f"{name} {provenance}" for name, provenance in known.items())
