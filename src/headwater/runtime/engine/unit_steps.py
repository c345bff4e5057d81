"""Runs the steps of units under their leases: a step is made, measured and committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.cost.model import CostModel
from headwater.runtime.catalog import Catalog, Lease, StreamRow, UnitRow, unit_log
from headwater.runtime.compile import FOREVER
from headwater.runtime.engine.steps.step import Step
from headwater.runtime.engine.steps.stepper import Stepper
from headwater.runtime.engine.unit import Unit
from headwater.runtime.leases import ProcessLeases
from headwater.runtime.lifecycle import finish_queries
from headwater.runtime.metrics.cost_model import LANES
from headwater.runtime.metrics.step_meter import NO_MEASUREMENTS, StepMeasurements, StepMeter
from headwater.runtime.results.subscribers import SUBSCRIBERS, emits_for
from headwater.runtime.storage import segment_files


@dataclass(frozen=True)
class UnitSteps:
    """Steps units, and finishes the queries that have all their results."""

    catalog: Catalog
    leases: ProcessLeases
    meter: StepMeter
    stepper: Callable[[], Stepper]
    """The stepper as it is now: its settings and its Spark session change between rounds."""

    def step(self, unit: Unit, until: Mapping[str, int] | None = None) -> bool:
        """Let a unit read what is new, `until` these sequence numbers, and commit; returns whether
        there was anything."""
        lease = self.leases.acquire(unit_log(unit.row.id))
        if lease is None:
            return False
        stepper = replace(self.stepper(), until=until or {})
        step = stepper.step(unit)
        if step is None:
            return False
        # Counting whose rows these are reads the file again, so it is done for sampled steps only.
        sampled = bool(step.report.executed_plans)
        per_row = unit.subscribers_per_row(step.segments) if sampled else None
        model = CostModel(costs=stepper.costs)
        expected = model.step_seconds(len(unit.plan.feeds), unit.plan.keeps_panes)
        measured = self.meter.record_step(unit.row.id, step.report, per_row, expected)
        if (unit.row.id, SUBSCRIBERS) in step.cursors:  # its queries have changed
            lanes = {(unit.row.id, LANES): float(unit.lanes)}
            measured = replace(measured, statistics={**measured.statistics, **lanes})
        began = time.monotonic()
        self._commit(lease, step, stepper, measured, _guarded_version(unit))
        seconds = {**step.report.seconds, "commit": time.monotonic() - began}
        self.meter.record_commit(unit.row.id, seconds["commit"])
        unit.last_report = replace(step.report, seconds=seconds)
        # After the commit, as a commit of its own: it changes no results, and may be lost.
        if (compacted := stepper.compact_panes(unit)) is not None:
            self._commit(lease, compacted, stepper)
        if unit.row.retries:  # it failed before: its failures are forgotten
            self.catalog.set_unit_state(unit.row.id, "running")
        return True

    def _commit(
        self,
        lease: Lease,
        step: Step,
        stepper: Stepper,
        measured: StepMeasurements = NO_MEASUREMENTS,
        unit_version: tuple[str, int] | None = None,
    ) -> None:
        self.catalog.commit(
            lease,
            segments=step.segments,
            cursors=step.cursors,
            removed=[s.id for s in step.removed],
            statistics=measured.statistics,
            profiles=measured.profiles,
            unit_version=unit_version,
        )
        stepper.at_point("unit: committed")
        for old in step.removed:  # after the commit: until then these are what the unit reads
            segment_files.remove(old.path)

    def finish_queries(self, unit: Unit, streams: Sequence[StreamRow], idle: bool) -> None:
        """Finish the queries of which the unit has emitted all results; `streams` are its inputs as
        they were before the step."""
        on_arrival = unit.plan.emits_on_arrival
        last_instant = FOREVER if on_arrival else self.catalog.cursor(unit.row.id, "instant")
        finish_queries(
            self.catalog, unit.row, unit.served_keys, streams, last_instant, idle, self._emits_for
        )

    def _emits_for(self, row: UnitRow, query: str) -> bool:
        """Whether a unit emits the rows of a query by now."""
        query_row = self.catalog.query(query)
        return query_row is not None and emits_for(self.catalog, row, query_row.result_key)


def _guarded_version(unit: Unit) -> tuple[str, int] | None:
    """The version that a unit must still have for its step to be committed, if that matters.

    It does for one that emits at instants: a new query relies on instants after its start not being
    emitted without it. And for one that reads another unit, as by now it may have to read one more.
    """
    if unit.plan.needs_same_queries or unit.reads_other_unit:
        return unit.row.id, unit.row.version
    return None
