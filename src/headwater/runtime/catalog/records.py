"""What the catalog accepts and returns, as frozen data, and the names of logs and owners.

`NewX` is passed in to create an X. Event times and spans are microseconds; wall-clock times
(`created_at`, `expires_at`, ...) are seconds since 1970.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias

from headwater.errors import CatalogError

Json: TypeAlias = Any
"""Any value that `json.dumps` accepts."""

Cursors: TypeAlias = Mapping[tuple[str, str], Json]
"""(owner, input) to position."""

Statistics: TypeAlias = Mapping[tuple[str, str], float]
"""(owner, name) to value."""

FOREVER = 2**62
"""A time in microseconds after all event times; adding a span to it does not overflow."""

FileState = Literal["read", "changed", "aside"]
QueryState = Literal["running", "paused", "parked", "finished", "dropped"]
UnitState = Literal["running", "paused", "parked", "dropped"]


def stream_log(name: str) -> str:
    """The name of a stream's log."""
    return f"stream:{name.lower()}"


def unit_log(unit_id: str) -> str:
    """The name of the log of a unit's results."""
    return f"unit:{unit_id}"


def panes_log(unit_id: str) -> str:
    """The name of the log in which a unit keeps its panes."""
    return f"panes:{unit_id}"


def subscribers_log(unit_id: str) -> str:
    """The name of the log that maps the row classes of a unit to its subscribers."""
    return f"members:{unit_id}"


def partial_join_name(unit_id: str) -> str:
    """The name of the hidden query by which a unit subscribes to a partial join of another."""
    return f"{_PARTIAL_JOIN_PREFIX}{unit_id}"


def replaced_partial_join_name(unit_id: str) -> str:
    """The name that the hidden query of a unit has from when another one replaces it until the unit
    reads that."""
    return f"{_REPLACED_PREFIX}{unit_id}"


def requesting_unit(query: str) -> str | None:
    """The unit that a hidden query serves; None for a query of a user."""
    for prefix in (_PARTIAL_JOIN_PREFIX, _REPLACED_PREFIX):
        if query.startswith(prefix):
            return query.removeprefix(prefix)
    return None


HIDDEN_PREFIX = "$"
"""The first character of the names of queries that units, not users, have submitted."""
_PARTIAL_JOIN_PREFIX = f"{HIDDEN_PREFIX}part_"
_REPLACED_PREFIX = f"{HIDDEN_PREFIX}was_"


INSTANTS = "instants"
"""The cursor of a unit with the last instant emitted for each set of slides, and whether the last step
left due instants to the next. (The cursor `instant` is the last one of all.)"""


def has_more_due(position: Json) -> bool:
    """Whether the last step of a unit left due instants to the next, by its cursor."""
    return position is not None and bool(position["more"])


def is_log(input: str) -> bool:
    """Whether an input of a unit is a log rather than a table."""
    return not input.startswith("table:")


def table_input(name: str) -> str:
    """The name of a table among the inputs of a unit."""
    return f"table:{name.lower()}"


def log_copy(log: str, site: str) -> str:
    """The name of the copy of a log at a site."""
    return f"copy:{site}:{log}"


def is_log_copy(log: str) -> bool:
    """Whether a log is the copy of another."""
    return log.startswith("copy:")


def link_owner(origin: str, target: str) -> str:
    """The owner of the statistics of a link from one site to another."""
    return f"link:{origin}>{target}"


def ingest_owner(stream: str) -> str:
    """The name of the lease, and the owner of the cursor, for ingesting a stream."""
    return f"ingest:{stream.lower()}"


def plan_owner(unit_id: str) -> str:
    """The owner of the profile with the measured plan of a unit."""
    return f"plan:{unit_id}"


def describe_connector(kind: str, options: Mapping[str, Any]) -> str:
    """A short description of a source or sink: its kind and its first option."""
    return f"{kind} {next((str(value) for value in options.values()), '')}".strip()


@dataclass(frozen=True)
class StreamRow:
    """A declared stream and its progress.

    An ended stream that `reopens` does so when its source has more. What was emitted on the
    strength of its end is not taken back: tuples of times up to `closed_until` are late. `source`
    describes what it reads from; None if an earlier release declared it.
    """

    name: str
    spelled: str
    definition: str
    lateness: int
    keep: int
    ended: bool
    max_event_time: int | None
    malformed: int
    late: int
    created_at: float
    reopens: bool
    closed_until: int | None
    source: str | None
    next_seq: int

    @property
    def watermark(self) -> int | None:
        """The smallest event time that is not late; None before the first tuple."""
        return self.watermark_at(self.max_event_time)

    def watermark_at(self, largest: int | None) -> int | None:
        """The watermark if `largest` is the largest event time: that minus the lateness, but after
        the closed times."""
        first_open = None if self.closed_until is None else self.closed_until + 1
        if largest is None:
            return first_open
        watermark = largest - self.lateness
        return watermark if first_open is None else max(watermark, first_open)


