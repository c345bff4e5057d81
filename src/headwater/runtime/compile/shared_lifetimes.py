"""Queries of any kind that read the same sources, in one job.

Queries that differ in constants alone are one statement, which joins a table of them (`headwater.reuse.families`); a
window that several statements have is read once. Each statement is evaluated at the instants of its own slides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Query, Scan, TableScan, walk_relations
from headwater.reuse.families import ConstantsTable
from headwater.reuse.relation_subscribers import RelationStatement, RelationSubscribers
from headwater.reuse.row_classes import ROW_CLASS_COLUMN, SHAPE_COLUMN
from headwater.runtime.compile.lifetimes.plan import Lifetimes, table_alias
from headwater.runtime.compile.lifetimes.rows import Timeline
from headwater.runtime.compile.plan import PartialJoin, SlideSets, StepFactory, T
from headwater.runtime.compile.windows import FOREVER, window_name
from headwater.runtime.spark.sql import spark_type


@dataclass(frozen=True)
class SharedLifetimes:
    """The queries of a unit, by the lifetimes of their rows."""

    subscribers: RelationSubscribers

    emits_on_arrival: ClassVar[bool] = False
    keeps_panes: ClassVar[bool] = False
    # A step evaluates an instant once: a query that comes meanwhile would miss the rows of it.
    needs_same_queries: ClassVar[bool] = True
    partial_join: ClassVar[PartialJoin | None] = None
    equalities: ClassVar[tuple[tuple[Column, Column], ...]] = ()

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.lifetime_step(self)

    def reach(self, alias: str) -> tuple[int | None, int]:  # noqa: ARG002
        """Any: windows are read whole, and nothing is known of what meets what."""
        return None, FOREVER

    @cached_property
    def statements(self) -> tuple[FamilyStatement, ...]:
        return tuple(
            FamilyStatement(number, statement, self.subscribers)
            for number, statement in enumerate(self.subscribers.statements)
        )

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """Each window once for the instants that it is read for."""
        scans: dict[str, Scan] = {}
        for statement in self.statements:
            for alias, scan in statement.plan.scans:
                scans.setdefault(statement.views[alias], scan)
        return tuple(scans.items())

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        tables: dict[str, TableScan] = {}
        for statement in self.statements:
            for alias, table in statement.plan.tables:
                tables.setdefault(statement.views[alias], table)
        return tuple(tables.items())

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.scans)

    @cached_property
    def slide_sets(self) -> SlideSets:
        emits: dict[frozenset[int], bool] = {}
        for statement in self.statements:
            for slides, always in statement.plan.slide_sets.items():
                emits[slides] = emits.get(slides, False) or always
        return emits

    def max_instants_per_step(self, configured: int) -> int:
        return min(s.plan.max_instants_per_step(configured) for s in self.statements)


@dataclass(frozen=True)
class FamilyStatement:
    """The queries of a family: their relation, and which of its rows are whose."""

    number: int
    statement: RelationStatement
    subscribers: RelationSubscribers

    @cached_property
    def plan(self) -> Lifetimes:
        family = self.statement.family
        contents = {table.scan.table: table for table in family.tables}
        tables = [n for n in walk_relations(family.query.root) if isinstance(n, TableScan)]
        return Lifetimes(
            family.query,
            {
                table_alias(number): contents[table.table]
                for number, table in enumerate(tables)
                if table.table in contents
            },
        )

    @property
    def query(self) -> Query:
        return self.plan.query

    @property
    def slides(self) -> frozenset[int]:
        return self.plan.slides

    @property
    def constants(self) -> Mapping[str, ConstantsTable]:
        return self.plan.constants

    @cached_property
    def views(self) -> Mapping[str, str]:
        windows = {alias: window_name(scan, self.slides) for alias, scan in self.plan.scans}
        return windows | {alias: f"t_{t.table.lower()}" for alias, t in self.plan.tables}

    def timeline(
        self, before: int | None, instants: Sequence[int], rows: int, new_rows: int
    ) -> Timeline:
        return self.plan.timeline(before, instants, rows, new_rows)

    def result_sql(self, timeline: Timeline, number: int) -> str:
        """`_tau`, shape, class, c0, c1, .."""
        positions = {slot: n for n, slot in enumerate(self.statement.column_positions)}
        items = [
            f"c{positions[n]} AS c{n}"
            if n in positions
            else f"CAST(NULL AS {spark_type(type_)}) AS c{n}"
            for n, type_ in enumerate(self.subscribers.column_types)
        ]
        row_class = "0L"
        if self.statement.family.numbers is not None:
            row_class = f"CAST(c{len(positions)} AS BIGINT)"
        selected = [
            "_tau",
            f"{self.number} AS {SHAPE_COLUMN}",
            f"{row_class} AS {ROW_CLASS_COLUMN}",
            *items,
        ]
        return f"SELECT {', '.join(selected)} FROM ({self.plan.result_sql(timeline, number)})"
