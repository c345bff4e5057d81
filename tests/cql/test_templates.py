"""Texts that differ only in constants: read from one template, with the same outcome."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.catalog import Namespace
from headwater.cql import CreateQuery, parse, parse_query
from headwater.cql.grammar import _parse_single
from headwater.cql.templates import _extract_constants
from headwater.errors import CqlError
from strategies import SOURCES

SHAPES = [
    "SELECT item FROM bids WHERE item = {n} AND note = {s}",
    "SELECT item, {n} AS c, {s} AS d FROM bids [RANGE 5 SEC] WHERE price > {n} OR item IN ({n}, 3)",
    "SELECT -{n} AS m FROM bids WHERE item > -{n} AND item - {n} < 5",
    "SELECT item FROM bids WHERE ts > TIMESTAMP '2026-01-01' AND item = {n}",
    "SELECT item FROM bids WHERE ts - ts < INTERVAL {n} MINUTES AND note = {s}",
    "SELECT ROUND(price, 2) AS p FROM bids WHERE item = {n}",
    "SELECT item, COUNT(*) AS k FROM bids GROUP BY 1 HAVING COUNT(*) > {n}",
    "SELECT note FROM bids WHERE note LIKE {s} AND EXISTS (SELECT 1 FROM asks WHERE item > {n})",
    "SELECT b.item FROM bids b LEFT JOIN asks a ON b.item = a.item AND a.cost > {n} WHERE b.item = {n}",
    "SELECT CAST(item AS DECIMAL(10, 2)) AS x FROM bids WHERE item = {n}",
    "SELECT item FROM bids [ROWS {n}] WHERE item = {n}",
    "SELECT item FROM bids WHERE nosuch = {n}",
    "SELECT item FROM bids WHERE item = {n} -- {s}",
]
NUMBERS = st.sampled_from(["0", "1", "7", "123456789", "2147483648", "1.5", "1e3"])
STRINGS = st.sampled_from(["'a'", "'it''s'", "''", "'%'", '"b"', r"'\n'", "'2026-01-01'"])


def outcome(text: str, names: Namespace, read) -> object:
    try:
        return read(text, names)
    except CqlError as problem:
        return str(problem)


@given(st.sampled_from(SHAPES), st.lists(st.tuples(NUMBERS, STRINGS), min_size=3, max_size=5))
@settings(max_examples=200, deadline=None)
def test_a_template_reads_as_the_text_does(shape: str, constants: list[tuple[str, str]]) -> None:
    names = SOURCES.copy()
    for number, string in constants:
        text = shape.format(n=number, s=string)
        assert outcome(text, names, parse_query) == outcome(text, names, _parse_single)


def test_statements_of_one_shape() -> None:
    text = "\n".join(
        f"CREATE QUERY q{n} AS SELECT item FROM bids WHERE item = {n};" for n in range(5)
    )
    found = [s for s in parse(text, SOURCES) if isinstance(s, CreateQuery)]
    assert [s.query for s in found] == [
        _parse_single(f"SELECT item FROM bids WHERE item = {n}", SOURCES) for n in range(5)
    ]


def test_an_error_in_a_known_shape_has_its_place_in_the_text() -> None:
    text = "SELECT item FROM bids WHERE item = 1;\n" * 3 + "SELECT item FROM bids WHERE itm = 1;"
    with pytest.raises(CqlError) as caught:
        parse(text, SOURCES)
    assert (caught.value.line, caught.value.column) == (4, 29)


def test_names_that_change_their_meaning() -> None:
    names = Namespace.of([SOURCES["Bids"]])
    text = "SELECT item FROM bids WHERE item = {}"
    for n in range(3):
        parse_query(text.format(n), names)
    names.remove("Bids")
    with pytest.raises(CqlError):
        parse_query(text.format(4), names)


@pytest.mark.parametrize(
    "text, shape, constants",
    [
        ("a = 1 AND b = 'x'", "a = \0number\0 AND b = \0text\0", [1, "x"]),
        ("`a 1` = 1", "`a 1` = \0number\0", [1]),
        ("s [RANGE 5 MIN] x1 1.5 2", "s [RANGE 5 MIN] x1 1.5 \0number\0", [2]),
    ],
)
def test_shapes(text: str, shape: str, constants: list[object]) -> None:
    cut = _extract_constants(text)
    assert cut is not None
    assert (cut[0], [c.value for c in cut[1]]) == (shape, constants)


@pytest.mark.parametrize("text", ["a = b", "a = 1 -- x", "a = 'it''s'", 'a = "b" + 1', "a = '\\n'"])
def test_texts_without_a_shape(text: str) -> None:
    assert _extract_constants(text) is None
