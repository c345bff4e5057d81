"""Records of JSON lines, CSV and Parquet as Arrow tables, read by the driver piece by piece.

A block of text that is as it should be is read by Arrow. Where anything in it is odd, the block is cut
into smaller ones, and the smallest go record by record through `reference.records`, which says what
a record means. So the fast way may refuse what it likes, but must never read anything differently.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.json as pj
import pyarrow.parquet as pq

from headwater.algebra.times import LEAST_TIMESTAMP, TIMESTAMP_UNITS
from headwater.algebra.types import Field, Schema, Type
from headwater.reference.data import check_years, is_number, is_of_sort
from headwater.reference.records import (
    BOM,
    DEEPEST,
    LONGEST_LINE,
    Record,
    Split,
    Unfit,
    csv_cells,
    csv_columns,
    csv_values,
    from_text,
    json_values,
    split_csv,
    split_json,
    too_long,
)
from headwater.reference.values import Row
from headwater.runtime.sparksql import arrow_type

LINE = "_line"
"""The column with the line on which a record begins; in Parquet, its row."""

BLOCK = 1 << 20
LEAST_BLOCK = 1 << 15
"""A block of at most so many bytes is not cut in two to find what is odd."""

PARQUET_ROWS = 1 << 16
LINES_AT_ONCE = 2_000
SHOWN = 2_000
"""So many bytes of a refused record are kept."""

_UNPACKERS: dict[str, Callable[[str], Any]] = {
    "": lambda name: io.FileIO(name),
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda name: pa.input_stream(name, compression="zstd"),
    ".zstd": lambda name: pa.input_stream(name, compression="zstd"),
    ".lz4": lambda name: pa.input_stream(name, compression="lz4"),
}
_NOT_UNPACKED = (".snappy", ".deflate", ".zip", ".7z", ".br")


class Misfit(NamedTuple):
    """A record that is refused: where it begins, the column to blame if it is one, and why."""

    line: int
    column: str
    why: str
    record: str


class Piece(NamedTuple):
    """Records of a source: those that fit, with their lines, and those that do not."""

    table: pa.Table
    misfits: Sequence[Misfit] = ()


class UnreadableFile(Exception):
    """A file that cannot be read to its end, or is not what its format says."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}")
        self.path = path
        self.why = why
        self.mark: list[int] | None = None
        """What the file looked like before it was read."""


def read_file(
    path: str,
    format: str,
    schema: Schema,
    longest: int = LONGEST_LINE,
    unit: str | None = None,
) -> Iterator[Piece]:
    """The records of a file; raises UnreadableFile, and FileNotFoundError if it is gone. `unit` is
    what numbers that are times count."""
    try:
        if format == "parquet":
            yield from _parquet_pieces(path, schema, unit)
        else:
            with _opened(path) as file:
                yield from _text_pieces(file, format, schema, longest, unit)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableFile(path, said.splitlines()[0]) from error
    except Unfit as error:
        raise UnreadableFile(path, str(error)) from error


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    suffix = Path(path).suffix.lower()
    if suffix in _NOT_UNPACKED:
        known = ", ".join(filter(None, _UNPACKERS))
        raise Unfit(
            f"files packed as {suffix} are not read; unpack it, or pack it as one of {known}"
        )
    with _UNPACKERS.get(suffix, _UNPACKERS[""])(path) as file:
        yield file


# ---- blocks of whole records


class _Text(Protocol):
    """How records of a format are told apart and read."""

    def cut(self, data: bytes, final: bool) -> tuple[int, bool]:
        """How far whole records reach, and whether the fast way may be tried up to there."""

    def split(self, data: bytes, line: int, final: bool, longest: int) -> Split: ...

    def fast(self, block: bytes, line: int) -> pa.Table | None:
        """The records of a block, or None if there is anything odd about it."""

    def values(self, data: bytes) -> Row: ...

    @property
    def schema(self) -> Schema: ...


