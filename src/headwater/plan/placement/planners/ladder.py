"""Headwater's planner: a ladder of steps, each taken only when the one before has failed.

A duplicate joins the query that is served already; the dynamic program finds most plans in less than a
millisecond; ruin and recreate frees resources, and improves the plan even if that is not enough; the exact
program then searches the query's whole scope, or proves that there is no plan.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headwater.plan.placement.check import RESOURCES, Violation, check_capacity, find_violations
from headwater.plan.placement.fixed_load import MERGED_SITE, ReplanScope
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import Load
from headwater.plan.placement.model import PlacementPlan
from headwater.plan.placement.planner import Budget, BudgetClock, Decision, admit_duplicate
from headwater.plan.placement.planners.compact import CompactFormulation
from headwater.plan.placement.planners.dynamic import (
    StreamPlacer,
    StreamPopularity,
    place_stream,
)
from headwater.plan.placement.planners.recreate import ruin_and_recreate
from headwater.plan.placement.program import SolverStatus
from headwater.plan.placement.solver import solve_cp_sat

MAX_SITES = 100
"""With more sites than these, the exact step counts those as one that hold nothing of a query."""

GAP = 0.05
"""The exact step ends when its plan is within this fraction of the best."""


@dataclass
class LadderPlanner:
    """The default planner. It remembers which streams queries asked for, to prefer popular ones.

    `steps` are those after the check for duplicates, in order; `placer` is the dynamic program.
    """

    steps: tuple[str, ...] = ("dynamic", "recreate", "exact")
    placer: StreamPlacer = place_stream
    popularity: StreamPopularity = field(default_factory=StreamPopularity)

    def __call__(
        self, ledger: Ledger, queries: Sequence[int], budget: Budget
    ) -> Iterator[Decision]:
        for query in queries:
            clock = BudgetClock(budget)
            decision = self._decide(ledger, query, budget, clock)
            yield replace(decision, seconds=clock.elapsed)

    def _decide(self, ledger: Ledger, query: int, budget: Budget, clock: BudgetClock) -> Decision:
        stream = ledger.problem.queries[query].stream
        self.popularity.record_query(ledger.problem, stream)
        decision = admit_duplicate(ledger, query)
        if decision is not None:
            return decision
        proven = False
        for step in self.steps:
            if step == "dynamic":
                done = self.placer(ledger, stream, self.popularity)
            elif step == "recreate":
                # A generator for each query: a decision does not depend on how many draws others
                # needed.
                rng = random.Random(f"{budget.seed} {query}")
                done = ruin_and_recreate(ledger, stream, self.popularity, self.placer, rng, clock)
            else:
                done, proven = plan_exactly(ledger, [query], clock.remaining)
            if done:
                ledger.ask(query)
                ledger.commit()
                return Decision(query, True, step)
        ledger.commit()
        short = find_shortage(ledger, query, self.popularity)
        return Decision(query, False, self.steps[-1], proven, short)


def plan_exactly(
    ledger: Ledger, queries: Sequence[int], seconds: float, gap: float = GAP
) -> tuple[bool, bool]:
    """Plan the scope of queries again; returns whether all are served now, and if not, whether that is
    proven to be impossible."""
    if seconds <= 0:
        return False, False
    started = time.perf_counter()
    problem = ledger.problem
    requested = [problem.queries[query].stream for query in queries]
    scope = ReplanScope(ledger, requested)
    scopes = [scope]
    if len(problem.sites) > MAX_SITES and not problem.has_tight_links:
        # With the others as one site a refusal is a proof; a plan that uses them all the same is
        # none, and the query is solved without them.
        scopes = [scope.narrow(merge_others=True), scope.narrow(merge_others=False)]
    for narrowed in scopes:
        formulation = CompactFormulation(narrowed, requested)
        left = seconds - (time.perf_counter() - started)
        solution = solve_cp_sat(formulation.program, left, gap)
        if solution.values is None:
            # Only the first scope is a relaxation of the whole problem: infeasible there is
            # infeasible everywhere. Without the merged site it proves nothing.
            everywhere = narrowed is scopes[0]
            return False, everywhere and solution.status is SolverStatus.INFEASIBLE
        plan = formulation.extract_plan(solution, queries)
        if not _uses_merged_site(plan) and not find_violations(problem, plan):
            ledger.adopt(plan)
            return True, False
    return False, False


def _uses_merged_site(plan: PlacementPlan) -> bool:
    """Whether a plan uses the sites that were counted as one."""
    sites = {run.site for run in plan.runs} | {serve.site for serve in plan.serves}
    return MERGED_SITE in sites.union(*((send.origin, send.target) for send in plan.sends))


def find_shortage(
    ledger: Ledger, query: int, popularity: StreamPopularity
) -> tuple[Violation, ...]:
    """What would be overfull in the cheapest plan for a query that has none."""
    problem = ledger.problem
    stream = problem.queries[query].stream
    with ledger.attempt():
        if not place_stream(ledger, stream, popularity, limited=False):
            name = problem.streams[stream].name
            return (
                Violation("availability", name, 1, "no site can come by all that it is made of"),
            )
        return overfull_resources(ledger)


def overfull_resources(ledger: Ledger) -> tuple[Violation, ...]:
    """The sites and links of which a ledger takes more than they have."""
    problem = ledger.problem
    violations: list[Violation] = []
    for site, resource in np.argwhere(ledger.free.T < 0).tolist():
        capacity = float(ledger.capacity[resource, site])
        load = Load(capacity - float(ledger.free[resource, site]), capacity)
        violations += check_capacity(RESOURCES[resource], problem.sites[site].name, load)
    if problem.has_tight_links:
        for (a, b), used in sorted(ledger.sent.items()):
            where = f"{problem.sites[a].name} -> {problem.sites[b].name}"
            violations += check_capacity("link", where, Load(used, problem.links[a, b]))
    return tuple(violations)
