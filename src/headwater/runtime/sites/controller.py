"""The controller: sees which sites come and go and which units stray, and plans again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.runtime.catalog import Catalog, ingest_owner, unit_log
from headwater.runtime.lifecycle import stopped_for_good
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
        if there and not is_same:
            return self._told(self.room.replan(there))
        if there and time.monotonic() - self._looked_at > STRAYS_EVERY:
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
        units = [u for u in self.catalog.units() if not stopped_for_good(self.catalog, u)]
        return frozenset([*streams, *(unit_log(unit.id) for unit in units)])

    def _told(self, change: Change) -> Change:
        owners = self.catalog.assignment().owners
        for unit in change.moved:
            site = owners.get(unit_log(unit), "")
            self.catalog.record_event("unit moved", unit, site=site)
        return change
