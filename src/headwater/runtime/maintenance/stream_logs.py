"""Maintenance of stream logs: retention, compaction, and the sweep of orphaned files.

A segment of a stream is removed when no unit can need it again and it is older than the stream's
history (KEEP). Small neighbours are compacted into one. Files that no segment names, left by a
killed process, are swept when they are too old to belong to a step in progress. For the logs of
units see `result_logs`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.algebra.nodes import Scan
from headwater.algebra.windows import Range, Rows
from headwater.runtime.catalog import (
    FOREVER,
    Catalog,
    Lease,
    LogPosition,
    Segment,
    StreamRow,
    is_log_copy,
    stream_log,
)
from headwater.runtime.compile import Plan, window_start
from headwater.runtime.compile.checkpoints import checkpoint_names, checkpoint_of
from headwater.runtime.compile.evaluation_times import earliest_last_instant
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment
from headwater.runtime.storage.columns import TIME

MAX_COMPACTED_ROWS = 250_000
"""Neighbours are compacted up to this many rows."""

MIN_COMPACTED_SEGMENTS = 8
"""Fewer neighbours than this are not compacted."""

COMPACTED_GROUP_ROWS = 25_000
"""Rows per row group of a compacted segment; sorted by join key, so readers skip groups."""

GRACE_SECONDS = 600.0
"""Age below which an orphan is not swept, as a step may be about to commit it."""


def ignore_point(point: str) -> None:
    """Do nothing at a named point of maintenance; tests stop the process at such points."""


@dataclass(frozen=True)
class LogReader:
    """A unit as a reader of streams: its plan and its cursors."""

    plan: Plan
    cursors: Mapping[str, Any]

    @property
    def logs(self) -> set[str]:
        """The streams that it reads itself."""
        return {stream_log(s.stream) for alias, s in self.plan.scans if alias in self.plan.feeds}

    def last_seq(self, log: str) -> int:
        """The last sequence number that it has read."""
        return LogPosition.from_json(self.cursors.get(log)).seq

    def needed_from(self, log: str) -> int | None:
        """The least time of a taken-in tuple that it may read again; None if of any time."""
        if self.plan.emits_on_arrival:
            return self._delta_needed_from(log)
        instant = earliest_last_instant(self.plan.slide_sets, self.cursors)
        if self.plan.keeps_panes:
            # For a query that joins the unit later panes may have to be made again from tuples.
            again = None if instant is None else instant - pane_rebuild_span(self.plan)
            return _earliest([self._delta_needed_from(log), again])
        return _earliest(
            self._window_needed_from(alias, scan, instant)
            for alias, scan in self.plan.scans
            if stream_log(scan.stream) == log
        )

    def _window_needed_from(self, alias: str, scan: Scan, instant: int | None) -> int | None:
        """Where a window is read from: its start, or the checkpoint of a ROWS window."""
        if instant is None:
            return None
        if not isinstance(scan.window, Rows):
            return window_start(scan, instant)
        # By time nothing can be said: how far back the window reaches depends on how many tuples
        # come.
        return checkpoint_of(self.cursors, checkpoint_names(self.plan)[alias], alias)

    def _delta_needed_from(self, log: str) -> int | None:
        """A tuple is needed while a tuple that is to come in another input may meet it."""
        starts: list[int | None] = []
        for alias, scan in self.plan.scans:
            if stream_log(scan.stream) != log or alias not in self.plan.feeds:
                continue
            for other, theirs in self.plan.scans:
                if other == alias:
                    continue
                mark = LogPosition.from_json(self.cursors.get(stream_log(theirs.stream))).watermark
                before, _ = self.plan.reach(alias)
                starts.append(None if mark is None or before is None else mark - before)
        return _earliest(starts) if starts else FOREVER


def pane_rebuild_span(plan: Plan) -> int:
    """How far back tuples are needed if panes are to be made again, for queries that come."""
    windows = [scan.window for _, scan in plan.scans]
    spans = [(w.size or 0) + (w.slide or 0) for w in windows if isinstance(w, Range)]
    return max(spans) + 1


def _earliest(starts: Iterable[int | None]) -> int | None:
    times = list(starts)
    return None if None in times else min((s for s in times if s is not None), default=FOREVER)


@dataclass(frozen=True)
class RetainedLog:
    """A stream, a log that holds it (its own or a copy), and the folder of that log."""

    stream: StreamRow
    log: str
    folder: Path


def expired_segments(
    stream: StreamRow, segments: Sequence[Segment], readers: Sequence[LogReader]
) -> list[Segment]:
    """The segments of a stream that nothing can need again."""
    if stream.watermark is None:
        return []
    log = stream_log(stream.name)
    limit = stream.watermark - stream.keep
    read_by_all = FOREVER
    for reader in readers:
        # Both count: how far back it may look again, and what it has not read yet, however old.
        needs = reader.needed_from(log)
        if needs is None:
            return []
        limit = min(limit, needs)
        read_by_all = min(read_by_all, reader.last_seq(log))
    return [
        s
        for s in segments
        if s.seq <= read_by_all and (s.largest_time is None or s.largest_time < limit)
    ]


def readers_of(log: str, readers: Iterable[LogReader]) -> list[LogReader]:
    """The readers that read a log."""
    return [r for r in readers if log in r.logs]


def remove_expired(
    catalog: Catalog,
    logs: Iterable[RetainedLog],
    readers: Sequence[LogReader],
    lease: Lease | None,
    at_point: Callable[[str], None] = ignore_point,
) -> int:
    """Remove the expired segments of logs with their files; returns how many."""
    removed = 0
    for retained in logs:
        own_readers = readers_of(stream_log(retained.stream.name), readers)
        removed_segments = expired_segments(
            retained.stream, catalog.segments(retained.log), own_readers
        )
        if removed_segments:
            # First the catalog, then the files: a crash in between leaves orphans for the sweep,
            # while the other order would leave segments without files.
            forgotten = catalog.remove_segments([s.id for s in removed_segments], lease)
            at_point("retain: forgotten")
            for old in forgotten:
                segment_files.remove(old.path)
            removed += len(removed_segments)
    return removed


def compactable_segments(segments: Sequence[Segment]) -> list[Segment]:
    """The first run of small neighbours to compact; empty if there is none."""
    run: list[Segment] = []
    rows = 0
    for candidate in segments:
        # To rewrite a large one would gain little; as only neighbours are compacted, it ends the
        # run.
        if candidate.rows > MAX_COMPACTED_ROWS // 2 or rows + candidate.rows > MAX_COMPACTED_ROWS:
            if len(run) >= MIN_COMPACTED_SEGMENTS:
                return run
            run, rows = [], 0
        if candidate.rows <= MAX_COMPACTED_ROWS // 2:
            run.append(candidate)
            rows += candidate.rows
    return run if len(run) >= MIN_COMPACTED_SEGMENTS else []


def join_keys(log: str, readers: Iterable[LogReader]) -> list[str]:
    """The column by which most readers of a stream join it, if any does."""
    votes: Counter[str] = Counter()
    for reader in readers:
        own = {alias for alias, scan in reader.plan.scans if stream_log(scan.stream) == log}
        votes.update({key.name for key, _ in reader.plan.equalities if key.relation in own})
    return [name for name, _ in votes.most_common(1)]


def compact_log(
    catalog: Catalog,
    retained: RetainedLog,
    readers: Sequence[LogReader],
    lease: Lease | None,
    at_point: Callable[[str], None] = ignore_point,
) -> bool:
    """Compact one run of small neighbours that every reader and every copy has read.

    Returns whether there was one.
    """
    stream = stream_log(retained.stream.name)
    remove_pieces(catalog, retained.log, lease, ignore_point)
    positions = [reader.last_seq(stream) for reader in readers]
    # A reader in the middle of the run would need the pieces, which are removed below.
    read_by_all = min([retained.stream.next_seq - 1, *positions, *copy_positions(catalog, stream)])
    run = (
        compactable_segments(catalog.segments(retained.log, 0, read_by_all)) if read_by_all else []
    )
    tables = [segment_files.read_arrow(s) for s in run if s.rows]
    if not tables:
        return False
    order = [(name, "ascending") for name in (*join_keys(stream, readers), TIME)]
    merged = pa.concat_tables(tables).sort_by(order)
    written = segment_files.write_arrow(merged, retained.folder, (TIME, TIME), COMPACTED_GROUP_ROWS)
    assert written is not None
    at_point("compact: written")
    new = build_segment(retained.log, written, run[-1].watermark)
    catalog.replace_segments(lease, [s.id for s in run], new)
    at_point("compact: replaced")
    remove_pieces(catalog, retained.log, lease, at_point)
    return True


def copy_positions(catalog: Catalog, log: str) -> list[int]:
    """The last sequence number that each copy of a log holds."""
    return [
        end.seq
        for name, end in catalog.log_ends().items()
        if is_log_copy(name) and name.endswith(f":{log}")
    ]


def remove_pieces(
    catalog: Catalog, log: str, lease: Lease | None, at_point: Callable[[str], None]
) -> None:
    """Remove the pieces of compacted segments, also those left by a process that was killed."""
    pieces = catalog.compacted_pieces(log)
    if not pieces:
        return
    removed = catalog.remove_segments([piece.id for piece in pieces], lease)
    at_point("compact: forgotten")
    for piece in removed:
        segment_files.remove(piece.path)


def sweep_orphans(catalog: Catalog, state: Path, grace: float = GRACE_SECONDS) -> list[Path]:
    """Delete files of the logs that no segment names and that are older than the grace period."""
    orphans = segment_files.find_orphans(state / "log", catalog.all_paths(), time.time() - grace)
    return [
        Path(path) for path in catalog.remove_unreferenced(map(str, orphans), segment_files.remove)
    ]
