"""The airline workload of the StreamReuse paper: its five streams as files, its queries as data.

The events are those of examples/airline. A query is kept as data and written out twice: in CQL, and as
a SQL join of the same meaning that Structured Streaming, Flink and DuckDB understand alike. There the
SLIDE of a window is arithmetic on whole minutes. A row of a join that slides by l enters the result at
the first multiple of l at or after all of its tuples, if none of them is older than its RANGE then. So
each pair of inputs gets two conditions: that one, which is exact, and a weaker one on the event times,
which engines use to forget. Nothing is approximated, and the instant is a column of both results.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, count, islice, permutations, product
from pathlib import Path
from time import perf_counter

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from _common import Differ, check_units, state
from headwater.algebra.catalog import Stream
from headwater.cql import CreateStream, parse
from headwater.runtime.api import Headwater

AIRLINE = Path(__file__).resolve().parents[1] / "examples" / "airline"
sys.path.insert(0, str(AIRLINE))

import simulate  # noqa: E402
import workload  # noqa: E402

MINUTES = 60
"""How much time passes; shorter than the shortest lifetime of a query."""

KEPT = 0.25
"""The share of the simulated events that is kept. The results of a join of four streams grow with its
fourth power; so many are about as many results of all queries as there are events."""

ROWS_OF_A_FLIGHT = 140
"""About so many events are kept of each flight."""

ALIASES = {"flights": "fl", "baggage": "bg", "check-ins": "ci", "weather": "w", "sales": "s"}
JOINED = {
    "baggage": "fl.num = bg.flight",
    "check-ins": "fl.num = ci.flight",
    "weather": "fl.dest = w.city",
    "sales": "fl.num = s.flight",
}
SHOWN = {
    "flights": "fl.num",
    "baggage": "bg.area",
    "check-ins": "ci.vacant_seats",
    "weather": "w.forecast",
    "sales": "s.sale",
}
LIFETIMES = {"gate": 2, "terminal": 12, "monitoring": 6}
"""In hours."""

DELAY_SECONDS = 10
"""No event is heard of later than this."""


Results = dict[str, pa.Table]

# ---- events


def flights_for(rows: int, least: int = 1) -> tuple[int, ...]:
    """The numbers of as many flights as have about so many events."""
    return tuple(range(100, 100 + max(least, round(rows / ROWS_OF_A_FLIGHT))))


def write_streams(folder: Path, flights: Sequence[int], files: int, seed: int = 1) -> int:
    """A folder of JSON files a stream, each file an equal part of the time; the number of events."""
    return sum(islice(written_streams(folder, flights, files, seed), files))


def written_streams(
    folder: Path, flights: Sequence[int], files: int, seed: int = 1
) -> Iterator[int]:
    """The same one part of the time after the other: writes a file a stream, says how many events."""
    chance = random.Random(seed)
    found = [e for e in simulate.events(MINUTES * 60, seed, flights) if chance.random() < KEPT]
    for stream in simulate.STREAMS:
        (folder / stream).mkdir(parents=True)
    length = MINUTES * 60 / files
    for number in count():
        heard = [e for e in found if number * length <= e.heard < (number + 1) * length]
        yield simulate.write(folder, number, heard)


# ---- queries


@dataclass(frozen=True)
class Asked:
    """A join of sliding windows, the first of them on flights; ranges and slide are in minutes."""

    kind: str
    name: str
    ranges: Mapping[str, int]
    slide: int
    columns: tuple[str, ...]
    conditions: tuple[str, ...]

    @property
    def joins(self) -> tuple[str, ...]:
        """The streams that flights are joined with."""
        return tuple(stream for stream in self.ranges if stream != "flights")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the result, without the instant."""
        return tuple(column.replace(".", "_") for column in self.columns)


