"""Twenty units under bursts that overload the machine: how long results wait under each policy.

Four streams feed twenty queries of mixed cost and selectivity, each a unit of its own. Rows are pushed
in bursts by the clock, whatever the engine does; a result's response is the time from when its rows came
to when it can be read, and its slowdown that by the ideal time of its unit, which is measured before with
nothing else at work and is the same for all policies. Refuses to report if the results under two
policies differ, or if a unit got nothing done.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from threading import Thread

import pyarrow as pa
from pyspark.sql import SparkSession

from _common import COLUMNS, START_SECOND, Differ, check_units, session, state
from growth import insert, rows
from headwater.runtime.api import Headwater

STREAMS = "abcd"
KEYS = 20_000
BURSTS = 3
PUSHES = 4
"""Of a burst, half a second apart."""
PAUSE = 6.0
POLICIES = ("fcfs", "hnr", "bsd", "bsd-early", "lsf")


def queries() -> Iterator[tuple[str, str]]:
    """Twenty that have nothing in common: cheap ones, dear ones, with few and with many results."""
    for at, name in enumerate(STREAMS):
        yield f"filter_{name}", f"SELECT k, v FROM {name} WHERE v % {3 ** (2 * at)} = 0"
        yield (
            f"groups_{name}",
            f"SELECT k, COUNT(*) AS n FROM {name} [RANGE {20 * (at + 1)} SECONDS SLIDE 5 SECONDS] GROUP BY k",
        )
        yield (
            f"latest_{name}",
            f"SELECT k, v FROM {name} [PARTITION BY k ROWS 1] WHERE k % {40 * (at + 1)} = 0",
        )
    for at, (one, other) in enumerate(combinations(STREAMS, 2)):
        window = f"[RANGE {2 * (at + 1)} SECONDS]"
        yield (
            f"join_{one}{other}",
            f"SELECT {one}.k, {one}.v AS x, {other}.v AS y FROM {one} {window}, {other} {window} "
            f"WHERE {one}.k = {other}.k AND {one}.v % {at + 1} = 0",
        )
    for name in STREAMS[:2]:
        yield (
            f"alone_{name}",
            f"SELECT k, v FROM {name} [RANGE 5 SECONDS SLIDE 5 SECONDS] "
            f"WHERE k NOT IN (SELECT k FROM c [RANGE 5 SECONDS SLIDE 5 SECONDS])",
        )


@dataclass(frozen=True)
class Waited:
    """Of one policy: slowdowns of all results, and the longest response of each unit."""

    average: float
    l2: float
    most: float
    longest: float
    seconds: float


def declare(opened: Headwater, policy: str, at_once: int) -> None:
    for name in STREAMS:
        opened.execute(f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts FROM CLIENT")
    opened.execute(";".join(f"CREATE QUERY {name} AS {text}" for name, text in queries()))
    opened.execute(f"SET SCHEDULER = '{policy}'; SET max_concurrency = {at_once}")
    if len(opened.catalog.units()) != 20:
        raise Differ(f"the queries run in {len(opened.catalog.units())} units, not in 20")


def push(opened: Headwater, number: int, size: int) -> None:
    for name in STREAMS:
        found = rows(
            100 * number + ord(name), size, KEYS, START_SECOND + number, START_SECOND + number + 1
        )
        insert(opened, name, found)


def ideals(spark: SparkSession, folder: Path, size: int) -> dict[str, float]:
    """The seconds of a small step of each query's unit, with nothing else at work."""
    with state(spark, folder) as opened:
        declare(opened, "fcfs", 1)
        for number in range(12):
            push(opened, number, size // 10)
            while opened.engine.tick():
                pass
        check_units(opened)
        found = {}
        for name, _ in queries():
            values = opened.catalog.statistics(opened.query(name).row.unit_id)
            found[name] = values["step_seconds"].value
        return found


def measure(
    spark: SparkSession, folder: Path, policy: str, at_once: int, size: int, ideal: dict[str, float]
) -> tuple[Waited, dict[str, pa.Table]]:
    """All the bursts under one policy."""
    with state(spark, folder) as opened:
        declare(opened, policy, at_once)

        def bursts() -> None:
            for burst in range(BURSTS):
                for number in range(PUSHES):
                    push(opened, burst * PUSHES + number, size)
                    time.sleep(0.5)
                time.sleep(PAUSE)

        feeding = Thread(target=bursts)
        begun = time.monotonic()
        feeding.start()
        while feeding.is_alive():
            if not opened.engine.tick():
                time.sleep(0.05)
        feeding.join()
        opened.execute(";".join(f"END STREAM {name}" for name in STREAMS))
        while opened.engine.tick():
            pass
        seconds = time.monotonic() - begun
        check_units(opened)
        results = {name: opened.query(name).arrow() for name, _ in queries()}
        return _waited(opened, ideal, seconds), results


def _waited(opened: Headwater, ideal: dict[str, float], seconds: float) -> Waited:
    total = squares = most = longest = count = 0.0
    for name, _ in queries():
        found = opened.catalog.statistics(opened.query(name).row.unit_id)
        if "response_sum" not in found:
            raise Differ(f"{name} has told nothing")
        count += found["rows_out"].value
        total += found["response_sum"].value / ideal[name]
        squares += found["response_squares"].value / ideal[name] ** 2
        most = max(most, found["response_most"].value / ideal[name])
        longest = max(longest, found["response_most"].value)
    return Waited(total / count, math.sqrt(squares), most, longest, seconds)


def _same(one: dict[str, pa.Table], other: dict[str, pa.Table]) -> str | None:
    """The name of a query whose results differ, if there is one."""
    for name, table in one.items():
        order = [(column, "ascending") for column in table.column_names]
        if not table.sort_by(order).equals(other[name].sort_by(order)):
            return name
    return None


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=4_000, help="a push of a stream")
    options.add_argument("--at-once", type=int, default=2, help="units that step together")
    options.add_argument("--policies", default=",".join(POLICIES))
    options.add_argument(
        "--repeat", type=int, default=2, help="times, every other one in the opposite order"
    )
    chosen = options.parse_args()
    spark = session()
    found: dict[str, list[Waited]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            ideal = ideals(spark, folder / "ideal", chosen.rows)
            measure(spark, folder / "warm", "fcfs", chosen.at_once, chosen.rows, ideal)
            first: dict[str, pa.Table] | None = None
            for turn in range(chosen.repeat):
                order = chosen.policies.split(",")[:: -1 if turn % 2 else 1]
                for policy in order:
                    at = folder / f"{policy} {turn}"
                    waited, results = measure(spark, at, policy, chosen.at_once, chosen.rows, ideal)
                    found.setdefault(policy, []).append(waited)
                    first = results if first is None else first
                    if (name := _same(first, results)) is not None:
                        raise Differ(f"{name} has other results under {policy}")
        except Differ as error:
            print(f"no ratio: {error}")
            return 1
    means = {policy: _mean(runs) for policy, runs in found.items()}
    for policy, runs in found.items():
        single = ", ".join(f"{one.average:.1f}" for one in runs)
        print(f"{policy:<10} average slowdown of each run: {single}")
    print(f"{'policy':<10} {'average':>9} {'l2 norm':>11} {'maximum':>9} {'longest':>9} {'all':>7}")
    for policy, w in means.items():
        print(
            f"{policy:<10} {w.average:>9.2f} {w.l2:>11,.0f} {w.most:>9.1f} "
            f"{w.longest:>7.1f} s {w.seconds:>5.0f} s"
        )
    base = means["fcfs"]
    told = ", ".join(
        f"{policy} {w.average / base.average:.2f} (l2 norm {w.l2 / base.l2:.2f})"
        for policy, w in means.items()
        if policy != "fcfs"
    )
    print(f"ratio: average slowdown by that of first come, first served: {told}")
    return 0


def _mean(runs: list[Waited]) -> Waited:
    first = runs[0]
    names = ("average", "l2", "most", "longest", "seconds")
    return replace(first, **{n: sum(getattr(one, n) for one in runs) / len(runs) for n in names})


if __name__ == "__main__":
    sys.exit(main())
