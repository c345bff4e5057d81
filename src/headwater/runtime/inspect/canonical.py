"""What a query means, and which other queries mean the same: `headwater explain FILE`.

Queries are equal in content if their canonical forms have one digest. Nothing here needs a state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.algebra.canonical import canonicalize
from headwater.algebra.nodes import Query
from headwater.cql import tree
from headwater.runtime.inspect.views import JsonRecord, to_plain


@dataclass(frozen=True)
class ColumnView:
    """A column of a result, and its position among the columns of the canonical form."""

    name: str
    type: str
    nullable: bool
    canonical: int


@dataclass(frozen=True)
class QueryExplanation:
    """A query, the other queries with the same content, and its trees: as written, and canonical."""

    query: str
    digest: str
    same_as: tuple[str, ...]
    columns: tuple[ColumnView, ...]
    logical: tuple[str, ...]
    canonical: tuple[str, ...]

    def as_json(self) -> JsonRecord:
        record: JsonRecord = to_plain(self)
        return record


def explain_queries(queries: Iterable[tuple[str, Query]]) -> list[QueryExplanation]:
    """Each of the named queries, compared with all others."""
    canonicals = [(name, query, canonicalize(query)) for name, query in queries]
    names: dict[str, list[str]] = {}
    for name, _, canonical in canonicals:
        names.setdefault(canonical.digest, []).append(name)
    return [
        QueryExplanation(
            query=name,
            digest=canonical.digest,
            same_as=tuple(other for other in names[canonical.digest] if other != name),
            columns=_columns(query, dict(canonical.columns)),
            logical=tuple(tree(query)),
            canonical=tuple(tree(canonical.query)),
        )
        for name, query, canonical in canonicals
    ]


def _columns(query: Query, positions: dict[str, int]) -> tuple[ColumnView, ...]:
    return tuple(
        ColumnView(column.name, str(column.type), column.nullable, positions[column.name])
        for column in query.columns
    )
