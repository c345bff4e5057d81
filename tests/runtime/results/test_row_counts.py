"""How many rows are whose: against counting them one by one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater.reuse.row_classes import SOLE_SUBSCRIBER, Subscriber
from headwater.runtime.results.row_counts import RowCounts, sum_counts

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=40)
RANGES = st.lists(st.integers(0, 20), unique=True, max_size=8).map(sorted)


def counted(rows: list[tuple[int, int]]) -> RowCounts:
    found = sorted(Counter(rows).items())
    return RowCounts(len(rows), tuple(one for one, _ in found), tuple(n for _, n in found))


@given(st.lists(ROWS, max_size=3), st.integers(0, 4), RANGES)
def test_the_rows_of_a_member(
    parts: list[list[tuple[int, int]]], shape: int, ends: list[int]
) -> None:
    ranges = tuple(zip(ends[::2], ends[1::2], strict=False))
    rows = [row for part in parts for row in part]
    wanted = [(s, c) for s, c in rows if s == shape and any(a <= c <= b for a, b in ranges)]
    whole = sum_counts(map(counted, parts))
    assert whole.count_for(Subscriber(shape, ranges, ())) == len(wanted)
    assert whole.count_for(SOLE_SUBSCRIBER) == len(rows)
