"""The engine's loop where it meets other processes and a catalog that is away.

Sources are empty folders and steps are replaced, so no Spark is needed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from headwater.errors import CatalogUnavailable, LeaseLost
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import QueryRow, StreamRow, UnitRow
from headwater.runtime.engine.engine import Engine, Settings, Unit
from headwater.runtime.engine.failures import UnitFailures
from headwater.runtime.ingest.ingestion import Ingestion
from headwater.runtime.storage import segment_files

Step = Callable[[Engine, Unit], bool]


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    """A stream that reads an empty folder, and a query."""
    (tmp_path / "in").mkdir()
    with open_state(tmp_path / "state") as opened:
        opened.execute(f"""
            CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts
              FROM files(path => '{tmp_path}/in', format => 'json');
            CREATE QUERY q AS SELECT a FROM s;
            """)
        spark: Any = None
        opened._engine = Engine(opened.catalog, opened.state, spark, Settings(backoff=0.01))
        yield opened


@contextmanager
def running(headwater: Headwater) -> Iterator[Thread]:
    """Until idle, in a thread that ends by itself."""
    thread = Thread(target=headwater.run, kwargs={"until_idle": True, "interval": 0.01})
    thread.start()
    yield thread
    thread.join(60)
    assert not thread.is_alive()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def ended(headwater: Headwater) -> bool:
    row = headwater.catalog.stream("s")
    assert row is not None
    return row.ended


@pytest.mark.parametrize("name", ["ingest:s", "unit"])
def test_nobody_declares_a_stream_ended_while_another_works(
    headwater: Headwater, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (unit,) = headwater.catalog.units()
    wanted = name if name == "ingest:s" else f"unit:{unit.id}"
    other = headwater.catalog.acquire(wanted, "elsewhere:77", 600)
    assert other is not None
    with running(headwater) as thread:
        until(lambda: bool(headwater.engine.waiting_for.get("others")))
        assert thread.is_alive() and not ended(headwater)
        until(lambda: headwater.catalog.leases() == [other])
        headwater.catalog.release(other)
    assert ended(headwater)
    told = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert f"elsewhere:77 works on {wanted}; waiting" in told
    assert len(told) == len(set(told)), "it is told once"


def test_a_lost_lease_is_no_failure_of_the_unit(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def step(engine: Engine, unit: Unit) -> bool:
        lease = engine.leases.acquire(f"unit:{unit.row.id}")
        assert lease is not None
        tries.append(lease.token)
        if len(tries) == 1:
            raise LeaseLost("another took it")
        return False

    monkeypatch.setattr(Engine, "step", step)
    headwater.run(until_idle=True, interval=0.01)
    (unit,) = headwater.catalog.units()
    assert (unit.error, unit.retries) == ("", 0)
    assert [query.state for query in headwater.catalog.subscribers(unit.id)] == ["finished"]
    assert len(tries) > 1 and tries[1] > tries[0], "it asks for a new one"


def test_a_catalog_that_is_away_is_no_failure_of_the_unit(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[bool] = []

    def step(engine: Engine, unit: Unit) -> bool:
        tries.append(True)
        if len(tries) < 10:
            raise CatalogUnavailable("the catalog is away")
        return False

    monkeypatch.setattr(Engine, "step", step)
    headwater.run(until_idle=True, interval=0.01)
    (unit,) = headwater.catalog.units()
    assert (unit.error, unit.retries) == ("", 0)
    assert [query.state for query in headwater.catalog.subscribers(unit.id)] == ["finished"]
    assert ended(headwater)
    told = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert told == ["the catalog is away; waiting"]


def test_housekeeping_that_fails_stops_nothing(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def tidy(engine: Engine) -> None:
        raise OSError("no such file")

    monkeypatch.setattr(Engine, "tidy", tidy)
    monkeypatch.setattr("headwater.runtime.engine.engine.TIDY_SECONDS", -1.0)
    monkeypatch.setattr(Engine, "step", lambda engine, unit: False)
    headwater.run(until_idle=True, interval=0.01)
    assert ended(headwater)
    assert "housekeeping failed" in caplog.text


def test_a_folder_that_cannot_be_listed(headwater: Headwater, tmp_path: Path) -> None:
    """Its stream is left open, the others go on, and a run until idle ends with the reason."""
    headwater.execute(f"""
        CREATE STREAM t (a INT, ts TIMESTAMP) TIMESTAMP BY ts
          FROM files(path => '{tmp_path / ("x" * 300)}', format => 'json')
        """)
    headwater.run(until_idle=True, interval=0.01)
    assert ended(headwater)
    row = headwater.catalog.stream("t")
    assert row is not None and not row.ended
    (trouble,) = headwater.engine.ingestion.problems()
    assert "stream t: " in trouble and "File name too long" in trouble


def test_a_query_that_comes_while_a_plan_is_made(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is that of the version it is made under, or rows would be told as those of others."""
    catalog, engine = headwater.catalog, headwater.engine
    headwater.execute("CREATE QUERY more AS SELECT a FROM s WHERE a > 1")
    (before,) = catalog.units()
    read = catalog.subscribers
    coming = ["CREATE QUERY late AS SELECT a + 1 AS b FROM s WHERE a > 0"]

    def members(unit_id: str) -> list[QueryRow]:
        while coming:
            headwater.execute(coming.pop())
        return read(unit_id)

    monkeypatch.setattr(catalog, "subscribers", members)
    unit = engine.units.current(before)
    (after,) = catalog.units()
    assert after.version > before.version
    assert unit.row.version == after.version
    assert {query.name for query in unit.queries} == {"q", "more", "late"}


