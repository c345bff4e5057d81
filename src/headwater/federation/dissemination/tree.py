"""A dissemination tree whose loss is kept as a sum of parts, so that a change costs the way to the root and no more.

The loss of all nodes together is, over the links, the weight below times the delay, and over the nodes, the weight below times
the processing delay. A subtree that moves changes these sums on the way from its old and its new place to the
source, and nowhere else. The kernels work on a tuple of arrays; `DisseminationTree` is that tuple with names for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from headwater.errors import PlanError
from headwater.federation.dissemination.model import (
    ABSENT,
    SOURCE,
    DisseminationWorld,
    Floats,
    Indices,
    tree_order,
)
from headwater.federation.dissemination.node_loss import node_loss
from headwater.jit import cached_njit

NOBODY = -1
"""In place of a node: no parent, no child, no sibling."""


class TreeArrays(NamedTuple):
    """A tree over the nodes of a world, as arrays by node; rates, effective rates and takers by node and object."""

    parent: Any
    first_child: Any
    next_sibling: Any
    previous_sibling: Any
    child_count: Any
    rates: Any
    """What each node wants itself."""
    weights: Any
    filter_seconds: Any
    transmit_seconds: Any
    delays: Any
    largest: Any
    """The effective rates: the largest of those below a node and its own."""
    arrivals: Any
    """Messages a second: the sum of the effective rates."""
    weight_below: Any
    """The weights of a node and all below it."""
    takers: Any
    """How many children want an object."""
    filtered: Any
    """Tests a second: for each message one for each child that wants its object."""
    sent: Any
    """Messages a second to the children."""
    loss: Any
    """What each node's processing delay adds to the loss below it."""
    other: Any
    """By node: load, arrivals, squares of service times, and weight in other trees."""
    general: bool
    changed: Any
    """Room for the objects whose effective rate changes."""


@register_jitable
def refresh_loss(tree: TreeArrays, node: int) -> float:
    """Compute again what a node adds; returns by how much that has risen."""
    before = tree.loss[node]
    tree.loss[node] = node_loss(
        tree.child_count[node],
        tree.filtered[node],
        tree.sent[node],
        tree.arrivals[node],
        tree.weight_below[node] - tree.weights[node],
        tree.filter_seconds[node],
        tree.transmit_seconds[node],
        tree.other[node, 0],
        tree.other[node, 1],
        tree.other[node, 2],
        tree.other[node, 3],
        tree.general,
    )
    change: float = tree.loss[node] - before
    return change


@register_jitable
def link_child(tree: TreeArrays, node: int, at: int) -> None:
    """Put a node first among the children of another."""
    first = tree.first_child[at]
    tree.parent[node] = at
    tree.next_sibling[node], tree.previous_sibling[node] = first, NOBODY
    if first != NOBODY:
        tree.previous_sibling[first] = node
    tree.first_child[at] = node
    tree.child_count[at] += 1


@register_jitable
def unlink_child(tree: TreeArrays, node: int) -> None:
    """Take a node from the children of its parent."""
    after, before = tree.next_sibling[node], tree.previous_sibling[node]
    if before == NOBODY:
        tree.first_child[tree.parent[node]] = after
    else:
        tree.next_sibling[before] = after
    if after != NOBODY:
        tree.previous_sibling[after] = before
    tree.child_count[tree.parent[node]] -= 1
    tree.parent[node] = NOBODY


