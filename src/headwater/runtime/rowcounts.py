"""How many rows of a file of results are whose."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from headwater.errors import DamagedFile
from headwater.reuse.member import CLASS, EVERYTHING, SHAPE, Member
from headwater.runtime import files
from headwater.runtime.integrity import StoredFile

log = logging.getLogger("headwater")

BITS = 40
"""There are fewer classes than two to the power of so many."""


@dataclass(frozen=True)
class Counted:
    """The rows of a segment, and where it is shared those of each class, in order of class."""

    rows: int
    classes: tuple[tuple[int, int], ...] = ()
    counts: tuple[int, ...] = ()

    def of(self, member: Member) -> int:
        """How many of them are a member's."""
        if member == EVERYTHING:
            return self.rows
        classes, until = self._of_shapes.get(member.shape, ([], [0]))
        return sum(
            until[bisect_right(classes, high)] - until[bisect_left(classes, low)]
            for low, high in member.classes
        )

    @cached_property
    def _of_shapes(self) -> dict[int, tuple[list[int], list[int]]]:
        """The classes of each shape in order, and how many rows are of those before each."""
        found: dict[int, tuple[list[int], list[int]]] = {}
        for (shape, one), count in zip(self.classes, self.counts, strict=True):
            classes, until = found.setdefault(shape, ([], [0]))
            classes.append(one)
            until.append(until[-1] + count)
        return found


def together(parts: Iterable[Counted]) -> Counted:
    """The rows of several segments of shared results."""
    rows, counts = 0, Counter[tuple[int, int]]()
    for part in parts:
        rows += part.rows
        counts.update(dict(zip(part.classes, part.counts, strict=True)))
    classes = tuple(sorted(counts))
    return Counted(rows, classes, tuple(counts[one] for one in classes))


def count_rows(file: StoredFile, start: int | None, end: int | None, shared: bool) -> Counted:
    """The rows of a file of results after a start and up to an end; none if it is gone, or damaged,
    which is said: what is shown of other queries is still right."""
    try:
        table = files.read_arrow(file, ["_tau", *([SHAPE, CLASS] if shared else [])])
    except OSError:  # removed while we looked
        return Counted(0)
    except DamagedFile as error:
        log.warning("%s; its rows are not counted", error)
        return Counted(0)
    tau = table["_tau"]
    kept = pc.is_valid(tau)
    if start is not None:
        kept = pc.and_(kept, pc.greater(tau, start))
    if end is not None:
        kept = pc.and_(kept, pc.less_equal(tau, end))
    table = table.filter(kept)
    if not shared:
        return Counted(table.num_rows)
    # As one number: grouping by two columns would load Pandas.
    shapes = pc.shift_left(table[SHAPE].cast("int64"), BITS)
    counted = pc.value_counts(pc.add(shapes, table[CLASS].cast("int64"))).to_pylist()
    found = sorted((one["values"], one["counts"]) for one in counted)
    classes = tuple((value >> BITS, value & (1 << BITS) - 1) for value, _ in found)
    return Counted(table.num_rows, classes, tuple(count for _, count in found))
