"""Ten thousand queries of a shop's tenants on a running engine: what they take to submit, what a round of
new rows takes, what Java and Python hold, and what `show queries` takes.

Every tenant watches its own orders: large ones, some of their products, counts and sums over sliding windows,
and orders whose payment came. A hundred queries run first; the others join them while rows go on coming. A
sample is compared with the reference evaluator over all rows that were pushed; refuses to report if a query
differs. The last line is what a round takes with all queries, by what it takes with the first hundred.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import perf_counter

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

STREAMS = """
CREATE STREAM orders (tenant INT, product INT, amount INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM payments (tenant INT, product INT, paid INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
TENANTS, PRODUCTS = 1_000, 50
FIRST, AT_ONCE, SAMPLE = 100, 500, 40
SECONDS = 20
"""How much event time a round brings."""

Rows = dict[str, list[tuple[int, int, int, int]]]


def queries(chance: random.Random) -> Iterator[str]:
    """What tenants ask, one after the other, each with bounds of its own."""
    for tenant in cycle(range(TENANTS)):
        mine = f"o.tenant = {tenant}"
        low = chance.randrange(0, 900)
        product = chance.randrange(PRODUCTS)
        yield f"SELECT o.product, o.amount FROM orders o WHERE {mine} AND o.amount > {low}"
        yield (
            "SELECT o.tenant, o.amount FROM orders o "
            f"WHERE o.product BETWEEN {product} AND {product + chance.randrange(3)} AND {mine}"
        )
        size = chance.choice([1, 5, 10])
        yield (
            f"RSTREAM(SELECT COUNT(*) AS n FROM orders [RANGE {size} MINUTES SLIDE 1 MINUTE] o "
            f"WHERE {mine})"
        )
        yield (
            "SELECT o.product, SUM(o.amount) AS total "
            f"FROM orders [RANGE {size} MINUTES SLIDE 1 MINUTE] o "
            f"WHERE {mine} AND o.amount > {low} GROUP BY o.product"
        )
        yield (
            "SELECT o.product, p.paid FROM orders [RANGE 30 SECONDS] o, payments [RANGE 30 SECONDS] p "
            f"WHERE o.tenant = p.tenant AND o.product = p.product AND p.paid > {low} AND {mine}"
        )


def arrivals(chance: random.Random, number: int, rows: int) -> Rows:
    """The rows of a round, in order of time."""

    def one(at: int) -> tuple[int, int, int, int]:
        time = (START_SECOND + number * SECONDS) * 1_000_000 + at * SECONDS * 1_000_000 // rows
        return chance.randrange(TENANTS), chance.randrange(PRODUCTS), chance.randrange(1_000), time

    return {name: [one(at) for at in range(rows)] for name in ("orders", "payments")}


def memory(opened: Headwater) -> tuple[float, float]:
    """Megabytes that Java holds after a collection, and that Python has at most held."""
    jvm = opened.engine.spark._jvm
    assert jvm is not None
    jvm.System.gc()
    heap = jvm.Runtime.getRuntime()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (heap.totalMemory() - heap.freeMemory()) / 1e6, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def shown(folder: Path, expected: int) -> tuple[float, float]:
    """The wall and CPU seconds of `headwater show queries`; raises Differ if it does not list them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = perf_counter()
    command = [sys.executable, "-m", "headwater", "show", "queries", "--state", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall = perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    listed = sum(line.startswith("q") and line[1].isdigit() for line in done.stdout.splitlines())
    if listed != expected:
        raise Differ(f"show queries lists {listed} of {expected} queries")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compared(opened: Headwater, name: str, text: str, pushed: Rows) -> int:
    """How many rows a query has; raises Differ if they are not the reference evaluator's, over the rows of
    its tenant and the first and last of all, which say at which instants it is evaluated."""
    tenant = int(text.split("o.tenant = ")[-1].split()[0].rstrip(")"))
    own = {
        stream: [row for row in rows if row[0] == tenant or row in (rows[0], rows[-1])]
        for stream, rows in pushed.items()
    }
    return compare_with_reference(opened, {name: text}, own)


class Shop:
    """A state, and the rows that were pushed to it."""

    def __init__(self, opened: Headwater, rows: int) -> None:
        self.opened, self.rows = opened, rows
        self.pushed: Rows = {"orders": [], "payments": []}
        self.chance = random.Random(1)
        self.rounds = 0

    def round(self) -> float:
        """Bring new rows; the seconds until all queries have answered them."""
        for name, rows in arrivals(self.chance, self.rounds, self.rows).items():
            self.opened.push(name, rows, timestamp_unit="us")
            self.pushed[name] += rows
        self.rounds += 1
        return settled(self.opened)

    def report(self, folder: Path, queries: int, submitted: float, rounds: Sequence[float]) -> None:
        heap, python = memory(self.opened)
        wall, cpu = shown(folder, queries)
        units = sum(unit.state == "running" for unit in self.opened.catalog.units())
        print(
            f"{queries:>8}{units:>7}{submitted * 1_000:>11.1f}{rounds[0]:>9.1f}"
            f"{median(rounds[1:]):>8.2f}{heap:>8.0f}{python:>8.0f}{wall:>8.2f}{cpu:>6.2f}",
            flush=True,
        )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, default=10_000)
    options.add_argument("--rows", type=int, default=1_000, help="of each stream in a round")
    options.add_argument("--rounds", type=int, default=5, help="at each number of queries")
    chosen = options.parse_args()
    asked = {
        f"q{n}": text for n, text in enumerate(islice(queries(random.Random(2)), chosen.queries))
    }
    sizes = sorted({FIRST, chosen.queries // 10, chosen.queries})
    spark = session("6g")
    print(
        f"{'':>8}{'':>7}{'submit':>11}{'first':>9}{'round':>8}{'Java':>8}{'Python':>8}{'show queries':>14}"
    )
    print(
        f"{'queries':>8}{'units':>7}{'ms/query':>11}{'round s':>9}{'s':>8}{'MB':>8}{'MB':>8}{'s':>8}{'CPU':>6}"
    )
    typical: list[float] = []
    try:
        with tempfile.TemporaryDirectory() as name, state(spark, Path(name) / "state") as opened:
            opened.execute(STREAMS)
            shop = Shop(opened, chosen.rows)
            there, names = 0, list(asked)
            for size in sizes:
                begun = perf_counter()
                for first in range(there, size, AT_ONCE):
                    batch = names[first : min(first + AT_ONCE, size)]
                    opened.execute(
                        "".join(
                            f"CREATE QUERY {q} STARTING AT EARLIEST AS {asked[q]};" for q in batch
                        )
                    )
                submitted = (perf_counter() - begun) / (size - there)
                there = size
                rounds = [shop.round() for _ in range(chosen.rounds)]
                check_units(opened)
                shop.report(Path(name) / "state", size, submitted, rounds)
                typical.append(median(rounds[1:]))
            for stream in shop.pushed:
                opened.execute(f"END STREAM {stream}")
            settled(opened)
            check_units(opened)
            sample = random.Random(3).sample(names, min(SAMPLE, len(names)))
            total = sum(compared(opened, q, asked[q], shop.pushed) for q in sample)
    except Differ as differ:
        print(f"not reported: {differ}")
        return 1
    print(
        f"{len(sample)} queries drawn by lot have the {total} rows that the reference evaluator gives"
    )
    print(
        f"ratio: a round takes {typical[-1] / typical[0]:.1f} times as long with {sizes[-1] // sizes[0]} times the queries"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
