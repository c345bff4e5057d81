"""Grouped queries that share their panes, against the same queries each on its own: distinct counts and
standard deviations over sliding windows, and running totals.

Both sides take the same rows in the same rounds, one after the other in one session, each warmed by the first
round; the order of the sides can be swapped. Every row of both sides is compared with the other, and those of
some queries with the reference evaluator; refuses to report if one differs. The last line is the ratio of the
seconds of the rounds.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

from _common import (
    START_SECOND,
    Differ,
    check_units,
    compare_with_reference,
    session,
    settled,
    state,
)
from headwater.runtime.api import Headwater

STREAM = "CREATE STREAM visits (page INT, visitor INT, seconds INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT"
PAGES, VISITORS = 20, 500
SECONDS = 20
"""How much event time a round brings."""

Row = tuple[int, int, int, int]
Found = dict[str, list[tuple[object, ...]]]


def distinct_queries(number: int) -> dict[str, str]:
    """How many visitors a page has, and how long they stay, in windows and above limits of their own."""
    chance = random.Random(1)
    return {
        f"d{n}": (
            "SELECT page, COUNT(DISTINCT visitor) AS visitors, STDDEV(seconds) AS spread "
            f"FROM visits [RANGE {chance.choice([20, 40, 60])} SECONDS SLIDE 10 SECONDS] "
            f"WHERE page > {n % PAGES} GROUP BY page"
        )
        for n in range(number)
    }


def total_queries(number: int) -> dict[str, str]:
    """Totals of all that there has been, by page or by all, of a visitor or of all of them."""
    kinds = (
        "SELECT page, COUNT(*) AS n, SUM(seconds) AS total FROM visits WHERE page <> {} GROUP BY page",
        "SELECT COUNT(DISTINCT visitor) AS visitors FROM visits WHERE page = {}",
        "SELECT page, MAX(seconds) AS longest FROM visits WHERE page = {} GROUP BY page",
    )
    return {f"t{n}": kinds[n % len(kinds)].format(n % PAGES) for n in range(number)}


def arrivals(rounds: int, rows: int) -> list[list[Row]]:
    """The rows of each round, in order of time."""
    chance = random.Random(2)
    step = SECONDS * 1_000_000 // rows
    return [
        [
            (
                chance.randrange(PAGES),
                chance.randrange(VISITORS),
                chance.randrange(600),
                (START_SECOND + number * SECONDS) * 1_000_000 + at * step,
            )
            for at in range(rows)
        ]
        for number in range(rounds)
    ]


def rows_of(opened: Headwater, name: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in opened.query(name).results()), key=repr)


def run(
    folder: Path, mode: str, queries: Mapping[str, str], data: list[list[Row]]
) -> tuple[float, int, Found]:
    """The seconds of all rounds but the first, the number of units, and the rows of each query."""
    spark = session()
    with state(spark, folder / mode) as opened:
        opened.execute(f"SET sharing = '{mode}'; {STREAM}")
        opened.execute(";".join(f"CREATE QUERY {name} AS {text}" for name, text in queries.items()))
        units = len(opened.catalog.units())
        seconds = 0.0
        for number, rows in enumerate(data):
            opened.push("visits", rows, timestamp_unit="us")
            taken = settled(opened)
            seconds += taken if number else 0.0
        opened.execute("END STREAM visits")
        settled(opened)
        check_units(opened)
        pushed = {"visits": [row for rows in data for row in rows]}
        some = dict(random.Random(3).sample(sorted(queries.items()), min(3, len(queries))))
        compare_with_reference(opened, some, pushed)
        return seconds, units, {name: rows_of(opened, name) for name in queries}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=12, help="of each kind")
    options.add_argument("--rows", type=int, default=400, help="in a round")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--swap", action="store_true", help="the side that shares runs second")
    chosen = options.parse_args()
    data = arrivals(chosen.rounds, chosen.rows)
    sums = {"all": 0.0, "none": 0.0}
    kinds = {
        "distinct counts": distinct_queries(chosen.queries),
        "running totals": total_queries(chosen.queries),
    }
    modes = ("none", "all") if chosen.swap else ("all", "none")
    try:
        for kind, queries in kinds.items():
            found: dict[str, Found] = {}
            for mode in modes:
                with tempfile.TemporaryDirectory() as folder:
                    seconds, units, found[mode] = run(Path(folder), mode, queries, data)
                sums[mode] += seconds
                print(f"{kind}, sharing {mode}: {units} units, {seconds:.1f} s", flush=True)
            if found["all"] != found["none"]:
                raise Differ(f"{kind}: the two sides have different rows")
            count = sum(map(len, found["all"].values()))
            print(f"{kind}: the {count} rows of {len(queries)} queries are equal")
    except Differ as differ:
        print(f"not reported: {differ}")
        return 1
    print(f"ratio: shared, the rounds take {sums['none'] / sums['all']:.1f} times less")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
