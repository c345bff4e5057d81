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

from headwater.cost.line import fit_line
from headwater.runtime.catalog import Catalog, Json, Statistic, plan_owner
from headwater.runtime.compile.join_order import Term, compute_selectivities
from headwater.runtime.metrics.cost_model import SCALE, STEPS, condition_statistics
from headwater.runtime.metrics.rates import RATE_SECONDS, current_rate
from headwater.runtime.metrics.step_estimates import StepEstimate, estimate_step
from headwater.runtime.spark.plan_metrics import read_plan_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMOOTHING_WEIGHT = 0.2
"""The weight of the newest step in a smoothed value."""

RECENT_STEPS = 100
"""How many of the last steps have their seconds kept individually."""

RECENT_WORK = 20
"""How many of the last steps have their rows and CPU seconds kept, to which a line is fitted."""

SAMPLED_EVERY = 20

WARM_STEPS = 3
"""Steps of a unit after which what they cost says what steps cost on this machine."""

EARLY_STEPS = 5
"""Of so many first steps the next one is sampled too if nothing could be measured of conditions."""

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


@dataclass(frozen=True)
class StepReport:
    """What a step did, before it is committed."""

    seconds: Mapping[str, float]
    """Seconds by part; those of the commit are not known yet."""
    rows_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    arrivals: Sequence[tuple[int, float]] = ()
    """How many of the rows ingested arrived when."""
    executed_plans: Sequence[Any] = ()
    """The plans that Spark ran, if they are to be measured."""
    terms: Sequence[Term] = ()
    """The terms that the first of these plans joined."""
    cpu_seconds: float | None = None
    """CPU seconds of the step without its commit; None where they are not reported."""


def step_statistics(
    before: Mapping[str, float], parts: Mapping[str, float], report: StepReport
) -> dict[str, float]:
    """The statistics of a unit after a step: totals, and smoothed means."""
    rows_in, rows_out = report.rows_in, report.rows_out
    total = sum(parts.values())
    means = {f"{part}_seconds": seconds for part, seconds in parts.items()}
    means |= {
        "step_seconds": total,
        "step_rows_in": rows_in,
        "step_rows_out": rows_out,
        "step_bytes_out": report.bytes_out,
        "step_rows_squared": rows_in * rows_in,
        "step_rows_seconds": rows_in * total,
    }
    if report.cpu_seconds is not None:
        means["step_cpu"] = report.cpu_seconds
    return {
        **before,
        "steps": before.get("steps", 0.0) + 1,
        "cpu_seconds": before.get("cpu_seconds", 0.0) + (report.cpu_seconds or 0.0),
        "rows_in": before.get("rows_in", 0.0) + rows_in,
        "rows_out": before.get("rows_out", 0.0) + rows_out,
        "last_seconds": total,
        **{name: smooth(before.get(name), value) for name, value in means.items()},
    }


