"""How many pairs a step would compare that joins all lanes at once."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.expressions import Column
from headwater.algebra.types import BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Type, decimal
from headwater.runtime.api import open_state
from headwater.runtime.catalog import stream_log
from headwater.runtime.compile.frames import TermInput
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


@pytest.mark.parametrize(
    ("type_", "arrow", "values"),
    [
        (BOOLEAN, pa.bool_(), [True, False]),
        (STRING, pa.string(), ["a", ""]),
        (DOUBLE, pa.float64(), [0.5, -1.0]),
        (DATE, pa.date32(), [3, 4]),
        (TIMESTAMP, pa.timestamp("us", "UTC"), [3, 4]),
        (decimal(4, 1), pa.decimal128(4, 1), [Decimal("1.5"), Decimal("-2.0")]),
    ],
)
def test_keys_of_every_type(type_: Type, arrow: Any, values: list[Any]) -> None:
    one, other = Column("a", "k", type_), Column("b", "k", type_)
    columns = {"a": [*values, None], "b": [values[0], values[0], None]}
    read = {name: pa.chunked_array([of_name], arrow) for name, of_name in columns.items()}
    assert count_compared_pairs("ab", [(other, one)], lambda alias, _: read[alias]) == 2


def test_keys_are_read_within_the_times_of_a_term(tmp_path: Path) -> None:
    """Also from files in a folder whose name looks like a column, as a state directory may be called."""
    with open_state(tmp_path / "k=7") as headwater:
        headwater.execute("CREATE STREAM s (k INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT")
        for rows in ([(1, 10), (None, 20)], [(2, 30), (3, 40)]):
            headwater.push("s", rows, timestamp_unit="us")
        segments = tuple(headwater.catalog.segments(stream_log("s"), 0))
        bounds = {(None, None): [1, None, 2, 3], (20, 30): [None, 2], (41, 50): []}
        for (least, largest), keys in bounds.items():
            read = TermInput(segments, least, largest).read_column("k", lambda s: s.path)
            assert read.to_pylist() == keys


def test_keys_of_different_types_are_not_counted() -> None:
    pairs = [(Column("b", "k", DATE), Column("a", "k", TIMESTAMP))]
    assert count_compared_pairs("ab", pairs, lambda *_: pa.chunked_array([[1]])) is None


def test_a_source_without_a_key_is_not_counted() -> None:
    assert compared("abc", both_ways("a", "b"), a=[1], b=[1], c=[1]) is None
    assert compared("ab", [], a=[1], b=[1]) is None
