"""Results as files of a folder: one file for each segment, named after it.

Sending a segment again replaces the same file, so files hold every row once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.algebra.expressions import Column
from headwater.errors import InputError
from headwater.runtime.connectors.options import FileSinkOptions
from headwater.runtime.connectors.sink_batch import ResultChunk, SinkBatch, csv_lines, json_lines
from headwater.runtime.durability import replace_file


def write_sink_files(options: FileSinkOptions, batch: SinkBatch) -> None:
    """Write a file for each segment; raises InputError if one cannot be written."""
    for chunk in batch.chunks:
        write_sink_file(options, chunk, batch.columns)


def write_sink_file(
    options: FileSinkOptions, chunk: ResultChunk, columns: Sequence[Column]
) -> None:
    """Put the rows of a segment into the folder, as one file that appears complete."""
    target = Path(options.path) / f"{chunk.name}.{options.format}"
    try:
        replace_file(target, _encode_chunk(options.format, chunk, columns))
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from error


def _encode_chunk(format: str, chunk: ResultChunk, columns: Sequence[Column]) -> bytes:
    if format == "parquet":
        content = pa.BufferOutputStream()
        pq.write_table(chunk.table, content)
        return bytes(content.getvalue())
    rows = chunk.rows(columns)
    lines = csv_lines(rows, columns) if format == "csv" else json_lines(rows, columns)
    return "".join(lines).encode()
