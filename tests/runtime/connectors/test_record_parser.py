"""Whatever bytes a file has, the runtime reads the records that the reference reads, and refuses the same.

`odd_records` states by hand what odd records mean; random ones compare the two readers.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.times import parse_date, parse_timestamp
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    decimal,
)
from headwater.errors import InputError
from headwater.reference import data
from headwater.reference.records import InvalidRecord
from headwater.runtime.connectors import record_parser
from headwater.runtime.connectors.record_parser import (
    LINE,
    UnreadableFile,
    read_file,
    read_lines,
)

SCHEMA = Schema(
    (
        Field("n", INT),
        Field("big", BIGINT),
        Field("t", TINYINT),
        Field("x", DOUBLE),
        Field("f", FLOAT),
        Field("s", STRING),
        Field("b", BOOLEAN),
        Field("d", decimal(7, 2)),
        Field("day", DATE),
        Field("ts", TIMESTAMP),
    )
)
NOTHING = dict.fromkeys(SCHEMA.names)
NAMES = {"json": "s.jsonl", "csv": "s.csv", "parquet": "s.parquet"}

Found = tuple[list[Any], list[tuple[int, str, str]]]


def comparable(value: Any) -> Any:
    """A value that equals itself, with its sign if it is a zero."""
    return repr(value) if isinstance(value, float) else value


def by_reference(path: Path, schema: Schema = SCHEMA) -> Found | str:
    rows, refused = [], []
    try:
        for place, found in data.read_records(path, schema):
            line = int(place.split()[1])
            if isinstance(found, InvalidRecord):
                refused.append((line, found.column, found.reason))
            else:
                rows.append((line, *map(comparable, found)))
    except InputError as error:
        return str(error)
    return rows, refused


def by_runtime(path: Path, schema: Schema = SCHEMA) -> Found | str:
    rows, refused = [], []
    format_ = next(name for name, file in NAMES.items() if path.name == file)
    try:
        for piece in read_file(str(path), format_, schema):
            rows += rows_of(piece.table, schema)
            refused += [(m.line, m.column, m.reason) for m in piece.malformed]
    except UnreadableFile as error:
        return f"{path} {error.reason}"
    return rows, refused


def rows_of(table: pa.Table, schema: Schema) -> list[Any]:
    columns = []
    for f in schema:
        values = table[f.name]
        if f.type.name == "TIMESTAMP":
            values = values.cast(pa.int64())
        elif f.type.name == "DATE":
            values = values.cast(pa.int32())
        columns.append([comparable(value) for value in values.to_pylist()])
    return list(zip(table[LINE].to_pylist(), *columns, strict=True))


def check(folder: Path, format_: str, content: bytes, schema: Schema = SCHEMA) -> Found | str:
    """Both readers read the same, with blocks of any size; returns it."""
    path = folder / NAMES[format_]
    path.write_bytes(content)
    expected = by_reference(path, schema)
    assert by_runtime(path, schema) == expected
    return expected


@pytest.fixture(params=[(1 << 20, 1 << 15), (64, 16), (7, 1)], ids=["usual", "small", "tiny"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_parser, "BLOCK", request.param[0])
    monkeypatch.setattr(record_parser, "MIN_BLOCK", request.param[1])


# ---- odd records, stated

BAD = "refused"
ODD_JSON: list[tuple[str | bytes, Any]] = [
    ('{"n": 1}', {"n": 1}),
    ('  {"n": 1} \r', {"n": 1}),
    ('{"N": 1}', {"n": 1}),
    ('{"n": 1, "other": {"a": [1, {}]}}', {"n": 1}),
    ('{"n": 1, "other": 1, "other": 2}', {"n": 1}),
    ('{"\\u006e": 1}', {"n": 1}),
    ('{"\\u004e": 1, "other": 1}', {"n": 1}),
    ('{"n": null}', {}),
    ("{}", {}),
    ('{"n": -0, "x": -0.0}', {"n": 0, "x": -0.0}),
    ('{"x": 1e3, "f": 0.1, "d": 1e2}', {"x": 1000.0, "f": 0.10000000149011612, "d": Decimal(100)}),
    ('{"x": "1.5", "d": "1.5", "f": "NaN"}', {"x": 1.5, "d": Decimal("1.5"), "f": math.nan}),
    ('{"x": "-Infinity"}', {"x": -math.inf}),
    ('{"x": 1e-400}', {"x": 0.0}),
    ('{"big": 9223372036854775807}', {"big": 2**63 - 1}),
    ('{"other": 1' + "0" * 5000 + "}", {}),
    ('{"s": ""}', {"s": ""}),
    ('{"s": "a\\u0000b\\ud83d\\ude00\\/"}', {"s": "a\0b\U0001f600/"}),
    ('{"s": "\N{SNOWMAN}\u2028"}', {"s": "\N{SNOWMAN}\u2028"}),
    ('{"ts": "2026-01-31"}', {"ts": parse_timestamp("2026-01-31")}),
    ('{"ts": "2026-01-31T12:00+01:00"}', {"ts": parse_timestamp("2026-01-31T11:00")}),
    ('{"day": "2026-01-31"}', {"day": parse_date("2026-01-31")}),
    ("{'n': 1}", BAD),
    ('{"n": 1}{"n": 2}', BAD),
    ('{"n": 1} {"n": 2}', BAD),
    ('[{"n": 1}]', BAD),
    ('"n"', BAD),
    ('{"n": 1, "n": 2}', BAD),
    ('{"n": 1, "N": 1}', BAD),
    ('{"n": 1,}', BAD),
    ('{"n": 1} // one', BAD),
    ('{"n": /* one */ 1}', BAD),
    ("{n: 1}", BAD),
    ('{"n": 01}', BAD),
    ('{"n": +1}', BAD),
    ('{"n": 1.0}', BAD),
    ('{"n": 1e0}', BAD),
    ('{"n": "1"}', BAD),
    ('{"n": true}', BAD),
    ('{"n": 2147483648}', BAD),
    ('{"big": 9223372036854775808}', BAD),
    ('{"t": 128}', BAD),
    ('{"x": NaN}', BAD),
    ('{"x": -Infinity}', BAD),
    ('{"x": 1e400}', BAD),
    ('{"f": 1e39}', BAD),
    ('{"x": .5}', BAD),
    ('{"x": 5.}', BAD),
    ('{"x": "inf"}', BAD),
    ('{"x": ""}', BAD),
    ('{"d": 0.125}', BAD),
    ('{"d": 100000}', BAD),
    ('{"d": "NaN"}', BAD),
    ('{"b": 1}', BAD),
    ('{"b": "true"}', BAD),
    ('{"s": 5}', BAD),
    ('{"s": {"a": 1}}', BAD),
    ('{"s": ["a"]}', BAD),
    ('{"s": "\\ud800"}', BAD),
    ('{"s": "a\tb"}', BAD),
    (b'{"s": "\xff"}', BAD),
    (b'{"n": 1, "other": "\xff"}', BAD),
    (b"\xef\xbb\xbf" + b'{"n": 1}', BAD),
    ('{"ts": 1700000000}', BAD),
    ('{"ts": "noon"}', BAD),
    ('{"ts": "0000-01-01"}', BAD),
    ('{"ts": "2026-02-30"}', BAD),
    ('{"ts": "2026-01-31T24:00:00Z"}', BAD),
    ('{"ts": "0001-01-01T00:00:00+01:00"}', BAD),
    ('{"day": "31.1.2026"}', BAD),
    ('{"n": 1', BAD),
    ('{"other": ' + "[" * 100_000 + "]" * 100_000 + "}", BAD),
]
ODD_CSV: list[tuple[str | bytes, Any]] = [
    ("1,a,0.5,true", {"n": 1, "s": "a", "x": 0.5, "b": True}),
    (",,,", {}),
    (" 1 , a , 0.5 , TRUE", {"n": 1, "s": " a ", "x": 0.5, "b": True}),
    ('1,"a ""quoted"" word",,', {"n": 1, "s": 'a "quoted" word'}),
    ('1,"two\nlines, and\r\nmore",,', {"n": 1, "s": "two\nlines, and\r\nmore"}),
    ('"1","","",""', {"n": 1, "s": ""}),
    ('1,"""",,', {"n": 1, "s": '"'}),
    ('1,5" pipe,,', {"n": 1, "s": '5" pipe'}),
    ('1, "a",,', {"n": 1, "s": ' "a"'}),
    ("1,a\0b,,", {"n": 1, "s": "a\0b"}),
    ("1,a\rb,,", {"n": 1, "s": "a\rb"}),
    ("+1,,1e3,", {"n": 1, "x": 1000.0}),
    ("-0,,-0,", {"n": 0, "x": -0.0}),
    ("007,,.5,", {"n": 7, "x": 0.5}),
    (",,NaN,", {"x": math.nan}),
    (",,-infinity,false", {"x": -math.inf, "b": False}),
    ('1,"a"b,,', BAD),
    ('1,"a" ,,', BAD),
    ("1,a,", BAD),
    ("1,a,,,", BAD),
    ("1", BAD),
    ("1.0,,,", BAD),
    ("1_0,,,", BAD),
    ("0x1F,,,", BAD),
    ("\u0661,,,", BAD),
    (" ,,,", BAD),
    (",,inf,", BAD),
    (",,1e400,", BAD),
    (",,0x1p3,", BAD),
    ("2147483648,,,", BAD),
    (",,,1", BAD),
    (",,,yes", BAD),
    (b"1,\xff,,", BAD),
]
FOUR = Schema(tuple(SCHEMA[name] for name in ("n", "s", "x", "b")))
GOOD_JSON, GOOD_CSV = '{"n": 7, "s": "z"}', "7,z,,"


def encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def expected_row(schema: Schema, values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(comparable(values.get(name)) for name in schema.names)


@pytest.mark.parametrize("format_", ["json", "csv"])
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
@pytest.mark.usefixtures("blocks")
def test_odd_records(tmp_path: Path, format_: str, eol: bytes) -> None:
    """Each between good ones, which it must not touch."""
    odd, schema, good = {
        "json": (ODD_JSON, SCHEMA, GOOD_JSON.encode()),
        "csv": (ODD_CSV, FOUR, GOOD_CSV.encode()),
    }[format_]
    head = b"n,s,x,b" + eol if format_ == "csv" else b""
    seven = expected_row(schema, {"n": 7, "s": "z"})
    for text, values in odd:
        content = head + eol.join([good, encoded(text), good]) + eol
        if format_ == "csv" and record_parser.BLOCK < 64 and len(content) > 10_000:
            continue
        found = check(tmp_path, format_, content, schema)
        assert not isinstance(found, str), text
        rows = [row[1:] for row in found[0]]
        if values is BAD:
            assert rows == [seven, seven], text
            assert len(found[1]) == 1, text
        else:
            assert rows == [seven, expected_row(schema, values), seven], text
            assert found[1] == []


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"\xef\xbb\xbfn,s,x,b\n1,a,,\n2,b,,", [2, 3]),
        (b'\n\r\n"n",s , X,"b"\n\n1,a,,\r\n\r\n2,"b\nc",,\n3,,,\n\n', [5, 7, 9]),
        (b'b,other,x,n,s\n,o,,1,a\n,"o\no",,2,b\n', [2, 3]),
        (b"n,s,x,b\n", []),
        (b"n,s,x,b", []),
        (b'n,s,x,b\n1,"a,,\n2,b,,\n', [3]),
        (b'n,s,x,b\n1,"a,,\n2,"b",,\n', [3]),
        (b'n,s,x,b\n1,a"b,,\n2,"b"""",,\n3,c,,\n', [2, 4]),
    ],
)
@pytest.mark.usefixtures("blocks")
def test_files_of_csv(tmp_path: Path, content: bytes, lines: list[int]) -> None:
    found = check(tmp_path, "csv", content, FOUR)
    assert [row[0] for row in found[0]] == lines


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no column n, s, x, b; its header is: nothing"),
        (b"\n\n", "its header is: nothing"),
        (b"n,s,x\n1,a,\n", "has no column b; its header is: n, s, x"),
        (b"n,s,x,b,N\n", "column n comes twice in the header"),
        (b'n,s,x,"b\n1,a,\n', "a quote that is not closed"),
        (b"n,s,x,b,\xff\n", "not UTF-8: byte 0xff"),
    ],
)
def test_csv_with_another_header_is_not_read(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=said):
        list(read_file(str(path), "csv", FOUR))
    with pytest.raises(InputError):
        list(data.read_records(path, FOUR))


