"""The queries of a file, by name, as the commands work on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.algebra.nodes import Query
from headwater.cli.files import fail
from headwater.cql.statements import BareQuery, CreateQuery, DropQuery, Explain, Statement
from headwater.errors import nearest


@dataclass(frozen=True)
class Named:
    """A query and what it is called: its name, or `#n` for the n-th query that has none.

    `start` and `lifetime` are in microseconds, None where the text says nothing of them.
    """

    name: str
    query: Query
    start: int | None = None
    lifetime: int | None = None


def queries_of(statements: Sequence[Statement]) -> list[Named]:
    """The queries in the order of the file, without those that it drops again."""
    found: list[Named] = []
    nameless = 0
    for statement in statements:
        match statement:
            case CreateQuery():
                start = None if statement.start is None else statement.start.micros
                found.append(Named(statement.name, statement.query, start, statement.lifetime))
            case BareQuery() | Explain():
                nameless += 1
                found.append(Named(f"#{nameless}", statement.query))
            case DropQuery():
                found = [q for q in found if q.name.lower() != statement.name.lower()]
            case _:
                pass
    return found


def select(queries: Sequence[Named], names: Sequence[str]) -> list[Named]:
    """Those of the given names, in the order of the file; all if none is given.

    Ends the command if there is no query of a name.
    """
    wanted = {name.lower() for name in names}
    known = [query.name for query in queries]
    for name in names:
        if name.lower() not in {k.lower() for k in known}:
            fail(f"no query {name}; {nearest(name, known)}")
    return [query for query in queries if not wanted or query.name.lower() in wanted]
