"""The heuristic of SQPR's evaluation: all of a query on one site, with what others hold already.

Every abstract plan is tried on every site. The site gets each stream from whoever holds it, complete
sub-queries before base streams; what no site holds it computes itself. Of the plans that fit, the one with
the best objective is taken. Nothing that runs is ever changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementProblem, total_capacity
from headwater.plan.placement.planner import Budget, BudgetClock, Decision, admit_duplicate


def heuristic(ledger: Ledger, queries: Sequence[int], budget: Budget) -> Iterator[Decision]:
    """Decide on queries one by one."""
    for query in queries:
        clock = BudgetClock(budget)
        decision = admit_duplicate(ledger, query)
        if decision is None:
            admitted = plan_on_one_site(ledger, ledger.problem.queries[query].stream)
            if admitted:
                ledger.ask(query)
            ledger.commit()
            decision = Decision(query, admitted, "heuristic")
        yield replace(decision, seconds=clock.elapsed)


def abstract_plans(problem: PlacementProblem, stream: int) -> Iterator[dict[int, int]]:
    """All abstract plans of a stream: an operator for each stream that is computed."""
    if not problem.producers[stream]:
        yield {}
    for producer in problem.producers[stream]:
        below = [list(abstract_plans(problem, s)) for s in problem.operators[producer].inputs]
        for parts in product(*below):
            chosen = {stream: producer}
            for part in parts:
                chosen |= part
            yield chosen


def plan_on_one_site(ledger: Ledger, stream: int) -> bool:
    """Write the best plan on one site; False, and nothing changed, if none fits."""
    best, steps = math.inf, None
    scale = total_capacity(ledger.problem)
    # Exhaustive over join trees and sites, but each site computes all that it does not receive: this
    # is the baseline's restriction, not an optimisation.
    for tree in abstract_plans(ledger.problem, stream):
        for site in range(len(ledger.problem.sites)):
            savepoint = ledger.savepoint()
            if _obtain(ledger, tree, stream, site):
                ledger.serve(stream, site)
                if not ledger.is_overfull(3, site):
                    cost = _plan_cost(ledger, scale)
                    if cost < best:
                        best, steps = cost, (tree, site)
            ledger.roll_back(savepoint)
    if steps is None:
        return False
    tree, site = steps
    # The same steps once more: all that was tried since has been rolled back.
    _obtain(ledger, tree, stream, site)
    ledger.serve(stream, site)
    return True


def _obtain(ledger: Ledger, tree: dict[int, int], stream: int, site: int) -> bool:
    """Provide a stream at a site: it is there already, another site sends it, or it is computed."""
    if site in ledger.origins[stream]:
        return True
    sender = _best_sender(ledger, stream, site)
    if sender is not None:
        ledger.send(stream, sender, site)
        return not ledger.is_overfull(2, site)
    if stream not in tree:
        return False
    producer = tree[stream]
    for input in ledger.problem.operators[producer].inputs:
        if not _obtain(ledger, tree, input, site):
            return False
    ledger.run(producer, site)
    return not (ledger.is_overfull(0, site) or ledger.is_overfull(1, site))


def _best_sender(ledger: Ledger, stream: int, site: int) -> int | None:
    """The site with the most bandwidth left of those that hold a stream and can send it."""
    rate = ledger.problem.streams[stream].rate
    able = [
        (-float(ledger.free[3, s]), s)
        for s in ledger.origins[stream]
        if ledger.free[3, s] >= rate and ledger.free_link_bandwidth(s, site) >= rate
    ]
    return min(able)[1] if able else None


def _plan_cost(ledger: Ledger, scale: tuple[float, float]) -> float:
    """The objective of the whole plan, but for what is the same for all candidates."""
    weights = ledger.problem.weights
    bandwidth, power = scale
    free, capacity = ledger.free, ledger.capacity
    with np.errstate(invalid="ignore"):
        used = np.where(np.isfinite(capacity), capacity - free, 0.0)
        share = np.where(capacity[0] > 0, used[0] / capacity[0], 0.0)
    return float(
        weights.network * used[2].sum() / bandwidth
        + weights.cpu * used[0].sum() / power
        + weights.balance * share.max()
        + weights.sites * (used[0] > 0).mean()
    )
