"""Records of text: where each begins and ends, and which values it has.

This is the single definition of what a line of JSON or a record of CSV means, for the reference
evaluator and for every source of the runtime; docs/runtime.md states it for users. It is written to be
read, not to be fast: the runtime reads most records with Arrow and uses this for unusual ones.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from headwater.algebra.times import parse_date, parse_timestamp
from headwater.algebra.types import BOOLEAN, DATE, STRING, TIMESTAMP, Schema, Type, Value
from headwater.errors import AlgebraError
from headwater.reference.values import (
    Row,
    fit_decimal,
    fit_integer,
    integer_limits,
    round_to_single,
)

MAX_LINE_BYTES = 4 << 20
"""The default limit for the bytes of a record; longer ones are refused unread."""

MAX_JSON_DEPTH = 200
"""How deep objects and arrays may be nested in a record of JSON."""

BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r"
_MAX_SHOWN = 60
# Possessive quantifiers (*+) here and below: a long line without its closing quote must not make
# the match backtrack.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_SPECIAL = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class InvalidRecord(AlgebraError):
    """Why a record does not fit its schema, and the column with the fault if it is a single one."""

    def __init__(self, reason: str, column: str = "") -> None:
        super().__init__(f"column {column}: {reason}" if column else reason)
        self.reason = reason
        self.column = column


@dataclass(frozen=True)
class Record:
    """The bytes of a record and the line on which it begins; `fault` if it is not valid."""

    line: int
    data: bytes
    fault: str = ""


SplitRecords = tuple[list[Record], int]
"""Records, and how many of the bytes they and their line ends take up."""


def too_long_message(max_bytes: int) -> str:
    """The reason given for a record with more bytes than allowed."""
    return f"longer than {max_bytes} bytes"


# ---- where records begin and end


def split_json(
    data: bytes, line: int, final: bool, max_bytes: int = MAX_LINE_BYTES
) -> SplitRecords:
    """The lines of a buffer that begins with line number `line`; blank ones are left out.

    What follows the last line feed is left for the next call, unless the buffer is the final one.
    """
    records = []
    end = len(data) if final else data.rfind(b"\n") + 1
    for number, text in enumerate(data[:end].split(b"\n"), line):
        content = text.strip(_BLANK)
        if content:
            records.append(
                Record(number, content, too_long_message(max_bytes) * (len(text) > max_bytes))
            )
    return records, end


_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^,\n"][^,\n]*+|)'
_RECORD = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+\r?(?:\n|\Z)")
_CELL = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"|([^,\n"][^,\n]*+|)')


def split_csv(
    data: bytes,
    line: int,
    final: bool,
    max_bytes: int = MAX_LINE_BYTES,
    max_records: int | None = None,
) -> SplitRecords:
    """The records of a buffer that begins with line number `line`, by RFC 4180, at most
    `max_records`; blank lines are left out. A line that cannot begin a record (a quote that is not
    closed, or text after one that is) is refused by itself, and the next line begins the next
    record.
    """
    records: list[Record] = []
    at = 0
    while at < len(data) and len(records) != max_records:
        match = _RECORD.match(data, at)
        feed = data.find(b"\n", at) + 1
        if match is not None and (final or match[0].endswith(b"\n")):
            end, fault = (
                match.end(),
                too_long_message(max_bytes) * (match.end() - at > max_bytes + 2),
            )
        elif not final and (not feed or _may_continue(data, at, max_bytes)):
            break
        else:
            end, fault = feed or len(data), "a quote that is not closed, or text behind one"
        text = data[at:end].removesuffix(b"\n").removesuffix(b"\r")
        if text:
            records.append(Record(line, text, fault))
        line += data.count(b"\n", at, end)
        at = end
    return records, at


_UNCLOSED = re.compile(rb"(?:" + _FIELD + rb',)*+"[^"]*+(?:""[^"]*+)*+"?\Z')


def _may_continue(data: bytes, at: int, max_bytes: int) -> bool:
    """Whether a record reaches the end of the buffer, and may be completed by what follows."""
    # Otherwise a stray quote would hold back all that follows, forever.
    if len(data) - at > max_bytes:
        return False
    match = _RECORD.match(data, at) or _UNCLOSED.match(data, at)
    return match is not None and match.end() == len(data)


def csv_cells(data: bytes) -> list[str | None]:
    """The cells of a record that was split off; None for an empty one without quotes."""
    text = _decode(data)
    cells: list[str | None] = []
    at = 0
    while True:
        match = _CELL.match(text, at)
        assert match is not None
        quoted, plain = match.groups()
        # An empty cell is NULL; one in quotes is an empty text.
        cells.append(plain or None if quoted is None else quoted.replace('""', '"'))
        at = match.end() + 1
        if at > len(text):
            return cells


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"not UTF-8: byte {data[error.start]:#04x} at {error.start}") from None


# ---- what records mean


def csv_columns(names: Sequence[str | None], schema: Schema) -> list[str]:
    """The names of a header in lower case; raises InvalidRecord unless each column of the schema
    occurs exactly once. Others may occur too."""
    header = [(name or "").strip().lower() for name in names]
    missing = [field.name for field in schema if field.name.lower() not in header]
    if missing:
        there = ", ".join(name or "" for name in names) or "nothing"
        raise InvalidRecord(f"has no column {', '.join(missing)}; its header is: {there}")
    for field in schema:
        if header.count(field.name.lower()) > 1:
            raise InvalidRecord(f"column {field.name} comes twice in the header")
    return header


def csv_values(data: bytes, columns: Sequence[str], schema: Schema, unit: str | None = None) -> Row:
    """The values of a record by the names of its columns; raises InvalidRecord. `unit` is the unit
    of numbers that are times."""
    cells = csv_cells(data)
    if len(cells) != len(columns):
        raise InvalidRecord(f"{len(cells)} cells for {len(columns)} columns")
    return _row(dict(zip(columns, cells, strict=True)), schema, _value_from_cell, unit)


def json_values(data: bytes, schema: Schema, unit: str | None = None) -> Row:
    """The values of a JSON object; raises InvalidRecord."""
    text = _decode(data)
    # Before json.loads, which is recursive.
    if _depth(text) > MAX_JSON_DEPTH:
        raise InvalidRecord(f"nested more than {MAX_JSON_DEPTH} levels deep")
    try:
        # Numbers stay text, because a float would lose digits of a BIGINT or DECIMAL; objects stay
        # lists of pairs, because a dict would hide a key that comes twice.
        pairs = json.loads(
            text,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_Pairs,
        )
    except ValueError as error:
        raise InvalidRecord(f"not JSON: {error}") from None
    if not isinstance(pairs, _Pairs):
        raise InvalidRecord(f"not a JSON object: {text[:_MAX_SHOWN]}")
    cells: dict[str, Any] = {}
    for key, value in pairs:
        field = schema.get(key)
        if field is None:
            continue
        if key.lower() in cells:
            raise InvalidRecord("comes twice", field.name)
        cells[key.lower()] = value
    return _row(cells, schema, _value_from_json, unit)


def _depth(text: str) -> int:
    """How deep objects and arrays are nested; 0 if there are too few brackets to be too deep."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return 0
    deepest = depth = 0
    for bracket in re.findall(r"[][{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


class _Number(str):
    """A number of JSON, as written."""


class _Pairs(list[tuple[str, Any]]):
    """The keys and values of a JSON object, duplicate keys included."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; write it as text")


def _row(
    cells: Mapping[str, Any],
    schema: Schema,
    read: Callable[[Any, Type, str | None], Value],
    unit: str | None,
) -> Row:
    """The cells (by lower-case name) as values; None and what is missing are NULL."""
    row: list[Value] = []
    for field in schema:
        cell = cells.get(field.name.lower())
        try:
            row.append(None if cell is None else read(cell, field.type, unit))
        except InvalidRecord as error:
            raise InvalidRecord(error.reason, field.name) from None
    return tuple(row)


def _value_from_cell(text: str, type_: Type, unit: str | None) -> Value:
    """An empty cell with quotes is an empty text, and NULL in a column of another type."""
    return None if text == "" and type_ != STRING else value_from_text(text, type_, unit)


def value_from_json(value: Any, type_: Type, unit: str | None = None) -> Value:
    """A number, text or boolean as a value of a type; raises InvalidRecord."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        value = _Number(value)
    return _value_from_json(value, type_, unit)


def _value_from_json(value: Any, type_: Type, unit: str | None) -> Value:
    number = isinstance(value, _Number)
    if type_ == BOOLEAN:
        fits = isinstance(value, bool)
    elif type_.is_integer:
        fits = number and not set(value) & set(".eE")
    elif type_.is_numeric or type_ == TIMESTAMP:
        fits = isinstance(value, str)
    else:
        fits = isinstance(value, str) and not number
    if not fits:
        raise InvalidRecord(f"{_describe(value)} is no {type_}")
    return value if isinstance(value, bool) else value_from_text(str(value), type_, unit)


def _describe(value: Any) -> str:
    if isinstance(value, _Pairs):
        return "an object"
    if isinstance(value, list):
        return "an array"
    return shorten(value) if isinstance(value, _Number) else shorten(json.dumps(value))


def shorten(text: str) -> str:
    """The text, or its beginning if it is long."""
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def value_from_text(text: str, type_: Type, unit: str | None = None) -> Value:
    """The value of a type from its text; raises InvalidRecord."""
    if type_ == STRING:
        return _check_text(text)
    word = text.strip(" \t\r\n\v\f")
    unfit = InvalidRecord(f"{shorten(text)!r} is no {type_}")
    if type_ == BOOLEAN:
        if word.lower() not in ("true", "false"):
            raise unfit
        return word.lower() == "true"
    if type_.is_integer:
        # Python refuses to convert integers of more than 4300 digits.
        if not _WHOLE.fullmatch(word) or len(word) > 4000:
            raise unfit
        return _integer(int(word), type_)
    if type_.is_floating and word.lower() in _SPECIAL:
        return _SPECIAL[word.lower()]
    if type_.is_numeric:
        if not _NUMBER.fullmatch(word):
            raise unfit
        return _floating(word, type_, unfit) if type_.is_floating else _decimal(word, type_)
    return _parse_time(text, type_, unit)


def _check_text(text: str) -> str:
    """The text; raises InvalidRecord for half of a surrogate pair, which is no character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"\\u{ord(text[error.start]):04x} is half a character") from None
    return text


def _integer(value: int, type_: Type) -> int:
    if fit_integer(value, type_) is None:
        least, largest = integer_limits(type_)
        raise InvalidRecord(f"{shorten(str(value))} is outside {type_}, {least} to {largest}")
    return value


def _floating(word: str, type_: Type, unfit: InvalidRecord) -> float:
    value = float(word)
    if type_.name == "FLOAT":
        value = round_to_single(value)
    if not math.isfinite(value):
        raise unfit
    return value


def _decimal(word: str, type_: Type) -> Decimal:
    value = Decimal(word)
    fitted = fit_decimal(value, type_)
    if fitted is None or fitted != value:
        raise InvalidRecord(f"{shorten(word)} does not fit {type_}")
    return fitted


def _parse_time(text: str, type_: Type, unit: str | None) -> int:
    try:
        if type_ == TIMESTAMP:
            return parse_timestamp(text, unit)
        if type_ == DATE:
            return parse_date(text)
    except AlgebraError as error:
        raise InvalidRecord(str(error)) from None
    raise InvalidRecord(f"a {type_} is not read from text")
