"""A text of statements carried out on a catalog: all of it is checked before any of it is done.

A statement that declares what is declared already, in the same words, is done; so a file can be run
again after a stop, and goes on. The same name for something else is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from headwater.algebra.canonical import Canonical
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, unparse
from headwater.cql.statements import (
    BareQuery,
    Connector,
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropStream,
    DropTable,
    EndStream,
    Explain,
    PauseQuery,
    RestartStream,
    ResumeQuery,
    RewindStream,
    SetOption,
    Show,
    Statement,
)
from headwater.cql.tokens import cut, word
from headwater.errors import CqlError, HeadwaterError, Refused, nearest
from headwater.runtime.catalog import Catalog
from headwater.runtime.checks import check_statement
from headwater.runtime.definitions import Definitions
from headwater.runtime.paths import allowed_paths, check_connector, is_path
from headwater.runtime.submit import carry_out

OF_QUERY = CreateQuery | DropQuery | PauseQuery | ResumeQuery


@dataclass(frozen=True)
class Outcome:
    """What became of a statement, in a sentence; `new` says whether anything changed, `refused` that
    it is a query for which sites have no room."""

    statement: Statement
    sentence: str
    new: bool = True
    refused: bool = False


def execute(
    catalog: Catalog, definitions: Definitions, text: str, folder: Path | None = None
) -> list[Outcome]:
    """Carry out the statements of a text, none if one is wrong.

    Relative paths in it are paths from `folder`, or from the current one. Raises CqlErrors for a
    text that is wrong, and HeadwaterError for a statement that cannot be carried out. A query that
    is refused keeps no other from being admitted.
    """
    place = (folder or Path()).resolve()
    parsed = parse(text, _names_from_outside(text, definitions.names))
    statements = [_located(statement, place) for statement in parsed]
    checked = _checked(catalog, statements)
    return [
        _carried_out(catalog, definitions, statement, canonical)
        if new
        else Outcome(statement, f"{_title(statement)} is there already", new=False)
        for statement, (new, canonical) in zip(statements, checked, strict=True)
    ]


def _carried_out(
    catalog: Catalog, definitions: Definitions, statement: Statement, canonical: Canonical | None
) -> Outcome:
    try:
        return Outcome(statement, carry_out(catalog, definitions, statement, canonical))
    except Refused as refusal:
        return Outcome(statement, str(refusal), new=False, refused=True)


def _names_from_outside(text: str, known: Namespace) -> Namespace:
    """The known names without those that the text declares itself."""
    try:
        statements = cut(text)
    except CqlError:
        return known
    declared = {
        tokens[2].text
        for tokens in statements
        if len(tokens) > 2
        and word(tokens[0]) == "CREATE"
        and word(tokens[1]) in ("STREAM", "TABLE")
        and known.get(tokens[2].text) is not None
    }
    names = known.copy() if declared else known
    for name in declared:
        names.remove(name)
    return names


# ---- checking


def _checked(
    catalog: Catalog, statements: Sequence[Statement]
) -> list[tuple[bool, Canonical | None]]:
    """For each statement whether anything is left to do, and a query's canonical form; raises
    HeadwaterError if it cannot be done."""
    sources: dict[str, str] = {}
    if not all(isinstance(statement, OF_QUERY) for statement in statements):
        sources = catalog.declarations()
    named = {statement.name.lower() for statement in statements if isinstance(statement, OF_QUERY)}
    queries = {row.name: row.definition for row in catalog.queries(named=named)}
    roots = allowed_paths(catalog)
    checked: list[tuple[bool, Canonical | None]] = []
    for statement in statements:
        new = True
        _check_path(statement, roots)
        canonical = check_statement(statement)
        match statement:
            case CreateStream() | CreateTable():
                new = _declares(statement, sources)
            case CreateQuery():
                new = _declares(statement, queries)
            case DropStream(name) | DropTable(name):
                _need("stream or table", name, sources)
                del sources[name.lower()]
            case EndStream(name) | RestartStream(name) | RewindStream(name):
                _need("stream", name, sources)
            case DropQuery(name):
                _need_query(name, queries, catalog)
                del queries[name.lower()]
            case PauseQuery(name) | ResumeQuery(name):
                _need_query(name, queries, catalog)
            case BareQuery():
                raise HeadwaterError("name the query to run it: CREATE QUERY name AS SELECT ..")
            case Explain():
                raise HeadwaterError("EXPLAIN changes nothing: use headwater explain FILE.cql")
            case Show():
                raise HeadwaterError(
                    f"SHOW changes nothing: use headwater show {statement.what.lower()}"
                )
            case SetOption():
                pass
            case _:
                assert_never(statement)
        checked.append((new, canonical))
    return checked


def _check_path(statement: Statement, roots: Sequence[Path]) -> None:
    match statement:
        case CreateStream() | CreateTable():
            check_connector(statement.source, roots)
        case CreateQuery():
            check_connector(statement.sink, roots)


def _declares(statement: CreateStream | CreateTable | CreateQuery, known: dict[str, str]) -> bool:
    """Whether the name is new; raises HeadwaterError if it stands for something else."""
    name, definition = _name(statement), unparse(statement)
    before = known.get(name.lower())
    known[name.lower()] = definition
    if before is not None and before != definition:
        kind = before.split(maxsplit=2)[1].lower()
        raise HeadwaterError(
            f"there is a {kind} {name} already, and it is not the same: "
            f"drop it first, or take another name. It is\n\n{_indented(before)}\n\n"
            f"and the text says\n\n{_indented(definition)}"
        )
    return before is None


def _need(kind: str, name: str, known: dict[str, str]) -> None:
    if name.lower() not in known:
        raise HeadwaterError(f"there is no {kind} {name}; {nearest(name, known)}")


def _need_query(name: str, known: dict[str, str], catalog: Catalog) -> None:
    if name.lower() not in known:
        _need("query", name, {row.name: "" for row in catalog.queries()})


def _name(statement: CreateStream | CreateTable | CreateQuery) -> str:
    match statement:
        case CreateStream():
            return statement.stream.name
        case CreateTable():
            return statement.table.name
        case CreateQuery():
            return statement.name


def _title(statement: Statement) -> str:
    assert isinstance(statement, CreateStream | CreateTable | CreateQuery)
    kind = type(statement).__name__.removeprefix("Create").lower()
    return f"{kind} {_name(statement)}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


# ---- paths


def _located(statement: Statement, folder: Path) -> Statement:
    """The statement with whole paths, so that it means the same wherever it is read."""
    match statement:
        case CreateStream(source=Connector() as source):
            return replace(statement, source=_whole(source, folder))
        case CreateTable():
            return replace(statement, source=_whole(statement.source, folder))
        case CreateQuery(sink=Connector() as sink):
            return replace(statement, sink=_whole(sink, folder))
    return statement


def _whole(connector: Connector, folder: Path) -> Connector:
    options = tuple(
        (name, str(folder / value))
        if is_path(name) and isinstance(value, str) and "://" not in value
        else (name, value)
        for name, value in connector.options
    )
    return replace(connector, options=options)
