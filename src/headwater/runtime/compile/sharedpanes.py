"""Grouped queries that share their panes.

Over a lone stream a pane holds the tuples between two multiples of the granule, or at one: with it,
for every window that is made of granules, all of them come and go together. Over a join the windows
are the same for all, and panes are as for one query. Each telling reads the panes as its own; those that
differ only in the constants of their conditions are one statement, in which a table of these constants
says which telling sees which pane.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product, zip_longest
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from headwater.algebra.canonical import Block, Group
from headwater.algebra.canonical.block import GROUP, call_text
from headwater.algebra.domain import BOTTOM, Domain, value_at
from headwater.algebra.expressions import Column, Expr, conjunction
from headwater.algebra.nodes import Output, Scan, TableScan
from headwater.algebra.predicate import ANYTHING
from headwater.algebra.types import INT, Value
from headwater.algebra.windows import Range
from headwater.reuse.groups import Groups, Telling
from headwater.reuse.member import CLASS, SHAPE
from headwater.runtime.compile.delta import Delta, Views
from headwater.runtime.compile.panes import COUNT, FROM, TO, Panes, partial
from headwater.runtime.compile.shared import CONSTANTS, arrays, cell, is_found, search
from headwater.runtime.compile.windows import TIME, last_multiple, next_multiple, with_views
from headwater.runtime.sparksql import arrow_type, quoted, spark_type, sql

if TYPE_CHECKING:
    import pyarrow as pa

ALL = "all_panes"
"""The view of the panes that are shared."""

BOUNDS, NUMBER = "bounds", "_telling"
"""The views of what the tellings of a family see, by the number of the first; and their own numbers."""

MOST_BOXES = 64
"""A telling whose conditions combine more stretches is a branch of its own."""


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
        return any(not telling.keys for telling in self._kinds)

    @cached_property
    def rhythms(self) -> Mapping[frozenset[int], bool]:
        """The sets of slides by which tellings are evaluated, and whether one of them tells something
        at every instant, however empty its window is."""
        plans = [Panes(telling.block, telling.output) for telling in self._kinds]
        return {
            slides: any(plan.always_emits for plan in plans if plan.slides == slides)
            for slides in dict.fromkeys(plan.slides for plan in plans)
        }

    @property
    def _kinds(self) -> list[Telling]:
        """One telling of each family: in what is not about constants, the others are like it."""
        return [family.first for family in self.families]

    @property
    def instants_at_once(self) -> int:
        """How many instants one step may tell."""
        plans = [Panes(telling.block, telling.output) for telling in self._kinds]
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

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The tellings, grouped where they differ only in the constants of their conditions."""
        alike: dict[Hashable, list[tuple[int, Telling]]] = {}
        for at, telling in enumerate(self.members.tellings):
            # Where nothing can be seen there is no row of bounds, and a count of it is 0 all the same.
            is_alone = telling.terms or not 0 < _boxes(telling) <= MOST_BOXES
            key = at if is_alone else (telling.family, telling.slots)
            alike.setdefault(key, []).append((at, telling))
        return tuple(Family(tuple(found)) for found in alike.values())

    def text(self, family: Family, before: int | None, instants: Sequence[int]) -> str:
        """SQL of what the tellings of a family emit at their instants: `_tau`, shape, class, c0, c1, ..

        It reads the views of all panes, of the constants and of the bounds, and `instants(t, next)`.
        """
        telling, plan = family.first, family.plan
        panes = self._view(family)
        if family.is_many and not telling.keys:
            panes += f"\nUNION ALL {_always(family, before, instants)}"
        rows = with_views({"panes": panes}, plan.text(before, instants))
        place = {slot: n for n, slot in enumerate(telling.slots)}
        items = [
            f"c{place[n]} AS c{n}" if n in place else f"CAST(NULL AS {spark_type(type_)}) AS c{n}"
            for n, type_ in enumerate(self.members.columns)
        ]
        if family.is_many:
            told = [f"_tau, c{len(telling.slots)} AS {SHAPE}, 0L AS {CLASS}", *items]
            return f"SELECT {', '.join(told)} FROM ({rows})"
        at = family.number
        if not telling.terms:
            told = [f"_tau, {at} AS {SHAPE}, 0L AS {CLASS}", *items]
            return f"SELECT {', '.join(told)} FROM ({rows})"
        values = [f"c{len(telling.slots) + n}" for n in range(len(telling.terms))]
        rows = f"SELECT *, {cell(at, values, telling.table)} AS _cell{at} FROM ({rows}) CROSS JOIN {CONSTANTS}"
        found = search(f"cells{at}", f"_cell{at}", len(telling.table.cells))
        rows = f"SELECT *, {found} AS _place{at} FROM ({rows})"
        told = [f"_tau, {at} AS {SHAPE}, CAST(_place{at} - 1 AS BIGINT) AS {CLASS}", *items]
        return f"SELECT {', '.join(told)} FROM ({rows}) WHERE {is_found(at)}"

    def _view(self, family: Family) -> str:
        """SQL of the shared panes as the tellings of a family see them."""
        telling = family.first
        plan = Panes(telling.block, telling.output)
        begins, ends = self._span(telling)
        listed = [f"{begins} AS {FROM}", f"{ends} AS {TO}", COUNT]
        listed += [f"k{self.members.place(key)} AS k{n}" for n, key in enumerate(plan.keys)]
        if family.is_many:
            listed.append(f"{NUMBER} AS k{len(plan.keys)}")
        shared = {call_text(call): n for n, call in enumerate(self.members.operator.calls)}
        for n, call in enumerate(plan.calls):
            own, kept = partial(call, n), partial(call, shared[call_text(call)])
            assert own is not None and kept is not None
            pairs = zip(own.parts, kept.parts, strict=True)
            listed += [f"{theirs.name} AS {mine.name}" for mine, theirs in pairs]
        seen = self._joined(family) if family.is_many else self._filtered(telling)
        return f"SELECT * FROM (SELECT {', '.join(listed)} FROM {ALL}{seen}) WHERE {FROM} < {TO}"

    def _filtered(self, telling: Telling) -> str:
        """SQL of the condition on the panes that one telling sees."""
        seen = conjunction(
            condition
            for bound in telling.filters
            if (condition := bound.domain.as_expr(self._key(bound.term))) is not None
        )
        return "" if seen is None else f" WHERE {sql(seen, lambda c: quoted(c.name))}"

    def _joined(self, family: Family) -> str:
        """SQL of the join that gives each telling of a family the panes it sees."""
        tests = []
        for n, bound in enumerate(family.first.filters):
            key = self._key(bound.term).name
            if all(telling.filters[n].domain.is_point for _, telling in family.tellings):
                tests.append(f"{key} = low{n}")
                continue
            within = f"(low{n} IS NULL OR {key} >= low{n}) AND (high{n} IS NULL OR {key} < high{n})"
            tests.append(f"IF({key} IS NULL, null{n}, NOT null{n} AND {within})")
        return f" JOIN {BOUNDS}{family.number} ON {' AND '.join(tests)}"

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
        """The arrays of the tellings whose rows they distinguish, in one row."""
        told = enumerate(self.members.tellings)
        return arrays((at, telling.table) for at, telling in told if telling.terms)


