"""What the catalog takes and returns, as frozen data.

A class `NewX` is what a caller knows about a thing before the catalog has seen it. Event times and
spans are microseconds; wall-clock times (`created_at`, `expires_at`, ...) are seconds since 1970.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias

from headwater.errors import CatalogError

Json: TypeAlias = Any
"""What `json.dumps` takes."""

Cursors: TypeAlias = Mapping[tuple[str, str], Json]
"""(owner, input) to position."""

Statistics: TypeAlias = Mapping[tuple[str, str], float]
"""(owner, name) to value."""

FileState = Literal["read", "changed", "aside"]
QueryState = Literal["running", "paused", "parked", "finished", "dropped"]
UnitState = Literal["running", "paused", "parked", "dropped"]


def stream_log(name: str) -> str:
    """The name of a stream's log."""
    return f"stream:{name.lower()}"


def unit_log(unit_id: str) -> str:
    """The name of a unit's log."""
    return f"unit:{unit_id}"


def panes_log(unit_id: str) -> str:
    """The name of the log in which a unit keeps its panes."""
    return f"panes:{unit_id}"


def subscribers_log(unit_id: str) -> str:
    """The name of the log of what a unit's result rows are to its queries."""
    return f"members:{unit_id}"


def partial_join_name(unit_id: str) -> str:
    """The name of the query by which a unit has another one join some of its sources."""
    return f"{_PARTIAL_JOIN_PREFIX}{unit_id}"


def requesting_unit(query: str) -> str | None:
    """The unit that has another one join what a query says; None for one that a user has asked."""
    return (
        query.removeprefix(_PARTIAL_JOIN_PREFIX) if query.startswith(_PARTIAL_JOIN_PREFIX) else None
    )


HIDDEN_PREFIX = "$"
"""What the names of queries begin with that no user has asked."""
_PARTIAL_JOIN_PREFIX = f"{HIDDEN_PREFIX}part_"


def is_log(input: str) -> bool:
    """Whether an input of a unit is a log, and no table."""
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
    """Whose statistics those of what is sent from a site to another are."""
    return f"link:{origin}>{target}"


def ingest_owner(stream: str) -> str:
    """The name of the lease, and of the cursor, of whoever takes in a stream."""
    return f"ingest:{stream.lower()}"


def plan_owner(unit_id: str) -> str:
    """Whose profile the measured plan of a unit is."""
    return f"plan:{unit_id}"


def describe_connector(kind: str, options: Mapping[str, Any]) -> str:
    """A source or a sink in a few words: its kind and its first option."""
    return f"{kind} {next((str(value) for value in options.values()), '')}".strip()


@dataclass(frozen=True)
class StreamRow:
    """A declared stream and how far it has come.

    An ended one that `reopens` does so when its source has more. What was told on the strength of
    its end stays told: of times up to `closed_until`, nothing more is taken in. `source` is where it
    reads from, in a few words; None if an earlier release has declared it.
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
        """The least time of a tuple that is not late; None before the first tuple."""
        return self.watermark_at(self.max_event_time)

    def watermark_at(self, largest: int | None) -> int | None:
        """The watermark when `largest` is the largest event time: that minus the lateness, or what
        follows the times that are closed."""
        closed = None if self.closed_until is None else self.closed_until + 1
        if largest is None:
            return closed
        mark = largest - self.lateness
        return mark if closed is None else max(mark, closed)


@dataclass(frozen=True)
class TableRow:
    """A declared table and the version of its content: it changes when a step finds other files than
    the step before, by their names, sizes and times of change."""

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
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])


@dataclass(frozen=True)
class UnitRow:
    """A unit, with the error and the backoff of its last failure.

    `definition` is the operator that it runs, as text; empty if queries have left it since that was
    written, and nobody has asked for it yet (`Sharing.defined` makes it).
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
    """A query to accept. No start means all of the input, no end means for ever; why it is where it
    is can be `noted`, as the detail of an event. `equal_to` names a query of the unit that it joins
    whose results are its own too."""

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
    """What a new unit asks of another, as a query of that one, which has the version that was seen."""

    query: NewQuery
    unit_id: str
    version: int
    definition: str | None
    cursors: Cursors


@dataclass(frozen=True)
class QueryRow:
    """An accepted query; the end of one with a lifetime is not known before its first data.

    `result_key` is the name under which its unit writes its rows. Equal queries that run together
    have the same; one that comes after its equals have left has another, as their rows are still
    in the log of the unit and would count twice. `keep` is for how many microseconds of the clock its
    results are kept at least, None if it does not say. A column is its name, its place among the items of
    the canonical form, and its type, which queries of earlier releases do not have.
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
        """Whether it is asked by another unit, and not by a user."""
        return self.name.startswith(HIDDEN_PREFIX)

    @property
    def has_unknown_end(self) -> bool:
        """Whether it has an end that is not known yet."""
        return self.lifetime is not None and self.end_at is None


@dataclass(frozen=True)
class NewSegment:
    """A written file to append to a log.

    `watermark` is the log's after this segment, `first_arrival` the arrival number of its first
    row, `keys` what is known of its columns for pruning. `key` names the batch it came from: a
    commit with the same key registers nothing again. A batch without rows may be registered
    without a file (path ""), to be remembered as done. `on_disk` has the commit make the file
    durable, and check that it is still there. `digest` is the checksum of its bytes.
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

    The two differ only after compaction, when it stands for several `pieces`. A piece names in
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
    """The first of some segments, as many as together have no more rows and bytes; at least one."""
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
    """A segment as something to take in: its number, its rows, and when it came."""

    seq: int
    rows: int
    created_at: float


@dataclass(frozen=True)
class LogStats:
    """What a log holds now, and (`total_`) all that was ever appended to it."""

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
    """A file of a stream that was read, read and then changed, or set aside as it cannot be read."""

    path: str
    state: FileState
    mark: list[int] | None
    """What tells whether it has changed: times of change and of status change, size, and inode; None
    if that was not noted."""
    number: int | None = None
    """Its place in the order in which files were read."""


@dataclass(frozen=True)
class FileChanges:
    """What is to be noted of the files of a stream, and which are to be forgotten."""

    stream: str
    seen: Sequence[SeenFile]
    forgotten: Sequence[str] = ()


class RejectedRecord(NamedTuple):
    """A record that was refused: why, where in its source it is, and the column that did not fit."""

    reason: str
    record: str
    place: str = ""
    column: str = ""
    arrival: int = 0
    """Its place among the tuples of the source, where that matters."""


@dataclass(frozen=True)
class BatchRejects:
    """What one batch of a stream refused: exact counts, and the records to keep."""

    stream: str
    malformed: int = 0
    late: int = 0
    records: tuple[RejectedRecord, ...] = ()


@dataclass(frozen=True)
class RejectRow:
    """A record that was refused, as kept in the reject log."""

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
    """A claim of one holder; the token of a later claim is always larger."""

    name: str
    holder: str
    token: int
    expires_at: float


@dataclass(frozen=True)
class Assignment:
    """What sites have to do: `owners` has the site of each unit and of each stream that is taken in,
    by the names of their leases; `routes` whence a log comes to a site, by log and site."""

    owners: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteRow:
    """A worker process and when it was last seen."""

    name: str
    definition: Json
    seen_at: float


@dataclass(frozen=True)
class Statistic:
    """A measured value and when it was last written."""

    value: float
    updated_at: float


@dataclass(frozen=True)
class ProfileRow:
    """What was last measured of an owner in detail, and when."""

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
