"""One batch of a source: accepted tuples become a segment file, the others rejects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.catalog import Stream
from headwater.runtime.catalog import BatchRejects, RejectedRecord
from headwater.runtime.connectors.base import Batch
from headwater.runtime.ingest.time_bounds import LATE, EventTimeBounds
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import ARRIVAL, TIME

MAX_REJECTS_PER_BATCH = 1_000
"""How many rejects of a batch are kept with their records; all are counted."""
TIME_COLUMNS = (TIME, TIME)

_REASON, _COLUMN = "_reason", "_column"


def ingest_batch(
    batch: Batch, stream: Stream, bounds: EventTimeBounds, folder: Path
) -> tuple[segment_files.WrittenFile | None, BatchRejects]:
    """Write the accepted tuples of a batch; returns the file, if there are any, and the rejects."""
    tally = _RejectTally(batch.locate)
    # Tuples pass through one chunk at a time, so a batch may be larger than the memory; the tally
    # is complete only after the file is written.
    written = segment_files.write_tables(
        _accepted_tuples(batch, stream, bounds, tally), folder, TIME_COLUMNS
    )
    records = tuple(tally.records)
    return written, BatchRejects(stream.name.lower(), tally.malformed, tally.late, records)


@dataclass
class _RejectTally:
    """The rejects of a batch so far: how many, and the first records."""

    locate: Callable[[int], str]
    malformed: int = 0
    late: int = 0
    records: list[RejectedRecord] = field(default_factory=list)

    def add(self, rejected: Sequence[RejectedRecord]) -> None:
        self.malformed += len(rejected)
        self.records += rejected[: MAX_REJECTS_PER_BATCH - len(self.records)]

    def add_rows(self, rows: pa.Table, names: Sequence[str]) -> None:
        late = pc.sum(pc.equal(rows[_REASON], LATE)).as_py() or 0
        self.late += late
        self.malformed += rows.num_rows - late
        for row in rows.slice(0, MAX_REJECTS_PER_BATCH - len(self.records)).to_pylist():
            record = json.dumps({name: row[name] for name in names}, default=str)
            self.records.append(
                RejectedRecord(row[_REASON], record, self.locate(row[ARRIVAL]), row[_COLUMN] or "")
            )


def _accepted_tuples(
    batch: Batch, stream: Stream, bounds: EventTimeBounds, tally: _RejectTally
) -> Iterator[pa.Table]:
    """The tuples of a batch with their times, without those that are rejected or late."""
    for table, rejected in batch.chunks or ():
        tally.add(rejected)
        flagged = _flag_rejects(table, stream, bounds)
        is_good = pc.is_null(flagged[_REASON])
        if not pc.all(is_good).as_py():
            tally.add_rows(flagged.filter(pc.invert(is_good)), stream.schema.names)
            flagged = flagged.filter(is_good)
        yield flagged.drop_columns([_REASON, _COLUMN])


def _flag_rejects(table: pa.Table, stream: Stream, bounds: EventTimeBounds) -> pa.Table:
    """The tuples with event times in microseconds, and the reason and column of each reject."""
    times = pc.cast(table[stream.schema[stream.time].name], pa.int64())
    reason, blamed = pa.nulls(table.num_rows, pa.string()), pa.nulls(table.num_rows, pa.string())
    # Later conditions override earlier ones: a missing value is the reason given first, and a time
    # that is too far from the clock is malformed even if it is late too.
    for bound, is_beyond, message in (
        (bounds.watermark, pc.less, LATE),
        (bounds.earliest, pc.less, bounds.too_early_reason),
        (bounds.latest, pc.greater, bounds.too_late_reason),
    ):
        if bound is not None:
            # A missing time compares to NULL; it is reported as missing below, not as late.
            beyond = pc.fill_null(is_beyond(times, bound), False)
            reason = pc.if_else(beyond, message, reason)
            blamed = pc.if_else(beyond, stream.schema[stream.time].name, blamed)
    # Reversed, so that of several missing values the first column is the one that is reported.
    for column in reversed(stream.schema.fields):
        if not column.nullable:
            is_missing = pc.is_null(table[column.name])
            reason = pc.if_else(is_missing, f"{column.name} is NULL", reason)
            blamed = pc.if_else(is_missing, column.name, blamed)
    flagged = table.select(stream.schema.names)
    added = {TIME: times, ARRIVAL: table[ARRIVAL], _REASON: reason, _COLUMN: blamed}
    for name, values in added.items():
        flagged = flagged.append_column(name, values)
    return flagged
