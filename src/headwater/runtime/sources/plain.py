"""Small files of JSON lines that are as they should be, read by the driver.

Starting a Spark job takes longer than reading such files. Arrow's reader is strict: where it does not
take a file as it is (a value of another type, a broken line, a time in another form), nothing is
read here and Spark, which knows how to refuse single records, reads all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from headwater.algebra.types import Schema
from headwater.runtime.compile import ARRIVAL
from headwater.runtime.sparksql import arrow_type

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "DECIMAL"),
    *("STRING", "TIMESTAMP"),
)
"""The types whose values in JSON both readers take for the same."""

COMPRESSED = (".gz", ".bz2", ".deflate", ".lz4", ".snappy", ".zst", ".zstd", ".xz")


def plain_json(files: Sequence[str], schema: Schema, arrivals: Sequence[int]) -> pa.Table | None:
    """The records of files with their arrival, counted from the one given for each file; None if
    Spark has to read them."""
    if any(f.type.name not in TYPES for f in schema):
        return None
    columns = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in schema])
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
    except (pa.ArrowException, OSError):
        return None
    return pa.concat_tables(tables) if tables else None


_WHOLE = pj.ReadOptions(use_threads=False, block_size=64_000_000)


def _lines(name: str) -> list[bytes] | None:
    """The lines of a file that are not blank; None if one is not an object, to look at."""
    if Path(name).suffix in COMPRESSED:
        return None
    lines = [line for text in Path(name).read_bytes().split(b"\n") if (line := text.strip())]
    if any(line[0] != ord("{") or line[-1] != ord("}") for line in lines):
        return None
    return lines
