"""Memory and disk while an hour of events is replayed at 100 times its speed.

Two streams feed a join, a sliding aggregate and a window by rows. Each sample is taken after garbage
was collected; what is on its way is still in it, so the least of many samples is compared, once Java
is warm. A run that holds more and more has a ratio well above 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from _common import COLUMNS, START, session, state
from growth import rows
from headwater.runtime.api import Headwater

QUERIES = {
    "joined": """SELECT a.k, a.v AS x, b.v AS y
        FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k""",
    "counted": """RSTREAM(SELECT k, COUNT(*) AS n, SUM(v) AS s
        FROM a [RANGE 5 MINUTES SLIDE 30 SECONDS] GROUP BY k)""",
    "latest": "SELECT k, v FROM b [PARTITION BY k ROWS 1] WHERE v < 100",
}
MEGA = 1_000_000


def held(opened: Headwater) -> tuple[float, float, float]:
    """Megabytes: of Spark's heap after a collection, of Python, and of the log of both streams."""
    jvm = opened.engine.spark._jvm
    assert jvm is not None
    heap = jvm.Runtime.getRuntime()
    for _ in range(3):  # blocks of broadcasts go in a thread, after those who named them
        jvm.System.gc()
        time.sleep(0.3)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    streams = sum(opened.catalog.log_stats(f"stream:{name}").bytes for name in "ab")
    return (
        (heap.totalMemory() - heap.freeMemory()) / MEGA,
        pages * os.sysconf("SC_PAGE_SIZE") / MEGA,
        streams / MEGA,
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=int, default=60, help="of event time")
    options.add_argument("--speed", type=int, default=100)
    options.add_argument("--rate", type=int, default=50, help="tuples a second of event time")
    chosen = options.parse_args()
    spark = session("2g")
    samples: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        seconds = chosen.minutes * 60
        for name in "ab":
            table = rows(ord(name), seconds * chosen.rate, 500, START, START + seconds)
            pq.write_table(table.select(["k", "v", "ts"]), folder / f"{name}.parquet")
        with state(spark, folder / "state") as opened:
            for name in "ab":
                opened.execute(
                    f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts KEEP 1 MINUTE FROM replay("
                    f"path => '{folder / name}.parquet', speed => {chosen.speed})"
                )
            for name, text in QUERIES.items():
                opened.execute(f"CREATE QUERY {name} AS {text}")
            begun = last = time.monotonic()

            def sample() -> None:
                nonlocal last
                if time.monotonic() - last > 4:
                    last = time.monotonic()
                    opened.engine.tidy()
                    samples.append((last - begun, *held(opened)))
                    print(
                        "{:6.0f} s  heap {:6.0f}  Python {:6.0f}  log {:6.1f} MB".format(
                            *samples[-1]
                        ),
                        flush=True,
                    )

            opened.engine.run(until_idle=True, on_tick=sample)
    third = len(samples) // 3
    early, late = samples[third : 2 * third], samples[-third:]
    ratios = [min(s[at] for s in late) / min(s[at] for s in early) for at in (1, 2, 3)]
    print(
        f"ratio: least of the last third of the run to that of its second: heap {ratios[0]:.2f}, "
        f"Python {ratios[1]:.2f}, log {ratios[2]:.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
