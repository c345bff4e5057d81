"""Small random systems, and the search through all plans of them: slow, obvious, and the judge."""

from __future__ import annotations

import math
import random
from collections import defaultdict

from headwater.network.model import Site
from headwater.plan.placement.check import find_violations
from headwater.plan.placement.model import (
    Links,
    PlacementOperator,
    PlacementPlan,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
    RunOperator,
    SendStream,
    ServeStream,
    objective,
)
from headwater.plan.placement.samples import bipartitions


def random_system(
    seed: int, hosts: int = 4, queries: int = 4, links: bool | None = None
) -> PlacementProblem:
    """A system so small and so tight that some queries fit and some do not."""
    dice = random.Random(seed)
    count = dice.randint(2, hosts)
    sites = tuple(
        Site(
            f"h{i}",
            cpu=dice.choice((0, 8, 15, 25)),
            memory=dice.choice((2, 4, math.inf)),
            bandwidth_in=dice.choice((6, 12, 20, math.inf)),
            bandwidth_out=dice.choice((6, 12, 20)),
        )
        for i in range(count)
    )
    limited = dice.random() < 0.4 if links is None else links
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    narrow = {pair: dice.choice((0, 3, 8, 30)) for pair in pairs} if limited else {}
    names = "abcd"
    streams = [
        PlacementStream(name, frozenset(name), dice.randint(1, 6), (dice.randrange(count),))
        for name in names
    ]
    known = {stream.parts: place for place, stream in enumerate(streams)}
    operators: list[PlacementOperator] = []

    def over(parts: tuple[str, ...]) -> int:
        if frozenset(parts) not in known:
            ways = [tuple(over(half) for half in cut) for cut in bipartitions(parts)]
            known[frozenset(parts)] = len(streams)
            streams.append(
                PlacementStream("".join(sorted(parts)), frozenset(parts), dice.randint(1, 4))
            )
            for inputs in ways:
                cpu = sum(streams[s].rate for s in inputs)
                operators.append(PlacementOperator(inputs, known[frozenset(parts)], cpu, memory=1))
        return known[frozenset(parts)]

    wanted = [
        over(tuple(dice.sample(names, dice.choice((2, 2, 3)))))
        for _ in range(dice.randint(2, queries))
    ]
    asked = tuple(PlacementQuery(f"q{i}", stream) for i, stream in enumerate(wanted))
    return PlacementProblem(sites, tuple(streams), tuple(operators), asked, Links(math.inf, narrow))


def exhaustive(problem: PlacementProblem, plan: PlacementPlan, queries: list[int]) -> float | None:
    """The least objective of all plans that also admit these queries; None if there is no such plan.

    What does not belong to the scope of the queries stays as it is.
    """
    wanted = {problem.queries[q].stream for q in queries}
    scopes = [problem.scope(s) for s in wanted]
    mine = {s for scope in scopes for s in scope.streams}
    operators = {o for scope in scopes for o in scope.operators}
    admitted = plan.admitted | set(queries)
    fixed = PlacementPlan(
        frozenset(r for r in plan.runs if r.operator not in operators),
        frozenset(s for s in plan.sends if s.stream not in mine),
        frozenset(s for s in plan.serves if s.stream not in mine),
        admitted,
    )
    needs = {
        (s, r.site) for r in fixed.runs for s in problem.operators[r.operator].inputs if s in mine
    }
    serving = sorted({problem.queries[q].stream for q in admitted} & mine)
    found = _Search(problem, fixed)
    found.serve(serving, sorted(needs))
    return None if found.best == math.inf else found.best


class _Search:
    """Depth first through all ways to have what is needed, one origin for each stream at each site."""

    def __init__(self, problem: PlacementProblem, fixed: PlacementPlan) -> None:
        self.problem, self.best = problem, math.inf
        self.runs, self.sends, self.serves = list(fixed.runs), list(fixed.sends), list(fixed.serves)
        self.admitted = fixed.admitted
        self.senders: dict[tuple[int, int], int] = {}
        self.left = [[s.cpu, s.memory, s.bandwidth_in, s.bandwidth_out] for s in problem.sites]
        self.links: dict[tuple[int, int], float] = defaultdict(float)
        for run in self.runs:
            self.take(run.site, (0, problem.operators[run.operator].cpu))
            self.take(run.site, (1, problem.operators[run.operator].memory))
        for send in self.sends:
            self.carry(send, 1)
        for serve in self.serves:
            self.take(serve.site, (3, problem.streams[serve.stream].rate))

    def take(self, site: int, *amounts: tuple[int, float]) -> bool:
        """Use resources of a site; whether there was enough."""
        for resource, amount in amounts:
            self.left[site][resource] -= amount
        return all(self.left[site][resource] >= 0 for resource, _ in amounts)

    def carry(self, send: SendStream, times: int) -> bool:
        rate = times * self.problem.streams[send.stream].rate
        enough = [self.take(send.origin, (3, rate)), self.take(send.target, (2, rate))]
        pair = send.origin, send.target
        self.links[pair] += rate
        return all(enough) and self.links[pair] <= self.problem.links[pair]

    def plan(self) -> PlacementPlan:
        return PlacementPlan(
            frozenset(self.runs), frozenset(self.sends), frozenset(self.serves), self.admitted
        )

    def serve(self, streams: list[int], needs: list[tuple[int, int]]) -> None:
        if not streams:
            self.obtain(needs, frozenset())
            return
        stream = streams[0]
        rate = self.problem.streams[stream].rate
        for site in range(len(self.problem.sites)):
            self.serves.append(ServeStream(site, stream))
            if self.take(site, (3, rate)):
                self.serve(streams[1:], [*needs, (stream, site)])
            self.take(site, (3, -rate))
            self.serves.pop()

    def obtain(self, needs: list[tuple[int, int]], done: frozenset[tuple[int, int]]) -> None:
        problem = self.problem
        while needs and (needs[0] in done or needs[0][1] in problem.streams[needs[0][0]].sites):
            needs = needs[1:]
        if self.best < math.inf and objective(problem, self.plan()) >= self.best - 1e-9:
            return
        if not needs:
            plan = self.plan()
            assert not find_violations(problem, plan)
            self.best = objective(problem, plan)
            return
        (stream, site), rest = needs[0], needs[1:]
        done = done | {(stream, site)}
        for maker in problem.producers[stream]:
            operator = problem.operators[maker]
            self.runs.append(RunOperator(site, maker))
            if self.take(site, (0, operator.cpu), (1, operator.memory)):
                self.obtain([*((s, site) for s in operator.inputs), *rest], done)
            self.take(site, (0, -operator.cpu), (1, -operator.memory))
            self.runs.pop()
        for origin in range(len(problem.sites)):
            if origin == site or self.comes_from(stream, origin, site):
                continue
            send = SendStream(origin, site, stream)
            self.sends.append(send)
            self.senders[stream, site] = origin
            if self.carry(send, 1):
                self.obtain([(stream, origin), *rest], done)
            self.carry(send, -1)
            del self.senders[stream, site]
            self.sends.pop()

    def comes_from(self, stream: int, site: int, ancestor: int) -> bool:
        """Whether what a site has of a stream comes from another one: it must not send it back."""
        while (stream, site) in self.senders:
            site = self.senders[stream, site]
            if site == ancestor:
                return True
        return False
