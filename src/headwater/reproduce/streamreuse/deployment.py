"""The operators that run, which queries they serve, and what all of it costs.

A feed brings a stream from its source, where it is filtered, to a site; a join takes two
operators. Each is the least relaxation of the parts of the queries that it serves. Whoever
reads it gets its own part through a compensating filter at the operator's site, so that only this
part travels on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from headwater.algebra.conditions.predicate import ANYTHING
from headwater.cost import StreamStatistics
from headwater.reproduce.streamreuse.question import PreparedQuery
from headwater.reproduce.streamreuse.rates import Streams, output_rate, stream_names
from headwater.reproduce.streamreuse.world import World
from headwater.reuse import Operator, QuerySignature, minimal_operator, relax
from headwater.reuse.planning.graph import Changes, Graph, Node

TIGHTEN_CHECK_SHARE = 0.1
"""Whether to tighten an operator is asked again when this share of its queries has left."""

MIN_TIGHTEN_SAVING = 0.05
"""An operator is tightened when that saves this share of its input."""


@dataclass(frozen=True)
class JoinPrices:
    """What plans are compared by beside network usage: what it costs that a join runs at all.

    It is as much as bringing 10 records of 100 bytes a second over one link of a stub domain.
    """

    join: float = 10 * 100 * 0.0015


@dataclass(eq=False)
class RunningOperator(Node):
    """An operator at a site, with its inputs (none: a feed) and the parts of queries it serves.

    `peak_subscribers` is how many there were since it was last asked whether to tighten; `usage` and
    `price` are what it costs as it is.
    """

    until: float = 0.0
    peak_subscribers: int = 0
    usage: float = 0.0
    price: float = 0.0
    subscribers: dict[int, QuerySignature] = field(default_factory=dict)

    @cached_property
    def sources(self) -> Streams:
        return stream_names(self.operator.scans)


def feeders(running: RunningOperator) -> tuple[RunningOperator, ...]:
    return cast(tuple[RunningOperator, ...], running.inputs)


def operators_of(running: RunningOperator) -> Iterator[RunningOperator]:
    """An operator and all that feed it."""
    return cast(Iterator[RunningOperator], running.tree)


@dataclass(frozen=True)
class DeployedQuery:
    """A query that runs: from which operator, where it is read, at which rate, and till when."""

    source: RunningOperator
    sink: int
    rate: float
    until: float


class SimulatedDeployment:
    """The state of the system under one strategy."""

    def __init__(
        self, world: World, statistics: Mapping[str, StreamStatistics], prices: JoinPrices
    ) -> None:
        self.world = world
        self.prices = prices
        self.queries: dict[int, DeployedQuery] = {}
        self._statistics = statistics
        self._graph = Graph[RunningOperator]()
        self._count = 0

    # ---- questions

    def candidates(self, signature: QuerySignature, near: int) -> list[RunningOperator]:
        """The operators that could serve a form, in the regions of a bit vector."""
        return self._graph.candidates(signature, near)

    def expected_requests(self, streams: Streams) -> float:
        """How many queries would have that part if those that run were as all that came so far."""
        return self._graph.expected_requests(streams, len(self.queries))

    def rate(self, operator: Operator, streams: Streams | None = None) -> float:
        """What an operator gives, or the part of it that reads some of its streams."""
        return output_rate(operator, streams or stream_names(operator.scans), self._statistics)

    def inputs(self, running: RunningOperator, operator: Operator) -> dict[int, float]:
        """What an operator would receive, and from which sites, if it computed that."""
        if not running.inputs:
            (stream,) = running.sources
            return {self.world.source[stream]: self.rate(operator)}
        arriving: dict[int, float] = {}
        for feeder in feeders(running):
            more = self.rate(operator, feeder.sources)
            arriving[feeder.site] = arriving.get(feeder.site, 0.0) + more
        return arriving

    def input_usage(self, running: RunningOperator, operator: Operator) -> float:
        """Network usage of the inputs of an operator if it computed that."""
        transit = self.world.transit[:, running.site]
        inputs = self.inputs(running, operator)
        return sum(rate * float(transit[site]) for site, rate in inputs.items())

    def price(self, running: RunningOperator, operator: Operator) -> float:
        """What an operator costs in a second if it were to compute that."""
        return self.input_usage(running, operator) + bool(running.inputs) * self.prices.join

    def usage(self) -> float:
        """Network usage of all operators and all results."""
        inputs = sum(running.usage for running in self._graph)
        results = sum(
            query.rate * float(self.world.transit[query.source.site, query.sink])
            for query in self.queries.values()
        )
        return inputs + results

    @property
    def joins(self) -> int:
        return sum(bool(running.inputs) for running in self._graph)

    @property
    def selections(self) -> int:
        """Selections at sources, and compensating ones between operators and behind them."""
        at_sources = sum(
            not running.inputs and running.operator.where != ANYTHING for running in self._graph
        )
        # A feeder that serves others as well has to filter for this reader; so has the last
        # operator.
        between = sum(
            len(feeder.subscribers) > len(running.subscribers)
            for running in self._graph
            for feeder in feeders(running)
        )
        behind = sum(len(query.source.subscribers) > 1 for query in self.queries.values())
        return at_sources + between + behind

    def latency(self, number: int) -> float:
        """The longest way of a tuple to the reader of a query."""
        query = self.queries[number]
        last = float(self.world.delay[query.source.site, query.sink])
        return self._arrival(query.source) + last

    def _arrival(self, running: RunningOperator) -> float:
        delay = self.world.delay
        if not running.inputs:
            (stream,) = running.sources
            return float(delay[self.world.source[stream], running.site])
        return max(
            self._arrival(feeder) + float(delay[feeder.site, running.site])
            for feeder in feeders(running)
        )

    # ---- changes

    def add(
        self, operator: Operator, site: int, inputs: tuple[RunningOperator, ...]
    ) -> RunningOperator:
        """Start an operator; it ends when the last query that it serves leaves."""
        running = RunningOperator(str(self._count), operator, site, inputs)
        self._count += 1
        self._index(running)
        return running

    def change(self, changes: Changes[RunningOperator]) -> None:
        """Let operators compute something else over the same streams and joins."""
        for running, operator in changes.items():
            running.operator = operator
            self._index(running)

    def subscribe(
        self, number: int, query: PreparedQuery, source: RunningOperator, sink: int, until: float
    ) -> None:
        """Let a query read an operator that serves it."""
        self.queries[number] = DeployedQuery(source, sink, query.rates[query.streams], until)
        self._graph.count_request(query.joins)
        for running in operators_of(source):
            running.subscribers[number] = query.parts[running.sources]
            running.until = max(running.until, until)
            running.peak_subscribers = max(running.peak_subscribers, len(running.subscribers))

    def remove_query(self, number: int) -> None:
        """End a query; operators that serve no other query end with it, others are tightened if it pays."""
        for running in list(operators_of(self.queries.pop(number).source)):
            del running.subscribers[number]
            if running.subscribers:
                self._tighten(running)
            else:
                self._graph.remove(running.name)

    def _index(self, running: RunningOperator) -> None:
        running.usage = self.input_usage(running, running.operator)
        running.price = self.price(running, running.operator)
        self._graph.insert(running, self.world.regions.bits([running.site]))

    def _tighten(self, running: RunningOperator) -> None:
        """Go back to what the members left need, if enough have left and it saves enough."""
        if len(running.subscribers) > (1 - TIGHTEN_CHECK_SHARE) * running.peak_subscribers:
            return
        running.peak_subscribers = len(running.subscribers)
        tight = self._least_relaxation(running)
        before, after = (sum(self.inputs(running, op).values()) for op in (running.operator, tight))
        if before - after > MIN_TIGHTEN_SAVING * before:
            self.change({running: tight})

    def _least_relaxation(self, running: RunningOperator) -> Operator:
        """The least relaxation of the members, widest first: when nothing can be gained, it ends."""
        signatures = {signature.digest: signature for signature in running.subscribers.values()}
        wide = sorted(
            signatures.values(), key=lambda form: self.rate(minimal_operator(form)), reverse=True
        )
        relaxation = minimal_operator(wide[0])
        for signature in wide[1:]:
            if relaxation == running.operator:
                break
            relaxation = relax(relaxation, signature)
        return relaxation
