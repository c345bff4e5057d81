"""The invariant of every assignment: each unit that can run has a living site, and a living route to
it for each log that it reads.

The log of a stream is at the site that ingests it, the log of a unit at the site that runs that unit
now. Nothing here plans: it reports what is wrong, from the assignment alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.network.sites import Deployment
from headwater.runtime.catalog import Assignment, ingest_owner, is_log


def find_broken_units(
    deployment: Deployment,
    alive: Collection[str],
    units: Mapping[str, Iterable[str]],
    assignment: Assignment,
) -> dict[str, str]:
    """The units of an assignment that cannot work though they could, each with what is wrong.

    `alive` are the living sites, `units` the running units as the names of their own logs, with the
    logs that they read. A unit whose inputs cannot be brought together at any living site has to
    wait, and is not reported.
    """
    components = _components(deployment, alive)
    faults: dict[str, str] = {}
    for unit, inputs in units.items():
        logs = [log for log in inputs if is_log(log)]
        fault = _unit_fault(unit, logs, alive, assignment)
        if fault is not None and _can_run(logs, alive, assignment, components):
            faults[unit] = fault
    return faults


def home_site(log: str, assignment: Assignment) -> str | None:
    """The site where a log is written: its unit's, or the one that ingests its stream."""
    kind, _, name = log.partition(":")
    return assignment.owners.get(ingest_owner(name) if kind == "stream" else log)


def _unit_fault(
    unit: str, logs: Iterable[str], alive: Collection[str], assignment: Assignment
) -> str | None:
    """What keeps a unit from working; None if nothing does."""
    site = assignment.owners.get(unit)
    if site is None:
        return "no site runs it"
    if site not in alive:
        return f"its site {site} is away"
    return next(
        (
            fault
            for log in logs
            if (fault := _route_fault(log, site, alive, assignment)) is not None
        ),
        None,
    )


def _route_fault(log: str, site: str, alive: Collection[str], assignment: Assignment) -> str | None:
    """Why a log does not reach a site; None if it does."""
    origin, passed = home_site(log, assignment), list[str]()
    if origin is None or origin not in alive:
        return f"no living site writes {log}"
    while site != origin:
        sender = assignment.routes.get((log, site))
        if sender is None:
            return f"no route brings {log} to {site}"
        if sender not in alive:
            return f"{log} reaches {site} through {sender}, which is away"
        if sender in passed:
            return f"the route of {log} is a cycle: {', '.join(passed)}"
        passed.append(sender)
        site = sender
    return None


def _can_run(
    logs: Iterable[str],
    alive: Collection[str],
    assignment: Assignment,
    components: Mapping[str, int],
) -> bool:
    """Whether some living site can get all of the logs."""
    homes = {home_site(log, assignment) for log in logs}
    return homes <= set(alive) and len({components[site] for site in homes if site}) <= 1


def _components(deployment: Deployment, alive: Collection[str]) -> dict[str, int]:
    """The living sites with the number of their connected component: data can travel within one."""
    network = deployment.network
    components = {site.name: n for n, site in enumerate(network.sites) if site.name in alive}
    for link in network.links:
        a, b = (network.sites[end].name for end in (link.a, link.b))
        if link.bandwidth > 0 and a in components and b in components:
            old, new = components[a], components[b]
            # Quadratic in sites, of which a deployment has few; no union-find is needed.
            components = {site: new if n == old else n for site, n in components.items()}
    return components
