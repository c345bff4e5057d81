"""The site that a process runs: its part of the work, its store, and the copies of logs that it makes.

A site reads what lies in its own store. Segments that were written elsewhere are copied there first, as
far as the link they come by allows, and every byte is counted. A copy bears the numbers of the
original, so a unit that moves goes on from its cursors.
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
from headwater.runtime import files
from headwater.runtime.catalog import (
    Assignment,
    Catalog,
    Lease,
    Segment,
    UnitRow,
    copy_log,
    first_segments,
    is_log,
    link_owner,
)
from headwater.runtime.claims import repeated
from headwater.runtime.paths import file_name
from headwater.runtime.rates import arrived
from headwater.runtime.sites.deployment import held_as

SEEN_EVERY = 2.0
"""Seconds between two signs of life of a site."""

AT_ONCE_SECONDS = 1.0
"""A link carries at once what it may in so many seconds, or one segment."""


@dataclass
class Here:
    """A site as its own process sees it."""

    catalog: Catalog
    name: str
    state: Path
    deployment: Deployment
    drains: bool = False
    """Whether streams end when their sources have no more."""
    assignment: Assignment = field(default_factory=Assignment)
    _adopted: set[str] = field(default_factory=set)
    _free_at: dict[str, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def store(self) -> Path:
        """Where its segments lie."""
        return store_of(self.deployment, self.state, self.name)

    def refresh(self) -> bool:
        """See what there is to do by now; whether some of it is another's that was not."""
        before, self.assignment = self.assignment, self.catalog.assignment()
        is_other = before.owners != self.assignment.owners
        if is_other:
            self._adopted.clear()
        return is_other

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Give a sign of life now and then, until the block ends."""

        def tell() -> None:
            with suppress(CatalogError):
                self.catalog.see_site(self.name)

        self.catalog.see_site(self.name)
        with repeated(tell, SEEN_EVERY, "signs of life"):
            yield

    def has(self, owner: str) -> bool:
        """Whether that work is this site's."""
        return self.assignment.owners.get(owner) == self.name

    @property
    def incoming(self) -> list[str]:
        """The logs of which it makes copies."""
        routed = [log for log, site in self.assignment.routes if site == self.name]
        return [log for log in routed if self.reads(log) == copy_log(log, self.name)]

    def reads(self, log: str) -> str:
        """The log to be read here for a log: its copy, if there is one."""
        return held_as(self.deployment, self.assignment, log, self.name)

    def has_inputs(self, unit: UnitRow) -> bool:
        """Whether copies have all that a unit has taken in already, so that it finds its windows."""
        copied = [log for log in unit.inputs if is_log(log) and self.reads(log) != log]
        if not copied:
            return True
        cursors, ends = self.catalog.cursors(unit.id), self.catalog.log_ends()
        return all(
            self.reads(log) in ends
            and ends[self.reads(log)].seq >= (cursors.get(log) or {"seq": 0})["seq"]
            for log in copied
        )

    # ---- copies

    def ship(self, log: str, lease: Lease, at_point: Callable[[str], None]) -> bool:
        """Copy what is new of a log, as much as its link carries now; whether there was anything."""
        origin = self.assignment.routes.get((log, self.name))
        if origin is None or time.monotonic() < self._free_at.get(origin, 0.0):
            return False
        source = held_as(self.deployment, self.assignment, log, origin)
        mine = copy_log(log, self.name)
        ends = self.catalog.log_ends()
        if source not in ends or mine not in ends or ends[source].seq <= ends[mine].seq:
            return False
        due = self.catalog.segments(source, ends[mine].seq)
        chosen = first_segments(due, size=self._bandwidth(origin) * AT_ONCE_SECONDS)
        up_to = ends[source].seq if len(chosen) == len(due) else chosen[-1].seq
        copies, sent = self._copied(chosen, {segment.id: origin for segment in chosen})
        at_point("ship: written")
        self.catalog.keep_copies(lease, mine, copies, up_to, self._counted(sent))
        at_point("ship: committed")
        return True

    def _bandwidth(self, origin: str) -> float:
        network = self.deployment.network
        link = network.direct(network.place(origin), network.place(self.name))
        return inf if link is None else link.bandwidth

    def adopt(self, owner: str, log: str, lease: Lease, again: bool = False) -> None:
        """Bring over what a log of this site's own has elsewhere, as another site wrote to it before.

        That is looked for once after work was assigned anew, or `again` and again.
        """
        if owner in self._adopted and not again:
            return
        found = self.catalog.segments(log)
        foreign = [
            s for s in found if s.path and not Path(s.path).is_relative_to(self.store / "log")
        ]
        if foreign:
            copies, sent = self._copied(foreign, {s.id: self._home(s.path) for s in foreign})
            paths = {segment.id: path for segment, path in copies}
            self.catalog.move_files(lease, paths, self._counted(sent))
        self._adopted.add(owner)

    def _home(self, path: str) -> str:
        """The site in whose store a file is; none, for one of the state."""
        for site in self.deployment.network.sites:
            store = store_of(self.deployment, self.state, site.name)
            if store != self.state and Path(path).is_relative_to(store):
                return site.name
        return ""

    def _copied(
        self, segments: Sequence[Segment], origins: Mapping[int, str]
    ) -> tuple[list[tuple[Segment, str]], dict[str, int]]:
        """Copies of files in the own store, and how many bytes came from where."""
        copies: list[tuple[Segment, str]] = []
        sent: dict[str, int] = {}
        for segment in segments:
            path = ""
            if segment.path:
                folder = self.store / "log" / "copies" / file_name(segment.log.replace(":", "-"))
                path = files.copied(segment, folder)
                origin = origins[segment.id]
                sent[origin] = sent.get(origin, 0) + segment.bytes
            copies.append((segment, path))
        with self._lock:
            for origin, size in sent.items():
                begun = max(time.monotonic(), self._free_at.get(origin, 0.0))
                room = self._bandwidth(origin) if origin else inf
                self._free_at[origin] = begun + size / room
        return copies, sent

    def _counted(self, sent: Mapping[str, int]) -> dict[tuple[str, str], float]:
        """What links have carried, with what they carry now."""
        statistics: dict[tuple[str, str], float] = {}
        for origin, size in sent.items():
            owner = link_owner(origin, self.name)
            known = self.catalog.statistics(owner)
            total = known["bytes"].value if "bytes" in known else 0.0
            values = arrived(known, 0, size, time.time()) | {"bytes": total + size}
            statistics |= {(owner, name): value for name, value in values.items()}
        return statistics


def store_of(deployment: Deployment, state: Path, site: str) -> Path:
    """Where the segments of a site lie."""
    store = deployment.worker(site).store
    return state if store is None else state / store
