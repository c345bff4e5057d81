"""What one step of a unit does: which segments it reads, and which it leaves to be committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Scan
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    NewSegment,
    Segment,
    UnitRow,
    panes_log,
    stream_log,
    unit_log,
)
from headwater.runtime.compile import FOREVER, Delta, Panes, Plan
from headwater.runtime.compile.panes import FROM, TO
from headwater.runtime.definitions import Definitions
from headwater.runtime.instants import next_instants
from headwater.runtime.push import segment
from headwater.runtime.sources import read_table
from headwater.runtime.steps import (
    Input,
    delta_step,
    instants_step,
    merged_panes,
    overlapping,
    panes_schema,
    panes_step,
    read_panes,
)


@dataclass(frozen=True)
class Limits:
    """How much one step may take on, and when the segments of panes become one."""

    rows_per_step: int = 500_000
    instants_per_step: int = 2_000
    panes_merged_at: int = 12
    at_once: int = 4
    retries: int = 5
    backoff: float = 1.0


@dataclass
class Unit:
    """A unit as it runs: its plan, the streams it reads, and what it has shown of itself."""

    row: UnitRow
    plan: Plan
    streams: dict[str, Stream]
    panes_schema: StructType | None = None
    growth: float = 1.0
    """Rows out for a row in, of late."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs of its streams."""
        return tuple(stream_log(name) for name in self.streams)

    def since(self, scan: Scan, start: int | None) -> int | None:
        """The least time of a tuple that the query may look back on."""
        return None if start is None else start - self.streams[scan.stream.lower()].keep


@dataclass
class Step:
    """Files that were written, and how far the unit has come with them."""

    cursors: dict[tuple[str, str], Any]
    segments: list[NewSegment] = field(default_factory=list)
    removed: list[Segment] = field(default_factory=list)
    rows_in: int = 0
    rows_out: int = 0


@dataclass(frozen=True)
class _Known:
    """Where a unit stands, and what is new."""

    start: int | None
    instant: int | None
    reached: Mapping[str, Any]
    fresh: Mapping[str, Sequence[Segment]]

    @property
    def after(self) -> dict[str, dict[str, Any]]:
        """The positions behind what is new."""
        return {name: _position(self.reached[name], self.fresh[name]) for name in self.reached}

    @property
    def rows(self) -> int:
        return sum(s.rows for found in self.fresh.values() for s in found)


