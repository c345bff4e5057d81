"""Queries, and the units that compute them.

A query is a subscriber of the unit that computes it; equal queries share one. A unit lives as long
as it has a subscriber, or another unit reads its log. What was dropped stays as a row in that
state, so that a worker in the middle of a step notices, until it is purged or its name is used
again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

import sqlalchemy as sa

from headwater.errors import CatalogError, CommitConflict, suggest
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import CatalogBase, Transaction, select_rows
from headwater.runtime.catalog.declarations import check_inputs, forget_owner, units_reading
from headwater.runtime.catalog.journal import add_event, add_events
from headwater.runtime.catalog.log import create_log, drop_log, move_cursors
from headwater.runtime.catalog.records import (
    HIDDEN_PREFIX,
    Cursors,
    NarrowedPartialJoin,
    NewPartialJoin,
    NewQuery,
    NewUnit,
    QueryRow,
    QueryState,
    UnitRow,
    UnitState,
    panes_log,
    partial_join_name,
    plan_owner,
    replaced_partial_join_name,
    subscribers_log,
    unit_log,
)

_Q, _U, _M = schema.queries, schema.units, schema.members

NO_DEFINITION = ""
"""The definition of a unit that has lost queries: its operator has to be derived again."""

NARROWED = " narrowed"
"""The end of the digest of a hidden query whose rows were once more than it asks for now."""

MAX_NAMED_QUERIES = 1_000
"""With more names than this, all queries are read instead."""

_UNIT = sa.select(_U).where(_U.c.id == sa.bindparam("unit_id"))
_UNITS_FINGERPRINT = sa.select(
    sa.func.count(), sa.func.sum(_U.c.version), sa.func.max(_U.c.created_at)
).where(_U.c.state != "dropped")
_ALL_QUERIES = sa.select(_Q).where(sa.not_(_Q.c.name.startswith(HIDDEN_PREFIX))).order_by(_Q.c.name)
_QUERIES = _ALL_QUERIES.where(_Q.c.state != "dropped")
_NAME_IN = _Q.c.name.in_(sa.bindparam("names", expanding=True))
_STATE_BY_NAME = sa.select(_Q.c.spelled, _Q.c.state).where(_Q.c.name == sa.bindparam("name"))
_ADD_QUERY, _ADD_SUBSCRIBER = sa.insert(_Q), sa.insert(_M)
_SUBSCRIBERS_WITH_DIGEST = sa.select(_Q).where(
    _Q.c.digest == sa.bindparam("digest"),
    sa.exists().where(_M.c.unit_id == sa.bindparam("unit_id"), _M.c.query == _Q.c.name),
)
_OTHER_SUBSCRIBER = sa.and_(
    _M.c.unit_id == sa.bindparam("unit_id"),
    _M.c.query != sa.bindparam("name"),
    sa.not_(_M.c.query.startswith(HIDDEN_PREFIX)),
)
_OTHER_QUERIES = (
    sa.select(_Q.c.spelled)
    .join(_M, _M.c.query == _Q.c.name)
    .where(_OTHER_SUBSCRIBER)
    .order_by(_M.c.query)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_OTHER_QUERIES_COUNT = sa.select(sa.func.count()).select_from(_M).where(_OTHER_SUBSCRIBER)


class Queries(CatalogBase):
    """Queries, units and their subscribers."""

    def accept_query(
        self,
        query: NewQuery,
        unit: NewUnit | str,
        cursors: Cursors | None = None,
        definition: str | None = None,
        require_unemitted: bool = False,
        version: int | None = None,
        newest_unit: float | None = None,
        seen_definition: str | None = None,
        seen_inputs: tuple[str, ...] | None = None,
        partial_join: NewPartialJoin | None = None,
    ) -> QueryRow:
        """Add a running query to a new unit, or to the unit with this id, and set cursors.

        `definition` is the new one of a unit that is relaxed for the query. `partial_join` is
        accepted together with a new unit that reads it, or for a unit that has to read more for the
        query: that goes on with what it reads until it may change (`adopt_partial_join`).

        The decision for a unit was made outside this transaction, so what it relied on is checked
        here. CommitConflict is raised if the unit was dropped; if its version is not `version`; if
        its definition is not `seen_definition` or what it reads not `seen_inputs`; if a unit was
        created after `newest_unit`; if the query that this one is `equal_to` has left; or, with
        `require_unemitted`, if the unit has evaluated an instant after the start of the query. Raises CatalogError if the name is taken,
        or if an input or the unit does not exist.
        """
        with self._database.write() as transaction:
            _check_name_free(transaction, query.name)
            if isinstance(unit, str):
                unit_id = unit
                new_version = _join_unit(
                    transaction, unit, definition, version, seen_definition, seen_inputs
                )
                if partial_join is not None:
                    replace_partial_join(transaction, unit, partial_join)
                result_key = _result_key(transaction, query, unit, new_version)
            else:
                # A unit that was created since the choice was made might serve this query as well.
                _check_newest_unit(transaction, newest_unit)
                if partial_join is not None:
                    accept_partial_join(transaction, partial_join)
                unit_id = create_unit(transaction, unit)
                result_key = query.digest
            if require_unemitted:
                _check_unemitted(transaction, unit_id, query.start_at)
            return _add_query(transaction, query, unit_id, result_key, cursors)

    def queries(
        self,
        *,
        dropped: bool = False,
        with_sink: bool = False,
        named: Collection[str] | None = None,
    ) -> list[QueryRow]:
        """The queries of users ordered by name: all, those with a sink, or (at least) those named.

        `named` are lower-case names. Dropped queries are included only if `dropped`.
        """
        statement = _ALL_QUERIES if dropped else _QUERIES
        if with_sink:
            statement = statement.where(_Q.c.sink.is_not(None))
        if named is None or len(named) > MAX_NAMED_QUERIES:
            return self._select_rows(QueryRow, statement)
        return self._select_rows(QueryRow, statement.where(_NAME_IN), names=sorted(named))

    def query(self, name: str) -> QueryRow | None:
        """One query, dropped or not, or None."""
        return self._select_row(QueryRow, sa.select(_Q).where(_Q.c.name == name.lower()))

    def set_query_state(self, name: str, state: QueryState, error: str = "") -> None:
        """Run, pause, park or finish a query.

        Raises CatalogError if it does not exist, or is finished: only more input reopens it.
        """
        _check_state(state, get_args(QueryState))
        with self._database.write() as transaction:
            query = _live_query(transaction, name)
            if query.state == "finished" and state != "finished":
                raise CatalogError(f"query {query.spelled} is finished and cannot be {state}")
            change = sa.update(_Q).where(_Q.c.name == query.name).values(state=state, error=error)
            transaction.connection.execute(change)
            # Its operator may narrow by what only this query needed.
            if state == "finished":
                bump_unit_version(transaction, query.unit_id, definition=NO_DEFINITION)
            if state != query.state:
                verb = "resumed" if state == "running" else state
                add_event(
                    transaction, f"query {verb}", query.name, {"error": error} if error else {}
                )

    def finish_queries(self, unit_id: str, names: Sequence[str]) -> None:
        """Finish queries of a unit in one transaction, with an event for each."""
        with self._database.write() as transaction:
            # One that was paused, parked or dropped meanwhile stays what it is.
            running = sa.and_(_Q.c.name == sa.bindparam("which"), _Q.c.state == "running")
            change = sa.update(_Q).where(running).values(state="finished", error="")
            transaction.connection.execute(change, [{"which": name} for name in names])
            bump_unit_version(transaction, unit_id, definition=NO_DEFINITION)
            add_events(transaction, "query finished", names)

    def record_ends(self, ends: Mapping[str, int]) -> None:
        """Set the ends of queries whose lifetime has begun; an end that is set already stays."""
        if not ends:
            return
        same = sa.and_(_Q.c.name == sa.bindparam("which"), _Q.c.end_at.is_(None))
        change = sa.update(_Q).where(same).values(end_at=sa.bindparam("end"))
        with self._database.write() as transaction:
            transaction.connection.execute(
                change, [{"which": name, "end": end} for name, end in ends.items()]
            )

    def reopen_query(self, name: str) -> None:
        """Run a finished query again, because its input has more."""
        same = sa.and_(_Q.c.name == name.lower(), _Q.c.state == "finished")
        with self._database.write() as transaction:
            # With it the operator is derived again, which may have narrowed while the query was
            # finished.
            transaction.connection.execute(sa.update(_Q).where(same).values(state="running"))
            bump_unit_version(
                transaction, _live_query(transaction, name).unit_id, definition=NO_DEFINITION
            )

    def drop_query(self, name: str) -> list[str]:
        """Drop a query, and each unit that is no longer needed; returns the ids of those.

        The logs and cursors of such a unit go with it; its files become orphans. Raises
        CatalogError if there is no such query.
        """
        with self._database.write() as transaction:
            query = _live_query(transaction, name)
            serving = sa.select(_M.c.unit_id).where(_M.c.query == query.name)
            units = sorted({*transaction.connection.scalars(serving), query.unit_id})
            transaction.connection.execute(sa.delete(_M).where(_M.c.query == query.name))
            transaction.connection.execute(
                sa.update(_Q).where(_Q.c.name == query.name).values(state="dropped")
            )
            forget_owner(transaction, f"sink:{query.name}")
            add_event(transaction, "query dropped", query.name, {})
            _leave_unit(transaction, query)
            return drop_unneeded_units(transaction, units)

    def units(self, *, dropped: bool = False) -> list[UnitRow]:
        """The units, oldest first; dropped ones are included only if `dropped`."""
        return self._select_rows(
            UnitRow, _select_from(_U, dropped).order_by(_U.c.created_at, _U.c.id)
        )

    def units_fingerprint(self) -> tuple[int, int, float]:
        """A value that differs after units were created or dropped, or their queries changed.

        It is the number of units, the sum of their versions, and when the newest was created.
        """
        with self._database.read() as connection:
            number, versions, newest = connection.execute(_UNITS_FINGERPRINT).one()
        return int(number), int(versions or 0), float(newest or 0.0)

    def unit(self, unit_id: str) -> UnitRow | None:
        """One unit, dropped or not, or None."""
        return self._select_row(UnitRow, _UNIT, unit_id=unit_id)

    def define_unit(
        self,
        unit_id: str,
        version: int,
        definition: str,
        narrowed: NarrowedPartialJoin | None = None,
    ) -> bool:
        """Set the definition of a unit that has none, unless its queries changed since `version`.

        With it is narrowed what the unit reads of another, which then has a new version, as has the
        unit. Returns whether the unit has this definition now.
        """
        same = sa.and_(_U.c.id == unit_id, _U.c.version == version, _U.c.state != "dropped")
        change = (
            sa.update(_U)
            .where(same, _U.c.definition == NO_DEFINITION)
            .values(definition=definition)
        )
        with self._database.write(quiet=True) as transaction:
            if transaction.connection.execute(change).rowcount == 1:
                if narrowed is not None:
                    _narrow_partial_join(transaction, unit_id, narrowed)
                return True
            current = sa.select(_U.c.definition).where(same)
            return transaction.connection.scalar(current) == definition

    def set_unit_state(
        self,
        unit_id: str,
        state: UnitState,
        *,
        error: str = "",
        retries: int = 0,
        not_before: float = 0.0,
    ) -> None:
        """Run, pause or park a unit, and record its failures and when to try again.

        Raises CatalogError if there is no such unit, or if it was dropped.
        """
        _check_state(state, get_args(UnitState))
        with self._database.write() as transaction:
            live_unit(transaction, unit_id)
            transaction.connection.execute(
                sa.update(_U)
                .where(_U.c.id == unit_id)
                .values(state=state, error=error, retries=retries, not_before=not_before)
            )

    def park_unit(
        self, unit_id: str, error: str, retries: int = 0, errors: Mapping[str, str] | None = None
    ) -> None:
        """Park a unit after failures, with its running queries and the units that read it.

        `errors` has more specific messages for queries, by digest.
        """
        with self._database.write() as transaction:
            live_unit(transaction, unit_id)
            _park_unit(transaction, unit_id, error, retries, errors or {})

    def subscribers(self, unit_id: str) -> list[QueryRow]:
        """The subscribers of a unit, hidden ones included, ordered by name."""
        of_unit = sa.select(_Q).join(_M, _M.c.query == _Q.c.name).where(_M.c.unit_id == unit_id)
        return self._select_rows(QueryRow, of_unit.order_by(_Q.c.name))

    def queries_with_unknown_end(self) -> list[QueryRow]:
        """The queries that have an end which is still unknown."""
        open_end = sa.and_(_Q.c.lifetime.is_not(None), _Q.c.end_at.is_(None))
        return self._select_rows(
            QueryRow, _select_from(_Q, False).where(open_end).order_by(_Q.c.name)
        )

    def earliest_end(self, unit_id: str) -> int | None:
        """The earliest known end of the running queries of a unit, or None."""
        statement = sa.select(sa.func.min(_Q.c.end_at)).select_from(
            _Q.join(_M, _M.c.query == _Q.c.name)
        )
        with self._database.read() as connection:
            end = connection.execute(
                statement.where(_M.c.unit_id == unit_id, _Q.c.state == "running")
            ).scalar_one()
            return None if end is None else int(end)

    def running_counts(self, unit_id: str) -> tuple[int, int]:
        """How many queries of a unit are running, and how many of these have a lifetime."""
        ends = sa.func.coalesce(sa.func.sum(sa.case((_Q.c.lifetime.is_not(None), 1), else_=0)), 0)
        counts = sa.select(sa.func.count(), ends).select_from(_Q.join(_M, _M.c.query == _Q.c.name))
        statement = counts.where(_M.c.unit_id == unit_id, _Q.c.state == "running")
        with self._database.read() as connection:
            running, with_end = connection.execute(statement).one()
            return int(running), int(with_end)

    def has_running_query(self, unit_id: str) -> bool:
        """Whether any query of a unit is running."""
        running = sa.select(_Q.c.name).join(_M, _M.c.query == _Q.c.name).limit(1)
        with self._database.read() as connection:
            statement = running.where(_M.c.unit_id == unit_id, _Q.c.state == "running")
            return connection.execute(statement).first() is not None

    def subscribers_with_digest(self, unit_id: str, digest: str) -> list[QueryRow]:
        """The subscribers of a unit with a digest; by an index, as a unit may have thousands."""
        return self._select_rows(QueryRow, _SUBSCRIBERS_WITH_DIGEST, unit_id=unit_id, digest=digest)

    def other_queries(self, query: QueryRow, limit: int) -> tuple[list[str], int]:
        """The first `limit` other queries of a query's unit, as spelled, and how many there are."""
        return self.served_queries(query.unit_id, limit, query.name)

    def served_queries(
        self, unit_id: str, limit: int, excluding: str = ""
    ) -> tuple[list[str], int]:
        """The first `limit` queries of users in a unit, as spelled, and how many there are."""
        of_unit = {"unit_id": unit_id, "name": excluding}
        with self._database.read() as connection:
            names = list(connection.scalars(_OTHER_QUERIES, of_unit | {"most": limit}))
            if len(names) < limit:
                return names, len(names)
            return names, int(connection.execute(_OTHER_QUERIES_COUNT, of_unit).scalar_one())

    def hidden_subscribers(self, unit_id: str) -> list[str]:
        """The names of the hidden queries by which other units read a unit."""
        condition = sa.and_(_M.c.unit_id == unit_id, _M.c.query.startswith(HIDDEN_PREFIX))
        with self._database.read() as connection:
            names = sa.select(_M.c.query).where(condition).order_by(_M.c.query)
            return list(connection.scalars(names))

    def hidden_subscriptions(self) -> dict[str, list[str]]:
        """The names of the hidden queries of all units, by the unit that is read."""
        hidden = sa.select(_M.c.unit_id, _M.c.query).where(_M.c.query.startswith(HIDDEN_PREFIX))
        names: dict[str, list[str]] = {}
        with self._database.read() as connection:
            for unit_id, name in connection.execute(hidden.order_by(_M.c.query)):
                names.setdefault(unit_id, []).append(name)
        return names

    def partial_joins(self, unit_id: str) -> tuple[QueryRow | None, QueryRow | None]:
        """The hidden query whose rows a unit reads, and the one that it waits for to read instead."""
        names = (replaced_partial_join_name(unit_id), partial_join_name(unit_id))
        live = sa.select(_Q).where(_Q.c.name.in_(names), _Q.c.state != "dropped")
        rows = {row.name: row for row in self._select_rows(QueryRow, live)}
        replaced, newest = (rows.get(name) for name in names)
        return (newest, None) if replaced is None else (replaced, newest)

    def adopt_partial_join(self, unit: UnitRow) -> None:
        """Let a unit read what it has waited for, from where it is; what it has read before is given up.

        Raises CommitConflict if the queries of the unit have changed.
        """
        with self._database.write() as transaction:
            current = live_unit(transaction, unit.id)
            if current.version != unit.version:
                raise CommitConflict(f"the queries of unit {unit.id} have changed")
            _drop_hidden_query(transaction, replaced_partial_join_name(unit.id))
            bump_unit_version(transaction, unit.id)

    def forget_dropped(self, keep: int = 0) -> int:
        """Purge dropped queries and units except the newest `keep` of each; returns how many.

        The leases of purged units go too.
        """
        with self._database.write(quiet=True) as transaction:
            removed = _forget_dropped_rows(transaction, _Q, _Q.c.name, _Q.c.accepted_at, keep)
            removed += _forget_dropped_rows(transaction, _U, _U.c.id, _U.c.created_at, keep)
            _forget_leases(transaction)
            return removed


