"""What keeps the log small: retention, compaction and the sweep.

A segment of a stream goes when no unit can need it again and the stream's history (KEEP) is past it.
Small neighbours are merged into one. Files that no segment names, left by a process that was killed,
are swept when they are old enough not to be a step's that is under way. For the logs of units see
`retention`.
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
from headwater.runtime import files
from headwater.runtime.catalog import Catalog, Lease, Segment, StreamRow, is_copy, stream_log
from headwater.runtime.compile import (
    TIME,
    Delta,
    Instants,
    Panes,
    Plan,
    Shared,
    SharedPanes,
    window_start,
)
from headwater.runtime.instants import earliest
from headwater.runtime.push import segment

MERGED_ROWS = 250_000
"""Neighbours are merged up to so many rows."""

MERGED_AT_LEAST = 8
"""Fewer neighbours than this are not worth a merge."""

MERGED_GROUP_ROWS = 25_000
"""Rows of a merged segment that are read or passed over together: they lie by their join key."""

GRACE_SECONDS = 600.0


def nowhere(point: str) -> None:
    """Called at the named points of housekeeping, where nobody wants to stop the process."""


@dataclass(frozen=True)
class Reader:
    """A unit as the streams see it: its plan and how far it has come."""

    plan: Plan
    cursors: Mapping[str, Any]

    @property
    def logs(self) -> set[str]:
        """The streams that it reads itself."""
        feeds = None if isinstance(self.plan, Instants) else self.plan.feeds
        return {
            stream_log(s.stream) for alias, s in self.plan.scans if feeds is None or alias in feeds
        }

    def reached(self, log: str) -> int:
        """The last sequence number that it has taken in."""
        return int(self.cursors.get(log, {"seq": 0})["seq"])

    def needs_from(self, log: str) -> int | None:
        """The least time of a taken-in tuple that it may read again; None if of any time."""
        if isinstance(self.plan, Delta | Shared):
            return self._delta_needs(self.plan, log)
        instant = earliest(self.plan.rhythms, self.cursors)
        if isinstance(self.plan, Panes | SharedPanes) and self.plan.are_kept:
            again = None if instant is None else instant - made_again(self.plan)
            return _least([self._delta_needs(self.plan.delta, log), again])
        return _least(
            self._window_needs(alias, scan, instant)
            for alias, scan in self.plan.scans
            if stream_log(scan.stream) == log
        )

    def _window_needs(self, alias: str, scan: Scan, instant: int | None) -> int | None:
        """Windows are read again from their start, or from where they were written down."""
        if instant is None:
            return None
        if not isinstance(scan.window, Rows):
            return window_start(scan, instant)
        carried: int | None = self.cursors.get(f"carried:{alias}")
        return carried

    def _delta_needs(self, plan: Delta | Shared, log: str) -> int | None:
        """A tuple is needed while a tuple that is to come in another input may meet it."""
        starts: list[int | None] = []
        for alias, scan in plan.scans:
            if stream_log(scan.stream) != log or alias not in plan.feeds:
                continue
            for other, theirs in plan.scans:
                if other == alias:
                    continue
                mark = self.cursors.get(stream_log(theirs.stream), {}).get("watermark")
                before, _ = plan.reach(alias)
                starts.append(None if mark is None or before is None else mark - before)
        return _least(starts) if starts else FAR


FAR = 2**62


def made_again(plan: Panes | SharedPanes) -> int:
    """How far back tuples are needed if panes are to be made again, for queries that come."""
    windows = [scan.window for _, scan in plan.scans]
    spans = [(w.size or 0) + (w.slide or 0) for w in windows if isinstance(w, Range)]
    return max(spans) + 1


def _least(starts: Iterable[int | None]) -> int | None:
    found = list(starts)
    return None if None in found else min((s for s in found if s is not None), default=FAR)


@dataclass(frozen=True)
class Kept:
    """A stream, a log that holds it (its own or a copy of that), and the folder of that log."""

    stream: StreamRow
    log: str
    folder: Path


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
    return [r for r in readers if log in r.logs]


def retain(
    catalog: Catalog,
    logs: Iterable[Kept],
    readers: Sequence[Reader],
    lease: Lease | None,
    at_point: Callable[[str], None] = nowhere,
) -> int:
    """Remove the expired segments of logs with their files; returns how many."""
    removed = 0
    for kept in logs:
        own = readers_of(stream_log(kept.stream.name), readers)
        gone = expired(kept.stream, catalog.segments(kept.log), own)
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


def join_keys(log: str, readers: Iterable[Reader]) -> list[str]:
    """The column of a stream by which most of its readers join it, if any does."""
    votes: Counter[str] = Counter()
    for reader in readers:
        if isinstance(reader.plan, Delta | Shared | Panes | SharedPanes):
            own = {alias for alias, scan in reader.plan.scans if stream_log(scan.stream) == log}
            votes.update({key.name for key, _ in reader.plan.equalities if key.relation in own})
    return [name for name, _ in votes.most_common(1)]


def compact(
    catalog: Catalog,
    kept: Kept,
    readers: Sequence[Reader],
    lease: Lease | None,
    at_point: Callable[[str], None] = nowhere,
) -> bool:
    """Merge one run of small neighbours that every reader, and every copy, has taken in; whether
    there was one."""
    stream = stream_log(kept.stream.name)
    remove_pieces(catalog, kept.log, lease, nowhere)
    reached = [reader.reached(stream) for reader in readers]
    taken = min([kept.stream.next_seq - 1, *reached, *copied_to(catalog, stream)])
    run = mergeable(catalog.segments(kept.log, 0, taken)) if taken else []
    tables = [files.read_arrow(s) for s in run if s.rows]
    if not tables:
        return False
    order = [(name, "ascending") for name in (*join_keys(stream, readers), TIME)]
    merged = pa.concat_tables(tables).sort_by(order)
    written = files.write_arrow(merged, kept.folder, (TIME, TIME), MERGED_GROUP_ROWS)
    assert written is not None
    at_point("compact: written")
    new = segment(kept.log, written, run[-1].watermark)
    catalog.replace_segments(lease, [s.id for s in run], new)
    at_point("compact: replaced")
    remove_pieces(catalog, kept.log, lease, at_point)
    return True


def copied_to(catalog: Catalog, log: str) -> list[int]:
    """The last numbers of a log that its copies hold."""
    return [
        end.seq
        for name, end in catalog.log_ends().items()
        if is_copy(name) and name.endswith(f":{log}")
    ]


def remove_pieces(
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
