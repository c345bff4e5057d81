"""Reading a query's results: its rows of the unit's log, with its own column names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.algebra.expressions import Column
from headwater.algebra.types import Type, Value
from headwater.reference import Result
from headwater.reuse.row_classes import (
    ROW_CLASS_COLUMN,
    SHAPE_COLUMN,
    SOLE_SUBSCRIBER,
    Subscriber,
    item_column,
)
from headwater.runtime.catalog import Catalog, QueryRow, Segment
from headwater.runtime.results.subscribers import SEQ, subscriber_of, unread_segments
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import arrow_integer

ResultRow = dict[str, Value]


def read(catalog: Catalog, query: QueryRow, after: int = 0) -> tuple[pa.Table, int]:
    """The results after a sequence number, and the number to continue from.

    The columns are those of the query, then `_tau`. There are no results while the end of the query
    is unknown: rows after it might be among them.
    """
    batches = list(read_by_segment(catalog, query, after))
    tables = [table for table, _ in batches if table.num_rows]
    end = batches[-1][1] if batches else after
    return (
        segment_files.drop_empty_batches(pa.concat_tables(tables)) if tables else pa.table({}),
        end,
    )


def read_by_segment(
    catalog: Catalog, query: QueryRow, after: int
) -> Iterator[tuple[pa.Table, int]]:
    """The results after a sequence number by segment, each with the number to continue from.

    Maintenance does not wait for readers: a segment that was compacted or has expired since it was
    looked up is looked up again.
    """
    missing = None
    while True:
        query, segments = unread_segments(catalog, query, after)
        if not segments:
            return
        for segment in segments:
            try:
                table = read_segment(catalog, query, segment, after)
            except FileNotFoundError:
                if segment.id == missing:  # the catalog still names it: the file is really lost
                    raise
                missing = segment.id
                break
            after = segment.seq
            yield table, after


def rows(table: pa.Table) -> Iterator[ResultRow]:
    """The rows of a result table, one dict each."""
    for batch in table.to_batches():
        yield from batch.to_pylist()


def typed_results(table: pa.Table, columns: Sequence[Column]) -> list[Result]:
    """The rows of a result table with the values of the algebra, in order."""
    if not table.num_rows:
        return []
    tau = table["_tau"].cast(pa.int64()).to_pylist()
    values = [_column_values(table[column.name], column.type) for column in columns]
    return [Result(t, row) for t, row in zip(tau, zip(*values, strict=True), strict=True)]


def _column_values(column: pa.ChunkedArray, type_: Type) -> list[Value]:
    if type_.is_decimal:
        column = column.cast(pa.decimal128(type_.precision, type_.scale))
    elif type_.name in ("TIMESTAMP", "INTERVAL"):
        column = column.cast(pa.int64())
    elif type_.name == "DATE":
        column = column.cast(pa.int32())
    return list(column.to_pylist())


def read_segment(catalog: Catalog, query: QueryRow, segment: Segment, after: int = 0) -> pa.Table:
    """The results of a query in a segment of its unit's log, without those up to a sequence number.

    In a compacted segment that begins before that number, each row has its original number.
    """
    subscriber = subscriber_of(catalog, query, segment) if segment.rows else None
    if subscriber is None:
        return pa.table({})
    table = segment_files.read_arrow(segment)
    if segment.first_seq <= after:
        table = table.filter(pc.greater(table[SEQ], arrow_integer(after)))
    tau = table["_tau"]
    mask = subscriber_mask(table, subscriber)
    if query.start_at is not None:
        after = pc.greater(tau, arrow_integer(query.start_at))
        mask = after if mask is None else pc.and_(mask, after)
    if query.end_at is not None:
        before = pc.less_equal(tau, arrow_integer(query.end_at))
        mask = before if mask is None else pc.and_(mask, before)
    if mask is not None:
        table = table.filter(mask)
    columns = {name: table[f"c{item_column(subscriber, at)}"] for name, at, *_ in query.columns}
    tau = table["_tau"].cast(pa.timestamp("us", tz="UTC"))
    return pa.table({**columns, "_tau": tau})


def subscriber_mask(table: pa.Table, subscriber: Subscriber) -> pa.ChunkedArray | None:
    """Which rows of a table belong to a subscriber; None for all."""
    if subscriber == SOLE_SUBSCRIBER:
        return None
    mask = pc.not_equal(table[SHAPE_COLUMN], table[SHAPE_COLUMN])  # all False
    for low, high in subscriber.row_classes:
        in_range = pc.and_(
            pc.greater_equal(table[ROW_CLASS_COLUMN], arrow_integer(low)),
            pc.less_equal(table[ROW_CLASS_COLUMN], arrow_integer(high)),
        )
        mask = pc.or_(mask, in_range)
    return pc.and_(mask, pc.equal(table[SHAPE_COLUMN], arrow_integer(subscriber.shape)))
