"""The operators that run, who uses them, and what all of it costs.

A feed brings a stream from its source, where it is filtered, to a site; a join takes a feed and
another operator. Each computes the least definition that contains what its users need, and
a user gets its part through a compensating filter at the operator's site, so that only this part
travels on. Users are queries and operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.algebra.predicate import ANYTHING
from headwater.reproduce.streamreuse.definition import (
    Definition,
    Joins,
    contains,
    fed,
    relax,
    restrict,
)
from headwater.reproduce.streamreuse.world import Rates, World

WORTHWHILE = 0.05
"""An operator is tightened when that saves this share of what its inputs cost."""

User = tuple[str, int]
"""A query or an operator, by its number."""


@dataclass(eq=False)
class Operator:
    """A join of operators, or without inputs a feed, at a site.

    `needs` is what each user needs, `until` when the last one leaves.
    """

    number: int
    definition: Definition
    site: int
    inputs: tuple[Operator, ...]
    until: float
    needs: dict[User, Definition] = field(default_factory=dict)

    @property
    def all(self) -> Iterator[Operator]:
        """Itself and all that feed it."""
        yield self
        for one in self.inputs:
            yield from one.all

    def part(self, whole: Definition) -> Definition:
        """What of a wider definition falls to this operator."""
        part = restrict(whole, self.definition.streams)
        return part if self.inputs else fed(part)


@dataclass(frozen=True)
class Deployed:
    """A query that runs: what it wants, from which operator, where it is read, and till when."""

    wanted: Definition
    operator: Operator
    sink: int
    until: float


Changes = dict[Operator, Definition]
"""The operators that are to compute something else, and what."""


class Deployment:
    """The state of the system under one strategy."""

    def __init__(self, world: World, rates: Rates) -> None:
        self.world = world
        self.rates = rates
        self.queries: dict[int, Deployed] = {}
        self._operators: dict[Operator, None] = {}
        self._alike: dict[tuple[frozenset[str], Joins], dict[Operator, None]] = defaultdict(dict)
        self._count = 0

    # ---- questions

    def candidates(self, wanted: Definition, near: int) -> list[Operator]:
        """The operators over the same streams and joins, in the regions of a bit vector."""
        found = self._alike.get((wanted.streams, wanted.joins), {})
        return [op for op in found if self.world.regions.bits([op.site]) & near]

    def input_usage(self, op: Operator, definition: Definition) -> float:
        """Network usage of what comes to an operator if that were its definition."""
        if not op.inputs:
            (stream,) = definition.streams
            sent = self.rates.sent(definition, stream)
            return float(sent * self.world.transit[self.world.source[stream], op.site])
        return sum(
            self.rates.joined(one.part(definition)) * float(self.world.transit[one.site, op.site])
            for one in op.inputs
            if one.site != op.site
        )

    def usage(self) -> float:
        """Network usage of all operators and all results."""
        inputs = sum(self.input_usage(op, op.definition) for op in self._operators)
        results = sum(
            self.rates.joined(query.wanted) * self.world.transit[query.operator.site, query.sink]
            for query in self.queries.values()
        )
        return float(inputs + results)

    @property
    def joins(self) -> int:
        return sum(bool(op.inputs) for op in self._operators)

    @property
    def selections(self) -> int:
        """Selections at sources, and compensating ones behind operators."""
        return sum(
            (not op.inputs and op.definition.where != ANYTHING)
            + sum(need.where != op.definition.where for need in op.needs.values())
            for op in self._operators
        )

    def latency(self, number: int) -> float:
        """The longest way of a tuple to the reader of a query."""
        query = self.queries[number]
        last = float(self.world.delay[query.operator.site, query.sink])
        return self._arrival(query.operator) + last

    def _arrival(self, op: Operator) -> float:
        delay = self.world.delay
        if not op.inputs:
            (stream,) = op.definition.streams
            return float(delay[self.world.source[stream], op.site])
        return max(self._arrival(one) + float(delay[one.site, op.site]) for one in op.inputs)

    def relaxations(self, op: Operator, need: Definition) -> Changes:
        """What has to change so that an operator computes what is needed too, inputs included."""
        if contains(op.definition, need):
            return {}
        wider = relax(op.definition, need)
        changes = {op: wider}
        for one in op.inputs:
            changes |= self.relaxations(one, one.part(wider))
        return changes

    # ---- changes

    def add(
        self, wanted: Definition, site: int, inputs: tuple[Operator, ...], until: float
    ) -> Operator:
        """Start an operator; what it reads from others is needed from there on."""
        op = Operator(self._count, wanted, site, inputs, until)
        self._count += 1
        self._operators[op] = None
        self._alike[wanted.streams, wanted.joins][op] = None
        self._ask(op)
        return op

    def change(self, changes: Changes) -> None:
        """Let operators compute other definitions of the same joins."""
        for op, definition in changes.items():
            op.definition = definition
            self._ask(op)

    def attach(
        self, number: int, wanted: Definition, op: Operator, sink: int, until: float
    ) -> None:
        """Let a query read an operator that contains what it wants."""
        op.needs["query", number] = wanted
        self.queries[number] = Deployed(wanted, op, sink, until)
        for one in op.all:
            one.until = max(one.until, until)

    def leave(self, number: int) -> None:
        """End a query; operators that nobody uses end with it, others are tightened if it pays."""
        self._release(self.queries.pop(number).operator, ("query", number))

    def _ask(self, op: Operator) -> None:
        """Let the inputs of an operator know what it needs of them."""
        for one in op.inputs:
            one.needs["operator", op.number] = one.part(op.definition)

    def _release(self, op: Operator, user: User) -> None:
        del op.needs[user]
        if op.needs:
            self._tighten(op)
            return
        del self._operators[op]
        del self._alike[op.definition.streams, op.definition.joins][op]
        for one in op.inputs:
            self._release(one, ("operator", op.number))

    def _tighten(self, op: Operator) -> None:
        tight = self._least(op)
        before = self._tree_usage(op, op.definition)
        if before - self._tree_usage(op, tight) > WORTHWHILE * before:
            self.change({op: tight})
            for one in op.inputs:
                self._tighten(one)

    def _tree_usage(self, op: Operator, definition: Definition) -> float:
        """Network usage of an operator and its inputs if these were there for it alone."""
        own = self.input_usage(op, definition)
        return own + sum(self._tree_usage(one, one.part(definition)) for one in op.inputs)

    def _least(self, op: Operator) -> Definition:
        """The least definition for the users of an operator, widest first to be done early."""
        needs = sorted(set(op.needs.values()), key=self.rates.joined, reverse=True)
        found = needs[0]
        for need in needs[1:]:
            if contains(found, op.definition):
                break
            if not contains(found, need):
                found = relax(found, need)
        return found
