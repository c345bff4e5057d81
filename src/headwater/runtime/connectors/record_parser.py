"""Parsing JSON lines, CSV and Parquet into Arrow tables, chunk by chunk, in the driver.

A regular block of text is parsed by Arrow. If anything in it is unusual, the block is split into
smaller ones, and the smallest are parsed record by record by `reference.records`, which defines
what a record means. So the fast path may decline any block, but must never read one differently.
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

from headwater.algebra.times import MIN_TIMESTAMP, TIMESTAMP_UNITS
from headwater.algebra.types import Field, Schema, Type
from headwater.reference.data import check_years, is_compatible, is_number
from headwater.reference.records import (
    BOM,
    MAX_JSON_DEPTH,
    MAX_LINE_BYTES,
    InvalidRecord,
    Record,
    SplitRecords,
    csv_cells,
    csv_columns,
    csv_values,
    json_values,
    split_csv,
    split_json,
    too_long_message,
    value_from_text,
)
from headwater.reference.values import Row
from headwater.runtime.storage.columns import arrow_type

LINE = "_line"
"""The column with the line on which a record begins; in Parquet, its row."""

BLOCK = 1 << 20
MIN_BLOCK = 1 << 15
"""A block of at most this many bytes is not split further to isolate unusual records."""

PARQUET_ROWS = 1 << 16
LINES_PER_BLOCK = 2_000
MAX_SHOWN_BYTES = 2_000
"""How many bytes of a malformed record are kept."""

_DECOMPRESSORS: dict[str, Callable[[str], Any]] = {
    "": lambda name: io.FileIO(name),
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda name: pa.input_stream(name, compression="zstd"),
    ".zstd": lambda name: pa.input_stream(name, compression="zstd"),
    ".lz4": lambda name: pa.input_stream(name, compression="lz4"),
}
_UNSUPPORTED_SUFFIXES = (".snappy", ".deflate", ".zip", ".7z", ".br")


class MalformedRecord(NamedTuple):
    """A malformed record: the line where it begins, the unfit column if any, and why."""

    line: int
    column: str
    reason: str
    record: str


class ParsedChunk(NamedTuple):
    """Parsed records with their lines, and malformed records."""

    table: pa.Table
    malformed: Sequence[MalformedRecord] = ()


class UnreadableFile(Exception):
    """A file that cannot be read to its end, or is not in its declared format."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}")
        self.path = path
        self.reason = reason
        self.mark: list[int] | None = None
        """The mark of the file before it was read."""


def read_file(
    path: str,
    format: str,
    schema: Schema,
    max_line_bytes: int = MAX_LINE_BYTES,
    unit: str | None = None,
) -> Iterator[ParsedChunk]:
    """The records of a file; raises UnreadableFile, or FileNotFoundError.

    `unit` is the unit of timestamps that are written as numbers.
    """
    try:
        if format == "parquet":
            yield from _parquet_chunks(path, schema, unit)
        else:
            with _open_file(path) as file:
                yield from _text_chunks(file, format, schema, max_line_bytes, unit)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        message = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableFile(path, message.splitlines()[0]) from error
    except InvalidRecord as error:
        raise UnreadableFile(path, str(error)) from error


@contextmanager
def _open_file(path: str) -> Iterator[BinaryIO]:
    suffix = Path(path).suffix.lower()
    if suffix in _UNSUPPORTED_SUFFIXES:
        supported = ", ".join(filter(None, _DECOMPRESSORS))
        raise InvalidRecord(
            f"{suffix} files are not supported; decompress it, or compress it as one of {supported}"
        )
    with _DECOMPRESSORS.get(suffix, _DECOMPRESSORS[""])(path) as file:
        yield file


# ---- blocks of whole records


class _TextFormat(Protocol):
    """How records of a format are separated and parsed."""

    def find_record_end(self, data: bytes, final: bool) -> tuple[int, bool]:
        """The end of the last complete record, and whether the fast path may be tried up to it."""

    def split(self, data: bytes, line: int, final: bool, max_line_bytes: int) -> SplitRecords: ...

    def parse_fast(self, block: bytes, line: int) -> pa.Table | None:
        """The records of a block, or None if anything about it is unusual."""

    def values(self, data: bytes) -> Row: ...

    @property
    def schema(self) -> Schema: ...


