"""A query that costs more shared than alone gets a unit of its own while tuples flow: nobody loses or doubles a
row, and a reader of its results goes on where it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import Stop, expected, opened, settle, stop_at, told
from histories import CLIENT, from_files
from join_histories import JoinHistory

from headwater.cql import CreateQuery, parse
from headwater.runtime.api import Headwater
from headwater.runtime.metrics.sharing import CostlyQuery, SharingSummary, store_sharing
from headwater.runtime.results import reader
from headwater.runtime.submit.revisit import Revisit

pytestmark = pytest.mark.spark

SECOND = 1_000_000
STREAMS = "".join(
    f"CREATE STREAM {name} (item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
    for name in ("bids", "asks")
)
QUERIES = """
CREATE QUERY items AS SELECT item, SUM(v) AS s FROM bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item;
CREATE QUERY amounts AS SELECT v, COUNT(*) AS n FROM bids [RANGE 6 SEC SLIDE 2 SEC] GROUP BY v;
CREATE QUERY short AS SELECT b.v FROM bids [RANGE 1 SEC] b, asks [RANGE 1 SEC] a
  WHERE b.item = a.item AND b.v > 1;
CREATE QUERY long AS SELECT b.v, a.v AS w FROM bids [RANGE 5 SEC] b, asks [RANGE 5 SEC] a
  WHERE b.item = a.item;
"""
MOVED = {"amounts": "items", "long": "short"}
"""Queries that are moved, each with one that shares its unit."""


def say_costly(headwater: Headwater, *names: str) -> None:
    """As if it had been measured."""
    units = {name: headwater.query(name).row.unit_id for name in names}
    costly = tuple(CostlyQuery(name, unit, 0.5, 0.1) for name, unit in units.items())
    store_sharing(headwater.catalog, SharingSummary(costly=costly))


def test_queries_that_pay_for_sharing(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(3)
    pushed: dict[str, list[Any]] = {"bids": [], "asks": []}
    clock = 0
    with opened(tmp_path, spark) as headwater:
        headwater.execute(STREAMS + QUERIES)
        catalog, engine = headwater.catalog, headwater.engine

        def push() -> None:
            nonlocal clock
            for name, rows in pushed.items():
                clock += 1
                more = [(rng.randrange(3), rng.randrange(4), clock * SECOND) for _ in range(4)]
                headwater.push(name, more, timestamp_unit="us")
                rows += more

        push()
        settle(headwater)
        push()
        engine.tick()
        units = {name: headwater.query(name).row.unit_id for name in MOVED}
        for name, other in MOVED.items():
            assert units[name] == headwater.query(other).row.unit_id
        before = {name: reader.read(catalog, headwater.query(name).row) for name in MOVED}
        say_costly(headwater, *MOVED)
        revisit = Revisit(catalog, headwater.definitions, engine.move_queries)
        assert revisit.look() == []
        engine.at_point = stop_at("unit: moved", 2)
        with pytest.raises(Stop):  # as if the process ended after the second move
            revisit.look()
    with opened(tmp_path, spark) as headwater:
        catalog = headwater.catalog
        for name, other in MOVED.items():
            moved = headwater.query(name)
            assert headwater.query(other).row.unit_id == units[name] != moved.row.unit_id
            assert "moved to a unit of its own, as that costs less" in moved.explain()
            (event,) = catalog.events(kind="query moved", subject=name)
            assert event.detail["from"] == units[name] and "0.5 cores" in event.detail["reason"]
        push()
        settle(headwater)
        headwater.execute("".join(f"END STREAM {name};" for name in pushed))
        settle(headwater)
        for statement in parse(STREAMS + QUERIES):
            if isinstance(statement, CreateQuery):
                wanted = expected(statement.query, pushed, {})
                assert wanted and told(headwater, statement.name, statement.query) == wanted
        for name, (first, position) in before.items():
            row = headwater.query(name).row
            after, _ = reader.read(catalog, row, position)
            assert after.num_rows
            assert first.num_rows + after.num_rows == reader.read(catalog, row)[0].num_rows


# ---- at any moment


@dataclass
class MovingHistory(JoinHistory):
    """A history in which queries are moved to units of their own, whatever their units read."""

    moves: int = 0

    def _actions(self) -> list[tuple[int, Callable[[Headwater], None]]]:
        return [*super()._actions(), (6, self._move)]

    def _move(self, headwater: Headwater) -> None:
        live = [row for row in headwater.catalog.queries() if row.state == "running"]
        if not live:
            return
        query = self.rng.choice(live)
        subscribers = headwater.catalog.subscribers(query.unit_id)
        names = [row.name for row in subscribers if row.result_key == query.result_key]
        if len(names) < len(subscribers) and not any(name.startswith("$") for name in names):
            self.said.append(f"move {names}")
            why = {"reason": "forced", "saves": 0.0}
            self.moves += headwater.engine.move_queries(query.unit_id, names, why)


def check_moves(spark: Any, folder: Path, seed: int, actions: int) -> int:
    rng = random.Random(seed)
    inlet = from_files(folder) if rng.random() < 0.5 else CLIENT
    lateness, keep = rng.choice([0, 2, 3600]), rng.choice([3600, 8, 20]) * SECOND
    history = MovingHistory(rng, spark, folder, actions, inlet, lateness, False, keep)
    history.run()
    return history.moves


def test_random_moves(spark: Any, tmp_path: Path) -> None:
    assert check_moves(spark, tmp_path, 1, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3300, 3340))
def test_random_moves_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check_moves(spark, tmp_path, seed, 80)
