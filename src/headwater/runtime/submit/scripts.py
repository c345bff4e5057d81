"""Executes a text of statements on a catalog: all of it is checked before any of it changes anything.

A declaration that exists already, with the same definition, counts as done; so a file can be run again
after a stop, and continues. The same name with another definition is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from headwater.algebra.canonical import CanonicalQuery
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
from headwater.cql.tokens import keyword_of, split_statements
from headwater.errors import CqlError, HeadwaterError, QueryRefused, suggest
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.storage.paths import allowed_paths, check_connector_paths, is_path_option
from headwater.runtime.submit.checks import check_statement
from headwater.runtime.submit.statements import apply_statement

QUERY_STATEMENTS = CreateQuery | DropQuery | PauseQuery | ResumeQuery


@dataclass(frozen=True)
class StatementOutcome:
    """The outcome of a statement as a sentence; `new` says whether anything changed, `refused` that it
    is a query that does not fit on the sites."""

    statement: Statement
    sentence: str
    new: bool = True
    refused: bool = False


def execute(
    catalog: Catalog, definitions: Definitions, text: str, folder: Path | None = None
) -> list[StatementOutcome]:
    """Execute the statements of a text, none if one is wrong.

    Relative paths are resolved from `folder`, by default the current one. Raises CqlErrors for a
    text that is wrong, and HeadwaterError for a statement that cannot be executed. A query that is
    refused does not keep the others from being admitted.
    """
    root = (folder or Path()).resolve()
    # The text may declare a stream that exists: without its own names it parses, and the two
    # definitions are compared afterwards.
    parsed = parse(text, _undeclared_names(text, definitions.namespace))
    statements = [_with_absolute_paths(statement, root) for statement in parsed]
    checked = _check_statements(catalog, statements)
    return [
        _apply_or_refuse(catalog, definitions, statement, canonical)
        if new
        else StatementOutcome(
            statement, f"{_declared_title(statement)} is there already", new=False
        )
        for statement, (new, canonical) in zip(statements, checked, strict=True)
    ]


def _apply_or_refuse(
    catalog: Catalog,
    definitions: Definitions,
    statement: Statement,
    canonical: CanonicalQuery | None,
) -> StatementOutcome:
    try:
        return StatementOutcome(
            statement, apply_statement(catalog, definitions, statement, canonical)
        )
    except QueryRefused as refusal:
        return StatementOutcome(statement, str(refusal), new=False, refused=True)


def _undeclared_names(text: str, existing: Namespace) -> Namespace:
    """The existing names without those that the text declares itself."""
    try:
        statements = split_statements(text)
    except CqlError:
        return existing
    declared = {
        tokens[2].text
        for tokens in statements
        if len(tokens) > 2
        and keyword_of(tokens[0]) == "CREATE"
        and keyword_of(tokens[1]) in ("STREAM", "TABLE")
        and existing.get(tokens[2].text) is not None
    }
    names = existing.copy() if declared else existing
    for name in declared:
        names.remove(name)
    return names


# ---- checking


def _check_statements(
    catalog: Catalog, statements: Sequence[Statement]
) -> list[tuple[bool, CanonicalQuery | None]]:
    """For each statement whether it changes anything, and the canonical form of a query; raises
    HeadwaterError if it cannot be executed.

    Statements are checked in order against the names that those before them leave.
    """
    # Reading all declarations takes time where there are thousands, and queries do not need them.
    sources: dict[str, str] = {}
    if not all(isinstance(statement, QUERY_STATEMENTS) for statement in statements):
        sources = catalog.declarations()
    named = {
        statement.name.lower()
        for statement in statements
        if isinstance(statement, QUERY_STATEMENTS)
    }
    queries = {row.name: row.definition for row in catalog.queries(named=named)}
    roots = allowed_paths(catalog)
    checked: list[tuple[bool, CanonicalQuery | None]] = []
    for statement in statements:
        new = True
        _check_path(statement, roots)
        canonical = check_statement(statement)
        match statement:
            case CreateStream() | CreateTable():
                new = _is_new_declaration(statement, sources)
            case CreateQuery():
                new = _is_new_declaration(statement, queries)
            case DropStream(name) | DropTable(name):
                _require("stream or table", name, sources)
                del sources[name.lower()]
            case EndStream(name) | RestartStream(name) | RewindStream(name):
                _require("stream", name, sources)
            case DropQuery(name):
                _require_query(name, queries, catalog)
                del queries[name.lower()]
            case PauseQuery(name) | ResumeQuery(name):
                _require_query(name, queries, catalog)
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
            check_connector_paths(statement.source, roots)
        case CreateQuery():
            check_connector_paths(statement.sink, roots)


def _is_new_declaration(
    statement: CreateStream | CreateTable | CreateQuery, definitions_by_name: dict[str, str]
) -> bool:
    """Whether the name is new; raises HeadwaterError if it has another definition."""
    name, definition = _declared_name(statement), unparse(statement)
    before = definitions_by_name.get(name.lower())
    definitions_by_name[name.lower()] = definition
    if before is not None and before != definition:
        kind = before.split(maxsplit=2)[1].lower()
        raise HeadwaterError(
            f"there is a {kind} {name} already, and it is not the same: "
            f"drop it first, or choose another name. It is\n\n{_indent(before)}\n\n"
            f"and the text says\n\n{_indent(definition)}"
        )
    return before is None


def _require(kind: str, name: str, existing: dict[str, str]) -> None:
    if name.lower() not in existing:
        raise HeadwaterError(f"there is no {kind} {name}; {suggest(name, existing)}")


def _require_query(name: str, existing: dict[str, str], catalog: Catalog) -> None:
    if name.lower() not in existing:
        _require("query", name, {row.name: "" for row in catalog.queries()})


def _declared_name(statement: CreateStream | CreateTable | CreateQuery) -> str:
    match statement:
        case CreateStream():
            return statement.stream.name
        case CreateTable():
            return statement.table.name
        case CreateQuery():
            return statement.name


def _declared_title(statement: Statement) -> str:
    assert isinstance(statement, CreateStream | CreateTable | CreateQuery)
    kind = type(statement).__name__.removeprefix("Create").lower()
    return f"{kind} {_declared_name(statement)}"


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


# ---- paths


def _with_absolute_paths(statement: Statement, folder: Path) -> Statement:
    """The statement with absolute paths, so that it means the same to a process in another folder."""
    match statement:
        case CreateStream(source=Connector() as source):
            return replace(statement, source=_make_absolute(source, folder))
        case CreateTable():
            return replace(statement, source=_make_absolute(statement.source, folder))
        case CreateQuery(sink=Connector() as sink):
            return replace(statement, sink=_make_absolute(sink, folder))
    return statement


def _make_absolute(connector: Connector, folder: Path) -> Connector:
    options = tuple(
        (name, str(folder / value))
        if is_path_option(name) and isinstance(value, str) and "://" not in value
        else (name, value)
        for name, value in connector.options
    )
    return replace(connector, options=options)
