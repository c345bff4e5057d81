"""Nothing in the catalog grows with the time that a system runs, but for the results of its queries."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import journal, log, stream_log
from headwater.runtime.engine import housekeeping
from headwater.runtime.engine.engine import Engine
from headwater.runtime.metrics.step_meter import StepReport

SECOND = 1_000_000
ROUNDS = 30


def sizes(state: Path) -> dict[str, int]:
    """The rows of every table."""
    connection = sqlite3.connect(state / "catalog.sqlite")
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in tables if not name.startswith("sqlite_")]
        count = "SELECT count(*) FROM {}"
        return {name: connection.execute(count.format(name)).fetchone()[0] for name in names}
    finally:
        connection.close()


def one_round(headwater: Headwater, engine: Engine, number: int) -> None:
    """A stream and a query come, are worked on, and go; another query stays."""
    catalog = headwater.catalog
    headwater.execute(f"""
        CREATE STREAM passing (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
        CREATE QUERY q{number} AS SELECT v + {number} AS w FROM s;
        CREATE QUERY p AS SELECT v FROM passing;
    """)
    at = number * 10 * SECOND
    headwater.push("s", [(number, at), (number, at - 5 * SECOND)], timestamp_unit="us")
    headwater.push("s", [(number, at - 5 * SECOND)], timestamp_unit="us")
    headwater.push("passing", [(1, at)], timestamp_unit="us")
    catalog.record_event("something", "s")
    for row in catalog.units():
        unit = engine.units.current(row)
        lease = engine.leases.acquire(f"unit:{row.id}")
        measured = engine.meter.record_step(row.id, StepReport({}, rows_in=1))
        cursors: dict[tuple[str, str], Any] = {}
        for name in unit.streams:
            known = catalog.stream(name)
            assert known is not None
            position = {"seq": known.next_seq - 1, "watermark": known.watermark}
            cursors[row.id, stream_log(name)] = position
        catalog.commit(
            lease,
            cursors=cursors,
            statistics=measured.statistics,
            profiles=measured.profiles,
        )
    headwater.execute(f"DROP QUERY q{number}; DROP QUERY p; DROP STREAM passing")
    engine.tidy()


@pytest.mark.long
def test_a_long_run_leaves_no_more_than_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_EVENTS", 7)
    monkeypatch.setattr(journal, "MAX_REJECTS", 9)
    monkeypatch.setattr(log, "MAX_BATCH_KEYS", 20)
    monkeypatch.setattr(housekeeping, "MAX_DROPPED_KEPT", 5)
    spark: Any = None
    with open_state(tmp_path) as headwater:
        headwater.execute("""
            CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP 30 SECONDS FROM CLIENT;
            CREATE QUERY stays AS SELECT v FROM s [RANGE 20 SECONDS];
        """)
        engine = Engine(headwater.catalog, headwater.state, spark)
        seen = []
        for number in range(2 * ROUNDS):
            one_round(headwater, engine, number)
            seen.append(sizes(tmp_path))
            held = (engine.units, engine.meter._units, engine.leases._held)
            assert all(len(known) < 10 for known in held)
        early, late = seen[ROUNDS - 10 : ROUNDS], seen[-10:]
        for table in seen[-1]:
            most = max(counts[table] for counts in early)
            assert max(counts[table] for counts in late) <= most, table
        assert headwater.catalog.statistic(stream_log("s"), "batches") is not None
        assert {row.name for row in headwater.catalog.queries()} == {"stays"}


def test_the_newest_of_what_was_dropped_is_remembered(tmp_path: Path) -> None:
    with open_state(tmp_path) as headwater:
        for number in range(4):
            headwater.execute(
                f"CREATE STREAM s{number} (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
            )
            headwater.execute(f"CREATE QUERY q{number} AS SELECT v AS w FROM s{number}")
            headwater.catalog.acquire(f"unit:{headwater.query(f'q{number}').row.unit_id}", "x", 9)
            if number:
                headwater.execute(f"DROP QUERY q{number}")
        assert headwater.catalog.forget_dropped(keep=2) == 2
        rows = headwater.catalog.queries(dropped=True)
        assert [row.name for row in rows] == ["q0", "q2", "q3"]
        kept = {row.unit_id for row in rows}
        assert {row.id for row in headwater.catalog.units(dropped=True)} == kept
        assert {lease.name for lease in headwater.catalog.leases()} == {f"unit:{u}" for u in kept}
        assert headwater.catalog.forget_dropped() == 4
        assert [row.name for row in headwater.catalog.queries(dropped=True)] == ["q0"]
