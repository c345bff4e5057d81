"""Queries, and the units that compute them.

A query is a member of the unit that answers it; equal queries share one. A unit lives as long as it
has a member, or as another unit reads its log. What was dropped stays as a row in that state, so
that a worker in the middle of a step can tell, until it is forgotten or its name is used again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

import sqlalchemy as sa

from headwater.errors import CatalogError, Overtaken, nearest
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Store, Transaction, rows
from headwater.runtime.catalog.journal import keep_event, keep_events
from headwater.runtime.catalog.log import create_log, drop_log, move_cursors
from headwater.runtime.catalog.rows import (
    HIDDEN,
    Cursors,
    NewPart,
    NewQuery,
    NewUnit,
    QueryRow,
    QueryState,
    UnitRow,
    UnitState,
    members_log,
    panes_log,
    part_name,
    plan_owner,
    unit_log,
)
from headwater.runtime.catalog.sources import check_inputs, forget_owner, units_reading

_Q, _U, _M = schema.queries, schema.units, schema.members

VOID = ""
"""The definition of a unit that has lost queries since it was made: it is to be made anew."""

MOST_NAMED = 1_000
"""With more names than that, all queries are read."""

_UNIT = sa.select(_U).where(_U.c.id == sa.bindparam("unit_id"))
_UNITS_MARK = sa.select(
    sa.func.count(), sa.func.sum(_U.c.version), sa.func.max(_U.c.created_at)
).where(_U.c.state != "dropped")
_ALL_QUERIES = sa.select(_Q).where(sa.not_(_Q.c.name.startswith(HIDDEN))).order_by(_Q.c.name)
_QUERIES = _ALL_QUERIES.where(_Q.c.state != "dropped")
_AMONG = _Q.c.name.in_(sa.bindparam("names", expanding=True))
_NAMED = sa.select(_Q.c.spelled, _Q.c.state).where(_Q.c.name == sa.bindparam("name"))
_ADD_QUERY, _ADD_MEMBER = sa.insert(_Q), sa.insert(_M)
_OF_DIGEST = sa.select(_Q).where(
    _Q.c.digest == sa.bindparam("digest"),
    sa.exists().where(_M.c.unit_id == sa.bindparam("unit_id"), _M.c.query == _Q.c.name),
)
_IN_UNIT = sa.and_(
    _M.c.unit_id == sa.bindparam("unit_id"),
    _M.c.query != sa.bindparam("name"),
    sa.not_(_M.c.query.startswith(HIDDEN)),
)
_OTHERS = (
    sa.select(_Q.c.spelled)
    .join(_M, _M.c.query == _Q.c.name)
    .where(_IN_UNIT)
    .order_by(_M.c.query)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_NUMBER_OF_OTHERS = sa.select(sa.func.count()).select_from(_M).where(_IN_UNIT)


class Queries(Store):
    """Queries, units and members."""

    def accept_query(
        self,
        query: NewQuery,
        unit: NewUnit | str,
        cursors: Cursors | None = None,
        definition: str | None = None,
        untold: bool = False,
        version: int | None = None,
        newest: float | None = None,
        seen: str | None = None,
        part: NewPart | None = None,
    ) -> QueryRow:
        """Add a running query to a new unit, or to the one with this id, which then runs, and set
        cursors; a unit that is relaxed for it gets another definition. Overtaken is raised if results
        after its start have to be `untold`, and the unit has evaluated such an instant, if the unit
        has another `version` than the one that was seen, if the query that it is `equal_to` has left
        or finished, if the unit has another definition than the one that was `seen` to cover the query,
        or if for a new unit there is one that was made after the `newest` that was seen. What a new
        unit asks of another is accepted with it, as a `part`.

        Raises CatalogError if the name is taken, an input is not there, or the unit was dropped.
        """
        with self._database.write() as transaction:
            _check_free(transaction, query.name)
            if isinstance(unit, str):
                unit_id = unit
                joined = _join(transaction, unit, definition, version, seen)
                result_key = _result_key(transaction, query, unit, joined)
            else:
                _check_newest(transaction, newest)
                if part is not None:
                    _accept_part(transaction, part)
                unit_id = create_unit(transaction, unit)
                result_key = query.digest
            if untold:
                _check_untold(transaction, unit_id, query.start_at)
            return _add_query(transaction, query, unit_id, result_key, cursors)

    def queries(
        self,
        *,
        dropped: bool = False,
        with_sink: bool = False,
        named: Collection[str] | None = None,
    ) -> list[QueryRow]:
        """The queries by name, or those with a sink, or of these names in lower case; those that
        were dropped only if asked for."""
        chosen = _ALL_QUERIES if dropped else _QUERIES
        if with_sink:
            chosen = chosen.where(_Q.c.sink.is_not(None))
        if named is None or len(named) > MOST_NAMED:
            return self._rows(QueryRow, chosen)
        return self._rows(QueryRow, chosen.where(_AMONG), names=sorted(named))

    def query(self, name: str) -> QueryRow | None:
        """One query, dropped or not, or None."""
        return self._row(QueryRow, sa.select(_Q).where(_Q.c.name == name.lower()))

    def set_query_state(self, name: str, state: QueryState, error: str = "") -> None:
        """Run, pause, park or finish a query.

        Raises CatalogError if there is none, or if it is finished: only more input undoes that.
        """
        _check_state(state, get_args(QueryState))
        with self._database.write() as transaction:
            known = _query(transaction, name)
            if known.state == "finished" and state != "finished":
                raise CatalogError(f"query {known.spelled} is finished and cannot be {state}")
            change = sa.update(_Q).where(_Q.c.name == known.name).values(state=state, error=error)
            transaction.connection.execute(change)
            if state == "finished":
                change_members(transaction, known.unit_id, definition=VOID)
            if state != known.state:
                did = "resumed" if state == "running" else state
                keep_event(
                    transaction, f"query {did}", known.name, {"error": error} if error else {}
                )

    def finish_queries(self, unit_id: str, names: Sequence[str]) -> None:
        """Finish queries of a unit, all at once, and record that they are."""
        with self._database.write() as transaction:
            running = sa.and_(_Q.c.name == sa.bindparam("which"), _Q.c.state == "running")
            change = sa.update(_Q).where(running).values(state="finished", error="")
            transaction.connection.execute(change, [{"which": name} for name in names])
            change_members(transaction, unit_id, definition=VOID)
            keep_events(transaction, "query finished", names)

    def settle_ends(self, ends: Mapping[str, int]) -> None:
        """Note the ends of queries whose lifetime has begun to count; once, the first stays."""
        if not ends:
            return
        same = sa.and_(_Q.c.name == sa.bindparam("which"), _Q.c.end_at.is_(None))
        change = sa.update(_Q).where(same).values(end_at=sa.bindparam("end"))
        with self._database.write() as transaction:
            transaction.connection.execute(
                change, [{"which": name, "end": end} for name, end in ends.items()]
            )

    def go_on(self, name: str) -> None:
        """Let a finished query run again, as there is more for it after all."""
        same = sa.and_(_Q.c.name == name.lower(), _Q.c.state == "finished")
        with self._database.write() as transaction:
            transaction.connection.execute(sa.update(_Q).where(same).values(state="running"))
            change_members(transaction, _query(transaction, name).unit_id, definition=VOID)

    def drop_query(self, name: str) -> list[str]:
        """Drop a query, and each unit that nobody needs any more; returns the ids of those.

        The log and cursors of such a unit go with it; its files are then orphans. Raises
        CatalogError if there is no such query.
        """
        with self._database.write() as transaction:
            known = _query(transaction, name)
            left = sa.select(_M.c.unit_id).where(_M.c.query == known.name)
            units = sorted({*transaction.connection.scalars(left), known.unit_id})
            transaction.connection.execute(sa.delete(_M).where(_M.c.query == known.name))
            transaction.connection.execute(
                sa.update(_Q).where(_Q.c.name == known.name).values(state="dropped")
            )
            forget_owner(transaction, f"sink:{known.name}")
            keep_event(transaction, "query dropped", known.name, {})
            _leave(transaction, known)
            return _drop_unneeded(transaction, units)

    def units(self, *, dropped: bool = False) -> list[UnitRow]:
        """The units, oldest first; those that were dropped only if asked for."""
        return self._rows(UnitRow, _known(_U, dropped).order_by(_U.c.created_at, _U.c.id))

    def units_mark(self) -> tuple[int, int, float]:
        """Differs when units were made or dropped, or got other queries: how many there are, their
        versions added up, and when the newest was made."""
        with self._database.read() as connection:
            number, versions, newest = connection.execute(_UNITS_MARK).one()
        return int(number), int(versions or 0), float(newest or 0.0)

    def unit(self, unit_id: str) -> UnitRow | None:
        """One unit, dropped or not, or None."""
        return self._row(UnitRow, _UNIT, unit_id=unit_id)

    def define_unit(self, unit_id: str, version: int, definition: str) -> bool:
        """Give a unit the definition that its queries in a version need, if it has none; whether it
        still has that version."""
        same = sa.and_(_U.c.id == unit_id, _U.c.version == version, _U.c.state != "dropped")
        change = sa.update(_U).where(same, _U.c.definition == VOID).values(definition=definition)
        with self._database.write(quiet=True) as transaction:
            if transaction.connection.execute(change).rowcount == 1:
                return True
            found = sa.select(_U.c.definition).where(same)
            return transaction.connection.scalar(found) == definition

    def set_unit_state(
        self,
        unit_id: str,
        state: UnitState,
        *,
        error: str = "",
        retries: int = 0,
        not_before: float = 0.0,
    ) -> None:
        """Run, pause or park a unit, and note its failures and when to try again.

        Raises CatalogError if there is no such unit, or if it was dropped.
        """
        _check_state(state, get_args(UnitState))
        with self._database.write() as transaction:
            _live_unit(transaction, unit_id)
            transaction.connection.execute(
                sa.update(_U)
                .where(_U.c.id == unit_id)
                .values(state=state, error=error, retries=retries, not_before=not_before)
            )

    def park_unit(
        self, unit_id: str, error: str, retries: int = 0, errors: Mapping[str, str] | None = None
    ) -> None:
        """Park a unit after failures with those of its queries that run, and the units that read it;
        `errors` has other words for the queries of some digests."""
        with self._database.write() as transaction:
            _live_unit(transaction, unit_id)
            _park(transaction, unit_id, error, retries, errors or {})

    def members(self, unit_id: str) -> list[QueryRow]:
        """The queries that the unit answers, by name."""
        of_unit = sa.select(_Q).join(_M, _M.c.query == _Q.c.name).where(_M.c.unit_id == unit_id)
        return self._rows(QueryRow, of_unit.order_by(_Q.c.name))

    def unsettled_queries(self) -> list[QueryRow]:
        """The queries that have an end which is not known yet."""
        open_end = sa.and_(_Q.c.lifetime.is_not(None), _Q.c.end_at.is_(None))
        return self._rows(QueryRow, _known(_Q, False).where(open_end).order_by(_Q.c.name))

    def first_end(self, unit_id: str) -> int | None:
        """The earliest end that is known of the unit's running queries, or None."""
        mine = sa.select(sa.func.min(_Q.c.end_at)).select_from(_Q.join(_M, _M.c.query == _Q.c.name))
        with self._database.read() as connection:
            found = connection.execute(
                mine.where(_M.c.unit_id == unit_id, _Q.c.state == "running")
            ).scalar_one()
            return None if found is None else int(found)

    def running_members(self, unit_id: str) -> tuple[int, int]:
        """How many queries of a unit run, and how many of them have an end."""
        ends = sa.func.coalesce(sa.func.sum(sa.case((_Q.c.lifetime.is_not(None), 1), else_=0)), 0)
        counted = sa.select(sa.func.count(), ends).select_from(_Q.join(_M, _M.c.query == _Q.c.name))
        mine = counted.where(_M.c.unit_id == unit_id, _Q.c.state == "running")
        with self._database.read() as connection:
            running, mortal = connection.execute(mine).one()
            return int(running), int(mortal)

    def runs_any(self, unit_id: str) -> bool:
        """Whether a query of a unit runs."""
        one = sa.select(_Q.c.name).join(_M, _M.c.query == _Q.c.name).limit(1)
        with self._database.read() as connection:
            mine = one.where(_M.c.unit_id == unit_id, _Q.c.state == "running")
            return connection.execute(mine).first() is not None

    def members_of_digest(self, unit_id: str, digest: str) -> list[QueryRow]:
        """The queries of that digest that the unit answers; found by the digest, as a unit may
        answer thousands."""
        return self._rows(QueryRow, _OF_DIGEST, unit_id=unit_id, digest=digest)

    def companions(self, query: QueryRow, most: int) -> tuple[list[str], int]:
        """The first few of the other queries of a query's unit, as spelled, and how many there are."""
        return self.served(query.unit_id, most, query.name)

    def served(self, unit_id: str, most: int, but: str = "") -> tuple[list[str], int]:
        """The first few of the queries of a unit that users asked, but for one, as spelled, and how
        many there are."""
        of_unit = {"unit_id": unit_id, "name": but}
        with self._database.read() as connection:
            names = list(connection.scalars(_OTHERS, of_unit | {"most": most}))
            if len(names) < most:
                return names, len(names)
            return names, int(connection.execute(_NUMBER_OF_OTHERS, of_unit).scalar_one())

    def hidden_members(self, unit_id: str) -> list[str]:
        """The names of the queries by which other units read a unit."""
        mine = sa.and_(_M.c.unit_id == unit_id, _M.c.query.startswith(HIDDEN))
        with self._database.read() as connection:
            found = sa.select(_M.c.query).where(mine).order_by(_M.c.query)
            return list(connection.scalars(found))

    def forget_dropped(self, keep: int = 0) -> int:
        """Remove the rows of dropped queries and units, but for the newest `keep` of each, with the
        leases of what is gone; returns how many rows there were."""
        with self._database.write(quiet=True) as transaction:
            removed = _forget(transaction, _Q, _Q.c.name, _Q.c.accepted_at, keep)
            removed += _forget(transaction, _U, _U.c.id, _U.c.created_at, keep)
            _forget_leases(transaction)
            return removed