@dataclass(frozen=True)
class TableRow:
    """A declared table and the version of its content.

    The version grows when a step sees other files than the step before, by name, size and
    modification time.
    """

    name: str
    spelled: str
    definition: str
    version: int
    fingerprint: str
    created_at: float
    source: str | None = None


@dataclass(frozen=True)
class NewUnit:
    """A unit to create: `inputs` are the logs and tables it reads."""

    digest: str
    definition: str
    inputs: tuple[str, ...] = ()
    version: int = 1
    # Made here and not by the database: a unit's site and files are named before it is created.
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])


@dataclass(frozen=True)
class UnitRow:
    """A unit, with the error and the backoff of its last failure.

    `definition` is the text of its operator; empty after queries have left it, until the operator
    is next needed and derived from those that remain.
    """

    id: str
    digest: str
    definition: str
    inputs: tuple[str, ...]
    version: int
    state: UnitState
    retries: int
    not_before: float
    error: str
    created_at: float


@dataclass(frozen=True)
class NewQuery:
    """A query to accept; without a start it covers all of the input, without an end it never ends.

    `placement_note` becomes the detail of an event: why the query was assigned to its unit.
    `equal_to` names a query of that unit that has the same results.
    """

    name: str
    definition: str
    digest: str
    columns: Json = ()
    sink: Json = None
    start_at: int | None = None
    end_at: int | None = None
    lifetime: int | None = None
    placement_note: Json = None
    equal_to: str | None = None
    keep: int | None = None


@dataclass(frozen=True)
class NewPartialJoin:
    """A partial join that a unit reads: a hidden query, and the unit that it joins; in the place of
    the one that the unit has read so far, if there is one."""

    query: NewQuery
    unit_id: str
    version: int
    definition: str | None
    cursors: Cursors


@dataclass(frozen=True)
class NarrowedPartialJoin:
    """What a unit needs of the partial join that it reads, after queries have left: the hidden query as
    it was, and its new definition, which has the same columns. `changes` says how it was narrowed."""

    query: QueryRow
    definition: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class HandOver:
    """A change of what a unit reads that was asked for and is still to be made: from streams to the
    rows of another unit, to which it has subscribed, or back to streams."""

    unit_id: str
    to_streams: bool
    reason: str


@dataclass(frozen=True)
class NewInputs:
    """What a unit reads from a hand-over on, and the state of the catalog that this relies on.

    `unit` and `source`, the unit whose rows it reads from now on or no longer, have their versions.
    `cursors` are the positions of the unit in inputs that are new to it, `expected` those that both
    units must have, `end` the last sequence number that the log of the source must have.
    """

    unit: UnitRow
    source: UnitRow
    inputs: tuple[str, ...]
    cursors: Mapping[str, Json]
    expected: Cursors
    end: int


@dataclass(frozen=True)
class QueryRow:
    """An accepted query; the end of one with a lifetime is unknown before its first data.

    `result_key` is the name under which its unit writes its rows. Equal queries that run together
    share it; one that joins after its equals have left gets another, as their rows are still in the
    log of the unit and would count twice. `keep` is how many microseconds of wall-clock time its
    results are kept at least, None if unspecified. A column is its name, its position among the
    items of the canonical form, and its type, which queries of earlier releases lack.
    """

    name: str
    spelled: str
    definition: str
    digest: str
    unit_id: str
    state: QueryState
    start_at: int | None
    end_at: int | None
    columns: Json
    sink: Json
    error: str
    accepted_at: float
    lifetime: int | None
    result_key: str
    keep: int | None = None

    @property
    def is_hidden(self) -> bool:
        """Whether it was submitted by another unit, not by a user."""
        return self.name.startswith(HIDDEN_PREFIX)

    @property
    def has_unknown_end(self) -> bool:
        """Whether it has an end that is still unknown."""
        return self.lifetime is not None and self.end_at is None


@dataclass(frozen=True)
class NewSegment:
    """A written file to append to a log.

    `watermark` is that of the log after this segment, `first_arrival` the arrival number of its
    first row, `keys` column facts for pruning. `key` names the batch it came from: a second commit
    with the same key registers nothing. A batch without rows may be registered without a file
    (path ""), to be remembered as done. `on_disk` makes the commit sync the file and check that it
    still exists. `digest` is the checksum of its bytes.
    """

    log: str
    path: str
    rows: int
    bytes: int
    least_time: int | None = None
    largest_time: int | None = None
    watermark: int | None = None
    first_arrival: int | None = None
    keys: Json = None
    key: str | None = None
    on_disk: bool = False
    digest: int | None = None

    def __post_init__(self) -> None:
        if self.rows < 0 or self.bytes < 0:
            raise CatalogError(f"a segment of {self.rows} rows and {self.bytes} bytes")
        if self.rows and not self.path:
            raise CatalogError(f"a segment of {self.rows} rows needs a file")
        if self.least_time is None or self.largest_time is None:
            if self.least_time != self.largest_time:
                raise CatalogError("a segment has a least and a largest event time, or neither")
        elif self.least_time > self.largest_time:
            raise CatalogError(f"a segment from {self.least_time} back to {self.largest_time}")