@register_jitable
def attach(tree: TreeArrays, node: int, at: int) -> float:
    """Put a detached subtree below a node; returns the rise of the sum of losses."""
    link_child(tree, node, at)
    tree.sent[at] += tree.arrivals[node]
    count = 0
    for item in range(tree.largest.shape[1]):
        if tree.largest[node, item] > 0.0:
            tree.takers[at, item] += 1
            tree.filtered[at] += tree.largest[at, item]
            tree.changed[count] = item
            count += 1
    weight, change, below, place = tree.weight_below[node], 0.0, node, at
    while place >= 0:
        change += weight * tree.delays[place, below]
        tree.weight_below[place] += weight
        up, gain, kept = tree.parent[place], 0.0, 0
        # What stays is written where it was read or before, so one array is enough.
        for index in range(count):
            item = tree.changed[index]
            old, new = tree.largest[place, item], tree.largest[below, item]
            if new > old:
                tree.largest[place, item] = new
                tree.filtered[place] += tree.takers[place, item] * (new - old)
                gain += new - old
                tree.changed[kept] = item
                kept += 1
                # With the rate that `up` has now; its rise comes when the loop is there, for all
                # takers.
                if old == 0.0 and up >= 0:
                    tree.takers[up, item] += 1
                    tree.filtered[up] += tree.largest[up, item]
        count = kept
        tree.arrivals[place] += gain
        if up >= 0:
            tree.sent[up] += gain
        # As `refresh_loss`, written out: a call with the whole tuple takes longer than the sum itself.
        loss = node_loss(
            tree.child_count[place],
            tree.filtered[place],
            tree.sent[place],
            tree.arrivals[place],
            tree.weight_below[place] - tree.weights[place],
            tree.filter_seconds[place],
            tree.transmit_seconds[place],
            tree.other[place, 0],
            tree.other[place, 1],
            tree.other[place, 2],
            tree.other[place, 3],
            tree.general,
        )
        change += loss - tree.loss[place]
        tree.loss[place] = loss
        below, place = place, up
    return change


@register_jitable
def detach(tree: TreeArrays, node: int) -> float:
    """Take a subtree out of the tree; returns the rise of the sum of losses, which is not above 0."""
    at = tree.parent[node]
    unlink_child(tree, node)
    tree.sent[at] -= tree.arrivals[node]
    count = 0
    for item in range(tree.largest.shape[1]):
        if tree.largest[node, item] > 0.0:
            tree.takers[at, item] -= 1
            tree.filtered[at] -= tree.largest[at, item]
            # Only where the subtree wanted the most can the effective rate fall.
            if tree.largest[node, item] >= tree.largest[at, item]:
                tree.changed[count] = item
                count += 1
    weight, change, below, place = tree.weight_below[node], 0.0, node, at
    while place >= 0:
        change -= weight * tree.delays[place, below]
        tree.weight_below[place] -= weight
        up, fall, kept = tree.parent[place], 0.0, 0
        for index in range(count):
            item = tree.changed[index]
            old, new = tree.largest[place, item], tree.rates[place, item]
            child = tree.first_child[place]
            while child != NOBODY and new < old:
                new = max(new, tree.largest[child, item])
                child = tree.next_sibling[child]
            if new < old:
                tree.largest[place, item] = new
                tree.filtered[place] -= tree.takers[place, item] * (old - new)
                fall += old - new
                tree.changed[kept] = item
                kept += 1
                if new == 0.0 and up >= 0:
                    tree.takers[up, item] -= 1
                    tree.filtered[up] -= tree.largest[up, item]
        count = kept
        tree.arrivals[place] -= fall
        if up >= 0:
            tree.sent[up] -= fall
        # As `refresh_loss`, written out: a call with the whole tuple takes longer than the sum itself.
        loss = node_loss(
            tree.child_count[place],
            tree.filtered[place],
            tree.sent[place],
            tree.arrivals[place],
            tree.weight_below[place] - tree.weights[place],
            tree.filter_seconds[place],
            tree.transmit_seconds[place],
            tree.other[place, 0],
            tree.other[place, 1],
            tree.other[place, 2],
            tree.other[place, 3],
            tree.general,
        )
        change += loss - tree.loss[place]
        tree.loss[place] = loss
        below, place = place, up
    return change


@register_jitable
def move_subtree(tree: TreeArrays, node: int, at: int) -> float:
    """Move a subtree below a node outside of it; returns the rise of the sum of losses."""
    change: float = detach(tree, node)
    return change + attach(tree, node, at)


