"""Statistics: only what changed by more than the factor is sent, and nobody is further off than that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import PlanError
from headwater.federation.distribution.statistics import TAU, publish

values = st.floats(0, 1e6)


@given(st.lists(st.tuples(values, values), min_size=1, max_size=20))
def test_receivers_are_within_the_factor(pairs: list[tuple[float, float]]) -> None:
    known, measured = np.array(pairs).T
    done = publish(known, measured)
    low, high = np.minimum(done.known, measured), np.maximum(done.known, measured)
    assert np.all(high <= (1 + TAU) * low)
    unsent = np.setdiff1d(np.arange(len(known)), done.sent)
    assert np.array_equal(done.known[unsent], known[unsent])
    assert len(publish(done.known, measured).sent) == 0


def test_small_changes_are_not_sent_and_large_ones_are() -> None:
    done = publish(np.array([10.0, 10.0, 10.0, 0.0]), np.array([11.9, 12.1, 8.0, 1.0]))
    assert done.sent.tolist() == [1, 2, 3]
    with pytest.raises(PlanError, match="tau"):
        publish(np.ones(1), np.ones(1), -0.1)