def _forget_dropped_rows(
    transaction: Transaction, table: sa.Table, key: sa.Column[Any], age: sa.Column[Any], keep: int
) -> int:
    dropped = table.c.state == "dropped"
    newest = sa.select(key).where(dropped).order_by(age.desc(), key).limit(keep)
    expired = sa.delete(table).where(
        dropped, key.not_in(list(transaction.connection.scalars(newest)))
    )
    if table is _U:  # rows of dropped queries refer to their unit
        expired = expired.where(key.not_in(sa.select(_Q.c.unit_id)))
    return int(transaction.connection.execute(expired).rowcount)


def _forget_leases(transaction: Transaction) -> None:
    """Remove the leases of purged units; ids are never reused, so no token can repeat."""
    names = sa.select("unit:" + _U.c.id)
    gone = sa.and_(schema.leases.c.name.like("unit:%"), schema.leases.c.name.not_in(names))
    transaction.connection.execute(sa.delete(schema.leases).where(gone))


def _select_from(table: sa.Table, dropped: bool) -> sa.Select[Any]:
    statement = sa.select(table)
    return statement if dropped else statement.where(table.c.state != "dropped")


def _check_state(state: str, states: tuple[str, ...]) -> None:
    """Raise CatalogError unless the state can be set; dropping has its own method."""
    possible = [allowed for allowed in states if allowed != "dropped"]
    if state not in possible:
        raise CatalogError(f"{state} is not a state to set; {suggest(state, possible)}")


