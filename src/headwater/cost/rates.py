"""How many tuples pass: selectivities of conditions, and rates of streams, joins and groups.

Values of a column count as spread evenly, and columns as independent of each other. Where nothing is
known of a column or a term, a fixed share is assumed, so that every condition has an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.algebra.conditions.box import Box, Constraint
from headwater.algebra.conditions.domain import Domain
from headwater.algebra.expressions import Column
from headwater.algebra.windows import Range, Rows, Window

DEFAULT_SELECTIVITY = 1 / 3
"""The share of tuples that pass a condition of which nothing is known."""

DEFAULT_DISTINCT = 100.0
"""How many values a column has of which nothing is known."""

MAX_POINTS = 10_000


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of a column: how many different values, and for numbers the least and largest."""

    distinct: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class StreamStatistics:
    """Tuples per second, bytes of a tuple, and what is known of the columns by name."""

    rate: float
    tuple_bytes: float = 100.0
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinInput:
    """One side of a join: tuples that come in a second, and tuples that its window holds."""

    rate: float
    window_tuples: float


def selectivity(box: Box, statistics: Mapping[Column, ColumnStatistics]) -> float:
    """The share of combinations of tuples that are in a box.

    Equal columns meet as often as one of the larger number of values does: of k columns with at
    most d values, 1 / d ** (k - 1).
    """
    if box.empty:
        return 0.0
    share = math.prod(_constraint_share(c, statistics) for c in box.constraints)
    # `terms` are conditions that the box could not reduce to values of one term: each counts as
    # unknown.
    return share * DEFAULT_SELECTIVITY ** len(box.terms)


def _constraint_share(
    constraint: Constraint, statistics: Mapping[Column, ColumnStatistics]
) -> float:
    columns = [
        statistics.get(t, ColumnStatistics(DEFAULT_DISTINCT))
        for t in constraint.terms
        if isinstance(t, Column)
    ]
    if not columns:
        return DEFAULT_SELECTIVITY
    # The usual estimate for equijoins: the values of the smaller column are assumed to occur in the
    # larger.
    widest = max(columns, key=lambda values: values.distinct)
    meet = (1 / max(1.0, widest.distinct)) ** (len(columns) - 1)
    return meet * domain_share(constraint.domain, widest)


def domain_share(domain: Domain, values: ColumnStatistics) -> float:
    """The share of a column's values that are in a domain."""
    if domain.has_all_values:
        return 1.0
    if domain.is_empty:
        return 0.0
    if values.low is not None and values.high is not None and _is_numeric(domain):
        return _covered_fraction(domain, values.low, values.high)
    # Ranges of a column of which nothing else is known count as DEFAULT_SELECTIVITY, single values as
    # no more than that and all but a few as no less: so a domain never counts less than one in it.
    points = domain.count_values(MAX_POINTS)
    if points is not None:
        return min(DEFAULT_SELECTIVITY, (points + domain.null) / max(1.0, values.distinct))
    # Conditions such as `x <> 3`: the values left out are few although those that pass are not.
    missing = domain.complement().count_values(MAX_POINTS)
    if missing is not None:
        return max(DEFAULT_SELECTIVITY, 1 - missing / max(1.0, values.distinct))
    return DEFAULT_SELECTIVITY


def _is_numeric(domain: Domain) -> bool:
    return domain.type.name in ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL")


def _covered_fraction(domain: Domain, low: float, high: float) -> float:
    """How much of low..high is in it; a single value counts as one step of its type."""
    step = 10.0**-domain.type.scale
    inside = 0.0
    for first, last in domain.numeric_ranges():
        bottom = low if first is None else max(low, float(first))
        top = high if last is None else min(high, float(last))
        # Both ends belong to the range, so a range of one value is one step wide and not 0.
        inside += max(0.0, top - bottom + step)
    return min(1.0, inside / (high - low + step))


def tuples_in_window(window: Window, rate: float) -> float:
    """How many tuples a window holds; infinitely many if it never forgets."""
    match window:
        case Rows():
            return float(window.count)
        case Range(size=None):
            return math.inf
        case Range():
            assert window.size is not None
            # Window sizes are in microseconds, rates per second.
            return rate * window.size / 1e6


def join_rate(inputs: Sequence[JoinInput], share: float) -> float:
    """Results per second of a windowed join of which `share` of all combinations qualify.

    Every new tuple meets what the windows of the others hold:
    share * sum over i of rate_i * product of held_j over j != i.
    """
    return share * sum(
        side.rate * math.prod(other.window_tuples for other in (*inputs[:i], *inputs[i + 1 :]))
        for i, side in enumerate(inputs)
    )


def grouped_rate(input_rate: float, groups: float, slide: float | None) -> float:
    """Rows per second of a grouped window: at each slide as many as groups, or one per new tuple."""
    # No more rows than new tuples: each of them changes one group at most.
    return input_rate if slide is None else min(input_rate, groups / slide)
