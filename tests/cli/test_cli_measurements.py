"""Measurements as commands and the live view show them; no Spark is needed."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path

import pytest
from command_line import Run
from rich.console import Console
from runtime_states import ROWS, TEXT, Made, make

from headwater.cli.output.live_view import LiveView
from headwater.runtime.catalog import plan_owner, stream_log
from headwater.runtime.inspect.status import Observer
from headwater.runtime.metrics.rates import WAITS
from headwater.runtime.metrics.step_meter import StepMeter, StepReport


@pytest.fixture
def measured(tmp_path: Path) -> Made:
    """A state in which the unit of big and large has taken two steps, and s waits for total."""
    made = make(tmp_path / "state")
    with made.open() as headwater:
        headwater.push("s", ROWS, timestamp_unit="us")
        unit = headwater.query("big").row.unit_id
        meter = StepMeter(headwater.catalog)
        for seconds in (0.5, 1.5):
            steps = meter.record_step(unit, StepReport({"run": seconds}, 3, 2))
            position = {"seq": 1, "watermark": 0}
            headwater.catalog.commit(
                None,
                cursors={(unit, stream_log("s")): position},
                statistics=steps.statistics,
                profiles=steps.profiles,
            )
        scan = {
            "kind": "scan", "label": "Scan s, 1 segment", "rows_in": None, "rows_out": 3,
            "selectivity": None, "seconds": 0.25, "stage": None, "inputs": [],
        }  # fmt: skip
        kept = {
            "kind": "filter", "label": "Filter (a > 1)", "rows_in": 3, "rows_out": 2,
            "selectivity": 2 / 3, "seconds": None, "stage": 1, "inputs": [scan],
        }  # fmt: skip
        job = {"operators": [kept], "stages": [{"stage": 1, "seconds": 0.5}]}
        plan = {"step": 1, "jobs": [job]}
        headwater.catalog.commit(None, profiles={plan_owner(unit): plan})
        headwater.catalog.set_statistics({(stream_log("s"), WAITS): 1.0})
    return made


# ---- explain --analyze


def test_explain_shows_what_was_measured(run: Run, measured: Made) -> None:
    done = run("explain", "BIG", "--analyze", "--state", measured.path)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == f"big: running, in unit {measured.unit('big')}, shared with large"
    assert "  steps     2: 6 rows in, 4 rows out" in lines
    assert "  latency   median 0.500 s, p95 1.500 s of the last 2" in lines
    assert "        3         2       0.6667               1  Filter (a > 1)" in lines
    assert "                  3               0.250 s         └─ Scan s, 1 segment" in lines


def test_explain_shows_it_as_json(run: Run, measured: Made) -> None:
    done = run("explain", "large", "--analyze", "--format", "json", "--state", measured.path)
    (found,) = [json.loads(line) for line in done.out.splitlines()]
    with measured.open() as headwater:
        assert found == headwater.query("large").analysis().as_json()
    assert found["shared_with"] == ["big"]
    assert found["plan"]["jobs"][0]["operators"][0]["rows_out"] == 2


def test_explain_takes_the_queries_of_a_file(run: Run, measured: Made, tmp_path: Path) -> None:
    file = tmp_path / "it.cql"
    file.write_text(TEXT)
    done = run("explain", file, "--analyze", "--state", measured.path)
    assert [line.partition(":")[0] for line in done.out.splitlines() if ", in unit" in line] == [
        "big", "large", "total",
    ]  # fmt: skip
    assert "no step has run yet" in done.out
    one = run("explain", file, "--analyze", "--query", "total", "--state", measured.path)
    assert one.out.startswith("total: running")


def test_explain_without_a_state_says_how(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "it.cql"
    file.write_text(TEXT)
    for what in (file, "big"):
        done = run("explain", what, "--analyze", "--state", tmp_path / "none")
        assert done.status == 2
        assert "--analyze shows measurements of queries that have run" in done.err
        assert "headwater run FILE.cql --state" in done.err
        assert "then headwater explain NAME --analyze" in done.err
    assert not (tmp_path / "none").exists()


def test_explain_of_an_unknown_query_gives_a_hint(run: Run, measured: Made) -> None:
    done = run("explain", "totla", "--analyze", "--state", measured.path)
    assert done.status == 2
    assert "there is no query totla" in done.err
    assert "did you mean total?" in done.err


def test_explain_without_a_state_takes_files_only(run: Run, tmp_path: Path) -> None:
    assert "no such file" in run("explain", "big", "--state", tmp_path / "none").err


# ---- show, status


def shown(run: Run, what: str, made: Made) -> list[dict[str, object]]:
    out = run("show", what, "--format", "json", "--state", made.path).out
    return [json.loads(line) for line in out.splitlines()]


def test_streams_show_their_rate_and_the_queries_they_wait_for(run: Run, measured: Made) -> None:
    (stream,) = shown(run, "streams", measured)
    assert (stream["state"], stream["waits_for"], stream["pending"]) == ("waits", ["total"], 3)
    assert float(str(stream["rate"])) > 0
    assert "total" in run("show", "streams", "--state", measured.path).out
    status = run("status", "--state", measured.path).out
    assert "waiting   s, until total catches up" in status
    with measured.open() as headwater:
        headwater.execute("PAUSE QUERY total")
    (stream,) = shown(run, "streams", measured)
    assert (stream["state"], stream["waits_for"]) == ("open", [])
    assert "waiting" not in run("status", "--state", measured.path).out


def test_units_show_their_steps(run: Run, measured: Made) -> None:
    first, second = shown(run, "units", measured)
    assert (first["steps"], second["steps"]) == (2, 0)
    assert 0.5 < float(str(first["step"])) < 1.5
    assert first["last_step"] == pytest.approx(1.5, abs=0.1)
    assert (second["step"], second["last_step"]) == (None, None)
    assert float(str(first["lag"])) > 0
    (status,) = [
        json.loads(line)
        for line in run("status", "-f", "json", "--state", measured.path).out.splitlines()
    ]
    assert (status["steps"], status["waits"]) == (2, {"s": ["total"]})


def test_finished_queries_and_units_are_shown_so(run: Run, measured: Made) -> None:
    with measured.open() as headwater:
        for name in ("big", "large"):
            headwater.catalog.set_query_state(name, "finished")
        headwater.catalog.set_unit_state(headwater.query("big").row.unit_id, "paused")
    assert [q["state"] for q in shown(run, "queries", measured)] == ["finished"] * 2 + ["running"]
    assert [u["state"] for u in shown(run, "units", measured)] == ["finished", "running"]
    assert "2 finished, 1 running" in run("status", "--state", measured.path).out
    assert run("results", "big", "--state", measured.path).status == 0
    done = run("resume", "big", "--state", measured.path)
    assert "query big is finished and cannot be" in done.err
    assert run("drop", "big", "--state", measured.path).status == 0


def test_following_ends_with_the_query_and_loses_nothing(run: Run, measured: Made) -> None:
    def later() -> None:
        time.sleep(0.3)
        measured.answer("big", {"s": [(5, "five", None, 1_000_000)]})
        with measured.open() as headwater:
            headwater.catalog.set_query_state("big", "finished")

    thread = threading.Thread(target=later)
    thread.start()
    done = run("results", "big", "--follow", "-f", "json", "--state", measured.path)
    thread.join()
    assert [json.loads(line)["a"] for line in done.out.splitlines()] == [5]


# ---- flags


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--rows-per-step", "0"),
        ("--max-concurrency", "0"),
        ("--max-backlog-rows", "x"),
        ("--retries", "-1"),
    ],
)
def test_flags_are_checked(run: Run, measured: Made, flag: str, value: str) -> None:
    done = run("run", flag, value, "--state", measured.path)
    assert done.status == 2
    assert flag in done.err


def test_options_are_set_for_all_runs(run: Run, measured: Made) -> None:
    done = run(
        "submit", "-e", "SET retries = 2; SET max_backlog_rows = 10", "--state", measured.path
    )
    assert done.out.splitlines() == ["retries = 2", "max_backlog_rows = 10"]
    wrong = run("submit", "-e", "SET retreis = 2", "--state", measured.path)
    assert wrong.status == 1
    assert wrong.err.startswith("--execute:1:5: there is no setting retreis\n")


# ---- the live view


def test_the_live_view_shows_which_stream_waits_for_which_query(measured: Made) -> None:
    with measured.open() as headwater:
        view = LiveView(Observer(headwater.catalog))
        assert view.line() == "3 rows in, 0 rows out, backlog 3 rows; s is waiting for total"
        out = Console(file=io.StringIO(), width=140)
        out.print(view.render(40))
        assert isinstance(out.file, io.StringIO)
        text = out.file.getvalue()
        assert "s is waiting for total" in text
        assert "big, large" in text and "wait" in text and "slowdown" in text
        headwater.catalog.set_statistics({(stream_log("s"), WAITS): 0.0})
        assert view.line() == "3 rows in, 0 rows out, backlog 3 rows"
