"""A line through measurements that no single one of them can bend: what a step costs by its rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

MIN_FIXED_SHARE = 0.1
"""At least this share of a usual step is fixed: one without rows takes time too."""

Point = tuple[float, float]


def fit_line(points: Sequence[Point]) -> tuple[float, float]:
    """The fixed part and the slope: medians of all pairs (Theil and Sen), neither below zero.

    A median is not moved by the first steps of a process, which take many times as long as later ones.
    """
    slopes = [
        (second[1] - first[1]) / (second[0] - first[0])
        for n, first in enumerate(points)
        for second in points[n + 1 :]
        if abs(second[0] - first[0]) > 1e-3 * max(first[0], second[0])
    ]
    usual = median(value for _, value in points)
    rows = median(x for x, _ in points)
    most = (1 - MIN_FIXED_SHARE) * usual / rows if rows else 0.0
    slope = min(max(median(slopes), 0.0), most) if slopes else 0.0
    return median(max(0.0, y - slope * x) for x, y in points), slope