def _check_name_free(transaction: Transaction, name: str) -> None:
    """Raise CatalogError if a live query has the name; a dropped one is removed to free it."""
    existing = transaction.connection.execute(_STATE_BY_NAME, {"name": name.lower()}).first()
    if existing is None:
        return
    if existing.state != "dropped":
        raise CatalogError(
            f"there is a query {existing.spelled} already: drop it, or use another name"
        )
    transaction.connection.execute(sa.delete(_Q).where(_Q.c.name == name.lower()))


def _live_query(transaction: Transaction, name: str) -> QueryRow:
    same = sa.select(_Q).where(_Q.c.name == name.lower(), _Q.c.state != "dropped")
    selected = select_rows(transaction.connection, QueryRow, same)
    if not selected:
        visible = sa.not_(_Q.c.name.startswith(HIDDEN_PREFIX))
        live = sa.select(_Q.c.spelled).where(_Q.c.state != "dropped", visible)
        names = transaction.connection.scalars(live)
        raise CatalogError(f"there is no query {name}; {suggest(name, names)}")
    return selected[0]


def live_unit(transaction: Transaction, unit_id: str) -> UnitRow:
    selected = select_rows(transaction.connection, UnitRow, _UNIT, {"unit_id": unit_id})
    if not selected:
        raise CatalogError(f"there is no unit {unit_id}")
    if selected[0].state == "dropped":
        raise CommitConflict(f"unit {unit_id} was dropped")
    return selected[0]


