"""The loss of fidelity of a dissemination tree, by its definition.

A node that wants r messages a second and gets them D seconds late is out of tolerance for r D of the time. D is made of
the delays of the links and of the queues on the way, and these of the rates of all nodes further down: with several objects
in one tree each node wants some of them. `tree` computes the same sum from parts that change locally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headwater.errors import PlanError
from headwater.federation.dissemination.node_loss import queue_seconds, square_of_service

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
QueueModel = Literal["M/M/1", "M/G/1"]

SOURCE = 0
"""The position of the node where the objects arise; it is the root of every tree."""

ABSENT = -2
"""The parent of a node that is not in a tree; the source's is -1."""


@dataclass(frozen=True, eq=False)
class DisseminationWorld:
    """All that a dissemination tree is built from.

    `rates[node, object]` is how many messages a second a node wants of an object, 0 if it has no interest in it;
    those of the source are the rates of its updates. `weights` is what a second of delay costs each node.
    """

    rates: Floats
    weights: Floats
    filter_seconds: Floats
    transmit_seconds: Floats
    delays: Floats
    queue: QueueModel = "M/M/1"

    def __post_init__(self) -> None:
        count = len(self.rates)
        shapes = [a.shape for a in (self.weights, self.filter_seconds, self.transmit_seconds)]
        if shapes != [(count,)] * 3 or self.delays.shape != (count, count):
            raise PlanError(f"rates are of {count} nodes, but other values of {shapes}")
        if (self.rates.max(axis=0) > self.rates[SOURCE]).any():
            raise PlanError(
                "nobody can want more messages of an object than its source has updates"
            )
        if self.weights[SOURCE] != 0:
            raise PlanError("the source is never late: its weight is 0")

    @property
    def count(self) -> int:
        """How many nodes there are, with the source."""
        return len(self.rates)

    def slowed(self, nodes: Sequence[int], factor: float) -> DisseminationWorld:
        """The same world in which some nodes take longer to filter and to transmit."""
        times = np.ones(self.count)
        times[list(nodes)] = factor
        return replace(
            self,
            filter_seconds=self.filter_seconds * times,
            transmit_seconds=self.transmit_seconds * times,
        )


def mean_weights(rates: Floats) -> Floats:
    """For each node the mean of its rates over the objects that it wants; 0 for the source."""
    wanted = (rates > 0).sum(axis=1)
    weights: Floats = rates.sum(axis=1) / np.maximum(wanted, 1)
    weights[SOURCE] = 0.0
    return weights


def tree_order(parents: Indices) -> list[int]:
    """The nodes of a tree breadth first; raises PlanError if the parents are not a tree."""
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(parents.tolist()):
        below.setdefault(parent, []).append(node)
    order = below.get(-1, [])[:]
    for node in order:
        order += below.get(node, [])
    # Nodes of a circle are below nobody who is below the source, so they are missing here.
    if order[:1] != [SOURCE] or len(order) != (parents != ABSENT).sum():
        raise PlanError("not every node has a way to the source")
    if parents[SOURCE] != -1 or (parents == -1).sum() != 1:
        raise PlanError("the source alone has no parent")
    return order


@dataclass(frozen=True, eq=False)
class NodeLosses:
    """What the model says of each node: its load, its processing delay, and its loss of fidelity."""

    load: Floats
    processing: Floats
    loss: Floats

    @property
    def average(self) -> float:
        """The mean loss over the nodes but the source."""
        return float(self.loss[1:].mean())

    @property
    def overloaded(self) -> list[int]:
        """The nodes that get more work than they can do."""
        return np.flatnonzero(self.load >= 1.0).tolist()


def node_losses(world: DisseminationWorld, parents: Indices) -> NodeLosses:
    """Loads, delays and losses as they are defined, node by node."""
    order = tree_order(parents)
    largest = world.rates.copy()
    for node in reversed(order[1:]):
        up = parents[node]
        largest[up] = np.maximum(largest[up], largest[node])
    load, processing, delay = (np.zeros(world.count) for _ in range(3))
    for node in order:
        if node != SOURCE:
            up = parents[node]
            delay[node] = delay[up] + processing[up] + world.delays[up, node]
        children = [child for child in order if parents[child] == node]
        if children:
            load[node], processing[node] = _service(world, node, largest, largest[children])
    return NodeLosses(load, processing, world.weights * delay)


def _service(
    world: DisseminationWorld, node: int, largest: Floats, below: Floats
) -> tuple[float, float]:
    """Load and mean processing delay of a node with children of these effective rates."""
    tp, tc = float(world.filter_seconds[node]), float(world.transmit_seconds[node])
    arrivals, tests = float(largest[node].sum()), float((largest[node] * (below > 0)).sum())
    load = tp * tests + tc * float(below.sum())
    square = square_of_service(tests, float(below.sum()), arrivals, tp, tc)
    queue = queue_seconds(load, arrivals, square, world.queue == "M/G/1")
    mean = load / arrivals if arrivals else 0.0
    # Equation (4.5), written out and not taken from `node_loss`: tests compare the two.
    return load, queue + mean / 2 * (1 - 1 / len(below)) + tp + tc