def _forget(
    transaction: Transaction, table: sa.Table, key: sa.Column[Any], age: sa.Column[Any], keep: int
) -> int:
    dropped = table.c.state == "dropped"
    newest = sa.select(key).where(dropped).order_by(age.desc(), key).limit(keep)
    gone = sa.delete(table).where(dropped, key.not_in(list(transaction.connection.scalars(newest))))
    if table is _U:  # a query that is remembered names its unit
        gone = gone.where(key.not_in(sa.select(_Q.c.unit_id)))
    return int(transaction.connection.execute(gone).rowcount)


def _forget_leases(transaction: Transaction) -> None:
    """Ids of units are never used again, so neither are their leases."""
    names = sa.select("unit:" + _U.c.id)
    gone = sa.and_(schema.leases.c.name.like("unit:%"), schema.leases.c.name.not_in(names))
    transaction.connection.execute(sa.delete(schema.leases).where(gone))


def _known(table: sa.Table, dropped: bool) -> sa.Select[Any]:
    known = sa.select(table)
    return known if dropped else known.where(table.c.state != "dropped")


def _check_state(state: str, states: tuple[str, ...]) -> None:
    """Dropping is more than a state, so it has its own method."""
    possible = [known for known in states if known != "dropped"]
    if state not in possible:
        raise CatalogError(f"{state} is not a state to set; {nearest(state, possible)}")


