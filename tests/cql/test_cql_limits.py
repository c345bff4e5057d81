"""Texts that are too long, too deep or grow too much are refused, and soon.

How soon is counted in calls, which are the same on every machine: at most so many for each character.
Calls inside sqlglot's compiled parser are not seen by the count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from cql_texts import NAMES

from headwater.cql import parse, parse_query
from headwater.cql.tokens import MAX_TEXT, MAX_TOKENS
from headwater.errors import CqlError

DEEP = {
    "parentheses": lambda n: "SELECT " + "(" * n + "num" + ")" * n + " FROM flights",
    "parentheses left open": lambda n: "SELECT " + "(" * n,
    "calls": lambda n: "SELECT " + "abs(" * n + "num" + ")" * n + " FROM flights",
    "unknown calls": lambda n: "SELECT " + "f(" * n + "num" + ")" * n + " FROM flights",
    "types as calls": lambda n: "SELECT " + "int(" * n + "num" + ")" * n + " FROM flights",
    "casts": lambda n: "SELECT " + "CAST(" * n + "num" + " AS INT)" * n + " FROM flights",
    "types": lambda n: "SELECT CAST(num AS " + "ARRAY<" * n + "INT" + ">" * n + ") FROM flights",
    "NOT": lambda n: "SELECT " + "NOT " * n + "boarding FROM flights",
    "NOT in parentheses": lambda n: (
        "SELECT " + "NOT (" * n + "boarding" + ")" * n + " FROM flights"
    ),
    "!": lambda n: "SELECT " + "! " * n + "boarding FROM flights",
    "minus": lambda n: "SELECT " + "- " * n + "num FROM flights",
    "plus": lambda n: "SELECT " + "+ " * n + "num FROM flights",
    "signs": lambda n: "SELECT " + "- NOT + " * n + "num FROM flights",
    "CASE": lambda n: (
        "SELECT " + "CASE WHEN boarding THEN " * n + "1" + " END" * n + " FROM flights"
    ),
    "CASE left open": lambda n: "SELECT " + "CASE WHEN " * n,
    "sums": lambda n: "SELECT " + "num + " * n + "num FROM flights",
    "comparisons": lambda n: "SELECT num" + " = num" * n + " FROM flights",
    "double colons": lambda n: "SELECT num" + "::int::string" * n + " FROM flights",
    "IS NULL": lambda n: "SELECT num" + " IS NULL" * n + " FROM flights",
    "INTERVAL": lambda n: "SELECT " + "INTERVAL " * n + "'5' DAY FROM flights",
    "BETWEEN": lambda n: "SELECT num" + " BETWEEN num AND num" * n + " FROM flights",
    "subqueries": lambda n: "SELECT * FROM " + "(SELECT * FROM " * n + "flights" + ") AS x" * n,
    "joins in parentheses": lambda n: (
        "SELECT * FROM " + "(flights JOIN " * n + "flights" + " ON TRUE)" * n
    ),
    "EXISTS": lambda n: (
        "SELECT num FROM flights WHERE "
        + "EXISTS (SELECT 1 FROM flights WHERE " * n
        + "boarding"
        + ")" * n
    ),
    "brackets": lambda n: "SELECT num" + "[" * n + "1" + "]" * n + " FROM flights",
    "braces": lambda n: "SELECT " + "{" * n + "num FROM flights",
    "unions in parentheses": lambda n: (
        "(" * n + "SELECT num FROM flights" + " UNION ALL SELECT num FROM flights)" * n
    ),
    "WITH in WITH": lambda n: (
        "WITH a AS (" * n + "SELECT num FROM flights" + ") SELECT num FROM a" * n
    ),
    "EXPLAIN": lambda n: "EXPLAIN " * n,
    "comments": lambda n: "/*" * n + " SELECT",
    "pipes": lambda n: "FROM flights " + "|> SELECT 1 " * n,
}


CALLS_PER_CHARACTER = 40
"""Half as much again as the worst of the texts here needs, which has two casts every 13 characters (26.5)."""


def count_calls(work: Callable[[], object]) -> int:
    """How many functions are called and left, those written in C too."""
    calls = 0

    def count(*event: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def most_calls(text: str) -> int:
    return 5_000 + CALLS_PER_CHARACTER * len(text)


def test_work_that_grows_with_the_square_is_noticed() -> None:
    text = DEEP["NOT"](400)
    calls = count_calls(
        lambda: [text.find("x", n) for n in range(len(text)) for _ in range(n // 4)]
    )
    assert calls > most_calls(text)


@pytest.mark.parametrize("depth", [200, 2_000, pytest.param(6_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("sort", DEEP)
def test_deep_texts_are_refused_soon(sort: str, depth: int) -> None:
    text = DEEP[sort](depth)
    refused: list[CqlError] = []

    def read() -> None:
        try:
            parse(text, NAMES)
        except CqlError as error:
            refused.append(error)

    assert count_calls(read) < most_calls(text)
    assert len(refused) == 1 and 0 <= refused[0].offset <= len(text)


@pytest.mark.parametrize(
    "sort",
    [
        "parentheses",
        "calls",
        "NOT in parentheses",
        "minus",
        "CASE",
        "sums",
        "unions in parentheses",
    ],
)
def test_texts_as_deep_as_people_write_are_read(sort: str) -> None:
    parse(DEEP[sort](40), NAMES)


@pytest.mark.long
def test_flat_texts_may_be_long() -> None:
    many = range(3_000)
    texts = [
        "SELECT num FROM flights WHERE " + " AND ".join(f"num <> {n}" for n in many),
        "SELECT num FROM flights WHERE " + " OR ".join(f"num = {n}" for n in many),
        f"SELECT num FROM flights WHERE num IN ({', '.join(map(str, many))})",
        f"SELECT {' || '.join(['gate'] * 3_000)} AS x FROM flights",
        f"SELECT {', '.join(f'num AS n{n}' for n in many)} FROM flights",
        "SELECT CASE "
        + " ".join(f"WHEN num = {n} THEN {n}" for n in many)
        + " END AS x FROM flights",
        " UNION ALL ".join(["SELECT num FROM flights"] * 250),
    ]
    for text in texts:
        assert count_calls(lambda text=text: parse_query(text, NAMES)) < most_calls(text)


def test_a_text_too_long() -> None:
    with pytest.raises(CqlError, match="at most 1,000,000 characters"):
        parse("-" * (MAX_TEXT + 1))


def test_a_statement_too_long() -> None:
    with pytest.raises(CqlError, match="at most 20,000 words"):
        parse("SELECT " + "num, " * MAX_TOKENS + "num FROM flights", NAMES)


def test_many_statements_in_one_text() -> None:
    text = "\n".join(
        f"CREATE QUERY q{n} AS SELECT num FROM flights WHERE num = {n};" for n in range(2_000)
    )
    assert len(parse(text, NAMES)) == 2_000


def test_with_names_that_double() -> None:
    doubling = ", ".join(
        f"a{n} AS (SELECT x.num FROM a{n - 1} AS x, a{n - 1} AS y)" for n in range(1, 25)
    )
    text = f"WITH a0 AS (SELECT num FROM flights), {doubling} SELECT num FROM a24"
    with pytest.raises(CqlError, match="more than 300 SELECTs"):
        parse_query(text, NAMES)


def test_stars_that_multiply() -> None:
    with pytest.raises(CqlError, match="at most 4,000 columns"):
        parse_query("SELECT " + ", ".join(["*"] * 3_000) + " FROM flights", NAMES)


def test_too_many_relations() -> None:
    relations = ", ".join(f"flights f{n}" for n in range(100))
    with pytest.raises(CqlError, match="at most 64 relations"):
        parse_query(f"SELECT f0.num FROM {relations}", NAMES)


@pytest.mark.parametrize(
    "number", ["9" * 5_000, "1" + "0" * 400 + ".5", "1e" + "9" * 50, "0." + "0" * 100 + "1"]
)
def test_numbers_too_long(number: str) -> None:
    for text in (f"SELECT {number} AS x FROM flights", f"SELECT num FROM flights [ROWS {number}]"):
        with pytest.raises(CqlError):
            parse_query(text, NAMES)
    with pytest.raises(CqlError):
        parse_query(f"SELECT num FROM flights [RANGE {number} DAYS]", NAMES)
