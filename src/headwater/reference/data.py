"""Rows from files and back to text.

A stream or table `name` is read from DIR/name.csv, name.jsonl or name.parquet; the case of names
does not matter, of files nor of columns. CSV has a line of column names, and an empty cell is NULL
(so CSV has no empty text). In JSON lines a missing key is NULL. Times are ISO 8601, UTC where no zone
is given; numbers are times where their unit is given. A column that the schema does not have is refused, and so is every value that does not fit
its type exactly; the error says where it is.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.algebra.times import (
    LARGEST_TIMESTAMP,
    LEAST_TIMESTAMP,
    format_timestamp,
    parse_date,
    parse_timestamp,
)
from headwater.algebra.types import BOOLEAN, DATE, INTERVAL, STRING, TIMESTAMP, Schema, Type, Value
from headwater.algebra.windows import duration
from headwater.errors import AlgebraError, InputError, nearest
from headwater.reference.casts import date_text
from headwater.reference.values import Row, fit, limits, single, within

_SPECIAL = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}


class Unfit(AlgebraError):
    """A value that its column cannot hold; says why."""


def load(
    directory: str | Path,
    name: str,
    schema: Schema,
    *,
    time: str | None = None,
    timestamp_unit: str | None = None,
) -> list[Row]:
    """The rows of the file of that name in the order they stand there, with values in the order of
    the schema; `time` names the event-time column, which is never NULL, and `timestamp_unit` is what
    numbers that are times count (s, ms, us or ns). Raises InputError if there
    is no such file or more than one, and for a value that does not fit, naming its place."""
    path = _find(Path(directory), name)
    required = {field.name.lower() for field in schema if not field.nullable}
    if time is not None:
        required.add(schema[time].name.lower())
    rows = []
    try:
        for place, row in _READERS[path.suffix.lower()](path, schema, timestamp_unit):
            for field, value in zip(schema, row, strict=True):
                if value is None and field.name.lower() in required:
                    raise InputError(f"{path}, {place}, column {field.name}: NULL is not allowed")
            rows.append(row)
    except (OSError, UnicodeDecodeError, csv.Error, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    return rows


def _find(directory: Path, name: str) -> Path:
    try:
        files = sorted(path for path in directory.iterdir() if path.is_file())
    except OSError as error:
        raise InputError(f"{directory} cannot be read: {error.strerror}") from None
    known = [path for path in files if path.suffix.lower() in _READERS]
    found = [path for path in known if path.stem.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(path.name for path in found)
        raise InputError(f"{directory} has {both}: which is {name}?")
    holds = ", ".join(path.name for path in files[:12]) + (", ..." if len(files) > 12 else "")
    raise InputError(
        f"{directory} has no {name}.csv, {name}.jsonl or {name}.parquet; "
        f"it holds {holds or 'no files'}"
    )


def _columns(names: Sequence[str], schema: Schema, place: str) -> list[str]:
    """The names in lower case; raises InputError for one that the schema has not, or twice."""
    for i, name in enumerate(names):
        if schema.get(name) is None:
            raise InputError(f"{place}: no column {name!r}; {nearest(name, schema.names)}")
        if name.lower() in [other.lower() for other in names[:i]]:
            raise InputError(f"{place}: column {name} comes twice")
    return [name.lower() for name in names]


def _row(
    cells: Mapping[str, Any], schema: Schema, read: Callable[[Any, Type], Value], place: str
) -> Row:
    """The cells (by lower-case name) as values; None and what is missing are NULL."""
    row: list[Value] = []
    for field in schema:
        cell = cells.get(field.name.lower())
        try:
            row.append(None if cell is None else read(cell, field.type))
        except Unfit as error:
            raise InputError(f"{place}, column {field.name}: {error}") from None
    return tuple(row)


# ---- CSV


def _read_csv(path: Path, schema: Schema, unit: str | None) -> Iterator[tuple[str, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = next(reader, None)
        if not header:
            raise InputError(f"{path}, line 1: a line with the names of the columns is missing")
        names = _columns([name.strip() for name in header], schema, f"{path}, line 1")
        for cells in reader:
            if not cells:
                continue
            place = f"line {reader.line_num}"
            if len(cells) != len(names):
                raise InputError(
                    f"{path}, {place}: {len(cells)} cells for the {len(names)} columns of line 1"
                )
            given = {n: cell for n, cell in zip(names, cells, strict=True) if cell != ""}
            yield place, _row(given, schema, partial(from_text, unit=unit), f"{path}, {place}")


def from_text(text: str, type_: Type, unit: str | None = None) -> Value:
    """A text as a value of a type, as CSV has it; raises Unfit."""
    if type_ == STRING:
        return text
    word = text.strip()
    try:
        if type_.is_numeric and "_" in word:
            raise ValueError(word)
        if type_ == BOOLEAN:
            return {"true": True, "false": False}[word.lower()]
        if type_.is_integer:
            return _integer(int(word), type_)
        if type_.is_floating:
            return _double(word, type_)
        if type_.is_decimal:
            return _decimal(Decimal(word), type_)
    except (KeyError, ValueError, InvalidOperation):
        raise Unfit(f"{text!r} is no {type_}") from None
    return _moment(text, type_, unit)


def _integer(value: int, type_: Type) -> int:
    if within(value, type_) is None:
        least, largest = limits(type_)
        raise Unfit(f"{value} is outside {type_}, {least} to {largest}")
    return value


def _double(text: str, type_: Type) -> float:
    special = _SPECIAL.get(text.lower())
    if special is None and not math.isfinite(float(text)):
        raise ValueError(text)
    value = float(text) if special is None else special
    return single(value) if type_.name == "FLOAT" else value


def _decimal(value: Decimal, type_: Type) -> Decimal:
    fitted = fit(value, type_)
    if fitted is None or fitted != value:
        raise Unfit(f"{value} does not fit {type_}")
    return fitted


def _moment(text: str, type_: Type, unit: str | None) -> int:
    try:
        if type_ == TIMESTAMP:
            return parse_timestamp(text, unit)
        if type_ == DATE:
            return parse_date(text)
    except AlgebraError as error:
        raise Unfit(str(error)) from None
    raise Unfit(f"a {type_} is not read from text")


# ---- JSON lines


def _read_jsonl(path: Path, schema: Schema, unit: str | None) -> Iterator[tuple[str, Row]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            place = f"line {number}"
            if not line.strip():
                continue
            try:
                pairs = json.loads(
                    line, parse_float=Decimal, parse_constant=str, object_pairs_hook=_Pairs
                )
            except ValueError as error:
                raise InputError(f"{path}, {place}: not JSON: {error}") from None
            if not isinstance(pairs, _Pairs):
                raise InputError(f"{path}, {place}: not a JSON object: {line.strip()[:60]}")
            names = _columns([key for key, _ in pairs], schema, f"{path}, {place}")
            cells = dict(zip(names, (value for _, value in pairs), strict=True))
            yield place, _row(cells, schema, partial(from_json, unit=unit), f"{path}, {place}")


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of a JSON object, doubled keys and all."""


