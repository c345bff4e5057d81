"""A two-stream window join: Headwater against Structured Streaming's own stream-stream join.

Both read the same JSON files in the same micro-batches in one Spark session, and write their results
to Parquet. Two workloads: with many keys a tuple has two results, with few keys twenty. The ratio told is
the smaller one. Refuses to report if results differ. `--rows` and `--batches` set the size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from _common import Differ, compare, generate, headwater, session, structured

RANGE = 10
QUERY = f"""SELECT a.k, a.v AS x, b.v AS y
FROM a [RANGE {RANGE} SECONDS], b [RANGE {RANGE} SECONDS] WHERE a.k = b.k"""


def joined(a: DataFrame, b: DataFrame) -> DataFrame:
    """The same join, as Structured Streaming has it."""
    near = f"a.ts BETWEEN b.ts - INTERVAL {RANGE} SECONDS AND b.ts + INTERVAL {RANGE} SECONDS"
    return a.join(b, F.expr(f"a.k = b.k AND {near}")).selectExpr("a.k", "a.v AS x", "b.v AS y")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--batches", type=int, default=10)
    options.add_argument("--rate", type=int, default=2_000, help="tuples a second of event time")
    options.add_argument("--keys", type=int, nargs="+", default=[20_000, 2_000])
    chosen = options.parse_args()
    spark = session()
    ratios = []
    for keys in chosen.keys:
        print(f"{keys:,} keys, {2 * RANGE * chosen.rate // keys} results a tuple")
        try:
            ratios.append(measured(spark, chosen.rows, chosen.batches, chosen.rate, keys))
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    print(f"ratio: window join at {min(ratios):.2f}x the throughput of Structured Streaming")
    return 0


def measured(spark: SparkSession, rows: int, batches: int, rate: int, keys: int) -> float:
    """The throughput of Headwater over that of Structured Streaming; raises Differ."""
    with tempfile.TemporaryDirectory() as temporary:
        warm, folder = Path(temporary, "warm"), Path(temporary, "streams")
        generate(warm, "ab", rows // 2, batches // 2, rate, keys=keys)
        generate(folder, "ab", rows, batches, rate, keys=keys)
        return compare(
            2 * rows,
            "k, x, y",
            lambda folder: headwater(spark, folder, "ab", QUERY),
            lambda folder, store: structured(
                spark, folder, store, "append", "5 seconds", joined, "ab"
            ),
            warm,
            folder,
        )


if __name__ == "__main__":
    sys.exit(main())
