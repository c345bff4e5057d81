"""Segment files: written by a step, found by their footers, read without Spark where Python asks.

A file is complete before the catalog hears of it, and never changes after. Small results come to the
driver as Arrow and are written there, which saves most of the time of a small Spark write; large ones
are written by Spark's own tasks into a folder of part files.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_ROWS = 100_000
"""A step with so few rows of input is collected and written by the driver."""


@dataclass(frozen=True)
class Written:
    """A file, and what its footers say of it."""

    path: str
    rows: int
    bytes: int
    least_time: int
    largest_time: int


def write(
    frame: DataFrame,
    folder: Path,
    time: str,
    small: bool,
    lap: Callable[[str], None] = lambda part: None,
) -> Written | None:
    """The rows of a frame as a new file below the folder; None if there are no rows.

    `lap` is called when the rows are there; where tasks write them, that is when they are written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if small:
        table = frame.toArrow()
        lap("run")
        return write_arrow(table, folder, time)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    frame.write.parquet(str(path))
    lap("run")
    written = describe(path, time)
    if written is None:
        remove(str(path))
    return written


def write_arrow(table: pa.Table, folder: Path, time: str) -> Written | None:
    """The rows of a table as a new file below the folder; None if there are none."""
    if not table.num_rows:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(table, path, compression="snappy")
    span = pc.min_max(table[time])
    size = path.stat().st_size
    return Written(str(path), table.num_rows, size, span["min"].as_py(), span["max"].as_py())


def describe(path: Path, time: str) -> Written | None:
    """What the footers of a file, or of a folder of part files, say; None if there are no rows."""
    rows = size = 0
    times: list[int] = []
    for part in parts(path):
        footer = pq.read_metadata(part)
        rows += footer.num_rows
        size += part.stat().st_size
        at = footer.schema.names.index(time)
        for group in range(footer.num_row_groups):
            statistics = footer.row_group(group).column(at).statistics
            if statistics is not None and statistics.has_min_max:
                times += [statistics.min, statistics.max]
    return Written(str(path), rows, size, min(times), max(times)) if times else None


def parts(path: Path) -> list[Path]:
    """The Parquet files that a segment consists of."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def read_arrow(path: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a segment."""
    tables = [pq.read_table(part, columns=columns) for part in parts(Path(path))]
    return pa.concat_tables(tables)


def remove(path: str) -> None:
    """Delete a segment's file or folder; nothing happens if it is gone."""
    target = Path(path)
    if target.is_dir():
        shutil.rmtree(target, ignore_errors=True)
    else:
        target.unlink(missing_ok=True)


def orphans(root: Path, known: Iterable[str], older_than: float) -> Iterator[Path]:
    """Files below the root that no segment names and that were last touched before a moment."""
    registered = {Path(path).resolve() for path in known if path}
    if not root.is_dir():
        return
    for entry in sorted(root.glob("*/*/*")):
        if entry.resolve() not in registered and entry.stat().st_mtime < older_than:
            yield entry