def from_json(value: Any, type_: Type, unit: str | None = None) -> Value:
    """A number, text or truth value as a value of a type; raises Unfit."""
    if type_ == BOOLEAN:
        fits = isinstance(value, bool)
    elif type_.is_integer:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif type_.is_numeric or type_ == TIMESTAMP:
        fits = isinstance(value, int | Decimal | str) and not isinstance(value, bool)
    else:
        fits = isinstance(value, str)
    if not fits:
        raise Unfit(f"{_shown(value)} is no {type_}")
    return value if isinstance(value, bool) else from_text(str(value), type_, unit)


def _shown(value: Any) -> str:
    if isinstance(value, _Pairs):
        return "an object"
    if isinstance(value, Decimal):
        return str(value)
    return "an array" if isinstance(value, list) else json.dumps(value, default=str)


# ---- Parquet


def _read_parquet(path: Path, schema: Schema, unit: str | None) -> Iterator[tuple[str, Row]]:
    table = pq.read_table(path)
    names = _columns(table.column_names, schema, str(path))
    columns: dict[str, list[Value]] = {}
    for name, values in zip(names, table.columns, strict=True):
        field = schema[name]
        try:
            columns[name] = _from_arrow(values, field.type, unit)
        except Unfit as error:
            raise InputError(f"{path}, column {field.name}: {error}") from None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            where = _first_unfit(values, field.type, field.name, unit)
            raise InputError(f"{path}, {where}") from None
    missing: list[Value] = [None] * table.num_rows
    ordered = [columns.get(field.name.lower(), missing) for field in schema]
    for number, row in enumerate(zip(*ordered, strict=True), 1):
        yield f"row {number}", row


