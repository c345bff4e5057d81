"""The suite of the engine once more, with its catalog on a real PostgreSQL server.

The state directory then holds the files of the log and no catalog. Kills are in test_killed_workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import postgres
import pytest
from engine_helpers import Rows, catalog_trouble, opened
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_queries import QUIET
from test_engine import POINTS, check, check_crashes, check_every_kind

from headwater.algebra.nodes import Query
from headwater.runtime.api import open_state
from strategies import queries, streams, tables

pytestmark = [pytest.mark.spark, pytest.mark.postgresql]


def test_every_kind_of_query_at_once(
    spark: Any, tmp_path: Path, postgresql: postgres.Server
) -> None:
    check_every_kind(spark, tmp_path, postgresql.url())
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["log"]


@given(queries(), streams(), tables(), st.integers(0, 2**32))
@settings(QUIET, max_examples=3)
def test_random_queries(
    spark: Any,
    postgresql: postgres.Server,
    query: Query,
    streams: Rows,
    tables: Rows,
    seed: int,
) -> None:
    check(spark, query, streams, tables, seed, postgresql.url())


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_loses_and_doubles_nothing(
    spark: Any, tmp_path: Path, postgresql: postgres.Server, point: str
) -> None:
    check_crashes(spark, tmp_path, point, postgresql.url())


def test_a_server_that_goes_away_and_comes_back(spark: Any, tmp_path: Path) -> None:
    """The engine waits for it, and nothing is lost."""
    with postgres.server() as server:
        url = server.url()
        with opened(tmp_path / "state", spark, url) as headwater:
            headwater.execute("""
                CREATE STREAM s (item INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
                CREATE QUERY q AS SELECT item FROM s;
                """)
            headwater.push("s", [{"item": 1, "ts": "2026-01-01T00:00:00Z"}], timestamp_unit="us")
            stop: list[bool] = []
            thread = Thread(target=headwater.run, kwargs={"stopping": lambda: bool(stop)})
            thread.start()
            try:
                until(lambda: items(url, tmp_path) == [1])
                server.stop()
                until(lambda: "cannot be reached" in catalog_trouble(headwater))
                server.start()
                headwater.push(
                    "s", [{"item": 2, "ts": "2026-01-01T00:00:01Z"}], timestamp_unit="us"
                )
                until(lambda: items(url, tmp_path) == [1, 2])
                until(lambda: catalog_trouble(headwater) == "")
            finally:
                stop.append(True)
                thread.join()


def items(url: str, folder: Path) -> list[int]:
    with open_state(folder / "state", catalog=url) as headwater:
        return [int(row["item"]) for row in headwater.query("q").results()]  # type: ignore[arg-type]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
