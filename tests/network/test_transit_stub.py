"""The generator makes the shapes of the papers, connected and the same for the same seed."""

from __future__ import annotations

import networkx as nx
import pytest

from headwater.errors import NetworkError
from headwater.network import (
    COSMOS,
    COSMOS_DISSEMINATION,
    STREAMREUSE,
    Tier,
    TransitStubShape,
    transit_stub_network,
)
from headwater.network.transit_stubs import ACCESS, BACKBONE, LOCAL


@pytest.mark.parametrize(
    ("shape", "nodes", "hosts"),
    [(STREAMREUSE, 132, 128), (COSMOS, 4096, 4032), (COSMOS_DISSEMINATION, 1500, 1440)],
)
def test_the_networks_of_the_papers(shape: TransitStubShape, nodes: int, hosts: int) -> None:
    network = transit_stub_network(shape, seed=1)
    assert (len(network.sites), len(network.hosts)) == (nodes, hosts)
    graph = nx.Graph((link.a, link.b) for link in network.links)
    assert nx.is_connected(graph)
    assert len(graph) == nodes


def test_the_seed_decides() -> None:
    assert transit_stub_network(STREAMREUSE, 7) == transit_stub_network(STREAMREUSE, 7)
    assert transit_stub_network(STREAMREUSE, 7) != transit_stub_network(STREAMREUSE, 8)


@pytest.mark.parametrize("seed", range(5))
def test_a_stub_is_left_only_through_its_transit_node(seed: int) -> None:
    network = transit_stub_network(STREAMREUSE, seed)
    for link in network.links:
        a, b = network.sites[link.a], network.sites[link.b]
        tier = BACKBONE if a.router and b.router else ACCESS if a.router or b.router else LOCAL
        assert (link.cost, link.bandwidth) == (tier.cost, tier.bandwidth)
        assert tier.latency[0] <= link.latency <= tier.latency[1]
        if tier is LOCAL:
            assert a.name.rsplit(".", 1)[0] == b.name.rsplit(".", 1)[0]
        if tier is ACCESS:
            assert b.name.startswith(f"{a.name}.")
    access = sum(
        network.sites[link.a].router != network.sites[link.b].router for link in network.links
    )
    assert access == 4 * 4


def test_a_network_of_routers_alone() -> None:
    assert transit_stub_network(TransitStubShape(2, 3, 0, 0), 1).hosts == ()


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(NetworkError, match="at least one transit node"):
        TransitStubShape(0, 1, 1, 1)
    with pytest.raises(NetworkError, match="probability"):
        TransitStubShape(1, 1, 1, 1, density=2.0)
    with pytest.raises(NetworkError, match="least to a largest"):
        Tier((2.0, 1.0), 1.0, 1.0)
