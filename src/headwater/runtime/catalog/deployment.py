"""The sites that run a state, as its catalog knows them."""

from __future__ import annotations

from headwater.network.sites import Deployment, deployment_from_data
from headwater.runtime.catalog import Assignment, Catalog, log_copy

DEPLOYMENT = "deployment"
"""Whose profile in the catalog the deployment is."""

AWAY_AFTER_SECONDS = 10.0
"""Seconds without a sign of life after which a site counts as away."""


def current_deployment(catalog: Catalog) -> Deployment | None:
    """The sites that run a state; None if there are none."""
    profile = catalog.profile(DEPLOYMENT)
    return None if profile is None else deployment_from_data(profile.value)


def deploy(catalog: Catalog, deployment: Deployment) -> None:
    """Have a state run by sites from now on; sites that were there before and are not named go."""
    catalog.set_profile(DEPLOYMENT, deployment.as_data())
    names = [site.name for site in deployment.network.sites]
    recorded = {site.name for site in catalog.sites()}
    for removed_name in recorded - set(names):
        catalog.forget_site(removed_name)
    for name in set(names) - alive_sites(catalog):
        catalog.record_site(name, {}, is_alive=False)


def log_at_site(deployment: Deployment, assignment: Assignment, log: str, site: str) -> str:
    """The log that is read at a site for a log: itself where it is written, or a copy. Sites of one
    store have one copy."""
    origin = assignment.routes.get((log, site))
    if origin is None:
        return log
    if deployment.worker(origin).store == deployment.worker(site).store:
        return log_at_site(deployment, assignment, log, origin)
    return log_copy(log, site)


def alive_sites(catalog: Catalog) -> set[str]:
    """The sites that gave a sign of life a moment ago."""
    return catalog.recently_seen_sites(AWAY_AFTER_SECONDS)
