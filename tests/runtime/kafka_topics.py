"""Topics of the private Kafka broker: made, filled, cut and read by tests."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka_broker import Broker
from py4j.protocol import Py4JJavaError

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
        topic.make(partitions)
        return topic

    def make(self, partitions: int) -> None:
        new = self.spark._jvm.org.apache.kafka.clients.admin.NewTopic(self.name, partitions, 1)
        with self.admin() as admin:
            admin.client.createTopics(_list(self.spark, new)).all().get()

    def make_again(self, partitions: int) -> None:
        """Delete the topic and make one of the same name; deleting goes on in the background."""
        with self.admin() as admin:
            admin.client.deleteTopics(_list(self.spark, self.name)).all().get()
        while True:
            try:
                return self.make(partitions)
            except Py4JJavaError as error:
                if "TopicExists" not in str(error.java_exception):
                    raise
                time.sleep(0.1)

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

    @contextmanager
    def transaction(self, lines: Sequence[str]) -> Iterator[Any]:
        """A producer with an open transaction that has sent messages to partition 0."""
        producers = self.spark._jvm.org.apache.kafka.clients.producer
        settings = self._settings()
        settings.put("transactional.id", f"transaction-{next(_numbers)}")
        with Client(producers.KafkaProducer(settings)) as producer:
            producer.client.initTransactions()
            producer.client.beginTransaction()
            for line in lines:
                producer.client.send(producers.ProducerRecord(self.name, 0, None, line))
            producer.client.flush()
            yield producer.client

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
