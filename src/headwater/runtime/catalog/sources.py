"""The streams and tables that were declared. Names are kept in lower case, and as spelled."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from headwater.errors import CatalogError, nearest
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Store, Transaction
from headwater.runtime.catalog.journal import keep_event
from headwater.runtime.catalog.log import create_log, drop_log
from headwater.runtime.catalog.rows import StreamRow, TableRow, stream_log, table_input


def _streams() -> sa.Select[Any]:
    table, logs = schema.streams, schema.logs
    joined = table.join(logs, logs.c.log == "stream:" + table.c.name)
    return sa.select(table, logs.c.next_seq).select_from(joined).order_by(table.c.name)


_STREAMS = _streams()
_STREAMS_NAMED = _STREAMS.where(schema.streams.c.name.in_(sa.bindparam("names", expanding=True)))
_DECLARED = sa.union_all(
    *(sa.select(table.c.name, table.c.definition) for table in (schema.streams, schema.tables))
)


class Sources(Store):
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
            _check_free(transaction, name)
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
            return {row.name: row.definition for row in connection.execute(_DECLARED)}

    def streams(self, named: Collection[str] | None = None) -> list[StreamRow]:
        """Every stream, or those of these names in lower case, by name."""
        if named is None:
            return self._rows(StreamRow, _STREAMS)
        return self._rows(StreamRow, _STREAMS_NAMED, names=sorted(named))

    def stream(self, name: str) -> StreamRow | None:
        """One stream, or None."""
        return self._row(StreamRow, _STREAMS_NAMED, names=[name.lower()])

    def drop_stream(self, name: str) -> None:
        """Forget a stream and all that belongs to it; its files are then orphans.

        Raises CatalogError if there is none, or if a query still reads it.
        """
        with self._database.write() as transaction:
            _check_unread(transaction, name, stream_log(name))
            _delete(transaction, schema.streams, "stream", name)
            drop_log(transaction, stream_log(name))
            forget_owner(transaction, f"ingest:{name.lower()}")
            forget_owner(transaction, stream_log(name))

    def end_stream(self, name: str, reopens: bool = False) -> None:
        """Nothing more will come; `reopens` says: unless the source has more after all.

        Raises CatalogError if there is no such stream.
        """
        table = schema.streams
        with self._database.write() as transaction:
            same = table.c.name == name.lower()
            change = sa.update(table).where(same).values(ended=True, reopens=reopens)
            if transaction.connection.execute(change).rowcount != 1:
                raise CatalogError(_missing(transaction, table, "stream", name))
            keep_event(transaction, "stream ended", name.lower(), {})

    def reopen_stream(self, name: str, closed_until: int | None) -> None:
        """More has come on a stream that was taken as ended; what is closed already stays so."""
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
            _check_free(transaction, name)
            row = TableRow(name.lower(), name, definition, 1, fingerprint, transaction.now, source)
            transaction.connection.execute(sa.insert(schema.tables), vars(row))
            return row

    def tables(self) -> list[TableRow]:
        """Every table, by name."""
        return self._rows(TableRow, sa.select(schema.tables).order_by(schema.tables.c.name))

    def table(self, name: str) -> TableRow | None:
        """One table, or None."""
        same = schema.tables.c.name == name.lower()
        return self._row(TableRow, sa.select(schema.tables).where(same))

    def refresh_table(self, name: str, fingerprint: str) -> int:
        """The version of a table whose content has this fingerprint: a new one if it differs from what
        was read last.

        Raises CatalogError if there is no such table.
        """
        known = self.table(name)
        if known is not None and known.fingerprint == fingerprint:
            return known.version
        table = schema.tables
        with self._database.write() as transaction:
            version = transaction.connection.scalar(
                sa.update(table)
                .where(table.c.name == name.lower())
                .values(
                    version=sa.case(
                        (table.c.fingerprint.in_(["", fingerprint]), table.c.version),
                        else_=table.c.version + 1,
                    ),
                    fingerprint=fingerprint,
                )
                .returning(table.c.version)
            )
            if version is None:
                raise CatalogError(_missing(transaction, table, "table", name))
            return int(version)

    def drop_table(self, name: str) -> None:
        """Forget a table; raises CatalogError if there is none, or if a query still reads it."""
        with self._database.write() as transaction:
            _check_unread(transaction, name, table_input(name))
            _delete(transaction, schema.tables, "table", name)


def forget_owner(transaction: Transaction, owner: str) -> None:
    """Delete what was noted and measured of an owner."""
    for table in (schema.cursors, schema.statistics, schema.profiles):
        transaction.connection.execute(sa.delete(table).where(table.c.owner == owner))


def check_inputs(transaction: Transaction, inputs: tuple[str, ...]) -> None:
    """Raises CatalogError unless every log and table is there."""
    logs = set(transaction.connection.scalars(sa.select(schema.logs.c.log)))
    names = transaction.connection.scalars(sa.select(schema.tables.c.name))
    known = logs | {table_input(name) for name in names}
    for wanted in inputs:
        if wanted not in known:
            kind, _, name = wanted.partition(":")
            raise CatalogError(f"there is no {kind} {name}, or it was dropped")


def units_reading(transaction: Transaction, wanted: str) -> list[str]:
    """The ids of the units, dropped ones left out, that have this log or table as an input."""
    table = schema.units
    live = sa.select(table.c.id, table.c.inputs).where(table.c.state != "dropped")
    found = transaction.connection.execute(live.order_by(table.c.id))
    return [row.id for row in found if wanted in row.inputs]


def _check_free(transaction: Transaction, name: str) -> None:
    for kind, table in (("stream", schema.streams), ("table", schema.tables)):
        taken = sa.select(table.c.spelled).where(table.c.name == name.lower())
        if (spelled := transaction.connection.scalar(taken)) is not None:
            raise CatalogError(
                f"there is a {kind} {spelled} already: drop it, or take another name"
            )


def _check_unread(transaction: Transaction, name: str, wanted: str) -> None:
    units = units_reading(transaction, wanted)
    if not units:
        return
    table, members = schema.queries, schema.members
    readers = (
        sa.select(table.c.spelled)
        .join(members, members.c.query == table.c.name)
        .where(members.c.unit_id.in_(units))
        .distinct()
        .order_by(table.c.spelled)
    )
    names = list(transaction.connection.scalars(readers)) or [f"unit {unit}" for unit in units]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    raise CatalogError(f"{name} is read by {shown}: drop what reads it first")


def _delete(transaction: Transaction, table: sa.Table, kind: str, name: str) -> None:
    gone = sa.delete(table).where(table.c.name == name.lower())
    if transaction.connection.execute(gone).rowcount != 1:
        raise CatalogError(_missing(transaction, table, kind, name))


def _missing(transaction: Transaction, table: sa.Table, kind: str, name: str) -> str:
    known = transaction.connection.scalars(sa.select(table.c.spelled))
    return f"there is no {kind} {name}; {nearest(name, known)}"
