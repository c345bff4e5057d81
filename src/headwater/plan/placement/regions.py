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
            self._cut(ledger)
        found = taste.table(ledger.problem, stream)
        holders = [list(ledger.origins[s]) for s in found.streams]
        barred = np.zeros((len(holders), len(self._regions)), np.int8)
        for _ in range(TRIES):
            chosen = self._choose(ledger, found, taste, holders, barred)
            if not chosen:
                break
            inside = chain.from_iterable(self._regions[region] for region in chosen)
            sites = sorted({*inside, *chain.from_iterable(holders)})
            if place(ledger, stream, taste, sites=sites):
                return True
        return place(ledger, stream, taste)

    def _cut(self, ledger: Ledger) -> None:
        problem = self._problem = ledger.problem
        self._regions = cut(problem)
        sizes = np.array([len(region) for region in self._regions])
        self._sizes, self._starts = sizes, np.cumsum(sizes) - sizes
        self._order = np.array(list(chain.from_iterable(self._regions)), np.int64)
        self._region = np.empty_like(self._order)
        self._region[self._order] = np.repeat(np.arange(len(sizes)), sizes)
        self._capacity = self._means(ledger.capacity.take(self._order, 1))
        self._links: Floats = np.empty((0, 0))
        if problem.tight_links:
            self._links = np.full((len(sizes), len(sizes)), problem.links.usual)
            for (a, b), room in problem.links.other.items():
                pair = int(self._region[a]), int(self._region[b])
                self._links[pair] = max(room, self._links[pair])

    def _means(self, ordered: Floats) -> Floats:
        """The mean over the sites of each region."""
        return np.asarray(np.add.reduceat(ordered, self._starts, 1) / self._sizes)

    def _choose(
        self,
        ledger: Ledger,
        found: Table,
        taste: Taste,
        holders: list[list[int]],
        barred: NDArray[np.int8],
    ) -> set[int]:
        """The cheapest regions for a query to be made in, and those on the way where links are a limit.

        A region offers as much as that of its sites which has most left, at a price by what all of
        them have. Where something would be made, it is barred for the next time.
        """
        free = ledger.free.take(self._order, 1)
        most, left = np.maximum.reduceat(free, self._starts, 1), self._means(free)
        held = np.zeros(barred.shape, np.bool_)
        for row, sites in enumerate(holders):
            held[row, self._region[sites]] = True
        weights = ledger.problem.weights
        price = prices(left, self._capacity, weights)
        cost, how = cheapest(
            found.rates,
            held,
            found.outputs,
            found.inputs,
            found.cpu,
            found.memory,
            taste.favour(found),
            most,
            price,
            starting(left, self._capacity, weights),
            barred,
            self._links,
        )
        root, rate = len(holders) - 1, found.rates[-1]
        last = np.where(most[3] >= rate, cost[root] + rate * price[3], np.inf)
        waiting, chosen = [(root, int(last.argmin()))], set[int]()
        while waiting and last.min() < np.inf:
            stream, region = waiting.pop()
            way = int(how[stream, region])
            if way != HELD or len(self._links):
                chosen.add(region)
            if way >= 0:
                barred[:, region] |= MADE
                waiting += [(int(i), region) for i in found.inputs[way] if i >= 0]
            elif way != HELD:
                waiting.append((stream, HELD - 1 - way))
        return chosen
