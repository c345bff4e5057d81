"""Trials: generated streams, and states that run over them in a session that is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from pyspark.sql import SparkSession

from headwater.errors import RuntimeFailure
from headwater.runtime.api import Headwater, open_state

START_SECOND = 1_700_000_000
"""The second at which streams begin."""

ColumnValues = Mapping[str, int]
"""How many values each column of a generated stream has; all are INT, and `ts` is its time."""


def write_stream(
    spark: SparkSession, folder: Path, columns: ColumnValues, rows: int, rate: int, files: int = 1
) -> None:
    """A folder of JSON files: so many tuples in all, `rate` a second of event time, drawn by the
    names of folder and column."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [
        f"CAST(pmod(xxhash64(id, '{folder.name} {name}'), {values}) AS INT) AS {name}"
        for name, values in columns.items()
    ]
    at = f"timestamp_micros({START_SECOND * 1_000_000} + id * 1000 div {rate} * 1000) AS ts"
    for number in range(files):
        part = folder / f".{number:05}"
        ids = spark.range(rows * number // files, rows * (number + 1) // files)
        ids.selectExpr(*drawn, at).coalesce(1).write.json(str(part))
        (written,) = part.glob("part-*.json")
        written.replace(folder / f"{number:05}.json")
        rmtree(part)


def stream_declaration(name: str, columns: ColumnValues, folder: Path) -> str:
    """The statement that declares a generated stream, one file a micro-batch."""
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


def task_seconds(spark: SparkSession) -> float:
    """The seconds that all tasks of a session have taken so far, on whatever core."""
    context: Any = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(True)
    return sum(int(executors.apply(n).totalDuration()) for n in range(executors.size())) / 1000