@dataclass(frozen=True)
class Family:
    """Tellings by their numbers: one, or several that differ in the constants of their filters alone."""

    tellings: tuple[tuple[int, Telling], ...]

    @property
    def number(self) -> int:
        return self.tellings[0][0]

    @property
    def first(self) -> Telling:
        return self.tellings[0][1]

    @property
    def is_many(self) -> bool:
        return len(self.tellings) > 1

    @cached_property
    def plan(self) -> Panes:
        """How they are evaluated: where they are many, with their number as another key and item."""
        block = self.first.block
        if self.is_many:
            number = Column("", NUMBER, INT)
            if block.group is None:
                block = replace(block, items=(*block.items, number))
            else:
                shown = Column(GROUP, f"k{len(block.group.keys)}", INT)
                group = replace(block.group, keys=(*block.group.keys, number))
                block = replace(block, group=group, items=(*block.items, shown))
        return Panes(block, self.first.output)

    @cached_property
    def bounds(self) -> pa.Table:
        """What each telling sees of the terms of its filters: one row for each combination of stretches."""
        import pyarrow as pa

        numbers: list[int] = []
        boxes: list[tuple[_Stretch, ...]] = []
        for at, telling in self.tellings:
            for box in product(*(_stretches(bound.domain) for bound in telling.filters)):
                numbers.append(at)
                boxes.append(box)
        columns: dict[str, pa.Array] = {NUMBER: pa.array(numbers, pa.int32())}
        for n, bound in enumerate(self.first.filters):
            type_ = bound.domain.type
            kept = arrow_type(type_) if not type_.is_floating else pa.float64()
            columns[f"low{n}"] = pa.array([box[n].low for box in boxes], kept)
            columns[f"high{n}"] = pa.array([box[n].high for box in boxes], kept)
            columns[f"null{n}"] = pa.array([box[n].is_null for box in boxes], pa.bool_())
        return pa.table(columns)


def _boxes(telling: Telling) -> int:
    return prod(len(_stretches(bound.domain)) for bound in telling.filters)


class _Stretch(NamedTuple):
    """The first value of a stretch and the first after it, None where it has no end; or NULL alone."""

    low: Value
    high: Value
    is_null: bool = False


def _stretches(domain: Domain) -> list[_Stretch]:
    """What a domain is made of."""
    found = [_Stretch(None, None, True)] if domain.null else []
    values = [None if cut == BOTTOM else value_at(domain.type, cut).value for cut in domain.cuts]
    found += [
        _Stretch(low, high) for low, high in zip_longest(values[::2], values[1::2], fillvalue=None)
    ]
    if domain.is_point and domain.point is not None:
        return [found[0]._replace(low=domain.point.value)]
    return found


def _always(family: Family, before: int | None, instants: Sequence[int]) -> str:
    """SQL of a pane without tuples for each telling, which is there at all instants and at the one before
    them: what has no keys emits a row also where it sees no other."""
    parts = "".join(f", NULL AS {part.name}" for part in family.plan._parts)
    first = instants[0] if before is None else before
    numbers = f"SELECT DISTINCT {NUMBER} FROM {BOUNDS}{family.number}"
    return (
        f"SELECT {first}L AS {FROM}, {instants[-1] + 1}L AS {TO}, 1L AS {COUNT}, {NUMBER} AS k0{parts} "
        f"FROM ({numbers})"
    )
