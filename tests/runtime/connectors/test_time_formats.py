"""Which texts and numbers are times: the reference evaluator's readers and the runtime's agree."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.times import TIMESTAMP_UNITS, parse_date, parse_timestamp, to_days
from headwater.algebra.types import DATE, INT, TIMESTAMP, Field, Schema
from headwater.errors import AlgebraError, InputError
from headwater.reference.data import load_rows
from headwater.runtime.api import open_state
from headwater.runtime.connectors.record_parser import ParsedChunk, read_file, read_lines
from headwater.runtime.ingest.client_push import _convert_value
from headwater.runtime.storage.segment_files import read_arrow

SCHEMA = Schema((Field("n", INT), Field("ts", TIMESTAMP), Field("day", DATE)))
UNITS = [None, *TIMESTAMP_UNITS]
ODD = (
    *("2026", "2026-1-5", "2026-01", "20260105", "2026-01-05", " 2026-01-05 ", "2026-01-05T"),
    *("2026-01-05 10", "2026-01-05 10:11", "2026-01-05 10:11:12", "2026-01-05T10:11:12Z"),
    *("2026-01-05T10:11:12z", "2026-01-05t10:11:12", "2026-01-05 10:11:12 Z"),
    *("2026-01-05T10:11:12+01", "2026-01-05T10:11:12+0130", "2026-01-05T10:11:12-01:30"),
    *("2026-01-05T10:11:12+18:00", "2026-01-05T10:11:12+18:01", "2026-01-05T10:11:12+1"),
    *("2026-01-05T10:11:12UTC", "2026-01-05T10:11:12 Europe/Berlin", "2026-01-05T10:11+01:00"),
    *("2026-01-05 10:11:12.", "2026-01-05 10:11:12.1", "2026-01-05 10:11:12.123456789"),
    *("2026-01-05 10:11:12,5", "2026-01-05 24:00:00", "2026-01-05 23:59:60", "2026-02-29"),
    *("2024-02-29", "0000-01-01", "0001-01-01", "0001-01-01T00:00:00+01:00", "9999-12-31"),
    *("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00", "10000-01-01", "-2026-01-05"),
    *("+2026-01-05", "2026-W01-1", "2026-005", "20260105T101112", "now", "epoch", "today", "x"),
    *("0", "-1", "1793534421", "1793534421458", "1793534421458000", "1793534421458000000"),
    *("1793534421.458", "1.5e9", "1E400", "1e-3", "-62135596800", "-62135596801", "253402300799"),
    *("253402300800", "9" * 19, "9" * 31, "1_000", "0x10", "1.", ".5", "NaN", "Infinity", "1L"),
    *("0.9999999999", "0.0000004", "-0.0000001", "true", "2026-01-05\n", "２０２６-01-05", "1 "),
)


def odd_texts(seed: int, count: int) -> list[str]:
    """Texts that are times, and the same with a character changed."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        at = datetime(1, 1, 2) + timedelta(seconds=rng.randrange(315_537_000_000))
        text = at.isoformat(sep=rng.choice("T "), timespec=rng.choice(["minutes", "seconds"]))
        text += rng.choice(["", "", ".5", ".123456", ".12345678"]) if text.count(":") == 2 else ""
        text += rng.choice(["", "Z", "+02:00", "-0930", "+05"])
        if rng.random() < 0.5:
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice("0123456789-+:T Z.e") + text[place + 1 :]
        texts.append(text)
    return texts


def expected(text: str, unit: str | None) -> tuple[int | None, int | None]:
    """The timestamp and the date that the text stands for."""
    return _or_none(lambda: parse_timestamp(text, unit)), _or_none(lambda: parse_date(text))


def _or_none(read: Any) -> int | None:
    try:
        return int(read())
    except AlgebraError:
        return None


