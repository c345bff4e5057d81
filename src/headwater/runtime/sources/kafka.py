"""A topic of Kafka, read with Spark's connector from offset to offset.

The position is the next offset of every partition and the id of the topic, which tells a topic that
was deleted and made again from the one that was read before. Offsets that the broker has deleted
before they were read are reported, and the stream goes on behind them.
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
from headwater.runtime.catalog import Refused
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import KafkaOptions
from headwater.runtime.kafka import (
    Span,
    TopicState,
    check_connector,
    client_settings,
    topic_id,
    topic_state,
)
from headwater.runtime.sources.base import Batch, Position, SourceReplaced, Tuples
from headwater.runtime.sources.parse import LINE, read_lines

PARTITION_BITS = 12
AGAIN_SECONDS = 2.0
"""After a failure the broker is left alone for so long, or longer:"""

AGAIN_FACTOR = 6
"""so many times as long as it took to fail."""

FETCH_WAIT_MS = "20"
"""Messages up to the end of a range are there, so a broker need not wait for more."""

Range = tuple[int, int]

_NO_MESSAGES = pa.table({"value": pa.array([], pa.binary()), ARRIVAL: pa.array([], pa.int64())})


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
        topic = self._topic(spark)
        there = topic.spans
        if "offsets" not in position and self.options.start == "latest":
            return Batch(None, _position({n: span.end for n, span in there.items()}, topic.id))
        known = {int(n): int(at) for n, at in position.get("offsets", {}).items()}
        self._check_same(position.get("topic_id"), known, topic)
        gone = {n: (at, there[n].first) for n, at in known.items() if at < there[n].first}
        begins = {n: max(known.get(n, 0), span.first) for n, span in there.items()}
        taken = shares(self._lags(begins, there), self.options.rows_per_step)
        ranges = {n: (begins[n], begins[n] + count) for n, count in taken.items() if count}
        if not ranges and not gone:
            return None
        return Batch(
            [self._tuples(spark, ranges, gone)],
            _position({n: begins[n] + taken[n] for n in there}, topic.id),
            self.place,
            warnings=tuple(self._losses(gone)),
            confirm=lambda: self._confirm(spark, topic.id),
        )

    def _lags(self, begins: Mapping[int, int], there: Mapping[int, Span]) -> dict[int, int]:
        """How many offsets of each partition can be read. Up to the end of what is stable, a reader
        of committed messages is not made to wait, whatever offsets hold no message for it."""
        committed = self.options.isolation == "read_committed"
        ends = {n: span.stable if committed else span.end for n, span in there.items()}
        return {n: max(0, ends[n] - at) for n, at in begins.items()}

    def _topic(self, spark: SparkSession) -> TopicState:
        """The topic; while it is away, the reason is given at once."""
        if self._trouble is not None and time.monotonic() < self._again_at:
            raise self._trouble
        begun = time.monotonic()
        try:
            check_connector(spark)
            found = topic_state(spark, self.options)
        except InputError as error:
            now = time.monotonic()
            self._trouble = error
            # One that takes long to fail is asked less often, as others wait for the thread.
            self._again_at = now + max(AGAIN_SECONDS, AGAIN_FACTOR * (now - begun))
            raise
        self._trouble = None
        if max(found.spans, default=0) >> PARTITION_BITS:
            most = 1 << PARTITION_BITS
            raise InputError(f"topic {self.options.topic} has more than {most} partitions")
        return found

    def _check_same(self, id: str | None, known: Mapping[int, int], topic: TopicState) -> None:
        """Raises SourceReplaced if the topic is not the one that was read before."""
        name, there = self.options.topic, topic.spans
        if id is not None and topic.id is not None and id != topic.id:
            held = sum(span.end - span.first for span in there.values())
            raise SourceReplaced(
                f"topic {name} was deleted and made again (its id was {id} and is {topic.id} now); "
                f"what was not read before is gone, and of the {held:,} offsets that it has now "
                "none was read",
                _position({}, topic.id),
            )
        for number, at in known.items():
            if number not in there or at > there[number].end:
                kept = {n: min(a, there[n].end) for n, a in known.items() if n in there}
                raise SourceReplaced(
                    f"topic {name} ends before offset {at} of partition {number}, which was read "
                    "already: it was made again, or brokers have lost messages",
                    _position(kept, topic.id),
                )

    def _confirm(self, spark: SparkSession, id: str | None) -> None:
        """Raises InputError if the topic was made again while a batch of it was read."""
        found = topic_id(spark, self.options)
        if found != id:
            raise InputError(f"topic {self.options.topic} was made again while it was read")

    def _tuples(
        self, spark: SparkSession, ranges: Mapping[int, Range], gone: Mapping[int, Range]
    ) -> Tuples:
        """The messages of some offsets, and a refused record for each range that is gone."""
        messages = self._messages(spark, ranges) if ranges else _NO_MESSAGES
        piece = read_lines(
            messages["value"].to_pylist(),
            self.options.format,
            self.schema,
            self.options.timestamp_unit,
        )
        arrivals = messages[ARRIVAL].take(piece.table[LINE])
        known = messages[ARRIVAL].to_pylist()
        refused = [
            Refused(m.why, m.record, self.place(known[m.line]), m.column) for m in piece.misfits
        ]
        lost = [Refused("gone", text, self.options.topic) for text in self._losses(gone)]
        table = piece.table.drop_columns([LINE]).append_column(ARRIVAL, arrivals)
        return Tuples(table, [*refused, *lost])

    def place(self, arrival: int) -> str:
        """Where a message is, for people."""
        partition = arrival & ((1 << PARTITION_BITS) - 1)
        return f"{self.options.topic}/{partition}, offset {arrival >> PARTITION_BITS}"

    def _messages(self, spark: SparkSession, ranges: Mapping[int, Range]) -> pa.Table:
        topic = self.options.topic
        settings = client_settings(self.options)
        reader = spark.read.format("kafka").options(
            **{
                **{f"kafka.{name}": value for name, value in settings.items()},
                "kafka.isolation.level": self.options.isolation,
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
        return reader.load().select("value", arrival.alias(ARRIVAL)).toArrow()

    def _losses(self, gone: Mapping[int, Range]) -> list[str]:
        return [
            f"offsets {a} to {b - 1} of {self.options.topic}/{n} were deleted unread"
            for n, (a, b) in sorted(gone.items())
        ]

    def close(self) -> None:
        """Nothing is held open."""


def _position(offsets: Mapping[int, int], id: str | None) -> Position:
    known = {} if id is None else {"topic_id": id}
    return {"offsets": {str(n): at for n, at in offsets.items()}, **known}


def shares(lags: Mapping[int, int], most: int) -> dict[int, int]:
    """How many messages of each partition make up a step of at most so many, evenly."""
    taken = {}
    left = most
    for place, number in enumerate(sorted(lags, key=lambda n: lags[n])):
        taken[number] = min(lags[number], -(-left // (len(lags) - place)))
        left -= taken[number]
    return taken
