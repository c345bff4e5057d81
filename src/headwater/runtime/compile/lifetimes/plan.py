"""The plan of any query, by the lifetimes of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from headwater.algebra.expressions import Column
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Join,
    OuterJoin,
    Output,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
    is_empty_over_empty_windows,
    is_spj,
    slides,
    walk_relations,
)
from headwater.algebra.windows import Range
from headwater.reuse.families import ConstantsTable
from headwater.runtime.compile.lifetimes.aggregate import aggregate_sql_of, follows_from_before
from headwater.runtime.compile.lifetimes.distinct import distinct_sql
from headwater.runtime.compile.lifetimes.join import join_sql
from headwater.runtime.compile.lifetimes.outer_join import outer_join_sql
from headwater.runtime.compile.lifetimes.output import output_sql
from headwater.runtime.compile.lifetimes.partition import Part, parts_of
from headwater.runtime.compile.lifetimes.rows import (
    FROM,
    ID,
    TO,
    Bands,
    Timeline,
    flat_name,
    value_id_sql,
)
from headwater.runtime.compile.lifetimes.scan import changed_values_sql, scan_sql, table_sql
from headwater.runtime.compile.lifetimes.semi_join import anti_join_sql, semi_join_sql
from headwater.runtime.compile.lifetimes.union import union_sql
from headwater.runtime.compile.plan import PartialJoin, SlideSets, StepFactory, T
from headwater.runtime.compile.windows import FOREVER, with_views
from headwater.runtime.spark.sql import expression_sql

BANDED_SPAN, BANDED_ROWS, MAX_BANDS = 4, 20_000, 4_096
"""A step is cut into bands if it is at least that many times as long as the longest stay of a tuple in a
window, and reads at least that many rows; into how many at most."""

NARROWED_ROWS, NARROWED_SHARE = 2_000, 4
"""A step looks for the parts that change if its windows hold at least this many rows, and this many times as
many as are new; else finding them would take longer than it saves."""


@dataclass(frozen=True)
class Lifetimes:
    """Any query: its relation with lifetimes over the instants of a step, and what of it is emitted.

    The SQL reads a view for each scan and table, and the view of the instants.
    """

    query: Query
    constants: Mapping[str, ConstantsTable] = field(default_factory=dict)
    """The content of tables that are no declared ones, by their aliases: they never change."""

    emits_on_arrival: ClassVar[bool] = False
    keeps_panes: ClassVar[bool] = False
    needs_same_queries: ClassVar[bool] = False
    subscribers: ClassVar[None] = None
    partial_join: ClassVar[PartialJoin | None] = None
    equalities: ClassVar[tuple[tuple[Column, Column], ...]] = ()

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.lifetime_step(self)

    def reach(self, alias: str) -> tuple[int | None, int]:  # noqa: ARG002
        """Any: windows are read whole, and nothing is known of what meets what."""
        return None, FOREVER

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """Every scan of the tree by its position: (v0, scan), .. (equal scans have different names)."""
        stream_scans = [n for n in walk_relations(self.query.root) if isinstance(n, Scan)]
        return tuple((f"v{i}", scan) for i, scan in enumerate(stream_scans))

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        return tuple((a, t) for a, t in self._all_tables if a not in self.constants)

    @cached_property
    def _all_tables(self) -> tuple[tuple[str, TableScan], ...]:
        table_scans = [n for n in walk_relations(self.query.root) if isinstance(n, TableScan)]
        return tuple((table_alias(i), table) for i, table in enumerate(table_scans))

    @property
    def statements(self) -> tuple[Lifetimes, ...]:
        return (self,)

    @cached_property
    def views(self) -> Mapping[str, str]:
        return {alias: alias for alias, _ in (*self.scans, *self.tables)}

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.scans)

    @cached_property
    def slides(self) -> frozenset[int]:
        return slides(self.query.root)

    @property
    def slide_sets(self) -> SlideSets:
        """Its slides, and whether it emits rows at every instant, also where all windows are empty."""
        emits = self.query.output is Output.RSTREAM and not is_empty_over_empty_windows(
            self.query.root
        )
        return {self.slides: emits}

    def max_instants_per_step(self, configured: int) -> int:
        """How many instants one step may evaluate, of which the settings allow so many if it matters."""
        # What RSTREAM emits grows with the instants, and a group that has to be added up again with
        # the square of its changes.
        grows = self.query.output is Output.RSTREAM or any(
            isinstance(node, Aggregate) and not follows_from_before(node)
            for node in walk_relations(self.query.root)
        )
        if grows:
            return configured
        # The instants of one slide are a range, of none those of the tuples; else they are a list.
        return 50_000 if len(self.slides) > 1 else 1_000_000_000

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of which only those are computed that change; none if all have to be."""
        return () if self.query.output is Output.RSTREAM else parts_of(self.query.root)

    def timeline(
        self, before: int | None, instants: Sequence[int], rows: int, new_rows: int
    ) -> Timeline:
        """The timeline of a step that reads about so many rows, of which so many are new."""
        narrow = before is not None and rows >= NARROWED_ROWS and rows >= NARROWED_SHARE * new_rows
        if narrow and self.parts:
            return Timeline(self.slides, before, instants[0], instants[-1], is_narrow=True)
        timeline = Timeline(self.slides, before, instants[0], instants[-1])
        stay, span = self._longest_stay, timeline.last - timeline.start + 1
        if stay is None or rows < BANDED_ROWS or span < BANDED_SPAN * stay:
            return timeline
        length = max(stay, -(-span // MAX_BANDS))
        return replace(timeline, bands=Bands(length, -(-span // length)))

    @cached_property
    def _longest_stay(self) -> int | None:
        """For how long a tuple is in a window at most; None if that is not known, or a declared table is
        read, whose rows would be copied to all bands."""
        if self.tables:
            return None
        stays = [
            None
            if not isinstance(scan.window, Range) or scan.window.size is None
            else scan.window.size + max(self.slides, default=0) + 1
            for _, scan in self.scans
        ]
        known = [stay for stay in stays if stay is not None]
        return max(known) if known and len(known) == len(stays) else None

    def result_sql(self, timeline: Timeline, number: int) -> str:
        """SQL of the rows emitted at the instants of a step, which are so many: `_tau`, c0, c1, .."""
        parts = self.parts if timeline.is_narrow else ()
        text = _RelationWriter(self, timeline, parts).relation_sql(self.query.root)
        # Without slides a row may leave and enter again between two instants: then it has done neither.
        is_cut = any(isinstance(n, SemiJoin | OuterJoin) for n in walk_relations(self.query.root))
        unique = is_spj(self.query.root) and (bool(self.slides) or not is_cut)
        emitted = output_sql(timeline, self.query.output, self.query.columns, text, number, unique)
        views = changed_values_sql(timeline, dict(self.scans), parts)
        return with_views(views, emitted) if views else emitted


def table_alias(number: int) -> str:
    """What SQL calls the table of that number, in the order of the tree."""
    return f"b{number}"


class _RelationWriter:
    """Writes relations with lifetimes: one rule for each kind of node."""

    def __init__(self, plan: Lifetimes, timeline: Timeline, parts: Sequence[Part]) -> None:
        self.timeline = timeline
        self.parts = parts
        self._scans = iter(plan.scans)
        self._tables = iter(plan._all_tables)

    def relation_sql(self, node: Relation) -> str:
        timeline = self.timeline
        match node:
            case Scan():
                return scan_sql(timeline, node, next(self._scans)[0], self.parts)
            case TableScan():
                return table_sql(timeline, node, next(self._tables)[0])
            case Select():
                below = self.relation_sql(node.input)
                return f"(SELECT * FROM {below} WHERE {expression_sql(node.condition, flat_name)})"
            case Project():
                return self._project(node)
            case Join():
                texts = [self.relation_sql(part) for part in node.inputs]
                return join_sql(timeline, node.inputs, node.condition, texts)
            case OuterJoin():
                return outer_join_sql(timeline, node, self._sides(node))
            case SemiJoin():
                rule = anti_join_sql if node.anti else semi_join_sql
                sides = self._sides(node)
                return rule(timeline, node.left, node.right, node.condition, sides)
            case Aggregate():
                return aggregate_sql_of(timeline, node, self.relation_sql(node.input))
            case Distinct():
                return distinct_sql(timeline, node, self.relation_sql(node.input))
            case UnionAll():
                return union_sql(timeline, node, [self.relation_sql(p) for p in node.inputs])

    def _sides(self, node: OuterJoin | SemiJoin) -> tuple[str, str]:
        return self.relation_sql(node.left), self.relation_sql(node.right)

    def _project(self, node: Project) -> str:
        """Other columns, the same lifetimes. Groups are compared by the values that are shown of them."""
        below = self.relation_sql(node.input)
        items = [
            f"{expression_sql(item.expr, flat_name)} AS {flat_name(column)}"
            for item, column in zip(node.items, node.columns, strict=True)
        ]
        rows = f"(SELECT {self.timeline.select([FROM, TO, ID, *items])} FROM {below})"
        if not _is_grouped(node.input):
            return rows
        shown = [f"{value_id_sql(node.columns)} AS {ID}", *map(flat_name, node.columns)]
        return f"(SELECT {self.timeline.select([FROM, TO, *shown])} FROM {rows})"


def _is_grouped(relation: Relation) -> bool:
    while isinstance(relation, Select):
        relation = relation.input
    return isinstance(relation, Aggregate)
