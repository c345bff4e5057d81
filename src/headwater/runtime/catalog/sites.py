"""Sites: which are there, what each has to do, and the copies of logs that they hold.

A copy of a log at a site is a log of its own with the numbers of the original, so whoever has come to a
number in one of them can go on in any other.
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
    """Sites, assignments and copies."""

    def record_site(self, name: str, definition: Json, is_alive: bool = True) -> SiteRow:
        """Make a site known, or change its definition; it is seen now, or was never."""
        with self._database.write() as transaction:
            site = SiteRow(name, definition, transaction.now if is_alive else 0.0)
            upsert(transaction.connection, schema.sites, [vars(site)], "name")
            return site

    def touch_site(self, name: str) -> None:
        """Note that a site is alive; raises CatalogError if it is not known."""
        table = schema.sites
        with self._database.write(quiet=True) as transaction:
            seen = sa.update(table).where(table.c.name == name).values(seen_at=transaction.now)
            if transaction.connection.execute(seen).rowcount != 1:
                raise CatalogError(f"there is no site {name}")

    def mark_site_gone(self, name: str) -> None:
        """Note that a site has gone, so that nobody waits for a sign of it."""
        gone = sa.update(schema.sites).where(schema.sites.c.name == name).values(seen_at=0.0)
        with self._database.write() as transaction:
            transaction.connection.execute(gone)

    def forget_site(self, name: str) -> bool:
        """Remove a site; False if it was not known."""
        table = schema.sites
        with self._database.write() as transaction:
            gone = transaction.connection.execute(sa.delete(table).where(table.c.name == name))
            return gone.rowcount == 1

    def sites(self) -> list[SiteRow]:
        """Every site, by name."""
        return self._select_rows(SiteRow, sa.select(schema.sites).order_by(schema.sites.c.name))

    def recently_seen_sites(self, seconds: float) -> set[str]:
        """The sites that were seen in the last so many seconds, by the catalog's clock; a sign of
        life from the future was written when that clock was wrong, and is none."""
        with self._database.write(quiet=True) as transaction:
            now = transaction.now
            recent = schema.sites.c.seen_at.between(now - seconds, now + seconds)
            return set(transaction.connection.scalars(sa.select(schema.sites.c.name).where(recent)))

    def assignment(self) -> Assignment:
        """Which site has to do what, and whence logs come to sites that hold copies."""
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
        """Say anew what each site has to do; copies of logs other than these are forgotten, and their
        files are then orphans. Raises LeaseLost if the lease has passed to another."""
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
        """Register copied files under the numbers of what they are copies of; the log is then complete
        up to a number, of what is still there of the original.

        Raises LeaseLost, and CatalogError if the log is gone or has some of them already.
        """
        logs = schema.logs
        sync_files(path for _, path in copies if path)
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            for segment, path in copies:
                free = sa.and_(logs.c.log == log, logs.c.next_seq <= segment.first_seq)
                end = sa.update(logs).where(free).values(next_seq=segment.seq + 1)
                if transaction.connection.execute(end).rowcount != 1:
                    raise CatalogError(f"{log} is gone, or has {segment.first_seq} already")
                values: dict[str, Any] = {name: getattr(segment, name) for name in _COPIED_FIELDS}
                new = self._with_relative_path(NewSegment(**values | {"log": log, "path": path}))
                insert_segment(transaction, new, segment.first_seq, segment.seq, segment.pieces)
            end = sa.update(logs).where(logs.c.log == log, logs.c.next_seq <= up_to)
            transaction.connection.execute(end.values(next_seq=up_to + 1))
            write_statistics(transaction, statistics or {})

    def relocate_segments(
        self, lease: Lease | None, paths: Mapping[int, str], statistics: Statistics | None = None
    ) -> None:
        """Say where the files of segments are now; segments that are gone are passed over."""
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
    """Of logs that are copies, these alone."""
    existing = {
        log
        for log in transaction.connection.scalars(sa.select(schema.logs.c.log))
        if is_log_copy(log)
    }
    for log in existing - copies:
        drop_log(transaction, log)
    for log in sorted(copies - existing):
        create_log(transaction, log)
