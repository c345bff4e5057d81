"""Whether the choice to share is right: random mixes of queries, shared as chosen and each alone.

The rule: both sides read the same files in the same steps, in turns of who runs first, and their rows
are equal. What a side costs is the CPU time of its steps. Sharing is right in a mix if it costs at
most a tenth more than separate units; it has to be in every mix. A first side that is thrown away warms
Java up.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from _common import session
from headwater.runtime.calibration.trials import run_statements, stream_declaration, write_stream
from predicted_load import COLUMNS, RATES, STEP_SECONDS, random_text

FILES = 6
MOST = 1.1
"""By what factor sharing may cost more than separate units."""

Side = tuple[float, int, dict[str, Counter[tuple[object, ...]]]]
"""The CPU seconds of steps, the units, and the rows of each query."""


def run_side(spark: SparkSession, folder: Path, streams: Path, mode: str, texts: list[str]) -> Side:
    statements = [stream_declaration(name, COLUMNS, streams / name) for name in RATES]
    statements += ["SET rows_per_step = 1", f"SET sharing = '{mode}'"]
    statements += [f"CREATE QUERY q{n} AS {text}" for n, text in enumerate(texts)]
    with run_statements(spark, folder, statements) as state:
        units = state.catalog.units()
        stored = [state.catalog.statistic(unit.id, "cpu_seconds") for unit in units]
        seconds = sum(value.value for value in stored if value is not None)
        rows = {
            f"q{n}": Counter(
                tuple(row.values()) for row in state.query(f"q{n}").arrow().to_pylist()
            )
            for n in range(len(texts))
        }
    return seconds, len(units), rows


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mixes", type=int, default=20)
    options.add_argument("--queries", type=int, default=6)
    options.add_argument("--seed", type=int, default=101)
    chosen = options.parse_args()
    spark = session()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        streams = Path(folder) / "streams"
        for name, rate in RATES.items():
            write_stream(spark, streams / name, COLUMNS, rate * STEP_SECONDS * FILES, rate, FILES)
        for mix in range(chosen.mixes + 1):
            rng = random.Random(chosen.seed + mix)
            texts = [random_text(rng) for _ in range(chosen.queries)]
            modes = ["all", "none"] if mix % 2 else ["none", "all"]
            sides = {
                mode: run_side(spark, Path(folder) / f"{mix} {mode}", streams, mode, texts)
                for mode in modes
            }
            (shared, units, rows), (alone, many, same) = sides["all"], sides["none"]
            if rows != same:
                print(f"mix {mix}: rows differ")
                return 1
            if mix:
                ratios.append(shared / alone)
            print(
                f"{'mix' if mix else 'warming,'} {mix}: {shared:.1f} s in {units} units, "
                f"{alone:.1f} s in {many}: {shared / alone:.2f}",
                flush=True,
            )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        f"ratio: {max(ratios):.2f} at worst, median {median(ratios):.2f}, of shared CPU to separate"
    )
    return 0 if max(ratios) <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
