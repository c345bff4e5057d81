"""What a step of a unit reads: the new segments of its inputs, windows, tables and panes.

A step reads committed segments and nothing else, so that a step that was not committed can be made
again by any process with the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.cost.model import CostModel
from headwater.cost.operators import CostTable
from headwater.cql import CreateQuery, parse
from headwater.runtime.catalog import (
    Catalog,
    LogPosition,
    Segment,
    first_segments,
    panes_log,
    stream_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.checkpoints import checkpoint_names, checkpoint_of
from headwater.runtime.compile.evaluation_times import DueInstants
from headwater.runtime.compile.frames import (
    TermInput,
    overlapping_segments,
    panes_schema,
    read_panes,
    read_partial_join,
    read_tuples,
)
from headwater.runtime.compile.join_order import JoinOrdering, written_join_tree
from headwater.runtime.compile.plan import PanePlan, PartialJoin
from headwater.runtime.compile.windows import window_start
from headwater.runtime.connectors.files import read_table, table_fingerprint
from headwater.runtime.connectors.open_sources import check_source_paths
from headwater.runtime.engine.unit import Unit
from headwater.runtime.metrics.cost_model import read_cost_model
from headwater.runtime.metrics.step_meter import StepMeter
from headwater.runtime.results.subscribers import subscriber_of
from headwater.runtime.settings import Settings
from headwater.runtime.spark.session import NO_CODEGEN, derive_session
from headwater.runtime.storage.integrity import verify_file, verify_paths
from headwater.runtime.storage.paths import allowed_paths
from headwater.runtime.storage.segment_files import check_columns

INTERPRETED_ROWS = 30_000
"""A step that reads at most this many rows runs without generated code: compiling it in the JVM would
take longer than interpreting it."""


@dataclass(frozen=True)
class Progress:
    """How far a unit has read its inputs, and the new segments of each."""

    cursors: Mapping[str, Any]
    positions: Mapping[str, LogPosition]
    new_segments: Mapping[str, Sequence[Segment]]

    @property
    def start(self) -> int | None:
        """The time after which rows are emitted."""
        return self.cursors.get("start")

    @property
    def last_instant(self) -> int | None:
        """The last instant that was emitted, of any set of slides."""
        return self.cursors.get("instant")

    @property
    def next_positions(self) -> dict[str, LogPosition]:
        """The positions behind the new segments."""
        return {name: at.after(self.new_segments[name]) for name, at in self.positions.items()}

    @property
    def has_new_segments(self) -> bool:
        """Whether a log has grown, if only by a segment that moves its watermark."""
        return any(self.new_segments.values())

    @property
    def new_rows(self) -> int:
        return count_rows(self.new_segments)


@dataclass(frozen=True)
class WindowTuples:
    """The tuples of a window, and the segments in which it was carried over from earlier steps."""

    frame: DataFrame
    rows: int
    carried: list[Segment]
    name: str
    """Under which what it holds is kept."""


@dataclass(frozen=True)
class StepContext:
    """Where steps read from and write to; the caller holds the leases of units and commits."""

    catalog: Catalog
    store: Path
    spark: SparkSession
    definitions: Definitions
    settings: Settings
    at_point: Callable[[str], None]
    meter: StepMeter
    costs: CostTable = field(default_factory=CostTable)
    local_log: Callable[[str], str] = lambda log: log
    """The log to read for an input: a copy, where the input is written on another site."""
    until: Mapping[str, int] = field(default_factory=dict)
    """Sequence numbers of logs beyond which a step does not read."""

    def session(self, rows: int) -> SparkSession:
        """The session for a step that reads that many rows."""
        return self.spark if rows > INTERPRETED_ROWS else derive_session(self.spark, *NO_CODEGEN)

    # ---- segments

    def progress(self, unit: Unit) -> Progress:
        """Where a unit is, and what its next step reads."""
        cursors = self.catalog.cursors(unit.row.id)
        reached = {name: LogPosition.from_json(cursors.get(name)) for name in unit.inputs}
        # At least one segment of each input, however large it is, so that every step makes progress.
        fresh = {
            name: first_segments(
                self.input_segments(name, reached[name].seq, self.until.get(name)),
                rows=self.settings.rows_per_step,
            )
            for name in unit.inputs
        }
        return Progress(cursors, reached, fresh)

    def input_segments(self, log: str, after: int, up_to: int | None = None) -> list[Segment]:
        """The segments of an input after a number and up to another."""
        return self.catalog.segments(self.local_log(log), after, up_to)

    def scan_segments(self, unit: Unit, progress: Progress) -> dict[str, tuple[Segment, ...]]:
        """The segments of each scan up to the step's end."""
        after = progress.next_positions
        segments = {name: self.input_segments(name, 0, after[name].seq) for name in unit.inputs}
        return {
            alias: overlapping_segments(
                segments[stream_log(scan.stream)], unit.earliest_time(scan, progress.start), None
            )
            for alias, scan in unit.plan.scans
        }

    # ---- frames

    def read_windows(
        self,
        unit: Unit,
        progress: Progress,
        segments: Mapping[str, tuple[Segment, ...]],
        due: DueInstants,
        spark: SparkSession,
        aliases: Collection[str] | None = None,
    ) -> dict[str, WindowTuples]:
        """What each window (or some) holds at the last instant evaluated, or ingests until the last due."""
        instants = due.instants
        first = instants[0] if due.before is None else due.before
        own_segments = self.catalog.segments(panes_log(unit.row.id))
        names = checkpoint_names(unit.plan)
        windows = {}
        for alias, scan in unit.plan.scans:
            if aliases is not None and alias not in aliases:
                continue
            name = names[alias]
            carried = [s for s in own_segments if s.keys in ({"scan": name}, {"scan": alias})]
            mark = checkpoint_of(progress.cursors, name, alias)
            # What was carried over holds all before the mark that the window still needs.
            least = window_start(scan, first) if mark is None else mark + 1
            since = unit.earliest_time(scan, progress.start)
            least = max((t for t in (least, since) if t is not None), default=None)
            chosen = overlapping_segments(segments[alias], least, instants[-1])
            frame = read_tuples(spark, scan.schema, verify_paths(chosen), least, instants[-1])
            if carried:
                frame = frame.union(read_tuples(spark, scan.schema, verify_paths(carried)))
            rows = sum(s.rows for s in (*chosen, *carried))
            windows[alias] = WindowTuples(frame, rows, carried, name)
        return windows

    def read_panes(
        self, unit: Unit, plan: PanePlan, paths: Sequence[str], spark: SparkSession
    ) -> DataFrame:
        if unit.panes_schema is None:  # given to Spark, which would else read it from the files
            unit.panes_schema = panes_schema(self.spark, plan)
            check_columns(paths, unit.panes_schema.names, f"panes of unit {unit.row.id}")
        return read_panes(spark, unit.panes_schema, paths)

    def read_tables(
        self, unit: Unit, spark: SparkSession
    ) -> tuple[dict[str, DataFrame], dict[str, int]]:
        """The tables of a unit by alias, and the version of each."""
        frames = {}
        versions = {}
        roots = allowed_paths(self.catalog) if unit.plan.tables else ()
        for alias, scan in unit.plan.tables:
            declared = self.definitions.tables[scan.table.lower()]
            check_source_paths(declared.source, roots)
            fingerprint = table_fingerprint(declared.source)
            versions[scan.table.lower()] = self.catalog.refresh_table(scan.table, fingerprint)
            frames[alias] = read_table(spark, declared.source, declared.table.schema)
        return frames, versions

    def partial_join_reader(
        self, partial_join: PartialJoin | None, spark: SparkSession
    ) -> Callable[[TermInput], DataFrame] | None:
        """Reads the rows that another unit has joined for this one, if one has."""
        if partial_join is None:
            return None

        def read_rows(chosen: TermInput) -> DataFrame:
            query = self.catalog.query(partial_join.query)
            assert query is not None
            subscribers = [
                (verify_file(s), subscriber_of(self.catalog, query, s)) for s in chosen.segments
            ]
            return read_partial_join(spark, partial_join, subscribers, query.start_at)

        return read_rows

    def join_ordering(self, unit: Unit) -> JoinOrdering:
        """How the joins of a unit are ordered."""
        if self.settings.optimise != "written":
            return JoinOrdering(self.settings.optimise, self.cost_model(unit))
        if unit.written_joins is None:
            queries = unit.queries or tuple(self.catalog.subscribers(unit.row.id))
            text = min(queries, key=lambda query: query.accepted_at).definition
            (statement,) = parse(text, self.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            unit.written_joins = written_join_tree(statement.query)
        return JoinOrdering(self.settings.optimise, self.cost_model(unit), unit.written_joins)

    def cost_model(self, unit: Unit) -> CostModel:
        """What is known of the costs of a unit; it is read again when one of its steps is measured."""
        if unit.cost_model is None or self.meter.is_sample_due(unit.row.id):
            streams = [scan.stream for _, scan in unit.plan.scans]
            unit.cost_model = read_cost_model(self.catalog, streams, self.definitions.namespace)
        return unit.cost_model


def count_rows(segments: Mapping[str, Sequence[Segment]]) -> int:
    return sum(s.rows for of_one in segments.values() for s in of_one)
