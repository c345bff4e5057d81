"""What the engine does between rounds to keep the logs small: each site tidies its own store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import DamagedFile
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    LogPosition,
    Segment,
    UnitRow,
    stream_log,
    unit_log,
)
from headwater.runtime.engine.planned_units import RunningUnits
from headwater.runtime.ingest.ingestion import Ingestion
from headwater.runtime.lifecycle import is_stopped_for_good
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.maintenance.result_logs import (
    compact_results,
    expire_results,
    retention_seconds,
)
from headwater.runtime.maintenance.stream_logs import (
    LogReader,
    RetainedLog,
    compact_log,
    readers_of,
    remove_expired,
    sweep_orphans,
)
from headwater.runtime.sites.single_site import ProcessSite
from headwater.runtime.storage.append import stream_folder

MAX_DROPPED_KEPT = 1_000
"""How many dropped queries and units are remembered."""


@dataclass(frozen=True)
class Housekeeping:
    """Removes what is no longer needed, compacts what is small, sweeps files that nothing names."""

    catalog: Catalog
    units: RunningUnits
    ingestion: Ingestion
    site: ProcessSite
    at_point: Callable[[str], None]
    report_trouble: Callable[[str, str], None]

    def tidy(self, lease: Lease, results_keep: float | None) -> None:
        """Tidy all that is this site's; `results_keep` is for how long results stay, if limited."""
        readers = [
            LogReader(self.units.current(row).plan, self._reader_cursors(row))
            for row in self.catalog.units()
            # One that never steps again needs none of its inputs, and would keep them for ever.
            if not is_stopped_for_good(self.catalog, row)
        ]
        logs = self._retained_logs()
        remove_expired(self.catalog, logs, readers, lease, self.at_point)
        for retained in logs:
            own_readers = readers_of(stream_log(retained.stream.name), readers)
            try:
                compact_log(self.catalog, retained, own_readers, lease, self.at_point)
                self.report_trouble(retained.log, "")
            except DamagedFile as error:  # the units that need it park; other logs are compacted
                self.report_trouble(retained.log, str(error))
        self._tidy_results(lease, results_keep)
        # Also what trial steps and killed processes left; files of a step under way are too young.
        sweep_orphans(self.catalog, self.site.store)
        self.catalog.forget_dropped(MAX_DROPPED_KEPT)

    def _tidy_results(self, lease: Lease, usual: float | None) -> None:
        """Compact the results of this site's units, and remove those that were kept long enough; only
        units with many segments, or a limit on their time, are looked at."""
        crowded = self.catalog.fragmented_logs("unit", stream_logs.MIN_COMPACTED_SEGMENTS)
        some_expire = usual is not None or any(q.keep is not None for q in self.catalog.queries())
        for row in self.catalog.units():
            if not self.site.owns(unit_log(row.id)):
                continue
            keep = (
                retention_seconds(self.catalog.subscribers(row.id), usual) if some_expire else None
            )
            if unit_log(row.id) in crowded:
                folder = self.site.store / "log" / "units" / row.id
                try:
                    compact_results(self.catalog, row, folder, lease, keep, self.at_point)
                    self.report_trouble(unit_log(row.id), "")
                except DamagedFile as error:  # its readers get the error; other logs are compacted
                    self.report_trouble(unit_log(row.id), str(error))
            if keep is not None:
                expire_results(self.catalog, row, lease, keep, time.time(), self.at_point)

    def _retained_logs(self) -> list[RetainedLog]:
        """The logs of streams in this site's store: those ingested here, and copies."""
        rows = self.catalog.streams()
        mine = {row.name for row in self.ingestion.local_streams()}
        copied = set(self.site.incoming_logs)
        names = [(row, stream_log(row.name)) for row in rows if row.name in mine]
        names += [
            (row, self.site.local_log(stream_log(row.name)))
            for row in rows
            if stream_log(row.name) in copied
        ]
        return [
            RetainedLog(row, log, stream_folder(self.site.store, row.name)) for row, log in names
        ]

    def _reader_cursors(self, row: UnitRow) -> dict[str, Any]:
        """How far a unit has read its inputs, and those of the units that it reads."""
        upstream_ids = [name.partition(":")[2] for name in row.inputs if name.startswith("unit:")]
        own = self.catalog.cursors(row.id)
        cursors: dict[str, Any] = {}
        for unit_id in upstream_ids:
            read = LogPosition.from_json(own.get(unit_log(unit_id))).seq
            unread = self.catalog.segments(unit_log(unit_id), read)
            cursors |= bounded_marks(self.catalog.cursors(unit_id), unread)
        return cursors | own


def bounded_marks(cursors: Mapping[str, Any], unread: Sequence[Segment]) -> dict[str, Any]:
    """The cursors of a unit for one that reads its rows, which may be behind: a row that is still to
    be read was emitted for tuples before the watermarks that the other has seen since."""
    times = [segment.least_time for segment in unread if segment.least_time is not None]
    bounded = dict(cursors)
    for name, cursor in cursors.items() if times else ():
        position = LogPosition.from_json(cursor) if name.startswith("stream:") else None
        if position is not None and position.watermark is not None:
            mark = min(position.watermark, *times)
            bounded[name] = replace(position, watermark=mark).to_json()
    return bounded
