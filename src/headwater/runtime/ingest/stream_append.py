"""Appending a batch to the log of a stream: the one transaction with which ingestion ends.

Sources and pushes by clients both end here, so segments, positions, rejects, statistics and alarms
of a stream are always committed together.
"""

from __future__ import annotations

import logging
import time

from headwater.runtime.catalog import (
    BatchRejects,
    Catalog,
    Cursors,
    FileChanges,
    Lease,
    StreamRow,
    stream_log,
)
from headwater.runtime.ingest.share_alarms import ShareAlarm, recent_counts, share_alarms
from headwater.runtime.metrics.rates import arrival_statistics
from headwater.runtime.settings import Settings, effective_settings
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment

logger = logging.getLogger("headwater")


def append_to_stream(
    catalog: Catalog,
    lease: Lease | None,
    stream: StreamRow,
    written: segment_files.WrittenFile | None,
    cursors: Cursors,
    rejects: BatchRejects,
    expected_cursors: Cursors | None = None,
    settings: Settings | None = None,
    files: FileChanges | None = None,
) -> None:
    """Commit the new segment of a stream, the position behind it, and its rejects.

    If too large a share of recent tuples is late or rejected, the commit includes an event.
    """
    segments = []
    progress = None
    log, now = stream_log(stream.name), time.time()
    statistics = catalog.statistics(log)
    counts = recent_counts(statistics, 0 if written is None else written.rows, rejects, now)
    alarms: list[ShareAlarm] = []
    values = dict(counts)
    if len(counts) > 1:  # some recent tuples were late or rejected
        settings = settings or effective_settings(Settings(), catalog.options(), {})
        alarms, raised = share_alarms(statistics, counts, settings, rejects)
        values |= raised
    if written is not None:
        values |= arrival_statistics(statistics, written.rows, written.bytes, now)
        # The watermark never falls: a batch may hold only tuples older than those before it.
        largest = written.largest_time
        if stream.max_event_time is not None:
            largest = max(largest, stream.max_event_time)
        progress = (stream.name, largest)
        segments = [build_segment(log, written, stream.watermark_at(largest))]
    catalog.commit(
        lease,
        segments=segments,
        cursors=cursors,
        statistics={(log, name): value for name, value in values.items()},
        stream_progress=progress,
        rejects=[rejects] if rejects.malformed or rejects.late else [],
        expected_cursors=expected_cursors,
        events=[(alarm.kind, stream.name, alarm.detail) for alarm in alarms],
        files=files,
    )
    for alarm in alarms:
        logger.warning("stream %s: %s", stream.spelled, alarm.sentence)
