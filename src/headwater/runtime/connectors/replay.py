"""Replay of finished files as a source, at a multiple of the original speed.

An event-time clock runs from the first tuple on; a tuple is due when the clock has reached the
largest event time up to it, so the order of arrival is kept. The position holds the rows done and
the clock, which stops while nothing runs.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headwater.algebra.catalog import Stream
from headwater.runtime.catalog import FOREVER, RejectedRecord
from headwater.runtime.connectors.base import Batch, Position, TupleChunk
from headwater.runtime.connectors.files import describe_location, list_files, read_tuples
from headwater.runtime.connectors.options import ReplayOptions
from headwater.runtime.storage.columns import ARRIVAL, TIME
from headwater.runtime.storage.integrity import part_files

SECOND = 1_000_000

REJECTED = "_refused"
"""The column of staged rows with the rejected records, each in its position among the others."""


@dataclass
class ReplaySource:
    """The rows of files, each emitted when its time has come."""

    options: ReplayOptions
    stream: Stream
    _has_more: bool = False
    _staged: StagedFile | None = field(default=None, repr=False)
    _clock: ReplayClock | None = field(default=None, repr=False)

    @property
    def finite(self) -> bool:
        return not self._has_more

    @property
    def expects_more(self) -> bool:
        return self._has_more

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        done = list(position.get("files", ()))
        remaining = [f for f in list_files(self.options.path) if f not in done]
        self._has_more = False
        if not remaining:
            return None
        file = position["at"] if position.get("at") in remaining else remaining[0]
        staged = self._stage(file, len(done))
        self._has_more = True
        rows = int(position.get("rows", 0)) if position.get("at") == file else 0
        clock = self._clock_time(position, staged)
        due, largest = staged.due_rows(rows, clock, int(position.get("largest", -FOREVER)))
        if due.num_rows == 0 and not staged.is_end(rows):
            return None
        after = {"files": done, "at": file, "rows": rows + due.num_rows}
        if staged.is_end(rows + due.num_rows):
            # From here on the file is one of those that are done, so rows of it need not be counted.
            after = {"files": [*done, file]}
        after |= {"clock": clock, "largest": largest}
        chunks = [_unstage_rows(due)] if due.num_rows else None
        return Batch(chunks, after, lambda arrival: describe_location(file, arrival))

    def _stage(self, file: str, number: int) -> StagedFile:
        if self._staged is None or self._staged.file != file:
            self.close()
            staged = StagedFile(file, self.options.rows_per_step)
            staged.write(
                _stage_rows(tuples, self.stream)
                for tuples in read_tuples(file, self.options, self.stream.schema, number)
            )
            self._staged = staged
        return self._staged

    def _clock_time(self, position: Position, staged: StagedFile) -> int:
        """The time of the clock; in a new process it continues from the position."""
        if self._clock is None:
            # Time in which no process ran does not count: all that came due in it would arrive at once.
            begin = position.get("clock")
            self._clock = ReplayClock(staged.first_time() if begin is None else int(begin))
        return self._clock.now(self.options.speed)

    def close(self) -> None:
        """Remove the staged copy of the current file."""
        if self._staged is not None:
            self._staged.close()
        self._staged = None


def _stage_rows(tuples: TupleChunk, stream: Stream) -> pa.Table:
    """Tuples with their times, and rejected records among them, in the order of the file."""
    times = pc.cast(tuples.table[stream.schema[stream.time].name], pa.int64())
    table = tuples.table.append_column(TIME, times)
    rejected = pa.nulls(table.num_rows, pa.string())
    table = table.append_column(REJECTED, rejected)
    if tuples.rejected:
        rejected_columns = {
            ARRIVAL: pa.array([r.arrival for r in tuples.rejected], pa.int64()),
            REJECTED: pa.array([json.dumps(r) for r in tuples.rejected], pa.string()),
        }
        rejected_rows = pa.table(rejected_columns)
        for column in table.schema:
            if column.name not in rejected_columns:
                rejected_rows = rejected_rows.append_column(
                    column, pa.nulls(rejected_rows.num_rows, column.type)
                )
        table = pa.concat_tables([table, rejected_rows.select(table.column_names)]).sort_by(ARRIVAL)
    return table


def _unstage_rows(due: pa.Table) -> TupleChunk:
    """Staged rows as the chunk that was read."""
    fits = pc.is_null(due[REJECTED])
    rejected = [RejectedRecord(*json.loads(text)) for text in due[REJECTED].drop_null().to_pylist()]
    return TupleChunk(due.filter(fits).drop_columns([TIME, REJECTED]), rejected)


class ReplayClock:
    """An event-time clock driven by the monotonic clock."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self._since = time.monotonic()

    def now(self, speed: float) -> int:
        return self._begin + int((time.monotonic() - self._since) * speed * SECOND)


class StagedFile:
    """A parsed file as Parquet in a temporary folder, in its original order, read chunk by chunk.

    Polls read a few rows at a time; parsing the file again for each would take quadratic time.
    """

    def __init__(self, file: str, rows: int) -> None:
        self.file = file
        self._rows = rows
        self._temp_dir = tempfile.TemporaryDirectory(prefix="headwater-replay-")
        self.folder = Path(self._temp_dir.name, "rows")
        self._chunk_start = -1
        self._chunk: pa.Table | None = None

    def close(self) -> None:
        self._temp_dir.cleanup()

    def write(self, tables: Iterator[pa.Table]) -> None:
        """Write the rows of the file."""
        self.folder.mkdir()
        first = next(tables, None)
        if first is not None:
            with pq.ParquetWriter(self.folder / "part-0.parquet", first.schema) as writer:
                for table in itertools.chain([first], tables):
                    writer.write_table(table)

    def first_time(self) -> int:
        """The event time of the first row that has one."""
        for table in self._read_chunks(0):
            times = table[TIME].drop_null()
            if len(times):
                return int(times[0].as_py())
        return -FOREVER

    def is_end(self, rows: int) -> bool:
        """Whether there are no rows after the first `rows`."""
        return bool(
            rows >= sum(pq.read_metadata(part).num_rows for part in part_files(self.folder))
        )

    def due_rows(self, rows: int, clock: int, largest: int) -> tuple[pa.Table, int]:
        """The rows after the first `rows` that are due, and the largest event time up to them."""
        table = self._rows_after(rows)
        # A record without a time, or one that is rejected, is due with what is before it.
        times = pc.fill_null(table[TIME], -FOREVER).combine_chunks()
        # A row out of order is due with the largest time before it: rows keep the order of the file.
        running = pc.cumulative_max(pa.concat_arrays([pa.array([largest], pa.int64()), times]))[1:]
        count = pc.sum(pc.less_equal(running, clock)).as_py() or 0
        return table.slice(0, count), running[count - 1].as_py() if count else largest

    def _rows_after(self, rows: int) -> pa.Table:
        if (
            self._chunk is None
            or not self._chunk_start <= rows < self._chunk_start + self._chunk.num_rows
        ):
            self._chunk = next(self._read_chunks(rows), None)
            self._chunk_start = rows
        if self._chunk is None:
            return pa.table({TIME: pa.array([], pa.int64())})
        return self._chunk.slice(rows - self._chunk_start)

    def _read_chunks(self, skip: int) -> Iterator[pa.Table]:
        """The rows after the first `skip`, in tables of at most a step's size."""
        for part in part_files(self.folder):
            file = pq.ParquetFile(part)
            if skip >= file.metadata.num_rows:
                skip -= file.metadata.num_rows
                continue
            for batch in file.iter_batches(batch_size=self._rows):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                yield pa.Table.from_batches([batch.slice(skip)])
                skip = 0
