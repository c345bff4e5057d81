"""The units that run in this process, each with the plan of its present queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from headwater.errors import CommitConflict
from headwater.runtime.catalog import Catalog, QueryRow, UnitRow
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.plan import Plan
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.engine.unit import Unit
from headwater.runtime.lifecycle import input_streams, plannable_queries
from headwater.runtime.results.subscribers import SUBSCRIBERS, has_rows_of, served_keys


@dataclass
class RunningUnits:
    """Plans units, and remembers each until its queries change."""

    catalog: Catalog
    definitions: Definitions
    planner: UnitPlanner
    _units: dict[str, Unit] = field(default_factory=dict)

    def current(self, row: UnitRow) -> Unit:
        """A unit with the plan of its present version."""
        unit = self._units.get(row.id)
        # One that waits sees with every step whether it can change over.
        if unit is None or unit.row.version != row.version or unit.waits:
            row, queries = self.with_queries(row)
            row, queries = self._with_partial_join(row, queries)
            before = None if unit is None else unit.plan  # spares checking its queries again
            waits = self._partial_joins(row)[1] is not None
            # What it reads until then has no columns but those that its present queries need.
            planned = replace(row, definition="") if waits else row
            unit = self._units[row.id] = self.plan(planned, queries, before)
            unit.waits = waits
        unit.row = row
        return unit

    def plan(self, row: UnitRow, queries: Sequence[QueryRow], before: Plan | None = None) -> Unit:
        """A unit that serves these queries; `before` is the plan that it had."""
        once_shared = self.catalog.cursor(row.id, SUBSCRIBERS) is not None
        partial_query, _ = self._partial_joins(row)
        plan = self.planner.plan(row, queries, once_shared, before, partial_query)
        streams = {
            scan.stream.lower(): self.definitions.streams[scan.stream.lower()].stream
            for _, scan in plan.scans
        }
        return Unit(row, plan, streams, tuple(queries))

    def with_queries(self, row: UnitRow) -> tuple[UnitRow, tuple[QueryRow, ...]]:
        """A unit and its queries that can be planned, both of one version: rows that are emitted
        under the number of a version must be those of its queries, also if one is accepted while
        these are read."""
        while True:
            row = self.planner.ensure_definition(self.catalog, row)
            queries = tuple(self.catalog.subscribers(row.id))
            now = self.catalog.unit(row.id)
            if now is None or now.version == row.version:
                plannable = plannable_queries(queries, input_streams(self.catalog, row))
                return row, tuple(plannable)
            row = now

    def _partial_joins(self, row: UnitRow) -> tuple[QueryRow | None, QueryRow | None]:
        """What a unit reads of another, and what it waits for to read instead."""
        reads_other = any(name.startswith("unit:") for name in row.inputs)
        return self.catalog.partial_joins(row.id) if reads_other else (None, None)

    def _with_partial_join(
        self, row: UnitRow, queries: tuple[QueryRow, ...]
    ) -> tuple[UnitRow, tuple[QueryRow, ...]]:
        """A unit and those of its queries that can be served by what it reads.

        A unit that waits for another partial join changes to that as soon as it can; until then it
        goes on as it is, and queries for which it waits have no rows.
        """
        _, awaited = self._partial_joins(row)
        if awaited is None:
            return row, queries
        served = served_keys(self.catalog, row)
        still_served = tuple(query for query in queries if query.result_key in served)
        if still_served and not has_rows_of(self.catalog, row, awaited):
            return row, still_served
        try:
            self.catalog.adopt_partial_join(row)
        except CommitConflict:  # the step is refused as well, and planned again
            return row, still_served or queries
        current = self.catalog.unit(row.id)
        assert current is not None
        return self.with_queries(current)

    def discard(self, unit_id: str) -> None:
        """Plan a unit again when it is needed next."""
        self._units.pop(unit_id, None)

    def clear(self) -> None:
        """Plan all units again when they are needed next."""
        self._units.clear()

    def forget_all_but(self, units: Collection[str]) -> None:
        """Keep nothing in memory of other units."""
        for unit in set(self._units) - set(units):
            del self._units[unit]

    def __iter__(self) -> Iterator[Unit]:
        return iter(list(self._units.values()))

    def __len__(self) -> int:
        return len(self._units)
