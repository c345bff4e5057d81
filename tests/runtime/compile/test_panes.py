"""Grouped windows by panes: many random queries in one state, each equal to the reference."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import as_csv_keeps, declare, expected, opened, pieces, settle, submit, told
from sample_queries import TABLES, sample

from headwater.algebra.nodes import Query
from headwater.cql import parse_query
from headwater.runtime.catalog import panes_log
from headwater.runtime.compile import Lifetimes
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.settings import Settings
from strategies import SOURCES

pytestmark = pytest.mark.spark

WINDOWS = (
    "[RANGE 3 SEC]",
    "[RANGE 4 SEC SLIDE 2 SEC]",
    "[RANGE 3 SEC SLIDE 2 SEC]",
    "[RANGE 1 SEC SLIDE 2 SEC]",
    "[NOW]",
    "[RANGE UNBOUNDED]",
    "[RANGE UNBOUNDED SLIDE 2 SEC]",
    "[ROWS 3]",
    "[PARTITION BY item ROWS 1]",
    "[PARTITION BY note, item ROWS 2]",
)
AGGREGATES = (
    "COUNT(*) AS a0, SUM(b.bidder) AS a1",
    "MAX(b.price) AS a0, AVG(b.bidder) AS a1, SUM(b.price) AS a2",
    "COUNT(DISTINCT b.note) AS a0, ROUND(STDDEV_POP(b.price), 6) AS a1",
    "SUM(b.item) FILTER (WHERE b.note = 'a') AS a0, MIN(b.note) AS a1",
    "SUM(CAST(b.bidder AS DECIMAL(9, 2))) AS a0, SUM(CAST(b.item AS BIGINT)) AS a1",
    "STDDEV(b.bidder) AS a0, VAR_POP(CAST(b.price AS DECIMAL(5, 2))) AS a1",
    "COUNT(DISTINCT b.price) AS a0, SUM(DISTINCT b.bidder) AS a1, AVG(DISTINCT b.item) AS a2",
    "SUM(DISTINCT b.price) AS a0, AVG(CAST(b.bidder AS DECIMAL(4, 1))) AS a1",
)
SOURCES_OF = (
    "Bids {} b",
    "Bids {} b WHERE b.note IS NOT NULL",
    "Bids {} b, Items i WHERE i.item = b.item",
    "Bids {} b, Asks {} a WHERE a.item = b.item",
)


def random_query(rng: random.Random) -> Query:
    source = rng.choice(SOURCES_OF)
    source = source.format(*(rng.choice(WINDOWS) for _ in range(source.count("{}"))))
    told_of = rng.choice(AGGREGATES)
    text = rng.choice(
        [
            f"SELECT b.item, b.note FROM {source}",
            f"SELECT DISTINCT b.note FROM {source}",
            f"SELECT {told_of} FROM {source}{rng.choice(['', ' HAVING COUNT(*) > 2'])}",
            f"SELECT b.item, {told_of} FROM {source} GROUP BY b.item",
            f"SELECT {told_of} FROM {source} GROUP BY b.item HAVING COUNT(*) > 1",
        ]
    )
    output = rng.choice(["ISTREAM", "DSTREAM", "RSTREAM"])
    return parse_query(f"{output}({text})", SOURCES)


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 2)
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 4)


def check(spark: Any, folder: Path, seed: int, size: int) -> None:
    """All queries over the same tuples, compacted and dropped as soon as it can be, the state closed
    and opened again in the middle."""
    rng = random.Random(seed)
    queries = [random_query(rng) for _ in range(size)]
    streams, tables = sample(seed), as_csv_keeps(TABLES)
    limits = Settings(pane_compaction_threshold=2, rows_window_checkpoint_rows=5)
    cuts = pieces(rng, streams)
    with opened(folder / "state", spark, settings=limits) as headwater:
        declare(headwater, folder / "items", tables)
        for n, query in enumerate(queries):
            submit(headwater, f"q{n}", query)
        for name, rows in cuts[: len(cuts) // 2]:
            headwater.push(name, rows, timestamp_unit="us")
            headwater.engine.tick()
            headwater.engine.tidy()
    with opened(folder / "state", spark, settings=limits) as headwater:
        headwater.engine.tidy()
        for name, rows in cuts[len(cuts) // 2 :]:
            headwater.push(name, rows, timestamp_unit="us")
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for unit in headwater.catalog.units():
            assert not isinstance(headwater.engine.units.current(unit).plan, Lifetimes)
            assert len(headwater.catalog.segments(panes_log(unit.id))) <= 2
        for n, query in enumerate(queries):
            assert told(headwater, f"q{n}", query) == expected(query, streams, tables), str(query)


def test_random_groups(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, seed=1, size=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_random_groups_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed, size=60)
