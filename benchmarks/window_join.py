"""A two-stream window join: Headwater against Structured Streaming's own stream-stream join.

Both read the same JSON files in the same micro-batches in one Spark session, and write their results
to Parquet. Refuses to report if the results differ. `--rows` and `--batches` set the size.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.times import format_timestamp
from headwater.runtime.api import open_state
from headwater.runtime.engine import Engine
from headwater.runtime.session import open_session

SCHEMA = "k INT, v INT, ts TIMESTAMP"
RANGE = 10
STORES = {
    "default state store": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def generate(folder: Path, rows: int, batches: int, rate: int) -> None:
    """`rows` tuples a stream, `rate` a second of event time, cut into files of equal size."""
    rng = random.Random(1)
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for batch in range(batches):
            first, last = rows * batch // batches, rows * (batch + 1) // batches
            lines = [
                json.dumps(
                    {
                        "k": rng.randrange(rate),
                        "v": n,
                        "ts": format_timestamp(n * 1_000 // rate * 1_000),
                    }
                )
                for n in range(first, last)
            ]
            (folder / name / f"{batch:05}.json").write_text("\n".join(lines))


def headwater(spark: SparkSession, folder: Path) -> tuple[float, DataFrame]:
    with open_state(folder / "state") as opened:
        opened._engine = Engine(opened.catalog, opened.state, spark)
        for name in ("a", "b"):
            opened.execute(
                f"CREATE STREAM {name} (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts "
                f"FROM files(path => '{folder / name}', format => 'json', files_per_step => 1)"
            )
        opened.execute(
            f"CREATE QUERY joined AS SELECT a.k, a.v AS x, b.v AS y FROM a [RANGE {RANGE} SECONDS], "
            f"b [RANGE {RANGE} SECONDS] WHERE a.k = b.k"
        )
        begun = time.perf_counter()
        opened.run(until_idle=True)
        seconds = time.perf_counter() - begun
        result = spark.createDataFrame(opened.query("joined").arrow()).select("k", "x", "y")
    return seconds, result


def structured(spark: SparkSession, folder: Path, store: str) -> tuple[float, DataFrame]:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
    sides = []
    for name in ("a", "b"):
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        frame = read.json(str(folder / name)).withWatermark("ts", "5 seconds")
        sides.append(frame.alias(name))
    joined = sides[0].join(
        sides[1],
        _condition(),
    )
    out = folder / f"out-{store}"
    writer = joined.selectExpr("a.k", "a.v AS x", "b.v AS y").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{out}-checkpoint").option("path", str(out))
    begun = time.perf_counter()
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - begun, spark.read.parquet(str(out))


def _condition():  # type: ignore[no-untyped-def]
    from pyspark.sql import functions as F

    return F.expr(
        f"a.k = b.k AND a.ts >= b.ts - INTERVAL {RANGE} SECONDS "
        f"AND a.ts <= b.ts + INTERVAL {RANGE} SECONDS"
    )


def fingerprint(frame: DataFrame) -> tuple[object, ...]:
    row = frame.selectExpr("count(*)", "sum(hash(k, x, y))", "bit_xor(xxhash64(k, x, y))").first()
    assert row is not None
    return tuple(row)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--batches", type=int, default=10)
    options.add_argument("--rate", type=int, default=2_000, help="tuples a second of event time")
    chosen = options.parse_args()
    spark = open_session("local[2]", settings={"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder, chosen.rows, chosen.batches, chosen.rate)
        spark.range(1000).selectExpr("sum(id)").collect()
        ours, result = headwater(spark, folder)
        wanted = fingerprint(result)
        print(
            f"Headwater: {2 * chosen.rows / ours:,.0f} rows/s ({ours:.1f} s, {wanted[0]:,} results)"
        )
        ratios = []
        for store in STORES:
            theirs, frame = structured(spark, folder, store)
            if fingerprint(frame) != wanted:
                print(wanted, fingerprint(frame))
                print(f"results differ from Structured Streaming's ({store}): nothing to report")
                return 1
            print(
                f"Structured Streaming, {store}: {2 * chosen.rows / theirs:,.0f} rows/s ({theirs:.1f} s)"
            )
            ratios.append(theirs / ours)
    print(f"ratio: window join {min(ratios):.2f}x the throughput of Structured Streaming")
    return 0


if __name__ == "__main__":
    sys.exit(main())
