"""What keeps the log small: retention, compaction and the sweep.

A segment of a stream goes when no unit can need it again and the stream's history (KEEP) is past it.
Small neighbours are merged into one. Files that no segment names, left by a process that was killed,
are swept when they are old enough not to be a step's that is under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.runtime import files
from headwater.runtime.catalog import Catalog, Lease, Segment, StreamRow, stream_log
from headwater.runtime.compile import TIME, Delta, Instants, window_start
from headwater.runtime.push import segment

MERGED_ROWS = 250_000
"""Neighbours are merged up to so many rows."""

MERGED_AT_LEAST = 8
"""Fewer neighbours than this are not worth a merge."""

GRACE_SECONDS = 600.0


def nowhere(point: str) -> None:
    """Called at the named points of housekeeping, where nobody wants to stop the process."""


@dataclass(frozen=True)
class Reader:
    """A unit as the streams see it: its plan and how far it has come."""

    plan: Delta | Instants
    cursors: Mapping[str, Any]

    def reached(self, log: str) -> int:
        """The last sequence number that it has taken in."""
        return int(self.cursors.get(log, {"seq": 0})["seq"])

    def needs_from(self, log: str) -> int | None:
        """The least time of a taken-in tuple that it may read again; None if of any time."""
        if isinstance(self.plan, Delta):
            return self._delta_needs(self.plan, log)
        instant = self.cursors.get("instant")
        starts = [
            None if instant is None else window_start(scan, instant)
            for _, scan in self.plan.scans
            if stream_log(scan.stream) == log
        ]
        return _least(starts)

    def _delta_needs(self, plan: Delta, log: str) -> int | None:
        """A tuple is needed while a tuple that is to come in another input may meet it."""
        starts: list[int | None] = []
        for alias, scan in plan.scans:
            if stream_log(scan.stream) != log:
                continue
            for other, theirs in plan.scans:
                if other == alias:
                    continue
                mark = self.cursors.get(stream_log(theirs.stream), {}).get("watermark")
                before, _ = plan.reach(alias)
                starts.append(None if mark is None or before is None else mark - before)
        return _least(starts) if starts else FAR


FAR = 2**62


def _least(starts: Iterable[int | None]) -> int | None:
    found = list(starts)
    return None if None in found else min((s for s in found if s is not None), default=FAR)


def expired(
    stream: StreamRow, segments: Sequence[Segment], readers: Sequence[Reader]
) -> list[Segment]:
    """The segments of a stream that nothing can need again."""
    mark = stream.watermark
    if mark is None:
        return []
    log = stream_log(stream.name)
    limit = mark - stream.keep
    taken = FAR
    for reader in readers:
        needs = reader.needs_from(log)
        if needs is None:
            return []
        limit = min(limit, needs)
        taken = min(taken, reader.reached(log))
    return [
        s for s in segments if s.seq <= taken and (s.largest_time is None or s.largest_time < limit)
    ]


def readers_of(log: str, readers: Iterable[Reader]) -> list[Reader]:
    """Those that read a log."""
    return [r for r in readers if any(stream_log(s.stream) == log for _, s in r.plan.scans)]


def retain(
    catalog: Catalog,
    readers: Sequence[Reader],
    lease: Lease | None,
    at_point: Callable[[str], None] = nowhere,
) -> int:
    """Remove the expired segments of all streams with their files; returns how many."""
    removed = 0
    for stream in catalog.streams():
        log = stream_log(stream.name)
        gone = expired(stream, catalog.segments(log), readers_of(log, readers))
        if gone:
            forgotten = catalog.remove_segments([s.id for s in gone], lease)
            at_point("retain: forgotten")
            for old in forgotten:
                files.remove(old.path)
            removed += len(gone)
    return removed


def mergeable(segments: Sequence[Segment]) -> list[Segment]:
    """The first run of small neighbours that is worth a merge; empty if there is none."""
    run: list[Segment] = []
    rows = 0
    for found in segments:
        if found.rows > MERGED_ROWS // 2 or rows + found.rows > MERGED_ROWS:
            if len(run) >= MERGED_AT_LEAST:
                return run
            run, rows = [], 0
        if found.rows <= MERGED_ROWS // 2:
            run.append(found)
            rows += found.rows
    return run if len(run) >= MERGED_AT_LEAST else []


def compact(
    catalog: Catalog,
    stream: StreamRow,
    readers: Sequence[Reader],
    folder: Path,
    lease: Lease | None,
    at_point: Callable[[str], None] = nowhere,
) -> bool:
    """Merge one run of small neighbours that every reader has taken in; whether there was one."""
    log = stream_log(stream.name)
    _remove_pieces(catalog, log, lease, nowhere)
    taken = min((reader.reached(log) for reader in readers), default=stream.next_seq - 1)
    run = mergeable(catalog.segments(log, 0, taken)) if taken else []
    tables = [files.read_arrow(s.path) for s in run if s.rows]
    if not tables:
        return False
    written = files.write_arrow(pa.concat_tables(tables).sort_by(TIME), folder, TIME)
    assert written is not None
    at_point("compact: written")
    catalog.replace_segments(lease, [s.id for s in run], segment(log, written, run[-1].watermark))
    at_point("compact: replaced")
    _remove_pieces(catalog, log, lease, at_point)
    return True


def _remove_pieces(
    catalog: Catalog, log: str, lease: Lease | None, at_point: Callable[[str], None]
) -> None:
    """Remove what was merged, now or by a process that was killed before it came to that."""
    pieces = catalog.pieces(log)
    if not pieces:
        return
    removed = catalog.remove_segments([piece.id for piece in pieces], lease)
    at_point("compact: forgotten")
    for piece in removed:
        files.remove(piece.path)


def sweep(catalog: Catalog, state: Path, grace: float = GRACE_SECONDS) -> list[Path]:
    """Delete files of the log that no segment names and that are older than the grace."""
    found = files.orphans(state / "log", catalog.all_paths(), time.time() - grace)
    return [Path(path) for path in catalog.unnamed(map(str, found), files.remove)]
