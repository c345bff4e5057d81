"""How `headwater run` drives the engine: when it stops, when it has done, what it does on failures.

The engine's own steps are replaced, so no Spark is needed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from runtime_states import Made, make

from headwater.cli.running.run import (
    RunOptions,
    _interruptible_start,
    _start_engine,
    handle_signals,
    hold_lease,
)
from headwater.errors import HeadwaterError
from headwater.runtime.catalog import Catalog, stream_log
from headwater.runtime.engine.engine import Engine, Settings, Unit

Step = Callable[[Engine, Unit], bool]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "state")


@pytest.fixture
def engine(made: Made) -> Iterator[Engine]:
    with made.open() as headwater:
        spark: Any = None
        limits = Settings(max_concurrency=1, retries=2, backoff=0.01)
        yield Engine(headwater.catalog, headwater.state, spark, limits)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Step], None]:
    """Replace the step of the engine; no stream has anything to ingest."""
    monkeypatch.setattr(Engine, "ingest", lambda engine, name: False)
    return lambda step: monkeypatch.setattr(Engine, "step", step)


def test_nothing_is_begun_after_the_word_to_stop(
    engine: Engine, steps: Callable[[Step], None]
) -> None:
    def step(this: Engine, unit: Unit) -> bool:
        engine.stop()
        return True

    steps(step)
    engine.run(interval=0.01)
    assert engine.steps == 1


def test_a_state_that_was_stopped_can_run_again(made: Made, steps: Callable[[Step], None]) -> None:
    with made.open() as headwater:
        headwater.stop()  # before there is an engine: nothing to stop
        headwater._engine = Engine(headwater.catalog, headwater.state, None)  # type: ignore[arg-type]

        def step(this: Engine, unit: Unit) -> bool:
            headwater.stop()
            return True

        steps(step)
        headwater.run(interval=0.01)
        headwater.run(interval=0.01)
        assert headwater.engine.steps >= 2


JOINS = """
CREATE STREAM bids (item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM fees (item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE QUERY wide AS SELECT b.v FROM bids [NOW] b, asks [NOW] a, fees [NOW] f
  WHERE b.item = a.item AND b.item = f.item;
CREATE QUERY narrow AS SELECT b.v FROM bids [NOW] b, asks [NOW] a WHERE b.item = a.item;
"""


def test_a_run_looks_again_at_what_units_read(
    tmp_path: Path, steps: Callable[[Step], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.running.spark.start_spark", lambda *_: None)
    monkeypatch.setattr("headwater.runtime.engine.engine.REVISIT_SECONDS", -1.0)
    steps(lambda this, unit: False)
    made = make(tmp_path / "state", JOINS)
    options = RunOptions(made.path, None, False, 0, "local[1]", True, {"max_concurrency": 3})
    with made.open() as headwater:
        catalog, wide = headwater.catalog, made.unit("wide")
        rates = {"rows_rate": 1_000.0, "batches": 9.0}
        logs = [stream_log(name) for name in ("bids", "asks", "fees")]
        catalog.set_statistics({(log, name): n for log in logs for name, n in rates.items()})
        engine = _start_engine(headwater, options)

        def is_requested() -> bool:
            return bool(catalog.events(kind="rewiring requested", subject=wide))

        engine.run(until_idle=True, interval=0.01, patience=2, stopping=is_requested)
        assert is_requested()
        assert headwater.engine is engine and engine.overrides == {"max_concurrency": 3}


def test_patience_waits_for_more(engine: Engine, steps: Callable[[Step], None]) -> None:
    """However long a round takes here: what comes while it waits is worked on."""
    begun = time.monotonic()
    late = iter([True])
    steps(lambda this, unit: time.monotonic() > begun + 0.1 and next(late, False))
    engine.run(until_idle=True, patience=0.2, interval=0.02)
    assert engine.steps == 1
    assert time.monotonic() - begun > 0.2


def test_a_failure_that_passes_is_forgotten(
    engine: Engine, steps: Callable[[Step], None], caplog: pytest.LogCaptureFixture
) -> None:
    failing = iter([True, True])
    done: list[str] = []

    def step(this: Engine, unit: Unit) -> bool:
        if unit.row.id == engine.catalog.units()[0].id and next(failing, False):
            raise HeadwaterError("not now")
        if unit.row.id in done:
            return False
        done.append(unit.row.id)
        if unit.row.retries:
            this.catalog.set_unit_state(unit.row.id, "running")
        return True

    steps(step)
    engine.run(until_idle=True, interval=0.01)
    assert len(done) == 2
    assert [(u.state, u.error, u.retries) for u in engine.catalog.units()] == [
        ("running", "", 0)
    ] * 2


def test_a_failure_that_stays_parks_the_unit_and_the_others_go_on(
    engine: Engine, steps: Callable[[Step], None], caplog: pytest.LogCaptureFixture
) -> None:
    bad = engine.catalog.units()[0].id
    done: list[str] = []

    def step(this: Engine, unit: Unit) -> bool:
        if unit.row.id == bad:
            raise ValueError("disk full\nand more")
        done.append(unit.row.id)
        return len(done) == 1

    steps(step)
    engine.run(until_idle=True, interval=0.01)
    parked = engine.catalog.unit(bad)
    assert parked is not None
    assert (parked.state, parked.error, parked.retries) == ("parked", "disk full", 3)
    assert done


def test_a_query_may_be_dropped_in_the_middle_of_its_step(
    engine: Engine, steps: Callable[[Step], None]
) -> None:
    unit = engine.catalog.query("total")
    assert unit is not None

    def step(this: Engine, stepped: Unit) -> bool:
        if stepped.row.id == unit.unit_id:
            this.catalog.drop_query("total")
            raise HeadwaterError("the log is gone")
        return False

    steps(step)
    engine.run(until_idle=True, interval=0.01)
    assert [u.id for u in engine.catalog.units()] != []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_word_to_stop(
    engine: Engine, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with handle_signals(engine.stop_requested):
        os.kill(os.getpid(), number)
        assert engine.stop_requested.wait(1)
    assert signal.getsignal(number) == before
    assert "stopping after this step" in capfd.readouterr().err


@pytest.mark.long
def test_the_second_signal_ends_immediately() -> None:
    code = """
import os, signal, threading, types
from headwater.cli.running.run import handle_signals
with handle_signals(threading.Event()):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert "the next run resumes" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_a_library_passes_over_still_stops_the_start(number: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), _interruptible_start(), suppress(BaseException):
        os.kill(os.getpid(), number)
        time.sleep(1)
    assert signal.getsignal(number) == before


def test_what_ended_a_run_is_not_hidden_by_a_catalog_that_is_away(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    with (
        Catalog.open(path, timeout=0.1) as catalog,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        with pytest.raises(KeyError), hold_lease(catalog, "run"):
            other.execute("BEGIN IMMEDIATE")
            raise KeyError
        assert [lease.name for lease in catalog.leases()] == ["run"], "it expires by itself"