def _join_unit(
    transaction: Transaction,
    unit_id: str,
    definition: str | None,
    version: int | None,
    seen_definition: str | None,
    seen_inputs: tuple[str, ...] | None = None,
) -> int:
    """Run a unit for one more query; returns its new version."""
    unit = live_unit(transaction, unit_id)
    if version not in (None, unit.version):
        raise CommitConflict(f"unit {unit_id} has version {unit.version}, not {version}")
    if seen_definition not in (None, unit.definition):
        raise CommitConflict(f"unit {unit_id} runs another operator meanwhile")
    if seen_inputs not in (None, unit.inputs):
        raise CommitConflict(f"unit {unit_id} reads other logs meanwhile")
    values: dict[str, Any] = {}
    if definition is not None:
        values["definition"] = definition
    # A unit pauses when none of its queries runs, and now one does; old failures are not its own.
    if unit.state != "running":
        values |= {"state": "running", "error": "", "retries": 0, "not_before": 0.0}
    bump_unit_version(transaction, unit_id, **values)
    return unit.version + 1


def _add_query(
    transaction: Transaction,
    query: NewQuery,
    unit_id: str,
    result_key: str,
    cursors: Cursors | None,
) -> QueryRow:
    row = QueryRow(
        name=query.name.lower(),
        spelled=query.name,
        definition=query.definition,
        digest=query.digest,
        unit_id=unit_id,
        state="running",
        start_at=query.start_at,
        end_at=query.end_at,
        columns=query.columns,
        sink=query.sink,
        error="",
        accepted_at=transaction.now,
        lifetime=query.lifetime,
        result_key=result_key,
        keep=query.keep,
    )
    transaction.connection.execute(_ADD_QUERY, vars(row))
    transaction.connection.execute(_ADD_SUBSCRIBER, {"unit_id": unit_id, "query": row.name})
    move_cursors(transaction, cursors or {})
    if query.placement_note is not None:
        add_event(transaction, "query placed", row.name, query.placement_note)
    return row


