"""Words of a CQL text: cut by sqlglot's Spark tokenizer, checked and tidied here.

Everything that can be decided from the words alone is decided before a parser sees them: signs that
are not part of the language, brackets that do not close, commas with nothing beside them, nesting
that would exhaust a recursive parser. So the parser gets only text of bounded nesting, and the
error points at the word itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headwater.errors import CqlError, suggest

MAX_TEXT = 1_000_000
MAX_TOKENS = 20_000
MAX_NESTING = 100

DIALECT = Dialect.get_or_raise("spark")

T = TokenType
TEXTUAL = frozenset({T.STRING, T.RAW_STRING, T.IDENTIFIER, T.NUMBER})

NAMES = frozenset(SparkParser.ID_VAR_TOKENS) | {T.IDENTIFIER}
COMMANDS = frozenset({T.COMMAND, T.EXECUTE, T.FETCH, T.SHOW, T.RENAME})
_PREFIXES = frozenset({T.NOT, T.DASH, T.PLUS, T.INTERVAL})
_OPENING = {T.L_PAREN: T.R_PAREN, T.L_BRACKET: T.R_BRACKET, T.CASE: T.END}
_CLOSING = {closing: opening for opening, closing in _OPENING.items()}
_SIGNS = frozenset(
    {"(", ")", "[", "]", ",", ".", ";", "+", "-", "*", "/", "%", "||", "::", "=>"}
    | {"=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>", "!"}
)
_CLAUSES = frozenset({T.FROM, T.WHERE, T.GROUP_BY, T.HAVING, T.UNION, T.JOIN, T.ON})
_BRANCHES = frozenset({T.WHEN, T.THEN, T.ELSE})
_AFTER_BRANCH = {
    T.CASE: (T.WHEN,),
    T.WHEN: (T.THEN,),
    T.THEN: (T.WHEN, T.ELSE, T.END),
    T.ELSE: (T.END,),
}
_OPERATORS = frozenset({T.AND, T.OR, T.ALIAS})
_NO_OPERAND = frozenset(
    {T.SELECT, T.DISTINCT, T.FROM, T.WHERE, T.GROUP_BY, T.HAVING, T.COMMA, T.L_PAREN, T.ON}
    | {T.AND, T.OR, T.NOT, T.WHEN, T.THEN, T.ELSE, T.BETWEEN, T.UNION}
)

UNSUPPORTED_TOKENS = {
    T.ORDER_BY: "ORDER BY: a continuous result has no end to sort; leave it out",
    T.SORT_BY: "SORT BY: a continuous result has no end to sort; leave it out",
    T.CLUSTER_BY: "CLUSTER BY: how rows are spread is not said in a query; leave it out",
    T.DISTRIBUTE_BY: "DISTRIBUTE BY: how rows are spread is not said in a query; leave it out",
    T.GROUPING_SETS: "GROUPING SETS: write one query for each grouping",
    T.PLACEHOLDER: "? is a placeholder, and no value is given for it; write the value",
    T.HINT: "hints are not part of the language; leave it out",
    T.ARROW: "lambdas and arrows are not part of the language",
    T.PIPE: "| is not part of the language; for OR write OR, to join texts write ||",
    T.AMP: "& is not part of the language; for AND write AND",
    T.HEX_STRING: "hexadecimal constants are not part of the language",
    T.DAMP: "&& is not part of the language; write AND",
}


def cql_error(text: str, message: str, at: Token | int, hint: str = "") -> CqlError:
    """The error at a word, or at an offset."""
    if isinstance(at, int):
        return CqlError(message, text, at, 1, hint)
    return CqlError(message, text, at.start, at.end - at.start + 1, hint)


def keyword_of(token: Token) -> str:
    """The word in capitals; the empty text for a quoted name, a constant or a sign."""
    text = token.text
    if (text[:1].isalpha() or text[:1] == "_") and token.token_type not in TEXTUAL:
        return text.upper()
    return ""


def token_text(token: Token, text: str) -> str:
    """The word as written in the text, shortened if it is long."""
    written = text[token.start : token.end + 1]
    return written if len(written) <= 40 else written[:37] + "..."


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A hint with the closest candidate; the empty text if none is close."""
    hint = suggest(name, candidates) if len(name) > 1 else ""
    return hint.partition("?")[0] + "?" if hint.startswith("did you mean") else ""


