"""Totals of groups that a unit keeps: results computed from them are those of all panes, while tuples come out of
order, queries join and leave, and the state is closed and opened again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, opened, settle, submit, told
from sample_queries import sample
from test_running_totals import LATENESS, TABLES, declare, out_of_order, parts

from headwater.cql import parse_query
from headwater.runtime.catalog import panes_log
from headwater.runtime.engine.steps import kept_panes, panes
from headwater.runtime.engine.steps.kept_panes import KeptPanes, segments_to_merge
from headwater.runtime.settings import Settings
from overlapping import BID_BOUNDS, SIZES, SLIDING
from strategies import SOURCES

EAGER = Settings(pane_compaction_threshold=2)
EXACT = [
    "COUNT(*)",
    "COUNT(b.bidder)",
    "SUM(b.item)",
    "SUM(CAST(b.item AS BIGINT))",
    "AVG(b.bidder)",
    "SUM(b.item) FILTER (WHERE b.note = 'a')",
    "STDDEV(b.bidder)",
    "SUM(CAST(b.price AS DECIMAL(9, 2)))",
]
OTHERS = ["MAX(b.price)", "COUNT(DISTINCT b.note)"]


def random_text(rng: random.Random, windows: list[str]) -> str:
    calls = rng.sample(EXACT, 2) + ([rng.choice(OTHERS)] if rng.random() < 0.2 else [])
    keys = rng.choice(["b.item", "b.item", "b.item, b.note", ""])
    items = [f"{call} AS a{n}" for n, call in enumerate(calls)]
    items += [f"{key} AS k{n}" for n, key in enumerate(keys.split(", ")) if key]
    where = rng.choice(["", "", f" WHERE {rng.choice(BID_BOUNDS)}"]).format(a="b", n=1, m=3)
    group = f" GROUP BY {keys}{rng.choice(['', ' HAVING COUNT(*) > 1'])}" if keys else ""
    text = f"SELECT {', '.join(items)} FROM Bids {rng.choice(windows)} b{where}{group}"
    if rng.random() < 0.2 and keys:
        text = f"SELECT DISTINCT {keys} FROM Bids {rng.choice(windows)} b{where}"
    return f"{rng.choice(['ISTREAM', 'ISTREAM', 'DSTREAM', 'RSTREAM'])}({text})"


@pytest.fixture(autouse=True)
def totals_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panes, "MIN_ROWS_WITH_TOTALS", 1)
    monkeypatch.setattr(kept_panes, "SMALL_ROWS", 6)
    monkeypatch.setattr(kept_panes, "SIZE_RATIO", 2)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The totals from which results were computed."""
    names: list[str] = []
    compute: Callable[..., Any] = panes.pane_results

    def computed(spark: Any, plan: Any, frame: Any, due: Any, totals: Any) -> Any:
        names.extend(totals)
        return compute(spark, plan, frame, due, totals)

    monkeypatch.setattr(panes, "pane_results", computed)
    return names


def check(spark: Any, folder: Path, seed: int, size: int, windows: list[str], steps: int) -> None:
    rng = random.Random(seed)
    queries = {f"q{n}": parse_query(random_text(rng, windows), SOURCES) for n in range(size)}
    stays = set(rng.sample(sorted(queries), max(2, size // 2)))
    leaving, joining = sorted(set(queries) - stays), sorted(queries)[size // 2 :]
    rows = out_of_order(rng, sample(seed, 120)["Bids"])
    with opened(folder / "state", spark, settings=EAGER) as headwater:
        declare(headwater, folder / "items")
        for name in queries:
            if name not in joining:
                submit(headwater, name, queries[name])
    for number, part in enumerate(parts(rng, rows, steps)):
        with opened(folder / "state", spark, settings=EAGER) as headwater:
            headwater.push("Bids", part, timestamp_unit="us")
            settle(headwater)
            headwater.engine.tidy()
            if joining and number >= steps // 2:
                name = joining.pop()
                submit(headwater, name, queries[name])
            elif leaving and leaving[-1] not in joining and number > steps // 2:
                headwater.execute(f"DROP QUERY {leaving.pop()}")
    with opened(folder / "state", spark, settings=EAGER) as headwater:
        headwater.execute("END STREAM Bids")
        settle(headwater)
        keep = {"Bids": headwater.definitions.streams["bids"].stream.keep}
        streams = {"Bids": rows, "Asks": []}
        for name in sorted(stays - set(joining)):
            start = headwater.query(name).row.start_at
            due = expected(queries[name], streams, TABLES, start=start, keep=keep)
            assert told(headwater, name, queries[name]) == due, (seed, str(queries[name]))


WINDOWS = {
    "flowing": SIZES,
    "sliding": SLIDING,
    "unbounded": ["[RANGE UNBOUNDED]", "[RANGE UNBOUNDED SLIDE 2 SEC]"],
}


@pytest.mark.spark
@pytest.mark.parametrize("kind", WINDOWS)
def test_results_from_totals(spark: Any, tmp_path: Path, kind: str, used: list[str]) -> None:
    check(spark, tmp_path, 1, 5, WINDOWS[kind], steps=8)
    assert used, "totals were there, and served"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2, 20))
@pytest.mark.parametrize("kind", WINDOWS)
def test_results_from_totals_in_the_long_run(
    spark: Any, tmp_path: Path, kind: str, seed: int
) -> None:
    check(spark, tmp_path, seed, 10, WINDOWS[kind], steps=random.Random(seed).choice([3, 8, 14]))


@pytest.mark.spark
def test_totals_go_with_what_they_are_of(spark: Any, tmp_path: Path) -> None:
    """When panes are made again, or few are left, no totals are kept."""
    text = "SELECT b.item, COUNT(*) AS n FROM Bids [RANGE 2 SEC] b GROUP BY b.item"
    rows = sample(3, 60)["Bids"]
    with opened(tmp_path / "state", spark, settings=EAGER) as headwater:
        declare(headwater, tmp_path / "items")
        submit(headwater, "counts", parse_query(text, SOURCES))
        sums = text.replace("COUNT(*) AS n", "SUM(b.bidder) AS s")
        submit(headwater, "sums", parse_query(sums, SOURCES))
        for part in (rows[:20], rows[20:40]):
            headwater.push("Bids", part, timestamp_unit="us")
            settle(headwater)
            headwater.engine.tidy()
        (unit,) = headwater.catalog.units()

        def kept() -> KeptPanes:
            return KeptPanes.of(headwater.catalog.segments(panes_log(unit.id)))

        assert len(kept().totals) == 2
        headwater.execute("DROP QUERY sums")
        settle(headwater)
        assert not kept().totals
        headwater.push("Bids", rows[40:], timestamp_unit="us")
        settle(headwater)
        headwater.engine.tidy()
        late = (0, None, 1.0, None, rows[-1][-1] + 100 * LATENESS)
        headwater.push("Bids", [late], timestamp_unit="us")
        settle(headwater)
        headwater.push("Bids", [(*late[:4], late[4] + 100 * LATENESS)], timestamp_unit="us")
        settle(headwater)
        headwater.engine.tidy()
        assert len(kept().panes) == 1


def segment(rows: int) -> Any:
    class Rows:
        pass

    one = Rows()
    one.rows = rows  # type: ignore[attr-defined]
    return one


def test_only_sizes_of_which_there_are_many_are_merged() -> None:
    small, larger, largest = segment(2), segment(20), segment(500)
    assert segments_to_merge([largest, larger, small], 2) == []
    assert segments_to_merge([largest, small, small], 2) == [small, small]
    assert segments_to_merge([largest, larger, larger, small], 2) == [larger, larger, small]