def accept_partial_join(transaction: Transaction, partial_join: NewPartialJoin) -> None:
    """Subscribe a new unit to a partial join of another unit."""
    _check_name_free(transaction, partial_join.query.name)
    new_version = _join_unit(
        transaction, partial_join.unit_id, partial_join.definition, partial_join.version, None
    )
    result_key = _result_key(transaction, partial_join.query, partial_join.unit_id, new_version)
    _add_query(
        transaction, partial_join.query, partial_join.unit_id, result_key, partial_join.cursors
    )


def replace_partial_join(
    transaction: Transaction, reader: str, partial_join: NewPartialJoin
) -> None:
    """Put another hidden query of a unit in the place of the one it has.

    The unit goes on to read the rows of that one, which is kept under another name: only when both
    have the rows of the same tuples can it change without losing or doubling any.
    """
    connection = transaction.connection
    name, replaced = partial_join_name(reader), replaced_partial_join_name(reader)
    kept = sa.select(_Q.c.name).where(_Q.c.name == replaced, _Q.c.state != "dropped")
    if connection.scalar(kept) is None:
        # A dropped query of an earlier exchange may still have the name.
        connection.execute(sa.delete(_Q).where(_Q.c.name == replaced))
        (row,) = select_rows(connection, QueryRow, sa.select(_Q).where(_Q.c.name == name))
        # A copy and not a new name for the row: members refer to a query by its name.
        renamed = {**vars(row), "name": replaced, "spelled": replaced}
        connection.execute(sa.insert(_Q), renamed)
        change = sa.update(_M).where(_M.c.query == name)
        connection.execute(change.values(query=replaced))
    else:
        # What the unit has been waiting for was not read by anybody yet.
        connection.execute(sa.delete(_M).where(_M.c.query == name))
    connection.execute(sa.delete(_Q).where(_Q.c.name == name))
    accept_partial_join(transaction, partial_join)


