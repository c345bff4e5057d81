"""Measures what operators cost on this machine, by queries of each kind over generated streams.

A trial is a query for which the rows in and out of each operator are known. It runs over few tuples and
over many; the difference, in CPU seconds of its steps, is the cost of its operators, and least squares
over all trials give the cost of each kind. What does not grow with tuples cancels out; it is measured
by steps that read next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from headwater.cost.operators import SECOND_COSTS, CostTable, OperatorCost
from headwater.runtime.calibration.trials import (
    run_statements,
    stream_declaration,
    write_stream,
)

ROWS = 150_000
"""Tuples of a stream in a large run; a small one has a tenth."""

RATE = 1_000
"""Tuples of a stream in a second of event time."""

COLUMNS = {"k": 1_000_000, "g": 100, "v": 1_000_000_000}
MIN_SECONDS = 1e-3
"""Shorter times are noise: relative errors of trials below this count as if they took this long."""

Counts = Mapping[str, tuple[float, float]]
"""For each kind of operator the rows in and the rows out."""


@dataclass(frozen=True)
class Trial:
    """A query, and the rows of its operators when each of its streams has n tuples."""

    query: str
    counts: Callable[[float], Counts]
    share: float = 1.0
    """The share of the tuples of other trials that it reads, for operators that are slow."""


def _join_trial(window: float, keys: int) -> Trial:
    """Two streams; a tuple meets those of the other's window that have its key."""
    met = 2 * window * RATE / keys
    return Trial(
        f"SELECT a.v, b.v AS w FROM a [RANGE {window:g} SECONDS], b [RANGE {window:g} SECONDS] "
        f"WHERE a.k % {keys} = b.k % {keys}",
        lambda n: {"emit": (0, 2 * n), "join": (2 * n, met * n), "project": (met * n, 0)},
    )


def _per_instant_trial(kind: str, text: str) -> Trial:
    """Two streams by the second; every tuple of the first gives one result."""
    return Trial(
        text,
        lambda n: {"emit": (0, 2 * n), kind: (2 * n, n), "project": (n, 0)},
        share=0.25,
    )


_CONDITIONS = " AND ".join(f"a.v % {n} < {n}" for n in (101, 103, 107, 109, 113, 127, 131, 137))
_WINDOW = "[RANGE 1 SECOND SLIDE 1 SECOND]"
_COMPUTED = "a.k + a.g AS x, a.v * 2 AS y, concat('text ', CAST(a.g AS STRING)) AS z, a.v % 7 AS w, a.g * 3 AS u"

TRIALS: tuple[Trial, ...] = (
    Trial("SELECT k FROM a WHERE v < 0", lambda n: {"emit": (0, n), "select": (n, 0)}),
    Trial(
        f"SELECT k FROM a WHERE {_CONDITIONS} AND v < 0",
        lambda n: {"emit": (0, n), "select": (9 * n, 0)},
    ),
    Trial("SELECT k, v FROM a", lambda n: {"emit": (0, n), "project": (n, 0)}),
    Trial(f"SELECT {_COMPUTED} FROM a", lambda n: {"emit": (0, n), "project": (n, 0)}),
    _join_trial(1, 100_000),
    _join_trial(10, 10_000),
    _join_trial(10, 2_000),
    Trial(
        f"SELECT g, COUNT(*) AS n, SUM(v) AS t FROM a {_WINDOW} GROUP BY g",
        lambda n: {"emit": (0, n), "aggregate": (n, n / 10)},
    ),
    Trial(
        f"RSTREAM(SELECT DISTINCT g FROM a {_WINDOW})",
        lambda n: {"emit": (0, n), "distinct": (n, n / 10)},
    ),
    Trial(
        f"RSTREAM(SELECT k, v FROM a {_WINDOW} UNION ALL SELECT k, v FROM b {_WINDOW})",
        lambda n: {"emit": (0, 2 * n), "union": (2 * n, 2 * n)},
        share=0.25,
    ),
    _per_instant_trial(
        "semijoin",
        f"RSTREAM(SELECT a.k, a.v FROM a {_WINDOW} WHERE NOT EXISTS "
        f"(SELECT b.k FROM b {_WINDOW} WHERE b.k = a.k))",
    ),
    _per_instant_trial(
        "outerjoin",
        f"RSTREAM(SELECT a.v, b.v AS w FROM a {_WINDOW} LEFT JOIN b {_WINDOW} ON a.k = b.k)",
    ),
    _per_instant_trial(
        "fulljoin",
        f"RSTREAM(SELECT a.v, b.v AS w FROM a {_WINDOW} FULL JOIN b {_WINDOW} ON a.k = b.k)",
    ),
)


STEP_TRIALS = (TRIALS[2], TRIALS[4], TRIALS[7])
"""A query of one source, one that joins two, and one that keeps panes."""

STEP_ROWS, STEP_FILES, STEP_RATE = 320, 8, 10
"""Tuples of a stream, files that are each a step, and tuples in a second, for what a step costs however
little it reads: so few that each step has some seconds of event time, and windows that slide emit."""


