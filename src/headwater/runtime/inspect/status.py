"""Streams, units and queries as they are now: what the live view, `show` and `status` print.

Lags and watermarks are in event time, so they mean the same for live input and for input that is
replayed at any speed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import CatalogError
from headwater.reuse.row_classes import SOLE_SUBSCRIBER, Subscriber
from headwater.runtime.catalog import (
    Catalog,
    QueryRow,
    Segment,
    Statistic,
    StreamRow,
    TableRow,
    UnitRow,
    describe_connector,
    stream_log,
    unit_log,
)
from headwater.runtime.catalog.records import INSTANTS, has_more_due
from headwater.runtime.inspect.views import JsonRecord, format_instant
from headwater.runtime.metrics.backlog import Backlog, unit_backlogs
from headwater.runtime.metrics.rates import WAITS, current_rate
from headwater.runtime.metrics.registry import MetricSubject, metric_values
from headwater.runtime.metrics.step_estimates import estimate_step
from headwater.runtime.results.sink_progress import read_delivery
from headwater.runtime.results.subscribers import SUBSCRIBERS, subscriber_of

if TYPE_CHECKING:
    from headwater.runtime.results.row_counts import RowCounts


@dataclass(frozen=True)
class StreamView:
    """A stream: its log, its rates, and how far the slowest unit is behind: in rows (`backlog`), and in
    microseconds of event time (`lag`).

    `waits_for` are the queries whose unit is so far behind that the stream ingests nothing.
    """

    row: StreamRow
    rows: int
    bytes: int
    backlog: int
    lag: int
    rate: float
    bytes_rate: float
    waits_for: tuple[str, ...]

    @property
    def state(self) -> str:
        return "ended" if self.row.ended else "waits" if self.waits_for else "open"

    def as_json(self) -> JsonRecord:
        return {
            "stream": self.row.spelled,
            **metric_values(MetricSubject.STREAM, self),
            "watermark": format_instant(self.row.watermark),
            "state": self.state,
            "waits_for": list(self.waits_for),
            "source": declared_source(self.row),
            "definition": self.row.definition,
        }


@dataclass(frozen=True)
class UnitView:
    """A unit: its queries, its backlog (rows, and microseconds of event time), the rows it has emitted,
    the number of its steps, and the seconds of a usual step and of the last one.

    `wait` is for how many seconds the oldest row of the backlog has waited. A slowdown is a response
    time divided by the seconds of a step that nothing waits for: `slowdown` is that of the wait, and
    `mean_slowdown` the mean of the unit's results. `has_more_due` says that its last step left
    instants to the next.
    """

    row: UnitRow
    state: str
    queries: tuple[str, ...]
    backlog: int
    lag: int
    rows: int
    bytes: int
    steps: int
    step_seconds: float | None
    last_seconds: float | None
    wait: float | None = None
    slowdown: float | None = None
    mean_slowdown: float | None = None
    has_more_due: bool = False

    def as_json(self) -> JsonRecord:
        return {
            "unit": self.row.id,
            "state": self.state,
            "queries": list(self.queries),
            **metric_values(MetricSubject.UNIT, self),
            "inputs": list(self.row.inputs),
            "digest": self.row.digest,
            "error": self.row.error or None,
            "definition": self.row.definition,
        }


@dataclass(frozen=True)
class QueryView:
    """A query, the number of its result rows, and the number of those that its sink has not received
    (`undelivered`), with the reason if sending them fails."""

    row: QueryRow
    rows: int
    undelivered: int = 0
    sink_error: str = ""
    unit: UnitRow | None = None

    @property
    def state(self) -> str:
        """Its own state; but a running query whose unit is parked is parked."""
        is_parked = self.unit is not None and self.unit.state == "parked"
        return "parked" if is_parked and self.row.state == "running" else self.row.state

    @property
    def error(self) -> str:
        """Why it makes no progress; empty if it does."""
        return self.row.error or (self.unit.error if self.unit else "") or self.sink_error

    def as_json(self) -> JsonRecord:
        sink = self.row.sink
        return {
            "query": self.row.spelled,
            "state": self.state,
            "rows": self.rows,
            "unit": self.row.unit_id,
            "digest": self.row.digest,
            "start": format_instant(self.row.start_at),
            "end": format_instant(self.row.end_at),
            "sink": None if sink is None else describe_connector(sink["kind"], sink["options"]),
            "undelivered": self.undelivered,
            "error": self.error or None,
            "definition": self.row.definition,
        }


@dataclass(frozen=True)
class Overview:
    """All streams, units and queries at about the same time."""

    streams: tuple[StreamView, ...]
    units: tuple[UnitView, ...]
    queries: tuple[QueryView, ...]

    @property
    def backlog(self) -> int:
        """The rows of all streams that their slowest running unit has not read yet."""
        return sum(stream.backlog for stream in self.streams)

    @property
    def units_with_more_due(self) -> int:
        """How many running units have instants to evaluate over rows that they have read already."""
        return sum(unit.has_more_due for unit in self.units)

    @property
    def undelivered(self) -> int:
        """The result rows that sinks have not received yet."""
        return sum(query.undelivered for query in self.queries)


@dataclass
class _SegmentRun:
    """Segments that were written for the same version of a unit's subscribers, counted together."""

    segments: tuple[Segment, ...]
    counts: RowCounts | None = None

    def __post_init__(self) -> None:
        self.first_seq = min(segment.seq for segment in self.segments)
        self.least_time = min(segment.least_time or 0 for segment in self.segments)
        self.largest_time = max(segment.largest_time or 0 for segment in self.segments)


