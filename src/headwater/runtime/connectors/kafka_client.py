"""A Kafka cluster as the driver sees it: who answers, and what a topic holds.

Everything here ends within seconds: a broker that is away, or does not admit us, is an error to be
reported and tried again, never a reason to hang.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from headwater.errors import InputError
from headwater.runtime.connectors.kafka_access import security_settings
from headwater.runtime.connectors.options import KafkaOptions, KafkaSinkOptions, parse_server

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5
Answer = TypeVar("Answer")
Cluster = KafkaOptions | KafkaSinkOptions
ADMIN = "org.apache.kafka.clients.admin.Admin"

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers say that do not give ids to topics."""

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The first thing that any client asks, in the oldest form, which every broker answers."""


@dataclass(frozen=True)
class Span:
    """The offsets that a partition has: from the first, up to but not including the end. Before
    `stable` no transaction is open."""

    first: int
    end: int
    stable: int


@dataclass(frozen=True)
class TopicState:
    """A topic as it is now. A topic that is deleted and made again has another id."""

    id: str | None
    spans: Mapping[int, Span]


def check_kafka_connector(spark: SparkSession) -> None:
    """Raises InputError if the session was started without the Kafka connector."""
    try:
        loader = _jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass(ADMIN)
        loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    except Py4JError as error:
        raise InputError(
            "this Spark session was started without the Kafka connector: end Headwater and run it "
            "again, now that Kafka is declared; if the connector could not be fetched, "
            "python -m headwater.runtime.spark.jars connector says why"
        ) from error


def client_settings(cluster: Cluster) -> dict[str, str]:
    """What every client of the cluster needs; with secrets, so it is not to be logged or stored."""
    return {"bootstrap.servers": cluster.servers, **security_settings(cluster)}


def check_reachable(cluster: Cluster) -> None:
    """Raises InputError if none of the servers takes a connection, or not of this kind."""
    reasons = []
    for server in cluster.servers.split(","):
        try:
            with socket.create_connection(parse_server(server), CONNECT_SECONDS) as connection:
                (_check_tls if cluster.has_tls else _check_no_tls)(connection, server)
                return
        except OSError as error:
            reasons.append(f"{server}: {error.strerror or error}")
    raise InputError(f"no Kafka broker answers ({'; '.join(reasons)})")


def _check_no_tls(connection: socket.socket, server: str) -> None:
    """Raises InputError if the first byte of an answer is not that of a broker without TLS.

    Kafka's own client takes an alert of TLS for the length of a message, and asks Java for hundreds
    of megabytes to hold it.
    """
    connection.sendall(_API_VERSIONS)
    try:
        answer = connection.recv(1)
    except TimeoutError:
        return  # a client that waits longer will say so
    except ConnectionError:
        answer = b""
    if answer != b"\0":
        raise InputError(
            f"{server} does not answer as a Kafka broker without TLS does; if it expects TLS, "
            "declare security => 'ssl' or 'sasl_ssl'"
        )


def _check_tls(connection: socket.socket, server: str) -> None:
    """Raises InputError if a server does not speak TLS, for which Kafka's own client has no words.
    Nothing is sent, so whom it speaks for is left to the client."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection).close()
    except TimeoutError:
        return
    except (ssl.SSLEOFError, ConnectionError):
        raise InputError(
            f"{server} does not speak TLS: declare security => 'plaintext' or 'sasl_plaintext'"
        ) from None
    except ssl.SSLError:
        return  # it spoke, if only to refuse us


def topic_state(spark: SparkSession, cluster: Cluster) -> TopicState:
    """The id and the offsets of a topic; raises InputError if they cannot be had."""
    return _with_admin(
        spark, cluster, lambda jvm, admin: _fetch_topic_state(jvm, admin, cluster.topic)
    )


def topic_id(spark: SparkSession, cluster: Cluster) -> str | None:
    """The id of a topic, None where brokers give none; raises InputError if it cannot be had."""
    return _with_admin(
        spark,
        cluster,
        lambda jvm, admin: _parse_topic_id(_describe_topic(jvm, admin, cluster.topic)),
    )


def _with_admin(spark: SparkSession, cluster: Cluster, ask: Callable[[Any, Any], Answer]) -> Answer:
    settings = client_settings(cluster)
    check_reachable(cluster)
    jvm = _jvm(spark)
    admin = _translate_errors(lambda: _create_admin(jvm, settings), cluster)
    try:
        return _translate_errors(lambda: ask(jvm, admin), cluster)
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _create_admin(jvm: Any, settings: Mapping[str, str]) -> Any:
    properties = jvm.java.util.HashMap()
    milliseconds = str(ANSWER_SECONDS * 1000)
    patience = {"default.api.timeout.ms": milliseconds, "request.timeout.ms": milliseconds}
    for name, value in {**patience, **settings}.items():
        properties.put(name, value)
    return jvm.org.apache.kafka.clients.admin.Admin.create(properties)


