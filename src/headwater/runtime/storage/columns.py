"""The columns of a segment file: those that Headwater adds, and the Arrow types of the others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headwater.algebra.types import Type

if TYPE_CHECKING:
    import pyarrow as pa


TIME = "_ts"
"""Event time in microseconds, in every segment of a stream."""


ARRIVAL = "_arrival"
"""Arrival number: the position in the source's own order, in every segment of a stream."""


def arrow_integer(value: int) -> pa.Int64Scalar:
    """An integer for a computation of Arrow."""
    import pyarrow as pa

    # Arrow loads Pandas, which takes as long as Arrow itself, when it converts a value of Python.
    contents = pa.py_buffer(value.to_bytes(8, sys.byteorder, signed=True))
    return pa.Array.from_buffers(pa.int64(), 1, [None, contents])[0]


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a column in a segment."""
    import pyarrow as pa  # slow to import, and not needed by commands that only compile SQL

    if type_.is_decimal:
        return pa.decimal128(type_.precision, type_.scale)
    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "INTERVAL": pa.int64(),
    }.get(type_.name, pa.string())
