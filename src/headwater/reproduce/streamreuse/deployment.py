"""The operators that run, which queries they serve, and what all of it costs.

A feed brings a stream from its source, where it is filtered, to a site; a join takes two
operators. Each is the least relaxation of the parts of the queries that it serves. Whoever
reads it gets its own part through a compensating filter at the operator's site, so that only this
part travels on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headwater.algebra.predicate import ANYTHING
from headwater.cost import StreamStatistics
from headwater.reproduce.streamreuse.question import Question
from headwater.reproduce.streamreuse.rates import Streams, rate, streams_of
from headwater.reproduce.streamreuse.world import World
from headwater.reuse import Form, Lattice, Operator, operator_of, relaxed

LEFT = 0.1
"""Whether to tighten an operator is asked again when this share of its queries has left."""

WORTHWHILE = 0.05
"""An operator is tightened when that saves this share of its input."""


@dataclass(frozen=True)
class Prices:
    """What plans are compared by beside network usage: what it costs that a join runs at all.

    It is as much as bringing 10 records of 100 bytes a second over one link of a stub domain.
    """

    join: float = 10 * 100 * 0.0015


@dataclass(eq=False)
class Running:
    """An operator at a site, with its inputs (none: a feed) and the parts of queries it serves.

    `until` is when the last of these leaves, `most` how many there were since it was last asked
    whether to tighten; `usage` and `price` are what it costs as it is.
    """

    name: str
    operator: Operator
    site: int
    inputs: tuple[Running, ...]
    until: float = 0.0
    most: int = 0
    usage: float = 0.0
    price: float = 0.0
    members: dict[int, Form] = field(default_factory=dict)

    @cached_property
    def streams(self) -> Streams:
        return streams_of(self.operator.scans)

    @property
    def tree(self) -> Iterator[Running]:
        """Itself and all that feed it."""
        yield self
        for one in self.inputs:
            yield from one.tree


@dataclass(frozen=True)
class Deployed:
    """A query that runs: from which operator, where it is read, at which rate, and till when."""

    source: Running
    sink: int
    rate: float
    until: float


Changes = dict[Running, Operator]
"""The operators that are to compute something else, and what."""


class Deployment:
    """The state of the system under one strategy."""

    def __init__(
        self, world: World, statistics: Mapping[str, StreamStatistics], prices: Prices
    ) -> None:
        self.world = world
        self.prices = prices
        self.queries: dict[int, Deployed] = {}
        self._statistics = statistics
        self._running: dict[str, Running] = {}
        self._lattice = Lattice()
        self._count = 0
        self._asked: Counter[Streams] = Counter()
        self._submitted = 0

    # ---- questions

    def candidates(self, form: Form, near: int) -> list[Running]:
        """The operators that could serve a form, in the regions of a bit vector."""
        return [self._running[name] for name in self._lattice.candidates(form, near)]

    def likely(self, streams: Streams) -> float:
        """How many queries would have that part if those that run were as all that came so far."""
        return len(self.queries) * self._asked[streams] / max(1, self._submitted)

    def rate(self, operator: Operator, streams: Streams | None = None) -> float:
        """What an operator gives, or the part of it that reads some of its streams."""
        return rate(operator, streams or streams_of(operator.scans), self._statistics)

    def inputs(self, one: Running, operator: Operator) -> dict[int, float]:
        """What comes to an operator from which sites if it were to compute that."""
        if not one.inputs:
            (stream,) = one.streams
            return {self.world.source[stream]: self.rate(operator)}
        found: dict[int, float] = {}
        for feeder in one.inputs:
            more = self.rate(operator, feeder.streams)
            found[feeder.site] = found.get(feeder.site, 0.0) + more
        return found

    def input_usage(self, one: Running, operator: Operator) -> float:
        """Network usage of what comes to an operator if it were to compute that."""
        transit = self.world.transit[:, one.site]
        inputs = self.inputs(one, operator)
        return sum(rate * float(transit[site]) for site, rate in inputs.items())

    def price(self, one: Running, operator: Operator) -> float:
        """What an operator costs in a second if it were to compute that."""
        return self.input_usage(one, operator) + bool(one.inputs) * self.prices.join

    def usage(self) -> float:
        """Network usage of all operators and all results."""
        inputs = sum(one.usage for one in self._running.values())
        results = sum(
            query.rate * float(self.world.transit[query.source.site, query.sink])
            for query in self.queries.values()
        )
        return inputs + results

    @property
    def joins(self) -> int:
        return sum(bool(one.inputs) for one in self._running.values())

    @property
    def selections(self) -> int:
        """Selections at sources, and compensating ones between operators and behind them."""
        at_sources = sum(
            not one.inputs and one.operator.where != ANYTHING for one in self._running.values()
        )
        between = sum(
            len(feeder.members) > len(one.members)
            for one in self._running.values()
            for feeder in one.inputs
        )
        behind = sum(len(query.source.members) > 1 for query in self.queries.values())
        return at_sources + between + behind

    def latency(self, number: int) -> float:
        """The longest way of a tuple to the reader of a query."""
        query = self.queries[number]
        last = float(self.world.delay[query.source.site, query.sink])
        return self._arrival(query.source) + last

    def _arrival(self, one: Running) -> float:
        delay = self.world.delay
        if not one.inputs:
            (stream,) = one.streams
            return float(delay[self.world.source[stream], one.site])
        return max(
            self._arrival(feeder) + float(delay[feeder.site, one.site]) for feeder in one.inputs
        )

    # ---- changes

    def add(self, operator: Operator, site: int, inputs: tuple[Running, ...]) -> Running:
        """Start an operator; it ends when the last query that it serves leaves."""
        one = Running(str(self._count), operator, site, inputs)
        self._count += 1
        self._running[one.name] = one
        self._index(one)
        return one

    def change(self, changes: Changes) -> None:
        """Let operators compute something else over the same streams and joins."""
        for one, operator in changes.items():
            one.operator = operator
            self._index(one)

    def attach(
        self, number: int, asked: Question, source: Running, sink: int, until: float
    ) -> None:
        """Let a query read an operator that serves it."""
        self.queries[number] = Deployed(source, sink, asked.rates[asked.streams], until)
        self._asked.update(asked.joins)
        self._submitted += 1
        for one in source.tree:
            one.members[number] = asked.parts[one.streams]
            one.until = max(one.until, until)
            one.most = max(one.most, len(one.members))

    def leave(self, number: int) -> None:
        """End a query; operators that serve nobody end with it, others are tightened if it pays."""
        for one in self.queries.pop(number).source.tree:
            del one.members[number]
            if one.members:
                self._tighten(one)
            else:
                del self._running[one.name]
                self._lattice.remove(one.name)

    def _index(self, one: Running) -> None:
        one.usage = self.input_usage(one, one.operator)
        one.price = self.price(one, one.operator)
        self._lattice.insert(one.name, one.operator, self.world.regions.bits([one.site]))

    def _tighten(self, one: Running) -> None:
        """Go back to what the members left need, if enough have left and it saves enough."""
        if len(one.members) > (1 - LEFT) * one.most:
            return
        one.most = len(one.members)
        tight = self._least(one)
        before, after = (sum(self.inputs(one, op).values()) for op in (one.operator, tight))
        if before - after > WORTHWHILE * before:
            self.change({one: tight})

    def _least(self, one: Running) -> Operator:
        """The least relaxation of the members, widest first: when nothing can be gained, it ends."""
        forms = {form.digest: form for form in one.members.values()}
        wide = sorted(forms.values(), key=lambda form: self.rate(operator_of(form)), reverse=True)
        found = operator_of(wide[0])
        for form in wide[1:]:
            if found == one.operator:
                break
            found = relaxed(found, form)
        return found
