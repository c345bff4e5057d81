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
from headwater.reuse.groups import Groups
from headwater.reuse.members import Members
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    NewSegment,
    QueryRow,
    Segment,
    UnitRow,
    first_segments,
    members_log,
    panes_log,
    stream_log,
    table_input,
    unit_log,
)
from headwater.runtime.compile import (
    TIME,
    Delta,
    Instants,
    Panes,
    Plan,
    Shared,
    SharedPanes,
    window_start,
)
from headwater.runtime.compile.delta import PART
from headwater.runtime.compile.panes import FROM, TO
from headwater.runtime.definitions import Definitions
from headwater.runtime.instants import (
    Due,
    begin_new,
    due_instants,
    earliest,
    position,
    reached,
    tuples_of,
)
from headwater.runtime.integrity import check, checked_paths
from headwater.runtime.joinorder import Ordering, Term, Tree, written_tree
from headwater.runtime.lifecycle import complete_until
from headwater.runtime.limits import Limits
from headwater.runtime.measure import Meter, Watch, planned
from headwater.runtime.paths import allowed_paths
from headwater.runtime.push import segment
from headwater.runtime.session import INTERPRETED, derived
from headwater.runtime.sharing import looks_back, serving, write_members
from headwater.runtime.sources import check_files, read_table, table_fingerprint
from headwater.runtime.steps import (
    Input,
    Part,
    carry,
    delta_step,
    instants_step,
    made_panes,
    merged_panes,
    overlapping,
    panes_schema,
    panes_step,
    read,
    read_joined,
    read_panes,
    told_apart,
)
from headwater.runtime.subscribers import MEMBERS, member_of, members_at
from headwater.runtime.unit_progress import INSTANTS

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
    written: Tree | None = None
    """The joins of its first query, if they were asked for."""
    growth: float = 1.0
    """Rows out for a row in, of late."""
    adopted: bool = False
    """Whether what is written down of its queries is known to be what its plan says."""
    watch: Watch = field(default_factory=Watch)
    ran: list[Any] = field(default_factory=list)
    """The plans that Spark ran in this step, if they are to be measured."""
    terms: Sequence[Term] = ()
    """The terms of the first of them."""
    tables: dict[str, int] = field(default_factory=dict)
    """The versions of the tables that this step read."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs that its steps read."""
        return tuple(dict.fromkeys(log for _, log in self.feeds))

    @property
    def feeds(self) -> tuple[tuple[str, str], ...]:
        """What its steps read, by alias, and the log of each."""
        scans = dict(self.plan.scans)
        if isinstance(self.plan, Instants):
            return tuple((alias, stream_log(scan.stream)) for alias, scan in scans.items())
        part = self.plan.part if isinstance(self.plan, Shared) else None
        return tuple(
            (
                alias,
                unit_log(part.unit_id)
                if part is not None and alias == PART
                else stream_log(scans[alias].stream),
            )
            for alias in self.plan.feeds
        )

    @property
    def serves(self) -> frozenset[str]:
        """The result keys of the queries whose results it tells."""
        if isinstance(self.plan, Shared | SharedPanes):
            return frozenset(form.digest for form in self.plan.members.forms)
        return frozenset((self.row.digest,))

    def since(self, scan: Scan, start: int | None) -> int | None:
        """The least time of a tuple that the query may look back on."""
        if isinstance(self.plan, Shared | SharedPanes) and all(
            looks_back(form, self.streams) for form in self.plan.members.forms
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
    arrived: Sequence[tuple[int, float]] = ()
    """Of what it takes in, how many rows came when."""


@dataclass(frozen=True)
class _Known:
    """Where a unit stands, and what is new."""

    cursors: Mapping[str, Any]
    reached: Mapping[str, Any]
    fresh: Mapping[str, Sequence[Segment]]

    @property
    def start(self) -> int | None:
        """The time from which on the query is told anything."""
        return self.cursors.get("start")

    @property
    def instant(self) -> int | None:
        """The last instant that was told, of any set of slides."""
        return self.cursors.get("instant")

    @property
    def after(self) -> dict[str, dict[str, Any]]:
        """The positions behind what is new."""
        return {name: _position(self.reached[name], self.fresh[name]) for name in self.reached}

    @property
    def rows(self) -> int:
        return sum(s.rows for found in self.fresh.values() for s in found)


@dataclass(frozen=True)
class _Window:
    """The tuples of a window, and what it carried over from steps before."""

    frame: DataFrame
    rows: int
    carried: list[Segment]


@dataclass(frozen=True)
class Stepper:
    """Makes the steps of units; whoever calls it holds their leases and commits."""

    catalog: Catalog
    state: Path
    spark: SparkSession
    definitions: Definitions
    limits: Limits
    at_point: Callable[[str], None]
    meter: Meter
    costs: CostTable = field(default_factory=CostTable)
    reads: Callable[[str], str] = lambda log: log
    """The log to be read in the place of an input: a copy, where the input is written elsewhere."""

    def step(self, unit: Unit) -> Step | None:
        """What is new for a unit, written but not committed, with the versions of the tables that it
        was joined with; None if there is nothing."""
        unit.watch, unit.ran, unit.terms, unit.tables = Watch(), [], (), {}
        step = self._step(unit)
        if step is not None:
            for table, version in unit.tables.items():
                step.cursors[unit.row.id, table_input(table)] = {"version": version}
        return step

    def _step(self, unit: Unit) -> Step | None:
        pool = f"unit {zlib.crc32(unit.row.id.encode()) % POOLS}"
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        known = self._known(unit)
        if isinstance(unit.plan, Shared | SharedPanes):
            adopted = self._adopt(unit, unit.plan, known)
            if adopted is not None:
                return adopted
        if isinstance(unit.plan, Delta | Shared):
            return self._delta(unit, known) if known.rows else None
        if isinstance(unit.plan, Panes | SharedPanes):
            return self._panes(unit, unit.plan, known)
        return self._instants(unit, unit.plan, known)

    def _known(self, unit: Unit) -> _Known:
        cursors = self.catalog.cursors(unit.row.id)
        reached = {name: cursors.get(name, {"seq": 0, "watermark": None}) for name in unit.inputs}
        fresh = {
            name: first_segments(
                self._input(name, reached[name]["seq"]), rows=self.limits.rows_per_step
            )
            for name in unit.inputs
        }
        return _Known(cursors, reached, fresh)

    def _input(self, log: str, after: int, up_to: int | None = None) -> list[Segment]:
        """The segments of an input after a number and up to another."""
        return self.catalog.segments(self.reads(log), after, up_to)

    # ---- queries that come and go

    def _adopt(self, unit: Unit, plan: Shared | SharedPanes, known: _Known) -> Step | None:
        """Write down what rows are to the queries of a unit, if these have changed."""
        cursor = known.cursors.get(MEMBERS)
        if cursor is not None and self._is_adopted(unit, plan, cursor):
            return None
        step = Step({})
        version = 0 if cursor is None else cursor["seq"]
        now = {"seq": version + 1, "version": unit.row.version}
        if isinstance(plan, SharedPanes):
            now["layout"] = plan.members.layout
            if cursor is None or cursor["layout"] != plan.members.layout:
                self._make_anew(unit, plan, known, step)
        else:
            now["seq"] = self._tell_missed(unit, plan, known, step, version) + 1
        self._write_members(unit, step, plan.members)
        step.cursors[unit.row.id, MEMBERS] = now
        return step

    def _is_adopted(
        self, unit: Unit, plan: Shared | SharedPanes, cursor: Mapping[str, Any]
    ) -> bool:
        """Whether what is written down are the queries of this plan. A process that saw queries leave
        may have kept more for their sake than one that makes the plan anew."""
        if cursor["version"] != unit.row.version:
            return False
        if isinstance(plan, SharedPanes) and cursor["layout"] != plan.members.layout:
            return False
        if not unit.adopted:
            written = members_at(self.catalog, unit.row.id, cursor["seq"])
            unit.adopted = dict(written) == dict(plan.members.members)
        return unit.adopted

    def _make_anew(self, unit: Unit, plan: SharedPanes, known: _Known, step: Step) -> None:
        """Panes as the queries need them now, from the tuples that were taken in before."""
        step.removed += self.catalog.segments(panes_log(unit.row.id))
        seen_after = earliest(plan.rhythms, known.cursors)
        least = None if seen_after is None else seen_after - plan.members.reach
        inputs = {}
        for alias, scan in plan.scans:
            name = stream_log(scan.stream)
            taken = self._input(name, 0, known.reached[name]["seq"])
            inputs[alias] = Input(
                (), overlapping(taken, least, None), unit.since(scan, known.start)
            )
        rows = sum(s.rows for one in inputs.values() for s in one.new)
        if rows:
            frame, _ = delta_step(self._session(rows), plan, inputs, {}, {})
            if frame is not None:
                seen = "TRUE" if seen_after is None else f"{TO} > {seen_after}"
                self._keep(unit, step, frame.where(seen), rows, None)

    def _tell_missed(
        self, unit: Unit, plan: Shared, known: _Known, step: Step, version: int
    ) -> int:
        """For queries that are new, tell what they have missed of the tuples that were taken in
        before; returns the last version of members that was written."""
        cursor = known.cursors.get(MEMBERS)
        before = (
            {unit.row.digest} if cursor is None else members_at(self.catalog, unit.row.id, version)
        )
        new = tuple(form for form in plan.members.forms if form.digest not in before)
        if new and any(position["seq"] for position in known.reached.values()):
            missed = Members(serving(new), new)
            frame, rows = self._missed(unit, Shared(missed, plan.part), known)
            if frame is not None:
                version += 1
                self._write_members(unit, step, missed)
                self._tell(unit, step, frame, None, rows, version)
        return version

    def _write_members(self, unit: Unit, step: Step, members: Members | Groups) -> None:
        written = write_members(members, self.state / "log" / "members" / unit.row.id)
        step.segments.append(segment(members_log(unit.row.id), written, None))

    def _missed(self, unit: Unit, plan: Shared, known: _Known) -> tuple[DataFrame | None, int]:
        """The results, after their starts, that queries have of tuples taken in already."""
        digests = {form.digest for form in plan.members.forms}
        starts = [query.start_at for query in unit.queries if query.result_key in digests]
        given = [start for start in starts if start is not None]
        start = min(given) if len(given) == len(starts) else None
        inputs = {}
        for alias, name in unit.feeds:
            taken = self._input(name, 0, known.reached[name]["seq"])
            late = overlapping(taken, None if start is None else start - _slack(plan), None)
            inputs[alias] = Input(tuple(s for s in taken if s.rows and s not in late), late, None)
        rows = sum(s.rows for one in inputs.values() for s in (*one.old, *one.new))
        spark = self._session(rows)
        tables = self._tables(unit, spark)
        frame, _ = delta_step(spark, plan, inputs, tables, {}, self._joined(plan, spark))
        return (frame if frame is None or start is None else frame.where(f"_tau > {start}")), rows

    # ---- the three kinds of plan

    def _delta(self, unit: Unit, known: _Known) -> Step:
        step = self._begun(unit, known)
        frame = self._new(unit, known)
        version = known.cursors[MEMBERS]["seq"] if isinstance(unit.plan, Shared) else None
        self._tell(unit, step, frame, known.start, known.rows, version)
        return step

    def _panes(self, unit: Unit, plan: Panes | SharedPanes, known: _Known) -> Step | None:
        segments = self._segments(unit, known)
        due, more = self._due(unit, plan, known, segments, plan.instants_at_once)
        is_due = any(one.instants for one in due.values())
        if not is_due and not any(known.fresh.values()):
            return None
        step = self._begun(unit, known)
        self._reach(unit, step, due, more, known.instant)
        if isinstance(plan, SharedPanes) or plan.are_kept:
            self._absorb_and_tell(unit, plan, known, due, step)
        elif is_due:
            (instants,) = (one.instants for one in due.values())
            spark = self._session(_rows(segments))
            windows = self._windows(unit, known, segments, instants, spark)
            frames = {alias: held.frame for alias, held in windows.items()}
            panes = made_panes(spark, plan, frames, self._tables(unit, spark))
            frame = panes_step(spark, plan, panes, known.instant, instants)
            self._tell_instants(unit, step, frame, known, windows, instants)
        return step

    def _absorb_and_tell(
        self,
        unit: Unit,
        plan: Panes | SharedPanes,
        known: _Known,
        due: Mapping[frozenset[int], Due],
        step: Step,
    ) -> None:
        """Keep what is new as panes, and tell from them what they are at instants."""
        live = self.catalog.segments(panes_log(unit.row.id))
        number = max(len(one.instants) for one in due.values())
        paths = checked_paths(live) if number else []
        new = self._new(unit, known) if known.rows else None
        if new is not None:
            paths += self._keep(unit, step, new, known.rows, None)
            self.at_point("unit: absorbed")
        if number and (paths or plan.always_tells):
            held = sum(s.rows for s in live) + sum(s.rows for s in step.segments)
            spark = self._session(held)
            panes = self._read_panes(unit, plan, paths, spark)
            rows = held * min(number, 64)
            if isinstance(plan, Panes):
                (own,) = due.values()
                frame = panes_step(spark, plan, panes, own.before, own.instants)
                self._tell(unit, step, frame, known.start, rows)
            else:
                told = told_apart(spark, plan, panes, due)
                self._tell(unit, step, told, known.start, rows, known.cursors[MEMBERS]["seq"])

    def _instants(self, unit: Unit, plan: Instants, known: _Known) -> Step | None:
        segments = self._segments(unit, known)
        due, more = self._due(unit, plan, known, segments, self.limits.instants_per_step)
        (instants,) = (one.instants for one in due.values())
        if not instants and not any(known.fresh.values()):
            return None
        step = self._begun(unit, known)
        self._reach(unit, step, due, more, known.instant)
        if instants:
            spark = self._session(_rows(segments))
            windows = self._windows(unit, known, segments, instants, spark)
            frames = {alias: held.frame for alias, held in windows.items()}
            tables = self._tables(unit, spark)
            frame = instants_step(spark, plan, frames, tables, known.instant, instants)
            self._tell_instants(unit, step, frame, known, windows, instants)
        return step

    def _tell_instants(
        self,
        unit: Unit,
        step: Step,
        frame: DataFrame,
        known: _Known,
        windows: Mapping[str, _Window],
        instants: Sequence[int],
    ) -> None:
        """Write results, and what windows by rows hold after them."""
        rows = sum(held.rows for held in windows.values())
        self._tell(unit, step, frame, known.start, rows)
        for alias, scan in unit.plan.scans:
            held = windows[alias]
            if isinstance(scan.window, Rows) and held.rows > self.limits.rows_carried_at + 2 * sum(
                s.rows for s in held.carried
            ):
                kept = carry(scan.window, held.frame, instants[-1])
                self._keep(unit, step, kept, held.rows, alias)
                step.removed += held.carried
                step.cursors[unit.row.id, f"carried:{alias}"] = instants[-1]

    def merge(self, unit: Unit) -> Step | None:
        """Panes in fewer segments, without those that nobody will see; None if not worth it."""
        if not isinstance(unit.plan, Panes | SharedPanes) or not unit.plan.are_kept:
            return None
        live = self.catalog.segments(panes_log(unit.row.id))
        instant = earliest(unit.plan.rhythms, self.catalog.cursors(unit.row.id))
        if len(live) < self.limits.panes_merged_at or instant is None:
            return None
        step = Step({}, removed=live)
        kept = [s for s in live if s.largest_time is None or s.largest_time > instant]
        if kept:
            panes = self._read_panes(unit, unit.plan, checked_paths(kept), self.spark)
            frame = merged_panes(self.spark, unit.plan, panes, instant)
            self._keep(unit, step, frame, sum(s.rows for s in kept), None)
        return step

    # ---- what they share

    def _begun(self, unit: Unit, known: _Known) -> Step:
        cursors = {(unit.row.id, name): position for name, position in known.after.items()}
        taken = [s for found in known.fresh.values() for s in found if s.rows]
        return Step(cursors, rows_in=known.rows, arrived=[(s.rows, s.created_at) for s in taken])

    def _new(self, unit: Unit, known: _Known) -> DataFrame | None:
        """What the delta brings, as results or panes."""
        assert isinstance(unit.plan, Delta | Shared | Panes | SharedPanes)
        inputs = {}
        scans = dict(unit.plan.scans)
        for alias, name in unit.feeds:
            since = unit.since(scans[alias], known.start) if alias in scans else None
            reached = known.reached[name]["seq"]
            needed = len(unit.feeds) > 1 and reached
            old = self._input(name, 0, reached) if needed else []
            inputs[alias] = Input(
                overlapping(old, since, None), overlapping(known.fresh[name], since, None), since
            )
        rows = sum(s.rows for one in inputs.values() for s in (*one.old, *one.new))
        spark = self._session(rows)
        joins = self.meter.values(unit.row.id)
        tables = self._tables(unit, spark)
        joined = self._joined(unit.plan, spark) if isinstance(unit.plan, Shared) else None
        ordering = self._ordering(unit)
        frame, unit.terms = delta_step(spark, unit.plan, inputs, tables, joins, joined, ordering)
        return frame

    def _ordering(self, unit: Unit) -> Ordering:
        """How the joins of a unit are ordered."""
        if self.limits.optimise != "written":
            return Ordering(self.limits.optimise, self.costs)
        if unit.written is None:
            queries = unit.queries or tuple(self.catalog.members(unit.row.id))
            text = min(queries, key=lambda query: query.accepted_at).definition
            (statement,) = parse(text, self.definitions.names)
            assert isinstance(statement, CreateQuery)
            unit.written = written_tree(statement.query)
        return Ordering(self.limits.optimise, self.costs, unit.written)

    def _joined(self, plan: Shared, spark: SparkSession) -> Callable[[Part], DataFrame]:
        """Reads the rows that another unit has joined for this one."""

        def read_rows(chosen: Part) -> DataFrame:
            assert plan.part is not None
            asked = self.catalog.query(plan.part.query)
            assert asked is not None
            members = [(check(s), member_of(self.catalog, asked, s)) for s in chosen.segments]
            return read_joined(spark, plan.part, members, asked.start_at)

        return read_rows

    def _session(self, rows: int) -> SparkSession:
        """The session for a step that reads so many rows."""
        return self.spark if rows > INTERPRETED_ROWS else derived(self.spark, *INTERPRETED)

    def _tell(
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
        folder = self.state / "log" / "units" / unit.row.id
        small = rows * unit.growth <= files.SMALL_ROWS
        written = self._write(unit, frame, folder, ("_tau", "_tau"), small)
        self.at_point("unit: written")
        step.rows_out = 0 if written is None else written.rows
        unit.growth = max(1.0, step.rows_out / max(rows, 1))
        if written is not None:
            told = segment(unit_log(unit.row.id), written, None)
            keys = None if version is None else {MEMBERS: version}
            step.segments.append(replace(told, keys=keys))

    def _keep(
        self, unit: Unit, step: Step, frame: DataFrame, rows: int, scan: str | None
    ) -> list[str]:
        """Write what the unit keeps for itself: panes, or what a window by rows holds."""
        folder = self.state / "log" / "panes" / unit.row.id
        times = (FROM, TO) if scan is None else (TIME, TIME)
        written = self._write(unit, frame, folder, times, rows <= files.SMALL_ROWS)
        if written is None:
            return []
        kept = segment(panes_log(unit.row.id), written, None)
        step.segments.append(replace(kept, keys={"scan": scan}))
        return [written.path]

    def _write(
        self, unit: Unit, frame: DataFrame, folder: Path, times: files.Times, small: bool
    ) -> files.Written | None:
        unit.watch.lap("build")
        if self.meter.sampled(unit.row.id):
            frame, plan = planned(frame, small)
            unit.ran.append(plan)
        written = files.write(frame, folder, times, small, unit.watch.lap)
        unit.watch.lap("write")
        return written

    def _segments(self, unit: Unit, known: _Known) -> dict[str, tuple[Segment, ...]]:
        """The segments of each scan up to the step's end."""
        after = known.after
        found = {name: self._input(name, 0, after[name]["seq"]) for name in unit.inputs}
        return {
            alias: overlapping(found[stream_log(scan.stream)], unit.since(scan, known.start), None)
            for alias, scan in unit.plan.scans
        }

    def _due(
        self,
        unit: Unit,
        plan: Panes | SharedPanes | Instants,
        known: _Known,
        segments: Mapping[str, tuple[Segment, ...]],
        limit: int,
    ) -> tuple[dict[frozenset[int], Due], bool]:
        """The instants that are to be told, for each set of slides; and whether there are more."""
        tuples = [
            tuples_of(scan, segments[alias], unit.since(scan, known.start))
            for alias, scan in plan.scans
        ]
        rows = (self.catalog.stream(name) for name in unit.streams)
        ready = complete_until([row for row in rows if row is not None], known.after)
        before = begin_new(reached(plan.rhythms, known.cursors), known.cursors, tuples)
        return due_instants(plan.rhythms, tuples, before, ready, limit)

    def _reach(
        self,
        unit: Unit,
        step: Step,
        due: Mapping[frozenset[int], Due],
        more: bool,
        instant: int | None,
    ) -> None:
        """Note the instants that a unit has come to with a step, and whether others are due already."""
        last = [one.instants[-1] for one in due.values() if one.instants]
        if last:
            step.cursors[unit.row.id, "instant"] = max(
                last if instant is None else [instant, *last]
            )
        step.cursors[unit.row.id, INSTANTS] = position(due, more)

    def _windows(
        self,
        unit: Unit,
        known: _Known,
        segments: Mapping[str, tuple[Segment, ...]],
        instants: Sequence[int],
        spark: SparkSession,
    ) -> dict[str, _Window]:
        """What each window holds at the last instant told or takes in until the last of these."""
        first = instants[0] if known.instant is None else known.instant
        kept = self.catalog.segments(panes_log(unit.row.id))
        windows = {}
        for alias, scan in unit.plan.scans:
            carried = [s for s in kept if s.keys == {"scan": alias}]
            mark = known.cursors.get(f"carried:{alias}")
            least = window_start(scan, first) if mark is None else mark + 1
            since = unit.since(scan, known.start)
            least = max((t for t in (least, since) if t is not None), default=None)
            chosen = overlapping(segments[alias], least, instants[-1])
            frame = read(spark, scan.schema, checked_paths(chosen), least, instants[-1])
            if carried:
                frame = frame.union(read(spark, scan.schema, checked_paths(carried)))
            windows[alias] = _Window(frame, sum(s.rows for s in (*chosen, *carried)), carried)
        return windows

    def _read_panes(
        self, unit: Unit, plan: Panes | SharedPanes, paths: Sequence[str], spark: SparkSession
    ) -> DataFrame:
        if unit.panes_schema is None:
            unit.panes_schema = panes_schema(self.spark, plan)
        return read_panes(spark, unit.panes_schema, paths)

    def _tables(self, unit: Unit, spark: SparkSession) -> dict[str, DataFrame]:
        frames = {}
        roots = allowed_paths(self.catalog) if unit.plan.tables else ()
        for view, scan in unit.plan.tables:
            declared = self.definitions.tables[scan.table.lower()]
            check_files(declared.source, roots)
            fingerprint = table_fingerprint(declared.source)
            unit.tables[scan.table.lower()] = self.catalog.refresh_table(scan.table, fingerprint)
            frames[view] = read_table(spark, declared.source, declared.table.schema)
        return frames


def _slack(plan: Shared) -> int:
    """How long after its own time a tuple can first be part of a result."""
    return max((slide or 0 for s in plan.members.shapes for slide in s.slides), default=0)


def _rows(segments: Mapping[str, Sequence[Segment]]) -> int:
    return sum(s.rows for found in segments.values() for s in found)


def _position(reached: Mapping[str, Any], fresh: Sequence[Segment]) -> dict[str, Any]:
    if not fresh:
        return dict(reached)
    return {"seq": fresh[-1].seq, "watermark": fresh[-1].watermark}
