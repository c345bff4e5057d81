"""The simulators in plain Python, on the event kernel: slow, obvious, and what the compiled ones must equal.

Queues and windows are real collections here, and every choice ranks every candidate by the policy.
A plan lists what waits and runs what was chosen; the processor runs one candidate at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Protocol

from headwater.schedule import Candidate, Policy, WorkEstimate, next_candidate
from headwater.sim.arrivals import Arrivals
from headwater.sim.coin_flips import coin_flip, pass_threshold, run_key
from headwater.sim.kernel import Process, Simulation
from headwater.sim.metrics import (
    COUNT,
    MAX_RESPONSE,
    MAX_SLOWDOWN,
    RESPONSE,
    SLOWDOWN,
    SQUARED_SLOWDOWN,
    SimulationResult,
    empty_tally,
)
from headwater.sim.workload import Chain, SharedSet, SimulatedOperator, WindowJoin

PAIR_FACTOR = 1 << 32
"""The number of a pair of tuples is this times the left one's, plus the right one's."""

NumberedTuple = tuple[int, float]
"""A tuple is its number in the stream and the time of its arrival."""


class RunRecorder:
    """Runs operators, and keeps what came of it."""

    def __init__(self, queries: int, seed: int) -> None:
        self.tally = empty_tally(queries)
        self.executions = 0
        self._key = run_key(seed)

    def passes(self, number: int, position: int, operator: SimulatedOperator) -> bool:
        """Whether a tuple passes the operator that has this place among all."""
        return coin_flip(self._key, number, position) < pass_threshold(operator.selectivity)

    def execute(self, operator: SimulatedOperator, now: float) -> float:
        """The time when the operator is through with a tuple."""
        self.executions += 1
        return now + operator.cost

    def record_result(self, query: int, response: float, slowdown: float) -> None:
        row = self.tally[query]
        row[COUNT] += 1.0
        row[RESPONSE] += response
        row[SLOWDOWN] += slowdown
        row[SQUARED_SLOWDOWN] += slowdown * slowdown
        row[MAX_SLOWDOWN] = max(row[MAX_SLOWDOWN], slowdown)
        row[MAX_RESPONSE] = max(row[MAX_RESPONSE], response)


class SimulatedPlan(Protocol):
    """Queries under way."""

    recorder: RunRecorder
    queries: Sequence[str]

    def add_tuple(self, stream: int, item: NumberedTuple, /) -> None:
        """Append a tuple of a stream to the queues."""

    def candidates(self) -> Iterable[Candidate]:
        """The candidates; those first that win a tie."""

    def run(self, name: str, now: float) -> float:
        """Run the oldest tuple of a candidate; returns when it is done."""


class Processor:
    """Runs what the policy chooses, one after the other."""

    def __init__(
        self,
        simulation: Simulation,
        plan: SimulatedPlan,
        policy: Policy,
        bound: float | None = None,
    ) -> None:
        self.decisions = 0
        self._simulation, self._plan, self._policy, self._bound = simulation, plan, policy, bound
        self._busy = False
        count = len(plan.queries)
        # Below 0 and in order, so that round robin begins with the first query
        # (`slots.initial_turns`).
        self._last_served = {query: float(n - count) for n, query in enumerate(plan.queries)}

    def wake(self) -> None:
        """Something has arrived."""
        if not self._busy:
            self._busy = True
            self._simulation.schedule_after(0.0, self._decide)

    def _decide(self) -> None:
        candidates = [
            replace(candidate, last_served=self._last_served[candidate.query])
            for candidate in self._plan.candidates()
        ]
        self._busy = bool(candidates)
        if candidates:
            now = self._simulation.now
            chosen = next_candidate(self._policy, candidates, now, self._bound)
            self.decisions += 1
            self._last_served[chosen.query] = self.decisions
            end_time = self._plan.run(chosen.name, now)
            self._simulation.schedule_at(end_time, self._finish)

    def _finish(self) -> None:
        """What arrives at this very time takes part in the choice."""
        self._simulation.schedule_after(0.0, self._decide)


def run_plan(
    plan: SimulatedPlan,
    policy: Policy,
    streams: Sequence[Arrivals],
    seeds: Sequence[int],
    bound: float | None = None,
) -> SimulationResult:
    """Simulate until all tuples are through; each stream has the seed of its arrivals."""
    simulation = Simulation()
    processor = Processor(simulation, plan, policy, bound)

    def feed(stream: int) -> Process:
        times = (float(t) for chunk in streams[stream].chunks(seeds[stream]) for t in chunk)
        # All tuples of a time are in their queues before anything is chosen.
        for time, together in groupby(enumerate(times), key=lambda one: one[1]):
            yield time - simulation.now
            for item in together:
                plan.add_tuple(stream, item)
            processor.wake()

    for stream in range(len(streams)):
        simulation.start_process(feed(stream))
    simulation.run()
    return SimulationResult(
        plan.recorder.tally, simulation.now, plan.recorder.executions, processor.decisions
    )


# ---- plans


class PlainChains:
    """Queries over one stream, with a queue before each operator."""

    def __init__(self, chains: Sequence[Chain], seed: int, by_operator: bool = False) -> None:
        self.recorder = RunRecorder(len(chains), seed)
        self.queries = [str(query) for query in range(len(chains))]
        self._chains, self._by_operator = chains, by_operator
        self._width = max(len(chain.operators) for chain in chains)
        self._queues: dict[str, deque[NumberedTuple]] = {}
        self._stages: dict[str, tuple[int, int]] = {}
        self._segments: dict[str, WorkEstimate] = {}
        for query, chain in enumerate(chains):
            for stage in reversed(range(len(chain.operators) if by_operator else 1)):
                name = f"{query}.{stage}"
                self._stages[name] = query, stage
                self._queues[name] = deque()
                self._segments[name] = chain.segment(stage)

    def add_tuple(self, _stream: int, item: NumberedTuple, /) -> None:
        for query in range(len(self._chains)):
            self._queues[f"{query}.0"].append(item)

    def candidates(self) -> Iterator[Candidate]:
        for name, queue in self._queues.items():
            if queue:
                query = str(self._stages[name][0])
                yield Candidate(name, queue[0][1], (self._segments[name],), len(queue), query=query)

    def run(self, name: str, now: float) -> float:
        query, stage = self._stages[name]
        number, since = self._queues[name].popleft()
        chain = self._chains[query]
        last = stage + 1 if self._by_operator else len(chain.operators)
        for position in range(stage, last):
            operator = chain.operators[position]
            now = self.recorder.execute(operator, now)
            if not self.recorder.passes(number, query * self._width + position, operator):
                return now
        if last < len(chain.operators):
            self._queues[f"{query}.{last}"].append((number, since))
        else:
            self.recorder.record_result(query, now - since, (now - since) / chain.ideal)
        return now


class PlainJoins:
    """Queries over two streams, with the contents of both windows."""

    def __init__(self, joins: Sequence[WindowJoin], seed: int) -> None:
        self.recorder = RunRecorder(len(joins), seed)
        self.queries = [str(query) for query in range(len(joins))]
        self._joins = joins
        self._queues = {
            f"{q}.{side}": deque[NumberedTuple]() for q in range(len(joins)) for side in (0, 1)
        }
        self._segments = {
            f"{query}.{side}": join.segment(side)
            for query, join in enumerate(joins)
            for side in (0, 1)
        }
        self._windows = [(deque[NumberedTuple](), deque[NumberedTuple]()) for _ in joins]

    def add_tuple(self, stream: int, item: NumberedTuple, /) -> None:
        for query in range(len(self._joins)):
            self._queues[f"{query}.{stream}"].append(item)

    def candidates(self) -> Iterator[Candidate]:
        for name, queue in self._queues.items():
            if queue:
                query, segment = name.split(".")[0], self._segments[name]
                yield Candidate(name, queue[0][1], (segment,), len(queue), query=query)

    def run(self, name: str, now: float) -> float:
        query, side = map(int, name.split("."))
        join = self._joins[query]
        item = self._queues[name].popleft()
        now = self.recorder.execute(join.sides[side], now)
        if not self.recorder.passes(item[0], 4 * query + side, join.sides[side]):
            return now
        now = self.recorder.execute(join.join, now)
        self._windows[query][side].append(item)
        others = self._windows[query][1 - side]
        while others and others[0][1] < item[1] - join.window:
            others.popleft()
        for other in others:
            if other[1] <= item[1] + join.window:
                now = self._run_pair(query, (item, other) if side == 0 else (other, item), now)
        return now

    def _run_pair(self, query: int, pair: tuple[NumberedTuple, NumberedTuple], now: float) -> float:
        join = self._joins[query]
        number = pair[0][0] * PAIR_FACTOR + pair[1][0]
        if not self.recorder.passes(number, 4 * query + 2, join.join):
            return now
        now = self.recorder.execute(join.common, now)
        if self.recorder.passes(number, 4 * query + 3, join.common):
            ideal = ideal_departure(join, pair[0][1], pair[1][1])
            response = now - max(pair[0][1], pair[1][1])
            self.recorder.record_result(query, response, 1.0 + (now - ideal) / join.ideal)
        return now


def ideal_departure(join: WindowJoin, left: float, right: float) -> float:
    """When the result of two tuples would leave if they were alone: it waits for the later one only."""
    sides = (0, 1) if left <= right else (1, 0)
    first, second = (join.sides[side].cost + join.join.cost for side in sides)
    return max(min(left, right) + first, max(left, right)) + second + join.common.cost


class PlainSets:
    """Sets of queries that share their first operator."""

    def __init__(self, sets: Sequence[SharedSet], policy: Policy, seed: int) -> None:
        self.recorder = RunRecorder(sum(len(shared_set.branches) for shared_set in sets), seed)
        self._sets = sets
        self._width = 1 + max(len(b) for shared_set in sets for b in shared_set.branches)
        self._shared_candidates = [
            Candidate(f"{n}", 0.0, s.segments(), 1, s.first.cost) for n, s in enumerate(sets)
        ]
        self._trees = [
            policy.tree(candidate).segment_positions for candidate in self._shared_candidates
        ]
        branches = [
            f"{n}.{branch}" for n, s in enumerate(sets) for branch in range(len(s.branches))
        ]
        self.queries = [*(candidate.name for candidate in self._shared_candidates), *branches]
        self._queues = [deque[NumberedTuple]() for _ in sets]
        self._branch_queues = {
            f"{number}.{branch}": deque[NumberedTuple]()
            for number, shared_set in enumerate(sets)
            for branch in range(len(shared_set.branches))
            if branch not in self._trees[number]
        }
        self._segments = {
            name: sets[int(number)].branch_segment(int(branch))
            for name in self._branch_queues
            for number, branch in [name.split(".")]
        }

    def add_tuple(self, _stream: int, item: NumberedTuple, /) -> None:
        for queue in self._queues:
            queue.append(item)

    def candidates(self) -> Iterator[Candidate]:
        for name, queue in enumerate(self._queues):
            if queue:
                candidate = self._shared_candidates[name]
                yield Candidate(
                    candidate.name,
                    queue[0][1],
                    candidate.segments,
                    len(queue),
                    candidate.shared_cost,
                    f"{name}",
                )
        for rest, queue in self._branch_queues.items():
            if queue:
                segment = self._segments[rest]
                yield Candidate(rest, queue[0][1], (segment,), len(queue), query=rest)

    def run(self, name: str, now: float) -> float:
        if "." in name:
            number, branch = map(int, name.split("."))
            return self._run_branch(number, branch, self._branch_queues[name].popleft(), now)
        number = int(name)
        item = self._queues[number].popleft()
        first = self._sets[number].first
        now = self.recorder.execute(first, now)
        if self.recorder.passes(item[0], self._query_number(number, 0) * self._width, first):
            for branch in range(len(self._sets[number].branches)):
                if branch not in self._trees[number]:
                    self._branch_queues[f"{number}.{branch}"].append(item)
            for branch in self._trees[number]:
                now = self._run_branch(number, branch, item, now)
        return now

    def _run_branch(self, number: int, branch: int, item: NumberedTuple, now: float) -> float:
        query = self._query_number(number, branch)
        for stage, operator in enumerate(self._sets[number].branches[branch], 1):
            now = self.recorder.execute(operator, now)
            if not self.recorder.passes(item[0], query * self._width + stage, operator):
                return now
        response = now - item[1]
        self.recorder.record_result(query, response, response / self._sets[number].ideal(branch))
        return now

    def _query_number(self, number: int, branch: int) -> int:
        return sum(len(shared_set.branches) for shared_set in self._sets[:number]) + branch
