"""One step of a unit as a Spark DataFrame: new segments of its inputs, turned into new rows.

A step reads segments and nothing else, so it can be run again with the same outcome. Segments whose
times cannot meet the delta's are left out before Spark sees them, and a small delta is broadcast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.algebra.expressions import Literal
from headwater.algebra.types import Schema
from headwater.algebra.windows import Rows
from headwater.reuse.families import ConstantsTable
from headwater.reuse.row_classes import (
    ROW_CLASS_COLUMN,
    SHAPE_COLUMN,
    SOLE_SUBSCRIBER,
    Subscriber,
    item_column,
)
from headwater.runtime.catalog import Segment
from headwater.runtime.compile.delta_join import BAND, band_column
from headwater.runtime.compile.evaluation_times import DueInstants, last_instant_until
from headwater.runtime.compile.join_order import (
    JoinOrdering,
    Term,
    order_term,
)
from headwater.runtime.compile.lane_choice import (
    COUNTED_ROWS,
    PAIRS_PER_LANE,
    count_compared_pairs,
)
from headwater.runtime.compile.lifetimes.output import INSTANTS, reads_instants
from headwater.runtime.compile.panes import Panes
from headwater.runtime.compile.plan import (
    PARTIAL_JOIN,
    DeltaLane,
    IncrementalPlan,
    LifetimeStatement,
    PanePlan,
    PartialJoin,
    TermViews,
)
from headwater.runtime.compile.shared_join import CONSTANTS
from headwater.runtime.compile.shared_panes import ALL_PANES, BOUNDS, SharedPanes
from headwater.runtime.compile.windows import (
    UNTIL,
    rows_window_sql,
    with_views,
)
from headwater.runtime.spark.sql import expression_sql, quote_identifier, spark_type
from headwater.runtime.storage.columns import ARRIVAL, TIME, arrow_type
from headwater.runtime.storage.integrity import make_cached_verifier

BANDED_ROWS, BANDED_SPAN, BANDED_MET = 30_000, 3, 4.0
"""A join goes by bands of time if it reads at least this many rows, its delta is at least this many bands
long, and a tuple would be paired with at least this many others by its key alone."""

UNITED = "at once: "
"""What the names of joins begin with that were measured in all lanes at once."""

BROADCAST_ROWS = 200_000
"""A side of a join with at most this many rows is broadcast to every task."""

# `next` of an itertools.count is atomic under the interpreter lock, so threads need no lock of
# their own.
_numbers = count()


@dataclass(frozen=True)
class StepInput:
    """The segments of one scan: those before the step's delta, the delta, and the least time of a
    tuple that the query may look back on."""

    old: tuple[Segment, ...]
    new: tuple[Segment, ...]
    since: int | None = None


def stream_schema(schema: Schema) -> str:
    """The columns of a stream's segments, as a Spark schema."""
    columns = [f"{quote_identifier(f.name)} {spark_type(f.type)}" for f in schema]
    return ", ".join([*columns, f"{TIME} BIGINT", f"{ARRIVAL} BIGINT"])


# ---- delta joins


def _span_seconds(segments: Sequence[Segment]) -> float:
    """The seconds of event time that segments span."""
    times = [t for s in segments for t in (s.least_time, s.largest_time) if t is not None]
    return (max(times) - min(times)) / 1e6 if times else 0.0


@dataclass(frozen=True)
class TimeBand:
    """Tuples from `before` a tuple of the delta to `after` it can meet it; a band is a stretch of time
    of that length, so that they are in its band or a neighbour of it."""

    before: int
    after: int

    @property
    def length(self) -> int:
        return self.before + self.after + 1

    def number_sql(self, time: str) -> str:
        """SQL of the band that a time is in."""
        # `div` rounds towards zero and times may be negative: subtracting pmod first makes it
        # floor.
        return f"(({time}) - pmod({time}, {self.length}L)) div {self.length}L"


