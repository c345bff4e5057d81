"""Statements: from the words of a text to what it says, every mistake of the text collected."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.catalog import Namespace, Stream, Table
from headwater.algebra.nodes import Query
from headwater.algebra.times import parse_timestamp
from headwater.algebra.types import TIMESTAMP, Field, Schema, Type, Value
from headwater.algebra.windows import UNITS
from headwater.cql import constants
from headwater.cql.binder import UnknownName, bind
from headwater.cql.connector_kinds import sink_kinds, source_kinds
from headwater.cql.cursor import TokenCursor
from headwater.cql.outputs import RESERVED_NAME
from headwater.cql.statements import (
    EARLIEST,
    LATEST,
    NO_SINK,
    SHOW_KINDS,
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
    Start,
    Statement,
    default_ahead,
)
from headwater.cql.syntax import OUTPUTS, parse_syntax
from headwater.cql.templates import parse_with_template
from headwater.cql.tokens import cql_error, keyword_of, split_statements, tidy_tokens
from headwater.errors import AlgebraError, CqlError, CqlErrors, suggest

T = TokenType


def parse(text: str, names: Namespace | None = None) -> tuple[Statement, ...]:
    """Every statement of a text, over the given streams and tables and those the text declares.

    Raises CqlErrors with all the mistakes of the text. A statement that only fails because an
    earlier one that declares its stream did is not counted among them.
    """
    namespace = Namespace() if names is None else names.copy()
    reader = _StatementReader(text, namespace)
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

    def __init__(self, text: str, names: Namespace) -> None:
        self.text = text
        self.names = names
        self.statements: list[Statement] = []
        self.errors: list[CqlError] = []
        self.queries: set[str] = set()
        self.failed: set[str] = set()

    def statement(self, tokens: list[Token]) -> None:
        try:
            self.statements.append(
                self.read(TokenCursor(self.text, tidy_tokens(self.text, tokens)))
            )
        except UnknownName as problem:
            if problem.name.lower() not in self.failed:
                self.errors.append(problem)
        except CqlError as problem:
            self.errors.append(problem)
            if len(tokens) > 2 and keyword_of(tokens[1]) in ("STREAM", "TABLE"):
                self.failed.add(tokens[2].text.lower())

    def read(self, cursor: TokenCursor) -> Statement:
        first = cursor.tokens[0]
        opening = keyword_of(first)
        if first.token_type in (T.SELECT, T.WITH, T.L_PAREN) or opening in OUTPUTS:
            return BareQuery(self.query(cursor.tokens))
        rule = _STATEMENTS.get(opening)
        if rule is None:
            hint = suggest(opening, [*_STATEMENTS, "SELECT", "WITH", *OUTPUTS]) if opening else ""
            raise cursor.expected_error("a statement", hint)
        cursor.index = 1
        return rule(self, cursor)

    # ---- CREATE

    def create(self, cursor: TokenCursor) -> Statement:
        what = cursor.expect_choice("STREAM, TABLE or QUERY", "STREAM", "TABLE", "QUERY")
        if what == "QUERY":
            return self.create_query(cursor)
        name, token = cursor.name(f"a name for the {what.lower()}")
        if "$" in name:
            raise cursor.error("a name has no $ in it", at=token)
        if self.names.get(name) is not None:
            raise cursor.error(f"{name} exists already", at=token)
        schema = _parse_columns(cursor)
        statement = (_parse_stream if what == "STREAM" else _parse_table)(cursor, name, schema)
        self.names.add(statement.stream if isinstance(statement, CreateStream) else statement.table)
        return statement

    def query(self, tokens: list[Token]) -> Query:
        """The query that the tokens say, errors told by their place in the whole text."""
        body = self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

        def read(text: str) -> Query:
            if text is body:
                return _bind_query(self.text, tokens, self.names)
            return _parse_single(text, self.names)

        return parse_with_template(body, self.names, read)

    def create_query(self, cursor: TokenCursor) -> CreateQuery:
        name, token = cursor.name("a name for the query")
        if name.lower() in self.queries:
            raise cursor.error(f"the query {name} is created twice in this text", at=token)
        clauses: dict[str, object] = {}
        while not cursor.accept("AS"):
            clause = cursor.expect_choice(
                "STARTING, LIFETIME, KEEP, TO or AS", "STARTING", "LIFETIME", "KEEP", "TO", "AS"
            )
            _check_once(cursor, clauses, clause)
            if clause == "STARTING":
                clauses[clause] = _parse_start(cursor)
            elif clause in ("LIFETIME", "KEEP"):
                clauses[clause] = cursor.duration(clause)
            else:
                clauses[clause] = (
                    NO_SINK if cursor.accept("NONE") else _parse_connector(cursor, sink_kinds())
                )
        query = self.query(cursor.tokens[cursor.index :])
        self.queries.add(name.lower())
        start, lifetime, sink = clauses.get("STARTING"), clauses.get("LIFETIME"), clauses.get("TO")
        assert start is None or isinstance(start, Start)
        assert lifetime is None or isinstance(lifetime, int)
        keep = clauses.get("KEEP")
        assert keep is None or isinstance(keep, int)
        assert sink is None or isinstance(sink, Connector)
        return CreateQuery(name, query, start, lifetime, sink, keep)

    # ---- the others

    def explain(self, cursor: TokenCursor) -> Statement:
        analyze = cursor.accept("ANALYZE")
        return Explain(self.query(cursor.tokens[cursor.index :]), analyze)

    def show(self, cursor: TokenCursor) -> Statement:
        what = cursor.expect_choice(
            ", ".join(SHOW_KINDS[:-1]) + f" or {SHOW_KINDS[-1]}", *SHOW_KINDS
        )
        cursor.expect_end(f"SHOW {what}")
        return Show(what)

    def drop(self, cursor: TokenCursor) -> Statement:
        kinds: dict[str, Callable[[str], Statement]] = {
            "QUERY": DropQuery,
            "STREAM": DropStream,
            "TABLE": DropTable,
        }
        what = cursor.expect_choice("QUERY, STREAM or TABLE", *kinds)
        name = _parse_last_name(cursor, what.lower())
        if what == "QUERY":
            self.queries.discard(name.lower())
        elif self.names.get(name) is not None:
            self.names.remove(name)
        return kinds[what](name)

    def pause(self, cursor: TokenCursor) -> Statement:
        cursor.expect("QUERY")
        return PauseQuery(_parse_last_name(cursor, "query"))

    def resume(self, cursor: TokenCursor) -> Statement:
        cursor.expect("QUERY")
        return ResumeQuery(_parse_last_name(cursor, "query"))

    def end_stream(self, cursor: TokenCursor) -> Statement:
        cursor.expect("STREAM")
        return EndStream(_parse_last_name(cursor, "stream"))

    def rewind_stream(self, cursor: TokenCursor) -> Statement:
        cursor.expect("STREAM")
        name, _ = cursor.name("the name of a stream")
        cursor.expect("TO")
        cursor.expect("TIMESTAMP")
        micros = _parse_timestamp(cursor)
        restart = cursor.accept("RESTART")
        if restart:
            cursor.expect("QUERIES")
        cursor.expect_end("REWIND STREAM")
        return RewindStream(name, micros, restart)

    def restart_stream(self, cursor: TokenCursor) -> Statement:
        cursor.expect("STREAM")
        return RestartStream(_parse_last_name(cursor, "stream"))

    def set_option(self, cursor: TokenCursor) -> Statement:
        name, _ = cursor.name("the name of an option")
        while cursor.accept_symbol(T.DOT):
            name += "." + cursor.name("the name of an option")[0]
        cursor.expect_symbol(T.EQ, "=")
        value = _parse_value(cursor, f"a value for {name}")
        cursor.expect_end("SET")
        return SetOption(name.lower(), value)


_STATEMENTS: dict[str, Callable[[_StatementReader, TokenCursor], Statement]] = {
    "CREATE": _StatementReader.create,
    "EXPLAIN": _StatementReader.explain,
    "SHOW": _StatementReader.show,
    "DROP": _StatementReader.drop,
    "PAUSE": _StatementReader.pause,
    "RESUME": _StatementReader.resume,
    "END": _StatementReader.end_stream,
    "REWIND": _StatementReader.rewind_stream,
    "RESTART": _StatementReader.restart_stream,
    "SET": _StatementReader.set_option,
}


def _parse_last_name(cursor: TokenCursor, what: str) -> str:
    name, _ = cursor.name(f"the name of a {what}")
    cursor.expect_end("it")
    return name


def _check_once(cursor: TokenCursor, clauses: dict[str, object], clause: str) -> None:
    """Refuse a clause that was given before; the cursor stands behind its first word."""
    if clause in clauses:
        raise cursor.error(f"{clause} is said twice", at=cursor.tokens[cursor.index - 1])


# ---- streams and tables


def _parse_columns(cursor: TokenCursor) -> Schema:
    cursor.expect_symbol(T.L_PAREN, "( and the columns")
    start = cursor.tokens[cursor.index - 1]
    fields: dict[str, Field] = {}
    while True:
        name, token = cursor.name("the name of a column")
        if name.lower() in fields:
            raise cursor.error(f"column {name} is declared twice", at=token)
        if name.lower() == RESERVED_NAME:
            raise cursor.error(f"{RESERVED_NAME} is the instant of every result row",
                              "choose another name", token)  # fmt: skip
        type_ = _parse_column_type(cursor)
        required = cursor.accept("NOT")
        if required:
            cursor.expect("NULL")
        fields[name.lower()] = Field(name, type_, not required)
        if cursor.accept_symbol(T.R_PAREN):
            break
        if not cursor.accept_symbol(T.COMMA):
            raise cursor.expected_error(", or ) or NOT NULL")
    if not fields:
        raise cursor.error("a stream or table needs at least one column", at=start)
    return Schema(tuple(fields.values()))


def _parse_column_type(cursor: TokenCursor) -> Type:
    token = cursor.token
    if token is None or not keyword_of(token):
        raise cursor.expected_error("a type", suggest("", [*constants.TYPES, "DECIMAL"]))
    cursor.index += 1
    numbers: list[int] = []
    if cursor.accept_symbol(T.L_PAREN):
        while True:
            number = cursor.token
            if number is None or not number.text.isdecimal() or len(number.text) > 3:
                raise cursor.expected_error("a number of digits")
            numbers.append(int(number.text))
            cursor.index += 1
            if not cursor.accept_symbol(T.COMMA):
                break
        cursor.expect_symbol(T.R_PAREN, ")")
    try:
        return constants.read_type(token.text, numbers)
    except AlgebraError as problem:
        message, _, hint = str(problem).partition("; ")
        raise cursor.error(message, hint, token) from None


_CLAUSES = ("TIMESTAMP", "LATENESS", "KEEP", "AHEAD", "BEHIND", "FROM")


def _parse_stream(cursor: TokenCursor, name: str, schema: Schema) -> CreateStream:
    clauses: dict[str, object] = {}
    source: Connector | None = None
    time = ""
    lateness, keep = 0, UNITS["HOUR"]
    bounds: dict[str, int | None] = {}
    while cursor.token is not None:
        clause = cursor.expect_choice(
            "TIMESTAMP BY, LATENESS, KEEP, AHEAD, BEHIND or FROM", *_CLAUSES
        )
        _check_once(cursor, clauses, clause)
        clauses[clause] = True
        if clause == "TIMESTAMP":
            cursor.expect("BY")
            time = _event_time(cursor, schema)
        elif clause == "LATENESS":
            lateness = cursor.duration("LATENESS")
        elif clause == "KEEP":
            keep = cursor.duration("KEEP")
        elif clause in ("AHEAD", "BEHIND"):
            bounds[clause] = None if cursor.accept("UNBOUNDED") else cursor.duration(clause)
        elif not cursor.accept("CLIENT"):
            source = _parse_connector(cursor, source_kinds(), "CLIENT")
    if not time:
        hint = _timestamp_columns_hint(schema)
        raise cursor.error(f"stream {name} needs TIMESTAMP BY and its event-time column", hint)
    if "FROM" not in clauses:
        raise cursor.expected_error(
            "FROM and where the data comes from", _kinds_hint(source_kinds(), "CLIENT")
        )
    fields = [Field(f.name, f.type, f.nullable and f.name != time) for f in schema]
    ahead = bounds.get("AHEAD", default_ahead(source))
    behind = bounds.get("BEHIND")
    stream = Stream(name, Schema(tuple(fields)), time, lateness, keep, ahead, behind)
    return CreateStream(stream, source)


def _event_time(cursor: TokenCursor, schema: Schema) -> str:
    name, token = cursor.name("the event-time column")
    field = schema.get(name)
    if field is None:
        raise cursor.error(f"no column {name}", suggest(name, schema.names), token)
    if field.type != TIMESTAMP:
        hint = _timestamp_columns_hint(schema)
        raise cursor.error(f"{field.name} is {field.type}, not TIMESTAMP", hint, token)
    return field.name


def _timestamp_columns_hint(schema: Schema) -> str:
    names = [field.name for field in schema if field.type == TIMESTAMP]
    if not names:
        return "no column is of type TIMESTAMP"
    return f"columns of type TIMESTAMP: {', '.join(names)}"


def _parse_table(cursor: TokenCursor, name: str, schema: Schema) -> CreateTable:
    if any(cursor.at_word(clause) for clause in _CLAUSES if clause != "FROM"):
        raise cursor.error("a table has no event time", "write CREATE STREAM")
    cursor.expect("FROM")
    source = _parse_connector(cursor, source_kinds())
    cursor.expect_end("the table's source")
    return CreateTable(Table(name, schema), source)


# ---- connectors and constants


def _kinds_hint(kinds: tuple[str, ...], *words: str) -> str:
    return "there is: " + ", ".join([*(f"{kind}(..)" for kind in kinds), *words])


def _parse_connector(cursor: TokenCursor, kinds: tuple[str, ...], *words: str) -> Connector:
    token = cursor.token
    kind = "" if token is None else keyword_of(token).lower()
    if token is None or kind not in kinds:
        hint = suggest(kind, [*kinds, *words]) if kind else _kinds_hint(kinds, *words)
        raise cursor.expected_error("where the data is", hint)
    cursor.index += 1
    cursor.expect_symbol(T.L_PAREN, f"( and the options of {kind}")
    options: dict[str, Value] = {}
    while not cursor.accept_symbol(T.R_PAREN):
        if options:
            cursor.expect_symbol(T.COMMA, ", or )")
        name, at = cursor.name("the name of an option")
        if name.lower() in options:
            raise cursor.error(f"option {name.lower()} is given twice", at=at)
        cursor.expect_symbol(T.FARROW, "=>")
        options[name.lower()] = _parse_value(cursor, f"a value for {name.lower()}")
    return Connector(kind, tuple(options.items()))


def _parse_value(cursor: TokenCursor, what: str) -> Value:
    """A constant: a text, a number, TRUE, FALSE or NULL."""
    token = cursor.token
    if token is None:
        raise cursor.expected_error(what)
    if token.token_type == T.STRING:
        return cursor.next_token().text
    for written, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
        if cursor.accept(written):
            return value
    negative = cursor.accept_symbol(T.DASH)
    number = cursor.token
    if number is None or number.token_type != T.NUMBER:
        raise cursor.expected_error(f"{what}: a text in quotes, a number, TRUE or FALSE")
    cursor.index += 1
    try:
        return constants.number_literal(number.text, negative).value
    except AlgebraError as problem:
        raise cursor.error(str(problem), at=number) from None


def _parse_start(cursor: TokenCursor) -> Start:
    cursor.expect("AT")
    where = cursor.expect_choice(
        "EARLIEST, LATEST or TIMESTAMP '..'", "EARLIEST", "LATEST", "TIMESTAMP"
    )
    if where != "TIMESTAMP":
        return EARLIEST if where == "EARLIEST" else LATEST
    return Start("TIMESTAMP", _parse_timestamp(cursor))


def _parse_timestamp(cursor: TokenCursor) -> int:
    written, token = cursor.string("a timestamp in quotes")
    try:
        return parse_timestamp(written)
    except AlgebraError as problem:
        message, _, hint = str(problem).partition("; ")
        raise cursor.error(message, hint, token) from None
