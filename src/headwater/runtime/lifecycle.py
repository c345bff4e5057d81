"""The lifecycle of queries: when one finishes, when it runs again, and what its unit still needs.

A query is finished when its unit has emitted all rows it can ever have: its lifetime is over, or
its inputs have ended. Everything is decided from the catalog, so all processes reach the same
decision. A finished query keeps its results; one that finished because its inputs ended runs again
when one of them is reopened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from headwater.errors import HeadwaterError
from headwater.runtime.catalog import (
    FOREVER,
    Catalog,
    LogPosition,
    QueryRow,
    StreamRow,
    UnitRow,
    ingest_owner,
    stream_log,
    unit_log,
)

STOPPED = "stopped"
"""The cursor that says why a stream is no longer read, and where reading would continue."""

EmitsFor = Callable[[UnitRow, str], bool]
"""Whether a unit already emits the rows of the query with that name."""


def complete_until(
    streams: Iterable[StreamRow], positions: Mapping[str, LogPosition]
) -> int | None:
    """The time up to which a reader at these positions has all tuples of the streams.

    None if one of the streams has no watermark yet, FOREVER if all have ended and were read.
    """
    ready = FOREVER
    for row in streams:
        position = positions.get(stream_log(row.name), LogPosition())
        if row.ended and position.seq >= row.next_seq - 1:
            continue
        if position.watermark is None:
            return None
        # A tuple at the watermark itself is not late: it may still come.
        ready = min(ready, position.watermark - 1)
    return ready


def input_streams(catalog: Catalog, unit: UnitRow) -> list[StreamRow]:
    """The streams that a unit reads, directly or through other units."""
    names = {name for reader in (unit, *upstream_units(catalog, unit)) for name in reader.inputs}
    return [row for row in catalog.streams() if stream_log(row.name) in names]


def upstream_units(catalog: Catalog, unit: UnitRow) -> list[UnitRow]:
    """The units whose rows a unit reads."""
    units = [catalog.unit(n.partition(":")[2]) for n in unit.inputs if n.startswith("unit:")]
    return [row for row in units if row is not None]


def emitted_until(
    catalog: Catalog, unit: UnitRow, streams: Sequence[StreamRow], emits_for: EmitsFor
) -> int | None:
    """The time up to which a unit has emitted all results of its inputs; None if there is none.

    A unit that it reads counts once that one has emitted its rows and this one has read them.
    """
    times: list[int | None] = []
    for other in upstream_units(catalog, unit):
        their_time = emitted_until(catalog, other, streams, emits_for)
        log = unit_log(other.id)
        seen = LogPosition.from_json(catalog.cursor(unit.id, log)).seq
        # A unit that has not yet adopted this one's partial join may be at the end of its log
        # without having written any of the rows in question.
        read, _ = catalog.partial_joins(unit.id)
        is_read = (
            seen >= catalog.log_ends()[log].seq and read is not None and emits_for(other, read.name)
        )
        times.append(their_time if is_read else None)
    own = [row for row in streams if stream_log(row.name) in unit.inputs]
    cursors = catalog.cursors(unit.id)
    logs = [stream_log(row.name) for row in own]
    times.append(complete_until(own, {n: LogPosition.from_json(cursors.get(n)) for n in logs}))
    return None if None in times else min(time for time in times if time is not None)


# ---- lifetimes


def settle_ends(catalog: Catalog) -> None:
    """Record the end of queries whose lifetime counts from their first data, once known."""
    first: dict[str, int | None] = {}
    ends: dict[str, int] = {}
    for query in catalog.queries_with_unknown_end():
        if query.unit_id not in first:
            unit = catalog.unit(query.unit_id)
            if unit is None:  # the query was dropped meanwhile
                continue
            first[unit.id] = first_event_time(catalog, input_streams(catalog, unit))
        first_event = first[query.unit_id]
        if first_event is not None and query.lifetime is not None:
            ends[query.name] = first_event + query.lifetime
    catalog.record_ends(ends)


def first_event_time(catalog: Catalog, streams: Sequence[StreamRow]) -> int | None:
    """The smallest event time of the streams; None while an earlier tuple is still possible."""
    stats = [catalog.log_stats(stream_log(row.name)) for row in streams]
    least = min((s.least_time for s in stats if s.least_time is not None), default=None)
    if least is None:
        return None
    for row in streams:
        if not row.ended and (row.watermark is None or row.watermark < least):
            return None
    return least


# ---- finishing


def finish_queries(
    catalog: Catalog,
    unit: UnitRow,
    serves: Collection[str],
    streams: Sequence[StreamRow],
    last_instant: int | None,
    idle: bool,
    emits_for: EmitsFor = lambda unit, query: True,
) -> list[str]:
    """Finish the queries of a unit that have all their rows; returns their names.

    `serves` are the result keys of the queries that its last step computed. `streams` are its
    inputs as they were before that step: what arrived during it is not in its results.
    `last_instant` is the last one it has evaluated (FOREVER for a unit that emits a result as soon
    as its tuples have arrived), and `idle` says that the step had nothing to do.
    """
    running_count, with_lifetime = catalog.running_counts(unit.id)
    # Whoever paused or dropped the last query may have died before it could pause the unit.
    if not running_count:
        update_unit_state(catalog, unit.id)
    # Without a lifetime a query ends only with its inputs: most steps need look no further.
    if not (with_lifetime or _all_ended(streams)):
        return []
    settle_ends(catalog)
    until = emitted_until(catalog, unit, streams, emits_for)
    earliest = catalog.earliest_end(unit.id)
    # Cheap, and true of almost every step: a unit may have thousands of queries to load below.
    if until is None or until < (FOREVER if earliest is None else earliest):
        return []
    running = [query for query in catalog.subscribers(unit.id) if query.state == "running"]
    finishable = [query for query in running if query.result_key in serves]
    if not _all_ended(streams):
        finishable = [query for query in finishable if _has_passed_end(query, streams)]
    done = [query for query in finishable if _is_fully_emitted(query, until, last_instant, idle)]
    if done:
        catalog.finish_queries(unit.id, [query.name for query in done])
        update_unit_state(catalog, unit.id)
    return [query.name for query in done]


def _is_fully_emitted(query: QueryRow, complete: int, last_instant: int | None, idle: bool) -> bool:
    end = FOREVER if query.end_at is None else query.end_at
    return complete >= end and (idle or (last_instant is not None and last_instant >= end))


def _has_passed_end(query: QueryRow, streams: Sequence[StreamRow]) -> bool:
    """Whether tuples have reached the end of a query.

    The watermark does not say so: a reopened stream has closed times beyond its last tuple, and the
    instants in between are evaluated only when another tuple arrives.
    """
    times = [row.max_event_time for row in streams if row.max_event_time is not None]
    return query.end_at is not None and any(time >= query.end_at for time in times)


def _all_ended(streams: Sequence[StreamRow]) -> bool:
    return all(row.ended for row in streams)


def update_unit_state(catalog: Catalog, unit_id: str) -> None:
    """Run a unit if one of its queries is running, else pause it."""
    unit = catalog.unit(unit_id)
    if unit is None or unit.state == "dropped":
        return
    should_run = catalog.has_running_query(unit_id)
    if should_run and unit.state != "running":
        catalog.set_unit_state(unit_id, "running")
    elif not should_run and unit.state == "running":
        catalog.set_unit_state(unit_id, "paused")


# ---- running again


def reopen_stream(catalog: Catalog, stream: StreamRow) -> None:
    """Reopen a stream that ended by idleness, and run the queries again that its end finished.

    What was emitted on the strength of the end is not taken back: instants that were evaluated,
    queries whose lifetime is over. Tuples that are not after the last of these are late from now
    on.
    """
    closed: list[int] = []
    for unit in catalog.units():
        streams = input_streams(catalog, unit)
        if stream.name not in {row.name for row in streams}:
            continue
        last_instant = catalog.cursor(unit.id, "instant")
        closed += [] if last_instant is None else [last_instant]
        for query in catalog.subscribers(unit.id):
            if not is_final(query, streams):
                catalog.reopen_query(query.name)
            elif query.end_at is not None:
                closed.append(query.end_at)
        update_unit_state(catalog, unit.id)
    # Last: a process that dies before leaves the stream ended, and the next round does all of it
    # again. The other way round, queries would stay finished beside a stream that goes on.
    catalog.reopen_stream(stream.name, max(closed, default=None))
    catalog.record_event("stream reopened", stream.name)


def is_final(query: QueryRow, streams: Sequence[StreamRow]) -> bool:
    """Whether a finished query stays finished: its end has passed, or its inputs never reopen."""
    if query.state != "finished":
        return False
    if all(row.ended and not row.reopens for row in streams):
        return True
    watermarks = [row.watermark for row in streams if row.watermark is not None]
    is_closed = query.end_at is not None and any(mark > query.end_at for mark in watermarks)
    return is_closed and _has_passed_end(query, streams)


def plannable_queries(
    queries: Sequence[QueryRow], streams: Sequence[StreamRow]
) -> tuple[QueryRow, ...]:
    """The queries that the plan of a unit has to cover: all that may still get rows.

    A query that finished because an input ended that may be reopened is among them, so that the
    unit keeps what it needs.
    """
    return tuple(q for q in queries if not is_final(q, streams)) or tuple(queries)


def equal_running_queries(catalog: Catalog, unit: UnitRow, digest: str) -> list[QueryRow]:
    """The queries of a unit with this digest that may still get rows."""
    equal = catalog.subscribers_with_digest(unit.id, digest)
    if all(query.state != "finished" for query in equal):
        return equal
    streams = input_streams(catalog, unit)
    return [query for query in equal if not is_final(query, streams)]


def is_stopped_for_good(catalog: Catalog, unit: UnitRow) -> bool:
    """Whether all queries of a unit are final, so that it never steps again and needs no input."""
    streams = input_streams(catalog, unit)
    queries = catalog.subscribers(unit.id)
    return bool(queries) and all(is_final(query, streams) for query in queries)


def restart_stream(catalog: Catalog, name: str) -> None:
    """Continue a stream that stopped because its source was replaced.

    Raises HeadwaterError if it did not stop.
    """
    owner = ingest_owner(name)
    stopped = catalog.cursor(owner, STOPPED)
    if not stopped:
        raise HeadwaterError(
            f"stream {name} did not stop: RESTART STREAM is for one whose source was replaced"
        )
    catalog.commit(None, cursors={(owner, STOPPED): {**stopped, "accepted": True}})
