"""The load of random queries on Spark: as the cost model predicts it, and as it is measured.

The rule, which was written before the first run: a query runs alone over generated streams, a file is a
step, and its measured load is the median CPU time of the last steps. The prediction `calibrated` knows
the rates of the streams and what `headwater calibrate` measured; `five steps` knows what the first
five steps took. The error of a prediction is the factor by which it is too high or too low. Medians
over all queries have to be at most 2 and 1.3.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from _common import session
from headwater.algebra.canonical import canonicalize
from headwater.cost.line import fit_line
from headwater.cost.model import CostModel, StreamModel
from headwater.cost.operators import CostTable, read_costs
from headwater.cost.provenance import Provenance, declared
from headwater.cql import CreateQuery, parse
from headwater.reuse import SharingKind, minimal_operator, signature_of
from headwater.reuse.load import operator_load
from headwater.runtime.calibration.calibrate import calibrate
from headwater.runtime.calibration.trials import run_statements, stream_declaration, write_stream

COLUMNS = {"k": 500, "g": 20, "v": 1_000_000}
RATES = {"a": 40, "b": 100}
STEP_SECONDS = 10
FIRST, LAST = 5, 3
"""How many steps a prediction knows, and over how many later ones the load is measured."""

BOUNDS = [
    "{s}.g = {n}",
    "{s}.g < {n}",
    "{s}.k = {n}",
    "{s}.v > {n}00000",
    "{s}.v % 7 = 3",
    "{s}.g IN ({n}, {m}, 19)",
]


def random_text(rng: random.Random) -> str:
    """A selection, a join, or groups of one of these."""
    bounds = [
        rng.choice(BOUNDS).format(s=s, n=rng.randrange(9), m=rng.randrange(9, 19))
        for s in rng.sample(["a", "b"], 2)
    ]
    shape = rng.choice(["select", "join", "join", "group", "group"])
    size = rng.choice([5, 20, 60])
    if shape == "join":
        conditions = ["a.k = b.k", *rng.sample(bounds, rng.randrange(3))]
        windows = [f"{s} [RANGE {rng.choice([5, 20, 60])} SECONDS]" for s in "ab"]
        return f"SELECT a.v, b.v AS w FROM {', '.join(windows)} WHERE {' AND '.join(conditions)}"
    own = [bound for bound in bounds if bound.startswith("a") or "a." in bound][: rng.randrange(2)]
    where = f" WHERE {' AND '.join(own)}" if own else ""
    if shape == "select":
        return f"SELECT a.k, a.v FROM a{where}"
    slide = rng.choice([5, 10])
    key = rng.choice(["g", "k"])
    return (
        f"SELECT a.{key}, COUNT(*) AS n, SUM(a.v) AS t FROM "
        f"a [RANGE {size} SECONDS SLIDE {slide} SECONDS]{where} GROUP BY a.{key}"
    )


def measure(
    spark: SparkSession, folder: Path, streams: Path, text: str
) -> list[tuple[float, float]]:
    """Rows and CPU seconds of each step of a query that runs alone."""
    names = [name for name in "ab" if f" {name} " in f"{text} ".replace("FROM a ", "FROM a  ")]
    statements = [stream_declaration(name, COLUMNS, streams / name) for name in names]
    statements += ["SET rows_per_step = 1", f"CREATE QUERY q AS {text}"]
    with run_statements(spark, folder, statements) as state:
        (unit,) = state.catalog.units()
        profile = state.catalog.profile(unit.id)
    return [] if profile is None else [(rows, cpu) for rows, cpu in profile.value["work"]]


def predict(text: str, costs: CostTable) -> float:
    """CPU seconds of a step, by rates that are declared and costs that were calibrated."""
    declared_streams = "; ".join(
        f"CREATE STREAM {name} ({', '.join(f'{c} INT' for c in COLUMNS)}, ts TIMESTAMP) "
        "TIMESTAMP BY ts FROM CLIENT"
        for name in RATES
    )
    *_, statement = parse(f"{declared_streams}; CREATE QUERY q AS {text};")
    assert isinstance(statement, CreateQuery)
    signature = signature_of(canonicalize(statement.query))
    assert signature.kind is not SharingKind.EXACT
    model = CostModel(
        {name: StreamModel(declared(rate)) for name, rate in RATES.items()},
        costs=costs,
        costs_known=Provenance.CALIBRATED,
        steps_per_second=declared(1 / STEP_SECONDS),
    )
    return operator_load(minimal_operator(signature), model).cpu * STEP_SECONDS


def factor(predicted: float, measured: float) -> float:
    return max(predicted / measured, measured / predicted)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--queries", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--costs", type=Path, help="a costs.toml; measured now if not given")
    options.add_argument("--minutes", type=float, default=1e9, help="begin no query after these")
    options.add_argument("--rows", type=int, default=150_000, help="of a stream, to calibrate")
    chosen = options.parse_args()
    spark = session()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    costs = (
        calibrate(spark, chosen.rows, report=lambda words: print(words, flush=True))
        if chosen.costs is None
        else read_costs(chosen.costs)
    )
    for kind, cost in costs.costs.items():
        print(f"{kind}: {cost.per_tuple * 1e6:.2f} us, {cost.per_result * 1e6:.2f} us a result")
    rng = random.Random(chosen.seed)
    errors: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        streams = Path(folder) / "streams"
        files = FIRST + LAST + 1  # the first step compiles what the others reuse
        for name, rate in RATES.items():
            rows = rate * STEP_SECONDS * files
            write_stream(spark, streams / name, COLUMNS, rows, rate, files)
        until = time.monotonic() + 60 * chosen.minutes
        while len(errors) < chosen.queries and time.monotonic() < until:
            text = random_text(rng)
            work = measure(spark, Path(folder) / f"state {len(errors)}", streams, text)
            if len(work) <= FIRST:
                print(f"only {len(work)} steps: {text}", flush=True)
                continue
            measured = median(cpu for _, cpu in work[FIRST:][-LAST:])
            usual_rows = median(count for count, _ in work[FIRST:][-LAST:])
            fixed, per_row = fit_line(work[1:FIRST])
            before, after = predict(text, costs), fixed + per_row * usual_rows
            errors.append((factor(before, measured), factor(after, measured)))
            print(
                f"measured {measured:.3f} s, calibrated {before:.3f} ({errors[-1][0]:.2f}), "
                f"five steps {after:.3f} ({errors[-1][1]:.2f}): {text}",
                flush=True,
            )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    calibrated, known = (median(column) for column in zip(*errors, strict=True))
    print(
        f"ratio: {calibrated:.2f} after calibrate, {known:.2f} after five steps, median error factors "
        f"of {len(errors)} queries"
    )
    return 0 if calibrated <= 2 and known <= 1.3 else 1


if __name__ == "__main__":
    sys.exit(main())
