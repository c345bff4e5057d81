"""Queries that are computed beside each other: who comes and goes changes nothing for the others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import as_csv_keeps, declare, expected, opened, settle, submit, told
from sample_queries import sample

from headwater.cql import CreateStream, parse_query, unparse
from headwater.reuse.families import ConstantsTable
from headwater.runtime.catalog import panes_log
from headwater.runtime.compile import SharedLifetimes, frames
from headwater.runtime.compile.checkpoints import CARRIED
from headwater.runtime.compile.windows import FOREVER
from headwater.runtime.settings import Settings
from overlapping import random_relation
from strategies import BIDS, SOURCES

pytestmark = pytest.mark.spark

TABLES = {"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]}
LATEST = "SELECT item, price FROM Bids [PARTITION BY item ROWS 2] WHERE bidder = {}"
OF_ALL = "SELECT MAX(r.n) AS m FROM (SELECT item, COUNT(*) AS n FROM Bids [ROWS 3] GROUP BY item) r"


def test_what_rows_windows_hold_stays_while_queries_leave(spark: Any, tmp_path: Path) -> None:
    """It is kept by window, not by query; when the last query with a window leaves, it is forgotten."""
    texts = {"one": LATEST.format(1), "two": LATEST.format(2), "all": OF_ALL.replace("MAX", "MIN")}
    texts["last"] = "SELECT item, price FROM Bids [ROWS 3] WHERE price > 0.5"
    queries = {name: parse_query(text, SOURCES) for name, text in texts.items()}
    streams = {"Bids": sorted(sample(5, 60)["Bids"], key=lambda row: row[-1])}
    limits = Settings(rows_window_checkpoint_rows=5)
    leaving = {2: "one", 4: "last"}
    for round_ in range(6):
        with opened(tmp_path / "state", spark, settings=limits) as headwater:
            if not round_:
                headwater.execute(unparse(CreateStream(BIDS, None)))
                for name, query in queries.items():
                    submit(headwater, name, query)
                assert headwater.query("one").row.unit_id == headwater.query("two").row.unit_id
                assert headwater.query("one").row.unit_id == headwater.query("last").row.unit_id
            if round_ in leaving:
                headwater.execute(f"DROP QUERY {leaving[round_]}")
            headwater.push("Bids", streams["Bids"][10 * round_ : 10 * round_ + 10], "us")
            settle(headwater)
            unit = headwater.query("two").row.unit_id
            kept = {n: at for n, at in headwater.catalog.cursors(unit).items() if CARRIED in n}
            windows = {(s.keys or {})["scan"] for s in headwater.catalog.segments(panes_log(unit))}
            assert {f"{CARRIED}{window}" for window in windows} == {
                name for name, at in kept.items() if at > -FOREVER
            }
            if round_ == 3:
                assert len(windows) == 2
    assert len(windows) == 1
    with opened(tmp_path / "state", spark, settings=limits) as headwater:
        headwater.execute("END STREAM Bids")
        settle(headwater)
        for name in ("two", "all"):
            assert told(headwater, name, queries[name]) == expected(queries[name], streams, TABLES)


def test_many_constants_are_given_as_data(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than can be written into a statement, with dates, times and texts among them."""
    monkeypatch.setattr(frames, "MAX_WRITTEN_ROWS", 3)
    texts = [
        f"SELECT item FROM Bids [ROWS 9] WHERE ts > TIMESTAMP '1970-01-01 00:00:0{n}' AND note = '{note}'"
        for n, note in enumerate(["a", "b", "it''s", "a%"])
    ]
    queries = {f"q{n}": parse_query(text, SOURCES) for n, text in enumerate(texts)}
    streams = {"Bids": sample(6)["Bids"]}
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", as_csv_keeps(TABLES))
        for name, query in queries.items():
            submit(headwater, name, query)
        headwater.push("Bids", streams["Bids"], timestamp_unit="us")
        headwater.execute("END STREAM Bids")
        settle(headwater)
        (unit,) = headwater.catalog.units()
        plan = headwater.engine.units.current(unit).plan
        assert isinstance(plan, SharedLifetimes)
        (statement,) = plan.statements
        (table,) = statement.constants.values()
        assert isinstance(table, ConstantsTable) and len(table.rows) == 4
        for name, query in queries.items():
            assert told(headwater, name, query) == expected(query, streams, TABLES), texts


def test_a_row_that_matches_at_two_instants_in_a_row_enters_once(
    spark: Any, tmp_path: Path
) -> None:
    """Between the two asks it has no match, but there is no instant."""
    query = parse_query(
        "SELECT item FROM Bids [RANGE 9 SEC] b WHERE b.item IN (SELECT a.item FROM Asks [NOW] a)",
        SOURCES,
    )
    bids = [(1, 0, 1.0, "a", 1_000_000), (2, 0, 1.0, "a", 4_000_000)]
    asks = [(1, True, None, "a", second * 1_000_000) for second in (2, 3, 5)]
    streams = {"Bids": bids, "Asks": asks}
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", as_csv_keeps(TABLES))
        submit(headwater, "q", query)
        for name, rows in streams.items():
            headwater.push(name, rows, timestamp_unit="us")
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        assert told(headwater, "q", query) == expected(query, streams, TABLES)
        assert [row[0] for row in told(headwater, "q", query)] == [2_000_000, 5_000_000]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_many_queries_of_few_forms(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    queries = {f"q{n}": random_relation(rng) for n in range(40)}
    streams, tables = sample(seed), as_csv_keeps(TABLES)
    with opened(tmp_path / "state", spark) as headwater:
        declare(headwater, tmp_path / "items", tables)
        for name, query in queries.items():
            submit(headwater, name, query)
        assert len(headwater.catalog.units()) < 16
        for part in range(4):
            for name, rows in streams.items():
                # In their order, by which ROWS windows break ties.
                few = rows[len(rows) * part // 4 : len(rows) * (part + 1) // 4]
                headwater.push(name, few, timestamp_unit="us")
            headwater.engine.tick()
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        settle(headwater)
        for name, query in queries.items():
            assert told(headwater, name, query) == expected(query, streams, tables), str(query)
