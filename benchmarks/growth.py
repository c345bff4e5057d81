"""What a step costs as its window grows, and as the number of units grows.

A small delta is joined with windows of 10 thousand rows and more. Structured Streaming's join stands
beside it as far as it gets in the time allowed. The second curve has ever more different queries over
the same two streams. The results of every step are checked against a batch join.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from _common import COLUMNS, PROVIDER, START_SECOND, session, settled, state
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import BatchRejects
from headwater.runtime.ingest.client_push import append_to_stream
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import stream_folder
from headwater.runtime.storage.columns import ARRIVAL, TIME

DELTA = 1_000
SECONDS = 1_000
"""The span of the window in event time."""

QUERY = f"""SELECT a.k, a.v AS x, b.v AS y
FROM a [RANGE {SECONDS} SECONDS], b [RANGE {SECONDS} SECONDS] WHERE a.k = b.k"""


def rows(seed: int, number: int, keys: int, start: float, end: float) -> pa.Table:
    """Tuples with random keys, evenly spread over a span of seconds."""
    numbers = pa.array(range(number), pa.int64())
    offsets = pc.multiply(pc.cast(numbers, pa.float64()), (end - start) * 1_000 / number)
    millis = pc.add(pc.cast(pc.floor(offsets), pa.int64()), int(start * 1_000))
    micros = pc.multiply(millis, 1_000)
    drawn = pc.floor(pc.multiply(pc.random(number, initializer=seed), keys))
    return pa.table(
        {
            "k": pc.cast(drawn, pa.int32()),
            "v": pc.cast(numbers, pa.int32()),
            "ts": pc.cast(micros, pa.timestamp("us", tz="UTC")),
            TIME: micros,
            ARRIVAL: numbers,
        }
    )


def insert(opened: Headwater, name: str, table: pa.Table) -> None:
    """Append a segment as a source does."""
    row = opened.catalog.stream(name)
    assert row is not None
    written = segment_files.write_arrow(table, stream_folder(opened.state, name), (TIME, TIME))
    append_to_stream(opened.catalog, None, row, written, {}, BatchRejects(name))


def fill(opened: Headwater, queries: int) -> None:
    """Queries that join by another condition each, which every pair meets, so that none shares."""
    for name in "ab":
        opened.execute(f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts FROM CLIENT")
    for n in range(queries):
        opened.execute(f"CREATE QUERY q{n} AS {QUERY} AND a.v + {n + 2} * b.v >= 0")
    if len(opened.catalog.units()) != queries:
        raise SystemExit("no curve: queries share units")


def step_seconds(
    spark: SparkSession, folder: Path, window: int, queries: int = 1, steps: int = 5
) -> float:
    """The median time in which a delta is answered by all queries, after a first one."""
    keys = max(window // 10, 100)
    with state(spark, folder) as opened:
        fill(opened, queries)
        for name in "ab":
            for first in range(0, window, 250_000):
                size = min(250_000, window - first)
                at = START_SECOND + SECONDS * 0.9 * first / window
                until = START_SECOND + SECONDS * 0.9 * (first + size) / window
                insert(opened, name, rows(first, size, keys, at, until).sort_by("k"))
        units = opened.catalog.units()
        ends = opened.catalog.log_ends()
        for unit in units:  # the window was taken in before, so to speak
            reached = {
                (unit.id, f"stream:{n}"): {
                    "seq": ends[f"stream:{n}"].seq,
                    "watermark": ends[f"stream:{n}"].watermark,
                }
                for n in "ab"
            }
            opened.catalog.commit(None, cursors=reached)
        times = []
        for step in range(steps + 1):
            at = START_SECOND + SECONDS * 0.9 + step
            delta = rows(step, DELTA, keys, at, at + 1)
            insert(opened, "a", delta)
            times.append(settled(opened))
            _check(spark, opened, delta, step)
        return sorted(times[1:])[steps // 2]


def _check(spark: SparkSession, opened: Headwater, delta: pa.Table, step: int) -> None:
    """The step's results are as many as those of a batch join of the delta with all of b."""
    paths = [s.path for s in opened.catalog.segments("stream:b")]
    joined = spark.createDataFrame(delta.select(["k", "v"])).join(
        spark.read.parquet(*paths).select("k"), "k"
    )
    wanted = joined.count()
    unit = opened.catalog.units()[0]
    found = sum(s.rows for s in opened.catalog.segments(f"unit:{unit.id}")) - _check.told
    _check.told += found
    if found != wanted:
        raise SystemExit(f"no curve: step {step} told {found:,} rows of {wanted:,}")


