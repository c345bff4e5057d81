"""Moving queries out of a unit into a new one, which continues at the same position.

The new unit is what the old one would be if all its other queries were dropped: it has the same
cursors, the same results under the same sequence numbers, and the same internal state. So its
queries lose no row and get none twice, and a reader of their results continues at its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from headwater.errors import CommitConflict
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Transaction, select_rows
from headwater.runtime.catalog.journal import add_event
from headwater.runtime.catalog.leases import check_lease
from headwater.runtime.catalog.log import Logs, check_unit_version, sync_files
from headwater.runtime.catalog.queries import NO_DEFINITION, bump_unit_version, create_unit
from headwater.runtime.catalog.records import (
    Json,
    Lease,
    NewSegment,
    NewUnit,
    QueryRow,
    Segment,
    UnitRow,
    panes_log,
    partial_join_name,
    replaced_partial_join_name,
    requesting_unit,
    subscribers_log,
    unit_log,
)

_C, _L, _M, _Q, _S, _U = (
    schema.cursors,
    schema.logs,
    schema.members,
    schema.queries,
    schema.segments,
    schema.units,
)
_UNIT_LOGS = (unit_log, panes_log, subscribers_log)

ORIGIN_KEY = "unit"
"""The key under which a moved result segment names the unit that wrote it."""


class QueryMoves(Logs):
    """Moving queries to new units."""

    def segments_of_unit(self, unit_id: str) -> list[Segment]:
        """The live segments that a unit has written: results, panes, subscribers."""
        with self._database.read() as connection:
            return self._with_absolute_paths(
                select_rows(connection, Segment, _select_unit_segments(unit_id))
            )

    def move_queries(
        self,
        lease: Lease | None,
        unit: UnitRow,
        new: NewUnit,
        names: Sequence[str],
        paths: Mapping[int, str],
        why: Mapping[str, Json] | None = None,
    ) -> None:
        """Move queries of a unit to a new one with the same inputs.

        `paths` has a copy of the file of each of `segments_of_unit` that has one, owned by the new
        unit. The definitions of both units are cleared, to be derived again from their queries. `why` is
        added to the events.
        Raises LeaseLost, CommitConflict if the queries or segments of the unit have changed, and
        CatalogError if a copy was removed before it could be registered.
        """
        sync_files(paths.values())
        with self._database.write() as transaction:
            check_lease(transaction, lease)
            check_unit_version(transaction.connection, unit.id, unit.version)
            segments = select_rows(transaction.connection, Segment, _select_unit_segments(unit.id))
            if {segment.id for segment in segments if segment.path} != set(paths):
                raise CommitConflict(f"the segments of unit {unit.id} have changed")
            _copy_unit(transaction, unit, new)
            for segment in segments:
                values = vars(self._with_path(segment, paths.get(segment.id, "")))
                moved = values | {"log": _replace_unit_id(segment.log, unit.id, new.id)}
                moved["keys"] = _moved_keys(segment, unit.id)
                del moved["id"]
                transaction.connection.execute(sa.insert(_S), moved)
            _copy_partial_join(transaction, unit, new.id)
            _transfer_queries(
                transaction, unit.id, new.id, _with_siblings(transaction, unit.id, names)
            )
            bump_unit_version(transaction, unit.id, definition=NO_DEFINITION)
            for name in names:
                add_event(
                    transaction,
                    "query moved",
                    name,
                    {"from": unit.id, "unit": new.id, **(why or {})},
                )

    def _with_path(self, segment: Segment, path: str) -> Segment:
        """The segment with another file, its path as stored."""
        new = self._with_relative_path(NewSegment("", path, 0, 0, on_disk=bool(path)))
        return replace(segment, path=new.path)


def _select_unit_segments(unit_id: str) -> sa.Select[tuple[object, ...]]:
    logs = [log(unit_id) for log in _UNIT_LOGS]
    live = sa.and_(_S.c.log.in_(logs), _S.c.compacted_into.is_(None))
    return sa.select(_S).where(live).order_by(_S.c.id)


def _replace_unit_id(log: str, old: str, new: str) -> str:
    return log.removesuffix(old) + new


def _moved_keys(segment: Segment, unit_id: str) -> object:
    """The keys of a segment in its new unit; results keep the id of the unit that wrote them.

    Sinks derive file names and row ids from it, so a segment that is sent again gets the same ones.
    """
    if segment.log != unit_log(unit_id):
        return segment.keys
    return {ORIGIN_KEY: unit_id, **(segment.keys or {})}


def _copy_unit(transaction: Transaction, unit: UnitRow, new: NewUnit) -> None:
    """Create a unit with the log positions, cursors and site of another."""
    create_unit(transaction, new)
    for log in _UNIT_LOGS:
        same = sa.select(_L).where(_L.c.log == log(unit.id))
        (source,) = transaction.connection.execute(same).mappings()
        # Numbers go on from where the old unit is, so that sinks and readers keep their positions.
        values = {name: source[name] for name in source if name != "log"}
        change = sa.update(_L).where(_L.c.log == log(new.id)).values(values)
        transaction.connection.execute(change)
    # It runs at the same site, where the files of its segments are.
    for table, name in ((_C, unit.id), (schema.assignments, unit_log(unit.id))):
        same = sa.select(table).where(table.c.owner == name)
        owner = _replace_unit_id(name, unit.id, new.id)
        for row in transaction.connection.execute(same).mappings().all():
            transaction.connection.execute(sa.insert(table), {**row, "owner": owner})


def _copy_partial_join(transaction: Transaction, unit: UnitRow, new: str) -> None:
    """Subscribe the new unit to the partial join that the old one reads."""
    for name_of in (partial_join_name, replaced_partial_join_name):
        _copy_hidden_query(transaction, name_of(unit.id), name_of(new))


def _copy_hidden_query(transaction: Transaction, name: str, copy: str) -> None:
    same = sa.select(_Q).where(_Q.c.name == name, _Q.c.state != "dropped")
    for query in select_rows(transaction.connection, QueryRow, same):
        copied = replace(query, name=copy, spelled=copy)
        transaction.connection.execute(sa.insert(_Q), vars(copied))
        subscription = {"unit_id": query.unit_id, "query": copied.name}
        transaction.connection.execute(sa.insert(_M), subscription)
        bump_unit_version(transaction, query.unit_id)


def _with_siblings(transaction: Transaction, unit_id: str, names: Sequence[str]) -> list[str]:
    """Queries, and with each hidden one the other of the same reader: a unit reads one log."""
    found = dict.fromkeys(names)
    for reader in filter(None, map(requesting_unit, names)):
        both = (partial_join_name(reader), replaced_partial_join_name(reader))
        here = sa.select(_M.c.query).where(_M.c.unit_id == unit_id, _M.c.query.in_(both))
        found |= dict.fromkeys(transaction.connection.scalars(here))
    return list(found)


def _transfer_queries(transaction: Transaction, old: str, new: str, names: Sequence[str]) -> None:
    """Reassign queries to a new unit, with the cursors of their sinks and reading units."""
    connection = transaction.connection
    for name in names:
        membership = sa.and_(_M.c.unit_id == old, _M.c.query == name)
        if connection.execute(sa.update(_M).where(membership).values(unit_id=new)).rowcount != 1:
            raise CommitConflict(f"query {name} is no longer in unit {old}")
        connection.execute(sa.update(_Q).where(_Q.c.name == name).values(unit_id=new))
        reader = requesting_unit(name)
        # A position in the old log holds in the new one, which has the same sequence numbers.
        followers = [f"sink:{name}", *([] if reader is None else [reader])]
        sent = sa.and_(_C.c.owner.in_(followers), _C.c.input == unit_log(old))
        connection.execute(sa.update(_C).where(sent).values(input=unit_log(new)))
        if reader is not None:
            old_inputs = connection.scalar(sa.select(_U.c.inputs).where(_U.c.id == reader))
            inputs = tuple(unit_log(new) if n == unit_log(old) else n for n in old_inputs or ())
            bump_unit_version(transaction, reader, inputs=inputs)
