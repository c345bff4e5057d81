"""What keeps the logs of units small: results are merged, and go when they were kept for long enough.

Whoever has to see every row (a sink, a unit that reads another's rows, a copy at another site) has a
cursor, and nothing beyond the least of them is touched. Other readers come when they like: a merged
segment has the number that each row's segment had, so that one who stopped in the middle goes on from there.

Merging is by tiers: eight neighbours of about as many steps become one. So a row is written again once
for each power of eight, and a million steps are some dozens of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from pathlib import Path

import pyarrow as pa

from headwater.runtime.catalog import (
    Catalog,
    Lease,
    LogPosition,
    QueryRow,
    Segment,
    UnitRow,
    unit_log,
)
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.maintenance.stream_logs import copy_positions, ignore_point, remove_pieces
from headwater.runtime.results.sink_progress import read_delivery
from headwater.runtime.results.subscribers import RETENTION, SEQ
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_segment

MAX_SEGMENTS_PER_MERGE = 512
"""Segments that become one in a single merge."""

MAX_MERGES_PER_LOG = 20
"""Merges of one log before others have their turn."""

SEGMENTS_PER_KEEP = 8
"""A merged segment spans no more than one of so many parts of the time for which results are kept, as it
goes as a whole."""


# ---- merging


def size_tier(segment: Segment) -> int:
    """The power of eight that the number of steps in a segment has reached."""
    return ((segment.seq - segment.first_seq + 1).bit_length() - 1) // 3


def compactable_results(segments: Sequence[Segment], keep: float | None) -> list[Segment]:
    """The first neighbours of one tier and one version of members that are to become one."""

    def kind(found: Segment) -> tuple[int, str]:
        return size_tier(found), str(found.keys)

    before: float | None = None
    for _, same_kind in groupby(segments, kind):
        run: list[Segment] = []
        for candidate in same_kind:
            start = run[0].created_at if before is None and run else before
            if _is_full(
                run, candidate, None if start is None else candidate.created_at - start, keep
            ):
                if len(run) >= stream_logs.MIN_COMPACTED_SEGMENTS:
                    return run
                before = run[-1].created_at if run else before
                run = []
            run.append(candidate)
        if len(run) >= stream_logs.MIN_COMPACTED_SEGMENTS:
            return run
        before = run[-1].created_at if run else before
    return []


def _is_full(
    run: Sequence[Segment], candidate: Segment, span: float | None, keep: float | None
) -> bool:
    rows = sum(piece.rows for piece in run) + candidate.rows
    too_long = keep is not None and span is not None and span > keep / SEGMENTS_PER_KEEP
    return rows > stream_logs.MAX_COMPACTED_ROWS or len(run) >= MAX_SEGMENTS_PER_MERGE or too_long


def last_settled_seq(catalog: Catalog, unit: UnitRow, queries: Iterable[QueryRow]) -> int:
    """The last number of a unit's log that all have seen who have to see every row."""
    log = unit_log(unit.id)
    sinks = [read_delivery(catalog, query).seq for query in queries if query.sink is not None]
    readers = [
        LogPosition.from_json(catalog.cursor(other.id, log)).seq
        for other in catalog.units()
        if log in other.inputs
    ]
    end = catalog.log_ends()[log].seq
    return min([end, *sinks, *readers, *copy_positions(catalog, log)])


def compact_results(
    catalog: Catalog,
    unit: UnitRow,
    folder: Path,
    lease: Lease | None,
    keep: float | None = None,
    at_point: Callable[[str], None] = ignore_point,
) -> int:
    """Merge what is small in a unit's log; returns how often. `keep` is for how many seconds results
    are kept, None if for ever."""
    log = unit_log(unit.id)
    remove_pieces(catalog, log, lease, ignore_point)
    last = last_settled_seq(catalog, unit, catalog.subscribers(unit.id))
    for done in range(MAX_MERGES_PER_LOG):
        run = compactable_results(catalog.segments(log, 0, last), keep) if last else []
        tables = _leading_same_schema([_with_sequence(piece) for piece in run])
        if len(tables) < 2:
            return done
        run, merged = run[: len(tables)], pa.concat_tables(tables)
        written = segment_files.write_arrow(merged, folder, ("_tau", "_tau"))
        assert written is not None
        at_point("results: merged")
        new = replace(build_segment(log, written, run[-1].watermark), keys=run[0].keys)
        catalog.replace_segments(lease, [piece.id for piece in run], new)
        at_point("results: replaced")
        remove_pieces(catalog, log, lease, ignore_point)
        at_point("results: pieces removed")
    return MAX_MERGES_PER_LOG


def _leading_same_schema(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The first tables that have the columns and types of the first one: who writes a file, Spark or
    Arrow, may choose among types that mean the same."""
    return list(takewhile(lambda table: table.schema.equals(tables[0].schema), tables))


def _with_sequence(source: Segment) -> pa.Table:
    table = segment_files.read_arrow(source)
    if SEQ in table.column_names:
        return table
    numbers = pa.array([source.seq], pa.int64()).take(pa.array([0] * table.num_rows, pa.int64()))
    return table.append_column(SEQ, numbers)


# ---- expiry


def retention_seconds(queries: Iterable[QueryRow], default: float | None) -> float | None:
    """For how many seconds the results of a unit are kept: as long as one of its queries wants; None if
    for ever. `usual` is for queries that do not say."""
    longest = 0.0
    for query in queries:
        seconds = default if query.keep is None else query.keep / 1e6
        if seconds is None:
            return None
        longest = max(longest, seconds)
    return longest


def expire_results(
    catalog: Catalog,
    unit: UnitRow,
    lease: Lease | None,
    keep: float | None,
    now: float,
    at_point: Callable[[str], None] = ignore_point,
) -> int:
    """Remove results of a unit that are older; returns how many segments. Those that a sink has not
    sent stay, and those of a unit that another reads, which may need them for its joins."""
    log = unit_log(unit.id)
    if keep is None or any(log in other.inputs for other in catalog.units()):
        return 0
    last = last_settled_seq(catalog, unit, catalog.subscribers(unit.id))
    expired = (
        [s for s in catalog.segments(log, 0, last) if s.created_at < now - keep] if last else []
    )
    if not expired:
        return 0
    previous = catalog.cursor(RETENTION, log) or {}
    times = [previous.get("tau", -(2**62)), *(s.largest_time or 0 for s in expired)]
    position = {"seq": max(s.seq for s in expired), "tau": max(times)}
    catalog.commit(lease, cursors={(RETENTION, log): position}, removed=[s.id for s in expired])
    at_point("results: expired")
    for old in expired:
        segment_files.remove(old.path)
    return len(expired)
