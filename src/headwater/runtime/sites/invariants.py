"""What has to hold of every assignment: each unit that can run has a living site, and a living way to
it for each log that it reads.

The log of a stream is at the site that ingests it, the log of a unit at the site that runs that unit,
wherever this is by now. Nothing here plans: it says what is wrong, from the assignment alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.network.sites import Deployment
from headwater.runtime.catalog import Assignment, ingest_owner, is_log


def broken(
    deployment: Deployment,
    there: Collection[str],
    units: Mapping[str, Iterable[str]],
    assignment: Assignment,
) -> dict[str, str]:
    """The units of an assignment that cannot work though they could, each with what is wrong.

    `there` are the sites that are alive, `units` the running units as the names of their own logs, with
    the logs that they read. A unit whose inputs cannot be brought together at any living site has
    to wait, and is not counted.
    """
    within = _components(deployment, there)
    found: dict[str, str] = {}
    for unit, inputs in units.items():
        logs = [log for log in inputs if is_log(log)]
        wrong = _wrong(unit, logs, there, assignment)
        if wrong is not None and _can_run(logs, there, assignment, within):
            found[unit] = wrong
    return found


def home(log: str, assignment: Assignment) -> str | None:
    """The site where a log is written: its unit's, or the one that ingests its stream."""
    kind, _, name = log.partition(":")
    return assignment.owners.get(ingest_owner(name) if kind == "stream" else log)


def _wrong(
    unit: str, logs: Iterable[str], there: Collection[str], assignment: Assignment
) -> str | None:
    """What keeps a unit from working; None if nothing does."""
    site = assignment.owners.get(unit)
    if site is None:
        return "no site runs it"
    if site not in there:
        return f"its site {site} is away"
    return next((w for log in logs if (w := _cut(log, site, there, assignment)) is not None), None)


def _cut(log: str, site: str, there: Collection[str], assignment: Assignment) -> str | None:
    """Why a log does not get to a site; None if it does."""
    origin, passed = home(log, assignment), list[str]()
    if origin is None or origin not in there:
        return f"nobody writes {log}"
    while site != origin:
        sender = assignment.routes.get((log, site))
        if sender is None:
            return f"nothing brings {log} to {site}"
        if sender not in there:
            return f"{log} comes to {site} by {sender}, which is away"
        if sender in passed:
            return f"{log} goes in circles between {', '.join(passed)}"
        passed.append(sender)
        site = sender
    return None


def _can_run(
    logs: Iterable[str],
    there: Collection[str],
    assignment: Assignment,
    within: Mapping[str, int],
) -> bool:
    """Whether some living site can come by all of the logs."""
    homes = {home(log, assignment) for log in logs}
    return homes <= set(there) and len({within[site] for site in homes if site}) <= 1


def _components(deployment: Deployment, there: Collection[str]) -> dict[str, int]:
    """The living sites, by a number that sites have in common between which data can travel."""
    network = deployment.network
    within = {site.name: n for n, site in enumerate(network.sites) if site.name in there}
    for link in network.links:
        a, b = (network.sites[end].name for end in (link.a, link.b))
        if link.bandwidth > 0 and a in within and b in within:
            old, new = within[a], within[b]
            within = {site: new if n == old else n for site, n in within.items()}
    return within
