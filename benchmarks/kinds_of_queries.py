"""What a step costs as its windows grow, for each kind of query, beside the inner join with the same windows.

A delta of fixed size comes to windows of 10 thousand rows and more; nothing leaves them meanwhile, so that what has
to be emitted can be counted by one SQL statement over all tuples, with DuckDB: if it is not, there are no figures.
Time is CPU time, as a step reports it, so that it can be compared on a machine that does other work as well; seconds
on the clock stand beside it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from _common import COLUMNS, START_SECOND, Differ, check_units, session, state
from growth import insert, rows
from headwater.runtime.api import Headwater
from headwater.runtime.catalog.records import INSTANTS
from headwater.runtime.storage.columns import ARRIVAL

SECONDS = 1_000
WINDOW = f"[RANGE {SECONDS} SECONDS]"
FILLED = (START_SECOND * 1_000 + SECONDS * 900) * 1_000 - 1
"""The time up to which windows are full when the first step is timed."""
DELTA, OTHER_DELTA = 1_000, 20
"""New rows of `a` and of `b` in a step."""

INNER = "join"
PAIRS = "SELECT greatest(a._ts, b._ts) AS t FROM a, b WHERE a.k = b.k"
MET = "SELECT greatest(a._ts, min(b._ts)) AS t FROM a, b WHERE a.k = b.k GROUP BY a._arrival, a._ts"
LONE = (
    "SELECT a._ts AS t FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k AND b._ts <= a._ts)"
)


@dataclass(frozen=True)
class Kind:
    """A query, and SQL of the time `t` of each row that it emits while nothing leaves."""

    query: str
    times: str


KINDS = {
    INNER: Kind(
        f"SELECT a.k, a.v AS x, b.v AS y FROM a {WINDOW}, b {WINDOW} WHERE a.k = b.k", PAIRS
    ),
    "EXISTS": Kind(
        f"SELECT a.k, a.v FROM a {WINDOW} WHERE EXISTS (SELECT * FROM b {WINDOW} WHERE b.k = a.k)",
        MET,
    ),
    "NOT EXISTS": Kind(
        f"SELECT a.k, a.v FROM a {WINDOW} WHERE NOT EXISTS (SELECT * FROM b {WINDOW} WHERE b.k = a.k)",
        LONE,
    ),
    "LEFT JOIN": Kind(
        f"SELECT a.k, a.v AS x, b.v AS y FROM a {WINDOW} LEFT JOIN b {WINDOW} ON a.k = b.k",
        f"{PAIRS} UNION ALL {LONE}",
    ),
    "FULL JOIN": Kind(
        f"SELECT a.k, a.v AS x, b.v AS y FROM a {WINDOW} FULL JOIN b {WINDOW} ON a.k = b.k",
        f"{PAIRS} UNION ALL {LONE} UNION ALL "
        "SELECT b._ts FROM b WHERE NOT EXISTS (SELECT * FROM a WHERE b.k = a.k AND a._ts <= b._ts)",
    ),
    "UNION ALL": Kind(
        f"SELECT k, v FROM a {WINDOW} UNION ALL SELECT k, v FROM b {WINDOW}",
        "SELECT _ts AS t FROM a UNION ALL SELECT _ts FROM b",
    ),
    "DISTINCT of EXISTS": Kind(
        f"SELECT DISTINCT a.k FROM a {WINDOW} WHERE EXISTS (SELECT * FROM b {WINDOW} WHERE b.k = a.k)",
        "SELECT greatest(min(a._ts), min(b._ts)) AS t FROM a, b WHERE a.k = b.k GROUP BY a.k",
    ),
    "count of NOT EXISTS": Kind(
        f"""SELECT a.k, COUNT(*) AS n FROM a {WINDOW}
        WHERE NOT EXISTS (SELECT * FROM b {WINDOW} WHERE b.k = a.k AND b.v < 0) GROUP BY a.k""",
        "SELECT DISTINCT k, _ts AS t FROM a",
    ),
    "join with a group": Kind(
        f"SELECT a.v, m.n FROM a {WINDOW}, (SELECT k, MAX(v) AS n FROM b {WINDOW} GROUP BY k) m WHERE a.k = m.k AND m.n < 0",
        "SELECT _ts AS t FROM a WHERE FALSE",
    ),
}


def measure(
    spark: SparkSession, folder: Path, kind: Kind, window: int, steps: int
) -> tuple[float, float]:
    """The median CPU seconds, and seconds on the clock, of a step after a first one."""
    keys = max(window // 10, 100)
    with state(spark, folder) as opened:
        for name in "ab":
            opened.execute(
                f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts KEEP 1 DAY FROM CLIENT"
            )
        opened.execute(f"CREATE QUERY q AS {kind.query}")
        tuples = {name: fill(opened, name, window, keys) for name in "ab"}
        skip(opened)
        found = []
        for step in range(steps + 1):
            at = START_SECOND + SECONDS * 0.9 + step
            for seed, (name, size) in enumerate((("a", DELTA), ("b", OTHER_DELTA))):
                delta = numbered(
                    rows(100 * seed + step, size, keys, at, at + 1), window + step * size
                )
                insert(opened, name, delta)
                tuples[name].append(delta)
            found.append(step_seconds(opened))
        check(opened, kind, {name: pa.concat_tables(parts) for name, parts in tuples.items()})
        cpu, clock = zip(*found[1:], strict=True)
        return statistics.median(cpu), statistics.median(clock)


def step_seconds(opened: Headwater) -> tuple[float, float]:
    """The CPU seconds of all steps until nothing is left to do, and the seconds on the clock."""
    begun, cpu, before = time.perf_counter(), 0.0, None
    while opened.engine.tick():
        (unit,) = opened.catalog.units()
        report = opened.engine.units.current(unit).last_report
        if report is not None and report is not before:
            cpu += report.cpu_seconds or 0.0
            before = report
    check_units(opened)
    return cpu, time.perf_counter() - begun


def skip(opened: Headwater) -> None:
    """Count what was inserted as read and answered: the windows were filled before, so to speak."""
    (unit,) = opened.catalog.units()
    ends = opened.catalog.log_ends()
    reached = {
        (unit.id, f"stream:{name}"): {
            "seq": ends[f"stream:{name}"].seq,
            "watermark": ends[f"stream:{name}"].watermark,
        }
        for name in "ab"
    }
    if not opened.engine.units.current(unit).plan.emits_on_arrival:
        reached[unit.id, "instant"] = FILLED
        reached[unit.id, INSTANTS] = {"reached": {"": FILLED}, "more": False}
    opened.catalog.commit(None, cursors=reached)


def numbered(table: pa.Table, first: int) -> pa.Table:
    """Tuples with other arrival numbers: every tuple of a stream has its own."""
    numbers = pa.array(range(first, first + table.num_rows), pa.int64())
    return table.set_column(table.schema.names.index(ARRIVAL), ARRIVAL, numbers)


def fill(opened: Headwater, name: str, window: int, keys: int) -> list[pa.Table]:
    """The tuples that the window holds before the steps that are timed."""
    parts = []
    for first in range(0, window, 250_000):
        size = min(250_000, window - first)
        begin, end = (START_SECOND + SECONDS * 0.9 * n / window for n in (first, first + size))
        part = numbered(rows(ord(name) + first, size, keys, begin, end), first)
        insert(opened, name, part.sort_by("k"))
        parts.append(part)
    return parts


def check(opened: Headwater, kind: Kind, tables: dict[str, pa.Table]) -> None:
    """Raises Differ if not as many rows were emitted as are due."""
    waits = not opened.engine.units.current(opened.catalog.units()[0]).plan.emits_on_arrival
    ready = min(max(table["_ts"].to_pylist()) for table in tables.values()) - waits
    database = duckdb.connect()
    for name, table in tables.items():
        database.register(name, table)
    due = f"t > {FILLED} AND t <= {ready}" if waits else f"t > {FILLED}"
    (wanted,) = database.execute(f"SELECT count(*) FROM ({kind.times}) WHERE {due}").fetchone() or (
        0,
    )
    found = sum(
        s.rows
        for unit in opened.catalog.units()
        for s in opened.catalog.segments(f"unit:{unit.id}")
    )
    if found != wanted:
        raise Differ(f"{kind.query} emitted {found:,} rows, {wanted:,} are due")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--windows", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    options.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    options.add_argument("--steps", type=int, default=5)
    run(session("8g"), options.parse_args())
    return 0


def run(spark: SparkSession, chosen: argparse.Namespace) -> None:
    print(
        f"CPU seconds (seconds on the clock) of a step with {DELTA:,} + {OTHER_DELTA} new rows, median"
    )
    print(f"{'window':>20} " + " ".join(f"{window:>16,}" for window in chosen.windows))
    costs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in chosen.kinds:
            found = [
                measure(
                    spark,
                    Path(temporary) / f"{name} {window}".replace(" ", "_"),
                    KINDS[name],
                    window,
                    chosen.steps,
                )
                for window in chosen.windows
            ]
            costs[name] = [cpu for cpu, _ in found]
            print(
                f"{name:>20} "
                + " ".join(f"{f'{cpu:.2f} ({clock:.2f})':>16}" for cpu, clock in found),
                flush=True,
            )
    growth = max(
        (b / a for cost in costs.values() for a, b in itertools.pairwise(cost)), default=1.0
    )
    beside = max(
        b / a for cost in costs.values() for a, b in zip(costs.get(INNER, cost), cost, strict=True)
    )
    print(
        f"ratio: ten times the window costs at most {growth:.2f}x, a kind at most {beside:.2f}x of the inner join"
    )


if __name__ == "__main__":
    sys.exit(main())
