"""Hand-overs: a unit that is running begins to read the rows of another, or its own streams again.

Between two rounds both units are stepped to one place in the streams that they share, and no further.
There the rows that one would read and those that the other has emitted are made of the same tuples, so
that one transaction can exchange what the unit reads: nothing is lost, and nothing made twice. Until
then both go on as they are; what is asked for is in the catalog, and survives any crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.errors import CommitConflict, LeaseLost
from headwater.reuse.definition import operator_signature
from headwater.reuse.operator import Operator, window_reach
from headwater.runtime.catalog import (
    Catalog,
    HandOver,
    Lease,
    LogPosition,
    NewInputs,
    QueryRow,
    UnitRow,
    stream_log,
    unit_log,
)
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.engine.alignment import meeting_point, rows_needed_from, stand_together
from headwater.runtime.engine.planned_units import RunningUnits
from headwater.runtime.engine.unit import Unit
from headwater.runtime.leases import ProcessLeases
from headwater.runtime.lifecycle import is_stopped_for_good
from headwater.runtime.maintenance.stream_logs import LogReader
from headwater.runtime.results.subscribers import emits_for

log = logging.getLogger("headwater")

MAX_STEPS = 10
"""Steps by which two units are brought together between two rounds; further apart, they wait."""

BoundedStep = Callable[[UnitRow, Mapping[str, int]], bool]
"""Steps a unit up to these sequence numbers; returns whether there was anything to do."""


class Withdrawn(Exception):
    """A hand-over cannot be made any more; the message says why."""


@dataclass
class UnitRewiring:
    """Carries out what was asked for, for the units that this process runs."""

    catalog: Catalog
    units: RunningUnits
    leases: ProcessLeases
    step: BoundedStep
    at_point: Callable[[str], None]
    _seen: tuple[int, int, float] | None = None
    """The fingerprint of the units when nothing was asked for."""

    def advance(self) -> bool:
        """Make the hand-overs that can be made now; returns whether anything was done."""
        # Before the requests are read: one that comes in between changes it, and is seen next time.
        fingerprint = self.catalog.units_fingerprint()
        if fingerprint == self._seen:
            return False
        requests = self.catalog.hand_overs()
        self._seen = None if requests else fingerprint
        return sum(self._try(asked) for asked in requests) > 0

    def _try(self, asked: HandOver) -> bool:
        try:
            return self._advance(asked)
        except Withdrawn as why:
            self.catalog.withdraw_hand_over(asked, str(why))
            return True
        except CommitConflict as error:
            log.info("unit %s is handed over later: %s", asked.unit_id, error)
            return True
        except LeaseLost as error:
            log.info("unit %s: %s", asked.unit_id, error)
            return False

    def _advance(self, asked: HandOver) -> bool:
        pair = self._pair(asked)
        if pair is None:
            return False
        leases = self._leases(pair)
        if leases is None:
            return False
        worked = False
        for _ in range(MAX_STEPS):
            bounds = pair.bounds(self.catalog)
            # Both, and the source first: its rows are what the unit reads.
            stepped = [self.step(row, bounds[row.id]) for row in (pair.source, pair.unit)]
            current = self._pair(asked)
            if current is None:
                return True
            pair = current
            if not any(stepped):
                break
            worked = True
        self.units.current(pair.unit)  # which may have to write its definition
        # One state of the catalog: the commit checks that versions, cursors and log end are still
        # its.
        with self.catalog.snapshot():
            current = self._pair(asked)
            new = None if current is None else self._new_inputs(current)
        if new is None:
            return worked
        kind = "unshare" if asked.to_streams else "rewire"
        self.at_point(f"{kind}: aligned")
        for dropped in self.catalog.hand_over(leases, asked, new):
            self.units.discard(dropped)
        self.at_point(f"{kind}: switched")
        return True

    def _pair(self, asked: HandOver) -> Pair | None:
        """The two units of a hand-over as they are now; None if one of them cannot step.

        Raises Withdrawn if it cannot be made at all any more.
        """
        unit = self.catalog.unit(asked.unit_id)
        partial_query, awaited = self.catalog.partial_joins(asked.unit_id)
        if unit is None or unit.state == "dropped":
            return None
        if partial_query is None:
            raise Withdrawn("it reads the rows of no unit")
        source = self.catalog.unit(partial_query.unit_id)
        if source is None or source.state in ("dropped", "parked"):
            raise Withdrawn(f"unit {partial_query.unit_id} does not run")
        if unit.state == "parked" or is_stopped_for_good(self.catalog, unit):
            raise Withdrawn("it does not run any more")
        if current_deployment(self.catalog) is not None:
            raise Withdrawn("several sites run this state")
        if unit.state != "running" or source.state != "running":
            return None
        if awaited is not None:  # what it reads is changing already
            return None
        return Pair(asked, unit, source, partial_query)

    def _leases(self, pair: Pair) -> tuple[Lease, Lease] | None:
        """The leases of both units; None while another process has one.

        Whoever has that of the source makes the hand-over, so the other is given back for it.
        """
        source = self.leases.acquire(unit_log(pair.source.id))
        own = unit_log(pair.unit.id)
        if source is None:
            self.leases.release_where(lambda name: name == own)
            return None
        lease = self.leases.acquire(own)
        return None if lease is None else (lease, source)

    # ---- where they stand

    def _new_inputs(self, pair: Pair) -> NewInputs | None:
        """What the unit reads from now on; None if the two are not in line yet."""
        if not pair.unit.definition:
            return None  # a query has left a moment ago
        unit = self.units.current(pair.unit)
        in_line = (
            emits_for(self.catalog, pair.source, pair.partial_query.result_key)
            # What queries have missed that are new to the unit follows from what it reads now.
            and all(emits_for(self.catalog, pair.unit, key) for key in unit.served_keys)
        )
        if not in_line:
            return None
        return self._streams_again(pair, unit) if pair.asked.to_streams else self._rows(pair, unit)

    def _rows(self, pair: Pair, unit: Unit) -> NewInputs | None:
        """The rows of the source instead of the streams that it joins."""
        catalog = self.catalog
        # A unit waits for those that it reads: one below the other is as far as that goes.
        if catalog.hidden_subscribers(pair.unit.id):
            raise Withdrawn("another unit reads its rows by now")
        cursors, theirs = catalog.cursors(pair.unit.id), catalog.cursors(pair.source.id)
        shared = pair.shared_streams
        if not stand_together(_seqs(cursors, shared), _seqs(theirs, shared), self._has_rows):
            return None
        part = self.units.planner.part_served(
            pair.partial_query, operator_signature(self._operator(unit))
        )
        if part is None:
            raise Withdrawn("its queries need more by now than it had asked for")
        marks = {name: LogPosition.from_json(cursors.get(name)).watermark for name in unit.inputs}
        since = rows_needed_from(marks, window_reach(part))
        start = pair.partial_query.start_at
        if start is not None and (since is None or since < start):
            raise Withdrawn("its queries look further back by now than it had asked for")
        end = catalog.log_ends()[unit_log(pair.source.id)].seq
        rest = [name for name in pair.unit.inputs if name not in shared]
        return NewInputs(
            pair.unit,
            pair.source,
            (unit_log(pair.source.id), *rest),
            {unit_log(pair.source.id): LogPosition(end).to_json()},
            pair.expected(cursors, theirs),
            end,
        )

    def _streams_again(self, pair: Pair, unit: Unit) -> NewInputs | None:
        """The streams that the source joins instead of its rows."""
        catalog = self.catalog
        cursors, theirs = catalog.cursors(pair.unit.id), catalog.cursors(pair.source.id)
        rows = unit_log(pair.source.id)
        end = catalog.log_ends()[rows].seq
        read = LogPosition.from_json(cursors.get(rows)).seq
        # Unread rows were made of tuples before the positions that are taken over: they would be
        # lost.
        if self._has_rows(rows, read, end):
            return None
        plan = self.units.planner.plan(pair.unit, unit.queries, True, None)
        names = dict.fromkeys(stream_log(scan.stream) for _, scan in plan.scans)
        taken_over = {n: theirs[n] for n in names if n not in pair.unit.inputs and n in theirs}
        reader = LogReader(plan, {**cursors, **taken_over})
        if not all(self._keeps(name, reader) for name in names if name not in pair.unit.inputs):
            return None
        tables = [name for name in pair.unit.inputs if name.startswith("table:")]
        return NewInputs(
            pair.unit,
            pair.source,
            (*names, *tables),
            taken_over,
            pair.expected(cursors, theirs),
            end,
        )

    def _operator(self, unit: Unit) -> Operator:
        operator = self.units.planner.operator(unit.row)
        assert operator is not None, "only joins are handed over"
        return operator

    def _keeps(self, name: str, reader: LogReader) -> bool:
        """Whether a stream still has all tuples that a reader at its positions may need.

        It did not have to be kept for that reader, but only for the source, and as long as KEEP.
        """
        stats = self.catalog.log_stats(name)
        # Nothing was ever removed.
        if stats.rows == stats.total_rows:
            return True
        stream = self.catalog.stream(name.partition(":")[2])
        needed = reader.needed_from(name)
        assert stream is not None
        return (
            needed is not None
            and stream.watermark is not None
            and needed >= stream.watermark - stream.keep
        )

    def _has_rows(self, name: str, after: int, until: int) -> bool:
        return any(arrival.seq <= until for arrival in self.catalog.arrivals(name, after))


@dataclass(frozen=True)
class Pair:
    """A unit whose inputs change, and the unit whose rows it will read or reads."""

    asked: HandOver
    unit: UnitRow
    source: UnitRow
    partial_query: QueryRow

    @property
    def shared_streams(self) -> tuple[str, ...]:
        """The streams that both read themselves."""
        return tuple(name for name in self.unit.inputs if name in self.source.inputs)

    def bounds(self, catalog: Catalog) -> dict[str, dict[str, int]]:
        """How far each of the two may read in the next step, so that they come together."""
        own = _seqs(catalog.cursors(self.unit.id), self.unit.inputs)
        theirs = _seqs(catalog.cursors(self.source.id), self.source.inputs)
        if self.asked.to_streams:
            end = catalog.log_ends()[unit_log(self.source.id)].seq
            return {self.source.id: theirs, self.unit.id: own | {unit_log(self.source.id): end}}
        target = meeting_point(own, theirs)
        return {self.source.id: theirs | target, self.unit.id: own | target}

    def expected(
        self, own: Mapping[str, object], theirs: Mapping[str, object]
    ) -> dict[tuple[str, str], object]:
        """The positions of both in all that they read."""
        return {(self.unit.id, name): own.get(name) for name in self.unit.inputs} | {
            (self.source.id, name): theirs.get(name) for name in self.source.inputs
        }


def _seqs(cursors: Mapping[str, object], names: tuple[str, ...]) -> dict[str, int]:
    """The last sequence numbers read of logs."""
    logs = [name for name in names if not name.startswith("table:")]
    return {name: LogPosition.from_json(cursors.get(name)).seq for name in logs}
