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

from headwater.runtime import files, housekeeping
from headwater.runtime.catalog import Catalog, Lease, QueryRow, Segment, UnitRow, unit_log
from headwater.runtime.delivery import delivery
from headwater.runtime.housekeeping import copied_to, nowhere, remove_pieces
from headwater.runtime.push import segment
from headwater.runtime.subscribers import RETENTION, SEQ

MERGED_AT_ONCE = 512
"""Segments that become one in a single merge."""

MERGES_AT_ONCE = 20
"""Merges of one log before others have their turn."""

PARTS_OF_KEEP = 8
"""A merged segment spans no more than one of so many parts of the time for which results are kept, as it
goes as a whole."""


# ---- merging


def tier(found: Segment) -> int:
    """The power of eight that the number of steps in a segment has reached."""
    return ((found.seq - found.first_seq + 1).bit_length() - 1) // 3


def mergeable(segments: Sequence[Segment], keep: float | None) -> list[Segment]:
    """The first neighbours of one tier and one version of members that are to become one."""

    def kind(found: Segment) -> tuple[int, str]:
        return tier(found), str(found.keys)

    before: float | None = None
    for _, alike in groupby(segments, kind):
        run: list[Segment] = []
        for found in alike:
            start = run[0].created_at if before is None and run else before
            if _is_full(run, found, None if start is None else found.created_at - start, keep):
                if len(run) >= housekeeping.MERGED_AT_LEAST:
                    return run
                before = run[-1].created_at if run else before
                run = []
            run.append(found)
        if len(run) >= housekeeping.MERGED_AT_LEAST:
            return run
        before = run[-1].created_at if run else before
    return []


def _is_full(
    run: Sequence[Segment], found: Segment, span: float | None, keep: float | None
) -> bool:
    rows = sum(one.rows for one in run) + found.rows
    too_long = keep is not None and span is not None and span > keep / PARTS_OF_KEEP
    return rows > housekeeping.MERGED_ROWS or len(run) >= MERGED_AT_ONCE or too_long


def settled(catalog: Catalog, unit: UnitRow, queries: Iterable[QueryRow]) -> int:
    """The last number of a unit's log that all have seen who have to see every row."""
    log = unit_log(unit.id)
    sinks = [delivery(catalog, query).seq for query in queries if query.sink is not None]
    readers = [
        int((catalog.cursor(other.id, log) or {"seq": 0})["seq"])
        for other in catalog.units()
        if log in other.inputs
    ]
    end = catalog.log_ends()[log].seq
    return min([end, *sinks, *readers, *copied_to(catalog, log)])


def merge_results(
    catalog: Catalog,
    unit: UnitRow,
    folder: Path,
    lease: Lease | None,
    keep: float | None = None,
    at_point: Callable[[str], None] = nowhere,
) -> int:
    """Merge what is small in a unit's log; returns how often. `keep` is for how many seconds results
    are kept, None if for ever."""
    log = unit_log(unit.id)
    remove_pieces(catalog, log, lease, nowhere)
    last = settled(catalog, unit, catalog.members(unit.id))
    for done in range(MERGES_AT_ONCE):
        run = mergeable(catalog.segments(log, 0, last), keep) if last else []
        tables = _alike([_numbered(one) for one in run])
        if len(tables) < 2:
            return done
        run, merged = run[: len(tables)], pa.concat_tables(tables)
        written = files.write_arrow(merged, folder, ("_tau", "_tau"))
        assert written is not None
        at_point("results: merged")
        new = replace(segment(log, written, run[-1].watermark), keys=run[0].keys)
        catalog.replace_segments(lease, [one.id for one in run], new)
        at_point("results: replaced")
        remove_pieces(catalog, log, lease, nowhere)
        at_point("results: pieces removed")
    return MERGES_AT_ONCE


def _alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The first tables that have the columns and types of the first one: who writes a file, Spark or
    Arrow, may choose among types that mean the same."""
    return list(takewhile(lambda table: table.schema.equals(tables[0].schema), tables))


def _numbered(found: Segment) -> pa.Table:
    table = files.read_arrow(found)
    if SEQ in table.column_names:
        return table
    numbers = pa.array([found.seq], pa.int64()).take(pa.array([0] * table.num_rows, pa.int64()))
    return table.append_column(SEQ, numbers)


# ---- expiry


def kept_for(queries: Iterable[QueryRow], usual: float | None) -> float | None:
    """For how many seconds the results of a unit are kept: as long as one of its queries wants; None if
    for ever. `usual` is for queries that do not say."""
    longest = 0.0
    for query in queries:
        wanted = usual if query.keep is None else query.keep / 1e6
        if wanted is None:
            return None
        longest = max(longest, wanted)
    return longest


def expire_results(
    catalog: Catalog,
    unit: UnitRow,
    lease: Lease | None,
    keep: float | None,
    now: float,
    at_point: Callable[[str], None] = nowhere,
) -> int:
    """Remove results of a unit that are older; returns how many segments. Those that a sink has not
    sent stay, and those of a unit that another reads, which may need them for its joins."""
    log = unit_log(unit.id)
    if keep is None or any(log in other.inputs for other in catalog.units()):
        return 0
    last = settled(catalog, unit, catalog.members(unit.id))
    gone = [s for s in catalog.segments(log, 0, last) if s.created_at < now - keep] if last else []
    if not gone:
        return 0
    known = catalog.cursor(RETENTION, log) or {}
    times = [known.get("tau", -(2**62)), *(s.largest_time or 0 for s in gone)]
    position = {"seq": max(s.seq for s in gone), "tau": max(times)}
    catalog.commit(lease, cursors={(RETENTION, log): position}, removed=[s.id for s in gone])
    at_point("results: expired")
    for old in gone:
        files.remove(old.path)
    return len(gone)
