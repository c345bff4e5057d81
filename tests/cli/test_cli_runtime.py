"""`run`, `submit`, `show`, `results` and the others that work on a state directory."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, Run
from runtime_states import ROWS, TEXT, Made, Rows, make

from headwater.algebra.times import parse_timestamp
from headwater.errors import CatalogError
from headwater.runtime.api import open_state
from headwater.runtime.catalog import Catalog, unit_log
from headwater.runtime.engine.isolation import move_queries
from headwater.runtime.maintenance.stream_logs import sweep_orphans
from headwater.runtime.results.sink_progress import read_delivery

GATE = ROOT / "examples" / "airline" / "gate.cql"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A state with the stream s, three queries in two units, and nothing in it."""
    return make(tmp_path / "state")


@pytest.fixture
def filled(made: Made) -> Made:
    """The same with three tuples in s, which the unit of big and large has ingested."""
    with made.open() as headwater:
        assert headwater.push("s", ROWS, timestamp_unit="us") == 3
    made.answer("big", {"s": tuples()})
    return made


def tuples() -> Rows:
    return [
        (int(str(r["a"])), r["b"] and str(r["b"]), None, parse_timestamp(str(r["ts"])))
        for r in ROWS
    ]


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# ---- submit


def test_submit_says_what_became_of_each_statement(run: Run, made: Made) -> None:
    done = run("submit", "--execute", "CREATE QUERY q AS SELECT a FROM s;", "--state", made.path)
    assert done.status == 0
    assert done.out.startswith("query q runs in unit ")


def test_equal_queries_share_a_unit(run: Run, made: Made) -> None:
    text = "CREATE QUERY great AS SELECT b, a FROM s [RANGE 0 SECONDS] WHERE a > 1"
    done = run("submit", "-e", text, "--state", made.path)
    assert f"{made.unit('big')}, shared with big, large" in done.out


def test_submit_reads_files_and_standard_input(run: Run, made: Made, tmp_path: Path) -> None:
    file = tmp_path / "more.cql"
    file.write_text("CREATE QUERY q AS SELECT a FROM s;")
    assert run("submit", file, "--state", made.path).status == 0
    stdin = "DROP QUERY q; CREATE QUERY r AS SELECT b FROM s;"
    assert (
        "query q dropped\nquery r runs" in run("submit", "-", "--state", made.path, stdin=stdin).out
    )


def test_what_is_there_already_is_left_as_it_is(run: Run, made: Made, tmp_path: Path) -> None:
    file = tmp_path / "again.cql"
    file.write_text(TEXT)
    done = run("submit", file, "--state", made.path)
    assert done.status == 0
    assert done.out.splitlines() == [
        f"{what} is there already"
        for what in ("stream s", "query big", "query large", "query total")
    ]


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        (TEXT.replace("LATENESS 1 SECOND", "LATENESS 2 SECONDS"), "stream s"),
        (TEXT.replace("[NOW] WHERE a > 1", "[NOW] WHERE a > 2"), "query big"),
    ],
)
def test_another_definition_of_a_name_is_an_error(
    run: Run, made: Made, tmp_path: Path, changed: str, kind: str
) -> None:
    file = tmp_path / "changed.cql"
    file.write_text("CREATE QUERY fresh AS SELECT a FROM s;" + changed[changed.index("CREATE Q") :])
    if kind.startswith("stream"):
        file.write_text(changed + "CREATE QUERY fresh AS SELECT a FROM s;")
    done = run("submit", file, "--state", made.path)
    assert done.status == 1
    assert f"there is a {kind} already, and it is not the same: drop it first" in done.err
    assert "fresh" not in run("show", "queries", "--state", made.path).out


def test_nothing_is_done_if_a_statement_cannot_be(run: Run, made: Made) -> None:
    text = "CREATE QUERY q AS SELECT a FROM s; DROP QUERY nope;"
    done = run("submit", "-e", text, "--state", made.path)
    assert done.status == 1
    assert "there is no query nope" in done.err
    assert run("results", "q", "--state", made.path).status == 2


