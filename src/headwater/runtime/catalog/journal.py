"""What was measured, what happened and what was refused; and the small settings beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from headwater.errors import CatalogError
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Store, Transaction, upsert
from headwater.runtime.catalog.rows import (
    Event,
    FileChanges,
    Json,
    Profile,
    Refused,
    Reject,
    Rejects,
    SeenFile,
    Statistic,
    Statistics,
)
from headwater.runtime.catalog.schema import FileName

KEPT_REJECTS = 10_000
"""How many records are kept for each stream; all are counted."""

KEPT_CHARACTERS = 8_192
"""How much of a refused record is kept."""

KEPT_EVENTS = 100_000

_S, _P, _E = schema.statistics, schema.profiles, schema.events
_STATISTICS = sa.select(_S).where(_S.c.owner == sa.bindparam("owner"))
_STATISTIC_OF = sa.select(_S.c.owner, _S.c.value).where(
    _S.c.owner.in_(sa.bindparam("owners", expanding=True)), _S.c.name == sa.bindparam("name")
)
_PROFILE = sa.select(_P.c.profile, _P.c.updated_at).where(_P.c.owner == sa.bindparam("owner"))
_ADD_EVENT = sa.insert(_E).returning(_E.c.id)
_FORGET_EVENTS = sa.delete(_E).where(_E.c.id <= sa.bindparam("last"))


class Journal(Store):
    """Statistics, events, rejects and options."""

    def statistic(self, owner: str, name: str) -> Statistic | None:
        """The value last written, or None."""
        return self.statistics(owner).get(name)

    def statistics(self, owner: str) -> dict[str, Statistic]:
        """All values of one owner, by name."""
        with self._database.read() as connection:
            found = connection.execute(_STATISTICS, {"owner": owner})
            return {row.name: Statistic(row.value, row.updated_at) for row in found}

    def statistic_of(self, owners: Collection[str], name: str) -> dict[str, float]:
        """One value of several owners, by owner; those that have none are left out."""
        with self._database.read() as connection:
            found = connection.execute(_STATISTIC_OF, {"owners": sorted(owners), "name": name})
            return {row.owner: row.value for row in found}

    def set_statistics(self, values: Statistics) -> None:
        """Write values over those of the same owner and name; smoothing is the caller's."""
        with self._database.write(quiet=True) as transaction:
            keep_statistics(transaction, values)

    def profile(self, owner: str) -> Profile | None:
        """What was last measured of an owner in detail, or None."""
        return self._row(Profile, _PROFILE, owner=owner)

    def set_profile(self, owner: str, profile: Json) -> None:
        """Write a profile over that of the same owner."""
        with self._database.write(quiet=True) as transaction:
            keep_profiles(transaction, {owner: profile})

    def all_statistics(self) -> dict[str, dict[str, Statistic]]:
        """All values, by owner and name, in one read."""
        found: dict[str, dict[str, Statistic]] = {}
        with self._database.read() as connection:
            for row in connection.execute(sa.select(schema.statistics)):
                found.setdefault(row.owner, {})[row.name] = Statistic(row.value, row.updated_at)
        return found

    def record_event(self, kind: str, subject: str, **detail: Json) -> Event:
        """Add to the events, of which the newest are kept."""
        with self._database.write(quiet=True) as transaction:
            return keep_event(transaction, kind, subject, detail)

    def events(
        self,
        after: int | None = None,
        *,
        kind: str | None = None,
        subject: str | None = None,
        subjects: Collection[str] | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Events in order: the first ones after a number, or without one the latest ones; those of a kind,
        about one or some subjects, or since a time of the clock."""
        table = schema.events
        wanted = sa.select(table).limit(limit)
        if kind is not None:
            wanted = wanted.where(table.c.kind == kind)
        if subject is not None:
            wanted = wanted.where(table.c.subject == subject)
        if subjects is not None:
            wanted = wanted.where(sa.func.lower(table.c.subject).in_(sorted(subjects)))
        if since is not None:
            wanted = wanted.where(table.c.at >= since)
        if after is not None:
            return self._rows(Event, wanted.where(table.c.id > after).order_by(table.c.id))
        return self._rows(Event, wanted.order_by(table.c.id.desc()))[::-1]

    def rejects(self, stream: str, limit: int = 100) -> list[Reject]:
        """The newest refused records of a stream, the newest first."""
        table = schema.rejects
        of_stream = sa.select(table).where(table.c.stream == stream.lower())
        return self._rows(Reject, of_stream.order_by(table.c.id.desc()).limit(limit))

    def files(self, stream: str) -> dict[str, SeenFile]:
        """The files of a stream that were read or set aside, by name."""
        table = schema.files
        columns = (table.c.path, table.c.state, table.c.mark, table.c.number)
        of_stream = sa.select(*columns).where(table.c.stream == stream.lower())
        return {file.path: file for file in self._rows(SeenFile, of_stream)}

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


def keep_statistics(transaction: Transaction, values: Statistics) -> None:
    """Write values over those of the same owner and name."""
    new = [
        {"owner": owner, "name": name, "value": value, "updated_at": transaction.now}
        for (owner, name), value in values.items()
    ]
    upsert(transaction.connection, schema.statistics, new, "owner", "name")


def keep_profiles(transaction: Transaction, profiles: Mapping[str, Json]) -> None:
    """Write profiles over those of the same owners."""
    new = [
        {"owner": owner, "profile": profile, "updated_at": transaction.now}
        for owner, profile in profiles.items()
    ]
    upsert(transaction.connection, schema.profiles, new, "owner")


def keep_event(transaction: Transaction, kind: str, subject: str, detail: Json) -> Event:
    """Add to the events, of which the newest are kept."""
    values = {"at": transaction.now, "kind": kind, "subject": subject, "detail": detail}
    number = transaction.connection.execute(_ADD_EVENT, values).scalar_one()
    transaction.connection.execute(_FORGET_EVENTS, {"last": number - KEPT_EVENTS})
    return Event(number, transaction.now, kind, subject, detail)


def keep_events(transaction: Transaction, kind: str, subjects: Sequence[str]) -> None:
    """Add an event about each, all at once."""
    table = schema.events
    same = {"at": transaction.now, "kind": kind, "detail": {}}
    new = [{**same, "subject": subject} for subject in subjects]
    if new:
        transaction.connection.execute(sa.insert(table), new)
        newest = sa.select(sa.func.max(table.c.id)).scalar_subquery()
        transaction.connection.execute(sa.delete(table).where(table.c.id <= newest - KEPT_EVENTS))


def keep_files(transaction: Transaction, files: FileChanges) -> None:
    """Note the files of a stream that were read or set aside; one that has changed is an event."""
    table, stream = schema.files, files.stream.lower()
    new = [{"stream": stream, **vars(file)} for file in files.seen]
    upsert(transaction.connection, table, new, "stream", "path")
    for file in files.seen:
        if file.state == "changed":
            keep_event(transaction, "file changed after it was read", stream, {"path": file.path})
    if files.forgotten:
        gone = sa.and_(
            table.c.stream == stream, table.c.path == sa.bindparam("gone", type_=FileName())
        )
        names = [{"gone": path} for path in files.forgotten]
        transaction.connection.execute(sa.delete(table).where(gone), names)


def keep_rejects(transaction: Transaction, rejects: Sequence[Rejects]) -> None:
    """Count what was refused and keep the newest records; raises CatalogError for no stream."""
    table = schema.streams
    for refused in rejects:
        name = refused.stream.lower()
        counted = (
            sa.update(table)
            .where(table.c.name == name)
            .values(
                malformed=table.c.malformed + refused.malformed, late=table.c.late + refused.late
            )
        )
        if transaction.connection.execute(counted).rowcount != 1:
            raise CatalogError(f"there is no stream {refused.stream}: it was dropped")
        _keep_records(transaction, name, refused.records[-KEPT_REJECTS:])


def _keep_records(transaction: Transaction, stream: str, records: Sequence[Refused]) -> None:
    if not records:
        return
    table = schema.rejects
    transaction.connection.execute(
        sa.insert(table),
        [
            {
                "stream": stream,
                "at": transaction.now,
                "reason": refused.reason[:KEPT_CHARACTERS],
                "record": refused.record[:KEPT_CHARACTERS],
                "place": refused.place[:KEPT_CHARACTERS],
                "column": refused.column,
            }
            for refused in (Refused(*record) for record in records)
        ],
    )
    newest = sa.select(table.c.id).where(table.c.stream == stream).order_by(table.c.id.desc())
    last_too_old = newest.offset(KEPT_REJECTS).limit(1).scalar_subquery()
    old = sa.and_(table.c.stream == stream, table.c.id <= last_too_old)
    transaction.connection.execute(sa.delete(table).where(old))