def _narrow_partial_join(
    transaction: Transaction, reader: str, narrowed: NarrowedPartialJoin
) -> None:
    """Let a hidden query ask for less from now on, under the same result key: rows that were emitted for
    it before are more than it needs, and its reader applies its own conditions to all.

    Nothing is changed if the query has changed, if its reader waits for another, or if other queries
    have their rows under that key. No query may join it as an equal one: its digest is none.
    """
    connection, seen = transaction.connection, narrowed.query
    of_unit = sa.select(_Q).join(_M, _M.c.query == _Q.c.name).where(_M.c.unit_id == seen.unit_id)
    same_rows = select_rows(connection, QueryRow, of_unit.where(_Q.c.result_key == seen.result_key))
    waiting = sa.select(_Q.c.name).where(
        _Q.c.name == replaced_partial_join_name(reader), _Q.c.state != "dropped"
    )
    if same_rows != [seen] or connection.scalar(waiting) is not None:
        return
    digest = seen.digest.removesuffix(NARROWED) + NARROWED
    change = sa.update(_Q).where(_Q.c.name == seen.name)
    connection.execute(change.values(definition=narrowed.definition, digest=digest))
    # A query that relied on the wider rows is not accepted any more.
    bump_unit_version(transaction, reader)
    bump_unit_version(transaction, seen.unit_id, definition=NO_DEFINITION)
    detail = {
        "reads": seen.unit_id,
        "changes": list(narrowed.changes),
        "reason": "queries have left that needed more of it",
    }
    add_event(transaction, "reading narrowed", reader, detail)


