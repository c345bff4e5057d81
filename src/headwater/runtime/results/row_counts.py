"""Counting the result rows of each subscriber.

Rows are counted once per row class and then summed per subscriber, so counting for ten thousand
queries reads each file once.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow.compute as pc

from headwater.errors import DamagedFile
from headwater.reuse.row_classes import (
    ROW_CLASS_COLUMN,
    SHAPE_COLUMN,
    SOLE_SUBSCRIBER,
    Subscriber,
)
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import arrow_integer
from headwater.runtime.storage.integrity import StoredFile

log = logging.getLogger("headwater")

ROW_CLASS_BITS = 40
"""Row classes are numbered below 2 to this power."""


@dataclass(frozen=True)
class RowCounts:
    """The number of rows of a segment and, if shared, of each (shape, row class), in order."""

    rows: int
    row_classes: tuple[tuple[int, int], ...] = ()
    counts: tuple[int, ...] = ()

    def count_for(self, subscriber: Subscriber) -> int:
        """How many of the rows belong to a subscriber."""
        if subscriber == SOLE_SUBSCRIBER:
            return self.rows
        classes, until = self._by_shape.get(subscriber.shape, ([], [0]))
        return sum(
            until[bisect_right(classes, high)] - until[bisect_left(classes, low)]
            for low, high in subscriber.row_classes
        )

    @cached_property
    def _by_shape(self) -> dict[int, tuple[list[int], list[int]]]:
        """The row classes of each shape in order, and the running totals of their rows."""
        by_shape: dict[int, tuple[list[int], list[int]]] = {}
        for (shape, row_class), count in zip(self.row_classes, self.counts, strict=True):
            classes, until = by_shape.setdefault(shape, ([], [0]))
            classes.append(row_class)
            until.append(until[-1] + count)
        return by_shape


def sum_counts(parts: Iterable[RowCounts]) -> RowCounts:
    """The counts of several segments of a shared unit together."""
    rows, counts = 0, Counter[tuple[int, int]]()
    for part in parts:
        rows += part.rows
        counts.update(dict(zip(part.row_classes, part.counts, strict=True)))
    classes = tuple(sorted(counts))
    return RowCounts(rows, classes, tuple(counts[row_class] for row_class in classes))


def count_rows(file: StoredFile, start: int | None, end: int | None, shared: bool) -> RowCounts:
    """Count the rows of a result file after a start and up to an end.

    A file that was removed counts as empty, and so does a damaged one, with a warning: what is
    shown of other queries is still right.
    """
    try:
        table = segment_files.read_arrow(
            file, ["_tau", *([SHAPE_COLUMN, ROW_CLASS_COLUMN] if shared else [])]
        )
    except OSError:  # compacted or expired since it was looked up
        return RowCounts(0)
    except DamagedFile as error:
        log.warning("%s; its rows are not counted", error)
        return RowCounts(0)
    tau = table["_tau"]
    mask = pc.is_valid(tau)
    if start is not None:
        mask = pc.and_(mask, pc.greater(tau, arrow_integer(start)))
    if end is not None:
        mask = pc.and_(mask, pc.less_equal(tau, arrow_integer(end)))
    table = table.filter(mask)
    if not shared:
        return RowCounts(table.num_rows)
    # Packed into one number, as grouping by two columns would load Pandas.
    shapes = pc.shift_left(table[SHAPE_COLUMN].cast("int64"), arrow_integer(ROW_CLASS_BITS))
    counted = pc.value_counts(pc.add(shapes, table[ROW_CLASS_COLUMN].cast("int64"))).to_pylist()
    sorted_counts = sorted((entry["values"], entry["counts"]) for entry in counted)
    classes = tuple(
        (value >> ROW_CLASS_BITS, value & (1 << ROW_CLASS_BITS) - 1) for value, _ in sorted_counts
    )
    return RowCounts(table.num_rows, classes, tuple(count for _, count in sorted_counts))
