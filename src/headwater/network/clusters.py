"""Regions: sites that are near each other, found by k-means over delays.

A site's position is its row of delays to all sites, so sites that see the network alike belong
together. A set of regions is a bit vector, an int: region i is bit i, and sets are joined by `|`
and compared by `&`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.errors import NetworkError

Floats = NDArray[np.float64]
MAX_ROUNDS = 100


@dataclass(frozen=True)
class Regions:
    """The region of each site, counted from 0 in the order in which sites first belong to them."""

    region_of: tuple[int, ...]

    @property
    def count(self) -> int:
        return max(self.region_of, default=-1) + 1

    def bits(self, sites: Iterable[int]) -> int:
        """The bit vector of the regions of some sites."""
        bits = 0
        for site in sites:
            bits |= 1 << self.region_of[site]
        return bits

    def sites(self, bits: int) -> tuple[int, ...]:
        """All the sites of the regions of a bit vector."""
        return tuple(site for site, region in enumerate(self.region_of) if bits >> region & 1)


def cluster_regions(delays: Floats, count: int, seed: int) -> Regions:
    """Cluster sites into at most `count` regions; the same seed gives the same ones.

    Raises NetworkError if `count` is not between 1 and the number of sites, or if some delay is
    infinite: what cannot be reached is near to nothing.
    """
    if not 1 <= count <= len(delays):
        raise NetworkError(f"{len(delays)} sites cannot be cut into {count} regions")
    if not np.isfinite(delays).all():
        raise NetworkError("the network is not connected, so it has no regions by delay")
    random = np.random.default_rng(seed)
    centres = _first_centres(delays, count, random)
    nearest = _nearest_centres(delays, centres)
    for _ in range(MAX_ROUNDS):
        # Only regions that still have sites: the mean of none would be NaN.
        for region in np.unique(nearest):
            centres[region] = delays[nearest == region].mean(axis=0)
        moved = _nearest_centres(delays, centres)
        if (moved == nearest).all():
            break
        nearest = moved
    order: dict[int, int] = {}
    return Regions(tuple(order.setdefault(int(region), len(order)) for region in nearest))


def nearest_regions(delays: Floats, clustered: Regions, site: int, count: int) -> int:
    """The bit vector of the `count` regions that are nearest to a site by their mean delay."""
    region_of = np.array(clustered.region_of)
    means = [float(delays[site, region_of == region].mean()) for region in range(clustered.count)]
    # The site's own region always comes first, even if its sites are far apart.
    means[clustered.region_of[site]] = -1.0
    nearest = sorted(range(clustered.count), key=means.__getitem__)[:count]
    return sum(1 << region for region in nearest)


def _first_centres(points: Floats, count: int, random: np.random.Generator) -> Floats:
    """Points far from each other: each next one with a chance that grows with its distance."""
    chosen = [int(random.integers(len(points)))]
    distance = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < count and distance.max() > 0:
        # The seeding of k-means++ (Arthur and Vassilvitskii 2007): by squared distance to the
        # nearest centre. It ends early if all points coincide with a centre.
        chosen.append(int(random.choice(len(points), p=distance / distance.sum())))
        distance = np.minimum(distance, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen].copy()


def _nearest_centres(points: Floats, centres: Floats) -> NDArray[np.intp]:
    # The squared distance without the square of the point, which is the same for all centres.
    squares = (centres**2).sum(axis=1) - 2 * points @ centres.T
    return np.asarray(squares.argmin(axis=1), np.intp)
