"""The site that a process runs: its part of the work, its store, and the copies of logs that it makes.

A site reads only its own store. Segments that were written elsewhere are copied there first, no faster
than the link allows, and every byte is counted. A copy has the sequence numbers of the original, so a
unit that moves continues from its cursors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import Lock

from headwater.errors import CatalogError
from headwater.network.sites import Deployment
from headwater.runtime.catalog import (
    Assignment,
    Catalog,
    Lease,
    LogPosition,
    Segment,
    UnitRow,
    first_segments,
    is_log,
    link_owner,
    log_copy,
)
from headwater.runtime.catalog.deployment import log_at_site
from headwater.runtime.leases import run_periodically
from headwater.runtime.metrics.rates import arrival_statistics
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.paths import file_name

HEARTBEAT_SECONDS = 2.0
"""Seconds between two heartbeats of a site."""

LINK_BURST_SECONDS = 1.0
"""A burst on a link is at most what it carries in this many seconds, or one segment."""


@dataclass
class LocalSite:
    """A site as its own process sees it."""

    catalog: Catalog
    name: str
    state_dir: Path
    deployment: Deployment
    ends_finite_streams: bool = False
    """Whether streams end when their sources have no more."""
    assignment: Assignment = field(default_factory=Assignment)
    _adopted_owners: set[str] = field(default_factory=set)
    _link_free_at: dict[str, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def has_others(self) -> bool:
        """Whether other sites run the same state."""
        return True

    @property
    def housekeeping_owner(self) -> str:
        """The name of the lease under which its files are tidied."""
        return f"housekeeping:{self.name}"

    @property
    def store(self) -> Path:
        """The folder of its segments."""
        return site_store(self.deployment, self.state_dir, self.name)

    def refresh(self) -> bool:
        """Read the assignment again; returns whether work has changed its owner."""
        before, self.assignment = self.assignment, self.catalog.assignment()
        is_other = before.owners != self.assignment.owners
        if is_other:
            self._adopted_owners.clear()
        return is_other

    @contextmanager
    def send_heartbeats(self) -> Iterator[None]:
        """Send heartbeats until the block ends."""

        def send() -> None:
            # A catalog that is away for a moment must not end the heartbeats.
            with suppress(CatalogError):
                self.catalog.touch_site(self.name)

        self.catalog.touch_site(self.name)
        with run_periodically(send, HEARTBEAT_SECONDS, "heartbeats"):
            yield

    def owns(self, owner: str) -> bool:
        """Whether that work is assigned to this site."""
        return self.assignment.owners.get(owner) == self.name

    @property
    def incoming_logs(self) -> list[str]:
        """The logs of which it makes copies."""
        routed = [log for log, site in self.assignment.routes if site == self.name]
        return [log for log in routed if self.local_log(log) == log_copy(log, self.name)]

    def local_log(self, log: str) -> str:
        """The log to be read here for a log: its copy, if there is one."""
        return log_at_site(self.deployment, self.assignment, log, self.name)

    def has_inputs(self, unit: UnitRow) -> bool:
        """Whether the copies have all that a unit has read already: its windows are read from them."""
        copied = [log for log in unit.inputs if is_log(log) and self.local_log(log) != log]
        if not copied:
            return True
        cursors, ends = self.catalog.cursors(unit.id), self.catalog.log_ends()
        return all(
            self.local_log(log) in ends
            and ends[self.local_log(log)].seq >= LogPosition.from_json(cursors.get(log)).seq
            for log in copied
        )

    # ---- copies

    def ship_log(self, log: str, lease: Lease, at_point: Callable[[str], None]) -> bool:
        """Copy new segments of a log, as much as its link carries now; returns whether there were any."""
        origin = self.assignment.routes.get((log, self.name))
        if origin is None or time.monotonic() < self._link_free_at.get(origin, 0.0):
            return False
        source = log_at_site(self.deployment, self.assignment, log, origin)
        copy = log_copy(log, self.name)
        ends = self.catalog.log_ends()
        if source not in ends or copy not in ends or ends[source].seq <= ends[copy].seq:
            return False
        due = self.catalog.segments(source, ends[copy].seq)
        chosen = first_segments(due, size=self._bandwidth(origin) * LINK_BURST_SECONDS)
        # The end of the log may be beyond its last segment, if later ones were removed: with
        # everything copied, the copy is as far as the original.
        up_to = ends[source].seq if len(chosen) == len(due) else chosen[-1].seq
        copies, bytes_by_origin = self._copy_segments(
            chosen, {segment.id: origin for segment in chosen}
        )
        at_point("ship: written")
        self.catalog.register_copies(
            lease, copy, copies, up_to, self._link_statistics(bytes_by_origin)
        )
        at_point("ship: committed")
        return True

    def _bandwidth(self, origin: str) -> float:
        network = self.deployment.network
        link = network.direct_link(network.position_of(origin), network.position_of(self.name))
        return inf if link is None else link.bandwidth

    def adopt_segments(self, owner: str, log: str, lease: Lease, again: bool = False) -> None:
        """Copy the segments of a log that this site now writes and another site wrote before.

        They are looked for once after each new assignment; with `again`, at every call.
        """
        if owner in self._adopted_owners and not again:
            return
        segments = self.catalog.segments(log)
        foreign = [
            s for s in segments if s.path and not Path(s.path).is_relative_to(self.store / "log")
        ]
        if foreign:
            copies, sent = self._copy_segments(
                foreign, {s.id: self._site_of_file(s.path) for s in foreign}
            )
            paths = {segment.id: path for segment, path in copies}
            # The old files are then orphans in the store of the other site, which sweeps them.
            self.catalog.relocate_segments(lease, paths, self._link_statistics(sent))
        self._adopted_owners.add(owner)

    def _site_of_file(self, path: str) -> str:
        """The site in whose store a file is; empty for a file of the state directory."""
        for site in self.deployment.network.sites:
            store = site_store(self.deployment, self.state_dir, site.name)
            if store != self.state_dir and Path(path).is_relative_to(store):
                return site.name
        return ""

    def _copy_segments(
        self, segments: Sequence[Segment], origins: Mapping[int, str]
    ) -> tuple[list[tuple[Segment, str]], dict[str, int]]:
        """Copy files into the own store; returns the copies, and how many bytes came from which site."""
        copies: list[tuple[Segment, str]] = []
        bytes_by_origin: dict[str, int] = {}
        for segment in segments:
            path = ""
            if segment.path:
                folder = self.store / "log" / "copies" / file_name(segment.log.replace(":", "-"))
                path = segment_files.copy_file(segment, folder)
                origin = origins[segment.id]
                bytes_by_origin[origin] = bytes_by_origin.get(origin, 0) + segment.bytes
            copies.append((segment, path))
        with self._lock:
            for origin, size in bytes_by_origin.items():
                started = max(time.monotonic(), self._link_free_at.get(origin, 0.0))
                bandwidth = self._bandwidth(origin) if origin else inf
                # The copy has been made by now; the link is blocked for as long as it should have
                # taken, so the average rate stays within its bandwidth.
                self._link_free_at[origin] = started + size / bandwidth
        return copies, bytes_by_origin

    def _link_statistics(self, bytes_by_origin: Mapping[str, int]) -> dict[tuple[str, str], float]:
        """The statistics of links after these bytes."""
        statistics: dict[tuple[str, str], float] = {}
        for origin, size in bytes_by_origin.items():
            owner = link_owner(origin, self.name)
            previous = self.catalog.statistics(owner)
            total = previous["bytes"].value if "bytes" in previous else 0.0
            values = arrival_statistics(previous, 0, size, time.time()) | {"bytes": total + size}
            statistics |= {(owner, name): value for name, value in values.items()}
        return statistics


def site_store(deployment: Deployment, state: Path, site: str) -> Path:
    """The folder of a site's segments."""
    store = deployment.worker(site).store
    return state if store is None else state / store
