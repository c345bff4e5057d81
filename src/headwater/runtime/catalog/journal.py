"""What was measured, what happened and what was refused; and the small settings beside them."""

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
"""How many records are kept for each stream; all are counted."""

MAX_REJECT_CHARACTERS = 8_192
"""How much of a refused record is kept."""

MAX_EVENTS = 100_000

_S, _P, _E = schema.statistics, schema.profiles, schema.events
_STATISTICS = sa.select(_S).where(_S.c.owner == sa.bindparam("owner"))
_STATISTIC_BY_OWNER = sa.select(_S.c.owner, _S.c.value).where(
    _S.c.owner.in_(sa.bindparam("owners", expanding=True)), _S.c.name == sa.bindparam("name")
)
_PROFILE = sa.select(_P.c.profile, _P.c.updated_at).where(_P.c.owner == sa.bindparam("owner"))
_ADD_EVENT = sa.insert(_E).returning(_E.c.id)
_FORGET_EVENTS = sa.delete(_E).where(_E.c.id <= sa.bindparam("last"))


class Journal(CatalogBase):
    """Statistics, events, rejects and options."""

    def statistic(self, owner: str, name: str) -> Statistic | None:
        """The value last written, or None."""
        return self.statistics(owner).get(name)

    def statistics(self, owner: str) -> dict[str, Statistic]:
        """All values of one owner, by name."""
        with self._database.read() as connection:
            selected = connection.execute(_STATISTICS, {"owner": owner})
            return {row.name: Statistic(row.value, row.updated_at) for row in selected}

    def statistic_by_owner(self, owners: Collection[str], name: str) -> dict[str, float]:
        """One value of several owners, by owner; those that have none are left out."""
        with self._database.read() as connection:
            selected = connection.execute(
                _STATISTIC_BY_OWNER, {"owners": sorted(owners), "name": name}
            )
            return {row.owner: row.value for row in selected}

    def set_statistics(self, values: Statistics) -> None:
        """Write values over those of the same owner and name; smoothing is the caller's."""
        with self._database.write(quiet=True) as transaction:
            write_statistics(transaction, values)

    def profile(self, owner: str) -> ProfileRow | None:
        """What was last measured of an owner in detail, or None."""
        return self._select_row(ProfileRow, _PROFILE, owner=owner)

    def set_profile(self, owner: str, profile: Json) -> None:
        """Write a profile over that of the same owner."""
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
        """Add to the events, of which the newest are kept."""
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
        """Events in order: the first ones after a number, or without one the latest ones; those of a kind,
        about one or some subjects, or since a time of the clock."""
        table = schema.events
        statement = sa.select(table).limit(limit)
        if kind is not None:
            statement = statement.where(table.c.kind == kind)
        if subject is not None:
            statement = statement.where(table.c.subject == subject)
        if subjects is not None:
            statement = statement.where(sa.func.lower(table.c.subject).in_(sorted(subjects)))
        if since is not None:
            statement = statement.where(table.c.at >= since)
        if after is not None:
            return self._select_rows(
                EventRow, statement.where(table.c.id > after).order_by(table.c.id)
            )
        return self._select_rows(EventRow, statement.order_by(table.c.id.desc()))[::-1]

    def rejects(self, stream: str, limit: int = 100) -> list[RejectRow]:
        """The newest refused records of a stream, the newest first."""
        table = schema.rejects
        of_stream = sa.select(table).where(table.c.stream == stream.lower())
        return self._select_rows(RejectRow, of_stream.order_by(table.c.id.desc()).limit(limit))

    def seen_files(self, stream: str) -> dict[str, SeenFile]:
        """The files of a stream that were read or set aside, by name."""
        table = schema.files
        columns = (table.c.path, table.c.state, table.c.mark, table.c.number)
        of_stream = sa.select(*columns).where(table.c.stream == stream.lower())
        return {file.path: file for file in self._select_rows(SeenFile, of_stream)}

    def option(self, name: str) -> str | None:
        """The value of a setting, or None where it was never set."""
        return self.options().get(name)

    def options(self) -> dict[str, str]:
        """Every setting, by name."""
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
    """Write values over those of the same owner and name."""
    new = [
        {"owner": owner, "name": name, "value": value, "updated_at": transaction.now}
        for (owner, name), value in values.items()
    ]
    upsert(transaction.connection, schema.statistics, new, "owner", "name")


def write_profiles(transaction: Transaction, profiles: Mapping[str, Json]) -> None:
    """Write profiles over those of the same owners."""
    new = [
        {"owner": owner, "profile": profile, "updated_at": transaction.now}
        for owner, profile in profiles.items()
    ]
    upsert(transaction.connection, schema.profiles, new, "owner")


def add_event(transaction: Transaction, kind: str, subject: str, detail: Json) -> EventRow:
    """Add to the events, of which the newest are kept."""
    values = {"at": transaction.now, "kind": kind, "subject": subject, "detail": detail}
    number = transaction.connection.execute(_ADD_EVENT, values).scalar_one()
    transaction.connection.execute(_FORGET_EVENTS, {"last": number - MAX_EVENTS})
    return EventRow(number, transaction.now, kind, subject, detail)


def add_events(transaction: Transaction, kind: str, subjects: Sequence[str]) -> None:
    """Add an event about each, all at once."""
    table = schema.events
    same = {"at": transaction.now, "kind": kind, "detail": {}}
    new = [{**same, "subject": subject} for subject in subjects]
    if new:
        transaction.connection.execute(sa.insert(table), new)
        newest = sa.select(sa.func.max(table.c.id)).scalar_subquery()
        transaction.connection.execute(sa.delete(table).where(table.c.id <= newest - MAX_EVENTS))


def record_files(transaction: Transaction, files: FileChanges) -> None:
    """Note the files of a stream that were read or set aside; one that has changed is an event."""
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
    """Count what was refused and keep the newest records; raises CatalogError for no stream."""
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
    newest = sa.select(table.c.id).where(table.c.stream == stream).order_by(table.c.id.desc())
    last_too_old = newest.offset(MAX_REJECTS).limit(1).scalar_subquery()
    old = sa.and_(table.c.stream == stream, table.c.id <= last_too_old)
    transaction.connection.execute(sa.delete(table).where(old))
