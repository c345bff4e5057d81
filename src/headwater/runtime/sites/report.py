"""How sites and links stand: what was planned of them, and what was measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.runtime.catalog import (
    Catalog,
    UnitRow,
    ingest_owner,
    is_log,
    link_owner,
    unit_log,
)
from headwater.runtime.definitions import Definitions
from headwater.runtime.rates import decayed
from headwater.runtime.sharing import Sharing
from headwater.runtime.sites.deployment import deployed, present
from headwater.runtime.sites.needs import (
    Need,
    estimate,
    estimated,
    is_current,
    measured,
    rates_of,
)
from headwater.runtime.sites.planning import Room


@dataclass(frozen=True)
class SiteView:
    """A site: whether it is there, what it takes in and runs, and its load by what units take."""

    name: str
    there: bool
    master: str
    store: str | None
    streams: tuple[str, ...]
    units: tuple[str, ...]
    queries: int
    cpu: Load
    memory: Load
    bandwidth_in: Load
    bandwidth_out: Load


@dataclass(frozen=True)
class LinkView:
    """What goes from a site to another: which logs, at which rate by plan and what it carries by now,
    and how many bytes it has carried in all."""

    origin: str
    target: str
    logs: tuple[str, ...]
    planned: Load
    rate: float
    bytes: int


@dataclass(frozen=True)
class Place:
    """Where a unit runs: the site, whence it gets each log it reads, and what it takes."""

    site: str | None
    reads: tuple[str, ...]
    estimated: Need
    measured: Need | None


def place_of(catalog: Catalog, definitions: Definitions, unit: UnitRow) -> Place | None:
    """Where a unit runs; None where one process runs the state."""
    deployment = deployed(catalog)
    if deployment is None:
        return None
    now, values = catalog.assignment(), catalog.statistics(unit.id)
    rates = rates_of(catalog, definitions, deployment)
    logs = [log for log in unit.inputs if is_log(log)]
    site = now.owners.get(unit_log(unit.id))
    origins = {log: now.routes.get((log, site or "")) for log in logs}
    defined = Sharing(definitions).defined(catalog, unit)
    if not is_current(values, defined.definition):  # what was measured was another operator
        assumed, taken = estimate(rates, definitions.query(defined.definition)), None
    else:
        rows = sum(rates.get(log.partition(":")[2], 0.0) for log in logs)
        assumed, taken = estimated(values), measured(values, rows)
    return Place(
        site,
        tuple(
            f"{log} from {at}" if at else f"{log}, which is there" for log, at in origins.items()
        ),
        assumed,
        taken,
    )


def site_views(catalog: Catalog) -> Iterator[SiteView]:
    """The sites of a state; none where one process runs it."""
    deployment = deployed(catalog)
    if deployment is None:
        return
    there, owners = present(catalog), catalog.assignment().owners
    every = {site.name for site in deployment.network.sites}
    system = Room(catalog, Definitions(catalog), deployment).system(every)
    for load in site_loads(system.problem, system.plan):
        worker = deployment.worker(load.site)
        units = [u.id for u in catalog.units() if owners.get(unit_log(u.id)) == load.site]
        streams = [s for s in catalog.streams() if owners.get(ingest_owner(s.name)) == load.site]
        yield SiteView(
            load.site,
            load.site in there,
            worker.master,
            worker.store,
            tuple(row.spelled for row in streams),
            tuple(units),
            sum(len(catalog.members(unit)) for unit in units),
            load.cpu,
            load.memory,
            load.bandwidth_in,
            load.bandwidth_out,
        )


def link_views(catalog: Catalog) -> Iterator[LinkView]:
    """The links that are in use, or were."""
    deployment = deployed(catalog)
    if deployment is None:
        return
    names = [site.name for site in deployment.network.sites]
    system = Room(catalog, Definitions(catalog), deployment).system(names)
    planned = {(load.origin, load.target): load for load in link_loads(system.problem, system.plan)}
    statistics = catalog.all_statistics()
    now = time.time()
    for origin in names:
        for target in names:
            load, known = planned.get((origin, target)), statistics.get(link_owner(origin, target))
            if load is None and known is None:
                continue
            room = system.problem.links[names.index(origin), names.index(target)]
            yield LinkView(
                origin,
                target,
                () if load is None else load.streams,
                Load(0.0, room) if load is None else load.bandwidth,
                0.0 if known is None else decayed(known.get("bytes_rate"), now),
                0 if known is None else int(known["bytes"].value),
            )
