"""A Kafka topic as a source, read with Spark's connector by ranges of offsets.

The position is the next offset of every partition and the id of the topic, which distinguishes a
topic that was deleted and recreated from the one that was read before. Offsets that the broker
deleted before they were read are reported, and the stream continues behind them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.algebra.types import Schema
from headwater.errors import InputError
from headwater.runtime.catalog import RejectedRecord
from headwater.runtime.connectors.base import Batch, Position, SourceReplaced, TupleChunk
from headwater.runtime.connectors.kafka.client import (
    Span,
    TopicState,
    check_kafka_connector,
    client_settings,
    topic_id,
    topic_state,
)
from headwater.runtime.connectors.options import KafkaOptions
from headwater.runtime.connectors.record_parser import LINE, read_lines
from headwater.runtime.storage.columns import ARRIVAL

PARTITION_BITS = 12
"""The low bits of an arrival number are the partition, the high bits the offset."""

RETRY_SECONDS = 2.0
"""Shortest pause after a failure before the brokers are asked again."""

RETRY_FACTOR = 6
"""The pause is also at least this many times as long as the failure took."""

FETCH_WAIT_MS = "20"
"""How long a broker waits for more messages; short, as those of a range are all present."""

OffsetRange = tuple[int, int]

_NO_MESSAGES = pa.table({"value": pa.array([], pa.binary()), ARRIVAL: pa.array([], pa.int64())})


@dataclass
class KafkaSource:
    """The messages of a topic, in steps of a bounded number of offsets."""

    options: KafkaOptions
    schema: Schema
    finite: bool = False
    expects_more: bool = False
    _last_error: InputError | None = field(default=None, repr=False)
    _retry_at: float = field(default=0.0, repr=False)

    def poll(self, spark: SparkSession, position: Position) -> Batch | None:
        topic = self._fetch_topic_state(spark)
        spans = topic.spans
        if "offsets" not in position and self.options.start == "latest":
            # The position is committed before anything is read: a restart would else begin at the end
            # as it is then, and skip what came meanwhile.
            return Batch(
                None, _build_position({n: span.end for n, span in spans.items()}, topic.id)
            )
        offsets = {int(n): int(at) for n, at in position.get("offsets", {}).items()}
        self._check_same_topic(position.get("topic_id"), offsets, topic)
        # The topic has its own retention, which does not wait for readers.
        deleted = {n: (at, spans[n].first) for n, at in offsets.items() if at < spans[n].first}
        # A partition that was added to the topic since is read from its beginning.
        begins = {n: max(offsets.get(n, 0), span.first) for n, span in spans.items()}
        counts = allot_messages(self._readable_counts(begins, spans), self.options.rows_per_step)
        ranges = {n: (begins[n], begins[n] + count) for n, count in counts.items() if count}
        if not ranges and not deleted:
            return None
        return Batch(
            [self._read_chunk(spark, ranges, deleted)],
            _build_position({n: begins[n] + counts[n] for n in spans}, topic.id),
            self.locate,
            warnings=tuple(self._describe_losses(deleted)),
            confirm=lambda: self._confirm(spark, topic.id),
        )

    def _readable_counts(
        self, begins: Mapping[int, int], spans: Mapping[int, Span]
    ) -> dict[int, int]:
        """How many offsets of each partition can be read now.

        A reader of committed messages stops at the first open transaction: behind it Spark would
        wait for messages until its timeout.
        """
        committed = self.options.isolation == "read_committed"
        ends = {n: span.stable if committed else span.end for n, span in spans.items()}
        return {n: max(0, ends[n] - at) for n, at in begins.items()}

    def _fetch_topic_state(self, spark: SparkSession) -> TopicState:
        """The state of the topic; shortly after a failure the same error is raised immediately."""
        if self._last_error is not None and time.monotonic() < self._retry_at:
            raise self._last_error
        started = time.monotonic()
        try:
            check_kafka_connector(spark)
            state = topic_state(spark, self.options)
        except InputError as error:
            now = time.monotonic()
            self._last_error = error
            # A cluster that takes long to fail is asked less often, as other streams wait
            # meanwhile.
            self._retry_at = now + max(RETRY_SECONDS, RETRY_FACTOR * (now - started))
            raise
        self._last_error = None
        if max(state.spans, default=0) >> PARTITION_BITS:
            # An arrival number has no more bits for the partition.
            max_partitions = 1 << PARTITION_BITS
            raise InputError(
                f"topic {self.options.topic} has more than {max_partitions} partitions"
            )
        return state

    def _check_same_topic(
        self, id: str | None, offsets: Mapping[int, int], topic: TopicState
    ) -> None:
        """Raise SourceReplaced if the topic is not the one that was read before."""
        name, spans = self.options.topic, topic.spans
        if id is not None and topic.id is not None and id != topic.id:
            total = sum(span.end - span.first for span in spans.values())
            raise SourceReplaced(
                f"topic {name} was deleted and recreated (its id was {id} and is {topic.id} now); "
                f"unread messages of the old topic are lost, and none of the {total:,} offsets of "
                "the new one was read",
                _build_position({}, topic.id),
            )
        for number, at in offsets.items():
            if number not in spans or at > spans[number].end:
                resumed = {n: min(a, spans[n].end) for n, a in offsets.items() if n in spans}
                raise SourceReplaced(
                    f"topic {name} ends before offset {at} of partition {number}, which was read "
                    "already: it was recreated, or brokers have lost messages",
                    _build_position(resumed, topic.id),
                )

    def _confirm(self, spark: SparkSession, id: str | None) -> None:
        """Raise InputError if the topic was recreated while a batch of it was read."""
        current_id = topic_id(spark, self.options)
        if current_id != id:
            raise InputError(f"topic {self.options.topic} was recreated while it was read")

    def _read_chunk(
        self,
        spark: SparkSession,
        ranges: Mapping[int, OffsetRange],
        deleted: Mapping[int, OffsetRange],
    ) -> TupleChunk:
        """The messages of some ranges, and a rejected record for each range that was deleted."""
        messages = self._read_messages(spark, ranges) if ranges else _NO_MESSAGES
        chunk = read_lines(
            messages["value"].to_pylist(),
            self.options.format,
            self.schema,
            self.options.timestamp_unit,
        )
        arrivals = messages[ARRIVAL].take(chunk.table[LINE])
        all_arrivals = messages[ARRIVAL].to_pylist()
        malformed = [
            RejectedRecord(m.reason, m.record, self.locate(all_arrivals[m.line]), m.column)
            for m in chunk.malformed
        ]
        lost = [
            RejectedRecord("gone", text, self.options.topic)
            for text in self._describe_losses(deleted)
        ]
        table = chunk.table.drop_columns([LINE]).append_column(ARRIVAL, arrivals)
        return TupleChunk(table, [*malformed, *lost])

    def locate(self, arrival: int) -> str:
        """Where the message with an arrival number is, for people."""
        partition = arrival & ((1 << PARTITION_BITS) - 1)
        return f"{self.options.topic}/{partition}, offset {arrival >> PARTITION_BITS}"

    def _read_messages(self, spark: SparkSession, ranges: Mapping[int, OffsetRange]) -> pa.Table:
        topic = self.options.topic
        settings = client_settings(self.options)
        reader = spark.read.format("kafka").options(
            **{
                **{f"kafka.{name}": value for name, value in settings.items()},
                "kafka.isolation.level": self.options.isolation,
                # Partitions and offsets are given, so that no consumer group keeps a second position
                # beside that of the catalog.
                "assign": json.dumps({topic: sorted(ranges)}),
                "startingOffsets": json.dumps({topic: {n: a for n, (a, _) in ranges.items()}}),
                "endingOffsets": json.dumps({topic: {n: b for n, (_, b) in ranges.items()}}),
                # Short timeouts: the defaults of minutes would block the ingestion of other
                # streams.
                "kafkaConsumer.pollTimeoutMs": "10000",
                "kafka.fetch.max.wait.ms": FETCH_WAIT_MS,
                "fetchOffset.numRetries": "1",
                "kafka.default.api.timeout.ms": "10000",
                "kafka.request.timeout.ms": "9000",
            }
        )
        arrival = F.shiftleft("offset", PARTITION_BITS).bitwiseOR(F.col("partition"))
        return reader.load().select("value", arrival.alias(ARRIVAL)).toArrow()

    def _describe_losses(self, deleted: Mapping[int, OffsetRange]) -> list[str]:
        return [
            f"offsets {a} to {b - 1} of {self.options.topic}/{n} were deleted unread"
            for n, (a, b) in sorted(deleted.items())
        ]

    def close(self) -> None:
        """Nothing to close."""


def _build_position(offsets: Mapping[int, int], id: str | None) -> Position:
    topic = {} if id is None else {"topic_id": id}
    return {"offsets": {str(n): at for n, at in offsets.items()}, **topic}


def allot_messages(lags: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide a step of at most `limit` messages among partitions, as evenly as their lags allow."""
    # By increasing lag: what a short partition does not use is shared by those that follow.
    counts = {}
    remaining = limit
    for index, number in enumerate(sorted(lags, key=lambda n: lags[n])):
        counts[number] = min(lags[number], -(-remaining // (len(lags) - index)))
        remaining -= counts[number]
    return counts
