"""How everything stands, read from the catalog alone: what the live view, `show` and `status` print.

Lags and watermarks are in event time, so they mean the same for input that is live and for input
that is replayed at any speed.
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class StreamView:
    """A stream: what came, and how far behind it (microseconds) the slowest unit is."""

    row: StreamRow
    rows: int
    bytes: int
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
    """A query and the number of its results."""

    row: QueryRow
    rows: int


@dataclass(frozen=True)
class Overview:
    """All streams, units and queries at about the same time."""

    streams: tuple[StreamView, ...]
    units: tuple[UnitView, ...]
    queries: tuple[QueryView, ...]

    @property
    def pending(self) -> int:
        """The rows that running units have not taken in yet."""
        return sum(unit.pending for unit in self.units if unit.row.state == "running")


@dataclass
class Observer:
    """Reads overviews of one catalog, and remembers what cannot change between them."""

    catalog: Catalog
    _counted: dict[tuple[int, int | None, int | None], int] = field(default_factory=dict)

    def overview(self) -> Overview:
        rows = self.catalog.units()
        cursors = {row.id: self.catalog.cursors(row.id) for row in rows}
        streams = {stream_log(row.name): row for row in self.catalog.streams()}
        return Overview(
            tuple(
                self._stream(row, [cursors[u.id] for u in rows if log in u.inputs])
                for log, row in streams.items()
            ),
            tuple(self._unit(row, cursors[row.id]) for row in rows),
            tuple(QueryView(row, self.results(row)) for row in self.catalog.queries()),
        )

    def results(self, query: QueryRow) -> int:
        """How many results a query has; only segments across its start or end are looked into."""
        return sum(
            self._within(segment, query.start_at, query.end_at)
            for segment in self._segments(unit_log(query.unit_id))
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

    def _segments(self, log: str, after: int = 0) -> list[Segment]:
        """The segments of a log; none if it was dropped, or compacted, while we looked."""
        try:
            return self.catalog.segments(log, after)
        except CatalogError:
            return []

    def _stream(self, row: StreamRow, cursors: Sequence[dict[str, Any]]) -> StreamView:
        stats = self.catalog.log_stats(stream_log(row.name))
        mark = row.watermark
        lag = 0
        if mark is not None:
            taken = (_reached(c, stream_log(row.name)).get("watermark") for c in cursors)
            lag = max((mark - t for t in taken if t is not None), default=0)
        return StreamView(row, stats.total_rows, stats.bytes, lag)

    def _unit(self, row: UnitRow, cursors: dict[str, Any]) -> UnitView:
        fresh = (
            segment
            for name in row.inputs
            if name.startswith("stream:")
            for segment in self._segments(name, _reached(cursors, name).get("seq", 0))
        )
        try:
            stats = self.catalog.log_stats(unit_log(row.id))
            rows, size = stats.total_rows, stats.bytes
        except CatalogError:  # dropped while we looked
            rows = size = 0
        seconds = self.catalog.statistic(row.id, "step_seconds")
        return UnitView(
            row,
            tuple(query.spelled for query in self.catalog.members(row.id)),
            sum(segment.rows for segment in fresh),
            rows,
            size,
            None if seconds is None else seconds.value,
        )


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
    """The processes that run the streams and units now, and the seconds until their claims end."""
    at = time.time() if now is None else now
    found: dict[str, float] = {}
    for lease in leases:
        if lease.expires_at > at:
            found[lease.holder] = max(found.get(lease.holder, 0.0), lease.expires_at - at)
    return found
