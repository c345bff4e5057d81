"""Files of a folder as a stream, and files as a table: JSON lines, CSV with a header, Parquet.

Files are read by the driver (`parse`), so no name is ever a pattern, and what a record means does not
depend on who reads it.
"""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.types import Schema
from headwater.cql.statements import Connector
from headwater.errors import InputError
from headwater.reference.records import MAX_LINE_BYTES
from headwater.runtime.catalog import FileChanges, RejectedRecord, SeenFile
from headwater.runtime.connectors.base import Batch, Position, TupleChunk
from headwater.runtime.connectors.file_rows import limit_by_rows
from headwater.runtime.connectors.options import FileOptions, ReplayOptions, file_options
from headwater.runtime.connectors.record_parser import (
    LINE,
    ParsedChunk,
    UnreadableFile,
    empty_table,
    read_file,
)
from headwater.runtime.storage.columns import ARRIVAL
from headwater.runtime.storage.segment_files import drop_empty_batches

MAX_BATCH_BYTES = 32_000_000
"""Files that have together no more than so many bytes in memory are read whole, as one batch; a larger
one is a batch by itself, and passes through in pieces."""

LINE_BITS = 40

MAX_GONE_FILES = 100_000
"""Of files that were read and are gone, so many are remembered, the last ones."""


@dataclass(frozen=True)
class FolderScan:
    """What a look at a folder has found, beside what was seen before."""

    fresh: Sequence[str]
    """Files to read, oldest first."""
    changed: Sequence[SeenFile] = ()
    """Files that are no longer what was read."""
    renamed: Sequence[SeenFile] = ()
    """Names under which a file appears that was read under another one."""
    forgotten: Sequence[str] = ()
    """The oldest of too many files that are gone."""


@dataclass(frozen=True)
class FileSource:
    """Files of a folder (or one file), each read whole and once, oldest first.

    The position is only how many were read; which ones is in the catalog, a row each, and is handed
    in as `seen` by the name of the stream.
    """

    options: FileOptions
    schema: Schema
    finite: bool = True
    rows_per_step: int | None = None
    expects_more: bool = False
    stream: str = ""
    seen: Mapping[str, SeenFile] = field(default_factory=dict)

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        scan = self.scan_folder()
        fresh = limit_by_rows(scan.fresh[: self.options.files_per_step], self.rows_per_step)
        first = int(position.get("next", 0))
        marked_files, chunks = self._read(fresh, first)
        read = [SeenFile(t.path, "read", t.mark, first + n) for n, t in enumerate(marked_files)]
        seen_files = [*scan.changed, *scan.renamed, *read]
        if not seen_files and not scan.forgotten:
            return None
        changes = FileChanges(self.stream, seen_files, scan.forgotten)
        return Batch(
            chunks if marked_files else None,
            {"next": first + len(marked_files), "noted": int(position.get("noted", 0)) + 1},
            lambda arrival: describe_location(
                marked_files[(arrival >> LINE_BITS) - first].path, arrival
            ),
            changes,
        )

    def _read(
        self, names: Sequence[str], first: int
    ) -> tuple[list[_MarkedFile], Iterable[TupleChunk]]:
        """The first files that fit into memory together, or one that does not; raises
        UnreadableFile if the very first cannot be read."""
        marked_files: list[_MarkedFile] = []
        loaded: list[TupleChunk] = []
        size = 0
        for name in names:
            file = _MarkedFile(name, file_mark(name))
            remaining = read_tuples(name, self.options, self.schema, first + len(marked_files))
            chunks = []
            try:
                for chunk in remaining:
                    chunks.append(chunk)
                    size += chunk.table.nbytes
                    if size > MAX_BATCH_BYTES:
                        break
                else:
                    marked_files.append(file)
                    loaded += chunks
                    continue
                if not marked_files:
                    return [file], itertools.chain(chunks, remaining)
                break
            except FileNotFoundError:
                continue
            except UnreadableFile:
                if not marked_files:
                    raise
                break
        return marked_files, loaded

    def scan_folder(self) -> FolderScan:
        """What is new in the folder, and what of it is no longer as it was; raises InputError if the
        folder itself is gone."""
        present = list_files(self.options.path)
        folder = Path(self.options.path).resolve()
        if self.seen and not present and not folder.exists() and str(folder) not in self.seen:
            raise InputError(f"the folder {folder} is gone; restore it, or drop the stream")
        by_inode = {_identity_mark(file.mark): file for file in self.seen.values() if file.mark}
        fresh, changed, renamed = [], [], []
        for name, now in present.items():
            before = self.seen.get(name)
            if before is None:
                earlier = by_inode.get(_identity_mark(now))
                if earlier is not None and earlier.state == "read":
                    renamed.append(replace(earlier, path=name))
                else:
                    fresh.append(name)
            elif before.state == "aside":
                if before.mark != now:
                    fresh.append(name)
            elif (
                before.state == "read"
                and before.mark
                and _content_mark(before.mark) != _content_mark(now)
            ):
                changed.append(replace(before, state="changed", mark=now))
        return FolderScan(fresh, changed, renamed, self._excess_gone_files(present))

    def _excess_gone_files(self, present: Mapping[str, list[int]]) -> list[str]:
        if len(self.seen) - len(present) <= MAX_GONE_FILES * 1.1:
            return []
        gone = [file for name, file in self.seen.items() if name not in present]
        gone.sort(key=lambda file: file.number or 0)
        return [file.path for file in gone[:-MAX_GONE_FILES]]

    def close(self) -> None:
        """Nothing is held open."""