@dataclass(frozen=True)
class TermInput:
    """What a term reads of one scan: segments, and which of their tuples can matter."""

    segments: tuple[Segment, ...]
    least: int | None = None
    largest: int | None = None
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.segments)

    def read_frame(
        self, spark: SparkSession, schema: Schema, path_of: Callable[[Segment], str]
    ) -> DataFrame:
        """The tuples; conditions that all segments meet are left out."""
        least, largest = self.least, self.largest
        if least is not None and all((s.least_time or 0) >= least for s in self.segments):
            least = None
        if largest is not None and all((s.largest_time or 0) <= largest for s in self.segments):
            largest = None
        frame = read_tuples(spark, schema, [path_of(s) for s in self.segments], least, largest)
        for name, (low, high) in self.ranges.items():
            if not all(_is_within(s, name, low, high) for s in self.segments):
                frame = frame.where(f"{quote_identifier(name)} BETWEEN {low}L AND {high}L")
        return frame

    def read_column(self, name: str, path_of: Callable[[Segment], str]) -> pa.ChunkedArray:
        """The values of a column of the tuples."""
        read = partial(pq.read_table, columns=[name, TIME], use_threads=False)
        table = pa.concat_tables([read(path_of(segment)) for segment in self.segments])
        if self.least is not None:
            table = table.filter(pc.field(TIME) >= self.least)
        if self.largest is not None:
            table = table.filter(pc.field(TIME) <= self.largest)
        return table[name]


def delta_frame(
    spark: SparkSession,
    plan: IncrementalPlan,
    inputs: Mapping[str, StepInput],
    tables: Mapping[str, DataFrame],
    selectivities: Mapping[str, float],
    read_partial: Callable[[TermInput], DataFrame] | None = None,
    ordering: JoinOrdering | None = None,
) -> tuple[DataFrame | None, list[Term]]:
    """The results or panes that the delta adds, None if it adds none for certain; and the terms that
    compute them. `read_partial` reads the rows of another unit, `ordering` says in which order sources
    are joined."""
    terms: list[Term] = []
    texts: list[str] = []
    path_of = make_cached_verifier()
    with _temp_views(spark) as view:
        table_views = {alias: view(tables[alias]) for alias, _ in plan.tables}

        def view_of(lane: DeltaLane, alias: str, term: _TermReading) -> str:
            if alias == PARTIAL_JOIN:
                assert read_partial is not None
                return view(read_partial(term.inputs[alias]))
            schema = dict(lane.scans)[alias].schema
            frame = term.inputs[alias].read_frame(spark, schema, path_of)
            return view(_add_bands(frame, alias, term.delta, term.bands))

        for lane, readings in _lane_readings(plan, inputs, selectivities, ordering, path_of):
            terms += [reading.term for reading in readings]
            lane_texts = []
            for reading in readings:
                views = {alias: view_of(lane, alias, reading) for alias in lane.feeds}
                lane_texts.append(
                    lane.term_sql(reading.term.order, reading.views(table_views | views))
                )
            if lane_texts:
                texts.append(lane.delta_sql(lane_texts))
        if not texts:
            return None, terms
        text = "\nUNION ALL\n".join(texts)
        if plan.delta_constants is not None:
            constants = view(spark.createDataFrame(plan.delta_constants))
            text = _name_views({CONSTANTS: constants}, text)
        return spark.sql(text), terms


@dataclass(frozen=True)
class _TermReading:
    """A term with the input whose delta it is of, and what it reads of each input."""

    term: Term
    delta: str
    inputs: Mapping[str, TermInput]
    bands: Mapping[str, TimeBand]

    def views(self, names: Mapping[str, str]) -> TermViews:
        broadcast = _broadcast_aliases(self.term.order, self.term.rows)
        return TermViews(names, broadcast, frozenset(self.bands))


_LaneReading = tuple[DeltaLane, Sequence[_TermReading]]
"""A lane with what its terms read."""