# ---- random

CELLS = st.sampled_from(
    [
        *["", '""', "1", "-2", " 3", "+4", "1.5", "1e2", "NaN", "true", "FALSE", "a", "a b", '"a"'],
        *[
            '"a,b"',
            '"a""b"',
            '"a\nb"',
            '"a',
            'a"',
            '"a"b',
            '"',
            "\r",
            "\0",
            "\u00e9",
            "99999999999",
        ],
        *["2026-01-31 12:00:00", "2026-01-31T12:00:00.123456Z", "2026-01-31", "x" * 40],
    ]
)
CSV_LINES = st.lists(CELLS, min_size=3, max_size=5).map(",".join)
CSV_TEXT = st.lists(
    CSV_LINES | st.text('",\r\n1a ', max_size=8) | st.just("1,a,0.5,true"), max_size=12
)


@settings(deadline=None, max_examples=150)
@given(CSV_TEXT, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([1 << 20, 40, 5]))
def test_random_csv(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], eol: str, ends: bool, block: int
) -> None:
    text = eol.join(["n,s,x,b", *lines]) + eol * ends
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_parser, "BLOCK", block)
        patch.setattr(record_parser, "MIN_BLOCK", block // 4)
        check(tmp_path_factory.mktemp("csv"), "csv", text.encode(), FOUR)


VALUES = st.sampled_from(
    [
        *[
            "null",
            "1",
            "-0",
            "1.0",
            "1e2",
            "1e400",
            "01",
            "NaN",
            '"1"',
            '"NaN"',
            '"a"',
            '""',
            "true",
        ],
        *[
            "0.125",
            "99999999999",
            "12345678901234567890",
            "[1]",
            '{"a": 1}',
            '"\\ud800"',
            '"a\\u0000"',
        ],
        *[
            '"2026-01-31 12:00:00"',
            '"2026-01-31T12:00:00.1+02:00"',
            '"2026-01-31"',
            '"\u00e9"',
            "'a'",
        ],
    ]
)
KEYS = st.sampled_from([*SCHEMA.names, "N", "TS", "other", "\\u0073"])
JSON_LINES = st.lists(st.tuples(KEYS, VALUES), max_size=4).map(
    lambda pairs: "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}"
)
JSON_TEXT = st.lists(
    JSON_LINES | st.text('{}":,n1 \r', max_size=8) | st.just(GOOD_JSON), max_size=12
)


@settings(deadline=None, max_examples=150)
@given(JSON_TEXT, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([1 << 20, 80, 5]))
def test_random_json(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], eol: str, ends: bool, block: int
) -> None:
    text = eol.join(lines) + eol * ends
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_parser, "BLOCK", block)
        patch.setattr(record_parser, "MIN_BLOCK", block // 4)
        check(tmp_path_factory.mktemp("json"), "json", text.encode())


@settings(deadline=None, max_examples=200)
@given(
    st.from_regex(
        r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,7})?)?)?"
        r"(Z|[+-][0-2][0-9](:?[0-6][0-9])?)?\Z"
    ),
    st.sampled_from(["json", "csv"]),
)
def test_random_times(tmp_path_factory: pytest.TempPathFactory, text: str, format_: str) -> None:
    schema = Schema((SCHEMA["ts"], SCHEMA["day"]))
    for pair in ((text, ""), ("", text)):
        record = json.dumps(dict(zip(("ts", "day"), pair, strict=True)))
        content = ",".join(("ts,day\n" + pair[0], pair[1])) if format_ == "csv" else record
        check(tmp_path_factory.mktemp("times"), format_, content.encode(), schema)


