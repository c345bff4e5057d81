"""REWIND STREAM: moves a watermark back; tuples after that time move from the log to the rejects.

Emitted rows cannot be taken back, and a unit cannot forget a tuple. So a stream is rewound only as far
as no unit has read it; or all queries of the units that have read further start again at that time, as
if they were submitted then with `STARTING AT TIMESTAMP`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.algebra.catalog import Stream
from headwater.algebra.times import format_timestamp
from headwater.cql import CreateQuery, parse
from headwater.cql.statements import RewindStream, Start
from headwater.errors import CommitConflict, HeadwaterError
from headwater.runtime.catalog import (
    BatchRejects,
    Catalog,
    Lease,
    LogPosition,
    NewSegment,
    QueryRow,
    RejectedRecord,
    Segment,
    StreamRow,
    UnitRow,
    ingest_owner,
    stream_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.durability import write_file
from headwater.runtime.leases import lease_holders, process_name
from headwater.runtime.lifecycle import input_streams, upstream_units
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import build_arrow_table
from headwater.runtime.storage.append import build_segment as described
from headwater.runtime.storage.columns import ARRIVAL, TIME
from headwater.runtime.storage.integrity import compute_digest
from headwater.runtime.submit.statements import drop_query, submit

LEASE_SECONDS = 60.0
MAX_RECORDS_KEPT = 1_000
"""How many of the removed tuples the rejects show; all are counted."""

MAX_TRIES = 20
"""How often a rewind is tried again because a client pushed concurrently."""


@dataclass(frozen=True)
class _RewindScope:
    """What a rewind affects: segments with tuples after the time, and the queries that have read them."""

    stream: StreamRow
    until: int
    segments: Sequence[Segment]
    queries: Sequence[QueryRow]


def rewind(catalog: Catalog, definitions: Definitions, statement: RewindStream) -> str:
    """Execute the statement; returns a sentence that says what was done. Raises HeadwaterError, saying
    what to do, if it is not possible now."""
    _check_nobody_runs(catalog, statement.name)
    lease = catalog.acquire(ingest_owner(statement.name), process_name(), LEASE_SECONDS)
    if lease is None:
        raise HeadwaterError(f"another process ingests {statement.name}: stop it first")
    for asked in catalog.hand_overs():  # they rely on how far units have read
        catalog.withdraw_hand_over(asked, f"{statement.name} is rewound")
    scope = _find_scope(catalog, statement)
    if not scope.segments and not scope.queries:
        catalog.release(lease)
        return f"stream {scope.stream.spelled} has nothing after {format_timestamp(scope.until)}"
    ended = [q for q in scope.queries if q.end_at is not None and q.end_at <= scope.until]
    if scope.queries and (ended or not statement.restart):
        catalog.release(lease)
        raise HeadwaterError(_refusal_message(scope, ended))
    shown = format_timestamp(scope.until)
    again = [{"name": q.spelled, "definition": q.definition} for q in scope.queries]
    # The event has the definitions: if this process dies between dropping the queries and submitting
    # them again, they can be submitted by hand.
    catalog.record_event("stream rewound", scope.stream.name, to=shown, restarted=again)
    for query in scope.queries:
        drop_query(catalog, query.name)
    rows = _move_to_rejects(catalog, definitions, lease, scope) if scope.segments else 0
    for query in scope.queries:
        _resubmit(catalog, definitions, query, scope.until)
    catalog.release(lease)
    restarted = f"; started again there: {_format_names(scope.queries)}" if scope.queries else ""
    return (
        f"stream {scope.stream.spelled} rewound to {shown}: "
        f"{rows:,} tuple{'' if rows == 1 else 's'} moved to its rejects{restarted}"
    )


def _check_nobody_runs(catalog: Catalog, stream: str) -> None:
    if current_deployment(catalog) is not None:
        raise HeadwaterError(f"{stream} cannot be rewound: several sites run this state")
    others = [holder for holder in lease_holders(catalog.leases()) if holder != process_name()]
    if others:
        raise HeadwaterError(f"{others[0]} runs this state: stop it, then rewind {stream}")


def _find_scope(catalog: Catalog, statement: RewindStream) -> _RewindScope:
    stream = catalog.stream(statement.name)
    assert stream is not None
    until = statement.micros
    live = catalog.segments(stream_log(stream.name))
    segments_after = [s for s in live if s.largest_time is not None and s.largest_time > until]
    units = [
        unit for unit in catalog.units() if _has_read(catalog, unit, stream, segments_after, until)
    ]
    queries = {q.name: q for unit in units for q in catalog.subscribers(unit.id) if not q.is_hidden}
    return _RewindScope(stream, until, segments_after, list(queries.values()))


def _has_read(
    catalog: Catalog,
    unit: UnitRow,
    stream: StreamRow,
    segments_after: Sequence[Segment],
    until: int,
) -> bool:
    """Whether a unit, or one whose rows it reads, has read a tuple or evaluated an instant after the
    time, or seen a watermark that the stream will not have any more."""
    if stream.name not in {row.name for row in input_streams(catalog, unit)}:
        return False
    first = min((segment.first_seq for segment in segments_after), default=stream.next_seq)
    for reader in (unit, *upstream_units(catalog, unit)):
        position = LogPosition.from_json(catalog.cursor(reader.id, stream_log(stream.name)))
        last_instant = catalog.cursor(reader.id, "instant")
        mark = position.watermark
        if position.seq >= first or (last_instant is not None and last_instant > until):
            return True
        if mark is not None and mark > until:
            return True
    return False


def _refusal_message(scope: _RewindScope, ended: Sequence[QueryRow]) -> str:
    if ended:
        return (
            f"{_format_names(ended)} ended before that time, in a unit that has read beyond it: "
            f"keep the results, drop {_format_names(ended)}, then rewind"
        )
    shown = format_timestamp(scope.until)
    name = scope.stream.spelled
    return (
        f"{_format_names(scope.queries)} read tuples of {name} after {shown}, and emitted rows cannot be "
        f"taken back; REWIND STREAM {name} TO TIMESTAMP '{shown}' RESTART QUERIES starts them again "
        "there, without the results that they have"
    )


def _format_names(queries: Sequence[QueryRow]) -> str:
    names = [query.spelled for query in queries]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# ---- the log


def _move_to_rejects(
    catalog: Catalog, definitions: Definitions, lease: Lease, scope: _RewindScope
) -> int:
    """Move tuples after the time from the log to the rejects; returns how many."""
    declared = definitions.streams[scope.stream.name].stream
    for _ in range(MAX_TRIES):
        with suppress(CommitConflict):  # by a client that pushed
            return _try_move_to_rejects(catalog, declared, lease, scope)
        scope = _find_scope(catalog, RewindStream(scope.stream.name, scope.until))
    raise HeadwaterError(f"clients keep pushing to {scope.stream.spelled}: stop them, then rewind")


def _try_move_to_rejects(
    catalog: Catalog, declared: Stream, lease: Lease, scope: _RewindScope
) -> int:
    stream, until, log = scope.stream, scope.until, stream_log(scope.stream.name)
    empty = build_arrow_table(declared, [], 0)
    tables = [segment_files.read_arrow(segment) for segment in scope.segments if segment.rows]
    table = pa.concat_tables([empty, *tables], promote_options="permissive").sort_by(ARRIVAL)
    tuples_after = table.filter(pc.greater(table[TIME], until))
    tuples_kept = table.filter(pc.less_equal(table[TIME], until))
    removed_ids = {segment.id for segment in scope.segments}
    times = [s.largest_time for s in catalog.segments(log) if s.id not in removed_ids and s.rows]
    if tuples_kept.num_rows:
        times.append(pc.max(tuples_kept[TIME]).as_py())
    largest = max((at for at in times if at is not None), default=None)
    closed = None if stream.closed_until is None else min(stream.closed_until, until)
    mark = replace(stream, closed_until=closed).watermark_at(largest)
    folder = Path(scope.segments[0].path).parent
    owner = ingest_owner(stream.name)
    pushed = catalog.cursor(owner, "pushed")
    catalog.rewind_stream(
        lease,
        stream,
        sorted(removed_ids),
        _write_remainder(tuples_kept, folder, log, until, mark),
        largest,
        closed,
        _build_rejects(stream, until, tuples_after),
        # A client that pushes concurrently expects the old number: its commit fails, and it reads
        # the watermark again.
        {} if pushed is None else {(owner, "pushed"): int(pushed) + 1},
    )
    # Only after the commit: until then the catalog names these files.
    for segment in scope.segments:
        segment_files.remove(segment.path)
    return int(tuples_after.num_rows)


def _write_remainder(
    table: pa.Table, folder: Path, log: str, until: int, mark: int | None
) -> NewSegment:
    """What is left of the segments; a file without rows if nothing is, so that the sequence numbers of
    the log have no gap."""
    written = segment_files.write_arrow(table, folder, (TIME, TIME))
    if written is not None:
        return described(log, written, mark)
    path = folder / f"{uuid.uuid4().hex}.parquet"
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    whole = content.getvalue()
    write_file(path, whole)
    return NewSegment(
        log,
        str(path),
        0,
        whole.size,
        until,
        until,
        watermark=mark,
        on_disk=True,
        digest=compute_digest([whole]),
    )


def _build_rejects(stream: StreamRow, until: int, tuples_after: pa.Table) -> BatchRejects:
    reason = f"removed by REWIND STREAM, as it is after {format_timestamp(until)}"
    records_kept = tuples_after.slice(0, MAX_RECORDS_KEPT).drop_columns([TIME, ARRIVAL]).to_pylist()
    records = tuple(RejectedRecord(reason, json.dumps(row, default=str)) for row in records_kept)
    return BatchRejects(stream.name, tuples_after.num_rows, 0, records)


# ---- queries


def _resubmit(catalog: Catalog, definitions: Definitions, query: QueryRow, until: int) -> QueryRow:
    """Submit a query again as it was, to start at a time; its end stays."""
    (statement,) = parse(query.definition, definitions.namespace)
    assert isinstance(statement, CreateQuery)
    start = until if query.start_at is None else max(until, query.start_at)
    lifetime = statement.lifetime if query.end_at is None else query.end_at - start
    again = replace(statement, start=Start("TIMESTAMP", start), lifetime=lifetime)
    return submit(catalog, definitions, again, definition=query.definition)
