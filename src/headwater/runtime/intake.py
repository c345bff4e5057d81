"""What comes in: batches of sources become segments of the streams' logs.

A batch is written as a file, and registered with the source's new position in one transaction, under
the lease of the stream. A source that cannot be read is told of, and the others go on; a file that
cannot be read is set aside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from headwater.errors import CatalogUnavailable, InputError, LeaseLost
from headwater.runtime.catalog import (
    Catalog,
    FileChanges,
    Lease,
    Refused,
    Rejects,
    SeenFile,
    StreamRow,
    ingest_owner,
    stream_log,
)
from headwater.runtime.claims import Claims
from headwater.runtime.definitions import Definitions
from headwater.runtime.faults import check, reason
from headwater.runtime.ingest import taken_in
from headwater.runtime.lifecycle import STOPPED, reopen
from headwater.runtime.limits import Limits
from headwater.runtime.pacing import slowest
from headwater.runtime.paths import allowed_paths
from headwater.runtime.push import append, stream_folder
from headwater.runtime.rates import WAITS
from headwater.runtime.sites.here import Here
from headwater.runtime.sources import Files, Position, Source, SourceReplaced, Sources, check_files
from headwater.runtime.sources.files import converted, left_aside
from headwater.runtime.sources.parse import UnreadableFile
from headwater.runtime.time_bounds import Bounds

log = logging.getLogger("headwater")


@dataclass(frozen=True)
class Unread:
    """Why a stream could not be read, and how many times in a row."""

    message: str
    failures: int


@dataclass
class Intake:
    """Takes in the streams of one catalog, or those that arrive at one site."""

    catalog: Catalog
    definitions: Definitions
    spark: SparkSession
    claims: Claims
    store: Path
    limits: Limits
    at_point: Callable[[str], None]
    site: Here | None
    clock: Callable[[], float] = time.time
    sources: Sources = field(default_factory=Sources)
    _unread: dict[str, Unread] = field(default_factory=dict)
    _waiting: dict[str, bool] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)
    """Streams whose path did not exist when it was last looked at."""
    _left: set[str] = field(default_factory=set)
    _seen: dict[str, tuple[Position, dict[str, SeenFile]]] = field(default_factory=dict)

    def rows(self) -> list[StreamRow]:
        """The streams that are taken in here."""
        return [row for row in self.catalog.streams() if self._is_mine(row.name)]

    def _is_mine(self, name: str) -> bool:
        return self.site is None or self.site.has(ingest_owner(name))

    def refresh(self) -> list[str]:
        """Forget what is gone; returns the names of the streams that are taken in here."""
        known = self.definitions.streams
        mine = [name for name in known if self._is_mine(name) and name not in self._left]
        kept = {*mine, *self._left}
        self._unread = {name: why for name, why in self._unread.items() if name in kept}
        self._waiting = {name: waits for name, waits in self._waiting.items() if name in known}
        self._seen = {name: seen for name, seen in self._seen.items() if name in mine}
        self.sources.keep(set(mine))
        return mine

    def waits(self) -> bool:
        """Whether a source is to bring more, or is to be read again after a failure."""
        if self.sources.waiting({row.name for row in self.rows() if not row.ended}):
            return True
        return any(unread.failures <= self.limits.retries for unread in self._unread.values())

    def close(self) -> None:
        """Close the sources."""
        self.sources.keep(set())

    def end_finite(self) -> bool:
        """Declare ended what cannot bring more; returns whether that changed anything.

        A stream that could not be read, or of which a file was set aside, is left open.
        """
        changed = False
        for row in self.rows():
            source = self.source(row.name)
            waits = self._waiting.get(row.name, False)
            if row.ended or waits or source is None or not source.finite:
                continue
            lease = None if row.name in self._unread else self.claims.take(ingest_owner(row.name))
            if lease is None or self._aside(row.name):
                continue
            self.catalog.end_stream(row.name, reopens=True)
            changed = True
        return changed

    def reopen(self) -> None:
        """Open the streams that were taken as ended and have more.

        No unit that reads them may step meanwhile, as if they had not; so its lease is held.
        """
        for row in self.rows():
            if not (row.ended and row.reopens and self._has_more(row.name)):
                continue
            log = stream_log(row.name)
            readers = [unit.id for unit in self.catalog.units() if log in unit.inputs]
            if all(self.claims.take(f"unit:{unit}") is not None for unit in readers):
                reopen(self.catalog, row)

    def _has_more(self, name: str) -> bool:
        """Whether a source has a batch; one that cannot be read is left to those who tell it."""
        source = self.source(name)
        if source is None or self.claims.take(ingest_owner(name)) is None:
            return False
        try:
            position = self.catalog.cursor(ingest_owner(name), "source") or {}
            if isinstance(source, Files):
                return bool(self._files(name, source, position).look().fresh)
            return source.poll(self.spark, position) is not None
        except CatalogUnavailable:
            raise
        except Exception:
            return False

    def try_to_take(self, name: str) -> bool:
        """Take in one batch; what cannot be read is told, and the other streams go on."""
        try:
            taken = self.take(name)
            self._unread.pop(name, None)
            return taken
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.claims.lost(ingest_owner(name))
            return False
        except UnreadableFile as error:
            return self._set_aside(name, error) or self._not_read(name, error)
        except Exception as error:
            check(self.spark, error)
            return self._not_read(name, error)

    def leave(self, name: str, message: str) -> None:
        """Do not read a stream any more in this run, as nothing else could go on beside it."""
        log.error("stream %s is not read any more in this run: %s", name, message)
        self.catalog.record_event("stream unread", name, error=message)
        self._unread[name] = Unread(message, self.limits.retries + 1)
        self._left.add(name)

    def _not_read(self, name: str, error: Exception) -> bool:
        message = reason(error)
        before = self._unread.get(name)
        if before is None or before.message != message:
            log.error("stream %s cannot be read: %s", name, message, exc_info=error)
            self.catalog.record_event("stream unread", name, error=message)
        self._unread[name] = Unread(message, before.failures + 1 if before else 1)
        return False

    def _set_aside(self, name: str, error: UnreadableFile) -> bool:
        """Pass over a file of a stream that cannot be read; returns whether that is possible.

        It stays where it is and is named in the reject log; one that is changed is read.
        """
        owner = ingest_owner(name)
        source, lease = self.source(name), self.claims.take(owner)
        if not isinstance(source, Files) or lease is None:
            return False
        log.error("stream %s: %s cannot be read and is set aside: %s", name, error.path, error.why)
        self.catalog.record_event("file set aside", name, path=error.path, error=error.why)
        refused = Refused(f"unreadable file: {error.why}", error.path, error.path)
        position = self.catalog.cursor(owner, "source") or {}
        self.catalog.commit(
            lease,
            cursors={(owner, "source"): _noted(position)},
            rejects=[Rejects(name, 1, 0, (refused,))],
            files=FileChanges(name, [SeenFile(error.path, "aside", error.mark)]),
        )
        return True

    def _files(self, name: str, source: Files, position: Position) -> Files:
        """The source with what was seen of its files, which is read from the catalog only when it
        has changed: each change moves the position."""
        known = self._seen.get(name)
        if known is None or known[0] != position:
            known = (position, self.catalog.files(name))
            self._seen[name] = known
        limit = self.limits.rows_per_step
        return replace(source, rows_per_step=limit, stream=name, seen=known[1])

    def _converted(self, name: str, lease: Lease, position: Position) -> Position:
        """The position of a stream from files as this release has it."""
        changes = converted(name, position)
        if changes is None:
            return position
        after = _noted({"next": int(position.get("next", 0))})
        cursors = {(ingest_owner(name), "source"): after}
        self.catalog.commit(lease, cursors=cursors, files=changes)
        return after

    def _warn_of_changed(self, name: str, changes: FileChanges | None) -> None:
        for file in changes.seen if changes else ():
            if file.state == "changed":
                log.warning(
                    "stream %s: %s has changed after it was read; what it holds now is not read: "
                    "put it there under another name if it should be",
                    *(name, file.path),
                )

    def _aside(self, name: str) -> list[str]:
        """The files of a stream that were set aside and are there as they were."""
        source = self.source(name) if name in self.definitions.streams else None
        if not isinstance(source, Files):
            return []
        position = self.catalog.cursor(ingest_owner(name), "source") or {}
        return left_aside(self._files(name, source, position).seen.values())

    def troubles(self) -> list[str]:
        """What of the input could not be read, in a sentence each."""
        found = [f"stream {name}: {unread.message}" for name, unread in self._unread.items()]
        for row in self.catalog.streams():
            if aside := self._aside(row.name):
                more = f" and {len(aside) - 1} more" if len(aside) > 1 else ""
                found.append(
                    f"stream {row.spelled} stays open: {aside[0]}{more} cannot be read; repair or "
                    "remove it and run again (headwater show rejects says what is wrong)"
                )
        return found

    def _adopt(self, name: str) -> None:
        """Have all of a stream that is taken in here in the own store; clients write elsewhere."""
        owner = ingest_owner(name)
        lease = None if self.site is None else self.claims.take(owner)
        if self.site is not None and lease is not None:
            from_clients = self.definitions.streams[name].source is None
            self.site.adopt(owner, stream_log(name), lease, again=from_clients)

    def _tell_missing(self, name: str, path: str) -> None:
        """Warn once of a path that does not exist (yet): often it is misspelt."""
        if Path(path).exists():
            self._missing.discard(name)
        elif name not in self._missing:
            self._missing.add(name)
            log.warning("stream %s: there is nothing at %s; it is read when it comes", name, path)
            self.catalog.record_event("path missing", name, path=path)

    def take(self, name: str) -> bool:
        """Take in one batch of a stream; returns whether there was one."""
        self._adopt(name)
        source = self.source(name)
        if source is None or not self._open(name):
            return False
        owner = ingest_owner(name)
        lease = self.claims.take(owner)
        row = self._open(name)  # as it is under the lease
        if lease is None or row is None or self._runs_ahead(name):
            return False
        cursors = self.catalog.cursors(owner)
        if stopped := cursors.get(STOPPED):
            return self._restart(name, lease, stopped)
        check_files(self.definitions.streams[name].source, allowed_paths(self.catalog))
        position = cursors.get("source") or {}
        if isinstance(source, Files):
            position = self._converted(name, lease, position)
            source = self._files(name, source, position)
        try:
            batch = source.poll(self.spark, position)
        except SourceReplaced as replaced:
            self._stop(name, lease, replaced)
        if isinstance(source, Files):
            self._tell_missing(name, source.options.path)
        if batch is None:
            return False
        if batch.pieces is None:
            after = {(owner, "source"): batch.position}
            self.catalog.commit(lease, cursors=after, files=batch.files)
            self._warn_of_changed(name, batch.files)
            return True
        if row.ended:
            return True  # it is reopened with the next round
        stream = self.definitions.streams[row.name].stream
        folder = stream_folder(self.store, row.name)
        bounds = Bounds.of(stream, row.watermark, self.clock())
        written, refused = taken_in(batch, stream, bounds, folder)
        batch.confirm()
        self.at_point("ingest: written")
        append(
            self.catalog,
            lease,
            row,
            written,
            {(owner, "source"): batch.position},
            refused,
            limits=self.limits,
            files=batch.files,
        )
        self._warn_of_changed(name, batch.files)
        self.at_point("ingest: committed")
        for warning in batch.warnings:
            log.warning("stream %s: %s", name, warning)
            self.catalog.record_event("input lost", name, error=warning)
        return True

    def _stop(self, name: str, lease: Lease, replaced: SourceReplaced) -> NoReturn:
        """Read a stream no more, here or anywhere, until RESTART STREAM accepts what changed."""
        message = f"{replaced}; RESTART STREAM {name} reads on from what is there now"
        note = {"error": message, "resume_at": replaced.resume_at}
        self.catalog.commit(lease, cursors={(ingest_owner(name), STOPPED): note})
        raise InputError(message)

    def _restart(self, name: str, lease: Lease, stopped: Mapping[str, Any]) -> bool:
        """Go on with a stream that was stopped; raises InputError unless that was accepted."""
        if not stopped.get("accepted"):
            raise InputError(stopped["error"])
        owner = ingest_owner(name)
        moved = {(owner, "source"): stopped["resume_at"], (owner, STOPPED): {}}
        self.catalog.commit(lease, cursors=moved)
        self.catalog.record_event("stream restarted", name)
        return True

    def _open(self, name: str) -> StreamRow | None:
        """The stream as it stands, unless it has ended for good or was dropped."""
        row = self.catalog.stream(name)
        return None if row is None or (row.ended and not row.reopens) else row

    def _runs_ahead(self, name: str) -> bool:
        """Whether a stream has to wait for a unit; that it does is noted for all to see."""
        behind = slowest(self.catalog, name)
        waits = behind is not None and behind.rows > self.limits.rows_ahead
        if self._waiting.get(name) != waits:
            self._waiting[name] = waits
            self.catalog.set_statistics({(stream_log(name), WAITS): float(waits)})
        return waits

    def source(self, name: str) -> Source | None:
        return self.sources.of(name, self.definitions.streams[name])


def _noted(position: Position) -> Position:
    """The position when something was noted of files and none was read."""
    return {"next": int(position.get("next", 0)), "noted": int(position.get("noted", 0)) + 1}
