"""How many queries any planner could admit at most.

`optimistic_admissions` is the SQPR paper's: all sites as one, without a network, queries in their order of
arrival. A planner that refuses other queries can beat it. `certified_bound` cannot be beaten: it has all
queries at once, chooses the best ones, and takes the solver's bound. It also uses that operators are not
divisible: for any unit u, the whole units of operators are at most the whole units of their site.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from headwater.plan.placement.model import PlacementProblem
from headwater.plan.placement.program import Floats, LinearProgram
from headwater.plan.placement.solver import solve_highs

MAX_UNITS = 6
"""How many different costs are used as units."""


def optimistic_admissions(problem: PlacementProblem, queries: Sequence[int]) -> list[bool]:
    """Which queries one site with the CPU of all would admit, in this order."""
    left = sum(site.cpu for site in problem.sites)
    available: set[int] = {s for s, stream in enumerate(problem.streams) if stream.sites}
    admitted = []
    for query in queries:
        stream = problem.queries[query].stream
        cost, operators = _cheapest_operators(problem, stream, available)
        # The tolerance is for rounding in the running difference `left`.
        admitted.append(cost <= left * (1 + 1e-12))
        if admitted[-1]:
            left -= cost
            available |= {problem.operators[o].output for o in operators}
    return admitted


def _cheapest_operators(
    problem: PlacementProblem, stream: int, available: set[int]
) -> tuple[float, frozenset[int]]:
    """The least CPU that computes a stream, and the operators; infinite if there is no way."""
    scope = problem.scope(stream)
    best: dict[int, tuple[float, frozenset[int]]] = {}
    # Streams come behind those that they are made of, so the least CPU of each input is known.
    for s in scope.streams:
        best[s] = (0.0, frozenset()) if s in available else (math.inf, frozenset())
        if s in available:
            continue
        for producer in problem.producers[s]:
            operator = problem.operators[producer]
            below = frozenset().union(*(best[i][1] for i in operator.inputs))
            if any(best[i][0] == math.inf for i in operator.inputs):
                continue
            # Over the union, and not from the costs of the inputs: an operator below both inputs
            # runs once.
            cost = sum(problem.operators[o].cpu for o in below) + operator.cpu
            if cost < best[s][0]:
                best[s] = cost, below | {producer}
    return best[stream]


def certified_bound(
    problem: PlacementProblem, queries: Sequence[int], seconds: float = 30.0
) -> int:
    """No plan admits more of these queries."""
    requested = Counter(problem.queries[query].stream for query in queries)
    scopes = [problem.scope(stream) for stream in requested]
    streams = sorted({s for scope in scopes for s in scope.streams})
    operators = sorted({o for scope in scopes for o in scope.operators})
    program = LinearProgram()
    run = dict(zip(operators, program.add_variables(len(operators)).tolist(), strict=True))
    have = dict(zip(streams, program.add_variables(len(streams)).tolist(), strict=True))
    for s in streams:
        if not problem.streams[s].sites:
            makers = [run[o] for o in problem.producers[s]]
            program.add_row([have[s], *makers], [1.0] + [-1.0] * len(makers), most=0.0)
    for o in operators:
        for s in problem.operators[o].inputs:
            program.add_row([run[o], have[s]], [1.0, -1.0], most=0.0)
    cpu = np.array([problem.operators[o].cpu for o in operators])
    capacity = np.array([site.cpu for site in problem.sites])
    columns = np.array([run[o] for o in operators])
    if np.isfinite(capacity).all() and len(columns):
        program.add_row(columns, cpu, most=float(capacity.sum()))
        # A rounding cut (as of Chvatal and Gomory): valid for every unit, and tight where many
        # operators cost just over a fraction of a site.
        for unit in _capacity_units(cpu):
            whole = np.floor(cpu / unit + 1e-9)
            program.add_row(columns, whole, most=float(np.floor(capacity / unit + 1e-9).sum()))
    # Who asks for the same stream is admitted together, so it is worth as many admissions.
    for s, count in requested.items():
        program.minimise([have[s]], -float(count))
    solution = solve_highs(program, seconds)
    # Admissions are whole, so the bound may be rounded down; the objective was minimised, hence the
    # sign.
    bound = math.floor(-solution.bound + 1e-6) if solution.bound > -math.inf else len(queries)
    return min(len(queries), bound)


def _capacity_units(cpu: Floats) -> list[float]:
    """The costs that many operators have at least (the first of each stretch of like ones), and
    simple fractions of them."""
    costs: list[float] = []
    for cost in np.unique(cpu).tolist():
        if cost > 0 and (not costs or cost > 1.2 * costs[-1]):
            costs.append(cost)
    return [cost / part for cost in costs[-MAX_UNITS:] for part in (1, 2, 3)]
