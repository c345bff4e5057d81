"""A sliding aggregate: Headwater against Structured Streaming's windowed aggregation.

Both read the same JSON files in the same micro-batches in one Spark session, and write their results
to Parquet. Structured Streaming closes a window when the watermark has passed it, so the windows that
the end of the input leaves open are not compared. Refuses to report if the others differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from _common import START_SECOND, Differ, compare, generate, headwater, session, structured

RANGE, SLIDE = 60, 5
QUERY = f"""RSTREAM(SELECT k, COUNT(*) AS n, SUM(v) AS s
FROM a [RANGE {RANGE - 0.001} SECONDS SLIDE {SLIDE} SECONDS] GROUP BY k)"""


def grouped(a: DataFrame) -> DataFrame:
    """The same windows: a tuple on a boundary belongs to the window that ends there."""
    window = F.window("ts", f"{RANGE} seconds", f"{SLIDE} seconds", "1 millisecond")
    found = a.groupBy(window, "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    return found.selectExpr("window.end - INTERVAL 0.001 SECOND AS _tau", "k", "n", "s")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--batches", type=int, default=20)
    options.add_argument("--rate", type=int, default=1_000, help="tuples a second of event time")
    chosen = options.parse_args()
    last = START_SECOND + chosen.rows // chosen.rate - 2 * SLIDE
    closed = f"_tau <= timestamp_seconds({last})"
    spark = session()
    with tempfile.TemporaryDirectory() as temporary:
        warm, folder = Path(temporary, "warm"), Path(temporary, "streams")
        generate(warm, "a", chosen.rows // 2, chosen.batches // 2, chosen.rate, keys=500)
        generate(folder, "a", chosen.rows, chosen.batches, chosen.rate, keys=500)

        def ours(folder: Path) -> tuple[float, DataFrame]:
            seconds, frame = headwater(spark, folder, "a", QUERY)
            return seconds, frame.where(closed)

        def theirs(folder: Path, store: str) -> tuple[float, DataFrame]:
            seconds, frame = structured(spark, folder, store, "append", "0 seconds", grouped, "a")
            return seconds, frame.where(closed)

        try:
            ratio = compare(chosen.rows, "unix_micros(_tau), k, n, s", ours, theirs, warm, folder)
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    print(f"ratio: sliding aggregate at {ratio:.2f}x the throughput of Structured Streaming")
    return 0


if __name__ == "__main__":
    sys.exit(main())