_check.told = 0


def structured_seconds(
    spark: SparkSession, folder: Path, window: int, store: str, steps: int = 3
) -> float:
    """The same on Structured Streaming: the median time of a micro-batch after the window is in."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", f"{PROVIDER}.{store}")
    keys = max(window // 10, 100)
    columns = ["k", "v", "ts"]
    for name in "ab":
        (folder / name).mkdir(parents=True)
        table = rows(ord(name), window, keys, START_SECOND, START_SECOND + SECONDS * 0.9).select(
            columns
        )
        pq.write_table(table, folder / name / "0.parquet")
    streams = [
        spark.readStream.schema(COLUMNS)
        .parquet(str(folder / name))
        .withWatermark("ts", "5 seconds")
        .alias(name)
        for name in "ab"
    ]
    near = f"a.ts BETWEEN b.ts - INTERVAL {SECONDS} SECONDS AND b.ts + INTERVAL {SECONDS} SECONDS"
    joined = streams[0].join(streams[1], F.expr(f"a.k = b.k AND {near}"))
    writer = joined.selectExpr("a.k", "a.v AS x", "b.v AS y").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        query.processAllAvailable()
        times = []
        for step in range(steps + 1):
            at = START_SECOND + SECONDS * 0.9 + step
            delta = rows(step, DELTA, keys, at, at + 1).select(columns)
            hidden = folder / "a" / f"_{step + 1}.parquet"
            pq.write_table(delta, hidden)
            begun = time.perf_counter()
            hidden.rename(folder / "a" / f"{step + 1}.parquet")
            query.processAllAvailable()
            times.append(time.perf_counter() - begun)
        return sorted(times[1:])[steps // 2]
    finally:
        query.stop()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--windows", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    options.add_argument("--units", type=int, nargs="+", default=[1, 5, 10, 25, 50])
    options.add_argument(
        "--structured", type=int, default=10**6, help="the largest window for the other side"
    )
    chosen = options.parse_args()
    spark = session("8g")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print(f"seconds for a delta of {DELTA:,} rows (median)")
        print(f"{'window':>12} {'Headwater':>10} {'Structured Streaming':>22} {'with RocksDB':>14}")
        ours = []
        for window in chosen.windows:
            _check.told = 0
            ours.append(step_seconds(spark, folder / f"w{window}", window))
            others = ["-", "-"]
            if window <= chosen.structured:
                others = [
                    f"{structured_seconds(spark, folder / f'{store}{window}', window, store):.2f}"
                    for store in ("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider")
                ]
            print(f"{window:>12,} {ours[-1]:>10.2f} {others[0]:>22} {others[1]:>14}", flush=True)
        print(f"{'units':>12} {'Headwater':>10} {'a unit':>10}")
        shared = []
        for units in chosen.units:
            _check.told = 0
            shared.append(step_seconds(spark, folder / f"u{units}", 10_000, units, steps=3))
            print(f"{units:>12} {shared[-1]:>10.2f} {shared[-1] / units:>10.3f}", flush=True)
    times = chosen.windows[-1] / chosen.windows[0]
    print(
        f"ratio: a window {times:,.0f} times as large costs {ours[-1] / ours[0]:.1f}x, "
        f"{chosen.units[-1]} units cost {shared[-1] / shared[0]:.1f}x one"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
