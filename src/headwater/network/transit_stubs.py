"""Random networks shaped like the Internet, in the manner of GT-ITM's transit-stub model.

Transit domains form the backbone. Every transit node has stub domains hanging off it, and a way
between two stubs leads through the backbone. Transit nodes are routers; stub nodes are hosts. The
same shape and seed give the same network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from headwater.errors import NetworkError
from headwater.network.model import Link, Network, Site

MBIT = 1e6 / 8


@dataclass(frozen=True)
class Tier:
    """What links of one kind are like: least and largest latency, cost per byte, bandwidth."""

    latency: tuple[float, float]
    cost: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not 0 <= self.latency[0] <= self.latency[1]:
            raise NetworkError(f"latencies go from a least to a largest one, not {self.latency}")


BACKBONE = Tier((0.004, 0.006), cost=10.0, bandwidth=100 * MBIT)
ACCESS = Tier((0.002, 0.004), cost=5.0, bandwidth=100 * MBIT)
LOCAL = Tier((0.001, 0.002), cost=1.0, bandwidth=100 * MBIT)


@dataclass(frozen=True)
class TransitStubShape:
    """How many domains of which size; `density` is how likely two nodes of a domain are linked.

    A domain is connected in any case: by a tree, to which further links are added.
    """

    domains: int
    transit: int
    stubs: int
    hosts: int
    density: float = 0.4
    backbone: Tier = BACKBONE
    access: Tier = ACCESS
    local: Tier = LOCAL

    def __post_init__(self) -> None:
        if min(self.domains, self.transit) < 1 or min(self.stubs, self.hosts) < 0:
            raise NetworkError("a transit-stub network has at least one transit node")
        if not 0 <= self.density <= 1:
            raise NetworkError(f"density is a probability, not {self.density}")


STREAMREUSE = TransitStubShape(domains=1, transit=4, stubs=4, hosts=8)
"""The 128 hosts of StreamReuse: 4 transit nodes, on each 4 stub domains of 8."""

COSMOS = TransitStubShape(domains=8, transit=8, stubs=7, hosts=9)
"""4096 nodes, as many as in chapter 3 of COSMOS; how they are divided is not stated there."""

COSMOS_DISSEMINATION = TransitStubShape(domains=6, transit=10, stubs=3, hosts=8)
"""1500 nodes, as many as in chapter 4 of COSMOS."""


def transit_stub_network(shape: TransitStubShape, seed: int) -> Network:
    """A random network of that shape: first all transit nodes, then the hosts, stub by stub."""
    random = Random(seed)
    sites: list[Site] = []
    links: list[Link] = []
    domains = []
    for domain in range(shape.domains):
        names = [f"t{domain}.{node}" for node in range(shape.transit)]
        domains.append(_add_sites(sites, names, router=True))
        links += _link_domain(domains[-1], shape.density, shape.backbone, random)
    for domain_a, domain_b in _draw_pairs(range(shape.domains), shape.density, random):
        ends = random.choice(domains[domain_a]), random.choice(domains[domain_b])
        links.append(_draw_link(*ends, shape.backbone, random))
    for transit in [position for domain in domains for position in domain]:
        # A stub without hosts would have nothing by which to link it.
        for stub in range(shape.stubs if shape.hosts else 0):
            names = [f"{sites[transit].name}.s{stub}.{node}" for node in range(shape.hosts)]
            positions = _add_sites(sites, names, router=False)
            links += _link_domain(positions, shape.density, shape.local, random)
            links.append(_draw_link(transit, random.choice(positions), shape.access, random))
    return Network(tuple(sites), tuple(links))


def _add_sites(sites: list[Site], names: Sequence[str], router: bool) -> range:
    first = len(sites)
    sites += [Site(name, router) for name in names]
    return range(first, len(sites))


def _link_domain(positions: range, density: float, tier: Tier, random: Random) -> list[Link]:
    pairs = _draw_pairs(range(len(positions)), density, random)
    return [_draw_link(positions[a], positions[b], tier, random) for a, b in pairs]


def _draw_pairs(nodes: range, density: float, random: Random) -> list[tuple[int, int]]:
    """A random tree over the nodes, and each other pair with the given probability."""
    # Each node is attached to an earlier one: a tree, whatever is drawn.
    tree = {(random.randrange(node), node) for node in nodes[1:]}
    return [(a, b) for b in nodes for a in range(b) if random.random() < density or (a, b) in tree]


def _draw_link(a: int, b: int, tier: Tier, random: Random) -> Link:
    return Link(a, b, random.uniform(*tier.latency), tier.cost, tier.bandwidth)
