"""Memory, files and rows of the catalog while events are replayed for a long time.

Two streams feed a join, a sliding aggregate and a window by rows; streams and results are kept for a while.
Each sample is taken after garbage was collected; what is on its way is still in it, so the least of many
samples is compared, once Java is warm. A run that holds more and more has a ratio well above 1. Thirty minutes
at a thousand rows a second: `--minutes 30 --speed 1 --rate 500`. The counts that are still kept at the end are
compared with DuckDB's over the same events; refuses to report if they differ.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

import duckdb
import pyarrow.parquet as pq

from _common import COLUMNS, START_SECOND, Differ, session, state
from growth import rows
from headwater.algebra.times import to_micros
from headwater.runtime.api import Headwater

SIZE, SLIDE = 300, 30
QUERIES = {
    "joined": """SELECT a.k, a.v AS x, b.v AS y
        FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k""",
    "counted": f"""RSTREAM(SELECT k, COUNT(*) AS n, SUM(v) AS s
        FROM a [RANGE {SIZE} SECONDS SLIDE {SLIDE} SECONDS] GROUP BY k)""",
    "latest": "SELECT k, v FROM b [PARTITION BY k ROWS 1] WHERE v < 100",
}
MEGA = 1_000_000
MEASURED = ("heap MB", "Python MB", "log MB", "files", "catalog rows", "behind s")


def held(opened: Headwater) -> tuple[float, ...]:
    """What is held: of Spark's heap after a collection, by Python, by the log of both streams, files of the
    state, rows of its catalog, and how far results are behind the replay in event time."""
    jvm = opened.engine.spark._jvm
    assert jvm is not None
    heap = jvm.Runtime.getRuntime()
    for _ in range(3):  # blocks of broadcasts go in a thread, after those who named them
        jvm.System.gc()
        time.sleep(0.3)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    streams = sum(opened.catalog.log_stats(f"stream:{name}").bytes for name in "ab")
    marks = [row.max_event_time or 0 for row in opened.catalog.streams()]
    answered = [
        opened.catalog.cursor(unit.id, "instant") or min(marks) for unit in opened.catalog.units()
    ]
    return (
        (heap.totalMemory() - heap.freeMemory()) / MEGA,
        pages * os.sysconf("SC_PAGE_SIZE") / MEGA,
        streams / MEGA,
        sum(1 for path in opened.state.rglob("*") if path.is_file()),
        catalog_rows(opened.state / "catalog.sqlite"),
        (min(marks) - min(answered)) / MEGA,
    )


def catalog_rows(file: Path) -> int:
    """The rows of all tables."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        return sum(
            connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables
        )
    finally:
        connection.close()


def compared(opened: Headwater, events: Path) -> int:
    """How many counts are still kept; raises Differ if they are not what DuckDB counts."""
    kept: dict[int, Counter[tuple[int, int, int]]] = {}
    for row in opened.query("counted").results():
        kept.setdefault(to_micros(row["_tau"]), Counter())[row["k"], row["n"], row["s"]] += 1
    for at in sorted(kept)[1:]:  # of the first, some may have expired
        wanted = duckdb.sql(
            f"SELECT k, count(*), sum(v) FROM '{events}' "
            f"WHERE epoch_us(ts) BETWEEN {at - SIZE * MEGA} AND {at} GROUP BY k"
        ).fetchall()
        if kept[at] != Counter(wanted):
            raise Differ(f"the counts at {at} are not DuckDB's")
    if len(kept) < 3:
        raise Differ("there are too few counts to compare")
    return sum(map(Counter.total, kept.values()))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=int, default=60, help="of event time")
    options.add_argument("--speed", type=int, default=100)
    options.add_argument("--rate", type=int, default=50, help="tuples a second and stream")
    options.add_argument("--every", type=float, default=4, help="seconds from sample to sample")
    options.add_argument(
        "--keep", type=float, default=10, help="seconds for which results are kept"
    )
    chosen = options.parse_args()
    spark = session("2g")
    samples: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds = chosen.minutes * 60
        for name in "ab":
            table = rows(
                ord(name), seconds * chosen.rate, 500, START_SECOND, START_SECOND + seconds
            )
            pq.write_table(table.select(["k", "v", "ts"]), folder / f"{name}.parquet")
        with state(spark, folder / "state") as opened:
            opened.execute(f"SET results_keep = {chosen.keep}")
            for name in "ab":
                opened.execute(
                    f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts KEEP 1 MINUTE FROM replay("
                    f"path => '{folder / name}.parquet', speed => {chosen.speed})"
                )
            for name, text in QUERIES.items():
                opened.execute(f"CREATE QUERY {name} AS {text}")
            begun = last = time.monotonic()
            print(f"{'seconds':>8}" + "".join(f"{name:>14}" for name in MEASURED))

            def sample() -> None:
                nonlocal last
                if time.monotonic() - last > chosen.every:
                    last = time.monotonic()
                    opened.engine.tidy()
                    samples.append(held(opened))
                    shown = "".join(f"{value:>14.1f}" for value in samples[-1])
                    print(f"{last - begun:>8.0f}{shown}", flush=True)

            opened.engine.run(until_idle=True, on_tick=sample)
            try:
                print(f"{compared(opened, folder / 'a.parquet')} counts that are kept are DuckDB's")
            except Differ as differ:
                print(f"not reported: {differ}")
                return 1
    if len(samples) < 3:
        print(f"not reported: {len(samples)} samples are too few")
        return 1
    third = len(samples) // 3
    early, late = samples[third : 2 * third], samples[-third:]
    ratios = [
        f"{name.split()[0]} {least(late, at) / least(early, at):.2f}"
        for at, name in enumerate(MEASURED[:-1])
    ]
    print(f"in the middle results are {median(s[-1] for s in samples):.1f} s of event time behind")
    print(f"ratio: least of the last third of the run to that of its second: {', '.join(ratios)}")
    return 0


def least(samples: list[tuple[float, ...]], at: int) -> float:
    return min(sample[at] for sample in samples)


if __name__ == "__main__":
    sys.exit(main())
