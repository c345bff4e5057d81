"""What an operator or a query asks for, in the terms in which sharing is decided.

A definition is a canonical select-project-join block whose sources are called by their streams, each
of which occurs once. One definition contains another, two are relaxed into one that contains both,
and a definition is restricted to some of its streams: what a join of these has to give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from headwater.algebra.box import Box, Constraint
from headwater.algebra.canonical import Block, canonicalize
from headwater.algebra.expressions import Call, Column, Expr, Literal, columns_of, walk
from headwater.algebra.nodes import Join, Project, Query, Scan, Select
from headwater.algebra.predicate import cover, implies, rename
from headwater.algebra.simplify import text
from headwater.algebra.windows import Range

Joins = frozenset[frozenset[Expr]]


@dataclass(frozen=True)
class Reading:
    """How a stream is read: its range in microseconds, at multiples of which slides, which columns."""

    range: int
    slides: frozenset[int]
    columns: frozenset[str]


@dataclass(frozen=True)
class Definition:
    """Streams with how they are read, the condition, and the columns whose bounds sources apply.

    `pushed` holds the columns that a text compares with constants: the source of such a column sends
    only what is within the bounds.
    """

    readings: tuple[tuple[str, Reading], ...]
    where: Box
    pushed: frozenset[Column]

    @cached_property
    def reading(self) -> dict[str, Reading]:
        return dict(self.readings)

    @cached_property
    def streams(self) -> frozenset[str]:
        return frozenset(self.reading)

    @cached_property
    def joins(self) -> Joins:
        """The join conditions: classes of equal columns, and terms that speak of several streams."""
        equal = [frozenset(c.terms) for c in self.where.constraints if len(c.terms) > 1]
        other = [frozenset({t}) for t in self.where.terms if len(streams_of(t)) > 1]
        return frozenset(equal + other)

    @property
    def connected(self) -> bool:
        """Whether the join conditions lead from each stream to each other."""
        links = [{s for term in join for s in streams_of(term)} for join in self.joins]
        reached = {min(self.streams)}
        while more := [link for link in links if link & reached and not link <= reached]:
            reached.update(*more)
        return reached >= self.streams


def definition(query: Query, infer: bool = False) -> Definition:
    """The definition of a query over different streams.

    With `infer`, bounds go over equalities to all streams: num = 117 AND num = flight bounds flight.
    """
    block = canonicalize(query).body
    assert isinstance(block, Block)
    scans = [source for source in block.sources if isinstance(source, Scan)]
    assert len({scan.stream for scan in scans}) == len(block.sources), "different streams alone"
    names = {
        column: Column(scan.stream, column.name, column.type, column.nullable)
        for scan in scans
        for column in scan.columns
    }
    where = rename(block.where, {**names})
    needed = {names[c] for item in block.items for c in columns_of(item)} | columns_of_box(where)
    readings = tuple(sorted((scan.stream, _reading(scan, needed)) for scan in scans))
    pushed = frozenset(columns_of_box(where)) if infer else _compared(query)
    return Definition(readings, where, pushed)


def restrict(whole: Definition, streams: Iterable[str]) -> Definition:
    """The part of a definition that speaks of some of its streams."""
    kept = frozenset(streams)
    if kept == whole.streams:
        return whole
    constraints = []
    for c in whole.where.constraints:
        terms = tuple(term for term in c.terms if streams_of(term) <= kept)
        if len(terms) > 1 or (terms and not c.domain.has_all_values):
            constraints.append(Constraint(terms, c.domain))
    constraints.sort(key=lambda c: text(c.terms[0]))
    box = Box(tuple(constraints), tuple(t for t in whole.where.terms if streams_of(t) <= kept))
    return Definition(
        tuple((stream, reading) for stream, reading in whole.readings if stream in kept),
        box,
        frozenset(column for column in whole.pushed if column.relation in kept),
    )


def fed(part: Definition) -> Definition:
    """What a source is asked to send for a definition of its stream: what is in the pushed bounds."""
    constraints = [
        c
        for c in part.where.constraints
        if not isinstance(c.terms[0], Column) or c.terms[0] in part.pushed
    ]
    return replace(part, where=Box(tuple(constraints), part.where.terms))


def contains(wide: Definition, narrow: Definition) -> bool:
    """Whether the answer to one can be filtered out of the answer to the other."""
    return all(
        _wide_enough(wide.reading[stream], reading) for stream, reading in narrow.readings
    ) and (wide.where == narrow.where or implies(narrow.where, wide.where))


def relax(a: Definition, b: Definition) -> Definition:
    """The least definition that contains both: both have the same streams and joins.

    Conditions are covered with unions of their values, ranges are the larger, slides are those of
    either, and columns those of both.
    """
    where = a.where if a.where == b.where else cover(a.where, b.where, "set")
    readings = tuple((stream, _both(reading, b.reading[stream])) for stream, reading in a.readings)
    return Definition(readings, where, a.pushed | b.pushed)


def _wide_enough(wide: Reading, narrow: Reading) -> bool:
    return (
        wide.range >= narrow.range
        and wide.columns >= narrow.columns
        and all(any(slide % s == 0 for s in wide.slides) for slide in narrow.slides)
    )


def _both(a: Reading, b: Reading) -> Reading:
    slides = a.slides | b.slides
    needed = {s for s in slides if not any(s != other and s % other == 0 for other in slides)}
    return Reading(max(a.range, b.range), frozenset(needed), a.columns | b.columns)


def _reading(scan: Scan, needed: set[Column]) -> Reading:
    window = scan.window
    assert isinstance(window, Range) and window.size is not None and window.slide is not None
    columns = frozenset(c.name for c in needed if c.relation == scan.stream)
    return Reading(window.size, frozenset({window.slide}), columns)


def _compared(query: Query) -> frozenset[Column]:
    """The columns that the text of a query compares with constants, called by their streams."""
    root = query.root
    assert isinstance(root, Project) and isinstance(root.input, Select)
    join = root.input.input
    scans = join.inputs if isinstance(join, Join) else (join,)
    called = {scan.alias: scan.stream for scan in scans if isinstance(scan, Scan)}
    found = set()
    for part in walk(root.input.condition):
        if isinstance(part, Call) and any(isinstance(arg, Literal) for arg in part.args):
            for arg in part.args:
                if isinstance(arg, Column):
                    found.add(Column(called[arg.relation], arg.name, arg.type, arg.nullable))
    return frozenset(found)


def columns_of_box(box: Box) -> set[Column]:
    """Every column that a condition speaks of."""
    terms = [*(term for c in box.constraints for term in c.terms), *box.terms]
    return {column for term in terms for column in columns_of(term)}


def streams_of(term: Expr) -> frozenset[str]:
    """The streams whose columns a term reads."""
    return frozenset(column.relation for column in columns_of(term))
