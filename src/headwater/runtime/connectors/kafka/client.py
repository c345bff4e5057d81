"""Requests of the driver to a Kafka cluster: is it reachable, and what does a topic hold.

Everything here ends within seconds: a broker that is down or refuses us is an error to be reported
and retried, never a reason to hang.
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
from headwater.runtime.connectors.kafka.access import security_settings
from headwater.runtime.connectors.options import KafkaOptions, KafkaSinkOptions, parse_server

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5
Answer = TypeVar("Answer")
Cluster = KafkaOptions | KafkaSinkOptions
ADMIN = "org.apache.kafka.clients.admin.Admin"

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id that brokers return if they do not support topic ids."""

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""An ApiVersions request, the first of any client, in version 0, which every broker answers."""


@dataclass(frozen=True)
class Span:
    """The offsets of a partition, from `first` up to but not including `end`.

    Below `stable` no transaction is open.
    """

    first: int
    end: int
    stable: int


@dataclass(frozen=True)
class TopicState:
    """The current state of a topic; a topic that is deleted and recreated has another id."""

    id: str | None
    spans: Mapping[int, Span]


def check_kafka_connector(spark: SparkSession) -> None:
    """Raise InputError if the session was started without the Kafka connector."""
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
    """The settings of any client of the cluster; they contain secrets: never log or store them."""
    return {"bootstrap.servers": cluster.servers, **security_settings(cluster)}


def check_reachable(cluster: Cluster) -> None:
    """Raise InputError if no server accepts a connection, or TLS is not as declared."""
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
    """Raise InputError if the first byte of the response is not that of a broker without TLS.

    Kafka's own client would take a TLS alert for the length of a message, and allocate hundreds of
    megabytes for it.
    """
    connection.sendall(_API_VERSIONS)
    try:
        first_byte = connection.recv(1)
    except TimeoutError:
        return  # merely slow: Kafka's client waits longer, and reports it
    except ConnectionError:
        first_byte = b""
    if first_byte != b"\0":  # the length of a response is a small number in four bytes
        raise InputError(
            f"{server} does not answer as a Kafka broker without TLS does; if it expects TLS, "
            "declare security => 'ssl' or 'sasl_ssl'"
        )


def _check_tls(connection: socket.socket, server: str) -> None:
    """Raise InputError if a server does not speak TLS, which Kafka's client does not say.

    No data is sent, so verifying the certificate is left to the client.
    """
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
        return  # it speaks TLS, even if it refuses us


def topic_state(spark: SparkSession, cluster: Cluster) -> TopicState:
    """The id and the offsets of a topic; raises InputError if the cluster does not answer."""
    return _with_admin(
        spark, cluster, lambda jvm, admin: _fetch_topic_state(jvm, admin, cluster.topic)
    )


def topic_id(spark: SparkSession, cluster: Cluster) -> str | None:
    """The id of a topic, None if brokers do not support ids; raises InputError."""
    return _with_admin(
        spark,
        cluster,
        lambda jvm, admin: _parse_topic_id(_describe_topic(jvm, admin, cluster.topic)),
    )


def _with_admin(spark: SparkSession, cluster: Cluster, ask: Callable[[Any, Any], Answer]) -> Answer:
    settings = client_settings(cluster)
    check_reachable(cluster)
    # Reached by a plain socket first: Kafka's client reports a server that is not there as a
    # timeout, and takes what another server answers for the length of a message.
    jvm = _jvm(spark)
    admin = _translate_errors(lambda: _create_admin(jvm, settings), cluster)
    try:
        return _translate_errors(lambda: ask(jvm, admin), cluster)
    finally:
        # Without waiting: every answer that was wanted is there, or has failed.
        admin.close(jvm.java.time.Duration.ZERO)


def _create_admin(jvm: Any, settings: Mapping[str, str]) -> Any:
    properties = jvm.java.util.HashMap()
    milliseconds = str(ANSWER_SECONDS * 1000)
    timeouts = {"default.api.timeout.ms": milliseconds, "request.timeout.ms": milliseconds}
    for name, value in {**timeouts, **settings}.items():
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
        request = jvm.java.util.HashMap()
        for number in numbers:
            request.put(topic_partition(topic, number), spec)
        pending = admin.listOffsets(request, clients.ListOffsetsOptions(level))
        response = pending.all().get(ANSWER_SECONDS, second)
        return {n: response.get(topic_partition(topic, n)).offset() for n in numbers}

    spec = clients.OffsetSpec
    # In this order: offsets only grow, so a later request never returns an end before the
    # beginning.
    first = offsets(spec.earliest(), levels.READ_UNCOMMITTED)
    stable = offsets(spec.latest(), levels.READ_COMMITTED)
    end = offsets(spec.latest(), levels.READ_UNCOMMITTED)
    return TopicState(
        _parse_topic_id(described), {n: Span(first[n], end[n], stable[n]) for n in numbers}
    )


# ---- errors


def _translate_errors(ask: Callable[[], Answer], cluster: Cluster) -> Answer:
    try:
        return ask()
    except Py4JJavaError as error:
        raise InputError(_explain_failure(_cause_chain(error.java_exception), cluster)) from error


def _cause_chain(java: Any) -> list[tuple[str, str]]:
    """The class names and messages of a Java error and its causes, the root cause last."""
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
            "password in the file or variable that the declaration names, or the username or mechanism"
        )
    if "SslAuthenticationException" in kinds or kind.startswith(("SSL", "Certificate")):
        return f"{where}: {_explain_tls_failure(message, cluster)}"
    if "TopicAuthorizationException" in kinds or "ClusterAuthorizationException" in kinds:
        return f"{where} does not let {cluster.username or 'us'} read topic {cluster.topic}"
    if "TimeoutException" in kinds:
        hint = (
            "" if cluster.has_login else "; if it requires a login, declare security => 'sasl_..'"
        )
        return f"{where} did not answer within {ANSWER_SECONDS} s{hint}"
    return f"{where}: {kind}: {message}"


def _explain_tls_failure(message: str, cluster: Cluster) -> str:
    """Why the TLS handshake failed, from the message of Java's implementation."""
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
            "it requires a client certificate that it trusts: declare certificate_file and key_file"
        )
    return f"the TLS handshake failed: {message}"


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm
