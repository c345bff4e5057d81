"""Which rows of an operator are one query's, as data: what whoever reads results has to know."""

from __future__ import annotations

from dataclasses import dataclass

SHAPE, CLASS = "_shape", "_class"
"""The columns of a row that say for whom it is."""

Ranges = tuple[tuple[int, int], ...]
"""Numbers of classes: from the first to the last of each, both included."""


@dataclass(frozen=True)
class Member:
    """The rows that are a query's results: classes of a shape; and where its items are."""

    shape: int
    classes: Ranges
    items: tuple[int, ...]


EVERYTHING = Member(-1, (), ())
"""One whose rows are all there are."""


def place(member: Member, item: int) -> int:
    """The column in which an item of a query is told."""
    return item if member == EVERYTHING else member.items[item]
