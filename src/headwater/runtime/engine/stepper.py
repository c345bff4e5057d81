"""What one step of a unit does: which segments it reads, and which it leaves to be committed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Scan
from headwater.algebra.windows import Rows
from headwater.cost.operators import CostTable
from headwater.cql import CreateQuery, parse
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.operator import looks_back, serving_operator
from headwater.runtime.catalog import (
    Catalog,
    NewSegment,
    QueryRow,
    Segment,
    UnitRow,
    first_segments,
    panes_log,
    stream_log,
    subscribers_log,
    table_input,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.unit_progress import INSTANTS
from headwater.runtime.compile import (
    DeltaJoin,
    InstantEvaluation,
    Panes,
    Plan,
    SharedJoin,
    SharedPanes,
    window_start,
)
from headwater.runtime.compile.delta_join import PARTIAL_JOIN
from headwater.runtime.compile.evaluation_times import (
    DueInstants,
    due_instants,
    earliest_last_instant,
    instants_cursor,
    last_instants,
    reset_new_slides,
    scanned_tuples,
)
from headwater.runtime.compile.frames import (
    StepInput,
    TermInput,
    build_panes,
    carried_tuples,
    compacted_panes,
    delta_frame,
    instant_results,
    overlapping_segments,
    pane_results,
    panes_schema,
    read_panes,
    read_partial_join,
    read_tuples,
    shared_pane_results,
)
from headwater.runtime.compile.join_order import JoinOrdering, JoinTree, Term, written_join_tree
from headwater.runtime.compile.panes import FROM, TO
from headwater.runtime.compile.unit_plans import write_subscribers
from headwater.runtime.connectors.files import read_table, table_fingerprint
from headwater.runtime.connectors.open_sources import check_source_paths
from headwater.runtime.lifecycle import complete_until
from headwater.runtime.metrics.step_meter import StepMeter, Stopwatch, with_executed_plan
from headwater.runtime.results.subscribers import SUBSCRIBERS, subscriber_of, subscribers_at
from headwater.runtime.settings import Settings
from headwater.runtime.spark.session import NO_CODEGEN, derive_session
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.columns import TIME
from headwater.runtime.storage.integrity import verify_file, verify_paths
from headwater.runtime.storage.paths import allowed_paths

POOLS = 16
"""Spark shares its slots fairly between so many pools of jobs; Spark never forgets a pool."""

INTERPRETED_ROWS = 30_000
"""A step that reads so few rows runs without generated code."""


@dataclass
class Unit:
    """A unit as it runs: its plan, the streams it reads, and what it has shown of itself."""

    row: UnitRow
    plan: Plan
    streams: dict[str, Stream]
    queries: tuple[QueryRow, ...] = ()
    """Those that the plan is made for."""
    panes_schema: StructType | None = None
    written_joins: JoinTree | None = None
    """The joins of its first query, if they were asked for."""
    growth: float = 1.0
    """Rows out for a row in, of late."""
    has_current_subscribers: bool = False
    """Whether what is written down of its queries is known to be what its plan says."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    executed_plans: list[Any] = field(default_factory=list)
    """The plans that Spark ran in this step, if they are to be measured."""
    terms: Sequence[Term] = ()
    """The terms of the first of them."""
    table_versions: dict[str, int] = field(default_factory=dict)
    """The versions of the tables that this step read."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs that its steps read."""
        return tuple(dict.fromkeys(log for _, log in self.feeds))

    @property
    def feeds(self) -> tuple[tuple[str, str], ...]:
        """What its steps read, by alias, and the log of each."""
        scans = dict(self.plan.scans)
        if isinstance(self.plan, InstantEvaluation):
            return tuple((alias, stream_log(scan.stream)) for alias, scan in scans.items())
        part = self.plan.partial_join if isinstance(self.plan, SharedJoin) else None
        return tuple(
            (
                alias,
                unit_log(part.unit_id)
                if part is not None and alias == PARTIAL_JOIN
                else stream_log(scans[alias].stream),
            )
            for alias in self.plan.feeds
        )

    @property
    def served_keys(self) -> frozenset[str]:
        """The result keys of the queries whose results it tells."""
        if isinstance(self.plan, SharedJoin | SharedPanes):
            return frozenset(signature.digest for signature in self.plan.subscribers.signatures)
        return frozenset((self.row.digest,))

    def earliest_time(self, scan: Scan, start: int | None) -> int | None:
        """The least time of a tuple that the query may look back on."""
        if isinstance(self.plan, SharedJoin | SharedPanes) and all(
            looks_back(signature, self.streams) for signature in self.plan.subscribers.signatures
        ):
            return None
        return None if start is None else start - self.streams[scan.stream.lower()].keep


