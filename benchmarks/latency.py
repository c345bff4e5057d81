"""The time of a small step: 1,000 rows joined with a window, warm, and what it is spent on.

The other side of the ratio is the same micro-batch on Structured Streaming.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _common import START_SECOND, session, state
from growth import DELTA, SECONDS, fill, insert, rows, structured_seconds
from headwater.runtime.metrics.step_meter import STEP_PARTS


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--window", type=int, default=10_000)
    options.add_argument("--steps", type=int, default=25)
    chosen = options.parse_args()
    spark = session()
    keys = max(chosen.window // 10, 100)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds: list[float] = []
        parts: dict[str, list[float]] = {part: [] for part in STEP_PARTS}
        with state(spark, folder / "state") as opened:
            fill(opened, queries=1)
            for name in "ab":
                window = rows(
                    ord(name), chosen.window, keys, START_SECOND, START_SECOND + SECONDS * 0.9
                )
                insert(opened, name, window)
            opened.engine.tick()
            (row,) = opened.catalog.units()
            for step in range(chosen.steps + 5):
                at = START_SECOND + SECONDS * 0.9 + step
                insert(opened, "a", rows(step, DELTA, keys, at, at + 1))
                begun = time.perf_counter()
                opened.engine.step(opened.engine.units.current(row))
                if step >= 5:
                    seconds.append(time.perf_counter() - begun)
                    report = opened.engine.units.current(row).last_report
                    for part in STEP_PARTS:
                        parts[part].append(report.seconds.get(part, 0.0))
        median = statistics.median(seconds)
        print(f"a step of {DELTA:,} rows against {chosen.window:,}: {median:.3f} s at the median")
        for part in STEP_PARTS:
            print(f"  {part:8} {statistics.median(parts[part]):.3f} s")
        theirs = structured_seconds(
            spark, folder / "other", chosen.window, "HDFSBackedStateStoreProvider", steps=9
        )
        print(f"Structured Streaming, default state store: {theirs:.3f} s")
    print(f"ratio: a small step takes {median / theirs:.2f} of Structured Streaming's micro-batch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
