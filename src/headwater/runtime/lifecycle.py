"""When a query ends, when it goes on, and what its unit still needs.

A query is finished when its unit has told all that it can ever tell of it: its lifetime is over, or
its inputs have ended. Everything is decided from the catalog, so any process comes to the same view.
A finished query keeps its results; one that was finished by the end of its inputs goes on when one
of them is reopened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from headwater.errors import HeadwaterError
from headwater.runtime.catalog import (
    Catalog,
    QueryRow,
    StreamRow,
    UnitRow,
    ingest_owner,
    part_name,
    stream_log,
    unit_log,
)

FOREVER = 2**62

STOPPED = "stopped"
"""The cursor that says why a stream is read no more, and where it would go on."""

Adopted = Callable[[UnitRow, str], bool]


def complete_until(streams: Iterable[StreamRow], positions: Mapping[str, Any]) -> int | None:
    """The last time of which a reader at those positions has all tuples of the streams; None if one
    of them has not begun, FOREVER if it has all there will be."""
    ready = FOREVER
    for row in streams:
        position = positions.get(stream_log(row.name)) or {"seq": 0, "watermark": None}
        if row.ended and position["seq"] >= row.next_seq - 1:
            continue
        if position["watermark"] is None:
            return None
        ready = min(ready, position["watermark"] - 1)
    return ready


def inputs_of(catalog: Catalog, unit: UnitRow) -> list[StreamRow]:
    """The streams that a unit reads, itself or by other units."""
    names = {name for one in (unit, *above(catalog, unit)) for name in one.inputs}
    return [row for row in catalog.streams() if stream_log(row.name) in names]


def above(catalog: Catalog, unit: UnitRow) -> list[UnitRow]:
    """The units whose rows a unit reads."""
    found = [catalog.unit(n.partition(":")[2]) for n in unit.inputs if n.startswith("unit:")]
    return [row for row in found if row is not None]


def complete(
    catalog: Catalog, unit: UnitRow, streams: Sequence[StreamRow], adopted: Adopted
) -> int | None:
    """The last time of which a unit has told all that its inputs hold; None if there is none.

    The rows of a unit that it reads count when that one has told all it knows, and it has read them.
    """
    found: list[int | None] = []
    for other in above(catalog, unit):
        theirs = complete(catalog, other, streams, adopted)
        log = unit_log(other.id)
        seen = (catalog.cursor(unit.id, log) or {"seq": 0})["seq"]
        is_read = seen >= catalog.log_ends()[log].seq and adopted(other, part_name(unit.id))
        found.append(theirs if is_read else None)
    own = [row for row in streams if stream_log(row.name) in unit.inputs]
    found.append(complete_until(own, catalog.cursors(unit.id)))
    return None if None in found else min(time for time in found if time is not None)


# ---- lifetimes


def settle_ends(catalog: Catalog) -> None:
    """Note the end of every query whose lifetime counts from its first data, once that is fixed."""
    first: dict[str, int | None] = {}
    ends: dict[str, int] = {}
    for query in catalog.unsettled_queries():
        if query.unit_id not in first:
            unit = catalog.unit(query.unit_id)
            assert unit is not None
            first[unit.id] = first_time(catalog, inputs_of(catalog, unit))
        begun = first[query.unit_id]
        if begun is not None and query.lifetime is not None:
            ends[query.name] = begun + query.lifetime
    catalog.settle_ends(ends)


def first_time(catalog: Catalog, streams: Sequence[StreamRow]) -> int | None:
    """The least event time of the streams; None while an earlier one may come, or none has."""
    stats = [catalog.log_stats(stream_log(row.name)) for row in streams]
    least = min((s.least_time for s in stats if s.least_time is not None), default=None)
    if least is None:
        return None
    for row in streams:
        if not row.ended and (row.watermark is None or row.watermark < least):
            return None
    return least


# ---- the end


def finish(
    catalog: Catalog,
    unit: UnitRow,
    serves: Collection[str],
    streams: Sequence[StreamRow],
    told: int | None,
    idle: bool,
    adopted: Adopted = lambda unit, query: True,
) -> list[str]:
    """Finish the queries of which the unit has told everything; returns their names.

    `serves` are the result keys of those that it knew of in its last step, `streams` are its inputs as
    they were before that, `told` is the last instant it has evaluated (FOREVER for one that tells a
    result as soon as its tuples are there), and `idle` says that the step found nothing to do;
    `adopted` whether a unit tells the rows of a query by now.
    """
    count, mortal = catalog.running_members(unit.id)
    if not count:
        settle(catalog, unit.id)
    if not (mortal or _all_ended(streams)):
        return []
    settle_ends(catalog)
    until = complete(catalog, unit, streams, adopted)
    first = catalog.first_end(unit.id)
    if until is None or until < (FOREVER if first is None else first):
        return []
    running = [query for query in catalog.members(unit.id) if query.state == "running"]
    known = [query for query in running if query.result_key in serves]
    if not _all_ended(streams):
        known = [query for query in known if _is_passed(query, streams)]
    done = [query for query in known if _is_told(query, until, told, idle)]
    if done:
        catalog.finish_queries(unit.id, [query.name for query in done])
        settle(catalog, unit.id)
    return [query.name for query in done]


def _is_told(query: QueryRow, complete: int, told: int | None, idle: bool) -> bool:
    end = FOREVER if query.end_at is None else query.end_at
    return complete >= end and (idle or (told is not None and told >= end))


def _is_passed(query: QueryRow, streams: Sequence[StreamRow]) -> bool:
    """Whether tuples have come to the end of a query.

    Where a stream was reopened, time is closed further than its tuples go, and the instants that follow
    the last tuple are evaluated only when another one comes.
    """
    times = [row.max_event_time for row in streams if row.max_event_time is not None]
    return query.end_at is not None and any(time >= query.end_at for time in times)


def _all_ended(streams: Sequence[StreamRow]) -> bool:
    return all(row.ended for row in streams)


def settle(catalog: Catalog, unit_id: str) -> None:
    """A unit runs if and only if one of its queries does."""
    unit = catalog.unit(unit_id)
    if unit is None or unit.state == "dropped":
        return
    wanted = catalog.runs_any(unit_id)
    if wanted and unit.state != "running":
        catalog.set_unit_state(unit_id, "running")
    elif not wanted and unit.state == "running":
        catalog.set_unit_state(unit_id, "paused")


# ---- going on


def reopen(catalog: Catalog, stream: StreamRow) -> StreamRow:
    """Open a stream that was taken as ended, with the queries that its end finished.

    What was told on the strength of the end stays told: an instant that was evaluated, a query
    whose lifetime is over. So tuples that are not after the last of them are late from now on.
    """
    closed: list[int] = []
    for unit in catalog.units():
        streams = inputs_of(catalog, unit)
        if stream.name not in {row.name for row in streams}:
            continue
        told = catalog.cursor(unit.id, "instant")
        closed += [] if told is None else [told]
        for query in catalog.members(unit.id):
            if not is_over(query, streams):
                catalog.go_on(query.name)
            elif query.end_at is not None:
                closed.append(query.end_at)
        settle(catalog, unit.id)
    catalog.reopen_stream(stream.name, max(closed, default=None))
    catalog.record_event("stream reopened", stream.name)
    opened = catalog.stream(stream.name)
    assert opened is not None
    return opened


def is_over(query: QueryRow, streams: Sequence[StreamRow]) -> bool:
    """Whether a finished query stays so: time has passed its end, or its inputs never reopen."""
    if query.state != "finished":
        return False
    if all(row.ended and not row.reopens for row in streams):
        return True
    marks = [row.watermark for row in streams if row.watermark is not None]
    is_closed = query.end_at is not None and any(mark > query.end_at for mark in marks)
    return is_closed and _is_passed(query, streams)


def in_plan(members: Sequence[QueryRow], streams: Sequence[StreamRow]) -> tuple[QueryRow, ...]:
    """The queries that the plan of a unit is made for: all that may still have rows.

    One that was finished by the end of an input that may be reopened is among them, so that the unit
    goes on keeping what it needs.
    """
    return tuple(q for q in members if not is_over(q, streams)) or tuple(members)


def running_equal(catalog: Catalog, unit: UnitRow, digest: str) -> list[QueryRow]:
    """The queries of a unit with that digest whose rows it still writes."""
    equal = catalog.members_of_digest(unit.id, digest)
    if all(query.state != "finished" for query in equal):
        return equal
    streams = inputs_of(catalog, unit)
    return [query for query in equal if not is_over(query, streams)]


def stopped_for_good(catalog: Catalog, unit: UnitRow) -> bool:
    """Whether a unit will never step again for any of its queries, so that it needs no input."""
    streams = inputs_of(catalog, unit)
    members = catalog.members(unit.id)
    return bool(members) and all(is_over(query, streams) for query in members)


def restart(catalog: Catalog, name: str) -> None:
    """Let a stream go on that stopped because its source was replaced; raises HeadwaterError if it
    did not."""
    owner = ingest_owner(name)
    stopped = catalog.cursor(owner, STOPPED)
    if not stopped:
        raise HeadwaterError(
            f"stream {name} did not stop: RESTART STREAM is for one whose source was replaced"
        )
    catalog.commit(None, cursors={(owner, STOPPED): {**stopped, "accepted": True}})
