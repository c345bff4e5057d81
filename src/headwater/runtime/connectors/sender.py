"""Sends the rows of each query that has a sink to it, segment by segment.

A sink follows the log of the query's unit with a cursor of its own, under a lease of its own. The rows
are sent before the cursor moves, so after a crash a segment is sent again: a file then replaces the file
of the same name, and Kafka gets the messages again, under the same keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headwater.algebra.expressions import Column
from headwater.cql import CreateQuery, parse
from headwater.cql.statements import Connector
from headwater.errors import CatalogUnavailable, LeaseLost
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    QueryRow,
    first_segments,
    is_in_future,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.connectors.registry import send_batch
from headwater.runtime.connectors.sink_batch import ResultChunk, SinkBatch
from headwater.runtime.results import reader
from headwater.runtime.results.sink_progress import pending_deliveries, read_delivery
from headwater.runtime.storage.paths import allowed_paths
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

    def deliver(self, name: str, lease: Lease) -> bool:
        """Send what is new of a query; a failure is reported and retried later."""
        query = self.catalog.query(name)
        if query is None or query.state == "dropped":
            return False
        try:
            return self._deliver(query, lease)
        except (LeaseLost, CatalogUnavailable):
            raise
        except Exception as error:
            current = self.catalog.query(name)
            # A query that was submitted since under the same name has not failed.
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
        # Sent first, then committed: a crash in between sends these rows again, under the same
        # names.
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
        # Each time: a link may lead elsewhere by now, or the owner allow less.
        check_paths_of(sink, allowed_paths(self.catalog))
        send_batch(sink, SinkBatch(chunks, columns, self.spark, again))

    def _columns_of(self, query: QueryRow) -> tuple[Column, ...]:
        # The next query of this name may have other columns.
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
        # The exponent is bounded too: after a thousand failures the power would exceed a float.
        wait = min(MAX_RETRY_WAIT, self.backoff * 2 ** min(retries - 1, 16))
        now = self.clock()
        self.catalog.commit(
            lease, cursors=progress.cursors_after_failure(message, retries, now, now + wait)
        )
