"""Estimates for a segment: the operators that a tuple has yet to pass on its way to the result.

Three numbers are enough for every policy: results per tuple, the expected cost of a tuple,
and the time of a result that never waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import ScheduleError


@dataclass(frozen=True)
class WorkEstimate:
    """Results per tuple, expected cost of a tuple, and ideal time of a result."""

    selectivity: float
    cost: float
    ideal: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.selectivity) and self.selectivity >= 0):
            raise ScheduleError(f"a selectivity is a number from 0 on, not {self.selectivity}")
        for name, value in (("cost", self.cost), ("ideal time", self.ideal)):
            if not (math.isfinite(value) and value > 0):
                raise ScheduleError(f"the {name} of a segment is a number above 0, not {value}")


def estimate_chain(
    operators: Sequence[tuple[float, float]], ideal: float | None = None
) -> WorkEstimate:
    """A segment of operators, each a cost and a selectivity, the first one first.

    S = s1 s2 ..., C = c1 + s1 c2 + s1 s2 c3 + ..., T = c1 + c2 + c3 + ... The segment of an operator
    within a query keeps the ideal time of the whole query, which is then given.
    """
    selectivity, cost = 1.0, 0.0
    for price, share in operators:
        # Only tuples that passed the operators before it reach this one.
        cost += price * selectivity
        selectivity *= share
    ideal_time = sum(price for price, _ in operators) if ideal is None else ideal
    return WorkEstimate(selectivity, cost, ideal_time)


def estimate_join(
    near: WorkEstimate,
    far: WorkEstimate,
    join: tuple[float, float],
    common: WorkEstimate | None,
    window: float,
    far_gap: float,
) -> WorkEstimate:
    """The segment of one input of a window join: its own side, the join, and what follows it.

    `join` is the cost of inserting a tuple and the share of pairs that match; `far_gap` is the mean
    time between tuples of the other input. A tuple meets as many tuples of the other window as arrive
    in `window` and pass their own side. An ideal result pays both sides and both insertions.
    """
    price, share = join
    # window / far_gap tuples of the other input are in its window on average; both sides filter.
    pairs = near.selectivity * share * far.selectivity * (window / far_gap)
    after = common.cost if common else 0.0
    return WorkEstimate(
        selectivity=pairs * (common.selectivity if common else 1.0),
        cost=near.cost + near.selectivity * price + pairs * after,
        # A result exists only once both its tuples were processed, whichever of them came last:
        # hence both sides and two insertions.
        ideal=near.ideal + far.ideal + 2 * price + (common.ideal if common else 0.0),
    )
