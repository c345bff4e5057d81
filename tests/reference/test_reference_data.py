"""Files to rows, rows to text, and the errors that name the place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.algebra.times import parse_date, parse_timestamp
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    Type,
    Value,
    decimal,
)
from headwater.errors import InputError
from headwater.reference.data import load_rows
from headwater.reference.formatting import to_json, to_text

MONEY = decimal(6, 2)
SCHEMA = Schema(
    (
        Field("id", INT, nullable=False),
        Field("ok", BOOLEAN),
        Field("x", DOUBLE),
        Field("cost", MONEY),
        Field("name", STRING),
        Field("day", DATE),
        Field("ts", TIMESTAMP),
    )
)
NOON = parse_timestamp("2026-01-31 12:00:00.5")
ROWS = [
    (1, True, 0.5, Decimal("1.50"), "a,b", parse_date("2026-01-31"), NOON),
    (2, None, None, None, None, None, None),
]
CSV = """id,ok,x,COST,name,day,ts
1,true,0.5,1.5,"a,b",2026-01-31,2026-01-31T13:00:00.5+01:00

2,,,,,,
"""
JSONL = """{"id": 1, "ok": true, "x": 0.5, "Cost": 1.50, "name": "a,b", "day": "2026-01-31", "ts": "2026-01-31 12:00:00.5"}

{"id": 2, "x": null}
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def test_csv(tmp_path: Path) -> None:
    assert load_rows(write(tmp_path, Trips_csv=CSV), "trips", SCHEMA) == ROWS


def test_jsonl(tmp_path: Path) -> None:
    assert load_rows(write(tmp_path, trips_jsonl=JSONL), "TRIPS", SCHEMA) == ROWS


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_parquet(tmp_path: Path, unit: str, zone: str | None) -> None:
    factor = {"ms": (1, 1000), "us": (1, 1), "ns": (1000, 1)}[unit]
    moment = NOON * factor[0] // factor[1]
    table = pa.table(
        {
            "ID": pa.array([1, 2], pa.int64()),
            "ok": [True, None],
            "x": pa.array([0.5, None], pa.float32()),
            "cost": pa.array([Decimal("1.5"), None], pa.decimal128(10, 1)),
            "name": pa.array(["a,b", None]).dictionary_encode(),
            "day": pa.array([parse_date("2026-01-31"), None], pa.int32()).cast(pa.date32()),
            "ts": pa.array([moment, None], pa.timestamp(unit, zone)),
        }
    )
    pq.write_table(table, tmp_path / "trips.parquet", coerce_timestamps=None)
    assert load_rows(tmp_path, "trips", SCHEMA) == ROWS


def test_special_numbers(tmp_path: Path) -> None:
    schema = Schema((Field("x", DOUBLE), Field("f", FLOAT)))
    write(tmp_path, a_csv="x,f\nNaN,0.1\n-Infinity,1e3\n")
    write(tmp_path, b_jsonl='{"x": "NaN", "f": 0.1}\n{"x": "-Infinity", "f": "1e3"}\n')
    for name in "ab":
        rows = load_rows(tmp_path, name, schema)
        assert math.isnan(rows[0][0])  # type: ignore[arg-type]
        assert rows[0][1] == 0.10000000149011612
        assert rows[1] == (-math.inf, 1000.0)


def test_missing_keys_are_null_and_others_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, trips_jsonl='{"name": "a", "id": 1, "other": [1]}')
    assert load_rows(tmp_path, "trips", SCHEMA) == [(1, None, None, None, "a", None, None)]


def test_columns_are_found_by_the_header(tmp_path: Path) -> None:
    write(tmp_path, trips_csv="other,NAME, id\n,a,1\n")
    assert load_rows(tmp_path, "trips", only("id", "name")) == [(1, "a")]
    with pytest.raises(
        InputError, match=r"trips\.csv has no column ok, x, .*; its header is: other"
    ):
        load_rows(tmp_path, "trips", SCHEMA)


