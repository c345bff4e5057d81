"""Measuring steps: rows and seconds of every step, and of sampled steps those of each operator.

Values are smoothed, so that the newest steps count most, and committed with the step. The numbers
of operators come from Spark's metrics of the executed plan. Reading them takes about a tenth of a
second, so only the first step of a run and every twentieth after it are sampled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.runtime.catalog import Catalog, Json, plan_owner
from headwater.runtime.compile.join_order import Term, compute_selectivities
from headwater.runtime.metrics.step_estimates import StepEstimate, estimate_step
from headwater.runtime.spark.plan_metrics import read_plan_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMOOTHING_WEIGHT = 0.2
"""The weight of the newest step in a smoothed value."""

RECENT_STEPS = 100
"""How many of the last steps have their seconds kept individually."""

SAMPLED_EVERY = 20

STEP_PARTS = ("build", "run", "write", "commit")
"""The parts of a step: plan the job, run it, write the file, commit."""


@dataclass
class Stopwatch:
    """Measures the seconds of each part of a step."""

    parts: dict[str, float] = field(default_factory=dict)
    _lap_started_at: float = field(default_factory=time.monotonic)

    def lap(self, part: str) -> None:
        """Add the time since the last lap to this part."""
        now = time.monotonic()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._lap_started_at
        self._lap_started_at = now

    def skip(self) -> None:
        """Discard the time since the last lap."""
        self._lap_started_at = time.monotonic()


def smooth(before: float | None, value: float) -> float:
    """The exponentially weighted mean with a new value."""
    return value if before is None else before + SMOOTHING_WEIGHT * (value - before)


def response_statistics(
    before: Mapping[str, float], arrivals: Sequence[tuple[int, float]], rows_out: int, now: float
) -> dict[str, float]:
    """Response times, from the arrival of rows to their results: largest, sum, sum of squares.

    The results of a step are assumed to be spread evenly over its input rows.
    """
    rows = sum(n for n, _ in arrivals)
    if not rows or not rows_out:
        return {}
    waits = [(rows_out * n / rows, max(0.0, now - at)) for n, at in arrivals]
    return {
        "response_most": max(before.get("response_most", 0.0), *(wait for _, wait in waits)),
        "response_sum": before.get("response_sum", 0.0) + sum(n * w for n, w in waits),
        "response_squares": before.get("response_squares", 0.0) + sum(n * w * w for n, w in waits),
    }


# ---- units


@dataclass
class _UnitHistory:
    """The measurements of a unit so far."""

    values: dict[str, float]
    recent_seconds: list[float]
    commit_seconds: float = 0.0
    steps_until_sample: int = 0


@dataclass(frozen=True)
class StepMeasurements:
    """The statistics and profiles to commit with a step."""

    statistics: Mapping[tuple[str, str], float]
    profiles: Mapping[str, Json]


NO_MEASUREMENTS = StepMeasurements({}, {})


@dataclass
class StepMeter:
    """Measures the steps of units, starting from the values in the catalog."""

    catalog: Catalog
    sampled_every: int = SAMPLED_EVERY
    _units: dict[str, _UnitHistory] = field(default_factory=dict)

    def is_sample_due(self, unit: str) -> bool:
        """Whether the operators of the unit's next step are to be measured."""
        return self._history(unit).steps_until_sample <= 0

    def record_step(
        self,
        unit: str,
        stopwatch: Stopwatch,
        rows_in: int,
        rows_out: int,
        executed_plans: Sequence[Any] = (),
        terms: Sequence[Term] = (),
        arrivals: Sequence[tuple[int, float]] = (),
        subscribers_per_row: float | None = None,
        bytes_out: int = 0,
    ) -> StepMeasurements:
        """Record a step that is about to be committed; returns what to commit with it.

        `executed_plans` are the plans that Spark ran, if the step is sampled, and `terms` the join
        terms of the first. `arrivals` are the rows and arrival times of its input,
        `subscribers_per_row` how many queries a result row belongs to on average.
        """
        history = self._history(unit)
        # How long this commit will take is not known yet, so that of the step before stands in.
        parts = {part: stopwatch.parts.get(part, 0.0) for part in STEP_PARTS} | {
            "commit": history.commit_seconds
        }
        values = self._smooth_values(history, parts, rows_in, rows_out, bytes_out)
        values |= response_statistics(values, arrivals, rows_out, time.time())
        if subscribers_per_row is not None:
            values["told_to"] = smooth(values.get("told_to"), subscribers_per_row)
        history.recent_seconds = [*history.recent_seconds, round(sum(parts.values()), 4)][
            -RECENT_STEPS:
        ]
        profiles: dict[str, Json] = {unit: {"recent": history.recent_seconds}}
        history.steps_until_sample -= 1
        if executed_plans:
            history.steps_until_sample = self.sampled_every - 1
            jobs = [read_plan_metrics(plan) for plan in executed_plans]
            profiles[plan_owner(unit)] = {"step": int(values["steps"]), "jobs": jobs}
            joins = compute_selectivities(jobs[0]["operators"], terms)
            values |= {n: smooth(values.get(n), value) for n, value in joins.items()}
        history.values = values
        return StepMeasurements({(unit, name): value for name, value in values.items()}, profiles)

    def values(self, unit: str) -> Mapping[str, float]:
        """The measured values of a unit by name, selectivities of joins included."""
        return self._history(unit).values

    def estimate(self, unit: str) -> StepEstimate | None:
        """The estimate of a unit's next step; None if it was never measured."""
        return estimate_step(self._history(unit).values)

    def record_commit(self, unit: str, stopwatch: Stopwatch) -> None:
        """Record how long the commit took."""
        stopwatch.lap("commit")
        self._history(unit).commit_seconds = stopwatch.parts["commit"]

    def forget_all_but(self, units: Set[str]) -> None:
        """Forget the measurements of all other units in memory."""
        self._units = {unit: history for unit, history in self._units.items() if unit in units}

    def _smooth_values(
        self,
        history: _UnitHistory,
        parts: Mapping[str, float],
        rows_in: int,
        rows_out: int,
        bytes_out: int = 0,
    ) -> dict[str, float]:
        before = history.values
        total = sum(parts.values())
        means = {f"{part}_seconds": seconds for part, seconds in parts.items()}
        means |= {
            "step_seconds": total,
            "step_rows_in": rows_in,
            "step_rows_out": rows_out,
            "step_bytes_out": bytes_out,
            "step_rows_squared": rows_in * rows_in,
            "step_rows_seconds": rows_in * total,
        }
        return {
            **before,
            "steps": before.get("steps", 0.0) + 1,
            "rows_in": before.get("rows_in", 0.0) + rows_in,
            "rows_out": before.get("rows_out", 0.0) + rows_out,
            "last_seconds": total,
            **{name: smooth(before.get(name), value) for name, value in means.items()},
        }

    def _history(self, unit: str) -> _UnitHistory:
        if unit not in self._units:
            values = {n: s.value for n, s in self.catalog.statistics(unit).items()}
            profile = self.catalog.profile(unit)
            recent = [] if profile is None else list(profile.value["recent"])
            self._units[unit] = _UnitHistory(values, recent)
        return self._units[unit]


# ---- what Spark ran


def with_executed_plan(frame: DataFrame, collected: bool) -> tuple[DataFrame, Any]:
    """A frame with the same rows, and the plan whose metrics will describe their computation.

    A frame that is collected runs the plan it has. For one that is written Spark makes another
    plan, which it does not expose; so the frame to write is made of the output of this plan.
    """
    execution = frame._jdf.queryExecution()
    if collected:
        return frame, execution.executedPlan()
    session = frame.sparkSession
    java = session._jsparkSession.internalCreateDataFrame(
        execution.toRdd(), frame._jdf.schema(), False
    )
    return type(frame)(java, session), execution.executedPlan()
