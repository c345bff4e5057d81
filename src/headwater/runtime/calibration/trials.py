"""Generated streams, and states that run over them in an existing Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from pyspark.sql import SparkSession

from headwater.errors import RuntimeFailure
from headwater.runtime.api import Headwater, open_state

START_SECOND = 1_700_000_000
"""The second at which streams begin."""

ColumnValues = Mapping[str, int]
"""The number of distinct values of each column of a generated stream; all are INT, `ts` is the time."""


def write_stream(
    spark: SparkSession, folder: Path, columns: ColumnValues, rows: int, rate: int, files: int = 1
) -> None:
    """Write a stream as a folder of JSON files: `rows` tuples in all, `rate` a second of event time.

    Values are hashes of the folder's and column's names, so that runs repeat exactly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [
        f"CAST(pmod(xxhash64(id, '{folder.name} {name}'), {values}) AS INT) AS {name}"
        for name, values in columns.items()
    ]
    at = f"timestamp_micros({START_SECOND * 1_000_000} + id * 1000 div {rate} * 1000) AS ts"
    # Spark writes a folder of part files; each stream file is the only part of one, moved into place
    # so that it is never seen half written.
    for number in range(files):
        part = folder / f".{number:05}"
        ids = spark.range(rows * number // files, rows * (number + 1) // files)
        ids.selectExpr(*drawn, at).coalesce(1).write.json(str(part))
        (written,) = part.glob("part-*.json")
        written.replace(folder / f"{number:05}.json")
        rmtree(part)


def stream_declaration(name: str, columns: ColumnValues, folder: Path) -> str:
    """The statement that declares a generated stream, read one file at a time."""
    listed = ", ".join(f"{column} INT" for column in columns)
    return (
        f"CREATE STREAM {name} ({listed}, ts TIMESTAMP) TIMESTAMP BY ts "
        f"FROM files(path => '{folder}', format => 'json', files_per_step => 1)"
    )


@contextmanager
def run_statements(
    spark: SparkSession, folder: Path, statements: Sequence[str]
) -> Iterator[Headwater]:
    """A state that has executed statements, and then run until nothing was left to do; raises
    RuntimeFailure if a unit failed."""
    with open_state(folder, spark=spark) as headwater:
        for statement in statements:
            headwater.execute(statement)
        headwater.run(until_idle=True, interval=0.01)
        for unit in headwater.catalog.units():
            if unit.error:
                raise RuntimeFailure(f"the unit {unit.id} failed: {unit.error}")
        yield headwater
