"""The heuristic of SQPR's evaluation: all of a query on one site, with what others hold already.

Every abstract plan is tried on every site. The site gets each stream from whoever holds it, complete
sub-queries before base streams; what nobody holds it makes itself. Of the plans that fit, the one with
the best objective is taken. Nothing that runs is ever changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import Problem, totals
from headwater.plan.placement.planner import Budget, Clock, Decision, duplicate


def heuristic(ledger: Ledger, queries: Sequence[int], budget: Budget) -> Iterator[Decision]:
    """Decide on queries one by one."""
    for query in queries:
        clock = Clock(budget)
        found = duplicate(ledger, query)
        if found is None:
            done = on_one_site(ledger, ledger.problem.queries[query].stream)
            if done:
                ledger.ask(query)
            ledger.settle()
            found = Decision(query, done, "heuristic")
        yield replace(found, seconds=clock.passed)


def trees(problem: Problem, stream: int) -> Iterator[dict[int, int]]:
    """All abstract plans of a stream: for each stream that is made, the operator that makes it."""
    if not problem.makers[stream]:
        yield {}
    for maker in problem.makers[stream]:
        below = [list(trees(problem, s)) for s in problem.operators[maker].inputs]
        for parts in product(*below):
            chosen = {stream: maker}
            for part in parts:
                chosen |= part
            yield chosen


def on_one_site(ledger: Ledger, stream: int) -> bool:
    """Write the best plan on one site; False, and nothing changed, if none fits."""
    best, steps = math.inf, None
    scale = totals(ledger.problem)
    for tree in trees(ledger.problem, stream):
        for site in range(len(ledger.problem.sites)):
            mark = ledger.mark()
            if _obtain(ledger, tree, stream, site):
                ledger.serve(stream, site)
                if not ledger.overfull(3, site):
                    cost = _cost(ledger, scale)
                    if cost < best:
                        best, steps = cost, (tree, site)
            ledger.back_to(mark)
    if steps is None:
        return False
    tree, site = steps
    _obtain(ledger, tree, stream, site)
    ledger.serve(stream, site)
    return True


def _obtain(ledger: Ledger, tree: dict[int, int], stream: int, site: int) -> bool:
    """Have a stream at a site: it is there, another site sends it, or it is made."""
    if site in ledger.origins[stream]:
        return True
    sender = _sender(ledger, stream, site)
    if sender is not None:
        ledger.send(stream, sender, site)
        return not ledger.overfull(2, site)
    if stream not in tree:
        return False
    maker = tree[stream]
    for input in ledger.problem.operators[maker].inputs:
        if not _obtain(ledger, tree, input, site):
            return False
    ledger.run(maker, site)
    return not (ledger.overfull(0, site) or ledger.overfull(1, site))


def _sender(ledger: Ledger, stream: int, site: int) -> int | None:
    """The site with the most bandwidth left of those that hold a stream and can send it."""
    rate = ledger.problem.streams[stream].rate
    able = [
        (-float(ledger.free[3, s]), s)
        for s in ledger.origins[stream]
        if ledger.free[3, s] >= rate and ledger.link_free(s, site) >= rate
    ]
    return min(able)[1] if able else None


def _cost(ledger: Ledger, scale: tuple[float, float]) -> float:
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
