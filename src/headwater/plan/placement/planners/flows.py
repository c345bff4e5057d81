"""The paper's program for the scope of queries, with a variable for every stream between every two sites.

It is the form to compare with, as SQPR prints it (III.4 to III.8 and IV.9): x says who sends what to
whom, and potentials keep streams from feeding themselves. A single query is a hard constraint:
if there is no solution, it is refused. A batch is admitted as far as possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from headwater.plan.placement.check import find_violations
from headwater.plan.placement.fixed_load import ReplanScope
from headwater.plan.placement.ledger import SOURCE, Ledger
from headwater.plan.placement.model import (
    PlacementPlan,
    RunOperator,
    SendStream,
    ServeStream,
    total_capacity,
)
from headwater.plan.placement.planner import Budget, BudgetClock, Decision, admit_duplicate
from headwater.plan.placement.program import Floats, Indices, LinearProgram, Solution, SolverStatus
from headwater.plan.placement.solver import solve_highs

ADMISSION_VALUE = 10.0
"""The value of a query of a batch; all else together costs less than 4."""


class FlowFormulation:
    """The variables d, x, y, z and p of the paper for a scope, and its constraints."""

    def __init__(self, scope: ReplanScope, requested: Sequence[int], soft: bool = False) -> None:
        problem = scope.ledger.problem
        self.scope, self.problem, program = scope, problem, LinearProgram()
        self.program = program
        streams, operators = scope.streams, [problem.operators[o] for o in scope.operators]
        row_of = {s: i for i, s in enumerate(streams)}
        count, hosts = len(streams), len(problem.sites)
        self.demanded = list(dict.fromkeys([*scope.served, *requested]))
        self.d = program.add_variables((len(self.demanded), hosts))
        # No site sends to itself: the upper bound of these variables is 0.
        self.x = program.add_variables((count, hosts, hosts), 1.0 - np.eye(hosts))
        self.y = program.add_variables((count, hosts))
        self.z = program.add_variables((len(operators), hosts))
        p = program.add_variables((count, hosts), hosts + 1.0, integral=False)
        rates = np.array([problem.streams[s].rate for s in streams])

        # demand (III.4, IV.9)
        new = set(requested) - set(scope.served) if soft else set()
        for row, s in enumerate(self.demanded):
            program.add_rows(np.stack([self.d[row], self.y[row_of[s]]], 1), [1, -1], most=0.0)
            program.add_row(self.d[row], 1.0, 0.0 if s in new else 1.0, 1.0)
            if s in new:
                program.minimise(self.d[row], -ADMISSION_VALUE)
        # availability (III.5)
        for row, s in enumerate(streams):
            producers = [i for i, o in enumerate(operators) if o.output == s]
            here = np.concatenate([self.y[row][None], self.x[row], self.z[producers]]).T
            comes_in = np.zeros(hosts)
            comes_in[[h for h, o in scope.ledger.origins[s].items() if o == SOURCE]] = 1.0
            factors = [1.0] + [-1.0] * (hosts + len(producers))
            program.add_rows(here, factors, most=comes_in)
            sender = np.repeat(self.y[row], hosts)
            program.add_rows(np.stack([self.x[row].ravel(), sender], 1), [1, -1], most=0.0)
        for row, operator in enumerate(operators):
            for s in operator.inputs:
                program.add_rows(np.stack([self.z[row], self.y[row_of[s]]], 1), [1, -1], most=0.0)
        for s, site in sorted(scope.needed):
            program.add_row([int(self.y[row_of[s], site])], 1.0, least=1.0)
        # resources (III.6)
        served = rates[[row_of[s] for s in self.demanded]]
        cpu = np.array([o.cpu for o in operators])
        memory = np.array([o.memory for o in operators])
        for h in range(hosts):
            free = scope.free[:, h]
            out = np.concatenate([self.x[:, h, :].ravel(), self.d[:, h]])
            self._limit_load(self.z[:, h], cpu, free[0])
            self._limit_load(self.z[:, h], memory, free[1])
            self._limit_load(self.x[:, :, h].ravel(), np.repeat(rates, hosts), free[2])
            self._limit_load(out, np.concatenate([np.repeat(rates, hosts), served]), free[3])
            for m in range(hosts):
                if m != h:
                    self._limit_load(self.x[:, h, m], rates, scope.link_capacity(h, m))
        # acyclicity (III.7)
        # The M of the big-M constraint has to be above |H| + 1, the largest difference of
        # potentials.
        far = hosts + 2.0
        for row in range(count):
            high, low = np.repeat(p[row], hosts), np.tile(p[row], hosts)
            columns = np.stack([high, low, self.x[row].ravel()], 1)
            apart = ~np.eye(hosts, dtype=bool).ravel()
            program.add_rows(columns[apart], [1, -1, -far], least=1.0 - far)
        self._set_objective(rates, cpu)

    def _limit_load(self, columns: Indices, factors: Floats, free: float) -> None:
        if len(columns) and not math.isinf(free):
            self.program.add_row(columns, factors, most=max(0.0, free))

    def _set_objective(self, rates: Floats, cpu: Floats) -> None:
        program, weights = self.program, self.problem.weights
        bandwidth, power = total_capacity(self.problem)
        by_stream = np.repeat(rates, self.x[0].size)
        program.minimise(self.x, by_stream * weights.network / bandwidth)
        program.minimise(self.z, np.repeat(cpu, self.z.shape[1]) * weights.cpu / power)
        capacity = self.scope.ledger.capacity[0]
        if weights.balance:
            fullest = int(program.add_variables(1, integral=False)[0])
            for h in np.flatnonzero((capacity > 0) & np.isfinite(capacity)).tolist():
                used = 1.0 - self.scope.free[0, h] / capacity[h]
                columns = [*self.z[:, h].tolist(), fullest]
                program.add_row(columns, [*(cpu / capacity[h]).tolist(), -1.0], most=-used)
            program.minimise([fullest], weights.balance)

    def extract_plan(self, solution: Solution, queries: Iterable[int]) -> PlacementPlan:
        """The plan of an answer."""
        x, z, d = (solution.is_set(v) for v in (self.x, self.z, self.d))
        return self.scope.merge_plan(
            [RunOperator(int(h), self.scope.operators[o]) for o, h in np.argwhere(z)],
            [SendStream(int(h), int(m), self.scope.streams[s]) for s, h, m in np.argwhere(x)],
            [ServeStream(int(h), self.demanded[s]) for s, h in np.argwhere(d)],
            queries,
        )


def sqpr(ledger: Ledger, queries: Sequence[int], budget: Budget) -> Iterator[Decision]:
    """SQPR: a query by itself, or several together as a batch; the time is for each query."""
    clock = BudgetClock(budget)
    decisions = {query: admit_duplicate(ledger, query) for query in queries}
    new = [query for query in queries if decisions[query] is None]
    if new:
        decisions |= _solve(ledger, new, budget)
    for query in queries:
        decision = decisions[query]
        assert decision is not None
        yield replace(decision, seconds=clock.elapsed / len(queries))


def _solve(ledger: Ledger, queries: Sequence[int], budget: Budget) -> dict[int, Decision]:
    problem = ledger.problem
    requested = [problem.queries[query].stream for query in queries]
    # A single query is a hard constraint: where admission is a mere value, the solver stays with
    # refusing.
    alone = len(set(requested)) == 1
    formulation = FlowFormulation(ReplanScope(ledger, requested), requested, soft=not alone)
    solution = solve_highs(formulation.program, budget.seconds * len(queries))
    if solution.values is None:
        proven = solution.status is SolverStatus.INFEASIBLE
        return {query: Decision(query, False, "sqpr", proven) for query in queries}
    served = {serve.stream for serve in formulation.extract_plan(solution, ()).serves}
    admitted = [query for query in queries if problem.queries[query].stream in served]
    plan = formulation.extract_plan(solution, admitted)
    # A solver's answer holds within its tolerances only: it is checked like any other plan.
    if find_violations(problem, plan):
        return {query: Decision(query, False, "sqpr") for query in queries}
    ledger.adopt(plan)
    proven = solution.status is SolverStatus.OPTIMAL
    return {q: Decision(q, q in admitted, "sqpr", proven and q not in admitted) for q in queries}
