"""Which unit steps next: what is pending for each, priced by what was measured, ranked by a policy.

A step ingests all that is pending, so what competes are batches. The expected seconds of a step are a
fixed part and one for each row, fitted to the last steps; the rows it will emit follow from its rows out
per row in. To the policies a batch is a tuple with that cost and that many results, whose ideal time is
that of a step with a single row. The queries of a shared unit all step with it and
add nothing to its cost, so the priority-defining tree holds all of them, and counts a row once for each
query that it is emitted to. A unit that was never measured counts as the cost model predicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from headwater.runtime.catalog import Catalog, UnitRow, unit_log
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.metrics.backlog import Backlog, unit_backlogs
from headwater.runtime.metrics.sharing_loads import unit_load, unit_model
from headwater.runtime.metrics.step_estimates import StepEstimate, average_estimate, predict_step
from headwater.schedule import Candidate, Choice, Policy, choose

SCHEDULE = "schedule"
"""The owner of the profile that has the last choice."""


@dataclass
class Scheduler:
    """Chooses units of one catalog; remembers when each was chosen, and why the last one was."""

    catalog: Catalog
    last_choice: Choice | None = None
    clock: Callable[[], float] = time.time
    _served_at: dict[str, float] = field(default_factory=dict)

    def choose(
        self,
        policy: Policy,
        max_wait: float,
        backlogs: Mapping[str, Backlog],
        estimates: Mapping[str, StepEstimate | None],
    ) -> str:
        """The unit that steps next, of some with something pending."""
        default = average_estimate(backlog for backlog in estimates.values() if backlog is not None)
        now = self.clock()
        candidates = [
            self._candidate(unit, backlog, estimates.get(unit) or default, now)
            for unit, backlog in backlogs.items()
        ]
        self.last_choice = choose(policy, candidates, now, max_wait)
        self._served_at[self.last_choice.name] = now
        return self.last_choice.name

    def was_served_since(self, unit: str, other: str) -> bool:
        """Whether a unit was chosen after another was."""
        return self._served_at.get(unit, 0.0) > self._served_at.get(other, 0.0)

    def _candidate(self, unit: str, backlog: Backlog, step: StepEstimate, now: float) -> Candidate:
        """A unit as a candidate; rows with an arrival time ahead of the clock have arrived just now."""
        served = min(self._served_at.get(unit, 0.0), now)
        since = min(backlog.since, now)
        batch = step.as_batch(backlog.rows)
        return Candidate(unit, since, (batch,), backlog.rows, query=unit, last_served=served)

    def forget_all_but(self, units: Set[str]) -> None:
        """Keep nothing in memory of other units."""
        self._served_at = {unit: at for unit, at in self._served_at.items() if unit in units}


@dataclass
class StepPredictions:
    """What the cost model says of the steps of units, for those that have not stepped yet."""

    catalog: Catalog
    planner: UnitPlanner
    _known: dict[tuple[str, int], StepEstimate] = field(default_factory=dict)

    def predict(self, unit_id: str) -> StepEstimate | None:
        """The estimate of a unit; None while its definition is not known."""
        unit = self.catalog.unit(unit_id)
        if unit is None or not unit.definition:
            return None
        # By version, as queries that come and go change what a step costs.
        key = (unit.id, unit.version)
        if key not in self._known:
            model = unit_model(self.catalog, self.planner, unit)
            operator = self.planner.operator(unit)
            load = None
            if operator is not None:
                load = unit_load(self.catalog, self.planner, unit, operator, model)
            self._known[key] = predict_step(load, len(unit.inputs), model)
        return self._known[key]

    def forget_all_but(self, units: Set[str]) -> None:
        """Keep nothing in memory of other units."""
        self._known = {key: value for key, value in self._known.items() if key[0] in units}


@dataclass
class Turns:
    """The units of one round: each gets a turn, and those with something pending compete for more.

    One that had a turn and did nothing gets another only when more is pending for it. One that reads
    another's rows steps after it, and so reads in one step what is new of both.
    """

    scheduler: Scheduler
    policy: Policy
    max_wait: float
    rows: Mapping[str, UnitRow]
    estimate: Callable[[str], StepEstimate | None]
    _idle_backlogs: dict[str, Backlog | None] = field(default_factory=dict)

    def choose(self, units: Set[str]) -> str | None:
        """Which of the units steps next; None if there is nothing for them to do.

        Those with nothing pending go first: most of them do nothing, which takes no time, and one for
        which an instant is due has rows to emit.
        """
        rows = [self.rows[unit] for unit in self.rows if unit in units]
        backlogs = unit_backlogs(self.scheduler.catalog, rows)
        for row in rows:
            if row.id not in backlogs and row.id not in self._idle_backlogs:
                self._idle_backlogs[row.id] = None  # it has had its turn with nothing pending
                return row.id
        competing = {
            u: backlog for u, backlog in backlogs.items() if self._idle_backlogs.get(u) != backlog
        }
        waiting = {unit for unit in competing if self._waits(unit, units, competing)}
        competing = {unit: backlog for unit, backlog in competing.items() if unit not in waiting}
        if not competing:
            return None
        # Of all units of the round: their mean stands for one of which nothing is known.
        estimates = {unit: self.estimate(unit) for unit in self.rows}
        unit = self.scheduler.choose(self.policy, self.max_wait, competing, estimates)
        # Until `note_worked`, in case it does nothing: then it has to wait for more.
        self._idle_backlogs[unit] = backlogs[unit]
        return unit

    def _waits(self, unit: str, units: Set[str], competing: Mapping[str, Backlog]) -> bool:
        """Whether a unit that it reads is stepping now, or is to step before it."""
        for log in self.rows[unit].inputs:
            other = log.removeprefix(unit_log(""))
            if other == log or other not in self.rows:
                continue
            # Only until the other has had a turn since this one: it may always have more to read.
            is_next = other in competing and not self.scheduler.was_served_since(other, unit)
            if is_next or other not in units:
                return True
        return False

    def note_worked(self, unit: str) -> None:
        """Note that a unit had something to do in its turn."""
        if self._idle_backlogs.get(unit) is not None:
            del self._idle_backlogs[unit]
