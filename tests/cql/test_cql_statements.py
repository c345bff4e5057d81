"""Statements, apart from the queries in them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from cql_texts import NAMES

from headwater.algebra.catalog import Namespace, Stream, Table
from headwater.algebra.times import parse_timestamp
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    Type,
    decimal,
)
from headwater.algebra.windows import UNITS
from headwater.cql import (
    BareQuery,
    Connector,
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropStream,
    DropTable,
    EndStream,
    Explain,
    PauseQuery,
    RestartStream,
    ResumeQuery,
    RewindStream,
    SetOption,
    Show,
    Start,
    Statement,
    parse,
    parse_query,
    unparse,
)
from headwater.cql.statements import EARLIEST, LATEST, NO_SINK
from headwater.errors import CqlError, CqlErrors

SECOND, HOUR, DAY = UNITS["SECOND"], UNITS["HOUR"], UNITS["DAY"]
NUMBERS = parse_query("SELECT num FROM flights", NAMES)
TIME = Field("ts", TIMESTAMP, nullable=False)


def one(text: str) -> Statement:
    statements = parse(text, NAMES)
    assert len(statements) == 1
    return statements[0]


def stream_of(text: str) -> Stream:
    statement = one(text)
    assert isinstance(statement, CreateStream)
    return statement.stream


SIMPLE: list[tuple[str, Statement]] = [
    ("SHOW STREAMS", Show("STREAMS")),
    ("show rejects", Show("REJECTS")),
    ("DROP QUERY gate_a7", DropQuery("gate_a7")),
    ("DROP STREAM `check-ins`", DropStream("check-ins")),
    ("DROP TABLE airports", DropTable("airports")),
    ("PAUSE QUERY q", PauseQuery("q")),
    ("resume query q", ResumeQuery("q")),
    ("END STREAM flights", EndStream("flights")),
    (
        "rewind stream flights to timestamp '2026-01-31 11:00:00'",
        RewindStream("flights", parse_timestamp("2026-01-31 11:00:00")),
    ),
    (
        "REWIND STREAM flights TO TIMESTAMP '2026-01-31' RESTART QUERIES",
        RewindStream("flights", parse_timestamp("2026-01-31"), restart=True),
    ),
    ("RESTART STREAM flights", RestartStream("flights")),
    ("SET NAME = 'x'", SetOption("name", "x")),
    ("SET Spark.Shuffle.Partitions = 8", SetOption("spark.shuffle.partitions", 8)),
    ("SET a = -1.5", SetOption("a", Decimal("-1.5"))),
    ("SET a = 1e3", SetOption("a", 1000.0)),
    ("SET a = TRUE", SetOption("a", True)),
    ("SELECT num FROM flights", BareQuery(NUMBERS)),
    ("(SELECT num FROM flights)", BareQuery(NUMBERS)),
    ("EXPLAIN SELECT num FROM flights", Explain(NUMBERS)),
    ("EXPLAIN ANALYZE SELECT num FROM flights", Explain(NUMBERS, analyze=True)),
    ("CREATE QUERY q AS SELECT num FROM flights", CreateQuery("q", NUMBERS)),
    (
        "CREATE QUERY q LIFETIME 2 HOURS AS SELECT num FROM flights",
        CreateQuery("q", NUMBERS, lifetime=2 * HOUR),
    ),
    (
        "CREATE QUERY q TO NONE STARTING AT EARLIEST AS SELECT num FROM flights",
        CreateQuery("q", NUMBERS, EARLIEST, None, NO_SINK),
    ),
    (
        "CREATE QUERY q STARTING AT latest AS SELECT num FROM flights",
        CreateQuery("q", NUMBERS, LATEST),
    ),
    (
        "CREATE QUERY q TO files(path => 'out') STARTING AT TIMESTAMP '2026-01-31T12:00:00+01:00'"
        " AS SELECT num FROM flights",
        CreateQuery(
            "q",
            NUMBERS,
            Start("TIMESTAMP", parse_timestamp("2026-01-31 11:00:00")),
            sink=Connector("files", (("path", "out"),)),
        ),
    ),
    (
        "CREATE TABLE runways (airport STRING NOT NULL, meters INT) FROM files(path => 'x.csv')",
        CreateTable(
            Table("runways", Schema((Field("airport", STRING, False), Field("meters", INT)))),
            Connector("files", (("path", "x.csv"),)),
        ),
    ),
    (
        "CREATE STREAM gates (num INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT",
        CreateStream(Stream("gates", Schema((Field("num", INT), TIME)), "ts", ahead=HOUR), None),
    ),
    (
        "CREATE STREAM gates (num INT, ts TIMESTAMP) TIMESTAMP BY ts AHEAD UNBOUNDED FROM CLIENT",
        CreateStream(Stream("gates", Schema((Field("num", INT), TIME)), "ts"), None),
    ),
    (
        "CREATE STREAM gates (num INT, ts TIMESTAMP) TIMESTAMP BY ts BEHIND 3 DAYS AHEAD 1.5 SEC "
        "FROM files(path => 'g')",
        CreateStream(
            Stream(
                "gates",
                Schema((Field("num", INT), TIME)),
                "ts",
                ahead=1_500_000,
                behind=3 * DAY,
            ),
            Connector("files", (("path", "g"),)),
        ),
    ),
    (
        "create stream gates (num int, ts timestamp) from Kafka(Topic => 'g', parts => 3)"
        " keep 3 days timestamp by TS lateness 1.5 seconds",
        CreateStream(
            Stream("gates", Schema((Field("num", INT), TIME)), "ts", 1_500_000, 3 * DAY, HOUR),
            Connector("kafka", (("topic", "g"), ("parts", 3))),
        ),
    ),
]


@pytest.mark.parametrize(("text", "statement"), SIMPLE, ids=[text for text, _ in SIMPLE])
def test_statements(text: str, statement: Statement) -> None:
    assert one(text) == statement
    assert one(text + ";") == statement
    assert one(f"-- first\n/* then */ {text} -- last") == statement


@pytest.mark.parametrize(("text", "statement"), SIMPLE, ids=[text for text, _ in SIMPLE])
def test_statements_read_back(text: str, statement: Statement) -> None:
    assert one(unparse(statement)) == statement


TYPES = [
    ("BOOLEAN", BOOLEAN),
    ("bool", BOOLEAN),
    ("TINYINT", TINYINT),
    ("BYTE", TINYINT),
    ("SMALLINT", SMALLINT),
    ("INT", INT),
    ("integer", INT),
    ("BIGINT", BIGINT),
    ("LONG", BIGINT),
    ("FLOAT", FLOAT),
    ("REAL", FLOAT),
    ("DOUBLE", DOUBLE),
    ("STRING", STRING),
    ("VARCHAR(20)", STRING),
    ("DATE", DATE),
    ("TIMESTAMP", TIMESTAMP),
    ("DECIMAL", decimal(10, 0)),
    ("DECIMAL(5)", decimal(5, 0)),
    ("NUMERIC(38, 10)", decimal(38, 10)),
]


@pytest.mark.parametrize(("written", "type_"), TYPES, ids=[written for written, _ in TYPES])
def test_types_of_columns(written: str, type_: Type) -> None:
    made = stream_of(f"CREATE STREAM s (a {written}, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
    assert made.schema["a"].type == type_


DURATIONS = [
    ("5 SECONDS", 5 * SECOND),
    ("1 second", SECOND),
    ("1.5 SEC", 1_500_000),
    ("250 MS", 250_000),
    ("7 MICROS", 7),
    ("1 us", 1),
    ("2 MILLIS", 2_000),
    ("5 M", 300 * SECOND),
    ("5MIN", 300 * SECOND),
    ("90S", 90 * SECOND),
    ("1.5 HRS", 5400 * SECOND),
    ("2 H", 2 * HOUR),
    ("1D", DAY),
    ("0.000001 SECONDS", 1),
    ("1 HOUR 30 MINUTES", 5400 * SECOND),
    ("0 SECONDS", 0),
]


@pytest.mark.parametrize(("written", "micros"), DURATIONS, ids=[text for text, _ in DURATIONS])
def test_lengths_of_time(written: str, micros: int) -> None:
    made = stream_of(f"CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts KEEP {written} FROM CLIENT")
    assert made.keep == micros


def test_defaults_of_a_stream() -> None:
    made = stream_of("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
    assert (made.lateness, made.keep) == (0, HOUR)


def test_options_keep_their_order_and_types() -> None:
    statement = one(
        "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM rate("
        "rows => 5, share => 0.5, wide => 1e2, header => false, note => 'it''s', `max size` => NULL)"
    )
    assert isinstance(statement, CreateStream)
    assert statement.source == Connector(
        "rate",
        (
            ("rows", 5),
            ("share", Decimal("0.5")),
            ("wide", 100.0),
            ("header", False),
            ("note", "it's"),
            ("max size", None),
        ),
    )
    assert statement.source.get("note") == "it's"
    assert statement.source.get("nothing") is None


def test_what_a_text_declares_is_known_to_the_rest() -> None:
    created, query = parse(
        "CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT; SELECT a FROM S"
    )
    assert isinstance(created, CreateStream)
    assert isinstance(query, BareQuery)
    assert query.query == parse_query("SELECT a FROM s", Namespace.of([created.stream]))


def test_names_given_are_left_alone() -> None:
    names = Namespace()
    parse("CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT", names)
    assert names.names == ()


def test_a_dropped_name_is_free_again() -> None:
    texts = [
        "CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT",
        "CREATE QUERY q AS SELECT a FROM s",
        "DROP QUERY q",
        "DROP STREAM s",
        "CREATE STREAM s (b INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT",
        "CREATE QUERY q AS SELECT b FROM s",
    ]
    assert len(parse(";\n".join(texts))) == 6


def test_a_dropped_stream_is_unknown() -> None:
    with pytest.raises(CqlErrors) as raised:
        parse("DROP STREAM flights; SELECT num FROM flights", NAMES)
    assert raised.value.message == "no stream or table flights"


def test_nothing_is_no_statement() -> None:
    assert parse("") == ()
    assert parse(" ;; -- nothing\n;") == ()


def test_every_mistake_is_reported_in_order() -> None:
    text = "SELECT nmu FROM flights; SHOW ALL; SELECT num FROM flights; SELCT 1"
    with pytest.raises(CqlErrors) as raised:
        parse(text, NAMES)
    found = raised.value.errors
    assert [error.offset for error in found] == [text.index(w) for w in ("nmu", "ALL", "SELCT")]


@pytest.mark.parametrize(
    "broken", ["CREATE STREAM s (a INT) FROM CLIENT", "CREATE STREAM s (a INT,"]
)
def test_a_stream_that_failed_is_not_reported_twice(broken: str) -> None:
    with pytest.raises(CqlErrors) as raised:
        parse(f"{broken}; SELECT a FROM s; CREATE QUERY q AS SELECT a FROM S; SELECT a FROM t")
    assert [error.message for error in raised.value.errors][1:] == ["no stream or table t"]


def test_parse_query_takes_one_query() -> None:
    assert parse_query("SELECT num FROM flights;", NAMES) == NUMBERS
    for text in ("", ";", "SHOW STREAMS", "SELECT num FROM flights; SELECT num FROM flights"):
        with pytest.raises(CqlError):
            parse_query(text, NAMES)


def test_names_that_need_backquotes() -> None:
    name = "odd `name`, select"
    quoted = "`odd ``name``, select`"
    statement = one(
        f"CREATE STREAM {quoted} ({quoted} INT, `order by` TIMESTAMP) TIMESTAMP BY `order by` FROM CLIENT"
    )
    assert isinstance(statement, CreateStream)
    assert statement.stream.name == name
    assert statement.stream.schema.names == (name, "order by")
    assert one(unparse(statement)) == statement


def test_a_statement_in_many_lines() -> None:
    statement = one(
        "CREATE STREAM s (a INT NOT NULL, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 5 SECONDS KEEP 2 HOURS"
        " FROM files(path => 'in/s', format => 'json')"
    )
    assert unparse(statement).split("\n") == [
        "CREATE STREAM s (",
        "  a INT NOT NULL,",
        "  ts TIMESTAMP",
        ")",
        "TIMESTAMP BY ts",
        "LATENESS 5 SECONDS",
        "KEEP 2 HOURS",
        "FROM files(path => 'in/s', format => 'json')",
    ]