def _lane_readings(
    plan: IncrementalPlan,
    inputs: Mapping[str, StepInput],
    selectivities: Mapping[str, float],
    ordering: JoinOrdering | None,
    path_of: Callable[[Segment], str],
) -> list[_LaneReading]:
    """What a step joins: the lanes, or all of them at once where few pairs are compared then."""

    def readings(lane: DeltaLane, prefix: str) -> list[_TermReading]:
        measured = _of_lane(selectivities, prefix)
        return list(_term_readings(lane, inputs, measured, ordering, prefix))

    if plan.united is not None:
        at_once = readings(plan.united, UNITED)
        if _compares_few(plan.united, at_once, PAIRS_PER_LANE * len(plan.lanes), path_of):
            return [(plan.united, at_once)]
    # What joins were measured to leave is kept by lane: lanes have the same sources and other
    # conditions.
    several = len(plan.lanes) > 1
    return [
        (lane, readings(lane, f"lane {number}: " if several else ""))
        for number, lane in enumerate(plan.lanes)
    ]


def _compares_few(
    lane: DeltaLane,
    readings: Sequence[_TermReading],
    most: int,
    path_of: Callable[[Segment], str],
) -> bool:
    """Whether the terms compare at most so many pairs of equal keys."""
    if (
        lane.prejoined
        or sum(sum(reading.term.rows.values()) for reading in readings) > COUNTED_ROWS
    ):
        return False
    compared = 0.0
    for reading in readings:
        read = partial(_read_keys, reading.inputs, path_of)
        pairs = count_compared_pairs(reading.term.order, lane.equalities, cache(read))
        if pairs is None or (compared := compared + pairs) > most:
            return False
    return True


def _read_keys(
    inputs: Mapping[str, TermInput], path_of: Callable[[Segment], str], alias: str, column: str
) -> pa.ChunkedArray:
    return inputs[alias].read_column(column, path_of)


def _term_readings(
    lane: DeltaLane,
    inputs: Mapping[str, StepInput],
    selectivities: Mapping[str, float],
    ordering: JoinOrdering | None,
    prefix: str,
) -> Iterator[_TermReading]:
    """The terms of a lane, without those that are empty for certain."""
    for position, alias in enumerate(lane.feeds):
        chosen = _term_inputs(lane, inputs, position) if inputs[alias].new else None
        if chosen is None:
            continue  # an input has nothing that the delta could meet
        rows = {other: term_input.rows for other, term_input in chosen.items()}
        term = order_term(lane.block, alias, rows, selectivities, lane.prejoined, ordering)
        span = _span_seconds(inputs[alias].new)
        term = replace(term, span=span, prefix=prefix, is_whole=prefix != UNITED)
        bands = _choose_bands(lane, term, inputs[alias].new)
        yield _TermReading(term, alias, chosen, bands)


def _of_lane(selectivities: Mapping[str, float], prefix: str) -> Mapping[str, float]:
    """What was measured in a lane, by the names that it has there."""
    return {
        name.removeprefix(prefix): value
        for name, value in selectivities.items()
        if name.startswith(prefix)
    }


def _broadcast_aliases(order: Sequence[str], rows: Mapping[str, int]) -> list[str]:
    """The sources to broadcast: all that are small, except the largest of all."""
    # One side of a join has to be streamed through: broadcasting all of them would gain nothing.
    largest = max(rows, key=lambda alias: rows[alias])
    return [a for a in order if a != largest and rows.get(a, 0) <= BROADCAST_ROWS]


def _choose_bands(
    lane: DeltaLane,
    term: Term,
    delta: Sequence[Segment],
) -> dict[str, TimeBand]:
    """The sources that are joined by bands of time besides their conditions.

    That pays where the delta is much longer than what a tuple can meet, as when a backlog is caught up
    with: without bands a tuple is paired with all that have its key, whatever their time.
    """
    first = term.order[0]
    if first == PARTIAL_JOIN or sum(term.rows.values()) < BANDED_ROWS:
        return {}
    span = max(s.largest_time or 0 for s in delta) - min(s.least_time or 0 for s in delta)
    bands = {}
    for alias, share in zip(term.order[1:], term.expected, strict=True):
        if alias == PARTIAL_JOIN or alias not in term.rows:
            continue
        before, after = lane.reach(alias)
        if before is None or span < BANDED_SPAN * (before + after + 1):
            continue
        band = TimeBand(before, after)
        met = term.rows[alias] * share * span / band.length
        if met >= BANDED_MET:
            bands[alias] = band
    return bands


