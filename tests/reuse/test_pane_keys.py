"""Grouped queries that would make panes of nearly every row are kept apart; all others share."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import CreateStream, parse, parse_query
from headwater.reuse import QuerySignature, minimal_operator, signature_of
from headwater.reuse.pane_keys import (
    MAX_PANES_PER_ROW,
    Distinct,
    expected_groups,
    keys_multiply,
    pane_length,
)

DECLARED = (
    "CREATE STREAM views (visitor INT, page INT, country STRING, mobile BOOLEAN, ts TIMESTAMP) "
    "TIMESTAMP BY ts FROM CLIENT"
)
(VIEWS,) = (s.stream for s in parse(DECLARED) if isinstance(s, CreateStream))
NAMES = Namespace.of([VIEWS])
SECOND = 1_000_000


def grouped(
    keys: str, window: str = "[RANGE 60 SEC SLIDE 10 SEC]", where: str = ""
) -> QuerySignature:
    text = f"SELECT {keys}, COUNT(*) AS n FROM views {window}{where} GROUP BY {keys}"
    return signature_of(canonicalize(parse_query(text, NAMES)))


def known(counts: Mapping[str, float]) -> Distinct:
    return lambda stream, column: counts.get(column)


def apart(
    one: QuerySignature, other: QuerySignature, rate: float, counts: dict[str, float]
) -> bool:
    return keys_multiply(minimal_operator(one), other, lambda stream: rate, known(counts))


def test_values_that_multiply_beyond_the_rows_are_kept_apart() -> None:
    many = {"visitor": 1000.0, "page": 1000.0}
    assert apart(grouped("visitor"), grouped("page"), 1000.0, many)
    assert apart(grouped("page"), grouped("visitor"), 1000.0, many)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("visitor", "visitor"),
        ("visitor, page", "page"),
        ("visitor", "visitor, page"),
    ],
)
def test_keys_that_contain_the_others_share_however_many_there_are(one: str, other: str) -> None:
    many = {"visitor": 1e9, "page": 1e9}
    assert not apart(grouped(one), grouped(other), 1000.0, many)


def test_few_values_share() -> None:
    few = {"visitor": 10.0, "page": 20.0}
    assert not apart(grouped("visitor"), grouped("page"), 1000.0, few)
    assert not apart(grouped("visitor"), grouped("mobile"), 1000.0, {"visitor": 1000.0})


def test_where_each_has_a_pane_for_every_row_nothing_is_lost_by_sharing() -> None:
    assert not apart(grouped("visitor"), grouped("page"), 10.0, {"visitor": 1e9, "page": 1e9})


def test_without_a_rate_or_a_slide_nothing_is_known_against_sharing() -> None:
    many = {"visitor": 1000.0, "page": 1000.0}
    assert not apart(grouped("visitor"), grouped("page"), 0.0, many)
    flows = "[RANGE 60 SEC]"
    assert not apart(grouped("visitor", flows), grouped("page", flows), 1000.0, many)


def test_unknown_columns_count_as_some_values() -> None:
    assert apart(grouped("visitor"), grouped("country"), 100.0, {})
    assert not apart(grouped("visitor"), grouped("country"), 10_000.0, {})


def test_a_pane_is_as_long_as_the_finer_slide() -> None:
    """Where a query slides more often, panes hold fewer rows: then more of them are alone in theirs."""
    one, other = grouped("visitor"), grouped("page", "[RANGE 60 SEC SLIDE 1 SEC]")
    assert pane_length(minimal_operator(one)) == 10 * SECOND
    counts = {"visitor": 100.0, "page": 50.0}
    assert not apart(one, grouped("page"), 2000.0, counts)
    assert apart(one, other, 2000.0, counts)


@given(st.integers(1, 400), st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**32))
def test_what_is_decided_is_near_to_what_counting_says(
    rows: int, visitors: int, pages: int, seed: int
) -> None:
    rng = random.Random(seed)
    data = [(rng.randrange(visitors), rng.randrange(pages)) for _ in range(rows)]
    together, by_visitor, by_page = (
        len(set(data)),
        len({v for v, _ in data}),
        len({p for _, p in data}),
    )
    counts = {"visitor": float(visitors), "page": float(pages)}
    decided = apart(grouped("visitor"), grouped("page"), rows / 10, counts)
    if decided:
        assert together > (MAX_PANES_PER_ROW - 0.25) * rows
    elif together > (MAX_PANES_PER_ROW + 0.25) * rows and rows > 20:
        assert by_visitor + by_page > 0.75 * together


@given(st.floats(0, 1e6), st.floats(1, 1e9))
def test_groups_are_no_more_than_rows_or_values(rows: float, values: float) -> None:
    found = expected_groups(rows, values)
    assert 0 <= found <= min(rows, values) * (1 + 1e-9)
