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
from headwater.cql.tokens import split_statements
from headwater.errors import CqlError, HeadwaterError

_BEHIND = re.compile(r"[ \t]*(--[^\n]*|/\*[^\n]*\*/)[ \t\r]*(?=\n|\Z)")
_BLOCK = re.compile(r"/\*|\*/")
_BLANK_LINES = re.compile(r"\n{3,}")
_ENDS_BLANK = re.compile(r"\n[ \t\r]*\n\s*\Z")


@dataclass
class Comments:
    """The comments of one statement; `before` ends with its line, and keeps its blank lines."""

    before: str = ""
    inside: list[str] = field(default_factory=list)
    trailing: str = ""


def format_statements(text: str, statements: Sequence[Statement]) -> str:
    """The text with its statements in the one format; raises HeadwaterError rather than lose any."""
    comments_of_statements, rest = collect_comments(text)
    written = [unparse(statement) for statement in statements]
    if len(comments_of_statements) != len(written):
        raise HeadwaterError("the statements cannot be told apart; nothing was changed")
    blocks = [
        _format_block(comments, statement_text)
        for comments, statement_text in zip(comments_of_statements, written, strict=True)
    ]
    result = "\n\n".join([*blocks, rest] if rest else blocks) + "\n"
    if _reparse(result) != written:
        raise HeadwaterError("formatting would change the meaning; nothing was changed")
    return result


def _reparse(text: str) -> list[str] | None:
    try:
        return [unparse(statement) for statement in parse(text)]
    except CqlError:
        return None


def collect_comments(text: str) -> tuple[list[Comments], str]:
    """The comments of each statement of a text, and those behind the last one."""
    comments: list[Comments] = []
    position = 0
    for words in split_statements(text):
        gap = _take_inside_comments(text[position : words[0].start], comments)
        gaps = [text[a.end + 1 : b.start] for a, b in pairwise(words)]
        comments.append(
            Comments(
                _take_trailing_comment(gap, comments), [_clean_lines(g) for g in gaps if g.strip()]
            )
        )
        position = words[-1].end + 1
    return comments, _take_trailing_comment(
        _take_inside_comments(text[position:], comments), comments
    ).rstrip("\n")


def _take_inside_comments(gap: str, comments: list[Comments]) -> str:
    """A gap without its semicolons; what stands before the first belongs to the last statement."""
    first, *others = _split_at_semicolons(gap)
    if not comments or not others:
        return "".join([first, *others])
    if first.strip():
        comments[-1].inside.append(_clean_lines(first))
    return "".join(others)


def _split_at_semicolons(gap: str) -> list[str]:
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


def _take_trailing_comment(gap: str, comments: list[Comments]) -> str:
    """What of a gap between two statements belongs to the second; the rest goes to the first."""
    if comments and (trailing := _BEHIND.match(gap)):
        comments[-1].trailing = trailing[1].rstrip()
        gap = gap[trailing.end() :]
    if not gap.strip():
        return ""
    return _clean_lines(gap) + ("\n\n" if _ENDS_BLANK.search(gap) else "\n")


def _clean_lines(gap: str) -> str:
    return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in gap.strip().split("\n")))


def _format_block(comments: Comments, statement: str) -> str:
    inside = "".join(f"{comment}\n" for comment in comments.inside)
    behind = f"  {comments.trailing}" if comments.trailing else ""
    return f"{comments.before}{inside}{statement};{behind}"
