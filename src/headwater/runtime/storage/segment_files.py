"""Segment files: writing, describing, reading and removing them.

A file is complete before the catalog names it and never changes afterwards; its checksum is
recorded with it and verified by every read (`integrity`). Small results are collected as Arrow and
written by the driver, which saves most of the time of a small Spark write; large ones are written
by Spark's tasks into a folder of part files.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.errors import DamagedFile, HeadwaterError
from headwater.runtime.durability import (
    OWNER_FILE,
    OWNER_FOLDER,
    make_folder,
    owner_only_opener,
    write_file,
)
from headwater.runtime.storage.integrity import (
    RESTORE_ADVICE,
    StoredFile,
    compute_digest,
    compute_file_digest,
    part_files,
    read_verified,
    verify_file,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNKNOWN_RANGE = (-(2**63), 2**63 - 1)
"""The range of a column whose footer has no statistics: all of BIGINT."""

GROUP_BYTES = 64_000_000
"""Approximate size of a row group of a large file before compression."""

SINGLE_THREAD_BYTES = 8 * 2**20
"""Files up to this size are decoded by one thread."""

SMALL_ROWS = 100_000
"""The driver writes the output of a step with at most this many input rows."""


@dataclass(frozen=True)
class WrittenFile:
    """A written file with the statistics of its footers."""

    path: str
    rows: int
    bytes: int
    least_time: int
    largest_time: int
    digest: int
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The smallest and largest value of each integer column that has values."""


TimeColumns = tuple[str, str]
"""The columns with the smallest and the largest time of each row; often the same one."""


def write(
    frame: DataFrame,
    folder: Path,
    times: TimeColumns,
    small: bool,
    lap: Callable[[str], None] = lambda part: None,
    group_rows: int | None = None,
) -> WrittenFile | None:
    """Write the rows of a frame to a new file in the folder; None if there are no rows.

    `lap` is called when Spark is done: with the rows computed, or, for a large frame, written. A small file
    has row groups of `group_rows`; within a large one Spark finds rows by their pages.
    """
    make_folder(folder)
    if small:
        table = frame.toArrow()
        lap("run")
        return write_arrow(table, folder, times, group_rows)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    with _remove_on_failure(path):
        frame.write.parquet(str(path))
        lap("run")
        _restrict_folder(path)
        written = describe(path, times)
    # Spark makes a folder even where there is no row.
    if written is None:
        remove(str(path))
    return written


def _restrict_folder(folder: Path) -> None:
    """Make a folder that Spark wrote private, and remove Hadoop's checksum files from it.

    The catalog has a checksum of its own, and if a .crc file is damaged Hadoop refuses an intact
    part.
    """
    folder.chmod(OWNER_FOLDER)
    for path in folder.iterdir():
        if path.name.endswith(".crc"):
            path.unlink()
        else:
            path.chmod(OWNER_FILE)


@contextmanager
def _remove_on_failure(path: Path) -> Iterator[None]:
    """Remove a partly written file immediately, as the failure may be a full disk."""
    try:
        yield
    except Exception:
        with suppress(OSError):
            remove(str(path))
        raise


def check_columns(paths: Iterable[str], names: Iterable[str], content: str) -> None:
    """Raises HeadwaterError if files lack some of these columns, which Spark would read as NULL: another
    version of Headwater has written them."""
    wanted = set(names)
    for path in paths:
        for part in part_files(Path(path)):
            missing = wanted - set(pq.read_schema(part).names)
            if missing:
                raise HeadwaterError(
                    f"{content} have no {', '.join(sorted(missing))}: another version of Headwater has"
                    " written them; drop the query, and submit it again"
                )


def write_arrow(
    table: pa.Table, folder: Path, times: TimeColumns, group_rows: int | None = None
) -> WrittenFile | None:
    """Write the rows of a table to a new file in the folder; None if there are none."""
    if not table.num_rows:
        return None
    make_folder(folder)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    # Encoded in memory: the checksum is then of the bytes that were meant to be written, not of
    # what the disk returns.
    content = pa.BufferOutputStream()
    pq.write_table(
        table, content, compression="snappy", row_group_size=group_rows, write_page_checksum=True
    )
    data = content.getvalue()
    with _remove_on_failure(path):
        write_file(path, data)
    digest = compute_digest([data])
    return _build_written_file(
        path, table.num_rows, data.size, digest, _column_ranges(table), times
    )


