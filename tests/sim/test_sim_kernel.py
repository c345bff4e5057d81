"""The event kernel: order, repetition, and what it refuses."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

import headwater.sim.kernel as kernel
from headwater.errors import SimulationError
from headwater.sim.kernel import Process, Simulation


def test_events_happen_in_the_order_of_their_times_and_ties_as_they_were_set() -> None:
    simulation, seen = Simulation(), []
    for name, time in (("c", 2.0), ("a", 1.0), ("d", 2.0), ("b", 1.0)):
        simulation.schedule_at(time, lambda name=name: seen.append((simulation.now, name)))
    simulation.run()
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]
    assert simulation.event_count == 4


def test_a_process_waits_as_long_as_it_says() -> None:
    simulation, seen = Simulation(10.0), []

    def clock() -> Process:
        for delay in (1.0, 0.0, 2.5):
            yield delay
            seen.append(simulation.now)

    simulation.start_process(clock())
    simulation.run()
    assert seen == [11.0, 11.0, 13.5]


def test_a_run_up_to_a_time_includes_it_and_can_be_continued() -> None:
    simulation, seen = Simulation(), []
    for time in (1.0, 2.0, 3.0):
        simulation.schedule_at(time, lambda: seen.append(simulation.now))
    simulation.run(until=2.0)
    assert (seen, simulation.now) == ([1.0, 2.0], 2.0)
    simulation.run(until=2.5)
    assert simulation.now == 2.5
    simulation.run()
    assert (seen, simulation.now) == ([1.0, 2.0, 3.0], 3.0)


def test_what_is_cancelled_does_not_happen() -> None:
    simulation, seen = Simulation(), []
    simulation.schedule_at(1.0, lambda: seen.append("no")).cancel()
    simulation.schedule_at(2.0, lambda: seen.append("yes"))
    assert simulation.next_time() == 2.0
    simulation.run()
    assert seen == ["yes"]


@pytest.mark.parametrize("time", [0.5, math.inf, math.nan])
def test_a_time_that_is_past_or_none_is_refused(time: float) -> None:
    simulation = Simulation(1.0)
    with pytest.raises(SimulationError, match="nothing can be set"):
        simulation.schedule_at(time, lambda: None)


def test_a_step_without_events_is_refused() -> None:
    with pytest.raises(SimulationError, match="set an event first"):
        Simulation().step()


def test_the_same_seed_gives_the_same_events() -> None:
    def run(seed: int) -> list[float]:
        rng, simulation, seen = random.Random(seed), Simulation(), []

        def spawn() -> None:
            seen.append(simulation.now)
            if len(seen) < 200:
                simulation.schedule_after(rng.choice([0.0, 0.25, 1.0]), spawn)
                simulation.schedule_after(rng.random(), lambda: seen.append(-simulation.now))

        simulation.schedule_at(0.0, spawn)
        simulation.run()
        return seen

    assert run(1) == run(1) != run(2)


def test_the_kernel_is_small() -> None:
    assert len(Path(kernel.__file__).read_text().splitlines()) < 300
