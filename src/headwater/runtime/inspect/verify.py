"""Whether all files of a state are as they were written, and which queries a damaged file affects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import DamagedFile
from headwater.runtime.catalog import Catalog, Segment, is_log_copy
from headwater.runtime.inspect.views import JsonRecord, to_plain
from headwater.runtime.storage.integrity import verify_file


@dataclass(frozen=True)
class Damage:
    """A segment whose file is damaged or missing, what is wrong, and the queries that it affects."""

    log: str
    path: str
    problem: str
    queries: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """How many segments were compared, and the damage.

    `without_checksum` counts the segments of a release that stored none: only their sizes were
    compared. `catalog` has the problems that the database reports of itself.
    """

    segments: int
    bytes: int
    without_checksum: int
    damage: tuple[Damage, ...]
    catalog: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        return not self.damage and not self.catalog

    def as_json(self) -> JsonRecord:
        return {**to_plain(self), "sound": self.is_sound}


def verify(catalog: Catalog, progress: Callable[[int], None] = lambda done: None) -> Verification:
    """Read every file that the catalog names, and compare it with the size and checksum stored there.

    Segments that are compacted or removed concurrently are skipped, so it may run beside an engine.
    """
    segments = [segment for segment in catalog.all_segments() if segment.path]
    damage = []
    for done, segment in enumerate(segments, 1):
        try:
            verify_file(segment)
        except DamagedFile as error:
            # A segment that left the catalog while we read lost its file on purpose.
            if segment.path in catalog.all_paths():
                queries = _affected_queries(catalog, segment)
                damage.append(Damage(segment.log, segment.path, str(error), queries))
        progress(done)
    return Verification(
        len(segments),
        sum(segment.bytes for segment in segments),
        sum(segment.digest is None for segment in segments),
        tuple(damage),
        tuple(catalog.problems()),
    )


def _affected_queries(catalog: Catalog, segment: Segment) -> tuple[str, ...]:
    """The queries whose rows come from a segment: those of the unit whose log it is in, or of the
    units that read the log, directly or through other units."""
    # Units name the original as their input, also where they read a copy.
    log = segment.log.split(":", 2)[2] if is_log_copy(segment.log) else segment.log
    kind, _, name = log.partition(":")
    rows = catalog.units()
    reading = {row.id for row in rows if log in row.inputs or (kind != "stream" and row.id == name)}
    while (
        more := {r.id for r in rows if {f"unit:{id}" for id in reading} & set(r.inputs)} - reading
    ):
        reading |= more
    subscribers = (query for unit in reading for query in catalog.subscribers(unit))
    return tuple(sorted({query.spelled for query in subscribers if not query.is_hidden}))
