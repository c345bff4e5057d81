"""Executes a text of statements on a catalog: all of it is checked before any of it changes anything.

A declaration that exists already, with the same definition, counts as done; so a file can be run again
after a stop, and continues. The same name with another definition is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.algebra.canonical import CanonicalQuery
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, unparse
from headwater.cql.statements import Connector, CreateQuery, CreateStream, CreateTable, Statement
from headwater.cql.tokens import keyword_of, split_statements
from headwater.errors import CqlError, QueryRefused
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.storage.paths import allowed_paths, check_connector_paths, is_path_option
from headwater.runtime.submit.actions import (
    ScriptState,
    StatementContext,
    declared_name,
    find_action,
    named_queries,
)
from headwater.runtime.submit.checks import check_script, check_statement


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


def locate_mistakes(definitions: Definitions, text: str) -> None:
    """Check a text that could not be executed; raises CqlErrors with positions if a statement is wrong in
    any state, and nothing if the reason is in this one."""
    check_script(text, _undeclared_names(text, definitions.namespace))


def _apply_or_refuse(
    catalog: Catalog,
    definitions: Definitions,
    statement: Statement,
    canonical: CanonicalQuery | None,
) -> StatementOutcome:
    try:
        context = StatementContext(catalog, definitions, canonical)
        return StatementOutcome(statement, find_action(statement).apply(context, statement))
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
    # A copy, as all who parse share the namespace.
    names = existing.copy() if declared else existing
    for name in declared:
        names.remove(name)
    return names


# ---- checking


def _check_statements(
    catalog: Catalog, statements: Sequence[Statement]
) -> list[tuple[bool, CanonicalQuery | None]]:
    """For each statement whether anything is left to do, and a query's canonical form; raises
    HeadwaterError if it cannot be done."""
    state = ScriptState(catalog, named_queries(statements))
    roots = allowed_paths(catalog)
    checked: list[tuple[bool, CanonicalQuery | None]] = []
    for statement in statements:
        check_connector_paths(_connector_of(statement), roots)
        canonical = check_statement(statement)
        checked.append((find_action(statement).prepare(statement, state), canonical))
    return checked


def _declared_title(statement: Statement) -> str:
    if not isinstance(statement, CreateStream | CreateTable | CreateQuery):
        return unparse(statement).splitlines()[0]
    kind = type(statement).__name__.removeprefix("Create").lower()
    return f"{kind} {declared_name(statement)}"


# ---- paths


def _connector_of(statement: Statement) -> Connector | None:
    """The source or sink of a statement that has one."""
    field = find_action(statement).connector
    return None if field is None else getattr(statement, field)


def _with_absolute_paths(statement: Statement, folder: Path) -> Statement:
    """The statement with whole paths, so that it means the same wherever it is read."""
    connector = _connector_of(statement)
    if connector is None:
        return statement
    changed: Any = {find_action(statement).connector: _make_absolute(connector, folder)}
    return replace(statement, **changed)  # type: ignore[type-var]  # every statement is a dataclass


def _make_absolute(connector: Connector, folder: Path) -> Connector:
    options = tuple(
        (name, str(folder / value))
        if is_path_option(name) and isinstance(value, str) and "://" not in value
        else (name, value)
        for name, value in connector.options
    )
    return replace(connector, options=options)