NUMBERS = st.from_regex(r"\A[+-]?[0-9]{1,20}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,3})?\Z")


@settings(deadline=None, max_examples=200)
@given(st.lists(NUMBERS | st.floats(allow_nan=False).map(repr), min_size=1, max_size=5))
def test_random_numbers(tmp_path_factory: pytest.TempPathFactory, numbers: list[str]) -> None:
    folder = tmp_path_factory.mktemp("numbers")
    for name in ("n", "big", "t", "x", "f", "d"):
        schema = Schema((SCHEMA[name],))
        check(folder, "csv", "\n".join([name, *numbers]).encode(), schema)
        check(folder, "json", "\n".join(f'{{"{name}": {n}}}' for n in numbers).encode(), schema)


@pytest.mark.long
def test_a_large_file_with_some_odd_records(tmp_path: Path) -> None:
    rng = random.Random(5)
    odd = [text for text, _ in ODD_JSON if len(text) < 200]
    lines = [
        encoded(rng.choice(odd))
        if rng.random() < 0.001
        else json.dumps({"n": n, "s": "x" * 50}).encode()
        for n in range(40_000)
    ]
    found = check(tmp_path, "json", b"\n".join(lines))
    assert len(found[0]) > 39_000


# ---- Parquet


def test_parquet_is_read_as_the_reference_reads_it(tmp_path: Path) -> None:
    table = pa.table(
        {
            "N": pa.array([1, 2**40, None, 4], pa.int64()),
            "big": pa.array([1, 2, 3, 4], pa.int8()),
            "t": pa.array([1, 300, 3, None], pa.int16()),
            "x": pa.array([1, 2**60 + 1, 3, 4], pa.int64()),
            "f": pa.array([0.1, 1.5, math.nan, math.inf]),
            "s": pa.array(["a", "", None, "b"]).dictionary_encode(),
            "b": [True, False, None, True],
            "d": pa.array(
                [Decimal("1.500"), Decimal("0.125"), None, Decimal(2)], pa.decimal128(20, 3)
            ),
            "day": pa.array([1, 2, 3, None], pa.int32()).cast(pa.date32()),
            "ts": pa.array([1_500, 2, None, 10**18], pa.timestamp("ns", "Europe/Berlin")),
            "other": [{"a": 1}] * 4,
        }
    )
    pq.write_table(table, tmp_path / "s.parquet")
    found = by_runtime(tmp_path / "s.parquet")
    assert found == by_reference(tmp_path / "s.parquet")
    assert [row[0] for row in found[0]] == [1, 3, 4]
    assert [(line, column) for line, column, _ in found[1]] == [(2, "n")]


