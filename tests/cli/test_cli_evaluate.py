from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import AIRLINE, DATA, Run, Write

Rows = list[dict[str, object]]
Eval = Callable[..., Rows]

CSV = '''\
a,b,c,ts
1,x,1.50,2026-01-01T00:00:00Z
2,,,2026-01-01T00:00:30Z
3,"y, ""z""",-0.05,2026-01-01T00:01:00.000001Z
'''


@pytest.fixture
def rows_of(run: Run, write: Write, tmp_path: Path) -> Eval:
    """The rows that a text gives over the stream s, whose data is CSV unless said."""

    def evaluated(text: str, data: str = CSV) -> Rows:
        (tmp_path / "s.csv").write_text(data)
        done = run("eval", write(text), "--input", tmp_path, "--format", "json")
        assert done.status == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    return evaluated


def test_json_has_the_columns_in_order_then_tau_and_query(rows_of: Eval) -> None:
    first, *others = rows_of("CREATE QUERY q AS SELECT c, b, a, ts FROM s;")
    assert list(first.items()) == [
        ("c", 1.5),
        ("b", "x"),
        ("a", 1),
        ("ts", "2026-01-01T00:00:00.000000Z"),
        ("_tau", "2026-01-01T00:00:00.000000Z"),
        ("_query", "q"),
    ]
    assert [row["_tau"] for row in others] == [
        "2026-01-01T00:00:30.000000Z",
        "2026-01-01T00:01:00.000001Z",
    ]
    assert others[0]["b"] is None


def test_queries_come_in_the_order_of_the_file(run: Run) -> None:
    done = run("eval", AIRLINE, "--input", DATA, "-q", "trouble", "-q", "departures", "-f", "json")
    queries = [json.loads(line)["_query"] for line in done.out.splitlines()]
    assert list(dict.fromkeys(queries)) == ["departures", "trouble"]


def test_rows_come_in_the_order_of_time(run: Run) -> None:
    done = run("eval", AIRLINE, "--input", DATA, "--format", "json")
    assert (done.status, done.err) == (0, "")
    keys = [(row["_query"], row["_tau"]) for row in map(json.loads, done.out.splitlines())]
    for query in {query for query, _ in keys}:
        times = [tau for q, tau in keys if q == query]
        assert times == sorted(times)


def test_every_query_of_the_example_has_rows(run: Run) -> None:
    done = run("eval", AIRLINE, "--input", DATA, "--format", "json")
    assert len({json.loads(line)["_query"] for line in done.out.splitlines()}) == 13


def test_queries_that_are_the_same_have_the_same_rows(run: Run) -> None:
    def bag(query: str) -> list[list[str]]:
        done = run("eval", AIRLINE, "--input", DATA, "--query", query, "--format", "json")
        rows = [json.loads(line) for line in done.out.splitlines()]
        return sorted(sorted(str(v) for k, v in row.items() if k != "_query") for row in rows)

    assert bag("gate_117") == bag("gate_a7_display") != []
    assert bag("disrupted") == bag("trouble") != []


