"""A join that serves many queries: computed once, its rows distinguished by the queries' constants.

A row carries the numbers of a shape and of a row class, from which its queries follow (`reuse.shapes`),
so that its cost does not depend on how many queries it is for. Many constants are one row of arrays, in
which a row finds its class by binary search: other queries are other data, and the same SQL, which Spark
need not compile again. Few are part of the SQL, which saves a join with that row at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from headwater.algebra.canonical import Block
from headwater.algebra.conditions.domain import value_at
from headwater.algebra.expressions import Column
from headwater.algebra.windows import Range
from headwater.reuse.join_subscribers import AGE, JoinSubscribers, Shape
from headwater.reuse.operator import Operator
from headwater.reuse.row_classes import ROW_CLASS_COLUMN, SHAPE_COLUMN
from headwater.reuse.shapes import Axis, ShapeTable
from headwater.runtime.compile.delta_join import DeltaJoin, JoinsByDelta, qualified_column
from headwater.runtime.compile.plan import PartialJoin, SlideSets, StepFactory, T, TermViews
from headwater.runtime.compile.windows import (
    entry_instant_sql,
    greatest_sql,
    last_multiple_sql,
    slides_of,
)
from headwater.runtime.spark.sql import expression_sql, quote_identifier
from headwater.runtime.storage.columns import TIME, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

CONSTANTS = "constants"
"""The view of the arrays, in one row."""

INLINE_CONSTANTS = 24
"""A table of at most this many constants is written into the SQL, and compared with one after the other."""


@dataclass(frozen=True)
class SharedJoin(JoinsByDelta):
    """The plan of a unit that serves several queries by their constants."""

    subscribers: JoinSubscribers
    partial_join: PartialJoin | None = None

    emits_on_arrival: ClassVar[bool] = True
    keeps_panes: ClassVar[bool] = False
    needs_same_queries: ClassVar[bool] = False
    slide_sets: ClassVar[SlideSets] = {}

    @cached_property
    def delta(self) -> DeltaJoin:
        """The operator's own join, which holds those of all lanes."""
        return _delta_join(self.subscribers.operator, self.partial_join)

    @cached_property
    def lanes(self) -> tuple[JoinLane, ...]:
        shapes = [*enumerate(self.subscribers.shapes)]
        return tuple(
            JoinLane(
                self.subscribers,
                lane.operator,
                tuple((at, shape) for at, shape in shapes if shape.lane == number),
                self.partial_join,
            )
            for number, lane in enumerate(self.subscribers.lanes)
        )

    @cached_property
    def united(self) -> JoinLane | None:
        """The lanes as one join, in which a pair is kept if one of them has it; None if there is but one
        lane. Rows are attributed to queries by what the operator does not imply, so by which join they
        came makes no difference."""
        if len(self.lanes) == 1:
            return None
        conditions = [
            lane.delta.condition_sql(self.subscribers.operator.where) for lane in self.lanes
        ]
        return JoinLane(
            self.subscribers,
            self.subscribers.operator,
            tuple(enumerate(self.subscribers.shapes)),
            self.partial_join,
            f"({' OR '.join(conditions)})",
        )

    @property
    def block(self) -> Block:
        return self.delta.block

    @property
    def delta_constants(self) -> pa.Table | None:
        return self.constants

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.delta_step(self)

    @cached_property
    def constants(self) -> pa.Table | None:
        """The arrays of the shapes that have many constants, in one row."""
        tables = enumerate(shape.table for shape in self.subscribers.shapes)
        many = [(at, table) for at, table in tables if not is_inline(table)]
        return constants_table(many) if many else None


def _delta_join(operator: Operator, partial_join: PartialJoin | None) -> DeltaJoin:
    joined = frozenset() if partial_join is None else frozenset(partial_join.aliases)
    return DeltaJoin(Block(operator.sources, operator.where, (), None, (), False), joined)