def _text_chunks(
    file: BinaryIO, format: str, schema: Schema, max_line_bytes: int, unit: str | None
) -> Iterator[ParsedChunk]:
    data, line, used, final = file.read(BLOCK).removeprefix(BOM), 1, 0, False
    text: _TextFormat = _JsonFormat(schema, unit)
    if format == "csv":
        while (
            not (split := split_csv(data, 1, final, max_line_bytes, max_records=1))[0] and not final
        ):
            if len(data) > max_line_bytes:
                raise InvalidRecord(
                    f"has no header: its first line is {too_long_message(max_line_bytes)}"
                )
            new = file.read(BLOCK)
            data, final = data + new, not new
        text, used = _CsvFormat(schema, unit, _parse_header(split[0], schema)), split[1]
    while True:
        line += data.count(b"\n", 0, used)
        data = data[used:]
        used, chunks = _read_records(text, data, line, final, max_line_bytes)
        yield from chunks
        if final:
            return
        # Without this a file without line feeds would be read into memory as one record.
        if len(data) - used > max_line_bytes:
            if used:
                continue
            too_long = Record(line, data, too_long_message(max_line_bytes))
            yield _parse_records(text, [too_long])
            data, line = _skip_line(file), line + 1
        new = file.read(BLOCK)
        line += data.count(b"\n", 0, used)
        data, used, final = data[used:] + new, 0, not new


def _parse_header(records: Sequence[Record], schema: Schema) -> list[str]:
    if records and records[0].fault:
        raise InvalidRecord(f"has no header that can be read: {records[0].fault}")
    return csv_columns(csv_cells(records[0].data) if records else [], schema)


def _skip_line(file: BinaryIO) -> bytes:
    """Skip the rest of a line without keeping it; returns what was read of the next one."""
    while new := file.read(BLOCK):
        if (at := new.find(b"\n")) >= 0:
            return bytes(new[at + 1 :])
    return b""


def _read_records(
    text: _TextFormat, data: bytes, line: int, final: bool, max_line_bytes: int
) -> tuple[int, Iterator[ParsedChunk]]:
    end, is_sound = text.find_record_end(data, final)
    if is_sound and (end or len(data) <= max_line_bytes):
        return end, _block_chunks(text, data[:end], line, max_line_bytes)
    records, end = text.split(data, line, final, max_line_bytes)
    return end, iter([_parse_records(text, records)])


