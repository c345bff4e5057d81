"""How everything stands, read from the catalog alone: what the live view, `show` and `status` print.

Lags and watermarks are in event time, so they mean the same for input that is live and for input
that is replayed at any speed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from headwater.errors import CatalogError
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    QueryRow,
    Segment,
    StreamRow,
    UnitRow,
    stream_log,
    unit_log,
)
from headwater.runtime.delivery import delivery


@dataclass(frozen=True)
class StreamView:
    """A stream: what came, and what of it the slowest unit has not taken in yet: how many rows
    (`pending`), and how many microseconds of event time (`lag`)."""

    row: StreamRow
    rows: int
    bytes: int
    pending: int
    lag: int


@dataclass(frozen=True)
class UnitView:
    """A unit: its queries, the rows it has not taken in yet, and those it has put out."""

    row: UnitRow
    queries: tuple[str, ...]
    pending: int
    rows: int
    bytes: int
    seconds: float | None


@dataclass(frozen=True)
class QueryView:
    """A query, the number of its results, and of those that its sink has not got (`undelivered`),
    with the reason if sending them fails."""

    row: QueryRow
    rows: int
    undelivered: int = 0
    sink_error: str = ""


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
    def undelivered(self) -> int:
        """The results that sinks have not got yet."""
        return sum(query.undelivered for query in self.queries)


@dataclass
class Observer:
    """Reads overviews of one catalog, and remembers what cannot change between them."""

    catalog: Catalog
    _counted: dict[tuple[int, int | None, int | None], int] = field(default_factory=dict)

    def overview(self) -> Overview:
        rows = self.catalog.units()
        cursors = {row.id: self.catalog.cursors(row.id) for row in rows}
        streams = {stream_log(row.name): row for row in self.catalog.streams()}
        backlogs = _Backlogs(self)
        running = [row for row in rows if row.state == "running"]
        return Overview(
            tuple(
                self._stream(row, [cursors[u.id] for u in running if log in u.inputs], backlogs)
                for log, row in streams.items()
            ),
            tuple(self._unit(row, cursors[row.id], backlogs) for row in rows),
            tuple(self.query(row) for row in self.catalog.queries()),
        )

    def query(self, row: QueryRow) -> QueryView:
        """A query as it stands."""
        if row.sink is None:
            return QueryView(row, self.results(row))
        sent = delivery(self.catalog, row)
        error = str(sent.failure.get("error", ""))
        return QueryView(row, self.results(row), self.results(row, sent.seq), error)

    def results(self, query: QueryRow, after: int = 0) -> int:
        """How many results a query has after a sequence number; only segments across its start or
        end are looked into."""
        return sum(
            self._within(segment, query.start_at, query.end_at)
            for segment in self.segments(unit_log(query.unit_id), after)
        )

    def _within(self, segment: Segment, start: int | None, end: int | None) -> int:
        least, largest = segment.least_time, segment.largest_time
        if least is None or largest is None:
            return 0
        if (start is None or least > start) and (end is None or largest <= end):
            return segment.rows
        if (start is not None and largest <= start) or (end is not None and least > end):
            return 0
        key = (segment.id, start, end)
        if key not in self._counted:
            self._counted[key] = _count(segment.path, start, end)
        return self._counted[key]

    def segments(self, log: str, after: int = 0) -> list[Segment]:
        """The segments of a log; none if it was dropped, or compacted, while we looked."""
        try:
            return self.catalog.segments(log, after)
        except CatalogError:
            return []

    def _stream(
        self, row: StreamRow, cursors: Sequence[dict[str, Any]], backlogs: _Backlogs
    ) -> StreamView:
        log = stream_log(row.name)
        stats = self.catalog.log_stats(log)
        pending = max((backlogs.rows(log, cursor) for cursor in cursors), default=0)
        mark = row.watermark
        taken = [_reached(cursor, log).get("watermark") for cursor in cursors]
        lag = 0 if mark is None else max((mark - t for t in taken if t is not None), default=0)
        return StreamView(row, stats.total_rows, stats.bytes, pending, lag)

    def _unit(self, row: UnitRow, cursors: dict[str, Any], backlogs: _Backlogs) -> UnitView:
        inputs = [name for name in row.inputs if name.startswith("stream:")]
        try:
            stats = self.catalog.log_stats(unit_log(row.id))
            rows, size = stats.total_rows, stats.bytes
        except CatalogError:  # dropped while we looked
            rows = size = 0
        seconds = self.catalog.statistic(row.id, "step_seconds")
        return UnitView(
            row,
            tuple(query.spelled for query in self.catalog.members(row.id)),
            sum(backlogs.rows(name, cursors) for name in inputs),
            rows,
            size,
            None if seconds is None else seconds.value,
        )


@dataclass
class _Backlogs:
    """How many rows a log has after a cursor, looked up once for units that are equally far."""

    observer: Observer
    _known: dict[tuple[str, int], int] = field(default_factory=dict)

    def rows(self, log: str, cursors: dict[str, Any]) -> int:
        key = (log, _reached(cursors, log).get("seq", 0))
        if key not in self._known:
            self._known[key] = sum(segment.rows for segment in self.observer.segments(*key))
        return self._known[key]


def _reached(cursors: dict[str, Any], log: str) -> dict[str, Any]:
    return cursors.get(log) or {}


def _count(path: str, start: int | None, end: int | None) -> int:
    try:
        tau = files.read_arrow(path, ["_tau"])["_tau"]
    except OSError:  # removed while we looked
        return 0
    kept = pc.is_valid(tau)
    if start is not None:
        kept = pc.and_(kept, pc.greater(tau, start))
    if end is not None:
        kept = pc.and_(kept, pc.less_equal(tau, end))
    return int(pc.sum(kept).as_py() or 0)


def holders(leases: Iterable[Lease], now: float | None = None) -> dict[str, float]:
    """The processes that run the streams and units now, and the seconds until their claims end;
    those that are known to be dead are left out."""
    at = time.time() if now is None else now
    found: dict[str, float] = {}
    for lease in leases:
        if lease.expires_at > at and not is_dead(lease.holder):
            found[lease.holder] = max(found.get(lease.holder, 0.0), lease.expires_at - at)
    return found


def is_dead(holder: str) -> bool:
    """Whether a holder of leases, `host:pid`, was a process of this machine that is no more."""
    host, _, pid = holder.rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