def _result_key(transaction: Transaction, query: NewQuery, unit_id: str, version: int) -> str:
    """The name under which a unit writes the rows of a query that joins it.

    Without an equal query that runs it is one never used in this unit: the log may still hold rows
    of an equal query that has left, and what the unit missed since then is computed for this one.
    """
    if query.equal_to is None:
        return f"{query.digest}#{version}"
    same = sa.select(_Q.c.result_key).where(
        _Q.c.name == query.equal_to,
        _Q.c.unit_id == unit_id,
        _Q.c.digest == query.digest,
        _Q.c.state != "dropped",
    )
    result_key = transaction.connection.scalar(same)
    if result_key is None:
        raise CommitConflict(f"query {query.equal_to} has left unit {unit_id}")
    return str(result_key)


def _park_unit(
    transaction: Transaction, unit_id: str, error: str, retries: int, errors: Mapping[str, str]
) -> None:
    values = {"state": "parked", "error": error, "retries": retries, "not_before": 0.0}
    transaction.connection.execute(sa.update(_U).where(_U.c.id == unit_id).values(values))
    add_event(transaction, "unit parked", unit_id, {"error": error})
    subscribers = sa.select(_Q).join(_M, _M.c.query == _Q.c.name).where(_M.c.unit_id == unit_id)
    for query in select_rows(
        transaction.connection, QueryRow, subscribers.where(_Q.c.state == "running")
    ):
        reason = errors.get(query.digest, error)
        parked = sa.update(_Q).where(_Q.c.name == query.name)
        transaction.connection.execute(parked.values(state="parked", error=reason))
        if not query.is_hidden:
            add_event(transaction, "query parked", query.name, {"unit": unit_id, "error": reason})
    # Without its rows they would wait for ever, and nobody would be told why.
    for reader in units_reading(transaction.connection, unit_log(unit_id)):
        _park_unit(
            transaction, reader, f"unit {unit_id}, which it reads, is parked: {error}", 0, {}
        )


def create_unit(transaction: Transaction, unit: NewUnit) -> str:
    """Create a running unit with its logs; returns its id."""
    check_inputs(transaction, unit.inputs)
    if transaction.connection.scalar(sa.select(_U.c.id).where(_U.c.id == unit.id)) is not None:
        raise CatalogError(f"there is a unit {unit.id} already")
    row = UnitRow(
        id=unit.id,
        digest=unit.digest,
        definition=unit.definition,
        inputs=unit.inputs,
        version=unit.version,
        state="running",
        retries=0,
        not_before=0.0,
        error="",
        created_at=transaction.now,
    )
    transaction.connection.execute(sa.insert(_U), vars(row))
    create_log(transaction, unit_log(unit.id))
    create_log(transaction, panes_log(unit.id))
    create_log(transaction, subscribers_log(unit.id))
    return unit.id