@pytest.mark.parametrize("column", [pa.array(["1"]), pa.array([1.5]), pa.array([b"1"])])
def test_a_column_of_another_sort_is_refused(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"n": column}), tmp_path / "s.parquet")
    schema = Schema((SCHEMA["n"],))
    with pytest.raises(UnreadableFile, match=r"column n: has \w+ for INT"):
        list(read_file(str(tmp_path / "s.parquet"), "parquet", schema))
    with pytest.raises(InputError, match=r"column n: has \w+ for INT"):
        list(data.read_records(tmp_path / "s.parquet", schema))


# ---- bounds


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_line_that_is_too_long_is_refused_and_not_kept(tmp_path: Path, format_: str) -> None:
    """It is packed and holds a hundred times what is kept of it in memory."""
    schema = Schema((SCHEMA["n"],))
    head = b"n\n" if format_ == "csv" else b""
    one, two = (b"1\n", b"2") if format_ == "csv" else (b'{"n": 1}\n', b'{"n": 2}')
    path = tmp_path / "long.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head + one)
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + two)
    pieces = list(read_file(str(path), format_, schema, max_line_bytes=3 << 20))
    assert [n for piece in pieces for n in piece.table["n"].to_pylist()] == [1, 2]
    (refused,) = [misfit for piece in pieces for misfit in piece.malformed]
    line = len((head + one).splitlines()) + 1
    assert (refused.line, refused.reason) == (line, f"longer than {3 << 20} bytes")
    assert len(refused.record) <= record_parser.MAX_SHOWN_BYTES
    last = [line for piece in pieces for line in piece.table[LINE].to_pylist()][-1]
    assert last == line + 1


