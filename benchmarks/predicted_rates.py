"""Random queries on Spark: the rates that the model predicts from measured costs, and those measured.

`headwater reproduce whitewater-prediction` shows the same as a plot.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from _common import session
from headwater.reproduce.on_spark import compare_predictions, rank_correlation
from headwater.runtime.calibration.calibrate import calibrate


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--queries", type=int, default=20)
    options.add_argument("--rows", type=int, default=200_000, help="of each stream")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    spark, cores = session(), os.cpu_count() or 1
    costs = calibrate(spark, report=lambda words: print(words, flush=True))
    for kind, cost in costs.costs.items():
        print(
            f"{kind}: {cost.per_tuple * 1e6:.3f} us a tuple, {cost.per_result * 1e6:.3f} us a result"
        )
    with tempfile.TemporaryDirectory() as folder:
        found = compare_predictions(
            spark, Path(folder), chosen.queries, chosen.rows, chosen.seed, costs, cores
        )
    for text, predicted, measured in sorted(found, key=lambda one: one[1]):
        print(f"predicted {predicted:>9,.0f}, measured {measured:>9,.0f} tuples/s: {text}")
    rank = rank_correlation([p for _, p, _ in found], [m for _, _, m in found])
    print(f"ratio: rank correlation {rank:.2f} of predicted and measured rates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
