"""The units that run in this process, each with the plan of its present queries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.runtime.catalog import Catalog, QueryRow, UnitRow, partial_join_name
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.plan import Plan
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.engine.unit import Unit
from headwater.runtime.lifecycle import input_streams, plannable_queries
from headwater.runtime.results.subscribers import SUBSCRIBERS


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
        if unit is None or unit.row.version != row.version:
            row, queries = self.with_queries(row)
            before = None if unit is None else unit.plan  # spares checking its queries again
            unit = self._units[row.id] = self.plan(row, queries, before)
        unit.row = row
        return unit

    def plan(self, row: UnitRow, queries: Sequence[QueryRow], before: Plan | None = None) -> Unit:
        """A unit that serves these queries; `before` is the plan that it had."""
        once_shared = self.catalog.cursor(row.id, SUBSCRIBERS) is not None
        reads_other = any(name.startswith("unit:") for name in row.inputs)
        partial_query = self.catalog.query(partial_join_name(row.id)) if reads_other else None
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
