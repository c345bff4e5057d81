"""A Kafka cluster as the driver sees it: who answers, and what offsets a topic has.

Everything here ends within seconds: a broker that is away is an error to be told and tried again,
never a reason to hang.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from headwater.errors import InputError
from headwater.runtime.connectors import split_server

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5
Answer = TypeVar("Answer")
ADMIN = "org.apache.kafka.clients.admin.Admin"


@dataclass(frozen=True)
class Span:
    """The offsets that a partition has: from the first, up to but not including the end."""

    first: int
    end: int


def check_connector(spark: SparkSession) -> None:
    """Raises InputError if the session was started without the Kafka connector."""
    try:
        loader = _jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(ADMIN)
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Py4JError as error:
        raise InputError(
            "this Spark session was started without the Kafka connector: end Headwater and run it "
            "again, now that Kafka is declared; if the connector could not be fetched, "
            "python -m headwater.runtime.jars connector says why"
        ) from error


def reach(servers: str) -> None:
    """Raises InputError if none of the servers takes a connection."""
    reasons = []
    for server in servers.split(","):
        try:
            socket.create_connection(split_server(server), CONNECT_SECONDS).close()
            return
        except OSError as error:
            reasons.append(f"{server}: {error.strerror or error}")
    raise InputError(f"no Kafka broker answers ({'; '.join(reasons)})")


def spans(spark: SparkSession, servers: str, topic: str) -> dict[int, Span]:
    """The offsets of a topic by partition; raises InputError if they cannot be had."""
    reach(servers)
    jvm = _jvm(spark)
    admin = _asked(lambda: _admin(jvm, servers), servers, topic)
    try:
        return _asked(lambda: _spans(jvm, admin, topic), servers, topic)
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _admin(jvm: Any, servers: str) -> Any:
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", servers)
    settings.put("default.api.timeout.ms", str(ANSWER_SECONDS * 1000))
    settings.put("request.timeout.ms", str(ANSWER_SECONDS * 1000))
    return jvm.org.apache.kafka.clients.admin.Admin.create(settings)


def _spans(jvm: Any, admin: Any, topic: str) -> dict[int, Span]:
    names = jvm.java.util.ArrayList()
    names.add(topic)
    second = jvm.java.util.concurrent.TimeUnit.SECONDS
    found = admin.describeTopics(names).allTopicNames().get(ANSWER_SECONDS, second).get(topic)
    numbers = [info.partition() for info in found.partitions()]
    place = jvm.org.apache.kafka.common.TopicPartition
    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
    ends = []
    for asked in (spec.earliest(), spec.latest()):
        wanted = jvm.java.util.HashMap()
        for number in numbers:
            wanted.put(place(topic, number), asked)
        told = admin.listOffsets(wanted).all().get(ANSWER_SECONDS, second)
        ends.append({n: told.get(place(topic, n)).offset() for n in numbers})
    return {n: Span(ends[0][n], ends[1][n]) for n in numbers}


def _asked(ask: Callable[[], Answer], servers: str, topic: str) -> Answer:
    try:
        return ask()
    except Py4JJavaError as error:
        why = error.java_exception
        why = why.getCause() or why
        kind = why.getClass().getSimpleName()
        if kind == "UnknownTopicOrPartitionException":
            raise InputError(f"there is no topic {topic} at {servers}") from error
        if kind == "TimeoutException":
            raise InputError(
                f"Kafka at {servers} gave no answer within {ANSWER_SECONDS} s"
            ) from error
        raise InputError(f"Kafka at {servers}: {kind}: {why.getMessage()}") from error


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm
