"""Taking a watermark back: tuples after a time leave the log of their stream for its rejects.

What queries have told cannot be taken back, and a unit cannot forget a tuple. So a stream is rewound only
as far as nobody has read it; or the queries that have, all those of their units included, begin again at
that time as if they were submitted then, by `STARTING AT TIMESTAMP`.
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
from headwater.errors import HeadwaterError, Overtaken
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    NewSegment,
    QueryRow,
    Refused,
    Rejects,
    Segment,
    StreamRow,
    UnitRow,
    ingest_owner,
    stream_log,
)
from headwater.runtime.claims import this_process
from headwater.runtime.compile import ARRIVAL, TIME
from headwater.runtime.definitions import Definitions
from headwater.runtime.durability import write_file
from headwater.runtime.integrity import digest_of
from headwater.runtime.lifecycle import above, inputs_of
from headwater.runtime.overview import holders
from headwater.runtime.push import arrow_table
from headwater.runtime.push import segment as described
from headwater.runtime.sites.deployment import deployed
from headwater.runtime.submit import drop, submit

LEASE_SECONDS = 60.0
RECORDS_KEPT = 1_000
TRIES = 20


@dataclass(frozen=True)
class _Found:
    """What a rewinding takes back: segments with tuples after the time, and the queries that read it."""

    stream: StreamRow
    until: int
    segments: Sequence[Segment]
    queries: Sequence[QueryRow]


def rewind(catalog: Catalog, definitions: Definitions, statement: RewindStream) -> str:
    """Carry the statement out; returns what was done in a sentence. Raises HeadwaterError if it
    cannot be done now, saying what to do."""
    _check_nobody_runs(catalog, statement.name)
    lease = catalog.acquire(ingest_owner(statement.name), this_process(), LEASE_SECONDS)
    if lease is None:
        raise HeadwaterError(f"another process takes in {statement.name}: stop it first")
    found = _found(catalog, statement)
    if not found.segments and not found.queries:
        catalog.release(lease)
        return f"stream {found.stream.spelled} has nothing after {format_timestamp(found.until)}"
    over = [q for q in found.queries if q.end_at is not None and q.end_at <= found.until]
    if found.queries and (over or not statement.restart):
        catalog.release(lease)
        raise HeadwaterError(_refusal(found, over))
    shown = format_timestamp(found.until)
    again = [{"name": q.spelled, "definition": q.definition} for q in found.queries]
    catalog.record_event("stream rewound", found.stream.name, to=shown, restarted=again)
    for query in found.queries:
        drop(catalog, query.name)
    rows = _take_back(catalog, definitions, lease, found) if found.segments else 0
    for query in found.queries:
        _restart(catalog, definitions, query, found.until)
    catalog.release(lease)
    restarted = f"; started again there: {_listed(found.queries)}" if found.queries else ""
    return (
        f"stream {found.stream.spelled} rewound to {shown}: "
        f"{rows:,} tuple{'' if rows == 1 else 's'} went to its rejects{restarted}"
    )


def _check_nobody_runs(catalog: Catalog, stream: str) -> None:
    if deployed(catalog) is not None:
        raise HeadwaterError(f"{stream} cannot be rewound: several sites run this state")
    others = [holder for holder in holders(catalog.leases()) if holder != this_process()]
    if others:
        raise HeadwaterError(f"{others[0]} runs this state: stop it, then rewind {stream}")


def _found(catalog: Catalog, statement: RewindStream) -> _Found:
    stream = catalog.stream(statement.name)
    assert stream is not None
    until = statement.micros
    live = catalog.segments(stream_log(stream.name))
    wrong = [s for s in live if s.largest_time is not None and s.largest_time > until]
    units = [unit for unit in catalog.units() if _has_read(catalog, unit, stream, wrong, until)]
    queries = {q.name: q for unit in units for q in catalog.members(unit.id) if not q.hidden}
    return _Found(stream, until, wrong, list(queries.values()))


def _has_read(
    catalog: Catalog, unit: UnitRow, stream: StreamRow, wrong: Sequence[Segment], until: int
) -> bool:
    """Whether a unit, or one whose rows it reads, has read a tuple or told an instant after the time,
    or met a watermark that the stream will not have."""
    if stream.name not in {row.name for row in inputs_of(catalog, unit)}:
        return False
    first = min((segment.first_seq for segment in wrong), default=stream.next_seq)
    for one in (unit, *above(catalog, unit)):
        position = catalog.cursor(one.id, stream_log(stream.name)) or {"seq": 0, "watermark": None}
        told = catalog.cursor(one.id, "instant")
        mark = position["watermark"]
        if int(position["seq"]) >= first or (told is not None and told > until):
            return True
        if mark is not None and mark > until:
            return True
    return False


def _refusal(found: _Found, over: Sequence[QueryRow]) -> str:
    if over:
        return (
            f"{_listed(over)} ended before that time, in a unit that has read beyond it: "
            f"keep the results, drop {_listed(over)}, then rewind"
        )
    shown = format_timestamp(found.until)
    name = found.stream.spelled
    return (
        f"{_listed(found.queries)} read tuples of {name} after {shown}, and what was told stays told; "
        f"REWIND STREAM {name} TO TIMESTAMP '{shown}' RESTART QUERIES begins them again there, "
        "without the results that they have"
    )


def _listed(queries: Sequence[QueryRow]) -> str:
    names = [query.spelled for query in queries]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# ---- the log


def _take_back(catalog: Catalog, definitions: Definitions, lease: Lease, found: _Found) -> int:
    """Move tuples after the time from the log to the rejects; returns how many there were."""
    declared = definitions.streams[found.stream.name].stream
    for _ in range(TRIES):
        with suppress(Overtaken):  # by a client that pushed
            return _try_to_take_back(catalog, declared, lease, found)
        found = _found(catalog, RewindStream(found.stream.name, found.until))
    raise HeadwaterError(f"clients push to {found.stream.spelled} all the time: let them rest")


def _try_to_take_back(catalog: Catalog, declared: Stream, lease: Lease, found: _Found) -> int:
    stream, until, log = found.stream, found.until, stream_log(found.stream.name)
    empty = arrow_table(declared, [], 0)
    tables = [files.read_arrow(segment) for segment in found.segments if segment.rows]
    table = pa.concat_tables([empty, *tables], promote_options="permissive").sort_by(ARRIVAL)
    wrong = table.filter(pc.greater(table[TIME], until))
    right = table.filter(pc.less_equal(table[TIME], until))
    gone = {segment.id for segment in found.segments}
    times = [s.largest_time for s in catalog.segments(log) if s.id not in gone and s.rows]
    if right.num_rows:
        times.append(pc.max(right[TIME]).as_py())
    largest = max((at for at in times if at is not None), default=None)
    closed = None if stream.closed_until is None else min(stream.closed_until, until)
    mark = replace(stream, closed_until=closed).watermark_at(largest)
    folder = Path(found.segments[0].path).parent
    owner = ingest_owner(stream.name)
    pushed = catalog.cursor(owner, "pushed")
    catalog.take_back(
        lease,
        stream,
        sorted(gone),
        _left(right, folder, log, until, mark),
        largest,
        closed,
        _rejects(stream, until, wrong),
        {}
        if pushed is None
        else {(owner, "pushed"): int(pushed) + 1},  # so whoever pushes looks again
    )
    for segment in found.segments:
        files.remove(segment.path)
    return int(wrong.num_rows)


def _left(table: pa.Table, folder: Path, log: str, until: int, mark: int | None) -> NewSegment:
    """What is left of the segments; if that is nothing, a file without rows, so that the numbers of
    the log go on."""
    written = files.write_arrow(table, folder, (TIME, TIME))
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
        digest=digest_of([whole]),
    )


def _rejects(stream: StreamRow, until: int, wrong: pa.Table) -> Rejects:
    reason = f"taken back by REWIND STREAM, as it is after {format_timestamp(until)}"
    kept = wrong.slice(0, RECORDS_KEPT).drop_columns([TIME, ARRIVAL]).to_pylist()
    records = tuple(Refused(reason, json.dumps(row, default=str)) for row in kept)
    return Rejects(stream.name, wrong.num_rows, 0, records)


# ---- queries


def _restart(catalog: Catalog, definitions: Definitions, query: QueryRow, until: int) -> QueryRow:
    """Submit a query again as it was, to begin at a time."""
    (statement,) = parse(query.definition, definitions.names)
    assert isinstance(statement, CreateQuery)
    start = until if query.start_at is None else max(until, query.start_at)
    lifetime = statement.lifetime if query.end_at is None else query.end_at - start
    again = replace(statement, start=Start("TIMESTAMP", start), lifetime=lifetime)
    return submit(catalog, definitions, again, definition=query.definition)