def _block_chunks(
    text: _TextFormat, block: bytes, line: int, max_line_bytes: int
) -> Iterator[ParsedChunk]:
    if not block:
        return
    # A larger block may hold a line that is too long, which Arrow would accept.
    table = text.parse_fast(block, line) if len(block) <= max_line_bytes else None
    if table is not None:
        yield ParsedChunk(table)
        return
    middle = 0
    if len(block) > MIN_BLOCK:
        after_half = block.find(b"\n", len(block) // 2) + 1
        middle = text.find_record_end(block[:after_half], False)[0]
    if 0 < middle < len(block):
        yield from _block_chunks(text, block[:middle], line, max_line_bytes)
        after = line + block.count(b"\n", 0, middle)
        yield from _block_chunks(text, block[middle:], after, max_line_bytes)
    else:
        yield _parse_records(text, text.split(block, line, True, max_line_bytes)[0])


def _parse_records(text: _TextFormat, records: Sequence[Record]) -> ParsedChunk:
    rows: list[Row] = []
    lines: list[int] = []
    malformed: list[MalformedRecord] = []
    for record in records:
        try:
            if record.fault:
                raise InvalidRecord(record.fault)
            rows.append(text.values(record.data))
            lines.append(record.line)
        except InvalidRecord as error:
            malformed.append(_malformed_record(record, error))
    columns = {
        f.name: pa.array([row[n] for row in rows], arrow_type(f.type))
        for n, f in enumerate(text.schema)
    }
    return ParsedChunk(pa.table({**columns, LINE: pa.array(lines, pa.int64())}), malformed)


def _malformed_record(record: Record, error: InvalidRecord) -> MalformedRecord:
    return MalformedRecord(
        record.line,
        error.column,
        error.reason,
        record.data[:MAX_SHOWN_BYTES].decode("utf-8", "replace"),
    )


def empty_table(schema: Schema) -> pa.Table:
    """A table without records, as the parsers return it."""
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
class _JsonFormat:
    """JSON lines: one object per line."""

    schema: Schema
    unit: str | None
    _has_unknown_keys: bool = False
    """Whether there were keys that are not columns; then the spelling of all is checked."""

    def find_record_end(self, data: bytes, final: bool) -> tuple[int, bool]:
        return (len(data) if final else data.rfind(b"\n") + 1), True

    def split(self, data: bytes, line: int, final: bool, max_line_bytes: int) -> SplitRecords:
        return split_json(data, line, final, max_line_bytes)

    def values(self, data: bytes) -> Row:
        return json_values(data, self.schema, self.unit)

    def parse_fast(self, block: bytes, line: int) -> pa.Table | None:
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        trimmed = block.rstrip(b"\r\n")
        ends = max(trimmed.count(b"}\n{"), trimmed.count(b"}\r\n{"))
        # Arrow accepts objects that span lines or share one. Here each line begins and ends like an
        # object, so none holds two and none continues another.
        if ends != lines - 1 or not (trimmed.startswith(b"{") and trimmed.endswith(b"}")):
            return None
        if not _is_utf8(block) or (self._has_decimals and _EXPONENT.search(block)):
            return None
        table = self._parse_block(block)
        if table is None or table.num_rows != lines:
            return None
        return _convert_columns(
            table, self.schema, self.unit, pa.array(range(line, line + lines), pa.int64())
        )

    def _parse_block(self, block: bytes) -> pa.Table | None:
        if not self._has_unknown_keys:
            try:
                return self._read_arrow(block, "error")
            except pa.ArrowInvalid as error:
                if "unexpected field" not in str(error):
                    return None
                self._has_unknown_keys = True
        if self._case_mismatch.search(block) or _most_brackets(block) > MAX_JSON_DEPTH:
            return None
        try:
            return self._read_arrow(block, "ignore")
        except pa.ArrowInvalid:
            return None

    @property
    def _has_decimals(self) -> bool:
        return any(f.type.is_decimal for f in self.schema)

    def _read_arrow(self, block: bytes, others: str) -> pa.Table:
        options = pj.ParseOptions(
            explicit_schema=_json_schema(self.schema, self.unit), unexpected_field_behavior=others
        )
        read_options = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
        table = pj.read_json(pa.BufferReader(block), read_options, options)
        table.validate(full=True)
        return table

    @property
    def _case_mismatch(self) -> re.Pattern[bytes]:
        """A key that is a column in other case, or contains escapes: Arrow would ignore it."""
        names = b"|".join(re.escape(f.name.encode()) for f in self.schema)
        return re.compile(rb'"(?!(?:%b)")(?i:%b)"|\\(?:[^"\\]|\\.)*+"\s*:' % (names, names))


_EXPONENT = re.compile(rb"[0-9][eE][+-]?[0-9]++\s*[,}]")
"""A number with an exponent, which Arrow rounds when the column is a decimal."""


def _most_brackets(block: bytes) -> int:
    """The largest number of brackets that open on one line: an upper bound of the nesting depth."""
    array = np.frombuffer(block, np.uint8)
    opened = np.flatnonzero((array == ord("{")) | (array == ord("[")))
    lines = np.searchsorted(np.flatnonzero(array == ord("\n")), opened)
    return int(np.bincount(lines).max(initial=0))


def _json_schema(schema: Schema, unit: str | None) -> pa.Schema:
    """The types that Arrow reads: timestamps as texts, to check their format, or numbers."""
    times = pa.string() if unit is None else pa.int64()
    as_read = {"FLOAT": pa.float64(), "DATE": pa.string(), "TIMESTAMP": times}
    fields = [pa.field(f.name, as_read.get(f.type.name, arrow_type(f.type))) for f in schema]
    return pa.schema(fields)


# ---- CSV


@dataclass
class _CsvFormat:
    """CSV records with these columns."""

    schema: Schema
    unit: str | None
    columns: list[str]

    def find_record_end(self, data: bytes, final: bool) -> tuple[int, bool]:
        if b'"' not in data:
            return (len(data) if final else data.rfind(b"\n") + 1), True
        array = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(array == ord('"'))
        closed = final and len(quotes) % 2 == 0
        end = len(data) if closed else _last_record_end(data, quotes) + 1
        if final and end < len(data):
            return end, False
        return end, end > 0 and _has_valid_quotes(
            array[:end], quotes[: np.searchsorted(quotes, end)]
        )

    def split(self, data: bytes, line: int, final: bool, max_line_bytes: int) -> SplitRecords:
        return split_csv(data, line, final, max_line_bytes)

    def values(self, data: bytes) -> Row:
        return csv_values(data, self.columns, self.schema, self.unit)

    def parse_fast(self, block: bytes, line: int) -> pa.Table | None:
        # A carriage return by itself ends a line for Arrow, and for the reference it does not.
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
            f.name: values if f.type.name == "STRING" else _empty_to_null(values)
            for f, values in ((self.schema[name], table[n]) for n, name in used.items())
        }
        return _convert_columns(pa.table(columns), self.schema, self.unit, lines)


