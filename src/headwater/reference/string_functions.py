"""String functions. Positions count characters from 1; a result that would be too long is NULL."""

from __future__ import annotations

import re
from typing import Any

from headwater.algebra.expressions import Call
from headwater.algebra.lengths import MAX_TEXT
from headwater.algebra.patterns import compile_regex, like_regex
from headwater.algebra.types import INT, Value
from headwater.reference.values import Function, FunctionBuilder, fit_integer, untyped


def _title(text: str) -> str:
    words = text.lower().split(" ")
    return " ".join(word[:1].title() + word[1:] for word in words)


def _substring(text: str, position: int, length: int = INT.bounds[1]) -> str:  # type: ignore[index]
    # Position 0 counts as 1. The end is counted from a start before the text, not from its edge:
    # substring('abc', -5, 3) is 'a'.
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def _pad(text: str, length: int, pad: str) -> str:
    """The padding up to the length; the empty text if none is needed, or there is nothing to pad
    with."""
    missing = length - len(text)
    if missing <= 0 or not pad:
        return ""
    return (pad * (missing // len(pad) + 1))[:missing]


def _lpad(text: str, length: int, pad: str) -> str | None:
    if length > MAX_TEXT:
        return None
    return _pad(text, length, pad) + text[: max(length, 0)]


def _rpad(text: str, length: int, pad: str) -> str | None:
    if length > MAX_TEXT:
        return None
    return text[: max(length, 0)] + _pad(text, length, pad)


def _split_part(text: str, delimiter: str, part: int) -> str | None:
    parts = text.split(delimiter) if delimiter else [text]
    if part == 0:
        return None
    position = part - 1 if part > 0 else len(parts) + part
    return parts[position] if 0 <= position < len(parts) else ""


def _translate(text: str, old: str, new: str) -> str:
    # A letter that comes twice counts by its first place, so setdefault.
    table: dict[int, str | None] = {}
    for i, letter in enumerate(old):
        table.setdefault(ord(letter), new[i] if i < len(new) else None)
    return text.translate(table)


def _with_int_args(function: Function) -> FunctionBuilder:
    """A function whose integer arguments must be within INT."""

    def make(call: Call) -> Function:
        places = [i for i, arg in enumerate(call.args) if arg.type.is_integer]

        def checked(*args: Any) -> Value:
            if any(fit_integer(args[i], INT) is None for i in places):
                return None
            return function(*args)

        return checked

    return make


def _like(text: str, pattern: str) -> bool:
    return re.match(like_regex(pattern), text) is not None


def _rlike(text: str, pattern: str) -> bool:
    return compile_regex(pattern).search(text) is not None


def _null_if_too_long(text: str) -> str | None:
    return text if len(text) <= MAX_TEXT else None


def _replace(text: str, old: str, new: str) -> str | None:
    if not old:
        return text
    # Computed before replacing, so that a result that is too long is never built.
    length = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if length <= MAX_TEXT else None


def _repeat(text: str, count: int) -> str | None:
    return text * count if len(text) * count <= MAX_TEXT else None


STRING_FUNCTIONS: dict[str, FunctionBuilder] = {
    "upper": untyped(str.upper),
    "lower": untyped(str.lower),
    "trim": untyped(lambda text: text.strip(" ")),
    "ltrim": untyped(lambda text: text.lstrip(" ")),
    "rtrim": untyped(lambda text: text.rstrip(" ")),
    "reverse": untyped(lambda text: text[::-1]),
    "initcap": untyped(_title),
    "length": untyped(len),
    "concat": untyped(lambda *texts: _null_if_too_long("".join(texts))),
    "replace": untyped(_replace),
    "translate": untyped(_translate),
    "substring": _with_int_args(_substring),
    "left": _with_int_args(lambda text, count: text[: max(count, 0)]),
    "right": _with_int_args(lambda text, count: text[-count:] if count > 0 else ""),
    "repeat": _with_int_args(_repeat),
    "lpad": _with_int_args(_lpad),
    "rpad": _with_int_args(_rpad),
    "split_part": _with_int_args(_split_part),
    "instr": untyped(lambda text, part: text.find(part) + 1),
    "like": untyped(_like),
    "rlike": untyped(_rlike),
    "startswith": untyped(str.startswith),
    "endswith": untyped(str.endswith),
    "contains": untyped(lambda text, part: part in text),
}
