"""Which rows of an operator are one query's, as data: what whoever reads results has to know."""

from __future__ import annotations

from dataclasses import dataclass

SHAPE_COLUMN, ROW_CLASS_COLUMN = "_shape", "_class"
"""The columns of a row that say for whom it is."""

ClassRanges = tuple[tuple[int, int], ...]
"""Numbers of classes: from the first to the last of each, both included."""


@dataclass(frozen=True)
class Subscriber:
    """The rows that are a query's results: classes of a shape; and where its items are."""

    shape: int
    row_classes: ClassRanges
    item_columns: tuple[int, ...]


SOLE_SUBSCRIBER = Subscriber(-1, (), ())
"""One whose rows are all there are."""


def item_column(subscriber: Subscriber, item: int) -> int:
    """The column in which an item of a query is told."""
    return item if subscriber == SOLE_SUBSCRIBER else subscriber.item_columns[item]
