"""Types, schemas, times, windows and the namespace: what is accepted, refused and shown."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from headwater.algebra.catalog import Namespace, Stream, Table
from headwater.algebra.times import (
    format_date,
    format_timestamp,
    from_days,
    from_micros,
    parse_date,
    parse_timestamp,
    to_days,
    to_micros,
)
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    Type,
    as_decimal,
    bounded_decimal,
    common_type,
    decimal,
    parse_type,
)
from headwater.algebra.windows import NOW, UNBOUNDED, UNITS, Range, Rows, format_duration
from headwater.errors import AlgebraError

# ---- types


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (INT, INT, INT),
        (TINYINT, BIGINT, BIGINT),
        (INT, FLOAT, DOUBLE),
        (FLOAT, DOUBLE, DOUBLE),
        (decimal(5, 2), FLOAT, DOUBLE),
        (decimal(5, 2), INT, decimal(12, 2)),
        (decimal(5, 2), decimal(9, 4), decimal(9, 4)),
        (decimal(38, 10), decimal(38, 0), decimal(38, 0)),
        (DATE, TIMESTAMP, TIMESTAMP),
        (STRING, NULL, STRING),
        (NULL, INTERVAL, INTERVAL),
        (STRING, INT, None),
        (BOOLEAN, INT, None),
        (TIMESTAMP, INTERVAL, None),
    ],
)
def test_common_type(a: Type, b: Type, common: Type | None) -> None:
    assert common_type(a, b) == common
    assert common_type(b, a) == common


@pytest.mark.parametrize(
    "type_",
    [
        BOOLEAN,
        TINYINT,
        FLOAT,
        STRING,
        DATE,
        TIMESTAMP,
        INTERVAL,
        NULL,
        decimal(38, 0),
        decimal(7, 2),
    ],
)
def test_a_type_is_read_as_it_is_written(type_: Type) -> None:
    assert parse_type(str(type_)) == type_


def test_kinds_of_types() -> None:
    assert [t for t in (INT, DOUBLE, decimal(5, 2), DATE, STRING, BOOLEAN) if t.is_exact] == [
        INT,
        decimal(5, 2),
        DATE,
    ]
    assert TINYINT.bounds == (-128, 127)
    assert BOOLEAN.bounds == (0, 1)
    assert STRING.bounds is None and TIMESTAMP.bounds is None
    assert str(decimal(5, 2)) == "DECIMAL(5,2)" and str(SMALLINT) == "SMALLINT"
    assert as_decimal(BIGINT) == decimal(20, 0)
    assert bounded_decimal(45, 20) == decimal(38, 13)


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_decimals_refused(precision: int, scale: int) -> None:
    with pytest.raises(AlgebraError, match="precision is 1 to 38"):
        decimal(precision, scale)


# ---- schemas


SCHEMA = Schema((Field("num", INT, nullable=False), Field("Gate", STRING), Field("ts", TIMESTAMP)))


def test_a_schema_finds_columns_whatever_their_case() -> None:
    assert SCHEMA["gate"] == Field("Gate", STRING)
    assert SCHEMA.get("nothing") is None
    assert SCHEMA.names == ("num", "Gate", "ts")
    assert str(SCHEMA) == "num INT NOT NULL, Gate STRING, ts TIMESTAMP"


def test_schemas_refused() -> None:
    with pytest.raises(AlgebraError, match="at least one column"):
        Schema(())
    with pytest.raises(AlgebraError, match="GATE is declared twice"):
        Schema((Field("gate", STRING), Field("GATE", INT)))
    with pytest.raises(AlgebraError, match="no column gates; did you mean Gate"):
        SCHEMA["gates"]


# ---- times


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-01-31", "2026-01-31T00:00:00.000000Z"),
        ("2026-01-31 12:30:00.5", "2026-01-31T12:30:00.500000Z"),
        ("2026-01-31T12:30:00+02:00", "2026-01-31T10:30:00.000000Z"),
        ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
        ("0001-01-01", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_timestamps(text: str, shown: str) -> None:
    assert format_timestamp(parse_timestamp(text)) == shown


def test_times_and_back() -> None:
    moment = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    assert from_micros(to_micros(moment)) == moment
    assert to_micros(moment.replace(tzinfo=None)) == to_micros(moment)
    assert from_days(to_days(date(2026, 1, 31))) == date(2026, 1, 31)
    assert format_date(parse_date(" 2026-01-31 ")) == "2026-01-31"
    assert format_timestamp(2**62) == f"{2**62} us"


@pytest.mark.parametrize("text", ["", "noon", "2026-02-30", "31.01.2026"])
def test_times_refused(text: str) -> None:
    with pytest.raises(AlgebraError, match="is not a timestamp; write it like"):
        parse_timestamp(text)
    with pytest.raises(AlgebraError, match="is not a date; write it like"):
        parse_date(text)


# ---- windows


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (NOW, "[NOW]"),
        (UNBOUNDED, "[RANGE UNBOUNDED]"),
        (Range(5 * UNITS["MINUTE"]), "[RANGE 5 MINUTES]"),
        (Range(UNITS["HOUR"], UNITS["SECOND"]), "[RANGE 1 HOUR SLIDE 1 SECOND]"),
        (Range(None, 90 * UNITS["SECOND"]), "[RANGE UNBOUNDED SLIDE 90 SECONDS]"),
        (Rows(10), "[ROWS 10]"),
        (Rows(1, ("gate", "flight no")), "[PARTITION BY gate, `flight no` ROWS 1]"),
    ],
)
def test_windows_as_text(window: Range | Rows, text: str) -> None:
    assert str(window) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 SECONDS"),
        (1, "1 MICROSECOND"),
        (1_500, "1500 MICROSECONDS"),
        (2_000, "2 MILLISECONDS"),
        (86_400_000_000, "1 DAY"),
        (36 * UNITS["HOUR"], "36 HOURS"),
    ],
)
def test_durations(microseconds: int, text: str) -> None:
    assert format_duration(microseconds) == text


def test_windows_refused() -> None:
    with pytest.raises(AlgebraError, match="RANGE cannot be negative"):
        Range(-1)
    with pytest.raises(AlgebraError, match="SLIDE must be longer than 0"):
        Range(5, 0)
    with pytest.raises(AlgebraError, match="at least 1 tuple"):
        Rows(0)
    with pytest.raises(AlgebraError, match="names a column twice"):
        Rows(1, ("gate", "GATE"))


# ---- streams and tables


def test_streams() -> None:
    stream = Stream("flights", SCHEMA, "ts")
    assert stream.keep == UNITS["HOUR"] and stream.lateness == 0
    assert stream.scan(NOW).alias == "flights"
    assert [str(c) for c in stream.scan(NOW, "f").columns] == ["f.num", "f.Gate", "f.ts"]
    with pytest.raises(AlgebraError, match="TIMESTAMP BY num: that is INT, not TIMESTAMP"):
        Stream("flights", SCHEMA, "num")
    with pytest.raises(AlgebraError, match="no column time"):
        Stream("flights", SCHEMA, "time")
    with pytest.raises(AlgebraError, match="cannot be negative"):
        Stream("flights", SCHEMA, "ts", lateness=-1)


def test_a_namespace_knows_a_name_once() -> None:
    names = Namespace.of([Stream("flights", SCHEMA, "ts"), Table("airports", SCHEMA)])
    assert names["FLIGHTS"].name == "flights"
    assert names.names == ("flights", "airports")
    with pytest.raises(AlgebraError, match="Airports exists already"):
        names.add(Table("Airports", SCHEMA))
    copy = names.copy()
    copy.remove("airports")
    assert names.get("airports") is not None and copy.get("airports") is None
    with pytest.raises(AlgebraError, match="no stream or table flight; did you mean flights"):
        names["flight"]
