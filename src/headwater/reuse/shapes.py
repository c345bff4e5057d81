"""Compensation: queries as rows of tables of constants, joined to an operator's rows at once.

Queries that bound the same terms have one shape. The constants of all of them, sorted, cut the values
of each term into elementary intervals, and these the space of all terms into cells; a row finds its
interval by binary search, whatever the number of queries. Cells that some query wants are numbered:
such a number is the *class* of a row, and a query is a list of classes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Generic, TypeVar

from headwater.algebra.domain import Cut, Domain, before
from headwater.algebra.types import Type, Value

MOST_CELLS = 200_000
"""Queries of one shape that want more cells together are told apart in several tables."""

K = TypeVar("K", bound=Hashable)
Ranges = tuple[tuple[int, int], ...]
"""Numbers as stretches, both ends in."""


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
        return 1 + bisect_right(self.cuts, before(self.type, value))

    def intervals(self, domain: Domain) -> list[range]:
        """The intervals that make up a domain, whose cuts are all among the axis's own."""
        found = [range(1)] if domain.null else []
        ends = [*map(self._after, domain.cuts), self.size]
        found += [range(*ends[at : at + 2]) for at in range(0, len(domain.cuts), 2)]
        return found

    def _after(self, cut: Cut) -> int:
        """The first interval above a cut; one that is below all values is above NULL."""
        at = bisect_left(self.cuts, cut)
        return at + 2 if at < len(self.cuts) and self.cuts[at] == cut else 1


@dataclass(frozen=True)
class Table(Generic[K]):
    """The axes of a shape, the wanted cells in order, and the classes of each query."""

    axes: tuple[Axis, ...]
    cells: tuple[int, ...]
    classes: Mapping[K, Ranges]

    def cell(self, intervals: Sequence[int]) -> int:
        """The number of a cell among all there could be."""
        number = 0
        for axis, interval in zip(self.axes, intervals, strict=True):
            number = number * axis.size + interval
        return number

    def class_of(self, values: Sequence[Value]) -> int | None:
        """The class of a row with those values of the terms; None if no query wants it."""
        cell = self.cell([a.interval(v) for a, v in zip(self.axes, values, strict=True)])
        at = bisect_left(self.cells, cell)
        return at if at < len(self.cells) and self.cells[at] == cell else None


def tables(types: Sequence[Type], wanted: Mapping[K, Sequence[Domain]]) -> list[Table[K]]:
    """The tables of a shape: for every query the domains that it wants of the terms of those types."""
    return [_table(types, part) for part in _parts(wanted)]


def _parts(wanted: Mapping[K, Sequence[Domain]]) -> Iterator[dict[K, Sequence[Domain]]]:
    """Queries few enough for one table, by the number of their cells as far as can be told."""
    if not wanted:
        return
    if all(len(domains) == 1 for domains in wanted.values()):
        yield dict(wanted)
        return
    pending = list(wanted.items())
    while pending:
        size = len(pending)
        while size > 1 and _cells(dict(pending[:size])) > MOST_CELLS:
            size = max(1, size // 2)
        yield dict(pending[:size])
        pending = pending[size:]


def _cells(wanted: Mapping[K, Sequence[Domain]]) -> int:
    axes = _axes(wanted)
    return sum(
        prod(sum(map(len, a.intervals(d))) for a, d in zip(axes, domains, strict=True))
        for domains in set(map(tuple, wanted.values()))
    )


def _axes(wanted: Mapping[K, Sequence[Domain]]) -> list[Axis]:
    axes = []
    for domains in zip(*set(map(tuple, wanted.values())), strict=True):
        cuts = {cut for domain in domains for cut in domain.inner_cuts}
        axes.append(Axis(domains[0].type, tuple(sorted(cuts))))
    return axes


def _table(types: Sequence[Type], wanted: Mapping[K, Sequence[Domain]]) -> Table[K]:
    axes = tuple(_axes(wanted)) if types else ()
    empty: Table[K] = Table(axes, (), {})
    found = {
        box: sorted({empty.cell(cell) for cell in _within(axes, box)})
        for box in set(map(tuple, wanted.values()))
    }
    cells = tuple(sorted({cell for of_box in found.values() for cell in of_box}))
    place = {cell: at for at, cell in enumerate(cells)}
    classes = {box: stretches(place[cell] for cell in of_box) for box, of_box in found.items()}
    return Table(axes, cells, {key: classes[tuple(box)] for key, box in wanted.items()})


def _within(axes: Sequence[Axis], box: Sequence[Domain]) -> Iterator[tuple[int, ...]]:
    sides = [
        [interval for part in axis.intervals(domain) for interval in part]
        for axis, domain in zip(axes, box, strict=True)
    ]
    return product(*sides)


def stretches(numbers: Iterable[int]) -> Ranges:
    """Sorted numbers as stretches."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