def _empty_to_null(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """NULL for an empty quoted cell, which Arrow reads as an empty string."""
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def _last_record_end(data: bytes, quotes: np.ndarray[Any, Any]) -> int:
    """The last line feed outside quotes; -1 if there is none."""
    at = data.rfind(b"\n")
    while at >= 0:
        before = int(np.searchsorted(quotes, at))
        if before % 2 == 0:
            return at
        at = data.rfind(b"\n", 0, int(quotes[before - 1]))
    return -1


def _has_valid_quotes(array: np.ndarray[Any, Any], quotes: np.ndarray[Any, Any]) -> bool:
    """Whether each quote begins or ends a cell, or is one of a doubled pair inside it."""
    opening, closing = quotes[0::2], quotes[1::2]
    before = array[opening[opening > 0] - 1]
    after = array[closing[closing < len(array) - 1] + 1]
    begins = np.isin(before, np.frombuffer(b',\n"', np.uint8)).all()
    return bool(begins and np.isin(after, np.frombuffer(b',\r\n"', np.uint8)).all())


def _csv_lines(block: bytes, rows: int, line: int) -> pa.Array | None:
    """The line on which each record of a block begins; None if their number is not `rows`."""
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


# ---- converting columns


_ZONE_PATTERN = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)"
_LOCAL_PATTERN = r"\d{4}-\d\d-\d\d(?:[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?"
_VALUE_PATTERNS = {
    "DATE": r"^\d{4}-\d\d-\d\d$",
    "BOOLEAN": r"^(?i:true|false)$",
    "DECIMAL": r"^-?\d+(?:\.\d+)?$",
    "INTEGER": r"^-?\d+$",
}


def _convert_columns(
    table: pa.Table, schema: Schema, unit: str | None, lines: pa.Array
) -> pa.Table | None:
    """The columns in their types, with the lines; None if a value does not fit or is unusual."""
    columns = {}
    try:
        for f in schema:
            column = _convert_column(table[f.name], f.type, unit)
            if column is None:
                return None
            columns[f.name] = column
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return pa.table({**columns, LINE: lines})


