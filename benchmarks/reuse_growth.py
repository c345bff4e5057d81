"""What a row costs as covered queries grow from a hundred to ten thousand, and what adding one costs.

One query asks about all flights of the airline; all others ask for a part of the same rows, half of
them by the number of a flight, half by a range of numbers, no two ranges the same. Files arrive one
after the other; the first step, in which a plan is made for all the queries, and their end are told apart
from what rows cost. The second part
adds such a query to a thousand that run. It says after how many arrivals of new files the query has
all the results it should have, and how long the steps take before and after. A sample of the results
is compared with DuckDB's; refuses to report if they differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, cycle, islice
from math import isqrt
from pathlib import Path
from statistics import median
from time import perf_counter

import pyarrow as pa
from pyspark.sql import SparkSession

from _airline import (
    Asked,
    answers,
    cql,
    database,
    declarations,
    flights_for,
    gate,
    same,
    sql,
    written_streams,
)
from _common import Differ, check_units, session, settled, state
from headwater.runtime.api import Headwater

SAMPLE = 6
"""So many queries of each size are compared with DuckDB."""


def covered(queries: int, flights: Sequence[int]) -> list[Asked]:
    """One query for all flights, and others that it covers."""
    chance = random.Random(1)
    ranges = list(combinations(flights, 2))
    chance.shuffle(ranges)
    numbers = (gate(f"q_{n}", f"fl.num = {number}") for n, number in enumerate(cycle(flights)))
    between = (gate(f"r_{a}_{b}", f"fl.num BETWEEN {a} AND {b}") for a, b in ranges)
    first = gate("all_flights", f"fl.num BETWEEN {flights[0]} AND {flights[-1]}")
    return [first, *islice(between, queries // 2), *islice(numbers, (queries - 1) // 2)]


AT_ONCE = 1_000
"""Queries that are submitted in one text; there is a limit to its length."""


@dataclass(frozen=True)
class Size:
    """What so many queries cost: the seconds of submitting them, of their first step, of the rows that
    came after it, and of their end."""

    queries: int
    units: int
    submitted: float
    first: float
    rows: int
    seconds: float
    ended: float

    @property
    def of_a_row(self) -> float:
        return self.seconds / self.rows


def run(
    spark: SparkSession, folder: Path, asked: Sequence[Asked], flights: Sequence[int], files: int
) -> Size:
    """Let files arrive one after the other, and check some of the results."""
    parts = written_streams(folder, flights, files)
    next(parts)
    with state(spark, folder / "state") as opened:
        submitted = _submit(opened, folder, asked)
        first = settled(opened)
        rows, seconds = 0, 0.0
        for came in islice(parts, files - 1):
            rows += came
            seconds += settled(opened)
        begun = perf_counter()
        opened.run(until_idle=True)
        ended = perf_counter() - begun
        check_units(opened)
        for one in [asked[0], *random.Random(2).sample(asked[1:], min(SAMPLE, len(asked) - 1))]:
            _check(opened, one, wanted(folder, one))
        units = len(opened.catalog.units())
        return Size(len(asked), units, submitted, first, rows, seconds, ended)


def _submit(opened: Headwater, folder: Path, asked: Sequence[Asked]) -> float:
    opened.execute(declarations(folder))
    begun = perf_counter()
    for first in range(0, len(asked), AT_ONCE):
        opened.execute("\n".join(cql(one) for one in asked[first : first + AT_ONCE]))
    return perf_counter() - begun


def wanted(folder: Path, asked: Asked, start: int | None = None) -> pa.Table:
    """The results over what is in the files, after the start of the query."""
    after = "" if start is None else f" WHERE tau * 60000000 > {start}"
    return database(folder).sql(f"SELECT * FROM ({sql(asked)}){after}").to_arrow_table()


def _check(opened: Headwater, asked: Asked, found: pa.Table) -> None:
    ours = answers(opened, asked)
    if not same(ours, found):
        counts = f"{ours.num_rows:,} rows of {found.num_rows:,}"
        raise Differ(f"{asked.name} has {counts}, or other ones")


@dataclass(frozen=True)
class Added:
    """What adding a query did: seconds of the steps, and the step in which it took effect."""

    submitted: float
    before: list[float]
    after: list[float]
    step: int


def add_one(
    spark: SparkSession, folder: Path, asked: Sequence[Asked], flights: Sequence[int], steps: int
) -> Added:
    """Let files arrive one after the other, and add a query to those that run halfway."""
    *running, one = asked
    parts = written_streams(folder, flights, files=2 * steps + 1)
    next(parts)
    with state(spark, folder / "state") as opened:
        _submit(opened, folder, running)
        settled(opened)
        before = [settled(opened) for _ in islice(parts, steps)]
        begun = perf_counter()
        opened.execute(cql(one))
        submitted = perf_counter() - begun
        after, effective = [], []
        for _ in islice(parts, steps):
            after.append(settled(opened))
            row = opened.catalog.query(one.name)
            assert row is not None
            found = wanted(folder, one, row.start_at)
            effective.append(found.num_rows > 0 and same(answers(opened, one), found))
        check_units(opened)
        _check(opened, one, found)
        _check(opened, running[0], wanted(folder, running[0]))
        return Added(submitted, before, after, effective.index(True) + 1)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--files", type=int, default=6, help="files a stream, one a step")
    options.add_argument("--queries", type=int, nargs="+", default=[100, 1_000, 10_000])
    options.add_argument("--running", type=int, default=1_000, help="queries when one is added")
    options.add_argument("--steps", type=int, default=5, help="steps before and after that")
    chosen = options.parse_args()
    most = max(*chosen.queries, chosen.running + 1)
    flights = flights_for(chosen.rows, least=isqrt(most) + 2)
    spark = session()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            warm = covered(chosen.queries[0], flights)
            run(spark, Path(temporary, "warm"), warm, flights, chosen.files)
            heading = (
                "queries",
                "units",
                "submitted",
                "first step",
                "rows",
                "seconds",
                "us a row",
                "end",
            )
            print(" ".join(f"{word:>10}" for word in heading))
            sizes = []
            for queries in chosen.queries:
                asked = covered(queries, flights)
                size = run(spark, Path(temporary, str(queries)), asked, flights, chosen.files)
                sizes.append(size)
                print(
                    f"{size.queries:>10,} {size.units:>10,} {size.submitted:>9.1f}s {size.first:>9.1f}s "
                    f"{size.rows:>10,} {size.seconds:>9.1f}s {size.of_a_row * 1e6:>10.1f} "
                    f"{size.ended:>9.1f}s",
                    flush=True,
                )
            asked = covered(chosen.running + 1, flights)
            added = add_one(spark, Path(temporary, "growing"), asked, flights, chosen.steps)
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    slower = median(added.after) / median(added.before)
    print(
        f"one added to {chosen.running:,} running in {added.submitted * 1000:.0f} ms: has its rows "
        f"after {added.step} step(s); a step took {median(added.before):.2f} s before and "
        f"{median(added.after):.2f} s after ({slower:.2f}x)"
    )
    print(
        f"ratio: a row costs {sizes[-1].of_a_row / sizes[-2].of_a_row:.2f}x with {sizes[-1].queries:,} "
        f"queries of what it costs with {sizes[-2].queries:,}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
