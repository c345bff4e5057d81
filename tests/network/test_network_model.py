"""Networks are checked when they are built."""

from __future__ import annotations

import math

import pytest

from headwater.errors import NetworkError
from headwater.network import Link, Network, Site

SITES = (Site("a"), Site("b"), Site("core", router=True))


def test_sites_are_found_by_name() -> None:
    network = Network(SITES, ())
    assert network.position_of("core") == 2
    assert network.hosts == (0, 1)
    with pytest.raises(NetworkError, match=r"no site cor; did you mean core\?"):
        network.position_of("cor")


def test_what_makes_no_network_is_refused() -> None:
    with pytest.raises(NetworkError, match="two sites are called a"):
        Network((Site("a"), Site("b"), Site("a")), ())
    with pytest.raises(NetworkError, match="leads to site 3, but there are 3 sites"):
        Network(SITES, (Link(0, 3, 1.0),))


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ((1, 1, 1.0), "to itself"),
        ((0, 1, -1.0), "not negative"),
        ((0, 1, math.nan), "finite"),
        ((0, 1, math.inf), "finite"),
        ((0, 1, 1.0, -1.0), "not negative"),
        ((0, 1, 1.0, 1.0, 0.0), "bandwidth is more than 0"),
    ],
)
def test_links_have_possible_values(link: tuple[float, ...], said: str) -> None:
    with pytest.raises(NetworkError, match=said):
        Link(*link)  # type: ignore[arg-type]