@dataclass
class Step:
    """Files that were written, and how far the unit has come with them."""

    cursors: dict[tuple[str, str], Any]
    segments: list[NewSegment] = field(default_factory=list)
    removed: list[Segment] = field(default_factory=list)
    rows_in: int = 0
    rows_out: int = 0
    arrivals: Sequence[tuple[int, float]] = ()
    """Of what it takes in, how many rows came when."""


@dataclass(frozen=True)
class _Progress:
    """Where a unit stands, and what is new."""

    cursors: Mapping[str, Any]
    positions: Mapping[str, Any]
    new_segments: Mapping[str, Sequence[Segment]]

    @property
    def start(self) -> int | None:
        """The time from which on the query is told anything."""
        return self.cursors.get("start")

    @property
    def last_instant(self) -> int | None:
        """The last instant that was told, of any set of slides."""
        return self.cursors.get("instant")

    @property
    def next_positions(self) -> dict[str, dict[str, Any]]:
        """The positions behind what is new."""
        return {
            name: _position(self.positions[name], self.new_segments[name])
            for name in self.positions
        }

    @property
    def new_rows(self) -> int:
        return sum(s.rows for segments in self.new_segments.values() for s in segments)


@dataclass(frozen=True)
class _WindowTuples:
    """The tuples of a window, and what it carried over from steps before."""

    frame: DataFrame
    rows: int
    carried: list[Segment]


