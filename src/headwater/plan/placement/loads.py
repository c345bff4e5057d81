"""How much of each site and link a plan uses, for display."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from headwater.plan.placement.model import PlacementPlan, PlacementProblem


@dataclass(frozen=True)
class Load:
    """How much of a resource is used, and how much there is."""

    used: float
    capacity: float

    @property
    def share(self) -> float:
        return self.used / self.capacity if self.capacity else 0.0


@dataclass(frozen=True)
class SiteLoad:
    """The load of a site: CPU, memory and bandwidth both ways."""

    site: str
    cpu: Load
    memory: Load
    bandwidth_in: Load
    bandwidth_out: Load


@dataclass(frozen=True)
class LinkLoad:
    """The load of a link in one direction, and the streams it carries."""

    origin: str
    target: str
    bandwidth: Load
    streams: tuple[str, ...]


def site_loads(problem: PlacementProblem, plan: PlacementPlan) -> list[SiteLoad]:
    """The load of each site."""
    count = len(problem.sites)
    cpu, memory, inbound, outbound = ([0.0] * count for _ in range(4))
    for run in plan.runs:
        cpu[run.site] += problem.operators[run.operator].cpu
        memory[run.site] += problem.operators[run.operator].memory
    for send in plan.sends:
        outbound[send.origin] += problem.streams[send.stream].rate
        inbound[send.target] += problem.streams[send.stream].rate
    for serve in plan.serves:
        outbound[serve.site] += problem.streams[serve.stream].rate
    return [
        SiteLoad(
            site.name,
            Load(cpu[position], site.cpu),
            Load(memory[position], site.memory),
            Load(inbound[position], site.bandwidth_in),
            Load(outbound[position], site.bandwidth_out),
        )
        for position, site in enumerate(problem.sites)
    ]


def link_loads(problem: PlacementProblem, plan: PlacementPlan) -> list[LinkLoad]:
    """The load of each link that is used, in the order of sites."""
    carried: dict[tuple[int, int], list[int]] = defaultdict(list)
    for send in sorted(plan.sends):
        carried[send.origin, send.target].append(send.stream)
    return [
        LinkLoad(
            problem.sites[a].name,
            problem.sites[b].name,
            Load(sum(problem.streams[s].rate for s in streams), problem.links[a, b]),
            tuple(problem.streams[s].name for s in streams),
        )
        for (a, b), streams in sorted(carried.items())
    ]
