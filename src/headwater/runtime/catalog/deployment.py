"""The deployment of a state: the sites that run it, as recorded in its catalog."""

from __future__ import annotations

from headwater.network.sites import Deployment, deployment_from_data
from headwater.runtime.catalog import Assignment, Catalog, log_copy

DEPLOYMENT = "deployment"
"""The owner under which the deployment is stored as a profile."""

AWAY_AFTER_SECONDS = 10.0
"""Seconds without a heartbeat after which a site counts as away."""


def current_deployment(catalog: Catalog) -> Deployment | None:
    """The deployment of a state; None if it runs in a single process."""
    profile = catalog.profile(DEPLOYMENT)
    return None if profile is None else deployment_from_data(profile.value)


def deploy(catalog: Catalog, deployment: Deployment) -> None:
    """Record the deployment that runs a state; sites that it does not name are removed."""
    catalog.set_profile(DEPLOYMENT, deployment.as_data())
    names = [site.name for site in deployment.network.sites]
    recorded = {site.name for site in catalog.sites()}
    for removed_name in recorded - set(names):
        catalog.forget_site(removed_name)
    # A site that is alive already would count as away until its next heartbeat.
    for name in set(names) - alive_sites(catalog):
        catalog.record_site(name, {}, is_alive=False)


def log_at_site(deployment: Deployment, assignment: Assignment, log: str, site: str) -> str:
    """The log that a site reads for a log: the log itself where it is written, else a copy.

    Sites that share a store share one copy.
    """
    origin = assignment.routes.get((log, site))
    if origin is None:
        return log
    if deployment.worker(origin).store == deployment.worker(site).store:
        return log_at_site(deployment, assignment, log, origin)
    return log_copy(log, site)


def alive_sites(catalog: Catalog) -> set[str]:
    """The sites whose last heartbeat is recent."""
    return catalog.recently_seen_sites(AWAY_AFTER_SECONDS)
