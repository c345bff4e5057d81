"""Joins that share a unit and are computed in lanes: each has the rows that it would have alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import declare, expected, opened, settle, submit, told
from sample_queries import sample

from headwater.algebra.nodes import Query
from headwater.cql import parse_query
from headwater.runtime.api import Headwater
from headwater.runtime.compile import SharedJoin, frames, shared_join
from headwater.runtime.metrics.cost_model import LANES
from strategies import SOURCES

pytestmark = pytest.mark.spark

TABLES: dict[str, list[Any]] = {"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]}
KEEP = {"Bids": 3_600_000_000, "Asks": 3_600_000_000}

WINDOWS = ["[NOW]", "[RANGE 1 SEC]", "[RANGE 9 SEC]", "[RANGE 60 SEC]", "[RANGE 4 SEC SLIDE 2 SEC]"]
CONDITIONS = [
    "b.bidder = 1",
    "b.price > 2",
    "b.note = 'a'",
    "a.note = 'b'",
    "a.open",
    "a.item = 1",
    "b.bidder IS NULL",
    "b.ts <= a.at",
]


def join(rng: random.Random) -> Query:
    one, other = rng.choice(WINDOWS), rng.choice(WINDOWS)
    chosen = ["b.item = a.item", *rng.sample(CONDITIONS, rng.randint(0, 2))]
    items = ", ".join(rng.sample(["b.item", "b.price", "b.note", "a.note AS other"], 2))
    text = f"SELECT {items} FROM Bids {one} b, Asks {other} a WHERE {' AND '.join(chosen)}"
    return parse_query(text, SOURCES)


def lanes(headwater: Headwater) -> int:
    """The most lanes of a unit."""
    plans = [headwater.engine.units.current(row).plan for row in headwater.catalog.units()]
    return max((len(p.lanes) for p in plans if isinstance(p, SharedJoin)), default=0)


def joined(headwater: Headwater) -> set[str]:
    """What the last steps of units have joined: lanes, or all at once."""
    units = [headwater.engine.units.current(row) for row in headwater.catalog.units()]
    reports = [unit.last_report for unit in units]
    return {term.prefix for report in reports if report is not None for term in report.terms}


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("at_once", [True, False])
def test_queries_come_and_leave(
    spark: Any, tmp_path: Path, steps: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the input in one micro-batch, and in several between which queries come and leave; with all
    lanes at once and few constants in the SQL, and with neither."""
    if not at_once:
        monkeypatch.setattr(frames, "PAIRS_PER_LANE", -1)
        monkeypatch.setattr(shared_join, "INLINE_CONSTANTS", 0)
    rng = random.Random(steps)
    queries = {f"q{n}": join(rng) for n in range(14)}
    streams = sample(5)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", TABLES)
        waiting, gone, most = list(queries), set[str](), 0
        prefixes = set[str]()
        for step in range(steps):
            for name in waiting[: 10 if step == 0 else 1]:
                submit(headwater, name, queries[name])
                waiting.remove(name)
            if step > 1:
                leaves = rng.choice(sorted(set(queries) - set(waiting) - gone))
                headwater.execute(f"DROP QUERY {leaves}")
                gone.add(leaves)
            most = max(most, lanes(headwater))
            for name, rows in streams.items():
                first, last = len(rows) * step // steps, len(rows) * (step + 1) // steps
                headwater.push(name, rows[first:last], timestamp_unit="us")
            settle(headwater)
            prefixes |= joined(headwater)
        assert most > 1
        assert (frames.UNITED in prefixes) == at_once and ("lane 1: " in prefixes) != at_once
        for name in waiting:  # these have missed everything
            submit(headwater, name, queries[name])
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name in sorted(set(queries) - gone):
            start = headwater.query(name).row.start_at
            due = expected(queries[name], streams, TABLES, start=start, keep=KEEP)
            assert told(headwater, name, queries[name]) == due, str(queries[name])


PART = "SELECT b.price FROM Bids [RANGE 60 SEC] b, Asks [RANGE 60 SEC] a WHERE b.item = a.item"
WHOLE = """SELECT b.price, a.cost, i.label FROM Bids [RANGE {0} SEC] b, Asks [RANGE {0} SEC] a, Items i
  WHERE b.item = a.item AND b.item = i.item{1}"""


def test_lanes_of_a_join_that_reads_another(spark: Any, tmp_path: Path) -> None:
    texts = {
        "part": PART,
        "short": WHOLE.format(1, ""),
        "long": WHOLE.format(60, " AND b.bidder = 1"),
        "other": WHOLE.format(60, " AND i.label = 'one'"),
    }
    queries = {name: parse_query(text, SOURCES) for name, text in texts.items()}
    streams = sample(3)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", TABLES)
        for name, query in queries.items():
            submit(headwater, name, query)
        assert lanes(headwater) > 1
        (shown,) = {headwater.query(name).placement().lanes for name in ("long", "other")}
        assert shown is not None and shown[0] == (
            f"computed in {lanes(headwater)} lanes, in small steps all at once:"
        )
        assert shown[0] in headwater.query("long").explain()
        for part in (slice(0, 20), slice(20, None)):
            for name, rows in streams.items():
                headwater.push(name, rows[part], timestamp_unit="us")
            settle(headwater)
        counted = headwater.catalog.statistic(headwater.query("long").row.unit_id, LANES)
        assert counted is not None and counted.value == lanes(headwater)
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name, query in queries.items():
            start = headwater.query(name).row.start_at
            due = expected(query, streams, TABLES, start=start, keep=KEEP)
            assert told(headwater, name, query) == due, name
