"""Canonical queries: one form, and one digest, for all the ways to write a query.

`canonicalize` merges nested queries into blocks (draft), puts conditions into normal form and
everything else in order (finish), and can turn the result back into a tree of relations (relation).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from headwater.algebra.canonical.block import (
    Block,
    Body,
    Group,
    Outer,
    Semi,
    Source,
    Union,
    body_text,
)
from headwater.algebra.canonical.draft import Drafting
from headwater.algebra.canonical.finish import finish_body
from headwater.algebra.canonical.relation import Rebuilding
from headwater.algebra.nodes import Output, Query, Scan, TableScan

__all__ = [
    "Block",
    "Body",
    "Canonical",
    "Group",
    "Outer",
    "Semi",
    "Source",
    "Union",
    "canonicalize",
]

MOST_ROUNDS = 5


@dataclass(frozen=True)
class Canonical:
    """A query's content, and apart from it what the user calls its columns and in which order.

    `columns` pairs each output name with its place among the items of the body.
    """

    output: Output
    body: Body
    columns: tuple[tuple[str, int], ...]

    @cached_property
    def text(self) -> str:
        """The content as one line of text."""
        return f"{self.output.value.lower()} {body_text(self.body)}"

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits, equal for queries of equal content."""
        return blake2b(self.text.encode(), digest_size=16).hexdigest()

    @cached_property
    def query(self) -> Query:
        """The canonical form as a tree of relations; its columns are c0, c1, .."""
        return Query(self.output, Rebuilding().relation(self.body))


def canonicalize(query: Query) -> Canonical:
    """The canonical form of a query.

    Merging a nested query can show that more of it merges, so that is done until nothing changes.
    """
    found = _once(query)
    for _ in range(MOST_ROUNDS):
        if _is_flat(found.body):
            break
        again = _once(found.query)
        if again.text == found.text:
            break
        places = [at for _, at in again.columns]
        found = replace(again, columns=tuple((name, places[at]) for name, at in found.columns))
    return found


def _once(query: Query) -> Canonical:
    draft = Drafting(query.output is not Output.RSTREAM).draft(query.root)
    body, positions = finish_body(draft)
    names = tuple(c.name for c in query.root.columns)
    return Canonical(query.output, body, tuple(zip(names, positions, strict=True)))


def _is_flat(body: Body) -> bool:
    """All sources are streams and tables, so there was nothing nested to merge."""
    return (
        isinstance(body, Block)
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
        and not body.semis
    )
