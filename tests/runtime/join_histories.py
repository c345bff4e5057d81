"""Random histories of joins of two and of three streams, whose units change what they read.

A unit is made to read the rows of another, or its streams again, at any moment: forced, whatever it
costs or gains. The rows of every query have to be those of the reference evaluator.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from histories import CLIENT, POINTS, SECOND, History, from_files

from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.nodes import Query
from headwater.algebra.types import INT, TIMESTAMP, Field, Schema
from headwater.cql import CreateStream, Start, parse_query, unparse
from headwater.errors import CatalogError, CommitConflict
from headwater.reuse import partial_join_queries
from headwater.reuse.definition import operator_signature
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import UnitRow, stream_log
from headwater.runtime.results.reader import typed_results
from headwater.runtime.settings import Settings
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.columns import ARRIVAL
from headwater.runtime.submit.hand_overs import (
    HandOverRefused,
    request_rewire,
    request_split,
    request_unshare,
)
from headwater.runtime.submit.unit_index import unit_index


def _stream(name: str) -> Stream:
    columns = (Field("item", INT), Field("v", INT), Field("ts", TIMESTAMP))
    return Stream(name, Schema(columns), "ts")


LEFT, MIDDLE, RIGHT = STREAMS = (_stream("Lefts"), _stream("Middles"), _stream("Rights"))
NAMES = Namespace.of(STREAMS)
HAND_OVER_POINTS = [
    "rewire: aligned",
    "rewire: switched",
    "unshare: aligned",
    "unshare: switched",
]


def random_join(rng: random.Random) -> Query:
    """A join of two or of all three streams, with windows that may slide and a bound or two."""
    names = rng.choice([("a", "b"), ("a", "b"), ("a", "b", "c"), ("a", "b", "c"), ("b", "c")])
    slide = rng.choice(["", "", "", " SLIDE 2 SEC"])
    streams = dict(zip("abc", STREAMS, strict=True))
    sources = [
        f"{streams[name].name} [RANGE {rng.choice([1, 3, 5])} SEC{slide}] {name}" for name in names
    ]
    joined = [f"{one}.item = {other}.item" for one, other in itertools.pairwise(names)]
    bounds = [
        rng.choice([f"{name}.v > {rng.randrange(3)}", f"{name}.item = {rng.randrange(2)}"])
        for name in names
        if rng.random() < 0.25
    ]
    if rng.random() < 0.2:
        bounds.append(f"{names[0]}.v <= {names[-1]}.v")
    items = rng.sample([f"{name}.v AS {name}" for name in names], rng.randint(1, len(names)))
    where = " AND ".join([*joined, *bounds])
    text = f"SELECT {', '.join(items)} FROM {', '.join(sources)} WHERE {where}"
    return parse_query(text, NAMES)


@dataclass
class JoinHistory(History):
    """A history in which units are rewired."""

    seen: dict[str, dict[int, Any]] = field(default_factory=dict)
    """The tuples of each stream by arrival number, also those that have expired."""
    streams: ClassVar[tuple[Stream, ...]] = STREAMS
    points: ClassVar[list[str]] = [*POINTS, *2 * HAND_OVER_POINTS]

    def _declare(self, headwater: Headwater) -> None:
        for stream in STREAMS:
            text = unparse(CreateStream(stream, self.inlet.source(stream)))
            times = f"LATENESS {self.lateness} SECONDS KEEP {self.keep // SECOND} SECONDS"
            headwater.execute(text.replace("TIMESTAMP BY ts", f"TIMESTAMP BY ts {times}", 1))
        for _ in range(3):
            self._submit(headwater)

    def _actions(self) -> list[tuple[int, Callable[[Headwater], None]]]:
        usual = [a for a in super()._actions() if a[1].__name__ != "<lambda>"]
        return [
            *usual,
            (6, self._bring),
            (9, self._tick),
            (2, self._tidy),
            (6, self._rewire),
            (4, self._split),
            (4, self._unshare),
        ]

    def _tick(self, headwater: Headwater) -> None:
        for _ in range(self.rng.randint(1, 3)):
            headwater.engine.tick()

    def _tidy(self, headwater: Headwater) -> None:
        self._note_tuples(headwater)
        headwater.engine.tidy()

    def _bring(self, headwater: Headwater) -> None:
        self.clock += self.rng.choice([0, 1, 1, 2, 5, 30]) * SECOND
        stream = self.rng.choice(STREAMS)
        rows = [self._row(stream) for _ in range(self.rng.randint(1, 6))]
        self.said.append(f"{stream.name}: {rows}")
        self.inlet.send(headwater, stream, rows)

    def _row(self, stream: Stream) -> tuple[Any, ...]:
        assert stream in STREAMS  # which have the same columns
        rng = self.rng
        time = max(0, self.clock + rng.choice([-2000, -500, 0, 0, 250, 1000, 1900]) * 1000)
        return (rng.choice([0, 1, 1, None]), rng.randrange(4), time)

    def _query(self) -> Query:
        return random_join(self.rng)

    def _start(self) -> Start | None:
        # Tuples expire here, so that no query may ask for what was before it came.
        return super()._start() if self.keep > 1_000 * SECOND else None

    # ---- forced hand-overs

    def _rewire(self, headwater: Headwater) -> None:
        units = headwater.catalog.units()
        if units:
            # Mostly those for which it may be possible.
            wide = [u for u in units if len(u.inputs) == 3] or units
            narrow = [u for u in units if len(u.inputs) == 2 and not reads_rows(u)] or units
            reader, source = self.rng.choice(wide).id, self.rng.choice(narrow).id
            self._ask(
                f"rewire {reader} onto {source}",
                lambda: request_rewire(
                    headwater.catalog, headwater.definitions, reader, source, "forced"
                ),
            )

    def _split(self, headwater: Headwater) -> None:
        index = unit_index(headwater.catalog, headwater.definitions)
        wide = [u for u in headwater.catalog.units() if len(u.inputs) == 3]
        if not wide:
            return
        unit = index.unit_planner.ensure_definition(headwater.catalog, self.rng.choice(wide))
        operator = index.unit_planner.operator(unit)
        parts = [] if operator is None else [*partial_join_queries(operator_signature(operator))]
        if parts:
            part = self.rng.choice(parts)
            self._ask(
                f"split {unit.id}",
                lambda: request_split(
                    headwater.catalog, headwater.definitions, unit.id, part, "forced"
                ),
            )

    def _unshare(self, headwater: Headwater) -> None:
        readers = [u for u in headwater.catalog.units() if reads_rows(u)]
        if readers:
            unit = self.rng.choice(readers).id
            self._ask(
                f"unshare {unit}",
                lambda: request_unshare(headwater.catalog, headwater.definitions, unit, "forced"),
            )

    def _ask(self, text: str, request: Callable[[], object]) -> None:
        try:
            request()
            self.said.append(text)
        except (HandOverRefused, CatalogError, CommitConflict) as error:
            self.said.append(f"{text}: {error}")

    # ---- what was ingested

    def _note_tuples(self, headwater: Headwater) -> None:
        for stream in STREAMS:
            for segment in headwater.catalog.segments(stream_log(stream.name)):
                if segment.rows:
                    table = segment_files.read_arrow(segment)
                    times = table[ARRIVAL].cast(pa.timestamp("us", tz="UTC"))
                    shown = table.append_column("_tau", times)
                    for row in typed_results(shown, stream.scan("s").columns):
                        self.seen.setdefault(stream.name, {})[row.tau] = row.values

    def _ingested(self, headwater: Headwater, stream: Stream) -> list[Any]:
        self._note_tuples(headwater)
        return [row for _, row in sorted(self.seen.get(stream.name, {}).items())]


def reads_rows(unit: UnitRow) -> bool:
    return any(name.startswith("unit:") for name in unit.inputs)


def check_join_history(spark: Any, folder: Path, seed: int, actions: int) -> dict[str, int]:
    """Run the history of a seed and compare; returns how many hand-overs were made, by kind."""
    rng = random.Random(seed)
    inlet = from_files(folder) if rng.random() < 0.5 else CLIENT
    lateness, keep = rng.choice([0, 2, 3600]), rng.choice([3600, 8, 20]) * SECOND
    settings = Settings(rows_per_step=rng.choice([1, 4, 100_000]))
    history = JoinHistory(
        rng, spark, folder, actions, inlet, lateness, False, keep, options={"settings": settings}
    )
    history.run()
    return made_in(folder)


def made_in(folder: Path) -> dict[str, int]:
    """How many hand-overs a state has seen: to rows of another unit, and to streams again."""
    with open_state(folder / "state") as headwater:
        events = headwater.catalog.events(kind="unit rewired", limit=1_000)
    made = {"rows": 0, "streams": 0}
    for event in events:
        kind = "rows" if any(n.startswith("unit:") for n in event.detail["to"]) else "streams"
        made[kind] += 1
    return made
