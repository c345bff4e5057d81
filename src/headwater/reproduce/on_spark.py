"""WhiteWater in practice: section 6.4 on Spark, and whether the model predicts what Spark does.

The three-stream query runs as it is written, selections after both joins; then with the selections
moved by Spark, which leaves the joins where they are; then in the order that Headwater finds: the same
files, equal rows. Then random queries run one by one, and their measured rates are put
beside those that the model predicts from costs that were measured before (`headwater calibrate`).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import correlation
from tempfile import TemporaryDirectory
from typing import Any

from headwater.algebra.catalog import Namespace
from headwater.cost.operators import CostTable
from headwater.cql import CreateStream, parse, parse_query
from headwater.errors import RuntimeFailure
from headwater.network.model import Network, Site
from headwater.plan.throughput.model import ThroughputProblem
from headwater.plan.throughput.polynomial import value
from headwater.plan.throughput.profile import WorkloadProfile, build_problem
from headwater.plan.throughput.quality import constraints
from headwater.plan.throughput.search import SEARCHES, run_search
from headwater.reproduce.figure import Claim, FigureSettings, Plot, PlotLine, Report, ReportTable
from headwater.runtime.calibration.calibrate import calibrate
from headwater.runtime.calibration.trials import (
    ColumnValues,
    run_statements,
    stream_declaration,
    write_stream,
)
from headwater.runtime.spark.session import derive_session, open_session

RULES = "org.apache.spark.sql.catalyst.optimizer"
PUSHDOWN_RULES = ("PushDownPredicates", "PushPredicateThroughJoin", "InferFiltersFromConstraints")
"""The rules by which Spark moves selections."""

THREE_STREAM_QUERY = """SELECT j.a, j.b, j.c, j.d FROM (
  SELECT ab.a, ab.b, r.c, r.d FROM ab [RANGE 5 SECONDS] JOIN (
    SELECT bc.b, bc.c, cd.d FROM bc [RANGE 5 SECONDS] JOIN cd [RANGE 5 SECONDS] ON bc.c = cd.c
  ) r ON ab.b = r.b) j
WHERE j.d = 0 AND j.a = 0"""

WRITTEN, MOVED, OPTIMISED = (
    "as written, selections after the joins",
    "as written, selections moved by Spark",
    "as optimised",
)


@dataclass(frozen=True)
class TimedPlan:
    """A way to run the three-stream query: the tuples a second of each stream, the seconds in all and
    of the joins' own steps, without ingestion, and the number of results."""

    name: str
    rate: float
    seconds: float
    steps: float
    results: int


