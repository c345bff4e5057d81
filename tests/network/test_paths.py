"""Shortest ways are those that networkx finds."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from networks import networks

from headwater.errors import NetworkError
from headwater.network import (
    COSMOS,
    STREAMREUSE,
    Link,
    Network,
    Site,
    shortest_routes,
    transit_costs,
    transit_stub_network,
)
from headwater.network.paths import RouteMetric, link_values

LINE = Network(
    (Site("a"), Site("b"), Site("c"), Site("far")),
    (Link(0, 1, 1.0, 2.0), Link(1, 2, 1.0, 3.0), Link(0, 2, 5.0, 1.0), Link(0, 1, 4.0, 1.0)),
)


def graph_of(network: Network) -> nx.MultiGraph:
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(len(network.sites)))
    for number, link in enumerate(network.links):
        graph.add_edge(link.a, link.b, key=number, latency=link.latency, cost=link.cost)
    return graph


@pytest.mark.parametrize("by", ["latency", "cost"])
@settings(max_examples=100, deadline=None)
@given(network=networks())
def test_distances_are_those_of_networkx(by: RouteMetric, network: Network) -> None:
    found = shortest_routes(network, by)
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph_of(network), weight=by))
    for a in range(len(network.sites)):
        for b in range(len(network.sites)):
            assert found.distance[a, b] == lengths[a].get(b, math.inf)


@settings(max_examples=100, deadline=None)
@given(network=networks())
def test_totals_are_sums_over_the_links_of_the_way(network: Network) -> None:
    found = shortest_routes(network)
    latency, prices = found.sum_along(link_values(network, "latency")), transit_costs(found)
    assert (latency == found.distance).all()
    for a, b in zip(*np.nonzero(np.isfinite(found.distance)), strict=True):
        links = [network.links[at] for at in found.links(a, b)]
        assert prices[a, b] == pytest.approx(sum(link.latency * link.cost for link in links))


def test_a_way_is_a_list_of_links() -> None:
    assert shortest_routes(LINE).links(0, 2) == (0, 1)
    assert shortest_routes(LINE, "cost").links(0, 2) == (2,)
    assert shortest_routes(LINE, "cost").links(1, 2) == (3, 2)
    assert shortest_routes(LINE).links(1, 1) == ()
    with pytest.raises(NetworkError, match="no way leads from a to far"):
        shortest_routes(LINE).links(0, 3)


def test_the_network_of_streamreuse_is_that_of_networkx() -> None:
    network = transit_stub_network(STREAMREUSE, 3)
    found = shortest_routes(network).distance
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph_of(network), weight="latency"))
    wanted = [[lengths[a][b] for b in range(len(network.sites))] for a in range(len(network.sites))]
    assert np.allclose(found, wanted)


@pytest.mark.slow
def test_four_thousand_sites() -> None:
    network = transit_stub_network(COSMOS, 1)
    found = shortest_routes(network).distance
    graph = graph_of(network)
    for site in range(0, len(network.sites), 512):
        wanted = nx.single_source_dijkstra_path_length(graph, site, weight="latency")
        assert np.allclose(found[site], [wanted[b] for b in range(len(network.sites))])