@register_jitable
def rebuild(tree: TreeArrays, order: Any) -> float:
    """Compute everything from parents, rates and times; returns the sum of losses.

    `order` has the nodes breadth first. Sums that are only ever changed drift by rounding; this ends the drift.
    """
    tree.first_child[:], tree.next_sibling[:] = NOBODY, NOBODY
    tree.previous_sibling[:], tree.child_count[:] = NOBODY, 0
    tree.largest[:], tree.weight_below[:] = tree.rates, tree.weights
    tree.takers[:], tree.filtered[:], tree.sent[:] = 0, 0.0, 0.0
    total = 0.0
    # Children before parents; and as each goes to the front, siblings end in ascending order.
    for index in range(len(order) - 1, -1, -1):
        node = order[index]
        up = tree.parent[node]
        tree.arrivals[node] = tree.largest[node].sum()
        if up < 0:
            continue
        link_child(tree, node, up)
        tree.weight_below[up] += tree.weight_below[node]
        tree.sent[up] += tree.arrivals[node]
        total += tree.weight_below[node] * tree.delays[up, node]
        for item in range(tree.largest.shape[1]):
            if tree.largest[node, item] > 0.0:
                tree.takers[up, item] += 1
                tree.largest[up, item] = max(tree.largest[up, item], tree.largest[node, item])
    tree.loss[:] = 0.0
    for node in order:
        for item in range(tree.largest.shape[1]):
            tree.filtered[node] += tree.largest[node, item] * tree.takers[node, item]
        total += refresh_loss(tree, node)
    return total


@cached_njit
def _rebuild_tree(tree: Any, order: Any) -> Any:
    return rebuild(tree, order)


@cached_njit
def _detach_subtree(tree: Any, node: Any) -> Any:
    return detach(tree, node)


@cached_njit
def _attach_subtree(tree: Any, node: Any, at: Any) -> Any:
    return attach(tree, node, at)


def empty_arrays(
    world: DisseminationWorld, parents: Indices, other: Floats | None = None
) -> TreeArrays:
    """The arrays of a tree in which nothing is computed yet."""
    count, items = world.rates.shape
    return TreeArrays(
        parent=np.array(parents, np.int64),
        first_child=np.full(count, NOBODY, np.int64),
        next_sibling=np.full(count, NOBODY, np.int64),
        previous_sibling=np.full(count, NOBODY, np.int64),
        child_count=np.zeros(count, np.int64),
        rates=np.ascontiguousarray(world.rates, np.float64),
        weights=world.weights,
        filter_seconds=world.filter_seconds,
        transmit_seconds=world.transmit_seconds,
        delays=world.delays,
        largest=np.zeros((count, items)),
        arrivals=np.zeros(count),
        weight_below=np.zeros(count),
        takers=np.zeros((count, items), np.int64),
        filtered=np.zeros(count),
        sent=np.zeros(count),
        loss=np.zeros(count),
        other=np.zeros((count, 4)) if other is None else other,
        general=world.queue == "M/G/1",
        changed=np.zeros(items, np.int64),
    )


class DisseminationTree:
    """A tree over the nodes of a world, with its loss.

    Nodes whose parent is ABSENT are not in it. `other` is what the nodes do in other trees.
    """

    def __init__(
        self, world: DisseminationWorld, parents: Indices, other: Floats | None = None
    ) -> None:
        self.world = world
        self.arrays = empty_arrays(world, parents, other)
        self.total = 0.0
        self.rebuild()

    def rebuild(self) -> None:
        """Compute all sums from the parents."""
        self.total = float(_rebuild_tree(self.arrays, np.array(self.order(), np.int64)))

    @property
    def parents(self) -> Indices:
        """The parent of each node; a copy."""
        copy: Indices = self.arrays.parent.copy()
        return copy

    @property
    def average_loss(self) -> float:
        """The mean loss of fidelity over the nodes but the source."""
        return self.total / (self.world.count - 1)

    def order(self) -> list[int]:
        """The nodes of the tree breadth first."""
        return tree_order(self.arrays.parent)

    def children(self, node: int) -> Iterator[int]:
        """The children of a node."""
        child = int(self.arrays.first_child[node])
        while child != NOBODY:
            yield child
            child = int(self.arrays.next_sibling[child])

    def is_below(self, node: int, top: int) -> bool:
        """Whether a node is in the subtree of another."""
        while node >= 0 and node != top:
            node = int(self.arrays.parent[node])
        return node == top

    def reparent(self, parents: Mapping[int, int]) -> float:
        """Give nodes new parents, all at once, in this order; returns the rise of the sum of losses."""
        if SOURCE in parents or any(self.arrays.parent[node] == ABSENT for node in parents):
            raise PlanError("only a node of the tree other than the source gets a new parent")
        change = 0.0
        for node in parents:
            change += _detach_subtree(self.arrays, node)
        for node, at in parents.items():
            if self.is_below(at, node):
                raise PlanError(f"node {at} is below node {node}, so it cannot be its parent")
            change += _attach_subtree(self.arrays, node, at)
        self.total += change
        return change