def found(pieces: Iterable[ParsedChunk], count: int) -> list[tuple[int | None, int | None]]:
    """What is made of two columns of each record, of which the other one is NULL; a record that is
    refused says which column it was."""
    read: dict[str, dict[int, int]] = {"ts": {}, "day": {}}
    for table, misfits in pieces:
        stamps, days = table["ts"].cast("int64").to_pylist(), table["day"].cast("int32").to_pylist()
        for n, at, day in zip(table["n"].to_pylist(), stamps, days, strict=True):
            read["day" if n >= count else "ts"][n % count] = at if n < count else day
        assert all(misfit.column in read and misfit.reason for misfit in misfits)
    return [(read["ts"].get(n), read["day"].get(n)) for n in range(count)]


def records(texts: Sequence[Any]) -> list[dict[str, Any]]:
    stamps = [{"n": n, "ts": text} for n, text in enumerate(texts)]
    return stamps + [{"n": len(texts) + n, "day": text} for n, text in enumerate(texts)]


@pytest.mark.parametrize("unit", UNITS)
def test_texts_are_the_same_times_to_all_readers(tmp_path: Path, unit: str | None) -> None:
    texts = [*ODD, *odd_texts(7, 150)]
    want = [expected(text, unit) for text in texts]
    assert sum(a is not None for a, _ in want) > 60 and sum(a is None for a, _ in want) > 60

    lines = [json.dumps(record).encode() for record in records(texts)]
    (tmp_path / "s.json").write_bytes(b"\n".join(lines))
    assert found(read(tmp_path / "s.json", "json", unit), len(texts)) == want
    assert found([read_lines(lines, "json", SCHEMA, unit)], len(texts)) == want
    for line, pair in zip(lines, want, strict=False):
        alone = found([read_lines([line], "json", SCHEMA, unit)], len(texts))
        assert pair[0] in {at for at, _ in alone}, "by itself it is read in another way"

    with (tmp_path / "s.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["n", "ts", "day"])
        writer.writeheader()
        writer.writerows(records(texts))
    assert found(read(tmp_path / "s.csv", "csv", unit), len(texts)) == want


def read(path: Path, format: str, unit: str | None) -> list[ParsedChunk]:
    return list(read_file(str(path), format, SCHEMA, unit=unit))


NUMBERS = (0, -1, 1793534421, 1793534421458, 1793534421458000, 2**63 - 1, -(2**63), 10**25)
FRACTIONS = ("1793534421.458", "0.5", "-0.000001", "1793534421.458123", "1.5e9")


@pytest.mark.parametrize("unit", UNITS)
def test_numbers_are_times_if_their_unit_is_declared(tmp_path: Path, unit: str | None) -> None:
    texts = [str(number) for number in NUMBERS] + list(FRACTIONS)
    lines = [f'{{"n": {n}, "ts": {text}}}' for n, text in enumerate(texts)]
    (tmp_path / "s.jsonl").write_text("\n".join(lines))
    pieces = read(tmp_path / "s.jsonl", "json", unit)
    want = [expected(str(Decimal(text)), unit)[0] for text in texts]
    assert [at for at, _ in found(pieces, len(texts))] == want
    if unit is None:
        misfits = [misfit for piece in pieces for misfit in piece.malformed]
        assert all("timestamp_unit: s, ms, us, ns" in misfit.reason for misfit in misfits)
    table = pa.table({"n": [1, 2], "ts": [1793534421, None], "day": pa.nulls(2, pa.date32())})
    pq.write_table(table, tmp_path / "p.parquet")
    (piece,) = read(tmp_path / "p.parquet", "parquet", unit)
    at, _ = expected("1793534421", unit)
    if unit is None:
        assert [misfit.line for misfit in piece.malformed] == [1]
        with pytest.raises(InputError, match="ts: 1793534421 is not a timestamp but a number"):
            load_rows(tmp_path, "p", SCHEMA)
    else:
        assert piece.table["ts"].cast("int64").to_pylist() == [at, None]
        assert load_rows(tmp_path, "p", SCHEMA, timestamp_unit=unit) == [
            (1, at, None),
            (2, None, None),
        ]


@given(st.lists(st.integers(-(10**20), 10**20), min_size=1), st.sampled_from(list(TIMESTAMP_UNITS)))
def test_numbers_are_read_as_the_reference_reads_them(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], unit: str
) -> None:
    file = tmp_path_factory.mktemp("plain") / "s.jsonl"
    schema = Schema((Field("ts", TIMESTAMP),))
    file.write_text("".join(f'{{"ts": {number}}}\n' for number in numbers))
    want = [expected(str(number), unit)[0] for number in numbers]
    pieces = list(read_file(str(file), "json", schema, unit=unit))
    stamps = [at for piece in pieces for at in piece.table["ts"].cast("int64").to_pylist()]
    assert stamps == [at for at in want if at is not None]
    if None not in want:
        assert load_rows(file.parent, "s", schema, timestamp_unit=unit) == [(at,) for at in want]


