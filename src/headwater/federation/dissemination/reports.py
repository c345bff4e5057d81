"""Statistics on their way up a dissemination tree: a value is sent again only when it has clearly changed.

Every node measures its own rates and times over a window. It computes effective rates and the weight below from its own
measurements and from what its children sent last, and sends its parent what has left the band around the
value sent before. A holder decides from what has arrived, not from the truth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from headwater.federation.dissemination.model import DisseminationWorld, Floats, Indices
from headwater.federation.dissemination.tree import DisseminationTree

WINDOW_SECONDS = 50.0
TOLERANCE = 0.2
"""By which factor above one a value may differ from the one sent last."""


def has_changed(value: Floats, sent: Floats, tolerance: float = TOLERANCE) -> NDArray[np.bool_]:
    """Which values have left the band from 1/(1+tolerance) to 1+tolerance times those sent last."""
    low, high = sent / (1 + tolerance), sent * (1 + tolerance)
    changed: NDArray[np.bool_] = (value < low) | (value > high)
    return changed


class ReportedTree:
    """A tree with the values that its nodes sent last; what holders see."""

    def __init__(self, world: DisseminationWorld, parents: Indices) -> None:
        """At first everybody knows the values of `world`."""
        own = replace(
            world,
            rates=world.rates.copy(),
            weights=world.weights.copy(),
            filter_seconds=world.filter_seconds.copy(),
            transmit_seconds=world.transmit_seconds.copy(),
        )
        self.tree = DisseminationTree(own, parents)

    def report(self, measured: DisseminationWorld, tolerance: float = TOLERANCE) -> int:
        """Let every node send up what has changed, leaves first; returns how many values were sent."""
        arrays, count = self.tree.arrays, 0
        for node in reversed(self.tree.order()):
            children = list(self.tree.children(node))
            largest, weight = measured.rates[node].copy(), measured.weights[node]
            if children:
                largest = np.maximum(largest, arrays.largest[children].max(axis=0))
                weight = weight + arrays.weight_below[children].sum()
                arrays.sent[node] = arrays.largest[children].sum()
                arrays.takers[node] = (arrays.largest[children] > 0).sum(axis=0)
            for sent, value in (
                (arrays.rates[node], measured.rates[node]),
                (arrays.largest[node], largest),
                (arrays.weights[node : node + 1], measured.weights[node : node + 1]),
                (arrays.weight_below[node : node + 1], np.array([weight])),
                (arrays.filter_seconds[node : node + 1], measured.filter_seconds[node : node + 1]),
                (
                    arrays.transmit_seconds[node : node + 1],
                    measured.transmit_seconds[node : node + 1],
                ),
            ):
                changed = has_changed(value, sent, tolerance)
                sent[changed] = value[changed]
                count += int(changed.sum())
            arrays.arrivals[node] = arrays.largest[node].sum()
            arrays.filtered[node] = (arrays.largest[node] * arrays.takers[node]).sum()
        return count
