"""Rows from files.

A stream or table `name` is read from DIR/name.csv, name.jsonl or name.parquet; the case of the
names of files and columns does not matter. `records` defines what a record of text means: a column
that the schema does not have is ignored, and a value that does not fit its type exactly is refused,
with its location.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.algebra.times import MAX_TIMESTAMP, MIN_TIMESTAMP
from headwater.algebra.types import DATE, INTERVAL, TIMESTAMP, Field, Schema, Type, Value
from headwater.errors import InputError
from headwater.reference.records import (
    BOM,
    InvalidRecord,
    Record,
    csv_cells,
    csv_columns,
    csv_values,
    json_values,
    split_csv,
    split_json,
    value_from_text,
)
from headwater.reference.values import Row

LocatedRow = tuple[str, Row | InvalidRecord]
"""The location of a record, and its values or the reason why they do not fit."""


def load_rows(
    directory: str | Path,
    name: str,
    schema: Schema,
    *,
    time: str | None = None,
    timestamp_unit: str | None = None,
) -> list[Row]:
    """The rows of the file of that name, in its order, with values in the order of the schema;
    `time` names the event-time column, which is never NULL, and `timestamp_unit` is the unit of
    numbers that are times (s, ms, us or ns). Raises InputError if there is no such file or more
    than one, and for a value that does not fit, with its location."""
    path = _find_file(Path(directory), name)
    required = {field.name.lower() for field in schema if not field.nullable}
    if time is not None:
        required.add(schema[time].name.lower())
    rows = []
    for location, row in read_records(path, schema, timestamp_unit):
        if isinstance(row, InvalidRecord):
            comma = "," if row.column else ":"
            raise InputError(f"{path}, {location}{comma} {row}")
        for field, value in zip(schema, row, strict=True):
            if value is None and field.name.lower() in required:
                raise InputError(f"{path}, {location}, column {field.name}: NULL is not allowed")
        rows.append(row)
    return rows


def read_records(path: Path, schema: Schema, unit: str | None = None) -> Iterator[LocatedRow]:
    """Each record of a file; raises InputError if the file as a whole does not fit."""
    try:
        yield from _READERS[path.suffix.lower()](path, schema, unit)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _find_file(directory: Path, name: str) -> Path:
    try:
        files = sorted(path for path in directory.iterdir() if path.is_file())
    except OSError as error:
        raise InputError(f"{directory} cannot be read: {error.strerror}") from None
    readable = [path for path in files if path.suffix.lower() in _READERS]
    matches = [path for path in readable if path.stem.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        both = " and ".join(path.name for path in matches)
        raise InputError(f"{directory} has {both}: which is {name}?")
    holds = ", ".join(path.name for path in files[:12]) + (", ..." if len(files) > 12 else "")
    raise InputError(
        f"{directory} has no {name}.csv, {name}.jsonl or {name}.parquet; "
        f"it holds {holds or 'no files'}"
    )


# ---- text


def _read_csv(path: Path, schema: Schema, unit: str | None) -> Iterator[LocatedRow]:
    records, _ = split_csv(path.read_bytes().removeprefix(BOM), 1, final=True)
    if not records:
        raise InputError(f"{path} is empty: a line with the names of the columns is missing")
    head, *others = records
    try:
        if head.fault:
            raise InvalidRecord(f"has no header that can be read: {head.fault}")
        columns = csv_columns(csv_cells(head.data), schema)
    except InvalidRecord as error:
        raise InputError(f"{path} {error}") from None
    for record in others:
        yield (
            f"line {record.line}",
            _values(record, lambda r: csv_values(r.data, columns, schema, unit)),
        )


def _read_jsonl(path: Path, schema: Schema, unit: str | None) -> Iterator[LocatedRow]:
    records, _ = split_json(path.read_bytes().removeprefix(BOM), 1, final=True)
    for record in records:
        yield f"line {record.line}", _values(record, lambda r: json_values(r.data, schema, unit))


def _values(record: Record, read: Callable[[Record], Row]) -> Row | InvalidRecord:
    try:
        return InvalidRecord(record.fault) if record.fault else read(record)
    except InvalidRecord as error:
        return error


# ---- Parquet


def _read_parquet(path: Path, schema: Schema, unit: str | None) -> Iterator[LocatedRow]:
    table = pq.read_table(path)
    try:
        columns = [_from_arrow(table[name], f, unit) for f, name in _parquet_columns(table, schema)]
    except InvalidRecord as error:
        raise InputError(f"{path} {error}") from None
    for number, row in enumerate(zip(*columns, strict=True), 1):
        unfit = next((value for value in row if isinstance(value, InvalidRecord)), None)
        yield f"row {number}", row if unfit is None else unfit


def _parquet_columns(table: pa.Table, schema: Schema) -> list[tuple[Field, str]]:
    present = [name.lower() for name in table.column_names]
    missing = [f.name for f in schema if f.name.lower() not in present]
    if missing:
        has = ", ".join(table.column_names)
        raise InvalidRecord(f"has no column {', '.join(missing)}; it has {has}")
    return [(f, table.column_names[present.index(f.name.lower())]) for f in schema]


def _from_arrow(values: Any, field: Field, unit: str | None) -> list[Any]:
    """The values of a column, with an InvalidRecord for each that does not fit; raises
    InvalidRecord if the type of the column is not compatible. Digits of a time beyond microseconds
    are cut off."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if field.type == TIMESTAMP and is_number(kind):
        return [_timestamp_from_number(value, field, unit) for value in values.to_pylist()]
    if not is_compatible(kind, field.type):
        raise InvalidRecord(f"has {kind} for {field.type}", field.name)
    # The whole column at once; one by one only to find which values fail.
    try:
        return _cast(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [_cast_single(value, kind, field) for value in values]


def _timestamp_from_number(value: Any, field: Field, unit: str | None) -> Any:
    """A number of units of time as a timestamp; an InvalidRecord if it does not fit."""
    try:
        return None if value is None else value_from_text(str(value), field.type, unit)
    except InvalidRecord as error:
        return InvalidRecord(error.reason, field.name)


def _cast_single(value: Any, kind: Any, field: Field) -> Any:
    try:
        return _cast(pa.chunked_array([[value]], kind), field.type)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        shown = value.cast(pa.string()).as_py()
        return InvalidRecord(f"{shown} does not fit {field.type}", field.name)


def _cast(values: Any, type_: Type) -> list[Value]:
    if type_ == TIMESTAMP:
        zone = getattr(values.type, "tz", None)
        values = _to_micros(values, pa.timestamp("us", zone))
        check_years(values)
    elif type_ == DATE:
        values = values.cast(pa.date32()).cast(pa.int32())
    elif type_ == INTERVAL:
        values = _to_micros(values, pa.duration("us"))
    else:
        values = values.cast(_ARROW_TYPES.get(type_.name) or _arrow_decimal(type_))
    return list(values.to_pylist())


def _to_micros(values: Any, target: Any) -> Any:
    return pc.cast(values, options=pc.CastOptions(target, allow_time_truncate=True)).cast(
        pa.int64()
    )


def check_years(micros: Any) -> None:
    """Raises ArrowInvalid for a time that is outside the years 1 to 9999 in UTC."""
    for bound in pc.min_max(micros).as_py().values():
        if bound is not None and not MIN_TIMESTAMP <= bound <= MAX_TIMESTAMP:
            raise pa.ArrowInvalid(f"{bound} us is outside the years 1 to 9999")


def is_number(kind: pa.DataType) -> bool:
    """Whether a type of Arrow is a number type that may hold times in some unit."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _arrow_decimal(type_: Type) -> Any:
    return pa.decimal128(type_.precision, type_.scale)


def is_compatible(kind: pa.DataType, type_: Type) -> bool:
    """Whether values of a type of Arrow can be values of a column's type."""
    return any(fits(kind) for fits in _ARROW_TYPE_CHECKS[_type_group(type_)])


def _type_group(type_: Type) -> str:
    return "INTEGER" if type_.is_integer else "FLOATING" if type_.is_floating else type_.name


_ARROW_TYPE_CHECKS: dict[str, tuple[Callable[[Any], bool], ...]] = {
    # A column of NULLs alone has the type null, which fits everywhere.
    "BOOLEAN": (pa.types.is_boolean, pa.types.is_null),
    "INTEGER": (pa.types.is_integer, pa.types.is_null),
    "FLOATING": (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_null,
    ),
    "DECIMAL": (pa.types.is_integer, pa.types.is_decimal, pa.types.is_null),
    "STRING": (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_null,
    ),
    "DATE": (pa.types.is_date, pa.types.is_null),
    "TIMESTAMP": (pa.types.is_timestamp, pa.types.is_date, pa.types.is_null),
    "INTERVAL": (pa.types.is_duration, pa.types.is_null),
}
_ARROW_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
}

_READERS: dict[str, Callable[[Path, Schema, str | None], Iterator[LocatedRow]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
