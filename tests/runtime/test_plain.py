"""What the driver reads of JSON lines it reads as the reference does, and leaves the rest to Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Schema,
    decimal,
)
from headwater.reference.data import load
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.sources.plain import plain_json

SCHEMA = Schema(
    (
        Field("n", INT),
        Field("big", BIGINT),
        Field("x", DOUBLE),
        Field("s", STRING),
        Field("b", BOOLEAN),
        Field("d", decimal(7, 2)),
        Field("ts", TIMESTAMP, nullable=False),
    )
)
GOOD = {"n": 1, "big": 2**40, "x": 0.5, "s": "a", "b": True, "ts": "2026-01-02 03:04:05.678"}


def read(folder: Path, *texts: str | bytes) -> Any:
    names = []
    for n, text in enumerate(texts):
        path = folder / f"{n}.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        names.append(str(path))
    return plain_json(names, SCHEMA, [n << 40 for n in range(len(texts))])


def line(**changed: object) -> str:
    return json.dumps({**GOOD, **changed})


RECORDS = st.fixed_dictionaries(
    {"ts": st.datetimes().map(lambda t: t.isoformat(" "))},
    optional={
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "big": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "b": st.none() | st.booleans(),
        "d": st.none()
        | st.integers(-(10**5) + 1, 10**5 - 1)
        | st.integers(-(10**7) + 1, 10**7 - 1).map(lambda n: n / 100),
    },
)


@given(st.lists(RECORDS, min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_records_are_those_of_the_reference(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("plain")
    table = read(folder, "\n".join(json.dumps(record) for record in records))
    assert table is not None
    (folder / "0.json").rename(folder / "s.jsonl")
    columns = [table[f.name].to_pylist() for f in SCHEMA if f.name != "ts"]
    rows = list(zip(*columns, table["ts"].cast("int64").to_pylist(), strict=True))
    assert rows == load(folder, "s", SCHEMA)


def test_arrivals_count_from_the_one_of_each_file(tmp_path: Path) -> None:
    table = read(tmp_path, f"{line()}\n\n  {line(n=None)}  \r\n", "", line(s="z"))
    assert table[ARRIVAL].to_pylist() == [0, 1, 2 << 40]
    assert table["s"].to_pylist() == ["a", "a", "z"]


@pytest.mark.parametrize(
    "text",
    [
        line(n="1"),
        line(n=1.0),
        line(n=2**31),
        line(n=True),
        line(s=5),
        line(s={"a": 1}),
        line(b=1),
        line(x="NaN"),
        line(d=0.125),
        line(d=10**5),
        line(d="much"),
        line(d=True),
        line(ts=1_700_000_000),
        line(ts="yesterday"),
        line(ts="2026-01-02T03:04:05.6789012"),
        "[" + line() + "]",
        line() + line(),
        line() + " more",
        line()[:-1],
        line() + "\n" + line()[:20] + "\n" + line()[20:],
        '{"n": 1, "n": 2, "ts": "2026-01-02"}',
        b'{"s": "\xff", "ts": "2026-01-02"}',
    ],
)
def test_anything_else_is_left_to_spark(tmp_path: Path, text: str | bytes) -> None:
    assert read(tmp_path, line(), text) is None
    assert read(tmp_path, line()) is not None


def test_types_that_readers_may_differ_in_are_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"d": 1.5}')
    assert plain_json([str(path)], Schema((Field("d", FLOAT),)), [0]) is None
    packed = path.rename(tmp_path / "a.json.gz")
    assert plain_json([str(packed)], Schema((Field("d", DOUBLE),)), [0]) is None