def split_statements(text: str) -> list[list[Token]]:
    """The words of each statement, in order; statements without words are left out.

    Raises CqlError if the text cannot be cut into words.
    """
    if len(text) > MAX_TEXT:
        raise cql_error(text, f"a text has at most {MAX_TEXT:,} characters", MAX_TEXT)
    statements: list[list[Token]] = []
    current: list[Token] = []
    for token in _tokenize(text):
        if token.token_type == T.SEMICOLON:
            statements.append(_complete_statement(text, current, token.start))
            current = []
        else:
            current.append(token)
    statements.append(_complete_statement(text, current, len(text)))
    return [statement for statement in statements if statement]


def _tokenize(text: str) -> list[Token]:
    try:
        return DIALECT.tokenize(text)
    except TokenError as problem:
        # The tokenizer reports where it gave up, which is often the end of the text.
        at, what = _find_unclosed(text)
        if at < 0:
            at, what = min(problem.start or 0, len(text)), "something here cannot be read"
        raise cql_error(text, what, at) from None


_QUOTED = re.compile(
    r"""--[^\n\r]*|(?P<comment>/\*)|(?P<jinja>\{\#)|(?P<hex>[xX]')"""
    r"""|(?P<single>')|(?P<double>")|(?P<back>`)"""
)
_CLOSERS = {
    "single": (re.compile(r"(?:[^'\\]|\\.)*+'", re.S), "this text has no closing '"),
    "double": (re.compile(r'(?:[^"\\]|\\.)*+"', re.S), 'this text has no closing "'),
    "back": (re.compile(r"[^`]*`"), "this name has no closing `"),
    "hex": (re.compile(r"(?:[0-9a-fA-F]{2})*'"), "this is not a hexadecimal constant"),
    "jinja": (re.compile(r".*?#\}", re.S), "this comment has no closing #}"),
}


def _find_unclosed(text: str) -> tuple[int, str]:
    """Where a quote or comment opens that never closes, and the message; -1 if there is none."""
    position = 0
    while (opened := _QUOTED.search(text, position)) is not None:
        kind = opened.lastgroup
        if kind is None:
            position = opened.end()
        elif kind == "comment":
            position = _end_of_comment(text, opened.end())
            if position < 0:
                return opened.start(), "this comment has no closing */"
        else:
            closer, message = _CLOSERS[kind]
            # The first that does not close is the one: what follows it is inside of it.
            closed = closer.match(text, opened.end())
            if closed is None:
                return opened.start(), message
            position = closed.end()
    return -1, ""


def _end_of_comment(text: str, position: int) -> int:
    # Comments nest in Spark.
    depth = 1
    for sign in re.compile(r"/\*|\*/").finditer(text, position):
        depth += 1 if sign.group() == "/*" else -1
        if depth == 0:
            return sign.end()
    return -1


def _complete_statement(text: str, tokens: list[Token], end: int) -> list[Token]:
    """The statement with all its words: what the tokenizer leaves uncut behind EXPLAIN and SHOW
    (it takes them for another system's commands) is cut too."""
    if not (
        len(tokens) == 2 and tokens[0].token_type in COMMANDS and tokens[1].token_type == T.STRING
    ):
        return tokens
    first = tokens[0]
    start = first.end + 1
    # A dot in front, so that the next word is not at the start, where it could be a command again.
    try:
        behind = DIALECT.tokenize("." + text[start:end])[1:]
    except TokenError:
        raise cql_error(text, "something here cannot be read", start) from None
    for token in behind:
        token.start += start - 1
        token.end += start - 1
    return [first, *behind]


Check = Callable[["_Tidier", Token], None]


