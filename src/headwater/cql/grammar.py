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
from headwater.cql.cursor import Cursor
from headwater.cql.outputs import RESERVED
from headwater.cql.statements import (
    EARLIEST,
    LATEST,
    NOWHERE,
    SHOWN,
    SINKS,
    SOURCES,
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
from headwater.cql.syntax import OUTPUTS, read_query
from headwater.cql.templates import read_alike
from headwater.cql.tokens import cut, error, tidy, word
from headwater.errors import AlgebraError, CqlError, CqlErrors, nearest

T = TokenType


def parse(text: str, names: Namespace | None = None) -> tuple[Statement, ...]:
    """Every statement of a text, over the given streams and tables and those the text declares.

    Raises CqlErrors with all the mistakes of the text. A statement that only fails because an
    earlier one that declares its stream did is not counted among them.
    """
    known = Namespace() if names is None else names.copy()
    reader = _Reader(text, known)
    for tokens in _cut(text):
        reader.statement(tokens)
    if reader.errors:
        raise CqlErrors(reader.errors)
    return tuple(reader.statements)


def parse_query(text: str, names: Namespace) -> Query:
    """The one query of a text, with or without a `;` behind it; raises CqlError."""
    return read_alike(text, names, lambda alike: _one_query(alike, names))


def _one_query(text: str, names: Namespace) -> Query:
    statements = cut(text)
    if len(statements) > 1:
        raise error(text, "expected one query, here is another statement", statements[1][0])
    tokens = statements[0] if statements else []
    return _query(text, tidy(text, tokens), names)


def _cut(text: str) -> list[list[Token]]:
    try:
        return cut(text)
    except CqlError as problem:
        raise CqlErrors([problem]) from None


def _query(text: str, tokens: list[Token], names: Namespace) -> Query:
    end = tokens[-1].end + 1 if tokens else len(text)
    return bind(read_query(text, tokens, end), names)


class _Reader:
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
            self.statements.append(self.read(Cursor(self.text, tidy(self.text, tokens))))
        except UnknownName as problem:
            if problem.name.lower() not in self.failed:
                self.errors.append(problem)
        except CqlError as problem:
            self.errors.append(problem)
            if len(tokens) > 2 and word(tokens[1]) in ("STREAM", "TABLE"):
                self.failed.add(tokens[2].text.lower())

    def read(self, cursor: Cursor) -> Statement:
        first = cursor.tokens[0]
        opening = word(first)
        if first.token_type in (T.SELECT, T.WITH, T.L_PAREN) or opening in OUTPUTS:
            return BareQuery(self.query(cursor.tokens))
        rule = _STATEMENTS.get(opening)
        if rule is None:
            hint = nearest(opening, [*_STATEMENTS, "SELECT", "WITH", *OUTPUTS]) if opening else ""
            raise cursor.expected("a statement", hint)
        cursor.index = 1
        return rule(self, cursor)

    # ---- CREATE

    def create(self, cursor: Cursor) -> Statement:
        what = cursor.choice("STREAM, TABLE or QUERY", "STREAM", "TABLE", "QUERY")
        if what == "QUERY":
            return self.create_query(cursor)
        name, token = cursor.name(f"a name for the {what.lower()}")
        if "$" in name:
            raise cursor.fail("a name has no $ in it", at=token)
        if self.names.get(name) is not None:
            raise cursor.fail(f"{name} exists already", at=token)
        schema = _columns(cursor)
        made = (_stream if what == "STREAM" else _table)(cursor, name, schema)
        self.names.add(made.stream if isinstance(made, CreateStream) else made.table)
        return made

    def query(self, tokens: list[Token]) -> Query:
        """The query that the tokens say, errors told by their place in the whole text."""
        body = self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

        def read(text: str) -> Query:
            if text is body:
                return _query(self.text, tokens, self.names)
            return _one_query(text, self.names)

        return read_alike(body, self.names, read)

    def create_query(self, cursor: Cursor) -> CreateQuery:
        name, token = cursor.name("a name for the query")
        if name.lower() in self.queries:
            raise cursor.fail(f"the query {name} is created twice in this text", at=token)
        given: dict[str, object] = {}
        while not cursor.accept("AS"):
            clause = cursor.choice(
                "STARTING, LIFETIME, KEEP, TO or AS", "STARTING", "LIFETIME", "KEEP", "TO", "AS"
            )
            _once(cursor, given, clause)
            if clause == "STARTING":
                given[clause] = _start(cursor)
            elif clause in ("LIFETIME", "KEEP"):
                given[clause] = cursor.duration(clause)
            else:
                given[clause] = NOWHERE if cursor.accept("NONE") else _connector(cursor, SINKS)
        query = self.query(cursor.tokens[cursor.index :])
        self.queries.add(name.lower())
        start, lifetime, sink = given.get("STARTING"), given.get("LIFETIME"), given.get("TO")
        assert start is None or isinstance(start, Start)
        assert lifetime is None or isinstance(lifetime, int)
        keep = given.get("KEEP")
        assert keep is None or isinstance(keep, int)
        assert sink is None or isinstance(sink, Connector)
        return CreateQuery(name, query, start, lifetime, sink, keep)

    # ---- the others

    def explain(self, cursor: Cursor) -> Statement:
        analyze = cursor.accept("ANALYZE")
        return Explain(self.query(cursor.tokens[cursor.index :]), analyze)

    def show(self, cursor: Cursor) -> Statement:
        what = cursor.choice(", ".join(SHOWN[:-1]) + f" or {SHOWN[-1]}", *SHOWN)
        cursor.finish(f"SHOW {what}")
        return Show(what)

    def drop(self, cursor: Cursor) -> Statement:
        kinds: dict[str, Callable[[str], Statement]] = {
            "QUERY": DropQuery,
            "STREAM": DropStream,
            "TABLE": DropTable,
        }
        what = cursor.choice("QUERY, STREAM or TABLE", *kinds)
        name = _last_name(cursor, what.lower())
        if what == "QUERY":
            self.queries.discard(name.lower())
        elif self.names.get(name) is not None:
            self.names.remove(name)
        return kinds[what](name)

    def pause(self, cursor: Cursor) -> Statement:
        cursor.expect("QUERY")
        return PauseQuery(_last_name(cursor, "query"))

    def resume(self, cursor: Cursor) -> Statement:
        cursor.expect("QUERY")
        return ResumeQuery(_last_name(cursor, "query"))

    def end_stream(self, cursor: Cursor) -> Statement:
        cursor.expect("STREAM")
        return EndStream(_last_name(cursor, "stream"))

    def rewind_stream(self, cursor: Cursor) -> Statement:
        cursor.expect("STREAM")
        name, _ = cursor.name("the name of a stream")
        cursor.expect("TO")
        cursor.expect("TIMESTAMP")
        micros = _timestamp(cursor)
        restart = cursor.accept("RESTART")
        if restart:
            cursor.expect("QUERIES")
        cursor.finish("REWIND STREAM")
        return RewindStream(name, micros, restart)

    def restart_stream(self, cursor: Cursor) -> Statement:
        cursor.expect("STREAM")
        return RestartStream(_last_name(cursor, "stream"))

    def set_option(self, cursor: Cursor) -> Statement:
        name, _ = cursor.name("the name of an option")
        while cursor.accept_sign(T.DOT):
            name += "." + cursor.name("the name of an option")[0]
        cursor.expect_sign(T.EQ, "=")
        value = _value(cursor, f"a value for {name}")
        cursor.finish("SET")
        return SetOption(name.lower(), value)


_STATEMENTS: dict[str, Callable[[_Reader, Cursor], Statement]] = {
    "CREATE": _Reader.create,
    "EXPLAIN": _Reader.explain,
    "SHOW": _Reader.show,
    "DROP": _Reader.drop,
    "PAUSE": _Reader.pause,
    "RESUME": _Reader.resume,
    "END": _Reader.end_stream,
    "REWIND": _Reader.rewind_stream,
    "RESTART": _Reader.restart_stream,
    "SET": _Reader.set_option,
}


def _last_name(cursor: Cursor, what: str) -> str:
    name, _ = cursor.name(f"the name of a {what}")
    cursor.finish("it")
    return name


def _once(cursor: Cursor, given: dict[str, object], clause: str) -> None:
    """Refuse a clause that was given before; the cursor stands behind its first word."""
    if clause in given:
        raise cursor.fail(f"{clause} is said twice", at=cursor.tokens[cursor.index - 1])


# ---- streams and tables


def _columns(cursor: Cursor) -> Schema:
    cursor.expect_sign(T.L_PAREN, "( and the columns")
    start = cursor.tokens[cursor.index - 1]
    fields: dict[str, Field] = {}
    while True:
        name, token = cursor.name("the name of a column")
        if name.lower() in fields:
            raise cursor.fail(f"column {name} is declared twice", at=token)
        if name.lower() == RESERVED:
            raise cursor.fail(f"{RESERVED} is the instant of every result row",
                              "choose another name", token)  # fmt: skip
        type_ = _column_type(cursor)
        required = cursor.accept("NOT")
        if required:
            cursor.expect("NULL")
        fields[name.lower()] = Field(name, type_, not required)
        if cursor.accept_sign(T.R_PAREN):
            break
        if not cursor.accept_sign(T.COMMA):
            raise cursor.expected(", or ) or NOT NULL")
    if not fields:
        raise cursor.fail("a stream or table needs at least one column", at=start)
    return Schema(tuple(fields.values()))


def _column_type(cursor: Cursor) -> Type:
    token = cursor.token
    if token is None or not word(token):
        raise cursor.expected("a type", nearest("", [*constants.TYPES, "DECIMAL"]))
    cursor.index += 1
    numbers: list[int] = []
    if cursor.accept_sign(T.L_PAREN):
        while True:
            number = cursor.token
            if number is None or not number.text.isdecimal() or len(number.text) > 3:
                raise cursor.expected("a number of digits")
            numbers.append(int(number.text))
            cursor.index += 1
            if not cursor.accept_sign(T.COMMA):
                break
        cursor.expect_sign(T.R_PAREN, ")")
    try:
        return constants.read_type(token.text, numbers)
    except AlgebraError as problem:
        message, _, hint = str(problem).partition("; ")
        raise cursor.fail(message, hint, token) from None


_CLAUSES = ("TIMESTAMP", "LATENESS", "KEEP", "AHEAD", "BEHIND", "FROM")


def _stream(cursor: Cursor, name: str, schema: Schema) -> CreateStream:
    given: dict[str, object] = {}
    source: Connector | None = None
    time = ""
    lateness, keep = 0, UNITS["HOUR"]
    bounds: dict[str, int | None] = {}
    while cursor.token is not None:
        clause = cursor.choice("TIMESTAMP BY, LATENESS, KEEP, AHEAD, BEHIND or FROM", *_CLAUSES)
        _once(cursor, given, clause)
        given[clause] = True
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
            source = _connector(cursor, SOURCES, "CLIENT")
    if not time:
        hint = _timestamp_columns(schema)
        raise cursor.fail(f"stream {name} needs TIMESTAMP BY and its event-time column", hint)
    if "FROM" not in given:
        raise cursor.expected("FROM and where the data comes from", _kinds(SOURCES, "CLIENT"))
    fields = [Field(f.name, f.type, f.nullable and f.name != time) for f in schema]
    ahead = bounds.get("AHEAD", default_ahead(source))
    behind = bounds.get("BEHIND")
    stream = Stream(name, Schema(tuple(fields)), time, lateness, keep, ahead, behind)
    return CreateStream(stream, source)


def _event_time(cursor: Cursor, schema: Schema) -> str:
    given, token = cursor.name("the event-time column")
    field = schema.get(given)
    if field is None:
        raise cursor.fail(f"no column {given}", nearest(given, schema.names), token)
    if field.type != TIMESTAMP:
        hint = _timestamp_columns(schema)
        raise cursor.fail(f"{field.name} is {field.type}, not TIMESTAMP", hint, token)
    return field.name


def _timestamp_columns(schema: Schema) -> str:
    found = [field.name for field in schema if field.type == TIMESTAMP]
    if not found:
        return "no column is of type TIMESTAMP"
    return f"columns of type TIMESTAMP: {', '.join(found)}"


def _table(cursor: Cursor, name: str, schema: Schema) -> CreateTable:
    if any(cursor.at_word(clause) for clause in _CLAUSES if clause != "FROM"):
        raise cursor.fail("a table has no event time", "write CREATE STREAM")
    cursor.expect("FROM")
    source = _connector(cursor, SOURCES)
    cursor.finish("the table's source")
    return CreateTable(Table(name, schema), source)


# ---- connectors and constants


def _kinds(kinds: tuple[str, ...], *words: str) -> str:
    return "there is: " + ", ".join([*(f"{kind}(..)" for kind in kinds), *words])


def _connector(cursor: Cursor, kinds: tuple[str, ...], *words: str) -> Connector:
    token = cursor.token
    kind = "" if token is None else word(token).lower()
    if token is None or kind not in kinds:
        hint = nearest(kind, [*kinds, *words]) if kind else _kinds(kinds, *words)
        raise cursor.expected("where the data is", hint)
    cursor.index += 1
    cursor.expect_sign(T.L_PAREN, f"( and the options of {kind}")
    options: dict[str, Value] = {}
    while not cursor.accept_sign(T.R_PAREN):
        if options:
            cursor.expect_sign(T.COMMA, ", or )")
        name, at = cursor.name("the name of an option")
        if name.lower() in options:
            raise cursor.fail(f"option {name.lower()} is given twice", at=at)
        cursor.expect_sign(T.FARROW, "=>")
        options[name.lower()] = _value(cursor, f"a value for {name.lower()}")
    return Connector(kind, tuple(options.items()))


def _value(cursor: Cursor, what: str) -> Value:
    """A constant: a text, a number, TRUE, FALSE or NULL."""
    token = cursor.token
    if token is None:
        raise cursor.expected(what)
    if token.token_type == T.STRING:
        return cursor.take().text
    for written, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
        if cursor.accept(written):
            return value
    negative = cursor.accept_sign(T.DASH)
    number = cursor.token
    if number is None or number.token_type != T.NUMBER:
        raise cursor.expected(f"{what}: a text in quotes, a number, TRUE or FALSE")
    cursor.index += 1
    try:
        return constants.number(number.text, negative).value
    except AlgebraError as problem:
        raise cursor.fail(str(problem), at=number) from None


def _start(cursor: Cursor) -> Start:
    cursor.expect("AT")
    where = cursor.choice("EARLIEST, LATEST or TIMESTAMP '..'", "EARLIEST", "LATEST", "TIMESTAMP")
    if where != "TIMESTAMP":
        return EARLIEST if where == "EARLIEST" else LATEST
    return Start("TIMESTAMP", _timestamp(cursor))


def _timestamp(cursor: Cursor) -> int:
    written, token = cursor.string("a timestamp in quotes")
    try:
        return parse_timestamp(written)
    except AlgebraError as problem:
        message, _, hint = str(problem).partition("; ")
        raise cursor.fail(message, hint, token) from None
