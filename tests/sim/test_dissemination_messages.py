"""Messages through a tree: queues against a plain simulation, losses against sampling, tolerances at no delay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.dissemination.coherency import (
    effective_requirements,
    forwarding_bound,
)
from headwater.federation.dissemination.model import (
    DisseminationWorld,
    Indices,
    mean_weights,
    node_losses,
)
from headwater.sim import dissemination
from headwater.sim.dissemination import (
    Updates,
    late_time,
    poisson_updates,
    simulate_dissemination,
    time_out_of_tolerance,
)
from headwater.sim.prices import draw_tolerances, price_walks, wanted_rates


def chain_and_fan() -> Indices:
    return np.array([-1, 0, 0, 1, 1, 1, 3, 3], np.int64)


def world_of(rates: np.ndarray, times: float = 0.01, delay: float = 0.02) -> DisseminationWorld:
    count = len(rates)
    delays = np.full((count, count), delay)
    np.fill_diagonal(delays, 0.0)
    return DisseminationWorld(
        rates, mean_weights(rates), np.full(count, times), np.full(count, times / 5), delays
    )


def synthetic(times: float = 0.01, delay: float = 0.02) -> DisseminationWorld:
    rates = np.random.default_rng(1).uniform(0.5, 1.5, (8, 1))
    rates[0] = 1.5
    return world_of(rates, times, delay)


def run_synthetic(seconds: float, adaptive: bool = False, **kinds: float) -> np.ndarray:
    updates = poisson_updates(1.5, seconds, np.random.default_rng(2))
    return simulate_dissemination(
        synthetic(**kinds),
        chain_and_fan(),
        updates,
        np.random.default_rng(3),
        adaptive=adaptive,
        window=200.0,
    ).losses


@pytest.mark.long
@pytest.mark.parametrize("adaptive", [False, True])
def test_plain_simulation_gives_the_same_bytes(
    adaptive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = run_synthetic(400.0, adaptive)
    for name in ("_pass_messages", "_late_times"):
        monkeypatch.setattr(dissemination, name, getattr(dissemination, name).py_func)
    assert run_synthetic(400.0, adaptive).tobytes() == compiled.tobytes()
    assert compiled.min() > 0


@pytest.mark.long
def test_plain_simulation_of_objects_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> bytes:
        updates = price_walks(4, 800.0, np.random.default_rng(1))
        tolerances = draw_tolerances(8, 4, 0.7, np.random.default_rng(2))
        world = world_of(wanted_rates(updates, tolerances))
        found = simulate_dissemination(
            world,
            chain_and_fan(),
            updates,
            np.random.default_rng(3),
            tolerances=tolerances,
            window=200.0,
        )
        assert found.average > 0
        return found.losses.tobytes()

    compiled = run()
    for name in ("_pass_messages", "_tolerance_times"):
        monkeypatch.setattr(dissemination, name, getattr(dissemination, name).py_func)
    assert run() == compiled


def test_without_processing_the_loss_is_that_of_the_links() -> None:
    """No service time: a message is late by its links alone, and rarely is another on its way."""
    losses = run_synthetic(20_000.0, times=1e-12, delay=0.001)
    world = synthetic(times=1e-12, delay=0.001)
    assert losses.mean() == pytest.approx(node_losses(world, chain_and_fan()).average, rel=0.03)


def test_a_light_load_is_as_the_model_says() -> None:
    world = synthetic(times=0.002)
    assert run_synthetic(20_000.0, times=0.002).mean() == pytest.approx(
        node_losses(world, chain_and_fan()).average, rel=0.06
    )


def test_a_node_gets_all_that_it_wants_and_what_is_wanted_below() -> None:
    world = synthetic()
    updates = poisson_updates(1.5, 400.0, np.random.default_rng(2))
    run = dissemination._Simulation(world, chain_and_fan(), updates, np.random.default_rng(3), None)
    run.run_piece(0, False)
    run.run_piece(1, False)
    got = ~np.isnan(run.arrival)
    share = world.rates[:, 0] / 1.5
    below = {1: [1, 3, 4, 5, 6, 7], 2: [2], 3: [3, 6, 7], 4: [4], 5: [5], 6: [6], 7: [7]}
    for node, subtree in below.items():
        assert (got[node] == (updates.value < share[subtree].max())).all()
    assert (np.nan_to_num(run.arrival[3], nan=np.inf) > updates.time).all()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 30), st.booleans()), max_size=12),
)
def test_late_time_is_the_union_of_intervals(messages: list[tuple[float, float, bool]]) -> None:
    messages = sorted((round(time), round(late), wanted) for time, late, wanted in messages)
    emitted = np.array([time for time, _, _ in messages], np.float64)
    # Messages of one way arrive in their order.
    arrival = np.maximum.accumulate([time + late for time, late, _ in messages] or [0.0])
    wanted = np.array([one for _, _, one in messages], np.bool_)
    windows = np.zeros(6)
    late_time(emitted, arrival, wanted, windows, 10.0)
    seconds = set()
    for at in np.flatnonzero(wanted).tolist():
        seconds |= set(range(int(emitted[at]), int(arrival[at])))
    expected = [sum(10 * w <= second < 10 * (w + 1) for second in seconds) for w in range(6)]
    assert windows.tolist() == pytest.approx(expected)


@settings(max_examples=100)
@given(st.integers(0, 10**6))
def test_time_out_of_tolerance_is_what_sampling_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(0, 12))
    emitted = np.sort(random.choice(60, count, replace=False)).astype(np.float64)
    values = random.integers(-3, 4, count).astype(np.float64)
    arrival = np.maximum.accumulate(emitted + random.integers(0, 9, count))
    arrival = np.where(random.random(count) < 0.3, np.nan, arrival.astype(np.float64))
    windows = np.zeros(3)
    time_out_of_tolerance(emitted, values, arrival, 1.0, 0.0, 60.0, windows)
    expected = np.zeros(3)
    for moment in np.arange(60) + 0.5:
        source = values[emitted < moment][-1] if (emitted < moment).any() else 0.0
        seen = np.flatnonzero(arrival < moment)
        held = values[seen[-1]] if len(seen) else 0.0
        expected[int(moment // 20)] += abs(source - held) > 1.0
    assert windows.tolist() == pytest.approx(expected.tolist())


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_nobody_is_out_of_tolerance_without_delay(seed: int) -> None:
    random = np.random.default_rng(seed)
    updates = price_walks(3, 2000.0, random)
    tolerances = draw_tolerances(8, 3, 0.8, random)
    world = world_of(wanted_rates(updates, tolerances), 0.0, 0.0)
    found = simulate_dissemination(world, chain_and_fan(), updates, random, tolerances=tolerances)
    assert found.average == 0.0


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_bounds_are_those_of_forwarders(seed: int) -> None:
    random = np.random.default_rng(seed)
    parents = np.array([-1, *(int(random.integers(node)) for node in range(1, 8))], np.int64)
    tolerances = draw_tolerances(8, 2, 0.6, random)
    bounds, wants = tolerances.bounds(parents)
    for item in range(2):
        values = tolerances.values[:, item].tolist()
        effective = effective_requirements(
            {node: None if up < 0 else up for node, up in enumerate(parents.tolist())},
            {node: value for node, value in enumerate(values) if not np.isnan(value)},
        )
        for node in range(1, 8):
            expected = forwarding_bound(effective[node], effective[int(parents[node])])
            assert bounds[node, item] == pytest.approx(expected, abs=1e-15)
            assert wants[node, item] == (effective[node] < np.inf)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_nor_when_the_tree_changes(seed: int) -> None:
    """Every piece has another random tree, in which many have to follow more closely than before."""
    random = np.random.default_rng(seed)
    updates = price_walks(3, 2000.0, random)
    tolerances = draw_tolerances(8, 3, 0.6, random)
    world = world_of(wanted_rates(updates, tolerances), 0.0, 0.0)
    run = dissemination._Simulation(world, chain_and_fan(), updates, random, tolerances)
    for piece in range(10):
        run.run_piece(piece, False)
        parents = [-1, *(int(random.integers(node)) for node in range(1, 8))]
        run.change_tree(np.array(parents, np.int64), (piece + 1) * 200.0)
    assert run.losses(200.0).max() == 0.0


def test_with_delay_somebody_is() -> None:
    random = np.random.default_rng(1)
    updates = price_walks(3, 2000.0, random)
    tolerances = draw_tolerances(8, 3, 0.8, random)
    world = world_of(wanted_rates(updates, tolerances), 0.0, 0.5)
    found = simulate_dissemination(world, chain_and_fan(), updates, random, tolerances=tolerances)
    assert found.average > 0.0


def test_a_change_is_noticed_and_answered() -> None:
    """The slowed node loses its children to others."""
    world, parents = synthetic(), chain_and_fan()
    slow = world.slowed([1], 30.0)
    updates = poisson_updates(1.5, 4000.0, np.random.default_rng(2))
    run = simulate_dissemination(
        world,
        parents,
        updates,
        np.random.default_rng(3),
        adaptive=True,
        worthwhile=0.01,
        change=lambda now, current, tree: slow if now >= 2000 else current,
        window=1000.0,
    )
    assert run.moves > 0
    assert run.reports > 0
    assert node_losses(slow, run.parents).average < 0.5 * node_losses(slow, parents).average


def test_an_overloaded_tree_is_late_all_the_time_but_not_more() -> None:
    losses = run_synthetic(2000.0, times=1.0)
    assert 0.5 < losses.mean() <= 1.0
    assert losses.max() <= 1.0 + 1e-12


def test_updates_are_at_the_source_at_once() -> None:
    updates = poisson_updates(2.0, 1000.0, np.random.default_rng(1))
    assert isinstance(updates, Updates)
    assert (np.diff(updates.time) >= 0).all()
    assert len(updates.time) == pytest.approx(2000, rel=0.1)
    assert replace(updates, seconds=2.0).seconds == 2.0