class _Tidier:
    """Checks the words of a statement in one pass, and joins constants that come in pieces."""

    __slots__ = ("cases", "opened", "run", "text", "tokens")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[Token] = []
        self.opened: list[Token] = []
        self.cases: list[TokenType] = []
        self.run = 0

    def last(self) -> TokenType | None:
        return self.tokens[-1].token_type if self.tokens else None

    def follows_dot(self) -> bool:
        """Whether the next word follows a dot: it is a name then, even if it looks like a keyword."""
        return bool(self.tokens) and self.tokens[-1].token_type == T.DOT

    def last_follows_dot(self) -> bool:
        """Whether the last word follows a dot."""
        return len(self.tokens) > 1 and self.tokens[-2].token_type == T.DOT

    def open(self, token: Token) -> None:
        if token.token_type != T.CASE or not self.follows_dot():
            self.opened.append(token)
            if token.token_type == T.CASE:
                self.cases.append(T.CASE)
            if len(self.opened) > MAX_NESTING:
                raise cql_error(self.text, f"this is nested more than {MAX_NESTING} deep", token)
        self.tokens.append(token)

    def close(self, token: Token) -> None:
        if self.last() == T.COMMA:
            raise cql_error(self.text, "something is missing after this comma", self.tokens[-1])
        opening = self.opened[-1] if self.opened else None
        if token.token_type == T.END:
            if opening is not None and opening.token_type == T.CASE and not self.follows_dot():
                self.branch(token)
                self.opened.pop()
                self.cases.pop()
                return
        elif opening is None:
            raise cql_error(self.text, f"this {token.text} closes nothing", token)
        elif opening.token_type != _CLOSING[token.token_type]:
            raise _unclosed_error(self.text, opening)
        else:
            self.opened.pop()
        self.tokens.append(token)

    def branch(self, token: Token) -> None:
        """Check the order of WHEN .. THEN .. ELSE .. END."""
        if self.opened and self.opened[-1].token_type == T.CASE and not self.follows_dot():
            follows = _AFTER_BRANCH[self.cases[-1]]
            if token.token_type not in follows:
                expected = " or ".join(kind.name for kind in follows)
                raise cql_error(self.text, f"expected {expected}, found {token.text}", token)
            self.cases[-1] = token.token_type
        self.tokens.append(token)

    def comma(self, token: Token) -> None:
        self.after_operand(token, "this comma")

    def operator(self, token: Token) -> None:
        self.after_operand(token, token.text.upper())

    def after_operand(self, token: Token, written: str) -> None:
        """Refuse AND, OR, AS and a comma without an operand before them."""
        last = self.last()
        if last is None or (last in _NO_OPERAND and not self.last_follows_dot()):
            raise cql_error(self.text, f"something is missing before {written}", token)
        self.tokens.append(token)

    def clause(self, token: Token) -> None:
        if self.last() == T.COMMA:
            raise cql_error(self.text, "something is missing after this comma", self.tokens[-1])
        if token.token_type == T.FROM and self.last() == T.L_PAREN:
            raise cql_error(self.text, "a query begins with SELECT", token)
        self.tokens.append(token)

    def prefix(self, token: Token) -> None:
        # NOT NOT NOT .. nests in a recursive parser as parentheses do.
        self.run = self.run + 1 if self.last() in _PREFIXES else 0
        if self.run > MAX_NESTING:
            raise cql_error(self.text, f"this is nested more than {MAX_NESTING} deep", token)
        self.tokens.append(token)

    def dot(self, token: Token) -> None:
        """A dot joins names, or begins a number like .5"""
        if self.last() not in NAMES and not self.text[token.end + 1 : token.end + 2].isdigit():
            raise cql_error(self.text, "a name is missing before this dot", token)
        self.tokens.append(token)

    def string(self, token: Token) -> None:
        """'a' 'b' is 'ab', and 'it''s' one text with a quote in it."""
        written = token.text
        if self.last() == T.STRING:
            before = self.tokens.pop()
            quote = self.text[token.start]
            # The tokenizer makes two texts of it; only their positions show that nothing is
            # between.
            doubled = before.end + 1 == token.start and quote == self.text[before.end]
            joined = before.text + (quote if doubled else "") + written
            token = _merge_tokens(T.STRING, joined, before, token)
        elif token.token_type == T.RAW_STRING:
            token = _merge_tokens(T.STRING, written, token, token)
        self.tokens.append(token)

    def double_colon(self, token: Token) -> None:
        """Join 5.5D, which the tokenizer splits into 5.5 :: DOUBLE, all three at one position."""
        if self.tokens and token.start == self.tokens[-1].start:
            whole = self.text[token.start : token.end + 1]
            token = _merge_tokens(T.NUMBER, whole, self.tokens.pop(), token)
        self.tokens.append(token)

    def type_word(self, token: Token) -> None:
        if not self.tokens or token.start != self.tokens[-1].start:
            self.tokens.append(token)

    def refuse(self, token: Token) -> None:
        written = token_text(token, self.text)
        message, _, hint = UNSUPPORTED_TOKENS.get(
            token.token_type, f"{written} is not part of the language"
        ).partition("; ")
        raise cql_error(self.text, message, token, hint)


