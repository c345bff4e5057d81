"""The workload of SQPR's evaluation: joins over base streams that are chosen by Zipf's law.

The paper leaves open what a join costs and how large its result is. Here a join costs the sum of its
inputs' rates, and the stream over a set of base streams has a share of their rates that is a fixed
function of the set, so it is the same whatever the order of joins. Rates are in Mbit/s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from headwater.network.model import Site
from headwater.plan.placement.model import (
    Links,
    PlacementOperator,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
)


@dataclass(frozen=True)
class SampleSetting:
    """How large a system is, and what is asked of it; the defaults are SQPR's simulation.

    `cpu` is in units of join work: Mbit/s of input that a site can take.
    """

    hosts: int = 50
    base_streams: int = 500
    queries: int = 1000
    rate: float = 10.0
    cpu: float = 215.0
    bandwidth: float = 65.0
    link: float = 1000.0
    ways: tuple[int, ...] = (2, 3, 4)
    zipf: float = 1.0
    min_share: float = 0.001
    max_share: float = 0.005


TIGHT = SampleSetting()
"""Host bandwidth is as scarce as CPU."""

AMPLE = SampleSetting(bandwidth=1000.0)
"""Host bandwidth as in the paper, where it hardly matters."""

CLUSTER = SampleSetting(
    hosts=15, base_streams=300, queries=250, rate=0.01, cpu=0.3, bandwidth=10, link=10, ways=(2, 3)
)
"""SQPR's deployment: 10 kbit/s streams on a 10 Mbit/s LAN, about 15 joins a host."""


def sample_problem(setting: SampleSetting, seed: int) -> PlacementProblem:
    """The problem of a setting; the same for the same seed."""
    random = np.random.default_rng(seed)
    # Each host gets as many base streams as any other, within one.
    hosts = random.permutation(np.arange(setting.base_streams) % setting.hosts)
    weight = 1.0 / np.arange(1, setting.base_streams + 1) ** setting.zipf
    ranks = random.permutation(setting.base_streams)
    requested = []
    for number in range(setting.queries):
        ways = setting.ways[number % len(setting.ways)]
        chosen = random.choice(setting.base_streams, ways, replace=False, p=weight / weight.sum())
        requested.append(tuple(int(ranks[c]) for c in chosen))
    base = [
        PlacementStream(f"s{i}", frozenset({f"s{i}"}), setting.rate, (int(hosts[i]),))
        for i in range(setting.base_streams)
    ]
    site = Site(
        "", cpu=setting.cpu, bandwidth_in=setting.bandwidth, bandwidth_out=setting.bandwidth
    )
    sites = tuple(
        Site(
            f"h{i}", False, None, None, site.cpu, site.memory, site.bandwidth_in, site.bandwidth_out
        )
        for i in range(setting.hosts)
    )
    joins = JoinEnumerator(base, setting.min_share, setting.max_share)
    queries = tuple(
        PlacementQuery(f"q{i}", joins.stream(parts)) for i, parts in enumerate(requested)
    )
    return PlacementProblem(
        sites, tuple(joins.streams), tuple(joins.operators), queries, Links(setting.link)
    )


class JoinEnumerator:
    """All joins that compute some sets of base streams, each once."""

    def __init__(self, base: Sequence[PlacementStream], least: float, most: float) -> None:
        self.streams = list(base)
        self.operators: list[PlacementOperator] = []
        self._min_share, self._max_share = least, most
        self._stream_of = {stream.parts: position for position, stream in enumerate(base)}

    def stream(self, parts: Sequence[int]) -> int:
        """The stream over some base streams, with all the ways to compute it."""
        names = frozenset(self.streams[p].name for p in parts)
        if names not in self._stream_of:
            rate = sum(self.streams[p].rate for p in parts) * self._share(names)
            ways = [(self.stream(left), self.stream(right)) for left, right in bipartitions(parts)]
            position = self._stream_of[names] = len(self.streams)
            self.streams.append(PlacementStream("*".join(sorted(names)), names, rate))
            for left, right in ways:
                cost = self.streams[left].rate + self.streams[right].rate
                self.operators.append(PlacementOperator((left, right), position, cost))
        return self._stream_of[names]

    def _share(self, names: frozenset[str]) -> float:
        digest = hashlib.blake2b("*".join(sorted(names)).encode(), digest_size=4).digest()
        spread = int.from_bytes(digest, "big") / 2**32
        return self._min_share + (self._max_share - self._min_share) * spread


def bipartitions(parts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All the ways to cut a set in two, each once."""
    first, *rest = parts
    for size in range(len(rest)):
        for chosen in combinations(rest, size):
            yield (first, *chosen), tuple(p for p in rest if p not in chosen)
