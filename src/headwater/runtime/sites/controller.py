"""The controller: watches which sites are alive and which units drift, and plans again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.runtime.catalog import Catalog, ingest_owner, unit_log
from headwater.runtime.catalog.deployment import alive_sites
from headwater.runtime.sites.planner import ReplanResult, SitePlanner

log = logging.getLogger("headwater")

DRIFT_CHECK_SECONDS = 30.0
"""Seconds between two checks for units whose usage drifts from its estimate."""

MAX_MOVES = 2
"""How many drifted units are planned again together."""


@dataclass
class Controller:
    """Keeps the units of one catalog on the sites that are alive."""

    site_planner: SitePlanner
    starting_sites: Callable[[], set[str]] = set
    """Sites that are starting: they count as alive, so that nothing is moved away from them."""
    alive: frozenset[str] = frozenset()
    _planned_work: frozenset[str] = frozenset()
    _broken_units: dict[str, str] = field(default_factory=dict)
    """Units that planning again could not repair, each with the fault."""
    _waiting_units: frozenset[str] = frozenset()
    _drift_checked_at: float = field(default_factory=time.monotonic)

    @property
    def catalog(self) -> Catalog:
        return self.site_planner.catalog

    def tick(self) -> ReplanResult | None:
        """Check once; returns what planning again has changed, None if there was no need to plan."""
        alive, work = frozenset(alive_sites(self.catalog) | self.starting_sites()), self._all_work()
        if alive != self.alive:
            self._record_sites(alive)
        owners = self.catalog.assignment().owners
        is_same = alive == self.alive and (work == self._planned_work or work == set(owners))
        self.alive, self._planned_work = alive, work
        if not alive:
            return None
        # Faults that the last plan left are not planned for again until they change.
        broken = self.site_planner.broken_units(alive)
        if not is_same or broken != self._broken_units:
            for unit in sorted(set(broken) - set(self._broken_units)):
                log.warning("unit %s cannot work: %s; planning again", unit, broken[unit])
                self.catalog.record_event("unit cut off", unit, reason=broken[unit])
            return self._record_change(self.site_planner.replan(alive))
        if time.monotonic() - self._drift_checked_at > DRIFT_CHECK_SECONDS:
            self._drift_checked_at = time.monotonic()
            drifted = self.site_planner.drifted_units()
            if drifted:
                self.catalog.record_event("units strayed", ", ".join(drifted))
                return self._record_change(self.site_planner.replan(alive, drifted, MAX_MOVES))
        return None

    def _record_sites(self, alive: frozenset[str]) -> None:
        for site in sorted(alive - self.alive):
            self.catalog.record_event("site came", site)
        for site in sorted(self.alive - alive):
            log.warning("site %s is away; other sites take over its work", site)
            self.catalog.record_event("site went", site)

    def _all_work(self) -> frozenset[str]:
        """All that some site has to do: ingest streams and run units."""
        streams = [ingest_owner(row.name) for row in self.catalog.streams()]
        return frozenset(
            [*streams, *(unit_log(unit.id) for unit in self.site_planner.active_units())]
        )

    def _record_change(self, change: ReplanResult) -> ReplanResult:
        """Record what planning has changed, and the faults that it could not repair, which are not
        planned for again until something else changes."""
        owners = self.catalog.assignment().owners
        self._broken_units = self.site_planner.broken_units(self.alive)
        for unit in change.moved:
            site = owners.get(unit_log(unit), "")
            self.catalog.record_event("unit moved", unit, site=site)
        for unit in sorted(set(change.waiting) - self._waiting_units):
            log.warning("unit %s waits: no living site can get all that it reads", unit)
            self.catalog.record_event("unit waits", unit, reason="its inputs cannot be had")
        self._waiting_units = frozenset(change.waiting)
        for unit, fault in self._broken_units.items():
            log.error("unit %s cannot work, and planning did not help: %s", unit, fault)
        return change
