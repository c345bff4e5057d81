"""Regions first, sites inside: the dynamic program for a thousand sites and more.

Sites are cut into about as many regions as each has sites. The dynamic program runs on the regions,
each taken as one site, and then on the sites of those that its answer uses: tens of sites, not
thousands. Regions that have no plan inside are barred, and others are tried; in the end all sites
are examined, so no query is refused because of the cut.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.ledger import Floats, Ledger
from headwater.plan.placement.model import PlacementProblem
from headwater.plan.placement.planners.dynamic import (
    NO_MAKE,
    ScopeTable,
    StreamPopularity,
    place_stream,
    resource_prices,
    site_start_costs,
)
from headwater.plan.placement.planners.kernel import HELD, cheapest_ways

MAX_TRIES = 3
"""How often regions are chosen before all sites are looked at."""


def cut_into_regions(problem: PlacementProblem) -> list[list[int]]:
    """The sites of each region: in their order or, where links are a limit, along the widest."""
    count = len(problem.sites)
    size = math.isqrt(max(0, count - 1)) + 1
    if not problem.has_tight_links:
        return [list(range(at, min(at + size, count))) for at in range(0, count, size)]
    beside: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (a, b), room in problem.links.overrides.items():
        if room > 0:
            beside[a].append((-room, b))
    regions: list[list[int]] = []
    left = dict.fromkeys(range(count))
    while left:
        region, near = list[int](), [(0.0, next(iter(left)))]
        while near and len(region) < size:
            _, site = heapq.heappop(near)
            if site in left:
                del left[site]
                region.append(site)
                for neighbour in beside[site]:
                    heapq.heappush(near, neighbour)
        regions.append(region)
    return regions


class RegionPlacer:
    """A way to place a stream, as the dynamic program is one; the cut is kept with its problem."""

    def __init__(self) -> None:
        self._problem: PlacementProblem | None = None

    def __call__(self, ledger: Ledger, stream: int, popularity: StreamPopularity) -> bool:
        """Write a plan for a stream into the ledger; False, and nothing changed, if none was found."""
        if stream in ledger.served:
            return True
        if ledger.problem is not self._problem:
            self._cut_regions(ledger)
        scope_table = popularity.scope_table(ledger.problem, stream)
        holders = [list(ledger.origins[s]) for s in scope_table.streams]
        barred = np.zeros((len(holders), len(self._regions)), np.int8)
        for _ in range(MAX_TRIES):
            chosen = self._choose_regions(ledger, scope_table, popularity, holders, barred)
            if not chosen:
                break
            inside = chain.from_iterable(self._regions[region] for region in chosen)
            # Whoever holds a part of the query too, wherever it is: that part need not be made
            # again.
            sites = sorted({*inside, *chain.from_iterable(holders)})
            if place_stream(ledger, stream, popularity, sites=sites):
                return True
        return place_stream(ledger, stream, popularity)

    def _cut_regions(self, ledger: Ledger) -> None:
        problem = self._problem = ledger.problem
        self._regions = cut_into_regions(problem)
        sizes = np.array([len(region) for region in self._regions])
        self._sizes, self._starts = sizes, np.cumsum(sizes) - sizes
        self._order = np.array(list(chain.from_iterable(self._regions)), np.int64)
        self._region = np.empty_like(self._order)
        self._region[self._order] = np.repeat(np.arange(len(sizes)), sizes)
        self._capacity = self._means(ledger.capacity.take(self._order, 1))
        self._links: Floats = np.empty((0, 0))
        if problem.has_tight_links:
            self._links = np.full((len(sizes), len(sizes)), problem.links.default)
            for (a, b), room in problem.links.overrides.items():
                pair = int(self._region[a]), int(self._region[b])
                self._links[pair] = max(room, self._links[pair])

    def _means(self, ordered: Floats) -> Floats:
        """The mean over the sites of each region."""
        return np.asarray(np.add.reduceat(ordered, self._starts, 1) / self._sizes)

    def _choose_regions(
        self,
        ledger: Ledger,
        scope_table: ScopeTable,
        popularity: StreamPopularity,
        holders: list[list[int]],
        barred: NDArray[np.int8],
    ) -> set[int]:
        """The cheapest regions to compute a query in, and those on the way where links are scarce.

        A region offers as much as that of its sites which has most left, at a price by what all of
        them have. Where something would be computed, it is barred for the next attempt.
        """
        free = ledger.free.take(self._order, 1)
        most, left = np.maximum.reduceat(free, self._starts, 1), self._means(free)
        held = np.zeros(barred.shape, np.bool_)
        for row, sites in enumerate(holders):
            held[row, self._region[sites]] = True
        weights = ledger.problem.weights
        price = resource_prices(left, self._capacity, weights)
        cost, how = cheapest_ways(
            scope_table.rates,
            held,
            scope_table.outputs,
            scope_table.inputs,
            scope_table.cpu,
            scope_table.memory,
            popularity.price_factors(scope_table),
            most,
            price,
            site_start_costs(left, self._capacity, weights),
            barred,
            self._links,
        )
        root, rate = len(holders) - 1, scope_table.rates[-1]
        last = np.where(most[3] >= rate, cost[root] + rate * price[3], np.inf)
        pending, chosen = [(root, int(last.argmin()))], set[int]()
        while pending and last.min() < np.inf:
            stream, region = pending.pop()
            way = int(how[stream, region])
            if way != HELD or len(self._links):
                chosen.add(region)
            if way >= 0:
                barred[:, region] |= NO_MAKE
                pending += [(int(i), region) for i in scope_table.inputs[way] if i >= 0]
            elif way != HELD:
                pending.append((stream, HELD - 1 - way))
        return chosen