def test_mistakes_in_a_text_are_shown_with_a_caret(run: Run, made: Made) -> None:
    done = run("submit", "-e", "CREATE QUERY q AS SELECT x FROM s", "--state", made.path)
    assert done.status == 1
    assert "--execute:1:26: no column x" in done.err
    assert "^" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT a FROM s", "name the query to run it"),
        ("SHOW QUERIES", "headwater show queries"),
        ("EXPLAIN SELECT a FROM s", "headwater explain"),
        ("PAUSE QUERY bgi", "did you mean big?"),
        ("END STREAM t", "there is no stream t"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(run: Run, made: Made, text: str, said: str) -> None:
    done = run("submit", "-e", text, "--state", made.path)
    assert done.status == 1
    assert said in done.err


def test_submit_wants_one_text(run: Run, made: Made) -> None:
    assert run("submit", "--state", made.path).status == 2
    assert run("submit", GATE, "-e", "SELECT 1", "--state", made.path).status == 2


def test_paths_are_relative_to_the_file(run: Run, made: Made) -> None:
    assert run("submit", GATE, "--state", made.path).status == 0
    shown = lines(run("show", "streams", "flights", "-f", "json", "--state", made.path).out)
    assert shown[0]["source"] == f"files {GATE.parent / 'data' / 'flights.csv'}"


# ---- drop, pause, resume


def test_a_unit_goes_with_its_last_query(run: Run, filled: Made) -> None:
    unit = filled.unit("big")
    assert run("drop", "big", "--state", filled.path).out == "query big dropped\n"
    assert run("drop", "LARGE", "--state", filled.path).out.endswith(f"dropped, with unit {unit}\n")
    assert unit not in run("show", "units", "--state", filled.path).out


def test_a_unit_rests_when_all_its_queries_do(run: Run, made: Made) -> None:
    def states() -> list[object]:
        shown = lines(run("show", "units", "-f", "json", "--state", made.path).out)
        return [unit["state"] for unit in shown]

    assert states() == ["running", "running"]
    run("pause", "big", "--state", made.path)
    assert states() == ["running", "running"]
    run("pause", "large", "--state", made.path)
    assert states() == ["paused", "running"]
    assert "2 paused, 1 running" in run("status", "--state", made.path).out
    run("resume", "big", "--state", made.path)
    assert states() == ["running", "running"]
    run("drop", "big", "--state", made.path)
    assert states() == ["paused", "running"]
    run(
        "submit",
        "-e",
        "CREATE QUERY q AS SELECT a, b FROM s [NOW] WHERE a > 1",
        "--state",
        made.path,
    )
    assert states() == ["running", "running"]


def test_resume_frees_a_unit_that_was_parked(run: Run, made: Made) -> None:
    unit = made.unit("total")
    with made.open() as headwater:
        headwater.catalog.set_unit_state(unit, "parked", error="disk full", retries=6)
    assert f"unit {unit} (total) is parked: disk full" in run("status", "--state", made.path).out
    run("resume", "total", "--state", made.path)
    assert "parked" not in run("show", "units", "--state", made.path).out


@pytest.mark.parametrize("command", ["drop", "pause", "resume", "results"])
def test_an_unknown_query_gets_a_hint(run: Run, made: Made, command: str) -> None:
    done = run(command, "totla", "--state", made.path)
    assert done.status == 2
    assert "there is no query totla; did you mean total?" in done.err


# ---- show, status


def test_show_streams(run: Run, filled: Made) -> None:
    done = run("show", "streams", "--format", "json", "--state", filled.path)
    (shown,) = lines(done.out)
    assert shown.pop("bytes")
    assert str(shown.pop("definition")).startswith("CREATE STREAM s (")
    for rate in ("rate", "bytes_rate"):
        assert float(str(shown.pop(rate))) > 0
    assert shown == {
        "stream": "s",
        "rows": 3,
        "pending": 3,
        "watermark": "2026-03-01T08:00:02.500000Z",
        "lag": 0.0,
        "late": 0,
        "malformed": 0,
        "state": "open",
        "waits_for": [],
        "source": "client",
    }


def test_show_streams_that_an_earlier_release_has_declared(run: Run, made: Made) -> None:
    command = ("show", "streams", "--state", made.path)
    before = run(*command).out
    with closing(sqlite3.connect(made.path / "catalog.sqlite")) as catalog, catalog:
        assert catalog.execute("SELECT source FROM streams").fetchall() == [("client",)]
        catalog.execute("UPDATE streams SET source = NULL")
    assert run(*command).out == before
    assert "client" in before


def test_show_units_and_queries(run: Run, filled: Made) -> None:
    units = lines(run("show", "units", "-f", "json", "--state", filled.path).out)
    assert [(u["queries"], u["pending"], u["rows"]) for u in units] == [
        (["big", "large"], 0, 2),
        (["total"], 3, 0),
    ]
    queries = lines(run("show", "queries", "-f", "json", "--state", filled.path).out)
    assert [(q["query"], q["state"], q["rows"]) for q in queries] == [
        ("big", "running", 2),
        ("large", "running", 2),
        ("total", "running", 0),
    ]


def test_rows_that_a_sink_has_not_got_are_counted(run: Run, filled: Made) -> None:
    text = (
        "CREATE QUERY sent STARTING AT EARLIEST TO files(path => 'out') AS SELECT a, b FROM s [NOW]"
    )
    with filled.open() as headwater:
        headwater.execute(f"{text} WHERE a > 1")
        row = headwater.query("sent").row
        failed = read_delivery(headwater.catalog, row).cursors_after_failure("no room", 1, 0.0, 0.0)
        headwater.catalog.commit(None, cursors=failed)
    (shown,) = lines(run("show", "queries", "sent", "-f", "json", "--state", filled.path).out)
    assert (shown["rows"], shown["undelivered"], shown["error"]) == (2, 2, "no room")
    assert str(shown["sink"]).startswith("files ")
    said = run("status", "--state", filled.path).out
    assert "2 rows not delivered yet" in said
    assert "the sink of query sent fails: no room" in said


def test_show_segments_of_a_stream_or_query(run: Run, filled: Made) -> None:
    every = lines(run("show", "segments", "-f", "json", "--state", filled.path).out)
    assert [s["log"] for s in every] == ["stream:s", f"unit:{filled.unit('big')}"]
    for name, log in (("s", every[0]), ("large", every[1])):
        assert lines(run("show", "segments", name, "-f", "json", "--state", filled.path).out) == [
            log
        ]
    assert run("show", "segments", "t", "--state", filled.path).status == 2


def test_show_rejects(run: Run, filled: Made) -> None:
    assert run("show", "rejects", "--state", filled.path).out == "there are no rejects\n"
    with filled.open() as headwater:
        late = {"a": 9, "ts": "2026-03-01T07:00:00Z"}
        assert headwater.push("s", [late], timestamp_unit="us") == 0
    (shown,) = lines(run("show", "rejects", "s", "-f", "json", "--state", filled.path).out)
    assert (shown["stream"], shown["reason"]) == ("s", "late")


def test_tables_are_shown_for_people(run: Run, filled: Made) -> None:
    for what in ("streams", "queries", "units", "segments"):
        done = run("show", what, "--state", filled.path)
        assert done.status == 0
        assert done.out.splitlines()[1].startswith("───")
    assert run("show", "tables", "--state", filled.path).out == "there are no tables\n"


def test_status(run: Run, filled: Made) -> None:
    said = run("status", "--state", filled.path).out
    assert "engine    not running" in said
    assert "3 running: 4 rows" in said
    assert "2 running: backlog 3 rows" in said
    (record,) = lines(run("status", "--format", "json", "--state", filled.path).out)
    assert (record["rows_in"], record["rows_out"], record["pending"]) == (3, 4, 3)
    assert record["engine"] == []


def test_status_names_the_process_that_runs(run: Run, made: Made) -> None:
    with made.open() as headwater:
        headwater.catalog.acquire("unit:x", "elsewhere:77", 60)
    assert "running as elsewhere:77" in run("status", "--state", made.path).out


# ---- results

KINDS = """\
CREATE STREAM t (
  i INT, l BIGINT, y TINYINT, f FLOAT, d DOUBLE, n DECIMAL(20,3), x STRING, b BOOLEAN, day DATE,
  ts TIMESTAMP NOT NULL
) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY every AS SELECT x, i, l, y, f, d, n, b, day, ts, ts - TIMESTAMP '2026-01-01 00:00:00' AS age
FROM t [NOW];
CREATE QUERY other AS SELECT n AS amount, x FROM t [NOW];
CREATE QUERY part STARTING AT TIMESTAMP '2026-03-01 08:00:01' LIFETIME 2 SECONDS AS
SELECT i FROM t [NOW];
"""
RECORDS = [
    {
        "i": -7, "l": 2**40, "y": 1, "f": 0.1, "d": 1e300, "n": "12345678901234567.125",
        "x": "Zürich, \"ZRH\"\n", "b": True, "day": "2026-02-28", "ts": "2026-03-01T08:00:03Z",
    },
    {"ts": "2026-03-01T08:00:00.000001Z"},
    {"i": 3, "d": "NaN", "n": 2.5, "x": "", "b": False, "ts": "2026-03-01T08:00:02+00:00"},
]  # fmt: skip


@pytest.fixture
def every_kind(tmp_path: Path, run: Run) -> Iterator[tuple[Made, Path, Path]]:
    """A state with results of every type, and the file and folder for `headwater eval`."""
    from headwater.algebra.catalog import Stream
    from headwater.cql import parse
    from headwater.reference.data import load_rows

    file, data = tmp_path / "kinds.cql", tmp_path / "data"
    data.mkdir()
    file.write_text(KINDS)
    (data / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    made = make(tmp_path / "state", KINDS)
    stream = getattr(parse(KINDS)[0], "stream", None)
    assert isinstance(stream, Stream)
    rows = load_rows(data, "t", stream.schema)
    made.answer("every", {"t": rows})
    made.answer("part", {"t": rows})
    yield made, file, data


@pytest.mark.parametrize("format", ["json", "csv", "table"])
@pytest.mark.parametrize("query", ["every", "part"])
def test_results_are_printed_as_eval_prints_them(
    run: Run, every_kind: tuple[Made, Path, Path], query: str, format: str
) -> None:
    made, file, data = every_kind
    given = run("results", query, "--format", format, "--state", made.path)
    wanted = run("eval", file, "--input", data, "--query", query, "--format", format)
    assert given.status == wanted.status == 0
    assert given.out == wanted.out


def test_results_of_a_query_that_an_earlier_release_has_accepted(
    run: Run, every_kind: tuple[Made, Path, Path]
) -> None:
    made, _, _ = every_kind
    command = ("results", "every", "--format", "json", "--state", made.path)
    before = run(*command).out
    with closing(sqlite3.connect(made.path / "catalog.sqlite")) as catalog, catalog:
        (columns,) = catalog.execute("SELECT columns FROM queries WHERE name = 'every'").fetchone()
        named = json.dumps([[name, at] for name, at, _ in json.loads(columns)])
        catalog.execute("UPDATE queries SET columns = ? WHERE name = 'every'", [named])
    assert run(*command).out == before != ""


def test_results_of_all_queries(run: Run, filled: Made) -> None:
    shown = lines(run("results", "-f", "json", "--state", filled.path).out)
    assert [(row["_query"], row["_tau"]) for row in shown] == [
        (query, f"2026-03-01T08:00:0{second}Z")
        for query in ("big", "large")
        for second in ("2.000000", "3.500000")
    ]
    assert list(shown[2]) == ["word", "number", "_tau", "_query"]


def test_results_may_be_limited(run: Run, filled: Made) -> None:
    assert len(lines(run("results", "--limit", "1", "-f", "json", "--state", filled.path).out)) == 2
    assert run("results", "big", "--limit", "0", "-f", "csv", "--state", filled.path).out == (
        "a,b,_tau,_query\n"
    )


def test_a_query_without_results(run: Run, made: Made) -> None:
    assert run("results", "total", "-f", "json", "--state", made.path).out == ""
    assert run("results", "total", "--state", made.path).out.startswith("total: 0 rows")


def test_following_gives_what_comes_until_the_query_is_dropped(run: Run, filled: Made) -> None:
    def later() -> None:
        time.sleep(0.2)
        filled.answer("big", {"s": [(5, "five", None, parse_timestamp("2026-03-01T09:00:00Z"))]})
        time.sleep(0.2)
        with filled.open() as headwater:
            headwater.execute("DROP QUERY big")

    thread = threading.Thread(target=later)
    thread.start()
    done = run("results", "big", "--follow", "-f", "csv", "--state", filled.path)
    thread.join()
    assert [line.partition(",")[0] for line in done.out.splitlines()] == ["a", "2", "3", "5"]


def test_following_ends_at_the_limit(run: Run, filled: Made) -> None:
    done = run("results", "big", "--follow", "--limit", "2", "--state", filled.path)
    assert done.status == 0
    assert "big: 2 rows" in done.out


# ---- clean


def test_clean_removes_unreferenced_files(run: Run, filled: Made) -> None:
    log = filled.path / "log"
    kept = set(log.rglob("*.parquet"))
    orphan = log / "streams" / "s" / "left.parquet"
    orphan.write_bytes(b"12345")
    done = run("clean", "--state", filled.path)
    assert "removed 0 files, 0 B" in done.out
    assert "kept 1 file newer than 600 s" in done.out
    os.utime(orphan, (0, 0))
    done = run("clean", "--state", filled.path)
    assert "removed 1 file, 5 B" in done.out
    assert set(log.rglob("*.parquet")) == kept


def test_clean_removes_what_dropped_units_had_at_once(run: Run, filled: Made) -> None:
    folder = filled.path / "log" / "units" / filled.unit("big")
    assert list(folder.iterdir())
    run("drop", "big", "--state", filled.path)
    run("drop", "large", "--state", filled.path)
    (record,) = lines(run("clean", "--format", "json", "--state", filled.path).out)
    assert (record["files"], record["units"], record["forgotten"]) == (1, 1, 3)
    assert not folder.exists()
    assert (filled.path / "log" / "streams" / "s").exists()


def test_clean_leaves_the_files_of_a_query_that_is_being_moved(
    run: Run, filled: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new unit is not in the catalog yet, and links have the age of the files that they are links to."""
    before = run("results", "big", "-f", "json", "--state", filled.path).out
    for path in (filled.path / "log").rglob("*.parquet"):
        os.utime(path, (0, 0))
    commit = Catalog.move_queries

    def commit_late(catalog: Catalog, *args: Any) -> None:
        assert "removed 0 files" in run("clean", "--state", filled.path).out
        assert sweep_orphans(catalog, filled.path) == []
        commit(catalog, *args)

    monkeypatch.setattr(Catalog, "move_queries", commit_late)
    old = filled.unit("big")
    with filled.open() as headwater:
        catalog = headwater.catalog
        unit, lease = catalog.unit(old), catalog.acquire(unit_log(old), "me", 60)
        assert unit is not None and lease is not None
        new = move_queries(catalog, headwater.state, lease, unit, ["big", "large"])
    assert filled.unit("big") == new != old
    assert run("results", "big", "-f", "json", "--state", filled.path).out == before != ""


# ---- what can be wrong

COMMANDS = [
    ("submit", "-e", "DROP QUERY q"),
    ("drop", "q"),
    ("pause", "q"),
    ("resume", "q"),
    ("rewind", "s", "2026-01-01"),
    ("show", "streams"),
    ("results", "q"),
    ("status",),
    ("clean",),
    ("run",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_without_a_state_the_message_says_how_to_create_one(
    run: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    state = tmp_path / "no state"
    done = run(*command, "--state", state)
    assert done.status == 2
    assert f"headwater run FILE.cql --state '{state}' creates and runs one" in done.err
    assert not state.exists()


def test_the_state_may_be_named_by_the_environment(
    run: Run, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_STATE", str(made.path))
    assert run("status").status == 0


def test_a_locked_catalog_is_reported(
    run: Run, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.runtime.catalog import Catalog

    opened = Catalog.open
    monkeypatch.setattr(Catalog, "open", lambda *a, **k: opened(*a, **{**k, "timeout": 0.1}))
    other = sqlite3.connect(made.path / "catalog.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        done = run("pause", "big", "--state", made.path)
    finally:
        other.close()
    assert done.status == 2
    assert "is locked by another process" in done.err


def test_a_state_may_be_moved(run: Run, filled: Made, tmp_path: Path) -> None:
    before = run("results", "-f", "json", "--state", filled.path).out
    moved = tmp_path / "elsewhere"
    shutil.move(filled.path, moved)
    assert run("results", "-f", "json", "--state", moved).out == before != ""
    assert run("clean", "--older-than", "0", "--state", moved).out == "removed 0 files, 0 B\n"
    assert run("results", "-f", "json", "--state", moved).out == before


def test_a_copy_of_a_state_leaves_the_original_alone(
    run: Run, filled: Made, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled.path, copy)
    for query in ("big", "large", "total"):
        assert run("drop", query, "--state", copy).status == 0
    assert "removed 1 file" in run("clean", "--older-than", "0", "--state", copy).out
    assert run("results", "big", "-f", "json", "--state", filled.path).out
    assert len(list(filled.path.rglob("*.parquet"))) == 2


def test_a_moved_state_with_whole_paths_is_not_touched(
    run: Run, filled: Made, tmp_path: Path
) -> None:
    """As the first release kept them."""
    catalog = sqlite3.connect(filled.path / "catalog.sqlite")
    with catalog:
        catalog.execute("UPDATE segments SET path = ? || '/' || path", [str(filled.path)])
    catalog.close()
    before = run("results", "-f", "json", "--state", filled.path).out
    assert before
    moved = tmp_path / "elsewhere"
    shutil.move(filled.path, moved)
    done = run("clean", "--older-than", "0", "--state", moved)
    assert done.status == 2
    assert f"was moved: its segments are in {filled.path}" in done.err
    with pytest.raises(CatalogError, match="was moved"):
        open_state(moved)
    assert list(moved.rglob("*.parquet"))
    shutil.move(moved, filled.path)
    assert run("results", "-f", "json", "--state", filled.path).out == before


def test_a_segment_whose_file_is_missing_is_reported(run: Run, filled: Made) -> None:
    for file in filled.path.glob("log/units/*/*"):
        file.unlink()
    done = run("results", "big", "--state", filled.path)
    assert done.status == 2
    assert f"the file {file} of " in done.err and "is missing; restore it" in done.err


def test_verify_says_what_is_damaged_and_whom_it_affects(run: Run, filled: Made) -> None:
    done = run("verify", "--state", filled.path)
    assert done.status == 0 and "2 segments" in done.out and "0 damaged" in done.out
    (stream,) = filled.path.glob("log/streams/*/*")
    (file,) = filled.path.glob("log/units/*/*")
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    stream.write_bytes(b"")
    done = run("verify", "--state", filled.path)
    assert done.status == 1 and "2 damaged" in done.out
    assert f"the file {file} is damaged: its checksum is" in done.out
    assert f"the file {stream} is damaged: it has 0 bytes" in done.out
    assert "in stream:s; affects big, large, total" in done.out
    (found,) = lines(run("verify", "-f", "json", "--state", filled.path).out)
    assert found["sound"] is False and found["segments"] == 2
    affected = {damage["path"]: damage["queries"] for damage in found["damage"]}
    assert affected[str(file)] == ["big", "large"]
    done = run("results", "large", "--state", filled.path)
    assert done.status == 2 and f"the file {file} is damaged" in done.err
    assert "Traceback" not in done.err
    assert run("show", "queries", "--state", filled.path).status == 0


@contextmanager
def as_nobody(run: Run) -> Iterator[None]:
    """Root may write anywhere, so it becomes another user for a while.

    That user may not read the installed packages, so all that the commands load is loaded before.
    """
    if os.geteuid() != 0:
        yield
        return
    with tempfile.NamedTemporaryFile() as file:
        for command in (["run", GATE], ["status"]):
            assert run(*command, "--state", Path(file.name)).status == 2
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_directory_that_may_not_be_written(run: Run) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with as_nobody(run):
            done = run("run", GATE, "--state", folder / "state")
        assert done.status == 2
        assert (
            f"the state directory {folder}/state cannot be created: Permission denied" in done.err
        )
        folder.chmod(0o000)
        with as_nobody(run):
            done = run("status", "--state", folder / "state")
        assert done.status == 2
        assert "cannot be read: Permission denied" in done.err
        folder.chmod(0o755)


def test_a_file_instead_of_the_directory(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    done = run("run", GATE, "--state", tmp_path / "state")
    assert done.status == 2
    assert "state cannot be created: File exists; name another one" in done.err


def test_a_state_whose_log_may_not_be_written(run: Run) -> None:
    with tempfile.TemporaryDirectory() as name:
        state = Path(name) / "state"
        made = make(state)
        Path(name).chmod(0o755)
        state.chmod(0o755)
        for file in state.iterdir():
            file.chmod(0o644)
        with as_nobody(run):
            done = run("run", "--state", made.path)
        assert done.status == 2
        assert "is read-only: give this user permission to write" in done.err


@pytest.mark.parametrize("command", ["status", "run"])
def test_a_catalog_of_a_newer_release(run: Run, made: Made, command: str) -> None:
    catalog = sqlite3.connect(made.path / "catalog.sqlite")
    with catalog:
        catalog.execute("UPDATE meta SET version = 99")
    catalog.close()
    done = run(command, "--state", made.path)
    assert done.status == 2
    assert "has version 99, written by a newer Headwater" in done.err
    assert "upgrade Headwater, or use another catalog" in done.err


@pytest.mark.long
@pytest.mark.parametrize("package", ["pyspark", "sqlalchemy"])
def test_a_package_that_is_missing_is_named(made: Made, package: str) -> None:
    hidden = f"import sys; sys.modules[{package!r}] = None; from headwater.cli import main; main()"
    command = [sys.executable, "-c", hidden, "run", "--state", str(made.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"needs the package {package}, which is not installed" in done.stderr


def test_missing_java_is_reported(
    run: Run, made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = run("run", "--state", made.path)
    assert done.status == 2
    assert "Spark needs Java and there is none in JAVA_HOME" in done.err
    assert "install Java 17" in done.err
    assert "not running" in run("status", "--state", made.path).out


def test_run_with_a_wrong_file_makes_no_state(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "wrong.cql"
    file.write_text("CREATE QUERY q AS SELECT a FROM nowhere;")
    assert run("run", file, "--state", tmp_path / "state").status == 1
    assert not (tmp_path / "state").exists()


def test_a_state_is_run_by_one_process_at_a_time(run: Run, made: Made) -> None:
    with made.open() as headwater:
        headwater.catalog.acquire("run", "elsewhere:77", 60)
    done = run("run", "--state", made.path)
    assert done.status == 2
    assert "elsewhere:77 is already running this state" in done.err


def test_the_leases_of_a_dead_process_are_released(run: Run, made: Made) -> None:
    from headwater.cli.running.run import exclusive_run

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with made.open() as headwater:
        headwater.catalog.acquire("run", f"{socket.gethostname()}:{dead.pid}", 60)
        assert "not running" in run("status", "--state", made.path).out
        with exclusive_run(headwater.catalog):
            (mine,) = headwater.catalog.leases()
            assert mine.holder.endswith(f":{os.getpid()}")
        assert headwater.catalog.leases() == []


def test_importing_the_commands_loads_nothing_heavy() -> None:
    code = (
        "import sys; from headwater.cli import app; "
        "sys.exit(any(m in sys.modules for m in ('pyspark', 'sqlalchemy', 'pyarrow', 'sqlglot')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_headwater_opens_a_state_from_python(made: Made) -> None:
    import headwater

    with headwater.open(made.path) as opened:
        assert opened.query("big").row.spelled == "big"


# ---- on Spark


@pytest.mark.spark
def test_a_file_is_run_until_idle_and_again(tmp_path: Path, run: Run) -> None:
    """Files in, results out, as `headwater eval` says; the second run has nothing to do."""
    state = tmp_path / "state"

    def headwater(*words: str | Path) -> str:
        code = "from headwater.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout

    command = ("run", GATE, "--state", state, "--until-idle", "--master", "local[2]")
    first = headwater(*command)
    assert "gate.cql: 2 streams, 3 queries\n" in first
    assert "3 steps of 2 units" in first
    given = run("results", "-f", "json", "--state", state).out
    data = GATE.parent / "data"
    wanted = run("eval", GATE, "--input", data, "-f", "json").out
    assert sorted(given.splitlines()) == sorted(wanted.splitlines())
    assert given

    second = headwater(*command)
    assert "no new statements; resuming" in second
    assert "0 steps of 2 units" in second
    assert run("results", "-f", "json", "--state", state).out == given
    with open_state(state) as opened:
        assert opened.catalog.leases() == []
    assert (
        lines(run("clean", "--older-than", "0", "-f", "json", "--state", state).out)[0]["files"]
        == 0
    )
