"""Files of a folder as a stream, and files as a table: JSON lines, CSV with a header, Parquet."""

from __future__ import annotations

import csv
import functools
import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.algebra.types import Schema, Type
from headwater.cql.statements import Connector
from headwater.errors import InputError
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.connectors import FileOptions, file_options
from headwater.runtime.pacing import within_rows
from headwater.runtime.session import INTERPRETED, derived
from headwater.runtime.sources.base import MALFORMED, WHY, Batch, Position
from headwater.runtime.sources.plain import plain_json
from headwater.runtime.sources.times import read_type, with_times
from headwater.runtime.sparksql import quoted, spark_type, text_sql

SMALL_BYTES = 16_000_000
"""A batch of at most so many bytes passes through the driver, which is quicker."""

WHOLE_BYTES = 4_000_000
"""A file of at most so many bytes is read by one task."""

UNPACKED = ("spark.sql.files.openCostInBytes", str(1 << 27))
"""The setting with which a task reads one file, or one piece of a large one."""

PLACE_BITS = 40
FILE, PLACE = "_file", "_place"
LINE = "_metadata.file_block_start + (monotonically_increasing_id() & 8589934591L)"
"""The place of a line: a task reads one piece of a file, in which no line is shorter than a byte, or
whole files, each from its beginning."""

ASIDE = "aside"
"""Where a position keeps the files that cannot be read, each with its mark."""


@dataclass(frozen=True)
class Files:
    """Files of a folder (or one file), each taken in whole and once, oldest first."""

    options: FileOptions
    schema: Schema
    finite: bool = True
    rows_per_step: int | None = None
    waits: bool = False

    def poll(self, spark: SparkSession, position: Position) -> Batch | None:
        fresh = within_rows(self.fresh(position), self.rows_per_step)
        if not fresh:
            return None
        first = int(position.get("next", 0))
        present = set(list_files(self.options.path))
        names = sorted((set(position.get("files", ())) & present) | set(fresh))
        small = sum(Path(f).stat().st_size for f in fresh) <= SMALL_BYTES
        after = {**position, "files": names, "next": first + len(fresh)}
        position = _without(after, fresh, present)
        if small and self.options.format == "json":
            unit = self.options.timestamp_unit
            table = plain_json(fresh, self.schema, _numbers(first, len(fresh)), unit)
            if table is not None:
                return Batch(None, position, table=table)
        reader = derived(spark, *INTERPRETED) if small else spark
        return Batch(with_arrival(self.read(reader, fresh), fresh, first), position, small)

    def fresh(self, position: Position) -> list[str]:
        """The next files to take in."""
        done, aside = set(position.get("files", ())), position.get(ASIDE, {})
        waiting = (
            name
            for name in list_files(self.options.path)
            if name not in done and (name not in aside or mark(name) != aside[name])
        )
        return list(itertools.islice(waiting, self.options.files_per_step))

    def read(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        """The records of these files, each with the name of its file."""
        unit = self.options.timestamp_unit
        return READERS[self.options.format](spark, names, self.schema, unit)

    def close(self) -> None:
        """Nothing is held open."""


def mark(name: str) -> list[int] | None:
    """What changes when a file does, or its permissions; None if it is gone."""
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_ctime_ns, found.st_size]


def _without(position: Position, taken: Sequence[str], present: set[str]) -> Position:
    """The position without what is no longer set aside."""
    aside = {
        name: kept
        for name, kept in position.get(ASIDE, {}).items()
        if name in present and name not in taken
    }
    return (
        {**position, ASIDE: aside} if aside else {k: v for k, v in position.items() if k != ASIDE}
    )


def list_files(path: str) -> list[str]:
    """Files below a path, by age and name; names that begin with a dot or underscore are not data."""
    root = Path(path)
    if root.is_file():
        return [str(root.resolve())]
    if not root.is_dir():
        return []
    found = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_file() and entry.name[0] not in "._":
                found.append((entry.stat().st_mtime_ns, os.path.realpath(entry.path)))
    return [name for _, name in sorted(found)]


def _numbers(first: int, files: int) -> list[int]:
    """What the arrivals of each file begin with."""
    return [(first + n) << PLACE_BITS for n in range(files)]


def with_arrival(frame: DataFrame, files: Sequence[str], first: int) -> DataFrame:
    """File and place in the file make the arrival."""
    numbers = _numbers(first, len(files))
    file = f"{numbers[0]}L"
    if len(files) > 1:
        pairs = ", ".join(f"{text_sql(f)}, {n}L" for f, n in zip(files, numbers, strict=True))
        name = f"regexp_replace(url_decode(replace({FILE}, '+', '%2B')), '^file:/+', '/')"
        file = f"element_at(map({pairs}), {name})"
    others = [quoted(name) for name in frame.columns if name not in (FILE, PLACE)]
    return frame.selectExpr(*others, f"{file} + {PLACE} AS {ARRIVAL}")


def _placed(frame: DataFrame, columns: Sequence[str], place: str) -> DataFrame:
    return frame.selectExpr(*columns, f"_metadata.file_path AS {FILE}", f"{place} AS {PLACE}")


def _split(schema: Schema) -> tuple[str, list[str]]:
    """The columns as a reader of text takes them, and by their names."""
    columns = [f"{quoted(f.name)} {read_type(f.type)}" for f in schema]
    return ", ".join([*columns, f"{MALFORMED} STRING"]), [quoted(f.name) for f in schema]


