"""Latency matrices: the real one, and mistakes that are refused with their line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import shared

from headwater.errors import InputError
from headwater.network import load_latencies, shortest_routes


def test_a_link_takes_half_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("0 10 4\n20 0 6\n\n4 6 0\n")
    network = load_latencies(tmp_path / "m")
    latencies = {(link.a, link.b): link.latency for link in network.links}
    assert latencies == {(0, 1): 0.0075, (0, 2): 0.002, (1, 2): 0.003}
    assert shortest_routes(network).distance[0, 1] == 0.005


def test_commas_separate_as_blanks_do(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("0 10\n20 0\n")
    (tmp_path / "m.csv").write_text("0,10\n20, 0\n")
    assert load_latencies(tmp_path / "m.csv") == load_latencies(tmp_path / "m")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1\n1 0\n2 2\n", "line 1: 2 numbers, but 3 lines: not a square"),
        ("0 1\n1 x\n", "line 2: 'x' is not a number"),
        ("0 1\n-1 0\n", "line 2: -1 is not a time"),
        ("0 nan\n1 0\n", "line 1: nan is not a time"),
        ("", "no numbers"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "m").write_text(text)
    with pytest.raises(InputError, match=said):
        load_latencies(tmp_path / "m")


def test_a_missing_matrix_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_latencies(tmp_path / "none")


@pytest.mark.slow
def test_planet_lab() -> None:
    network = load_latencies(shared("latency") / "PlanetLabData_1")
    assert len(network.sites) == 490
    assert len(network.links) == 490 * 489 // 2
    found = shortest_routes(network).distance
    direct = np.array([link.latency for link in network.links])
    least = np.array([found[link.a, link.b] for link in network.links])
    assert (least <= direct).all()
    assert (least < direct).any()
