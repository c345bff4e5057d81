"""A network as frozen data: sites, and links between them.

Times are seconds, data is bytes, and the cost of a link is a price for each byte it carries. A link
carries both ways. Users refer to sites by name, computations by their position in the tuple.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from headwater.errors import NetworkError, suggest


@dataclass(frozen=True, slots=True)
class Site:
    """A site where operators may run; a router only forwards data.

    It executes `cpu` instructions per second; bandwidths are in bytes per second.
    """

    name: str
    router: bool = False
    latitude: float | None = None
    longitude: float | None = None
    cpu: float = math.inf
    memory: float = math.inf
    bandwidth_in: float = math.inf
    bandwidth_out: float = math.inf


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of two sites, given by their positions."""

    a: int
    b: int
    latency: float
    cost: float = 1.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if self.a == self.b:
            raise NetworkError(f"a link leads from site {self.a} to itself")
        if not (0 <= self.latency < math.inf and 0 <= self.cost < math.inf):
            raise NetworkError(
                f"latency and cost of a link are finite and not negative, those of "
                f"{self.a}-{self.b} are {self.latency} and {self.cost}"
            )
        if not self.bandwidth > 0:
            raise NetworkError(
                f"bandwidth is more than 0, that of {self.a}-{self.b} is {self.bandwidth}"
            )


@dataclass(frozen=True)
class Network:
    """Sites with different names, and links between them; several may connect the same two."""

    sites: tuple[Site, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if len(self._positions) < len(self.sites):
            twice = Counter(site.name for site in self.sites).most_common(1)[0][0]
            raise NetworkError(f"two sites are called {twice}: names have to differ")
        for link in self.links:
            for position in (link.a, link.b):
                if not 0 <= position < len(self.sites):
                    raise NetworkError(
                        f"a link leads to site {position}, but there are {len(self.sites)} sites"
                    )

    def position_of(self, name: str) -> int:
        """The position of a site; raises NetworkError if there is none of that name."""
        if name not in self._positions:
            raise NetworkError(f"there is no site {name}; {suggest(name, self._positions)}")
        return self._positions[name]

    @property
    def hosts(self) -> tuple[int, ...]:
        """The positions of all sites except routers."""
        return tuple(position for position, site in enumerate(self.sites) if not site.router)

    def direct_link(self, a: int, b: int) -> Link | None:
        """The link between two sites, the widest if several connect them; None if none does."""
        return self._direct_links.get((a, b))

    @cached_property
    def _direct_links(self) -> dict[tuple[int, int], Link]:
        links: dict[tuple[int, int], Link] = {}
        # Ascending, so that the widest of several links overwrites the others.
        for link in sorted(self.links, key=lambda link: link.bandwidth):
            links[link.a, link.b] = links[link.b, link.a] = link
        return links

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {site.name: position for position, site in enumerate(self.sites)}