def _describe_topic(jvm: Any, admin: Any, topic: str) -> Any:
    names = jvm.java.util.ArrayList()
    names.add(topic)
    second = jvm.java.util.concurrent.TimeUnit.SECONDS
    return admin.describeTopics(names).allTopicNames().get(ANSWER_SECONDS, second).get(topic)


def _parse_topic_id(described: Any) -> str | None:
    id_text = str(described.topicId().toString())
    return None if id_text == _NO_ID else id_text


def _fetch_topic_state(jvm: Any, admin: Any, topic: str) -> TopicState:
    described = _describe_topic(jvm, admin, topic)
    numbers = [info.partition() for info in described.partitions()]
    topic_partition = jvm.org.apache.kafka.common.TopicPartition
    clients = jvm.org.apache.kafka.clients.admin
    second = jvm.java.util.concurrent.TimeUnit.SECONDS
    levels = jvm.org.apache.kafka.common.IsolationLevel

    def offsets(spec: Any, level: Any) -> dict[int, int]:
        wanted = jvm.java.util.HashMap()
        for number in numbers:
            wanted.put(topic_partition(topic, number), spec)
        asked = admin.listOffsets(wanted, clients.ListOffsetsOptions(level))
        told = asked.all().get(ANSWER_SECONDS, second)
        return {n: told.get(topic_partition(topic, n)).offset() for n in numbers}

    spec = clients.OffsetSpec
    # In this order: what grows meanwhile must not make a range whose end is before its beginning.
    first = offsets(spec.earliest(), levels.READ_UNCOMMITTED)
    stable = offsets(spec.latest(), levels.READ_COMMITTED)
    end = offsets(spec.latest(), levels.READ_UNCOMMITTED)
    return TopicState(
        _parse_topic_id(described), {n: Span(first[n], end[n], stable[n]) for n in numbers}
    )


# ---- what went wrong


def _translate_errors(ask: Callable[[], Answer], cluster: Cluster) -> Answer:
    try:
        return ask()
    except Py4JJavaError as error:
        raise InputError(_explain_failure(_cause_chain(error.java_exception), cluster)) from error


def _cause_chain(java: Any) -> list[tuple[str, str]]:
    """The kinds and messages of an error of Java and of what caused it, the cause last."""
    chain = []
    while java is not None:
        chain.append((java.getClass().getSimpleName(), str(java.getMessage() or "")))
        java = java.getCause()
    return chain


def _explain_failure(causes: list[tuple[str, str]], cluster: Cluster) -> str:
    where = f"Kafka at {cluster.servers}"
    kinds = {kind for kind, _ in causes}
    kind, message = causes[-1]
    if "UnknownTopicOrPartitionException" in kinds:
        return f"there is no topic {cluster.topic} at {cluster.servers}"
    if "SaslAuthenticationException" in kinds or "UnsupportedSaslMechanismException" in kinds:
        detail = next(m for k, m in causes if "Sasl" in k)
        return (
            f"{where} refuses the login of {cluster.username or 'nobody'} ({detail}): correct the "
            "password where the stream or query says it is, or the username or mechanism"
        )
    if "SslAuthenticationException" in kinds or kind.startswith(("SSL", "Certificate")):
        return f"{where}: {_explain_tls_failure(message, cluster)}"
    if "TopicAuthorizationException" in kinds or "ClusterAuthorizationException" in kinds:
        return f"{where} does not let {cluster.username or 'us'} read topic {cluster.topic}"
    if "TimeoutException" in kinds:
        hint = "" if cluster.has_login else "; if it wants a login, declare security => 'sasl_..'"
        return f"{where} gave no answer within {ANSWER_SECONDS} s{hint}"
    return f"{where}: {kind}: {message}"


def _explain_tls_failure(message: str, cluster: Cluster) -> str:
    """Why TLS was not agreed on, by the words of Java's own implementation."""
    if "certification path" in message or "PKIX" in message:
        where = f"in {cluster.ca_file}" if cluster.ca_file else "known to Java: declare ca_file"
        return f"its certificate is not signed by an authority {where}"
    if "subject alternative" in message or "No name matching" in message:
        return (
            f"its certificate is for another host ({message}): name the host as the certificate does, "
            "or declare check_hostname => FALSE"
        )
    if "bad_certificate" in message or "certificate_required" in message:
        return (
            "it wants a certificate of ours that it trusts: declare certificate_file and key_file"
        )
    return f"TLS was not agreed on: {message}"


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm
