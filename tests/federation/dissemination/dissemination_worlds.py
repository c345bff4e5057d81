"""Small random worlds and trees for the tests of dissemination."""

from __future__ import annotations

import numpy as np

from headwater.federation.dissemination.model import (
    DisseminationWorld,
    Indices,
    QueueModel,
    mean_weights,
)


def small_world(
    seed: int,
    nodes: int,
    objects: int = 1,
    queue: QueueModel = "M/M/1",
    slowness: float = 0.02,
    interest: float = 0.6,
) -> DisseminationWorld:
    """A world of nodes on a plane; with one object every node wants it."""
    random = np.random.default_rng(seed)
    rates = random.uniform(0.5, 1.5, (nodes, objects))
    if objects > 1:
        rates[random.random(rates.shape) >= interest] = 0.0
    rates[0] = 1.5
    places = random.random((nodes, 2)) * 0.05
    delays = np.linalg.norm(places[:, None] - places[None], axis=2)
    return DisseminationWorld(
        rates,
        mean_weights(rates),
        random.uniform(0.001, slowness, nodes),
        random.uniform(0.0001, slowness / 5, nodes),
        delays,
        queue,
    )


def recursive_tree(seed: int, nodes: int) -> Indices:
    """Each node below a random earlier one."""
    random = np.random.default_rng(seed)
    return np.array([-1, *(int(random.integers(node)) for node in range(1, nodes))], np.int64)
