"""What a holder of the token knows: itself, its children and its grandchildren, and nothing else.

The moves are priced from this alone, so that what is decided in a simulation is what a provider could decide from the
messages it was sent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from headwater.federation.dissemination.node_loss import node_loss
from headwater.federation.dissemination.tree import NOBODY, TreeArrays
from headwater.jit import cached_njit

HOLDER = 0
"""The position of the holder in its own view; children follow, then grandchildren."""


class HolderView(NamedTuple):
    """What a holder knows: of itself, its children and its grandchildren.

    Rates wanted, effective rates, weight below, times, number of children and what these are sent; delays from
    the holder and from its children to its children and grandchildren. All other delays are NaN. The last five follow from
    the others.
    """

    nodes: Any
    above: Any
    last_child: int
    rates: Any
    weights: Any
    largest: Any
    weight_below: Any
    filter_seconds: Any
    transmit_seconds: Any
    child_count: Any
    takers: Any
    sent: Any
    delays: Any
    other: Any
    general: bool
    filtered: Any
    loss: Any
    top: Any
    """The largest of a child's own rate and the effective rates of its children."""
    second: Any
    """The second largest of these: what is left when the child of the largest leaves."""
    nothing: Any


def holder_view(tree: TreeArrays, holder: int) -> HolderView:
    """What a holder was sent, taken from a tree of exact or of reported values."""
    children = _child_list(tree, holder)
    below = [(child, at) for at, child in enumerate(children, 1)]
    pairs = [(grandchild, at) for child, at in below for grandchild in _child_list(tree, child)]
    nodes = np.array([holder, *children, *(node for node, _ in pairs)], np.int64)
    above = np.array([NOBODY, *([HOLDER] * len(children)), *(at for _, at in pairs)], np.int64)
    last = len(children)
    delays = tree.delays[np.ix_(nodes, nodes)].copy()
    # No holder knows delays between grandchildren; a price that used one would be NaN too.
    delays[last + 1 :, :] = np.nan
    items = tree.rates.shape[1]
    view = HolderView(
        nodes=nodes,
        above=above,
        last_child=last,
        rates=tree.rates[nodes],
        weights=tree.weights[nodes],
        largest=tree.largest[nodes],
        weight_below=tree.weight_below[nodes],
        filter_seconds=tree.filter_seconds[nodes],
        transmit_seconds=tree.transmit_seconds[nodes],
        child_count=tree.child_count[nodes],
        takers=tree.takers[nodes],
        sent=tree.sent[nodes],
        delays=delays,
        other=tree.other[nodes],
        general=tree.general,
        filtered=(tree.largest[nodes] * tree.takers[nodes]).sum(axis=1),
        loss=np.zeros(len(nodes)),
        top=tree.rates[nodes],
        second=np.zeros((len(nodes), items)),
        nothing=np.zeros(items),
    )
    _complete(view)
    return view


def _child_list(tree: TreeArrays, node: int) -> list[int]:
    found, child = [], int(tree.first_child[node])
    while child != NOBODY:
        found.append(child)
        child = int(tree.next_sibling[child])
    # The linked list has the order of past moves; the best move of equal ones must not depend on
    # it.
    return sorted(found)


@register_jitable
def fill_view(view: HolderView) -> None:
    """The losses of the nodes, and the two largest rates below each child."""
    for node in range(len(view.nodes)):
        view.loss[node] = node_loss(
            view.child_count[node],
            view.filtered[node],
            view.sent[node],
            view.largest[node].sum(),
            # Reported values may be a fifth off, each in its own direction.
            max(view.weight_below[node] - view.weights[node], 0.0),
            view.filter_seconds[node],
            view.transmit_seconds[node],
            view.other[node, 0],
            view.other[node, 1],
            view.other[node, 2],
            view.other[node, 3],
            view.general,
        )
    for node in range(view.last_child + 1, len(view.nodes)):
        at = view.above[node]
        for item in range(view.rates.shape[1]):
            rate = view.largest[node, item]
            if rate > view.top[at, item]:
                view.top[at, item], view.second[at, item] = rate, view.top[at, item]
            elif rate > view.second[at, item]:
                view.second[at, item] = rate


@cached_njit
def _complete(view: Any) -> None:
    fill_view(view)