@dataclass(frozen=True)
class Stepper:
    """Makes the steps of units; whoever calls it holds their leases and commits."""

    catalog: Catalog
    store: Path
    spark: SparkSession
    definitions: Definitions
    settings: Settings
    at_point: Callable[[str], None]
    meter: StepMeter
    costs: CostTable = field(default_factory=CostTable)
    local_log: Callable[[str], str] = lambda log: log
    """The log to be read in the place of an input: a copy, where the input is written elsewhere."""

    def step(self, unit: Unit) -> Step | None:
        """What is new for a unit, written but not committed, with the versions of the tables that it
        was joined with; None if there is nothing."""
        unit.stopwatch, unit.executed_plans, unit.terms, unit.table_versions = (
            Stopwatch(),
            [],
            (),
            {},
        )
        step = self._step_by_plan(unit)
        if step is not None:
            for table, version in unit.table_versions.items():
                step.cursors[unit.row.id, table_input(table)] = {"version": version}
        return step

    def _step_by_plan(self, unit: Unit) -> Step | None:
        pool = f"unit {zlib.crc32(unit.row.id.encode()) % POOLS}"
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        progress = self._progress(unit)
        if isinstance(unit.plan, SharedJoin | SharedPanes):
            step = self._update_subscribers(unit, unit.plan, progress)
            if step is not None:
                return step
        if isinstance(unit.plan, DeltaJoin | SharedJoin):
            return self._step_delta(unit, progress) if progress.new_rows else None
        if isinstance(unit.plan, Panes | SharedPanes):
            return self._step_panes(unit, unit.plan, progress)
        return self._step_instants(unit, unit.plan, progress)

    def _progress(self, unit: Unit) -> _Progress:
        cursors = self.catalog.cursors(unit.row.id)
        reached = {name: cursors.get(name, {"seq": 0, "watermark": None}) for name in unit.inputs}
        fresh = {
            name: first_segments(
                self._input_segments(name, reached[name]["seq"]), rows=self.settings.rows_per_step
            )
            for name in unit.inputs
        }
        return _Progress(cursors, reached, fresh)

    def _input_segments(self, log: str, after: int, up_to: int | None = None) -> list[Segment]:
        """The segments of an input after a number and up to another."""
        return self.catalog.segments(self.local_log(log), after, up_to)

    # ---- queries that come and go

    def _update_subscribers(
        self, unit: Unit, plan: SharedJoin | SharedPanes, progress: _Progress
    ) -> Step | None:
        """Write down what rows are to the queries of a unit, if these have changed."""
        cursor = progress.cursors.get(SUBSCRIBERS)
        if cursor is not None and self._has_current_subscribers(unit, plan, cursor):
            return None
        step = Step({})
        version = 0 if cursor is None else cursor["seq"]
        now = {"seq": version + 1, "version": unit.row.version}
        if isinstance(plan, SharedPanes):
            now["layout"] = plan.subscribers.layout
            if cursor is None or cursor["layout"] != plan.subscribers.layout:
                self._rebuild_panes(unit, plan, progress, step)
        else:
            now["seq"] = self._emit_missed(unit, plan, progress, step, version) + 1
        self._write_subscribers(unit, step, plan.subscribers)
        step.cursors[unit.row.id, SUBSCRIBERS] = now
        return step

    def _has_current_subscribers(
        self, unit: Unit, plan: SharedJoin | SharedPanes, cursor: Mapping[str, Any]
    ) -> bool:
        """Whether what is written down are the queries of this plan. A process that saw queries leave
        may have kept more for their sake than one that makes the plan anew."""
        if cursor["version"] != unit.row.version:
            return False
        if isinstance(plan, SharedPanes) and cursor["layout"] != plan.subscribers.layout:
            return False
        if not unit.has_current_subscribers:
            written = subscribers_at(self.catalog, unit.row.id, cursor["seq"])
            unit.has_current_subscribers = dict(written) == dict(plan.subscribers.subscribers)
        return unit.has_current_subscribers

    def _rebuild_panes(
        self, unit: Unit, plan: SharedPanes, progress: _Progress, step: Step
    ) -> None:
        """Panes as the queries need them now, from the tuples that were taken in before."""
        step.removed += self.catalog.segments(panes_log(unit.row.id))
        seen_after = earliest_last_instant(plan.slide_sets, progress.cursors)
        least_time = None if seen_after is None else seen_after - plan.subscribers.reach
        inputs = {}
        for alias, scan in plan.scans:
            name = stream_log(scan.stream)
            ingested = self._input_segments(name, 0, progress.positions[name]["seq"])
            inputs[alias] = StepInput(
                (),
                overlapping_segments(ingested, least_time, None),
                unit.earliest_time(scan, progress.start),
            )
        rows = sum(s.rows for step_input in inputs.values() for s in step_input.new)
        if rows:
            frame, _ = delta_frame(self._session(rows), plan, inputs, {}, {})
            if frame is not None:
                seen = "TRUE" if seen_after is None else f"{TO} > {seen_after}"
                self._write_own_state(unit, step, frame.where(seen), rows, None)

    def _emit_missed(
        self, unit: Unit, plan: SharedJoin, progress: _Progress, step: Step, version: int
    ) -> int:
        """For queries that are new, tell what they have missed of the tuples that were taken in
        before; returns the last version of members that was written."""
        cursor = progress.cursors.get(SUBSCRIBERS)
        before = (
            {unit.row.digest}
            if cursor is None
            else subscribers_at(self.catalog, unit.row.id, version)
        )
        new = tuple(
            signature for signature in plan.subscribers.signatures if signature.digest not in before
        )
        if new and any(position["seq"] for position in progress.positions.values()):
            missing = JoinSubscribers(serving_operator(new), new)
            frame, rows = self._missed_results(
                unit, SharedJoin(missing, plan.partial_join), progress
            )
            if frame is not None:
                version += 1
                self._write_subscribers(unit, step, missing)
                self._emit(unit, step, frame, None, rows, version)
        return version

    def _write_subscribers(
        self, unit: Unit, step: Step, subscribers: JoinSubscribers | GroupSubscribers
    ) -> None:
        written = write_subscribers(subscribers, self.store / "log" / "members" / unit.row.id)
        step.segments.append(build_segment(subscribers_log(unit.row.id), written, None))

    def _missed_results(
        self, unit: Unit, plan: SharedJoin, progress: _Progress
    ) -> tuple[DataFrame | None, int]:
        """The results, after their starts, that queries have of tuples taken in already."""
        digests = {signature.digest for signature in plan.subscribers.signatures}
        starts = [query.start_at for query in unit.queries if query.result_key in digests]
        known_starts = [start for start in starts if start is not None]
        start = min(known_starts) if len(known_starts) == len(starts) else None
        inputs = {}
        for alias, name in unit.feeds:
            ingested = self._input_segments(name, 0, progress.positions[name]["seq"])
            late = overlapping_segments(
                ingested, None if start is None else start - _slack(plan), None
            )
            inputs[alias] = StepInput(
                tuple(s for s in ingested if s.rows and s not in late), late, None
            )
        rows = sum(
            s.rows for step_input in inputs.values() for s in (*step_input.old, *step_input.new)
        )
        spark = self._session(rows)
        tables = self._read_tables(unit, spark)
        frame, _ = delta_frame(
            spark, plan, inputs, tables, {}, self._partial_join_reader(plan, spark)
        )
        return (frame if frame is None or start is None else frame.where(f"_tau > {start}")), rows

    # ---- the three kinds of plan

    def _step_delta(self, unit: Unit, progress: _Progress) -> Step:
        step = self._begin_step(unit, progress)
        frame = self._delta_frame(unit, progress)
        version = (
            progress.cursors[SUBSCRIBERS]["seq"] if isinstance(unit.plan, SharedJoin) else None
        )
        self._emit(unit, step, frame, progress.start, progress.new_rows, version)
        return step

    def _step_panes(
        self, unit: Unit, plan: Panes | SharedPanes, progress: _Progress
    ) -> Step | None:
        segments = self._scan_segments(unit, progress)
        due, more = self._due_instants(unit, plan, progress, segments, plan.max_instants_per_step)
        is_due = any(slide_due.instants for slide_due in due.values())
        if not is_due and not any(progress.new_segments.values()):
            return None
        step = self._begin_step(unit, progress)
        self._advance_instants(unit, step, due, more, progress.last_instant)
        if isinstance(plan, SharedPanes) or plan.keeps_panes:
            self._absorb_and_emit(unit, plan, progress, due, step)
        elif is_due:
            (instants,) = (slide_due.instants for slide_due in due.values())
            spark = self._session(_count_rows(segments))
            windows = self._read_windows(unit, progress, segments, instants, spark)
            frames = {alias: window.frame for alias, window in windows.items()}
            panes = build_panes(spark, plan, frames, self._read_tables(unit, spark))
            frame = pane_results(spark, plan, panes, progress.last_instant, instants)
            self._emit_instants(unit, step, frame, progress, windows, instants)
        return step

    def _absorb_and_emit(
        self,
        unit: Unit,
        plan: Panes | SharedPanes,
        progress: _Progress,
        due: Mapping[frozenset[int], DueInstants],
        step: Step,
    ) -> None:
        """Keep what is new as panes, and tell from them what they are at instants."""
        live = self.catalog.segments(panes_log(unit.row.id))
        number = max(len(slide_due.instants) for slide_due in due.values())
        paths = verify_paths(live) if number else []
        new = self._delta_frame(unit, progress) if progress.new_rows else None
        if new is not None:
            paths += self._write_own_state(unit, step, new, progress.new_rows, None)
            self.at_point("unit: absorbed")
        if number and (paths or plan.emits_without_panes):
            pane_rows = sum(s.rows for s in live) + sum(s.rows for s in step.segments)
            spark = self._session(pane_rows)
            panes = self._read_panes(unit, plan, paths, spark)
            rows = pane_rows * min(number, 64)
            if isinstance(plan, Panes):
                (own,) = due.values()
                frame = pane_results(spark, plan, panes, own.before, own.instants)
                self._emit(unit, step, frame, progress.start, rows)
            else:
                shared_frame = shared_pane_results(spark, plan, panes, due)
                self._emit(
                    unit,
                    step,
                    shared_frame,
                    progress.start,
                    rows,
                    progress.cursors[SUBSCRIBERS]["seq"],
                )

    def _step_instants(
        self, unit: Unit, plan: InstantEvaluation, progress: _Progress
    ) -> Step | None:
        segments = self._scan_segments(unit, progress)
        due, more = self._due_instants(
            unit, plan, progress, segments, self.settings.instants_per_step
        )
        (instants,) = (slide_due.instants for slide_due in due.values())
        if not instants and not any(progress.new_segments.values()):
            return None
        step = self._begin_step(unit, progress)
        self._advance_instants(unit, step, due, more, progress.last_instant)
        if instants:
            spark = self._session(_count_rows(segments))
            windows = self._read_windows(unit, progress, segments, instants, spark)
            frames = {alias: window.frame for alias, window in windows.items()}
            tables = self._read_tables(unit, spark)
            frame = instant_results(spark, plan, frames, tables, progress.last_instant, instants)
            self._emit_instants(unit, step, frame, progress, windows, instants)
        return step

    def _emit_instants(
        self,
        unit: Unit,
        step: Step,
        frame: DataFrame,
        progress: _Progress,
        windows: Mapping[str, _WindowTuples],
        instants: Sequence[int],
    ) -> None:
        """Write results, and what windows by rows hold after them."""
        rows = sum(window.rows for window in windows.values())
        self._emit(unit, step, frame, progress.start, rows)
        for alias, scan in unit.plan.scans:
            window = windows[alias]
            if isinstance(
                scan.window, Rows
            ) and window.rows > self.settings.rows_window_checkpoint_rows + 2 * sum(
                s.rows for s in window.carried
            ):
                carried = carried_tuples(scan.window, window.frame, instants[-1])
                self._write_own_state(unit, step, carried, window.rows, alias)
                step.removed += window.carried
                step.cursors[unit.row.id, f"carried:{alias}"] = instants[-1]

    def compact_panes(self, unit: Unit) -> Step | None:
        """Panes in fewer segments, without those that nobody will see; None if not worth it."""
        if not isinstance(unit.plan, Panes | SharedPanes) or not unit.plan.keeps_panes:
            return None
        live = self.catalog.segments(panes_log(unit.row.id))
        instant = earliest_last_instant(unit.plan.slide_sets, self.catalog.cursors(unit.row.id))
        if len(live) < self.settings.pane_compaction_threshold or instant is None:
            return None
        step = Step({}, removed=live)
        visible = [s for s in live if s.largest_time is None or s.largest_time > instant]
        if visible:
            panes = self._read_panes(unit, unit.plan, verify_paths(visible), self.spark)
            frame = compacted_panes(self.spark, unit.plan, panes, instant)
            self._write_own_state(unit, step, frame, sum(s.rows for s in visible), None)
        return step

    # ---- what they share

    def _begin_step(self, unit: Unit, progress: _Progress) -> Step:
        cursors = {
            (unit.row.id, name): position for name, position in progress.next_positions.items()
        }
        ingested = [s for segments in progress.new_segments.values() for s in segments if s.rows]
        return Step(
            cursors, rows_in=progress.new_rows, arrivals=[(s.rows, s.created_at) for s in ingested]
        )

    def _delta_frame(self, unit: Unit, progress: _Progress) -> DataFrame | None:
        """What the delta brings, as results or panes."""
        assert isinstance(unit.plan, DeltaJoin | SharedJoin | Panes | SharedPanes)
        inputs = {}
        scans = dict(unit.plan.scans)
        for alias, name in unit.feeds:
            since = unit.earliest_time(scans[alias], progress.start) if alias in scans else None
            reached = progress.positions[name]["seq"]
            needed = len(unit.feeds) > 1 and reached
            old = self._input_segments(name, 0, reached) if needed else []
            inputs[alias] = StepInput(
                overlapping_segments(old, since, None),
                overlapping_segments(progress.new_segments[name], since, None),
                since,
            )
        rows = sum(
            s.rows for step_input in inputs.values() for s in (*step_input.old, *step_input.new)
        )
        spark = self._session(rows)
        joins = self.meter.values(unit.row.id)
        tables = self._read_tables(unit, spark)
        read_partial = (
            self._partial_join_reader(unit.plan, spark)
            if isinstance(unit.plan, SharedJoin)
            else None
        )
        ordering = self._join_ordering(unit)
        frame, unit.terms = delta_frame(
            spark, unit.plan, inputs, tables, joins, read_partial, ordering
        )
        return frame

    def _join_ordering(self, unit: Unit) -> JoinOrdering:
        """How the joins of a unit are ordered."""
        if self.settings.optimise != "written":
            return JoinOrdering(self.settings.optimise, self.costs)
        if unit.written_joins is None:
            queries = unit.queries or tuple(self.catalog.subscribers(unit.row.id))
            text = min(queries, key=lambda query: query.accepted_at).definition
            (statement,) = parse(text, self.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            unit.written_joins = written_join_tree(statement.query)
        return JoinOrdering(self.settings.optimise, self.costs, unit.written_joins)

    def _partial_join_reader(
        self, plan: SharedJoin, spark: SparkSession
    ) -> Callable[[TermInput], DataFrame]:
        """Reads the rows that another unit has joined for this one."""

        def read_rows(chosen: TermInput) -> DataFrame:
            assert plan.partial_join is not None
            asked = self.catalog.query(plan.partial_join.query)
            assert asked is not None
            members = [
                (verify_file(s), subscriber_of(self.catalog, asked, s)) for s in chosen.segments
            ]
            return read_partial_join(spark, plan.partial_join, members, asked.start_at)

        return read_rows

    def _session(self, rows: int) -> SparkSession:
        """The session for a step that reads so many rows."""
        return self.spark if rows > INTERPRETED_ROWS else derive_session(self.spark, *NO_CODEGEN)

    def _emit(
        self,
        unit: Unit,
        step: Step,
        frame: DataFrame | None,
        start: int | None,
        rows: int,
        version: int | None = None,
    ) -> None:
        """Write results, if there are any; those that are told apart by a version of members."""
        if frame is None:
            return
        if start is not None:
            frame = frame.where(f"_tau > {start}")
        folder = self.store / "log" / "units" / unit.row.id
        small = rows * unit.growth <= segment_files.SMALL_ROWS
        written = self._write_frame(unit, frame, folder, ("_tau", "_tau"), small)
        self.at_point("unit: written")
        step.rows_out = 0 if written is None else written.rows
        unit.growth = max(1.0, step.rows_out / max(rows, 1))
        if written is not None:
            results = build_segment(unit_log(unit.row.id), written, None)
            keys = None if version is None else {SUBSCRIBERS: version}
            step.segments.append(replace(results, keys=keys))

    def _write_own_state(
        self, unit: Unit, step: Step, frame: DataFrame, rows: int, scan: str | None
    ) -> list[str]:
        """Write what the unit keeps for itself: panes, or what a window by rows holds."""
        folder = self.store / "log" / "panes" / unit.row.id
        times = (FROM, TO) if scan is None else (TIME, TIME)
        written = self._write_frame(unit, frame, folder, times, rows <= segment_files.SMALL_ROWS)
        if written is None:
            return []
        state = build_segment(panes_log(unit.row.id), written, None)
        step.segments.append(replace(state, keys={"scan": scan}))
        return [written.path]

    def _write_frame(
        self,
        unit: Unit,
        frame: DataFrame,
        folder: Path,
        times: segment_files.TimeColumns,
        small: bool,
    ) -> segment_files.WrittenFile | None:
        unit.stopwatch.lap("build")
        if self.meter.is_sample_due(unit.row.id):
            frame, plan = with_executed_plan(frame, small)
            unit.executed_plans.append(plan)
        written = segment_files.write(frame, folder, times, small, unit.stopwatch.lap)
        unit.stopwatch.lap("write")
        return written

    def _scan_segments(self, unit: Unit, progress: _Progress) -> dict[str, tuple[Segment, ...]]:
        """The segments of each scan up to the step's end."""
        after = progress.next_positions
        segments = {name: self._input_segments(name, 0, after[name]["seq"]) for name in unit.inputs}
        return {
            alias: overlapping_segments(
                segments[stream_log(scan.stream)], unit.earliest_time(scan, progress.start), None
            )
            for alias, scan in unit.plan.scans
        }

    def _due_instants(
        self,
        unit: Unit,
        plan: Panes | SharedPanes | InstantEvaluation,
        progress: _Progress,
        segments: Mapping[str, tuple[Segment, ...]],
        limit: int,
    ) -> tuple[dict[frozenset[int], DueInstants], bool]:
        """The instants that are to be told, for each set of slides; and whether there are more."""
        tuples = [
            scanned_tuples(scan, segments[alias], unit.earliest_time(scan, progress.start))
            for alias, scan in plan.scans
        ]
        rows = (self.catalog.stream(name) for name in unit.streams)
        ready = complete_until([row for row in rows if row is not None], progress.next_positions)
        before = reset_new_slides(
            last_instants(plan.slide_sets, progress.cursors), progress.cursors, tuples
        )
        return due_instants(plan.slide_sets, tuples, before, ready, limit)

    def _advance_instants(
        self,
        unit: Unit,
        step: Step,
        due: Mapping[frozenset[int], DueInstants],
        more: bool,
        instant: int | None,
    ) -> None:
        """Note the instants that a unit has come to with a step, and whether others are due already."""
        last = [slide_due.instants[-1] for slide_due in due.values() if slide_due.instants]
        if last:
            step.cursors[unit.row.id, "instant"] = max(
                last if instant is None else [instant, *last]
            )
        step.cursors[unit.row.id, INSTANTS] = instants_cursor(due, more)

    def _read_windows(
        self,
        unit: Unit,
        progress: _Progress,
        segments: Mapping[str, tuple[Segment, ...]],
        instants: Sequence[int],
        spark: SparkSession,
    ) -> dict[str, _WindowTuples]:
        """What each window holds at the last instant told or takes in until the last of these."""
        first = instants[0] if progress.last_instant is None else progress.last_instant
        own_segments = self.catalog.segments(panes_log(unit.row.id))
        windows = {}
        for alias, scan in unit.plan.scans:
            carried = [s for s in own_segments if s.keys == {"scan": alias}]
            mark = progress.cursors.get(f"carried:{alias}")
            least = window_start(scan, first) if mark is None else mark + 1
            since = unit.earliest_time(scan, progress.start)
            least = max((t for t in (least, since) if t is not None), default=None)
            chosen = overlapping_segments(segments[alias], least, instants[-1])
            frame = read_tuples(spark, scan.schema, verify_paths(chosen), least, instants[-1])
            if carried:
                frame = frame.union(read_tuples(spark, scan.schema, verify_paths(carried)))
            windows[alias] = _WindowTuples(frame, sum(s.rows for s in (*chosen, *carried)), carried)
        return windows

    def _read_panes(
        self, unit: Unit, plan: Panes | SharedPanes, paths: Sequence[str], spark: SparkSession
    ) -> DataFrame:
        if unit.panes_schema is None:
            unit.panes_schema = panes_schema(self.spark, plan)
        return read_panes(spark, unit.panes_schema, paths)

    def _read_tables(self, unit: Unit, spark: SparkSession) -> dict[str, DataFrame]:
        frames = {}
        roots = allowed_paths(self.catalog) if unit.plan.tables else ()
        for view, scan in unit.plan.tables:
            declared = self.definitions.tables[scan.table.lower()]
            check_source_paths(declared.source, roots)
            fingerprint = table_fingerprint(declared.source)
            unit.table_versions[scan.table.lower()] = self.catalog.refresh_table(
                scan.table, fingerprint
            )
            frames[view] = read_table(spark, declared.source, declared.table.schema)
        return frames


def _slack(plan: SharedJoin) -> int:
    """How long after its own time a tuple can first be part of a result."""
    return max((slide or 0 for s in plan.subscribers.shapes for slide in s.slides), default=0)


def _count_rows(segments: Mapping[str, Sequence[Segment]]) -> int:
    return sum(s.rows for scan_segments in segments.values() for s in scan_segments)


def _position(reached: Mapping[str, Any], fresh: Sequence[Segment]) -> dict[str, Any]:
    if not fresh:
        return dict(reached)
    return {"seq": fresh[-1].seq, "watermark": fresh[-1].watermark}
