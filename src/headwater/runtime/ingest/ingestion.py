"""Ingestion of sources: batches become segments of the streams' logs.

A batch is written as a file and registered with the source's new position in one transaction, under
the lease of the stream. A source that cannot be read is reported, and the others continue; a file
that cannot be read is set aside.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from headwater.errors import CatalogError, CatalogUnavailable, InputError, LeaseLost
from headwater.runtime.catalog import (
    BatchRejects,
    Catalog,
    FileChanges,
    Lease,
    RejectedRecord,
    SeenFile,
    StreamRow,
    ingest_owner,
    stream_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.connectors.base import Position, Source, SourceReplaced
from headwater.runtime.connectors.files import FileSource, convert_position, files_still_aside
from headwater.runtime.connectors.open_sources import OpenSources, check_source_paths
from headwater.runtime.connectors.record_parser import UnreadableFile
from headwater.runtime.ingest.backpressure import slowest_reader
from headwater.runtime.ingest.batch import ingest_batch
from headwater.runtime.ingest.stream_append import append_to_stream
from headwater.runtime.ingest.time_bounds import EventTimeBounds
from headwater.runtime.leases import ProcessLeases
from headwater.runtime.lifecycle import STOPPED, reopen_stream
from headwater.runtime.metrics.rates import WAITS
from headwater.runtime.settings import Settings
from headwater.runtime.sites.single_site import ProcessSite
from headwater.runtime.spark.errors import describe_error, raise_if_spark_ended
from headwater.runtime.storage.append import stream_folder
from headwater.runtime.storage.paths import allowed_paths

log = logging.getLogger("headwater")


@dataclass(frozen=True)
class ReadFailure:
    """Why a stream could not be read, and how many times in a row."""

    message: str
    failures: int


@dataclass
class Ingestion:
    """Ingests the streams of one catalog, or those assigned to one site."""

    catalog: Catalog
    definitions: Definitions
    spark: SparkSession
    leases: ProcessLeases
    settings: Settings
    at_point: Callable[[str], None]
    site: ProcessSite
    clock: Callable[[], float] = time.time
    sources: OpenSources = field(default_factory=OpenSources)
    _failures: dict[str, ReadFailure] = field(default_factory=dict)
    _throttled: dict[str, bool] = field(default_factory=dict)
    _missing_paths: set[str] = field(default_factory=set)
    """Streams whose path did not exist when it was last checked, so that each is reported once."""
    _abandoned: dict[str, float] = field(default_factory=dict)
    """Streams that are no longer read in this run, each with when it was declared."""
    _seen_files: dict[str, tuple[Position, dict[str, SeenFile]]] = field(default_factory=dict)

    def local_streams(self) -> list[StreamRow]:
        """The streams that are ingested here."""
        return [row for row in self.catalog.streams() if self._is_mine(row.name)]

    def _is_mine(self, name: str) -> bool:
        return self.site.owns(ingest_owner(name))

    def refresh(self) -> list[str]:
        """Forget dropped and reassigned streams; returns the names of those ingested here."""
        self._forget_abandoned()
        declared = self.definitions.streams
        mine = [name for name in declared if self._is_mine(name) and name not in self._abandoned]
        # Why a stream was abandoned is still to be reported when the run ends.
        current = {*mine, *self._abandoned}
        self._failures = {
            name: failure for name, failure in self._failures.items() if name in current
        }
        self._throttled = {
            name: waits for name, waits in self._throttled.items() if name in declared
        }
        self._seen_files = {name: seen for name, seen in self._seen_files.items() if name in mine}
        self.sources.close_except(set(mine))
        return mine

    def _forget_abandoned(self) -> None:
        """Forget abandoned streams that were dropped; one that was declared anew since is another."""
        rows = self.catalog.streams() if self._abandoned else []
        declared_at = {row.name: row.created_at for row in rows}
        for name, at in list(self._abandoned.items()):
            if declared_at.get(name) != at:
                del self._abandoned[name]
                self._failures.pop(name, None)

    def expects_more(self) -> bool:
        """Whether a source will have more, or is to be retried after a failure."""
        if self.sources.expects_more({row.name for row in self.local_streams() if not row.ended}):
            return True
        return any(failure.failures <= self.settings.retries for failure in self._failures.values())

    def close(self) -> None:
        """Close the sources."""
        self.sources.close_except(set())

    def end_finite_streams(self) -> bool:
        """Declare streams of exhausted sources ended; returns whether that changed anything.

        A stream that could not be read, or of which a file was set aside, is left open.
        """
        changed = False
        for row in self.local_streams():
            source = self.source(row.name)
            waits = self._throttled.get(row.name, False)
            # A stream that waits was not polled, so its source may well have more.
            if row.ended or waits or source is None or not source.finite:
                continue
            lease = (
                None if row.name in self._failures else self.leases.acquire(ingest_owner(row.name))
            )
            if lease is None or self._files_aside(row.name):
                continue
            try:
                self.catalog.end_stream(row.name, reopens=True)
            except CatalogUnavailable:
                raise
            except CatalogError:  # it was dropped meanwhile
                continue
            changed = True
        return changed

    def reopen_streams(self) -> None:
        """Reopen the streams that ended by idleness and have more.

        A unit that reads them must not step meanwhile, as it would still see the end; so the leases
        of all readers are held.
        """
        for row in self.local_streams():
            if not (row.ended and row.reopens and self._has_more(row.name)):
                continue
            log = stream_log(row.name)
            readers = [unit.id for unit in self.catalog.units() if log in unit.inputs]
            # A lease that another process holds means that its unit may be stepping: try again next
            # round.
            if all(self.leases.acquire(f"unit:{unit}") is not None for unit in readers):
                reopen_stream(self.catalog, row)

    def _has_more(self, name: str) -> bool:
        """Whether a source has a batch; False if it cannot be read, which `try_ingest` reports."""
        source = self.source(name)
        if source is None or self.leases.acquire(ingest_owner(name)) is None:
            return False
        try:
            position = self.catalog.cursor(ingest_owner(name), "source") or {}
            if isinstance(source, FileSource):
                return bool(self._with_seen_files(name, source, position).scan_folder().fresh)
            return source.poll(self.spark, position) is not None
        except CatalogUnavailable:
            raise
        except Exception:
            return False

    def try_ingest(self, name: str) -> bool:
        """Ingest one batch; a failure is recorded, so that the other streams continue."""
        try:
            ingested = self.ingest(name)
            self._failures.pop(name, None)
            return ingested
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.leases.mark_lost(ingest_owner(name))
            return False
        except UnreadableFile as error:
            # The batches before it are committed by now, so the failure is about this file alone.
            return self._skip_unreadable(name, error)
        except Exception as error:
            raise_if_spark_ended(self.spark, error)
            if self.catalog.stream(name) is None:  # it was dropped meanwhile
                return False
            return self._record_failure(name, error)

    def abandon(self, name: str, message: str) -> None:
        """Stop reading a stream in this run, because nothing else could continue beside it."""
        row = self.catalog.stream(name)
        if row is None:  # it was dropped meanwhile
            return
        log.error("stream %s is no longer read in this run: %s", name, message)
        self.catalog.record_event("stream unread", name, error=message)
        self._failures[name] = ReadFailure(message, self.settings.retries + 1)
        self._abandoned[name] = row.created_at

    def _record_failure(self, name: str, error: Exception) -> bool:
        message = describe_error(error)
        before = self._failures.get(name)
        if before is None or before.message != message:
            log.error("stream %s cannot be read: %s", name, message, exc_info=error)
            self.catalog.record_event("stream unread", name, error=message)
        self._failures[name] = ReadFailure(message, before.failures + 1 if before else 1)
        return False

    def _skip_unreadable(self, name: str, error: UnreadableFile) -> bool:
        try:
            return self._set_file_aside(name, error) or self._record_failure(name, error)
        except LeaseLost:  # the process that took it meets the same file
            self.leases.mark_lost(ingest_owner(name))
            return False

    def _set_file_aside(self, name: str, error: UnreadableFile) -> bool:
        """Skip a file of a stream that cannot be read; returns whether that was possible.

        It stays where it is and is named in the reject log; once it changes, it is read.
        """
        owner = ingest_owner(name)
        source, lease = self.source(name), self.leases.acquire(owner)
        if not isinstance(source, FileSource) or lease is None:
            return False
        log.error(
            "stream %s: %s cannot be read and is set aside: %s", name, error.path, error.reason
        )
        self.catalog.record_event("file set aside", name, path=error.path, error=error.reason)
        rejected = RejectedRecord(f"unreadable file: {error.reason}", error.path, error.path)
        position = self.catalog.cursor(owner, "source") or {}
        self.catalog.commit(
            lease,
            cursors={(owner, "source"): _note_change(position)},
            rejects=[BatchRejects(name, 1, 0, (rejected,))],
            files=FileChanges(name, [SeenFile(error.path, "aside", error.mark)]),
        )
        return True

    def _with_seen_files(self, name: str, source: FileSource, position: Position) -> FileSource:
        """The source with the files seen so far.

        Those are read from the catalog only when they have changed: each change moves the position.
        """
        cached = self._seen_files.get(name)
        if cached is None or cached[0] != position:
            cached = (position, self.catalog.seen_files(name))
            self._seen_files[name] = cached
        limit = self.settings.rows_per_step
        return replace(source, rows_per_step=limit, stream=name, seen=cached[1])

    def _convert_position(self, name: str, lease: Lease, position: Position) -> Position:
        """The position of a file stream in the format of this release, converted if necessary."""
        changes = convert_position(name, position)
        if changes is None:
            return position
        after = _note_change({"next": int(position.get("next", 0))})
        cursors = {(ingest_owner(name), "source"): after}
        self.catalog.commit(lease, cursors=cursors, files=changes)
        return after

    def _warn_changed_files(self, name: str, changes: FileChanges | None) -> None:
        for file in changes.seen if changes else ():
            if file.state == "changed":
                log.warning(
                    "stream %s: %s has changed after it was read; its new content is not read: "
                    "copy it to another name if it should be",
                    *(name, file.path),
                )

    def _files_aside(self, name: str) -> list[str]:
        """The files of a stream that were set aside and have not changed since."""
        source = self.source(name)
        if not isinstance(source, FileSource):
            return []
        position = self.catalog.cursor(ingest_owner(name), "source") or {}
        return files_still_aside(self._with_seen_files(name, source, position).seen.values())

    def problems(self) -> list[str]:
        """The inputs that could not be read, a sentence each."""
        problems = [f"stream {name}: {failure.message}" for name, failure in self._failures.items()]
        for row in self.catalog.streams():
            if aside := self._files_aside(row.name):
                more = f" and {len(aside) - 1} more" if len(aside) > 1 else ""
                problems.append(
                    f"stream {row.spelled} stays open: {aside[0]}{more} cannot be read; repair or "
                    "remove it and run again (headwater show rejects says what is wrong)"
                )
        return problems

    def _adopt_log(self, name: str) -> None:
        """Bring all segments of a stream that is ingested here into this site's store.

        Clients write to another store, so a stream without a source is checked every time.
        """
        owner = ingest_owner(name)
        lease = self.leases.acquire(owner) if self.site.has_others else None
        if lease is not None:
            from_clients = self.definitions.streams[name].source is None
            self.site.adopt_segments(owner, stream_log(name), lease, again=from_clients)

    def _warn_missing_path(self, name: str, path: str) -> None:
        """Warn once about a path that does not exist (yet): often it is misspelt."""
        if Path(path).exists():
            self._missing_paths.discard(name)
        elif name not in self._missing_paths:
            self._missing_paths.add(name)
            log.warning("stream %s: %s does not exist; it is read once it does", name, path)
            self.catalog.record_event("path missing", name, path=path)

    def ingest(self, name: str) -> bool:
        """Ingest one batch of a stream; returns whether there was one."""
        self._adopt_log(name)
        declared = self.definitions.streams.get(name)
        source = self.source(name)
        if declared is None or source is None or not self._active_stream(name):
            return False
        owner = ingest_owner(name)
        lease = self.leases.acquire(owner)
        # Read again under the lease: until then another process may have ingested and moved it.
        row = self._active_stream(name)
        if lease is None or row is None or self._is_throttled(name):
            return False
        cursors = self.catalog.cursors(owner)
        if stopped := cursors.get(STOPPED):
            return self._restart_stream(name, lease, stopped)
        # With each batch: a link may have been changed since the stream was declared.
        check_source_paths(declared.source, allowed_paths(self.catalog))
        position = cursors.get("source") or {}
        if isinstance(source, FileSource):
            position = self._convert_position(name, lease, position)
            source = self._with_seen_files(name, source, position)
        try:
            batch = source.poll(self.spark, position)
        except SourceReplaced as replaced:
            self._stop_stream(name, lease, replaced)
        if isinstance(source, FileSource):
            self._warn_missing_path(name, source.options.path)
        if batch is None:
            return False
        if batch.chunks is None:
            after = {(owner, "source"): batch.position}
            self.catalog.commit(lease, cursors=after, files=batch.files)
            self._warn_changed_files(name, batch.files)
            return True
        if row.ended:
            return True  # the next round reopens it, with its readers locked
        stream = declared.stream
        folder = stream_folder(self.site.store, row.name)
        bounds = EventTimeBounds.of(stream, row.watermark, self.clock())
        written, rejects = ingest_batch(batch, stream, bounds, folder)
        # After reading and before committing: a topic that was recreated in between must not count.
        batch.confirm()
        self.at_point("ingest: written")
        append_to_stream(
            self.catalog,
            lease,
            row,
            written,
            {(owner, "source"): batch.position},
            rejects,
            settings=self.settings,
            files=batch.files,
        )
        self._warn_changed_files(name, batch.files)
        self.at_point("ingest: committed")
        # After the commit: a batch that is refused is read again, and would warn again.
        for warning in batch.warnings:
            log.warning("stream %s: %s", name, warning)
            self.catalog.record_event("input lost", name, error=warning)
        return True

    def _stop_stream(self, name: str, lease: Lease, replaced: SourceReplaced) -> NoReturn:
        """Stop reading a stream, in every process, until RESTART STREAM accepts the change.

        The reason is committed as a cursor, so it also survives a restart.
        """
        message = f"{replaced}; RESTART STREAM {name} continues with what is there now"
        note = {"error": message, "resume_at": replaced.resume_at}
        self.catalog.commit(lease, cursors={(ingest_owner(name), STOPPED): note})
        raise InputError(message)

    def _restart_stream(self, name: str, lease: Lease, stopped: Mapping[str, Any]) -> bool:
        """Continue a stopped stream; raises InputError unless RESTART STREAM accepted that."""
        if not stopped.get("accepted"):
            raise InputError(stopped["error"])
        owner = ingest_owner(name)
        # Empty, as a cursor cannot be None.
        moved = {(owner, "source"): stopped["resume_at"], (owner, STOPPED): {}}
        self.catalog.commit(lease, cursors=moved)
        self.catalog.record_event("stream restarted", name)
        return True

    def _active_stream(self, name: str) -> StreamRow | None:
        """The stream as it is now, unless it was dropped or has ended and cannot reopen."""
        row = self.catalog.stream(name)
        return None if row is None or (row.ended and not row.reopens) else row

    def _is_throttled(self, name: str) -> bool:
        """Whether a stream has to wait for a unit; a change is recorded as a statistic."""
        backlog = slowest_reader(self.catalog, name)
        throttled = backlog is not None and backlog.rows > self.settings.max_backlog_rows
        if self._throttled.get(name) != throttled:
            self._throttled[name] = throttled
            self.catalog.set_statistics({(stream_log(name), WAITS): float(throttled)})
        return throttled

    def source(self, name: str) -> Source | None:
        """The open source of a stream; None if clients push to it, or if it was dropped."""
        declared = self.definitions.streams.get(name)
        return None if declared is None else self.sources.get(name, declared)


def _note_change(position: Position) -> Position:
    """The position after files were recorded but none was read.

    The counter makes it differ, which is how cached file lists notice.
    """
    return {"next": int(position.get("next", 0)), "noted": int(position.get("noted", 0)) + 1}
