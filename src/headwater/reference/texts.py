"""The functions of texts. Positions count characters from 1; what would be too long is NULL."""

from __future__ import annotations

import re
from typing import Any

from headwater.algebra.expressions import Call
from headwater.algebra.lengths import MAX_TEXT
from headwater.algebra.patterns import like_regex, regex
from headwater.algebra.types import INT, Value
from headwater.reference.values import Function, Maker, plain, within


def _title(text: str) -> str:
    words = text.lower().split(" ")
    return " ".join(word[:1].title() + word[1:] for word in words)


def _substring(text: str, position: int, length: int = INT.bounds[1]) -> str:  # type: ignore[index]
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def _pad(text: str, length: int, pad: str) -> str:
    """What is missing to the length; the empty text if nothing is, or there is nothing to add."""
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
    place = part - 1 if part > 0 else len(parts) + part
    return parts[place] if 0 <= place < len(parts) else ""


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for i, letter in enumerate(old):
        table.setdefault(ord(letter), new[i] if i < len(new) else None)
    return text.translate(table)


def _counted(function: Function) -> Maker:
    """A function whose integer arguments must be within INT."""

    def make(call: Call) -> Function:
        places = [i for i, arg in enumerate(call.args) if arg.type.is_integer]

        def checked(*args: Any) -> Value:
            if any(within(args[i], INT) is None for i in places):
                return None
            return function(*args)

        return checked

    return make


def _like(text: str, pattern: str) -> bool:
    return re.match(like_regex(pattern), text) is not None


def _rlike(text: str, pattern: str) -> bool:
    return regex(pattern).search(text) is not None


def _short(text: str) -> str | None:
    return text if len(text) <= MAX_TEXT else None


def _replace(text: str, old: str, new: str) -> str | None:
    if not old:
        return text
    length = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if length <= MAX_TEXT else None


def _repeat(text: str, count: int) -> str | None:
    return text * count if len(text) * count <= MAX_TEXT else None


TEXTS: dict[str, Maker] = {
    "upper": plain(str.upper),
    "lower": plain(str.lower),
    "trim": plain(lambda text: text.strip(" ")),
    "ltrim": plain(lambda text: text.lstrip(" ")),
    "rtrim": plain(lambda text: text.rstrip(" ")),
    "reverse": plain(lambda text: text[::-1]),
    "initcap": plain(_title),
    "length": plain(len),
    "concat": plain(lambda *texts: _short("".join(texts))),
    "replace": plain(_replace),
    "translate": plain(_translate),
    "substring": _counted(_substring),
    "left": _counted(lambda text, count: text[: max(count, 0)]),
    "right": _counted(lambda text, count: text[-count:] if count > 0 else ""),
    "repeat": _counted(_repeat),
    "lpad": _counted(_lpad),
    "rpad": _counted(_rpad),
    "split_part": _counted(_split_part),
    "instr": plain(lambda text, part: text.find(part) + 1),
    "like": plain(_like),
    "rlike": plain(_rlike),
    "startswith": plain(str.startswith),
    "endswith": plain(str.endswith),
    "contains": plain(lambda text, part: part in text),
}
