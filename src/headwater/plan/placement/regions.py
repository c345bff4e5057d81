"""Regions first, sites inside: the dynamic program for a thousand sites and more.

Sites are cut into about as many regions as each has sites. The dynamic program runs on the regions,
each taken as one site, and then on the sites of those that its answer uses: tens of sites, not
thousands. Regions that have no plan inside are barred, and others are tried; in the end all sites
are looked at, so nobody is refused because of the cut.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from headwater.plan.placement.dynamic import (
    MADE,
    Table,
    Taste,
    holders,
    place,
    prices,
    starting,
)
from headwater.plan.placement.kernel import HELD, cheapest
from headwater.plan.placement.ledger import Floats, Ledger
from headwater.plan.placement.model import Problem

TRIES = 3
"""How often regions are chosen before all sites are looked at."""


def cut(problem: Problem) -> list[list[int]]:
    """The sites of each region: in their order or, where links are a limit, along the widest."""
    count = len(problem.sites)
    size = math.isqrt(max(0, count - 1)) + 1
    if not problem.tight_links:
        return [list(range(at, min(at + size, count))) for at in range(0, count, size)]
    beside: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (a, b), room in problem.links.other.items():
        if room > 0:
            beside[a].append((-room, b))
    found: list[list[int]] = []
    left = dict.fromkeys(range(count))
    while left:
        region, near = list[int](), [(0.0, next(iter(left)))]
        while near and len(region) < size:
            _, site = heapq.heappop(near)
            if site in left:
                del left[site]
                region.append(site)
                for one in beside[site]:
                    heapq.heappush(near, one)
        found.append(region)
    return found


class Regions:
    """A way to place a stream, as the dynamic program is one; the cut is kept with its problem."""

    def __init__(self) -> None:
        self._problem: Problem | None = None

    def __call__(self, ledger: Ledger, stream: int, taste: Taste) -> bool:
        """Write a plan for a stream into the ledger; False, and nothing changed, if none was found."""
        if stream in ledger.served:
            return True
        if ledger.problem is not self._problem:
            self._cut(ledger.problem)
        found = taste.table(ledger.problem, stream)
        held = holders(ledger, found)
        barred = np.zeros((len(found.streams), len(self.regions)), np.int8)
        for _ in range(TRIES):
            sites = self._choose(ledger, found, taste, held, barred)
            if not sites:
                break
            if place(ledger, stream, taste, sites=sites):
                return True
        return place(ledger, stream, taste)

    def _cut(self, problem: Problem) -> None:
        self._problem, self.regions = problem, cut(problem)
        self._order = np.array(list(chain.from_iterable(self.regions)), np.int64)
        sizes = np.array([len(region) for region in self.regions])
        self._starts, self._sizes = np.cumsum(sizes) - sizes, sizes
        self._links: Floats = np.empty((0, 0))
        if problem.tight_links:
            region = {site: r for r, sites in enumerate(self.regions) for site in sites}
            self._links = np.full((len(sizes), len(sizes)), problem.links.usual)
            for (a, b), room in problem.links.other.items():
                pair = region[a], region[b]
                self._links[pair] = max(room, self._links[pair])

    def _choose(
        self,
        ledger: Ledger,
        found: Table,
        taste: Taste,
        held: NDArray[np.bool_],
        barred: NDArray[np.int8],
    ) -> list[int]:
        """The sites of the cheapest regions for a query; none if there are no such regions.

        A region offers as much as the site of it that has most left, at a price by what all its sites
        have. Regions that would make something are barred for the next time.
        """
        free, capacity = (a.take(self._order, 1) for a in (ledger.free, ledger.capacity))
        most = np.maximum.reduceat(free, self._starts, 1)
        left, all_ = (np.add.reduceat(a, self._starts, 1) / self._sizes for a in (free, capacity))
        weights = ledger.problem.weights
        price = prices(left, all_, weights)
        cost, how = cheapest(
            found.rates,
            np.logical_or.reduceat(held.take(self._order, 1), self._starts, 1),
            found.outputs,
            found.inputs,
            found.cpu,
            found.memory,
            taste.favour(found),
            most,
            price,
            starting(left, all_, weights),
            barred,
            self._links,
        )
        root = len(found.streams) - 1
        able = most[3] >= found.rates[root]
        last = np.where(able, cost[root] + found.rates[root] * price[3], np.inf)
        first = int(last.argmin())
        if last[first] == np.inf:
            return []
        whole: set[int] = set()
        sites: set[int] = set()
        waiting = [(root, first)]
        while waiting:
            stream, region = waiting.pop()
            way = int(how[stream, region])
            if way == HELD:
                sites.update(s for s in self.regions[region] if held[stream, s])
                if len(self._links):
                    whole.add(region)
                continue
            whole.add(region)
            if way >= 0:
                barred[:, region] |= MADE
                waiting += [(int(i), region) for i in found.inputs[way] if i >= 0]
            else:
                waiting.append((stream, HELD - 1 - way))
        return sorted(sites.union(*(self.regions[region] for region in whole)))