def _unclosed_error(text: str, opening: Token) -> CqlError:
    if opening.token_type == T.CASE:
        return cql_error(text, "this CASE has no END", opening)
    return cql_error(text, f"this {opening.text} is never closed", opening)


def _merge_tokens(kind: TokenType, written: str, first: Token, last: Token) -> Token:
    return Token(kind, written, first.line, first.col, first.start, last.end, [])


def _unsupported_types() -> Iterable[TokenType]:
    tokenizer = DIALECT.tokenizer_class
    signs = {**tokenizer.SINGLE_TOKENS, **tokenizer.KEYWORDS}
    allowed = {kind for sign, kind in signs.items() if sign in _SIGNS or sign[:1].isalpha()}
    yield from (kind for sign, kind in signs.items() if kind not in allowed)
    yield from (T.BIT_STRING, T.BYTE_STRING, T.NATIONAL_STRING, T.HEREDOC_STRING, T.UNICODE_STRING)
    yield from UNSUPPORTED_TOKENS


# Later entries win: a sign that is refused in general may have a check of its own below.
_CHECKS: dict[TokenType, Check] = {
    **dict.fromkeys(_unsupported_types(), _Tidier.refuse),
    **dict.fromkeys(_OPENING, _Tidier.open),
    **dict.fromkeys(_CLOSING, _Tidier.close),
    **dict.fromkeys(_CLAUSES, _Tidier.clause),
    **dict.fromkeys(_PREFIXES, _Tidier.prefix),
    **dict.fromkeys(_BRANCHES, _Tidier.branch),
    **dict.fromkeys(_OPERATORS, _Tidier.operator),
    T.STRING: _Tidier.string,
    T.RAW_STRING: _Tidier.string,
    T.COMMA: _Tidier.comma,
    T.DOT: _Tidier.dot,
    T.DCOLON: _Tidier.double_colon,
    **{
        DIALECT.tokenizer_class.KEYWORDS[name]: _Tidier.type_word
        for name in DIALECT.tokenizer_class.NUMERIC_LITERALS.values()
    },
}


def tidy_tokens(text: str, tokens: list[Token]) -> list[Token]:
    """The words of one statement, constants in one piece; raises CqlError at the first bad one."""
    if len(tokens) > MAX_TOKENS:
        raise cql_error(text, f"a statement has at most {MAX_TOKENS:,} words", tokens[MAX_TOKENS])
    tidier = _Tidier(text)
    tidied = tidier.tokens
    checks = _CHECKS
    for token in tokens:
        check = checks.get(token.token_type)
        if check is None:
            tidied.append(token)
        else:
            check(tidier, token)
    if tidied and tidied[-1].token_type == T.COMMA:
        raise cql_error(text, "something is missing after this comma", tidied[-1])
    if tidier.opened:
        raise _unclosed_error(text, tidier.opened[-1])
    return tidied