def everyday(queries: int, flights: Sequence[int], seed: int = 1) -> tuple[Asked, ...]:
    """The mix of the paper: 80 % ask from a gate, 15 % for a terminal, 5 % to monitor."""
    terminals, monitoring = round(queries * 0.15), round(queries * 0.05)
    numbers = flights[: queries - terminals - monitoring]
    chance = random.Random(seed)
    return (
        *(gate(f"gate_{number}", f"fl.num = {number}") for number in numbers),
        *islice(_terminals(), terminals),
        *(_monitoring(f"monitoring_{n}", chance) for n in range(monitoring)),
    )


def gate(name: str, condition: str) -> Asked:
    """Q3 of the paper: what an agent at a gate asks."""
    return Asked(
        "gate",
        name,
        {"flights": 5, "baggage": 1, "check-ins": 1},
        1,
        ("fl.gate", "bg.status", "ci.status"),
        (condition,),
    )


def _terminals() -> Iterator[Asked]:
    """Q1 of the paper for each terminal and each set of carriers: 45 of them."""
    carriers = chain.from_iterable(combinations(simulate.CARRIERS, n) for n in range(1, 5))
    for asked, terminal in product(carriers, "ABC"):
        codes = ", ".join(f"'{code}'" for code in asked)
        yield Asked(
            "terminal",
            f"terminal_{terminal.lower()}_{'_'.join(asked).lower()}",
            {"flights": 5, "weather": 5, "check-ins": 1, "baggage": 1},
            1,
            ("fl.num", "fl.gate", "bg.area", "ci.status", "w.forecast"),
            (f"fl.terminal = 'TERMINAL {terminal}'", f"fl.carrier_code IN ({codes})"),
        )


def _monitoring(name: str, chance: random.Random) -> Asked:
    """Flights with one or two other streams, ranges and slide uniform from 1 to 5 minutes."""
    others = chance.sample(sorted(JOINED), chance.randint(1, 2))
    streams = ("flights", *others)
    codes = ", ".join(f"'{code}'" for code in sorted(chance.sample(simulate.CARRIERS, 2)))
    return Asked(
        "monitoring",
        name,
        {stream: chance.randint(1, 5) for stream in streams},
        chance.randint(1, 5),
        ("fl.status", *(SHOWN[stream] for stream in streams)),
        (f"fl.carrier_code IN ({codes})",),
    )


# ---- as CQL


def declarations(folder: Path) -> str:
    """The streams of examples/airline over these folders, one file a step."""
    return workload.streams(folder).replace("'json')", "'json', files_per_step => 1)")


def cql(asked: Asked) -> str:
    windows = ", ".join(
        f"`{stream}` [RANGE {minutes} MIN SLIDE {asked.slide} MIN] AS {ALIASES[stream]}"
        for stream, minutes in asked.ranges.items()
    )
    conditions = [*(JOINED[stream] for stream in asked.joins), *asked.conditions]
    return (
        f"CREATE QUERY {asked.name} LIFETIME {LIFETIMES[asked.kind]} HOURS AS "
        f"SELECT {_columns(asked)} FROM {windows} WHERE {' AND '.join(conditions)};"
    )


def streams(folder: Path) -> list[Stream]:
    """The streams as they are declared."""
    return [s.stream for s in parse(declarations(folder)) if isinstance(s, CreateStream)]


@dataclass(frozen=True)
class Run:
    """What a side did: the seconds of submitting and of running, and the results of each query."""

    submitted: float
    seconds: float
    results: Results
    operators: int = 0


def shared(spark: SparkSession, folder: Path, asked: Sequence[Asked]) -> Run:
    """All the queries in one engine, run until it is idle."""
    with state(spark, Path(tempfile.mkdtemp(dir=folder))) as opened:
        opened.execute(declarations(folder))
        begun = perf_counter()
        opened.execute("\n".join(cql(one) for one in asked))
        submitted = perf_counter()
        opened.run(until_idle=True)
        ended = perf_counter()
        check_units(opened)
        results = {one.name: answers(opened, one) for one in asked}
        units = len(opened.catalog.units())
        return Run(submitted - begun, ended - submitted, results, units)


