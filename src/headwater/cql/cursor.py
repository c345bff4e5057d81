"""A cursor over the words of a statement, for what sqlglot's grammar does not have: statements,
windows and lengths of time. Every error says what was expected at that position."""

from __future__ import annotations

import re
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from headwater.algebra.windows import UNITS, Range, Rows, Window
from headwater.cql.tokens import NAMES, cql_error, did_you_mean, keyword_of, token_text
from headwater.errors import AlgebraError, CqlError, suggest

MAX_MICROSECONDS = 2**62
MAX_ROWS = 2**31 - 1

_SHORT = {
    "MICROSECOND": ("US", "MICRO", "MICROS"),
    "MILLISECOND": ("MS", "MILLI", "MILLIS", "MSEC", "MSECS"),
    "SECOND": ("S", "SEC", "SECS"),
    "MINUTE": ("M", "MIN", "MINS"),
    "HOUR": ("H", "HR", "HRS"),
    "DAY": ("D",),
}
UNIT_SIZES = {
    spelling: UNITS[unit]
    for unit, short in _SHORT.items()
    for spelling in (unit, unit + "S", *short)
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d*)?)([A-Za-z]*)", re.A)


class TokenCursor:
    """A position in the words of one statement."""

    __slots__ = ("index", "text", "tokens")

    def __init__(self, text: str, tokens: list[Token], index: int = 0) -> None:
        self.text = text
        self.tokens = tokens
        self.index = index

    # ---- position

    @property
    def token(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    @property
    def end(self) -> int:
        """The offset behind the last word."""
        return self.tokens[-1].end + 1 if self.tokens else len(self.text)

    def error(self, message: str, hint: str = "", at: Token | None = None) -> CqlError:
        return cql_error(self.text, message, at or self.token or self.end, hint)

    def expected_error(self, what: str, hint: str = "") -> CqlError:
        token = self.token
        found = "the end" if token is None else token_text(token, self.text)
        return self.error(f"expected {what}, found {found}", hint)

    # ---- single words

    def at_word(self, *words: str) -> bool:
        """Whether the next words are these."""
        for offset, expected in enumerate(words):
            position = self.index + offset
            if position >= len(self.tokens) or keyword_of(self.tokens[position]) != expected:
                return False
        return True

    def accept(self, *words: str) -> bool:
        if not self.at_word(*words):
            return False
        self.index += len(words)
        return True

    def expect(self, *words: str) -> None:
        for expected in words:
            if not self.accept(expected):
                token = self.token
                actual = "" if token is None else keyword_of(token)
                raise self.expected_error(expected, did_you_mean(actual, [expected]))

    def at_symbol(self, kind: TokenType) -> bool:
        token = self.token
        return token is not None and token.token_type == kind

    def accept_symbol(self, kind: TokenType) -> bool:
        if not self.at_symbol(kind):
            return False
        self.index += 1
        return True

    def expect_symbol(self, kind: TokenType, written: str) -> None:
        if not self.accept_symbol(kind):
            raise self.expected_error(written)

    def next_token(self) -> Token:
        """The next word, whatever it is; there must be one."""
        token = self.tokens[self.index]
        self.index += 1
        return token

    def expect_choice(self, what: str, *options: str) -> str:
        """One of some words, in capitals; `what` names them all."""
        token = self.token
        actual = "" if token is None else keyword_of(token)
        if actual not in options:
            raise self.expected_error(what, did_you_mean(actual, options))
        self.index += 1
        return actual

    def expect_end(self, after: str) -> None:
        if self.token is not None:
            raise self.expected_error(f"the end of the statement after {after}")

    # ---- names and constants

    def name(self, what: str) -> tuple[str, Token]:
        """A name, bare or in backquotes."""
        token = self.token
        if token is None or token.token_type not in NAMES:
            hint = ""
            if token is not None and keyword_of(token):
                hint = f"{token.text} is a word of the language; as a name it goes in backquotes"
            raise self.expected_error(what, hint)
        if not token.text.strip():
            raise self.error(f"{what} cannot be empty")
        self.index += 1
        following = self.token
        if following is not None and following.token_type == TokenType.DASH:
            # check-ins is three words; anything said about the second one would mislead.
            raise self.error("a name with - in it goes in backquotes: `check-ins`")
        return token.text, token

    def string(self, what: str) -> tuple[str, Token]:
        token = self.token
        if token is None or token.token_type != TokenType.STRING:
            raise self.expected_error(what)
        self.index += 1
        return token.text, token

    def duration(self, what: str) -> int:
        """A length of time in microseconds: 5 MINUTES, 1.5 SECONDS, 5MIN, 1 HOUR 30 MINUTES."""
        first = self.token
        total = self._duration_part(what)
        while self.at_symbol(TokenType.NUMBER):
            total += self._duration_part(what)
        if total > MAX_MICROSECONDS:
            raise self.error(f"{what} is too long a time", at=first)
        return total

    def _duration_part(self, what: str) -> int:
        token = self.token
        if token is not None and token.token_type == TokenType.DASH:
            raise self.error(f"{what} cannot be negative")
        written = (
            None
            if token is None
            # From the text, because to the tokenizer 5S is a SMALLINT and 5MIN a name.
            else _NUMBER_AND_UNIT.fullmatch(self.text[token.start : token.end + 1])
        )
        if token is None or written is None or len(written[1]) > 40:
            raise self.expected_error(f"a length of time for {what}, like 5 MINUTES")
        self.index += 1
        unit = written[2].upper()
        at = token
        if not unit:
            following = self.token
            if following is None or not keyword_of(following):
                raise self.expected_error(f"a unit of time for {what}, like MINUTES")
            at, unit = following, keyword_of(following)
            self.index += 1
        size = UNIT_SIZES.get(unit)
        if size is None:
            units = [u for name in UNITS for u in (name, name + "S")]
            raise self.error(f"{unit} is not a unit of time", suggest(unit, units), at)
        length = Decimal(written[1]) * size
        if length != length.to_integral_value():
            raise self.error(f"{what} is not a whole number of microseconds", at=token)
        return int(length)

    # ---- windows

    def window(self) -> tuple[Window, list[Token]]:
        """The window after a `[` that was read already, and the columns it partitions by."""
        start = self.token
        keys: list[Token] = []
        window: Window
        try:
            if self.accept("NOW"):
                window = Range(0)
            elif self.accept("RANGE"):
                size = None if self.accept("UNBOUNDED") else self.duration("RANGE")
                window = Range(size, self.duration("SLIDE") if self.accept("SLIDE") else None)
            else:
                # One word to the tokenizer.
                if self.accept("PARTITION BY"):
                    keys.append(self.name("a column")[1])
                    while self.accept_symbol(TokenType.COMMA):
                        keys.append(self.name("a column")[1])
                self.expect("ROWS")
                window = Rows(self._count(), tuple(key.text for key in keys))
        except AlgebraError as problem:
            raise self.error(str(problem), at=start) from None
        if not self.accept_symbol(TokenType.R_BRACKET):
            hint = ""
            if isinstance(window, Range) and window.slide is None:
                hint = "a RANGE window may go on with SLIDE and a length of time"
            raise self.expected_error("] at the end of the window", hint)
        return window, keys

    def _count(self) -> int:
        token = self.token
        if token is None or token.token_type != TokenType.NUMBER or not token.text.isdecimal():
            raise self.expected_error("how many rows, like ROWS 10")
        if len(token.text) > 10 or int(token.text) > MAX_ROWS:
            raise self.error(f"a ROWS window holds at most {MAX_ROWS:,} rows")
        self.index += 1
        return int(token.text)