class _MarkedFile(NamedTuple):
    """A file, and what it looked like before it was read."""

    path: str
    mark: list[int] | None


def convert_position(stream: str, position: Position) -> FileChanges | None:
    """The files that the position of an earlier release lists; None if it lists none."""
    if "files" not in position and "aside" not in position:
        return None
    read = [SeenFile(name, "read", file_mark(name)) for name in position.get("files", ())]
    aside = [SeenFile(name, "aside", None) for name in position.get("aside", {})]
    return FileChanges(stream, [*read, *aside])


def files_still_aside(seen: Iterable[SeenFile]) -> list[str]:
    """The files that were set aside and are there as they were."""
    return [
        file.path for file in seen if file.state == "aside" and file.mark == file_mark(file.path)
    ]


def file_mark(name: str) -> list[int] | None:
    """What changes when a file does, or its permissions; None if it is gone."""
    try:
        return _stat_mark(Path(name).stat())
    except OSError:
        return None


def _stat_mark(status: os.stat_result) -> list[int]:
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def _content_mark(mark: Sequence[int]) -> tuple[int, ...]:
    """What changes when the content of a file does."""
    return mark[0], mark[2]


def _identity_mark(mark: Sequence[int] | None) -> tuple[int, ...]:
    """What a file keeps under another name."""
    return () if mark is None else (mark[0], mark[2], mark[3])


def list_files(path: str) -> dict[str, list[int]]:
    """Files below a path with their marks, by age and name, each once whatever links lead to it;
    names that begin with a dot or underscore are not data."""
    root = Path(path).resolve()
    if root.is_file():
        return {str(root): _stat_mark(root.stat())}
    if not root.is_dir():
        return {}
    by_identity: dict[tuple[int, int], tuple[int, str, list[int]]] = {}
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name[0] not in "._" and entry.is_file():
                status = entry.stat()
                name = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                seen = (status.st_mtime_ns, name, _stat_mark(status))
                file = (status.st_dev, status.st_ino)
                by_identity[file] = min(seen, by_identity.get(file, seen))
    return {name: mark for _, name, mark in sorted(by_identity.values())}


# ---- the records of a file


def describe_location(name: str, arrival: int) -> str:
    """Where the tuple with an arrival is, for people."""
    return f"{name}, line {arrival & ((1 << LINE_BITS) - 1)}"


def read_tuples(
    name: str, options: FileOptions | ReplayOptions, schema: Schema, number: int
) -> Iterator[TupleChunk]:
    """The records of a file, whose number in the order of files makes the arrival with the line.

    Raises UnreadableFile with the mark that the file had before, or FileNotFoundError.
    """
    before = file_mark(name)
    max_line_bytes = options.max_line_bytes or MAX_LINE_BYTES
    try:
        for chunk in read_file(
            name, options.format, schema, max_line_bytes, options.timestamp_unit
        ):
            yield _build_chunk(chunk, name, number)
    except UnreadableFile as error:
        error.mark = before
        raise


def _build_chunk(chunk: ParsedChunk, name: str, number: int) -> TupleChunk:
    begin = number << LINE_BITS
    lines = chunk.table[LINE].to_numpy() + begin
    table = chunk.table.drop_columns([LINE]).append_column(ARRIVAL, pa.array(lines, pa.int64()))
    rejected = [
        RejectedRecord(
            record.reason,
            record.record,
            describe_location(name, record.line),
            record.column,
            begin + record.line,
        )
        for record in chunk.malformed
    ]
    return TupleChunk(table, rejected)


# ---- tables


def table_fingerprint(source: Connector) -> str:
    """What tells one content of a stored table from another: the names of its files, with their sizes
    and when they were changed last."""
    versions = []
    for name in list_files(file_options(source).path):
        with suppress(FileNotFoundError):  # removed meanwhile: reading the table will say so
            status = Path(name).stat()
            versions.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return blake2b("\n".join(sorted(versions)).encode(), digest_size=16).hexdigest()


def read_table(spark: SparkSession, source: Connector, schema: Schema) -> DataFrame:
    """A stored table as it is now, with `_arrival` to tell its rows apart; raises InputError.

    Records that cannot be read are passed over.
    """
    options = file_options(source)
    files = tuple((name, *seen) for name, seen in list_files(options.path).items())
    if not files:
        raise InputError(f"the table's path {options.path} holds no file")
    table = _load_table(files, options, schema)
    if isinstance(table, pa.Table):
        return spark.createDataFrame(drop_empty_batches(table))
    return spark.read.parquet(str(Path(table.name, "table.parquet")))


@functools.lru_cache(maxsize=64)
def _load_table(
    files: tuple[tuple[Any, ...], ...], options: FileOptions, schema: Schema
) -> pa.Table | tempfile.TemporaryDirectory[str]:
    """The rows of files as they are at present: a small table in memory, a large one as Parquet in
    a folder that goes with this process. Read again only when a file has changed."""
    tables = [_build_chunk(ParsedChunk(empty_table(schema)), "", 0).table]
    try:
        for number, (name, *_) in enumerate(files):
            tables += (tuples.table for tuples in read_tuples(name, options, schema, number))
    except (UnreadableFile, FileNotFoundError) as error:
        raise InputError(str(error)) from error
    table = pa.concat_tables(tables)
    if table.nbytes <= MAX_BATCH_BYTES:
        return table
    folder = tempfile.TemporaryDirectory(prefix="headwater-table-")
    pq.write_table(table, Path(folder.name, "table.parquet"), row_group_size=1_000_000)
    return folder
