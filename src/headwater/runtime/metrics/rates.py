"""Arrival rates of streams, as statistics of their logs.

A rate is an exponentially decaying sum, so one stored value and its time are enough to update it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from headwater.runtime.catalog import MAX_LEASE_SECONDS, Statistic

RATE_SECONDS = 10.0
"""The time constant of rates: they describe about this many last seconds."""

WAITS = "waits"
"""The statistic of a stream's log that is 1 while the stream waits, and 0 otherwise."""


def current_rate(rate: Statistic | None, now: float, seconds: float = RATE_SECONDS) -> float:
    """A rate decayed to now; 0 if it was written by a clock that was far ahead and was set back."""
    if rate is None or rate.updated_at > now + MAX_LEASE_SECONDS:
        return 0.0
    return rate.value * math.exp(-max(0.0, now - rate.updated_at) / seconds)


def arrival_statistics(
    previous: Mapping[str, Statistic], rows: int, size: int, now: float
) -> dict[str, float]:
    """The statistics of a stream after a batch of this many rows and bytes."""
    batches = previous.get("batches")
    return {
        "batches": 1.0 + (batches.value if batches else 0.0),
        "rows_rate": current_rate(previous.get("rows_rate"), now) + rows / RATE_SECONDS,
        "bytes_rate": current_rate(previous.get("bytes_rate"), now) + size / RATE_SECONDS,
    }