def _add_bands(
    frame: DataFrame, alias: str, first: str, bands: Mapping[str, TimeBand]
) -> DataFrame:
    """The tuples of a source with their bands: those of the delta in the one that they are in, others
    in each that has tuples they can meet."""
    if alias == first:
        numbers = [
            f"{band.number_sql(TIME)} AS {band_column(other)}" for other, band in bands.items()
        ]
        return frame.selectExpr("*", *numbers) if numbers else frame
    if alias not in bands:
        return frame
    band = bands[alias]
    least, last = (
        band.number_sql(f"{TIME} - {band.after}L"),
        band.number_sql(f"{TIME} + {band.before}L"),
    )
    return frame.selectExpr("*", f"explode(sequence({least}, {last})) AS {BAND}")


def _term_inputs(
    lane: DeltaLane,
    inputs: Mapping[str, StepInput],
    position: int,
) -> dict[str, TermInput] | None:
    """N before the position, the delta at it, O after it; None if one of them is empty."""
    alias = lane.feeds[position]
    delta = inputs[alias].new
    least = min(s.least_time for s in delta if s.least_time is not None)
    largest = max(s.largest_time for s in delta if s.largest_time is not None)
    chosen = {alias: TermInput(delta, inputs[alias].since)}
    for at, other in enumerate(lane.feeds):
        if at == position:
            continue
        # New tuples of inputs before this one only: else two new tuples would meet in two terms.
        candidates = inputs[other].old + (inputs[other].new if at < position else ())
        before, after = lane.reach(other)
        bounds = [inputs[other].since, None if before is None else least - before]
        low = max((b for b in bounds if b is not None), default=None)
        ranges = _key_ranges(lane, other, alias, delta)
        met = overlapping_segments(candidates, low, largest + after)
        met = tuple(
            s for s in met if all(_overlaps_range(s, name, *r) for name, r in ranges.items())
        )
        # An inner join with nothing is empty, and so is the whole term.
        if not met:
            return None
        chosen[other] = TermInput(met, low, largest + after, ranges)
    return chosen


def _key_ranges(
    lane: DeltaLane,
    alias: str,
    delta_alias: str,
    delta: Sequence[Segment],
) -> dict[str, tuple[int, int]]:
    """The ranges of the columns that have to equal a key of the delta, from the ranges of its keys."""
    ranges = {}
    for own, theirs in lane.equalities:
        if own.relation == alias and theirs.relation == delta_alias:
            key_spans = [(s.keys or {}).get(theirs.name) for s in delta]
            spans = [span for span in key_spans if span is not None]
            # A segment without recorded keys may hold any value: then nothing may be left out.
            if len(spans) == len(key_spans):
                ranges[own.name] = (min(low for low, _ in spans), max(high for _, high in spans))
    return ranges


def _overlaps_range(segment: Segment, name: str, low: int, high: int) -> bool:
    span = (segment.keys or {}).get(name)
    return span is None or (span[0] <= high and low <= span[1])


def _is_within(segment: Segment, name: str, low: int, high: int) -> bool:
    span = (segment.keys or {}).get(name)
    return span is not None and low <= span[0] and span[1] <= high


