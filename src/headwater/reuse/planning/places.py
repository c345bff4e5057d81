"""The sites of a network as the places of plans: what a byte costs on its way between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headwater.reuse.planning.decision import Reuse

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NetworkPlaces:
    """Sites on which joins may run, in order, and the price of a byte from each to each."""

    sites: NDArray[np.intp]
    between: Floats

    @cached_property
    def _all(self) -> NDArray[np.intp]:
        return np.arange(len(self.sites))

    def at(self, index: int) -> int:
        return int(self.sites[index])

    def index(self, site: int) -> int:
        return int(np.searchsorted(self.sites, site))

    def with_price(self, costs: Floats, price: float) -> Floats:
        return costs + price

    def least(self, ways: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Sequence[int]]:
        sums = np.array([a + b for a, b in ways])
        best = sums.argmin(axis=0)
        return sums[best, self._all], best

    def with_offers(
        self, costs: Floats | None, offers: Iterable[Reuse]
    ) -> tuple[Floats, dict[int, Reuse]]:
        # A copy, as the array is the caller's.
        lowest = np.full(len(self.sites), np.inf) if costs is None else costs.copy()
        reused = dict[int, Reuse]()
        for reuse in offers:
            place = self.index(reuse.node.site)
            if reuse.price < lowest[place]:
                lowest[place], reused[place] = reuse.price, reuse
        return lowest, reused

    def carried(self, costs: Floats, sent: float) -> tuple[Floats, Sequence[int]]:
        travelling = costs[:, None] + sent * self.between
        origin = travelling.argmin(axis=0)
        return travelling[origin, self._all], origin

    def cheapest(self, costs: Floats) -> tuple[float, int]:
        place = int(costs.argmin())
        return float(costs[place]), place

    def sum(self, a: Floats, b: Floats) -> Floats:
        return a + b

    def price_at(self, costs: Floats, index: int) -> float:
        return float(costs[index])
