"""A topic of Kafka, read with Spark's connector from offset to offset.

The position is the next offset of every partition. Offsets that the broker has deleted before they
were read are told as a refused record, and the stream goes on behind them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.algebra.types import Schema
from headwater.errors import InputError
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import KafkaOptions
from headwater.runtime.files import SMALL_ROWS
from headwater.runtime.kafka import Span, check_connector, spans
from headwater.runtime.sources.base import MALFORMED, Batch, Position
from headwater.runtime.sources.lines import parsed
from headwater.runtime.sparksql import quoted, spark_type

PARTITION_BITS = 12
AGAIN_SECONDS = 2.0
"""After a failure the broker is left alone for so long."""

FETCH_WAIT_MS = "20"
"""Messages up to the end of a range are there, so a broker need not wait for more."""

Range = tuple[int, int]


@dataclass
class Kafka:
    """The messages of a topic, in steps of a bounded number of offsets."""

    options: KafkaOptions
    schema: Schema
    finite: bool = False
    waits: bool = False
    _trouble: InputError | None = field(default=None, repr=False)
    _again_at: float = field(default=0.0, repr=False)

    def poll(self, spark: SparkSession, position: Position) -> Batch | None:
        there = self._spans(spark)
        if "offsets" not in position and self.options.start == "latest":
            ends = {str(n): span.end for n, span in there.items()}
            return Batch(None, {"offsets": ends})
        known = {int(n): int(at) for n, at in position.get("offsets", {}).items()}
        gone = self._gone(known, there)
        begins = {n: max(known.get(n, 0), span.first) for n, span in there.items()}
        lags = {n: there[n].end - at for n, at in begins.items()}
        taken = shares(lags, self.options.rows_per_step)
        ranges = {n: (begins[n], begins[n] + count) for n, count in taken.items() if count}
        if not ranges and not gone:
            return None
        offsets = {str(n): begins[n] + taken[n] for n in there}
        small = sum(taken.values()) <= SMALL_ROWS
        return Batch(self._frame(spark, ranges, gone), {"offsets": offsets}, small)

    def _spans(self, spark: SparkSession) -> dict[int, Span]:
        """The topic's offsets; while it is away, the reason is given at once."""
        if self._trouble is not None and time.monotonic() < self._again_at:
            raise self._trouble
        try:
            check_connector(spark)
            found = spans(spark, self.options.servers, self.options.topic)
        except InputError as error:
            self._trouble, self._again_at = error, time.monotonic() + AGAIN_SECONDS
            raise
        self._trouble = None
        if max(found, default=0) >> PARTITION_BITS:
            most = 1 << PARTITION_BITS
            raise InputError(f"topic {self.options.topic} has more than {most} partitions")
        return found

    def _gone(self, known: Mapping[int, int], there: Mapping[int, Span]) -> dict[int, Range]:
        """The offsets that were deleted unread; raises InputError if the topic is another one."""
        gone = {}
        for number, at in known.items():
            if number not in there or at > there[number].end:
                raise InputError(
                    f"topic {self.options.topic} ends before offset {at} of partition {number}, "
                    "which was read already: if it was made anew, drop the stream and declare it again"
                )
            if at < there[number].first:
                gone[number] = (at, there[number].first)
        return gone

    def _frame(
        self, spark: SparkSession, ranges: Mapping[int, Range], gone: Mapping[int, Range]
    ) -> DataFrame:
        lost = self._lost(spark, gone)
        if not ranges:
            return lost
        topic = self.options.topic
        reader = spark.read.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self.options.servers,
                "assign": json.dumps({topic: sorted(ranges)}),
                "startingOffsets": json.dumps({topic: {n: a for n, (a, _) in ranges.items()}}),
                "endingOffsets": json.dumps({topic: {n: b for n, (_, b) in ranges.items()}}),
                "kafkaConsumer.pollTimeoutMs": "10000",
                "kafka.fetch.max.wait.ms": FETCH_WAIT_MS,
                "fetchOffset.numRetries": "1",
                "kafka.default.api.timeout.ms": "10000",
                "kafka.request.timeout.ms": "9000",
            }
        )
        arrival = F.shiftleft("offset", PARTITION_BITS).bitwiseOR(F.col("partition"))
        lines = reader.load().select(F.col("value").cast("string"), arrival.alias(ARRIVAL))
        unit = self.options.timestamp_unit
        records = parsed(lines, self.options.format, self.schema, unit)
        return records.unionByName(lost, allowMissingColumns=True) if gone else records

    def _lost(self, spark: SparkSession, gone: Mapping[int, Range]) -> DataFrame:
        """One refused record for each range of offsets that is not there any more."""
        topic = self.options.topic
        rows = [
            (
                (a << PARTITION_BITS) | n,
                f"offsets {a} to {b - 1} of {topic}/{n} were deleted unread",
            )
            for n, (a, b) in sorted(gone.items())
        ]
        columns = [f"CAST(NULL AS {spark_type(f.type)}) AS {quoted(f.name)}" for f in self.schema]
        frame = spark.createDataFrame(rows, f"{ARRIVAL} BIGINT, {MALFORMED} STRING")
        return frame.selectExpr(*columns, ARRIVAL, MALFORMED)

    def close(self) -> None:
        """Nothing is held open."""


def shares(lags: Mapping[int, int], most: int) -> dict[int, int]:
    """How many messages of each partition make up a step of at most so many, evenly."""
    taken = {}
    left = most
    for place, number in enumerate(sorted(lags, key=lambda n: lags[n])):
        taken[number] = min(lags[number], -(-left // (len(lags) - place)))
        left -= taken[number]
    return taken
