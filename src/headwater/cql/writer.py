"""Expressions and names as CQL text: what is written here reads back as the same expression."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot.parsers.spark import SparkParser

from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import COMPARISONS, AggregateCall
from headwater.algebra.types import NULL
from headwater.algebra.windows import Range, Rows, Window, format_duration
from headwater.cql.constants import literal_text
from headwater.cql.tokens import DIALECT

ColumnText = Callable[[Column], str]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Words of the grammar that it never takes for anything else where a name is written.
_HARMLESS = frozenset(
    {"COMMENT", "DATE", "FILE", "FORMAT", "INDEX", "NUMBER", "TEXT", "TIME", "TIMESTAMP", "UUID"}
)
_KNOWN_WORDS = (
    {word.upper() for word in DIALECT.tokenizer_class.KEYWORDS} - _HARMLESS
    | {word.upper() for word in SparkParser.NO_PAREN_FUNCTION_PARSERS}
    | {"ISTREAM", "DSTREAM", "RSTREAM", "NOW", "GROUP", "ORDER", "BY"}
)

# How tightly an operator binds: an operand that binds less gets parentheses.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)
_LEVELS = {
    "or": _OR,
    "and": _AND,
    "not": _NOT,
    **dict.fromkeys((*COMPARISONS, "in", "like", "rlike", "is_null"), _TEST),
    "+": _SUM,
    "-": _SUM,
    **dict.fromkeys(("*", "/", "%", "div"), _PRODUCT),
    "neg": _SIGN,
}


def name_text(name: str) -> str:
    """The name, in backquotes if it is not a plain word or is a word of the language."""
    if _PLAIN.fullmatch(name) and name.upper() not in _KNOWN_WORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def column_text(column: Column) -> str:
    """The column with the alias of its relation."""
    if not column.relation:
        return name_text(column.name)
    return f"{name_text(column.relation)}.{name_text(column.name)}"


def window_text(window: Window) -> str:
    """The window in brackets; the empty text for the default window."""
    if isinstance(window, Rows):
        keys = ", ".join(map(name_text, window.partition_by))
        return f"[PARTITION BY {keys} ROWS {window.count}]" if keys else f"[ROWS {window.count}]"
    if window == Range(None):
        return ""
    if window == Range(0):
        return "[NOW]"
    size = "UNBOUNDED" if window.size is None else format_duration(window.size)
    return (
        f"[RANGE {size}]"
        if window.slide is None
        else f"[RANGE {size} SLIDE {format_duration(window.slide)}]"
    )


def expr_text(expr: Expr, column: ColumnText = column_text) -> str:
    """The expression in CQL, with as few parentheses as it needs."""
    return _Writer(column).write(expr)


def condition_text(expr: Expr, column: ColumnText = column_text) -> str:
    """The expression as one of several conditions joined by AND."""
    return _Writer(column).write(expr, _NOT)


def operand_text(expr: Expr, column: ColumnText = column_text) -> str:
    """The expression as the left side of a test like IN."""
    return _Writer(column).write(expr, _SUM)


def call_text(call: AggregateCall, column: ColumnText = column_text) -> str:
    """The aggregate in CQL."""
    inner = "*" if call.arg is None else expr_text(call.arg, column)
    text = f"{call.name}({'DISTINCT ' if call.distinct else ''}{inner})"
    if call.filter is not None:
        text += f" FILTER (WHERE {expr_text(call.filter, column)})"
    return text


class _Writer:
    """Writes expressions; columns are written by `column`."""

    def __init__(self, column: ColumnText) -> None:
        self.column = column

    def write(self, expr: Expr, least: int = _OR) -> str:
        """The text; in parentheses if it binds less than `least`."""
        if isinstance(expr, Column):
            return self.column(expr)
        if isinstance(expr, Literal):
            text = literal_text(expr)
            return f"({text})" if text.startswith("-") and least > _SUM else text
        level = _TEST if _is_negation(expr) else _LEVELS.get(expr.name, _ATOM)
        text = self.call(expr)
        return f"({text})" if level < least else text

    def call(self, expr: Call) -> str:
        name, args = expr.name, expr.args
        if name in ("and", "or"):
            return f" {name.upper()} ".join(self.write(arg, _LEVELS[name] + 1) for arg in args)
        if name == "not":
            return self.negation(expr)
        if name == "is_null":
            return f"{self.write(args[0], _SUM)} IS NULL"
        if name == "in":
            return self.membership(args, "IN")
        if name in COMPARISONS:
            return f"{self.write(args[0], _SUM)} {name} {self.write(args[1], _SUM)}"
        if name in ("like", "rlike"):
            return f"{self.write(args[0], _SUM)} {name.upper()} {self.write(args[1], _SUM)}"
        if name in _LEVELS and name != "neg":
            level = _LEVELS[name]
            # Operators bind to the left, so an equal one on the right needs parentheses.
            return f"{self.write(args[0], level)} {name.upper()} {self.write(args[1], level + 1)}"
        if name == "neg":
            # -(5) is not the constant -5, and -(-x) must not begin a comment.
            inner = self.write(args[0])
            return f"-{inner}" if isinstance(args[0], Column) else f"-({inner})"
        if name == "case":
            return self.case(args)
        if name == "cast":
            return f"CAST({self.write(args[0])} AS {expr.type})"
        return f"{name}({', '.join(self.write(arg) for arg in args)})"

    def negation(self, expr: Call) -> str:
        inner = expr.args[0]
        if isinstance(inner, Call):
            if inner.name == "is_null":
                return f"{self.write(inner.args[0], _SUM)} IS NOT NULL"
            if inner.name == "in":
                return self.membership(inner.args, "NOT IN")
            if inner.name in ("like", "rlike"):
                left, right = (self.write(arg, _SUM) for arg in inner.args)
                return f"{left} NOT {inner.name.upper()} {right}"
        return f"NOT {self.write(inner, _TEST)}"

    def membership(self, args: tuple[Expr, ...], operator: str) -> str:
        listed = ", ".join(self.write(arg) for arg in args[1:])
        return f"{self.write(args[0], _SUM)} {operator} ({listed})"

    def case(self, args: tuple[Expr, ...]) -> str:
        parts = ["CASE"]
        for test, value in zip(args[0:-1:2], args[1:-1:2], strict=True):
            parts.append(f"WHEN {self.write(test)} THEN {self.write(value)}")
        if args[-1] != Literal(None, NULL):
            parts.append(f"ELSE {self.write(args[-1])}")
        return " ".join([*parts, "END"])


def _is_negation(expr: Call) -> bool:
    """NOT IN, NOT LIKE, IS NOT NULL: written as one test."""
    inner = expr.args[0] if expr.name == "not" else None
    return isinstance(inner, Call) and inner.name in ("is_null", "in", "like", "rlike")