@dataclass(frozen=True)
class JoinLane(JoinsByDelta):
    """One lane of a shared join: the rows that its queries want, and which of them they are for."""

    subscribers: JoinSubscribers
    operator: Operator
    shapes: tuple[tuple[int, Shape], ...]
    """The shapes of its queries, with their numbers among those of all lanes."""
    partial_join: PartialJoin | None = None
    kept: str | None = None
    """SQL of a condition that pairs have to meet besides those of the operator."""

    @cached_property
    def delta(self) -> DeltaJoin:
        return _delta_join(self.operator, self.partial_join)

    @property
    def block(self) -> Block:
        return self.delta.block

    # ---- the rows of the lane

    def term_sql(self, order: Sequence[str], views: TermViews) -> str:
        """SQL of one term: the times of tuples and the columns that queries need."""
        columns = sorted(self.subscribers.operator.columns, key=str)
        items = [f"{qualified_column(c)} AS {_flat_column(c)}" for c in columns]
        items += [f"{alias}.{TIME} AS {_time_column(alias)}" for alias, _ in self.scans]
        return self.delta.select_sql(items, order, views, [] if self.kept is None else [self.kept])

    # ---- the queries that they are for

    def delta_sql(self, terms: Sequence[str]) -> str:
        """SQL of the rows emitted, from the terms; it reads the view of constants if there are many."""
        rows = "\nUNION ALL\n".join(terms)
        if len(self.shapes) == 1 and not self.shapes[0][1].terms:
            return self._every_row_sql(rows)
        # The instant of a row depends on the slides alone: it is computed once for all shapes that
        # slide alike.
        variants = list(dict.fromkeys(shape.slides for _, shape in self.shapes))
        entries = [f"{self._entry_sql(v)} AS _entry{at}" for at, v in enumerate(variants)]
        has_view = any(not is_inline(shape.table) for _, shape in self.shapes)
        constants = f" CROSS JOIN {CONSTANTS}" if has_view else ""
        rows = f"SELECT *, {', '.join(entries)} FROM ({rows}){constants}"
        numbered = [(at, variants.index(shape.slides), shape) for at, shape in self.shapes]
        cells = [f"{self._cell_sql(at, v, shape)} AS _cell{at}" for at, v, shape in numbered]
        rows = f"SELECT *, {', '.join(cells)} FROM ({rows})"
        searches = [f"{place_sql(at, shape.table)} AS _place{at}" for at, _, shape in numbered]
        rows = f"SELECT *, {', '.join(searches)} FROM ({rows})"
        if len(numbered) == 1:  # a row is emitted once at most, so nothing has to be exploded
            ((at, _, shape),) = numbered
            selected = [
                f"_entry0 AS _tau, {at} AS {SHAPE_COLUMN}, _place{at} - 1 AS {ROW_CLASS_COLUMN}",
                *self._items(),
            ]
            return (
                f"SELECT {', '.join(selected)} FROM ({rows}) WHERE {is_served_sql(at, shape.table)}"
            )
        chosen = [
            f"IF({is_served_sql(at, shape.table)}, named_struct('tau', _entry{v}, 'shape', {at}, 'class', _place{at} - 1), NULL)"
            for at, v, shape in numbered
        ]
        selected = [
            f"_m.tau AS _tau, _m.shape AS {SHAPE_COLUMN}, _m.class AS {ROW_CLASS_COLUMN}",
            *self._items(),
        ]
        chosen_text = f"explode(array_compact(array({', '.join(chosen)})))"
        return f"SELECT {', '.join(selected)} FROM (SELECT *, {chosen_text} AS _m FROM ({rows}))"

    def _every_row_sql(self, rows: str) -> str:
        """SQL of the rows as those of the one shape, whose queries want all of them."""
        ((at, shape),) = self.shapes
        selected = [
            f"{self._entry_sql(shape.slides)} AS _tau",
            f"{at} AS {SHAPE_COLUMN}, 0 AS {ROW_CLASS_COLUMN}",
            *self._items(),
        ]
        return f"SELECT {', '.join(selected)} FROM ({rows})"

    def _items(self) -> list[str]:
        return [
            f"{expression_sql(e, _flat_column)} AS c{i}"
            for i, e in enumerate(self.subscribers.items)
        ]

    def _windows(self, slides: Sequence[int | None]) -> list[tuple[str, Range]]:
        """Windows with these slides; their size does not matter here."""
        return [
            (alias, Range(0, slide)) for (alias, _), slide in zip(self.scans, slides, strict=True)
        ]

    def _entry_sql(self, slides: Sequence[int | None]) -> str:
        windows = self._windows(slides)
        every = slides_of(window for _, window in windows)
        return greatest_sql(
            [entry_instant_sql(_time_column(a), window, every) for a, window in windows]
        )

    def _cell_sql(self, at: int, variant: int, shape: Shape) -> str:
        """SQL of the cell that a row is in, of all that the axes of a shape make."""
        windows = dict(self._windows(shape.slides))

        def naming(column: Column) -> str:
            if column.relation != AGE:
                return _flat_column(column)
            slide = windows[column.name].slide
            entry = f"_entry{variant}"
            since = entry if slide is None else last_multiple_sql(entry, slide)
            return f"({since} - {_time_column(column.name)})"

        return cell_sql(at, [expression_sql(term, naming) for term in shape.terms], shape.table)


