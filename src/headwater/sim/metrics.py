"""What a run is judged by: response time and slowdown of the results, per query and over all.

A tally is a row of sums for each query, so it does not grow with the run; every metric is computed
from it. Over several seeds a metric is its mean with a confidence interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.jit import cached_njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COUNT, RESPONSE, SLOWDOWN, SQUARED_SLOWDOWN, MAX_SLOWDOWN, MAX_RESPONSE = range(6)


def empty_tally(queries: int) -> Floats:
    """A row of sums for each query: results, response, slowdown, its square; the two maxima."""
    return np.zeros((queries, 6))


@cached_njit
def record_result(tally: Floats, query: int, response: float, slowdown: float) -> None:
    """Count a result."""
    row = tally[query]
    row[COUNT] += 1.0
    row[RESPONSE] += response
    row[SLOWDOWN] += slowdown
    row[SQUARED_SLOWDOWN] += slowdown * slowdown
    row[MAX_SLOWDOWN] = max(row[MAX_SLOWDOWN], slowdown)
    row[MAX_RESPONSE] = max(row[MAX_RESPONSE], response)


@dataclass(frozen=True)
class Metrics:
    """Of some results: how many, mean response and slowdown, the maxima, and the l2 norm."""

    results: int
    response: float
    slowdown: float
    max_slowdown: float
    l2: float
    max_response: float


@dataclass(frozen=True)
class SimulationResult:
    """What a run gave: the tally by query, the time it ended, and what it took.

    `executions` counts operator executions, `decisions` choices of the policy, `overhead` the simulated
    time that the choices themselves took.
    """

    tally: Floats
    end_time: float
    executions: int
    decisions: int
    overhead: float = 0.0

    def metrics(self, queries: Sequence[int] | None = None) -> Metrics:
        """Over all results, or over those of some queries."""
        rows = self.tally if queries is None else self.tally[list(queries)]
        count = float(rows[:, COUNT].sum())
        if count == 0:
            return Metrics(0, math.nan, math.nan, math.nan, 0.0, math.nan)
        return Metrics(
            results=int(count),
            response=float(rows[:, RESPONSE].sum()) / count,
            slowdown=float(rows[:, SLOWDOWN].sum()) / count,
            max_slowdown=float(rows[:, MAX_SLOWDOWN].max()),
            # Not divided by the count: it grows with the results, so only runs of one workload compare.
            l2=math.sqrt(float(rows[:, SQUARED_SLOWDOWN].sum())),
            max_response=float(rows[:, MAX_RESPONSE].max()),
        )


# ---- over seeds


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean and how far the true mean may be from it."""

    mean: float
    margin: float

    @property
    def low(self) -> float:
        return self.mean - self.margin

    @property
    def high(self) -> float:
        return self.mean + self.margin


def confidence_interval(values: Sequence[float], confidence: float = 0.95) -> ConfidenceInterval:
    """The mean of independent values with its confidence interval, by Student's t."""
    count = len(values)
    mean = math.fsum(values) / count
    # One value says nothing about the spread.
    if count == 1:
        return ConfidenceInterval(mean, math.inf)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return ConfidenceInterval(
        mean, student_t_quantile(count - 1, confidence) * math.sqrt(variance / count)
    )


def student_t_quantile(freedom: int, confidence: float) -> float:
    """The t within which Student's distribution has that much of its mass around zero."""
    low, high = 0.0, 1.0
    while _student_t_mass(high, freedom) < confidence:
        high *= 2
    # Sixty halvings reach the precision of a float.
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _student_t_mass(middle, freedom) < confidence else (low, middle)
        )
    return high


def _student_t_mass(t: float, freedom: int) -> float:
    """The mass between -t and t, exact: a finite sum in the angle of t."""
    # Abramowitz and Stegun, 26.7.3 and 26.7.4.
    angle = math.atan(t / math.sqrt(freedom))
    term = math.cos(angle) if freedom % 2 else 1.0
    total = 0.0
    for step in range(2 + freedom % 2, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (step - 1) / step
    if freedom % 2 == 0:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + math.sin(angle) * total)
