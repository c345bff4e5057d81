"""A catalog with streams in which queries ask for a unit, the queries to ask with, and the rows that each has by
the reference evaluator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.algebra.nodes import Query
from headwater.cql import CreateQuery, CreateStream, parse, parse_query
from headwater.cql.statements import EARLIEST, Start
from headwater.reference import Result, evaluate
from headwater.reuse import QuerySignature, signature_of
from headwater.runtime.catalog import (
    Catalog,
    NewSegment,
    QueryRow,
    UnitRow,
    stream_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.lifecycle import (
    update_unit_state,
)
from headwater.runtime.submit import scripts
from headwater.runtime.submit.statements import submit
from headwater.runtime.submit.unit_index import (
    UnitIndex,
    unit_index,
)

SECOND = 1_000_000
BIDS_KEEP, ASKS_KEEP = 10, 20

# The streams are spelled with capitals, as users may, and are the same in any case.
DECLARED = f"""
CREATE STREAM Bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {BIDS_KEEP} SECONDS FROM CLIENT;
CREATE STREAM Asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {ASKS_KEEP} SECONDS FROM CLIENT;
CREATE STREAM Fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {ASKS_KEEP} SECONDS FROM CLIENT;
CREATE STREAM Taxes (item INT, tax INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP {ASKS_KEEP} SECONDS FROM CLIENT;
"""


STREAMS = {
    statement.stream.name.lower(): statement.stream
    for statement in parse(DECLARED)
    if isinstance(statement, CreateStream)
}
NAMES = Namespace.of(STREAMS.values())


@cache
def query_of(text: str) -> Query:
    return parse_query(text, NAMES)


@cache
def form(text: str) -> QuerySignature:
    return signature_of(canonicalize(query_of(text)))


def join(seconds: int, more: str = "") -> str:
    """A join that looks back on so many seconds of bids; more than 10 is beyond their history."""
    return (
        f"SELECT b.price, a.cost FROM Bids [RANGE {seconds} SEC] b, Asks [RANGE 2 SEC] a "
        f"WHERE b.item = a.item{more}"
    )


def group(seconds: int, more: str = "") -> str:
    """A grouped query that slides by two seconds; with 9 seconds it looks back on 11."""
    return (
        f"SELECT item, sum(price) AS s FROM Bids [RANGE {seconds} SEC SLIDE 2 SEC]{more} "
        "GROUP BY item"
    )


def lone(least: int) -> str:
    return f"SELECT price FROM Bids [RANGE 1 HOUR] WHERE price > {least}"


def last_rows(count: int) -> str:
    """A query that is computed beside others, whose windows reach back over any time."""
    return f"SELECT price FROM Bids [ROWS {count}]"


SPREAD = "SELECT max(price) - min(price) AS s FROM Bids [ROWS 40]"
"""One of these of which every tuple matters."""

OTHER = " AND b.price > 1"
"""Makes another join of the same base."""
OTHERS = " WHERE price > 1"
"""The same for a group."""

DATA = {
    "bids": [(1, n, n * SECOND) for n in range(0, 60, 2)],
    "asks": [(1, n, n * SECOND) for n in range(1, 60, 3)],
}
"""Dense enough that a window that holds one second more or less is another one."""


@dataclass
class World:
    """A catalog, and what is asked of it; times are seconds, and None is all of the input."""

    catalog: Catalog
    definitions: Definitions

    def ask(
        self,
        name: str,
        text: str,
        start: int | None = None,
        lifetime: int | None = None,
        at: Start | None = None,
    ) -> str:
        """Submit a query; returns the unit that it is in."""
        begin = at or (EARLIEST if start is None else Start("TIMESTAMP", start * SECOND))
        span = None if lifetime is None else lifetime * SECOND
        statement = CreateQuery(name, query_of(text), start=begin, lifetime=span)
        return submit(self.catalog, self.definitions, statement).unit_id

    def row(self, name: str) -> QueryRow:
        found = self.catalog.query(name)
        assert found is not None
        return found

    def unit(self, unit_id: str) -> UnitRow:
        found = self.catalog.unit(unit_id)
        assert found is not None
        return found

    def execute(self, text: str) -> None:
        scripts.execute(self.catalog, self.definitions, text)

    def known(self) -> UnitIndex:
        found = unit_index(self.catalog, self.definitions)
        found.refresh()
        return found

    def takes(self, unit_id: str, text: str, start: int | None) -> bool:
        """Whether a unit would accept a query of that start."""
        micros = None if start is None else start * SECOND
        return self.known()._can_join(unit_id, form(text), micros)

    def begins(self, unit_id: str) -> int | None:
        """The start of a unit in seconds."""
        micros = self.catalog.cursor(unit_id, "start")
        return None if micros is None else micros // SECOND

    def evaluated(self, unit_id: str, instant: int) -> None:
        """Have a unit evaluate its groups up to an instant."""
        self.catalog.commit(None, cursors={(unit_id, "instant"): instant * SECOND})

    def arrived(self, stream: str, second: int) -> None:
        """Ingest a tuple; no stream here is late, so that second is the watermark."""
        at = second * SECOND
        segment = NewSegment(stream_log(stream), f"{stream} {second}", 1, 1, at, at, at)
        self.catalog.commit(None, segments=[segment], stream_progress=(stream, at))

    def finish(self, name: str) -> None:
        """Finish a query, and let its unit rest if it was the last."""
        row = self.row(name)
        self.catalog.finish_queries(row.unit_id, [row.name])
        update_unit_state(self.catalog, row.unit_id)


def alone(text: str, start: int | None) -> list[Result]:
    """The rows that a query has by definition."""
    return emitted(text, start, start)


def emitted(text: str, start: int | None, unit_start: int | None) -> list[Result]:
    """The rows after its start that a query has in a unit with another one."""
    rows = all_emitted(text, unit_start)
    return [row for row in rows if start is None or row.tau > start * SECOND]


@cache
def all_emitted(text: str, unit_start: int | None) -> list[Result]:
    since = None if unit_start is None else unit_start * SECOND
    keep = {"bids": BIDS_KEEP * SECOND, "asks": ASKS_KEEP * SECOND}
    return evaluate(query_of(text), DATA, start=since, keep=keep)


def earlier_of(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


STARTS = (None, 15, 25, 35)
"""Starts in the midst of the data, further apart than windows reach."""
