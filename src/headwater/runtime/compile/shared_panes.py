"""Grouped queries that share their panes.

Over a single stream a pane holds the tuples between two multiples of the granule, or at one: in every
window that is made of granules, all of them enter and leave together. Over a join the windows are the
same for all queries, and panes are as for one query. Each evaluation reads the panes as its own; those
that differ only in the constants of their conditions are one statement, in which a table of these
constants says which evaluation sees which pane.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import product
from math import prod
from typing import TYPE_CHECKING, ClassVar, Self

from headwater.algebra.canonical import Block, Group
from headwater.algebra.canonical.block import GROUP, call_text
from headwater.algebra.conditions.predicate import ANYTHING
from headwater.algebra.expressions import Column, Expr, conjunction
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Output, Scan
from headwater.algebra.types import INT
from headwater.algebra.windows import Range
from headwater.reuse.families import DomainInterval, intervals_of
from headwater.reuse.group_subscribers import GroupEvaluation, GroupSubscribers
from headwater.reuse.row_classes import ROW_CLASS_COLUMN, SHAPE_COLUMN
from headwater.reuse.signature import Bound
from headwater.runtime.compile.delta_join import DeltaJoin, JoinsByDelta
from headwater.runtime.compile.group_states import COUNT, FROM, TO, changed_sql
from headwater.runtime.compile.panes import Panes
from headwater.runtime.compile.plan import (
    KeptTotals,
    PartialJoin,
    SlideSets,
    StepFactory,
    T,
    TermViews,
)
from headwater.runtime.compile.shared_join import (
    CONSTANTS,
    cell_sql,
    constants_table,
    is_inline,
    is_served_sql,
    place_sql,
)
from headwater.runtime.compile.windows import last_multiple_sql, next_multiple_sql, with_views
from headwater.runtime.spark.aggregates import partial_aggregate
from headwater.runtime.spark.sql import expression_sql, quote_identifier, spark_type
from headwater.runtime.storage.columns import TIME, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

BEFORE_ALL = -(2**62)
"""Before all event times."""

ALL_PANES = "all_panes"
"""The view of the panes that are shared."""

BOUNDS, EVALUATION_NUMBER = "bounds", "_evaluation"
"""The view of what the evaluations of a family see (with the number of the first), and the column of
their own numbers."""

MAX_BOXES = 64
"""An evaluation whose conditions combine more intervals is a statement of its own."""


@dataclass(frozen=True)
class SharedPanes(JoinsByDelta):
    """The plan of a unit that serves several grouped queries."""

    subscribers: GroupSubscribers

    emits_on_arrival: ClassVar[bool] = False
    keeps_panes: ClassVar[bool] = True
    needs_same_queries: ClassVar[bool] = True
    partial_join: ClassVar[PartialJoin | None] = None
    united: ClassVar[None] = None
    delta_constants: ClassVar[None] = None

    @cached_property
    def panes(self) -> Panes:
        """What is kept, as the panes of a query that would emit all of it."""
        operator = self.subscribers.operator
        sources = operator.sources
        if self.subscribers.has_several_windows:
            sources = tuple(
                # As long as the longest window with its slide: panes are kept until no query can
                # see them.
                replace(source, window=Range(self.subscribers.reach))
                for source in sources
                if isinstance(source, Scan)
            )
        group = Group(self.subscribers.keys, operator.calls, ANYTHING)
        return Panes(Block(sources, operator.where, (), group, (), False), Output.RSTREAM)

    @property
    def block(self) -> Block:
        return self.panes.block

    @property
    def delta(self) -> DeltaJoin:
        return self.panes.delta

    @property
    def lanes(self) -> tuple[Self]:
        return (self,)

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.pane_step(self)

    @property
    def slides(self) -> frozenset[int]:
        return self.subscribers.slides

    @property
    def emits_without_panes(self) -> bool:
        """Whether a row may be emitted though there is no pane: a count of nothing."""
        return any(not evaluation.keys for evaluation in self._representatives)

    @cached_property
    def slide_sets(self) -> SlideSets:
        """The sets of slides of its evaluations, and whether one of them emits a row at every instant,
        however empty its window is."""
        plans = [Panes(evaluation.block, evaluation.output) for evaluation in self._representatives]
        return {
            slides: any(plan.emits_at_every_instant for plan in plans if plan.slides == slides)
            for slides in dict.fromkeys(plan.slides for plan in plans)
        }

    @property
    def _representatives(self) -> list[GroupEvaluation]:
        """One evaluation of each family: the others differ from it in constants alone."""
        return [family.first for family in self.families]

    @property
    def max_instants_per_step(self) -> int:
        """How many instants one step may evaluate."""
        plans = [Panes(evaluation.block, evaluation.output) for evaluation in self._representatives]
        return min(plan.max_instants_per_step for plan in plans)

    # ---- absorbing

    def term_sql(self, order: Sequence[str], views: TermViews) -> str:
        """SQL of the rows that one term of the delta join adds."""
        if not self.subscribers.has_several_windows:
            return self.panes.term_sql(order, views)
        time, granule = f"{order[0]}.{TIME}", self.subscribers.granule
        begins = next_multiple_sql(time, granule) if granule > 1 else time
        ended = last_multiple_sql(time, granule) if granule > 1 else time
        spans = [f"{begins} AS {FROM}", f"{ended} + {self.subscribers.reach}L AS {TO}"]
        return self.delta.select_sql([*spans, *self.panes.item_sql()], order, views)

    def delta_sql(self, terms: Sequence[str]) -> str:
        return self.panes.delta_sql(terms)

    def compaction_sql(self, before: int) -> str:
        """SQL of the view `panes` without what is not visible after that instant, in fewer panes."""
        # Over one stream `_from` and `_to` encode the granule, from which each query computes its
        # own span (`_visible_span`): clipping would falsify it.
        return self.panes.compaction_sql(before, clipped=not self.subscribers.has_several_windows)

    def conversion_sql(self, before: SharedPanes) -> str:
        """SQL of the panes of this plan, from the view of those that another plan has made, for the same
        queries and others."""
        old = before.subscribers
        columns = [FROM, TO, COUNT]
        columns += [
            f"k{old.key_position(key)} AS k{n}" for n, key in enumerate(self.subscribers.keys)
        ]
        numbers = {call_text(call): n for n, call in enumerate(old.operator.calls)}
        columns += [
            f"{theirs} AS {mine}"
            for n, call in enumerate(self.subscribers.operator.calls)
            for mine, theirs in _renamed_parts(call, n, numbers[call_text(call)])
        ]
        seen = " OR ".join(
            f"({before.condition_sql(old.filters_of(signature)) or 'TRUE'})"
            for signature in self.subscribers.signatures
        )
        # TRUE first: Spark would read `panes WHERE (TRUE)` as panes by another name, with one column.
        chosen = f"SELECT {', '.join(columns)} FROM {ALL_PANES} WHERE TRUE AND ({seen})"
        return with_views({"panes": chosen}, self.panes.compaction_sql(BEFORE_ALL, clipped=False))

    # ---- results

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The evaluations, grouped where they differ only in the constants of their conditions."""
        groups: dict[Hashable, list[tuple[int, GroupEvaluation]]] = {}
        for number, evaluation in enumerate(self.subscribers.evaluations):
            # One that can see no pane would have no row of bounds, but must still emit a count of 0.
            is_separate = evaluation.terms or not 0 < _count_boxes(evaluation) <= MAX_BOXES
            key = number if is_separate else (evaluation.family, evaluation.column_positions)
            groups.setdefault(key, []).append((number, evaluation))
        return tuple(Family(tuple(group)) for group in groups.values())

    @property
    def number_of_statements(self) -> int:
        return len(self.families)

    @cached_property
    def kept_totals(self) -> Mapping[str, KeptTotals]:
        return {
            name: KeptTotals(
                family.plan.slides,
                partial(self._totals_sql, family),
                {f"{BOUNDS}{family.number}": partial(getattr, family, "bounds")}
                if family.has_several
                else {},
            )
            for name, family in self._families_with_totals.items()
        }

    @cached_property
    def _families_with_totals(self) -> Mapping[str, Family]:
        # Those of several queries without keys have panes without tuples, which are in no log.
        families = (f for f in self.families if f.first.keys or not f.has_several)
        return {
            self._totals_name(family): family
            for family in families
            if family.plan.group_totals is not None
        }

    def _totals_name(self, family: Family) -> str:
        """Changes with everything by which panes become groups of a family."""
        bounds = family.bounds.to_pydict() if family.has_several else None
        content = f"{self.subscribers.layout} {self._panes_view_sql(family)} {bounds}"
        return blake2b(content.encode(), digest_size=16).hexdigest()

    def totals_name(self, family: Family) -> str | None:
        """The name of the totals that are kept for a family, if there are."""
        return next((n for n, f in self._families_with_totals.items() if f is family), None)

    def _totals_sql(self, family: Family, at: int, before: int | None) -> str:
        totals = family.plan.group_totals
        assert totals is not None
        changed = None if before is None else (before, at)
        return with_views({"panes": self._panes_view_sql(family, changed)}, totals.sql(at, before))

    def result_sql(
        self,
        family: Family,
        before: int | None,
        instants: Sequence[int],
        totals_at: int | None = None,
    ) -> str:
        """SQL of what the evaluations of a family emit at their instants: `_tau`, shape, class, c0, c1, ..

        It reads the views of all panes, of the constants and of the bounds, `instants(t, next)`, and `totals` if
        there are totals of some instant.
        """
        evaluation, plan = family.first, family.plan
        changed = None if totals_at is None else (totals_at, instants[-1])
        panes = self._panes_view_sql(family, changed)
        if family.has_several and not evaluation.keys:
            panes += f"\nUNION ALL {_empty_panes_sql(family, before, instants)}"
        rows = with_views({"panes": panes}, plan.result_sql(before, instants, totals_at))
        positions = {slot: n for n, slot in enumerate(evaluation.column_positions)}
        items = [
            f"c{positions[n]} AS c{n}"
            if n in positions
            else f"CAST(NULL AS {spark_type(type_)}) AS c{n}"
            for n, type_ in enumerate(self.subscribers.column_types)
        ]
        if family.has_several:
            selected = [
                f"_tau, c{len(evaluation.column_positions)} AS {SHAPE_COLUMN}, 0L AS {ROW_CLASS_COLUMN}",
                *items,
            ]
            return f"SELECT {', '.join(selected)} FROM ({rows})"
        at = family.number
        if not evaluation.terms:
            selected = [f"_tau, {at} AS {SHAPE_COLUMN}, 0L AS {ROW_CLASS_COLUMN}", *items]
            return f"SELECT {', '.join(selected)} FROM ({rows})"
        values = [f"c{len(evaluation.column_positions) + n}" for n in range(len(evaluation.terms))]
        constants = "" if is_inline(evaluation.table) else f" CROSS JOIN {CONSTANTS}"
        rows = f"SELECT *, {cell_sql(at, values, evaluation.table)} AS _cell{at} FROM ({rows}){constants}"
        rows = f"SELECT *, {place_sql(at, evaluation.table)} AS _place{at} FROM ({rows})"
        selected = [
            f"_tau, {at} AS {SHAPE_COLUMN}, CAST(_place{at} - 1 AS BIGINT) AS {ROW_CLASS_COLUMN}",
            *items,
        ]
        return f"SELECT {', '.join(selected)} FROM ({rows}) WHERE {is_served_sql(at, evaluation.table)}"

    def _panes_view_sql(self, family: Family, changed: tuple[int, int] | None = None) -> str:
        """SQL of the shared panes as the evaluations of a family see them; if two instants are given, at least
        those that begin or end after the one and until the other."""
        evaluation = family.first
        plan = Panes(evaluation.block, evaluation.output)
        begins, ends = self._visible_span(evaluation)
        columns = [f"{begins} AS {FROM}", f"{ends} AS {TO}", COUNT]
        columns += [
            f"k{self.subscribers.key_position(key)} AS k{n}" for n, key in enumerate(plan.keys)
        ]
        if family.has_several:
            columns.append(f"{EVALUATION_NUMBER} AS k{len(plan.keys)}")
        shared = {call_text(call): n for n, call in enumerate(self.subscribers.operator.calls)}
        for n, call in enumerate(plan.calls):
            names = _renamed_parts(call, n, shared[call_text(call)])
            columns += [f"{theirs} AS {mine}" for mine, theirs in names]
        seen = self._bounds_join_sql(family) if family.has_several else self._filter_sql(evaluation)
        rows = ALL_PANES
        if changed is not None:  # of the columns themselves, so that files are read in part
            rows = f"(SELECT * FROM {ALL_PANES} WHERE {self._changed_sql(evaluation, *changed)})"
        return f"SELECT * FROM (SELECT {', '.join(columns)} FROM {rows}{seen}) WHERE {FROM} < {TO}"

    def _changed_sql(self, evaluation: GroupEvaluation, after: int, until: int) -> str:
        """SQL of a condition on shared panes that those meet that an evaluation sees begin or end then."""
        if not self.subscribers.has_several_windows:
            return changed_sql(after, until)
        window = _window_of(evaluation)
        assert window.size is not None
        slide, shorter = window.slide or 0, self.subscribers.reach - window.size
        return changed_sql(after, until, slide, shorter - slide - 1, shorter)

    def _filter_sql(self, evaluation: GroupEvaluation) -> str:
        """SQL of the condition on the panes that one evaluation sees."""
        condition = self.condition_sql(evaluation.filters)
        return f" WHERE {condition}" if condition else ""

    def condition_sql(self, filters: Sequence[Bound]) -> str:
        """SQL of bounds on the keys of panes; empty if there are none."""
        condition_expr = conjunction(
            condition
            for bound in filters
            if (condition := bound.domain.as_expr(self._key_column(bound.term))) is not None
        )
        return (
            ""
            if condition_expr is None
            else expression_sql(condition_expr, lambda c: quote_identifier(c.name))
        )

    def _bounds_join_sql(self, family: Family) -> str:
        """SQL of the join that assigns to each evaluation of a family the panes it sees."""
        tests = []
        for n, bound in enumerate(family.first.filters):
            key = self._key_column(bound.term).name
            if all(evaluation.filters[n].domain.is_point for _, evaluation in family.evaluations):
                # An equality alone, where all are points: Spark then joins by hash instead of
                # comparing all pairs.
                tests.append(f"{key} = low{n}")
                continue
            within = f"(low{n} IS NULL OR {key} >= low{n}) AND (high{n} IS NULL OR {key} < high{n})"
            tests.append(f"IF({key} IS NULL, null{n}, NOT null{n} AND {within})")
        return f" JOIN {BOUNDS}{family.number} ON {' AND '.join(tests)}"

    def _key_column(self, term: Expr) -> Column:
        return Column("", f"k{self.subscribers.key_position(term)}", term.type)

    def _visible_span(self, evaluation: GroupEvaluation) -> tuple[str, str]:
        """From when until when an evaluation sees a pane."""
        if not self.subscribers.has_several_windows:
            return FROM, TO
        window = _window_of(evaluation)
        assert window.size is not None
        ended = f"({TO} - {self.subscribers.reach}L + {window.size}L)"
        if window.slide is None:
            # `_to` is exclusive, and a window that does not slide still holds a tuple that is
            # exactly its size old.
            return FROM, f"({ended} + 1L)"
        ends = f"({last_multiple_sql(ended, window.slide)} + {window.slide}L)"
        return next_multiple_sql(FROM, window.slide), ends

    @cached_property
    def constants(self) -> pa.Table | None:
        """The arrays of the evaluations whose rows many constants distinguish, in one row."""
        many = [
            (at, evaluation.table)
            for at, evaluation in enumerate(self.subscribers.evaluations)
            if evaluation.terms and not is_inline(evaluation.table)
        ]
        return constants_table(many) if many else None


