"""SODA's stages as SQPR's evaluation uses them: admit first, place then, along fixed templates.

A stream has one template, is computed once, and is sent only by the site that computes it. macroQ admits by what
all sites have left together, macroW places the new operators by a small program, miniW moves them
one by one while that helps, or places them if macroW found nothing in time. What runs already stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from headwater.plan.placement.ledger import SOURCE, Ledger
from headwater.plan.placement.planner import Budget, BudgetClock, Decision, admit_duplicate
from headwater.plan.placement.program import LinearProgram
from headwater.plan.placement.solver import solve_highs

MACRO_W_TIME_SHARE = 0.5
"""How much of the time macroW may take."""


def soda(ledger: Ledger, queries: Sequence[int], budget: Budget) -> Iterator[Decision]:
    """Decide on queries one by one."""
    for query in queries:
        clock = BudgetClock(budget)
        decision = admit_duplicate(ledger, query) or _decide(ledger, query, budget)
        yield replace(decision, seconds=clock.elapsed)


def _decide(ledger: Ledger, query: int, budget: Budget) -> Decision:
    stream = ledger.problem.queries[query].stream
    new = list(template_operators(ledger, stream))
    if not macro_q(ledger, new):
        return Decision(query, False, "macroQ")
    sites = macro_w(ledger, new, stream, budget.seconds * MACRO_W_TIME_SHARE)
    improved = mini_w(ledger, new, stream, sites)
    if improved is None:
        return Decision(query, False, "miniW")
    _apply_placement(ledger, new, stream, improved)
    ledger.ask(query)
    ledger.commit()
    return Decision(query, True, "miniW")


def template_operators(ledger: Ledger, stream: int) -> Iterator[int]:
    """The operators of a stream's template that do not run yet, inputs first."""
    problem = ledger.problem
    if problem.producers[stream] and not ledger.origins[stream]:
        producer = problem.producers[stream][0]
        for input in problem.operators[producer].inputs:
            yield from template_operators(ledger, input)
        yield producer


def macro_q(ledger: Ledger, new: Sequence[int]) -> bool:
    """Whether all sites together have what new operators take."""
    operators = [ledger.problem.operators[o] for o in new]
    cpu, memory = sum(o.cpu for o in operators), sum(o.memory for o in operators)
    return bool(ledger.free[0].sum() >= cpu and ledger.free[1].sum() >= memory)


def macro_w(
    ledger: Ledger, new: Sequence[int], stream: int, seconds: float
) -> tuple[int, ...] | None:
    """The sites of new operators with the most even load; None if nothing was found in time."""
    if not new:
        return ()
    problem, hosts = ledger.problem, len(ledger.problem.sites)
    program = LinearProgram()
    run = program.add_variables((len(new), hosts))
    row_of = {problem.operators[o].output: row for row, o in enumerate(new)}
    program.add_rows(run, 1.0, 1.0, 1.0)
    fullest = int(program.add_variables(1, integral=False)[0])
    into: list[list[tuple[int, float]]] = [[] for _ in range(hosts)]
    out: list[list[tuple[int, float]]] = [[] for _ in range(hosts)]
    for row, o in enumerate(new):
        for s in problem.operators[o].inputs:
            rate = problem.streams[s].rate
            receive = program.add_variables(hosts)
            # So little that it only decides between placements that are equally even.
            program.minimise(receive, rate * 1e-6)
            for site in range(hosts):
                into[site].append((int(receive[site]), rate))
                if s in row_of:
                    maker = run[row_of[s], site]
                    columns = [int(run[row, site]), int(maker), int(receive[site])]
                    program.add_row(columns, [1.0, -1.0, -1.0], most=0.0)
                    sends = int(program.add_variables(1)[0])
                    program.add_row(
                        [int(maker), *receive, sends], [1.0] * (hosts + 1) + [-1.0], most=1
                    )
                    out[site].append((sends, rate))
                elif site not in ledger.origins[s]:
                    columns = [int(run[row, site]), int(receive[site])]
                    program.add_row(columns, [1.0, -1.0], most=0.0)
            if s not in row_of:
                out[_origin_site(ledger, s)] += [(int(v), rate) for v in receive]
    for site in range(hosts):
        free, capacity = ledger.free[:, site], ledger.capacity[0, site]
        own = run[:, site]
        if np.isfinite(capacity):
            cpu = np.array([problem.operators[o].cpu for o in new])
            program.add_row(own, cpu, most=max(0.0, free[0]))
            # A site without CPU only forwards: it is neither full nor empty.
            if capacity > 0:
                used = 1.0 - free[0] / capacity
                program.add_row([*own, fullest], [*(cpu / capacity), -1.0], most=-used)
        for terms, left in ((into[site], free[2]), (out[site], free[3])):
            if terms and np.isfinite(left):
                program.add_row([v for v, _ in terms], [f for _, f in terms], most=max(0.0, left))
    program.minimise([fullest], 1.0)
    solution = solve_highs(program, seconds)
    if solution.values is None:
        return None
    return tuple(int(site) for site in solution.values[run].argmax(axis=1))


