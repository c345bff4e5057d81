"""Parsing of statements: from text to `Statement` records, with all mistakes collected."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.catalog import Namespace
from headwater.algebra.nodes import Query
from headwater.cql.binding.binder import UnknownName, bind
from headwater.cql.cursor import TokenCursor
from headwater.cql.statement_syntax import BARE_QUERY, find_syntax
from headwater.cql.statements import Statement
from headwater.cql.syntax import OUTPUTS, parse_syntax
from headwater.cql.templates import parse_with_template
from headwater.cql.tokens import cql_error, keyword_of, split_statements, tidy_tokens
from headwater.errors import CqlError, CqlErrors

T = TokenType

StatementCheck = Callable[[Statement, list[Token]], object]
"""A further check of a statement that was read; its tokens are there for positions of errors."""


def parse(
    text: str, names: Namespace | None = None, check: StatementCheck | None = None
) -> tuple[Statement, ...]:
    """Every statement of a text, over the given streams and tables and those the text declares.

    Raises CqlErrors with all the mistakes of the text, including those for which `check` raises
    CqlError. A statement that fails only because an earlier declaration of its stream failed is not
    counted among them.
    """
    namespace = Namespace() if names is None else names.copy()
    reader = _StatementReader(text, namespace, check)
    for tokens in _split(text):
        reader.statement(tokens)
    if reader.errors:
        raise CqlErrors(reader.errors)
    return tuple(reader.statements)


def parse_query(text: str, names: Namespace) -> Query:
    """The one query of a text, with or without a `;` behind it; raises CqlError."""
    return parse_with_template(text, names, lambda alike: _parse_single(alike, names))


def _parse_single(text: str, names: Namespace) -> Query:
    statements = split_statements(text)
    if len(statements) > 1:
        raise cql_error(text, "expected one query, here is another statement", statements[1][0])
    tokens = statements[0] if statements else []
    return _bind_query(text, tidy_tokens(text, tokens), names)


def _split(text: str) -> list[list[Token]]:
    try:
        return split_statements(text)
    except CqlError as problem:
        raise CqlErrors([problem]) from None


def _bind_query(text: str, tokens: list[Token], names: Namespace) -> Query:
    end = tokens[-1].end + 1 if tokens else len(text)
    return bind(parse_syntax(text, tokens, end), names)


class _StatementReader:
    """Reads the statements of one text, one after the other."""

    def __init__(self, text: str, names: Namespace, check: StatementCheck | None) -> None:
        self.text = text
        self.names = names
        self.check = check
        self.statements: list[Statement] = []
        self.errors: list[CqlError] = []
        self.queries: set[str] = set()
        self.failed: set[str] = set()

    def statement(self, tokens: list[Token]) -> None:
        try:
            statement = self.read(TokenCursor(self.text, tidy_tokens(self.text, tokens)))
            self.statements.append(statement)
            if self.check is not None:
                self.check(statement, tokens)
        except UnknownName as problem:
            if problem.name.lower() not in self.failed:
                self.errors.append(problem)
        except CqlError as problem:
            self.errors.append(problem)
            # The name that this CREATE would have declared; queries over it are no further
            # mistakes.
            if len(tokens) > 2 and keyword_of(tokens[1]) in ("STREAM", "TABLE"):
                self.failed.add(tokens[2].text.lower())

    def read(self, cursor: TokenCursor) -> Statement:
        first = cursor.tokens[0]
        opening = keyword_of(first)
        if first.token_type in (T.SELECT, T.WITH, T.L_PAREN) or opening in OUTPUTS:
            return BARE_QUERY.parse(self, cursor)
        syntax = find_syntax(cursor, opening, ("SELECT", "WITH", *OUTPUTS))
        statement: Statement = syntax.parse(self, cursor)
        return statement

    def query(self, tokens: list[Token]) -> Query:
        """The query of the tokens; the positions of errors are those in the whole text."""
        body = self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

        def read(text: str) -> Query:
            # The text itself, not a template of it: its tokens are at hand, with their true
            # positions.
            if text is body:
                return _bind_query(self.text, tokens, self.names)
            return _parse_single(text, self.names)

        return parse_with_template(body, self.names, read)
