"""Reading a large file into a segment: Headwater's reader against Spark's own, on the same machine.

The same rows as JSON lines, as CSV, and as CSV with all cells in quotes. Both write Parquet. The last
line is the largest ratio of times, Headwater's to Spark's; it should be below 1.5.

    python benchmarks/ingest_files.py [ROWS]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from pyspark.sql import SparkSession

from headwater.algebra.catalog import Stream
from headwater.algebra.types import BIGINT, DOUBLE, INT, STRING, TIMESTAMP, Field, Schema
from headwater.runtime.connectors.files import FileSource
from headwater.runtime.connectors.options import FileOptions
from headwater.runtime.ingest.batch import ingest_batch
from headwater.runtime.ingest.time_bounds import EventTimeBounds
from headwater.runtime.spark.session import open_session

SCHEMA = Schema(
    (
        Field("item", INT),
        Field("bidder", BIGINT),
        Field("price", DOUBLE),
        Field("note", STRING),
        Field("ts", TIMESTAMP),
    )
)
STREAM = Stream("s", SCHEMA, "ts")
COLUMNS = "item INT, bidder BIGINT, price DOUBLE, note STRING, ts TIMESTAMP, _malformed STRING"


def write_files(folder: Path, rows: int) -> dict[str, tuple[str, Path]]:
    """The format and the file of each form, with the same rows."""
    rng = random.Random(1)
    forms = {name: folder / name for name in ("rows.json", "rows.csv", "quoted.csv")}
    names = SCHEMA.names
    with (
        forms["rows.json"].open("w") as objects,
        forms["rows.csv"].open("w") as cells,
        forms["quoted.csv"].open("w") as quoted,
    ):
        cells.write(",".join(names) + "\n")
        quoted.write(",".join(names) + "\n")
        for n in range(rows):
            second = f"2026-01-{1 + n % 28:02}T{n % 24:02}:{n % 60:02}:00.{n % 10**6:06}Z"
            row = (n % 1000, rng.randrange(10**9), rng.random() * 100, f"note {n}", second)
            objects.write(json.dumps(dict(zip(names, row, strict=True))) + "\n")
            cells.write(",".join(map(str, row)) + "\n")
            quoted.write(",".join(f'"{value}"' for value in row) + "\n")
    return {name: (path.suffix[1:], path) for name, path in forms.items()}


def seconds(do: Callable[[], object], times: int = 3) -> float:
    """The shortest of some runs."""
    found = []
    for _ in range(times):
        begun = perf_counter()
        do()
        found.append(perf_counter() - begun)
    return min(found)


def by_headwater(spark: SparkSession, format_: str, path: Path, out: Path) -> int:
    batch = FileSource(FileOptions(str(path), format_), SCHEMA).poll(spark, {})
    assert batch is not None
    written, refused = ingest_batch(batch, STREAM, EventTimeBounds(None), out)
    assert written is not None and not refused.malformed
    return written.rows


def by_spark(spark: SparkSession, format_: str, path: Path, out: Path) -> None:
    reader = spark.read.schema(COLUMNS).option("columnNameOfCorruptRecord", "_malformed")
    frame = reader.option("header", "true").format(format_).load(str(path))
    good = frame.where("_malformed IS NULL").drop("_malformed")
    good.selectExpr("*", "unix_micros(ts) AS _time").write.mode("overwrite").parquet(str(out))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    spark = open_session("local[*]")
    ratios = []
    with tempfile.TemporaryDirectory() as place:
        for name, (format_, path) in write_files(Path(place), rows).items():
            out = Path(place, "out")
            ours = seconds(lambda f=format_, p=path, o=out: by_headwater(spark, f, p, o))  # type: ignore[misc]
            theirs = seconds(lambda f=format_, p=path, o=out / "spark": by_spark(spark, f, p, o))  # type: ignore[misc]
            size = path.stat().st_size / 1e6
            ratios.append(ours / theirs)
            print(f"{name}: {size:.0f} MB, Headwater {ours:.1f} s, Spark {theirs:.1f} s")
    spark.stop()
    print(f"ratio {max(ratios):.2f}")


if __name__ == "__main__":
    main()
