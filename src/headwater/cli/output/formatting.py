"""`headwater format`: every statement as `unparse` writes it, with the comments of the file.

Comments are everything between the tokens, so none can be overlooked: those before a statement stay
before it, one after its semicolon stays there, and those inside move to its front.
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

_TRAILING = re.compile(r"[ \t]*(--[^\n]*|/\*[^\n]*\*/)[ \t\r]*(?=\n|\Z)")
_BLOCK = re.compile(r"/\*|\*/")
_BLANK_LINES = re.compile(r"\n{3,}")
_ENDS_BLANK = re.compile(r"\n[ \t\r]*\n\s*\Z")


@dataclass
class Comments:
    """The comments of one statement; `before` ends with a line feed and keeps its blank lines."""

    before: str = ""
    inside: list[str] = field(default_factory=list)
    trailing: str = ""


def format_statements(text: str, statements: Sequence[Statement]) -> str:
    """Format a text; raises HeadwaterError rather than lose or change a statement."""
    comments_of_statements, rest = collect_comments(text)
    texts = [unparse(statement) for statement in statements]
    if len(comments_of_statements) != len(texts):
        raise HeadwaterError("cannot match comments to statements; nothing was changed")
    blocks = [
        _format_block(comments, statement_text)
        for comments, statement_text in zip(comments_of_statements, texts, strict=True)
    ]
    result = "\n\n".join([*blocks, rest] if rest else blocks) + "\n"
    # The formatter is trusted only if its output reads back as the same statements.
    if _reparse(result) != texts:
        raise HeadwaterError("formatting would change the meaning; nothing was changed")
    return result


def _reparse(text: str) -> list[str] | None:
    try:
        return [unparse(statement) for statement in parse(text)]
    except CqlError:
        return None


def collect_comments(text: str) -> tuple[list[Comments], str]:
    """Collect the comments of each statement, and those after the last one."""
    comments: list[Comments] = []
    position = 0
    for tokens in split_statements(text):
        gap = _take_inside_comments(text[position : tokens[0].start], comments)
        gaps = [text[a.end + 1 : b.start] for a, b in pairwise(tokens)]
        comments.append(
            Comments(
                _take_trailing_comment(gap, comments), [_clean_lines(g) for g in gaps if g.strip()]
            )
        )
        position = tokens[-1].end + 1
    return comments, _take_trailing_comment(
        _take_inside_comments(text[position:], comments), comments
    ).rstrip("\n")


def _take_inside_comments(gap: str, comments: list[Comments]) -> str:
    """Remove the semicolons of a gap; comments before the first one go to the last statement."""
    first, *others = _split_at_semicolons(gap)
    if not comments or not others:
        return "".join([first, *others])
    if first.strip():
        comments[-1].inside.append(_clean_lines(first))
    return "".join(others)


def _split_at_semicolons(gap: str) -> list[str]:
    """Split comments and blanks at the semicolons that are not inside a comment."""
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
    """The end of the comment that starts here; the next position if none does."""
    if gap.startswith("--", position):
        end = gap.find("\n", position)
        return len(gap) if end < 0 else end
    if not gap.startswith("/*", position):
        return position + 1
    depth = 0  # block comments nest, as in Spark SQL
    for sign in _BLOCK.finditer(gap, position):
        depth += 1 if sign[0] == "/*" else -1
        if depth == 0:
            return sign.end()
    return len(gap)


def _take_trailing_comment(gap: str, comments: list[Comments]) -> str:
    """Move a comment on the line of the previous statement to it; returns the rest of the gap."""
    if comments and (trailing := _TRAILING.match(gap)):
        comments[-1].trailing = trailing[1].rstrip()
        gap = gap[trailing.end() :]
    if not gap.strip():
        return ""
    return _clean_lines(gap) + ("\n\n" if _ENDS_BLANK.search(gap) else "\n")


def _clean_lines(gap: str) -> str:
    return _BLANK_LINES.sub("\n\n", "\n".join(line.rstrip() for line in gap.strip().split("\n")))


def _format_block(comments: Comments, statement: str) -> str:
    inside = "".join(f"{comment}\n" for comment in comments.inside)
    trailing = f"  {comments.trailing}" if comments.trailing else ""
    return f"{comments.before}{inside}{statement};{trailing}"
