"""Sites and links of a state: what the plan expects of them, and what was measured."""

from __future__ import annotations

import math
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
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import alive_sites, current_deployment
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.inspect.views import JsonRecord
from headwater.runtime.metrics.cost_model import read_cost_model
from headwater.runtime.metrics.rates import current_rate
from headwater.runtime.sites.planner import SitePlanner
from headwater.runtime.sites.resource_usage import (
    ResourceUsage,
    estimate_usage,
    estimated_usage,
    is_current_estimate,
    measured_usage,
    stream_rates,
)


@dataclass(frozen=True)
class SiteView:
    """A site: whether it is alive, what it ingests and runs, and its load by the usage of its units."""

    name: str
    is_alive: bool
    master: str
    store: str | None
    streams: tuple[str, ...]
    units: tuple[str, ...]
    queries: int
    cpu: Load
    memory: Load
    bandwidth_in: Load
    bandwidth_out: Load

    def as_json(self) -> JsonRecord:
        return {
            "site": self.name,
            "state": "there" if self.is_alive else "away",
            "streams": list(self.streams),
            "units": list(self.units),
            "queries": self.queries,
            "cpu": _load_as_json(self.cpu),
            "memory": _load_as_json(self.memory),
            "in": _load_as_json(self.bandwidth_in),
            "out": _load_as_json(self.bandwidth_out),
            "master": self.master,
            "store": self.store,
        }


@dataclass(frozen=True)
class LinkView:
    """What is sent from one site to another: which logs, at which rate by plan and at present, and how
    many bytes in all."""

    origin: str
    target: str
    logs: tuple[str, ...]
    planned: Load
    rate: float
    bytes: int

    def as_json(self) -> JsonRecord:
        return {
            "link": f"{self.origin} -> {self.target}",
            "carries": list(self.logs),
            "planned": _load_as_json(self.planned),
            "rate": self.rate,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class UnitLocation:
    """Where a unit runs: the site, where it gets each log that it reads, and its resource usage."""

    site: str | None
    reads: tuple[str, ...]
    estimated: ResourceUsage
    measured: ResourceUsage | None


def locate_unit(catalog: Catalog, definitions: Definitions, unit: UnitRow) -> UnitLocation | None:
    """Where a unit runs; None where one process runs the state."""
    deployment = current_deployment(catalog)
    if deployment is None:
        return None
    now, values = catalog.assignment(), catalog.statistics(unit.id)
    rates = stream_rates(catalog, definitions, deployment)
    logs = [log for log in unit.inputs if is_log(log)]
    site = now.owners.get(unit_log(unit.id))
    origins = {log: now.routes.get((log, site or "")) for log in logs}
    defined = UnitPlanner(definitions).ensure_definition(catalog, unit)
    # After a query has joined or left, the unit runs another operator: what was measured before does
    # not apply to it.
    if not is_current_estimate(values, defined.definition):
        model = read_cost_model(catalog, (), definitions.namespace)
        assumed, actual = estimate_usage(rates, definitions.query(defined.definition), model), None
    else:
        rows = sum(rates.get(log.partition(":")[2], 0.0) for log in logs)
        assumed, actual = estimated_usage(values), measured_usage(values, rows)
    return UnitLocation(
        site,
        tuple(f"{log} from {at}" if at else f"{log}, written there" for log, at in origins.items()),
        assumed,
        actual,
    )


def site_views(catalog: Catalog) -> Iterator[SiteView]:
    """The sites of a state; none where one process runs it."""
    deployment = current_deployment(catalog)
    if deployment is None:
        return
    alive, owners = alive_sites(catalog), catalog.assignment().owners
    # All sites, not only those alive: what is assigned to a site that is away is still its load.
    every = {site.name for site in deployment.network.sites}
    system = SitePlanner(catalog, Definitions(catalog), deployment).system(every)
    for load in site_loads(system.problem, system.plan):
        worker = deployment.worker(load.site)
        units = [u.id for u in catalog.units() if owners.get(unit_log(u.id)) == load.site]
        streams = [s for s in catalog.streams() if owners.get(ingest_owner(s.name)) == load.site]
        yield SiteView(
            load.site,
            load.site in alive,
            worker.master,
            worker.store,
            tuple(row.spelled for row in streams),
            tuple(units),
            sum(len(catalog.subscribers(unit)) for unit in units),
            load.cpu,
            load.memory,
            load.bandwidth_in,
            load.bandwidth_out,
        )


def link_views(catalog: Catalog) -> Iterator[LinkView]:
    """The links that carry logs by plan, or have carried some."""
    deployment = current_deployment(catalog)
    if deployment is None:
        return
    names = [site.name for site in deployment.network.sites]
    system = SitePlanner(catalog, Definitions(catalog), deployment).system(names)
    planned = {(load.origin, load.target): load for load in link_loads(system.problem, system.plan)}
    statistics = catalog.all_statistics()
    now = time.time()
    for origin in names:
        for target in names:
            load, link_statistics = (
                planned.get((origin, target)),
                statistics.get(link_owner(origin, target)),
            )
            if load is None and link_statistics is None:
                continue
            bandwidth = system.problem.links[names.index(origin), names.index(target)]
            yield LinkView(
                origin,
                target,
                () if load is None else load.streams,
                Load(0.0, bandwidth) if load is None else load.bandwidth,
                0.0
                if link_statistics is None
                else current_rate(link_statistics.get("bytes_rate"), now),
                0 if link_statistics is None else int(link_statistics["bytes"].value),
            )


def _load_as_json(load: Load) -> JsonRecord:
    """JSON has no infinity, so a capacity without a limit is null."""
    return {"used": load.used, "limit": None if math.isinf(load.capacity) else load.capacity}