# ---- dropped meanwhile


def test_a_stream_that_is_dropped_while_a_batch_is_read(
    headwater: Headwater, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch goes nowhere, not even into a new stream of the same name with other columns."""
    declared = (
        "CREATE STREAM t ({}, ts TIMESTAMP) TIMESTAMP BY ts "
        f"FROM files(path => '{tmp_path}/t', format => 'json')"
    )
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "1.json").write_text('{"a": 1, "b": "x", "ts": "2026-03-01T12:00:00Z"}\n')
    headwater.execute(declared.format("a INT"))
    again = ["DROP STREAM t", declared.format("b STRING")]

    def at_point(point: str) -> None:
        while point == "ingest: written" and again:
            headwater.execute(again.pop(0))

    headwater.engine.at_point = at_point
    headwater.engine.ingest("t")
    assert not again and headwater.catalog.segments("stream:t") == []
    headwater.engine.ingest("t")
    (segment,) = headwater.catalog.segments("stream:t")
    assert segment_files.read_arrow(segment).column("b").to_pylist() == ["x"]
    assert caplog.records == [] and headwater.engine.ingestion.problems() == []
    assert "stream unread" not in {event.kind for event in headwater.catalog.events()}


@pytest.mark.parametrize("at_once", [False, True])
def test_an_abandoned_stream_that_is_dropped_is_forgotten(
    headwater: Headwater, tmp_path: Path, at_once: bool
) -> None:
    """One that is declared anew under its name is read, also where no round came in between."""
    declared = f"""CREATE STREAM t (a INT, ts TIMESTAMP) TIMESTAMP BY ts
        FROM files(path => '{tmp_path}/in', format => 'json')"""
    headwater.execute(declared)
    ingestion = headwater.engine.ingestion
    ingestion.abandon("t", "Java ended at work on it")
    assert ingestion.refresh() == ["s"]
    assert ingestion.problems() == ["stream t: Java ended at work on it"]
    headwater.execute("DROP STREAM t")
    assert at_once or (ingestion.refresh(), ingestion.problems()) == (["s"], [])
    headwater.execute(declared)
    assert (ingestion.refresh(), ingestion.problems()) == (["s", "t"], [])
    ingestion.abandon("gone", "it was dropped meanwhile")
    assert ingestion.problems() == []


def test_a_stream_that_is_dropped_while_others_end(
    headwater: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headwater.execute(f"""
        CREATE STREAM a (a INT, ts TIMESTAMP) TIMESTAMP BY ts
          FROM files(path => '{tmp_path}/in', format => 'json')
        """)
    read = Ingestion.local_streams

    def local_streams(ingestion: Ingestion) -> list[StreamRow]:
        rows = read(ingestion)
        if any(row.name == "a" for row in rows):
            headwater.execute("DROP STREAM a")
        return rows

    monkeypatch.setattr(Engine, "step", lambda engine, unit: False)
    headwater.engine.tick()
    monkeypatch.setattr(Ingestion, "local_streams", local_streams)
    assert headwater.engine.end_finite_streams()
    assert [row.name for row in headwater.catalog.streams()] == ["s"]
    assert ended(headwater)


def test_a_query_that_is_dropped_while_its_failure_is_noted(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    headwater.execute("CREATE QUERY good AS SELECT MAX(a) AS a FROM s")
    (bad,) = (row for row in headwater.catalog.units() if "q" in names(headwater, row))
    note = UnitFailures._retry_later

    def step(engine: Engine, unit: Unit) -> bool:
        if unit.row.id == bad.id:
            raise OSError("no such file")
        return False

    def retry_later(failures: UnitFailures, unit_id: str, message: str, retries: int) -> None:
        headwater.execute("DROP QUERY q")
        note(failures, unit_id, message, retries)

    monkeypatch.setattr(Engine, "step", step)
    monkeypatch.setattr(UnitFailures, "_retry_later", retry_later)
    headwater.run(until_idle=True, interval=0.01)
    (unit,) = headwater.catalog.units()
    assert names(headwater, unit) == ["good"] and ended(headwater)


def names(headwater: Headwater, unit: UnitRow) -> list[str]:
    return [query.name for query in headwater.catalog.subscribers(unit.id)]