def _read_json(
    spark: SparkSession, files: Sequence[str], schema: Schema, unit: str | None
) -> DataFrame:
    columns, names = _split(schema)
    reader = _unpacked(spark, files).read.schema(columns).option("mode", "PERMISSIVE")
    reader = reader.option("columnNameOfCorruptRecord", MALFORMED).option("encoding", "UTF-8")
    frame = reader.json(list(files))
    return with_times(_placed(frame, [*names, MALFORMED], LINE), schema, unit)


def _unpacked(spark: SparkSession, files: Sequence[str]) -> SparkSession:
    """A session in which a task reads one file or piece of a file, where files have pieces."""
    if all(Path(name).stat().st_size <= WHOLE_BYTES for name in files):
        return spark
    return derived(spark, *UNPACKED)


def _read_csv(
    spark: SparkSession, files: Sequence[str], schema: Schema, unit: str | None
) -> DataFrame:
    """Columns go by the header; files with different headers are read apart."""
    by_header: dict[tuple[str, ...], list[str]] = {}
    for name in files:
        by_header.setdefault(_header(name, schema), []).append(name)
    frames = [_read_csv_alike(spark, group, header, schema) for header, group in by_header.items()]
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionByName(frame)
    return with_times(result, schema, unit, blank_is_null=True)


def _header(name: str, schema: Schema) -> tuple[str, ...]:
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as file:
            header = tuple(next(csv.reader(file), ()))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name} cannot be read: {error}") from error
    known = {h.strip().lower() for h in header}
    missing = [f.name for f in schema if f.name.lower() not in known]
    if missing:
        there = ", ".join(header) or "nothing"
        raise InputError(f"{name} has no column {', '.join(missing)}; its header is: {there}")
    return header


def _read_csv_alike(
    spark: SparkSession, files: Sequence[str], header: Sequence[str], schema: Schema
) -> DataFrame:
    columns = []
    for n, name in enumerate(header):
        field = schema.get(name.strip())
        columns.append(
            f"{quoted(field.name)} {read_type(field.type)}" if field else f"`_unused{n}` STRING"
        )
    reader = (
        _unpacked(spark, files)
        .read.schema(", ".join([*columns, f"{MALFORMED} STRING"]))
        .option("header", "true")
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", MALFORMED)
    )
    names = [quoted(f.name) for f in schema]
    return _placed(reader.csv(list(files)), [*names, MALFORMED], LINE)


def _read_parquet(
    spark: SparkSession, files: Sequence[str], schema: Schema, unit: str | None
) -> DataFrame:
    """Columns go by their names; files with different columns or types are read apart."""
    alike: dict[str, list[str]] = {}
    for name in files:
        alike.setdefault(_parquet_columns(name, schema), []).append(name)
    frames = [
        with_times(_read_parquet_alike(spark, group, schema), schema, unit)
        for group in alike.values()
    ]
    return functools.reduce(DataFrame.unionByName, frames)


def _parquet_columns(name: str, schema: Schema) -> str:
    """The columns and types that a file has; raises InputError if one is missing."""
    try:
        there = pq.read_schema(name)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{name} cannot be read as Parquet: {error}") from error
    known = {column.lower() for column in there.names}
    missing = [f.name for f in schema if f.name.lower() not in known]
    if missing:
        raise InputError(
            f"{name} has no column {', '.join(missing)}; it has {', '.join(there.names)}"
        )
    return str(there.remove_metadata())


def _read_parquet_alike(spark: SparkSession, files: Sequence[str], schema: Schema) -> DataFrame:
    """A value that does not fit its column makes its record malformed."""
    frame = spark.read.parquet(*files)
    there = {c.lower(): c for c in frame.columns}
    given = {f.name: F.col(quoted(there[f.name.lower()])) for f in schema}
    sorts = {c.name: c.dataType.typeName() for c in frame.schema}
    columns = {
        f.name: given[f.name].try_cast(_parquet_type(f.type, sorts[there[f.name.lower()]]))
        for f in schema
    }
    misfits = [given[f.name].isNotNull() & columns[f.name].isNull() for f in schema]
    record = F.to_json(F.struct(*(quoted(name) for name in frame.columns)))
    return frame.select(
        *(column.alias(name) for name, column in columns.items()),
        F.when(functools.reduce(Column.__or__, misfits), record).alias(MALFORMED),
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.row_index").alias(PLACE),
    )


def _parquet_type(type_: Type, there: str) -> str:
    """The type that a column is read as: a time that the file has as a text or number stays a text."""
    is_time = there.startswith(("timestamp", "date"))
    return spark_type(type_) if is_time else read_type(type_)


READERS = {"json": _read_json, "csv": _read_csv, "parquet": _read_parquet}


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

    Spark reads the columns that are asked for, and a record that is malformed elsewhere would pass:
    so the condition, which is always met, asks for all.
    """
    options = file_options(source)
    found = list_files(options.path)
    if not found:
        raise InputError(f"the table's path {options.path} holds no file")
    frame = READERS[options.format](spark, found, schema, options.timestamp_unit)
    whole = f"hash({', '.join(quoted(f.name) for f in schema)}) >= {-(2**31)}"
    kept = frame.where(f"{MALFORMED} IS NULL AND {whole}").drop(MALFORMED, WHY)
    return with_arrival(kept, found, 0)
