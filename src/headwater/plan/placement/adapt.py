"""Planning again when the world has changed: rates, costs, sites that go or come back.

A query that is admitted stays admitted. What no longer fits is taken out and added again, and so are
queries whose measured consumption strays from what was assumed. A query that finds no place at present
waits: it is still admitted, and is the first to be placed when something changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.network.model import Site
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import Plan, Problem
from headwater.plan.placement.planner import Budget, Planner

THRESHOLD = 0.25
"""How far a consumption may be from its estimate, as a share of it."""


@dataclass(frozen=True)
class Adapted:
    """The plan after a change; `waiting` are admitted queries that have no place at present, and
    `moved` those that were planned anew."""

    plan: Plan
    waiting: frozenset[int]
    moved: frozenset[int]


def adapt(
    problem: Problem,
    plan: Plan,
    planner: Planner,
    budget: Budget,
    waiting: Iterable[int] = (),
    suspects: Sequence[int] = (),
    most: int | None = None,
) -> Adapted:
    """A plan for the problem as it is now, made of a plan for the problem as it was.

    What does not fit, and queries that wait, are always planned; of the `suspects`, at most `most`.
    """
    ledger = Ledger(problem, plan)
    gone = (set(plan.admitted) | set(waiting)) - ledger.admitted
    while not ledger.fits():
        stream = _heaviest(ledger)
        gone |= ledger.asking[stream]
        for query in sorted(ledger.asking[stream]):
            ledger.withdraw(query)
    ledger.settle()
    moved = set(_readmit(ledger, gone, planner, budget))
    for query in [q for q in suspects if q in ledger.admitted][:most]:
        before = ledger.plan()
        together = sorted(ledger.asking[problem.queries[query].stream])
        for one in together:
            ledger.withdraw(one)
        ledger.settle()
        if len(_readmit(ledger, together, planner, budget)) < len(together):
            ledger.adopt(before)
        else:
            moved |= set(together)
    return Adapted(ledger.plan(), frozenset(gone) - ledger.admitted, frozenset(moved))


def strayed(
    problem: Problem,
    plan: Plan,
    cpu: Mapping[int, float],
    rates: Mapping[int, float],
    threshold: float = THRESHOLD,
) -> list[int]:
    """Admitted queries whose consumption differs from its estimate by more than the threshold.

    `cpu` is what operators were measured to take, `rates` what streams were; the farthest come first.
    """
    ledger = Ledger(problem, plan)
    power = max((site.cpu for site in problem.sites), default=1.0)
    band = max((site.bandwidth_out for site in problem.sites), default=1.0)
    found = []
    for stream in sorted(ledger.served):
        assumed = measured = 0.0
        for s, site in ledger.parts(stream):
            origin = ledger.origins[s][site]
            if origin >= 0:
                assumed += problem.operators[origin].cpu / power
                measured += cpu.get(origin, problem.operators[origin].cpu) / power
            assumed += problem.streams[s].rate / band
            measured += rates.get(s, problem.streams[s].rate) / band
        apart = abs(measured - assumed) / max(assumed, 1e-300)
        if apart > threshold:
            found += [(-apart, query) for query in sorted(ledger.asking[stream])]
    return [query for _, query in sorted(found)]


def measured_problem(
    problem: Problem, cpu: Mapping[int, float], rates: Mapping[int, float]
) -> Problem:
    """The problem with what was measured in the place of what was assumed."""
    return replace(
        problem,
        streams=tuple(
            replace(stream, rate=rates.get(s, stream.rate))
            for s, stream in enumerate(problem.streams)
        ),
        operators=tuple(
            replace(operator, cpu=cpu.get(o, operator.cpu))
            for o, operator in enumerate(problem.operators)
        ),
    )


def without_site(problem: Problem, lost: int) -> Problem:
    """The problem while a site is away: it can do nothing, and nothing comes in there."""
    sites = tuple(
        Site(site.name, cpu=0.0, memory=0.0, bandwidth_in=0.0, bandwidth_out=0.0)
        if place == lost
        else site
        for place, site in enumerate(problem.sites)
    )
    streams = tuple(
        replace(stream, sites=tuple(s for s in stream.sites if s != lost))
        for stream in problem.streams
    )
    return replace(problem, sites=sites, streams=streams)


def _heaviest(ledger: Ledger) -> int:
    """The served stream that takes part in the most of what is overfull; the last of equals."""
    over = {
        site
        for site in range(len(ledger.problem.sites))
        if any(ledger.overfull(resource, site) for resource in range(4))
    }
    for (a, b), used in ledger.sent.items():
        if used > ledger.problem.links[a, b] * (1 + 1e-9):
            over |= {a, b}
    return max(
        sorted(ledger.served),
        key=lambda s: (len({site for _, site in ledger.parts(s)} & over), s),
    )


def _readmit(ledger: Ledger, queries: Iterable[int], planner: Planner, budget: Budget) -> list[int]:
    return [d.query for d in planner(ledger, sorted(queries), budget) if d.admitted]
