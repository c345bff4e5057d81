"""The loss of a tree: the definition, the sum of parts, and numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dissemination_worlds import recursive_tree, small_world
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import PlanError
from headwater.federation.dissemination.model import (
    DisseminationWorld,
    QueueModel,
    mean_weights,
    node_losses,
)
from headwater.federation.dissemination.node_loss import (
    FULL_LOAD,
    queue_seconds,
    square_of_service,
)
from headwater.federation.dissemination.tree import DisseminationTree

queues = st.sampled_from(("M/M/1", "M/G/1"))


def star() -> DisseminationWorld:
    """A source with two children, one of which wants every second message."""
    rates = np.array([[2.0], [2.0], [1.0]])
    times = np.array([0.1, 0.2, 0.2]), np.array([0.05, 0.1, 0.1])
    delays = np.array([[0.0, 0.3, 0.7], [0.3, 0.0, 1.0], [0.7, 1.0, 0.0]])
    return DisseminationWorld(rates, mean_weights(rates), *times, delays)


def test_a_star_by_hand() -> None:
    found = node_losses(star(), np.array([-1, 0, 0]))
    # A message takes 0.1 + 0.05 for the first child and 0.1 + 0.05/2 for the second: 0.275 s.
    service, load = 0.275, 0.55
    assert found.load[0] == pytest.approx(load, rel=1e-14)
    delay = (1 + load) / (2 * (1 - load)) * service + 0.1 + 0.05 - service / 4
    assert found.processing == pytest.approx([delay, 0, 0], rel=1e-14)
    assert found.loss == pytest.approx([0, 2 * (delay + 0.3), delay + 0.7], rel=1e-14)
    assert found.average == pytest.approx((2 * (delay + 0.3) + delay + 0.7) / 2)
    assert found.overloaded == []


def test_a_chain_passes_on_what_is_wanted_below() -> None:
    rates = np.array([[2.0], [0.5], [1.0]])
    world = replace(star(), rates=rates, weights=mean_weights(rates))
    found = node_losses(world, np.array([-1, 0, 1]))
    # Node 1 wants 0.5 itself but gets 1, for node 2 below it.
    assert found.load[1] == pytest.approx(1.0 * (0.2 + 0.1))
    assert found.load[0] == pytest.approx(2.0 * 0.1 + 1.0 * 0.05)


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(2, 20), st.integers(1, 4), queues, st.floats(0.002, 0.5))
def test_the_sum_of_parts_is_the_definition(
    seed: int, nodes: int, objects: int, queue: QueueModel, slowness: float
) -> None:
    world = small_world(seed, nodes, objects, queue, slowness)
    parents = recursive_tree(seed, nodes)
    defined = node_losses(world, parents).average
    assert DisseminationTree(world, parents).average_loss == pytest.approx(defined, rel=1e-12)


def test_overload_is_finite_rises_and_is_named() -> None:
    loads = np.array([0.5, 0.9, FULL_LOAD - 1e-9, FULL_LOAD, 1.0, 1.5, 10.0])
    waits = [queue_seconds(load, 1.0, load, False) for load in loads]
    assert np.isfinite(waits).all()
    assert (np.diff(waits) > 0).all()
    assert waits[3] == pytest.approx(waits[2], rel=1e-5)
    slow = star().slowed([0], 10.0)
    assert node_losses(slow, np.array([-1, 0, 0])).overloaded == [0]
    assert node_losses(slow, np.array([-1, 0, 1])).loss.max() > 100


def test_service_of_many_children_varies_less_than_an_exponential() -> None:
    """So the general queue is shorter; with one child and no sending the two are the same."""
    assert square_of_service(1.0, 0.0, 1.0, 0.1, 0.1) == pytest.approx(2 * 0.1**2)
    world, parents = small_world(1, 12), np.array([-1, *([0] * 11)])
    general = DisseminationTree(replace(world, queue="M/G/1"), parents)
    assert general.total < DisseminationTree(world, parents).total


def test_the_square_of_service_is_that_of_drawn_messages() -> None:
    random = np.random.default_rng(1)
    tests, share, tp, tc, count = 4, 0.5, 0.01, 0.02, 200_000
    sent = random.random((count, tests)) < share
    times = random.exponential(tp, (count, tests)) + sent * random.exponential(tc, (count, tests))
    drawn = (times.sum(axis=1) ** 2).mean()
    assert square_of_service(3.0 * tests, 3.0 * tests * share, 3.0, tp, tc) / 3.0 == pytest.approx(
        drawn, rel=0.02
    )


def test_worlds_and_trees_that_make_no_sense_are_refused() -> None:
    world = star()
    with pytest.raises(PlanError, match="more messages"):
        replace(world, rates=np.array([[1.0], [2.0], [1.0]]))
    with pytest.raises(PlanError, match="never late"):
        replace(world, weights=np.ones(3))
    with pytest.raises(PlanError, match="3 nodes"):
        replace(world, weights=np.zeros(2))
    for parents in ([-1, 2, 1], [0, 0, 0], [1, 0, 0], [1, -1, 0]):
        with pytest.raises(PlanError, match="way to the source"):
            node_losses(world, np.array(parents))
    with pytest.raises(PlanError, match="alone"):
        node_losses(world, np.array([-1, -1, 0]))
