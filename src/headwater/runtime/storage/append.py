"""Rows to append to a log: as an Arrow table, and as the segment to register."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headwater.algebra.catalog import Stream
from headwater.algebra.types import Value
from headwater.runtime.catalog import NewSegment
from headwater.runtime.storage.columns import ARRIVAL, TIME, arrow_type
from headwater.runtime.storage.paths import file_name
from headwater.runtime.storage.segment_files import WrittenFile


def build_segment(log: str, written: WrittenFile, watermark: int | None) -> NewSegment:
    """The segment to register for a written file."""
    return NewSegment(
        log=log,
        path=written.path,
        rows=written.rows,
        bytes=written.bytes,
        least_time=written.least_time,
        largest_time=written.largest_time,
        watermark=watermark,
        keys={name: list(span) for name, span in written.ranges.items()} or None,
        on_disk=True,
        digest=written.digest,
    )


def stream_folder(state_dir: Path, name: str) -> Path:
    """The folder of the segment files of a stream."""
    return state_dir / "log" / "streams" / file_name(name)


def build_arrow_table(stream: Stream, rows: Sequence[Sequence[Value]], first: int) -> pa.Table:
    """Rows of a stream as the table of a segment; `first` is the first arrival number."""
    columns: dict[str, pa.Array] = {}
    for n, column in enumerate(stream.schema):
        columns[column.name] = pa.array([row[n] for row in rows], arrow_type(column.type))
    columns[TIME] = pa.array([event_time(stream, row) for row in rows], pa.int64())
    # Arrival numbers identify tuples (`Lifetimes` builds row identities from them), so they
    # must not repeat within a stream.
    columns[ARRIVAL] = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.table(columns)


def event_time(stream: Stream, row: Sequence[Value]) -> int:
    """The event time of a row in microseconds."""
    value = row[stream.schema.names.index(stream.schema[stream.time].name)]
    assert isinstance(value, int)
    return value
