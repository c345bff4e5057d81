"""What cannot be read or written is refused when it is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.algebra.catalog import Stream
from headwater.cql import Connector, CreateStream, parse
from headwater.errors import HeadwaterError, InputError
from headwater.runtime.api import open_state
from headwater.runtime.connectors.kafka.access import security_settings
from headwater.runtime.connectors.options import (
    FileOptions,
    FileSinkOptions,
    KafkaOptions,
    KafkaSinkOptions,
    RateOptions,
    ReplayOptions,
    SocketOptions,
)
from headwater.runtime.connectors.registry import CONNECTORS, sink_options, source_options
from headwater.runtime.submit.scripts import execute

DECLARED = "CREATE STREAM s (n BIGINT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"


def stream(text: str = DECLARED) -> Stream:
    (statement,) = parse(text)
    assert isinstance(statement, CreateStream)
    return statement.stream


def of(kind: str, **options: object) -> Connector:
    return Connector(kind, tuple(options.items()))  # type: ignore[arg-type]


AT = {"servers": "a:9092, b:9093", "topic": "t"}
LOGIN = {**AT, "security": "SASL_SSL", "mechanism": "PLAIN", "username": "u"}


@pytest.mark.parametrize(
    "source, options",
    [
        (of("files", path="in"), FileOptions("in", "json")),
        (of("files", path="in/x.csv"), FileOptions("in/x.csv", "csv")),
        (of("files", path="in/x.jsonl"), FileOptions("in/x.jsonl", "json")),
        (
            of("files", path="in", format="PARQUET", files_per_step=3),
            FileOptions("in", "parquet", 3),
        ),
        (of("kafka", **AT), KafkaOptions("a:9092,b:9093", "t")),
        (
            of("kafka", **AT, format="CSV", start="latest", rows_per_step=7),
            KafkaOptions("a:9092,b:9093", "t", "csv", "latest", 7),
        ),
        (of("rate", rows_per_second=5), RateOptions(5)),
        (of("socket", host="h", port=80), SocketOptions("h", 80)),
        (of("replay", path="x.parquet", speed=10), ReplayOptions("x.parquet", "parquet", 10.0)),
    ],
)
def test_options_of_sources(source: Connector, options: object) -> None:
    assert source_options(source, stream()) == options


@pytest.mark.parametrize(
    "source, said",
    [
        (of("files"), "needs a path"),
        (of("files", path="in", formt="csv"), "no option formt; did you mean format"),
        (of("files", path="in", format="xml"), "cannot read xml"),
        (of("files", path="in", files_per_step=0), "from 1 on, not 0"),
        (of("kafka", topic="t"), "kafka needs servers: kafka"),
        (of("kafka", servers="a", topic="t"), "host:port, with commas between them, not 'a'"),
        (of("kafka", servers="a:99999", topic="t"), "host:port"),
        (of("kafka", servers="a:9092", topic="a b"), "no topic"),
        (of("kafka", **AT, format="parquet"), "cannot read parquet; there is: csv, json"),
        (of("kafka", **AT, isolation="none"), "no isolation none; there is: read_committed"),
        (of("kafka", **AT, password="sesame"), "password_file => '/path', or password_env =>"),
        (of("kafka", **AT, sasl_jaas_config="sesame"), "password_file => '/path'"),
        (of("kafka", **AT, username="u"), "username needs security => 'sasl_ssl'"),
        (of("kafka", **AT, ca_file="c"), "ca_file needs security => 'ssl'"),
        (of("kafka", **AT, security="tls"), "no security tls; there is: plaintext, sasl_plain"),
        (of("kafka", **AT, security="sasl_ssl"), "needs a mechanism: plain, scram-sha-256"),
        (of("kafka", **LOGIN), "needs a password: write password_file => '/path', or password"),
        (of("kafka", **LOGIN, password_env="HOME"), "begins with HEADWATER_SECRET_, not HOME"),
        (of("kafka", **LOGIN, password_file="a", password_env="b"), "exclude each other"),
        (of("kafka", **AT, security="ssl", certificate_file="c.pem"), "needs a key_file"),
        (of("kafka", **AT, security="ssl", key_file="k.pem"), "key_file needs a certificate_fi"),
        (of("kafka", **AT, security="ssl", check_hostname="no"), "is TRUE or FALSE"),
        (of("kafka", **AT, start="first"), "no start first; there is: earliest, latest"),
        (of("kafka", **AT, sart="latest"), "no option sart; did you mean start"),
        (of("rate"), "rate needs rows_per_second"),
        (of("rate", rows_per_second="5"), "a whole number from 1 to 1000000, not '5'"),
        (of("rate", rows_per_second=True), "not True"),
        (of("socket", host="h"), "socket needs port"),
        (of("socket", host="h", port=70000), "from 1 to 65535, not 70000"),
        (of("socket", host=7, port=80), "needs a host"),
        (of("replay", path="x", speed=0), "a number above 0, not 0"),
        (of("replay", path="x", sped=2), "did you mean speed"),
        (of("kafak"), "no source kafak; did you mean kafka"),
    ],
)
def test_options_of_sources_that_do_not_fit(source: Connector, said: str) -> None:
    with pytest.raises(InputError, match=said):
        source_options(source, stream())


def test_rate_makes_a_time_and_numbers() -> None:
    other = stream("CREATE STREAM s (a STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
    with pytest.raises(InputError, match=r"s\.a is STRING, and can only be BIGINT"):
        source_options(of("rate", rows_per_second=1), other)


@pytest.mark.parametrize(
    "sink, options",
    [
        (of("files", path="out"), FileSinkOptions("out")),
        (of("files", path="out", format="csv"), FileSinkOptions("out", "csv")),
        (of("kafka", **AT), KafkaSinkOptions("a:9092,b:9093", "t")),
    ],
)
def test_options_of_sinks(sink: Connector, options: object) -> None:
    assert sink_options(sink) == options


@pytest.mark.parametrize(
    "sink, said",
    [
        (of("files"), "needs a path"),
        (of("files", path="hdfs://x/y"), "a folder of this machine"),
        (of("files", path="out", format="avro"), "cannot write avro; there is: csv, json, parquet"),
        (of("files", path="out", files_per_step=1), "no option files_per_step"),
        (of("kafka", **AT, start="latest"), "no option start"),
        (of("rate", rows_per_second=1), "no sink rate"),
    ],
)
def test_options_of_sinks_that_do_not_fit(sink: Connector, said: str) -> None:
    with pytest.raises(InputError, match=said):
        sink_options(sink)


@pytest.mark.parametrize("kind", CONNECTORS)
def test_the_examples_in_messages_are_right(kind: str, tmp_path: Path) -> None:
    connector = CONNECTORS[kind]
    with open_state(tmp_path / "state") as headwater:
        if connector.source is not None:
            headwater.execute(DECLARED.replace("CLIENT", connector.source.options.EXAMPLE))
            assert headwater.definitions.streams["s"].source is not None
        if connector.sink is not None:
            sink = connector.sink.options.EXAMPLE
            headwater.execute(f"{DECLARED.replace(' s ', ' t ')}; "
                              f"CREATE QUERY q TO {sink} AS SELECT n FROM t")  # fmt: skip
            assert headwater.query("q").row.sink is not None


@pytest.mark.parametrize(
    "text, said",
    [
        (DECLARED.replace("CLIENT", "kafka(topic => 't')"), "kafka needs servers"),
        ("CREATE TABLE t (a INT) FROM files(pth => 'x')", "did you mean path"),
        (
            "CREATE TABLE t (a INT) FROM kafka(topic => 't')",
            r"read from files\(..\), not from kafka",
        ),
        (
            f"{DECLARED}; CREATE QUERY q TO files(path => 'out', format => 'pdf') AS SELECT n FROM s",
            "there is: csv, json, parquet",
        ),
    ],
)
def test_nothing_of_a_text_is_done_if_a_part_cannot_run(
    tmp_path: Path, text: str, said: str
) -> None:
    with open_state(tmp_path / "state") as headwater:
        with pytest.raises(HeadwaterError, match=said):
            headwater.execute(text)
        assert not headwater.catalog.streams()
        assert not headwater.catalog.queries()


def test_secrets_are_read_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file without its line feed, or from a variable; neither is there when declared."""
    file = tmp_path / "secret"
    monkeypatch.setenv("HEADWATER_SECRET_X", 'a"b\\')
    for named, said in (
        ({"password_file": str(file)}, "cannot be read: No such file"),
        ({"password_env": "HEADWATER_SECRET_Y"}, "HEADWATER_SECRET_Y is not set"),
    ):
        with pytest.raises(InputError, match=said):
            security_settings(sink_options(of("kafka", **LOGIN, **named)))
    file.write_text("sesame\n")
    for named, password in (
        ({"password_file": str(file)}, 'password="sesame";'),
        ({"password_env": "HEADWATER_SECRET_X"}, r'password="a\"b\\";'),
    ):
        options = sink_options(of("kafka", **LOGIN, **named))
        assert isinstance(options, KafkaSinkOptions)
        assert security_settings(options)["sasl.jaas.config"].endswith(password)
        assert "sesame" not in repr(options)


def test_a_password_in_a_statement_is_not_repeated(tmp_path: Path) -> None:
    """Not even where a stream of that name is declared otherwise, and both are shown."""
    text = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM kafka({})"
    at = "servers => 'a:9092', topic => 't'"
    with open_state(tmp_path) as headwater:
        headwater.execute(text.format(at))
        with pytest.raises(InputError, match="must not be in a statement") as refused:
            headwater.execute(text.format(f"{at}, password => 'sesame'"))
        assert "sesame" not in str(refused.value)


def test_secret_files_are_named_from_the_folder_of_the_text(tmp_path: Path) -> None:
    with open_state(tmp_path) as headwater:
        options = ", ".join(f"{name} => '{value}'" for name, value in LOGIN.items())
        text = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM kafka({}, password_file => 'p')"
        execute(headwater.catalog, headwater.definitions, text.format(options), tmp_path)
        source = headwater.definitions.streams["s"].source
        assert source is not None and source.get("password_file") == str(tmp_path / "p")
