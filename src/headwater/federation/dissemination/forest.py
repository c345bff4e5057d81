"""One dissemination tree for each object: nodes share their queues, so trees meet in the loads of nodes.

A move in one tree changes the wait of all messages of a node, also of those of other trees. So each tree knows nothing of
the others but four numbers for each node (load, arrivals, squares of service times, weight below), and counts what its
moves cost them; a sequence of moves then never raises the total loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from headwater.federation.dissemination.annealing import (
    THOROUGH,
    AnnealingSettings,
    anneal_once,
)
from headwater.federation.dissemination.construction import (
    DITA_FANOUTS,
    dita_tree,
    random_tree,
    tree_members,
)
from headwater.federation.dissemination.model import DisseminationWorld, Floats, Indices
from headwater.federation.dissemination.moves import Move
from headwater.federation.dissemination.node_loss import square_of_service
from headwater.federation.dissemination.rounds import run_round
from headwater.federation.dissemination.tree import DisseminationTree

WEIGHT = 3
"""The column of the weight below a node, of the four numbers that other trees know."""


def object_worlds(world: DisseminationWorld) -> list[DisseminationWorld]:
    """For each object a world of those who want it; a node's weight is divided among its objects."""
    wanted = np.maximum((world.rates > 0).sum(axis=1), 1)
    worlds = []
    for item in range(world.rates.shape[1]):
        rates = world.rates[:, item : item + 1]
        # A node's loss is the mean over its objects, so each of its trees gets a part of it.
        weights = rates[:, 0] / wanted
        weights[0] = 0.0
        worlds.append(replace(world, rates=rates, weights=weights))
    return worlds


class Forest:
    """A tree for each object of a world, and the loads of all together."""

    def __init__(
        self, world: DisseminationWorld, build: Callable[[DisseminationWorld], Indices]
    ) -> None:
        self.world = world
        self.trees = [DisseminationTree(one, build(one)) for one in object_worlds(world)]
        self.parts = [part_elsewhere(tree) for tree in self.trees]
        self.sums: Floats = np.sum(self.parts, axis=0)

    def focus(self, item: int) -> DisseminationTree:
        """The tree of an object, with all others as they are now; after a change of it call `absorb`."""
        tree = self.trees[item]
        tree.arrays.other[:] = self.sums - self.parts[item]
        tree.rebuild()
        return tree

    def absorb(self, item: int) -> None:
        """Let the other trees see what the tree of an object has become."""
        part = part_elsewhere(self.trees[item])
        self.sums += part - self.parts[item]
        self.parts[item] = part

    @property
    def average_loss(self) -> float:
        """The mean loss over the nodes but the source."""
        total = 0.0
        for item, tree in enumerate(self.trees):
            tree.arrays.other[:] = self.sums - self.parts[item]
            # The wait of messages of other trees counts with those trees; here it would count
            # twice.
            tree.arrays.other[:, WEIGHT] = 0.0
            tree.rebuild()
            total += tree.total
        return total / (self.world.count - 1)


def part_elsewhere(tree: DisseminationTree) -> Floats:
    """By node what a tree adds to load, arrivals, squares of service times and weight below."""
    arrays, part = tree.arrays, np.zeros((tree.world.count, 4))
    for node in np.flatnonzero(arrays.child_count).tolist():
        tp, tc = arrays.filter_seconds[node], arrays.transmit_seconds[node]
        tests, sent, arrivals = arrays.filtered[node], arrays.sent[node], arrays.arrivals[node]
        part[node, 0] = tp * tests + tc * sent
        part[node, 1] = arrivals
        part[node, 2] = square_of_service(tests, sent, arrivals, tp, tc)
        part[node, WEIGHT] = arrays.weight_below[node] - arrays.weights[node]
    return part


def run_forest_round(forest: Forest, worthwhile: float = 0.0) -> list[Move]:
    """A token through each tree, one tree after another; returns the moves."""
    made = []
    for item in range(len(forest.trees)):
        made += run_round(forest.focus(item), worthwhile)
        forest.absorb(item)
    return made


def best_dita_forest(world: DisseminationWorld) -> Forest:
    """DiTA's tree for each object, with the fan-outs, the same in all trees, of the least loss."""
    forests = [
        Forest(world, partial(dita_tree, source_fanout=pair[0], fanout=pair[1]))
        for pair in DITA_FANOUTS
    ]
    return min(forests, key=lambda forest: forest.average_loss)


def annealed_forest(
    world: DisseminationWorld,
    random: np.random.Generator,
    settings: AnnealingSettings = THOROUGH,
) -> Forest:
    """The best forest found from random trees; at each temperature all trees have their trials in turn."""
    forest = Forest(world, lambda one: random_tree(one, random))
    members = [tree_members(tree.world) for tree in forest.trees]
    lowest = forest.average_loss
    best = [tree.parents for tree in forest.trees]
    temperature, unchanged = settings.start * lowest, 0
    while temperature >= settings.frozen * lowest or unchanged < settings.patience:
        for item in range(len(forest.trees)):
            # Kernels work with sums of losses, the temperature is one of means.
            heat = temperature * (world.count - 1)
            anneal_once(forest.focus(item), members[item], random, settings.trials, heat)
            forest.absorb(item)
        loss = forest.average_loss
        unchanged += 1
        if loss < lowest * (1 - 1e-9):
            lowest, unchanged = loss, 0
            best = [tree.parents for tree in forest.trees]
        temperature *= settings.cooling
    found = iter(best)
    return Forest(world, lambda one: next(found))
