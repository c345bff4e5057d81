"""Random histories of a state: queries come, go, rest and end while streams flow, end and reopen.

After each history every query is compared with the reference evaluator over the tuples that are in
the logs of the streams: whatever happened, it has the rows that it would have alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from engine_helpers import (
    Rows,
    Stop,
    as_csv_keeps,
    declare,
    expected,
    json_lines,
    opened,
    result_rows,
)

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Query
from headwater.cql import Connector, CreateQuery, CreateStream, Start, parse_query, unparse
from headwater.cql.statements import EARLIEST
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import stream_log
from headwater.runtime.results.reader import typed_results
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import ARRIVAL
from overlapping import random_query, random_relation
from strategies import ASKS, BIDS, SOURCES

SECOND = 1_000_000
TABLES: Rows = {"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]}
POINTS = [
    "ingest: written",
    "ingest: committed",
    "unit: written",
    "unit: absorbed",
    "unit: committed",
]


def sliding(rng: random.Random) -> Query:
    """Groups whose slides divide each other, or do not."""
    size = rng.choice([2, 6, 10, 30])
    slide = rng.choice([1, 2, 3, 4, 5, 10, 15])
    keys = rng.choice(["", "", "b.item", "b.note"])
    output = rng.choice(["", "", "ISTREAM", "DSTREAM", "RSTREAM"])
    call = rng.choice(["COUNT(*)", "SUM(b.item)", "MAX(b.price)"])
    shown = f"{keys} AS k, {call} AS n" if keys else f"{call} AS n"
    where = rng.choice(["", "", " WHERE b.item > 0", f" WHERE b.bidder = {rng.randrange(3)}"])
    where += rng.choice(["", f" AND b.price > {rng.choice([0, 0.5, 2])}"]) if where else ""
    text = f"SELECT {shown} FROM Bids [RANGE {size} SEC SLIDE {slide} SEC] b{where}"
    text += f" GROUP BY {keys}" if keys else ""
    return parse_query(f"{output}({text})" if output else text, SOURCES)


@dataclass(frozen=True)
class Inlet:
    """How tuples come in: the source of a stream, and how it is given more."""

    source: Callable[[Stream], Connector | None]
    send: Callable[[Headwater, Stream, list[Any]], None]
    is_finite: bool = False
    """Whether `run --until-idle` takes its streams as ended."""


CLIENT = Inlet(lambda stream: None, lambda headwater, stream, rows: _push(headwater, stream, rows))


def _push(headwater: Headwater, stream: Stream, rows: list[Any]) -> None:
    headwater.push(stream.name, rows, timestamp_unit="us")


def from_files(folder: Path) -> Inlet:
    """Files of JSON lines that come into a folder for each stream."""
    numbers = itertools.count(1)

    def source(stream: Stream) -> Connector:
        (folder / stream.name).mkdir()
        return Connector("files", (("path", str(folder / stream.name)), ("format", "json")))

    def send(headwater: Headwater, stream: Stream, rows: list[Any]) -> None:
        target = folder / stream.name / f"{next(numbers):04}.json"
        target.write_text(json_lines(stream, rows))

    return Inlet(source, send, is_finite=True)


@dataclass
class History:
    """One random history; `spark` runs it, `folder` keeps it."""

    rng: random.Random
    spark: Any
    folder: Path
    actions: int
    inlet: Inlet
    lateness: int
    alone: bool
    """Whether there is one query at a time."""
    keep: int
    """The history of the streams; nothing expires where it is short, as starts may lie before."""
    queries: dict[str, Query] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    clock: int = 0
    said: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """Of the engine."""
    streams: ClassVar[tuple[Stream, ...]] = (BIDS, ASKS)
    points: ClassVar[list[str]] = POINTS

    def run(self) -> None:
        """Let things happen, then end everything and compare."""
        done = 0
        while done < self.actions:
            with opened(self.folder / "state", self.spark, **self.options) as headwater:
                if not done:
                    self._declare(headwater)
                for _ in range(self.rng.randint(3, 8)):
                    done += 1
                    try:
                        self._act(headwater)
                    except Stop as stop:
                        self.said.append(f"crashed at {stop}")
                        break
                self.said.append("opened again")
        with opened(self.folder / "state", self.spark, **self.options) as headwater:
            for name in sorted(self.paused):
                headwater.execute(f"RESUME QUERY {name}")
            self._idle(headwater)
            if not self.inlet.is_finite:
                for stream in self.streams:
                    headwater.execute(f"END STREAM {stream.name}")
                self._settle(headwater)
            self._compare(headwater)

    # ---- what happens

    def _act(self, headwater: Headwater) -> None:
        actions = self._actions()
        weights = [weight for weight, _ in actions]
        self.rng.choices([act for _, act in actions], weights)[0](headwater)

    def _actions(self) -> list[tuple[int, Callable[[Headwater], None]]]:
        """What may happen, and how often."""
        return [
            (6, self._bring),
            (3, lambda h: [h.engine.tick() for _ in range(self.rng.randint(1, 3))] and None),
            (2, self._settle),
            (2, self._idle),
            (4, self._submit),
            (1, self._drop),
            (1, self._pause),
            (1, self._resume),
            (1, lambda h: h.engine.tidy() if self.keep > 1_000 * SECOND else None),
            (1, self._crash),
        ]

    def _declare(self, headwater: Headwater) -> None:
        declare(headwater, self.folder / "items", as_csv_keeps(TABLES))
        for stream in (BIDS, ASKS):
            headwater.execute(f"DROP STREAM {stream.name}")
            late = replace(stream, lateness=self.lateness * SECOND, keep=self.keep)
            headwater.execute(unparse(CreateStream(late, self.inlet.source(stream))))

    def _bring(self, headwater: Headwater) -> None:
        """More tuples, now and then after a long silence, some of them out of order."""
        self.clock += self.rng.choice([0, 1, 2, 5, 5, 30]) * SECOND
        stream = self.rng.choice([BIDS, *self.streams])
        rows = [self._row(stream) for _ in range(self.rng.randint(1, 5))]
        self.said.append(f"{len(rows)} rows of {stream.name} about {self.clock / SECOND}")
        self.inlet.send(headwater, stream, rows)

    def _row(self, stream: Stream) -> tuple[Any, ...]:
        rng = self.rng
        time = max(0, self.clock + rng.choice([-2000, -500, 0, 0, 250, 500, 1000, 1900]) * 1000)
        if stream is BIDS:
            price = rng.choice([1.0, 0.25, 2.5])
            return (rng.randrange(4), rng.choice([1, 2, None]), price, rng.choice("ab"), time)
        return (rng.choice([0, 1, 2, None]), rng.random() < 0.5, None, rng.choice("ab"), time)

    def _submit(self, headwater: Headwater) -> None:
        """A query, often one that is, or was, there under another name."""
        rng = self.rng
        if self.alone and self._live():
            return
        known = list(self.queries.values())
        again = bool(known) and rng.random() < 0.4
        query = rng.choice(known) if again else self._query()
        name = f"q{len(self.queries)}"
        lifetime = rng.choice([None, None, None, 7 * SECOND, 20 * SECOND])
        start = self._start()
        text = unparse(CreateQuery(name, query, lifetime=lifetime, start=start))
        self.said.append(text)
        headwater.execute(text)
        self.queries[name] = query

    def _query(self) -> Query:
        kinds = [sliding, sliding, random_query, random_relation]
        return self.rng.choice(kinds)(self.rng)

    def _start(self) -> Start | None:
        said = Start("TIMESTAMP", max(0, self.clock - SECOND))
        return self.rng.choice([None, None, EARLIEST, said])

    def _live(self) -> list[str]:
        return sorted(set(self.queries) - self.left)

    def _drop(self, headwater: Headwater) -> None:
        if self._live():
            name = self.rng.choice(self._live())
            self.said.append(f"drop {name}")
            headwater.execute(f"DROP QUERY {name}")
            self.left.add(name)
            self.paused.discard(name)

    def _pause(self, headwater: Headwater) -> None:
        live = [n for n in self._live() if headwater.query(n).row.state == "running"]
        if live:
            name = self.rng.choice(live)
            self.said.append(f"pause {name}")
            headwater.execute(f"PAUSE QUERY {name}")
            self.paused.add(name)

    def _resume(self, headwater: Headwater) -> None:
        if self.paused:
            name = self.rng.choice(sorted(self.paused))
            self.said.append(f"resume {name}")
            headwater.execute(f"RESUME QUERY {name}")
            self.paused.discard(name)

    def _settle(self, headwater: Headwater) -> None:
        while headwater.engine.tick():
            pass
        for unit in headwater.catalog.units():
            assert not unit.error, unit.error

    def _idle(self, headwater: Headwater) -> None:
        """As `run --until-idle`: streams of files are taken as ended when nothing is left."""
        self.said.append("until idle")
        self._settle(headwater)
        while headwater.engine.end_finite_streams():
            self._settle(headwater)

    def _crash(self, headwater: Headwater) -> None:
        point, left = self.rng.choice(self.points), [self.rng.randint(1, 3)]

        def at_point(met: str) -> None:
            left[0] -= met == point
            if not left[0]:
                raise Stop(point)

        headwater.engine.at_point = at_point
        self._settle(headwater)
        headwater.engine.at_point = lambda point: None

    # ---- what must come of it

    def _compare(self, headwater: Headwater) -> None:
        streams = {s.name: self._ingested(headwater, s) for s in self.streams}
        keep = {stream.name: self.keep for stream in self.streams}
        for name in self._live():
            row = headwater.query(name).row
            bounds = {"start": row.start_at, "end": row.end_at, "keep": keep}
            due = expected(self.queries[name], streams, as_csv_keeps(TABLES), **bounds)
            if row.lifetime is not None and row.end_at is None:
                due = []
            rows = result_rows(headwater, name, self.queries[name])
            assert rows == due, "\n".join([f"{name} differs", *self.said, repr(streams)])

    def _ingested(self, headwater: Headwater, stream: Stream) -> list[Any]:
        """The tuples that a stream has ingested."""
        return tuples_in_log(headwater, stream)


def tuples_in_log(headwater: Headwater, stream: Stream) -> list[Any]:
    """The tuples of a stream that were ingested, in order of arrival."""
    segments = headwater.catalog.segments(stream_log(stream.name))
    tables = [segment_files.read_arrow(s) for s in segments if s.rows]
    if not tables:
        return []
    table = pa.concat_tables(tables).sort_by(ARRIVAL)
    shown = table.append_column("_tau", table[ARRIVAL].cast(pa.timestamp("us", tz="UTC")))
    return [row.values for row in typed_results(shown, stream.scan("s").columns)]


def check_history(
    spark: Any, folder: Path, seed: int, actions: int, inlet: Inlet | None = None
) -> None:
    """Run the history of a seed and compare."""
    rng = random.Random(seed)
    of_files, alone = rng.random() < 0.7, rng.random() < 0.1
    inlet = inlet or (from_files(folder) if of_files else CLIENT)
    lateness = rng.choice([0, 0, 3, 3600])
    keep = random.Random(f"keep {seed}").choice([3600, 3600, 2, 5, 10, 31]) * SECOND
    History(rng, spark, folder, actions, inlet, lateness, alone, keep).run()