def _check_free(transaction: Transaction, name: str) -> None:
    """A dropped query of that name makes place."""
    found = transaction.connection.execute(_NAMED, {"name": name.lower()}).first()
    if found is None:
        return
    if found.state != "dropped":
        raise CatalogError(
            f"there is a query {found.spelled} already: drop it, or take another name"
        )
    transaction.connection.execute(sa.delete(_Q).where(_Q.c.name == name.lower()))


def _query(transaction: Transaction, name: str) -> QueryRow:
    same = sa.select(_Q).where(_Q.c.name == name.lower(), _Q.c.state != "dropped")
    found = rows(transaction.connection, QueryRow, same)
    if not found:
        live = sa.select(_Q.c.spelled).where(_Q.c.state != "dropped")
        known = transaction.connection.scalars(live)
        raise CatalogError(f"there is no query {name}; {nearest(name, known)}")
    return found[0]


def _live_unit(transaction: Transaction, unit_id: str) -> UnitRow:
    found = rows(transaction.connection, UnitRow, _UNIT, {"unit_id": unit_id})
    if not found:
        raise CatalogError(f"there is no unit {unit_id}")
    if found[0].state == "dropped":
        raise Overtaken(f"unit {unit_id} was dropped")
    return found[0]


def _join(
    transaction: Transaction,
    unit_id: str,
    definition: str | None,
    version: int | None,
    seen: str | None,
) -> int:
    """Have a unit run for a query more; returns the version that it has with it."""
    known = _live_unit(transaction, unit_id)
    if version not in (None, known.version):
        raise Overtaken(f"unit {unit_id} has version {known.version}, not {version}")
    if seen not in (None, known.definition):
        raise Overtaken(f"unit {unit_id} runs another operator by now")
    values: dict[str, Any] = {}
    if definition is not None:
        values["definition"] = definition
    if known.state != "running":
        values |= {"state": "running", "error": "", "retries": 0, "not_before": 0.0}
    change_members(transaction, unit_id, **values)
    return known.version + 1


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
    transaction.connection.execute(_ADD_MEMBER, {"unit_id": unit_id, "query": row.name})
    move_cursors(transaction, cursors or {})
    if query.noted is not None:
        keep_event(transaction, "query placed", row.name, query.noted)
    return row


