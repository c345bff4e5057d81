"""Whatever is thrown at it, the reader returns statements or a CqlError with a place in the text."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from cql_texts import NAMES, Writer, damaged, noise
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cql import parse, parse_query, unparse
from headwater.errors import CqlError, CqlErrors


def read(text: str) -> bool:
    """Whether the text is CQL; fails if reading it does anything but say so."""
    try:
        statements = parse(text, NAMES)
    except CqlErrors as refused:
        for error in refused.errors:
            assert 0 <= error.offset <= len(text)
            assert error.message
            assert str(error).startswith(f"line {error.line}, column {error.column}: ")
        return False
    for statement in statements:
        assert parse(unparse(statement), NAMES.copy()) == (statement,)
    return True


def mutation(seed: int) -> str:
    rng = random.Random(seed)
    return damaged(rng, Writer(rng).statement())


def bytes_of(seed: int) -> str:
    return noise(random.Random(seed))


def run(make: Callable[[int], str], first: int, count: int) -> int:
    """How many of the texts were read as CQL after all."""
    return sum(read(make(seed)) for seed in range(first, first + count))


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.long) for first in range(500, 3_000, 500))]
)
def test_damaged_statements(first: int) -> None:
    assert run(mutation, first, 500) > 5


def test_bytes_that_are_no_text() -> None:
    run(bytes_of, 0, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000_000, 10_100_000, 10_000))
def test_many_damaged_statements(first: int) -> None:
    run(mutation, first, 10_000)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000_000, 10_100_000, 10_000))
def test_many_bytes_that_are_no_text(first: int) -> None:
    run(bytes_of, first, 10_000)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    read(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30), st.sampled_from(["'", '"', "`"]))
def test_any_text_in_quotes(text: str, quote: str) -> None:
    read(f"SELECT {quote}{text}{quote} AS x FROM flights")


WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "AS", "AND", "OR", "NOT", "IN", "EXISTS"),
    *("CASE", "WHEN", "THEN", "ELSE", "END", "NULL", "TRUE", "CAST", "BETWEEN", "LIKE", "IS"),
    *("DISTINCT", "UNION", "ALL", "JOIN", "LEFT", "ON", "USING", "WITH", "BY", "INTERVAL", "DATE"),
    *("TIMESTAMP", "RANGE", "NOW", "ROWS", "MINUTES", "count", "flights", "f", "num", "gate", "ts"),
    *(
        "5",
        "1.5",
        "'x'",
        "(",
        ")",
        "(",
        ")",
        "[",
        "]",
        ",",
        ",",
        ".",
        "*",
        "+",
        "-",
        "=",
        "::",
        "||",
    ),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_words_in_any_order(words: list[str]) -> None:
    read(" ".join(words))
    read("SELECT num FROM flights WHERE " + " ".join(words))


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_a_text_that_breaks_off(cut: int) -> None:
    text = Writer(random.Random(99)).query()
    try:
        parse_query(text[:cut], NAMES)
    except CqlError as error:
        assert 0 <= error.offset <= cut
