"""Grouped queries that share their panes.

Over a lone stream a pane holds the tuples between two multiples of the granule, or at one: with it,
for every window that is made of granules, all of them come and go together. Over a join the windows
are the same for all, and panes are as for one query. Each telling reads the panes as its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.algebra.canonical import Block, Group
from headwater.algebra.canonical.block import call_text
from headwater.algebra.expressions import Column, Expr, conjunction
from headwater.algebra.nodes import Output, Scan, TableScan
from headwater.algebra.predicate import ANYTHING
from headwater.algebra.windows import Range
from headwater.reuse.groups import Groups, Telling
from headwater.reuse.member import CLASS, SHAPE
from headwater.runtime.compile.delta import Delta, Views
from headwater.runtime.compile.panes import COUNT, FROM, TO, Panes, partial
from headwater.runtime.compile.shared import CONSTANTS, arrays, cell, is_found, search
from headwater.runtime.compile.windows import TIME, last_multiple, next_multiple, with_views
from headwater.runtime.sparksql import quoted, spark_type, sql

if TYPE_CHECKING:
    import pyarrow as pa

ALL = "all_panes"
"""The view of the panes that are shared."""


@dataclass(frozen=True)
class SharedPanes:
    """The plan of a unit that serves several grouped queries."""

    members: Groups

    @cached_property
    def panes(self) -> Panes:
        """What is kept, as the panes of a query that would tell all of it."""
        operator = self.members.operator
        sources = operator.sources
        if self._is_alone:
            sources = tuple(
                replace(source, window=Range(self.members.reach))
                for source in sources
                if isinstance(source, Scan)
            )
        group = Group(self.members.keys, operator.calls, ANYTHING)
        return Panes(Block(sources, operator.where, (), group, (), False), Output.RSTREAM)

    @property
    def _is_alone(self) -> bool:
        """Whether there is one stream, of which windows may differ."""
        return len(self.members.operator.sources) == 1

    @property
    def block(self) -> Block:
        return self.panes.block

    @property
    def delta(self) -> Delta:
        return self.panes.delta

    @property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        return self.panes.scans

    @property
    def feeds(self) -> tuple[str, ...]:
        return self.delta.feeds

    @property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        return self.panes.tables

    @property
    def equalities(self) -> tuple[tuple[Column, Column], ...]:
        return self.panes.equalities

    def reach(self, alias: str) -> tuple[int | None, int]:
        return self.panes.reach(alias)

    @property
    def slides(self) -> frozenset[int]:
        return self.members.slides

    @property
    def are_kept(self) -> bool:
        return True

    @property
    def always_tells(self) -> bool:
        """Whether something may be told though there is no pane: a count of nothing."""
        return any(not telling.keys for telling in self.members.tellings)

    @cached_property
    def rhythms(self) -> Mapping[frozenset[int], bool]:
        """The sets of slides by which tellings are evaluated, and whether one of them tells something
        at every instant, however empty its window is."""
        plans = [Panes(telling.block, telling.output) for telling in self.members.tellings]
        return {
            slides: any(plan.always_emits for plan in plans if plan.slides == slides)
            for slides in dict.fromkeys(plan.slides for plan in plans)
        }

    @property
    def instants_at_once(self) -> int:
        """How many instants one step may tell."""
        plans = [Panes(telling.block, telling.output) for telling in self.members.tellings]
        return min(plan.instants_at_once for plan in plans)

    # ---- absorbing

    def term(self, order: Sequence[str], views: Views) -> str:
        """SQL of the rows that one term of the delta join brings."""
        if not self._is_alone:
            return self.panes.term(order, views)
        time, granule = f"{order[0]}.{TIME}", self.members.granule
        begins = next_multiple(time, granule) if granule > 1 else time
        ended = last_multiple(time, granule) if granule > 1 else time
        spans = [f"{begins} AS {FROM}", f"{ended} + {self.members.reach}L AS {TO}"]
        return self.delta.select([*spans, *self.panes.items()], order, views)

    def whole(self, terms: Sequence[str]) -> str:
        return self.panes.whole(terms)

    def merged(self, before: int) -> str:
        """SQL of the view `panes` without what nobody sees after that instant, in fewer panes."""
        return self.panes.merged(before, clipped=not self._is_alone)

    # ---- telling

    def text(self, at: int, telling: Telling, before: int | None, instants: Sequence[int]) -> str:
        """SQL of what one telling tells at its own instants: `_tau`, shape, class, c0, c1, ..

        It reads the views of all panes and of the constants, and `instants(t, next)`.
        """
        plan = Panes(telling.block, telling.output)
        rows = with_views({"panes": self._view(telling, plan)}, plan.text(before, instants))
        place = {slot: n for n, slot in enumerate(telling.slots)}
        items = [
            f"c{place[n]} AS c{n}" if n in place else f"CAST(NULL AS {spark_type(type_)}) AS c{n}"
            for n, type_ in enumerate(self.members.columns)
        ]
        if not telling.terms:
            told = [f"_tau, {at} AS {SHAPE}, 0L AS {CLASS}", *items]
            return f"SELECT {', '.join(told)} FROM ({rows})"
        values = [f"c{len(telling.slots) + n}" for n in range(len(telling.terms))]
        rows = f"SELECT *, {cell(at, values, telling.table)} AS _cell{at} FROM ({rows}) CROSS JOIN {CONSTANTS}"
        found = search(f"cells{at}", f"_cell{at}", len(telling.table.cells))
        rows = f"SELECT *, {found} AS _place{at} FROM ({rows})"
        told = [f"_tau, {at} AS {SHAPE}, CAST(_place{at} - 1 AS BIGINT) AS {CLASS}", *items]
        return f"SELECT {', '.join(told)} FROM ({rows}) WHERE {is_found(at)}"

    def _view(self, telling: Telling, plan: Panes) -> str:
        """SQL of the shared panes as a telling sees them."""
        begins, ends = self._span(telling)
        listed = [f"{begins} AS {FROM}", f"{ends} AS {TO}", COUNT]
        listed += [f"k{self.members.place(key)} AS k{n}" for n, key in enumerate(plan.keys)]
        shared = {call_text(call): n for n, call in enumerate(self.members.operator.calls)}
        for n, call in enumerate(plan.calls):
            own, kept = partial(call, n), partial(call, shared[call_text(call)])
            assert own is not None and kept is not None
            pairs = zip(own.parts, kept.parts, strict=True)
            listed += [f"{theirs.name} AS {mine.name}" for mine, theirs in pairs]
        seen = conjunction(
            condition
            for bound in telling.filters
            if (condition := bound.domain.as_expr(self._key(bound.term))) is not None
        )
        where = "" if seen is None else f" WHERE {sql(seen, lambda c: quoted(c.name))}"
        return f"SELECT * FROM (SELECT {', '.join(listed)} FROM {ALL}{where}) WHERE {FROM} < {TO}"

    def _key(self, term: Expr) -> Column:
        return Column("", f"k{self.members.place(term)}", term.type)

    def _span(self, telling: Telling) -> tuple[str, str]:
        """From when until when a telling sees a pane."""
        if not self._is_alone:
            return FROM, TO
        (scan,) = (s for s in telling.block.sources if isinstance(s, Scan))
        window = scan.window
        assert isinstance(window, Range) and window.size is not None
        ended = f"({TO} - {self.members.reach}L + {window.size}L)"
        if window.slide is None:
            return FROM, f"({ended} + 1L)"
        ends = f"({last_multiple(ended, window.slide)} + {window.slide}L)"
        return next_multiple(FROM, window.slide), ends

    @cached_property
    def constants(self) -> pa.Table:
        """The arrays of all tellings, in one row."""
        return arrays(telling.table for telling in self.members.tellings)