def _accept_part(transaction: Transaction, part: NewPart) -> None:
    """Have another unit join a part of what a new one needs."""
    _check_free(transaction, part.query.name)
    joined = _join(transaction, part.unit_id, part.definition, part.version, None)
    result_key = _result_key(transaction, part.query, part.unit_id, joined)
    _add_query(transaction, part.query, part.unit_id, result_key, part.cursors)


def _result_key(transaction: Transaction, query: NewQuery, unit_id: str, version: int) -> str:
    """The name under which a unit writes the rows of a query that joins it.

    Without an equal that runs it is a new one, never used in this unit: the log may still hold rows
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
    found = transaction.connection.scalar(same)
    if found is None:
        raise Overtaken(f"query {query.equal_to} has left unit {unit_id}")
    return str(found)


def _park(
    transaction: Transaction, unit_id: str, error: str, retries: int, errors: Mapping[str, str]
) -> None:
    values = {"state": "parked", "error": error, "retries": retries, "not_before": 0.0}
    transaction.connection.execute(sa.update(_U).where(_U.c.id == unit_id).values(values))
    keep_event(transaction, "unit parked", unit_id, {"error": error})
    mine = sa.select(_Q).join(_M, _M.c.query == _Q.c.name).where(_M.c.unit_id == unit_id)
    for query in rows(transaction.connection, QueryRow, mine.where(_Q.c.state == "running")):
        why = errors.get(query.digest, error)
        parked = sa.update(_Q).where(_Q.c.name == query.name)
        transaction.connection.execute(parked.values(state="parked", error=why))
        if not query.hidden:
            keep_event(transaction, "query parked", query.name, {"unit": unit_id, "error": why})
    for reader in units_reading(transaction, unit_log(unit_id)):
        _park(transaction, reader, f"unit {unit_id}, which it reads, is parked: {error}", 0, {})


def create_unit(transaction: Transaction, unit: NewUnit) -> str:
    """A unit that runs, with its logs; returns its id."""
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
    create_log(transaction, members_log(unit.id))
    return unit.id


def _check_newest(transaction: Transaction, newest: float | None) -> None:
    if newest is None:
        return
    _, _, now = transaction.connection.execute(_UNITS_MARK).one()
    if now is not None and now > newest:
        raise Overtaken("a unit was made meanwhile")


def _check_untold(transaction: Transaction, unit_id: str, start: int | None) -> None:
    table = schema.cursors
    same = sa.and_(table.c.owner == unit_id, table.c.input == "instant")
    instant = transaction.connection.scalar(sa.select(table.c.position).where(same))
    if instant is not None and (start is None or instant > start):
        raise Overtaken(f"unit {unit_id} has told {instant} already")


def _leave(transaction: Transaction, query: QueryRow) -> None:
    """Note that a query is none of its unit's any more; an equal one that runs needs all that it did."""
    same = {"unit_id": query.unit_id, "digest": query.digest}
    equal = rows(transaction.connection, QueryRow, _OF_DIGEST, same)
    stays = any(one.state not in ("finished", "dropped") for one in equal)
    change_members(transaction, query.unit_id, **({} if stays else {"definition": VOID}))