def write_tables(
    tables: Iterable[pa.Table], folder: Path, times: TimeColumns
) -> WrittenFile | None:
    """Write the rows of tables to a new file in the folder; None if there are none.

    They are written row group by row group, so all together may exceed the memory.
    """
    groups = _row_groups(tables)
    first = next(groups, None)
    if first is None:
        return None
    second = next(groups, None)
    if second is None:
        return write_arrow(first, folder, times)
    make_folder(folder)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    with (
        _remove_on_failure(path),
        open(path, "xb", opener=owner_only_opener) as file,
        pq.ParquetWriter(
            file, first.schema, compression="snappy", write_page_checksum=True
        ) as writer,
    ):
        for group in chain([first, second], groups):
            writer.write_table(group)
    return describe(path, times)


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are large enough to be row groups of a file."""
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if sum(chunk.nbytes for chunk in pending) > GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending = []
    if any(table.num_rows for table in pending):
        yield pa.concat_tables(pending)


def describe(path: Path, times: TimeColumns) -> WrittenFile | None:
    """Describe a file, or a folder of part files, from its footers; None if there are no rows."""
    rows = size = 0
    spans: dict[str, tuple[int, int]] = {}
    for part in part_files(path):
        footer = pq.read_metadata(part)
        rows += footer.num_rows
        size += part.stat().st_size
        for n in range(footer.num_row_groups):
            _widen_ranges(spans, footer.row_group(n))
    return (
        _build_written_file(path, rows, size, compute_file_digest(path), spans, times)
        if rows
        else None
    )


def _build_written_file(
    path: Path,
    rows: int,
    size: int,
    digest: int,
    spans: Mapping[str, tuple[int, int]],
    times: TimeColumns,
) -> WrittenFile:
    # Columns with an underscore are Headwater's own; no condition of a query prunes by them.
    ranges = {
        name: span
        for name, span in spans.items()
        if span != UNKNOWN_RANGE and not name.startswith("_")
    }
    least, largest = spans[times[0]][0], spans[times[1]][1]
    return WrittenFile(str(path), rows, size, least, largest, digest, ranges)


def _column_ranges(table: pa.Table) -> dict[str, tuple[int, int]]:
    spans = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        # A column of NULLs alone has no extremes.
        if pa.types.is_integer(column.type) and column.null_count < len(column):
            extremes = pc.min_max(column).as_py()
            spans[name] = (extremes["min"], extremes["max"])
    return spans


def _widen_ranges(spans: dict[str, tuple[int, int]], group: pq.RowGroupMetaData) -> None:
    """Extend the ranges by a row group; a column without statistics gets UNKNOWN_RANGE."""
    for n in range(group.num_columns):
        column, name = group.column(n), group.column(n).path_in_schema
        statistics = column.statistics
        if statistics is not None and statistics.has_min_max and type(statistics.min) is int:
            least, largest = spans.get(name, (statistics.min, statistics.max))
            spans[name] = (min(least, statistics.min), max(largest, statistics.max))
        # A group with only NULLs has no minimum. It leaves the range as it is, because a NULL
        # matches no join key and no time.
        elif statistics is None or statistics.null_count != column.num_values:
            spans[name] = UNKNOWN_RANGE


def read_arrow(file: StoredFile, columns: list[str] | None = None) -> pa.Table:
    """The rows of a segment; raises DamagedFile if its file has changed since it was written."""
    contents = read_verified(file)
    try:
        return pa.concat_tables([_decode(part, columns) for part in contents])
    except (pa.ArrowException, OSError) as error:  # damage to a file that has no checksum
        raise DamagedFile(
            f"the file {file.path} cannot be read ({error}); {RESTORE_ADVICE}"
        ) from error


def _decode(contents: bytes, columns: list[str] | None) -> pa.Table:
    """The rows of a Parquet file in memory.

    A small one is decoded by this thread alone: a process that exits right afterwards, as a command
    does, is otherwise sometimes aborted while a thread of Arrow starts.
    """
    file = pq.ParquetFile(pa.BufferReader(contents), pre_buffer=False)
    return file.read(columns=columns, use_threads=len(contents) > SINGLE_THREAD_BYTES)


def drop_empty_batches(table: pa.Table) -> pa.Table:
    """The same table without empty batches, at which PySpark would stop reading."""
    filled = [batch for batch in table.to_batches() if batch.num_rows]
    return pa.Table.from_batches(filled, table.schema)


def link_file(file: StoredFile, folder: Path) -> str:
    """Like `copy_file`, but with hard links where the file system supports them. The file is as young as
    the copy then."""
    return copy_file(file, folder, _link_or_copy)


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    try:
        # They have one age: that of the file would have a sweep for orphans take the copy for one.
        os.utime(source)
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def copy_file(
    file: StoredFile,
    folder: Path,
    copy: Callable[[str | Path, str | Path], object] = shutil.copyfile,
) -> str:
    """Copy a segment's file or folder into another folder; returns the path of the copy.

    The copy gets its name when it is complete. Raises DamagedFile rather than copy damage.
    """
    make_folder(folder)
    source, target = Path(verify_file(file)), folder / f"{uuid.uuid4().hex}.parquet"
    temporary = folder / f".{target.name}"
    with _remove_on_failure(temporary):
        if source.is_dir():
            shutil.copytree(source, temporary, copy_function=copy)
        else:
            copy(source, temporary)
        # A reader, or a sweep for orphans, never sees a half-copied file under its final name.
        temporary.rename(target)
    return str(target)


def remove(path: str) -> None:
    """Delete a segment's file or folder, if it exists."""
    target = Path(path)
    if target.is_dir():
        # What cannot be removed now is an orphan, and swept later.
        shutil.rmtree(target, ignore_errors=True)
    else:
        target.unlink(missing_ok=True)


def find_orphans(root: Path, referenced: Iterable[str], older_than: float) -> Iterator[Path]:
    """Files below the root that no segment names and that were last modified before a time.

    Younger ones may belong to a step that is about to commit.
    """
    registered = {Path(path).resolve() for path in referenced if path}
    if not root.is_dir():
        return
    # log/KIND/NAME/FILE: the parts in a folder are one segment, and are kept or removed together.
    for entry in sorted(root.glob("*/*/*")):
        if entry.resolve() not in registered and _last_modified(entry) < older_than:
            yield entry


def _last_modified(path: Path) -> float:
    """When a file, or anything in a folder, was last modified; infinity if it was deleted."""
    try:
        inside = path.rglob("*") if path.is_dir() else ()
        return float(max(entry.stat().st_mtime for entry in (path, *inside)))
    except FileNotFoundError:
        return float("inf")
