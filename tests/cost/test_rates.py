"""Estimates of rates: against counting where that can be done, and their laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.catalog import Namespace
from headwater.algebra.conditions.predicate import (
    ANYTHING,
    NOTHING,
    Box,
    cover,
    implies,
    normalize,
)
from headwater.algebra.expressions import Column
from headwater.algebra.types import INT, STRING
from headwater.algebra.windows import UNBOUNDED, Range, Rows
from headwater.cost import (
    ColumnStatistics,
    JoinInput,
    domain_share,
    grouped_rate,
    join_rate,
    selectivity,
    tuples_in_window,
)
from headwater.cql import CreateStream, parse, parse_query

STREAMS = parse("""
CREATE STREAM s (v INT, w INT, name STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM t (v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
""")
NAMES = Namespace.of(one.stream for one in STREAMS if isinstance(one, CreateStream))
V, W = Column("s", "v", INT), Column("s", "w", INT)
KNOWN = {
    V: ColumnStatistics(100, 1, 100),
    W: ColumnStatistics(10),
    Column("s", "name", STRING): ColumnStatistics(20),
    Column("t", "v", INT): ColumnStatistics(50, 1, 50),
}


def box(condition: str) -> Box:
    query = parse_query(f"SELECT s.v FROM s [NOW], t [NOW] WHERE {condition}", NAMES)
    return normalize(query.root.input.condition)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("condition", "share"),
    [
        ("s.v = 7", 0.01),
        ("s.v BETWEEN 11 AND 30", 0.2),
        ("s.v IN (1, 2, 200)", 0.02),
        ("s.v > 90", 0.1),
        ("s.v <> 5", 0.99),
        ("s.w = 3", 0.1),
        ("s.w IN (3, 4, 7)", 0.3),
        ("s.w <> 3", 0.9),
        ("s.w > 3", 1 / 3),
        ("s.name = 'a'", 0.05),
        ("s.v = 7 AND s.w = 3", 0.001),
        ("s.v = t.v", 0.01),
        ("s.v = t.v AND t.v = 5", 0.0001),
        ("s.v < s.w", 1 / 3),
        ("s.v > 200", 0.0),
    ],
)
def test_selectivity(condition: str, share: float) -> None:
    assert selectivity(box(condition), KNOWN) == pytest.approx(share, rel=1e-6, abs=1e-12)


def test_all_and_nothing() -> None:
    assert selectivity(ANYTHING, KNOWN) == 1
    assert selectivity(NOTHING, KNOWN) == 0


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    low, high = draw(st.integers(1, 100)), draw(st.integers(1, 100))
    parts = [f"s.v BETWEEN {min(low, high)} AND {max(low, high)}"]
    if draw(st.booleans()):
        values = draw(st.lists(st.integers(1, 10), min_size=1, max_size=4))
        parts.append(f"s.w IN ({', '.join(map(str, values))})")
    return box(" AND ".join(parts))


@given(boxes(), boxes(), st.sampled_from(["hull", "set"]))
def test_a_weaker_condition_lets_no_fewer_pass(a: Box, b: Box, mode: str) -> None:
    both = cover(a, b, mode)  # type: ignore[arg-type]
    assert selectivity(both, KNOWN) >= max(selectivity(one, KNOWN) for one in (a, b)) - 1e-12
    if implies(a, b):
        assert selectivity(a, KNOWN) <= selectivity(b, KNOWN) + 1e-12


def test_an_empty_domain_has_no_share() -> None:
    nothing = box("s.v = 1").constraints[0].domain.intersect(box("s.v = 2").constraints[0].domain)
    assert domain_share(nothing, ColumnStatistics(10)) == 0


def test_windows_hold_tuples() -> None:
    assert tuples_in_window(Range(60_000_000), 2.0) == 120
    assert tuples_in_window(Rows(7), 2.0) == 7
    assert tuples_in_window(UNBOUNDED, 2.0) == math.inf


def counted(periods: tuple[int, ...], sizes: tuple[int, ...], until: int) -> float:
    """Results per tick of joining streams that send a tuple at every multiple of their period."""
    results = 0
    for now in range(until):
        for i, period in enumerate(periods):
            if now % period:
                continue
            met = 1
            for j, (other, size) in enumerate(zip(periods, sizes, strict=True)):
                if i != j:
                    last = now if j < i else now - 1
                    first = max(0, now - size + 1 - (j > i))
                    met *= last // other - (first - 1) // other
            results += met
    return results / until


@pytest.mark.parametrize(
    ("periods", "sizes"), [((2, 3), (60, 30)), ((1, 1), (10, 10)), ((2, 5, 3), (60, 100, 30))]
)
def test_the_rate_of_a_join_is_what_counting_gives(
    periods: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    inputs = [JoinInput(1 / p, size / p) for p, size in zip(periods, sizes, strict=True)]
    assert join_rate(inputs, 1.0) == pytest.approx(counted(periods, sizes, 3000), rel=0.05)


@given(st.permutations([JoinInput(1.0, 60.0), JoinInput(0.5, 150.0), JoinInput(2.0, 10.0)]))
def test_the_order_of_a_join_does_not_matter(inputs: list[JoinInput]) -> None:
    wanted = 0.01 * (1 * 150 * 10 + 0.5 * 60 * 10 + 2 * 60 * 150)
    assert join_rate(inputs, 0.01) == pytest.approx(wanted)


def test_groups() -> None:
    assert grouped_rate(100.0, 30, 60.0) == 0.5
    assert grouped_rate(0.1, 30, 60.0) == 0.1
    assert grouped_rate(100.0, 30, None) == 100.0