def change_members(transaction: Transaction, unit_id: str, **values: Any) -> None:
    """Note that the queries of a unit are others now, and what else is."""
    change = sa.update(_U).where(_U.c.id == unit_id)
    transaction.connection.execute(change.values(version=_U.c.version + 1, **values))


def _drop_unneeded(transaction: Transaction, units: list[str]) -> list[str]:
    """A unit that goes may have been the last reader of another unit, which then goes too."""
    dropped = []
    while units:
        unit_id = units.pop(0)
        found = rows(transaction.connection, UnitRow, _UNIT, {"unit_id": unit_id})
        if found[0].state == "dropped" or _needed(transaction, unit_id):
            continue
        transaction.connection.execute(
            sa.update(_U).where(_U.c.id == unit_id).values(state="dropped")
        )
        drop_log(transaction, unit_log(unit_id))
        drop_log(transaction, panes_log(unit_id))
        drop_log(transaction, members_log(unit_id))
        forget_owner(transaction, unit_id)
        forget_owner(transaction, plan_owner(unit_id))
        _drop_part(transaction, unit_id)
        dropped.append(unit_id)
        units += [name.partition(":")[2] for name in found[0].inputs if name.startswith("unit:")]
    return dropped


def _drop_part(transaction: Transaction, unit_id: str) -> None:
    """Drop what a unit has asked another one."""
    name = part_name(unit_id)
    found = transaction.connection.scalar(sa.select(_M.c.unit_id).where(_M.c.query == name))
    if found is None:
        return
    transaction.connection.execute(sa.delete(_M).where(_M.c.query == name))
    transaction.connection.execute(sa.update(_Q).where(_Q.c.name == name).values(state="dropped"))
    change_members(transaction, found, definition=VOID)


def _needed(transaction: Transaction, unit_id: str) -> bool:
    members = sa.select(sa.func.count()).select_from(_M).where(_M.c.unit_id == unit_id)
    if transaction.connection.scalar(members):
        return True
    return bool(units_reading(transaction, unit_log(unit_id)))
