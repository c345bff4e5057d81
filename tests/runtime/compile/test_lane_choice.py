"""How many pairs a step would compare that joins all lanes at once."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.expressions import Column
from headwater.algebra.types import INT
from headwater.runtime.compile.lane_choice import count_compared_pairs

KEYS = st.lists(st.none() | st.integers(0, 4), max_size=12)


def key(alias: str) -> Column:
    return Column(alias, "k", INT)


def both_ways(one: str, other: str) -> list[tuple[Column, Column]]:
    return [(key(one), key(other)), (key(other), key(one))]


def compared(
    order: str, equalities: list[tuple[Column, Column]], **rows: list[int | None]
) -> float | None:
    columns = {name: pa.chunked_array([values], pa.int32()) for name, values in rows.items()}
    return count_compared_pairs(list(order), equalities, lambda alias, _: columns[alias])


@given(KEYS, KEYS)
def test_pairs_of_two_sources_are_exact(a: list[int | None], b: list[int | None]) -> None:
    pairs = sum(x is not None and x == y for x, y in product(a, b))
    assert compared("ab", both_ways("a", "b"), a=a, b=b) == pairs
    assert compared("ba", both_ways("a", "b"), a=a, b=b) == pairs


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 4))
def test_pairs_of_three_sources(a: list[int], met: int, last: int) -> None:
    """Exact where every key occurs equally often."""
    b, c = [k for k in range(4) for _ in range(met)], [k for k in range(4) for _ in range(last)]
    equalities = [*both_ways("a", "b"), *both_ways("b", "c")]
    assert compared("abc", equalities, a=a, b=b, c=c) == len(a) * met + len(a) * met * last


def test_a_source_without_a_key_is_not_counted() -> None:
    assert compared("abc", both_ways("a", "b"), a=[1], b=[1], c=[1]) is None
    assert compared("ab", [], a=[1], b=[1]) is None
