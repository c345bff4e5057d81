"""What can be known of a statement by itself: one check for `headwater check`, `submit` and `run`.

What depends on a state (whether a name is taken, whether a path is allowed) is checked where the
statements are carried out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwater.algebra.canonical import Canonical, canonicalize
from headwater.cql import Statement, parse
from headwater.cql.statements import CreateQuery, CreateStream, CreateTable, SetOption
from headwater.cql.tokens import cut
from headwater.errors import CqlError, CqlErrors, HeadwaterError
from headwater.runtime.compile import compiled
from headwater.runtime.connectors import check_sink, check_source, check_table
from headwater.runtime.limits import Limits
from headwater.runtime.limits import checked as check_option


def check_statement(statement: Statement) -> Canonical | None:
    """The canonical form of a query that is created; raises HeadwaterError if the statement could
    not be carried out in any state."""
    match statement:
        case CreateStream():
            check_source(statement.source, statement.stream)
        case CreateTable():
            check_table(statement.source)
        case CreateQuery():
            check_sink(statement.sink)
            return _form_that_runs(statement)
        case SetOption(name, value):
            check_option(name, getattr(Limits(), name, 1) if value is None else value)
    return None


def check_text(text: str) -> tuple[Statement, ...]:
    """The statements of a text; raises CqlErrors with all that is wrong, each with its place."""
    statements = parse(text)
    problems: list[CqlError] = []
    for statement, tokens in zip(statements, cut(text), strict=True):
        try:
            check_statement(statement)
        except HeadwaterError as problem:
            problems.append(_placed(problem, text, tokens))
    if problems:
        raise CqlErrors(problems)
    return statements


def _form_that_runs(statement: CreateQuery) -> Canonical:
    try:
        canonical = canonicalize(statement.query)
        compiled(canonical)
        return canonical
    except HeadwaterError as error:
        raise HeadwaterError(f"query {statement.name}: {error}") from error


def _placed(problem: HeadwaterError, text: str, tokens: Sequence[Any]) -> CqlError:
    """The refusal at the first of its words that the statement has too, or where that begins."""
    message, _, hint = str(problem).partition("; ")
    written = {token.text.lower(): token for token in reversed(tokens[1:])}
    words = (word.lower() for word in re.findall(r"[\w-]+", message))
    at = next((written[word] for word in words if word in written), tokens[0])
    return CqlError(message, text, at.start, at.end - at.start + 1, hint)
