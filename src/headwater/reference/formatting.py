"""Values as text, JSON and CSV: the output for people and for sinks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal

from headwater.algebra.times import format_timestamp
from headwater.algebra.types import DATE, INTERVAL, TIMESTAMP, Type, Value
from headwater.algebra.windows import format_duration
from headwater.reference.values import date_text


def to_text(value: Value, type_: Type, null: str = "NULL") -> str:
    """The value as a person reads it: times in ISO form, decimals exact, lengths of time with
    their unit, NULL as `null`. `data.load_rows` reads all but lengths of time back."""
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int):
        return _time_text(value, type_)
    return value


def _time_text(value: int, type_: Type) -> str:
    if type_ == TIMESTAMP:
        return format_timestamp(value)
    if type_ == DATE:
        return date_text(value)
    if type_ == INTERVAL:
        return ("-" if value < 0 else "") + format_duration(abs(value))
    return str(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def to_json(value: Value, type_: Type) -> bool | int | float | str | None:
    """The value for `json.dumps`. A decimal is a number if that is written exactly, otherwise a
    text (as one of 20 digits is); NaN, infinities and times are the texts of `to_text`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Decimal):
        if value == value.to_integral_value():
            return int(value)
        # Many JSON readers parse numbers as doubles, so a decimal is one only if a double is
        # exactly it.
        number = float(value)
        return number if Decimal(repr(number)) == value else f"{value:f}"
    if isinstance(value, float):
        return value if math.isfinite(value) else _float_text(value)
    return value if type_.is_integer else _time_text(value, type_)


def csv_line(fields: Iterable[str | None]) -> str:
    """A line of CSV: NULL is an empty field, and an empty text has quotes."""
    return ",".join("" if text is None else _quote(text) for text in fields) + "\n"


def _quote(text: str) -> str:
    # An empty field is NULL, and readers may strip blanks; quotes keep both apart.
    if text and not set(text) & set(',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