def only(*names: str) -> Schema:
    return Schema(tuple(SCHEMA[name] for name in names))


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        ("csv", "id,x\n1,2\n1\n", "line 3: 1 cells for 2 columns"),
        ("csv", "id,x\n1,2\n\n3,abc\n", "line 4, column x: 'abc' is no DOUBLE"),
        ("csv", "id\n1.5\n", "line 2, column id: '1.5' is no INT"),
        ("csv", "id\n1_0\n", "line 2, column id: '1_0' is no INT"),
        ("csv", "id\n3000000000\n", "line 2, column id: 3000000000 is outside INT, -2147483648 to"),
        ("csv", "id,ok\n1,yes\n", "line 2, column ok: 'yes' is no BOOLEAN"),
        ("csv", "id,cost\n1,1.005\n", r"line 2, column cost: 1.005 does not fit DECIMAL\(6,2\)"),
        ("csv", "id,cost\n1,99999\n", "line 2, column cost: 99999 does not fit"),
        ("csv", "id,x\n1,1e999\n", "line 2, column x: '1e999' is no DOUBLE"),
        ("csv", "id,ts\n1,noon\n", "line 2, column ts: 'noon' is not a timestamp"),
        (
            "csv",
            "id,ts\n1,1700000000\n",
            "line 2, column ts: 1700000000 is not a timestamp but a number",
        ),
        ("csv", "id,day\n1,31.1.2026\n", "line 2, column day: '31.1.2026' is not a date"),
        ("csv", "id,x\n,2\n", "line 2, column id: NULL is not allowed"),
        ("jsonl", '{"id": 1}\n{"id": 2\n', "line 2: not JSON"),
        ("jsonl", "[1]\n", r"line 1: not a JSON object: \[1\]"),
        ("jsonl", '{"id": 1, "id": 2}\n', "line 1, column id: comes twice"),
        ("jsonl", '{"id": true}\n', "line 1, column id: true is no INT"),
        ("jsonl", '{"id": 1.0}\n', "line 1, column id: 1.0 is no INT"),
        ("jsonl", '{"id": 1, "name": 5}\n', "line 1, column name: 5 is no STRING"),
        ("jsonl", '{"id": 1, "name": {"a": 1}}\n', "line 1, column name: an object is no STRING"),
        ("jsonl", '{"id": 1, "x": [1]}\n', "line 1, column x: an array is no DOUBLE"),
        ("jsonl", '{"id": 1, "ts": 5}\n', "line 1, column ts: 5 is not a timestamp but a number"),
        ("jsonl", '{"id": 1, "cost": 1.005}\n', "line 1, column cost: 1.005 does not fit"),
        ("jsonl", '{"x": 1}\n', "line 1, column id: NULL is not allowed"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, suffix: str, text: str, message: str) -> None:
    (tmp_path / f"trips.{suffix}").write_text(text, encoding="utf-8")
    schema = only(*text.splitlines()[0].split(",")) if suffix == "csv" else SCHEMA
    with pytest.raises(InputError, match=rf"trips\.{suffix}, {message}"):
        load_rows(tmp_path, "trips", schema)


def test_an_event_time_is_never_null(tmp_path: Path) -> None:
    write(tmp_path, trips_csv=CSV)
    with pytest.raises(InputError, match=r"line 4, column ts: NULL is not allowed"):
        load_rows(tmp_path, "trips", SCHEMA, time="TS")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("id", pa.array(["1"]), "column id: has string for INT"),
        ("id", pa.array([1, 2**40]), "row 2, column id: 1099511627776 does not fit INT"),
        ("cost", pa.array([0.5]), "column cost: has double for DECIMAL"),
        ("cost", pa.array([Decimal("0.001")]), "row 1, column cost: 0.001 does not fit"),
        ("ts", pa.array([1], pa.int64()), "column ts: 1 is not a timestamp but a number"),
    ],
)
def test_parquet_that_does_not_fit_is_refused(
    tmp_path: Path, column: str, values: pa.Array, message: str
) -> None:
    pq.write_table(pa.table({column: values}), tmp_path / "trips.parquet")
    with pytest.raises(InputError, match=message):
        load_rows(tmp_path, "trips", only(column))


