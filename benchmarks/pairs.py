"""Pairs that shared joins compute, beside the pairs that somebody wants, and the time they take.

Each case is a few queries that have a join in common but want little of each other's rows: values of
different columns, one long window among short ones, a few gates of many, two slides, a join of two
streams and one of three. Every case runs shared and, with `SET sharing = 'none'`, each query by itself,
several times in turns of who is first. The rule: the median of the shared runs' seconds, on the clock
and of CPU, is at most that of the separate ones. Pairs are counted by the metrics of Spark's join
operators, the last of each chain, and those wanted are counted from the results. Refuses to report if
rows differ.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from pyspark.sql import SparkSession

from _common import Differ, check_units, session, state
from headwater.runtime.api import Headwater
from headwater.runtime.calibration.trials import START_SECOND
from headwater.runtime.catalog import Json, plan_owner

VALUES, GATES, CUSTOMERS = 600, 1_500, 200
STREAMS = ("l", "r", "t")
COLUMNS = "id INT, cust INT, x INT, y INT, gate INT, ts TIMESTAMP"
Rows = dict[str, list[tuple[int, ...]]]


@dataclass(frozen=True)
class Case:
    name: str
    queries: tuple[str, ...]


def pair(window: str, condition: str = "") -> str:
    """A query for the pairs of one customer's rows."""
    more = f" AND {condition}" if condition else ""
    return (
        f"SELECT l.id AS l, r.id AS r FROM l [{window}] l, r [{window}] r "
        f"WHERE l.cust = r.cust{more}"
    )


def triple(window: str, condition: str) -> str:
    return (
        f"SELECT l.id AS l, r.id AS r, t.id AS t FROM l [{window}] l, r [{window}] r, t [{window}] t "
        f"WHERE l.cust = r.cust AND r.cust = t.cust AND {condition}"
    )


def cases(gates: int) -> list[Case]:
    chosen = random.Random(1).sample(range(GATES), gates)
    columns = ("l.x = 1", "l.y = 2", "r.x = 3", "r.y = 4")
    slides = ("RANGE 1 MIN SLIDE 10 SEC", "RANGE 1 MIN SLIDE 15 SEC")
    return [
        Case("four columns", tuple(pair("RANGE 1 MIN", column) for column in columns)),
        Case("one long window", (pair("RANGE 1 SEC"), pair("RANGE 10 MIN", "l.cust = 7"))),
        Case(f"{gates} gates", tuple(pair("RANGE 1 MIN", f"l.gate = {gate}") for gate in chosen)),
        Case("two slides", tuple(map(pair, slides))),
        Case(
            "two and three streams",
            (pair("RANGE 1 MIN", "l.cust = 7"), triple("RANGE 1 MIN", "l.cust = 7")),
        ),
    ]


def generated(rows: int, seconds: int) -> Rows:
    """As many rows of each stream, spread over the seconds."""
    chance = random.Random(2)

    def one(number: int) -> tuple[int, ...]:
        time = START_SECOND * 1_000_000 + number * seconds * 1_000_000 // rows
        fields = (chance.randrange(n) for n in (CUSTOMERS, VALUES, VALUES, GATES))
        return (number, *fields, time)

    return {name: [one(number) for number in range(rows)] for name in STREAMS}


@dataclass(frozen=True)
class Run:
    """The rows of each query, the pairs joined for them, and the seconds of all rounds, on the clock
    and of CPU."""

    results: Sequence[list[tuple[int, ...]]]
    joined: int
    seconds: float
    cpu: float

    @property
    def wanted(self) -> int:
        """The combinations of rows that some query wants, each once."""
        return len({row[1:] for rows in self.results for row in rows})


