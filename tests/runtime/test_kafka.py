"""A topic in, a topic out, on a real broker: every row is there, whatever stops in between."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import Stop, expected, json_lines, opened, settle, stop_at, tick_until
from kafka_broker import Broker
from test_sources import declare_bids, sample, taken_in

from headwater.algebra.times import parse_timestamp
from headwater.cql import Connector, CreateQuery, parse_query, unparse
from headwater.errors import InputError
from headwater.reference.values import normal_row, row_order
from headwater.runtime.api import Headwater
from headwater.runtime.delivery import behind, delivery
from strategies import BIDS, SOURCES

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAIRS = parse_query(
    "SELECT x.item, y.bidder, y.note FROM bids [RANGE 2 SEC] x, bids [NOW] y WHERE x.item = y.item",
    SOURCES,
)
_numbers = itertools.count()


@dataclass
class Topic:
    """A topic of the broker, worked on with the client of the Spark session."""

    spark: Any
    broker: Broker
    name: str

    @classmethod
    def made(cls, spark: Any, broker: Broker, partitions: int = 2) -> Topic:
        topic = cls(spark, broker, f"topic-{next(_numbers)}")
        new = spark._jvm.org.apache.kafka.clients.admin.NewTopic(topic.name, partitions, 1)
        with topic.admin() as admin:
            admin.client.createTopics(_list(spark, new)).all().get()
        return topic

    def admin(self) -> Client:
        return Client(self.spark._jvm.org.apache.kafka.clients.admin.Admin.create(self._settings()))

    def _settings(self) -> Any:
        settings = self.spark._jvm.java.util.HashMap()
        settings.put("bootstrap.servers", self.broker.servers)
        for part in ("key", "value"):
            named = "org.apache.kafka.common.serialization.StringSerializer"
            settings.put(f"{part}.serializer", named)
        return settings

    def send(self, partition: int, lines: Sequence[str]) -> None:
        producers = self.spark._jvm.org.apache.kafka.clients.producer
        with Client(producers.KafkaProducer(self._settings())) as producer:
            for line in lines:
                record = producers.ProducerRecord(self.name, partition, None, line)
                producer.client.send(record)

    def widen(self, partitions: int) -> None:
        wanted = self.spark._jvm.java.util.HashMap()
        more = self.spark._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
        wanted.put(self.name, more)
        with self.admin() as admin:
            admin.client.createPartitions(wanted).all().get()

    def forget(self, partition: int, before: int) -> None:
        """Delete the messages of a partition before an offset, as retention does."""
        wanted = self.spark._jvm.java.util.HashMap()
        place = self.spark._jvm.org.apache.kafka.common.TopicPartition(self.name, partition)
        wanted.put(place, self._before(before))
        with self.admin() as admin:
            admin.client.deleteRecords(wanted).all().get()

    def _before(self, offset: int) -> Any:
        """Found by its signature: a method of the same name hides it from Py4J."""
        lang, gateway = self.spark._jvm.java.lang, self.spark.sparkContext._gateway
        loader = lang.Thread.currentThread().getContextClassLoader()
        kind = loader.loadClass("org.apache.kafka.clients.admin.RecordsToDelete")
        types, values = gateway.new_array(lang.Class, 1), gateway.new_array(lang.Object, 1)
        types[0], values[0] = lang.Long.TYPE, offset
        return kind.getMethod("beforeOffset", types).invoke(None, values)

    def messages(self) -> list[tuple[str, str]]:
        """All keys and values."""
        reader = self.spark.read.format("kafka").option("subscribe", self.name)
        frame = reader.option("kafka.bootstrap.servers", self.broker.servers).load()
        found = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
        return [(row.key, row.value) for row in found]


@dataclass
class Client:
    """A client that is closed at the end of a block."""

    client: Any

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()


def _list(spark: Any, *items: Any) -> Any:
    made = spark._jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return made


def lines(rows: Sequence[Any]) -> list[str]:
    return json_lines(BIDS, list(rows)).splitlines()


def ask(headwater: Headwater, into: Topic, out: Topic) -> None:
    at = {"servers": into.broker.servers, "topic": into.name, "rows_per_step": 8}
    declare_bids(headwater, "kafka", **at)
    sink = Connector("kafka", (("servers", out.broker.servers), ("topic", out.name)))
    headwater.execute(unparse(CreateQuery("pairs", PAIRS, sink=sink)))


def told_by(out: Topic) -> list[tuple[Any, ...]]:
    """The rows in a topic as the reference evaluator has them, each row id once."""
    rows = [json.loads(value) for value in dict(out.messages()).values()]
    names = [column.name for column in PAIRS.columns]
    found = ((parse_timestamp(r["_tau"]), *normal_row(tuple(r[n] for n in names))) for r in rows)
    return sorted(found, key=row_order)


def test_topic_in_topic_out_with_crashes(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    into, out = Topic.made(spark, kafka), Topic.made(spark, kafka, 3)
    data = sample(8, 40)
    parts = [data[:10], data[10:20], data[20:30], data[30:]]
    points = ["ingest: written", "sink: written", "ingest: committed", "sink: committed"]
    for turn, (part, point) in enumerate(zip(parts, points, strict=True)):
        if turn == 2:
            into.widen(3)
        into.send(turn % 3, lines(part[:5]))
        into.send(0, ["{no json", *lines(part[5:])])
        crash = stop_at(point, 1)
        with opened(tmp_path / "state", spark, at_point=crash, holder=f"h{turn}") as headwater:
            ask(headwater, into, out)
            with pytest.raises(Stop):
                tick_until(headwater, lambda: False)
    with opened(tmp_path / "state", spark) as headwater:
        tick_until(headwater, lambda: taken_in(headwater) == len(data))
        headwater.execute("END STREAM bids")
        tick_until(headwater, lambda: not behind(headwater.catalog))
        headwater.run(until_idle=True)
        stream = headwater.catalog.stream("bids")
        assert stream is not None
        assert (stream.malformed, stream.late) == (len(parts), 0)
    wanted = expected(PAIRS, {"Bids": data}, {})
    assert wanted
    assert told_by(out) == wanted
    assert len(out.messages()) > len(wanted), "what was sent before a crash is sent again"


def test_a_broker_that_goes_and_comes(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    into, out = Topic.made(spark, kafka), Topic.made(spark, kafka, 1)
    data = sample(2, 30)
    into.send(1, lines(data[:10]))
    with opened(tmp_path / "state", spark) as headwater:
        headwater.engine.sinks.backoff = 0.01
        ask(headwater, into, out)
        headwater.execute("CREATE STREAM other (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
        headwater.execute("CREATE QUERY o AS SELECT ts FROM other")
        tick_until(headwater, lambda: taken_in(headwater) == 10)
        into.send(0, lines(data[10:20]))
        kafka.stop()
        headwater.push("other", [(0,)], timestamp_unit="us")
        kinds: set[str] = set()
        while "stream unread" not in kinds:
            headwater.engine.tick()
            kinds = {event.kind for event in headwater.catalog.events()}
        assert len(list(headwater.query("o").results())) == 1
        kafka.start()
        tick_until(headwater, lambda: taken_in(headwater) == 20)
        headwater.execute("END STREAM bids")
        tick_until(headwater, lambda: not behind(headwater.catalog))
        settle(headwater)
        assert not delivery(headwater.catalog, headwater.query("pairs").row).failure
    assert told_by(out) == expected(PAIRS, {"Bids": data[:20]}, {})


def test_what_cannot_be_read(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    """A topic that is not there, and messages that were deleted before they were read."""
    into = Topic.made(spark, kafka, 1)
    data = sample(1, 12)
    into.send(0, lines(data[:4]))
    with opened(tmp_path / "state", spark) as headwater:
        declare_bids(headwater, "kafka", servers=kafka.servers, topic=into.name)
        headwater.execute(
            "CREATE STREAM none (ts TIMESTAMP) TIMESTAMP BY ts "
            f"FROM kafka(servers => '{kafka.servers}', topic => 'none')"
        )
        with pytest.raises(InputError, match=f"no topic none at {kafka.servers}"):
            headwater.engine.intake.take("none")
        tick_until(headwater, lambda: taken_in(headwater) == 4)
        into.send(0, lines(data[4:]))
        into.forget(0, 7)
        tick_until(headwater, lambda: taken_in(headwater) == len(data) - 3)
        (refused,) = headwater.catalog.rejects("bids")
        assert refused.record == f"offsets 4 to 6 of {into.name}/0 were deleted unread"


def test_a_server_that_never_answers(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    """It takes connections, and that is all."""
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        opened(tmp_path / "state", spark) as headwater,
    ):
        servers = f"127.0.0.1:{mute.getsockname()[1]}"
        declare_bids(headwater, "kafka", servers=servers, topic="t")
        with pytest.raises(InputError, match=f"Kafka at {servers} gave no answer within"):
            headwater.engine.intake.take("bids")


def test_a_topic_that_is_not_there_to_send_to(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE QUERY q TO kafka(servers => '{kafka.servers}', topic => 'none')
              AS SELECT ts FROM s [NOW];
            """)
        headwater.push("s", [(0,), (1,)], timestamp_unit="us")
        settle(headwater)
        (waiting,) = behind(headwater.catalog)
        assert waiting.failure["error"] == f"there is no topic none at {kafka.servers}"


def test_start_at_the_latest(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    into = Topic.made(spark, kafka)
    data = sample(1, 10)
    into.send(0, lines(data[:4]))
    for _ in range(2):
        with opened(tmp_path / "state", spark) as headwater:
            at = {"servers": kafka.servers, "topic": into.name}
            declare_bids(headwater, "kafka", start="latest", **at)
            headwater.engine.intake.take("bids")
            into.send(1, lines(data[4:7]))
            settle(headwater)
    with opened(tmp_path / "state", spark) as headwater:
        assert taken_in(headwater) == 2 * 3
