"""The columns of a segment file: those that Headwater adds, and the Arrow types of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.algebra.types import Type

if TYPE_CHECKING:
    import pyarrow as pa


TIME = "_ts"
"""Event time in microseconds, in every segment of a stream."""


ARRIVAL = "_arrival"
"""Arrival number: the position in the source's own order, in every segment of a stream."""


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
