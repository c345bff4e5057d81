"""Makes the steps of units: one class for each kind of plan, behind one interface."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.runtime.compile.plan import DeltaPlan, LifetimePlan, PanePlan
from headwater.runtime.engine.steps.delta import DeltaStep
from headwater.runtime.engine.steps.inputs import Progress, StepContext
from headwater.runtime.engine.steps.lifetimes import LifetimeStep
from headwater.runtime.engine.steps.panes import PaneStep
from headwater.runtime.engine.steps.step import Step, StepDraft
from headwater.runtime.engine.unit import Unit
from headwater.runtime.spark.cpu import CpuWatch

POOLS = 16
"""Spark shares its slots fairly between this many pools of jobs; more would pile up, as Spark never
forgets a pool."""


class UnitStep(Protocol):
    """A step in the making; each method drafts all of it, or returns that there is nothing to do."""

    def update_subscribers(self) -> bool:
        """Bring what the unit keeps in line with its queries, if these have changed."""

    def run(self) -> bool:
        """Read what is new, and write what follows from it."""

    def compact(self) -> bool:
        """Rewrite what the unit keeps in fewer segments, if it has many."""


@dataclass(frozen=True)
class Stepper(StepContext):
    """Makes the steps of units; the caller holds their leases and commits."""

    def step(self, unit: Unit) -> Step | None:
        """The next step of a unit, written but not committed; None if there is nothing to do."""
        pool = f"unit {zlib.crc32(unit.row.id.encode()) % POOLS}"
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        watch = CpuWatch(self.spark)
        draft = StepDraft(self, unit, self.progress(unit))
        step = unit.plan.make_step(_StepFactory(draft))
        # The subscriber table is a step of its own: the segments of later ones name its version.
        if not (step.update_subscribers() or step.run()):
            return None
        finished = draft.finish()
        return replace(finished, report=replace(finished.report, cpu_seconds=watch.seconds()))

    def compact_panes(self, unit: Unit) -> Step | None:
        """The unit's panes in fewer segments; None if there are few, or it keeps none."""
        if not unit.plan.keeps_panes:
            return None
        draft = StepDraft(self, unit, Progress(self.catalog.cursors(unit.row.id), {}, {}))
        return draft.finish() if unit.plan.make_step(_StepFactory(draft)).compact() else None


@dataclass(frozen=True)
class _StepFactory:
    """The step of a plan, by its kind."""

    draft: StepDraft

    def delta_step(self, plan: DeltaPlan) -> UnitStep:
        return DeltaStep(plan, self.draft)

    def pane_step(self, plan: PanePlan) -> UnitStep:
        return PaneStep(plan, self.draft)

    def lifetime_step(self, plan: LifetimePlan) -> UnitStep:
        return LifetimeStep(plan, self.draft)
