"""Statistics on their way up a dissemination tree: a value is sent again only when it has clearly changed.

Every node measures its own rates and times over a window. It computes effective rates and the weight below from its own
measurements and from what its children sent last, and sends its parent what has left the band around the
value sent before. A holder decides from what has arrived, not from the truth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba.extending import register_jitable

from headwater.federation.dissemination.model import DisseminationWorld, Indices
from headwater.federation.dissemination.tree import NOBODY, DisseminationTree, TreeArrays
from headwater.jit import cached_njit

WINDOW_SECONDS = 50.0
TOLERANCE = 0.2
"""By which factor above one a value may differ from the one sent last."""


class ReportedTree:
    """A tree with the values that its nodes sent last; what holders see."""

    def __init__(self, world: DisseminationWorld, parents: Indices) -> None:
        """At first everybody knows the values of `world`."""
        # Reports overwrite the arrays of the tree, which would otherwise be those of the world.
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
        order = np.array(self.tree.order()[::-1], np.int64)
        return int(
            _report_up(
                self.tree.arrays,
                order,
                measured.rates,
                measured.weights,
                measured.filter_seconds,
                measured.transmit_seconds,
                1.0 + tolerance,
            )
        )


@register_jitable
def has_changed(value: float, sent: float, factor: float) -> bool:
    """Whether a value is more than a factor away from the one sent last."""
    return value * factor < sent or value > sent * factor


@register_jitable
def report_up(
    tree: TreeArrays,
    order: Any,
    rates: Any,
    weights: Any,
    filter_seconds: Any,
    transmit_seconds: Any,
    factor: float,
) -> int:
    """What `ReportedTree.report` does; `order` has children before their parents."""
    count, items = 0, rates.shape[1]
    for node in order:
        below, tree.sent[node], tree.filtered[node] = weights[node], 0.0, 0.0
        child = tree.first_child[node]
        while child != NOBODY:
            below += tree.weight_below[child]
            child = tree.next_sibling[child]
        for item in range(items):
            largest, takers = rates[node, item], 0
            child = tree.first_child[node]
            while child != NOBODY:
                largest = max(largest, tree.largest[child, item])
                tree.sent[node] += tree.largest[child, item]
                takers += tree.largest[child, item] > 0.0
                child = tree.next_sibling[child]
            if has_changed(rates[node, item], tree.rates[node, item], factor):
                tree.rates[node, item] = rates[node, item]
                count += 1
            if has_changed(largest, tree.largest[node, item], factor):
                tree.largest[node, item] = largest
                count += 1
            tree.takers[node, item] = takers
            tree.filtered[node] += tree.largest[node, item] * takers
        tree.arrivals[node] = tree.largest[node].sum()
        if has_changed(below, tree.weight_below[node], factor):
            tree.weight_below[node] = below
            count += 1
        for values, known in (
            (weights, tree.weights),
            (filter_seconds, tree.filter_seconds),
            (transmit_seconds, tree.transmit_seconds),
        ):
            if has_changed(values[node], known[node], factor):
                known[node] = values[node]
                count += 1
    return count


@cached_njit
def _report_up(
    tree: Any,
    order: Any,
    rates: Any,
    weights: Any,
    filter_seconds: Any,
    transmit_seconds: Any,
    factor: Any,
) -> Any:
    return report_up(tree, order, rates, weights, filter_seconds, transmit_seconds, factor)
