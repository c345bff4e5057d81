"""The problem of placing queries on sites, and its answer, as frozen data.

A stream is told by the parts it is made of, so it is the same stream whatever the order of joins and
whichever query made it. All the ways to make a stream are operators; a planner chooses among them.
Streams, operators, queries and sites are known by their places in the problem's tuples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from headwater.errors import PlanError
from headwater.network.model import Network, Site


@dataclass(frozen=True, slots=True)
class Stream:
    """So many bytes a second, made of parts; a base stream comes in at `sites`."""

    name: str
    parts: frozenset[str]
    rate: float
    sites: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """A way to make the stream `output` of others: so much CPU a second, and memory."""

    inputs: tuple[int, ...]
    output: int
    cpu: float
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class Query:
    """Somebody who wants a stream."""

    name: str
    stream: int


@dataclass(frozen=True)
class Links:
    """Bytes a second that each ordered pair of sites can exchange: `other`, or else `usual`."""

    usual: float = math.inf
    other: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def __getitem__(self, pair: tuple[int, int]) -> float:
        return self.other.get(pair, self.usual)


def links_of(network: Network) -> Links:
    """The links of a network: sites without one between them exchange nothing directly."""
    found: dict[tuple[int, int], float] = {}
    for link in network.links:
        for pair in ((link.a, link.b), (link.b, link.a)):
            found[pair] = max(link.bandwidth, found.get(pair, 0.0))
    return Links(0.0, found)


@dataclass(frozen=True)
class Weights:
    """What a plan costs beside admissions, which come first.

    Network and CPU are counted as shares of what all sites have together, `balance` weighs the fullest
    site's share of its CPU, `sites` the share of sites that are in use.
    """

    network: float = 1.0
    cpu: float = 1.0
    balance: float = 1.0
    sites: float = 0.0


CONSOLIDATE = Weights(network=0.1, cpu=0.1, balance=0.0, sites=1.0)
"""On few sites, so that others can be switched off."""


class Scope(NamedTuple):
    """The streams and operators that can appear in plans of a query: S(q) and O(q).

    Streams stand before those that are made of them.
    """

    streams: tuple[int, ...]
    operators: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Sites with links, the streams they may hold, and the queries that want some of them."""

    sites: tuple[Site, ...]
    streams: tuple[Stream, ...]
    operators: tuple[Operator, ...]
    queries: tuple[Query, ...]
    links: Links = field(default_factory=Links)
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        count = len(self.streams)
        for stream in self.streams:
            if not 0 <= stream.rate < math.inf:
                raise PlanError(f"the rate of {stream.name} is {stream.rate}, it is not below 0")
            for site in stream.sites:
                if not 0 <= site < len(self.sites):
                    raise PlanError(f"{stream.name} comes in at site {site}, of {len(self.sites)}")
        for operator in self.operators:
            if not all(0 <= s < count for s in (*operator.inputs, operator.output)):
                raise PlanError(f"an operator names a stream beyond the {count} there are")
            if not operator.inputs:
                raise PlanError(f"what makes {self.streams[operator.output].name} reads nothing")
            if not (operator.cpu >= 0 and operator.memory >= 0):
                raise PlanError(f"{self.streams[operator.output].name} takes less than no CPU")
        for query in self.queries:
            if not 0 <= query.stream < count:
                raise PlanError(f"{query.name} wants stream {query.stream}, there are {count}")

    @cached_property
    def makers(self) -> tuple[tuple[int, ...], ...]:
        """The operators that make each stream."""
        found: list[list[int]] = [[] for _ in self.streams]
        for place, operator in enumerate(self.operators):
            found[operator.output].append(place)
        return tuple(map(tuple, found))

    @cached_property
    def _scopes(self) -> dict[int, Scope]:
        return {}

    def scope(self, stream: int) -> Scope:
        """S(q) and O(q) of a query for a stream; raises PlanError if it is made of itself."""
        if stream not in self._scopes:
            streams: dict[int, bool] = {}
            operators: list[int] = []
            self._visit(stream, streams, operators)
            self._scopes[stream] = Scope(tuple(streams), tuple(operators))
        return self._scopes[stream]

    def _visit(self, stream: int, done: dict[int, bool], operators: list[int]) -> None:
        """Depth first; `done` is False for what is still being visited."""
        if stream in done:
            if not done[stream]:
                raise PlanError(f"{self.streams[stream].name} would be made of itself")
            return
        done[stream] = False
        for maker in self.makers[stream]:
            for input in self.operators[maker].inputs:
                self._visit(input, done, operators)
            operators.append(maker)
        del done[stream]  # behind its inputs
        done[stream] = True

    @cached_property
    def tight_links(self) -> bool:
        """Whether some link may be full while neither of its ends is."""
        out = max((site.bandwidth_out for site in self.sites), default=0.0)
        into = max((site.bandwidth_in for site in self.sites), default=0.0)
        count = len(self.sites)
        special = len(self.links.other) < count * (count - 1)
        return (special and count > 1 and self.links.usual < min(out, into)) or any(
            room < min(self.sites[a].bandwidth_out, self.sites[b].bandwidth_in)
            for (a, b), room in self.links.other.items()
        )


class Run(NamedTuple):
    """A site runs an operator."""

    site: int
    operator: int


class Send(NamedTuple):
    """A site sends a stream to another."""

    origin: int
    target: int
    stream: int


class Serve(NamedTuple):
    """A site serves a stream to those who asked for it."""

    site: int
    stream: int


@dataclass(frozen=True)
class Plan:
    """What sites do, and which queries are admitted by it."""

    runs: frozenset[Run] = frozenset()
    sends: frozenset[Send] = frozenset()
    serves: frozenset[Serve] = frozenset()
    admitted: frozenset[int] = frozenset()


def objective(problem: Problem, plan: Plan) -> float:
    """What a plan costs by the problem's weights; less is better, admissions aside."""
    weights = problem.weights
    cpu = [0.0] * len(problem.sites)
    for run in plan.runs:
        cpu[run.site] += problem.operators[run.operator].cpu
    sent = sum(problem.streams[send.stream].rate for send in plan.sends)
    bandwidth, power = totals(problem)
    fullest = max(
        (used / site.cpu for used, site in zip(cpu, problem.sites, strict=True) if site.cpu > 0),
        default=0.0,
    )
    busy = len({run.site for run in plan.runs}) / max(1, len(problem.sites))
    return (
        weights.network * sent / bandwidth
        + weights.cpu * sum(cpu) / power
        + weights.balance * fullest
        + weights.sites * busy
    )


def totals(problem: Problem) -> tuple[float, float]:
    """The bandwidth and the CPU of all sites together, without those that have no limit."""
    bandwidth = sum(s.bandwidth_out for s in problem.sites if s.bandwidth_out < math.inf)
    power = sum(s.cpu for s in problem.sites if s.cpu < math.inf)
    return bandwidth or 1.0, power or 1.0
