"""The statements of CQL as frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.catalog import Stream, Table
from headwater.algebra.nodes import Query
from headwater.algebra.types import Value
from headwater.algebra.windows import UNITS
from headwater.cql.connector_kinds import is_finite

SHOW_KINDS = ("STREAMS", "TABLES", "QUERIES", "UNITS", "SEGMENTS", "REJECTS")


@dataclass(frozen=True)
class Connector:
    """Where data comes from or goes: `files(path => 'in/x', format => 'json')`.

    Option names are in lower case, in the order they were written.
    """

    kind: str
    options: tuple[tuple[str, Value], ...] = ()

    def get(self, name: str) -> Value:
        """The value of an option; None if it was not given."""
        return dict(self.options).get(name)


NO_SINK = Connector("none")


class Statement:
    """The base of all statements. How one is read and written is in `statement_syntax`, what it does to
    a state in `headwater.runtime.submit.actions`."""


@dataclass(frozen=True)
class Start:
    """Where a query starts: "EARLIEST", "LATEST", or "TIMESTAMP" with the instant."""

    kind: str
    micros: int | None = None


EARLIEST = Start("EARLIEST")
LATEST = Start("LATEST")


@dataclass(frozen=True)
class CreateStream(Statement):
    """A stream; `source` is None for one that clients push to."""

    stream: Stream
    source: Connector | None


def default_ahead(source: Connector | None) -> int | None:
    """How far ahead of the clock an event may be if the stream does not declare it: without bound
    for finite sources, whose recorded events may be of any time. What clients push happens as it
    arrives."""
    return UNITS["HOUR"] if source is None or not is_finite(source.kind) else None


@dataclass(frozen=True)
class CreateTable(Statement):
    table: Table
    source: Connector


@dataclass(frozen=True)
class CreateQuery(Statement):
    """A continuous query under a name; `lifetime` and for how long its results are kept (`keep`) in
    microseconds; None if not given, and likewise `sink`."""

    name: str
    query: Query
    start: Start | None = None
    lifetime: int | None = None
    sink: Connector | None = None
    keep: int | None = None


@dataclass(frozen=True)
class Explain(Statement):
    query: Query
    analyze: bool = False


@dataclass(frozen=True)
class BareQuery(Statement):
    """A query without CREATE QUERY, to be run and shown."""

    query: Query


@dataclass(frozen=True)
class Show(Statement):
    """`what` is one of SHOW_KINDS."""

    what: str


@dataclass(frozen=True)
class DropQuery(Statement):
    name: str


@dataclass(frozen=True)
class DropStream(Statement):
    name: str


@dataclass(frozen=True)
class DropTable(Statement):
    name: str


@dataclass(frozen=True)
class PauseQuery(Statement):
    name: str


@dataclass(frozen=True)
class ResumeQuery(Statement):
    name: str


@dataclass(frozen=True)
class EndStream(Statement):
    """No more data will come on the stream."""

    name: str


@dataclass(frozen=True)
class RewindStream(Statement):
    """Discard what came to the stream after a time (microseconds); with `restart`, queries that
    have read some of it begin again at that time."""

    name: str
    micros: int
    restart: bool = False


@dataclass(frozen=True)
class RestartStream(Statement):
    """Continue a stream that stopped because its source was replaced, with what is there now."""

    name: str


@dataclass(frozen=True)
class SetOption(Statement):
    """A setting and its value; the name is in lower case."""

    name: str
    value: Value
