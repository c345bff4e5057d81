"""Which rows of an operator belong to a query, as data for those who read results."""

from __future__ import annotations

from dataclasses import dataclass

SHAPE_COLUMN, ROW_CLASS_COLUMN = "_shape", "_class"
"""The columns of a row that say to which queries it belongs."""

ClassRanges = tuple[tuple[int, int], ...]
"""Numbers of classes: from the first to the last of each, both included."""


@dataclass(frozen=True)
class Subscriber:
    """The rows that are a query's results: classes of a shape; and where its items are."""

    shape: int
    row_classes: ClassRanges
    item_columns: tuple[int, ...]


SOLE_SUBSCRIBER = Subscriber(-1, (), ())
"""The subscriber of a unit that serves one query: all rows are its own."""


def item_column(subscriber: Subscriber, item: int) -> int:
    """The column in which an item of a query is emitted."""
    return item if subscriber == SOLE_SUBSCRIBER else subscriber.item_columns[item]
