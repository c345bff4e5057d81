"""What a step of a unit writes: files first, and the catalog's part of it when it is committed.

A step is drafted: files are written to the unit's folders and listed, cursors are moved on paper.
Nothing names the files until the caller commits the step, so that a process that is killed leaves
files that the sweep removes, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.runtime.catalog import (
    NewSegment,
    Segment,
    panes_log,
    subscribers_log,
    table_input,
    unit_log,
)
from headwater.runtime.compile.frames import StepInput, delta_frame, overlapping_segments
from headwater.runtime.compile.group_states import FROM, TO
from headwater.runtime.compile.join_order import Term
from headwater.runtime.compile.plan import IncrementalPlan, Subscribers
from headwater.runtime.compile.unit_plans import write_subscribers
from headwater.runtime.engine.steps.inputs import Progress, StepContext
from headwater.runtime.engine.unit import Unit
from headwater.runtime.metrics.step_meter import StepReport, Stopwatch, with_executed_plan
from headwater.runtime.results.subscribers import SUBSCRIBERS, subscribers_at
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.columns import TIME

TOTALS = "totals"
"""The key under which a segment of a unit's own log names the totals of groups that it has."""


@dataclass(frozen=True)
class Step:
    """A step that was written and waits to be committed."""

    cursors: Mapping[tuple[str, str], Any]
    segments: Sequence[NewSegment]
    removed: Sequence[Segment]
    """Segments of the unit that those of this step replace."""
    report: StepReport


