"""The problem of placing queries on sites, and its answer, as frozen data.

A stream is identified by the parts it is made of, so it is the same stream whatever the order of joins
and whichever query needs it. Each way to compute a stream is an operator; a planner chooses among them.
Streams, operators, queries and sites are referred to by their positions in the problem's tuples.
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
class PlacementStream:
    """A stream of parts with its bytes per second; a base stream enters at `sites`."""

    name: str
    parts: frozenset[str]
    rate: float
    sites: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementOperator:
    """A way to compute the stream `output` from others, with its CPU per second and memory."""

    inputs: tuple[int, ...]
    output: int
    cpu: float
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class PlacementQuery:
    """A query, as the stream that it asks for."""

    name: str
    stream: int


@dataclass(frozen=True)
class Links:
    """Bytes a second that each ordered pair of sites can exchange: `overrides`, or else `default`."""

    default: float = math.inf
    overrides: Mapping[tuple[int, int], float] = field(default_factory=dict)

    def __getitem__(self, pair: tuple[int, int]) -> float:
        return self.overrides.get(pair, self.default)


def build_links(network: Network) -> Links:
    """The links of a network: sites without one between them exchange nothing directly."""
    bandwidths: dict[tuple[int, int], float] = {}
    for link in network.links:
        for pair in ((link.a, link.b), (link.b, link.a)):
            bandwidths[pair] = max(link.bandwidth, bandwidths.get(pair, 0.0))
    return Links(0.0, bandwidths)


@dataclass(frozen=True)
class ObjectiveWeights:
    """What a plan costs beside admissions, which come first.

    Network and CPU are counted as shares of what all sites have together, `balance` weighs the fullest
    site's share of its CPU, `sites` the share of sites that are in use.
    """

    network: float = 1.0
    cpu: float = 1.0
    balance: float = 1.0
    sites: float = 0.0


CONSOLIDATION_WEIGHTS = ObjectiveWeights(network=0.1, cpu=0.1, balance=0.0, sites=1.0)
"""For few sites, so that others can be switched off."""


class QueryScope(NamedTuple):
    """The streams and operators that can appear in plans of a query: S(q) and O(q).

    Streams precede those that are computed from them.
    """

    streams: tuple[int, ...]
    operators: tuple[int, ...]


@dataclass(frozen=True)
class PlacementProblem:
    """Sites with links, the streams they may hold, and the queries that want some of them."""

    sites: tuple[Site, ...]
    streams: tuple[PlacementStream, ...]
    operators: tuple[PlacementOperator, ...]
    queries: tuple[PlacementQuery, ...]
    links: Links = field(default_factory=Links)
    weights: ObjectiveWeights = field(default_factory=ObjectiveWeights)

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
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """The operators that compute each stream."""
        producers: list[list[int]] = [[] for _ in self.streams]
        for position, operator in enumerate(self.operators):
            producers[operator.output].append(position)
        return tuple(map(tuple, producers))

    @cached_property
    def _scopes(self) -> dict[int, QueryScope]:
        return {}

    def scope(self, stream: int) -> QueryScope:
        """S(q) and O(q) of a query for a stream; raises PlanError if it depends on itself."""
        if stream not in self._scopes:
            visited: dict[int, bool] = {}
            operators: list[int] = []
            self._visit(stream, visited, operators)
            self._scopes[stream] = QueryScope(tuple(visited), tuple(operators))
        return self._scopes[stream]

    def _visit(self, stream: int, done: dict[int, bool], operators: list[int]) -> None:
        """Depth first; `done` is False for what is still being visited."""
        if stream in done:
            if not done[stream]:
                raise PlanError(f"{self.streams[stream].name} would be made of itself")
            return
        done[stream] = False
        for producer in self.producers[stream]:
            for input in self.operators[producer].inputs:
                self._visit(input, done, operators)
            operators.append(producer)
        # A dict keeps the order of insertion: deleting and setting again moves the key to the end.
        del done[stream]  # behind its inputs
        done[stream] = True

    @cached_property
    def has_tight_links(self) -> bool:
        """Whether some link may be full while neither of its ends is."""
        out = max((site.bandwidth_out for site in self.sites), default=0.0)
        into = max((site.bandwidth_in for site in self.sites), default=0.0)
        count = len(self.sites)
        # With an override for every pair the default is nobody's.
        special = len(self.links.overrides) < count * (count - 1)
        return (special and count > 1 and self.links.default < min(out, into)) or any(
            bandwidth < min(self.sites[a].bandwidth_out, self.sites[b].bandwidth_in)
            for (a, b), bandwidth in self.links.overrides.items()
        )


class RunOperator(NamedTuple):
    """A site runs an operator."""

    site: int
    operator: int


class SendStream(NamedTuple):
    """A site sends a stream to another."""

    origin: int
    target: int
    stream: int


class ServeStream(NamedTuple):
    """A site serves a stream to those who asked for it."""

    site: int
    stream: int


@dataclass(frozen=True)
class PlacementPlan:
    """What sites do, and which queries are admitted by it."""

    runs: frozenset[RunOperator] = frozenset()
    sends: frozenset[SendStream] = frozenset()
    serves: frozenset[ServeStream] = frozenset()
    admitted: frozenset[int] = frozenset()


def objective(problem: PlacementProblem, plan: PlacementPlan) -> float:
    """What a plan costs by the problem's weights; less is better, admissions aside."""
    weights = problem.weights
    cpu = [0.0] * len(problem.sites)
    for run in plan.runs:
        cpu[run.site] += problem.operators[run.operator].cpu
    sent = sum(problem.streams[send.stream].rate for send in plan.sends)
    bandwidth, power = total_capacity(problem)
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


def total_capacity(problem: PlacementProblem) -> tuple[float, float]:
    """The bandwidth and the CPU of all sites together, without those that have no limit."""
    bandwidth = sum(s.bandwidth_out for s in problem.sites if s.bandwidth_out < math.inf)
    power = sum(s.cpu for s in problem.sites if s.cpu < math.inf)
    # Where nothing is limited there are no shares; 1 only keeps the quotient defined.
    return bandwidth or 1.0, power or 1.0
