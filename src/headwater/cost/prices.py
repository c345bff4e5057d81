"""What a plan costs: CPU where operators run, and data in transit between sites.

Work is what happens in a second; prices say what it costs. On a single site nothing travels and CPU
decides; on a network it is the data in transit, or both. A price is per second, so it is multiplied
by the time for which it is paid.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.network import Network, shortest_routes, transit_costs


@dataclass(frozen=True)
class Flow:
    """Bytes per second from one site to another, both by their positions in the network."""

    origin: int
    target: int
    rate: float


@dataclass(frozen=True)
class Work:
    """What is done in a second: CPU seconds, and data that travels."""

    cpu: float = 0.0
    flows: tuple[Flow, ...] = ()

    def __add__(self, other: Work) -> Work:
        return Work(self.cpu + other.cpu, self.flows + other.flows)


# Without `eq`: comparing arrays with == gives an array, so a generated `__eq__` would raise.
@dataclass(frozen=True, eq=False)
class Prices:
    """What a second of CPU costs, and what a byte per second costs from site to site."""

    transit: NDArray[np.float64]
    cpu: float = 0.0


ONE_SITE = Prices(np.zeros((1, 1)), cpu=1.0)


def network_prices(network: Network, cpu: float = 0.0) -> Prices:
    """Network usage as the price: bytes in transit on the fastest ways, weighted by link cost."""
    return Prices(transit_costs(shortest_routes(network)), cpu)


def price(work: Work, prices: Prices) -> float:
    """What the work of a second costs."""
    return work.cpu * prices.cpu + network_usage(work.flows, prices)


def network_usage(flows: Iterable[Flow], prices: Prices) -> float:
    """Bytes in transit at any instant: rate times latency, weighted by cost, over all links."""
    # Little's law: what is in transit is rate times time in transit. `transit` holds the latency
    # along the route, each link weighted by its cost.
    return float(sum(flow.rate * prices.transit[flow.origin, flow.target] for flow in flows))


def lifetime_price(work: Work, prices: Prices, start: float, end: float) -> float:
    """What work costs that is done from one moment to another, in seconds."""
    return price(work, prices) * max(0.0, end - start)
