"""Sites of a catalog: which exist, what is assigned to each, and the copies of logs that they hold.

A copy of a log is a log of its own with the sequence numbers of the original, so a reader can
switch between them without changing its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from headwater.errors import CatalogError
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Transaction, upsert
from headwater.runtime.catalog.journal import write_statistics
from headwater.runtime.catalog.leases import check_lease
from headwater.runtime.catalog.log import Logs, create_log, drop_log, insert_segment, sync_files
from headwater.runtime.catalog.records import (
    Assignment,
    Json,
    Lease,
    NewSegment,
    Segment,
    SiteRow,
    Statistics,
    is_log_copy,
)

_S = schema.segments


class Sites(Logs):
    """Sites, assignments and log copies."""

    def record_site(self, name: str, definition: Json, is_alive: bool = True) -> SiteRow:
        """Add a site or change its definition; it counts as seen now, or as never seen."""
        with self._database.write() as transaction:
            site = SiteRow(name, definition, transaction.now if is_alive else 0.0)
            upsert(transaction.connection, schema.sites, [vars(site)], "name")
            return site

    def touch_site(self, name: str) -> None:
        """Record a heartbeat of a site; raises CatalogError if there is no such site."""
        table = schema.sites
        with self._database.write(quiet=True) as transaction:
            seen = sa.update(table).where(table.c.name == name).values(seen_at=transaction.now)
            if transaction.connection.execute(seen).rowcount != 1:
                raise CatalogError(f"there is no site {name}")

    def mark_site_gone(self, name: str) -> None:
        """Record that a site has stopped, so that nothing waits for its heartbeat to be overdue."""
        gone = sa.update(schema.sites).where(schema.sites.c.name == name).values(seen_at=0.0)
        with self._database.write() as transaction:
            transaction.connection.execute(gone)

    def forget_site(self, name: str) -> bool:
        """Remove a site; False if there was none."""
        table = schema.sites
        with self._database.write() as transaction:
            gone = transaction.connection.execute(sa.delete(table).where(table.c.name == name))
            return gone.rowcount == 1

    def sites(self) -> list[SiteRow]:
        """Every site, ordered by name."""
        return self._select_rows(SiteRow, sa.select(schema.sites).order_by(schema.sites.c.name))

    def recently_seen_sites(self, seconds: float) -> set[str]:
        """The sites seen in the last `seconds`, by the catalog's clock.

        A heartbeat from the future was written before that clock was set back, and does not count.
        """
        # A write transaction, as only those have the time of the clock that heartbeats are written
        # by.
        with self._database.write(quiet=True) as transaction:
            now = transaction.now
            recent = schema.sites.c.seen_at.between(now - seconds, now + seconds)
            return set(transaction.connection.scalars(sa.select(schema.sites.c.name).where(recent)))

    def assignment(self) -> Assignment:
        """What is assigned to which site, and from where each copy of a log is fetched."""
        with self._database.read() as connection:
            owners = connection.execute(sa.select(schema.assignments))
            routes = connection.execute(sa.select(schema.routes))
            return Assignment(
                {row.owner: row.site for row in owners},
                {(row.log, row.site): row.origin for row in routes},
            )

    def replace_assignment(
        self,
        assignment: Assignment,
        copies: Set[str] = frozenset(),
        lease: Lease | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        """Replace the whole assignment, and make `copies` the only copies of logs.

        The files of other copies become orphans. Raises LeaseLost if another holds the lease.
        """
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            for table in (schema.assignments, schema.routes):
                transaction.connection.execute(sa.delete(table))
            owners = [{"owner": owner, "site": at} for owner, at in assignment.owners.items()]
            routes = [
                {"log": log, "site": site, "origin": origin}
                for (log, site), origin in assignment.routes.items()
            ]
            upsert(transaction.connection, schema.assignments, owners, "owner")
            upsert(transaction.connection, schema.routes, routes, "log", "site")
            _sync_log_copies(transaction, copies)
            write_statistics(transaction, statistics or {})

    def register_copies(
        self,
        lease: Lease | None,
        log: str,
        copies: Sequence[tuple[Segment, str]],
        up_to: int,
        statistics: Statistics | None = None,
    ) -> None:
        """Register copied files under the sequence numbers of their originals.

        The copy is then complete up to `up_to`, apart from what was removed from the original.
        Raises LeaseLost, and CatalogError if the log was dropped or has some of the numbers
        already.
        """
        logs = schema.logs
        sync_files(path for _, path in copies if path)
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            for segment, path in copies:
                free = sa.and_(logs.c.log == log, logs.c.next_seq <= segment.first_seq)
                end = sa.update(logs).where(free).values(next_seq=segment.seq + 1)
                if transaction.connection.execute(end).rowcount != 1:
                    raise CatalogError(f"{log} was dropped, or has {segment.first_seq} already")
                values: dict[str, Any] = {name: getattr(segment, name) for name in _COPIED_FIELDS}
                new = self._with_relative_path(NewSegment(**values | {"log": log, "path": path}))
                insert_segment(transaction, new, segment.first_seq, segment.seq, segment.pieces)
            # The original may end in segments that retention has removed: there is nothing to copy
            # of them, but the copy must reach as far.
            end = sa.update(logs).where(logs.c.log == log, logs.c.next_seq <= up_to)
            transaction.connection.execute(end.values(next_seq=up_to + 1))
            write_statistics(transaction, statistics or {})

    def relocate_segments(
        self, lease: Lease | None, paths: Mapping[int, str], statistics: Statistics | None = None
    ) -> None:
        """Record new paths of segments' files; segments that were removed meanwhile are skipped."""
        sync_files(path for path in paths.values() if path)
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            for id, path in paths.items():
                short = self._with_relative_path(
                    NewSegment("", path, 0, 0, on_disk=bool(path))
                ).path
                moved = sa.update(_S).where(_S.c.id == id).values(path=short)
                transaction.connection.execute(moved)
            write_statistics(transaction, statistics or {})


_COPIED_FIELDS = [
    field.name for field in fields(NewSegment) if field.name not in ("key", "on_disk")
]


def _sync_log_copies(transaction: Transaction, copies: Set[str]) -> None:
    """Make these the only logs that are copies."""
    existing = {
        log
        for log in transaction.connection.scalars(sa.select(schema.logs.c.log))
        if is_log_copy(log)
    }
    for log in existing - copies:
        drop_log(transaction, log)
    for log in sorted(copies - existing):
        create_log(transaction, log)
