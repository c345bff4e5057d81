"""Estimates of the next step of a unit, fitted to its measured steps.

Before it has stepped, they follow from the cost model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.cost.model import CostModel
from headwater.reuse.load import OperatorLoad
from headwater.schedule import WorkEstimate

MIN_ESTIMATE = 1e-3
"""Lower bound of the estimated seconds of a step, and of the rows it emits."""


@dataclass(frozen=True)
class StepEstimate:
    """The seconds of a step, fixed and per row, and the rows it emits for each input row."""

    fixed: float
    per_row: float = 0.0
    selectivity: float = 1.0

    @property
    def ideal(self) -> float:
        """The seconds from a single row to its results if it never waits."""
        return max(MIN_ESTIMATE, self.fixed + self.per_row)

    def as_batch(self, rows: int) -> WorkEstimate:
        """The work of a step over this many rows, as scheduling policies see it."""
        cost = max(MIN_ESTIMATE, self.fixed + rows * self.per_row)
        return WorkEstimate(max(MIN_ESTIMATE, rows * self.selectivity), cost, self.ideal)


def estimate_step(values: Mapping[str, float]) -> StepEstimate | None:
    """The estimate from the statistics of a unit; None if it has not stepped yet.

    It is the least-squares line through recent steps. Its slope is bounded: more rows never take
    less time, and at least a tenth of the time is fixed, as a step without rows takes time too.
    """
    seconds, rows = values.get("step_seconds"), values.get("step_rows_in")
    if seconds is None or rows is None:
        return None
    spread = values.get("step_rows_squared", rows * rows) - rows * rows
    covariance = values.get("step_rows_seconds", rows * seconds) - rows * seconds
    # Steps of nearly one size say nothing of the slope: rounding errors would decide it.
    slope = covariance / spread if spread > 1e-6 * rows * rows else 0.0
    slope = min(max(slope, 0.0), 0.9 * seconds / rows) if rows else 0.0
    rows_per_row = values.get("step_rows_out", 0.0) / rows if rows else 0.0
    return StepEstimate(seconds - slope * rows, slope, rows_per_row * values.get("told_to", 1.0))


def predict_step(load: OperatorLoad | None, inputs: int, model: CostModel) -> StepEstimate:
    """The estimate for a unit that has not stepped, of its predicted load (None: unknown)."""
    if load is None:
        return StepEstimate(model.step_seconds(inputs))
    fixed = load.steps / model.steps_per_second.value
    rows = sum(node.rate for node in load.nodes if node.kind == "scan")
    if not rows:
        return StepEstimate(fixed)
    return StepEstimate(fixed, (load.cpu - load.steps) / rows, load.result.rate / rows)


def average_estimate(measured: Iterable[StepEstimate]) -> StepEstimate:
    """The estimate for a unit of which nothing is known: the mean of the others."""
    estimates = list(measured)
    if not estimates:
        return StepEstimate(CostModel().step_seconds(1))
    return StepEstimate(
        sum(estimate.fixed for estimate in estimates) / len(estimates),
        sum(estimate.per_row for estimate in estimates) / len(estimates),
        sum(estimate.selectivity for estimate in estimates) / len(estimates),
    )