def _convert_column(
    values: pa.ChunkedArray, type_: Type, unit: str | None
) -> pa.ChunkedArray | None:
    """A column in its type; None, or ArrowInvalid, if a value does not fit or is unusual.

    Arrow's casts accept more than the reference does (spaces, signs, other dates), so texts are
    matched with a pattern first.
    """
    target = arrow_type(type_)
    if type_.name == "STRING":
        return values
    if type_.name == "TIMESTAMP":
        micros = _micros_from_texts(values) if unit is None else _micros_from_numbers(values, unit)
        if micros is not None:
            check_years(micros)
        return None if micros is None else pc.cast(micros, target)
    if pa.types.is_string(values.type):
        pattern = _VALUE_PATTERNS.get("INTEGER" if type_.is_integer else type_.name)
        if pattern is not None and not _all_true(pc.match_substring_regex(values, pattern)):
            return None
    if type_.is_floating:
        values = pc.cast(values, pa.float64())
        if not _all_true(pc.is_finite(values)):
            return None
    converted = pc.cast(values, options=pc.CastOptions(target, allow_float_truncate=True))
    # A double that is out of the range of FLOAT becomes infinite.
    if type_.is_floating and not _all_true(pc.is_finite(converted)):
        return None
    if type_.name == "DATE" and not _all_true(pc.greater_equal(converted, _FIRST_DAY)):
        return None
    return converted