def read_partial_join(
    spark: SparkSession,
    partial_join: PartialJoin,
    segments: Sequence[tuple[str, Subscriber | None]],
    start: int | None,
) -> DataFrame:
    """The rows of another unit's segments that are those of a query, its sources as structs."""
    by_subscriber: dict[Subscriber, list[str]] = {}
    for path, subscriber in segments:
        if subscriber is not None and (subscriber == SOLE_SUBSCRIBER or subscriber.row_classes):
            by_subscriber.setdefault(subscriber, []).append(path)
    frames = []
    for subscriber, paths in by_subscriber.items():
        frame = spark.read.parquet(*map(escape_path, paths))
        if subscriber != SOLE_SUBSCRIBER:
            within = " OR ".join(
                f"{ROW_CLASS_COLUMN} BETWEEN {low} AND {high}"
                for low, high in subscriber.row_classes
            )
            frame = frame.where(f"{SHAPE_COLUMN} = {subscriber.shape} AND ({within})")
        if start is not None:
            frame = frame.where(f"_tau > {start}")
        names = [f"c{item_column(subscriber, at)}" for at in partial_join.positions]
        frames.append(frame.selectExpr(*partial_join.struct_sql(names)))
    if not frames:
        types = [
            f"CAST(NULL AS {spark_type(c.type)}) AS c{n}"
            for n, c in enumerate(partial_join.columns)
        ]
        empty = spark.range(0).selectExpr(*types)
        return empty.selectExpr(*partial_join.struct_sql([f"c{n}" for n in range(len(types))]))
    return reduce(DataFrame.unionAll, frames)


# ---- results at instants


@dataclass(frozen=True)
class Totals:
    """The totals of groups at an instant."""

    at: int
    frame: DataFrame


def pane_results(
    spark: SparkSession,
    plan: PanePlan,
    panes: DataFrame,
    due: Mapping[frozenset[int], DueInstants],
    totals: Mapping[str, Totals],
) -> DataFrame | None:
    """What is emitted from panes at the instants that are due; None if none is. Where there are `totals`,
    by name, only panes are read that begin or end later."""
    if isinstance(plan, SharedPanes):
        return _shared_pane_results(spark, plan, panes, due, totals)
    assert isinstance(plan, Panes)
    own = due[plan.slides]
    if not own.instants:
        return None
    with _temp_views(spark) as view:
        names = {"panes": view(panes)}
        kept = next((totals[name] for name in plan.kept_totals if name in totals), None)
        if kept is not None:
            names["totals"] = view(kept.frame)
        if plan.reads_instants:
            names["instants"] = view(_instants_frame(spark, own.before, own.instants))
        text = plan.result_sql(own.before, own.instants, None if kept is None else kept.at)
        return spark.sql(_name_views(names, text))


def _shared_pane_results(
    spark: SparkSession,
    plan: SharedPanes,
    panes: DataFrame,
    due: Mapping[frozenset[int], DueInstants],
    totals: Mapping[str, Totals],
) -> DataFrame | None:
    """One statement for each family of queries that have an instant due."""
    texts = []
    with _temp_views(spark) as view:
        names = {ALL_PANES: view(panes)}
        if plan.constants is not None:
            names[CONSTANTS] = view(spark.createDataFrame(plan.constants))
        for family in plan.families:
            own = due[family.plan.slides]
            if not own.instants:
                continue
            if family.has_several:
                names[f"{BOUNDS}{family.number}"] = view(spark.createDataFrame(family.bounds))
            last = last_instant_until(family.plan.slides, own.before)
            kept = totals.get(plan.totals_name(family) or "")
            text = plan.result_sql(family, last, own.instants, None if kept is None else kept.at)
            if kept is not None:
                text = with_views({"totals": f"SELECT * FROM {view(kept.frame)}"}, text)
            if family.plan.reads_instants:
                shown = view(_instants_frame(spark, last, own.instants))
                text = with_views({"instants": f"SELECT * FROM {shown}"}, text)
            texts.append(f"({text})")
        return spark.sql(_name_views(names, "\nUNION ALL\n".join(texts))) if texts else None


def compacted_panes(
    spark: SparkSession, plan: PanePlan, panes: DataFrame, before: int
) -> DataFrame:
    """The panes that are still visible after that instant, in as few rows as possible."""
    with _temp_views(spark) as view:
        return spark.sql(_name_views({"panes": view(panes)}, plan.compaction_sql(before)))


def group_totals(
    spark: SparkSession,
    plan: PanePlan,
    name: str,
    panes: DataFrame,
    at: int,
    before: Totals | None,
) -> DataFrame:
    """The totals of that name at an instant, from earlier ones and what has changed since, or from all
    panes."""
    kept = plan.kept_totals[name]
    with _temp_views(spark) as view:
        shared = isinstance(plan, SharedPanes)
        names = {ALL_PANES if shared else "panes": view(panes)}
        names |= {n: view(spark.createDataFrame(rows())) for n, rows in kept.constants.items()}
        if before is not None:
            names["totals"] = view(before.frame)
        text = kept.sql(at, None if before is None else before.at)
        return spark.sql(_name_views(names, text))