def test_a_quote_that_is_never_closed_costs_one_line(tmp_path: Path) -> None:
    schema = Schema((SCHEMA["n"], SCHEMA["s"]))
    path = tmp_path / "s.csv"
    rest = b"".join(b"%d,%b\n" % (n, b"x" * 90) for n in range(50_000))
    path.write_bytes(b'n,s\n-1,a\n-2,"b\n' + rest)
    pieces = list(read_file(str(path), "csv", schema, max_line_bytes=1 << 20))
    assert [n for p in pieces for n in p.table["n"].to_pylist()] == [-1, *range(50_000)]
    assert [(m.line, m.record) for p in pieces for m in p.malformed] == [(3, '-2,"b')]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".lz4"])
def test_packed_files(tmp_path: Path, suffix: str) -> None:
    schema = Schema((SCHEMA["n"],))
    text = b"".join(b'{"n": %d}\n' % n for n in range(100_000))
    path = tmp_path / f"s.json{suffix}"
    if suffix in (".zst", ".lz4"):
        with pa.output_stream(
            str(path), compression={".zst": "zstd", ".lz4": "lz4"}[suffix]
        ) as out:
            out.write(text)
    else:
        with record_parser._DECOMPRESSORS[suffix](str(path), "wb") as out:  # type: ignore[call-arg]
            out.write(text)
    pieces = list(read_file(str(path), "json", schema))
    assert [n for p in pieces for n in p.table["n"].to_pylist()] == list(range(100_000))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UnreadableFile):
        list(read_file(str(path), "json", schema))


# ---- lines and messages


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_messages_are_read_as_records_of_files(tmp_path: Path, format_: str) -> None:
    odd, schema = {"json": (ODD_JSON, SCHEMA), "csv": (ODD_CSV, FOUR)}[format_]
    good = encoded(GOOD_JSON if format_ == "json" else GOOD_CSV)
    messages = [message for text, _ in odd for message in (good, encoded(text))]
    piece = read_lines(messages, format_, schema)
    rows = {row[0]: row[1:] for row in rows_of(piece.table, schema)}
    refused = {misfit.line for misfit in piece.malformed}
    for n, (text, values) in enumerate(odd):
        assert rows[2 * n] == expected_row(schema, {"n": 7, "s": "z"})
        if values is BAD:
            assert 2 * n + 1 in refused, text
        else:
            assert rows[2 * n + 1] == expected_row(schema, values), text
    fast = read_lines([good] * 5000, format_, schema)
    assert fast.table[LINE].to_pylist() == list(range(5000))
    assert (
        next(m.reason for m in read_lines([None, b""], format_, schema).malformed) == "has no value"
    )


def test_a_message_may_have_line_feeds() -> None:
    piece = read_lines([b'{\n"n": 1\n}', b'{"n": 2}\n'], "json", Schema((SCHEMA["n"],)))
    assert piece.table["n"].to_pylist() == [1, 2]
    (refused,) = read_lines([b"1\n2"], "csv", Schema((SCHEMA["n"],))).malformed
    assert refused.reason == "2 records in one message"