@dataclass(frozen=True)
class Family:
    """Evaluations by number: one, or several that differ in the constants of their filters alone."""

    evaluations: tuple[tuple[int, GroupEvaluation], ...]

    @property
    def number(self) -> int:
        return self.evaluations[0][0]

    @property
    def first(self) -> GroupEvaluation:
        return self.evaluations[0][1]

    @property
    def has_several(self) -> bool:
        return len(self.evaluations) > 1

    @cached_property
    def plan(self) -> Panes:
        """Their plan: where they are several, with their number as another key and item."""
        block = self.first.block
        if self.has_several:
            number = Column("", EVALUATION_NUMBER, INT)
            if block.group is None:
                block = replace(block, items=(*block.items, number))
            else:
                shown = Column(GROUP, f"k{len(block.group.keys)}", INT)
                group = replace(block.group, keys=(*block.group.keys, number))
                block = replace(block, group=group, items=(*block.items, shown))
        return Panes(block, self.first.output)

    @cached_property
    def bounds(self) -> pa.Table:
        """What each evaluation sees of the terms of its filters: a row for each combination of intervals."""
        import pyarrow as pa

        numbers: list[int] = []
        boxes: list[tuple[DomainInterval, ...]] = []
        for at, evaluation in self.evaluations:
            for box in product(*(intervals_of(bound.domain) for bound in evaluation.filters)):
                numbers.append(at)
                boxes.append(box)
        columns: dict[str, pa.Array] = {EVALUATION_NUMBER: pa.array(numbers, pa.int32())}
        for n, bound in enumerate(self.first.filters):
            type_ = bound.domain.type
            column_type = arrow_type(type_) if not type_.is_floating else pa.float64()
            columns[f"low{n}"] = pa.array([box[n].low for box in boxes], column_type)
            columns[f"high{n}"] = pa.array([box[n].high for box in boxes], column_type)
            columns[f"null{n}"] = pa.array([box[n].is_null for box in boxes], pa.bool_())
        return pa.table(columns)


