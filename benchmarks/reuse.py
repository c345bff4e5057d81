"""A hundred airline queries: Headwater against as many queries on Structured Streaming.

The queries are those of `_airline.py`: 80 % from gates, 15 % for terminals, 5 % to monitor. Headwater
runs them in one engine until it is idle. On the other side each is a streaming query of its own, a
chain of stream-stream joins with watermarks that reads the files itself; all are started together in
the same Spark application, with as many partitions as there are cores. Both read the same JSON files in
the same micro-batches and write Parquet. The SLIDE is kept by exact conditions on whole minutes, as
`_airline.py` says, and the results of each query are compared row by row, with their instants. Refuses
to report if any differs. `--rows` and `--queries` set the size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from _airline import (
    DELAY_SECONDS,
    Asked,
    Run,
    check,
    everyday,
    flights_for,
    shared,
    sql,
    streams,
    table,
    write_streams,
)
from _common import STORES, Differ, session
from headwater.runtime.spark.sql import quote_identifier, spark_type

OTHER = "Structured Streaming"
WARM_SECONDS = 120.0


def separate(spark: SparkSession, folder: Path, asked: Sequence[Asked]) -> Run:
    """A query on Structured Streaming for each."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES["default state store"])
    _views(spark, folder)
    out = Path(tempfile.mkdtemp(dir=folder))
    begun = perf_counter()
    writers = [
        spark.sql(sql(one))
        .writeStream.format("parquet")
        .option("path", str(out / one.name))
        .option("checkpointLocation", str(out / f"{one.name} checkpoint"))
        .trigger(availableNow=True)
        for one in asked
    ]
    submitted = perf_counter()
    started = [writer.start() for writer in writers]
    for query in started:
        query.awaitTermination()
    ended = perf_counter()
    results = {one.name: pq.read_table(out / one.name) for one in asked}
    return Run(submitted - begun, ended - submitted, results, len(asked))


def _views(spark: SparkSession, folder: Path) -> None:
    """A streaming view for each stream, one file a micro-batch."""
    for stream in streams(folder):
        columns = ", ".join(
            f"{quote_identifier(f.name)} {spark_type(f.type)}" for f in stream.schema
        )
        frame = (
            spark.readStream.schema(columns)
            .option("maxFilesPerTrigger", 1)
            .json(str(folder / stream.name))
            .selectExpr(
                "*",
                "unix_millis(ts) div 60000 AS since",
                "(unix_millis(ts) + 59999) div 60000 AS until",
            )
            .withWatermark("ts", f"{DELAY_SECONDS} seconds")
        )
        frame.createOrReplaceTempView(table(stream.name))


def measure(spark: SparkSession, rows: int, files: int, queries: int, folder: Path) -> float:
    """Print the throughput of both sides; how many times that of the other Headwater has.

    Java gets faster for minutes, and queries run for days. So each side runs over other files before,
    all queries on our side and a tenth of them on the other, until it has done so for two minutes.
    """
    flights = flights_for(rows, least=queries)
    asked = everyday(queries, flights)
    warm, measured = folder / "warm", folder / "measured"
    write_streams(warm, flights[: queries // 2], files=6, seed=2)
    rows = write_streams(measured, flights, files)
    _warm(lambda: shared(spark, warm, asked))
    ours = shared(spark, measured, asked)
    _warm(lambda: separate(spark, warm, asked[::10]))
    theirs = separate(spark, measured, asked)
    results = check(asked, ours.results, theirs.results, OTHER)
    print(f"{queries} queries, {rows:,} rows in {files} files a stream, {results:,} results")
    print(f"{'':<22} {'operators':>9} {'submitted in':>13} {'seconds':>9} {'rows/s':>9}")
    for side, run in (("Headwater", ours), (OTHER, theirs)):
        print(
            f"{side:<22} {run.operators:>9} {run.submitted:>12.1f}s {run.seconds:>9.1f} "
            f"{rows / run.seconds:>9,.0f}"
        )
    return theirs.seconds / ours.seconds


def _warm(run: Callable[[], Run]) -> None:
    left = WARM_SECONDS
    while left > 0:
        left -= run().seconds


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--files", type=int, default=2, help="files a stream, one a micro-batch")
    options.add_argument("--queries", type=int, default=100)
    chosen = options.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            ratio = measure(spark, chosen.rows, chosen.files, chosen.queries, Path(temporary))
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    print(
        f"ratio: {chosen.queries} airline queries at {ratio:.1f}x the throughput of as many "
        f"on {OTHER}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
