"""What a sink is given to send: the rows of a query, segment by segment, and their text forms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.algebra.expressions import Column
from headwater.algebra.times import format_timestamp
from headwater.reference import Result
from headwater.reference.formatting import csv_line, to_json, to_text
from headwater.runtime.catalog import ORIGIN_KEY, QueryRow, Segment
from headwater.runtime.results import reader
from headwater.runtime.storage.paths import file_name


@dataclass(frozen=True)
class ResultChunk:
    """The rows of a query in one segment."""

    query: QueryRow
    segment: Segment
    table: pa.Table

    @property
    def name(self) -> str:
        """The same whenever the segment is sent, and no other segment's."""
        return f"{file_name(self.query.name)}-{self._origin_unit}-{self.segment.first_seq:09}"

    @property
    def _origin_unit(self) -> str:
        """The unit that wrote the segment, which is not the query's if that was moved."""
        return str((self.segment.keys or {}).get(ORIGIN_KEY, self.query.unit_id))

    def row_ids(self) -> list[str]:
        """A name for each row that stays the same when it is sent again."""
        start = f"{self.query.name}:{self._origin_unit}:{self.segment.first_seq}"
        return [f"{start}:{row}" for row in range(self.table.num_rows)]

    def rows(self, columns: Sequence[Column]) -> list[Result]:
        return reader.typed_results(self.table, columns)


@dataclass(frozen=True)
class SinkBatch:
    """Rows to be sent together, in order; `again` says that sending them, or some of them, failed
    before."""

    chunks: Sequence[ResultChunk]
    columns: Sequence[Column]
    spark: SparkSession
    again: bool = False


# ---- text forms


def json_line(result: Result, columns: Sequence[Column]) -> str:
    """A row as `headwater results` prints it, without the name of the query."""
    values = {
        column.name: to_json(value, column.type)
        for value, column in zip(result.values, columns, strict=True)
    }
    return json.dumps({**values, "_tau": format_timestamp(result.tau)}, ensure_ascii=False)


def json_lines(rows: Sequence[Result], columns: Sequence[Column]) -> Iterator[str]:
    return (json_line(row, columns) + "\n" for row in rows)


def csv_lines(rows: Sequence[Result], columns: Sequence[Column]) -> Iterator[str]:
    yield csv_line([*(column.name for column in columns), "_tau"])
    for result in rows:
        texts = [
            None if value is None else to_text(value, column.type)
            for value, column in zip(result.values, columns, strict=True)
        ]
        yield csv_line([*texts, format_timestamp(result.tau)])
