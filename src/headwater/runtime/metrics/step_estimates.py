"""What the next step of a unit is expected to take, fitted to the steps that were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.schedule import WorkEstimate

MIN_ESTIMATE = 1e-3
"""Seconds that a step takes at least, and rows that it is expected to tell at least."""


@dataclass(frozen=True)
class StepEstimate:
    """What a step of a unit takes in seconds, and how many rows it tells for each that it takes in."""

    fixed: float = 1.0
    per_row: float = 0.0
    selectivity: float = 1.0

    @property
    def ideal(self) -> float:
        """The seconds from a single row to its results, if it never waits."""
        return max(MIN_ESTIMATE, self.fixed + self.per_row)

    def as_batch(self, rows: int) -> WorkEstimate:
        """So many rows as a policy sees them."""
        cost = max(MIN_ESTIMATE, self.fixed + rows * self.per_row)
        return WorkEstimate(max(MIN_ESTIMATE, rows * self.selectivity), cost, self.ideal)


def estimate_step(values: Mapping[str, float]) -> StepEstimate | None:
    """What was measured of a unit as an expectation; None if it has not stepped yet.

    The line through the last steps is the one of least squares; it neither falls nor does all of the
    time belong to the rows, as a step that takes in nothing takes time too.
    """
    seconds, rows = values.get("step_seconds"), values.get("step_rows_in")
    if seconds is None or rows is None:
        return None
    spread = values.get("step_rows_squared", rows * rows) - rows * rows
    covariance = values.get("step_rows_seconds", rows * seconds) - rows * seconds
    slope = covariance / spread if spread > 1e-6 * rows * rows else 0.0
    slope = min(max(slope, 0.0), 0.9 * seconds / rows) if rows else 0.0
    rows_per_row = values.get("step_rows_out", 0.0) / rows if rows else 0.0
    return StepEstimate(seconds - slope * rows, slope, rows_per_row * values.get("told_to", 1.0))


def average_estimate(measured: Iterable[StepEstimate]) -> StepEstimate:
    """What is expected of a unit of which nothing is known."""
    estimates = list(measured)
    if not estimates:
        return StepEstimate()
    return StepEstimate(
        sum(estimate.fixed for estimate in estimates) / len(estimates),
        sum(estimate.per_row for estimate in estimates) / len(estimates),
        sum(estimate.selectivity for estimate in estimates) / len(estimates),
    )
