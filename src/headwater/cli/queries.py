"""The queries of a file, by name, as the commands work on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.nodes import Query
from headwater.cli.cql_files import fail
from headwater.cql.statements import BareQuery, CreateQuery, DropQuery, Explain, Statement
from headwater.errors import suggest


@dataclass(frozen=True)
class NamedQuery:
    """A query and what it is called: its name, or `#n` for the n-th query that has none.

    `start` and `lifetime` are in microseconds, None where the text says nothing of them.
    """

    name: str
    query: Query
    start: int | None = None
    lifetime: int | None = None


def queries_of(statements: Sequence[Statement]) -> list[NamedQuery]:
    """The queries in the order of the file, without those that it drops again."""
    queries: list[NamedQuery] = []
    nameless = 0
    for statement in statements:
        match statement:
            case CreateQuery():
                start = None if statement.start is None else statement.start.micros
                queries.append(
                    NamedQuery(statement.name, statement.query, start, statement.lifetime)
                )
            case BareQuery() | Explain():
                nameless += 1
                queries.append(NamedQuery(f"#{nameless}", statement.query))
            case DropQuery():
                queries = [q for q in queries if q.name.lower() != statement.name.lower()]
            case _:
                pass
    return queries


def select_queries(queries: Sequence[NamedQuery], names: Sequence[str]) -> list[NamedQuery]:
    """Those of the given names, in the order of the file; all if none is given.

    Ends the command if there is no query of a name.
    """
    lowered = {name.lower() for name in names}
    available = [query.name for query in queries]
    for name in names:
        if name.lower() not in {k.lower() for k in available}:
            fail(f"no query {name}; {suggest(name, available)}")
    return [query for query in queries if not lowered or query.name.lower() in lowered]
