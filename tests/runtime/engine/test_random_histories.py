"""Whatever happens to a state, every query has the rows that it would have alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_helpers import json_lines, opened
from histories import Inlet, check_history
from kafka_broker import Broker
from kafka_topics import Topic

from headwater.algebra.catalog import Stream
from headwater.cql import Connector
from headwater.runtime.api import Headwater
from headwater.runtime.maintenance import stream_logs

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 2)
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 4)


@pytest.mark.parametrize("seed", range(4))
def test_random_histories(spark: Any, tmp_path: Path, seed: int) -> None:
    check_history(spark, tmp_path, seed, actions=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_random_histories_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check_history(spark, tmp_path, seed, actions=40)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("seed", range(2000, 2020))
def test_random_histories_of_topics(spark: Any, kafka: Broker, tmp_path: Path, seed: int) -> None:
    topics: dict[str, Topic] = {}

    def source(stream: Stream) -> Connector:
        topics[stream.name] = Topic.made(spark, kafka, partitions=1)
        options = {"servers": kafka.servers, "topic": topics[stream.name].name, "rows_per_step": 4}
        return Connector("kafka", tuple(options.items()))

    def send(headwater: Headwater, stream: Stream, rows: list[Any]) -> None:
        topics[stream.name].send(0, json_lines(stream, rows).splitlines())

    check_history(spark, tmp_path, seed, actions=40, inlet=Inlet(source, send))


STREAM = (
    "CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts "
    "FROM files(path => '{folder}', format => 'json');"
)
COUNT = "SELECT COUNT(*) AS c FROM s [RANGE 1 HOUR SLIDE {slide}]"


def until_idle(headwater: Any) -> None:
    while headwater.engine.tick() or headwater.engine.end_finite_streams():
        pass


def _minutes(headwater: Any, name: str) -> list[int]:
    return sorted(row["_tau"].minute for row in headwater.query(name).results())


def test_files_of_the_next_day_for_queries_that_slide_differently(
    spark: Any, tmp_path: Path
) -> None:
    """The coarse one is evaluated further ahead when the stream ends; the fine one must go on from
    where it was, not from there."""
    folder = tmp_path / "in"
    folder.mkdir()
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(STREAM.format(folder=folder))
        headwater.execute(f"CREATE QUERY fine AS {COUNT.format(slide='1 MINUTE')}")
        headwater.execute(f"CREATE QUERY coarse AS {COUNT.format(slide='10 MINUTES')}")
        assert len(headwater.catalog.units()) == 1
        (folder / "1.json").write_text('{"v": 1, "ts": "2026-03-01T12:01:24Z"}\n')
        until_idle(headwater)
        assert len(list(headwater.query("fine").results())) == 1
        (folder / "2.json").write_text('{"v": 2, "ts": "2026-03-01T12:20:00Z"}\n')
        until_idle(headwater)
        minutes = {name: _minutes(headwater, name) for name in ("fine", "coarse")}
        assert minutes == {"fine": list(range(2, 21)), "coarse": [10, 20]}


def test_a_lifetime_that_others_close_before_tuples_come_to_its_end(
    spark: Any, tmp_path: Path
) -> None:
    """The coarse one closes the first hour when the stream ends after five minutes; the short one has
    still to be evaluated at its instants of that hour when a tuple of the next comes."""
    folder = tmp_path / "in"
    folder.mkdir()
    short = (
        "CREATE QUERY {name} STARTING AT TIMESTAMP '2026-03-01 12:00:00' LIFETIME 20 MINUTES AS "
        f"{COUNT.format(slide='7 MINUTES')}"
    )
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(STREAM.format(folder=folder))
        headwater.execute(f"CREATE QUERY coarse AS {COUNT.format(slide='1 HOUR')}")
        headwater.execute(short.format(name="short"))
        (folder / "1.json").write_text('{"v": 1, "ts": "2026-03-01T12:05:00Z"}\n')
        until_idle(headwater)
        (folder / "2.json").write_text('{"v": 2, "ts": "2026-03-01T12:50:00Z"}\n')
        until_idle(headwater)
        headwater.execute(short.format(name="later"))
        until_idle(headwater)
        (folder / "3.json").write_text('{"v": 3, "ts": "2026-03-01T13:10:00Z"}\n')
        until_idle(headwater)
        assert _minutes(headwater, "short") == [7, 14]
        assert _minutes(headwater, "later") == [7, 14]


def test_a_sum_of_all_comes_to_a_unit_before_its_own_first_instant(
    spark: Any, tmp_path: Path
) -> None:
    """Nothing leaves at its first instant, though the unit was evaluated before."""
    total = "DSTREAM(SELECT SUM(v) AS n FROM s [RANGE 30 SECONDS SLIDE {slide} SECONDS])"
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(
            "CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
            f"CREATE QUERY fine AS {total.format(slide=3)}"
        )
        push(headwater, [(1, 3), (1, 4), (1, 9)])
        until_idle(headwater)
        headwater.execute(f"CREATE QUERY coarse AS {total.format(slide=10)}")
        push(headwater, [(1, 11), (1, 21)])
        headwater.execute("END STREAM s")
        until_idle(headwater)
        assert len(headwater.catalog.units()) == 1
        rows = {(row["_tau"].second, row["n"]) for row in headwater.query("coarse").results()}
        assert rows == {(20, 3), (30, 4)}


def push(headwater: Any, rows: list[tuple[int, int]]) -> None:
    headwater.push("s", [(v, second * 1_000_000) for v, second in rows], timestamp_unit="us")


def test_an_equal_query_comes_after_the_first_has_left(spark: Any, tmp_path: Path) -> None:
    """Rows of the one that left are still in the log of the unit, and do not count twice."""
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(
            "CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts LATENESS 1 MINUTE FROM CLIENT;"
            "CREATE QUERY first AS SELECT v FROM s WHERE v > 1;"
            "CREATE QUERY other AS SELECT v FROM s WHERE v > 2;"
        )
        headwater.push("s", [(v, v * 1_000_000) for v in range(5)], timestamp_unit="us")
        until_idle(headwater)
        headwater.execute("DROP QUERY first")
        until_idle(headwater)
        headwater.execute("CREATE QUERY again AS SELECT v FROM s WHERE v > 1;")
        until_idle(headwater)
        headwater.push("s", [(9, 9_000_000)], timestamp_unit="us")
        until_idle(headwater)
        assert sorted(row["v"] for row in headwater.query("again").results()) == [2, 3, 4, 9]
