"""Small files of JSON lines that are as they should be, read by the driver.

Starting a Spark job takes longer than reading such files. Arrow's reader is strict: where it does not
take a file as it is (a value of another type, a broken line, a time in another form), nothing is
read here and Spark, which knows how to refuse single records, reads all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.algebra.times import (
    LARGEST_TIMESTAMP,
    LEAST_TIMESTAMP,
    TIMESTAMP_TEXT,
    TIMESTAMP_UNITS,
)
from headwater.algebra.types import TIMESTAMP, Schema
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.sparksql import arrow_type

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "DECIMAL"),
    *("STRING", "TIMESTAMP"),
)
"""The types whose values in JSON both readers take for the same."""

COMPRESSED = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


def plain_json(
    files: Sequence[str], schema: Schema, arrivals: Sequence[int], unit: str | None = None
) -> pa.Table | None:
    """The records of files with their arrival, counted from the one given for each file; None if
    Spark has to read them. Times are numbers if their unit is given, else texts."""
    if any(f.type.name not in TYPES for f in schema):
        return None
    as_read = pa.int64() if unit else pa.string()
    columns = pa.schema(
        [pa.field(f.name, as_read if f.type == TIMESTAMP else arrow_type(f.type)) for f in schema]
    )
    options = pj.ParseOptions(explicit_schema=columns, unexpected_field_behavior="ignore")
    tables = []
    try:
        for name, first in zip(files, arrivals, strict=True):
            lines = _lines(name)
            if lines is None:
                return None
            if lines:
                table = pj.read_json(pa.BufferReader(b"\n".join(lines)), _WHOLE, options)
                table.validate(full=True)
                if table.num_rows != len(lines):
                    return None
                places = pa.array(range(first, first + len(lines)), pa.int64())
                tables.append(table.select(columns.names).append_column(ARRIVAL, places))
        return _with_times(pa.concat_tables(tables), schema, unit) if tables else None
    except (pa.ArrowException, OSError):
        return None


def _with_times(table: pa.Table, schema: Schema, unit: str | None) -> pa.Table:
    """The table with its times as such; raises ArrowInvalid if one of them is not plain."""
    for field in schema:
        if field.type == TIMESTAMP:
            at, given = table.column_names.index(field.name), table[field.name]
            micros = _from_texts(given) if unit is None else _from_numbers(given, unit)
            bounds = pc.min_max(micros).as_py().values()
            if any(b is not None and not LEAST_TIMESTAMP <= b <= LARGEST_TIMESTAMP for b in bounds):
                raise pa.ArrowInvalid("a time is outside the years 1 to 9999")
            table = table.set_column(at, field.name, micros.cast(arrow_type(TIMESTAMP)))
    return table


def _from_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds since the epoch. Arrow wants to know beforehand whether there is a zone, so those
    without get one."""
    if not pc.all(pc.match_substring_regex(texts, f"^({TIMESTAMP_TEXT})$")).as_py():
        raise pa.ArrowInvalid("a text is not a timestamp")
    zoned = pc.match_substring_regex(texts, ":[0-9.]+(Z|[+-][0-9:]+)$")
    has_clock = pc.match_substring(texts, ":")
    zone = pc.if_else(zoned, "", pc.if_else(has_clock, "Z", "T00:00Z"))
    whole = pc.binary_join_element_wise(texts, zone, "")
    return whole.cast(arrow_type(TIMESTAMP)).cast(pa.int64())


def _from_numbers(numbers: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    """Microseconds since the epoch, for so many units."""
    if unit != "ns":
        return pc.multiply_checked(numbers, int(TIMESTAMP_UNITS[unit]))
    if (pc.min(numbers).as_py() or 0) < 0:
        raise pa.ArrowInvalid("the quotient would be rounded up")
    return pc.divide(numbers, 1000)


_WHOLE = pj.ReadOptions(use_threads=False, block_size=64_000_000)


def _lines(name: str) -> list[bytes] | None:
    """The lines of a file that are not blank; None if one is not an object, to look at."""
    if Path(name).suffix in COMPRESSED:
        return None
    lines = [line for text in Path(name).read_bytes().split(b"\n") if (line := text.strip())]
    if any(line[0] != ord("{") or line[-1] != ord("}") for line in lines):
        return None
    return lines
