"""Overlapping queries that come and go while data flows: each has the rows it would have alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import as_csv_keeps, declare, expected, opened, pieces, settle, submit, told
from test_engine import sample

from headwater.algebra.nodes import Query
from headwater.runtime import housekeeping
from overlapping import random_group, random_join, random_query

pytestmark = pytest.mark.spark

TABLES = {"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]}


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "MERGED_AT_LEAST", 2)
    monkeypatch.setattr(housekeeping, "MERGED_GROUP_ROWS", 4)


def check(
    spark: Any, folder: Path, seed: int, size: int, query: Callable[[random.Random], Query]
) -> int:
    """Queries that come between pieces of the input, and some that leave; the state is opened anew in
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
                headwater.push(name, rows)
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


@pytest.mark.parametrize(("query", "size"), [(random_join, 12), (random_group, 8)])
def test_random_queries_that_overlap(
    spark: Any, tmp_path: Path, query: Callable[[random.Random], Query], size: int
) -> None:
    assert check(spark, tmp_path, seed=1, size=size, query=query) < size


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_random_queries_that_overlap_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed, size=50, query=random_query)
