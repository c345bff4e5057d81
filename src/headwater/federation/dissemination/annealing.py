"""Simulated annealing of a dissemination tree: random subtrees move to random places, at falling temperature.

A move is made, priced by the sums it changes on its way to the root, and undone if it is refused. The tree that comes out is the best one
seen, brought down to where no single subtree can improve it. Everything random is drawn outside of the kernel, so that
the compiled kernel and the plain one give the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.extending import register_jitable

from headwater.federation.dissemination.construction import greedy_tree, random_tree, tree_members
from headwater.federation.dissemination.model import SOURCE, DisseminationWorld, Indices
from headwater.federation.dissemination.tree import DisseminationTree, TreeArrays, move_subtree
from headwater.jit import cached_njit


@dataclass(frozen=True)
class AnnealingSettings:
    """How long to anneal; temperatures are in units of the loss of a tree, so that the unit of rates does not matter."""

    trials: int = 64
    """Trials at a temperature, for each node."""
    cooling: float = 0.95
    frozen: float = 0.02
    """Freezing takes a temperature below this one, in units of the best loss, and a best tree that has not changed for
    `patience` temperatures. The thesis's 0.001 is this at its average loss of 0.05."""
    patience: int = 10
    start: float = 2.0
    """The first temperature, in units of the loss of the first tree."""
    greedy_start: float = 0.0
    """The same for a second run, from the greedy tree; 0: no such run."""


IMPROVEMENT = 1e-9
"""The share of the loss that counts as an improvement; less may be rounding."""

PRINTED = AnnealingSettings()
"""The setting of the thesis."""
THOROUGH = AnnealingSettings(frozen=0.002, greedy_start=0.05)
"""Never above greedy."""
HASTY = AnnealingSettings(trials=16, frozen=0.03)
"""The second setting of the thesis, figure 4.8."""


def annealed_tree(
    world: DisseminationWorld,
    random: np.random.Generator,
    settings: AnnealingSettings = THOROUGH,
) -> Indices:
    """The parents of the best tree found from a random one and, if the settings say so, from the greedy one."""
    members = tree_members(world)
    starts = [(random_tree(world, random), settings.start)]
    if len(members) <= 2:
        return starts[0][0]
    if settings.greedy_start:
        # One of some ten runs from a random tree ends with wrong nodes at the top, where a subtree cannot leave any more.
        starts.append((greedy_tree(world), settings.greedy_start))
    found = [_anneal_from(world, members, random, settings, *start) for start in starts]
    return min(found, key=lambda tree: tree.total).parents


def _anneal_from(
    world: DisseminationWorld,
    members: Indices,
    random: np.random.Generator,
    settings: AnnealingSettings,
    parents: Indices,
    start: float,
) -> DisseminationTree:
    tree = DisseminationTree(world, parents)
    best, best_total = tree.parents, tree.total
    temperature, unchanged = start * tree.total, 0
    # Both have to fail (COSMOS, section 4.2.3): a low temperature alone would stop while trees
    # still improve.
    while temperature >= settings.frozen * best_total or unchanged < settings.patience:
        found, total = anneal_once(tree, members, random, settings.trials, temperature)
        unchanged += 1
        if total < best_total * (1 - IMPROVEMENT):
            best, best_total, unchanged = found, total, 0
        temperature *= settings.cooling
    tree = DisseminationTree(world, best)
    # Summing up from scratch between passes keeps rounding from being taken for a gain.
    while _descend(tree.arrays, members, IMPROVEMENT * tree.total) < 0:
        tree.rebuild()
    return tree


def anneal_once(
    tree: DisseminationTree,
    members: Indices,
    random: np.random.Generator,
    trials: int,
    temperature: float,
) -> tuple[Indices, float]:
    """The trials at one temperature, in units of the sum of losses; returns the best parents seen and their sum."""
    draws = random.random((trials * len(members), 3))
    best = tree.parents
    if len(members) <= 2:
        return best, tree.total
    total = _anneal(tree.arrays, members, draws, temperature, tree.total, best, tree.total)
    tree.rebuild()
    return best, float(total)


@register_jitable
def is_within(tree: TreeArrays, node: int, top: int) -> bool:
    """Whether a node is in the subtree of another."""
    while node >= 0 and node != top:
        node = tree.parent[node]
    return node == top


@register_jitable
def anneal(
    tree: TreeArrays,
    members: Any,
    draws: Any,
    temperature: float,
    total: float,
    best: Any,
    best_total: float,
) -> float:
    """One trial for each row of draws; keeps the best parents in `best` and returns their sum of losses."""
    count = len(members)
    for at in range(len(draws)):
        # The first member is the source, which has no parent to change.
        node = members[1 + int(draws[at, 0] * (count - 1))]
        place, old = members[int(draws[at, 1] * count)], tree.parent[node]
        if place == old or is_within(tree, place, node):
            continue
        change = move_subtree(tree, node, place)
        if change <= 0.0 or draws[at, 2] < math.exp(-change / temperature):
            total += change
            if total < best_total:
                best_total = total
                best[:] = tree.parent
        else:
            move_subtree(tree, node, old)
    return best_total


@register_jitable
def descend(tree: TreeArrays, members: Any, least: float) -> float:
    """Move every subtree to its best place, one after another; returns the rise, 0 if none gains `least`."""
    total = 0.0
    for node in members:
        if node == SOURCE:
            continue
        old = tree.parent[node]
        # `held` is the change against the old place: a trial goes on from the last one and need not
        # go back.
        best, chosen, held = -least, old, 0.0
        for place in members:
            if place != tree.parent[node] and not is_within(tree, place, node):
                held += move_subtree(tree, node, place)
                if held < best:
                    best, chosen = held, place
        if chosen != tree.parent[node]:
            move_subtree(tree, node, chosen)
        if chosen != old:
            total += best
    return total


@cached_njit
def _anneal(
    tree: Any, members: Any, draws: Any, temperature: Any, total: Any, best: Any, best_total: Any
) -> Any:
    return anneal(tree, members, draws, temperature, total, best, best_total)


@cached_njit
def _descend(tree: Any, members: Any, least: Any) -> Any:
    return descend(tree, members, least)
