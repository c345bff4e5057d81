"""Planning again after a change: of rates, of costs, or because sites left or came back.

A query that is admitted stays admitted. What no longer fits is taken out and added again, and so are
queries whose measured consumption strays from what was assumed. A query that cannot be placed at present
waits: it is still admitted, and is the first to be placed when something changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.network.model import Site
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementPlan, PlacementProblem
from headwater.plan.placement.planner import Budget, Planner

STRAY_THRESHOLD = 0.25
"""How far a consumption may be from its estimate, as a share of it."""


@dataclass(frozen=True)
class Adaptation:
    """The plan after a change; `waiting` are admitted queries that cannot be placed at present, and
    `replanned` those that were planned again."""

    plan: PlacementPlan
    waiting: frozenset[int]
    replanned: frozenset[int]


def adapt(
    problem: PlacementProblem,
    plan: PlacementPlan,
    planner: Planner,
    budget: Budget,
    waiting: Iterable[int] = (),
    suspects: Sequence[int] = (),
    most: int | None = None,
) -> Adaptation:
    """A plan for the present problem, adapted from a plan for an earlier one.

    What does not fit, and queries that wait, are always planned; of the `suspects`, at most `most`.
    """
    ledger = Ledger(problem, plan)
    # What the ledger could not load has lost a site that it needs.
    displaced = (set(plan.admitted) | set(waiting)) - ledger.admitted
    while not ledger.fits():
        stream = _heaviest_stream(ledger)
        displaced |= ledger.queries_by_stream[stream]
        for query in sorted(ledger.queries_by_stream[stream]):
            ledger.withdraw(query)
    ledger.commit()
    replanned = set(_readmit(ledger, displaced, planner, budget))
    for query in [q for q in suspects if q in ledger.admitted][:most]:
        before = ledger.plan()
        # Queries for one stream are placed together, so all of them leave before any is planned
        # again.
        siblings = sorted(ledger.queries_by_stream[problem.queries[query].stream])
        for sibling in siblings:
            ledger.withdraw(sibling)
        ledger.commit()
        if len(_readmit(ledger, siblings, planner, budget)) < len(siblings):
            # An admitted query is never lost to an attempt to improve its placement.
            ledger.adopt(before)
        else:
            replanned |= set(siblings)
    return Adaptation(ledger.plan(), frozenset(displaced) - ledger.admitted, frozenset(replanned))


def find_strayed_queries(
    problem: PlacementProblem,
    plan: PlacementPlan,
    cpu: Mapping[int, float],
    rates: Mapping[int, float],
    threshold: float = STRAY_THRESHOLD,
) -> list[int]:
    """Admitted queries whose consumption differs from its estimate by more than the threshold.

    `cpu` is what operators were measured to take, `rates` what streams were; the farthest come first.
    """
    ledger = Ledger(problem, plan)
    power = max((site.cpu for site in problem.sites), default=1.0)
    band = max((site.bandwidth_out for site in problem.sites), default=1.0)
    strayed_queries = []
    for stream in sorted(ledger.served):
        assumed = measured = 0.0
        for s, site in ledger.dependencies(stream):
            origin = ledger.origins[s][site]
            if origin >= 0:
                assumed += problem.operators[origin].cpu / power
                measured += cpu.get(origin, problem.operators[origin].cpu) / power
            assumed += problem.streams[s].rate / band
            measured += rates.get(s, problem.streams[s].rate) / band
        # CPU and bandwidth are added up as fractions of what the largest site has: that makes them
        # comparable.
        apart = abs(measured - assumed) / max(assumed, 1e-300)
        if apart > threshold:
            strayed_queries += [
                (-apart, query) for query in sorted(ledger.queries_by_stream[stream])
            ]
    return [query for _, query in sorted(strayed_queries)]


def apply_measurements(
    problem: PlacementProblem, cpu: Mapping[int, float], rates: Mapping[int, float]
) -> PlacementProblem:
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


def without_site(problem: PlacementProblem, lost: int) -> PlacementProblem:
    """The problem while a site is away: it can do nothing, and nothing comes in there."""
    sites = tuple(
        Site(site.name, cpu=0.0, memory=0.0, bandwidth_in=0.0, bandwidth_out=0.0)
        if position == lost
        else site
        for position, site in enumerate(problem.sites)
    )
    streams = tuple(
        replace(stream, sites=tuple(s for s in stream.sites if s != lost))
        for stream in problem.streams
    )
    return replace(problem, sites=sites, streams=streams)


def _heaviest_stream(ledger: Ledger) -> int:
    """The served stream that takes part in the most of what is overfull; the last of equals."""
    over = {
        site
        for site in range(len(ledger.problem.sites))
        if any(ledger.is_overfull(resource, site) for resource in range(4))
    }
    for (a, b), used in ledger.sent.items():
        if used > ledger.problem.links[a, b] * (1 + 1e-9):
            over |= {a, b}
    return max(
        sorted(ledger.served),
        key=lambda s: (len({site for _, site in ledger.dependencies(s)} & over), s),
    )


def _readmit(ledger: Ledger, queries: Iterable[int], planner: Planner, budget: Budget) -> list[int]:
    return [d.query for d in planner(ledger, sorted(queries), budget) if d.admitted]
