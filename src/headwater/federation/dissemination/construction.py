"""Dissemination trees built in one pass: greedy, and the simple ones that others are measured by.

All return the parent of each node. The greedy one attaches node by node where the loss of the tree so far is the least; what
a place costs is found by attaching there and detaching again, which costs the way to the root.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from headwater.federation.dissemination.model import (
    ABSENT,
    SOURCE,
    DisseminationWorld,
    Floats,
    Indices,
)
from headwater.federation.dissemination.tree import (
    DisseminationTree,
    TreeArrays,
    attach,
    detach,
    empty_arrays,
    refresh_loss,
)
from headwater.jit import cached_njit

DITA_FANOUTS = tuple(
    (source, other) for source in (2, 3, 4, 6, 8, 12, 16) for other in (2, 3, 4, 6, 8)
)
"""Pairs of fan-outs to try: of the source and of every other node."""


def tree_members(world: DisseminationWorld) -> Indices:
    """The source and all nodes that want something, in ascending order."""
    wanted = world.rates.sum(axis=1) > 0
    wanted[SOURCE] = True
    return np.flatnonzero(wanted)


def no_parents(world: DisseminationWorld) -> Indices:
    """Parents of a tree that has only the source."""
    parents = np.full(world.count, ABSENT, np.int64)
    parents[SOURCE] = -1
    return parents


def source_based_tree(world: DisseminationWorld) -> Indices:
    """All nodes are children of the source."""
    parents = no_parents(world)
    parents[tree_members(world)[1:]] = SOURCE
    return parents


def random_tree(world: DisseminationWorld, random: np.random.Generator) -> Indices:
    """The nodes in random order, each below a random one of those before."""
    parents, order = no_parents(world), random.permutation(tree_members(world)[1:])
    placed = np.concatenate(([SOURCE], order))
    for at, node in enumerate(order, 1):
        parents[node] = placed[random.integers(at)]
    return parents


def dita_tree(world: DisseminationWorld, source_fanout: int, fanout: int) -> Indices:
    """DiTA, centralized: nodes by descending rate, each below the nearest node that has a free place."""
    members = tree_members(world)[1:]
    # DiTA puts strict requirements first; where requirements are rates, the strictest is the
    # highest.
    order = members[np.argsort(-world.weights[members], kind="stable")]
    parents, free = no_parents(world), np.full(world.count, fanout)
    free[SOURCE] = source_fanout
    placed = [SOURCE]
    for node in order.tolist():
        open_places = [place for place in placed if free[place] > 0]
        parents[node] = open_places[int(np.argmin(world.delays[open_places, node]))]
        free[parents[node]] -= 1
        placed.append(node)
    return parents


def best_dita_tree(
    world: DisseminationWorld, fanouts: Iterable[tuple[int, int]] = DITA_FANOUTS
) -> Indices:
    """DiTA with the fan-outs of the least loss; raises ValueError without fan-outs."""
    trees = (dita_tree(world, *pair) for pair in fanouts)
    return min(trees, key=lambda parents: DisseminationTree(world, parents).total)


def greedy_tree(world: DisseminationWorld, other: Floats | None = None) -> Indices:
    """The nodes nearest and fastest first, each below the node for which the loss of the tree is smallest."""
    members = tree_members(world)[1:]
    # The order of Algorithm 4.2: what a node would wait as a lone child of an idle source.
    near = world.delays[SOURCE] + world.filter_seconds + world.transmit_seconds
    order = members[np.argsort(near[members], kind="stable")]
    arrays = empty_arrays(world, no_parents(world), other)
    _grow(arrays, order)
    parents: Indices = arrays.parent
    return parents


@cached_njit
def _grow(tree: Any, order: Any) -> Any:
    return grow(tree, order)


@register_jitable
def grow(tree: TreeArrays, order: Any) -> None:
    """Attach the nodes in this order to a tree that has only the source."""
    tree.largest[:], tree.weight_below[:] = tree.rates, tree.weights
    for node in range(len(tree.parent)):
        tree.arrivals[node] = tree.rates[node].sum()
        refresh_loss(tree, node)
    placed = np.zeros(len(order) + 1, np.int64)
    for at in range(len(order)):
        node, best, chosen = order[at], np.inf, 0
        for index in range(at + 1):
            change = attach(tree, node, placed[index])
            if change < best:
                best, chosen = change, placed[index]
            detach(tree, node)
        attach(tree, node, chosen)
        placed[at + 1] = node
