"""What the benchmarks share: generated streams, and the same query on Headwater and on Structured
Streaming, in one Spark session and over the same files."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.times import format_timestamp, to_micros
from headwater.cql import CreateQuery, parse
from headwater.reference import evaluate
from headwater.reference.values import normalize_row, row_order_key
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.calibration.trials import START_SECOND
from headwater.runtime.engine.engine import Engine
from headwater.runtime.spark.session import open_session

COLUMNS = "k INT, v INT, ts TIMESTAMP"
PROVIDER = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "default state store": f"{PROVIDER}.HDFSBackedStateStoreProvider",
    "RocksDB": f"{PROVIDER}.RocksDBStateStoreProvider",
}


def session(memory: str = "4g") -> SparkSession:
    """A session that has run a job already."""
    spark = open_session("local[2]", settings={"spark.driver.memory": memory})
    spark.range(1000).selectExpr("sum(id)").collect()
    return spark


def generate(folder: Path, names: str, rows: int, batches: int, rate: int, keys: int) -> None:
    """`rows` tuples a stream, `rate` a second of event time, cut into files of equal size."""
    rng = random.Random(1)
    for name in names:
        (folder / name).mkdir(parents=True)
        for batch in range(batches):
            first, last = rows * batch // batches, rows * (batch + 1) // batches
            lines = [
                json.dumps({"k": rng.randrange(keys), "v": n, "ts": _time(n, rate)})
                for n in range(first, last)
            ]
            (folder / name / f"{batch:05}.json").write_text("\n".join(lines))


def _time(number: int, rate: int) -> str:
    """In whole milliseconds and not at the epoch, which Structured Streaming takes as late."""
    return format_timestamp(START_SECOND * 1_000_000 + number * 1_000 // rate * 1_000)


@contextmanager
def state(spark: SparkSession, folder: Path) -> Iterator[Headwater]:
    """A state in the session of the benchmark."""
    with open_state(folder) as opened:
        opened._engine = Engine(opened.catalog, opened.state, spark)
        yield opened


def declare(opened: Headwater, folder: Path, name: str) -> None:
    """A stream of generated files, one file a micro-batch."""
    opened.execute(
        f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts "
        f"FROM files(path => '{folder / name}', format => 'json', files_per_step => 1)"
    )


def settled(opened: Headwater) -> float:
    """The seconds in which all that is there has been taken in and answered."""
    begun = time.perf_counter()
    while opened.engine.tick():
        pass
    return time.perf_counter() - begun


def headwater(spark: SparkSession, folder: Path, names: str, query: str) -> tuple[float, DataFrame]:
    """The seconds that Headwater takes for all the files, and its results."""
    with state(spark, folder / "state") as opened:
        for name in names:
            declare(opened, folder, name)
        opened.execute(f"CREATE QUERY q AS {query}")
        begun = time.perf_counter()
        opened.run(until_idle=True)
        seconds = time.perf_counter() - begun
        return seconds, spark.createDataFrame(opened.query("q").arrow())


def structured(
    spark: SparkSession,
    folder: Path,
    store: str,
    mode: str,
    lateness: str,
    query: Callable[..., DataFrame],
    names: str,
) -> tuple[float, DataFrame]:
    """The same for a query on Structured Streaming, one file a micro-batch and stream."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
    streams = []
    for name in names:
        read = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        frame = read.json(str(folder / name)).withWatermark("ts", lateness)
        streams.append(frame.alias(name))
    out = folder / f"out {store}"
    writer = query(*streams).writeStream.format("parquet").outputMode(mode)
    writer = writer.option("checkpointLocation", f"{out} checkpoint").option("path", str(out))
    begun = time.perf_counter()
    writer.trigger(availableNow=True).start().awaitTermination()
    return time.perf_counter() - begun, spark.read.parquet(str(out))


def fingerprint(frame: DataFrame, columns: str) -> tuple[object, ...]:
    """The same for the same rows, in whatever order."""
    hashed = f"xxhash64({columns})"
    row = frame.selectExpr(
        "count(*)", f"sum(pmod({hashed}, 1000003))", f"bit_xor({hashed})"
    ).first()
    assert row is not None
    return tuple(row)


class Differ(Exception):
    """The two sides do not have the same results: there is nothing to report."""


def check_units(opened: Headwater) -> None:
    """Raises Differ if a unit failed: then results are missing."""
    for unit in opened.catalog.units():
        if unit.error:
            raise Differ(f"the unit {unit.id} failed: {unit.error}")


def compare_with_reference(
    headwater: Headwater, asked: Mapping[str, str], streams: Mapping[str, Sequence[tuple[Any, ...]]]
) -> int:
    """How many rows all queries have; raises Differ if one is not the reference evaluator's."""
    total = 0
    for name, text in asked.items():
        (statement,) = parse(f"CREATE QUERY {name} AS {text}", headwater.definitions.namespace)
        assert isinstance(statement, CreateQuery)
        found = evaluate(statement.query, streams, {})
        wanted = sorted(((r.tau, *normalize_row(r.values)) for r in found), key=row_order_key)
        names = [column.name for column in statement.query.columns]
        got = sorted(
            (
                (to_micros(row["_tau"]), *normalize_row(tuple(row[column] for column in names)))
                for row in headwater.query(name).results()
            ),
            key=row_order_key,
        )
        if got != wanted:
            raise Differ(
                f"{name} has {len(got)} rows that are not the {len(wanted)} it should have"
            )
        total += len(got)
    return total


def compare(
    rows: int,
    columns: str,
    ours: Callable[[Path], tuple[float, DataFrame]],
    theirs: Callable[[Path, str], tuple[float, DataFrame]],
    warm: Path,
    folder: Path,
) -> float:
    """Print the throughput of each side; the least ratio over the state stores. Raises Differ.

    Each side runs over the first folder before, so that neither starts cold.
    """
    ours(warm)
    seconds, frame = ours(folder)
    wanted = fingerprint(frame, columns)
    print(f"Headwater: {rows / seconds:,.0f} rows/s ({seconds:.1f} s, {wanted[0]:,} results)")
    ratios = []
    for store in STORES:
        theirs(warm, store)
        other, frame = theirs(folder, store)
        found = fingerprint(frame, columns)
        if found != wanted:
            raise Differ(f"Structured Streaming ({store}) has {found[0]:,} results, or other ones")
        print(f"Structured Streaming, {store}: {rows / other:,.0f} rows/s ({other:.1f} s)")
        ratios.append(other / seconds)
    return min(ratios)
