"""Overlapping queries that come and go while data flows: each has the rows it would have alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import as_csv_keeps, declare, expected, opened, pieces, settle, submit, told
from sample_queries import sample

from headwater.algebra.nodes import Query
from headwater.cql import parse_query
from headwater.runtime.maintenance import stream_logs
from overlapping import (
    random_group,
    random_join,
    random_nested,
    random_query,
    random_relation,
)
from strategies import SOURCES

pytestmark = pytest.mark.spark

TABLES = {"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]}


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 2)
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 4)


def check(
    spark: Any, folder: Path, seed: int, size: int, query: Callable[[random.Random], Query]
) -> int:
    """Queries that come between pieces of the input, and some that leave; the state is opened again in
    the middle. Returns how many units there were."""
    rng = random.Random(seed)
    queries = {f"q{n}": query(rng) for n in range(size)}
    streams, tables = sample(seed), as_csv_keeps(TABLES)
    cuts = pieces(rng, streams)
    waiting, left = list(queries), []
    units = 0
    for part in (cuts[: len(cuts) // 2], cuts[len(cuts) // 2 :]):
        with opened(folder / "state", spark) as headwater:
            if not left and len(waiting) == size:
                declare(headwater, folder / "items", tables)
            for name, rows in part:
                for _ in range(rng.randint(0, size // 2)):
                    if waiting:
                        submit(headwater, waiting[-1], queries[waiting.pop()])
                headwater.push(name, rows, timestamp_unit="us")
                if rng.random() < 0.7:
                    headwater.engine.tick()
                if rng.random() < 0.3:
                    headwater.engine.tidy()
                running = sorted(set(queries) - set(waiting) - set(left))
                if running and rng.random() < 0.4:
                    left.append(rng.choice(running))
                    headwater.execute(f"DROP QUERY {left[-1]}")
            units = max(units, len(headwater.catalog.units()))
    with opened(folder / "state", spark) as headwater:
        while waiting:
            submit(headwater, waiting[-1], queries[waiting.pop()])
        units = max(units, len(headwater.catalog.units()))
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name in sorted(set(queries) - set(left)):
            row = headwater.query(name).row
            keep = {"Bids": 3_600_000_000, "Asks": 3_600_000_000}
            due = expected(queries[name], streams, tables, start=row.start_at, keep=keep)
            assert told(headwater, name, queries[name]) == due, str(queries[name])
    return units


@pytest.mark.parametrize(
    ("query", "size"),
    [(random_join, 12), (random_group, 8), (random_nested, 8), (random_relation, 16)],
)
def test_random_queries_that_overlap(
    spark: Any, tmp_path: Path, query: Callable[[random.Random], Query], size: int
) -> None:
    assert check(spark, tmp_path, seed=1, size=size, query=query) < size


@pytest.mark.parametrize("mode", ["equal", "none"])
def test_rows_are_the_same_where_less_is_shared(spark: Any, tmp_path: Path, mode: str) -> None:
    """Queries come, leave and run on."""
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(f"SET sharing = '{mode}'")
    assert check(spark, tmp_path, seed=2, size=6, query=random_query) >= 5


TWO = "SELECT b.price FROM Bids [RANGE 4 SEC] b, Asks [RANGE 4 SEC] a WHERE b.item = a.item"
THREE = """SELECT b.price, a.cost, i.label FROM Bids [RANGE 3 SEC] b, Asks [RANGE 2 SEC] a, Items i
  WHERE b.item = a.item AND b.item = i.item AND b.price > {}"""


def test_a_join_of_three_reads_a_join_of_two(spark: Any, tmp_path: Path) -> None:
    """One that comes later too; and when all have gone, so has what they asked of each other."""
    texts = {"two": TWO, "three": THREE.format(0), "other": THREE.format(1)}
    queries = {name: parse_query(text, SOURCES) for name, text in texts.items()}
    streams, tables = sample(3), as_csv_keeps(TABLES)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", tables)
        submit(headwater, "two", queries["two"])
        for name, rows in streams.items():
            headwater.push(name, rows[:20], timestamp_unit="us")
        settle(headwater)
        submit(headwater, "three", queries["three"])
        submit(headwater, "other", queries["other"])
        built = headwater.catalog.unit(headwater.query("three").row.unit_id)
        assert built is not None
        assert f"unit:{headwater.query('two').row.unit_id}" in built.inputs
        assert headwater.query("other").row.unit_id == built.id
        assert [row.name for row in headwater.catalog.queries()] == ["other", "three", "two"]
        for name, rows in streams.items():
            headwater.push(name, rows[20:], timestamp_unit="us")
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name, query in queries.items():
            assert headwater.query(name).row.state == "finished"
            start = headwater.query(name).row.start_at
            assert told(headwater, name, query) == expected(query, streams, tables, start=start)
        headwater.execute("DROP QUERY two; DROP QUERY other")
        assert len(headwater.catalog.units()) == 2
        headwater.execute("DROP QUERY three")
        assert headwater.catalog.units() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_random_queries_that_overlap_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed, size=50, query=random_query)


@pytest.mark.parametrize(
    "texts",
    [
        [
            "SELECT item, MIN(note) AS n FROM Bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
            "SELECT item, SUM(price) AS n FROM Bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
            "SELECT item, MAX(bidder) AS n FROM Bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
            "SELECT item, COUNT(*) AS n FROM Bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
        ],
        [
            "SELECT b.price FROM Bids [RANGE 4 SEC] b, Asks [RANGE 4 SEC] a WHERE b.item = a.item",
            "SELECT b.note FROM Bids [RANGE 3 SEC] b, Asks [RANGE 4 SEC] a WHERE b.item = a.item AND b.price > 1",
            "SELECT a.note FROM Bids [RANGE 4 SEC] b, Asks [RANGE 2 SEC] a WHERE b.item = a.item AND b.item = 1",
            "SELECT b.item FROM Bids [RANGE 1 SEC] b, Asks [RANGE 1 SEC] a WHERE b.item = a.item AND b.item < 2",
        ],
    ],
    ids=["groups", "joins"],
)
@pytest.mark.parametrize("gone", range(4))
def test_another_process_goes_on_where_a_query_has_left(
    spark: Any, tmp_path: Path, texts: list[str], gone: int
) -> None:
    """The operator narrows when a query leaves and is relaxed again when an equal one comes, in another
    process: whoever stays, and the one that comes, has the rows that it would have alone."""
    queries = {f"q{n}": parse_query(text, SOURCES) for n, text in enumerate(texts)}
    streams, tables = sample(7), as_csv_keeps(TABLES)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", tables)
        for name, query in queries.items():
            submit(headwater, name, query)
        assert len(headwater.catalog.units()) == 1
        for name, rows in streams.items():
            headwater.push(name, rows[:20], timestamp_unit="us")
        settle(headwater)
        headwater.execute(f"DROP QUERY q{gone}")
        for name, rows in streams.items():
            headwater.push(name, rows[20:30], timestamp_unit="us")
        settle(headwater)
    with opened(tmp_path / "state", spark) as headwater:
        submit(headwater, "again", queries[f"q{gone}"])
        for name, rows in streams.items():
            headwater.push(name, rows[30:], timestamp_unit="us")
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name in sorted(set(queries) - {f"q{gone}"}):
            assert told(headwater, name, queries[name]) == expected(queries[name], streams, tables)
        query, row = queries[f"q{gone}"], headwater.query("again").row
        keep = {"Bids": 3_600_000_000, "Asks": 3_600_000_000}
        due = expected(query, streams, tables, start=row.start_at, keep=keep)
        assert told(headwater, "again", query) == due


@pytest.mark.parametrize(
    ("keep", "text", "other", "times", "start"),
    [
        # The instant before the start has a window that reaches further back than the history.
        pytest.param(
            10,
            "SELECT SUM(v) AS n FROM s [RANGE 10 SEC]",
            "SELECT SUM(v) AS n, MAX(v) AS m FROM s [RANGE 10 SEC]",
            (88, 95, 101),
            100,
            id="previous instant",
        ),
        # A tuple older than the history is first seen after the start, as the slide is longer.
        pytest.param(
            1,
            "SELECT v FROM s [RANGE 10 SEC SLIDE 10 SEC]",
            "SELECT v, v + 1 AS w FROM s [RANGE 10 SEC SLIDE 10 SEC]",
            (12, 25),
            15,
            id="long slide",
        ),
        # Instants begin with the first tuple of the history: an empty window has a row only then.
        pytest.param(
            2,
            "SELECT COUNT(*) AS n FROM s [RANGE 1 SEC SLIDE 1 SEC]",
            "SELECT COUNT(*) AS n, MAX(v) AS m FROM s [RANGE 1 SEC SLIDE 1 SEC]",
            (1, 20),
            15,
            id="first instant",
        ),
    ],
)
def test_a_shorter_history_than_others_have(
    spark: Any, tmp_path: Path, keep: int, text: str, other: str, times: tuple[int, ...], start: int
) -> None:
    """A query that begins later may look back on less than those that run already."""
    second = 1_000_000
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(
            f"CREATE STREAM s (v INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {keep} SEC FROM CLIENT"
        )
        headwater.execute(f"CREATE QUERY first STARTING AT EARLIEST AS {other}")
        at = f"1970-01-01T00:{start // 60:02}:{start % 60:02}Z"
        headwater.execute(f"CREATE QUERY later STARTING AT TIMESTAMP '{at}' AS {text}")
        rows = [(1, time * second) for time in times]
        headwater.push("s", rows, timestamp_unit="us")
        headwater.execute("END STREAM s")
        settle(headwater)
        query = parse_query(text, headwater.definitions.namespace)
        history = {"s": keep * second}
        due = expected(query, {"s": rows}, {}, start=start * second, keep=history)
        assert told(headwater, "later", query) == due
