"""A topic in, a topic out, on a real broker: every row is there, whatever stops in between."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bids_streams import declare_bids, ingested_rows, sample
from engine_helpers import Stop, expected, json_lines, opened, settle, stop_at, tick_until
from kafka_broker import ODD_PASSWORD, PASSWORD, USER, Broker
from kafka_topics import Topic

from headwater.algebra.times import parse_timestamp
from headwater.cql import Connector, CreateQuery, parse_query, unparse
from headwater.errors import HeadwaterError, InputError
from headwater.reference.values import normalize_row, row_order_key
from headwater.runtime.api import Headwater
from headwater.runtime.connectors.base import SourceReplaced
from headwater.runtime.connectors.kafka.client import topic_state
from headwater.runtime.connectors.options import KafkaSinkOptions
from headwater.runtime.connectors.registry import sink_options
from headwater.runtime.results.sink_progress import pending_deliveries, read_delivery
from strategies import BIDS, SOURCES

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAIRS = parse_query(
    "SELECT x.item, y.bidder, y.note FROM bids [RANGE 2 SEC] x, bids [NOW] y WHERE x.item = y.item",
    SOURCES,
)


def lines(rows: Sequence[Any]) -> list[str]:
    return json_lines(BIDS, list(rows)).splitlines()


def ask(headwater: Headwater, into: Topic, out: Topic) -> None:
    at = {"servers": into.broker.servers, "topic": into.name, "rows_per_step": 8}
    declare_bids(headwater, "kafka", **at)
    sink = Connector("kafka", (("servers", out.broker.servers), ("topic", out.name)))
    headwater.execute(unparse(CreateQuery("pairs", PAIRS, sink=sink)))


def sent_rows(out: Topic) -> list[tuple[Any, ...]]:
    """The rows in a topic as the reference evaluator has them, each row id once."""
    rows = [json.loads(value) for value in dict(out.messages()).values()]
    names = [column.name for column in PAIRS.columns]
    found = ((parse_timestamp(r["_tau"]), *normalize_row(tuple(r[n] for n in names))) for r in rows)
    return sorted(found, key=row_order_key)


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
        tick_until(headwater, lambda: ingested_rows(headwater) == len(data))
        headwater.execute("END STREAM bids")
        tick_until(headwater, lambda: not pending_deliveries(headwater.catalog))
        headwater.run(until_idle=True)
        stream = headwater.catalog.stream("bids")
        assert stream is not None
        assert (stream.malformed, stream.late) == (len(parts), 0)
    wanted = expected(PAIRS, {"Bids": data}, {})
    assert wanted
    assert sent_rows(out) == wanted
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
        tick_until(headwater, lambda: ingested_rows(headwater) == 10)
        into.send(0, lines(data[10:20]))
        kafka.stop()
        headwater.push("other", [(0,)], timestamp_unit="us")
        kinds: set[str] = set()
        while "stream unread" not in kinds:
            headwater.engine.tick()
            kinds = {event.kind for event in headwater.catalog.events()}
        assert len(list(headwater.query("o").results())) == 1
        kafka.start()
        tick_until(headwater, lambda: ingested_rows(headwater) == 20)
        headwater.execute("END STREAM bids")
        tick_until(headwater, lambda: not pending_deliveries(headwater.catalog))
        settle(headwater)
        assert not read_delivery(headwater.catalog, headwater.query("pairs").row).failure
    assert sent_rows(out) == expected(PAIRS, {"Bids": data[:20]}, {})


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
            headwater.engine.ingestion.ingest("none")
        tick_until(headwater, lambda: ingested_rows(headwater) == 4)
        into.send(0, lines(data[4:]))
        into.forget(0, 7)
        tick_until(headwater, lambda: ingested_rows(headwater) == len(data) - 3)
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
        with pytest.raises(InputError, match=f"Kafka at {servers} did not answer within"):
            headwater.engine.ingestion.ingest("bids")


def test_a_topic_that_is_not_there_to_send_to(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"""
            CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE QUERY q TO kafka(servers => '{kafka.servers}', topic => 'none')
              AS SELECT ts FROM s [NOW];
            """)
        headwater.push("s", [(0,), (1,)], timestamp_unit="us")
        settle(headwater)
        (waiting,) = pending_deliveries(headwater.catalog)
        assert waiting.failure["error"] == f"there is no topic none at {kafka.servers}"


def test_start_at_the_latest(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    into = Topic.made(spark, kafka)
    data = sample(1, 10)
    into.send(0, lines(data[:4]))
    for _ in range(2):
        with opened(tmp_path / "state", spark) as headwater:
            at = {"servers": kafka.servers, "topic": into.name}
            declare_bids(headwater, "kafka", start="latest", **at)
            headwater.engine.ingestion.ingest("bids")
            into.send(1, lines(data[4:7]))
            settle(headwater)
    with opened(tmp_path / "state", spark) as headwater:
        assert ingested_rows(headwater) == 2 * 3


def test_a_topic_made_again_is_another_topic(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    """It has more messages than were read of the first, so that offsets alone do not show the difference."""
    into = Topic.made(spark, kafka, 1)
    data = sample(6, 11)
    into.send(0, lines(data[:3]))
    with opened(tmp_path / "state", spark) as headwater:
        declare_bids(headwater, "kafka", servers=kafka.servers, topic=into.name)
        with pytest.raises(HeadwaterError, match="bids did not stop"):
            headwater.execute("RESTART STREAM bids")
        tick_until(headwater, lambda: ingested_rows(headwater) == 3)
        into.make_again(1)
        into.send(0, lines(data[3:]))
        with pytest.raises(InputError, match=r"was deleted and recreated .* RESTART STREAM bids"):
            headwater.engine.ingestion.ingest("bids")
    with opened(tmp_path / "state", spark) as headwater:
        settle(headwater)
        assert ingested_rows(headwater) == 3
        (event,) = [e for e in headwater.catalog.events() if e.kind == "stream unread"]
        assert "none of the 8 offsets of the new one was read" in event.detail["error"]
        headwater.execute("RESTART STREAM bids")
        settle(headwater)
        assert ingested_rows(headwater) == len(data)


def test_a_topic_made_again_while_it_is_read(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    into = Topic.made(spark, kafka, 1)
    data = sample(6, 6)
    into.send(0, lines(data[:3]))
    with opened(tmp_path / "state", spark) as headwater:
        declare_bids(headwater, "kafka", servers=kafka.servers, topic=into.name)
        source = headwater.engine.ingestion.source("bids")
        batch = source.poll(spark, {})
        into.make_again(1)
        into.send(0, lines(data[3:]))
        rows = sum(piece.table.num_rows for piece in batch.chunks)
        assert rows == 3, "the same offsets, of the other topic"
        with pytest.raises(InputError, match="recreated while it was read"):
            batch.confirm()


def test_messages_that_brokers_lost(kafka: Broker, spark: Any, tmp_path: Path) -> None:
    """Where the id is unknown (an old position), a topic that ends too early is noticed."""
    into = Topic.made(spark, kafka, 1)
    into.send(0, lines(sample(6, 3)))
    with opened(tmp_path / "state", spark) as headwater:
        declare_bids(headwater, "kafka", servers=kafka.servers, topic=into.name)
        source = headwater.engine.ingestion.source("bids")
        with pytest.raises(SourceReplaced, match="ends before offset 5 of partition 0") as stopped:
            source.poll(spark, {"offsets": {"0": 5}})
        assert stopped.value.resume_at["offsets"] == {"0": 3}
        assert source.poll(spark, stopped.value.resume_at) is None


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(kafka: Broker, spark: Any, tmp_path: Path, isolation: str) -> None:
    """Markers take offsets, aborted messages too, and an open transaction is waited for."""
    into = Topic.made(spark, kafka, 1)
    data = sample(4, 24)
    parts = [data[at : at + 4] for at in range(0, 24, 4)]
    with opened(tmp_path / "state", spark) as headwater:
        at = {"servers": kafka.servers, "topic": into.name, "rows_per_step": 6}
        declare_bids(headwater, "kafka", isolation=isolation, **at)
        read = [parts[0], parts[2]]
        for part in parts[:3]:
            with into.transaction(lines(part)) as producer:
                if part in read:
                    producer.commitTransaction()
                else:
                    producer.abortTransaction()
        settle(headwater)
        assert ingested_rows(headwater) == (8 if isolation == "read_committed" else 12)
        with into.transaction(lines(parts[3])) as producer:
            into.send(0, lines(parts[4]))
            settle(headwater)
            assert ingested_rows(headwater) == (8 if isolation == "read_committed" else 20)
            producer.abortTransaction()
        with into.transaction(lines(parts[5])) as producer:
            producer.commitTransaction()
        settle(headwater)
        assert ingested_rows(headwater) == (16 if isolation == "read_committed" else 24)


# ---- who may read


def access(kafka: Broker, tmp_path: Path, **options: Any) -> dict[str, Any]:
    """The options of one who logs in over TLS, but for what is given."""
    secret = tmp_path / "password"
    if not secret.exists():
        secret.write_text(PASSWORD + "\n")
    return {
        "servers": kafka.login_servers,
        "security": "sasl_ssl",
        "mechanism": "scram-sha-512",
        "username": USER,
        "password_file": str(secret),
        "ca_file": str(kafka.directory / "ca.pem"),
    } | options


def test_login_over_tls_in_and_out(
    kafka: Broker, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong password is reported while other streams go on; once mended, all rows are there, and
    the password is in no file of the state, no message and no command line."""
    into, out = Topic.made(spark, kafka), Topic.made(spark, kafka, 1)
    data = sample(5, 12)
    into.send(1, lines(data))
    secured = access(kafka, tmp_path)
    Path(secured["password_file"]).write_text("wrong-" + PASSWORD)
    with opened(tmp_path / "state", spark) as headwater:
        headwater.engine.sinks.backoff = 0.01
        declare_bids(headwater, "kafka", topic=into.name, **secured)
        sink = Connector("kafka", tuple({**secured, "topic": out.name}.items()))
        headwater.execute(unparse(CreateQuery("pairs", PAIRS, sink=sink)))
        headwater.execute("CREATE STREAM other (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
        headwater.execute("CREATE QUERY o AS SELECT ts FROM other")
        headwater.push("other", [(0,)], timestamp_unit="us")
        settle(headwater)
        (event,) = [e for e in headwater.catalog.events() if e.kind == "stream unread"]
        assert f"refuses the login of {USER}" in event.detail["error"]
        assert len(list(headwater.query("o").results())) == 1
        Path(secured["password_file"]).write_text(PASSWORD + "\n")
        tick_until(headwater, lambda: ingested_rows(headwater) == len(data))
        headwater.execute("END STREAM bids")
        settle(headwater)
        tick_until(headwater, lambda: not pending_deliveries(headwater.catalog))
        said = headwater.query("pairs").explain() + caplog.text
    assert sent_rows(out) == expected(PAIRS, {"Bids": data}, {})
    kept = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    java = [found for found in command_lines() if found.partition(b"\0")[0].endswith(b"java")]
    assert kept and not any(PASSWORD.encode() in found for found in [*kept, said.encode()])
    assert java and not any(PASSWORD.encode() in found for found in java)


def command_lines() -> Iterator[bytes]:
    """Those of all processes, any of which may end meanwhile."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


ADMITTED = [
    ({}, ""),
    ({"mechanism": "scram-sha-256"}, ""),
    ({"mechanism": "plain", "password_env": "HEADWATER_SECRET_ODD"}, ""),
    ({"username": "eve"}, "refuses the login of eve"),
    ({"ca_file": "other.pem"}, "not signed by an authority in .*other.pem"),
    ({"ca_file": None}, "not signed by an authority known to Java: declare ca_file"),
    ({"servers": "localhost"}, "for another host .*check_hostname => FALSE"),
    ({"servers": "localhost", "check_hostname": False}, ""),
    ({"security": "plaintext"}, "if it expects TLS, declare security"),
    ({"servers": "plain"}, "does not speak TLS"),
    ({"servers": "mutual", "security": "ssl"}, "requires a client certificate"),
    ({"servers": "mutual", "security": "ssl", "certificate_file": "client.pem"}, ""),
]


@pytest.mark.parametrize("given, said", ADMITTED)
def test_who_is_admitted(
    kafka: Broker,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    said: str,
) -> None:
    into = Topic.made(spark, kafka, 1)
    monkeypatch.setenv("HEADWATER_SECRET_ODD", ODD_PASSWORD)
    options = access(kafka, tmp_path) | given
    port = kafka.login_servers.rpartition(":")[2]
    servers = {"localhost": f"localhost:{port}", "plain": kafka.servers}
    servers["mutual"] = kafka.mutual_servers
    options["servers"] = servers.get(options["servers"], options["servers"])
    if "certificate_file" in given:
        options["key_file"] = "client.key"
    if "password_env" in given:
        del options["password_file"]
    for name in [n for n, value in options.items() if not _fits(n, value, options["security"])]:
        del options[name]
    for name in ("ca_file", "certificate_file", "key_file"):
        if name in options:
            options[name] = str(kafka.directory / options[name])
    cluster = sink_options(Connector("kafka", tuple({**options, "topic": into.name}.items())))
    assert isinstance(cluster, KafkaSinkOptions)
    if said:
        with pytest.raises(InputError, match=said) as error:
            topic_state(spark, cluster)
        assert PASSWORD not in str(error.value)
    else:
        assert topic_state(spark, cluster).id


def _fits(name: str, value: Any, security: str) -> bool:
    """Whether an option can be given with that kind of security."""
    login = ("mechanism", "username", "password_file", "password_env")
    tls = ("ca_file", "certificate_file", "key_file", "check_hostname")
    missing = (name in login and "sasl" not in security) or (name in tls and "ssl" not in security)
    return value is not None and not missing
