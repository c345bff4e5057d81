"""The paper's program for the scope of queries, with a variable for every stream between every two sites.

It is the form to compare with, as SQPR prints it (III.4 to III.8 and IV.9): x says who sends what to
whom, and potentials keep streams from feeding themselves. A query that is to be admitted has to be;
no answer then means that it is refused. A batch is admitted as far as possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from headwater.plan.placement.check import check
from headwater.plan.placement.ledger import SOURCE, Ledger
from headwater.plan.placement.model import Plan, Run, Send, Serve, totals
from headwater.plan.placement.planner import Budget, Clock, Decision, duplicate
from headwater.plan.placement.program import Floats, Places, Program, Solution, Status
from headwater.plan.placement.rest import Rest
from headwater.plan.placement.solver import by_highs

ADMISSION = 10.0
"""What a query of a batch is worth; all else together costs less than 4."""


class Flows:
    """The variables d, x, y, z and p of the paper for a scope, and its constraints."""

    def __init__(self, rest: Rest, wanted: Sequence[int], soft: bool = False) -> None:
        problem = rest.ledger.problem
        self.rest, self.problem, program = rest, problem, Program()
        self.program = program
        streams, operators = rest.streams, [problem.operators[o] for o in rest.operators]
        place = {s: i for i, s in enumerate(streams)}
        count, hosts = len(streams), len(problem.sites)
        self.demanded = list(dict.fromkeys([*rest.served, *wanted]))
        self.d = program.add((len(self.demanded), hosts))
        self.x = program.add((count, hosts, hosts), 1.0 - np.eye(hosts))
        self.y = program.add((count, hosts))
        self.z = program.add((len(operators), hosts))
        p = program.add((count, hosts), hosts + 1.0, whole=False)
        rates = np.array([problem.streams[s].rate for s in streams])

        # demand (III.4, IV.9)
        new = set(wanted) - set(rest.served) if soft else set()
        for row, s in enumerate(self.demanded):
            program.many(np.stack([self.d[row], self.y[place[s]]], 1), [1, -1], most=0.0)
            program.row(self.d[row], 1.0, 0.0 if s in new else 1.0, 1.0)
            if s in new:
                program.minimise(self.d[row], -ADMISSION)
        # availability (III.5)
        for row, s in enumerate(streams):
            made = [i for i, o in enumerate(operators) if o.output == s]
            here = np.concatenate([self.y[row][None], self.x[row], self.z[made]]).T
            comes_in = np.zeros(hosts)
            comes_in[[h for h, o in rest.ledger.origins[s].items() if o == SOURCE]] = 1.0
            factors = [1.0] + [-1.0] * (hosts + len(made))
            program.many(here, factors, most=comes_in)
            sender = np.repeat(self.y[row], hosts)
            program.many(np.stack([self.x[row].ravel(), sender], 1), [1, -1], most=0.0)
        for row, operator in enumerate(operators):
            for s in operator.inputs:
                program.many(np.stack([self.z[row], self.y[place[s]]], 1), [1, -1], most=0.0)
        for s, site in sorted(rest.needed):
            program.row([int(self.y[place[s], site])], 1.0, least=1.0)
        # resources (III.6)
        served = rates[[place[s] for s in self.demanded]]
        cpu = np.array([o.cpu for o in operators])
        memory = np.array([o.memory for o in operators])
        for h in range(hosts):
            free = rest.free[:, h]
            out = np.concatenate([self.x[:, h, :].ravel(), self.d[:, h]])
            self._within(self.z[:, h], cpu, free[0])
            self._within(self.z[:, h], memory, free[1])
            self._within(self.x[:, :, h].ravel(), np.repeat(rates, hosts), free[2])
            self._within(out, np.concatenate([np.repeat(rates, hosts), served]), free[3])
            for m in range(hosts):
                if m != h:
                    self._within(self.x[:, h, m], rates, rest.room(h, m))
        # acyclicity (III.7)
        far = hosts + 2.0
        for row in range(count):
            high, low = np.repeat(p[row], hosts), np.tile(p[row], hosts)
            columns = np.stack([high, low, self.x[row].ravel()], 1)
            apart = ~np.eye(hosts, dtype=bool).ravel()
            program.many(columns[apart], [1, -1, -far], least=1.0 - far)
        self._price(rates, cpu)

    def _within(self, columns: Places, factors: Floats, free: float) -> None:
        if len(columns) and not math.isinf(free):
            self.program.row(columns, factors, most=max(0.0, free))

    def _price(self, rates: Floats, cpu: Floats) -> None:
        program, weights = self.program, self.problem.weights
        bandwidth, power = totals(self.problem)
        by_stream = np.repeat(rates, self.x[0].size)
        program.minimise(self.x, by_stream * weights.network / bandwidth)
        program.minimise(self.z, np.repeat(cpu, self.z.shape[1]) * weights.cpu / power)
        capacity = self.rest.ledger.capacity[0]
        if weights.balance:
            fullest = int(program.add(1, whole=False)[0])
            for h in np.flatnonzero((capacity > 0) & np.isfinite(capacity)).tolist():
                used = 1.0 - self.rest.free[0, h] / capacity[h]
                columns = [*self.z[:, h].tolist(), fullest]
                program.row(columns, [*(cpu / capacity[h]).tolist(), -1.0], most=-used)
            program.minimise([fullest], weights.balance)

    def plan(self, solution: Solution, queries: Iterable[int]) -> Plan:
        """The plan of an answer."""
        x, z, d = (solution.chosen(v) for v in (self.x, self.z, self.d))
        return self.rest.plan(
            [Run(int(h), self.rest.operators[o]) for o, h in np.argwhere(z)],
            [Send(int(h), int(m), self.rest.streams[s]) for s, h, m in np.argwhere(x)],
            [Serve(int(h), self.demanded[s]) for s, h in np.argwhere(d)],
            queries,
        )


def sqpr(ledger: Ledger, queries: Sequence[int], budget: Budget) -> Iterator[Decision]:
    """SQPR: a query by itself, or several together as a batch; the time is for each query."""
    clock = Clock(budget)
    found = {query: duplicate(ledger, query) for query in queries}
    new = [query for query in queries if found[query] is None]
    if new:
        found |= _solve(ledger, new, budget)
    for query in queries:
        decision = found[query]
        assert decision is not None
        yield replace(decision, seconds=clock.passed / len(queries))


def _solve(ledger: Ledger, queries: Sequence[int], budget: Budget) -> dict[int, Decision]:
    problem = ledger.problem
    wanted = [problem.queries[query].stream for query in queries]
    alone = len(set(wanted)) == 1
    form = Flows(Rest(ledger, wanted), wanted, soft=not alone)
    solution = by_highs(form.program, budget.seconds * len(queries))
    if solution.values is None:
        proven = solution.status is Status.INFEASIBLE
        return {query: Decision(query, False, "sqpr", proven) for query in queries}
    served = {serve.stream for serve in form.plan(solution, ()).serves}
    kept = [query for query in queries if problem.queries[query].stream in served]
    plan = form.plan(solution, kept)
    if check(problem, plan):
        return {query: Decision(query, False, "sqpr") for query in queries}
    ledger.adopt(plan)
    proven = solution.status is Status.OPTIMAL
    return {q: Decision(q, q in kept, "sqpr", proven and q not in kept) for q in queries}
