"""Where results go by themselves: each query with a sink has its rows sent there, segment by segment.

A sink follows the log of the query's unit with a cursor of its own, under a lease of its own. The rows
are out before the cursor moves. A file is named by the number of its segment, so sending a segment
again puts the same file in its place: files hold every row once. Kafka may get a row again, under the
same key.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headwater.algebra.expressions import Column
from headwater.algebra.times import format_timestamp
from headwater.cql import CreateQuery, parse
from headwater.cql.statements import Connector
from headwater.errors import CatalogUnavailable, InputError, LeaseLost
from headwater.reference import Result
from headwater.reference.formatting import csv_line, to_json, to_text
from headwater.runtime.catalog import (
    ORIGIN_KEY,
    Catalog,
    Lease,
    QueryRow,
    Segment,
    first_segments,
    is_in_future,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.connectors.kafka_client import (
    check_kafka_connector,
    check_reachable,
    client_settings,
    topic_id,
)
from headwater.runtime.connectors.options import FileSinkOptions, KafkaSinkOptions, sink_options
from headwater.runtime.durability import replace_file
from headwater.runtime.results import reader
from headwater.runtime.results.sink_progress import pending_deliveries, read_delivery
from headwater.runtime.storage.paths import allowed_paths, file_name
from headwater.runtime.storage.paths import check_connector_paths as check_paths_of

log = logging.getLogger("headwater")

ROWS_PER_DELIVERY = 100_000
MAX_RETRY_WAIT = 60.0


@dataclass
class SinkSender:
    """Sends the results of the queries of one catalog to their sinks."""

    catalog: Catalog
    definitions: Definitions
    spark: SparkSession
    at_point: Callable[[str], None]
    backoff: float = 1.0
    clock: Callable[[], float] = time.time
    _columns: dict[tuple[str, float], tuple[Column, ...]] = field(default_factory=dict)

    def ready_queries(self, is_mine: Callable[[str], bool] = lambda owner: True) -> list[str]:
        """The queries of units that are to be worked on here that have something to send, and did not
        fail a moment ago."""
        now = self.clock()
        return [
            pending.query.name
            for pending in pending_deliveries(self.catalog)
            if not is_in_future(pending.failure.get("not_before", 0.0), now, MAX_RETRY_WAIT)
            if is_mine(f"unit:{pending.query.unit_id}")
        ]

    def has_undelivered(self) -> bool:
        """Whether results of a query that is not paused are still to be sent."""
        return bool(pending_deliveries(self.catalog))

    def deliver(self, name: str, lease: Lease) -> bool:
        """Send what is new of a query; a failure is told and tried again later."""
        query = self.catalog.query(name)
        if query is None or query.state == "dropped":
            return False
        try:
            return self._deliver(query, lease)
        except (LeaseLost, CatalogUnavailable):
            raise
        except Exception as error:
            current = self.catalog.query(name)
            if current is not None and current.accepted_at == query.accepted_at:
                self._record_failure(query, lease, error)
            return False

    def _deliver(self, query: QueryRow, lease: Lease) -> bool:
        progress = read_delivery(self.catalog, query)
        unsent = self.catalog.segments(unit_log(query.unit_id), progress.seq)
        batch = first_segments(unsent, rows=ROWS_PER_DELIVERY)
        if not batch:
            return False
        chunks = [
            ResultChunk(query, s, reader.read_segment(self.catalog, query, s))
            for s in batch
            if s.rows
        ]
        self._send(
            query, [chunk for chunk in chunks if chunk.table.num_rows], bool(progress.failure)
        )
        self.at_point("sink: written")
        self.catalog.commit(lease, cursors=progress.cursors_after_sending(batch[-1].seq))
        self.at_point("sink: committed")
        return True

    def _send(self, query: QueryRow, chunks: Sequence[ResultChunk], again: bool) -> None:
        sink = Connector(query.sink["kind"], tuple(query.sink["options"].items()))
        columns = self._columns_of(query)
        check_paths_of(sink, allowed_paths(self.catalog))
        match sink_options(sink):
            case FileSinkOptions() as options:
                for chunk in chunks:
                    write_sink_file(options, chunk, columns)
            case KafkaSinkOptions() as options:
                send_messages(self.spark, options, chunks, columns, again)

    def _columns_of(self, query: QueryRow) -> tuple[Column, ...]:
        key = (query.name, query.accepted_at)
        if key not in self._columns:
            (statement,) = parse(query.definition, self.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            self._columns[key] = statement.query.columns
        return self._columns[key]

    def _record_failure(self, query: QueryRow, lease: Lease, error: Exception) -> None:
        """Keep the failure where `show` finds it, and wait longer each time."""
        message = (str(error) or type(error).__name__).split("\n")[0][:500]
        progress = read_delivery(self.catalog, query)
        if progress.failure.get("error") != message:
            log.exception("the sink of query %s failed", query.spelled)
            self.catalog.record_event("sink failed", query.spelled, error=message)
        retries = int(progress.failure.get("retries", 0)) + 1
        wait = min(MAX_RETRY_WAIT, self.backoff * 2 ** min(retries - 1, 16))
        self.catalog.commit(
            lease, cursors=progress.cursors_after_failure(message, retries, self.clock() + wait)
        )


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


# ---- forms


def json_line(result: Result, columns: Sequence[Column]) -> str:
    """A row as `headwater results` prints it, without the name of the query."""
    values = {
        column.name: to_json(value, column.type)
        for value, column in zip(result.values, columns, strict=True)
    }
    return json.dumps({**values, "_tau": format_timestamp(result.tau)}, ensure_ascii=False)


def _json_lines(rows: Sequence[Result], columns: Sequence[Column]) -> Iterator[str]:
    return (json_line(row, columns) + "\n" for row in rows)


def _csv_lines(rows: Sequence[Result], columns: Sequence[Column]) -> Iterator[str]:
    yield csv_line([*(column.name for column in columns), "_tau"])
    for result in rows:
        texts = [
            None if value is None else to_text(value, column.type)
            for value, column in zip(result.values, columns, strict=True)
        ]
        yield csv_line([*texts, format_timestamp(result.tau)])


# ---- files


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
    lines = _csv_lines(rows, columns) if format == "csv" else _json_lines(rows, columns)
    return "".join(lines).encode()


# ---- Kafka


def send_messages(
    spark: SparkSession,
    options: KafkaSinkOptions,
    chunks: Sequence[ResultChunk],
    columns: Sequence[Column],
    again: bool = False,
) -> None:
    """Send each row as a message, in order; returns when the brokers have them all.

    `again` says that it failed before: then the topic is asked for first, which takes no time.
    """
    if not chunks:
        return
    check_kafka_connector(spark)
    settings = client_settings(options)
    check_reachable(options)
    if again:
        topic_id(spark, options)
    keys = [key for chunk in chunks for key in chunk.row_ids()]
    values = [json_line(row, columns) for chunk in chunks for row in chunk.rows(columns)]
    table = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})
    writer = spark.createDataFrame(table).coalesce(1).write.format("kafka")
    writer = writer.options(
        **{
            **{f"kafka.{name}": value for name, value in settings.items()},
            "topic": options.topic,
            "kafka.acks": "all",
            "kafka.max.block.ms": "5000",
            "kafka.request.timeout.ms": "5000",
            "kafka.delivery.timeout.ms": "10000",
        }
    )
    try:
        writer.save()
    except Exception:
        topic_id(spark, options)  # which has clearer words for what is missing
        raise
