"""What each kind of grouped query costs: for many events in a few steps, and for a small delta as its window grows.

All times are elapsed and, behind them, CPU time of Java and Python: on a busy machine only these compare.
Windows have no slide unless a kind says so: results may change at every event time. `--windows` fills a
window, and reports the median time of steps that add a fixed delta; without it, `--events` tuples come in
`--batches` steps. Each kind has a state of its own; a query that takes more than `--limit` seconds of CPU time is left.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from _common import START_SECOND, check_units, session, settled, state
from growth import insert
from headwater.cql import CreateQuery, parse
from headwater.runtime.api import Headwater
from headwater.runtime.storage.columns import ARRIVAL, TIME

NEXMARK = Path(__file__).parent.parent / "examples" / "nexmark" / "queries.cql"
STREAM = "CREATE STREAM a (k INT, v INT, x DOUBLE, ts TIMESTAMP) TIMESTAMP BY ts KEEP 10 DAYS FROM CLIENT"
BIDS = """CREATE STREAM bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING
) TIMESTAMP BY date_time KEEP 10 DAYS FROM CLIENT"""

KINDS = {
    "count and sum": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a [RANGE {w} SEC] GROUP BY k",
    "having": "SELECT k, COUNT(*) AS n FROM a [RANGE {w} SEC] GROUP BY k HAVING COUNT(*) > 5",
    "count, DSTREAM": "DSTREAM(SELECT k, COUNT(*) AS n FROM a [RANGE {w} SEC] GROUP BY k)",
    "count of all": "SELECT COUNT(*) AS n, SUM(v) AS s FROM a [RANGE {w} SEC]",
    "least and largest": "SELECT k, MIN(v) AS l, MAX(v) AS m FROM a [RANGE {w} SEC] GROUP BY k",
    "largest of all": "SELECT MAX(v) AS m FROM a [RANGE {w} SEC]",
    "sum of doubles": "SELECT k, SUM(x) AS s FROM a [RANGE {w} SEC] GROUP BY k",
    "distinct": "SELECT k, COUNT(DISTINCT v) AS n FROM a [RANGE {w} SEC] GROUP BY k",
    "DISTINCT rows": "SELECT DISTINCT k FROM a [RANGE {w} SEC]",
    "running total": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a [RANGE UNBOUNDED] GROUP BY k",
    "running extremes": "SELECT MIN(v) AS l, MAX(v) AS m, SUM(x) AS s FROM a [RANGE UNBOUNDED]",
    "running distinct": "SELECT COUNT(DISTINCT v) AS n FROM a [RANGE UNBOUNDED]",
    "count, slide": "SELECT k, COUNT(*) AS n FROM a [RANGE {w} SEC SLIDE {l} MILLISECONDS] GROUP BY k",
    "largest, slide": "ISTREAM(SELECT k, MAX(v) AS m FROM a [RANGE {w} SEC SLIDE {l} MILLISECONDS] GROUP BY k)",
}
"""Queries by name; `{w}` is the length of the window in seconds, `{l}` a hundredth of it in milliseconds."""

NEXMARK_KINDS = ("q12_event_time", "q15", "q16", "q17", "q5", "q7")


def tuples(seed: int, number: int, keys: int, start: float, end: float) -> pa.Table:
    """Tuples with random keys, evenly spread over a span of seconds."""
    micros = _times(number, start, end)
    values = pc.cast(
        pc.floor(pc.multiply(pc.random(number, initializer=seed + 1), 1e6)), pa.int32()
    )
    return pa.table(
        {
            "k": _drawn(seed, number, keys, pa.int32()),
            "v": values,
            "x": pc.divide(pc.cast(values, pa.float64()), 7.0),
            "ts": pc.cast(micros, pa.timestamp("us", tz="UTC")),
            TIME: micros,
            ARRIVAL: pa.array(range(number), pa.int64()),
        }
    )


def bids(seed: int, number: int, start: float, end: float) -> pa.Table:
    """Bids on a hundred auctions at a time, by a thousand bidders, at prices from 100 to 100 million."""
    micros = _times(number, start, end)
    current = pc.floor(pc.multiply(pc.cast(pa.array(range(number)), pa.float64()), 1 / 100))
    auction = pc.add(pc.cast(current, pa.int64()), _drawn(seed, number, 100, pa.int64()))
    price = pc.power(10.0, pc.add(2.0, pc.multiply(pc.random(number, initializer=seed + 2), 6.0)))
    texts = pa.array([f"channel-{n}" for n in range(10)])
    empty = pa.array([""] * number)
    return pa.table(
        {
            "auction": auction,
            "bidder": _drawn(seed + 1, number, 1_000, pa.int64()),
            "price": pc.cast(pc.floor(price), pa.int64()),
            "channel": texts.take(_drawn(seed + 3, number, 10, pa.int64())),
            "url": empty,
            "date_time": pc.cast(micros, pa.timestamp("us", tz="UTC")),
            "extra": empty,
            TIME: micros,
            ARRIVAL: pa.array(range(number), pa.int64()),
        }
    )


def _times(number: int, start: float, end: float) -> pa.Array:
    offsets = pc.multiply(
        pc.cast(pa.array(range(number), pa.int64()), pa.float64()), (end - start) * 1_000 / number
    )
    millis = pc.add(pc.cast(pc.floor(offsets), pa.int64()), int(start * 1_000))
    return pc.multiply(millis, 1_000)


def _drawn(seed: int, number: int, values: int, type_: pa.DataType) -> pa.Array:
    return pc.cast(pc.floor(pc.multiply(pc.random(number, initializer=seed), values)), type_)


def nexmark_texts() -> Mapping[str, str]:
    """The NEXMark queries that read bids alone, as the examples have them."""
    text = NEXMARK.read_text()
    statements = {s.name: s for s in parse(text) if isinstance(s, CreateQuery)}
    bodies = {
        name: text[text.index(f"CREATE QUERY {name} AS") :].split(";")[0].split(" AS\n", 1)[1]
        for name in statements
        if f"CREATE QUERY {name} AS" in text
    }
    return {name: bodies[name] for name in NEXMARK_KINDS}


def open_query(opened: Headwater, name: str, window: float) -> str:
    """Declare the stream of a kind and submit its query; returns the name of the stream."""
    nexmark = nexmark_texts()
    opened.execute(BIDS if name in nexmark else STREAM)
    text = nexmark.get(name) or KINDS[name].format(w=window, l=int(window * 10))
    opened.execute(f"CREATE QUERY q AS {text}")
    return "bid" if name in nexmark else "a"


def generated(stream: str, seed: int, number: int, keys: int, start: float, end: float) -> pa.Table:
    return (
        bids(seed, number, start, end)
        if stream == "bid"
        else tuples(seed, number, keys, start, end)
    )


class Spent(NamedTuple):
    """Elapsed seconds, and CPU seconds of Java and Python."""

    elapsed: float
    cpu: float

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.elapsed - before.elapsed, self.cpu - before.cpu)

    def __str__(self) -> str:
        return f"{self.elapsed:7.2f} ({self.cpu:6.2f})"


def spent(spark: SparkSession) -> Spent:
    """What this process has taken so far."""
    java: Any = spark._jvm
    cpu = java.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toNanos()
    return Spent(time.perf_counter(), time.process_time() + cpu / 1e9)


def events_spent(
    spark: SparkSession, name: str, events: int, batches: int, rate: float, limit: float
) -> tuple[Spent, int] | None:
    """The seconds for all events, and the number of rows emitted; None beyond the limit of CPU time."""
    span = events / rate
    with tempfile.TemporaryDirectory() as folder, state(spark, Path(folder)) as opened:
        stream = open_query(opened, name, max(span / 10, 1))
        each, begun = events // batches, spent(spark)
        for n in range(batches):
            start = START_SECOND + span * n / batches
            insert(opened, stream, generated(stream, n, each, 100, start, start + span / batches))
            while opened.engine.tick():
                if (spent(spark) - begun).cpu > limit:
                    return None
        check_units(opened)
        return spent(spark) - begun, opened.query("q").arrow().num_rows


def step_spent(
    spark: SparkSession, name: str, window: int, delta: int, steps: int, limit: float
) -> Spent | None:
    """The median of steps that add a delta to a window of so many rows; None beyond the limit of CPU time."""
    rate = 1_000.0
    span = window / rate
    with tempfile.TemporaryDirectory() as folder, state(spark, Path(folder)) as opened:
        stream = open_query(opened, name, span)
        begun = spent(spark)
        parts = max(2, min(20, window // delta))
        for n in range(parts + 4):  # the window is full, and some of it has left
            start = START_SECOND + span * n / parts
            rows = generated(stream, n, window // parts, 1_000, start, start + span / parts)
            insert(opened, stream, rows)
            settled(opened)
            opened.engine.tidy()
            if (spent(spark) - begun).cpu > limit:
                return None
        taken = []
        end = START_SECOND + span * (parts + 4) / parts
        for n in range(steps + 2):
            start = end + n * delta / rate
            insert(opened, stream, generated(stream, n, delta, 1_000, start, start + delta / rate))
            before = spent(spark)
            settled(opened)
            taken.append(spent(spark) - before)
            opened.engine.tidy()
        check_units(opened)
        return Spent(*(median(part) for part in zip(*taken[2:], strict=True)))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--events", type=int, default=10_000)
    options.add_argument("--batches", type=int, default=3)
    options.add_argument("--rate", type=float, default=1_000, help="events a second of event time")
    options.add_argument("--windows", type=int, nargs="*", help="rows that the window holds")
    options.add_argument("--delta", type=int, default=1_000)
    options.add_argument("--steps", type=int, default=7)
    options.add_argument("--kinds", nargs="*", default=[*KINDS, *NEXMARK_KINDS])
    options.add_argument("--limit", type=float, default=200)
    chosen = options.parse_args()
    spark = session()
    events_spent(spark, "count and sum", 2_000, 2, 1_000, 60)  # not cold
    worst = 0.0
    for name in chosen.kinds:
        if chosen.windows:
            taken = [
                step_spent(spark, name, window, chosen.delta, chosen.steps, chosen.limit)
                for window in chosen.windows
            ]
            ratios = [b.cpu / a.cpu for a, b in itertools.pairwise(taken) if a and b]
            worst = max([worst, *ratios])
            print(f"{name:20}", *taken, "   ", *(f"{r:.2f}" for r in ratios), flush=True)
        else:
            found = events_spent(
                spark, name, chosen.events, chosen.batches, chosen.rate, chosen.limit
            )
            shown = "over the limit" if found is None else f"{found[0]} {found[1]:>10,} rows"
            print(f"{name:20} {shown}", flush=True)
    if chosen.windows:
        print(f"ratio: CPU time at most {worst:.2f}x from one window to the next")
    return 0


if __name__ == "__main__":
    sys.exit(main())
