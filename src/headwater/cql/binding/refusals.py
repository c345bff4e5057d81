"""Errors for syntax that CQL does not have: where it is, and what to write instead.

sqlglot accepts more than CQL has, so every node is checked: its kind must be one that is handled,
and so must each of its parts. In a refusal, the text up to the semicolon is the message and the
rest the hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlglot import exp

from headwater.errors import AlgebraError, CqlError

Node = exp.Expr
ResultT = TypeVar("ResultT")

_UNSUPPORTED_NODES: dict[type[Node], str] = {
    exp.Window: "OVER is not part of the language; use a window on the stream: [RANGE 5 MINUTES]",
    exp.Subquery: "a query is not a value here; join it in FROM, or use IN or EXISTS in WHERE",
    exp.Select: "a query is not a value here; join it in FROM, or use IN or EXISTS in WHERE",
    exp.Exists: "EXISTS is allowed only in WHERE, alone or joined to other conditions by AND",
    exp.Lambda: "lambdas are not part of the language",
    exp.Array: "arrays are not part of the language",
    exp.Bracket: "arrays are not part of the language",
    exp.Struct: "structs are not part of the language",
    exp.Tuple: "a row of values is not an expression; write one condition for each value",
    exp.ILike: "ILIKE is not part of the language; write lower(x) LIKE lower(pattern)",
    exp.Escape: "ESCAPE is not part of the language; the backslash escapes in a pattern",
    exp.Alias: "a name with AS is allowed only in a SELECT list and in FROM",
    exp.Star: "* is allowed only in a SELECT list and in COUNT(*)",
    exp.Kwarg: "arguments are given by position here; leave out the name",
    exp.Dot: "a column has at most an alias before it; there are no structs",
    exp.Any: "ANY and ALL before a list are not part of the language; write IN",
    exp.All: "ANY and ALL before a list are not part of the language; write IN",
    exp.CurrentTimestamp: "a continuous query has no current time; compare event times instead",
    exp.CurrentDate: "a continuous query has no current time; compare event times instead",
    exp.Distinct: "DISTINCT goes after SELECT or first in an aggregate",
    exp.Order: "ORDER BY is not part of the language; a continuous result has no end to sort",
    exp.Lateral: "LATERAL is not part of the language",
    exp.Rollup: "ROLLUP is not part of the language; write one query for each grouping",
    exp.Cube: "CUBE is not part of the language; write one query for each grouping",
}
_UNSUPPORTED_PARTS = {
    "order": "ORDER BY: a continuous result has no end to sort; leave it out",
    "sort": "SORT BY: a continuous result has no end to sort; leave it out",
    "limit": "LIMIT: a continuous result has no end to cut at; use [ROWS n] on the stream",
    "offset": "OFFSET: a continuous result has no order to count in; leave it out",
    "windows": "WINDOW is not part of the language; use a window on the stream: [RANGE 5 MINUTES]",
    "qualify": "QUALIFY is not part of the language; use HAVING, or WHERE around a subquery",
    "pivots": "PIVOT is not part of the language; use an aggregate with FILTER for each column",
    "laterals": "LATERAL VIEW is not part of the language",
    "sample": "TABLESAMPLE is not part of the language; use a condition in WHERE",
    "hint": "hints are not part of the language; leave it out",
    "db": "a name has no database before it; there is one list of streams and tables",
    "catalog": "a name has no database before it; there is one list of streams and tables",
    "recursive": "WITH RECURSIVE is not part of the language",
    "grouping_sets": "GROUPING SETS is not part of the language; write one query for each grouping",
    "rollup": "ROLLUP is not part of the language; write one query for each grouping",
    "cube": "CUBE is not part of the language; write one query for each grouping",
    "all": "GROUP BY ALL is not part of the language; name the columns",
    "except_": "* EXCEPT is not part of the language; name the columns",
    "replace": "* REPLACE is not part of the language; name the columns",
    "columns": "column names after an alias are not part of the language; use AS in the SELECT",
    "symmetric": "BETWEEN SYMMETRIC is not part of the language",
    "into": "SELECT INTO is not part of the language; use CREATE QUERY .. TO",
    "method": "NATURAL and ASOF joins are not part of the language; say the condition with ON",
    "by_name": "UNION BY NAME is not part of the language; put the columns in the same order",
}


class ErrorLocator:
    """Makes errors that point at a node of the syntax tree."""

    __slots__ = ("start", "text")

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.start = start

    def error(self, message: str, at: object, hint: str = "") -> CqlError:
        """An error at the first word of the node; at the start of the query if it has none."""
        start, end = self.start, self.start
        spans = [(n.meta["start"], n.meta["end"]) for n in walk_nodes(at) if "start" in n.meta]
        if spans:
            start, end = min(spans)
        return CqlError(message, self.text, start, end - start + 1, hint)

    def gap(self, first: object, second: object) -> tuple[int, int]:
        """The end of the last word of one node, and the start of the first word of another."""
        ends = [node.meta["end"] for node in walk_nodes(first) if "end" in node.meta]
        starts = [node.meta["start"] for node in walk_nodes(second) if "start" in node.meta]
        return max(ends, default=self.start), min(starts, default=len(self.text))

    def locate_error(self, problem: AlgebraError, at: object) -> CqlError:
        """The same error, with a position in the text."""
        message, hint = _split_hint(str(problem))
        return self.error(message, at, hint)

    def build(self, node: object, make: Callable[..., ResultT], *args: object) -> ResultT:
        """The result of `make` for the arguments; its AlgebraError becomes an error at the node."""
        try:
            return make(*args)
        except AlgebraError as problem:
            raise self.locate_error(problem, node) from None

    def check_parts(self, node: Node, allowed: frozenset[str]) -> None:
        """Raises CqlError if the node has a part that is not among the allowed ones."""
        for part, value in node.args.items():
            if value and part not in allowed:
                refusal = _UNSUPPORTED_PARTS.get(
                    part, f"{part.strip('_').upper()} is not part of the language"
                )
                has_position = any("start" in below.meta for below in walk_nodes(value))
                raise self.error_at_keyword(refusal, value if has_position else node)

    def unsupported(self, node: object, expected: str) -> CqlError:
        """The error for a node of a kind that the language does not have in this position."""
        if not isinstance(node, exp.Expr):
            return self.error(f"{expected} is missing", node)
        refusal = _UNSUPPORTED_NODES.get(
            type(node), f"{node.key.upper()} is not part of the language"
        )
        return self.error_at_keyword(refusal, node)

    def error_at_keyword(self, refusal: str, node: object) -> CqlError:
        """An error at the keyword that the message begins with: the one nearest to the node."""
        message, hint = _split_hint(refusal)
        error = self.error(message, node, hint)
        # sqlglot keeps the positions of names and constants, but not of keywords such as ORDER BY.
        keyword = re.match(r"[A-Z]+(?: [A-Z]+)*", message)
        if keyword is None:
            return error
        pattern = r"\b" + keyword[0].replace(" ", r"\s+") + r"\b"
        spans = [m.span() for m in re.finditer(pattern, self.text[self.start :], re.I)]
        if not spans:
            return error
        start, end = min(spans, key=lambda place: abs(place[0] + self.start - error.offset))
        return CqlError(message, self.text, self.start + start, end - start, hint)


def _split_hint(refusal: str) -> tuple[str, str]:
    """The message, and the hint behind the semicolon."""
    message, _, hint = refusal.partition("; ")
    return message, hint


def walk_nodes(node: object) -> Iterator[Node]:
    if isinstance(node, exp.Expr):
        yield from node.walk()
    elif isinstance(node, list):
        for part in node:
            yield from walk_nodes(part)


def name_of(node: object) -> str | None:
    """The text of a plain identifier."""
    if type(node) is exp.Identifier:
        name = node.args.get("this")
        return name if isinstance(name, str) else None
    return None


def strip_parens(node: Any) -> Any:
    """The node inside any parentheses."""
    while type(node) is exp.Paren:
        node = node.args.get("this")
    return node


def operands(node: Any, kind: type[Node]) -> list[Any]:
    """The operands of a chain of ANDs (or ORs), from left to right, parentheses looked through."""
    result: list[Any] = []
    pending = [node]
    while pending:
        part = strip_parens(pending.pop())
        if type(part) is kind:
            # A stack and not recursion: a chain of thousands is nested as deep. The right one is
            # pushed first, so that the left is taken first.
            pending.append(part.args.get("expression"))
            pending.append(part.args.get("this"))
        else:
            result.append(part)
    return result