def _check_newest_unit(transaction: Transaction, newest: float | None) -> None:
    if newest is None:
        return
    _, _, latest = transaction.connection.execute(_UNITS_FINGERPRINT).one()
    if latest is not None and latest > newest:
        raise CommitConflict("a unit was created meanwhile")


def _check_unemitted(transaction: Transaction, unit_id: str, start: int | None) -> None:
    table = schema.cursors
    same = sa.and_(table.c.owner == unit_id, table.c.input == "instant")
    instant = transaction.connection.scalar(sa.select(table.c.position).where(same))
    if instant is not None and (start is None or instant > start):
        raise CommitConflict(f"unit {unit_id} has already emitted instant {instant}")


def _leave_unit(transaction: Transaction, query: QueryRow) -> None:
    """Record that a query has left its unit; unless an equal one stays, its operator may narrow."""
    same = {"unit_id": query.unit_id, "digest": query.digest}
    equal = select_rows(transaction.connection, QueryRow, _SUBSCRIBERS_WITH_DIGEST, same)
    still_needed = any(other.state not in ("finished", "dropped") for other in equal)
    bump_unit_version(
        transaction, query.unit_id, **({} if still_needed else {"definition": NO_DEFINITION})
    )


def bump_unit_version(transaction: Transaction, unit_id: str, **values: Any) -> None:
    """Record that the queries of a unit have changed, with other columns to set."""
    change = sa.update(_U).where(_U.c.id == unit_id)
    transaction.connection.execute(change.values(version=_U.c.version + 1, **values))


def drop_unneeded_units(transaction: Transaction, units: list[str]) -> list[str]:
    """Drop those units that have no reader, and then the units that only they read."""
    dropped = []
    while units:
        unit_id = units.pop(0)
        selected = select_rows(transaction.connection, UnitRow, _UNIT, {"unit_id": unit_id})
        if selected[0].state == "dropped" or _is_needed(transaction, unit_id):
            continue
        transaction.connection.execute(
            sa.update(_U).where(_U.c.id == unit_id).values(state="dropped")
        )
        drop_log(transaction, unit_log(unit_id))
        drop_log(transaction, panes_log(unit_id))
        drop_log(transaction, subscribers_log(unit_id))
        forget_owner(transaction, unit_id)
        forget_owner(transaction, plan_owner(unit_id))
        dropped.append(unit_id)
        # It may have subscribed to a unit that it does not read yet.
        read = [name.partition(":")[2] for name in selected[0].inputs if name.startswith("unit:")]
        units += dict.fromkeys([*read, *drop_partial_join(transaction, unit_id)])
    return dropped


def drop_partial_join(transaction: Transaction, unit_id: str) -> list[str]:
    """Unsubscribe a unit from the partial join of another, and from the one it waited for; returns the
    ids of the units that had them."""
    names = (partial_join_name(unit_id), replaced_partial_join_name(unit_id))
    units = [unit for name in names for unit in _drop_hidden_query(transaction, name)]
    return list(dict.fromkeys(units))


def _drop_hidden_query(transaction: Transaction, name: str) -> list[str]:
    unit = transaction.connection.scalar(sa.select(_M.c.unit_id).where(_M.c.query == name))
    if unit is None:
        return []
    transaction.connection.execute(sa.delete(_M).where(_M.c.query == name))
    # What the unit was relaxed for is needed no longer, so its operator is derived again below.
    transaction.connection.execute(sa.update(_Q).where(_Q.c.name == name).values(state="dropped"))
    bump_unit_version(transaction, unit, definition=NO_DEFINITION)
    return [str(unit)]


def _is_needed(transaction: Transaction, unit_id: str) -> bool:
    members = sa.select(sa.func.count()).select_from(_M).where(_M.c.unit_id == unit_id)
    if transaction.connection.scalar(members):
        return True
    return bool(units_reading(transaction.connection, unit_log(unit_id)))