def test_table(run: Run, write: Write, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(CSV)
    done = run("eval", write("SELECT a, b FROM s"), "--input", tmp_path)
    lines = done.out.splitlines()
    assert lines[0].strip() == "#1: 3 rows"
    assert any("2026-01-01T00:00:30.000000Z" in line and "NULL" in line for line in lines)


def test_csv_reads_back(run: Run, write: Write, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(CSV)
    done = run("eval", write("SELECT a, b, c FROM s"), "--input", tmp_path, "--format", "csv")
    heading, *rows = csv.reader(io.StringIO(done.out))
    assert heading == ["a", "b", "c", "_tau", "_query"]
    assert [row[:3] for row in rows] == [
        ["1", "x", "1.50"],
        ["2", "", ""],
        ["3", 'y, "z"', "-0.05"],
    ]


def test_csv_distinguishes_null_from_empty(run: Run, write: Write, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(CSV)
    text = "SELECT coalesce(b, '') AS b, c FROM s WHERE a = 2"
    done = run("eval", write(text), "--input", tmp_path, "--format", "csv")
    assert done.out.splitlines()[1].startswith('"",,2026')


def test_starting_at(rows_of: Eval) -> None:
    text = "CREATE QUERY q STARTING AT TIMESTAMP '2026-01-01 00:00:30' AS SELECT a FROM s;"
    assert [row["a"] for row in rows_of(text)] == [3]


def test_a_lifetime_counts_from_the_first_event(rows_of: Eval) -> None:
    text = "CREATE QUERY q LIFETIME 30 SECONDS AS SELECT a FROM s;"
    assert [row["a"] for row in rows_of(text)] == [1, 2]


def test_a_lifetime_counts_from_the_start(rows_of: Eval) -> None:
    text = """CREATE QUERY q STARTING AT TIMESTAMP '2025-12-31 23:59:59' LIFETIME 31 SECONDS AS
              SELECT a FROM s;"""
    assert [row["a"] for row in rows_of(text)] == [1, 2]


def test_a_lifetime_over_no_data(rows_of: Eval) -> None:
    assert rows_of("CREATE QUERY q LIFETIME 1 DAY AS SELECT a FROM s;", "a,b,c,ts\n") == []


def test_the_names_of_columns_and_streams_take_any_case(rows_of: Eval) -> None:
    rows = rows_of("SELECT A FROM S WHERE S.a > 1")
    assert [next(iter(row.values())) for row in rows] == [2, 3]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_other_formats(suffix: str, run: Run, write: Write, tmp_path: Path) -> None:
    path = tmp_path / f"s.{suffix}"
    if suffix == "jsonl":
        path.write_text('{"a": 1, "ts": "2026-01-01"}\n')
    else:
        times = pa.array([1767225600000000], pa.timestamp("us", "UTC"))
        columns = {
            "a": pa.array([1], pa.int32()),
            "b": pa.array(["x"]),
            "c": pa.nulls(1, pa.decimal128(6, 2)),
            "ts": times,
        }
        pq.write_table(pa.table(columns), path)
    done = run("eval", write("SELECT a FROM s"), "-i", tmp_path, "-f", "json")
    assert json.loads(done.out) == {
        "a": 1,
        "_tau": "2026-01-01T00:00:00.000000Z",
        "_query": "#1",
    }


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("a,b,c,ts\none,x,1,2026-01-01\n", "s.csv, line 2"),
        ("a,b,c,ts\n1,x,1,\n", "ts"),
        ("a,b,ts\n", "has no column c"),
    ],
)
def test_data_that_does_not_fit(
    data: str, complaint: str, run: Run, write: Write, tmp_path: Path
) -> None:
    (tmp_path / "s.csv").write_text(data)
    done = run("eval", write("SELECT a FROM s"), "--input", tmp_path)
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err


def test_no_data(run: Run, write: Write, tmp_path: Path) -> None:
    done = run("eval", write("SELECT a FROM s"), "--input", tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "no s.csv, s.jsonl or s.parquet" in done.err


@pytest.mark.parametrize(("name", "complaint"), [("none", "no such"), ("test.cql", "not a")])
def test_input_is_a_directory(
    name: str, complaint: str, run: Run, write: Write, tmp_path: Path
) -> None:
    done = run("eval", write("SELECT a FROM s"), "--input", tmp_path / name)
    assert (done.status, done.out) == (2, "")
    assert f"{name}: {complaint} directory" in done.err


def test_unused_streams_need_no_data(rows_of: Eval) -> None:
    other = "CREATE STREAM other (ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
    assert len(rows_of(f"{other} SELECT a FROM s")) == 3


def test_a_column_cannot_have_the_reserved_name(run: Run, write: Write, tmp_path: Path) -> None:
    done = run("eval", write("SELECT a AS _Query FROM s"), "--input", tmp_path)
    assert (done.status, done.out) == (1, "")
    assert "#1: _query is reserved for the name of the query" in done.err


def test_numbers_are_times_in_the_unit_of_their_source(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"ts": 1793534421458}\n')
    declared = "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts FROM files(path => 'in'{});"
    text = declared + " CREATE QUERY q AS SELECT ts FROM s;"
    (tmp_path / "q.cql").write_text(text.format(", timestamp_unit => 'ms'"))
    done = run("eval", tmp_path / "q.cql", "--input", tmp_path, "--format", "json")
    assert json.loads(done.out)["ts"] == "2026-11-01T12:00:21.458000Z"
    (tmp_path / "q.cql").write_text(text.format(""))
    done = run("eval", tmp_path / "q.cql", "--input", tmp_path)
    assert done.status == 2 and "declare its timestamp_unit: s, ms, us, ns" in done.err
    (tmp_path / "q.cql").write_text(text.format(", timestamp_unit => 'min'"))
    done = run("eval", tmp_path / "q.cql", "--input", tmp_path)
    assert done.status == 2 and "no timestamp_unit min; " in done.err
