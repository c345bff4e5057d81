"""Headwater's planner: a ladder of steps, each taken only when the one before has failed.

An equal query is served already; the dynamic program finds most plans in less than a millisecond; ruin
and recreate makes room, and improves the plan even if it does not; the exact form then finds what is
left in the query's scope, or proves that there is nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headwater.plan.placement.check import RESOURCES, Broken, check, within
from headwater.plan.placement.compact import Compact
from headwater.plan.placement.dynamic import Place, Taste, place
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import Load
from headwater.plan.placement.model import Plan
from headwater.plan.placement.planner import Budget, Clock, Decision, duplicate
from headwater.plan.placement.program import Status
from headwater.plan.placement.recreate import recreate
from headwater.plan.placement.rest import TOGETHER, Rest
from headwater.plan.placement.solver import by_cp_sat

MOST_SITES = 100
"""With more sites, the exact step counts those as one that have no part in a query."""

GAP = 0.05
"""The exact step ends when its plan is so near to the best."""


@dataclass
class Ladder:
    """The default planner. It remembers which streams queries wanted, to prefer popular ones.

    `steps` are those to be taken after the first, in order; `place` is the dynamic program.
    """

    steps: tuple[str, ...] = ("dynamic", "recreate", "exact")
    place: Place = place
    taste: Taste = field(default_factory=Taste)

    def __call__(
        self, ledger: Ledger, queries: Sequence[int], budget: Budget
    ) -> Iterator[Decision]:
        for query in queries:
            clock = Clock(budget)
            decision = self._decide(ledger, query, budget, clock)
            yield replace(decision, seconds=clock.passed)

    def _decide(self, ledger: Ledger, query: int, budget: Budget, clock: Clock) -> Decision:
        stream = ledger.problem.queries[query].stream
        self.taste.notice(ledger.problem, stream)
        found = duplicate(ledger, query)
        if found is not None:
            return found
        proven = False
        for step in self.steps:
            if step == "dynamic":
                done = self.place(ledger, stream, self.taste)
            elif step == "recreate":
                dice = random.Random(f"{budget.seed} {query}")
                done = recreate(ledger, stream, self.taste, self.place, dice, clock)
            else:
                done, proven = exact(ledger, [query], clock.left)
            if done:
                ledger.ask(query)
                ledger.settle()
                return Decision(query, True, step)
        ledger.settle()
        short = shortage(ledger, query, self.taste)
        return Decision(query, False, self.steps[-1], proven, short)


def exact(
    ledger: Ledger, queries: Sequence[int], seconds: float, gap: float = GAP
) -> tuple[bool, bool]:
    """Plan the scope of queries anew; whether all are served now, and if not whether none can be."""
    if seconds <= 0:
        return False, False
    begun = time.perf_counter()
    problem = ledger.problem
    wanted = [problem.queries[query].stream for query in queries]
    rest = Rest(ledger, wanted)
    ways = [rest]
    if len(problem.sites) > MOST_SITES and not problem.tight_links:
        ways = [rest.narrowed(together=True), rest.narrowed(together=False)]
    for narrowed in ways:
        form = Compact(narrowed, wanted)
        left = seconds - (time.perf_counter() - begun)
        solution = by_cp_sat(form.program, left, gap)
        if solution.values is None:
            everywhere = narrowed is ways[0]
            return False, everywhere and solution.status is Status.INFEASIBLE
        plan = form.plan(solution, queries)
        if not _together(plan) and not check(problem, plan):
            ledger.adopt(plan)
            return True, False
    return False, False


def _together(plan: Plan) -> bool:
    """Whether it uses sites that were counted as one."""
    sites = {run.site for run in plan.runs} | {serve.site for serve in plan.serves}
    return TOGETHER in sites.union(*((send.origin, send.target) for send in plan.sends))


def shortage(ledger: Ledger, query: int, taste: Taste) -> tuple[Broken, ...]:
    """What would be overfull in the cheapest plan for a query that has none."""
    problem = ledger.problem
    stream = problem.queries[query].stream
    with ledger.attempt():
        if not place(ledger, stream, taste, limited=False):
            name = problem.streams[stream].name
            return (Broken("availability", name, 1, "no site can come by all that it is made of"),)
        return overfull(ledger)


def overfull(ledger: Ledger) -> tuple[Broken, ...]:
    """The sites and links of which a ledger takes more than they have."""
    problem = ledger.problem
    found: list[Broken] = []
    for site, resource in np.argwhere(ledger.free.T < 0).tolist():
        capacity = float(ledger.capacity[resource, site])
        load = Load(capacity - float(ledger.free[resource, site]), capacity)
        found += within(RESOURCES[resource], problem.sites[site].name, load)
    if problem.tight_links:
        for (a, b), used in sorted(ledger.sent.items()):
            where = f"{problem.sites[a].name} -> {problem.sites[b].name}"
            found += within("link", where, Load(used, problem.links[a, b]))
    return tuple(found)
