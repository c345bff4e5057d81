"""What steps cost: rows and seconds of every step, and of some the rows and seconds per operator.

Every step is measured by its own clock; the values are smoothed, so that the newest steps count most,
and committed with the step. What the operators of a plan did is taken from Spark's metrics of the
plan that ran. Asking for them takes a tenth of a second or so, hence only the first step of a run
and every so many after it are asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.runtime.catalog import Catalog, Json, plan_owner
from headwater.runtime.joinorder import Term, selectivities
from headwater.runtime.profile import measured_plan
from headwater.runtime.scheduling import Expected, expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WEIGHT = 0.2
"""The part that the newest step has in a smoothed value."""

RECENT = 100
"""Of how many last steps the seconds are kept one by one."""

SAMPLED_EVERY = 20

PARTS = ("build", "run", "write", "commit")
"""What a step does: plan the job, run it, write the file, commit."""


@dataclass
class Watch:
    """The seconds of a step by part, as they pass."""

    parts: dict[str, float] = field(default_factory=dict)
    _at: float = field(default_factory=time.monotonic)

    def lap(self, part: str) -> None:
        """What passed since the last lap belongs to this part."""
        now = time.monotonic()
        self.parts[part] = self.parts.get(part, 0.0) + now - self._at
        self._at = now

    def skip(self) -> None:
        """What passed since the last lap belongs to no part."""
        self._at = time.monotonic()


def smoothed(before: float | None, value: float) -> float:
    """The mean in which the newest value has its weight and older ones ever less."""
    return value if before is None else before + WEIGHT * (value - before)


def responses(
    before: Mapping[str, float], arrived: Sequence[tuple[int, float]], rows_out: int, now: float
) -> dict[str, float]:
    """How long results took since what they are made of came: the longest, the sum, and the sum of
    squares. The results of a step are taken to be spread over what it took in."""
    rows = sum(n for n, _ in arrived)
    if not rows or not rows_out:
        return {}
    waits = [(rows_out * n / rows, max(0.0, now - at)) for n, at in arrived]
    return {
        "response_most": max(before.get("response_most", 0.0), *(wait for _, wait in waits)),
        "response_sum": before.get("response_sum", 0.0) + sum(n * w for n, w in waits),
        "response_squares": before.get("response_squares", 0.0) + sum(n * w * w for n, w in waits),
    }


# ---- units


@dataclass
class _Known:
    """What was measured of a unit so far."""

    values: dict[str, float]
    recent: list[float]
    commit: float = 0.0
    until_sample: int = 0


@dataclass(frozen=True)
class Measured:
    """What is to be committed with a step."""

    statistics: Mapping[tuple[str, str], float]
    profiles: Mapping[str, Json]


UNMEASURED = Measured({}, {})


@dataclass
class Meter:
    """Measures the steps of units, going on from what the catalog knows of them."""

    catalog: Catalog
    sampled_every: int = SAMPLED_EVERY
    _units: dict[str, _Known] = field(default_factory=dict)

    def sampled(self, unit: str) -> bool:
        """Whether the operators of the unit's next step are to be measured."""
        return self._known(unit).until_sample <= 0

    def step(
        self,
        unit: str,
        watch: Watch,
        rows_in: int,
        rows_out: int,
        ran: Sequence[Any] = (),
        terms: Sequence[Term] = (),
        arrived: Sequence[tuple[int, float]] = (),
        told_to: float | None = None,
        bytes_out: int = 0,
    ) -> Measured:
        """Take in a step that is about to be committed; `ran` are the plans that Spark ran, if they
        are to be measured, and `terms` what the first of them joined. The seconds of committing are
        those of the step before. `arrived` is how many rows came when, `told_to` to how many queries
        a row of its results was told."""
        known = self._known(unit)
        parts = {part: watch.parts.get(part, 0.0) for part in PARTS} | {"commit": known.commit}
        values = self._smoothed(known, parts, rows_in, rows_out, bytes_out)
        values |= responses(values, arrived, rows_out, time.time())
        if told_to is not None:
            values["told_to"] = smoothed(values.get("told_to"), told_to)
        known.recent = [*known.recent, round(sum(parts.values()), 4)][-RECENT:]
        profiles: dict[str, Json] = {unit: {"recent": known.recent}}
        known.until_sample -= 1
        if ran:
            known.until_sample = self.sampled_every - 1
            jobs = [measured_plan(plan) for plan in ran]
            profiles[plan_owner(unit)] = {"step": int(values["steps"]), "jobs": jobs}
            joins = selectivities(jobs[0]["operators"], terms)
            values |= {n: smoothed(values.get(n), value) for n, value in joins.items()}
        known.values = values
        return Measured({(unit, name): value for name, value in values.items()}, profiles)

    def values(self, unit: str) -> Mapping[str, float]:
        """What was measured of a unit, by name; of joins the selectivity."""
        return self._known(unit).values

    def expected(self, unit: str) -> Expected | None:
        """What the unit's next step is expected to take; None if it was never measured."""
        return expected(self._known(unit).values)

    def committed(self, unit: str, watch: Watch) -> None:
        """Note how long it took to commit."""
        watch.lap("commit")
        self._known(unit).commit = watch.parts["commit"]

    def forget_all_but(self, units: Set[str]) -> None:
        """Keep nothing in memory of other units."""
        self._units = {unit: known for unit, known in self._units.items() if unit in units}

    def _smoothed(
        self,
        known: _Known,
        parts: Mapping[str, float],
        rows_in: int,
        rows_out: int,
        bytes_out: int = 0,
    ) -> dict[str, float]:
        before = known.values
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
            **{name: smoothed(before.get(name), value) for name, value in means.items()},
        }

    def _known(self, unit: str) -> _Known:
        if unit not in self._units:
            values = {n: s.value for n, s in self.catalog.statistics(unit).items()}
            profile = self.catalog.profile(unit)
            recent = [] if profile is None else list(profile.value["recent"])
            self._units[unit] = _Known(values, recent)
        return self._units[unit]


# ---- what Spark ran


def planned(frame: DataFrame, collected: bool) -> tuple[DataFrame, Any]:
    """A frame with the same rows, and the plan whose metrics will be those of computing them.

    A frame that is collected runs the plan it has. One that is written is planned anew by Spark, which
    keeps that plan to itself; so what is written is the outcome of this one.
    """
    execution = frame._jdf.queryExecution()
    if collected:
        return frame, execution.executedPlan()
    session = frame.sparkSession
    java = session._jsparkSession.internalCreateDataFrame(
        execution.toRdd(), frame._jdf.schema(), False
    )
    return type(frame)(java, session), execution.executedPlan()
