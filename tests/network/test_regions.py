"""Regions: near sites are together, and bit vectors say which."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import NetworkError
from headwater.network import (
    STREAMREUSE,
    cluster_regions,
    nearest_regions,
    shortest_routes,
    transit_stub_network,
)


def delays_of(positions: list[float]) -> np.ndarray:
    places = np.array(positions)
    return np.abs(places[:, None] - places)


def test_two_towns() -> None:
    found = cluster_regions(delays_of([0, 1, 100, 2, 101]), 2, seed=1)
    assert found.region_of == (0, 0, 1, 0, 1)
    assert found.bits([0, 1]) == 0b01
    assert found.bits([0, 4]) == 0b11
    assert found.bits([]) == 0
    assert found.sites(0b10) == (2, 4)


def test_nearest_regions_begin_with_ones_own() -> None:
    delays = delays_of([0, 1, 100, 101, 1000])
    found = cluster_regions(delays, 3, seed=1)
    assert nearest_regions(delays, found, 2, 1) == found.bits([2])
    assert nearest_regions(delays, found, 2, 2) == found.bits([0, 2])
    assert nearest_regions(delays, found, 4, 3) == 0b111


@given(
    st.lists(st.integers(0, 50).map(float), min_size=1, max_size=20),
    st.integers(1, 6),
    st.integers(0, 5),
)
def test_laws(positions: list[float], count: int, seed: int) -> None:
    count = min(count, len(positions))
    found = cluster_regions(delays_of(positions), count, seed)
    assert found == cluster_regions(delays_of(positions), count, seed)
    assert found.count <= count
    assert len(found.region_of) == len(positions)
    everywhere = found.bits(range(len(positions)))
    assert everywhere == (1 << found.count) - 1
    assert found.sites(everywhere) == tuple(range(len(positions)))


def test_regions_of_a_transit_stub_network_are_tight() -> None:
    network = transit_stub_network(STREAMREUSE, 1)
    delays = shortest_routes(network).distance
    found = cluster_regions(delays, 16, seed=1)
    of = np.array(found.region_of)
    same = of[:, None] == of
    assert delays[same].mean() < delays[~same].mean() / 2


def test_what_has_no_regions_is_refused() -> None:
    with pytest.raises(NetworkError, match="cannot be cut into 3"):
        cluster_regions(delays_of([0, 1]), 3, seed=1)
    with pytest.raises(NetworkError, match="not connected"):
        cluster_regions(np.array([[0, np.inf], [np.inf, 0]]), 1, seed=1)