def run_three_streams(
    spark: Any, folder: Path, rows: int, files: int = 4, rate: int = 2_000, meets: int = 10
) -> list[TimedPlan]:
    """The three ways over the same files; raises RuntimeFailure if their results differ.

    The join by c is 100 times as selective as that by b, by which a tuple meets so many others; each
    selection lets one tuple of 100 pass.
    """
    # A window holds 5 seconds of tuples, so with this many keys a tuple meets `meets` others.
    keys = max(1, 5 * rate // meets)
    values = {"a": 100, "b": keys, "c": 100 * keys, "d": 100}
    streams = {name: {c: values[c] for c in name} for name in ("ab", "bc", "cd")}
    for name, columns in streams.items():
        write_stream(spark, folder / "warm" / name, columns, rows // 4, rate)
        write_stream(spark, folder / "data" / name, columns, rows, rate, files)
    excluded = ",".join(f"{RULES}.{rule}" for rule in PUSHDOWN_RULES)
    literal = derive_session(spark, "spark.sql.optimizer.excludedRules", excluded)
    sides = (
        (WRITTEN, literal, "written"),
        (MOVED, spark, "written"),
        (OPTIMISED, spark, "throughput"),
    )
    timed_plans: list[TimedPlan] = []
    expected: Counter[Any] | None = None
    for name, session, mode in sides:
        # The first run warms up the JVM and is not counted: its time is overwritten by the second.
        for data in ("warm", "data"):
            statements = [stream_declaration(s, c, folder / data / s) for s, c in streams.items()]
            statements = [
                f"SET optimise = '{mode}'",
                *statements,
                f"CREATE QUERY q AS {THREE_STREAM_QUERY}",
            ]
            started = time.perf_counter()
            with run_statements(session, folder / f"{data} {name}", statements) as opened:
                seconds = time.perf_counter() - started
                profiles = [opened.catalog.profile(unit.id) for unit in opened.catalog.units()]
                steps = sum(sum(p.value["recent"]) for p in profiles if p is not None)
                rows_of = Counter(
                    tuple(row.values()) for row in opened.query("q").arrow().to_pylist()
                )
        if expected is not None and rows_of != expected:
            raise RuntimeFailure(f"{name}: other results than {WRITTEN}")
        expected = rows_of
        timed_plans.append(TimedPlan(name, rows / seconds, seconds, steps, rows_of.total()))
    return timed_plans


# ---- predicted and measured

COLUMNS: ColumnValues = {"k": 100_000, "l": 10_000, "m": 1_000, "g": 100, "h": 10, "i": 2}
RATE = 1_000
"""Tuples of each stream in a second of event time."""


def random_query(rng: random.Random) -> str:
    """A selection, an aggregate, or a join of two or three streams, with or without selections."""
    names = "abc"[: rng.choice((1, 1, 2, 2, 2, 3))]
    chosen = [f"{n}.{rng.choice('ghi')} = 1" for n in names if rng.random() < 0.4]
    if len(names) == 1 and rng.random() < 0.5:
        keys = rng.choice(("g", "h", "i", "g, h"))
        where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
        window = f"[RANGE {rng.choice((1, 5))} SECONDS SLIDE 1 SECOND]"
        return f"SELECT {keys}, COUNT(*) AS n, SUM(k) AS s FROM a {window}{where} GROUP BY {keys}"
    windows = ", ".join(f"{n} [RANGE {rng.choice((1, 5, 20))} SECONDS]" for n in names)
    joins = [f"a.{key} = {n}.{key}" for n in names[1:] for key in [rng.choice("klm")]]
    where = f" WHERE {' AND '.join(joins + chosen)}" if joins + chosen else ""
    items = ", ".join(f"{n}.{c} AS {n}{c}" for n in names for c in rng.sample("klmg", 2))
    return f"SELECT {items} FROM {windows}{where}"


def predict_rate(query: str, costs: CostTable, cores: int) -> float:
    """The tuples per second of each stream that the model lets a number of cores process, of tuples that are
    as dense in time as those that are generated."""
    statements = parse(";".join(stream_declaration(name, COLUMNS, Path(name)) for name in "abc"))
    streams = [s.stream for s in statements if isinstance(s, CreateStream)]
    profile = WorkloadProfile(
        "generated",
        ({name: float(RATE) for name in "abc"},),
        distinct={(name, c): float(n) for name in "abc" for c, n in COLUMNS.items()},
    )
    network = Network((Site("here", cpu=float(cores)),), ())
    parsed = parse_query(query, Namespace.of(streams))
    problem, _ = build_problem([parsed], profile, network, costs)
    return RATE * cores / _cpu_load(problem)


def _cpu_load(problem: ThroughputProblem) -> float:
    """The seconds of cores that a second of streams takes, by the best plan."""
    best = run_search(SEARCHES["portfolio"], problem, seconds=1.0).configuration
    # There is one site, hence one such constraint.
    (cpu,) = [c.load for c in constraints(problem, best) if c.resource == "cpu"]
    # At multiple 1 of the profile; the floor keeps a query without any cost from dividing by 0.
    return max(value(cpu, 1.0), 1e-12)


def measure_rate(spark: Any, folder: Path, query: str, rows: int, number: int) -> float:
    """The tuples per second of each stream that the engine ingests and answers."""
    # Only what the query reads: ingesting the others would count as its time.
    names = [name for name in "abc" if f" {name} [" in query or f"{name}." in query]
    statements = [stream_declaration(name, COLUMNS, folder / str(rows) / name) for name in names]
    statements.append(f"CREATE QUERY q AS {query}")
    started = time.perf_counter()
    with run_statements(spark, folder / f"state {number}", statements):
        return rows / (time.perf_counter() - started)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's; equal values have the mean of their ranks."""
    return correlation(_ranks(left), _ranks(right))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) - 1) / 2 for v in values]


