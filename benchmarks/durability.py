"""What it costs that files are synced before each commit, and compared with their checksums at each read.

A window join and a grouped window over many small files, so that steps are many and short: with all of
it, without syncing, and without comparing. The results have to be equal. The last line is the ratio of
the time with both to the time without either.

    python benchmarks/durability.py [--rows N] [--files N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _common import Differ, check_units, declare, fingerprint, generate, session, settled, state
from headwater.runtime.storage import integrity

QUERIES = {
    "joined": "SELECT a.k, a.v, b.v AS w FROM a [RANGE 2 SECONDS] a, b [RANGE 2 SECONDS] b WHERE a.k = b.k",
    "summed": "SELECT k, COUNT(*) AS n, SUM(v) AS w FROM a [RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k",
}
COLUMNS = {"joined": "k, v, w, _tau", "summed": "k, n, w, _tau"}


@contextmanager
def unsynced() -> Iterator[None]:
    with patch("headwater.runtime.catalog.log.make_durable", lambda paths: list(paths)):
        yield


@contextmanager
def uncompared() -> Iterator[None]:
    with patch.object(integrity, "_verify_content", lambda file, size, contents: None):
        yield


WAYS = {
    "neither": (unsynced, uncompared),
    "compared": (unsynced,),
    "synced": (uncompared,),
    "both": (),
}


def run(spark: Any, folder: Path, way: str, number: int) -> tuple[float, dict[str, object]]:
    """The seconds for all files, and what the queries gave."""
    with ExitStack() as stack:
        for without in WAYS[way]:
            stack.enter_context(without())
        opened = stack.enter_context(state(spark, folder / f"state {way} {number}"))
        for name in "ab":
            declare(opened, folder, name)
        for name, query in QUERIES.items():
            opened.execute(f"CREATE QUERY {name} AS {query}")
        seconds = settled(opened)
        check_units(opened)
        found = {
            name: fingerprint(spark.createDataFrame(opened.query(name).arrow()), columns)
            for name, columns in COLUMNS.items()
        }
        return seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=40_000, help="tuples of a stream")
    parser.add_argument("--files", type=int, default=40, help="files of a stream, one a step")
    parser.add_argument("--runs", type=int, default=3, help="runs of each way; the best counts")
    given = parser.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        generate(folder, "ab", given.rows, given.files, rate=1_000, keys=200)
        run(spark, folder, "both", -1)  # what is compiled first is slow for whoever comes first
        best: dict[str, float] = {}
        results = []
        for number in range(given.runs):
            for way in WAYS:
                seconds, found = run(spark, folder, way, number)
                best[way] = min(seconds, best.get(way, seconds))
                results.append(found)
        if any(found != results[0] for found in results):
            raise Differ("the results are not the same")
    for way, seconds in best.items():
        print(f"{way:9} {seconds:6.2f} s, {1000 * seconds / given.files:6.1f} ms a file")
    spark.stop()
    print(f"durability: {best['both'] / best['neither']:.3f} times as long as without")


if __name__ == "__main__":
    main()
