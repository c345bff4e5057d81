"""Queries whose panes cannot be made again, as windows have no end or read a table: they share as well.

They are submitted together, and leave one by one while tuples come out of order and what the stream keeps
is gone; each has the rows that it would have alone, and nothing is kept for those that have left.
"""

from __future__ import annotations

import csv
import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import Rows, as_csv_keeps, expected, opened, settle, submit, told
from sample_queries import sample

from headwater.algebra.nodes import Query
from headwater.cql import Connector, CreateStream, CreateTable, parse_query, unparse
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import panes_log
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.settings import Settings
from overlapping import grouped_table, running_total
from strategies import BIDS, ITEMS, SOURCES

SECOND = 1_000_000
LATENESS = 2 * SECOND
KEEP = 3 * SECOND
EAGER = Settings(pane_compaction_threshold=2)
TABLES = as_csv_keeps({"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]})

Template = Callable[[random.Random], str]


def totals(window: str) -> Template:
    return lambda rng: running_total(rng, window)


def with_table(window: str) -> Template:
    return lambda rng: grouped_table(rng, window)


TEMPLATES = {
    "flowing": totals("[RANGE UNBOUNDED]"),
    "sliding": totals("[RANGE UNBOUNDED SLIDE 2 SEC]"),
    "table": with_table("[RANGE 4 SEC SLIDE 2 SEC]"),
    "flowing table": with_table("[RANGE 3 SEC]"),
    "all of a table": with_table("[RANGE UNBOUNDED]"),
}


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 2)
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 4)


def declare(headwater: Headwater, folder: Path) -> None:
    folder.mkdir()
    with (folder / "items.csv").open("w", newline="") as file:
        csv.writer(file).writerows([ITEMS.schema.names, *TABLES["Items"]])
    source = Connector("files", (("path", str(folder)), ("format", "csv")))
    stream = CreateStream(replace(BIDS, lateness=LATENESS, keep=KEEP), None)
    for statement in (stream, CreateTable(ITEMS, source)):
        headwater.execute(unparse(statement))


def out_of_order(rng: random.Random, rows: list[Any]) -> list[Any]:
    """The tuples as they arrive: none so late that it is dropped."""
    arrival = {n: row[-1] + rng.randrange(LATENESS) for n, row in enumerate(rows)}
    return [rows[n] for n in sorted(arrival, key=arrival.__getitem__)]


def parts(rng: random.Random, rows: list[Any], number: int) -> list[list[Any]]:
    cuts = [0, *sorted(rng.randrange(len(rows)) for _ in range(number - 1)), len(rows)]
    return [rows[a:b] for a, b in itertools.pairwise(cuts)]


def pane_rows(headwater: Headwater) -> int:
    units = headwater.catalog.units()
    return sum(s.rows for u in units for s in headwater.catalog.segments(panes_log(u.id)))


def check_rows(headwater: Headwater, queries: Mapping[str, Query], streams: Rows) -> None:
    for name, query in queries.items():
        start = headwater.query(name).row.start_at
        due = expected(query, streams, TABLES, start=start, keep={"Bids": KEEP})
        assert told(headwater, name, query) == due, str(query)