@dataclass
class Observer:
    """Reads overviews of one catalog, and remembers what cannot change between them."""

    # A segment is never rewritten, so its counts are kept for as long as the observer lives; the runs
    # of a log grow with every step, and are read again for each overview.
    catalog: Catalog
    _runs: dict[str, list[_SegmentRun]] = field(default_factory=dict)
    _counts: dict[tuple[int, int | None, int | None], RowCounts] = field(default_factory=dict)

    def overview(self, queries: bool = True) -> Overview:
        """All streams, units and queries; without `queries` no file is read, as only counting their
        rows needs that."""
        self._runs = {}
        rows = self.catalog.units()
        cursors = {row.id: self.catalog.cursors(row.id) for row in rows}
        streams = {stream_log(row.name): row for row in self.catalog.streams()}
        measured = self.catalog.all_statistics()
        queries_by_unit = {row.id: self.catalog.subscribers(row.id) for row in rows}
        backlogs = _Backlogs(self)
        running = [row for row in rows if row.state == "running"]
        backlogs_by_unit = unit_backlogs(self.catalog, running)

        def stream(log: str, row: StreamRow) -> StreamView:
            readers = {u.id: cursors[u.id] for u in running if log in u.inputs}
            return self._stream_view(row, readers, queries_by_unit, measured.get(log, {}), backlogs)

        def unit(row: UnitRow) -> UnitView:
            statistics = measured.get(row.id, {})
            view = self._unit_view(
                row, queries_by_unit[row.id], cursors[row.id], streams, statistics, backlogs
            )
            return _with_wait(view, backlogs_by_unit.get(row.id), statistics)

        return Overview(
            tuple(stream(log, row) for log, row in streams.items()),
            tuple(map(unit, rows)),
            self.query_views(self.catalog.queries(), rows) if queries else (),
        )

    def query_views(
        self, rows: Iterable[QueryRow], units: Sequence[UnitRow] | None = None
    ) -> tuple[QueryView, ...]:
        """Queries with the number of their rows; `units` are all units, if the caller has them."""
        self._runs = {}
        units_by_id = {unit.id: unit for unit in (self.catalog.units() if units is None else units)}
        with self.catalog.snapshot():
            return tuple(self._query_view(row, units_by_id.get(row.unit_id)) for row in rows)

    def _query_view(self, row: QueryRow, unit: UnitRow | None) -> QueryView:
        if row.sink is None:
            return QueryView(row, self.count_results(row), unit=unit)
        sent = read_delivery(self.catalog, row)
        error = str(sent.failure.get("error", ""))
        return QueryView(
            row, self.count_results(row), self.count_results(row, sent.seq), error, unit
        )

    def count_results(self, query: QueryRow, after: int = 0) -> int:
        """How many result rows a query has after a sequence number. Files are read only for segments
        that lie across its start or end, and for rows that several queries share."""
        if query.has_unknown_end:
            return 0
        return sum(
            self._count_in_run(query, run, after) for run in self._segment_runs(query.unit_id)
        )

    def _segment_runs(self, unit_id: str) -> list[_SegmentRun]:
        """The segments of a unit's log, read once for all its queries and grouped by the version of its
        subscribers, so that most queries need not look at each segment."""
        if unit_id not in self._runs:
            runs: dict[Any, list[Segment]] = {}
            for segment in self.segments(unit_log(unit_id)):
                if segment.least_time is not None and segment.largest_time is not None:
                    runs.setdefault((segment.keys or {}).get(SUBSCRIBERS), []).append(segment)
            self._runs[unit_id] = [
                _SegmentRun(tuple(run_segments)) for run_segments in runs.values()
            ]
        return self._runs[unit_id]

    def _count_in_run(self, query: QueryRow, run: _SegmentRun, after: int) -> int:
        start, end = query.start_at, query.end_at
        if (start is not None and run.largest_time <= start) or (
            end is not None and run.least_time > end
        ):
            return 0
        subscriber = subscriber_of(self.catalog, query, run.segments[0])
        if subscriber is None:
            return 0
        within = (start is None or run.least_time > start) and (
            end is None or run.largest_time <= end
        )
        if within and run.first_seq > after:
            if subscriber == SOLE_SUBSCRIBER:
                return sum(segment.rows for segment in run.segments)
            # All queries of the run ask for the same counts, each for its own row classes.
            if run.counts is None:
                from headwater.runtime.results.row_counts import sum_counts

                run.counts = sum_counts(
                    self._segment_counts(s, None, None, True) for s in run.segments
                )
            return run.counts.count_for(subscriber)
        return sum(
            self._count_in_segment(query, s, subscriber) for s in run.segments if s.seq > after
        )

    def _count_in_segment(self, query: QueryRow, segment: Segment, subscriber: Subscriber) -> int:
        start, end = query.start_at, query.end_at
        least, largest = segment.least_time, segment.largest_time
        assert least is not None and largest is not None
        if (start is not None and largest <= start) or (end is not None and least > end):
            return 0
        if (start is None or least > start) and (end is None or largest <= end):
            # The same key for all queries that have the whole segment, whatever their start and end.
            start = end = None
            if subscriber == SOLE_SUBSCRIBER:
                return segment.rows
        return self._segment_counts(segment, start, end, subscriber != SOLE_SUBSCRIBER).count_for(
            subscriber
        )

    def _segment_counts(
        self, segment: Segment, start: int | None, end: int | None, shared: bool
    ) -> RowCounts:
        key = (segment.id, start, end)
        if key not in self._counts:
            # Imported only here: it loads Arrow, which takes longer than most commands.
            from headwater.runtime.results.row_counts import count_rows

            self._counts[key] = count_rows(segment, start, end, shared)
        return self._counts[key]

    def segments(self, log: str, after: int = 0) -> list[Segment]:
        """The segments of a log; none if it was dropped or compacted concurrently."""
        try:
            return self.catalog.segments(log, after)
        except CatalogError:
            return []

    def _stream_view(
        self,
        row: StreamRow,
        readers: Mapping[str, Mapping[str, Any]],
        queries_by_unit: Mapping[str, Sequence[QueryRow]],
        measured: Mapping[str, Statistic],
        backlogs: _Backlogs,
    ) -> StreamView:
        log = stream_log(row.name)
        stats = self.catalog.log_stats(log)
        behind = {unit: backlogs.rows(log, cursors) for unit, cursors in readers.items()}
        slowest = max(behind, key=lambda unit: behind[unit], default=None)
        # The statistic is written by whoever ingests, and outlives a process that died while it
        # waited.
        waits = WAITS in measured and measured[WAITS].value and slowest and behind[slowest]
        now = time.time()
        return StreamView(
            row,
            stats.total_rows,
            stats.bytes,
            max(behind.values(), default=0),
            max((_lag(row, cursors) for cursors in readers.values()), default=0),
            current_rate(measured.get("rows_rate"), now),
            current_rate(measured.get("bytes_rate"), now),
            tuple(q.spelled for q in queries_by_unit[slowest] if not q.is_hidden)
            if waits and slowest
            else (),
        )

    def _unit_view(
        self,
        row: UnitRow,
        queries: Sequence[QueryRow],
        cursors: Mapping[str, Any],
        streams: Mapping[str, StreamRow],
        measured: Mapping[str, Statistic],
        backlogs: _Backlogs,
    ) -> UnitView:
        inputs = [name for name in row.inputs if name in streams]
        try:
            stats = self.catalog.log_stats(unit_log(row.id))
            rows, size = stats.total_rows, stats.bytes
        except CatalogError:  # dropped concurrently
            rows = size = 0
        finished = bool(queries) and all(query.state == "finished" for query in queries)
        values = {name: statistic.value for name, statistic in measured.items()}
        return UnitView(
            row,
            "finished" if finished else row.state,
            tuple(query.spelled for query in queries if not query.is_hidden),
            sum(backlogs.rows(name, cursors) for name in inputs),
            max((_lag(streams[name], cursors) for name in inputs), default=0),
            rows,
            size,
            int(values.get("steps", 0)),
            values.get("step_seconds"),
            values.get("last_seconds"),
            has_more_due=row.state == "running" and has_more_due(cursors.get(INSTANTS)),
        )


