"""Tuples made by the clock, for tests and benchmarks: a time, and a number that counts them.

Tuple i has the time of the first one plus i times the distance. The first time is in the position, so
a restart goes on with the next number; what fell due meanwhile comes then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.algebra.catalog import Stream
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import RateOptions
from headwater.runtime.sources.base import MALFORMED, Batch, Position

SECOND = 1_000_000


@dataclass(frozen=True)
class Rate:
    """So many tuples in a second, for ever."""

    options: RateOptions
    stream: Stream
    finite: bool = False
    waits: bool = False

    def poll(self, spark: SparkSession, position: Position) -> Batch | None:
        now = time.time_ns() // 1000
        begin = int(position.get("begin", now))
        done = int(position.get("rows", 0))
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