def compare_predictions(
    spark: Any, folder: Path, queries: int, rows: int, seed: int, costs: CostTable, cores: int
) -> list[tuple[str, float, float]]:
    """Random queries with the rates that were predicted and measured."""
    rng = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < queries:
        texts[random_query(rng)] = None
    for name in "abc":
        for size in (rows // 10, rows):
            write_stream(spark, folder / str(size) / name, COLUMNS, size, RATE)
    compared = []
    for number, text in enumerate(texts):
        # A short run first, so that code generation and JIT compilation of the query are not
        # measured.
        measure_rate(spark, folder, text, rows // 10, 2 * number)
        rate = measure_rate(spark, folder, text, rows, 2 * number + 1)
        compared.append((text, predict_rate(text, costs, cores), rate))
    return compared


# ---- the reports


@contextmanager
def _session() -> Iterator[tuple[Any, Path]]:
    spark = open_session(settings={"spark.driver.memory": "4g"})
    try:
        with TemporaryDirectory(prefix="headwater-reproduce-") as folder:
            yield spark, Path(folder)
    finally:
        spark.stop()


def three_streams_report(settings: FigureSettings) -> Report:
    """Section 6.4 on Spark."""
    with _session() as (spark, folder):
        timed_plans = run_three_streams(spark, folder, 40_000 if settings.quick else 400_000)
    first, moved, last = timed_plans
    gain = last.rate / first.rate
    return Report(
        (
            ReportTable(
                "Section 6.4: three streams on Spark",
                (
                    "plan",
                    "tuples/s of each stream",
                    "s",
                    "s in joins",
                    "results",
                    "times as written",
                ),
                tuple(
                    (r.name, r.rate, r.seconds, r.steps, r.results, r.rate / first.rate)
                    for r in timed_plans
                ),
            ),
        ),
        (
            Claim(
                "three streams on Spark, as optimised against as written",
                "4.4x",
                f"{gain:.1f}x; {moved.rate / first.rate:.1f}x by moving selections alone; the joins "
                f"alone {first.steps / last.steps:.1f}x",
                gain >= 4.4,
            ),
        ),
    )


def prediction_report(settings: FigureSettings) -> Report:
    """Whether the model puts queries in the order in which Spark does."""
    cores = os.cpu_count() or 1
    with _session() as (spark, folder):
        costs = calibrate(spark, 20_000 if settings.quick else 150_000)
        rows = 20_000 if settings.quick else 200_000
        compared = compare_predictions(
            spark, folder, 5 if settings.quick else 20, rows, 1, costs, cores
        )
    compared.sort(key=lambda one: one[1])
    rank = rank_correlation([p for _, p, _ in compared], [m for _, _, m in compared])
    points = PlotLine("queries", tuple(p for _, p, _ in compared), tuple(m for _, _, m in compared))
    return Report(
        (
            ReportTable(
                "Rates of random queries, tuples/s of each stream",
                ("query", "predicted", "measured"),
                tuple(compared),
            ),
        ),
        (
            Claim(
                "rank correlation of predicted and measured rates",
                "at least 0.8",
                f"{rank:.2f} over {len(compared)} queries",
                rank >= 0.8,
            ),
        ),
        (
            Plot(
                "whitewater-prediction",
                "Predicted and measured rates",
                "predicted, tuples/s",
                "measured, tuples/s",
                (points,),
                True,
            ),
        ),
    )