def _with_wait(
    view: UnitView, backlog: Backlog | None, measured: Mapping[str, Statistic]
) -> UnitView:
    values = {name: statistic.value for name, statistic in measured.items()}
    step = estimate_step(values)
    wait = None if backlog is None else max(0.0, time.time() - backlog.since)
    rows_out = values.get("rows_out", 0.0)
    if step is None:
        return replace(view, wait=wait)
    return replace(
        view,
        wait=wait,
        slowdown=None if wait is None else wait / step.ideal,
        mean_slowdown=values.get("response_sum", 0.0) / rows_out / step.ideal if rows_out else None,
    )


def _lag(stream: StreamRow, cursors: Mapping[str, Any]) -> int:
    """How far a reader is behind the watermark of a stream; 0 if it has read nothing yet."""
    reader_watermark = _position(cursors, stream_log(stream.name)).get("watermark")
    mark = stream.watermark
    return 0 if mark is None or reader_watermark is None else max(0, mark - reader_watermark)


@dataclass
class _Backlogs:
    """How many rows a log has after a cursor, computed once for all units at the same position."""

    observer: Observer
    _rows_by_position: dict[tuple[str, int], int] = field(default_factory=dict)

    def rows(self, log: str, cursors: Mapping[str, Any]) -> int:
        key = (log, _position(cursors, log).get("seq", 0))
        if key not in self._rows_by_position:
            self._rows_by_position[key] = sum(
                segment.rows for segment in self.observer.segments(*key)
            )
        return self._rows_by_position[key]


def _position(cursors: Mapping[str, Any], log: str) -> Mapping[str, Any]:
    return cursors.get(log) or {}


def declared_source(row: StreamRow | TableRow) -> str:
    """Where a stream or table reads from, in a few words."""
    if row.source is not None:
        return row.source
    # Declared by a release that did not store it. Parsing loads sqlglot, which is slow, so only here.
    from headwater.cql import CreateStream, CreateTable, parse

    (statement,) = parse(row.definition)
    assert isinstance(statement, CreateStream | CreateTable)
    source = statement.source
    return "client" if source is None else describe_connector(source.kind, dict(source.options))
