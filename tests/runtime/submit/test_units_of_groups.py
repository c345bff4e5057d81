"""Which grouped queries share a unit, without Spark: totals and groups over tables that come together, and none
whose groups would multiply beyond the rows that were measured."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater.runtime.api import Headwater, open_state

STREAMS = """
CREATE STREAM views (visitor INT, page INT, seconds INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE TABLE pages (page INT, title STRING) FROM files(path => '{folder}/pages.csv', format => 'csv');
"""
START = 1_700_000_000_000_000


def declare(headwater: Headwater, folder: Path) -> None:
    (folder / "pages.csv").write_text("page,title\n1,one\n")
    headwater.execute(STREAMS.format(folder=folder))


def count_units(headwater: Headwater, *texts: str) -> int:
    for n, text in enumerate(texts):
        headwater.execute(f"CREATE QUERY q{n} AS {text}")
    return len({headwater.query(f"q{n}").row.unit_id for n in range(len(texts))})


@pytest.mark.parametrize(
    ("one", "other", "units"),
    [
        (
            "SELECT page, COUNT(DISTINCT visitor) AS n FROM views [RANGE 9 SEC SLIDE 3 SEC] GROUP BY page",
            "SELECT page, STDDEV(seconds) AS s FROM views [RANGE 6 SEC SLIDE 3 SEC] WHERE page > 3 GROUP BY page",
            1,
        ),
        (
            "SELECT page, COUNT(*) AS n FROM views GROUP BY page",
            "SELECT visitor, SUM(seconds) AS s FROM views [RANGE UNBOUNDED] WHERE page = 3 GROUP BY visitor",
            1,
        ),
        (
            "SELECT page, COUNT(*) AS n FROM views GROUP BY page",
            "SELECT page, COUNT(*) AS n FROM views [RANGE UNBOUNDED SLIDE 5 SEC] GROUP BY page",
            2,
        ),
        (
            "SELECT page, COUNT(*) AS n FROM views GROUP BY page",
            "SELECT page, COUNT(*) AS n FROM views [RANGE 1 HOUR] GROUP BY page",
            2,
        ),
        (
            "SELECT p.title, COUNT(*) AS n FROM views [RANGE 1 MIN] v JOIN pages p ON v.page = p.page GROUP BY p.title",
            "SELECT MAX(v.seconds) AS m FROM pages p, views [RANGE 1 MIN] v WHERE v.page = p.page AND p.title = 'one'",
            1,
        ),
        (
            "SELECT p.title, COUNT(*) AS n FROM views [RANGE 1 MIN] v JOIN pages p ON v.page = p.page GROUP BY p.title",
            "SELECT p.title, COUNT(*) AS n FROM views [RANGE 2 MIN] v JOIN pages p ON v.page = p.page GROUP BY p.title",
            2,
        ),
    ],
)
def test_who_shares_before_data_flows(tmp_path: Path, one: str, other: str, units: int) -> None:
    with open_state(tmp_path / "state") as headwater:
        declare(headwater, tmp_path)
        assert count_units(headwater, one, other) == units


@pytest.mark.parametrize(("values", "units"), [(1_000, 2), (3, 1)])
def test_keys_that_multiply_beyond_the_measured_rows_are_kept_apart(
    tmp_path: Path, values: int, units: int
) -> None:
    chance = random.Random(values)
    rows = [
        (chance.randrange(values), chance.randrange(values), 1, START + n * 1_000)
        for n in range(20_000)
    ]
    window = "views [RANGE 30 SEC SLIDE 10 SEC]"
    with open_state(tmp_path / "state") as headwater:
        declare(headwater, tmp_path)
        headwater.push("views", rows, timestamp_unit="us")
        by_visitor = f"SELECT visitor, COUNT(*) AS n FROM {window} GROUP BY visitor"
        by_page = f"SELECT page, COUNT(*) AS n FROM {window} GROUP BY page"
        assert count_units(headwater, by_visitor, by_page) == units
        both = f"SELECT visitor, page, COUNT(*) AS n FROM {window} GROUP BY visitor, page"
        headwater.execute(f"CREATE QUERY both AS {both}")
        # Panes by both are no finer than it needs itself: it widens a unit that there is.
        shared = {headwater.query(name).row.unit_id for name in ("q0", "q1")}
        assert headwater.query("both").row.unit_id in shared
