"""The operators that run, who uses them, and what all of it costs.

An operator joins two inputs at a site: streams, or the output of another operator. It computes the
least definition that contains what its users need; each user gets its part through a compensating
filter at the operator's site, so that only this part travels. Users are queries and operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.reproduce.streamreuse.definition import (
    Definition,
    Joins,
    contains,
    relax,
    restrict,
)
from headwater.reproduce.streamreuse.world import Rates, World, pushed_bounds

WORTHWHILE = 0.05
"""An operator is tightened when that saves this share of what its inputs cost."""


@dataclass(eq=False)
class Operator:
    """A join at a site. `needs` is what each user needs, `until` when the last one leaves."""

    number: int
    definition: Definition
    site: int
    left: Operator | str
    right: str
    until: float
    needs: dict[object, Definition] = field(default_factory=dict)

    @property
    def base(self) -> list[str]:
        """The streams that it reads from their sources."""
        return [one for one in (self.left, self.right) if isinstance(one, str)]

    @property
    def chain(self) -> Iterator[Operator]:
        """Itself and the operators that feed it, one after the other."""
        at: Operator | str = self
        while isinstance(at, Operator):
            yield at
            at = at.left


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
        self._by_join: dict[tuple[frozenset[str], Joins], dict[Operator, None]] = defaultdict(dict)
        self._count = 0

    # ---- questions

    def candidates(self, wanted: Definition, near: int) -> list[Operator]:
        """The operators over the same streams and joins, in the regions of a bit vector."""
        found = self._by_join.get((wanted.streams, wanted.joins), {})
        return [op for op in found if self.world.regions.bits([op.site]) & near]

    def input_usage(self, op: Operator, definition: Definition) -> float:
        """Network usage of an operator's inputs if that were its definition."""
        transit, rates = self.world.transit, self.rates
        total = sum(
            rates.sent(definition, stream) * transit[self.world.source[stream], op.site]
            for stream in op.base
        )
        if isinstance(op.left, Operator):
            part = restrict(definition, op.left.definition.streams)
            total += rates.joined(part) * transit[op.left.site, op.site]
        return float(total)

    def usage(self) -> float:
        """Network usage of all inputs of operators and all results."""
        inputs = sum(self.input_usage(op, op.definition) for op in self._operators)
        results = sum(
            self.rates.joined(query.wanted) * self.world.transit[query.operator.site, query.sink]
            for query in self.queries.values()
        )
        return float(inputs + results)

    @property
    def joins(self) -> int:
        return len(self._operators)

    @property
    def selections(self) -> int:
        """Selections at sources, and compensating ones behind operators."""
        at_sources = sum(
            not _is_open(op.definition, stream) for op in self._operators for stream in op.base
        )
        behind = sum(need != op.definition for op in self._operators for need in op.needs.values())
        return at_sources + behind

    def latency(self, number: int) -> float:
        """The longest way of a tuple to the reader of a query."""
        query = self.queries[number]
        return self._arrival(query.operator) + float(
            self.world.delay[query.operator.site, query.sink]
        )

    def _arrival(self, op: Operator) -> float:
        delay, source = self.world.delay, self.world.source
        times = [float(delay[source[stream], op.site]) for stream in op.base]
        if isinstance(op.left, Operator):
            times.append(self._arrival(op.left) + float(delay[op.left.site, op.site]))
        return max(times)

    def relaxations(self, op: Operator, need: Definition) -> Changes:
        """What has to change so that an operator computes what is needed too, upstream included."""
        if contains(op.definition, need):
            return {}
        wider = relax(op.definition, need)
        changes = {op: wider}
        if isinstance(op.left, Operator):
            changes |= self.relaxations(op.left, restrict(wider, op.left.definition.streams))
        return changes

    # ---- changes

    def add(
        self, wanted: Definition, site: int, left: Operator | str, right: str, until: float
    ) -> Operator:
        """Start an operator; what it reads from another one is needed from there on."""
        op = Operator(self._count, wanted, site, left, right, until)
        self._count += 1
        self._operators[op] = None
        self._by_join[wanted.streams, wanted.joins][op] = None
        if isinstance(left, Operator):
            left.needs[op.number, "op"] = restrict(wanted, left.definition.streams)
        return op

    def change(self, changes: Changes) -> None:
        """Let operators compute other definitions of the same joins."""
        for op, definition in changes.items():
            op.definition = definition
            if isinstance(op.left, Operator):
                part = restrict(definition, op.left.definition.streams)
                op.left.needs[op.number, "op"] = part

    def attach(
        self, number: int, wanted: Definition, op: Operator, sink: int, until: float
    ) -> None:
        """Let a query read an operator that contains what it wants."""
        op.needs[number, "query"] = wanted
        self.queries[number] = Deployed(wanted, op, sink, until)
        for one in op.chain:
            one.until = max(one.until, until)

    def leave(self, number: int) -> None:
        """End a query; operators that nobody uses end with it, others are tightened if it pays."""
        op = self.queries.pop(number).operator
        self._release(op, (number, "query"))

    def _release(self, op: Operator, user: object) -> None:
        del op.needs[user]
        if op.needs:
            self._tighten(op)
            return
        del self._operators[op]
        del self._by_join[op.definition.streams, op.definition.joins][op]
        if isinstance(op.left, Operator):
            self._release(op.left, (op.number, "op"))

    def _tighten(self, op: Operator) -> None:
        tight = self._least(op)
        before = self.input_usage(op, op.definition)
        if before - self.input_usage(op, tight) <= WORTHWHILE * before:
            return
        self.change({op: tight})
        if isinstance(op.left, Operator):
            self._tighten(op.left)

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


def _is_open(definition: Definition, stream: str) -> bool:
    bounds = pushed_bounds(definition, stream)
    return not bounds.constraints and not bounds.terms
