"""Whether all files of a state are what was written, and whom it concerns where one is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import DamagedFile
from headwater.runtime.catalog import Catalog, Segment, is_log_copy
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
    """How many segments were compared, and what was found.

    `without_checksum` is how many are of a release that kept none: of these only the size is known.
    `catalog` is what the database says is wrong with itself.
    """

    segments: int
    bytes: int
    without_checksum: int
    damage: tuple[Damage, ...]
    catalog: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        return not self.damage and not self.catalog


def verify(catalog: Catalog, progress: Callable[[int], None] = lambda done: None) -> Verification:
    """Read every file that the catalog names and compare it with what the catalog has of it.

    Segments that are merged or removed meanwhile are passed over, so it may run beside an engine.
    """
    segments = [segment for segment in catalog.all_segments() if segment.path]
    damage = []
    for done, segment in enumerate(segments, 1):
        try:
            verify_file(segment)
        except DamagedFile as error:
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
    units that read the log, directly or by way of other units."""
    log = segment.log.split(":", 2)[2] if is_log_copy(segment.log) else segment.log
    kind, _, name = log.partition(":")
    rows = catalog.units()
    reading = {row.id for row in rows if log in row.inputs or (kind != "stream" and row.id == name)}
    while (
        more := {r.id for r in rows if {f"unit:{id}" for id in reading} & set(r.inputs)} - reading
    ):
        reading |= more
    members = (query for unit in reading for query in catalog.subscribers(unit))
    return tuple(sorted({query.spelled for query in members if not query.is_hidden}))
