"""The queries of a CQL file, and selecting them by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.nodes import Query
from headwater.cli.cql_files import fail
from headwater.cql.statements import BareQuery, CreateQuery, DropQuery, Explain, Statement
from headwater.errors import suggest


@dataclass(frozen=True)
class NamedQuery:
    """A query and its name, or `#n` for the n-th query without one.

    `start` and `lifetime` are in microseconds, None if the statement has none.
    """

    name: str
    query: Query
    start: int | None = None
    lifetime: int | None = None


def queries_of(statements: Sequence[Statement]) -> list[NamedQuery]:
    """The queries in the order of the file, except those that it drops again."""
    queries: list[NamedQuery] = []
    unnamed = 0
    for statement in statements:
        match statement:
            case CreateQuery():
                start = None if statement.start is None else statement.start.micros
                queries.append(
                    NamedQuery(statement.name, statement.query, start, statement.lifetime)
                )
            case BareQuery() | Explain():
                unnamed += 1
                queries.append(NamedQuery(f"#{unnamed}", statement.query))
            case DropQuery():
                # Removed in the order of the file, as the name may be used again after the drop.
                queries = [q for q in queries if q.name.lower() != statement.name.lower()]
            case _:
                pass
    return queries


def select_queries(queries: Sequence[NamedQuery], names: Sequence[str]) -> list[NamedQuery]:
    """The queries of these names, in the order of the file; all if no name is given.

    Ends the command if a name is unknown.
    """
    lowered = {name.lower() for name in names}
    available = [query.name for query in queries]
    for name in names:
        if name.lower() not in {k.lower() for k in available}:
            fail(f"there is no query {name}; {suggest(name, available)}")
    return [query for query in queries if not lowered or query.name.lower() in lowered]
