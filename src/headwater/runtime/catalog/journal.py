"""The journal of a catalog: statistics, profiles, events, rejects, seen files and settings.

Events and rejects are bounded logs for people to read. The functions at the end take part in the
transaction of a caller, so that what a commit reports is stored if and only if the commit is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from headwater.errors import CatalogError
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import CatalogBase, Transaction, upsert
from headwater.runtime.catalog.records import (
    BatchRejects,
    EventRow,
    FileChanges,
    Json,
    ProfileRow,
    RejectedRecord,
    RejectRow,
    SeenFile,
    Statistic,
    Statistics,
)
from headwater.runtime.catalog.schema import FileName

MAX_REJECTS = 10_000
"""How many rejects are kept for each stream; all are counted."""

MAX_REJECT_CHARACTERS = 8_192
"""How many characters of a rejected record are kept."""

MAX_EVENTS = 100_000
"""How many events are kept."""

_S, _P, _E = schema.statistics, schema.profiles, schema.events
_STATISTICS = sa.select(_S).where(_S.c.owner == sa.bindparam("owner"))
_STATISTICS_OF = sa.select(_S).where(_S.c.owner.in_(sa.bindparam("owners", expanding=True)))
_STATISTIC_BY_OWNER = sa.select(_S.c.owner, _S.c.value).where(
    _S.c.owner.in_(sa.bindparam("owners", expanding=True)), _S.c.name == sa.bindparam("name")
)
_PROFILE = sa.select(_P.c.profile, _P.c.updated_at).where(_P.c.owner == sa.bindparam("owner"))
_ADD_EVENT = sa.insert(_E).returning(_E.c.id)
_FORGET_EVENTS = sa.delete(_E).where(_E.c.id <= sa.bindparam("last"))


class Journal(CatalogBase):
    """Statistics, profiles, events, rejects, seen files and settings."""

    def statistic(self, owner: str, name: str) -> Statistic | None:
        """The value last written, or None."""
        return self.statistics(owner).get(name)

    def statistics(self, owner: str) -> dict[str, Statistic]:
        """All values of one owner, by name."""
        with self._database.read() as connection:
            selected = connection.execute(_STATISTICS, {"owner": owner})
            return {row.name: Statistic(row.value, row.updated_at) for row in selected}

    def statistic_by_owner(self, owners: Collection[str], name: str) -> dict[str, float]:
        """One statistic of several owners, by owner; owners without it are left out."""
        with self._database.read() as connection:
            selected = connection.execute(
                _STATISTIC_BY_OWNER, {"owners": sorted(owners), "name": name}
            )
            return {row.owner: row.value for row in selected}

    def statistics_of(self, owners: Collection[str]) -> dict[str, dict[str, Statistic]]:
        """All values of several owners, by owner and name, in one read."""
        by_owner: dict[str, dict[str, Statistic]] = {}
        with self._database.read() as connection:
            for row in connection.execute(_STATISTICS_OF, {"owners": sorted(owners)}):
                by_owner.setdefault(row.owner, {})[row.name] = Statistic(row.value, row.updated_at)
        return by_owner

    def set_statistics(self, values: Statistics) -> None:
        """Overwrite the values of the same owner and name; smoothing is left to the caller."""
        with self._database.write(quiet=True) as transaction:
            write_statistics(transaction, values)

    def profile(self, owner: str) -> ProfileRow | None:
        """The profile of an owner, or None."""
        return self._select_row(ProfileRow, _PROFILE, owner=owner)

    def set_profile(self, owner: str, profile: Json) -> None:
        """Write the profile of an owner, replacing the one before."""
        with self._database.write(quiet=True) as transaction:
            write_profiles(transaction, {owner: profile})

    def all_statistics(self) -> dict[str, dict[str, Statistic]]:
        """All values, by owner and name, in one read."""
        by_owner: dict[str, dict[str, Statistic]] = {}
        with self._database.read() as connection:
            for row in connection.execute(sa.select(schema.statistics)):
                by_owner.setdefault(row.owner, {})[row.name] = Statistic(row.value, row.updated_at)
        return by_owner

    def record_event(self, kind: str, subject: str, **detail: Json) -> EventRow:
        """Add an event; only the newest MAX_EVENTS are kept."""
        with self._database.write(quiet=True) as transaction:
            return add_event(transaction, kind, subject, detail)

    def events(
        self,
        after: int | None = None,
        *,
        kind: str | None = None,
        subject: str | None = None,
        subjects: Collection[str] | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> list[EventRow]:
        """Events in order: the first `limit` after the id `after`, or without it the latest ones.

        They can be restricted to a kind, to one or several subjects, and to a wall-clock time on.
        """
        table = schema.events
        statement = sa.select(table).limit(limit)
        if kind is not None:
            statement = statement.where(table.c.kind == kind)
        if subject is not None:
            statement = statement.where(table.c.subject == subject)
        if subjects is not None:
            # Some subjects are spelled as the user wrote them.
            statement = statement.where(sa.func.lower(table.c.subject).in_(sorted(subjects)))
        if since is not None:
            statement = statement.where(table.c.at >= since)
        if after is not None:
            return self._select_rows(
                EventRow, statement.where(table.c.id > after).order_by(table.c.id)
            )
        return self._select_rows(EventRow, statement.order_by(table.c.id.desc()))[::-1]

    def rejects(self, stream: str, limit: int = 100) -> list[RejectRow]:
        """The newest rejects of a stream, newest first."""
        table = schema.rejects
        of_stream = sa.select(table).where(table.c.stream == stream.lower())
        return self._select_rows(RejectRow, of_stream.order_by(table.c.id.desc()).limit(limit))

    def seen_files(self, stream: str) -> dict[str, SeenFile]:
        """The files of a stream that were read or set aside, by path."""
        table = schema.files
        columns = (table.c.path, table.c.state, table.c.mark, table.c.number)
        of_stream = sa.select(*columns).where(table.c.stream == stream.lower())
        return {file.path: file for file in self._select_rows(SeenFile, of_stream)}

    def option(self, name: str) -> str | None:
        """The value of a setting, or None if it is not set."""
        return self.options().get(name)

    def options(self) -> dict[str, str]:
        """All settings that are set, by name."""
        table = schema.options
        with self._database.read() as connection:
            return {row.name: row.value for row in connection.execute(sa.select(table))}

    def set_option(self, name: str, value: str | None) -> None:
        """Write a setting; None removes it."""
        table = schema.options
        with self._database.write() as transaction:
            if value is None:
                transaction.connection.execute(sa.delete(table).where(table.c.name == name))
            else:
                upsert(transaction.connection, table, [{"name": name, "value": value}], "name")


def write_statistics(transaction: Transaction, values: Statistics) -> None:
    """Overwrite the values of the same owner and name."""
    new = [
        {"owner": owner, "name": name, "value": value, "updated_at": transaction.now}
        for (owner, name), value in values.items()
    ]
    upsert(transaction.connection, schema.statistics, new, "owner", "name")


def write_profiles(transaction: Transaction, profiles: Mapping[str, Json]) -> None:
    """Overwrite the profiles of these owners."""
    new = [
        {"owner": owner, "profile": profile, "updated_at": transaction.now}
        for owner, profile in profiles.items()
    ]
    upsert(transaction.connection, schema.profiles, new, "owner")


def add_event(transaction: Transaction, kind: str, subject: str, detail: Json) -> EventRow:
    """Add an event; only the newest MAX_EVENTS are kept."""
    values = {"at": transaction.now, "kind": kind, "subject": subject, "detail": detail}
    number = transaction.connection.execute(_ADD_EVENT, values).scalar_one()
    transaction.connection.execute(_FORGET_EVENTS, {"last": number - MAX_EVENTS})
    return EventRow(number, transaction.now, kind, subject, detail)


def add_events(transaction: Transaction, kind: str, subjects: Sequence[str]) -> None:
    """Add an event about each subject, in one statement."""
    table = schema.events
    same = {"at": transaction.now, "kind": kind, "detail": {}}
    new = [{**same, "subject": subject} for subject in subjects]
    if new:
        transaction.connection.execute(sa.insert(table), new)
        newest = sa.select(sa.func.max(table.c.id)).scalar_subquery()
        transaction.connection.execute(sa.delete(table).where(table.c.id <= newest - MAX_EVENTS))


def record_files(transaction: Transaction, files: FileChanges) -> None:
    """Record which files of a stream were read or set aside; a changed one also makes an event."""
    table, stream = schema.files, files.stream.lower()
    new = [{"stream": stream, **vars(file)} for file in files.seen]
    upsert(transaction.connection, table, new, "stream", "path")
    for file in files.seen:
        if file.state == "changed":
            add_event(transaction, "file changed after it was read", stream, {"path": file.path})
    if files.forgotten:
        gone = sa.and_(
            table.c.stream == stream, table.c.path == sa.bindparam("gone", type_=FileName())
        )
        names = [{"gone": path} for path in files.forgotten]
        transaction.connection.execute(sa.delete(table).where(gone), names)


def add_rejects(transaction: Transaction, rejects: Sequence[BatchRejects]) -> None:
    """Count rejects and keep the newest records; raises CatalogError if the stream was dropped."""
    table = schema.streams
    for batch in rejects:
        name = batch.stream.lower()
        update = (
            sa.update(table)
            .where(table.c.name == name)
            .values(malformed=table.c.malformed + batch.malformed, late=table.c.late + batch.late)
        )
        if transaction.connection.execute(update).rowcount != 1:
            raise CatalogError(f"there is no stream {batch.stream}: it was dropped")
        # More than are kept would be inserted only to be removed again.
        _add_reject_rows(transaction, name, batch.records[-MAX_REJECTS:])


def _add_reject_rows(
    transaction: Transaction, stream: str, records: Sequence[RejectedRecord]
) -> None:
    if not records:
        return
    table = schema.rejects
    transaction.connection.execute(
        sa.insert(table),
        [
            {
                "stream": stream,
                "at": transaction.now,
                "reason": rejected.reason[:MAX_REJECT_CHARACTERS],
                "record": rejected.record[:MAX_REJECT_CHARACTERS],
                "place": rejected.place[:MAX_REJECT_CHARACTERS],
                "column": rejected.column,
            }
            for rejected in (RejectedRecord(*record) for record in records)
        ],
    )
    # Ids are shared by all streams, so the oldest reject to keep is found by counting, not by id.
    newest = sa.select(table.c.id).where(table.c.stream == stream).order_by(table.c.id.desc())
    last_too_old = newest.offset(MAX_REJECTS).limit(1).scalar_subquery()
    old = sa.and_(table.c.stream == stream, table.c.id <= last_too_old)
    transaction.connection.execute(sa.delete(table).where(old))
