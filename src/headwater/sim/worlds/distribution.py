"""Query distribution in a world: each policy decides at the same moments, and is judged by the same measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.federation.distribution.kernel import NOWHERE
from headwater.federation.distribution.model import Floats, Indices
from headwater.federation.distribution.objective import check
from headwater.sim.worlds.timeline import Moment, MomentKind

Decide = Callable[[Moment, Indices], Indices]
"""The places of all queries of a moment, from where they were: NOWHERE if new, or if the host is dead."""


@dataclass(frozen=True, eq=False)
class DistributionRow:
    """What a policy amounts to after a moment; loads are relative to the providers' shares."""

    policy: str
    time: float
    kind: MomentKind
    queries: int
    traffic: float
    wec: float
    largest_load: float
    deviation: float
    is_feasible: bool
    moved: int
    hosts: Indices
    """The provider of each query, by number; NOWHERE if it does not run."""
    loads: Floats
    """By provider; 0 for the dead."""


def run_policy(
    policy: str,
    decide: Decide,
    moments: Sequence[Moment],
    providers: int,
    queries: int,
    report: Callable[[], None] = lambda: None,
) -> list[DistributionRow]:
    """A row for each moment; `report` is called after each but arrivals, whose number is not known before."""
    hosts = np.full(queries, NOWHERE, np.int32)
    rows = []
    for moment in moments:
        position = np.full(providers + 1, NOWHERE, np.int32)
        position[moment.alive] = np.arange(len(moment.alive), dtype=np.int32)
        # The last entry is where NOWHERE leads.
        place = decide(moment, position[hosts[moment.running]])
        before, hosts = hosts, np.full(queries, NOWHERE, np.int32)
        hosts[moment.running] = moment.alive[place]
        rows.append(_row(policy, moment, place, before, hosts, providers))
        if moment.kind is not MomentKind.arrivals:
            report()
    return rows


def _row(
    policy: str, moment: Moment, place: Indices, before: Indices, hosts: Indices, providers: int
) -> DistributionRow:
    problem = moment.problem
    judged = check(problem, place)
    relative = judged.relative_loads(problem)
    loads = np.zeros(providers)
    loads[moment.alive[problem.places.capability > 0]] = relative
    moved = (before != NOWHERE) & (hosts != NOWHERE) & (before != hosts)
    return DistributionRow(
        policy,
        moment.time,
        moment.kind,
        len(moment.running),
        judged.traffic,
        judged.wec,
        float(relative.max()),
        float(relative.std()),
        judged.feasible,
        int(moved.sum()),
        hosts,
        loads,
    )