@dataclass
class StepDraft:
    """A step while it is being made."""

    context: StepContext
    unit: Unit
    progress: Progress
    cursors: dict[str, Any] = field(default_factory=dict)
    """The cursors of the unit that move with the step, by input."""
    segments: list[NewSegment] = field(default_factory=list)
    removed: list[Segment] = field(default_factory=list)
    _rows_in: int = 0
    _rows_out: int = 0
    _arrivals: Sequence[tuple[int, float]] = ()
    _stopwatch: Stopwatch = field(default_factory=Stopwatch)
    _executed_plans: list[Any] = field(default_factory=list)
    _terms: Sequence[Term] = ()
    _table_versions: dict[str, int] = field(default_factory=dict)

    def finish(self) -> Step:
        """The step as it is to be committed."""
        unit_id = self.unit.row.id
        tables = {table_input(name): {"version": n} for name, n in self._table_versions.items()}
        results = [s for s in self.segments if s.log == unit_log(unit_id)]
        report = StepReport(
            self._stopwatch.parts,
            self._rows_in,
            self._rows_out,
            sum(s.bytes for s in results),
            self._arrivals,
            self._executed_plans,
            self._terms,
        )
        cursors = {(unit_id, name): at for name, at in (self.cursors | tables).items()}
        return Step(cursors, self.segments, self.removed, report)

    # ---- input

    def ingest(self) -> None:
        """Count the new segments as read: the cursors move behind them."""
        self.cursors |= {name: at.to_json() for name, at in self.progress.next_positions.items()}
        ingested = [s for new in self.progress.new_segments.values() for s in new if s.rows]
        self._rows_in = self.progress.new_rows
        self._arrivals = [(s.rows, s.created_at) for s in ingested]

    def read_tables(self, spark: SparkSession) -> dict[str, DataFrame]:
        """The tables of the plan; their versions are committed with the step."""
        frames, versions = self.context.read_tables(self.unit, spark)
        self._table_versions |= versions
        return frames

    def delta_frame(self, plan: IncrementalPlan) -> DataFrame | None:
        """What the new segments add, as results or panes; None if that is nothing for certain."""
        context, unit, progress = self.context, self.unit, self.progress
        inputs = {}
        scans = dict(plan.scans)
        for alias, name in unit.feeds:
            since = unit.earliest_time(scans[alias], progress.start) if alias in scans else None
            reached = progress.positions[name].seq
            # With one input new tuples meet no older ones: these need not even be listed.
            needed = len(unit.feeds) > 1 and reached
            old = context.input_segments(name, 0, reached) if needed else []
            inputs[alias] = StepInput(
                overlapping_segments(old, since, None),
                overlapping_segments(progress.new_segments[name], since, None),
                since,
            )
        spark = context.session(count_input_rows(inputs))
        tables = self.read_tables(spark)
        frame, self._terms = delta_frame(
            spark,
            plan,
            inputs,
            tables,
            context.meter.values(unit.row.id),
            context.partial_join_reader(plan.partial_join, spark),
            context.join_ordering(unit),
        )
        return frame

    # ---- output

    def emit(self, frame: DataFrame | None, rows: int, version: int | None = None) -> None:
        """Write the results that are after the unit's start, if there are any.

        `rows` is how many are read to compute them; `version` is that of the subscriber table which
        says whose rows these are.
        """
        if frame is None:
            return
        if self.progress.start is not None:
            frame = frame.where(f"_tau > {self.progress.start}")
        self.emit_all(frame, rows, version)

    def emit_all(self, frame: DataFrame, rows: int, version: int | None = None) -> None:
        """Write results, whatever their time."""
        unit = self.unit
        folder = self.context.store / "log" / "units" / unit.row.id
        small = rows * unit.growth <= segment_files.SMALL_ROWS
        written = self._write_frame(frame, folder, ("_tau", "_tau"), small)
        self.context.at_point("unit: written")
        self._rows_out = 0 if written is None else written.rows
        unit.growth = max(1.0, self._rows_out / max(rows, 1))
        if written is not None:
            results = build_segment(unit_log(unit.row.id), written, None)
            keys = None if version is None else {SUBSCRIBERS: version}
            self.segments.append(replace(results, keys=keys))

    def keep_panes(self, frame: DataFrame, rows: int, group_rows: int | None = None) -> list[str]:
        """Write panes to the unit's own log, in row groups of that size; returns the paths written."""
        return self._write_own_state(frame, rows, {"scan": None}, (FROM, TO), group_rows)

    def keep_totals(self, name: str, frame: DataFrame, rows: int) -> None:
        """Write totals of groups to the unit's own log."""
        self._write_own_state(frame, rows, {TOTALS: name}, (FROM, TO))

    def keep_window(self, alias: str, frame: DataFrame, rows: int) -> None:
        """Write what a ROWS window holds to the unit's own log."""
        self._write_own_state(frame, rows, {"scan": alias}, (TIME, TIME))

    def _write_own_state(
        self,
        frame: DataFrame,
        rows: int,
        keys: Mapping[str, str | None],
        times: segment_files.TimeColumns,
        group_rows: int | None = None,
    ) -> list[str]:
        folder = self.context.store / "log" / "panes" / self.unit.row.id
        is_small = rows <= segment_files.SMALL_ROWS
        written = self._write_frame(frame, folder, times, is_small, group_rows)
        if written is None:
            return []
        state = build_segment(panes_log(self.unit.row.id), written, None)
        self.segments.append(replace(state, keys=dict(keys)))
        return [written.path]

    def _write_frame(
        self,
        frame: DataFrame,
        folder: Path,
        times: segment_files.TimeColumns,
        small: bool,
        group_rows: int | None = None,
    ) -> segment_files.WrittenFile | None:
        self._stopwatch.lap("build")
        if self.context.meter.is_sample_due(self.unit.row.id):
            frame, plan = with_executed_plan(frame, small)
            self._executed_plans.append(plan)
        written = segment_files.write(frame, folder, times, small, self._stopwatch.lap, group_rows)
        self._stopwatch.lap("write")
        return written

    # ---- the subscriber table

    @property
    def subscriber_version(self) -> int:
        """The last version of the subscriber table that was committed; 0 if there is none."""
        cursor = self.progress.cursors.get(SUBSCRIBERS)
        return 0 if cursor is None else int(cursor["seq"])

    def has_current_subscribers(self, subscribers: Subscribers, layout: str | None = None) -> bool:
        """Whether the subscriber table is that of the plan, and panes have that layout.

        The version alone does not say so: a process that saw queries leave may have kept more for
        their sake than one that plans the unit again.
        """
        cursor = self.progress.cursors.get(SUBSCRIBERS)
        if cursor is None or cursor["version"] != self.unit.row.version:
            return False
        if layout is not None and cursor["layout"] != layout:
            return False
        if not self.unit.has_current_subscribers:
            written = subscribers_at(self.context.catalog, self.unit.row.id, cursor["seq"])
            self.unit.has_current_subscribers = dict(written) == dict(subscribers.subscribers)
        return self.unit.has_current_subscribers

    def write_subscribers(self, subscribers: Subscribers) -> None:
        """Write a version of the subscriber table."""
        folder = self.context.store / "log" / "members" / self.unit.row.id
        written = write_subscribers(subscribers, folder)
        self.segments.append(build_segment(subscribers_log(self.unit.row.id), written, None))

    def update_subscribers(
        self,
        subscribers: Subscribers,
        version: int,
        layout: str | None = None,
        definition: str | None = None,
    ) -> None:
        """Write the subscriber table of the plan as that version, which later segments name; with it is
        noted what panes are made of, and of which operator, if they cannot be made again."""
        self.write_subscribers(subscribers)
        cursor = {"seq": version, "version": self.unit.row.version}
        noted = {"layout": layout, "definition": definition}
        known = {name: text for name, text in noted.items() if text is not None}
        self.cursors[SUBSCRIBERS] = {**cursor, **known}


def count_input_rows(inputs: Mapping[str, StepInput]) -> int:
    return sum(s.rows for read in inputs.values() for s in (*read.old, *read.new))
