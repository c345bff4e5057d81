from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import AIRLINE, MISTAKES, Run, Write


def test_airline_is_right(run: Run) -> None:
    done = run("check", AIRLINE)
    assert (done.status, done.err) == (0, "")
    assert done.out == "19 statements, 13 queries: ok\n"


def test_all_mistakes_are_reported_in_order(run: Run) -> None:
    done = run("check", MISTAKES)
    assert done.status == 1
    places = [line for line in done.out.splitlines() if line.startswith(f"{MISTAKES}:")]
    assert [place.removeprefix(f"{MISTAKES}:").split(":")[0] for place in places] == [
        "6",
        "8",
        "10",
        "12",
    ]
    assert done.out.endswith("\n4 mistakes\n")


def test_a_mistake_is_shown_with_a_caret_and_a_hint(run: Run, write: Write) -> None:
    done = run("check", write("SELECT bb\nFROM s [NOW];"))
    first, text, caret = done.out.splitlines()[:3]
    assert first.endswith("test.cql:3:8: " + first.split(": ", 1)[1])
    assert text == "  SELECT bb"
    assert caret == "         ^^"
    assert "did you mean" in done.out
    assert done.out.endswith("\n1 mistake\n")


def test_json(run: Run) -> None:
    done = run("check", MISTAKES, "--format", "json")
    assert done.status == 1
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["line"] for one in found] == [6, 8, 10, 12]
    assert found[0].keys() == {"file", "line", "column", "length", "message", "hint"}
    assert found[0]["column"] == 38


def test_json_of_a_right_file_is_empty(run: Run) -> None:
    done = run("check", AIRLINE, "--format", "json")
    assert (done.status, done.out) == (0, "")


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("", "1 statement, 0 queries: ok"),
        ("SELECT a FROM s [NOW];", "2 statements, 1 query: ok"),
        (
            "CREATE QUERY q AS SELECT a FROM s;EXPLAIN SELECT a FROM s",
            "3 statements, 2 queries: ok",
        ),
    ],
)
def test_summary(run: Run, write: Write, text: str, summary: str) -> None:
    assert run("check", write(text)).out == f"{summary}\n"


STREAM = "CREATE STREAM f (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM files(path => 'in'); "


@pytest.mark.parametrize(
    ("text", "sentence", "at"),
    [
        (
            STREAM + "SET interval = -5",
            "interval must be a number of seconds >= 0.01, not -5",
            "interval",
        ),
        (
            STREAM + "SET rows_per_step = 0",
            "rows_per_step must be a whole number >= 1, not 0",
            "rows_per_step",
        ),
        (STREAM + "SET intervall = 5", "there is no setting intervall", "intervall"),
        (STREAM + "SET scheduler = 'best'", "there is no policy 'best'", "'best'"),
        (
            STREAM + "SET optimise = 'well'",
            "optimise is throughput, greedy or written, not well",
            "optimise",
        ),
        (
            "CREATE STREAM k (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM files(path => 'x', size => 3)",
            "files has no option size",
            "files",
        ),
        (
            "CREATE TABLE t (a INT) FROM files(path => 'x', format => 'xml')",
            "files cannot read xml",
            "files",
        ),
        (
            STREAM + "CREATE QUERY q TO files(path => 'out', format => 'xml') AS SELECT a FROM f",
            "files cannot write xml",
            "files",
        ),
        (
            STREAM
            + "CREATE QUERY q TO kafka(servers => 'nowhere', topic => 't') AS SELECT a FROM f",
            "servers are named host:port",
            "servers",
        ),
    ],
)
def test_what_submit_refuses_check_refuses(
    run: Run, tmp_path: Path, text: str, sentence: str, at: str
) -> None:
    file = tmp_path / "statements.cql"
    file.write_text(text)
    checked = run("check", file)
    submitted = run("submit", file, "--state", tmp_path / "state")
    assert checked.status == 1 and submitted.status != 0
    assert sentence in checked.out and sentence in submitted.err
    column = int(checked.out.splitlines()[0].split(":")[2])
    assert text[column - 1 :].startswith(at)


def test_wrong_options_are_reported_beside_wrong_queries(run: Run, write: Write) -> None:
    """A mistake that only a check beyond the grammar finds is in the same run as the others."""
    sink = "CREATE QUERY q TO files(format => 'csv') AS SELECT a FROM s;"
    done = run("check", write(f"SELECT bb FROM s;\n{sink}\nSET intervall = 5;"))
    assert done.status == 1
    for sentence in ("no column bb", "files needs a path", "there is no setting intervall"):
        assert sentence in done.out
    assert done.out.endswith("\n3 mistakes\n")
