"""Statistics that are published only when they changed by a factor: rates of substreams, loads of queries.

Sending every changed value would send all of them all the time. A receiver is never further off than
the factor 1 + tau.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.errors import PlanError
from headwater.federation.distribution.model import Floats, Indices

TAU = 0.2


@dataclass(frozen=True, eq=False)
class Publication:
    """Which values a publisher sends, and what all receivers know after that."""

    sent: Indices
    known: Floats


def publish(known: Floats, measured: Floats, tau: float = TAU) -> Publication:
    """Send the measured values that are more than a factor 1 + tau away from the known ones."""
    if not tau >= 0:
        raise PlanError(f"tau is not negative, it is {tau}")
    # The same factor up and down; a value that was or becomes 0 is always sent.
    low, high = np.minimum(known, measured), np.maximum(known, measured)
    sent = np.flatnonzero(high > (1 + tau) * low).astype(np.int32)
    updated = known.copy()
    updated[sent] = measured[sent]
    return Publication(sent, updated)
