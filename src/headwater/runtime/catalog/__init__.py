"""The catalog: the database through which controller, workers and command line agree.

It lists streams, tables, queries, units, segments, cursors and leases, in SQLite in the state
directory or in PostgreSQL by URL. Every method is one transaction and writes are serialised, so any
number of threads and processes may share one catalog.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import sqlalchemy as sa

from headwater.runtime.catalog.database import Clock, Database
from headwater.runtime.catalog.declarations import Declarations
from headwater.runtime.catalog.hand_overs import HandOvers
from headwater.runtime.catalog.journal import MAX_EVENTS, MAX_REJECTS, Journal
from headwater.runtime.catalog.leases import MAX_LEASE_SECONDS, Leases, is_in_future
from headwater.runtime.catalog.log import MAX_BATCH_KEYS
from headwater.runtime.catalog.queries import Queries
from headwater.runtime.catalog.query_moves import ORIGIN_KEY, QueryMoves
from headwater.runtime.catalog.records import (
    FOREVER,
    Assignment,
    BatchRejects,
    Cursors,
    EventRow,
    FileChanges,
    HandOver,
    Json,
    Lease,
    LogEnd,
    LogPosition,
    LogStats,
    NarrowedPartialJoin,
    NewInputs,
    NewPartialJoin,
    NewQuery,
    NewSegment,
    NewUnit,
    ProfileRow,
    QueryRow,
    QueryState,
    RejectedRecord,
    RejectRow,
    SeenFile,
    Segment,
    SegmentArrival,
    SiteRow,
    Statistic,
    Statistics,
    StreamRow,
    TableRow,
    UnitRow,
    UnitState,
    describe_connector,
    first_segments,
    ingest_owner,
    is_log,
    is_log_copy,
    link_owner,
    log_copy,
    panes_log,
    partial_join_name,
    plan_owner,
    replaced_partial_join_name,
    requesting_unit,
    stream_log,
    subscribers_log,
    table_input,
    unit_log,
)
from headwater.runtime.catalog.schema import meta
from headwater.runtime.catalog.sites import Sites

__all__ = [
    "FOREVER",
    "MAX_BATCH_KEYS",
    "MAX_EVENTS",
    "MAX_LEASE_SECONDS",
    "MAX_REJECTS",
    "ORIGIN_KEY",
    "Assignment",
    "BatchRejects",
    "Catalog",
    "Cursors",
    "EventRow",
    "FileChanges",
    "HandOver",
    "Json",
    "Lease",
    "LogEnd",
    "LogPosition",
    "LogStats",
    "NarrowedPartialJoin",
    "NewInputs",
    "NewPartialJoin",
    "NewQuery",
    "NewSegment",
    "NewUnit",
    "ProfileRow",
    "QueryRow",
    "QueryState",
    "RejectRow",
    "RejectedRecord",
    "SeenFile",
    "Segment",
    "SegmentArrival",
    "SiteRow",
    "Statistic",
    "Statistics",
    "StreamRow",
    "TableRow",
    "UnitRow",
    "UnitState",
    "describe_connector",
    "first_segments",
    "ingest_owner",
    "is_in_future",
    "is_log",
    "is_log_copy",
    "link_owner",
    "log_copy",
    "panes_log",
    "partial_join_name",
    "plan_owner",
    "replaced_partial_join_name",
    "requesting_unit",
    "stream_log",
    "subscribers_log",
    "table_input",
    "unit_log",
]

_CHANGE_COUNT = sa.select(meta.c.changes)


class Catalog(Declarations, Queries, QueryMoves, HandOvers, Sites, Leases, Journal):
    """An open catalog; a context manager that closes it."""

    @classmethod
    def open(
        cls,
        where: str | Path,
        *,
        create: bool = True,
        timeout: float = 10.0,
        clock: Clock | None = None,
    ) -> Catalog:
        """Open the catalog in a file, in a state directory, or at a URL, and migrate it.

        `postgresql://user@host/database?schema=name` is one on PostgreSQL, in the schema
        `headwater` if none is named. `timeout` is how many seconds to wait for another writer.
        `clock` replaces the database's clock. Raises CatalogError, saying what to do, if the
        catalog cannot be opened, or if it does not exist and `create` is false.
        """
        database = Database(where, timeout, clock)
        try:
            database.open(create)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def name(self) -> str:
        """The file, or the URL without its password."""
        return self._database.name

    def change_count(self) -> int:
        """A number that grows with every change by any process; reading it costs one row.

        Lease renewals, heartbeats, statistics and events are not counted, so that they wake nobody.
        """
        with self._database.read() as connection:
            return int(connection.execute(_CHANGE_COUNT).scalar_one())

    def problems(self) -> list[str]:
        """What SQLite's integrity check reports; empty on PostgreSQL."""
        if self._database.path is None:
            return []
        with self._database.read() as connection:
            messages = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [] if messages == ["ok"] else [str(problem) for problem in messages]

    def snapshot(self) -> AbstractContextManager[None]:
        """A context in which all reads of this thread see one state of the catalog.

        Reads are also faster inside it, as they share a connection. Writing inside it is an error.
        """
        return self._database.snapshot()

    def wait_for_change(self, seen: int, timeout: float, poll: float = 0.05) -> int:
        """Wait until `change_count()` differs from `seen` or time is up; returns the count."""
        deadline = time.monotonic() + timeout
        while (now := self.change_count()) == seen and time.monotonic() < deadline:
            time.sleep(min(poll, max(0.0, deadline - time.monotonic())))
        return now

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
