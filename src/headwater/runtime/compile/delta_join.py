"""Select-project-join by deltas: each new combination of tuples is computed once.

For inputs 1..k the sum over i of N1 .. N(i-1) |x| delta_i |x| O(i+1) .. Ok, where N is all tuples, O
those before the step and delta the difference. A combination of several new tuples is in one term
alone: that of the last of its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from headwater.algebra.canonical import Block
from headwater.algebra.conditions.predicate import Box, to_expr
from headwater.algebra.expressions import Call, Column, columns_of, conjuncts
from headwater.algebra.nodes import Scan, TableScan
from headwater.algebra.windows import Range, Rows
from headwater.runtime.compile.plan import (
    PARTIAL_JOIN,
    PartialJoin,
    SlideSets,
    StepFactory,
    T,
    TermViews,
)
from headwater.runtime.compile.windows import (
    FOREVER,
    entry_instant_sql,
    exit_time_sql,
    greatest_sql,
    holds_sql,
    least_sql,
    slides_of,
)
from headwater.runtime.spark.sql import expression_sql, quote_identifier
from headwater.runtime.storage.columns import TIME

BAND = "_band"
"""A column that tuples of a source share with those of the delta that they can meet."""


def band_column(alias: str) -> str:
    """The column of the first source that is equal to the band of another."""
    return f"{BAND}_{alias}"


@dataclass(frozen=True)
class DeltaJoin:
    """A select-project-join of windows and tables; ROWS windows have been opened before."""

    block: Block
    prejoined: frozenset[str] = frozenset()
    """The sources that are read together, as the rows of another unit."""

    emits_on_arrival: ClassVar[bool] = True
    keeps_panes: ClassVar[bool] = False
    needs_same_queries: ClassVar[bool] = False
    subscribers: ClassVar[None] = None
    partial_join: ClassVar[PartialJoin | None] = None
    slide_sets: ClassVar[SlideSets] = {}
    united: ClassVar[None] = None
    delta_constants: ClassVar[None] = None

    @property
    def lanes(self) -> tuple[Self]:
        return (self,)

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.delta_step(self)

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """The streams of the query by alias: (s0, scan), .."""
        return tuple((s.alias, s) for s in self.block.sources if isinstance(s, Scan))

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        """The tables by alias, except those that were joined already."""
        table_scans = [s for s in self.block.sources if isinstance(s, TableScan)]
        return tuple((s.alias, s) for s in table_scans if s.alias not in self.prejoined)

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        """What its steps read: streams by their aliases, and the rows of another unit."""
        own = tuple(alias for alias, _ in self.scans if alias not in self.prejoined)
        return (PARTIAL_JOIN, *own) if self.prejoined else own

    @cached_property
    def slides(self) -> frozenset[int]:
        return slides_of(scan.window for _, scan in self.scans)

    @cached_property
    def equalities(self) -> tuple[tuple[Column, Column], ...]:
        """Columns of two sources that have to be equal, each pair both ways."""
        pairs = []
        for part in conjuncts(to_expr(self.block.where)):
            if isinstance(part, Call) and part.name == "=":
                a, b = part.args
                if isinstance(a, Column) and isinstance(b, Column) and a.relation != b.relation:
                    # Both ways, so that the delta's key range narrows the other side whichever side
                    # it is on.
                    pairs += [(a, b), (b, a)]
        return tuple(pairs)

    @cached_property
    def entry_sql(self) -> str:
        """SQL of the first instant at which all windows hold their tuple of a combination."""
        return greatest_sql(
            [entry_instant_sql(f"{a}.{TIME}", scan.window, self.slides) for a, scan in self.scans]
        )

    @cached_property
    def exit_sql(self) -> str:
        """SQL of the time from which one of the windows no longer holds its tuple."""
        return least_sql([exit_time_sql(alias, scan.window) for alias, scan in self.scans])

    def reach(self, alias: str) -> tuple[int | None, int]:
        """How far before (None: any time) and after a tuple of another input one of `alias` may be
        to meet it in a result."""
        own_aliases = self.prejoined if alias == PARTIAL_JOIN else {alias}
        other_windows = [scan.window for a, scan in self.scans if a not in own_aliases]
        slack = max(
            self.slides, default=0
        )  # windows move by slides, so tuples stay that much longer
        sizes = [w.size for w in other_windows if isinstance(w, Range)]
        after = FOREVER if None in sizes else max((s for s in sizes if s is not None), default=0)
        windows = [scan.window for a, scan in self.scans if a in own_aliases]
        own_sizes = [w.size if isinstance(w, Range) else None for w in windows]
        before = (
            None if None in own_sizes else max((s for s in own_sizes if s is not None), default=0)
        )
        return (None if before is None else before + slack, after + slack)

    def term_sql(self, order: Sequence[str], views: TermViews) -> str:
        """SQL of one term: `_tau` and the items of sources joined in that order."""
        return self.select_sql([f"{self.entry_sql} AS _tau", *self._items()], order, views)

    def delta_sql(self, terms: Sequence[str]) -> str:
        """SQL of all results that a delta adds, from its terms."""
        return "\nUNION ALL\n".join(terms)

    def _items(self) -> list[str]:
        return [
            f"{expression_sql(e, qualified_column)} AS c{i}" for i, e in enumerate(self.block.items)
        ]

    def select_sql(
        self,
        items: Iterable[str],
        order: Sequence[str],
        views: TermViews,
        kept: Sequence[str] = (),
    ) -> str:
        """SQL of items over the combinations that the windows hold at one instant, and that meet the
        conditions `kept`."""
        pending = [
            (columns_of(part), expression_sql(part, qualified_column))
            for part in conjuncts(to_expr(self.block.where))
        ]
        bound: set[str] = set()
        lines: list[str] = []
        first: list[str] = []
        for alias in order:
            bound |= self.prejoined if alias == PARTIAL_JOIN else {alias}
            is_first = not lines
            ready = [text for read, text in pending if {c.relation for c in read} <= bound]
            pending = [(r, t) for r, t in pending if not {c.relation for c in r} <= bound]
            # Spark joins by hash on equalities only: the band turns a bound on times into one.
            if alias in views.banded:
                ready.append(f"{order[0]}.{band_column(alias)} = {alias}.{BAND}")
            if is_first:
                first = ready  # conditions on the first source alone: there is no ON to put them in
                lines.append(f"FROM {views.names[alias]} {alias}")
            else:
                lines.append(
                    f"JOIN {views.names[alias]} {alias} ON {' AND '.join(ready) or 'TRUE'}"
                )
        conditions = [*first, *self._window_conditions(), *kept]
        sent = ", ".join(views.broadcast)
        # Spark does not know how few rows a delta has, and would shuffle both sides.
        hint = f"/*+ BROADCAST({sent}) */ " if sent else ""
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {hint}{', '.join(items)}\n" + "\n".join([*lines, where])

    def condition_sql(self, known: Box) -> str:
        """SQL of what its combinations meet of those that meet a condition already."""
        given = set(conjuncts(to_expr(known)))
        own = [part for part in conjuncts(to_expr(self.block.where)) if part not in given]
        texts = [expression_sql(part, qualified_column) for part in own]
        return f"({' AND '.join([*texts, *self._window_conditions()]) or 'TRUE'})"

    def _window_conditions(self) -> list[str]:
        if any(isinstance(scan.window, Rows) for _, scan in self.scans):
            # ROWS windows have their exits as a column: the last entry is before the first exit.
            return [f"{self.entry_sql} < {self.exit_sql}"]
        return [
            condition
            for a, scan in self.scans
            if isinstance(scan.window, Range)
            and (condition := holds_sql(f"{a}.{TIME}", self.entry_sql, scan.window)) is not None
            and not self._always_holds(scan.window)
        ]

    def _always_holds(self, window: Range) -> bool:
        """A lone stream's window holds its newest tuple, unless slides pass tuples by."""
        return len(self.scans) == 1 and window.slide is None and not self.slides


class JoinsByDelta:
    """A plan that is made of a delta join: what it reads is what that join reads."""

    @property
    def delta(self) -> DeltaJoin:
        """The combinations of tuples that its rows are made of."""
        raise NotImplementedError

    @property
    def prejoined(self) -> frozenset[str]:
        return self.delta.prejoined

    @property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        return self.delta.scans

    @property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        return self.delta.tables

    @property
    def feeds(self) -> tuple[str, ...]:
        return self.delta.feeds

    @property
    def equalities(self) -> tuple[tuple[Column, Column], ...]:
        return self.delta.equalities

    def reach(self, alias: str) -> tuple[int | None, int]:
        return self.delta.reach(alias)


def qualified_column(column: Column) -> str:
    """A column of a source as SQL."""
    return f"{column.relation}.{quote_identifier(column.name)}"