def mini_w(
    ledger: Ledger, new: Sequence[int], stream: int, places: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Move operators one at a time while the load becomes more even; None if nothing fits."""
    all_sites = range(len(ledger.problem.sites))
    best = None if places is None else _placement_value(ledger, new, stream, places)
    if best is None or places is None:
        places = _greedy(ledger, new)
        best = None if places is None else _placement_value(ledger, new, stream, places)
    if best is None or places is None:
        return None
    improved = True
    while improved:
        improved = False
        for row in range(len(new)):
            for site in all_sites:
                moved = (*places[:row], site, *places[row + 1 :])
                value = _placement_value(ledger, new, stream, moved)
                if value is not None and value < best:
                    best, places, improved = value, moved, True
    return places


def _greedy(ledger: Ledger, new: Sequence[int]) -> tuple[int, ...] | None:
    """Each operator on the emptiest site that can take it, one after the other."""
    sites: list[int] = []
    with ledger.attempt():
        for o in new:
            for site in np.argsort(-ledger.free[0], kind="stable").tolist():
                savepoint = ledger.savepoint()
                if _run_operator(ledger, o, site):
                    sites.append(site)
                    break
                ledger.roll_back(savepoint)
            else:
                return None
    return tuple(sites)


def _placement_value(
    ledger: Ledger, new: Sequence[int], stream: int, sites: Sequence[int]
) -> tuple[float, float] | None:
    """The fullest site's load and what is sent; None if it does not fit."""
    with ledger.attempt():
        if not _apply_placement(ledger, new, stream, sites):
            return None
        capacity = ledger.capacity[0]
        loaded = np.isfinite(capacity) & (capacity > 0)
        free = ledger.free[0, loaded] / capacity[loaded]
        fullest = float((1.0 - free).max(initial=0.0))
        # To nine digits, else rounding would decide before what is sent does.
        return round(fullest, 9), sum(ledger.sent.values())


def _apply_placement(ledger: Ledger, new: Sequence[int], stream: int, sites: Sequence[int]) -> bool:
    """Run operators at their sites and serve the stream where it is computed; False if that exceeds a limit."""
    if not all(_run_operator(ledger, o, site) for o, site in zip(new, sites, strict=True)):
        return False
    site = _origin_site(ledger, stream)
    ledger.serve(stream, site)
    return not ledger.is_overfull(3, site)


def _run_operator(ledger: Ledger, operator: int, site: int) -> bool:
    definition = ledger.problem.operators[operator]
    for s in definition.inputs:
        if site not in ledger.origins[s]:
            if not ledger.origins[s]:
                return False
            sender = _origin_site(ledger, s)
            ledger.send(s, sender, site)
            if ledger.is_overfull(3, sender) or ledger.is_overfull(2, site):
                return False
            if ledger.free_link_bandwidth(sender, site) < 0:
                return False
    ledger.run(operator, site)
    return not (ledger.is_overfull(0, site) or ledger.is_overfull(1, site))


def _origin_site(ledger: Ledger, stream: int) -> int:
    """The site where a stream enters or is computed."""
    return next(site for site, origin in ledger.origins[stream].items() if origin >= SOURCE)