def _from_arrow(values: Any, type_: Type, unit: str | None) -> list[Value]:
    """Raises ArrowInvalid if a value does not fit, Unfit if the types are of different sorts."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if type_ == TIMESTAMP and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return [None if v is None else _moment(str(v), type_, unit) for v in values.to_pylist()]
    if not any(fits(kind) for fits in _ARROW_SORTS[_sort(type_)]):
        raise Unfit(f"the file has {kind}, the schema {type_}")
    if type_ == TIMESTAMP:
        values = values.cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(pa.int64())
        _check_years(values)
    elif type_ == DATE:
        values = values.cast(pa.date32()).cast(pa.int32())
    elif type_ == INTERVAL:
        values = values.cast(pa.duration("us")).cast(pa.int64())
    else:
        values = values.cast(_ARROW_TYPES.get(type_.name) or _arrow_decimal(type_))
    return list(values.to_pylist())


def _check_years(micros: Any) -> None:
    least, largest = pc.min_max(micros).as_py().values()
    for found in (least, largest):
        if found is not None and not LEAST_TIMESTAMP <= found <= LARGEST_TIMESTAMP:
            raise Unfit(f"{found} us is outside the years 1 to 9999 in UTC")


def _arrow_decimal(type_: Type) -> Any:
    return pa.decimal128(type_.precision, type_.scale)


def _first_unfit(values: Any, type_: Type, column: str, unit: str | None) -> str:
    for number, value in enumerate(values, 1):
        try:
            _from_arrow(pa.chunked_array([[value]], values.type), type_, unit)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            shown = value.cast(pa.string()).as_py()
            return f"row {number}, column {column}: {shown} does not fit {type_}"
    return f"column {column}: {values.type} does not fit {type_}"


def _sort(type_: Type) -> str:
    return "INTEGER" if type_.is_integer else "FLOATING" if type_.is_floating else type_.name


_ARROW_SORTS: dict[str, tuple[Callable[[Any], bool], ...]] = {
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

_READERS: dict[str, Callable[[Path, Schema, str | None], Iterator[tuple[str, Row]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


# ---- to text


def to_text(value: Value, type_: Type, null: str = "NULL") -> str:
    """The value as a person reads it: times in ISO form, decimals exact, lengths of time with
    their unit, NULL as `null`. All but those lengths are read back by `load`."""
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int):
        return _moment_text(value, type_)
    return value


def _moment_text(value: int, type_: Type) -> str:
    if type_ == TIMESTAMP:
        return format_timestamp(value)
    if type_ == DATE:
        return date_text(value)
    if type_ == INTERVAL:
        return ("-" if value < 0 else "") + duration(abs(value))
    return str(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def to_json(value: Value, type_: Type) -> bool | int | float | str | None:
    """What `json.dumps` writes for the value. A decimal is a number if the number written is exactly
    it, else a text (as one of 20 digits is); NaN, infinities and times are the texts of `to_text`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Decimal):
        if value == value.to_integral_value():
            return int(value)
        number = float(value)
        return number if Decimal(repr(number)) == value else f"{value:f}"
    if isinstance(value, float):
        return value if math.isfinite(value) else _float_text(value)
    return value if type_.is_integer else _moment_text(value, type_)


def csv_line(fields: Iterable[str | None]) -> str:
    """A line of CSV: NULL is an empty field, and an empty text has quotes."""
    return ",".join("" if text is None else _quoted(text) for text in fields) + "\n"


def _quoted(text: str) -> str:
    if text and not set(text) & set(',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
