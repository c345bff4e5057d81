"""Dissemination in simulated worlds: losses by the definition, trees that survive failures, rates of traces."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import SimulationError
from headwater.federation.dissemination.model import ABSENT, SOURCE, node_losses, tree_order
from headwater.network import Link, Network, Site, TransitStubShape
from headwater.sim.worlds.dissemination import (
    DisseminationRow,
    DrawnObjects,
    draw_objects,
    run_tree,
)
from headwater.sim.worlds.draw import draw_failures, draw_sites
from headwater.sim.worlds.model import (
    TREE_POLICIES,
    DisseminationSettings,
    Failure,
    FailureKind,
    NetworkSource,
    PriceTrace,
    ProviderSettings,
    SimulatedWorld,
)
from headwater.sim.worlds.simulate import simulate_world
from headwater.sim.worlds.timeline import MomentKind

LINE = Network((Site("oslo"), Site("lima"), Site("quito")), (Link(0, 1, 0.01), Link(1, 2, 0.02)))

TWO = SimulatedWorld(
    NetworkSource(LINE),
    ProviderSettings(("lima",)),
    dissemination=DisseminationSettings(
        ("greedy",),
        rate=(2.0, 2.0),
        filter_time=(0.01, 0.01),
        transmit_time=(0.03, 0.03),
        source="quito",
    ),
)

SMALL = SimulatedWorld(
    NetworkSource(shape=TransitStubShape(domains=1, transit=2, stubs=2, hosts=4)),
    ProviderSettings(count=10),
    dissemination=DisseminationSettings(TREE_POLICIES, objects=2, interest=0.7, duration=1000.0),
)


def run(world: SimulatedWorld, policy: str, seed: int = 1) -> list[DisseminationRow]:
    return run_with_objects(world, policy, seed)[1]


def run_with_objects(
    world: SimulatedWorld, policy: str, seed: int = 1
) -> tuple[DrawnObjects, list[DisseminationRow]]:
    assert world.dissemination is not None
    sites = draw_sites(world, seed)
    objects = draw_objects(world.dissemination, sites, seed)
    happenings = draw_failures(world, sites, seed)
    return objects, run_tree(policy, world.dissemination, objects, happenings, seed)


def test_a_loss_computed_by_hand() -> None:
    (start, *_) = run(TWO, "greedy")
    service = 0.01 + 0.03
    load = 2 * service
    processing = (1 + load) / (2 * (1 - load)) * service + service - service / 2
    assert start.loss == pytest.approx(2 * (0.02 + processing))
    assert (start.nodes, start.depth, start.fanout, start.overloaded) == (1, 1, 1, 0)
    slow = replace(TWO.dissemination, filter_time=(0.3, 0.3), transmit_time=(0.3, 0.3))
    assert run(replace(TWO, dissemination=slow), "greedy")[0].overloaded == 1


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["greedy", "dita", "source", "random+adaptive"]))
def test_losses_are_those_of_the_definition(seed: int, policy: str) -> None:
    objects, rows = run_with_objects(SMALL, policy, seed)
    for row in rows:
        losses = node_losses(objects.world, np.array(row.parents)).loss
        assert losses.max() < 1
        assert row.loss == pytest.approx(losses.sum() / row.nodes)
    assert [row.time for row in rows] == [0, 200, 400, 600, 800, 1000]


def test_nobody_loses_more_than_all() -> None:
    """The model of an overloaded queue knows no limit, but a share of time has one."""
    assert SMALL.dissemination is not None
    busy = replace(SMALL.dissemination, rate=(500.0, 900.0))
    objects, rows = run_with_objects(replace(SMALL, dissemination=busy), "source")
    assert rows[0].overloaded
    losses = node_losses(objects.world, np.array(rows[0].parents)).loss
    assert losses.max() > 1
    assert rows[0].loss == pytest.approx(np.minimum(losses, 1).sum() / rows[0].nodes)


def test_only_adaptive_trees_change_and_never_for_the_worse() -> None:
    for policy in ("random", "greedy", "source"):
        still, adapted = run(SMALL, policy), run(SMALL, f"{policy}+adaptive")
        assert len({row.parents for row in still}) == 1 and not any(row.moved for row in still)
        assert adapted[0].parents == still[0].parents
        losses = [row.loss for row in adapted]
        assert losses == sorted(losses, reverse=True)
    start, *_, end = run(SMALL, "random+adaptive")
    assert end.loss < start.loss


@pytest.mark.parametrize("policy", ["greedy", "dita+adaptive", "random", "random+adaptive"])
def test_a_tree_survives_deaths_and_returns(policy: str) -> None:
    deaths = Failure(150.0, FailureKind.dies, count=3), Failure(350.0, FailureKind.dies)
    world = replace(SMALL, failures=(*deaths, Failure(550.0, FailureKind.returns, count=4)))
    _, rows = run_with_objects(world, policy)
    by_time = {row.time: row for row in rows}
    assert [by_time[at].nodes - rows[0].nodes for at in (0, 150, 350, 550)] == [0, -3, -4, 0]
    for before, after in pairwise(rows):
        tree_order(np.array(after.parents))  # raises if it is no tree
        dead = {n for n, p in enumerate(after.parents) if p == ABSENT}
        assert all(parent not in dead for parent in after.parents)
        if after.kind is MomentKind.failure and after.nodes < before.nodes:
            check_adoption(before, after)


def check_adoption(before: DisseminationRow, after: DisseminationRow) -> None:
    """Each node that lives has its parent of before, or the nearest ancestor that lives."""
    for node, parent in enumerate(before.parents):
        if node != SOURCE and after.parents[node] != ABSENT:
            while after.parents[parent] == ABSENT:
                parent = before.parents[parent]
            assert after.parents[node] == parent


def test_who_returns_joins_where_it_costs_least_of_the_places_it_saw() -> None:
    names = draw_sites(SMALL, 1).names
    world = replace(
        SMALL,
        providers=ProviderSettings(names),
        failures=(
            Failure(150.0, FailureKind.dies, names[2]),
            Failure(160.0, FailureKind.returns, names[2]),
        ),
    )
    objects, rows = run_with_objects(world, "source")
    node = 1 + objects.providers.index(2)
    (back,) = (row for row in rows if row.time == 160.0)

    def loss(parent: int) -> float:
        parents = np.array(back.parents)
        parents[node] = parent
        return float(node_losses(objects.world, parents).loss.sum())

    # Below the source all others are leaves, so the newcomer has seen every place.
    others = [n for n, p in enumerate(back.parents) if p != ABSENT and n != node]
    assert loss(back.parents[node]) == pytest.approx(min(loss(other) for other in others))


def test_a_node_that_slows_loses_for_those_below_it() -> None:
    slows = replace(SMALL, failures=(Failure(150.0, FailureKind.slows, count=10, factor=3.0),))
    objects, rows = run_with_objects(slows, "random")
    slowed = objects.world.slowed(range(1, objects.world.count), 3.0)
    losses = node_losses(slowed, np.array(rows[1].parents)).loss
    assert rows[1].loss == pytest.approx(losses.sum() / rows[1].nodes)
    assert rows[1].loss > rows[0].loss


def test_the_source_cannot_die() -> None:
    world = replace(
        TWO,
        providers=ProviderSettings(("lima", "quito")),
        failures=(Failure(150.0, FailureKind.dies, "quito"),),
    )
    with pytest.raises(SimulationError, match="quito, cannot die"):
        simulate_world(world)


def test_rates_of_traces_follow_from_tolerances() -> None:
    random = np.random.default_rng(5)
    values = np.round(10 + np.cumsum(random.normal(0, 0.02, 400)), 2)
    trace = PriceTrace("x", np.arange(400) * 5.0, values)
    traced = replace(SMALL.dissemination, traces=(trace,), objects=1, tolerance=(0.03, 0.03))
    objects, _ = run_with_objects(replace(SMALL, dissemination=traced), "greedy")
    sent, last = 0, values[0]
    for value in values[:200]:  # those of the first 1000 seconds
        if abs(value - last) > 0.03:
            sent, last = sent + 1, value
    wanted = objects.world.rates[1:, 0]
    assert set(wanted.tolist()) == {0.0, sent / 1000}
    changes = np.count_nonzero(np.diff(values[:200]))
    assert objects.world.rates[SOURCE, 0] == pytest.approx(changes / 1000)


def test_the_same_seed_gives_the_same_report() -> None:
    few = replace(SMALL.dissemination, policies=("greedy", "annealing", "random+adaptive"))
    world = replace(SMALL, dissemination=few, failures=(Failure(150.0, FailureKind.dies),))
    assert simulate_world(world) == simulate_world(world)
    assert simulate_world(world) != simulate_world(replace(world, seeds=(2,)))


def test_measured_losses_are_near_those_of_the_model() -> None:
    assert SMALL.dissemination is not None
    single = replace(SMALL.dissemination, objects=1, interest=1.0)
    rows = run(replace(SMALL, dissemination=single), "random")
    assert rows[-1].measured is None
    measured = [row.measured for row in rows[:-1]]
    assert all(loss is not None for loss in measured)
    # The model adds up delays that overlap, so it is somewhat above.
    assert np.mean(measured) == pytest.approx(rows[0].loss, rel=0.2)


def test_nothing_is_lost_without_delays() -> None:
    near = Network(LINE.sites, tuple(replace(link, latency=0.0) for link in LINE.links))
    random = np.random.default_rng(7)
    values = np.round(10 + np.cumsum(random.normal(0, 0.02, 500)), 2)
    trace = PriceTrace("x", np.arange(500) * 2.0, values)
    world = SimulatedWorld(
        NetworkSource(near),
        dissemination=DisseminationSettings(
            ("random+adaptive",),
            traces=(trace,),
            tolerance=(0.01, 0.1),
            filter_time=(0.0, 0.0),
            transmit_time=(0.0, 0.0),
            source="quito",
            duration=1000.0,
        ),
    )
    rows = run(world, "random+adaptive")
    assert [row.measured for row in rows] == [0.0] * 5 + [None]


def test_several_objects_are_measured_if_they_are_prices() -> None:
    assert all(row.measured is None for row in run(SMALL, "greedy"))
    assert SMALL.dissemination is not None
    walks = replace(SMALL.dissemination, tolerance=(0.01, 0.1))
    *rows, end = run(replace(SMALL, dissemination=walks), "greedy")
    measured = [row.measured for row in rows if row.measured is not None]
    assert len(measured) == len(rows) and 0 < sum(measured) < len(rows)
    assert end.measured is None
