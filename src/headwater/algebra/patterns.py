"""The patterns of LIKE, RLIKE and date_format: which are part of the language, and what they mean.

A pattern is a constant and is read when a query is submitted. It is refused then if Java's engine
would fail on it in the middle of a step, interpret it differently from the reference evaluator, or
need time that grows exponentially with a text. Nothing here needs a JVM: the language has the
subset of regular expressions and formats that is the same everywhere, and tests compare it with
Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from headwater.errors import AlgebraError, suggest

MAX_REGEX_LENGTH = 1_000
"""How long a regular expression may be."""
MAX_REGEX_DEPTH = 20
MAX_REPEATS = 1_000
"""The largest number in {n,m} after a single character."""
MAX_GROUP_REPEATS = 100
"""The largest number of times that a group is repeated: Java needs stack for each."""
# Each unbounded quantifier adds a power of the length of the text, and the ways multiply that.
MAX_WAYS = 10_000
MAX_UNBOUNDED = 10


# ---- LIKE


def like_parts(pattern: str) -> list[str]:
    """The regular expressions of the parts between the % of a LIKE pattern; raises AlgebraError."""
    parts = [""]
    letters = iter(pattern)
    for letter in letters:
        if letter == "%":
            parts.append("")
        elif letter == "_":
            parts[-1] += "."
        elif letter == "\\":
            escaped = next(letters, "")
            if not escaped or escaped not in "_%\\":
                what = f"\\{escaped}" if escaped else "a backslash at the end"
                raise AlgebraError(
                    f"LIKE: {what} is no escape; after a backslash comes _, % or a backslash"
                    " (in quotes two backslashes are one, so four stand for one in the text)"
                )
            parts[-1] += re.escape(escaped)
        else:
            parts[-1] += re.escape(letter)
    return parts


@lru_cache(maxsize=1024)
def like_regex(pattern: str) -> str:
    """The LIKE pattern as a regular expression, for Python and Java alike; raises AlgebraError.

    Every part is searched for after the one before it, as early as possible and without
    backtracking, so the time does not grow with the number of %.
    """
    # (?!.) is the end of the text in both languages; \Z allows a line feed behind it in Java.
    first, *rest = like_parts(pattern)
    if not rest:
        return rf"(?s)\A{first}(?!.)"
    *middle, last = rest
    between = "".join(f"(?>.*?{part})" for part in middle if part)
    return rf"(?s)\A{first}{between}.*{last}(?!.)"


# ---- regular expressions


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a regular expression in Python's syntax, and in how many `ways` it can match:
    without the quantifiers that have no upper bound, which are counted in `unbounded`.

    `single`: exactly one character; `repeatable`: not a position between characters.
    """

    python: str
    ways: int = 1
    unbounded: int = 0
    single: bool = False
    repeatable: bool = True


# Java's . stops at all of these, and its $ is also before the last line end; Python's know \n only.
_LINE_ENDS = "\n\r\x85\u2028\u2029"
_ANY = _Part(f"[^{_LINE_ENDS}]", single=True)
_START = _Part(r"\A", repeatable=False)
_END = _Part(rf"(?=(?:\r\n|[{_LINE_ENDS[1:]}]|(?<!\r)\n)?\Z)", repeatable=False)
_CLASSES = "dDwWsS"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TIMES = re.compile(r"\{(\d{1,6})(?:(,)(\d{1,6})?)?\}")
_NAME = re.compile(r"\?<([A-Za-z][A-Za-z0-9]*)>")


@lru_cache(maxsize=1024)
def compile_regex(pattern: str) -> re.Pattern[str]:
    """The regular expression as Java means it; raises AlgebraError if it is not in the language."""
    if len(pattern) > MAX_REGEX_LENGTH:
        raise AlgebraError(f"RLIKE: a pattern has at most {MAX_REGEX_LENGTH:,} letters")
    # Java's \d, \w, \s and (?i) know ASCII only, unless a flag says otherwise.
    flags = re.ASCII
    start = 0
    if pattern.startswith("(?i)"):
        flags, start = re.ASCII | re.IGNORECASE, 4
    reader = _RegexReader(pattern, start)
    whole = reader.alternatives(0)
    if reader.at < len(pattern):
        raise reader.error("a ) without its (", r"write \) for the character")
    if whole.ways > MAX_WAYS or whole.unbounded > MAX_UNBOUNDED:
        raise AlgebraError(
            "RLIKE: the pattern could match a text in too many ways, and would take too long;"
            f" use fewer quantifiers inside repeated groups, and at most {MAX_UNBOUNDED} of * and +"
        )
    return re.compile(whole.python, flags)


