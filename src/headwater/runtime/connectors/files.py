"""Files of a folder as a stream, and files as a table: JSON lines, CSV with a header, Parquet.

Files are read by the driver (`record_parser`), not by Spark: so no name is taken for a pattern, and
a record means the same here and in the reference evaluator.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
import threading
import weakref
import zlib
from collections import deque
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
"""Files that together have at most this many bytes in memory are one batch; a larger file is a
batch by itself, and is read chunk by chunk."""

LINE_BITS = 40
"""The low bits of an arrival number are the line, the high bits the number of the file."""

_SAMPLE_BYTES = 4096
_MARK_DIGEST = 4
"""Where in the mark of a file that was read the digest of its beginning and end is; earlier releases
did not store one."""

MAX_GONE_FILES = 100_000
"""How many files that were read and then deleted are remembered, newest first."""

MAX_HELD_COPIES = 16
"""Copies of large tables that a thread keeps, whatever others load: more than one step reads."""

_held = threading.local()


@dataclass(frozen=True)
class FolderScan:
    """What has changed in a folder since it was last scanned."""

    fresh: Sequence[str]
    """Files to read, oldest first."""
    changed: Sequence[SeenFile] = ()
    """Files whose content has changed after they were read."""
    renamed: Sequence[SeenFile] = ()
    """New names of files that were read under another name."""
    forgotten: Sequence[str] = ()
    """The oldest deleted files, if too many are remembered."""


@dataclass(frozen=True)
class FileSource:
    """The files of a folder (or one file), each read whole and once, oldest first.

    The position is only how many were read. Which ones is in the catalog, a row each, and passed in
    as `seen`: a position with all names would be rewritten by every commit.
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
        # Changes and new names are kept though nothing is read, or each scan would find them again.
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
        """The first files that fit into memory together, or one that does not.

        Raises UnreadableFile if the first cannot be read; a later one ends the batch before it.
        """
        marked_files: list[_MarkedFile] = []
        loaded: list[TupleChunk] = []
        size = 0
        for name in names:
            # The mark is taken before reading: a change during the read is then noticed afterwards.
            file = _MarkedFile(name, _read_mark(name))
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
                # One that is larger than a batch is never in memory as a whole: the rest is read while
                # the beginning is written.
                if not marked_files:
                    return [file], itertools.chain(chunks, remaining)
                break
            except FileNotFoundError:
                # Deleted since the folder was listed: as if it had never been there.
                continue
            except UnreadableFile:
                # What was read before it is committed first. The next batch begins with this file, and
                # its failure is then about it alone.
                if not marked_files:
                    raise
                break
        return marked_files, loaded

    def scan_folder(self) -> FolderScan:
        """Compare the folder with the files seen so far; raises InputError if it is gone."""
        present = list_files(self.options.path)
        folder = Path(os.path.realpath(self.options.path))
        # A folder that disappears is more likely unmounted than done, so the stream must not end.
        if self.seen and not present and not folder.exists() and str(folder) not in self.seen:
            raise InputError(f"the folder {folder} is gone; restore it, or drop the stream")
        by_inode = {_identity_mark(file.mark): file for file in self.seen.values() if file.mark}
        fresh, changed, renamed = [], [], []
        for name, now in present.items():
            before = self.seen.get(name)
            if before is None:
                earlier = by_inode.get(_identity_mark(now)) if now else None
                if earlier is not None and earlier.state == "read" and _is_same(earlier, name):
                    renamed.append(replace(earlier, path=name))
                else:
                    fresh.append(name)
            elif before.state == "aside":
                if before.mark != now:
                    fresh.append(name)
            elif (
                before.state == "read"
                and before.mark
                and now
                and _content_mark(before.mark) != _content_mark(now)
            ):
                changed.append(replace(before, state="changed", mark=now))
        return FolderScan(fresh, changed, renamed, self._excess_gone_files(present))

    def _excess_gone_files(self, present: Mapping[str, list[int] | None]) -> list[str]:
        # With some slack, so that files are forgotten many at a time and not with every scan.
        if len(self.seen) - len(present) <= MAX_GONE_FILES * 1.1:
            return []
        gone = [file for name, file in self.seen.items() if name not in present]
        gone.sort(key=lambda file: file.number or 0)
        return [file.path for file in gone[:-MAX_GONE_FILES]]

    def close(self) -> None:
        """Nothing to close."""


class _MarkedFile(NamedTuple):
    """A file, and its mark before it was read."""

    path: str
    mark: list[int] | None


def convert_position(stream: str, position: Position) -> FileChanges | None:
    """The files listed in a position of an earlier release; None if the position is current."""
    if "files" not in position and "aside" not in position:
        return None
    read = [SeenFile(name, "read", file_mark(name)) for name in position.get("files", ())]
    aside = [SeenFile(name, "aside", None) for name in position.get("aside", {})]
    return FileChanges(stream, [*read, *aside])


def files_still_aside(seen: Iterable[SeenFile]) -> list[str]:
    """The files that were set aside and have not changed since."""
    return [
        file.path for file in seen if file.state == "aside" and file.mark == file_mark(file.path)
    ]


def file_mark(name: str) -> list[int] | None:
    """A mark that changes with a file or its permissions; None if there is no such file."""
    try:
        return _stat_mark(Path(name).stat())
    except OSError:
        return None


def _read_mark(name: str) -> list[int] | None:
    """The mark of a file that is about to be read, with a digest of its beginning and end behind it."""
    mark, digest = file_mark(name), _sample_digest(name)
    return mark if mark is None or digest is None else [*mark, digest]