def calibrate(
    spark: SparkSession,
    rows: int = ROWS,
    repeats: int = 2,
    trials: Sequence[Trial] = TRIALS,
    report: Callable[[str], None] = lambda text: None,
) -> CostTable:
    """The cost of each kind of operator in seconds of a core, from trials with `rows` tuples."""
    features: list[Counts] = []
    seconds: list[float] = []
    with TemporaryDirectory(prefix="headwater-calibrate-") as folder:
        runs = _TrialRuns(spark, Path(folder))
        for number, trial in enumerate(trials, 1):
            few, many = int(rows * trial.share / 10), int(rows * trial.share)
            report(f"{number} of {len(trials)}: {trial.query}")
            # The least of several runs: whatever else the machine does only adds time.
            least = {n: min(runs.seconds(trial, n) for _ in range(repeats)) for n in (few, many)}
            seconds.append(max(least[many] - least[few], 0.0))
            features.append(trial.counts(many - few))
        fixed = [min(runs.step_seconds(t) for _ in range(repeats)) for t in STEP_TRIALS]
    return with_step_costs(fit_costs(features, seconds), fixed)


def with_step_costs(costs: CostTable, fixed: Sequence[float]) -> CostTable:
    """The costs with those of a step, from the fixed seconds of a step of one source, of one that joins
    two, and of one that keeps panes."""
    one, two, panes = fixed
    # A step of n sources has n terms of n sources each: see `CostModel.step_seconds`.
    term = max(0.0, (two - one) / 3)
    step = max(0.0, one - term)
    return CostTable(
        {
            **costs.costs,
            # What a trial reads are tuples of a log; its results cannot be told from their writing.
            # Too fast to be measured over so few tuples is not free.
            "read": OperatorCost(costs["emit"].per_result or SECOND_COSTS["read"].per_tuple),
            "write": OperatorCost(),
            "step": OperatorCost(step),
            "term": OperatorCost(term),
            "panes": OperatorCost(max(0.0, panes - one)),
        }
    )


def fit_costs(features: Sequence[Counts], seconds: Sequence[float]) -> CostTable:
    """The costs that explain the seconds best, none of them below zero; relative errors count."""
    kinds = sorted({kind for counts in features for kind in counts})
    table = np.array(
        [[x for k in kinds for x in trial_counts.get(k, (0, 0))] for trial_counts in features],
        float,
    )
    weights = 1 / np.maximum(np.array(seconds), MIN_SECONDS)
    costs = _solve_nonnegative(table * weights[:, None], np.array(seconds) * weights)
    operator_costs = {
        kind: OperatorCost(float(costs[2 * n]), float(costs[2 * n + 1]))
        for n, kind in enumerate(kinds)
    }
    return CostTable({**SECOND_COSTS.costs, **operator_costs})


def _solve_nonnegative(table: Any, target: Any) -> Any:
    """Least squares with values that are not negative (Lawson and Hanson): values are released from
    zero one by one, the one with the largest gain first, and fixed again when they would fall below."""
    # Columns are scaled to length 1, as counts of trials differ by orders of magnitude.
    sizes = np.maximum(np.sqrt((table**2).sum(axis=0)), 1e-300)
    scaled = table / sizes
    values = np.zeros(table.shape[1])
    free = np.zeros(table.shape[1], bool)
    for _ in range(10 * len(values)):
        gain = np.where(free, 0.0, scaled.T @ (target - scaled @ values))
        if gain.max() < 1e-12:
            break
        free[gain.argmax()] = True
        while free.any():
            solution = np.zeros(len(values))
            solution[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            below = free & (solution <= 0)
            if not below.any():
                values = solution
                break
            fraction = (values[below] / (values[below] - solution[below] + 1e-300)).min()
            values = values + fraction * (solution - values)
            free &= values > 1e-15
            values[~free] = 0.0
    return values / sizes


@dataclass
class _TrialRuns:
    """Runs of trials over streams of generated files, which are written when first needed."""

    spark: SparkSession
    folder: Path
    count: int = 0

    def seconds(self, trial: Trial, rows: int) -> float:
        """The CPU seconds of the steps of one run."""
        return self._statistic(trial, self._folder(rows, 1, RATE), "cpu_seconds")

    def step_seconds(self, trial: Trial) -> float:
        """The CPU seconds of a step that reads next to nothing."""
        few = "SET rows_per_step = 1"  # at least a segment, and no more
        folder = self._folder(STEP_ROWS, STEP_FILES, STEP_RATE)
        return self._statistic(trial, folder, "cpu_fixed", few)

    def _statistic(self, trial: Trial, streams: Path, name: str, *settings: str) -> float:
        self.count += 1
        sources = [source for source in "ab" if f" {source} " in f"{trial.query} "]
        statements = [stream_declaration(s, COLUMNS, streams / s) for s in sources]
        statements += [*settings, f"CREATE QUERY q AS {trial.query}"]
        with run_statements(self.spark, self.folder / f"state {self.count}", statements) as state:
            (unit,) = state.catalog.units()
            measured = state.catalog.statistic(unit.id, name)
        return 0.0 if measured is None else measured.value

    def _folder(self, rows: int, files: int, rate: int) -> Path:
        """The folder of streams of so many tuples, which are written when they are first needed."""
        folder = self.folder / f"{rows} in {files} at {rate}"
        for name in "ab":
            if not (folder / name).exists():
                write_stream(self.spark, folder / name, COLUMNS, rows, rate, files)
        return folder