class _RegexReader:
    """Reads a regular expression from left to right."""

    def __init__(self, pattern: str, at: int) -> None:
        self.pattern = pattern
        self.at = at
        self.names: set[str] = set()

    def error(self, what: str, hint: str) -> AlgebraError:
        return AlgebraError(f"RLIKE: {what} at character {self.at + 1} of the pattern; {hint}")

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def alternatives(self, depth: int) -> _Part:
        if depth > MAX_REGEX_DEPTH:
            raise self.error(f"groups nested more than {MAX_REGEX_DEPTH} deep", "use fewer")
        branches = [self.sequence(depth)]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence(depth))
        if len(branches) == 1:
            return branches[0]
        ways = sum(part.ways for part in branches)
        unbounded = max(part.unbounded for part in branches)
        return _Part("|".join(part.python for part in branches), ways, unbounded)

    def sequence(self, depth: int) -> _Part:
        python, ways, unbounded = "", 1, 0
        while self.peek() not in ("", "|", ")"):
            part = self.quantified_atom(depth)
            python += part.python
            ways = min(ways * part.ways, MAX_WAYS + 1)
            unbounded += part.unbounded
        return _Part(python, ways, unbounded)

    def quantified_atom(self, depth: int) -> _Part:
        part = self.atom(depth)
        times = self.quantifier()
        if times is None:
            return part
        if not part.repeatable:
            raise self.error("nothing to repeat", "a quantifier follows a character or a group")
        least, most, python = times
        mode = self.peek() if self.peek() in ("?", "+") else ""
        self.at += len(mode)
        if self.peek() in ("*", "+", "?", "{"):
            raise self.error("one quantifier after another", "put the first part in a group")
        if part.single:
            alone = mode == "+"
            ways = 1 if alone or most is None else most - least + 1
            unbounded = int(most is None and not alone)
            return _Part(part.python + python + mode, ways, unbounded)
        return self.repeated_group(part, least, most, python + mode)

    def repeated_group(self, part: _Part, least: int, most: int | None, python: str) -> _Part:
        if most is None or most > MAX_GROUP_REPEATS:
            raise self.error(
                "a group repeated without end"
                if most is None
                else f"a group repeated {most} times",
                f"repeat a character or a class like [a-z.], or a group at most {MAX_GROUP_REPEATS}"
                " times: {0,10}",
            )
        ways = 0
        for times in range(least, most + 1):
            # The power is cut at 20: 2**20 is beyond MAX_WAYS already, and larger ones take long.
            ways = min(ways + min(part.ways ** min(times, 20), MAX_WAYS + 1), MAX_WAYS + 1)
        return _Part(f"(?:{part.python}){python}", ways, part.unbounded * most)

    def quantifier(self) -> tuple[int, int | None, str] | None:
        """The quantifier at this position: least, most (None: no end), and its text."""
        letter = self.peek()
        if letter in ("*", "+", "?") and letter:
            self.at += 1
            return int(letter == "+"), 1 if letter == "?" else None, letter
        if letter != "{":
            return None
        match = _TIMES.match(self.pattern, self.at)
        if match is None:
            raise self.error("a { that is no quantifier", r"write {2}, {2,} or {2,5}, or \{")
        least = int(match[1])
        most = least if match[2] is None else None if match[3] is None else int(match[3])
        if max(least, most or 0) > MAX_REPEATS or (most is not None and most < least):
            raise self.error(f"{match[0]}", f"the numbers rise, and are at most {MAX_REPEATS:,}")
        self.at = match.end()
        return least, most, match[0]

    def atom(self, depth: int) -> _Part:
        letter = self.peek()
        if letter == "(":
            return self.group(depth)
        if letter == "[":
            return self.character_class()
        if letter == "\\":
            return _Part(self.escape(), single=True)
        if letter in "*+?{":
            raise self.error(f"nothing before {letter}", f"write \\{letter} for the character")
        if letter in "]}":
            raise self.error(f"a {letter} alone", f"write \\{letter} for the character")
        self.at += 1
        if letter == ".":
            return _ANY
        if letter in "^$":
            return _START if letter == "^" else _END
        return _Part(re.escape(letter), single=True)

    def group(self, depth: int) -> _Part:
        self.at += 1
        if self.peek() == "?":
            self.group_kind()
        inner = self.alternatives(depth + 1)
        if self.peek() != ")":
            raise self.error("a ( that is not closed", r"write \( for the character")
        self.at += 1
        return _Part(f"(?:{inner.python})", inner.ways, inner.unbounded)

    def group_kind(self) -> None:
        named = _NAME.match(self.pattern, self.at)
        if named is not None and named[1] not in self.names:
            self.names.add(named[1])
            self.at = named.end()
        elif self.pattern.startswith("?:", self.at):
            self.at += 2
        else:
            raise self.error(
                "a special group", "there is (..), (?:..), (?<name>..) and, first of all, (?i)"
            )

    def escape(self) -> str:
        """A backslash and what follows, in Python's syntax: a character or a class."""
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in _CONTROLS:
            written = re.escape(_CONTROLS[letter])
        elif letter and letter in _CLASSES:
            written = f"\\{letter}"
        elif letter and letter.isascii() and not letter.isalnum() and letter.isprintable():
            written = re.escape(letter)
        else:
            raise self.error(
                f"\\{letter}",
                f"after a backslash comes a sign or one of {', '.join([*_CLASSES, *_CONTROLS])}",
            )
        self.at += 2
        return written

    def character_class(self) -> _Part:
        self.at += 1
        negated = self.peek() == "^"
        self.at += negated
        python = ""
        while self.peek() != "]":
            python += self.class_item(first=not python)
        if not python:
            raise self.error("an empty class", r"write \] for the character")
        self.at += 1
        return _Part(f"[{'^' if negated else ''}{python}]", single=True)

    def class_item(self, first: bool) -> str:
        """A character, a range or an escape in a class."""
        low, is_one = self.class_character(first)
        following = self.pattern[self.at + 1 : self.at + 2]
        if self.peek() != "-" or following in ("]", ""):
            return low
        self.at += 1
        high, other = self.class_character(first=False)
        if not (is_one and other) or _code_point(low) > _code_point(high):
            raise self.error("a range that is none", r"write [a-z]; a - alone goes last, or as \-")
        return f"{low}-{high}"

    def class_character(self, first: bool) -> tuple[str, bool]:
        """A character in Python's syntax, and whether it is a single one, not a class like \\d."""
        letter = self.peek()
        if letter == "":
            raise self.error("a [ that is not closed", r"write \[ for the character")
        if letter == "\\":
            written = self.escape()
            return written, written[1:] not in tuple(_CLASSES) or len(written) == 1
        last = self.pattern[self.at + 1 : self.at + 2] == "]"
        # In Java, [ nests classes and && intersects them; in Python they are characters.
        if letter in "[&^" or (letter == "-" and not (first or last)):
            raise self.error(f"a {letter} in a class", f"write \\{letter} for the character")
        self.at += 1
        return re.escape(letter), True