def work_statistics(work: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The CPU seconds of a step, fixed and per row, by the rows and CPU seconds of recent ones."""
    # The first step of a process compiles what later ones reuse, so it says nothing of them.
    points = work[1:] or work
    if not points:
        return {}
    fixed, per_row = fit_line(points)
    return {"cpu_fixed": fixed, "cpu_per_row": per_row, "cpu_steps": float(len(work))}


def pace_statistics(
    before: Mapping[str, Statistic], report: StepReport, now: float
) -> dict[str, float]:
    """Steps, and CPU seconds of them, in a second."""
    steps = current_rate(before.get("steps_rate"), now) + 1 / RATE_SECONDS
    cpu = current_rate(before.get("cpu_rate"), now) + (report.cpu_seconds or 0.0) / RATE_SECONDS
    return {"steps_rate": steps, "cpu_rate": cpu}


@dataclass
class _UnitHistory:
    """The measurements of a unit so far."""

    values: dict[str, float]
    recent_seconds: list[float]
    recent_work: list[tuple[float, float]]
    paced_at: float = 0.0
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
    step_scale: float | None = None
    _units: dict[str, _UnitHistory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stored = self.catalog.statistic(STEPS, SCALE)
        self.step_scale = None if stored is None else stored.value

    def is_sample_due(self, unit: str) -> bool:
        """Whether the operators of the unit's next step are to be measured."""
        return self._history(unit).steps_until_sample <= 0

    def record_step(
        self,
        unit: str,
        report: StepReport,
        subscribers_per_row: float | None = None,
        expected_seconds: float | None = None,
    ) -> StepMeasurements:
        """Count a step that is about to be committed; the seconds of its commit are taken to be those
        of the step before. `subscribers_per_row` is to how many queries a row of its results goes, `expected_seconds` the
        CPU seconds that costs say of a step that reads next to nothing."""
        history = self._history(unit)
        shared: dict[tuple[str, str], float] = {}
        parts = {part: report.seconds.get(part, 0.0) for part in STEP_PARTS} | {
            "commit": history.commit_seconds
        }
        values = step_statistics(history.values, parts, report)
        values |= response_statistics(values, report.arrivals, report.rows_out, time.time())
        if subscribers_per_row is not None:
            values["told_to"] = smooth(values.get("told_to"), subscribers_per_row)
        history.recent_seconds = [*history.recent_seconds, round(sum(parts.values()), 4)][
            -RECENT_STEPS:
        ]
        now = time.time()
        pace = {
            name: Statistic(value, history.paced_at)
            for name, value in history.values.items()
            if name in ("steps_rate", "cpu_rate")
        }
        values |= pace_statistics(pace, report, now)
        history.paced_at = now
        if report.cpu_seconds is not None and report.rows_in:
            work = [*history.recent_work, (float(report.rows_in), report.cpu_seconds)]
            history.recent_work = work[-RECENT_WORK:]
            values |= work_statistics(history.recent_work)
            if expected_seconds and len(history.recent_work) > WARM_STEPS:
                self.step_scale = smooth(self.step_scale, values["cpu_fixed"] / expected_seconds)
                shared[STEPS, SCALE] = self.step_scale
        profiles: dict[str, Json] = {
            unit: {"recent": history.recent_seconds, "work": history.recent_work}
        }
        history.steps_until_sample -= 1
        if report.executed_plans:
            history.steps_until_sample = self.sampled_every - 1
            jobs = [read_plan_metrics(plan) for plan in report.executed_plans]
            profiles[plan_owner(unit)] = {"step": int(values["steps"]), "jobs": jobs}
            joins = compute_selectivities(jobs[0]["operators"], report.terms)
            values |= {n: smooth(values.get(n), value) for n, value in joins.items()}
            conditions = condition_statistics(jobs[0]["operators"], report.terms)
            shared |= conditions
            can_measure = all(term.is_whole for term in report.terms)
            if not conditions and can_measure and values["steps"] <= EARLY_STEPS:
                # Windows that are still empty say nothing yet: the next step may.
                history.steps_until_sample = 0
        history.values = values
        own = {(unit, name): value for name, value in values.items()}
        return StepMeasurements(own | shared, profiles)

    def values(self, unit: str) -> Mapping[str, float]:
        """The measured values of a unit by name, selectivities of joins included."""
        return self._history(unit).values

    def estimate(self, unit: str) -> StepEstimate | None:
        """The estimate of a unit's next step; None if it was never measured."""
        return estimate_step(self._history(unit).values)

    def record_commit(self, unit: str, seconds: float) -> None:
        """Record how long the commit took."""
        self._history(unit).commit_seconds = seconds

    def forget_all_but(self, units: Set[str]) -> None:
        """Forget the measurements of all other units in memory."""
        self._units = {unit: history for unit, history in self._units.items() if unit in units}

    def _history(self, unit: str) -> _UnitHistory:
        if unit not in self._units:
            stored = self.catalog.statistics(unit)
            values = {n: s.value for n, s in stored.items()}
            profile = self.catalog.profile(unit)
            recent = [] if profile is None else list(profile.value["recent"])
            # A state of an older release has no work.
            work = [] if profile is None else profile.value.get("work", [])
            paced_at = stored["steps_rate"].updated_at if "steps_rate" in stored else 0.0
            points = [(float(rows), float(cpu)) for rows, cpu in work]
            self._units[unit] = _UnitHistory(values, recent, points, paced_at)
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