def _text_pieces(
    file: BinaryIO, format: str, schema: Schema, longest: int, unit: str | None
) -> Iterator[Piece]:
    data, line, used, final = file.read(BLOCK).removeprefix(BOM), 1, 0, False
    text: _Text = _Json(schema, unit)
    if format == "csv":
        while not (found := split_csv(data, 1, final, longest, most=1))[0] and not final:
            if len(data) > longest:
                raise Unfit(f"has no header: its first line is {too_long(longest)}")
            new = file.read(BLOCK)
            data, final = data + new, not new
        text, used = _Csv(schema, unit, _header(found[0], schema)), found[1]
    while True:
        line += data.count(b"\n", 0, used)
        data = data[used:]
        used, pieces = _take(text, data, line, final, longest)
        yield from pieces
        if final:
            return
        if len(data) - used > longest:
            if used:
                continue
            cut = Record(line, data, too_long(longest))
            yield _slow(text, [cut])
            data, line = _behind_line_feed(file), line + 1
        new = file.read(BLOCK)
        line += data.count(b"\n", 0, used)
        data, used, final = data[used:] + new, 0, not new


def _header(records: Sequence[Record], schema: Schema) -> list[str]:
    if records and records[0].fault:
        raise Unfit(f"has no header that can be read: {records[0].fault}")
    return csv_columns(csv_cells(records[0].data) if records else [], schema)


def _behind_line_feed(file: BinaryIO) -> bytes:
    """Pass over the rest of a line without keeping it; returns what was read of the next one."""
    while new := file.read(BLOCK):
        if (at := new.find(b"\n")) >= 0:
            return bytes(new[at + 1 :])
    return b""


def _take(
    text: _Text, data: bytes, line: int, final: bool, longest: int
) -> tuple[int, Iterator[Piece]]:
    end, sound = text.cut(data, final)
    if sound and (end or len(data) <= longest):
        return end, _block_pieces(text, data[:end], line, longest)
    records, end = text.split(data, line, final, longest)
    return end, iter([_slow(text, records)])


