"""Which rows of a unit's log are whose: the versions of its members, and what each query has in a segment.

A unit that serves several queries writes down, as a version, what its rows are to each of them; a
segment names the version that it was written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakKeyDictionary

from headwater.reuse.member import EVERYTHING, Member
from headwater.runtime.catalog import Catalog, QueryRow, Segment, UnitRow, members_log, unit_log

K = TypeVar("K")
V = TypeVar("V")

SEQ = "_seq"
"""The column of a merged segment of results with the number that each row's segment had: by it a reader
that stopped in the middle finds the rest."""

RETENTION = "retention"
"""Whose cursor in a unit's log says what has expired: the last number, and the largest `_tau`."""

SEGMENTS_AT_ONCE = 100

MEMBERS = "members"
"""The cursor of a unit that tells its newest version of members, and the key by which a segment
names the one it was written with."""


def read_members(version: Segment) -> Mapping[str, Member]:
    """The members of a version by result key."""
    from headwater.runtime import files  # Arrow takes longer to load than most commands take

    table = files.read_arrow(version)
    names = ("digest", "shape", "first", "last", "items")
    columns = (table[name].to_pylist() for name in names)
    return {
        digest: Member(shape, tuple(zip(first, last, strict=True)), tuple(items))
        for digest, shape, first, last, items in zip(*columns, strict=True)
    }


MOST_KNOWN, MOST_VERSIONS = 1_000, 256


@dataclass
class _Known:
    """What never changes of a catalog's units: their versions, and whom they were made for."""

    versions: dict[tuple[str, int], Mapping[str, Member]] = field(default_factory=dict)
    founders: dict[str, str] = field(default_factory=dict)


_known: WeakKeyDictionary[Catalog, _Known] = WeakKeyDictionary()


def members_at(catalog: Catalog, unit_id: str, version: int) -> Mapping[str, Member]:
    """The members of a unit in a version; none if the unit was dropped."""
    known = _known.setdefault(catalog, _Known()).versions
    key = (unit_id, version)
    if key not in known:
        found = catalog.segments(members_log(unit_id), version - 1, version)
        if not found:
            return {}
        _remember(known, key, read_members(found[0]), MOST_VERSIONS)
    return known[key]


def founder(catalog: Catalog, unit_id: str) -> str | None:
    """The digest of the query that a unit was made for."""
    known = _known.setdefault(catalog, _Known()).founders
    if unit_id not in known:
        unit = catalog.unit(unit_id)
        if unit is None:
            return None
        _remember(known, unit_id, unit.digest, MOST_KNOWN)
    return known[unit_id]


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[key] = value


def member_of(catalog: Catalog, query: QueryRow, segment: Segment) -> Member | None:
    """What a query has in a segment of its unit's log; None if nothing.

    A segment without a version has the rows of the query that the unit was made for, and no others.
    """
    version = (segment.keys or {}).get(MEMBERS)
    if version is not None:
        return members_at(catalog, query.unit_id, version).get(query.result_key)
    return EVERYTHING if founder(catalog, query.unit_id) == query.result_key else None


def tells(catalog: Catalog, unit: UnitRow, result_key: str) -> bool:
    """Whether a unit has written down what its rows are to queries of that key."""
    cursor = catalog.cursor(unit.id, MEMBERS)
    if cursor is None:
        return result_key == unit.digest
    return result_key in members_at(catalog, unit.id, cursor["seq"])


def unread(catalog: Catalog, query: QueryRow, after: int) -> tuple[QueryRow, list[Segment]]:
    """The query as it is now, and the next segments of its unit's log after a number; none while the end
    of the query is not known."""
    with catalog.snapshot():
        query = _as_it_is(catalog, query)
        found = catalog.segments_reaching(unit_log(query.unit_id), after, SEGMENTS_AT_ONCE)
    return query, [] if query.unsettled else found


def _as_it_is(catalog: Catalog, query: QueryRow) -> QueryRow:
    """The query as it is now: it may have an end by now, or be in another unit."""
    known = catalog.query(query.name)
    return query if known is None or known.accepted_at != query.accepted_at else known


def expired(catalog: Catalog, query: QueryRow) -> dict[str, int] | None:
    """What has expired of a query's results: the last number of its unit's log (`seq`) and the largest
    `_tau`; None if nothing has."""
    position: dict[str, int] | None = catalog.cursor(RETENTION, unit_log(query.unit_id))
    if position is None or (query.start_at is not None and position["tau"] <= query.start_at):
        return None
    return position