def test_files_that_are_missing_double_or_broken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it holds no files"):
        load_rows(tmp_path, "trips", SCHEMA)
    write(tmp_path, other_csv="", notes_txt="")
    with pytest.raises(InputError, match=r"has no trips\.csv, .*; it holds notes\.txt, other\.csv"):
        load_rows(tmp_path, "trips", SCHEMA)
    with pytest.raises(InputError, match="cannot be read"):
        load_rows(tmp_path / "nowhere", "trips", SCHEMA)
    write(tmp_path, trips_csv=CSV, Trips_jsonl=JSONL)
    with pytest.raises(InputError, match=r"has Trips\.jsonl and trips\.csv: which is trips"):
        load_rows(tmp_path, "trips", SCHEMA)
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match=r"broken\.parquet cannot be read"):
        load_rows(tmp_path, "broken", SCHEMA)
    (tmp_path / "latin.csv").write_bytes(b"id,name\n1,\xe9\n")
    with pytest.raises(InputError, match=r"latin\.csv, line 2: not UTF-8: byte 0xe9 at 2"):
        load_rows(tmp_path, "latin", only("id", "name"))


TEXTS: list[tuple[Value, Type, str, object]] = [
    (None, INT, "NULL", None),
    (True, BOOLEAN, "true", True),
    (-5, TINYINT, "-5", -5),
    (2**63 - 1, BIGINT, "9223372036854775807", 2**63 - 1),
    (0.1, DOUBLE, "0.1", 0.1),
    (math.nan, DOUBLE, "NaN", "NaN"),
    (-math.inf, DOUBLE, "-Infinity", "-Infinity"),
    (Decimal("1.50"), MONEY, "1.50", 1.5),
    (Decimal("100"), MONEY, "100", 100),
    (
        Decimal("0.12345678901234567890"),
        decimal(38, 20),
        "0.12345678901234567890",
        "0.12345678901234567890",
    ),
    ("a", STRING, "a", "a"),
    (parse_date("2026-01-31"), DATE, "2026-01-31", "2026-01-31"),
    (NOON, TIMESTAMP, "2026-01-31T12:00:00.500000Z", "2026-01-31T12:00:00.500000Z"),
    (300_000_000, INTERVAL, "5 MINUTES", "5 MINUTES"),
    (-1, INTERVAL, "-1 MICROSECOND", "-1 MICROSECOND"),
]


@pytest.mark.parametrize(("value", "type_", "text", "written"), TEXTS)
def test_to_text_and_json(value: Value, type_: Type, text: str, written: object) -> None:
    assert to_text(value, type_) == text
    assert to_json(value, type_) == written
    json.dumps(to_json(value, type_), allow_nan=False)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_what_is_written_can_be_read(tmp_path: Path, suffix: str) -> None:
    written: dict[str, Callable[[], str]] = {
        "csv": lambda: ",".join(SCHEMA.names) + "\n" + "".join(
            ",".join(
                "" if v is None else f'"{to_text(v, f.type)}"'
                for v, f in zip(row, SCHEMA, strict=True)
            ) + "\n"
            for row in ROWS
        ),
        "jsonl": lambda: "".join(
            json.dumps({f.name: to_json(v, f.type) for v, f in zip(row, SCHEMA, strict=True)})
            + "\n"
            for row in ROWS
        ),
    }  # fmt: skip
    (tmp_path / f"trips.{suffix}").write_text(written[suffix](), encoding="utf-8")
    assert load_rows(tmp_path, "trips", SCHEMA) == ROWS