@dataclass(frozen=True)
class Segment:
    """A registered file: the content of its log from `first_seq` to `seq`, both included.

    The two differ only after compaction, when it replaces several `pieces`. A piece names in
    `compacted_into` the segment that replaced it.
    """

    id: int
    log: str
    first_seq: int
    seq: int
    path: str
    rows: int
    bytes: int
    least_time: int | None
    largest_time: int | None
    watermark: int | None
    first_arrival: int | None
    keys: Json
    pieces: int
    compacted_into: int | None
    created_at: float
    digest: int | None = None


def first_segments(
    segments: Iterable[Segment], *, rows: float = inf, size: float = inf
) -> list[Segment]:
    """The longest prefix with no more than this many rows and bytes in total, but at least one."""
    first: list[Segment] = []
    for segment in segments:
        rows -= segment.rows
        size -= segment.bytes
        if first and min(rows, size) < 0:
            break
        first.append(segment)
    return first


@dataclass(frozen=True)
class LogPosition:
    """How far a reader of a log has read: the last number (0: none), and the watermark there."""

    seq: int = 0
    watermark: int | None = None

    @classmethod
    def from_json(cls, cursor: Json) -> LogPosition:
        """The position that a cursor holds; the beginning if there is no cursor yet."""
        return cls(int(cursor["seq"]), cursor.get("watermark")) if cursor else cls()

    def to_json(self) -> Json:
        """The cursor as it is persisted."""
        return {"seq": self.seq, "watermark": self.watermark}

    def after(self, segments: Sequence[Segment]) -> LogPosition:
        """The position behind the next segments of the log."""
        return LogPosition(segments[-1].seq, segments[-1].watermark) if segments else self


@dataclass(frozen=True)
class SegmentArrival:
    """A pending segment: its sequence number, its rows, and when it was appended."""

    seq: int
    rows: int
    created_at: float


@dataclass(frozen=True)
class LogStats:
    """The size of a log now, and (`total_`) of all that was ever appended to it."""

    segments: int
    rows: int
    bytes: int
    least_time: int | None
    largest_time: int | None
    total_rows: int
    total_bytes: int


@dataclass(frozen=True)
class LogEnd:
    """The last sequence number of a log (0: none yet) and its watermark."""

    seq: int
    watermark: int | None


@dataclass(frozen=True)
class SeenFile:
    """A file of a stream that was read, changed after it was read, or set aside as unreadable."""

    path: str
    state: FileState
    mark: list[int] | None
    """Detects a change: modification time, status change time, size and inode; None if unknown."""
    number: int | None = None
    """Its position in the order in which files were read."""


@dataclass(frozen=True)
class FileChanges:
    """Files of a stream to record, and paths to forget."""

    stream: str
    seen: Sequence[SeenFile]
    forgotten: Sequence[str] = ()


class RejectedRecord(NamedTuple):
    """A rejected record: the reason, its location in the source, and the unfit column."""

    reason: str
    record: str
    place: str = ""
    column: str = ""
    arrival: int = 0
    """Its arrival number among the tuples of the source, where that matters."""


@dataclass(frozen=True)
class BatchRejects:
    """The rejects of one batch of a stream: exact counts, and the records to keep."""

    stream: str
    malformed: int = 0
    late: int = 0
    records: tuple[RejectedRecord, ...] = ()


@dataclass(frozen=True)
class RejectRow:
    """A rejected record as stored in the reject log."""

    id: int
    stream: str
    at: float
    reason: str
    record: str
    place: str
    """Where it came from: file and line, or topic, partition and offset."""
    column: str
    """The column that did not fit, if one is to blame."""


@dataclass(frozen=True)
class Lease:
    """A lease of one holder; a later lease of the same name always has a larger token."""

    name: str
    holder: str
    token: int
    expires_at: float


@dataclass(frozen=True)
class Assignment:
    """What each site does: `owners` has the site of each unit and each ingested stream, by the
    names of their leases; `routes` the site from which a log is copied, by log and target site."""

    owners: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteRow:
    """A site and the time of its last heartbeat."""

    name: str
    definition: Json
    seen_at: float


@dataclass(frozen=True)
class Statistic:
    """A measured value and when it was written."""

    value: float
    updated_at: float


@dataclass(frozen=True)
class ProfileRow:
    """The last detailed measurements of an owner, and when they were written."""

    value: Json
    updated_at: float


@dataclass(frozen=True)
class EventRow:
    """Something that happened, for people to read later."""

    id: int
    at: float
    kind: str
    subject: str
    detail: Json
