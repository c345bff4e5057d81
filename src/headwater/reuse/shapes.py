"""Compensation: queries as rows of tables of constants, joined to an operator's rows at once.

Queries that bound the same terms have one shape. The constants of all of them, sorted, cut the values
of each term into elementary intervals, and these the space of all terms into cells; a row finds its
interval by binary search, whatever the number of queries. Cells that some query accepts are numbered:
the number is the *row class* of a row, and a query is a list of row classes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, product
from math import prod
from typing import Generic, TypeVar

from headwater.algebra.conditions.domain import Cut, Domain, cut_before
from headwater.algebra.types import Type, Value
from headwater.reuse.row_classes import ClassRanges

MAX_CELLS = 200_000
"""Queries of one shape that need more cells than these together are split over several tables."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Axis:
    """A term's values cut into intervals: 0 is NULL, 1 all below the first cut, and so on."""

    type: Type
    cuts: tuple[Cut, ...]

    @property
    def size(self) -> int:
        return len(self.cuts) + 2

    def interval(self, value: Value) -> int:
        """The interval that a value is in."""
        if value is None:
            return 0
        return 1 + bisect_right(self.cuts, cut_before(self.type, value))

    def intervals(self, domain: Domain) -> list[range]:
        """The intervals that make up a domain, whose cuts are all among the axis's own."""
        ranges = [range(1)] if domain.null else []
        ends = [*map(self._after, domain.cuts), self.size]
        ranges += [range(*ends[at : at + 2]) for at in range(0, len(domain.cuts), 2)]
        return ranges

    def _after(self, cut: Cut) -> int:
        """The first interval above a cut; one that is below all values is above NULL."""
        at = bisect_left(self.cuts, cut)
        return at + 2 if at < len(self.cuts) and self.cuts[at] == cut else 1


@dataclass(frozen=True)
class ShapeTable(Generic[K]):
    """The axes of a shape, the cells that some query accepts in order, and the classes of each query."""

    axes: tuple[Axis, ...]
    cells: tuple[int, ...]
    row_classes: Mapping[K, ClassRanges]

    def cell(self, intervals: Sequence[int]) -> int:
        """The number of a cell among all there could be."""
        number = 0
        for axis, interval in zip(self.axes, intervals, strict=True):
            number = number * axis.size + interval
        return number

    def row_class_of(self, values: Sequence[Value]) -> int | None:
        """The class of a row with those values of the terms; None if no query wants it."""
        cell = self.cell([a.interval(v) for a, v in zip(self.axes, values, strict=True)])
        at = bisect_left(self.cells, cell)
        return at if at < len(self.cells) and self.cells[at] == cell else None


def build_tables(
    types: Sequence[Type], domains: Mapping[K, Sequence[Domain]]
) -> list[ShapeTable[K]]:
    """The tables of a shape: for every query the domains that it wants of the terms of those types."""
    return [_build_table(types, subset) for subset in _split_queries(domains)]


def _split_queries(domains_of: Mapping[K, Sequence[Domain]]) -> Iterator[dict[K, Sequence[Domain]]]:
    """Groups of queries that are small enough for one table, by an estimate of their cells."""
    if not domains_of:
        return
    # On one axis there are at most two intervals for each cut: cells grow linearly, and no split is
    # needed.
    if all(len(domains) == 1 for domains in domains_of.values()):
        yield dict(domains_of)
        return
    pending = list(domains_of.items())
    size = len(pending)
    while pending:
        # Doubled again after each table, as the next queries may have fewer cells; counting is not
        # free, so the size is halved instead of searched for.
        size = min(2 * size, len(pending))
        while size > 1 and _count_cells(dict(pending[:size])) > MAX_CELLS:
            size = max(1, size // 2)
        yield dict(pending[:size])
        pending = pending[size:]


def _count_cells(domains_of: Mapping[K, Sequence[Domain]]) -> int:
    axes = _build_axes(domains_of)
    return sum(
        prod(sum(map(len, a.intervals(d))) for a, d in zip(axes, domains, strict=True))
        # Many queries have equal constants: each distinct box is counted once.
        for domains in set(map(tuple, domains_of.values()))
    )


def _build_axes(domains_of: Mapping[K, Sequence[Domain]]) -> list[Axis]:
    axes = []
    for domains in zip(*set(map(tuple, domains_of.values())), strict=True):
        cuts = {cut for domain in domains for cut in domain.inner_cuts}
        axes.append(Axis(domains[0].type, tuple(sorted(cuts))))
    return axes


def _build_table(types: Sequence[Type], domains_of: Mapping[K, Sequence[Domain]]) -> ShapeTable[K]:
    axes = tuple(_build_axes(domains_of)) if types else ()
    runs = {box: list(_cell_ranges(axes, box)) for box in set(map(tuple, domains_of.values()))}
    covered = merge_ranges(sorted(run for of_box in runs.values() for run in of_box))
    firsts = [first for first, _ in covered]
    offsets = [0, *accumulate(last - first + 1 for first, last in covered)]

    def classes(of_box: list[tuple[int, int]]) -> ClassRanges:
        shifted = []
        for first, last in of_box:
            at = bisect_right(firsts, first) - 1
            shift = offsets[at] - firsts[at]
            shifted.append((first + shift, last + shift))
        return merge_ranges(shifted)

    cells = tuple(cell for first, last in covered for cell in range(first, last + 1))
    of_boxes = {box: classes(of_box) for box, of_box in runs.items()}
    return ShapeTable(axes, cells, {key: of_boxes[tuple(box)] for key, box in domains_of.items()})


def _cell_ranges(axes: Sequence[Axis], box: Sequence[Domain]) -> Iterator[tuple[int, int]]:
    """The cells of a box in order: those that differ in the last term alone lie side by side."""
    if not axes:
        yield (0, 0)
        return
    sides = [axis.intervals(domain) for axis, domain in zip(axes, box, strict=True)]
    for outer in product(*(chain(*side) for side in sides[:-1])):
        first = 0
        for axis, interval in zip(axes, (*outer, 0), strict=True):
            first = first * axis.size + interval
        yield from ((first + side.start, first + side.stop - 1) for side in sides[-1])


def merge_ranges(runs: Iterable[tuple[int, int]]) -> ClassRanges:
    """Stretches sorted by their first number, as few as hold the same numbers."""
    ranges: list[tuple[int, int]] = []
    for first, last in runs:
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return tuple(ranges)
