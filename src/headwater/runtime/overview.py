"""How everything stands, read from the catalog alone: what the live view, `show` and `status` print.

Lags and watermarks are in event time, so they mean the same for input that is live and for input
that is replayed at any speed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import CatalogError
from headwater.reuse.member import EVERYTHING, Member
from headwater.runtime.catalog import (
    LONGEST_LEASE,
    Catalog,
    Lease,
    QueryRow,
    Segment,
    Statistic,
    StreamRow,
    UnitRow,
    is_ahead,
    stream_log,
    unit_log,
)
from headwater.runtime.claims import is_dead
from headwater.runtime.delivery import delivery
from headwater.runtime.rates import WAITS, decayed
from headwater.runtime.scheduling import Pending, expected, pending
from headwater.runtime.subscribers import MEMBERS, member_of
from headwater.runtime.unit_progress import INSTANTS, is_more_due

if TYPE_CHECKING:
    from headwater.runtime.rowcounts import Counted


@dataclass(frozen=True)
class StreamView:
    """A stream: what came, how much comes in a second now, and what of it the slowest unit has not
    taken in yet: how many rows (`pending`), and how many microseconds of event time (`lag`).

    `waits_for` are the queries whose unit is so far behind that nothing is taken in.
    """

    row: StreamRow
    rows: int
    bytes: int
    pending: int
    lag: int
    rate: float
    bytes_rate: float
    waits_for: tuple[str, ...]

    @property
    def state(self) -> str:
        return "ended" if self.row.ended else "waits" if self.waits_for else "open"


@dataclass(frozen=True)
class UnitView:
    """A unit: its queries, what it has not taken in yet (rows, and microseconds of event time), the
    rows it has put out, and of its steps the number, the usual seconds and those of the last.

    `wait` is for how many seconds the oldest of what is pending is there. A slowdown is such a time by
    the seconds of a step that nothing waits for: `slowdown` is that of the wait, and
    `usual_slowdown` that of the unit's results on average. `more_due` says that its last step left
    instants to the next.
    """

    row: UnitRow
    state: str
    queries: tuple[str, ...]
    pending: int
    lag: int
    rows: int
    bytes: int
    steps: int
    seconds: float | None
    last: float | None
    wait: float | None = None
    slowdown: float | None = None
    usual_slowdown: float | None = None
    more_due: bool = False


@dataclass(frozen=True)
class QueryView:
    """A query, the number of its results, and of those that its sink has not got (`undelivered`),
    with the reason if sending them fails."""

    row: QueryRow
    rows: int
    undelivered: int = 0
    sink_error: str = ""
    unit: UnitRow | None = None

    @property
    def state(self) -> str:
        """Its own, unless its unit is parked: then it is too."""
        is_parked = self.unit is not None and self.unit.state == "parked"
        return "parked" if is_parked and self.row.state == "running" else self.row.state

    @property
    def error(self) -> str:
        """Why it does not go on, if it does not."""
        return self.row.error or (self.unit.error if self.unit else "") or self.sink_error


@dataclass(frozen=True)
class Overview:
    """All streams, units and queries at about the same time."""

    streams: tuple[StreamView, ...]
    units: tuple[UnitView, ...]
    queries: tuple[QueryView, ...]

    @property
    def pending(self) -> int:
        """The rows of all streams that a running unit has not taken in yet."""
        return sum(stream.pending for stream in self.streams)

    @property
    def units_due(self) -> int:
        """How many running units have instants to answer of what they have taken in already."""
        return sum(unit.more_due for unit in self.units)

    @property
    def undelivered(self) -> int:
        """The results that sinks have not got yet."""
        return sum(query.undelivered for query in self.queries)


@dataclass
class _Run:
    """Segments that were written for the same queries, and what all of them hold together."""

    segments: tuple[Segment, ...]
    counted: Counted | None = None

    def __post_init__(self) -> None:
        self.first = min(segment.seq for segment in self.segments)
        self.least = min(segment.least_time or 0 for segment in self.segments)
        self.largest = max(segment.largest_time or 0 for segment in self.segments)


@dataclass
class Observer:
    """Reads overviews of one catalog, and remembers what cannot change between them."""

    catalog: Catalog
    _runs: dict[str, list[_Run]] = field(default_factory=dict)
    _counted: dict[tuple[int, int | None, int | None], Counted] = field(default_factory=dict)

    def overview(self, queries: bool = True) -> Overview:
        """All there is; without queries nobody waits until their rows are counted, for which files may
        have to be read."""
        self._runs = {}
        rows = self.catalog.units()
        cursors = {row.id: self.catalog.cursors(row.id) for row in rows}
        streams = {stream_log(row.name): row for row in self.catalog.streams()}
        measured = self.catalog.all_statistics()
        members = {row.id: self.catalog.members(row.id) for row in rows}
        backlogs = _Backlogs(self)
        waiting = pending(self.catalog, [row for row in rows if row.state == "running"])
        running = [row for row in rows if row.state == "running"]

        def stream(log: str, row: StreamRow) -> StreamView:
            readers = {u.id: cursors[u.id] for u in running if log in u.inputs}
            return self._stream(row, readers, members, measured.get(log, {}), backlogs)

        def unit(row: UnitRow) -> UnitView:
            found = measured.get(row.id, {})
            view = self._unit(row, members[row.id], cursors[row.id], streams, found, backlogs)
            return _with_wait(view, waiting.get(row.id), found)

        return Overview(
            tuple(stream(log, row) for log, row in streams.items()),
            tuple(map(unit, rows)),
            self.queries(self.catalog.queries(), rows) if queries else (),
        )

    def queries(
        self, rows: Iterable[QueryRow], units: Sequence[UnitRow] | None = None
    ) -> tuple[QueryView, ...]:
        """Queries as they stand, `units` being all there are."""
        self._runs = {}
        found = {unit.id: unit for unit in (self.catalog.units() if units is None else units)}
        with self.catalog.snapshot():
            return tuple(self._viewed(row, found.get(row.unit_id)) for row in rows)

    def _viewed(self, row: QueryRow, unit: UnitRow | None) -> QueryView:
        if row.sink is None:
            return QueryView(row, self.results(row), unit=unit)
        sent = delivery(self.catalog, row)
        error = str(sent.failure.get("error", ""))
        return QueryView(row, self.results(row), self.results(row, sent.seq), error, unit)

    def results(self, query: QueryRow, after: int = 0) -> int:
        """How many results a query has after a sequence number; only segments across its start or
        end are looked into."""
        if query.unsettled:
            return 0
        return sum(self._of_run(query, run, after) for run in self._log(query.unit_id))

    def _log(self, unit_id: str) -> list[_Run]:
        """The segments of a unit's log, looked up once for all its queries; those of one version of its
        members together, so that most queries need not look at each."""
        if unit_id not in self._runs:
            runs: dict[Any, list[Segment]] = {}
            for segment in self.segments(unit_log(unit_id)):
                if segment.least_time is not None and segment.largest_time is not None:
                    runs.setdefault((segment.keys or {}).get(MEMBERS), []).append(segment)
            self._runs[unit_id] = [_Run(tuple(found)) for found in runs.values()]
        return self._runs[unit_id]

    def _of_run(self, query: QueryRow, run: _Run, after: int) -> int:
        start, end = query.start_at, query.end_at
        if (start is not None and run.largest <= start) or (end is not None and run.least > end):
            return 0
        member = member_of(self.catalog, query, run.segments[0])
        if member is None:
            return 0
        within = (start is None or run.least > start) and (end is None or run.largest <= end)
        if within and run.first > after:
            if member == EVERYTHING:
                return sum(segment.rows for segment in run.segments)
            if run.counted is None:
                from headwater.runtime.rowcounts import together

                run.counted = together(self._count(s, None, None, True) for s in run.segments)
            return run.counted.of(member)
        return sum(self._within(query, s, member) for s in run.segments if s.seq > after)

    def _within(self, query: QueryRow, segment: Segment, member: Member) -> int:
        start, end = query.start_at, query.end_at
        least, largest = segment.least_time, segment.largest_time
        assert least is not None and largest is not None
        if (start is not None and largest <= start) or (end is not None and least > end):
            return 0
        if (start is None or least > start) and (end is None or largest <= end):
            start = end = None
            if member == EVERYTHING:
                return segment.rows
        return self._count(segment, start, end, member != EVERYTHING).of(member)

    def _count(self, segment: Segment, start: int | None, end: int | None, shared: bool) -> Counted:
        key = (segment.id, start, end)
        if key not in self._counted:
            from headwater.runtime.rowcounts import count_rows  # only now, as it loads Arrow

            self._counted[key] = count_rows(segment, start, end, shared)
        return self._counted[key]

    def segments(self, log: str, after: int = 0) -> list[Segment]:
        """The segments of a log; none if it was dropped, or compacted, while we looked."""
        try:
            return self.catalog.segments(log, after)
        except CatalogError:
            return []

    def _stream(
        self,
        row: StreamRow,
        readers: Mapping[str, Mapping[str, Any]],
        members: Mapping[str, Sequence[QueryRow]],
        measured: Mapping[str, Statistic],
        backlogs: _Backlogs,
    ) -> StreamView:
        log = stream_log(row.name)
        stats = self.catalog.log_stats(log)
        behind = {unit: backlogs.rows(log, cursors) for unit, cursors in readers.items()}
        slowest = max(behind, key=lambda unit: behind[unit], default=None)
        waits = WAITS in measured and measured[WAITS].value and slowest and behind[slowest]
        now = time.time()
        return StreamView(
            row,
            stats.total_rows,
            stats.bytes,
            max(behind.values(), default=0),
            max((_lag(row, cursors) for cursors in readers.values()), default=0),
            decayed(measured.get("rows_rate"), now),
            decayed(measured.get("bytes_rate"), now),
            tuple(q.spelled for q in members[slowest] if not q.hidden) if waits and slowest else (),
        )

    def _unit(
        self,
        row: UnitRow,
        members: Sequence[QueryRow],
        cursors: Mapping[str, Any],
        streams: Mapping[str, StreamRow],
        measured: Mapping[str, Statistic],
        backlogs: _Backlogs,
    ) -> UnitView:
        inputs = [name for name in row.inputs if name in streams]
        try:
            stats = self.catalog.log_stats(unit_log(row.id))
            rows, size = stats.total_rows, stats.bytes
        except CatalogError:  # dropped while we looked
            rows = size = 0
        finished = bool(members) and all(query.state == "finished" for query in members)
        values = {name: found.value for name, found in measured.items()}
        return UnitView(
            row,
            "finished" if finished else row.state,
            tuple(query.spelled for query in members if not query.hidden),
            sum(backlogs.rows(name, cursors) for name in inputs),
            max((_lag(streams[name], cursors) for name in inputs), default=0),
            rows,
            size,
            int(values.get("steps", 0)),
            values.get("step_seconds"),
            values.get("last_seconds"),
            more_due=row.state == "running" and is_more_due(cursors.get(INSTANTS)),
        )


def _with_wait(
    view: UnitView, waiting: Pending | None, measured: Mapping[str, Statistic]
) -> UnitView:
    values = {name: found.value for name, found in measured.items()}
    step = expected(values)
    wait = None if waiting is None else max(0.0, time.time() - waiting.since)
    told = values.get("rows_out", 0.0)
    if step is None:
        return replace(view, wait=wait)
    return replace(
        view,
        wait=wait,
        slowdown=None if wait is None else wait / step.ideal,
        usual_slowdown=values.get("response_sum", 0.0) / told / step.ideal if told else None,
    )


def _lag(stream: StreamRow, cursors: Mapping[str, Any]) -> int:
    """How far a reader is behind the watermark of a stream; 0 if it has not begun."""
    taken = _reached(cursors, stream_log(stream.name)).get("watermark")
    mark = stream.watermark
    return 0 if mark is None or taken is None else max(0, mark - taken)


@dataclass
class _Backlogs:
    """How many rows a log has after a cursor, looked up once for units that are equally far."""

    observer: Observer
    _known: dict[tuple[str, int], int] = field(default_factory=dict)

    def rows(self, log: str, cursors: Mapping[str, Any]) -> int:
        key = (log, _reached(cursors, log).get("seq", 0))
        if key not in self._known:
            self._known[key] = sum(segment.rows for segment in self.observer.segments(*key))
        return self._known[key]


def _reached(cursors: Mapping[str, Any], log: str) -> Mapping[str, Any]:
    return cursors.get(log) or {}


def holders(leases: Iterable[Lease], now: float | None = None) -> dict[str, float]:
    """The processes that run the streams and units now, and the seconds until their claims end;
    those that are known to be dead are left out."""
    at = time.time() if now is None else now
    found: dict[str, float] = {}
    for lease in leases:
        if is_ahead(lease.expires_at, at, LONGEST_LEASE) and not is_dead(lease.holder):
            found[lease.holder] = max(found.get(lease.holder, 0.0), lease.expires_at - at)
    return found