@dataclass(frozen=True)
class Stepper:
    """Makes the steps of units; whoever calls it holds their leases and commits."""

    catalog: Catalog
    state: Path
    spark: SparkSession
    definitions: Definitions
    limits: Limits
    at_point: Callable[[str], None]

    def step(self, unit: Unit) -> Step | None:
        """What is new for a unit, written but not committed; None if there is nothing."""
        known = self._known(unit)
        if isinstance(unit.plan, Delta):
            return self._delta(unit, known) if known.rows else None
        if isinstance(unit.plan, Panes):
            return self._panes(unit, unit.plan, known)
        return self._instants(unit, known)

    def _known(self, unit: Unit) -> _Known:
        cursors = self.catalog.cursors(unit.row.id)
        reached = {name: cursors.get(name, {"seq": 0, "watermark": None}) for name in unit.inputs}
        fresh = {
            name: self._within_limit(self.catalog.segments(name, reached[name]["seq"]))
            for name in unit.inputs
        }
        return _Known(cursors.get("start"), cursors.get("instant"), reached, fresh)

    def _within_limit(self, segments: Sequence[Segment]) -> list[Segment]:
        chosen: list[Segment] = []
        rows = 0
        for found in segments:
            rows += found.rows
            if chosen and rows > self.limits.rows_per_step:
                break
            chosen.append(found)
        return chosen

    # ---- the three kinds of plan

    def _delta(self, unit: Unit, known: _Known) -> Step:
        step = self._begun(unit, known)
        frame = self._new(unit, known)
        self._tell(unit, step, frame, known.start, known.rows)
        return step

    def _panes(self, unit: Unit, plan: Panes, known: _Known) -> Step | None:
        instants, _ = self._next_instants(unit, known, plan.instants_at_once)
        if not instants and not any(known.fresh.values()):
            return None
        step = self._begun(unit, known)
        live = self.catalog.segments(panes_log(unit.row.id))
        paths = [s.path for s in live]
        new = self._new(unit, known) if known.rows else None
        if new is not None:
            folder = self.state / "log" / "panes" / unit.row.id
            written = files.write(new, folder, (FROM, TO), known.rows <= files.SMALL_ROWS)
            self.at_point("unit: absorbed")
            if written is not None:
                paths.append(written.path)
                step.segments.append(segment(panes_log(unit.row.id), written, None))
        if not instants:
            return step
        step.cursors[unit.row.id, "instant"] = instants[-1]
        if paths or not plan.keys:
            panes = self._read_panes(unit, plan, paths)
            frame = panes_step(self.spark, plan, panes, known.instant, instants)
            held = sum(s.rows for s in live) + sum(s.rows for s in step.segments)
            rows = held * min(len(instants), 64)
            self._tell(unit, step, frame, known.start, rows)
        return step

    def _instants(self, unit: Unit, known: _Known) -> Step | None:
        assert not isinstance(unit.plan, Delta | Panes)
        instants, views = self._next_instants(unit, known, self.limits.instants_per_step)
        if not instants and not any(known.fresh.values()):
            return None
        step = self._begun(unit, known)
        if instants:
            step.cursors[unit.row.id, "instant"] = instants[-1]
            since = {view: unit.since(scan, known.start) for view, scan in unit.plan.scans}
            frame = instants_step(
                self.spark, unit.plan, views, since, self._tables(unit), known.instant, instants
            )
            rows = sum(s.rows for found in views.values() for s in found)
            self._tell(unit, step, frame, known.start, rows)
        return step

    def merge(self, unit: Unit) -> Step | None:
        """Panes in fewer segments, without those that nobody will see; None if not worth it."""
        live = self.catalog.segments(panes_log(unit.row.id))
        instant = self.catalog.cursor(unit.row.id, "instant")
        if len(live) < self.limits.panes_merged_at or instant is None:
            return None
        assert isinstance(unit.plan, Panes)
        step = Step({}, removed=live)
        kept = [s for s in live if s.largest_time is None or s.largest_time > instant]
        if kept:
            panes = self._read_panes(unit, unit.plan, [s.path for s in kept])
            frame = merged_panes(self.spark, unit.plan, panes, instant)
            small = sum(s.rows for s in kept) <= files.SMALL_ROWS
            folder = self.state / "log" / "panes" / unit.row.id
            written = files.write(frame, folder, (FROM, TO), small)
            if written is not None:
                step.segments.append(segment(panes_log(unit.row.id), written, None))
        return step

    # ---- what they share

    def _begun(self, unit: Unit, known: _Known) -> Step:
        cursors = {(unit.row.id, name): position for name, position in known.after.items()}
        return Step(cursors, rows_in=known.rows)

    def _new(self, unit: Unit, known: _Known) -> DataFrame | None:
        """What the delta brings, as results or panes."""
        assert isinstance(unit.plan, Delta | Panes)
        inputs = {}
        for alias, scan in unit.plan.scans:
            name = stream_log(scan.stream)
            since = unit.since(scan, known.start)
            reached = known.reached[name]["seq"]
            needed = len(unit.plan.scans) > 1 and reached
            old = self.catalog.segments(name, 0, reached) if needed else []
            inputs[alias] = Input(
                overlapping(old, since, None), overlapping(known.fresh[name], since, None), since
            )
        return delta_step(self.spark, unit.plan, inputs, self._tables(unit))

    def _tell(
        self, unit: Unit, step: Step, frame: DataFrame | None, start: int | None, rows: int
    ) -> None:
        """Write results, if there are any."""
        if frame is None:
            return
        if start is not None:
            frame = frame.where(f"_tau > {start}")
        folder = self.state / "log" / "units" / unit.row.id
        small = rows * unit.growth <= files.SMALL_ROWS
        written = files.write(frame, folder, ("_tau", "_tau"), small)
        self.at_point("unit: written")
        step.rows_out = 0 if written is None else written.rows
        unit.growth = max(1.0, step.rows_out / max(rows, 1))
        if written is not None:
            step.segments.append(segment(unit_log(unit.row.id), written, None))

    def _next_instants(
        self, unit: Unit, known: _Known, limit: int
    ) -> tuple[Sequence[int], dict[str, tuple[Segment, ...]]]:
        """The instants to evaluate, and the segments of each scan up to the step's end."""
        assert not isinstance(unit.plan, Delta)
        after = known.after
        segments = {
            name: self.catalog.segments(name, 0, after[name]["seq"]) for name in unit.inputs
        }
        views: dict[str, tuple[Segment, ...]] = {}
        since: dict[str, int | None] = {}
        for view, scan in unit.plan.scans:
            since[view] = unit.since(scan, known.start)
            views[view] = overlapping(segments[stream_log(scan.stream)], since[view], None)
        ready = self._complete_until(unit, after)
        instants = next_instants(unit.plan.slides, views, since, known.instant, ready, limit)
        return instants, views

    def _complete_until(self, unit: Unit, positions: Mapping[str, Any]) -> int | None:
        """The last time of which all tuples are here; None if an input has not begun."""
        ready = FOREVER
        for name in unit.streams:
            row = self.catalog.stream(name)
            position = positions[stream_log(name)]
            assert row is not None
            if row.ended and position["seq"] >= row.next_seq - 1:
                continue
            if position["watermark"] is None:
                return None
            ready = min(ready, position["watermark"] - 1)
        return ready

    def _read_panes(self, unit: Unit, plan: Panes, paths: Sequence[str]) -> DataFrame:
        if unit.panes_schema is None:
            unit.panes_schema = panes_schema(self.spark, plan)
        return read_panes(self.spark, unit.panes_schema, paths)

    def _tables(self, unit: Unit) -> dict[str, DataFrame]:
        frames = {}
        for view, scan in unit.plan.tables:
            declared = self.definitions.tables[scan.table.lower()]
            frames[view] = read_table(self.spark, declared.source, declared.table.schema)
        return frames


def _position(reached: Mapping[str, Any], fresh: Sequence[Segment]) -> dict[str, Any]:
    if not fresh:
        return dict(reached)
    return {"seq": fresh[-1].seq, "watermark": fresh[-1].watermark}
