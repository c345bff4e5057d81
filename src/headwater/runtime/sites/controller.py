"""The controller: sees which sites come and go and which units stray, and plans again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.runtime.catalog import Catalog, ingest_owner, unit_log
from headwater.runtime.sites.deployment import present
from headwater.runtime.sites.planning import Change, Room

log = logging.getLogger("headwater")

STRAYS_EVERY = 30.0
"""Seconds between two looks for units that stray from what was estimated of them."""

MOST_MOVES = 2
"""So many of them are planned anew at once."""


@dataclass
class Controller:
    """Keeps the units of one catalog on the sites that are there."""

    room: Room
    starting: Callable[[], set[str]] = set
    """Sites that are about to come."""
    there: frozenset[str] = frozenset()
    _planned: frozenset[str] = frozenset()
    _broken: dict[str, str] = field(default_factory=dict)
    """Units that planning could not help, each with what is wrong."""
    _waiting: frozenset[str] = frozenset()
    _looked_at: float = field(default_factory=time.monotonic)

    @property
    def catalog(self) -> Catalog:
        return self.room.catalog

    def tick(self) -> Change | None:
        """Look once; returns what has changed, if anything had to."""
        there, work = frozenset(present(self.catalog) | self.starting()), self._work()
        if there != self.there:
            self._tell_sites(there)
        owners = self.catalog.assignment().owners
        is_same = there == self.there and (work == self._planned or work == set(owners))
        self.there, self._planned = there, work
        if not there:
            return None
        broken = self.room.broken(there)
        if not is_same or broken != self._broken:
            for unit in sorted(set(broken) - set(self._broken)):
                log.warning("unit %s cannot work: %s; planning again", unit, broken[unit])
                self.catalog.record_event("unit cut off", unit, reason=broken[unit])
            return self._told(self.room.replan(there))
        if time.monotonic() - self._looked_at > STRAYS_EVERY:
            self._looked_at = time.monotonic()
            strays = self.room.strayed()
            if strays:
                self.catalog.record_event("units strayed", ", ".join(strays))
                return self._told(self.room.replan(there, strays, MOST_MOVES))
        return None

    def _tell_sites(self, there: frozenset[str]) -> None:
        for site in sorted(there - self.there):
            self.catalog.record_event("site came", site)
        for site in sorted(self.there - there):
            log.warning("site %s is away; others take over what it did", site)
            self.catalog.record_event("site went", site)

    def _work(self) -> frozenset[str]:
        """All that has to be somebody's: streams and units."""
        streams = [ingest_owner(row.name) for row in self.catalog.streams()]
        return frozenset([*streams, *(unit_log(unit.id) for unit in self.room.running())])

    def _told(self, change: Change) -> Change:
        """Record what planning has changed, and see whether all is well now: what it could not mend
        is not planned again until something else happens."""
        owners = self.catalog.assignment().owners
        self._broken = self.room.broken(self.there)
        for unit in change.moved:
            site = owners.get(unit_log(unit), "")
            self.catalog.record_event("unit moved", unit, site=site)
        for unit in sorted(set(change.waiting) - self._waiting):
            log.warning("unit %s waits: no site can come by all that it reads", unit)
            self.catalog.record_event("unit waits", unit, reason="its inputs cannot be had")
        self._waiting = frozenset(change.waiting)
        for unit, wrong in self._broken.items():
            log.error("unit %s cannot work, and planning did not help: %s", unit, wrong)
        return change
