"""How each statement is read and written: one record for each; CONTRIBUTING.md says how to add one.

A statement is recognised by the words that it begins with. What it does to a state is a record too,
in `headwater.runtime.submit.actions`; `register_statement` there adds both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.catalog import Namespace, Stream, Table
from headwater.algebra.expressions import Literal
from headwater.algebra.nodes import Query
from headwater.algebra.types import TIMESTAMP, Field, Schema
from headwater.algebra.windows import UNITS, format_duration
from headwater.cql.connector_kinds import sink_kinds, source_kinds
from headwater.cql.constants import literal_text
from headwater.cql.cursor import TokenCursor
from headwater.cql.query_text import query_lines
from headwater.cql.statement_parts import (
    check_once,
    join_words,
    kinds_hint,
    parse_columns,
    parse_connector,
    parse_last_name,
    parse_start,
    parse_time,
    parse_value,
    write_bound,
    write_columns,
    write_connector,
    write_field,
    write_start,
    write_value,
)
from headwater.cql.statements import (
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
from headwater.cql.writer import name_text
from headwater.errors import HeadwaterError, suggest

T = TokenType
S = TypeVar("S", bound=Statement)


class Script(Protocol):
    """The text that is being read: what is declared so far, and the queries that it has created."""

    names: Namespace
    queries: set[str]

    def query(self, tokens: list[Token]) -> Query:
        """The query of these tokens; raises CqlError."""


@dataclass(frozen=True)
class StatementSyntax(Generic[S]):
    """How a statement is read and written.

    It begins with `words`; `parse` gets the cursor after them and raises CqlError. `write` returns
    lines that read back as the same statement.
    """

    type: type[S]
    words: tuple[str, ...]
    parse: Callable[[Script, TokenCursor], S]
    write: Callable[[S], list[str]]


# ---- CREATE


def _parse_declared_name(script: Script, cursor: TokenCursor, what: str) -> str:
    name, token = cursor.name(f"a name for the {what}")
    # As in aliases, where $ is for the names that the binder makes itself.
    if "$" in name:
        raise cursor.error("a name has no $ in it", at=token)
    if script.names.get(name) is not None:
        raise cursor.error(f"{name} exists already", at=token)
    return name


_CLAUSES = ("TIMESTAMP", "LATENESS", "KEEP", "AHEAD", "BEHIND", "FROM")


def _parse_create_stream(script: Script, cursor: TokenCursor) -> CreateStream:
    name = _parse_declared_name(script, cursor, "stream")
    schema = parse_columns(cursor)
    clauses: dict[str, object] = {}
    source: Connector | None = None
    time = ""
    lateness, keep = 0, UNITS["HOUR"]
    bounds: dict[str, int | None] = {}
    while cursor.token is not None:
        clause = cursor.expect_choice(
            "TIMESTAMP BY, LATENESS, KEEP, AHEAD, BEHIND or FROM", *_CLAUSES
        )
        check_once(cursor, clauses, clause)
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
            source = parse_connector(cursor, source_kinds(), "CLIENT")
    if not time:
        hint = _timestamp_columns_hint(schema)
        raise cursor.error(f"stream {name} needs TIMESTAMP BY and its event-time column", hint)
    if "FROM" not in clauses:
        raise cursor.expected_error(
            "FROM and where the data comes from", kinds_hint(source_kinds(), "CLIENT")
        )
    # A tuple without event time is rejected on arrival, so queries may count on one.
    fields = [Field(f.name, f.type, f.nullable and f.name != time) for f in schema]
    ahead = bounds.get("AHEAD", default_ahead(source))
    behind = bounds.get("BEHIND")
    stream = Stream(name, Schema(tuple(fields)), time, lateness, keep, ahead, behind)
    script.names.add(stream)
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


def _write_create_stream(statement: CreateStream) -> list[str]:
    stream = statement.stream
    columns = [write_field(f, implied=f.name == stream.time) for f in stream.schema]
    lines = [*write_columns(f"CREATE STREAM {name_text(stream.name)}", columns)]
    lines.append(f"TIMESTAMP BY {name_text(stream.time)}")
    if stream.lateness:
        lines.append(f"LATENESS {format_duration(stream.lateness)}")
    if stream.keep != UNITS["HOUR"]:
        lines.append(f"KEEP {format_duration(stream.keep)}")
    if stream.ahead != default_ahead(statement.source):
        lines.append(f"AHEAD {write_bound(stream.ahead)}")
    if stream.behind is not None:
        lines.append(f"BEHIND {write_bound(stream.behind)}")
    source = "CLIENT" if statement.source is None else write_connector(statement.source)
    return [*lines, f"FROM {source}"]


def _parse_create_table(script: Script, cursor: TokenCursor) -> CreateTable:
    name = _parse_declared_name(script, cursor, "table")
    schema = parse_columns(cursor)
    if any(cursor.at_word(clause) for clause in _CLAUSES if clause != "FROM"):
        raise cursor.error("a table has no event time", "write CREATE STREAM")
    cursor.expect("FROM")
    source = parse_connector(cursor, source_kinds())
    cursor.expect_end("the table's source")
    table = Table(name, schema)
    script.names.add(table)
    return CreateTable(table, source)


def _write_create_table(statement: CreateTable) -> list[str]:
    columns = [write_field(f) for f in statement.table.schema]
    header = f"CREATE TABLE {name_text(statement.table.name)}"
    return [*write_columns(header, columns), f"FROM {write_connector(statement.source)}"]


def _parse_create_query(script: Script, cursor: TokenCursor) -> CreateQuery:
    name, token = cursor.name("a name for the query")
    if name.lower() in script.queries:
        raise cursor.error(f"the query {name} is created twice in this text", at=token)
    clauses: dict[str, object] = {}
    while not cursor.accept("AS"):
        clause = cursor.expect_choice(
            "STARTING, LIFETIME, KEEP, TO or AS", "STARTING", "LIFETIME", "KEEP", "TO", "AS"
        )
        check_once(cursor, clauses, clause)
        if clause == "STARTING":
            clauses[clause] = parse_start(cursor)
        elif clause in ("LIFETIME", "KEEP"):
            clauses[clause] = cursor.duration(clause)
        else:
            clauses[clause] = (
                NO_SINK if cursor.accept("NONE") else parse_connector(cursor, sink_kinds())
            )
    query = script.query(cursor.tokens[cursor.index :])
    # Only now: a query that failed may be written again in the same text.
    script.queries.add(name.lower())
    start, lifetime, sink = clauses.get("STARTING"), clauses.get("LIFETIME"), clauses.get("TO")
    assert start is None or isinstance(start, Start)
    assert lifetime is None or isinstance(lifetime, int)
    keep = clauses.get("KEEP")
    assert keep is None or isinstance(keep, int)
    assert sink is None or isinstance(sink, Connector)
    return CreateQuery(name, query, start, lifetime, sink, keep)


def _write_create_query(statement: CreateQuery) -> list[str]:
    lines = [f"CREATE QUERY {name_text(statement.name)}"]
    if statement.start is not None:
        lines.append(f"STARTING AT {write_start(statement.start)}")
    if statement.lifetime is not None:
        lines.append(f"LIFETIME {format_duration(statement.lifetime)}")
    if statement.keep is not None:
        lines.append(f"KEEP {format_duration(statement.keep)}")
    if statement.sink is not None:
        lines.append(f"TO {write_connector(statement.sink)}")
    return [*lines, "AS", *query_lines(statement.query)]


# ---- EXPLAIN, SHOW, SET


def _parse_bare_query(script: Script, cursor: TokenCursor) -> BareQuery:
    return BareQuery(script.query(cursor.tokens))


def _write_bare_query(statement: BareQuery) -> list[str]:
    return query_lines(statement.query)


def _parse_explain(script: Script, cursor: TokenCursor) -> Explain:
    analyze = cursor.accept("ANALYZE")
    return Explain(script.query(cursor.tokens[cursor.index :]), analyze)


def _write_explain(statement: Explain) -> list[str]:
    opening = "EXPLAIN ANALYZE" if statement.analyze else "EXPLAIN"
    return [opening, *query_lines(statement.query)]


def _parse_show(script: Script, cursor: TokenCursor) -> Show:
    what = cursor.expect_choice(join_words(SHOW_KINDS), *SHOW_KINDS)
    cursor.expect_end(f"SHOW {what}")
    return Show(what)


def _write_show(statement: Show) -> list[str]:
    return [f"SHOW {statement.what}"]


def _parse_set(script: Script, cursor: TokenCursor) -> SetOption:
    name, _ = cursor.name("the name of an option")
    while cursor.accept_symbol(T.DOT):
        name += "." + cursor.name("the name of an option")[0]
    cursor.expect_symbol(T.EQ, "=")
    value = parse_value(cursor, f"a value for {name}")
    cursor.expect_end("SET")
    return SetOption(name.lower(), value)


def _write_set(statement: SetOption) -> list[str]:
    name = ".".join(map(name_text, statement.name.split(".")))
    return [f"SET {name} = {write_value(statement.value)}"]


# ---- statements about one query, stream or table


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _write_named(*words: str) -> Callable[[_Named], list[str]]:
    return lambda statement: [f"{' '.join(words)} {name_text(statement.name)}"]


def _parse_drop_query(script: Script, cursor: TokenCursor) -> DropQuery:
    name = parse_last_name(cursor, "query")
    # A later statement of the text may create a query of this name again.
    script.queries.discard(name.lower())
    return DropQuery(name)


def _parse_drop_stream(script: Script, cursor: TokenCursor) -> DropStream:
    name = parse_last_name(cursor, "stream")
    _forget_name(script, name)
    return DropStream(name)


def _parse_drop_table(script: Script, cursor: TokenCursor) -> DropTable:
    name = parse_last_name(cursor, "table")
    _forget_name(script, name)
    return DropTable(name)


def _forget_name(script: Script, name: str) -> None:
    if script.names.get(name) is not None:
        script.names.remove(name)


def _parse_pause(script: Script, cursor: TokenCursor) -> PauseQuery:
    return PauseQuery(parse_last_name(cursor, "query"))


def _parse_resume(script: Script, cursor: TokenCursor) -> ResumeQuery:
    return ResumeQuery(parse_last_name(cursor, "query"))


def _parse_end(script: Script, cursor: TokenCursor) -> EndStream:
    return EndStream(parse_last_name(cursor, "stream"))


def _parse_restart(script: Script, cursor: TokenCursor) -> RestartStream:
    return RestartStream(parse_last_name(cursor, "stream"))


def _parse_rewind(script: Script, cursor: TokenCursor) -> RewindStream:
    name, _ = cursor.name("the name of a stream")
    cursor.expect("TO")
    cursor.expect("TIMESTAMP")
    micros = parse_time(cursor)
    restart = cursor.accept("RESTART")
    if restart:
        cursor.expect("QUERIES")
    cursor.expect_end("REWIND STREAM")
    return RewindStream(name, micros, restart)


def _write_rewind(statement: RewindStream) -> list[str]:
    restart = " RESTART QUERIES" if statement.restart else ""
    time = literal_text(Literal(statement.micros, TIMESTAMP))
    return [f"REWIND STREAM {name_text(statement.name)} TO {time}{restart}"]


# ---- the registry

BARE_QUERY = StatementSyntax(BareQuery, (), _parse_bare_query, _write_bare_query)
"""The only one without words of its own: it begins like any query."""

# Words that can follow the same first word are listed in errors in this order.
_syntaxes: dict[type[Statement], StatementSyntax[Any]] = {
    syntax.type: syntax
    for syntax in (
        BARE_QUERY,
        StatementSyntax(
            CreateStream, ("CREATE", "STREAM"), _parse_create_stream, _write_create_stream
        ),
        StatementSyntax(CreateTable, ("CREATE", "TABLE"), _parse_create_table, _write_create_table),
        StatementSyntax(CreateQuery, ("CREATE", "QUERY"), _parse_create_query, _write_create_query),
        StatementSyntax(Explain, ("EXPLAIN",), _parse_explain, _write_explain),
        StatementSyntax(Show, ("SHOW",), _parse_show, _write_show),
        StatementSyntax(
            DropQuery, ("DROP", "QUERY"), _parse_drop_query, _write_named("DROP", "QUERY")
        ),
        StatementSyntax(
            DropStream, ("DROP", "STREAM"), _parse_drop_stream, _write_named("DROP", "STREAM")
        ),
        StatementSyntax(
            DropTable, ("DROP", "TABLE"), _parse_drop_table, _write_named("DROP", "TABLE")
        ),
        StatementSyntax(
            PauseQuery, ("PAUSE", "QUERY"), _parse_pause, _write_named("PAUSE", "QUERY")
        ),
        StatementSyntax(
            ResumeQuery, ("RESUME", "QUERY"), _parse_resume, _write_named("RESUME", "QUERY")
        ),
        StatementSyntax(EndStream, ("END", "STREAM"), _parse_end, _write_named("END", "STREAM")),
        StatementSyntax(RewindStream, ("REWIND", "STREAM"), _parse_rewind, _write_rewind),
        StatementSyntax(
            RestartStream, ("RESTART", "STREAM"), _parse_restart, _write_named("RESTART", "STREAM")
        ),
        StatementSyntax(SetOption, ("SET",), _parse_set, _write_set),
    )
}

STATEMENT_SYNTAX: Mapping[type[Statement], StatementSyntax[Any]] = MappingProxyType(_syntaxes)
"""How every type of statement is read and written."""


def add_syntax(syntax: StatementSyntax[Any]) -> None:
    """Register a statement; raises HeadwaterError if another one begins with the same words."""
    if syntax.type in _syntaxes:
        raise HeadwaterError(f"there is a statement {syntax.type.__name__} already")
    if not syntax.words or any(not word.isalpha() or not word.isupper() for word in syntax.words):
        raise HeadwaterError("a statement begins with words in capitals")
    for other in _syntaxes.values():
        # A prefix is enough to clash: where the words of one end, `find_syntax` could not decide.
        length = min(len(syntax.words), len(other.words))
        if length and syntax.words[:length] == other.words[:length]:
            raise HeadwaterError(f"{' '.join(other.words)} begins another statement")
    _syntaxes[syntax.type] = syntax


def remove_syntax(type: type[Statement]) -> None:
    """Unregister a statement; raises HeadwaterError if it is not registered."""
    if _syntaxes.pop(type, None) is None:
        raise HeadwaterError(f"there is no statement {type.__name__}")


def find_syntax(cursor: TokenCursor, opening: str, others: Iterable[str]) -> StatementSyntax[Any]:
    """The statement that begins at the cursor, with the word `opening`; the cursor is moved past
    its words. Raises CqlError that lists the words it could begin with, `others` included."""
    matching = [s for s in _syntaxes.values() if s.words[:1] == (opening,)]
    if not matching:
        openings = {s.words[0] for s in _syntaxes.values() if s.words}
        hint = suggest(opening, [*openings, *others]) if opening else ""
        raise cursor.expected_error("a statement", hint)
    cursor.index += 1
    position = 1
    while len(matching) > 1:
        choices = tuple(dict.fromkeys(s.words[position] for s in matching))
        word = cursor.expect_choice(join_words(choices), *choices)
        position += 1
        matching = [s for s in matching if s.words[position - 1] == word]
    cursor.expect(*matching[0].words[position:])
    return matching[0]


def write_statement(statement: Statement) -> list[str]:
    """The statement, line by line."""
    if type(statement) not in STATEMENT_SYNTAX:
        raise TypeError(f"not a statement or query: {statement!r}")
    return STATEMENT_SYNTAX[type(statement)].write(statement)
