"""From the words of a query to sqlglot's syntax tree.

sqlglot's compiled Spark parser cannot be extended, so what CQL adds is removed from the words
first: windows in brackets are read here and stored under the position of the word before them, and
ISTREAM, DSTREAM and RSTREAM are stripped from around the query. Function names get a mark that
keeps sqlglot from rewriting calls into its own dialect-neutral ones: the binder sees every call as
it was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.functions import AGGREGATES, FUNCTIONS
from headwater.algebra.nodes import Output
from headwater.algebra.windows import Window
from headwater.cql.constants import TYPES
from headwater.cql.cursor import TokenCursor
from headwater.cql.tokens import (
    COMMANDS,
    DIALECT,
    TEXTUAL,
    cql_error,
    did_you_mean,
    keyword_of,
    token_text,
)
from headwater.errors import CqlError, suggest

T = TokenType

FUNCTION_MARK = "$"  # no function that sqlglot knows begins with it
OUTPUTS = {output.value: output for output in Output}
WINDOW_WORDS = ("RANGE", "NOW", "ROWS", "PARTITION BY")

_SYNTAX_CALLS = frozenset({"CAST", "TRY_CAST", "EXTRACT"})
_WORD_CALLS = frozenset(name.upper() for name in (*FUNCTIONS, *AGGREGATES)) - frozenset(
    {"AND", "OR", "NOT", "IN", "CASE", "DIV"}
)
_NAME_TYPES = frozenset(SparkParser.TYPE_TOKENS) - {T.INTERVAL, T.NULL} | {T.VAR}
_NESTED_TYPES = frozenset(SparkParser.NESTED_TYPE_TOKENS)
# Operators between operands that are also functions: a call only where an operand may begin.
_INFIX_CALLS = frozenset({"LIKE", "RLIKE", "REGEXP", "ISNULL", "ANY", "SOME"})
_BEFORE_OPERAND = frozenset(
    {T.SELECT, T.DISTINCT, T.COMMA, T.L_PAREN, T.WHERE, T.AND, T.OR}
    | {T.ON, T.HAVING, T.GROUP_BY, T.CASE, T.WHEN, T.THEN, T.ELSE, T.ALL}
)
_STATEMENTS = frozenset(SparkParser.STATEMENT_PARSERS) | COMMANDS
# Most words need no check; one lookup decides, as every query passes here.
_CHECKED = _STATEMENTS | {T.L_PAREN, T.STAR, T.LT}
_QUERY_STARTS = frozenset({T.SELECT, T.WITH, T.L_PAREN})
_TYPE_FOLLOWS = frozenset({T.ALIAS, T.DCOLON, T.DOT})
_KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "HAVING", "UNION", "ALL", "JOIN", "LEFT"),
    *("RIGHT", "FULL", "INNER", "CROSS", "OUTER", "ON", "USING", "AND", "OR", "NOT", "BETWEEN"),
    *("LIKE", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH", "AS"),
)


@dataclass(frozen=True, slots=True)
class Bracket:
    """A window in the text: the window, the columns it names, and its opening bracket."""

    window: Window
    keys: list[Token]
    token: Token


@dataclass(frozen=True, slots=True)
class Syntax:
    """A query as sqlglot sees it, with what was removed from its words.

    The key of `windows` is the last offset of the word before the bracket: a stream's name or
    alias, or after a subquery the alias that follows. `stars` are the last offsets of the words
    before each *, because sqlglot ignores a * after a table.
    """

    text: str
    tree: exp.Expr
    windows: dict[int, Bracket]
    stars: set[int]
    output: Output | None
    start: int


def parse_syntax(text: str, tokens: list[Token], end: int) -> Syntax:
    """The syntax tree of a query from these (tidied) words, which end at `end`; raises CqlError."""
    tokens, output = _strip_output(text, tokens)
    if not tokens:
        raise cql_error(text, "expected a query that begins with SELECT, found nothing", end)
    first = tokens[0]
    if first.token_type not in _QUERY_STARTS:
        hint = did_you_mean(keyword_of(first), ["SELECT", "WITH", *OUTPUTS])
        if keyword_of(first) in OUTPUTS:
            hint = f"the query goes in parentheses: {keyword_of(first)}(SELECT ...)"
        found = token_text(first, text)
        raise cql_error(
            text, f"expected a query that begins with SELECT, found {found}", first, hint
        )
    words = _TokenScanner(text, tokens)
    words.read()
    tree = _parse_tree(text, words.remaining)
    return Syntax(text, tree, words.windows, words.stars, output, first.start)


def _strip_output(text: str, tokens: list[Token]) -> tuple[list[Token], Output | None]:
    """The words without ISTREAM( .. ) around them all, or without SELECT ISTREAM or ISTREAM(..)."""
    if len(tokens) < 3:
        return tokens, None
    output = OUTPUTS.get(keyword_of(tokens[0]))
    if output is not None and tokens[1].token_type == T.L_PAREN:
        closing = _find_closing(tokens, 1)
        if closing + 1 < len(tokens):
            raise _output_error(text, output.value, tokens[closing + 1])
        return tokens[2:closing], output
    output = OUTPUTS.get(keyword_of(tokens[1]))
    if output is None or tokens[0].token_type != T.SELECT:
        return tokens, None
    following = tokens[2]
    if following.token_type == T.L_PAREN:
        closing = _find_closing(tokens, 2)
        if closing + 1 < len(tokens) and tokens[closing + 1].token_type != T.FROM:
            raise cql_error(
                text, f"expected FROM after SELECT {output.value}( .. )", tokens[closing + 1]
            )
        return [tokens[0], *tokens[3:closing], *tokens[closing + 1 :]], output
    starts_item = following.token_type in TEXTUAL or following.token_type in (T.STAR, T.DASH)
    if starts_item or (keyword_of(following) and following.token_type not in (T.FROM, T.ALIAS)):
        return [tokens[0], *tokens[2:]], output
    return tokens, None


def _output_error(text: str, name: str, at: Token) -> CqlError:
    return cql_error(text, f"{name}( .. ) goes around the whole query, once", at)


def _find_closing(tokens: list[Token], opening: int) -> int:
    """The index of the closing parenthesis; `tidy_tokens` has checked that they are balanced."""
    depth = 0
    for index in range(opening, len(tokens)):
        kind = tokens[index].token_type
        depth += (kind == T.L_PAREN) - (kind == T.R_PAREN)
        if depth == 0:
            return index
    return len(tokens) - 1


class _TokenScanner:
    """Makes one pass over the words of a query; those for sqlglot are in `remaining`."""

    __slots__ = ("remaining", "stars", "text", "tokens", "windows")

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.remaining: list[Token] = []
        self.windows: dict[int, Bracket] = {}
        self.stars: set[int] = set()

    def read(self) -> None:
        tokens, remaining, index = self.tokens, self.remaining, 0
        bracket, checked = T.L_BRACKET, _CHECKED
        while index < len(tokens):
            token = tokens[index]
            if token.token_type is bracket:
                index = self.bracket(index)
                continue
            if token.token_type in checked and remaining:
                self.check(token, index)
            remaining.append(token)
            index += 1

    def check(self, token: Token, index: int) -> None:
        kind, before = token.token_type, self.remaining[-1]
        if kind == T.L_PAREN:
            self.mark(before)
            self.check_opening(index)
        elif kind == T.STAR:
            self.stars.add(before.end)
        elif kind == T.LT:
            if before.token_type in _NESTED_TYPES:
                message = "arrays, maps and structs are not part of the language"
                raise cql_error(self.text, message, before)
        elif before.token_type == T.R_PAREN:
            # sqlglot would read a statement of its own after WITH x AS (..).
            hint = "as a name it goes in backquotes"
            raise cql_error(
                self.text, f"{token_text(token, self.text)} is not expected here", token, hint
            )

    def check_opening(self, opening: int) -> None:
        """Check what sqlglot does not: AS ( is followed by a query, and FILTER ( by WHERE."""
        before, following = self.remaining[-1].token_type, self.tokens[opening + 1]
        if before == T.ALIAS and following.token_type not in _QUERY_STARTS:
            raise cql_error(self.text, "expected a query that begins with SELECT", following)
        if before == T.FILTER and following.token_type != T.WHERE and len(self.remaining) > 1:
            raise cql_error(self.text, "expected WHERE after FILTER (", following)

    def mark(self, name: Token) -> None:
        """Mark a name before a parenthesis as that of a function."""
        remaining = self.remaining
        before = remaining[-2].token_type if len(remaining) > 1 else None
        written = keyword_of(name)
        # In x AS DECIMAL(5, 2) the parenthesis belongs to a type, and CAST( .. AS ..) is no call.
        if not written or before in _TYPE_FOLLOWS or written in _SYNTAX_CALLS:
            return
        if written in _INFIX_CALLS:
            position = -3 if before == T.NOT else -2
            is_call = (
                len(remaining) < -position or remaining[position].token_type in _BEFORE_OPERAND
            )
        else:
            is_call = name.token_type in _NAME_TYPES or written in _WORD_CALLS
        if not is_call:
            return
        if written in OUTPUTS:
            raise _output_error(self.text, written, name)
        remaining[-1] = Token(
            T.VAR, FUNCTION_MARK + name.text.lower(), name.line, name.col, name.start, name.end, []
        )

    def bracket(self, index: int) -> int:
        opening, following = self.tokens[index], self.tokens[index + 1]
        if keyword_of(following) not in WINDOW_WORDS:
            raise cql_error(
                self.text,
                "expected a window: [RANGE ..], [NOW], [ROWS ..] or [PARTITION BY .. ROWS ..]",
                following,
                did_you_mean(keyword_of(following), WINDOW_WORDS) or "the language has no arrays",
            )
        cursor = TokenCursor(self.text, self.tokens, index + 1)
        window, keys = cursor.window()
        anchor = self.window_anchor(index, cursor.index)
        if anchor in self.windows:
            raise cql_error(self.text, "a stream has one window", opening)
        self.windows[anchor] = Bracket(window, keys, opening)
        return cursor.index

    def window_anchor(self, start: int, stop: int) -> int:
        """The word that the window belongs to: the one before it, or after `)` the next alias."""
        tokens = self.tokens
        if start and tokens[start - 1].token_type != T.R_PAREN:
            return tokens[start - 1].end
        if stop < len(tokens) and tokens[stop].token_type == T.ALIAS:
            stop += 1
        if not start or stop >= len(tokens):
            raise cql_error(self.text, "a window goes after a stream in FROM", tokens[start])
        return tokens[stop].end


def _parse_tree(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = DIALECT.parser().parse(tokens, text)
    except RecursionError:
        raise cql_error(text, "this query is nested too deeply", tokens[0]) from None
    except ParseError as problem:
        raise _translate_error(text, tokens, problem) from None
    except Exception:  # sqlglot fails in many ways over words in an order it did not foresee
        raise cql_error(text, "this query cannot be read", tokens[0]) from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise cql_error(text, "this query cannot be read", tokens[0])
    return tree


# The first that matches decides, so the special ones come before "Expecting" and "Expected".
_COMPLAINTS = [
    (re.compile(r"Expected table name|Required .*\.(From|Table)'"), "expected a stream or table"),
    (re.compile(r"Expected CTE to have alias"), "expected a name after WITH"),
    (re.compile(r"Expected TYPE after CAST|Expected type"), "unknown type {word}"),
    (re.compile(r"Found multiple '([^']+)'"), "{0} is given twice"),
    (re.compile(r"Expecting (\S+)"), "expected {0}, found {word}"),
    (re.compile(r"Expected ([^<]+)"), "expected {0}"),
    (re.compile(r"Required keyword"), "expected an expression {side} {word}"),
]


def _translate_error(text: str, tokens: list[Token], problem: ParseError) -> CqlError:
    """sqlglot's error in the words of CQL, at the word it is about."""
    details = problem.errors[0] if problem.errors else {}
    position = (details.get("line"), details.get("col"))
    last = len(tokens) - 1
    index = next((i for i, t in enumerate(tokens) if (t.line, t.col) == position), last)
    token = tokens[index]
    written = token_text(token, text)
    description = str(details.get("description") or problem)
    for pattern, message in _COMPLAINTS:
        if complaint := pattern.match(description):
            side = "after" if index == last else "before"
            translated = message.format(*complaint.groups(), word=written, side=side)
            break
    else:
        translated = f"{written} is not expected here"
    return cql_error(text, translated, token, _hint(tokens, index, translated))


def _hint(tokens: list[Token], index: int, message: str) -> str:
    if message.startswith("unknown type"):
        return suggest(tokens[index].text, [*TYPES, "DECIMAL"])
    if tokens[index].token_type == T.DASH and message.endswith("here"):
        return "a name with - in it goes in backquotes: `check-ins`"
    return _suggest_keyword(tokens, index)


def _suggest_keyword(tokens: list[Token], index: int) -> str:
    """A hint if this word or the one before it looks like a misspelt keyword."""
    best, close = "", 0.7
    for token in tokens[max(0, index - 1) : index + 1]:
        written = keyword_of(token)
        if token.token_type != T.VAR or written in _KEYWORDS or len(written) > 12:
            continue
        for keyword in _KEYWORDS:
            ratio = SequenceMatcher(None, written, keyword).ratio()
            if ratio > close:
                best, close = f"did you mean {keyword}?", ratio
    return best