def read_totals(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.parquet(escape_path(path))


def converted_panes(
    spark: SparkSession, plan: SharedPanes, before: SharedPanes, panes: DataFrame
) -> DataFrame:
    """The panes of a plan, from those of a plan for more queries."""
    with _temp_views(spark) as view:
        return spark.sql(_name_views({ALL_PANES: view(panes)}, plan.conversion_sql(before)))


def panes_schema(spark: SparkSession, plan: PanePlan) -> StructType:
    """The columns of a unit's panes, as Spark has them."""
    with _temp_views(spark) as view:
        # Planned over inputs without tuples: Spark says the types, and runs nothing.
        views = {a: view(read_tuples(spark, scan.schema, [])) for a, scan in plan.scans}
        for alias, table in plan.tables:
            views[alias] = view(spark.createDataFrame([], stream_schema(table.schema)))
        return spark.sql(plan.delta_sql([plan.term_sql(list(views), TermViews(views))])).schema


def read_panes(spark: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(escape_path, paths))


def build_panes(
    spark: SparkSession,
    plan: PanePlan,
    windows: Mapping[str, DataFrame],
    tables: Mapping[str, DataFrame],
) -> DataFrame:
    """The panes of what windows hold, of which some are ROWS windows."""
    with _temp_views(spark) as view:
        views = {alias: view(tables[alias]) for alias, _ in plan.tables}
        for alias, scan in plan.scans:
            name = view(windows[alias])
            views[alias] = (
                rows_window_sql(name, scan.window) if isinstance(scan.window, Rows) else name
            )
        order = order_term(plan.block, plan.scans[0][0], {}, {}).order
        return spark.sql(plan.delta_sql([plan.term_sql(order, TermViews(views))]))


MAX_WRITTEN_ROWS = 200
"""Tables of constants with more rows than these are given to Spark as data instead of text."""


def lifetime_results(
    spark: SparkSession,
    statements: Sequence[LifetimeStatement],
    windows: Mapping[str, DataFrame],
    rows: Mapping[str, int],
    tables: Mapping[str, DataFrame],
    due: DueInstants,
    new_rows: int,
) -> DataFrame:
    """What statements with the same slides emit at the instants due, over windows that hold so many rows; so
    many of all rows are new."""
    instants = due.instants
    with _temp_views(spark) as view:
        # Every call of Spark takes some milliseconds: what several statements read is one view, and
        # all statements are one text.
        views = {alias: view(frame) for alias, frame in {**windows, **tables}.items()}
        texts = []
        for statement in statements:
            before = last_instant_until(statement.slides, due.before)
            read = sum(rows[alias] for alias in {*statement.views.values()} if alias in rows)
            timeline = statement.timeline(before, instants, read, new_rows)
            named = {name: f"SELECT * FROM {views[a]}" for name, a in statement.views.items()}
            for name, constants in statement.constants.items():
                named[name] = _constants_sql(spark, constants, view)
            if reads_instants(timeline, statement.query.output):
                if INSTANTS not in views:
                    views[INSTANTS] = view(_listed_frame(spark, before, instants))
                named[INSTANTS] = f"SELECT * FROM {views[INSTANTS]}"
            texts.append(with_views(named, statement.result_sql(timeline, len(instants) + 1)))
        if len(texts) == 1:
            return spark.sql(texts[0])
        return spark.sql("\nUNION ALL\n".join(f"SELECT * FROM ({text})" for text in texts))


def _constants_sql(
    spark: SparkSession, table: ConstantsTable, view: Callable[[DataFrame], str]
) -> str:
    """A table of constants as SQL: with few rows written out, which Spark plans without reading anything."""
    types = [field.type for field in table.scan.schema.fields]
    names = [*(quote_identifier(name) for name in table.scan.schema.names), ARRIVAL]
    if len(table.rows) > MAX_WRITTEN_ROWS:
        columns = [
            pa.array([row[n] for row in table.rows], arrow_type(type_))
            for n, type_ in enumerate(types)
        ]
        numbers = pa.array(range(len(table.rows)), pa.int64())
        listed = pa.table([*columns, numbers], [*table.scan.schema.names, ARRIVAL])
        return f"SELECT * FROM {view(spark.createDataFrame(listed))}"
    rows = (
        ", ".join(
            [
                *(
                    f"CAST({expression_sql(Literal(value, type_), str)} AS {spark_type(type_)})"
                    for value, type_ in zip(row, types, strict=True)
                ),
                f"{number}L",
            ]
        )
        for number, row in enumerate(table.rows)
    )
    return f"SELECT * FROM VALUES {', '.join(f'({row})' for row in rows)} AS t({', '.join(names)})"


def _listed_frame(spark: SparkSession, before: int | None, instants: Sequence[int]) -> DataFrame:
    """The instants, those before them first, as one array."""
    shown = [*([] if before is None else [before]), *instants]
    return spark.createDataFrame(pa.table({"ts": pa.array([shown], pa.list_(pa.int64()))}))


def carried_tuples(window: Rows, tuples: DataFrame, instant: int) -> DataFrame:
    """The tuples that a ROWS window holds after an instant, of those it held before and since."""
    with _temp_views(tuples.sparkSession) as view:
        rows = rows_window_sql(view(tuples), window)
        return tuples.sparkSession.sql(
            f"SELECT * EXCEPT ({UNTIL}) FROM {rows} WHERE {UNTIL} > {instant}"
        )


def _instants_frame(spark: SparkSession, before: int | None, instants: Sequence[int]) -> DataFrame:
    """The instants with the one that follows each; the last one evaluated before comes first."""
    shown = [*([] if before is None else [before]), *instants]
    following: list[int | None] = [*shown[1:], None]
    table = pa.table({"t": pa.array(shown, pa.int64()), "next": pa.array(following, pa.int64())})
    return spark.createDataFrame(table)


def _name_views(names: Mapping[str, str], text: str) -> str:
    """A query in which views go by the names that it has for them."""
    return with_views({name: f"SELECT * FROM {view}" for name, view in names.items()}, text)


# ---- segments


def escape_path(path: str) -> str:
    """A path for Spark, which takes one with brackets or stars, as a state directory may have, for a
    pattern."""
    return re.sub(r"[\\*?\[\]{}]", r"\\\g<0>", path)


def overlapping_segments(
    segments: Iterable[Segment], low: int | None, high: int | None
) -> tuple[Segment, ...]:
    """The segments that may hold a tuple of those times, both ends in."""
    return tuple(
        s
        for s in segments
        if s.rows
        and (low is None or s.largest_time is None or s.largest_time >= low)
        and (high is None or s.least_time is None or s.least_time <= high)
    )


def read_tuples(
    spark: SparkSession,
    schema: Schema,
    paths: Sequence[str],
    least: int | None = None,
    largest: int | None = None,
) -> DataFrame:
    """Tuples of a stream's segments, of times between the two."""
    columns = stream_schema(schema)
    if not paths:  # Spark's reader refuses to read nothing
        return spark.createDataFrame([], columns)
    frame = spark.read.schema(columns).parquet(*map(escape_path, paths))
    conditions = [] if least is None else [f"{TIME} >= {least}"]
    if largest is not None:
        conditions.append(f"{TIME} <= {largest}")
    return frame.where(" AND ".join(conditions)) if conditions else frame


@contextmanager
def _temp_views(spark: SparkSession) -> Iterator[Callable[[DataFrame], str]]:
    """Names for frames, visible to SQL until the end of the block."""
    names: list[str] = []

    def view(frame: DataFrame) -> str:
        names.append(f"headwater_{next(_numbers)}")  # unique: threads share one session
        frame.createOrReplaceTempView(names[-1])
        return names[-1]

    try:
        yield view
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
