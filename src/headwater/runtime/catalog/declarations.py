"""The declared streams and tables of a catalog.

Each has its name in lower case, by which it is found, and `spelled`, as the user wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from headwater.errors import CatalogError, suggest
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import CatalogBase, Transaction
from headwater.runtime.catalog.journal import add_event
from headwater.runtime.catalog.leases import revoke_lease
from headwater.runtime.catalog.log import create_log, drop_log
from headwater.runtime.catalog.records import (
    StreamRow,
    TableRow,
    ingest_owner,
    requesting_unit,
    stream_log,
    table_input,
)


def _select_streams() -> sa.Select[Any]:
    table, logs = schema.streams, schema.logs
    joined = table.join(logs, logs.c.log == "stream:" + table.c.name)
    return sa.select(table, logs.c.next_seq).select_from(joined).order_by(table.c.name)


_STREAMS = _select_streams()
_STREAMS_NAMED = _STREAMS.where(schema.streams.c.name.in_(sa.bindparam("names", expanding=True)))
_DECLARATIONS = sa.union_all(
    *(sa.select(table.c.name, table.c.definition) for table in (schema.streams, schema.tables))
)


class Declarations(CatalogBase):
    """Streams and tables."""

    def declare_stream(
        self,
        name: str,
        definition: str,
        *,
        lateness: int = 0,
        keep: int = 0,
        source: str | None = None,
    ) -> StreamRow:
        """Add a stream with an empty log; raises CatalogError if the name is taken."""
        with self._database.write() as transaction:
            _check_name_free(transaction, name)
            row = StreamRow(
                name=name.lower(),
                spelled=name,
                definition=definition,
                lateness=lateness,
                keep=keep,
                ended=False,
                max_event_time=None,
                malformed=0,
                late=0,
                created_at=transaction.now,
                reopens=False,
                closed_until=None,
                source=source,
                next_seq=1,
            )
            values = {column.name: getattr(row, column.name) for column in schema.streams.c}
            transaction.connection.execute(sa.insert(schema.streams), values)
            create_log(transaction, stream_log(name))
            return row

    def declarations(self) -> dict[str, str]:
        """The definition of every stream and table, by name."""
        with self._database.read() as connection:
            return {row.name: row.definition for row in connection.execute(_DECLARATIONS)}

    def streams(self, named: Collection[str] | None = None) -> list[StreamRow]:
        """Every stream, or those with these lower-case names, ordered by name."""
        if named is None:
            return self._select_rows(StreamRow, _STREAMS)
        return self._select_rows(StreamRow, _STREAMS_NAMED, names=sorted(named))

    def stream(self, name: str) -> StreamRow | None:
        """One stream, or None."""
        return self._select_row(StreamRow, _STREAMS_NAMED, names=[name.lower()])

    def drop_stream(self, name: str) -> None:
        """Remove a stream and all that belongs to it; its files become orphans.

        Raises CatalogError if it does not exist, or if a query still reads it.
        """
        with self._database.write() as transaction:
            _check_not_read(transaction, name, stream_log(name))
            _delete(transaction, schema.streams, "stream", name)
            drop_log(transaction, stream_log(name))
            forget_owner(transaction, ingest_owner(name))
            # A batch that was read for this stream must not become part of another of its name.
            revoke_lease(transaction, ingest_owner(name))
            forget_owner(transaction, stream_log(name))

    def readers(self, name: str) -> list[str]:
        """The queries that read a stream or table, directly or through other units, by name."""
        with self._database.read() as connection:
            return sorted(
                reader
                for input_name in (stream_log(name), table_input(name))
                for reader in _queries_served(connection, units_reading(connection, input_name))
            )

    def end_stream(self, name: str, reopens: bool = False) -> None:
        """Declare that a stream has all its tuples; with `reopens`, until its source has more.

        Raises CatalogError if there is no such stream.
        """
        table = schema.streams
        with self._database.write() as transaction:
            same = table.c.name == name.lower()
            change = sa.update(table).where(same).values(ended=True, reopens=reopens)
            if transaction.connection.execute(change).rowcount != 1:
                raise CatalogError(_missing_message(transaction, table, "stream", name))
            add_event(transaction, "stream ended", name.lower(), {})

    def reopen_stream(self, name: str, closed_until: int | None) -> None:
        """Reopen a stream that ended by idleness; times up to `closed_until` accept no more tuples.

        Results of those times were emitted on the strength of the end and cannot be taken back, so
        the bound only grows.
        """
        table = schema.streams
        with self._database.write() as transaction:
            same = sa.and_(table.c.name == name.lower(), table.c.reopens)
            values: dict[str, Any] = {"ended": False, "reopens": False}
            if closed_until is not None:
                values["closed_until"] = sa.case(
                    (table.c.closed_until > closed_until, table.c.closed_until),
                    else_=closed_until,
                )
            transaction.connection.execute(sa.update(table).where(same).values(values))

    def declare_table(
        self, name: str, definition: str, *, fingerprint: str = "", source: str | None = None
    ) -> TableRow:
        """Add a table in version 1; raises CatalogError if the name is taken."""
        with self._database.write() as transaction:
            _check_name_free(transaction, name)
            row = TableRow(name.lower(), name, definition, 1, fingerprint, transaction.now, source)
            transaction.connection.execute(sa.insert(schema.tables), vars(row))
            return row

    def tables(self) -> list[TableRow]:
        """Every table, by name."""
        return self._select_rows(TableRow, sa.select(schema.tables).order_by(schema.tables.c.name))

    def table(self, name: str) -> TableRow | None:
        """One table, or None."""
        same = schema.tables.c.name == name.lower()
        return self._select_row(TableRow, sa.select(schema.tables).where(same))

    def refresh_table(self, name: str, fingerprint: str) -> int:
        """The version of a table with this fingerprint: a new one if the content changed.

        Raises CatalogError if there is no such table.
        """
        current = self.table(name)
        # Read first: every step that joins the table asks, and writers wait for each other.
        if current is not None and current.fingerprint == fingerprint:
            return current.version
        table = schema.tables
        with self._database.write() as transaction:
            version = transaction.connection.scalar(
                sa.update(table)
                .where(table.c.name == name.lower())
                .values(
                    # "" is a table that was never read: its first content is version 1.
                    version=sa.case(
                        (table.c.fingerprint.in_(["", fingerprint]), table.c.version),
                        else_=table.c.version + 1,
                    ),
                    fingerprint=fingerprint,
                )
                .returning(table.c.version)
            )
            if version is None:
                raise CatalogError(_missing_message(transaction, table, "table", name))
            return int(version)

    def drop_table(self, name: str) -> None:
        """Remove a table; raises CatalogError if there is none, or a query still reads it."""
        with self._database.write() as transaction:
            _check_not_read(transaction, name, table_input(name))
            _delete(transaction, schema.tables, "table", name)


def forget_owner(transaction: Transaction, owner: str) -> None:
    """Delete the cursors, statistics and profile of an owner."""
    for table in (schema.cursors, schema.statistics, schema.profiles):
        transaction.connection.execute(sa.delete(table).where(table.c.owner == owner))


def check_inputs(transaction: Transaction, inputs: tuple[str, ...]) -> None:
    """Raise CatalogError unless every log and table exists."""
    logs = set(transaction.connection.scalars(sa.select(schema.logs.c.log)))
    names = transaction.connection.scalars(sa.select(schema.tables.c.name))
    available = logs | {table_input(name) for name in names}
    for input_name in inputs:
        if input_name not in available:
            kind, _, name = input_name.partition(":")
            raise CatalogError(f"there is no {kind} {name}, or it was dropped")


def units_reading(connection: Connection, input_name: str) -> list[str]:
    """The ids of the units that read this log or table, without dropped ones."""
    table = schema.units
    live = sa.select(table.c.id, table.c.inputs).where(table.c.state != "dropped")
    units = connection.execute(live.order_by(table.c.id))
    return [row.id for row in units if input_name in row.inputs]


def _check_name_free(transaction: Transaction, name: str) -> None:
    for kind, table in (("stream", schema.streams), ("table", schema.tables)):
        statement = sa.select(table.c.spelled).where(table.c.name == name.lower())
        if (spelled := transaction.connection.scalar(statement)) is not None:
            raise CatalogError(f"there is a {kind} {spelled} already: drop it, or use another name")


def _check_not_read(transaction: Transaction, name: str, input_name: str) -> None:
    units = units_reading(transaction.connection, input_name)
    if units:
        readers = sorted(_queries_served(transaction.connection, units))
        raise still_read(name, readers or [f"unit {unit}" for unit in units])


def still_read(name: str, readers: Sequence[str]) -> CatalogError:
    """The error where a stream or table is to be dropped that queries read."""
    listed = ", ".join(readers[:5]) + (f" and {len(readers) - 5} more" if len(readers) > 5 else "")
    return CatalogError(f"{name} is read by {listed}: drop what reads it first")


def _delete(transaction: Transaction, table: sa.Table, kind: str, name: str) -> None:
    gone = sa.delete(table).where(table.c.name == name.lower())
    if transaction.connection.execute(gone).rowcount != 1:
        raise CatalogError(_missing_message(transaction, table, kind, name))


def _missing_message(transaction: Transaction, table: sa.Table, kind: str, name: str) -> str:
    names = transaction.connection.scalars(sa.select(table.c.spelled))
    return f"there is no {kind} {name}; {suggest(name, names)}"


def _queries_served(connection: Connection, units: Iterable[str]) -> set[str]:
    """The queries of users that get rows from these units, directly or through units that read a
    partial join of one of them."""
    queries, members = schema.queries, schema.members
    join = sa.select(queries.c.name, queries.c.spelled).join(
        members, members.c.query == queries.c.name
    )
    names: set[str] = set()
    seen, pending = set(units), set(units)
    while pending:
        subscribers = connection.execute(join.where(members.c.unit_id.in_(pending)))
        requesting: set[str] = set()
        for name, spelled in subscribers:
            if (unit := requesting_unit(name)) is None:
                names.add(spelled)
            else:
                requesting.add(unit)
        pending = requesting - seen
        seen |= pending
    return names
