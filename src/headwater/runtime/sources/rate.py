"""Tuples made by the clock, for tests and benchmarks: a time, and a number that counts them.

Tuple i has the time of the first one plus i times the distance. The first time is in the position, so
a restart goes on with the next number; what fell due meanwhile comes then. When the clock was far ahead
and is set right, the next number is due at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.algebra.catalog import Stream
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import RateOptions
from headwater.runtime.sources.base import MALFORMED, Batch, Position

SECOND = 1_000_000
LONGEST_WAIT = 60 * SECOND
"""If the next tuple is due later than that, the clock was wrong."""


@dataclass(frozen=True)
class Rate:
    """So many tuples in a second, for ever."""

    options: RateOptions
    stream: Stream
    finite: bool = False
    waits: bool = False
    clock: Callable[[], int] = time.time_ns

    def poll(self, spark: SparkSession, position: Position) -> Batch | None:
        now = self.clock() // 1000
        begin = int(position.get("begin", now))
        done = int(position.get("rows", 0))
        passed = done * SECOND // self.options.rows_per_second
        if begin + passed > now + LONGEST_WAIT:
            begin = now - passed
        due = (now - begin) * self.options.rows_per_second // SECOND + 1
        end = min(due, done + self.options.rows_per_step)
        if end <= done:
            return None
        numbers = spark.range(done, end, numPartitions=1)
        at = F.expr(f"timestamp_micros({begin} + id * {SECOND} div {self.options.rows_per_second})")
        time_column = self.stream.schema[self.stream.time].name
        columns = [
            (at if f.name == time_column else F.col("id")).alias(f.name) for f in self.stream.schema
        ]
        nothing = F.lit(None).cast("string").alias(MALFORMED)
        frame = numbers.select(*columns, F.col("id").alias(ARRIVAL), nothing)
        return Batch(frame, {"begin": begin, "rows": end})

    def close(self) -> None:
        """Nothing is held open."""
