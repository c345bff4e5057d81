"""Hand-overs: a running unit changes what it reads, and keeps its identity, results and readers.

It is asked for in one transaction and made in a later one. In between the unit goes on as it was; if
it is to read the rows of another unit, it has subscribed to them already, by its hidden query. So a
process that dies between the two leaves a request that any process can carry out, or withdraw.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from headwater.errors import CatalogError, CommitConflict
from headwater.runtime.catalog import schema
from headwater.runtime.catalog.database import Transaction
from headwater.runtime.catalog.journal import add_event
from headwater.runtime.catalog.leases import check_lease
from headwater.runtime.catalog.log import Logs, check_cursors, check_unit_version, move_cursors
from headwater.runtime.catalog.queries import (
    accept_partial_join,
    bump_unit_version,
    create_unit,
    drop_partial_join,
    drop_unneeded_units,
    live_unit,
)
from headwater.runtime.catalog.records import (
    HandOver,
    Json,
    Lease,
    NewInputs,
    NewPartialJoin,
    NewUnit,
    UnitRow,
    is_log,
    unit_log,
)

_C, _L = schema.cursors, schema.logs

HAND_OVER = "hand-over"
"""The cursor of a unit with the hand-over that was asked for."""


class HandOvers(Logs):
    """Changes of what units read."""

    def request_rewire(
        self,
        unit: UnitRow,
        partial_join: NewPartialJoin,
        reason: str,
        detail: Json = None,
        new_source: NewUnit | None = None,
    ) -> None:
        """Subscribe a unit to a partial join of another, `new_source` if that is to be created, which
        it will read instead of streams.

        Raises CommitConflict if one of the two units has changed, CatalogError if a hand-over of the
        unit is under way.
        """
        with self._database.write() as transaction:
            _check_no_request(transaction, unit)
            if new_source is not None:
                create_unit(transaction, new_source)
            accept_partial_join(transaction, partial_join)
            _add_request(transaction, unit, False, reason)
            event_detail = {"reads": partial_join.unit_id, "reason": reason, **(detail or {})}
            add_event(transaction, "rewiring requested", unit.id, event_detail)

    def request_unshare(self, unit: UnitRow, reason: str, detail: Json = None) -> None:
        """Ask for a unit to read its streams itself again, instead of the rows of another unit.

        Raises as `request_rewire` does.
        """
        with self._database.write() as transaction:
            _check_no_request(transaction, unit)
            _add_request(transaction, unit, True, reason)
            event_detail = {"reason": reason, **(detail or {})}
            add_event(transaction, "unsharing requested", unit.id, event_detail)

    def hand_overs(self) -> list[HandOver]:
        """The hand-overs that were asked for and are still to be made, by unit."""
        requests = self.reader_positions(HAND_OVER)
        return [
            HandOver(unit_id, bool(asked["to_streams"]), str(asked["reason"]))
            for unit_id, asked in sorted(requests.items())
        ]

    def hand_over(self, leases: Sequence[Lease], asked: HandOver, new: NewInputs) -> list[str]:
        """Make a hand-over; returns the ids of units that nothing needs after it, which are dropped.

        Raises LeaseLost, and CommitConflict if one of the units, its position, or the log of the
        source is not as expected, or if nobody asks for the hand-over any more.
        """
        unit, source = new.unit, new.source
        with self._database.write() as transaction:
            for lease in leases:
                check_lease(transaction, lease)
            for row in (unit, source):
                check_unit_version(transaction.connection, row.id, row.version)
                live_unit(transaction, row.id)
            check_cursors(transaction.connection, new.expected)
            # The two units were found in line with the log as it ended then.
            _check_log_end(transaction, unit_log(source.id), new.end)
            _remove_request(transaction, asked.unit_id)
            left = [name for name in unit.inputs if name not in new.inputs and is_log(name)]
            gone = sa.and_(_C.c.owner == unit.id, _C.c.input.in_(left))
            transaction.connection.execute(sa.delete(_C).where(gone))
            move_cursors(transaction, {(unit.id, name): at for name, at in new.cursors.items()})
            bump_unit_version(transaction, unit.id, inputs=new.inputs)
            event_detail = {"from": unit.inputs, "to": new.inputs, "reason": asked.reason}
            add_event(transaction, "unit rewired", unit.id, event_detail)
            if not asked.to_streams:
                return []
            return drop_unneeded_units(transaction, drop_partial_join(transaction, unit.id))

    def withdraw_hand_over(self, asked: HandOver, why: str) -> list[str]:
        """Leave a unit as it is; returns the ids of units that nothing needs then, which are dropped.

        Nothing happens if nobody asks for the hand-over any more.
        """
        with self._database.write() as transaction:
            try:
                _remove_request(transaction, asked.unit_id)
            except CommitConflict:
                return []
            bump_unit_version(transaction, asked.unit_id)
            kind = "unsharing withdrawn" if asked.to_streams else "rewiring withdrawn"
            add_event(transaction, kind, asked.unit_id, {"reason": why})
            if asked.to_streams:
                return []
            return drop_unneeded_units(transaction, drop_partial_join(transaction, asked.unit_id))


def _check_no_request(transaction: Transaction, unit: UnitRow) -> None:
    check_unit_version(transaction.connection, unit.id, unit.version)
    live_unit(transaction, unit.id)
    same = sa.and_(_C.c.owner == unit.id, _C.c.input == HAND_OVER)
    if transaction.connection.scalar(sa.select(_C.c.position).where(same)) is not None:
        raise CatalogError(f"unit {unit.id} is changing what it reads already")


def _add_request(transaction: Transaction, unit: UnitRow, to_streams: bool, reason: str) -> None:
    request = {"to_streams": to_streams, "reason": reason}
    move_cursors(transaction, {(unit.id, HAND_OVER): request})
    # Engines look for requests when the version of some unit has changed.
    bump_unit_version(transaction, unit.id)


def _remove_request(transaction: Transaction, unit_id: str) -> None:
    same = sa.and_(_C.c.owner == unit_id, _C.c.input == HAND_OVER)
    if transaction.connection.execute(sa.delete(_C).where(same)).rowcount != 1:
        raise CommitConflict(f"unit {unit_id} is not to change what it reads any more")


def _check_log_end(transaction: Transaction, log: str, end: int) -> None:
    next_seq = transaction.connection.scalar(sa.select(_L.c.next_seq).where(_L.c.log == log))
    if next_seq != end + 1:
        raise CommitConflict(f"{log} has grown")
