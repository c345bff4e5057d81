"""The sites that run a state, as its catalog knows them."""

from __future__ import annotations

from headwater.network.sites import Deployment, deployment_of
from headwater.runtime.catalog import Assignment, Catalog, copy_log

DEPLOYMENT = "deployment"
"""Whose profile in the catalog the deployment is."""

AWAY_AFTER = 10.0
"""Seconds without a sign of life after which a site counts as away."""


def deployed(catalog: Catalog) -> Deployment | None:
    """The sites that run a state; None if there are none."""
    found = catalog.profile(DEPLOYMENT)
    return None if found is None else deployment_of(found.value)


def deploy(catalog: Catalog, deployment: Deployment) -> None:
    """Have a state run by sites from now on; sites that were there before and are not named go."""
    catalog.set_profile(DEPLOYMENT, deployment.as_data())
    names = [site.name for site in deployment.network.sites]
    known = {site.name for site in catalog.sites()}
    for gone in known - set(names):
        catalog.forget_site(gone)
    for name in set(names) - present(catalog):
        catalog.record_site(name, {}, seen=False)


def held_as(deployment: Deployment, assignment: Assignment, log: str, site: str) -> str:
    """The log that is read at a site for a log: itself where it is written, or a copy. Sites of one
    store have one copy."""
    origin = assignment.routes.get((log, site))
    if origin is None:
        return log
    if deployment.worker(origin).store == deployment.worker(site).store:
        return held_as(deployment, assignment, log, origin)
    return copy_log(log, site)


def present(catalog: Catalog) -> set[str]:
    """The sites that gave a sign of life a moment ago."""
    return catalog.sites_seen(AWAY_AFTER)
