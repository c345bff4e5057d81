"""Maintenance of unit logs: results are compacted, and removed when their retention is over.

Readers that must see every row (a sink, a unit that reads another's rows, a copy at another site)
have cursors, and nothing beyond the smallest of them is touched. Other readers have none: a
compacted segment keeps the original sequence number of each row, so that a reader in its middle can
continue.

Compaction is by tiers: eight neighbours of about the same number of steps become one. So a row is
rewritten once for each power of eight, and a million steps leave some dozens of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from pathlib import Path

import pyarrow as pa

from headwater.runtime.catalog import (
    FOREVER,
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
"""Segments that are compacted into one at most."""

MAX_MERGES_PER_LOG = 20
"""Compactions of one log before it is the turn of others."""

SEGMENTS_PER_KEEP = 8
"""A compacted segment spans at most the retention divided by this, as it expires as a whole."""


# ---- compaction


def size_tier(segment: Segment) -> int:
    """The power of eight that the number of steps in a segment has reached."""
    # Neighbours of one size are merged, so each row is rewritten once for a tier: a number of times that
    # grows with the logarithm of the log.
    return ((segment.seq - segment.first_seq + 1).bit_length() - 1) // 3


def compactable_results(segments: Sequence[Segment], keep: float | None) -> list[Segment]:
    """The first run of neighbours of one tier to compact into one; empty if there is none.

    They must have been written with one version of subscribers (in `keys`), by which rows are read.
    """

    def kind(segment: Segment) -> tuple[int, str]:
        return size_tier(segment), str(segment.keys)

    before: float | None = None
    for _, same_kind in groupby(segments, kind):
        run: list[Segment] = []
        for candidate in same_kind:
            # A segment has what was emitted since the one before it was written.
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
    """The last sequence number of a unit's log that all readers with a cursor have passed."""
    log = unit_log(unit.id)
    sinks = [read_delivery(catalog, query).seq for query in queries if query.sink is not None]
    readers = [
        LogPosition.from_json(catalog.cursor(other.id, log)).seq
        for other in catalog.units()
        if log in other.inputs
    ]
    end = catalog.log_ends()[log].seq
    # A reader in the middle of a merged segment would read its rows twice or not at all.
    return min([end, *sinks, *readers, *copy_positions(catalog, log)])


def compact_results(
    catalog: Catalog,
    unit: UnitRow,
    folder: Path,
    lease: Lease | None,
    keep: float | None = None,
    at_point: Callable[[str], None] = ignore_point,
) -> int:
    """Compact small segments of a unit's log; returns how many times.

    `keep` is the retention in seconds, None for unlimited.
    """
    log = unit_log(unit.id)
    remove_pieces(catalog, log, lease, ignore_point)  # of a process that was killed before its own
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
    """The leading tables with the schema of the first one.

    Schemas may differ slightly, as Spark and Arrow write some types differently.
    """
    return list(takewhile(lambda table: table.schema.equals(tables[0].schema), tables))


def _with_sequence(source: Segment) -> pa.Table:
    """The rows of a segment with their sequence numbers, which compaction would lose."""
    table = segment_files.read_arrow(source)
    if SEQ in table.column_names:
        return table
    numbers = pa.array([source.seq], pa.int64()).take(pa.array([0] * table.num_rows, pa.int64()))
    return table.append_column(SEQ, numbers)


# ---- expiry


def retention_seconds(queries: Iterable[QueryRow], default: float | None) -> float | None:
    """The retention of a unit's results in seconds: the longest of its queries; None for unlimited.

    `default` applies to queries without KEEP.
    """
    # The rows of all its queries are in one log, so the longest decides.
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
    """Remove results of a unit older than `keep` seconds; returns how many segments.

    What a sink has not sent stays. So do all results of a unit that another reads or is going to read,
    as its joins may need them.
    """
    log = unit_log(unit.id)
    is_read = any(log in other.inputs for other in catalog.units())
    if keep is None or is_read or catalog.hidden_subscribers(unit.id):
        return 0
    last = last_settled_seq(catalog, unit, catalog.subscribers(unit.id))
    expired = (
        [s for s in catalog.segments(log, 0, last) if s.created_at < now - keep] if last else []
    )
    if not expired:
        return 0
    previous = catalog.cursor(RETENTION, log) or {}
    times = [previous.get("tau", -FOREVER), *(s.largest_time or 0 for s in expired)]
    position = {"seq": max(s.seq for s in expired), "tau": max(times)}
    # Removal and cursor in one transaction: readers must be able to say what is missing.
    catalog.commit(lease, cursors={(RETENTION, log): position}, removed=[s.id for s in expired])
    at_point("results: expired")
    for old in expired:
        segment_files.remove(old.path)
    return len(expired)
