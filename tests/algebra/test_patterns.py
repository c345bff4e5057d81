"""Patterns of LIKE, RLIKE and date_format: what is read, what is refused, and that none takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.patterns import compile_regex, format_tokens, like_regex
from headwater.errors import AlgebraError


def slow_like(text: str, pattern: str) -> bool:
    """The definition, without an escape."""
    parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


@given(st.text("ab\n", max_size=8), st.text("ab%_", max_size=6))
def test_like_is_what_it_is_by_definition(text: str, pattern: str) -> None:
    assert (re.match(like_regex(pattern), text) is not None) == slow_like(text, pattern)


def test_like_with_many_percents_ends() -> None:
    assert re.match(like_regex("%a" * 40 + "%b%"), "a" * 5_000) is None


@pytest.mark.parametrize("pattern", ["\\", "a\\", "c:\\temp%", "\\a", "%\\\\\\"])
def test_like_refuses_what_is_no_escape(pattern: str) -> None:
    with pytest.raises(AlgebraError, match="backslash"):
        like_regex(pattern)


FOUND = [
    ("", "", True),
    ("a|", "b", True),
    ("^a.c$", "abc\n", True),
    ("^a.c$", "abc\r\n", True),
    ("a.c", "a\rc", False),
    ("a.c", "a\u2028c", False),
    ("b$", "ab\n\n", False),
    (r"\d", "٣", False),
    (r"[\d.-]+", "1-2", True),
    ("(?i)AbC", "xaBc", True),
    ("(?i)É", "é", False),
    ("(?<year>[0-9]{4})-(?:0|1)", "on 2026-0", True),
    (r"^(\d{1,3}\.){3}\d{1,3}$", "10.0.0.255", True),
    (r"\[\]\{\}", "[]{}", True),
    ("a{2,}?b", "aaab", True),
    ("a++b", "aab", True),
    (r"[a\^-]", "^", True),
]


@pytest.mark.parametrize("pattern, text, found", FOUND)
def test_regular_expressions_that_are_read(pattern: str, text: str, found: bool) -> None:
    assert (compile_regex(pattern).search(text) is not None) == found


REFUSED = [
    "[", "]", "(", ")", "{", "}", "a{", "a{,3}", "a{3,2}", "a{1001}", "*", "+a", "a**", "a{2}{3}", "^*",
    "[]", "[z-a]", "[a", "[a&&b]", "[[a]]", "[\\d-z]", "[a-b-c]", "\\", "\\b", "\\1", "\\Q", "\\p{L}", "\\x41",
    "\\u0041", "\\é", "(?=a)", "(?!a)", "(?<=a)", "(?s).", "a(?i)b", "(?<x>a)(?<x>b)", "(?<1>a)", "(?P<x>a)",
    "(?#a)", "(a+)+", "(a|b)*", "(a*){2,}", "(a{1,3}){1,100}b", "(a|a){0,100}", "(a){101}",
    "(" * 30 + "a" + ")" * 30, "a" * 1001, "a*" * 11,
]  # fmt: skip


@pytest.mark.parametrize("pattern", REFUSED)
def test_regular_expressions_that_are_refused(pattern: str) -> None:
    with pytest.raises(AlgebraError, match="RLIKE"):
        compile_regex(pattern)


@given(st.text("ab(|)[]{}*+?^$.\\-,1&d<:i", max_size=8))
def test_whatever_is_read_is_a_regular_expression(pattern: str) -> None:
    try:
        compile_regex(pattern).search("abab")
    except AlgebraError:
        return


def test_the_parts_of_a_format() -> None:
    found = list(format_tokens("yyyy-MM'T o''clock'''ss"))
    assert found == [
        ("yyyy", True),
        ("-", False),
        ("MM", True),
        ("T o'clock'", False),
        ("ss", True),
    ]


@pytest.mark.parametrize(
    "pattern",
    ["QQQQQQQQ", "yy", "Y", "D", "u", "SSSSSSS", "[MM]", "'a", "a'", "{", "#", "EEEEE", "aa"],
)
def test_formats_that_are_refused(pattern: str) -> None:
    with pytest.raises(AlgebraError, match="date_format"):
        list(format_tokens(pattern))
