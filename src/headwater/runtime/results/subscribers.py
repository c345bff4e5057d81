"""Which rows of a unit's log belong to which query.

A unit with several queries records, as a version of its subscribers, which row classes belong to
each; a segment names the version that it was written with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

from headwater.reuse.row_classes import SOLE_SUBSCRIBER, Subscriber
from headwater.runtime.catalog import (
    Catalog,
    LogPosition,
    QueryRow,
    Segment,
    UnitRow,
    subscribers_log,
    unit_log,
)

K = TypeVar("K")
V = TypeVar("V")

SEQ = "_seq"
"""The column of a compacted result segment with the sequence number that each row's segment had; a
reader that stopped in the middle continues by it."""

RETENTION = "retention"
"""The owner of the cursor in a unit's log that says what has expired: the last sequence number, and
the largest `_tau`."""

SEGMENTS_PER_READ = 100

SUBSCRIBERS = "members"
"""The cursor of a unit with its newest version of subscribers, and the key under which a segment
names the version it was written with."""


def read_subscribers(version: Segment) -> Mapping[str, Subscriber]:
    """The subscribers of a version, by result key."""
    from headwater.runtime.storage import (
        segment_files,  # Arrow takes longer to load than most commands take
    )

    table = segment_files.read_arrow(version)
    names = ("digest", "shape", "first", "last", "items")
    columns = (table[name].to_pylist() for name in names)
    return {
        digest: Subscriber(shape, tuple(zip(first, last, strict=True)), tuple(items))
        for digest, shape, first, last, items in zip(*columns, strict=True)
    }


MAX_FOUNDERS, MAX_VERSIONS = 1_000, 256
"""Sizes at which the caches are emptied."""


@dataclass
class _UnitCache:
    """Immutable facts about a catalog's units: versions of subscribers, founding queries."""

    versions: dict[tuple[str, int], Mapping[str, Subscriber]] = field(default_factory=dict)
    founders: dict[str, str] = field(default_factory=dict)


_caches: WeakKeyDictionary[Catalog, _UnitCache] = WeakKeyDictionary()


def subscribers_at(catalog: Catalog, unit_id: str, version: int) -> Mapping[str, Subscriber]:
    """The subscribers of a unit in a version; none if the unit was dropped."""
    versions = _caches.setdefault(catalog, _UnitCache()).versions
    key = (unit_id, version)
    if key not in versions:
        segments = catalog.segments(subscribers_log(unit_id), version - 1, version)
        if not segments:
            return {}
        _remember(versions, key, read_subscribers(segments[0]), MAX_VERSIONS)
    return versions[key]


def founder(catalog: Catalog, unit_id: str) -> str | None:
    """The digest of the query that a unit was created for."""
    founders = _caches.setdefault(catalog, _UnitCache()).founders
    if unit_id not in founders:
        unit = catalog.unit(unit_id)
        if unit is None:
            return None
        _remember(founders, unit_id, unit.digest, MAX_FOUNDERS)
    return founders[unit_id]


def _remember(cache: dict[K, V], key: K, value: V, max_entries: int) -> None:
    # Emptied as a whole: what is still in use is read again, and no order of use has to be kept.
    if len(cache) >= max_entries:
        cache.clear()
    cache[key] = value


def subscriber_of(catalog: Catalog, query: QueryRow, segment: Segment) -> Subscriber | None:
    """Which rows of a segment belong to a query; None if none do.

    A segment without a version has the rows of the query that the unit was created for, and no
    others.
    """
    version = (segment.keys or {}).get(SUBSCRIBERS)
    if version is not None:
        return subscribers_at(catalog, query.unit_id, version).get(query.result_key)
    return SOLE_SUBSCRIBER if founder(catalog, query.unit_id) == query.result_key else None


def emits_for(catalog: Catalog, unit: UnitRow, result_key: str) -> bool:
    """Whether a unit already emits rows for the queries of a result key."""
    cursor = catalog.cursor(unit.id, SUBSCRIBERS)
    # Never shared: all its rows are those of the query that it was created for.
    if cursor is None:
        return result_key == unit.digest
    return result_key in subscribers_at(catalog, unit.id, cursor["seq"])


def served_keys(catalog: Catalog, unit: UnitRow) -> Collection[str]:
    """The result keys for which a unit has emitted all rows so far; none if it has read nothing yet."""
    cursor = catalog.cursor(unit.id, SUBSCRIBERS)
    return () if cursor is None else subscribers_at(catalog, unit.id, cursor["seq"])


def has_rows_of(catalog: Catalog, reader: UnitRow, query: QueryRow) -> bool:
    """Whether what a unit has read of another's log has all rows that a query has there of the same
    tuples as those of any query that was there before.

    What a query has missed is written at once when it is new to its unit; from there on the rows of
    all are written together.
    """
    unit = catalog.unit(query.unit_id)
    if unit is None:
        return False
    log = unit_log(unit.id)
    position = LogPosition.from_json(catalog.cursor(reader.id, log)).seq
    # In this order: what is at the end of the log then is not before what was written for the query.
    is_emitted = query.state == "finished" or emits_for(catalog, unit, query.result_key)
    if is_emitted and position >= catalog.log_ends()[log].seq:
        return True
    last = catalog.segments_after(log, position - 1, 1) if position else []
    return any(subscriber_of(catalog, query, segment) is not None for segment in last)


def unread_segments(
    catalog: Catalog, query: QueryRow, after: int
) -> tuple[QueryRow, list[Segment]]:
    """The query as it is now, and the next segments of its unit's log after a sequence number.

    There are none while the end of the query is unknown.
    """
    # One snapshot: the query may be moved to another unit between the two reads.
    with catalog.snapshot():
        query = _current_query(catalog, query)
        segments = catalog.segments_after(unit_log(query.unit_id), after, SEGMENTS_PER_READ)
    return query, [] if query.has_unknown_end else segments


def _current_query(catalog: Catalog, query: QueryRow) -> QueryRow:
    """The query as it is now: meanwhile its end may have been set, or it moved to another unit.

    A new query of the same name is not the same query.
    """
    current = catalog.query(query.name)
    return query if current is None or current.accepted_at != query.accepted_at else current


def expired_position(catalog: Catalog, query: QueryRow) -> dict[str, int] | None:
    """The last sequence number (`seq`) and largest `_tau` of expired results, or None."""
    position: dict[str, int] | None = catalog.cursor(RETENTION, unit_log(query.unit_id))
    if position is None or (query.start_at is not None and position["tau"] <= query.start_at):
        return None
    return position