def run(
    spark: SparkSession, folder: Path, case: Case, rows: Rows, steps: int, mode: str, count: bool
) -> Run:
    """The queries of a case over the rows, in that many micro-batches; measuring operators takes time,
    so runs that count pairs are not those that are compared by time."""
    with state(spark, Path(tempfile.mkdtemp(dir=folder))) as opened:
        opened.execute(f"SET sharing = '{mode}'")
        for name in STREAMS:
            opened.execute(f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts FROM CLIENT")
        for number, text in enumerate(case.queries):
            opened.execute(f"CREATE QUERY q{number} AS {text}")
        opened.engine.meter.sampled_every = 1 if count else 10**6
        joined: dict[tuple[str, int], int] = {}
        seconds = cpu = 0.0
        for step in range(steps):
            for name, of_stream in rows.items():
                first, last = (len(of_stream) * n // steps for n in (step, step + 1))
                opened.push(name, of_stream[first:last], timestamp_unit="us")
            begun, used = perf_counter(), cpu_seconds(spark)
            while opened.engine.tick():
                joined |= joined_pairs(opened) if count else {}
            seconds += perf_counter() - begun
            cpu += cpu_seconds(spark) - used
        check_units(opened)
        results = [_rows(opened, f"q{n}") for n in range(len(case.queries))]
    return Run(results, sum(joined.values()), seconds, cpu)


def cpu_seconds(spark: SparkSession) -> float:
    """The CPU seconds of this process and of Java so far, compilation and garbage collection included."""
    context: Any = spark.sparkContext
    fields = Path(f"/proc/{context._gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    java = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return process_time() + java


def _rows(opened: Headwater, name: str) -> list[tuple[int, ...]]:
    table = opened.query(name).arrow()
    if not table.num_rows:  # nothing says then which columns there are
        return []
    names = ["_tau", *(name for name in STREAMS if name in table.column_names)]
    columns = [table[name].cast("int64").to_pylist() for name in names]
    return sorted(zip(*columns, strict=True))


def joined_pairs(opened: Headwater) -> Mapping[tuple[str, int], int]:
    """The pairs that the last measured step of each unit has joined."""
    found = {}
    for unit in opened.catalog.units():
        plan = opened.catalog.profile(plan_owner(unit.id))
        if plan is not None:
            operators = [one for job in plan.value["jobs"] for one in job["operators"]]
            found[unit.id, plan.value["step"]] = sum(map(_pairs, operators))
    return found


def _pairs(operator: Json) -> int:
    """The rows out of the topmost joins, but for those with the row of constants."""
    if operator["kind"] == "join" and not _is_one_row(operator["inputs"][-1]):
        return int(operator["rows_out"] or 0)
    return sum(map(_pairs, operator["inputs"]))


def _is_one_row(operator: Json) -> bool:
    return bool(operator["kind"] == "scan" and operator["label"] == "Scan nothing")


def counted(spark: SparkSession, folder: Path, case: Case, rows: Rows, steps: int) -> Run:
    """Print how many pairs a case joins."""
    found = run(spark, folder, case, rows, steps, "all", True)
    print(
        f"{case.name}: {found.joined:,} pairs joined, {found.wanted:,} wanted: "
        f"{found.joined / max(found.wanted, 1):.2f}",
        flush=True,
    )
    return found


def timed(
    spark: SparkSession,
    folder: Path,
    case: Case,
    rows: Rows,
    chosen: argparse.Namespace,
    count: Run,
) -> tuple[float, float]:
    """Print what a case takes; how many times as long it takes shared as apart, on the clock and of
    CPU, by the medians of all runs."""
    runs: dict[str, list[Run]] = {"all": [], "none": []}
    for number in range(chosen.runs):
        for mode in ("all", "none") if number % 2 else ("none", "all"):
            one = run(spark, folder, case, rows, chosen.steps, mode, False)
            if one.results != count.results:
                raise Differ(f"{case.name}: the rows are not the same shared and apart")
            runs[mode].append(one)
    ratios = []
    for what, seconds in (("clock", attrgetter("seconds")), ("CPU", attrgetter("cpu"))):
        shared, apart = ([seconds(one) for one in runs[mode]] for mode in ("all", "none"))
        ratios.append(median(shared) / median(apart))
        print(
            f"  {what}: shared {spread(shared)} s, apart {spread(apart)} s: {ratios[-1]:.2f}; "
            f"load of the machine {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    return ratios[0], ratios[1]


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} .. {max(values):.2f})"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=20_000, help="of each stream")
    options.add_argument("--seconds", type=int, default=1_200, help="of event time")
    options.add_argument("--steps", type=int, default=4, help="micro-batches")
    options.add_argument("--runs", type=int, default=5, help="of each side")
    options.add_argument("--gates", type=int, default=100, help="queries for a gate each")
    options.add_argument("--count", action="store_true", help="count pairs, and time nothing")
    options.add_argument("--cases", default="", help="only those whose name begins with this")
    chosen = options.parse_args()
    spark = session()
    rows = generated(chosen.rows, chosen.seconds)
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for case in cases(chosen.gates):
                if not case.name.startswith(chosen.cases):
                    continue
                found = counted(spark, Path(folder), case, rows, chosen.steps)
                if chosen.count:
                    ratios.append(found.joined / max(found.wanted, 1))
                else:
                    ratios += timed(spark, Path(folder), case, rows, chosen, found)
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    if chosen.count:
        print(f"ratio: at most {max(ratios):.2f} pairs joined for each that somebody wants")
        return 0
    print(f"ratio: shared takes at most {max(ratios):.2f} times as long as apart")
    return 0 if max(ratios) <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
