"""The three-stream query of WhiteWater's section 6.4 on Spark: as written against as optimised.

`headwater reproduce whitewater-run` shows the same. Refuses to report if results differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from _common import session
from headwater.errors import RuntimeFailure
from headwater.reproduce.on_spark import run_three_streams


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=400_000, help="of each stream")
    options.add_argument("--files", type=int, default=4, help="micro-batches of each stream")
    options.add_argument("--meets", type=int, default=10, help="tuples that one meets by b")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = run_three_streams(
                session(), Path(folder), chosen.rows, chosen.files, meets=chosen.meets
            )
        except RuntimeFailure as error:
            print(f"no ratio: {error}")
            return 1
    for one in found:
        print(
            f"{one.name}: {one.rate:,.0f} tuples/s of each stream "
            f"({one.seconds:.1f} s, of which {one.steps:.1f} s in joins; {one.results:,} results)"
        )
    first, moved, last = (one.rate for one in found)
    print(f"joins alone, without taking tuples in: {found[0].steps / found[2].steps:.2f}x")
    print(f"moving selections alone, which is Spark's: {moved / first:.2f}x")
    print(
        f"ratio: three streams at {last / first:.2f}x the rate of the query as written (paper: 4.4x)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