_FIRST_DAY = pa.scalar(MIN_TIMESTAMP // 86_400_000_000, pa.int32()).cast(pa.date32())


def _micros_from_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Microseconds since the epoch; None unless all times are written alike in a common format."""
    if _all_true(pc.match_substring_regex(texts, f"^{_LOCAL_PATTERN}$")):
        return pc.cast(pc.cast(texts, pa.timestamp("us")), pa.int64())
    if _all_true(pc.match_substring_regex(texts, f"^{_LOCAL_PATTERN}{_ZONE_PATTERN}$")):
        return pc.cast(pc.cast(texts, pa.timestamp("us", "UTC")), pa.int64())
    return None


def _micros_from_numbers(values: pa.ChunkedArray, unit: str) -> pa.ChunkedArray | None:
    """Microseconds since the epoch for numbers of a unit."""
    if pa.types.is_string(values.type):
        if not _all_true(pc.match_substring_regex(values, _VALUE_PATTERNS["INTEGER"])):
            return None
        values = pc.cast(values, pa.int64())
    if unit != "ns":
        return pc.multiply_checked(values, int(TIMESTAMP_UNITS[unit]))
    # Arrow divides towards zero, which would round times before 1970 up.
    is_nonnegative = _all_true(pc.greater_equal(values, 0))
    return pc.divide(values, 1000) if is_nonnegative else None


def _all_true(condition: pa.ChunkedArray) -> bool:
    """Whether no value is False; NULLs do not count, and there may be no values at all."""
    return pc.all(condition).as_py() is not False


# ---- Parquet


def _parquet_chunks(path: str, schema: Schema, unit: str | None) -> Iterator[ParsedChunk]:
    with pq.ParquetFile(path) as file:
        # Reversed, so that of names that differ in case alone the first one counts.
        by_lower_name = {name.lower(): name for name in reversed(file.schema_arrow.names)}
        missing = [f.name for f in schema if f.name.lower() not in by_lower_name]
        if missing:
            present = ", ".join(file.schema_arrow.names)
            raise InvalidRecord(f"has no column {', '.join(missing)}; it has {present}")
        names = [by_lower_name[f.name.lower()] for f in schema]
        row = 1
        for batch in file.iter_batches(PARQUET_ROWS, columns=names):
            yield _parquet_chunk(batch, names, schema, unit, row)
            row += batch.num_rows


def _parquet_chunk(
    batch: pa.RecordBatch, names: Sequence[str], schema: Schema, unit: str | None, row: int
) -> ParsedChunk:
    columns = {LINE: pa.array(range(row, row + batch.num_rows), pa.int64())}
    unfit: dict[int, InvalidRecord] = {}
    for name, f in zip(names, schema, strict=True):
        columns[f.name], wrong = _convert_parquet_column(batch.column(name), f, unit)
        # Of several values of a row that do not fit, the first one is reported.
        unfit = {**wrong, **unfit}
    table = pa.table(columns).select([*schema.names, LINE])
    if not unfit:
        return ParsedChunk(table)
    malformed = [
        MalformedRecord(
            row + at,
            unfit[at].column,
            unfit[at].reason,
            str(batch.slice(at, 1).to_pylist()[0])[:MAX_SHOWN_BYTES],
        )
        for at in sorted(unfit)
    ]
    fits = pa.array([at not in unfit for at in range(batch.num_rows)])
    return ParsedChunk(table.filter(fits), malformed)


def _convert_parquet_column(
    values: pa.Array, f: Field, unit: str | None
) -> tuple[pa.Array, dict[int, InvalidRecord]]:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if f.type.name == "TIMESTAMP" and is_number(values.type):
        return _timestamps_from_numbers(values, f, unit)
    if not is_compatible(values.type, f.type):
        raise InvalidRecord(f"has {values.type} for {f.type}", f.name)
    try:
        return _cast_parquet(values, f.type), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    converted: list[Any] = []
    unfit: dict[int, InvalidRecord] = {}
    for at in range(len(values)):
        try:
            converted.append(_cast_parquet(values.slice(at, 1), f.type)[0].as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            converted.append(None)
            shown = values[at].cast(pa.string()).as_py()
            unfit[at] = InvalidRecord(f"{shown} does not fit {f.type}", f.name)
    return pa.array(converted, arrow_type(f.type)), unfit


def _timestamps_from_numbers(
    values: pa.Array, f: Field, unit: str | None
) -> tuple[pa.Array, dict[int, InvalidRecord]]:
    """Timestamps from numbers of a unit."""
    converted: list[Any] = []
    unfit: dict[int, InvalidRecord] = {}
    for at, value in enumerate(values.to_pylist()):
        try:
            converted.append(None if value is None else value_from_text(str(value), f.type, unit))
        except InvalidRecord as error:
            converted.append(None)
            unfit[at] = InvalidRecord(error.reason, f.name)
    return pa.array(converted, arrow_type(f.type)), unfit


def _cast_parquet(values: pa.Array, type_: Type) -> pa.Array:
    target = arrow_type(type_)
    exact = {
        "TIMESTAMP": pa.timestamp("us", getattr(values.type, "tz", None)),
        "INTERVAL": pa.duration("us"),
    }
    if type_.name not in exact:
        return values.cast(target)
    truncating = pc.CastOptions(exact[type_.name], allow_time_truncate=True)
    micros = pc.cast(values, options=truncating).cast(pa.int64())
    if type_.name == "TIMESTAMP":
        check_years(micros)
    return micros.cast(target)


# ---- lines and messages


def read_lines(
    values: Sequence[bytes | None], format: str, schema: Schema, unit: str | None = None
) -> ParsedChunk:
    """Parse lines or messages with one record each, CSV without a header.

    The line of a record is its index in the list.
    """
    names = [f.name.lower() for f in schema]
    text: _TextFormat = (
        _JsonFormat(schema, unit) if format == "json" else _CsvFormat(schema, unit, names)
    )
    chunks = [
        _line_chunk(text, values[at : at + LINES_PER_BLOCK], at)
        for at in range(0, len(values), LINES_PER_BLOCK)
    ]
    tables = [chunk.table for chunk in chunks] or [empty_table(schema)]
    return ParsedChunk(pa.concat_tables(tables), [m for chunk in chunks for m in chunk.malformed])


def _line_chunk(text: _TextFormat, values: Sequence[bytes | None], first: int) -> ParsedChunk:
    # A message with a line feed in it would be read as two.
    if all(value and b"\n" not in value and b"\r" not in value for value in values):
        block = b"\n".join(value or b"" for value in values)
        end, is_sound = text.find_record_end(block, True)
        table = text.parse_fast(block, first) if is_sound and end == len(block) else None
        if table is not None and table.num_rows == len(values):
            return ParsedChunk(table)
    return _parse_records(
        text, [_message_record(text, value, n) for n, value in enumerate(values, first)]
    )


def _message_record(text: _TextFormat, value: bytes | None, line: int) -> Record:
    """A message as one record, even if it contains line feeds."""
    if value is None:
        return Record(line, b"(no value)", "has no value")
    if isinstance(text, _JsonFormat):
        return Record(line, value)
    records, _ = split_csv(value, line, True, max(len(value), 1))
    if len(records) == 1:
        return Record(line, records[0].data, records[0].fault)
    return Record(line, value, f"{len(records)} records in one message")
