"""Parsing and writing of what statements share: columns, connectors, constants and times."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from headwater.algebra.expressions import Literal, literal
from headwater.algebra.times import parse_timestamp
from headwater.algebra.types import TIMESTAMP, Field, Schema, Type, Value
from headwater.algebra.windows import format_duration
from headwater.cql import constants
from headwater.cql.binding.outputs import RESERVED_NAME
from headwater.cql.constants import literal_text, quote
from headwater.cql.cursor import TokenCursor
from headwater.cql.statements import EARLIEST, LATEST, Connector, Start
from headwater.cql.tokens import keyword_of
from headwater.cql.writer import name_text
from headwater.errors import AlgebraError, suggest

T = TokenType


def join_words(words: tuple[str, ...]) -> str:
    """Words as a list to choose from: `QUERY, STREAM or TABLE`."""
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]


def parse_last_name(cursor: TokenCursor, what: str) -> str:
    """The name that ends a statement."""
    name, _ = cursor.name(f"the name of a {what}")
    cursor.expect_end("it")
    return name


def check_once(cursor: TokenCursor, clauses: dict[str, object], clause: str) -> None:
    """Refuse a clause that was given before; the cursor is just after its first word."""
    if clause in clauses:
        raise cursor.error(f"{clause} is given twice", at=cursor.tokens[cursor.index - 1])


# ---- columns


def parse_columns(cursor: TokenCursor) -> Schema:
    """The columns of a declaration, in parentheses."""
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


def write_field(field: Field, implied: bool = False) -> str:
    """A column of a declaration; `implied`: it is NOT NULL anyway, as an event time is."""
    required = "" if field.nullable or implied else " NOT NULL"
    return f"{name_text(field.name)} {field.type}{required}"


def write_columns(header: str, columns: list[str]) -> list[str]:
    """The columns of a declaration below its header."""
    return [f"{header} (", *_comma_separated(columns), ")"]


def _comma_separated(parts: list[str]) -> list[str]:
    return [f"  {part}," for part in parts[:-1]] + [f"  {part}" for part in parts[-1:]]


# ---- connectors


def kinds_hint(kinds: tuple[str, ...], *words: str) -> str:
    """What can follow FROM or TO."""
    return "there is: " + ", ".join([*(f"{kind}(..)" for kind in kinds), *words])


def parse_connector(cursor: TokenCursor, kinds: tuple[str, ...], *words: str) -> Connector:
    """A connector of one of the kinds, with its options; the hint also lists `words`."""
    token = cursor.token
    kind = "" if token is None else keyword_of(token).lower()
    if token is None or kind not in kinds:
        hint = suggest(kind, [*kinds, *words]) if kind else kinds_hint(kinds, *words)
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
        options[name.lower()] = parse_value(cursor, f"a value for {name.lower()}")
    return Connector(kind, tuple(options.items()))


def write_connector(connector: Connector) -> str:
    """A connector as it is written after FROM or TO."""
    if connector.kind == "none":
        return "NONE"
    options = ", ".join(
        f"{name_text(name)} => {write_value(value)}" for name, value in connector.options
    )
    return f"{connector.kind}({options})"


# ---- constants and times


def parse_value(cursor: TokenCursor, what: str) -> Value:
    """A constant: a text, a number, TRUE, FALSE or NULL."""
    token = cursor.token
    if token is None:
        raise cursor.expected_error(what)
    if token.token_type == T.STRING:
        return cursor.next_token().text
    for written, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
        if cursor.accept(written):
            return value
    # The sign belongs to the number: the least BIGINT has no positive counterpart.
    negative = cursor.accept_symbol(T.DASH)
    number = cursor.token
    if number is None or number.token_type != T.NUMBER:
        raise cursor.expected_error(f"{what}: a text in quotes, a number, TRUE or FALSE")
    cursor.index += 1
    try:
        return constants.number_literal(number.text, negative).value
    except AlgebraError as problem:
        raise cursor.error(str(problem), at=number) from None


def write_value(value: Value) -> str:
    """A constant as it is written."""
    return quote(value) if isinstance(value, str) else literal_text(literal(value))


def parse_start(cursor: TokenCursor) -> Start:
    """The start of a query, after STARTING."""
    cursor.expect("AT")
    where = cursor.expect_choice(
        "EARLIEST, LATEST or TIMESTAMP '..'", "EARLIEST", "LATEST", "TIMESTAMP"
    )
    if where != "TIMESTAMP":
        return EARLIEST if where == "EARLIEST" else LATEST
    return Start("TIMESTAMP", parse_time(cursor))


def write_start(start: Start) -> str:
    """A start as it is written after STARTING AT."""
    if start.micros is None:
        return start.kind
    return literal_text(Literal(start.micros, TIMESTAMP))


def parse_time(cursor: TokenCursor) -> int:
    """A timestamp in quotes, in microseconds."""
    written, token = cursor.string("a timestamp in quotes")
    try:
        return parse_timestamp(written)
    except AlgebraError as problem:
        message, _, hint = str(problem).partition("; ")
        raise cursor.error(message, hint, token) from None


def write_bound(length: int | None) -> str:
    """A length of time, or UNBOUNDED for None."""
    return "UNBOUNDED" if length is None else format_duration(length)
