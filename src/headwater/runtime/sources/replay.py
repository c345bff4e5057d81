"""A finished file, or folder of files, fed at a multiple of the speed at which it happened.

A clock of event time runs from the first tuple on; a tuple goes out when the clock has reached the
largest event time up to it, so the order of arrival is kept. The position holds the rows done and the
clock, which stands still while nothing runs.
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
from headwater.runtime.catalog import Refused
from headwater.runtime.compile import ARRIVAL, TIME
from headwater.runtime.connectors import ReplayOptions
from headwater.runtime.integrity import parts
from headwater.runtime.sources.base import Batch, Position, Tuples
from headwater.runtime.sources.files import list_files, place_of, read_tuples

SECOND = 1_000_000
BEFORE = -(2**62)
"""Earlier than any event."""

REFUSED = "_refused"
"""The column with what is known of a record that does not fit, in its place among the others."""


@dataclass
class Replay:
    """The rows of files, each when its time has come."""

    options: ReplayOptions
    stream: Stream
    _left: bool = False
    _staged: Staged | None = field(default=None, repr=False)
    _clock: Clock | None = field(default=None, repr=False)

    @property
    def finite(self) -> bool:
        return not self._left

    @property
    def waits(self) -> bool:
        return self._left

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        done = list(position.get("files", ()))
        left = [f for f in list_files(self.options.path) if f not in done]
        self._left = False
        if not left:
            return None
        file = position["at"] if position.get("at") in left else left[0]
        staged = self._stage(file, len(done))
        self._left = True
        rows = int(position.get("rows", 0)) if position.get("at") == file else 0
        clock = self._now(position, staged)
        due, largest = staged.due(rows, clock, int(position.get("largest", BEFORE)))
        if due.num_rows == 0 and not staged.ends_at(rows):
            return None
        after = {"files": done, "at": file, "rows": rows + due.num_rows}
        if staged.ends_at(rows + due.num_rows):
            after = {"files": [*done, file]}
        after |= {"clock": clock, "largest": largest}
        pieces = [_tuples(due)] if due.num_rows else None
        return Batch(pieces, after, lambda arrival: place_of(file, arrival))

    def _stage(self, file: str, number: int) -> Staged:
        if self._staged is None or self._staged.file != file:
            self.close()
            staged = Staged(file, self.options.rows_per_step)
            staged.write(
                _staged(tuples, self.stream)
                for tuples in read_tuples(file, self.options, self.stream.schema, number)
            )
            self._staged = staged
        return self._staged

    def _now(self, position: Position, staged: Staged) -> int:
        """Where the clock stands; in a new process it goes on from the position."""
        if self._clock is None:
            begin = position.get("clock")
            self._clock = Clock(staged.first() if begin is None else int(begin))
        return self._clock.now(self.options.speed)

    def close(self) -> None:
        """Remove the copy of the file that is read."""
        if self._staged is not None:
            self._staged.close()
        self._staged = None


def _staged(tuples: Tuples, stream: Stream) -> pa.Table:
    """Tuples with their times, and refused records among them, in the order of the file."""
    times = pc.cast(tuples.table[stream.schema[stream.time].name], pa.int64())
    table = tuples.table.append_column(TIME, times)
    refused = pa.nulls(table.num_rows, pa.string())
    table = table.append_column(REFUSED, refused)
    if tuples.refused:
        others = {
            ARRIVAL: pa.array([r.arrival for r in tuples.refused], pa.int64()),
            REFUSED: pa.array([json.dumps(r) for r in tuples.refused], pa.string()),
        }
        nothing = pa.table(others)
        for column in table.schema:
            if column.name not in others:
                nothing = nothing.append_column(column, pa.nulls(nothing.num_rows, column.type))
        table = pa.concat_tables([table, nothing.select(table.column_names)]).sort_by(ARRIVAL)
    return table


def _tuples(due: pa.Table) -> Tuples:
    """What was staged, as it was read."""
    fits = pc.is_null(due[REFUSED])
    refused = [Refused(*json.loads(text)) for text in due[REFUSED].drop_null().to_pylist()]
    return Tuples(due.filter(fits).drop_columns([TIME, REFUSED]), refused)


class Clock:
    """Event time that runs with the time of this process."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self._since = time.monotonic()

    def now(self, speed: float) -> int:
        return self._begin + int((time.monotonic() - self._since) * speed * SECOND)


class Staged:
    """A file in the order of its rows, as Parquet in a folder of its own, read piece by piece."""

    def __init__(self, file: str, rows: int) -> None:
        self.file = file
        self._rows = rows
        self._place = tempfile.TemporaryDirectory(prefix="headwater-replay-")
        self.folder = Path(self._place.name, "rows")
        self._from = -1
        self._piece: pa.Table | None = None

    def close(self) -> None:
        self._place.cleanup()

    def write(self, tables: Iterator[pa.Table]) -> None:
        """Take over the rows of the file."""
        self.folder.mkdir()
        first = next(tables, None)
        if first is not None:
            with pq.ParquetWriter(self.folder / "part-0.parquet", first.schema) as writer:
                for table in itertools.chain([first], tables):
                    writer.write_table(table)

    def first(self) -> int:
        """The least time of the first row that has one."""
        for table in self._pieces(0):
            times = table[TIME].drop_null()
            if len(times):
                return int(times[0].as_py())
        return BEFORE

    def ends_at(self, rows: int) -> bool:
        """Whether there is no row after so many."""
        return bool(rows >= sum(pq.read_metadata(part).num_rows for part in parts(self.folder)))

    def due(self, rows: int, clock: int, largest: int) -> tuple[pa.Table, int]:
        """The rows after so many that the clock has reached, and the largest time up to them."""
        table = self._after(rows)
        times = pc.fill_null(table[TIME], BEFORE).combine_chunks()
        running = pc.cumulative_max(pa.concat_arrays([pa.array([largest], pa.int64()), times]))[1:]
        count = pc.sum(pc.less_equal(running, clock)).as_py() or 0
        return table.slice(0, count), running[count - 1].as_py() if count else largest

    def _after(self, rows: int) -> pa.Table:
        if self._piece is None or not self._from <= rows < self._from + self._piece.num_rows:
            self._piece = next(self._pieces(rows), None)
            self._from = rows
        if self._piece is None:
            return pa.table({TIME: pa.array([], pa.int64())})
        return self._piece.slice(rows - self._from)

    def _pieces(self, skip: int) -> Iterator[pa.Table]:
        """The rows after so many, in tables of at most a step's size."""
        for part in parts(self.folder):
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