def constants_table(tables: Iterable[tuple[int, ShapeTable[str]]]) -> pa.Table:
    """The constants of numbered tables as arrays, in one row."""
    import pyarrow as pa  # here, so that checking a query does not wait for the import

    # A column in any case: a frame without columns would lose its one row, and the CROSS JOIN all
    # rows.
    columns = {"_": pa.array([0], pa.int32())}
    for at, table in tables:
        for n, axis in enumerate(table.axes):
            columns[f"cuts{at}_{n}"] = _cuts_array(axis)
        cells = pa.array(table.cells, pa.int64())
        columns[f"cells{at}"] = pa.array([cells], pa.list_(pa.int64()))
    return pa.table(columns)


def _cuts_array(axis: Axis) -> pa.Array:
    import pyarrow as pa

    type_ = arrow_type(axis.type) if not axis.type.is_floating else pa.float64()
    values = pa.array([value_at(axis.type, cut).value for cut in axis.cuts], type_)
    return pa.array([values], pa.list_(type_))


def is_inline(table: ShapeTable[str]) -> bool:
    """Whether the constants of a table are part of the SQL, and not of the view."""
    return len(table.cells) + sum(len(axis.cuts) for axis in table.axes) <= INLINE_CONSTANTS


def cell_sql(at: int, values: Sequence[str], table: ShapeTable[str]) -> str:
    """SQL of the cell in which a row with those values is, of all that the axes of a table make."""
    number = "0L"
    for n, (value, axis) in enumerate(zip(values, table.axes, strict=True)):
        if is_inline(table):
            place, size = _count_sql(value, axis), str(axis.size)
        else:
            # `size(cuts)` and not a literal, so that other constants leave the SQL, and its compiled
            # code, as it is.
            cuts = f"cuts{at}_{n}"
            place, size = search_sql(cuts, value, len(axis.cuts)), f"(size({cuts}) + 2)"
        number = f"({number} * {size} + IF({value} IS NULL, 0, 1 + {place}))"
    return number


def _count_sql(value: str, axis: Axis) -> str:
    """SQL of how many cuts of an axis are not above a value."""
    cuts = [
        expression_sql(value_at(axis.type, cut), lambda column: column.name) for cut in axis.cuts
    ]
    return " + ".join([f"IF({cut} <= {value}, 1, 0)" for cut in cuts]) or "0"


def place_sql(at: int, table: ShapeTable[str]) -> str:
    """SQL of the place of a row's cell among those that some query has, from 1 on."""
    if not is_inline(table):
        return search_sql(f"cells{at}", f"_cell{at}", len(table.cells))
    cases = " ".join(f"WHEN {cell}L THEN {place}" for place, cell in enumerate(table.cells, 1))
    return f"CASE _cell{at} {cases} END" if cases else "CAST(NULL AS INT)"


def is_served_sql(at: int, table: ShapeTable[str]) -> str:
    """SQL: the row is in a cell that some query has."""
    if is_inline(table):
        return f"_place{at} IS NOT NULL"
    return f"get(cells{at}, _place{at} - 1) = _cell{at}"


def search_sql(array: str, value: str, length: int) -> str:
    """SQL of how many values of a sorted array of about that length are not above a value."""
    steps = ", ".join(str(1 << bit) for bit in reversed(range(length.bit_length())))
    if not steps:
        return "0"
    # Behind the end of the array `get` is NULL, and IF takes its last branch: no bound is checked.
    return f"reduce(array({steps}), 0, (p, s) -> IF(get({array}, p + s - 1) <= {value}, p + s, p))"


def _flat_column(column: Column) -> str:
    return quote_identifier(f"{column.relation}.{column.name}")


def _time_column(alias: str) -> str:
    return quote_identifier(f"{alias} {TIME}")
