"""A step reads at most so many messages of a topic, from all partitions that have some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.runtime.connectors.kafka.source import allot_messages


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 50), max_size=6), st.integers(1, 60))
def test_partitions_share_a_step(lags: dict[int, int], most: int) -> None:
    taken = allot_messages(lags, most)
    assert taken.keys() == lags.keys()
    assert all(0 <= taken[n] <= lag for n, lag in lags.items())
    assert sum(taken.values()) == min(most, sum(lags.values()))
