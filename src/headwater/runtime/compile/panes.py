"""Grouped windows by panes: new tuples are aggregated once, and emitted when the watermark has passed.

A row of a select-project-join is visible from an instant `_from` until a time `_to`. All rows of a
group with the same two are a *pane*, of which only partial aggregates are kept, in a log of the unit:
with a slide these are as few as the slides a window spans, without one the distinct event times.
(When a ROWS window lets a tuple go follows only from later tuples: such panes are built again from
the windows at each step, and not kept.)
Absorbing a delta reads new tuples only; emitting reads panes only. An instant's relation is the panes
with `_from` <= instant < `_to`, and it changes only where panes begin or end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import ClassVar, Self

from headwater.algebra.canonical import Block
from headwater.algebra.canonical.block import GROUP, body_text
from headwater.algebra.conditions.predicate import to_expr
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Output
from headwater.algebra.types import BOOLEAN
from headwater.algebra.windows import Range
from headwater.runtime.compile.changes import changes_sql
from headwater.runtime.compile.delta_join import DeltaJoin, JoinsByDelta, qualified_column
from headwater.runtime.compile.group_states import (
    COUNT,
    FROM,
    TO,
    GroupStates,
    GroupTotals,
    can_follow_changes,
)
from headwater.runtime.compile.plan import (
    KeptTotals,
    PartialJoin,
    SlideSets,
    StepFactory,
    T,
    TermViews,
)
from headwater.runtime.compile.windows import (
    last_multiple_sql,
    least_sql,
    next_multiple_sql,
    with_views,
)
from headwater.runtime.spark.aggregates import (
    PaneColumn,
    PartialAggregate,
    aggregate_sql,
    partial_aggregate,
)
from headwater.runtime.spark.sql import expression_sql, quote_identifier


@dataclass(frozen=True)
class Panes(JoinsByDelta):
    """A block whose rows are kept as panes, and which of their changes it emits."""

    block: Block
    output: Output

    emits_on_arrival: ClassVar[bool] = False
    needs_same_queries: ClassVar[bool] = True
    number_of_statements: ClassVar[int] = 1
    subscribers: ClassVar[None] = None
    partial_join: ClassVar[PartialJoin | None] = None
    united: ClassVar[None] = None
    delta_constants: ClassVar[None] = None

    @cached_property
    def delta(self) -> DeltaJoin:
        """The join whose rows panes are made of."""
        return DeltaJoin(self.block)

    @property
    def slides(self) -> frozenset[int]:
        return self.delta.slides

    @property
    def lanes(self) -> tuple[Self]:
        return (self,)

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.pane_step(self)

    @property
    def keeps_panes(self) -> bool:
        """Whether panes are final when they are built, and so are kept; over ROWS windows they are not."""
        return all(isinstance(scan.window, Range) for _, scan in self.scans)

    @property
    def emits_without_panes(self) -> bool:
        """Whether a row may be emitted though there is no pane: a count of nothing."""
        return not self.keys

    @property
    def emits_at_every_instant(self) -> bool:
        """Whether there is a row at every instant, also where all windows are empty."""
        return self.emits_without_panes and self.output is Output.RSTREAM

    @property
    def slide_sets(self) -> SlideSets:
        """Its slides, and whether it emits a row at every instant."""
        return {self.slides: self.emits_at_every_instant}

    @cached_property
    def keys(self) -> tuple[Expr, ...]:
        """What rows are grouped by: all items, if there is no GROUP BY."""
        return self.block.items if self.block.group is None else self.block.group.keys

    @cached_property
    def calls(self) -> tuple[AggregateCall, ...]:
        return () if self.block.group is None else self.block.group.calls

    @cached_property
    def partial_aggregates(self) -> tuple[PartialAggregate, ...] | None:
        """The aggregates as parts; None if one of them needs all rows."""
        candidates = tuple(partial_aggregate(call, i) for i, call in enumerate(self.calls))
        usable = tuple(p for p in candidates if p is not None)
        return usable if len(usable) == len(candidates) else None

    @property
    def max_instants_per_step(self) -> int:
        """How many instants one step may evaluate: fewer where it emits rows at each of them, or joins
        panes with them."""
        if self.output is Output.RSTREAM:
            # Every visible row is emitted at every instant, so output grows with instants times
            # rows.
            return 2_000
        if len(self.slides) == 1:
            # With one slide nothing is joined with the instants: results cost the same however many
            # there are.
            return 1_000_000_000
        return 1_000_000 if self.follows_changes or not self._is_grouped else 1_000

    @property
    def reads_instants(self) -> bool:
        """Whether the results are computed from the instants one by one."""
        if self.output is Output.RSTREAM:
            return len(self.slides) != 1 or not self.keys
        return not self.slides and (self._is_grouped or self.output is Output.DSTREAM)

    # ---- absorbing

    def term_sql(self, order: Sequence[str], views: TermViews) -> str:
        """SQL of the rows that one term of the delta join adds."""
        span = [f"{self.delta.entry_sql} AS {FROM}", f"{self.delta.exit_sql} AS {TO}"]
        return self.delta.select_sql([*span, *self.item_sql()], order, views)

    def item_sql(self) -> list[str]:
        """SQL of what panes are made of: keys, and the arguments of aggregates."""
        items = [
            f"{expression_sql(key, qualified_column)} AS k{i}" for i, key in enumerate(self.keys)
        ]
        for i, call in enumerate(self.calls):
            if call.arg is not None:
                items.append(f"{expression_sql(call.arg, qualified_column)} AS x{i}")
            if call.filter is not None:
                items.append(f"{expression_sql(call.filter, qualified_column)} AS f{i}")
        return items

    def delta_sql(self, terms: Sequence[str]) -> str:
        """SQL of the panes that a delta adds, from its terms."""
        rows = "\nUNION ALL\n".join(terms)
        if self.partial_aggregates is None:
            return f"SELECT *, 1L AS {COUNT} FROM ({rows})"
        aggregates = [
            f"count(*) AS {COUNT}",
            *(f"{p.build} AS {p.name}" for p in self._pane_columns),
        ]
        return self._group_sql([FROM, TO], aggregates, f"({rows})")

    def compaction_sql(self, before: int, clipped: bool = True) -> str:
        """SQL of the view `panes` without what is not visible after that instant, in fewer panes;
        with `clipped` all begin at that instant or later, so that more of them are equal."""
        start = f"greatest({FROM}, {before}L) AS {FROM}" if clipped else FROM
        live = f"(SELECT * EXCEPT ({FROM}), {start} FROM panes WHERE {TO} > {before}L)"
        if self.partial_aggregates is None:
            return f"SELECT * FROM {live}"
        merged = [f"{p.merge_sql(p.name)} AS {p.name}" for p in self._summed_columns]
        return self._group_sql([FROM, TO], merged, live)

    def _group_sql(self, first: Sequence[str], aggregates: Sequence[str], rows: str) -> str:
        by = [*first, *self._key_names]
        return f"SELECT {', '.join([*by, *aggregates])} FROM {rows} GROUP BY {', '.join(by)}"

    @cached_property
    def _key_names(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.keys))]

    @cached_property
    def _pane_columns(self) -> list[PaneColumn]:
        return [part for p in self.partial_aggregates or () for part in p.columns]

    @cached_property
    def _summed_columns(self) -> list[PaneColumn]:
        return [PaneColumn(COUNT, "", "sum"), *self._pane_columns]

    # ---- results

    @property
    def group_totals(self) -> GroupTotals | None:
        """The totals of its groups, if what it emits follows from those at an instant and the panes that
        begin or end later."""
        if not self._is_grouped or self.output is Output.RSTREAM or self.partial_aggregates is None:
            return None
        if not all(p.can_subtract for p in self.partial_aggregates):
            return None
        return GroupTotals(self._key_names, self.partial_aggregates)

    @property
    def kept_totals(self) -> Mapping[str, KeptTotals]:
        if self.group_totals is None or not self.keeps_panes:
            return {}
        # Named after what they are totals of: those of another body are never taken for them.
        name = blake2b(body_text(self.block).encode(), digest_size=16).hexdigest()
        return {name: KeptTotals(self.slides, self.group_totals.sql)}

    def result_sql(
        self, before: int | None, instants: Sequence[int], totals_at: int | None = None
    ) -> str:
        """SQL of the rows emitted at those instants: `_tau`, c0, c1, ..

        It reads the views `panes` and `instants(t, next)`, and `totals` if there are totals of some instant;
        `before` is the last instant evaluated.
        """
        writer = _ResultWriter(self, before, instants[0], instants[-1], totals_at)
        if self.output is Output.RSTREAM:
            return writer.groups() if self._is_grouped else writer.copies()
        if self._is_grouped:
            return writer.changes()
        return writer.entries() if self.output is Output.ISTREAM else writer.exits()

    @property
    def _is_grouped(self) -> bool:
        return self.block.group is not None or self.block.distinct

    @cached_property
    def follows_changes(self) -> bool:
        """Whether the values of groups follow from the changes of their panes, whatever the number of
        instants; else the panes that are there are looked up for each."""
        return self.partial_aggregates is not None and can_follow_changes(self.partial_aggregates)


@dataclass(frozen=True)
class _ResultWriter:
    """The SQL of one step's results."""

    plan: Panes
    before: int | None
    first: int
    last: int
    totals_at: int | None = None

    @property
    def keys(self) -> list[str]:
        return self.plan._key_names

    def copies(self) -> str:
        """Every row at every instant at which it is there."""
        return f"{self._shown_keys('_t')} FROM ({self._panes_at_instants()}) LATERAL VIEW {_COPIES}"

    def entries(self) -> str:
        """Every row at the first instant at which it is there."""
        return f"{self._shown_keys(FROM)} FROM panes LATERAL VIEW {_COPIES} WHERE {self._enters_condition()}"

    def exits(self) -> str:
        """Every row at the first instant at which it is no longer there."""
        return (
            f"{self._exit_views()}{self._shown_keys('_exit')} FROM leaving LATERAL VIEW {_COPIES}"
        )

    def groups(self) -> str:
        """Every group at every instant."""
        if self.plan.follows_changes:
            return self._groups_by_states()
        if self.keys:
            by = ", ".join(["_t", *self.keys])
            values = f"SELECT {by}, {self._aggregate_values('x')} FROM ({self._panes_at_instants()}) x GROUP BY {by}"
        else:
            values = (
                f"SELECT i.t AS _t, {self._aggregate_values('x')} FROM instants i "
                f"LEFT JOIN ({self._panes_at_instants()}) x ON i.t = x._t WHERE i.t >= {self.first}L GROUP BY i.t"
            )
        return f"SELECT _t AS _tau, {self._items()} FROM ({values}){self._having()}"

    def _groups_by_states(self) -> str:
        """Every group at every instant, from its states: each is that of the instants until the next."""
        states = self._group_states(self.first, only_changing=False)
        if self.plan.reads_instants:
            listed = (
                f"SELECT sort_array(collect_list(t)) AS ts FROM instants WHERE t >= {self.first}L"
            )
            seen = "explode(filter(ts, t -> t >= _t AND (_next IS NULL OR t < _next)))"
            source = f"states CROSS JOIN ({listed})"
        else:
            (slide,) = self.plan.slides
            until = f"coalesce(_next - {slide}L, {self.last}L)"
            seen, source = f"explode(sequence(_t, {until}, {slide}L))", "states"
        shown = f"SELECT _tau, {self._items()} FROM (SELECT *, {seen} AS _tau FROM {source}){self._having()}"
        return with_views({**states.views, "states": states.states_sql}, shown)

    def changes(self) -> str:
        """What entered or left of the groups, at the instants at which panes begin or end."""
        if self.plan.follows_changes:
            states = replace(
                self._group_states(self.before, only_changing=True), totals_at=self.totals_at
            )
            return with_views(states.views, self._changes_of(states.states_sql))
        return f"{self._exit_views().rstrip()}, {self._changes_of(self._values_by_join()).removeprefix('WITH ')}"

    def _changes_of(self, values: str) -> str:
        shown = f"SELECT _t, _next, {self._items()} FROM ({values}){self._having()}"
        names = [f"c{i}" for i in range(len(self.plan.block.items))]
        return changes_sql(self.plan.output, shown, names, self.first - 1)

    def _group_states(self, before: int | None, only_changing: bool) -> GroupStates:
        assert self.plan.partial_aggregates is not None
        return GroupStates(
            self.keys,
            self.plan.partial_aggregates,
            self.plan.slides,
            before,
            self.first,
            self.last,
            only_changing,
        )

    # ---- panes at instants

    def _panes_at_instants(self) -> str:
        """Panes with each instant `_t` of the step at which they are there."""
        if len(self.plan.slides) == 1:
            (slide,) = self.plan.slides
            start = f"greatest({FROM}, {self.first}L)"
            end = f"least({last_multiple_sql(f'({TO} - 1L)', slide)}, {self.last}L)"
            return (
                f"SELECT explode(sequence({start}, {end}, {slide}L)) AS _t, * "
                f"FROM panes WHERE {start} <= {end}"
            )
        return (
            f"SELECT i.t AS _t, p.* FROM instants i JOIN panes p "
            f"ON i.t >= p.{FROM} AND i.t < p.{TO} WHERE i.t >= {self.first}L"
        )

    def _exit_views(self) -> str:
        """WITH `leaving`: panes that end within the step, and the instant `_exit` that sees it."""
        soon = f"{TO} <= {self.last}L" + (
            "" if self.before is None else f" AND {TO} > {self.before}L"
        )
        if self.plan.slides:
            at = least_sql([next_multiple_sql(TO, slide) for slide in sorted(self.plan.slides)])
            return (
                f"WITH leaving AS (SELECT * FROM (SELECT *, {at} AS _exit FROM panes WHERE {soon}) "
                f"WHERE _exit <= {self.last}L) "
            )
        ends = f"SELECT DISTINCT {TO} AS x, CAST(NULL AS BIGINT) AS t FROM panes WHERE {soon}"
        ahead = "min(t) OVER (ORDER BY x DESC RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        return (
            f"WITH ends AS (SELECT x, {ahead} AS _exit "
            f"FROM ({ends} UNION ALL SELECT t, t FROM instants WHERE t >= {self.first}L)), "
            f"leaving AS (SELECT p.*, e._exit FROM (SELECT * FROM panes WHERE {soon}) p "
            f"JOIN (SELECT DISTINCT x, _exit FROM ends) e ON p.{TO} = e.x) "
        )

    # ---- values of groups where they change: `_t`, `_next`, keys k0, .. and aggregates a0, ..

    def _values_by_join(self) -> str:
        """Each group at each of its moves, from the panes that are there then."""
        entering = (
            f"SELECT {self._with_keys(f'{FROM} AS _t')} FROM panes WHERE {self._enters_condition()}"
        )
        leaving = f"SELECT {self._with_keys('_exit AS _t')} FROM leaving"
        moves = f"{entering} UNION {leaving}"
        if self.before is not None:
            # The value before the step is wanted as well: what enters or leaves is the difference
            # to it.
            moves += f" UNION SELECT {self._with_keys(f'{self.before}L AS _t')} FROM ({moves})"
        elif not self.keys:  # one group, which has a value also where no pane is visible
            moves += f" UNION SELECT {self.first}L AS _t"
        points = f"SELECT {self._with_keys('_t')}, lead(_t) OVER ({self._window()}) AS _next FROM ({moves})"
        # Null-safe equality: NULL is a group of its own, which `=` would never find.
        same = [f"s.{k} <=> x.{k}" for k in self.keys]
        same += [f"x.{FROM} <= s._t", f"s._t < x.{TO}"]
        by = ", ".join(["s._t", "s._next", *(f"s.{k}" for k in self.keys)])
        kind = "JOIN" if self.keys else "LEFT JOIN"
        return (
            f"SELECT {by}, {self._aggregate_values('x')} FROM ({points}) s {kind} panes x "
            f"ON {' AND '.join(same)} GROUP BY {by}"
        )

    def _enters_condition(self) -> str:
        return f"{FROM} >= {self.first}L AND {FROM} <= {self.last}L"

    def _window(self) -> str:
        return f"PARTITION BY {', '.join(self.keys) or '1'} ORDER BY _t"

    def _with_keys(self, first: str) -> str:
        return ", ".join([first, *self.keys])

    # ---- the columns of a group

    def _aggregate_values(self, rows: str) -> str:
        """The aggregates over panes, named a0, a1, .."""
        if self.plan.partial_aggregates is None:
            condition = f"{rows}.{COUNT} IS NOT NULL"
            return ", ".join(
                f"{aggregate_sql(_over_pane(call, i), _group_column, condition)} AS a{i}"
                for i, call in enumerate(self.plan.calls)
            )
        merges = {p.name: p.merge_sql(f"{rows}.{p.name}") for p in self.plan._pane_columns}
        return ", ".join(self._final_values(lambda name: merges[name]) or ["1 AS _one"])

    def _final_values(self, merged: Callable[[str], str]) -> list[str]:
        assert self.plan.partial_aggregates is not None
        return [
            f"{p.finish_sql(merged)} AS a{i}" for i, p in enumerate(self.plan.partial_aggregates)
        ]

    def _items(self) -> str:
        block = self.plan.block
        if block.group is None:
            return ", ".join(f"{k} AS c{i}" for i, k in enumerate(self.keys))
        return ", ".join(
            f"{expression_sql(e, _group_column)} AS c{i}" for i, e in enumerate(block.items)
        )

    def _having(self) -> str:
        group = self.plan.block.group
        condition = None if group is None else to_expr(group.having)
        return "" if condition is None else f" WHERE {expression_sql(condition, _group_column)}"

    def _shown_keys(self, tau: str) -> str:
        shown = ", ".join(f"{k} AS c{i}" for i, k in enumerate(self.keys))
        return f"SELECT {tau} AS _tau, {shown}"


_COPIES = f"explode(sequence(1L, {COUNT})) copies AS _copy"


def _group_column(column: Column) -> str:
    """Columns of a group are known by their names alone."""
    assert column.relation in (GROUP, "")
    return quote_identifier(column.name)


def _over_pane(call: AggregateCall, i: int) -> AggregateCall:
    """The call over the columns x and f of rows that are kept whole."""
    arg = None if call.arg is None else Column("", f"x{i}", call.arg.type)
    condition = None if call.filter is None else Column("", f"f{i}", BOOLEAN)
    return replace(call, arg=arg, filter=condition)
