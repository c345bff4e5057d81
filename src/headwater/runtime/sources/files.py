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
from headwater.reference.records import LONGEST_LINE
from headwater.runtime.catalog import FileChanges, Refused, SeenFile
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import FileOptions, ReplayOptions, file_options
from headwater.runtime.files import gapless
from headwater.runtime.pacing import within_rows
from headwater.runtime.sources.base import Batch, Position, Tuples
from headwater.runtime.sources.parse import LINE, Piece, UnreadableFile, empty, read_file

HELD_BYTES = 32_000_000
"""Files that have together no more than so many bytes in memory are read whole, as one batch; a larger
one is a batch by itself, and passes through in pieces."""

PLACE_BITS = 40

KEPT_GONE = 100_000
"""Of files that were read and are gone, so many are remembered, the last ones."""


@dataclass(frozen=True)
class Look:
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
class Files:
    """Files of a folder (or one file), each read whole and once, oldest first.

    The position is only how many were read; which ones is in the catalog, a row each, and is handed
    in as `seen` by the name of the stream.
    """

    options: FileOptions
    schema: Schema
    finite: bool = True
    rows_per_step: int | None = None
    waits: bool = False
    stream: str = ""
    seen: Mapping[str, SeenFile] = field(default_factory=dict)

    def poll(self, _spark: SparkSession, position: Position) -> Batch | None:
        look = self.look()
        fresh = within_rows(look.fresh[: self.options.files_per_step], self.rows_per_step)
        first = int(position.get("next", 0))
        taken, pieces = self._read(fresh, first)
        read = [SeenFile(t.path, "read", t.mark, first + n) for n, t in enumerate(taken)]
        noted = [*look.changed, *look.renamed, *read]
        if not noted and not look.forgotten:
            return None
        changes = FileChanges(self.stream, noted, look.forgotten)
        return Batch(
            pieces if taken else None,
            {"next": first + len(taken), "noted": int(position.get("noted", 0)) + 1},
            lambda arrival: place_of(taken[(arrival >> PLACE_BITS) - first].path, arrival),
            changes,
        )

    def _read(self, names: Sequence[str], first: int) -> tuple[list[_Marked], Iterable[Tuples]]:
        """The first files that fit into memory together, or one that does not; raises
        UnreadableFile if the very first cannot be read."""
        taken: list[_Marked] = []
        pieces: list[Tuples] = []
        held = 0
        for name in names:
            file = _Marked(name, mark(name))
            rest = read_tuples(name, self.options, self.schema, first + len(taken))
            found = []
            try:
                for piece in rest:
                    found.append(piece)
                    held += piece.table.nbytes
                    if held > HELD_BYTES:
                        break
                else:
                    taken.append(file)
                    pieces += found
                    continue
                if not taken:
                    return [file], itertools.chain(found, rest)
                break
            except FileNotFoundError:
                continue
            except UnreadableFile:
                if not taken:
                    raise
                break
        return taken, pieces

    def look(self) -> Look:
        """What is new in the folder, and what of it is no longer as it was; raises InputError if the
        folder itself is gone."""
        there = list_files(self.options.path)
        folder = Path(self.options.path).resolve()
        if self.seen and not there and not folder.exists() and str(folder) not in self.seen:
            raise InputError(f"the folder {folder} is gone; restore it, or drop the stream")
        by_inode = {_same(file.mark): file for file in self.seen.values() if file.mark}
        fresh, changed, renamed = [], [], []
        for name, now in there.items():
            before = self.seen.get(name)
            if before is None:
                known = by_inode.get(_same(now))
                if known is not None and known.state == "read":
                    renamed.append(replace(known, path=name))
                else:
                    fresh.append(name)
            elif before.state == "aside":
                if before.mark != now:
                    fresh.append(name)
            elif before.state == "read" and before.mark and _content(before.mark) != _content(now):
                changed.append(replace(before, state="changed", mark=now))
        return Look(fresh, changed, renamed, self._too_many(there))

    def _too_many(self, there: Mapping[str, list[int]]) -> list[str]:
        if len(self.seen) - len(there) <= KEPT_GONE * 1.1:
            return []
        gone = [file for name, file in self.seen.items() if name not in there]
        gone.sort(key=lambda file: file.number or 0)
        return [file.path for file in gone[:-KEPT_GONE]]

    def close(self) -> None:
        """Nothing is held open."""


class _Marked(NamedTuple):
    """A file, and what it looked like before it was read."""

    path: str
    mark: list[int] | None


def converted(stream: str, position: Position) -> FileChanges | None:
    """The files that the position of an earlier release lists; None if it lists none."""
    if "files" not in position and "aside" not in position:
        return None
    read = [SeenFile(name, "read", mark(name)) for name in position.get("files", ())]
    aside = [SeenFile(name, "aside", None) for name in position.get("aside", {})]
    return FileChanges(stream, [*read, *aside])