def _block_pieces(text: _Text, block: bytes, line: int, longest: int) -> Iterator[Piece]:
    if not block:
        return
    table = text.fast(block, line) if len(block) <= longest else None
    if table is not None:
        yield Piece(table)
        return
    middle = 0
    if len(block) > LEAST_BLOCK:
        near = block.find(b"\n", len(block) // 2) + 1
        middle = text.cut(block[:near], False)[0]
    if 0 < middle < len(block):
        yield from _block_pieces(text, block[:middle], line, longest)
        after = line + block.count(b"\n", 0, middle)
        yield from _block_pieces(text, block[middle:], after, longest)
    else:
        yield _slow(text, text.split(block, line, True, longest)[0])


def _slow(text: _Text, records: Sequence[Record]) -> Piece:
    rows: list[Row] = []
    lines: list[int] = []
    misfits: list[Misfit] = []
    for record in records:
        try:
            if record.fault:
                raise Unfit(record.fault)
            rows.append(text.values(record.data))
            lines.append(record.line)
        except Unfit as error:
            misfits.append(_misfit(record, error))
    columns = {
        f.name: pa.array([row[n] for row in rows], arrow_type(f.type))
        for n, f in enumerate(text.schema)
    }
    return Piece(pa.table({**columns, LINE: pa.array(lines, pa.int64())}), misfits)


def _misfit(record: Record, error: Unfit) -> Misfit:
    return Misfit(
        record.line, error.column, error.why, record.data[:SHOWN].decode("utf-8", "replace")
    )


def empty(schema: Schema) -> pa.Table:
    """No records."""
    fields = [pa.field(f.name, arrow_type(f.type)) for f in schema]
    return pa.schema([*fields, pa.field(LINE, pa.int64())]).empty_table()


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# ---- JSON


@dataclass
class _Json:
    """Lines with an object each."""

    schema: Schema
    unit: str | None
    _has_others: bool = False
    """Whether there were keys that are no columns, which have to be looked at."""

    def cut(self, data: bytes, final: bool) -> tuple[int, bool]:
        return (len(data) if final else data.rfind(b"\n") + 1), True

    def split(self, data: bytes, line: int, final: bool, longest: int) -> Split:
        return split_json(data, line, final, longest)

    def values(self, data: bytes) -> Row:
        return json_values(data, self.schema, self.unit)

    def fast(self, block: bytes, line: int) -> pa.Table | None:
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        trimmed = block.rstrip(b"\r\n")
        ends = max(trimmed.count(b"}\n{"), trimmed.count(b"}\r\n{"))
        # Each line begins and ends as an object does, so none holds two and none continues another.
        if ends != lines - 1 or not (trimmed.startswith(b"{") and trimmed.endswith(b"}")):
            return None
        if not _is_utf8(block) or (self._has_decimals and _EXPONENT.search(block)):
            return None
        table = self._parsed(block)
        if table is None or table.num_rows != lines:
            return None
        return _converted(
            table, self.schema, self.unit, pa.array(range(line, line + lines), pa.int64())
        )

    def _parsed(self, block: bytes) -> pa.Table | None:
        if not self._has_others:
            try:
                return self._arrow(block, "error")
            except pa.ArrowInvalid as error:
                if "unexpected field" not in str(error):
                    return None
                self._has_others = True
        if self._other_case.search(block) or _most_brackets(block) > DEEPEST:
            return None
        try:
            return self._arrow(block, "ignore")
        except pa.ArrowInvalid:
            return None

    @property
    def _has_decimals(self) -> bool:
        return any(f.type.is_decimal for f in self.schema)

    def _arrow(self, block: bytes, others: str) -> pa.Table:
        options = pj.ParseOptions(
            explicit_schema=_json_schema(self.schema, self.unit), unexpected_field_behavior=others
        )
        whole = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
        table = pj.read_json(pa.BufferReader(block), whole, options)
        table.validate(full=True)
        return table

    @property
    def _other_case(self) -> re.Pattern[bytes]:
        """A key that is a column in other letters, or has escapes; Arrow would pass over it."""
        names = b"|".join(re.escape(f.name.encode()) for f in self.schema)
        return re.compile(rb'"(?!(?:%b)")(?i:%b)"|\\(?:[^"\\]|\\.)*+"\s*:' % (names, names))


_EXPONENT = re.compile(rb"[0-9][eE][+-]?[0-9]++\s*[,}]")
"""A number with an exponent, which Arrow rounds where it is to be a decimal."""


def _most_brackets(block: bytes) -> int:
    """The largest number of objects and arrays that begin on one line."""
    array = np.frombuffer(block, np.uint8)
    opened = np.flatnonzero((array == ord("{")) | (array == ord("[")))
    lines = np.searchsorted(np.flatnonzero(array == ord("\n")), opened)
    return int(np.bincount(lines).max(initial=0))


def _json_schema(schema: Schema, unit: str | None) -> pa.Schema:
    """What Arrow reads for each column: times as texts, to see how they are written, or numbers."""
    times = pa.string() if unit is None else pa.int64()
    as_read = {"FLOAT": pa.float64(), "DATE": pa.string(), "TIMESTAMP": times}
    fields = [pa.field(f.name, as_read.get(f.type.name, arrow_type(f.type))) for f in schema]
    return pa.schema(fields)


# ---- CSV


@dataclass
class _Csv:
    """Records of cells, whose columns are known."""

    schema: Schema
    unit: str | None
    columns: list[str]

    def cut(self, data: bytes, final: bool) -> tuple[int, bool]:
        if b'"' not in data:
            return (len(data) if final else data.rfind(b"\n") + 1), True
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == ord('"'))
        closed = final and len(quotes) % 2 == 0
        end = len(data) if closed else _last_end(data, quotes) + 1
        if final and end < len(data):
            return end, False
        return end, end > 0 and _is_sound(array[:end], quotes[: np.searchsorted(quotes, end)])

    def split(self, data: bytes, line: int, final: bool, longest: int) -> Split:
        return split_csv(data, line, final, longest)

    def values(self, data: bytes) -> Row:
        return csv_values(data, self.columns, self.schema, self.unit)

    def fast(self, block: bytes, line: int) -> pa.Table | None:
        if block.count(b"\r") != block.count(b"\r\n") or not _is_utf8(block):
            return None
        names = [str(n) for n in range(len(self.columns))]
        used = {str(self.columns.index(f.name.lower())): f.name for f in self.schema}
        try:
            table = pv.read_csv(
                pa.BufferReader(block),
                pv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
                pv.ParseOptions(newlines_in_values=b'"' in block),
                pv.ConvertOptions(
                    column_types=dict.fromkeys(used, pa.string()),
                    include_columns=list(used),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        lines = _csv_lines(block, table.num_rows, line)
        if lines is None:
            return None
        columns = {
            f.name: values if f.type.name == "STRING" else _without_empty(values)
            for f, values in ((self.schema[name], table[n]) for n, name in used.items())
        }
        return _converted(pa.table(columns), self.schema, self.unit, lines)


def _without_empty(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """NULL for an empty cell with quotes."""
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def _last_end(data: bytes, quotes: np.ndarray[Any, Any]) -> int:
    """The last line feed that is not within quotes; -1 if there is none."""
    at = data.rfind(b"\n")
    while at >= 0:
        before = int(np.searchsorted(quotes, at))
        if before % 2 == 0:
            return at
        at = data.rfind(b"\n", 0, int(quotes[before - 1]))
    return -1


def _is_sound(array: np.ndarray[Any, Any], quotes: np.ndarray[Any, Any]) -> bool:
    """Whether each quote begins or ends a cell, or is one of two that stand for one within it."""
    opening, closing = quotes[0::2], quotes[1::2]
    before = array[opening[opening > 0] - 1]
    after = array[closing[closing < len(array) - 1] + 1]
    begins = np.isin(before, np.frombuffer(b',\n"', np.uint8)).all()
    return bool(begins and np.isin(after, np.frombuffer(b',\r\n"', np.uint8)).all())


def _csv_lines(block: bytes, rows: int, line: int) -> pa.Array | None:
    """The line on which each record of a sound block begins; None if there are more or fewer."""
    if block.count(b"\n") + (not block.endswith(b"\n")) == rows:
        return pa.array(range(line, line + rows), pa.int64())
    array = np.frombuffer(block, np.uint8)
    feeds = np.flatnonzero(array == ord("\n"))
    quotes = np.flatnonzero(array == ord('"'))
    ends = feeds[np.searchsorted(quotes, feeds) % 2 == 0]
    starts = np.concatenate(([0], ends + 1))
    lengths = np.concatenate((ends, [len(block)])) - starts
    first = array[np.minimum(starts, len(block) - 1)]
    filled = starts[(lengths > 1) | ((lengths == 1) & (first != ord("\r")))]
    if len(filled) != rows:
        return None
    return pa.array(line + np.searchsorted(feeds, filled), pa.int64())


# ---- columns that Arrow has read


_ZONE = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)"
_LOCAL = r"\d{4}-\d\d-\d\d(?:[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?"
_SHAPES = {
    "DATE": r"^\d{4}-\d\d-\d\d$",
    "BOOLEAN": r"^(?i:true|false)$",
    "DECIMAL": r"^-?\d+(?:\.\d+)?$",
    "INTEGER": r"^-?\d+$",
}


def _converted(
    table: pa.Table, schema: Schema, unit: str | None, lines: pa.Array
) -> pa.Table | None:
    """The columns in their types, with the lines; None if a value does not fit or is odd."""
    columns = {}
    try:
        for f in schema:
            column = _column(table[f.name], f.type, unit)
            if column is None:
                return None
            columns[f.name] = column
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return pa.table({**columns, LINE: lines})


def _column(values: pa.ChunkedArray, type_: Type, unit: str | None) -> pa.ChunkedArray | None:
    """Raises ArrowInvalid too."""
    target = arrow_type(type_)
    if type_.name == "STRING":
        return values
    if type_.name == "TIMESTAMP":
        micros = _from_texts(values) if unit is None else _from_numbers(values, unit)
        if micros is not None:
            check_years(micros)
        return None if micros is None else pc.cast(micros, target)
    if pa.types.is_string(values.type):
        shape = _SHAPES.get("INTEGER" if type_.is_integer else type_.name)
        if shape is not None and not _all(pc.match_substring_regex(values, shape)):
            return None
    if type_.is_floating:
        values = pc.cast(values, pa.float64())
        if not _all(pc.is_finite(values)):
            return None
    found = pc.cast(values, options=pc.CastOptions(target, allow_float_truncate=True))
    if type_.is_floating and not _all(pc.is_finite(found)):
        return None
    if type_.name == "DATE" and not _all(pc.greater_equal(found, _FIRST_DAY)):
        return None
    return found


_FIRST_DAY = pa.scalar(LEAST_TIMESTAMP // 86_400_000_000, pa.int32()).cast(pa.date32())


def _from_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Microseconds since the epoch; None if not all times are written in one of the usual ways."""
    if _all(pc.match_substring_regex(texts, f"^{_LOCAL}$")):
        return pc.cast(pc.cast(texts, pa.timestamp("us")), pa.int64())
    if _all(pc.match_substring_regex(texts, f"^{_LOCAL}{_ZONE}$")):
        return pc.cast(pc.cast(texts, pa.timestamp("us", "UTC")), pa.int64())
    return None


def _from_numbers(values: pa.ChunkedArray, unit: str) -> pa.ChunkedArray | None:
    """Microseconds since the epoch, for so many units."""
    if pa.types.is_string(values.type):
        if not _all(pc.match_substring_regex(values, _SHAPES["INTEGER"])):
            return None
        values = pc.cast(values, pa.int64())
    if unit != "ns":
        return pc.multiply_checked(values, int(TIMESTAMP_UNITS[unit]))
    is_late = _all(pc.greater_equal(values, 0))  # else the quotient would be rounded up
    return pc.divide(values, 1000) if is_late else None


def _all(holds: pa.ChunkedArray) -> bool:
    return pc.all(holds).as_py() is not False


# ---- Parquet


def _parquet_pieces(path: str, schema: Schema, unit: str | None) -> Iterator[Piece]:
    with pq.ParquetFile(path) as file:
        there = {name.lower(): name for name in reversed(file.schema_arrow.names)}
        missing = [f.name for f in schema if f.name.lower() not in there]
        if missing:
            has = ", ".join(file.schema_arrow.names)
            raise Unfit(f"has no column {', '.join(missing)}; it has {has}")
        names = [there[f.name.lower()] for f in schema]
        row = 1
        for batch in file.iter_batches(PARQUET_ROWS, columns=names):
            yield _parquet_piece(batch, names, schema, unit, row)
            row += batch.num_rows


def _parquet_piece(
    batch: pa.RecordBatch, names: Sequence[str], schema: Schema, unit: str | None, row: int
) -> Piece:
    columns = {LINE: pa.array(range(row, row + batch.num_rows), pa.int64())}
    unfit: dict[int, Unfit] = {}
    for name, f in zip(names, schema, strict=True):
        columns[f.name], wrong = _parquet_column(batch.column(name), f, unit)
        unfit = {**wrong, **unfit}
    table = pa.table(columns).select([*schema.names, LINE])
    if not unfit:
        return Piece(table)
    misfits = [
        Misfit(
            row + at,
            unfit[at].column,
            unfit[at].why,
            str(batch.slice(at, 1).to_pylist()[0])[:SHOWN],
        )
        for at in sorted(unfit)
    ]
    fits = pa.array([at not in unfit for at in range(batch.num_rows)])
    return Piece(table.filter(fits), misfits)


def _parquet_column(
    values: pa.Array, f: Field, unit: str | None
) -> tuple[pa.Array, dict[int, Unfit]]:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if f.type.name == "TIMESTAMP" and is_number(values.type):
        return _counted(values, f, unit)
    if not is_of_sort(values.type, f.type):
        raise Unfit(f"has {values.type} for {f.type}", f.name)
    try:
        return _parquet_cast(values, f.type), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    found: list[Any] = []
    unfit: dict[int, Unfit] = {}
    for at in range(len(values)):
        try:
            found.append(_parquet_cast(values.slice(at, 1), f.type)[0].as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            found.append(None)
            shown = values[at].cast(pa.string()).as_py()
            unfit[at] = Unfit(f"{shown} does not fit {f.type}", f.name)
    return pa.array(found, arrow_type(f.type)), unfit


def _counted(values: pa.Array, f: Field, unit: str | None) -> tuple[pa.Array, dict[int, Unfit]]:
    """Numbers that count units of time."""
    found: list[Any] = []
    unfit: dict[int, Unfit] = {}
    for at, value in enumerate(values.to_pylist()):
        try:
            found.append(None if value is None else from_text(str(value), f.type, unit))
        except Unfit as error:
            found.append(None)
            unfit[at] = Unfit(error.why, f.name)
    return pa.array(found, arrow_type(f.type)), unfit


def _parquet_cast(values: pa.Array, type_: Type) -> pa.Array:
    target = arrow_type(type_)
    exact = {
        "TIMESTAMP": pa.timestamp("us", getattr(values.type, "tz", None)),
        "INTERVAL": pa.duration("us"),
    }
    if type_.name not in exact:
        return values.cast(target)
    cut_off = pc.CastOptions(exact[type_.name], allow_time_truncate=True)
    exactly = pc.cast(values, options=cut_off).cast(pa.int64())
    if type_.name == "TIMESTAMP":
        check_years(exactly)
    return exactly.cast(target)


# ---- lines and messages


def read_lines(
    values: Sequence[bytes | None], format: str, schema: Schema, unit: str | None = None
) -> Piece:
    """Lines or messages with a record each, in CSV without a header; the line is the place in the
    list, from 0 on."""
    names = [f.name.lower() for f in schema]
    text: _Text = _Json(schema, unit) if format == "json" else _Csv(schema, unit, names)
    pieces = [
        _line_piece(text, values[at : at + LINES_AT_ONCE], at)
        for at in range(0, len(values), LINES_AT_ONCE)
    ]
    tables = [piece.table for piece in pieces] or [empty(schema)]
    return Piece(pa.concat_tables(tables), [m for piece in pieces for m in piece.misfits])


def _line_piece(text: _Text, values: Sequence[bytes | None], first: int) -> Piece:
    if all(value and b"\n" not in value and b"\r" not in value for value in values):
        block = b"\n".join(value or b"" for value in values)
        end, sound = text.cut(block, True)
        table = text.fast(block, first) if sound and end == len(block) else None
        if table is not None and table.num_rows == len(values):
            return Piece(table)
    return _slow(text, [_message(text, value, n) for n, value in enumerate(values, first)])


def _message(text: _Text, value: bytes | None, place: int) -> Record:
    """A message as one record, whatever line feeds it has."""
    if value is None:
        return Record(place, b"(no value)", "has no value")
    if isinstance(text, _Json):
        return Record(place, value)
    records, _ = split_csv(value, place, True, max(len(value), 1))
    if len(records) == 1:
        return Record(place, records[0].data, records[0].fault)
    return Record(place, value, f"{len(records)} records in one message")