def _code_point(written: str) -> int:
    return ord(written[-1])


# ---- formats of times

FORMAT_PARTS = (
    *("yyyy", "MM", "M", "MMM", "MMMM", "dd", "d", "EEE", "EEEE", "HH", "H", "hh", "h", "a"),
    *("mm", "m", "ss", "s", "S", "SS", "SSS", "SSSS", "SSSSS", "SSSSSS"),
)
_FORMAT_TOKEN = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z'\[\]#{}]+")


def format_tokens(pattern: str) -> Iterator[tuple[str, bool]]:
    """The parts of a format of times: each a letter group of FORMAT_PARTS (True) or a text (False).

    Raises AlgebraError.
    """
    position = 0
    while position < len(pattern):
        token = _FORMAT_TOKEN.match(pattern, position)
        if token is None:
            raise AlgebraError(
                f"date_format: {pattern[position]} is not known in a format; texts go in single quotes,"
                " which are doubled inside the quotes of the format"
            )
        part = token.group()
        position = token.end()
        if part[0].isascii() and part[0].isalpha():
            if part not in FORMAT_PARTS:
                raise AlgebraError(
                    f"date_format: {part} is not known in a format; {suggest(part, FORMAT_PARTS)}"
                )
            yield part, True
        elif part == "''":
            yield "'", False
        else:
            yield part[1:-1].replace("''", "'") if part[0] == "'" else part, False
