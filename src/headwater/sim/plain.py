"""The simulators in plain Python, on the event kernel: slow, obvious, and what the compiled ones must equal.

Here queues and windows are what they are called, and every choice asks the policy about every candidate.
A plan says what waits and runs what was chosen; the processor takes one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Protocol

from headwater.schedule import Measured, Policy, Waiting, next_of
from headwater.sim.arrivals import Arrivals
from headwater.sim.fate import fate, key_of, threshold
from headwater.sim.kernel import Process, Simulation
from headwater.sim.metrics import (
    COUNT,
    LARGEST,
    LONGEST,
    RESPONSE,
    SLOWDOWN,
    SQUARES,
    Outcome,
    empty_tally,
)
from headwater.sim.workload import Chain, Operator, SharedSet, WindowJoin

PAIR = 1 << 32
"""The number of a pair of tuples is this times the left one's, plus the right one's."""

Tuple = tuple[int, float]
"""A tuple is its number in the stream and the time of its arrival."""


class Meter:
    """Runs operators, and keeps what came of it."""

    def __init__(self, queries: int, seed: int) -> None:
        self.tally = empty_tally(queries)
        self.executed = 0
        self._key = key_of(seed)

    def passes(self, number: int, place: int, operator: Operator) -> bool:
        """Whether a tuple passes the operator that has this place among all."""
        return fate(self._key, number, place) < threshold(operator.selectivity)

    def run(self, operator: Operator, now: float) -> float:
        """The time when the operator is through with a tuple."""
        self.executed += 1
        return now + operator.cost

    def record(self, query: int, response: float, slowdown: float) -> None:
        row = self.tally[query]
        row[COUNT] += 1.0
        row[RESPONSE] += response
        row[SLOWDOWN] += slowdown
        row[SQUARES] += slowdown * slowdown
        row[LARGEST] = max(row[LARGEST], slowdown)
        row[LONGEST] = max(row[LONGEST], response)


class Plan(Protocol):
    """Queries under way."""

    meter: Meter
    queries: Sequence[str]

    def arrive(self, stream: int, one: Tuple, /) -> None:
        """Take a tuple of a stream in."""

    def waiting(self) -> Iterable[Waiting]:
        """The candidates; those first that win a tie."""

    def run(self, name: str, now: float) -> float:
        """Run the oldest tuple of a candidate; returns when it is done."""


class Processor:
    """Runs what the policy chooses, one after the other."""

    def __init__(
        self, simulation: Simulation, plan: Plan, policy: Policy, bound: float | None = None
    ) -> None:
        self.decisions = 0
        self._simulation, self._plan, self._policy, self._bound = simulation, plan, policy, bound
        self._busy = False
        count = len(plan.queries)
        self._served = {query: float(n - count) for n, query in enumerate(plan.queries)}

    def wake(self) -> None:
        """Something has arrived."""
        if not self._busy:
            self._busy = True
            self._simulation.after(0.0, self._decide)

    def _decide(self) -> None:
        waiting = [
            replace(candidate, served=self._served[candidate.query])
            for candidate in self._plan.waiting()
        ]
        self._busy = bool(waiting)
        if waiting:
            now = self._simulation.now
            chosen = next_of(self._policy, waiting, now, self._bound)
            self.decisions += 1
            self._served[chosen.query] = self.decisions
            done = self._plan.run(chosen.name, now)
            self._simulation.at(done, self._done)

    def _done(self) -> None:
        """What arrives at this very time takes part in the choice."""
        self._simulation.after(0.0, self._decide)


def run_plan(
    plan: Plan,
    policy: Policy,
    streams: Sequence[Arrivals],
    seeds: Sequence[int],
    bound: float | None = None,
) -> Outcome:
    """Simulate until all tuples are through; each stream has the seed of its arrivals."""
    simulation = Simulation()
    processor = Processor(simulation, plan, policy, bound)

    def feed(stream: int) -> Process:
        times = (float(t) for chunk in streams[stream].chunks(seeds[stream]) for t in chunk)
        for time, together in groupby(enumerate(times), key=lambda one: one[1]):
            yield time - simulation.now
            for one in together:
                plan.arrive(stream, one)
            processor.wake()

    for stream in range(len(streams)):
        simulation.start(feed(stream))
    simulation.run()
    return Outcome(plan.meter.tally, simulation.now, plan.meter.executed, processor.decisions)


# ---- plans


class PlainChains:
    """Queries over one stream, with a queue before each operator."""

    def __init__(self, chains: Sequence[Chain], seed: int, by_operator: bool = False) -> None:
        self.meter = Meter(len(chains), seed)
        self.queries = [str(query) for query in range(len(chains))]
        self._chains, self._by_operator = chains, by_operator
        self._width = max(len(chain.operators) for chain in chains)
        self._queues: dict[str, deque[Tuple]] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._segments: dict[str, Measured] = {}
        for query, chain in enumerate(chains):
            for stage in reversed(range(len(chain.operators) if by_operator else 1)):
                name = f"{query}.{stage}"
                self._places[name] = query, stage
                self._queues[name] = deque()
                self._segments[name] = chain.segment(stage)

    def arrive(self, _stream: int, one: Tuple, /) -> None:
        for query in range(len(self._chains)):
            self._queues[f"{query}.0"].append(one)

    def waiting(self) -> Iterator[Waiting]:
        for name, queue in self._queues.items():
            if queue:
                query = str(self._places[name][0])
                yield Waiting(name, queue[0][1], (self._segments[name],), len(queue), query=query)

    def run(self, name: str, now: float) -> float:
        query, stage = self._places[name]
        number, since = self._queues[name].popleft()
        chain = self._chains[query]
        last = stage + 1 if self._by_operator else len(chain.operators)
        for place in range(stage, last):
            operator = chain.operators[place]
            now = self.meter.run(operator, now)
            if not self.meter.passes(number, query * self._width + place, operator):
                return now
        if last < len(chain.operators):
            self._queues[f"{query}.{last}"].append((number, since))
        else:
            self.meter.record(query, now - since, (now - since) / chain.ideal)
        return now


class PlainJoins:
    """Queries over two streams, with the contents of both windows."""

    def __init__(self, joins: Sequence[WindowJoin], seed: int) -> None:
        self.meter = Meter(len(joins), seed)
        self.queries = [str(query) for query in range(len(joins))]
        self._joins = joins
        self._queues = {f"{q}.{side}": deque[Tuple]() for q in range(len(joins)) for side in (0, 1)}
        self._segments = {
            f"{query}.{side}": join.segment(side)
            for query, join in enumerate(joins)
            for side in (0, 1)
        }
        self._windows = [(deque[Tuple](), deque[Tuple]()) for _ in joins]

    def arrive(self, stream: int, one: Tuple, /) -> None:
        for query in range(len(self._joins)):
            self._queues[f"{query}.{stream}"].append(one)

    def waiting(self) -> Iterator[Waiting]:
        for name, queue in self._queues.items():
            if queue:
                query, segment = name.split(".")[0], self._segments[name]
                yield Waiting(name, queue[0][1], (segment,), len(queue), query=query)

    def run(self, name: str, now: float) -> float:
        query, side = map(int, name.split("."))
        join = self._joins[query]
        one = self._queues[name].popleft()
        now = self.meter.run(join.sides[side], now)
        if not self.meter.passes(one[0], 4 * query + side, join.sides[side]):
            return now
        now = self.meter.run(join.join, now)
        self._windows[query][side].append(one)
        others = self._windows[query][1 - side]
        while others and others[0][1] < one[1] - join.window:
            others.popleft()
        for other in others:
            if other[1] <= one[1] + join.window:
                now = self._pair(query, (one, other) if side == 0 else (other, one), now)
        return now

    def _pair(self, query: int, pair: tuple[Tuple, Tuple], now: float) -> float:
        join = self._joins[query]
        number = pair[0][0] * PAIR + pair[1][0]
        if not self.meter.passes(number, 4 * query + 2, join.join):
            return now
        now = self.meter.run(join.common, now)
        if self.meter.passes(number, 4 * query + 3, join.common):
            ideal = ideal_departure(join, pair[0][1], pair[1][1])
            response = now - max(pair[0][1], pair[1][1])
            self.meter.record(query, response, 1.0 + (now - ideal) / join.ideal)
        return now


def ideal_departure(join: WindowJoin, left: float, right: float) -> float:
    """When the result of two tuples would leave if they were alone: it waits for the later one only."""
    sides = (0, 1) if left <= right else (1, 0)
    first, second = (join.sides[side].cost + join.join.cost for side in sides)
    return max(min(left, right) + first, max(left, right)) + second + join.common.cost


class PlainSets:
    """Sets of queries that share their first operator."""

    def __init__(self, sets: Sequence[SharedSet], policy: Policy, seed: int) -> None:
        self.meter = Meter(sum(len(one.branches) for one in sets), seed)
        self._sets = sets
        self._width = 1 + max(len(b) for one in sets for b in one.branches)
        self._waits = [
            Waiting(f"{n}", 0.0, s.segments(), 1, s.first.cost) for n, s in enumerate(sets)
        ]
        self._trees = [policy.tree(waits).members for waits in self._waits]
        branches = [
            f"{n}.{branch}" for n, s in enumerate(sets) for branch in range(len(s.branches))
        ]
        self.queries = [*(waits.name for waits in self._waits), *branches]
        self._queues = [deque[Tuple]() for _ in sets]
        self._rests = {
            f"{number}.{branch}": deque[Tuple]()
            for number, one in enumerate(sets)
            for branch in range(len(one.branches))
            if branch not in self._trees[number]
        }
        self._segments = {
            name: sets[int(number)].rest(int(branch))
            for name in self._rests
            for number, branch in [name.split(".")]
        }

    def arrive(self, _stream: int, one: Tuple, /) -> None:
        for queue in self._queues:
            queue.append(one)

    def waiting(self) -> Iterator[Waiting]:
        for name, queue in enumerate(self._queues):
            if queue:
                waits = self._waits[name]
                yield Waiting(
                    waits.name, queue[0][1], waits.segments, len(queue), waits.shared, f"{name}"
                )
        for rest, queue in self._rests.items():
            if queue:
                segment = self._segments[rest]
                yield Waiting(rest, queue[0][1], (segment,), len(queue), query=rest)

    def run(self, name: str, now: float) -> float:
        if "." in name:
            number, branch = map(int, name.split("."))
            return self._branch(number, branch, self._rests[name].popleft(), now)
        number = int(name)
        one = self._queues[number].popleft()
        first = self._sets[number].first
        now = self.meter.run(first, now)
        if self.meter.passes(one[0], self._query(number, 0) * self._width, first):
            for branch in range(len(self._sets[number].branches)):
                if branch not in self._trees[number]:
                    self._rests[f"{number}.{branch}"].append(one)
            for branch in self._trees[number]:
                now = self._branch(number, branch, one, now)
        return now

    def _branch(self, number: int, branch: int, one: Tuple, now: float) -> float:
        query = self._query(number, branch)
        for stage, operator in enumerate(self._sets[number].branches[branch], 1):
            now = self.meter.run(operator, now)
            if not self.meter.passes(one[0], query * self._width + stage, operator):
                return now
        response = now - one[1]
        self.meter.record(query, response, response / self._sets[number].ideal(branch))
        return now

    def _query(self, number: int, branch: int) -> int:
        return sum(len(one.branches) for one in self._sets[:number]) + branch
