"""`headwater format`: every statement as `unparse` writes it, with the comments of the file.

Comments are whatever stands between the tokens, so none can be overlooked: those before a statement
stay before it, one behind its semicolon stays there, and those inside move to its front.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headwater.cql import parse, unparse
from headwater.cql.statements import Statement
from headwater.cql.tokens import cut
from headwater.errors import CqlError, HeadwaterError

_BEHIND = re.compile(r"[ \t]*(--[^\n]*|/\*[^\n]*\*/)[ \t\r]*(?=\n|\Z)")
_BLOCK = re.compile(r"/\*|\*/")
_BLANK_LINES = re.compile(r"\n{3,}")
_ENDS_BLANK = re.compile(r"\n[ \t\r]*\n\s*\Z")


@dataclass
class Remarks:
    """The comments of one statement; `before` ends with its line, and keeps its blank lines."""

    before: str = ""
    inside: list[str] = field(default_factory=list)
    behind: str = ""


def formatted(text: str, statements: Sequence[Statement]) -> str:
    """The text with its statements in the one format; raises HeadwaterError rather than lose any."""
    remarks, rest = remarks_of(text)
    written = [unparse(statement) for statement in statements]
    if len(remarks) != len(written):
        raise HeadwaterError("the statements cannot be told apart; nothing was changed")
    blocks = [_block(said, words) for said, words in zip(remarks, written, strict=True)]
    result = "\n\n".join([*blocks, rest] if rest else blocks) + "\n"
    if _rewritten(result) != written:
        raise HeadwaterError("formatting would change the meaning; nothing was changed")
    return result


def _rewritten(text: str) -> list[str] | None:
    try:
        return [unparse(statement) for statement in parse(text)]
    except CqlError:
        return None


def remarks_of(text: str) -> tuple[list[Remarks], str]:
    """The comments of each statement of a text, and those behind the last one."""
    found: list[Remarks] = []
    position = 0
    for words in cut(text):
        gap = _close(text[position : words[0].start], found)
        gaps = [text[a.end + 1 : b.start] for a, b in pairwise(words)]
        found.append(Remarks(_before(gap, found), [_lines(g) for g in gaps if g.strip()]))
        position = words[-1].end + 1
    return found, _before(_close(text[position:], found), found).rstrip("\n")


def _close(gap: str, found: list[Remarks]) -> str:
    """A gap without its semicolons; what stands before the first belongs to the last statement."""
    first, *others = _split(gap)
    if not found or not others:
        return "".join([first, *others])
    if first.strip():
        found[-1].inside.append(_lines(first))
    return "".join(others)


def _split(gap: str) -> list[str]:
    """Comments and blanks, cut at the semicolons that are in no comment."""
    parts = [""]
    position = 0
    while position < len(gap):
        end = _comment_end(gap, position)
        if gap[position] == ";":
            parts.append("")
        else:
            parts[-1] += gap[position:end]
        position = end
    return parts


def _comment_end(gap: str, position: int) -> int:
    """Where the comment that starts here ends; the next character if none starts here."""
    if gap.startswith("--", position):
        end = gap.find("\n", position)
        return len(gap) if end < 0 else end
    if not gap.startswith("/*", position):
        return position + 1
    depth = 0
    for sign in _BLOCK.finditer(gap, position):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return len(gap)


def _before(gap: str, found: list[Remarks]) -> str:
    """What of a gap between two statements belongs to the second; the rest goes to the first."""
    if found and (behind := _BEHIND.match(gap)):
        found[-1].behind = behind[1].rstrip()
        gap = gap[behind.end() :]
    if not gap.strip():
        return ""
    return _lines(gap) + ("\n\n" if _ENDS_BLANK.search(gap) else "\n")


def _lines(gap: str) -> str:
    return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in gap.strip().split("\n")))


def _block(said: Remarks, words: str) -> str:
    inside = "".join(f"{comment}\n" for comment in said.inside)
    behind = f"  {said.behind}" if said.behind else ""
    return f"{said.before}{inside}{words};{behind}"