def _window_of(evaluation: GroupEvaluation) -> Range:
    """The window of an evaluation over one stream."""
    (scan,) = (s for s in evaluation.block.sources if isinstance(s, Scan))
    assert isinstance(scan.window, Range)
    return scan.window


def _renamed_parts(call: AggregateCall, mine: int, theirs: int) -> list[tuple[str, str]]:
    """The names of a call's columns of panes as the aggregate of one number, and as that of another."""
    one, other = partial_aggregate(call, mine), partial_aggregate(call, theirs)
    assert one is not None and other is not None
    return [(a.name, b.name) for a, b in zip(one.columns, other.columns, strict=True)]


def _count_boxes(evaluation: GroupEvaluation) -> int:
    return prod(len(intervals_of(bound.domain)) for bound in evaluation.filters)


def _empty_panes_sql(family: Family, before: int | None, instants: Sequence[int]) -> str:
    """SQL of a pane without tuples for each evaluation, visible at all instants and at the one before
    them: an evaluation without keys emits a row also where it sees no other pane."""
    parts = "".join(f", NULL AS {part.name}" for part in family.plan._pane_columns)
    first = instants[0] if before is None else before
    numbers = f"SELECT DISTINCT {EVALUATION_NUMBER} FROM {BOUNDS}{family.number}"
    return (
        f"SELECT {first}L AS {FROM}, {instants[-1] + 1}L AS {TO}, 1L AS {COUNT}, {EVALUATION_NUMBER} AS k0{parts} "
        f"FROM ({numbers})"
    )
