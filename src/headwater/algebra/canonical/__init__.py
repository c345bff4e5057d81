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
from headwater.algebra.canonical.draft import Drafter
from headwater.algebra.canonical.finish import finish_body
from headwater.algebra.canonical.relation import RelationBuilder
from headwater.algebra.nodes import Output, Query, Scan, TableScan

__all__ = [
    "Block",
    "Body",
    "CanonicalQuery",
    "Group",
    "Outer",
    "Semi",
    "Source",
    "Union",
    "canonicalize",
]

# A limit of work. If it were reached, equal queries might get different digests, which costs
# sharing but no correctness: every round keeps the meaning of the query.
MAX_ROUNDS = 5


@dataclass(frozen=True)
class CanonicalQuery:
    """The content of a query, kept apart from the names and the order of its output columns.

    `columns` pairs each output name with its position among the items of the body.
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
        return Query(self.output, RelationBuilder().build(self.body))


def canonicalize(query: Query) -> CanonicalQuery:
    """The canonical form of a query.

    Merging a nested query can make further merges possible, so this repeats until nothing changes.
    """
    canonical = _canonicalize_once(query)
    for _ in range(MAX_ROUNDS):
        if _is_flat(canonical.body):
            break
        again = _canonicalize_once(canonical.query)
        if again.text == canonical.text:
            break
        # The second round read the canonical query, whose columns are c0, c1, ..: its positions are
        # composed with those that lead there from the names of the user.
        positions = [at for _, at in again.columns]
        canonical = replace(
            again, columns=tuple((name, positions[at]) for name, at in canonical.columns)
        )
    return canonical


def _canonicalize_once(query: Query) -> CanonicalQuery:
    draft = Drafter(query.output is not Output.RSTREAM).draft(query.root)
    body, positions = finish_body(draft)
    names = tuple(c.name for c in query.root.columns)
    return CanonicalQuery(query.output, body, tuple(zip(names, positions, strict=True)))


def _is_flat(body: Body) -> bool:
    """All sources are streams and tables, so there was nothing nested to merge."""
    return (
        isinstance(body, Block)
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
        and not body.semis
    )
