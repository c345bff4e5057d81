"""A source that generates tuples at a rate, for tests and benchmarks: a time and a running number.

Tuple i has the time of the first one plus i intervals. The first time is part of the position, so a
restart continues with the next number and catches up. When the clock was far ahead and is set back,
the next tuple is due immediately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.algebra.catalog import Stream
from headwater.runtime.connectors.base import Batch, Position, TupleChunk
from headwater.runtime.connectors.options import RateOptions
from headwater.runtime.storage.columns import ARRIVAL, arrow_type

SECOND = 1_000_000
MAX_WAIT = 60 * SECOND
"""If the next tuple is due later than this, the clock was set back."""


@dataclass(frozen=True)
class RateSource:
    """A fixed number of tuples per second, forever."""

    options: RateOptions
    stream: Stream
    finite: bool = False
    expects_more: bool = False
    clock: Callable[[], int] = time.time_ns

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        now = self.clock() // 1000
        begin = int(position.get("begin", now))
        done = int(position.get("rows", 0))
        passed = done * SECOND // self.options.rows_per_second
        if begin + passed > now + MAX_WAIT:
            begin = now - passed  # shift the schedule rather than wait until the clock catches up
        # The first tuple is due at the beginning itself.
        due = (now - begin) * self.options.rows_per_second // SECOND + 1
        end = min(due, done + self.options.rows_per_step)
        if end <= done:
            return None
        numbers = np.arange(done, end)
        times = begin + numbers * SECOND // self.options.rows_per_second
        time_column = self.stream.schema[self.stream.time].name
        columns = {
            f.name: pa.array(times if f.name == time_column else numbers).cast(arrow_type(f.type))
            for f in self.stream.schema
        }
        table = pa.table({**columns, ARRIVAL: pa.array(numbers)})
        return Batch([TupleChunk(table)], {"begin": begin, "rows": end})

    def close(self) -> None:
        """Nothing to close."""
