"""Which rows of a unit's log are whose: the versions of its members, and what each query has in a segment.

A unit that serves several queries writes down, as a version, what its rows are to each of them; a
segment names the version that it was written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

from headwater.reuse.row_classes import SOLE_SUBSCRIBER, Subscriber
from headwater.runtime.catalog import Catalog, QueryRow, Segment, UnitRow, subscribers_log, unit_log

K = TypeVar("K")
V = TypeVar("V")

SEQ = "_seq"
"""The column of a merged segment of results with the number that each row's segment had: by it a reader
that stopped in the middle finds the rest."""

RETENTION = "retention"
"""Whose cursor in a unit's log says what has expired: the last number, and the largest `_tau`."""

SEGMENTS_PER_READ = 100

SUBSCRIBERS = "members"
"""The cursor of a unit that tells its newest version of members, and the key by which a segment
names the one it was written with."""


def read_subscribers(version: Segment) -> Mapping[str, Subscriber]:
    """The members of a version by result key."""
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


@dataclass
class _UnitCache:
    """What never changes of a catalog's units: their versions, and whom they were made for."""

    versions: dict[tuple[str, int], Mapping[str, Subscriber]] = field(default_factory=dict)
    founders: dict[str, str] = field(default_factory=dict)


_caches: WeakKeyDictionary[Catalog, _UnitCache] = WeakKeyDictionary()


def subscribers_at(catalog: Catalog, unit_id: str, version: int) -> Mapping[str, Subscriber]:
    """The members of a unit in a version; none if the unit was dropped."""
    versions = _caches.setdefault(catalog, _UnitCache()).versions
    key = (unit_id, version)
    if key not in versions:
        segments = catalog.segments(subscribers_log(unit_id), version - 1, version)
        if not segments:
            return {}
        _remember(versions, key, read_subscribers(segments[0]), MAX_VERSIONS)
    return versions[key]


def founder(catalog: Catalog, unit_id: str) -> str | None:
    """The digest of the query that a unit was made for."""
    founders = _caches.setdefault(catalog, _UnitCache()).founders
    if unit_id not in founders:
        unit = catalog.unit(unit_id)
        if unit is None:
            return None
        _remember(founders, unit_id, unit.digest, MAX_FOUNDERS)
    return founders[unit_id]


def _remember(cache: dict[K, V], key: K, value: V, max_entries: int) -> None:
    if len(cache) >= max_entries:
        cache.clear()
    cache[key] = value


def subscriber_of(catalog: Catalog, query: QueryRow, segment: Segment) -> Subscriber | None:
    """What a query has in a segment of its unit's log; None if nothing.

    A segment without a version has the rows of the query that the unit was made for, and no others.
    """
    version = (segment.keys or {}).get(SUBSCRIBERS)
    if version is not None:
        return subscribers_at(catalog, query.unit_id, version).get(query.result_key)
    return SOLE_SUBSCRIBER if founder(catalog, query.unit_id) == query.result_key else None


def emits_for(catalog: Catalog, unit: UnitRow, result_key: str) -> bool:
    """Whether a unit has written down what its rows are to queries of that key."""
    cursor = catalog.cursor(unit.id, SUBSCRIBERS)
    if cursor is None:
        return result_key == unit.digest
    return result_key in subscribers_at(catalog, unit.id, cursor["seq"])


def unread_segments(
    catalog: Catalog, query: QueryRow, after: int
) -> tuple[QueryRow, list[Segment]]:
    """The query as it is now, and the next segments of its unit's log after a number; none while the end
    of the query is not known."""
    with catalog.snapshot():
        query = _current_query(catalog, query)
        segments = catalog.segments_after(unit_log(query.unit_id), after, SEGMENTS_PER_READ)
    return query, [] if query.has_unknown_end else segments


def _current_query(catalog: Catalog, query: QueryRow) -> QueryRow:
    """The query as it is now: it may have an end by now, or be in another unit."""
    current = catalog.query(query.name)
    return query if current is None or current.accepted_at != query.accepted_at else current


def expired_position(catalog: Catalog, query: QueryRow) -> dict[str, int] | None:
    """What has expired of a query's results: the last number of its unit's log (`seq`) and the largest
    `_tau`; None if nothing has."""
    position: dict[str, int] | None = catalog.cursor(RETENTION, unit_log(query.unit_id))
    if position is None or (query.start_at is not None and position["tau"] <= query.start_at):
        return None
    return position