def answers(opened: Headwater, asked: Asked) -> pa.Table:
    """The results of a query, the instant in minutes."""
    table = opened.query(asked.name).arrow()
    if not table.num_rows:
        return pa.table({name: [] for name in (*asked.names, "tau")})
    minutes = [tau // 60_000_000 for tau in table["_tau"].cast(pa.int64()).to_pylist()]
    return table.select(asked.names).append_column("tau", pa.array(minutes, pa.int64()))


# ---- as SQL


def sql(asked: Asked) -> str:
    """The same over tables that have `since` and `until`: the minute before and after an event."""
    text = f"SELECT {_columns(asked)}, {_instant(asked)} AS tau FROM flights AS fl"
    for at, stream in enumerate(asked.joins, start=1):
        before = ["flights", *asked.joins[: at - 1]]
        alias, minutes = ALIASES[stream], asked.ranges[stream]
        conditions = [
            JOINED[stream],
            f"{alias}.ts >= fl.ts - INTERVAL '{minutes}' MINUTE",
            f"{alias}.ts <= fl.ts + INTERVAL '{asked.ranges['flights']}' MINUTE",
            *(
                _holds(asked, one, other)
                for one, other in permutations([*before, stream], 2)
                if stream in (one, other)
            ),
        ]
        text += f" JOIN {table(stream)} AS {alias} ON {' AND '.join(conditions)}"
    short = [stream for stream, minutes in asked.ranges.items() if minutes < asked.slide]
    held = [_holds(asked, stream, stream) for stream in short]
    return f"{text} WHERE {' AND '.join([*asked.conditions, *held])}"


def table(stream: str) -> str:
    """The name of a stream's table in SQL."""
    return stream.replace("-", "_")


def _holds(asked: Asked, one: str, other: str) -> str:
    """The window of one stream holds its tuple at the instant of the other's."""
    return f"{ALIASES[one]}.since >= {_tick(asked, other)} - {asked.ranges[one]}"


def _tick(asked: Asked, stream: str) -> str:
    """The first multiple of the slide at or after a tuple, in minutes."""
    minute, slide = f"{ALIASES[stream]}.until", asked.slide
    return minute if slide == 1 else f"({minute} + MOD({slide} - MOD({minute}, {slide}), {slide}))"


def _instant(asked: Asked) -> str:
    return f"GREATEST({', '.join(_tick(asked, stream) for stream in asked.ranges)})"


def _columns(asked: Asked) -> str:
    pairs = zip(asked.columns, asked.names, strict=True)
    return ", ".join(f"{column} AS {name}" for column, name in pairs)


# ---- comparing


def database(folder: Path) -> duckdb.DuckDBPyConnection:
    """The events that are in the files, for `sql`; a judge that is neither of the sides."""
    opened = duckdb.connect()
    for stream in simulate.STREAMS:
        opened.execute(
            f"CREATE TABLE {table(stream)} AS SELECT *, epoch_ms(ts) // 60000 AS since, "
            "(epoch_ms(ts) + 59999) // 60000 AS until "
            f"FROM read_json_auto('{folder / stream}/*')"
        )
    return opened


def check(asked: Sequence[Asked], ours: Results, theirs: Results, side: str) -> int:
    """The number of results of all queries; raises Differ if those of one are not the same."""
    for one in asked:
        if not same(ours[one.name], theirs[one.name]):
            counts = f"{ours[one.name].num_rows:,} and {theirs[one.name].num_rows:,} rows"
            raise Differ(f"{one.name} differs between Headwater and {side}: {counts}")
    return sum(found.num_rows for found in ours.values())


def same(ours: pa.Table, theirs: pa.Table) -> bool:
    """Whether two results have the same rows, each as often."""
    if ours.num_rows != theirs.num_rows:
        return False
    if not ours.num_rows:
        return True
    order = [(name, "ascending") for name in ours.column_names]
    cast = theirs.select(ours.column_names).cast(ours.schema)
    return ours.sort_by(order).equals(cast.sort_by(order))