def left_aside(seen: Iterable[SeenFile]) -> list[str]:
    """The files that were set aside and are there as they were."""
    return [file.path for file in seen if file.state == "aside" and file.mark == mark(file.path)]


def mark(name: str) -> list[int] | None:
    """What changes when a file does, or its permissions; None if it is gone."""
    try:
        return _mark_of(Path(name).stat())
    except OSError:
        return None


def _mark_of(there: os.stat_result) -> list[int]:
    return [there.st_mtime_ns, there.st_ctime_ns, there.st_size, there.st_ino]


def _content(mark: Sequence[int]) -> tuple[int, ...]:
    """What changes when the content of a file does."""
    return mark[0], mark[2]


def _same(mark: Sequence[int] | None) -> tuple[int, ...]:
    """What a file keeps under another name."""
    return () if mark is None else (mark[0], mark[2], mark[3])


def list_files(path: str) -> dict[str, list[int]]:
    """Files below a path with their marks, by age and name, each once whatever links lead to it;
    names that begin with a dot or underscore are not data."""
    root = Path(path).resolve()
    if root.is_file():
        return {str(root): _mark_of(root.stat())}
    if not root.is_dir():
        return {}
    found: dict[tuple[int, int], tuple[int, str, list[int]]] = {}
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name[0] not in "._" and entry.is_file():
                there = entry.stat()
                name = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                seen = (there.st_mtime_ns, name, _mark_of(there))
                file = (there.st_dev, there.st_ino)
                found[file] = min(seen, found.get(file, seen))
    return {name: mark for _, name, mark in sorted(found.values())}


# ---- the records of a file


def place_of(name: str, arrival: int) -> str:
    """Where the tuple with an arrival is, for people."""
    return f"{name}, line {arrival & ((1 << PLACE_BITS) - 1)}"


def read_tuples(
    name: str, options: FileOptions | ReplayOptions, schema: Schema, number: int
) -> Iterator[Tuples]:
    """The records of a file, whose number in the order of files makes the arrival with the line.

    Raises UnreadableFile with the mark that the file had before, or FileNotFoundError.
    """
    before = mark(name)
    longest = options.max_line_bytes or LONGEST_LINE
    try:
        for piece in read_file(name, options.format, schema, longest, options.timestamp_unit):
            yield _tuples(piece, name, number)
    except UnreadableFile as error:
        error.mark = before
        raise


def _tuples(piece: Piece, name: str, number: int) -> Tuples:
    begin = number << PLACE_BITS
    lines = piece.table[LINE].to_numpy() + begin
    table = piece.table.drop_columns([LINE]).append_column(ARRIVAL, pa.array(lines, pa.int64()))
    refused = [
        Refused(m.why, m.record, place_of(name, m.line), m.column, begin + m.line)
        for m in piece.misfits
    ]
    return Tuples(table, refused)


# ---- tables


def table_fingerprint(source: Connector) -> str:
    """What tells one content of a stored table from another: the names of its files, with their sizes
    and when they were changed last."""
    found = []
    for name in list_files(file_options(source).path):
        with suppress(FileNotFoundError):  # removed meanwhile: reading the table will say so
            status = Path(name).stat()
            found.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return blake2b("\n".join(sorted(found)).encode(), digest_size=16).hexdigest()


def read_table(spark: SparkSession, source: Connector, schema: Schema) -> DataFrame:
    """A stored table as it is now, with `_arrival` to tell its rows apart; raises InputError.

    Records that cannot be read are passed over.
    """
    options = file_options(source)
    found = tuple((name, *seen) for name, seen in list_files(options.path).items())
    if not found:
        raise InputError(f"the table's path {options.path} holds no file")
    table = _table(found, options, schema)
    if isinstance(table, pa.Table):
        return spark.createDataFrame(gapless(table))
    return spark.read.parquet(str(Path(table.name, "table.parquet")))


@functools.lru_cache(maxsize=64)
def _table(
    files: tuple[tuple[Any, ...], ...], options: FileOptions, schema: Schema
) -> pa.Table | tempfile.TemporaryDirectory[str]:
    """The rows of files as they are at present: a small table in memory, a large one as Parquet in
    a folder that goes with this process. Read again only when a file has changed."""
    pieces = [_tuples(Piece(empty(schema)), "", 0).table]
    try:
        for number, (name, *_) in enumerate(files):
            pieces += (tuples.table for tuples in read_tuples(name, options, schema, number))
    except (UnreadableFile, FileNotFoundError) as error:
        raise InputError(str(error)) from error
    table = pa.concat_tables(pieces)
    if table.nbytes <= HELD_BYTES:
        return table
    folder = tempfile.TemporaryDirectory(prefix="headwater-table-")
    pq.write_table(table, Path(folder.name, "table.parquet"), row_group_size=1_000_000)
    return folder