def check(spark: Any, folder: Path, seed: int, size: int, template: Template, steps: int) -> int:
    """How many units there were."""
    rng = random.Random(seed)
    queries = {f"q{n}": parse_query(template(rng), SOURCES) for n in range(size)}
    stays = set(rng.sample(sorted(queries), max(2, size // 3)))
    leaving = sorted(set(queries) - stays)
    rows = out_of_order(rng, sample(seed)["Bids"])
    with opened(folder / "state", spark, settings=EAGER) as headwater:
        declare(headwater, folder / "items")
        for name, query in queries.items():
            submit(headwater, name, query)
        units = len(headwater.catalog.units())
    for part in parts(rng, rows, steps):
        # Opened again each time: nothing may depend on what a process remembers.
        with opened(folder / "state", spark, settings=EAGER) as headwater:
            headwater.push("Bids", part, timestamp_unit="us")
            headwater.engine.tick()
            headwater.engine.tidy()
            if leaving:
                headwater.execute(f"DROP QUERY {leaving.pop()}")
    with opened(folder / "state", spark, settings=EAGER) as headwater:
        while leaving:
            headwater.execute(f"DROP QUERY {leaving.pop()}")
        headwater.execute("END STREAM Bids")
        settle(headwater)
        check_rows(headwater, {name: queries[name] for name in stays}, {"Bids": rows, "Asks": []})
    return units


@pytest.mark.spark
@pytest.mark.parametrize("kind", TEMPLATES)
def test_random_queries_whose_panes_cannot_be_made_again(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    assert check(spark, tmp_path, 1, 6, TEMPLATES[kind], steps=3) < 6, "some share"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("kind", TEMPLATES)
def test_random_queries_whose_panes_cannot_be_made_again_in_the_long_run(
    spark: Any, tmp_path: Path, kind: str, seed: int
) -> None:
    steps = random.Random(seed).choice([1, 2, 5, 9])
    assert check(spark, tmp_path, seed, 20, TEMPLATES[kind], steps) < 20, "some share"


TOTAL = "SELECT b.item, COUNT(*) AS n FROM Bids [RANGE UNBOUNDED] b GROUP BY b.item"
BY_NOTE = (
    "SELECT b.item, b.note, SUM(b.bidder) AS s, COUNT(*) AS n FROM Bids [RANGE UNBOUNDED] b "
    "WHERE b.price > 0.5 GROUP BY b.item, b.note"
)
LARGEST = "SELECT MAX(b.bidder) AS most FROM Bids [RANGE UNBOUNDED] b"


@pytest.mark.spark
def test_a_total_is_one_row_for_each_group(spark: Any, tmp_path: Path) -> None:
    """However long it runs; with the finer groups of a query that has left, what was kept for it goes."""
    queries = {"total": parse_query(TOTAL, SOURCES), "notes": parse_query(BY_NOTE, SOURCES)}
    rows = sample(5, 400)["Bids"]
    groups = {row[0] for row in rows}
    finer = {(row[0], row[3], row[2] > 0.5) for row in rows}
    with opened(tmp_path / "state", spark, settings=EAGER) as headwater:
        declare(headwater, tmp_path / "items")
        for name, query in queries.items():
            submit(headwater, name, query)
        assert len(headwater.catalog.units()) == 1
        # What is after the watermark is not yet in a total.
        last = (0, None, 1.0, None, rows[-1][-1] + 2 * LATENESS)
        for part in ([*rows[:200]], [*rows[200:], last]):
            headwater.push("Bids", part, timestamp_unit="us")
            settle(headwater)
            headwater.engine.tidy()
        assert len(groups) < pane_rows(headwater) <= len(finer) + 1
        (log,) = (s.log for s in headwater.catalog.segments("stream:bids")[:1])
        assert min(s.first_seq for s in headwater.catalog.segments(log)) > 1
        headwater.execute("DROP QUERY notes")
        settle(headwater)
        headwater.push("Bids", [(3, 1, 1.0, "a", last[-1] + 2 * LATENESS)], timestamp_unit="us")
        settle(headwater)
        headwater.engine.tidy()
        assert pane_rows(headwater) <= len(groups) + 2
        headwater.execute("END STREAM Bids")
        settle(headwater)
        arrived = [*rows, last, (3, 1, 1.0, "a", last[-1] + 2 * LATENESS)]
        check_rows(headwater, {"total": queries["total"]}, {"Bids": arrived, "Asks": []})


@pytest.mark.spark
def test_who_comes_when_panes_are_there_joins_only_if_they_serve_it(
    spark: Any, tmp_path: Path
) -> None:
    queries = {
        name: parse_query(text, SOURCES)
        for name, text in {
            "notes": BY_NOTE.replace(" WHERE b.price > 0.5", ""),
            "total": TOTAL,
            "contained": "SELECT b.note, COUNT(*) AS n FROM Bids [RANGE UNBOUNDED] b GROUP BY b.note",
            "largest": LARGEST,
        }.items()
    }
    rows = sample(6)["Bids"]
    with opened(tmp_path / "state", spark, settings=EAGER) as headwater:
        declare(headwater, tmp_path / "items")
        headwater.push("Bids", rows[:10], timestamp_unit="us")
        settle(headwater)
        for name in ("notes", "total"):
            submit(headwater, name, queries[name])
        settle(headwater)
        for name in ("contained", "largest"):
            submit(headwater, name, queries[name])
        unit = {name: headwater.query(name).row.unit_id for name in queries}
        assert unit["notes"] == unit["total"] == unit["contained"] != unit["largest"]
        headwater.push("Bids", rows[10:], timestamp_unit="us")
        settle(headwater)
        submit(headwater, "later", queries["total"])
        assert headwater.query("later").row.unit_id not in unit.values()
        headwater.execute("END STREAM Bids")
        settle(headwater)
        check_rows(headwater, queries, {"Bids": rows, "Asks": []})
        check_rows(headwater, {"later": queries["total"]}, {"Bids": rows, "Asks": []})
