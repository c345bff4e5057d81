"""Which unit steps next: what is pending for each, priced by what was measured, ranked by a policy.

A step takes in all that is pending, so what competes are batches. The expected seconds of a step are a
fixed part and one for each row, fitted to the last steps; the rows it will tell are those for each row
taken in. For the policies a batch is a tuple that costs so many seconds and has so many results, and
whose ideal time is that of a step with a single row. The queries of a shared unit all step with it and
add nothing to its cost, so the priority-defining tree holds all of them, and counts a row once for each
query that it is told to. A unit that was never measured is taken to be as the others are on average.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from headwater.runtime.catalog import Catalog, UnitRow, is_log
from headwater.schedule import Choice, Measured, Policy, Waiting, choose

SCHEDULE = "schedule"
"""The owner of the profile that has the last choice."""

LEAST = 1e-3
"""Seconds that a step takes at least, and rows that it is expected to tell at least."""


@dataclass(frozen=True)
class Expected:
    """What a step of a unit takes in seconds, and how many rows it tells for each that it takes in."""

    fixed: float = 1.0
    per_row: float = 0.0
    selectivity: float = 1.0

    @property
    def ideal(self) -> float:
        """The seconds from a single row to its results, if it never waits."""
        return max(LEAST, self.fixed + self.per_row)

    def batch(self, rows: int) -> Measured:
        """So many rows as a policy sees them."""
        cost = max(LEAST, self.fixed + rows * self.per_row)
        return Measured(max(LEAST, rows * self.selectivity), cost, self.ideal)


def expected(values: Mapping[str, float]) -> Expected | None:
    """What was measured of a unit as an expectation; None if it has not stepped yet.

    The line through the last steps is the one of least squares; it neither falls nor does all of the
    time belong to the rows, as a step that takes in nothing takes time too.
    """
    seconds, rows = values.get("step_seconds"), values.get("step_rows_in")
    if seconds is None or rows is None:
        return None
    spread = values.get("step_rows_squared", rows * rows) - rows * rows
    together = values.get("step_rows_seconds", rows * seconds) - rows * seconds
    slope = together / spread if spread > 1e-6 * rows * rows else 0.0
    slope = min(max(slope, 0.0), 0.9 * seconds / rows) if rows else 0.0
    told = values.get("step_rows_out", 0.0) / rows if rows else 0.0
    return Expected(seconds - slope * rows, slope, told * values.get("told_to", 1.0))


def average(known: Iterable[Expected]) -> Expected:
    """What is expected of a unit of which nothing is known."""
    found = list(known)
    if not found:
        return Expected()
    return Expected(
        sum(one.fixed for one in found) / len(found),
        sum(one.per_row for one in found) / len(found),
        sum(one.selectivity for one in found) / len(found),
    )


@dataclass(frozen=True)
class Pending:
    """Rows that a unit has not taken in, and since when the oldest of them are there."""

    rows: int
    since: float


def pending(catalog: Catalog, units: Iterable[UnitRow]) -> dict[str, Pending]:
    """What units have to take in; those that have nothing are left out."""
    rows = list(units)
    found: dict[str, Pending] = {}
    for log in dict.fromkeys(name for row in rows for name in row.inputs if is_log(name)):
        reached = catalog.readers(log)
        readers = {row.id: _seq(reached.get(row.id)) for row in rows if log in row.inputs}
        arrivals = catalog.arrivals(log, min(readers.values()))
        for unit, seq in readers.items():
            new = [one for one in arrivals if one.seq > seq]
            if new:
                before = found.get(unit, Pending(0, new[0].created_at))
                found[unit] = Pending(
                    before.rows + sum(one.rows for one in new),
                    min(before.since, *(one.created_at for one in new)),
                )
    return found


def _seq(position: Any) -> int:
    return int((position or {"seq": 0})["seq"])


@dataclass
class Scheduler:
    """Chooses units of one catalog, and remembers who was chosen when, and why the last one was."""

    catalog: Catalog
    last: Choice | None = None
    clock: Callable[[], float] = time.time
    _served: dict[str, float] = field(default_factory=dict)

    def choose(
        self,
        policy: Policy,
        bound: float,
        found: Mapping[str, Pending],
        known: Mapping[str, Expected | None],
    ) -> str:
        """The unit that steps next, of some with something pending."""
        unknown = average(one for one in known.values() if one is not None)
        now = self.clock()
        candidates = [
            self._waiting(unit, one, known.get(unit) or unknown, now) for unit, one in found.items()
        ]
        self.last = choose(policy, candidates, now, bound)
        self._served[self.last.name] = now
        return self.last.name

    def _waiting(self, unit: str, pending: Pending, step: Expected, now: float) -> Waiting:
        """A unit as a candidate; what came when the clock was ahead has come just now."""
        served = min(self._served.get(unit, 0.0), now)
        since = min(pending.since, now)
        batch = step.batch(pending.rows)
        return Waiting(unit, since, (batch,), pending.rows, query=unit, served=served)

    def forget_all_but(self, units: Set[str]) -> None:
        """Keep nothing in memory of other units."""
        self._served = {unit: at for unit, at in self._served.items() if unit in units}


@dataclass
class Turns:
    """The units of one round: each gets a turn, and those with something pending compete for more.

    One that had a turn and did nothing gets another only when more has come for it.
    """

    scheduler: Scheduler
    policy: Policy
    bound: float
    rows: Mapping[str, UnitRow]
    known: Callable[[str], Expected | None]
    _idle: dict[str, Pending | None] = field(default_factory=dict)

    def choose(self, units: Set[str]) -> str | None:
        """Which of the units steps next; None if there is nothing for them to do.

        Those with nothing pending go first: most of them do nothing, which takes no time, and who
        has come to an instant has something to tell.
        """
        rows = [self.rows[unit] for unit in self.rows if unit in units]
        found = pending(self.scheduler.catalog, rows)
        for row in rows:
            if row.id not in found and row.id not in self._idle:
                self._idle[row.id] = None
                return row.id
        left = {u: one for u, one in found.items() if self._idle.get(u) != one}
        if not left:
            return None
        known = {unit: self.known(unit) for unit in self.rows}
        unit = self.scheduler.choose(self.policy, self.bound, left, known)
        self._idle[unit] = found[unit]
        return unit

    def worked(self, unit: str) -> None:
        """Note that a turn was of use."""
        if self._idle.get(unit) is not None:
            del self._idle[unit]