# ---- pushes


PUSHED = "CREATE STREAM s (n INT, ok BOOLEAN, day DATE, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
NOON = "2026-01-01T12:00:00Z"


@given(st.sampled_from(ODD) | st.integers(0, 10**6).map(lambda n: odd_texts(n, 1)[0]))
def test_clients_push_the_texts_that_files_have(text: str) -> None:
    want, day = expected(text, None)
    for column, value in ((TIMESTAMP, want), (DATE, day)):
        try:
            assert _convert_value(column, text, "s.c", None) == value is not None
        except InputError:
            assert value is None


@pytest.mark.parametrize(
    ("changed", "unit", "message"),
    [
        (
            {"ts": 1793534421458},
            None,
            "s.ts: 1793534421458 is not a timestamp but a number; declare",
        ),
        ({"ts": 1793534421458}, "s", "s.ts: 1793534421458 s is outside the years 1 to 9999"),
        ({"ts": True}, "ms", "s.ts: true is no TIMESTAMP"),
        ({"ts": "9999-12-31T23:59:59-01:00"}, None, "is outside the years 1 to 9999"),
        ({"ts": 5}, "minutes", "there is no timestamp_unit minutes; "),
        ({"day": "31.1.2026"}, None, "s.day: '31.1.2026' is not a date; write it like"),
        ({"day": 10**7}, None, "s.day: "),
        ({"n": 2**31}, None, "s.n: 2147483648 is outside INT"),
        ({"n": 1.5}, None, "s.n: 1.5 is no INT"),
        ({"ok": "perhaps"}, None, "s.ok: 'perhaps' is no BOOLEAN"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_column(
    tmp_path: Path, changed: dict[str, Any], unit: str | None, message: str
) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(PUSHED)
        with pytest.raises(InputError, match=message):
            headwater.push("s", [{"n": 1, "ts": NOON} | changed], unit)
        assert not headwater.catalog.segments("stream:s")


def test_values_are_those_that_were_meant(tmp_path: Path) -> None:
    noon = parse_timestamp(NOON)
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(PUSHED)
        headwater.push("s", [("7", "false", "2026-01-01", NOON)], timestamp_unit="us")
        headwater.push(
            "s", [(7, False, date(2026, 1, 1), datetime(2026, 1, 1, 12))], timestamp_unit="us"
        )
        for unit, number in (("us", noon), ("ms", noon // 1000), ("s", noon / 1e6)):
            headwater.push("s", [(7, False, to_days(date(2026, 1, 1)), number)], unit)
        tables = [read_arrow(s) for s in headwater.catalog.segments("stream:s")]
    rows = [row for table in tables for row in table.select(["n", "ok", "day", "ts"]).to_pylist()]
    assert rows == [
        {"n": 7, "ok": False, "day": date(2026, 1, 1), "ts": datetime(2026, 1, 1, 12, tzinfo=UTC)}
    ] * len(rows)
    assert len(rows) == 5