def _is_same(earlier: SeenFile, name: str) -> bool:
    """Whether a file that has the identity mark of another is that one under another name.

    A new file may be given the inode of one that was deleted, and programs that copy or unpack files
    set their modification times: with the same size it would look like the old one.
    """
    mark = earlier.mark or []
    return len(mark) <= _MARK_DIGEST or mark[_MARK_DIGEST] == _sample_digest(name)


def _sample_digest(name: str) -> int | None:
    """A digest of the beginning and end of a file; None if it cannot be read."""
    try:
        with Path(name).open("rb") as file:
            begin = file.read(_SAMPLE_BYTES)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _SAMPLE_BYTES))
            return zlib.crc32(file.read(_SAMPLE_BYTES), zlib.crc32(begin))
    except OSError:
        return None


def _stat_mark(status: os.stat_result) -> list[int]:
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def _content_mark(mark: Sequence[int]) -> tuple[int, ...]:
    """The part of a mark that changes with the content: modification time and size."""
    return mark[0], mark[2]


def _identity_mark(mark: Sequence[int] | None) -> tuple[int, ...]:
    """The part of a mark that survives renaming: modification time, size and inode."""
    return () if mark is None else (mark[0], mark[2], mark[3])


def list_files(path: str) -> dict[str, list[int] | None]:
    """The files in a folder with their marks, ordered by age and name.

    A file with several links is listed once. Names that begin with a dot or underscore are skipped:
    writers use them for unfinished files. A link that cannot be followed, unless it leads to nothing, is
    listed last and without a mark: reading it says why.
    """
    root = Path(os.path.realpath(path))
    if root.is_file():
        return {str(root): _stat_mark(root.stat())}
    if not root.is_dir():
        return {}
    by_identity: dict[tuple[int, int], tuple[int, str, list[int]]] = {}
    unreadable: dict[str, list[int] | None] = {}
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name[0] in "._":
                continue
            try:
                if not entry.is_file():
                    continue
                status = entry.stat()
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError:
                unreadable[entry.path] = None
                continue
            name = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            seen = (status.st_mtime_ns, name, _stat_mark(status))
            file = (status.st_dev, status.st_ino)
            by_identity[file] = min(seen, by_identity.get(file, seen))
    return {name: mark for _, name, mark in sorted(by_identity.values())} | unreadable


# ---- the records of a file


def describe_location(name: str, arrival: int) -> str:
    """Where the tuple with an arrival number is, for people."""
    return f"{name}, line {arrival & ((1 << LINE_BITS) - 1)}"


def read_tuples(
    name: str, options: FileOptions | ReplayOptions, schema: Schema, number: int
) -> Iterator[TupleChunk]:
    """The records of a file; their arrival numbers combine its `number` among files with the line.

    Raises UnreadableFile with the mark of the file before it was read, or FileNotFoundError.
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
    """A digest of the content of a table: names, sizes and modification times of its files."""
    versions = []
    for name in list_files(file_options(source).path):
        with suppress(OSError):  # removed meanwhile, for one; reading the table reports it
            status = Path(name).stat()
            versions.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return blake2b("\n".join(sorted(versions)).encode(), digest_size=16).hexdigest()


def read_table(spark: SparkSession, source: Connector, schema: Schema) -> DataFrame:
    """A stored table as it is now, with `_arrival` to distinguish equal rows; raises InputError.

    Malformed records are skipped.
    """
    options = file_options(source)
    files = tuple((name, *(mark or ())) for name, mark in list_files(options.path).items())
    if not files:
        raise InputError(f"the table's path {options.path} holds no file")
    table = _load_table(files, options, schema)
    if isinstance(table, pa.Table):
        return spark.createDataFrame(drop_empty_batches(table))
    _hold(table)
    return spark.read.parquet(str(table.path))


class _TableCopy:
    """The rows of a table as a Parquet file in a temporary folder, which goes with this object."""

    def __init__(self, table: pa.Table) -> None:
        folder = tempfile.mkdtemp(prefix="headwater-table-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, "table.parquet")
        pq.write_table(table, self.path, row_group_size=1_000_000)


def _hold(copy: _TableCopy) -> None:
    """Keep a copy while the step of this thread may read it: Spark reads it only when the step runs, and
    by then the tables of other steps may have taken its place in the cache."""
    if not hasattr(_held, "copies"):
        _held.copies = deque(maxlen=MAX_HELD_COPIES)
    if copy in _held.copies:
        _held.copies.remove(copy)
    _held.copies.append(copy)


@functools.lru_cache(maxsize=64)
def _load_table(
    files: tuple[tuple[Any, ...], ...], options: FileOptions, schema: Schema
) -> pa.Table | _TableCopy:
    """The rows of files: a small table in memory, a large one as Parquet in a temporary folder.

    Marks are part of the cache key, so the files are read again only after a change.
    """
    tables = [_build_chunk(ParsedChunk(empty_table(schema)), "", 0).table]
    try:
        for number, (name, *_) in enumerate(files):
            tables += (tuples.table for tuples in read_tuples(name, options, schema, number))
    except (UnreadableFile, FileNotFoundError) as error:
        raise InputError(str(error)) from error
    table = pa.concat_tables(tables)
    if table.nbytes <= MAX_BATCH_BYTES:
        return table
    # The object and not its path is kept in the cache: when nobody has it any more, the file goes too.
    return _TableCopy(table)
