"""The model checker against toys whose states can be counted by hand."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from plain_exploration import explore_plainly

from headwater.errors import SimulationError
from headwater.sim.checker.interleavings import (
    CheckedWorld,
    NodeModel,
    explore,
    sample_runs,
    shortest_failure,
)


@dataclass
class Notebook:
    """Writes down what it gets, in order; passes a message on if it has somebody to pass to."""

    following: int | None = None
    seen: list[Hashable] = field(default_factory=list)

    def copy(self) -> Notebook:
        return replace(self, seen=list(self.seen))

    def key(self) -> Hashable:
        return self.following, tuple(self.seen)


def take(node: Notebook, sender: int, message: Hashable) -> list[tuple[int, Hashable]]:
    node.seen.append((sender, message))
    return [] if node.following is None else [(node.following, message)]


def note(node: Notebook, dead: int) -> list[tuple[int, Hashable]]:
    node.seen.append(("dead", dead))
    return []


MODEL = NodeModel[Notebook](take, note_death=note)


def orders(living: dict[int, Notebook]) -> set[Hashable]:
    return {tuple(living[2].seen)}


def test_all_orders_of_two_channels_and_none_that_breaks_the_order_of_one() -> None:
    messages = [(0, 2, "a"), (0, 2, "b"), (1, 2, "x")]
    world = CheckedWorld([Notebook(), Notebook(), Notebook()], messages, MODEL)
    ends: set[Hashable] = set()
    found = explore(world, lambda living: str(ends.update(orders(living)) or ""))
    assert (found.ends, found.failures, found.complete, found.endless) == (3, 0, True, False)
    assert ends == {
        ((0, "a"), (0, "b"), (1, "x")),
        ((0, "a"), (1, "x"), (0, "b")),
        ((1, "x"), (0, "a"), (0, "b")),
    }
    # Subsets that keep the order of each channel: 1 + 2 + 3 (two read: ab, ax, xa) + 3.
    assert found.states == 1 + 2 + 3 + 3


def test_a_wrong_end_is_found_with_the_fewest_steps_to_it() -> None:
    world = CheckedWorld([Notebook(2), Notebook(2), Notebook()], [(1, 0, "a"), (0, 1, "b")], MODEL)

    def judge(living: dict[int, Notebook]) -> str:
        return "b came first" if living[2].seen[0] == (1, "b") else ""

    found = explore(world, judge)
    assert (found.ends, found.failures, found.first_failure) == (2, 1, "b came first")
    way = shortest_failure(world, judge)
    assert way is not None and len(way) == 4
    assert way.index("1 -> 2: b") < way.index("0 -> 2: a")
    assert shortest_failure(world, lambda living: "") is None


def test_what_the_dead_sent_arrives_or_is_lost_and_then_its_death_is_noticed() -> None:
    world = CheckedWorld([Notebook(), Notebook()], [(0, 1, "a")], MODEL, [0], 1)
    ends = set[Hashable]()
    explore(world, lambda living: str(ends.add(tuple(living[1].seen)) or ""))
    assert ends == {((0, "a"),), ((0, "a"), ("dead", 0)), (("dead", 0),)}


def test_sending_to_the_dead_is_noticed() -> None:
    world = CheckedWorld([Notebook(1), Notebook()], [(0, 0, "a")], MODEL, [1], 1)
    ends = set[Hashable]()
    explore(world, lambda living: str(ends.add(tuple(living[0].seen)) or ""))
    assert ((0, "a"),) in ends
    assert (("dead", 1), (0, "a"), ("dead", 1)) in ends


def test_runs_without_end_are_found() -> None:
    def bounce(node: Notebook, sender: int, message: Hashable) -> list[tuple[int, Hashable]]:
        return [(sender, message)]

    world = CheckedWorld([Notebook(), Notebook()], [(0, 1, "a")], NodeModel[Notebook](bounce))
    assert explore(world, lambda living: "").endless


def test_choices_are_all_tried() -> None:
    model = NodeModel[Notebook](
        take,
        lambda node: () if node.seen else ("left", "right"),
        lambda node, choice: take(node, 9, choice),
    )
    ends = set[Hashable]()
    explore(
        CheckedWorld([Notebook()], [], model),
        lambda living: str(ends.add(tuple(living[0].seen)) or ""),
    )
    assert ends == {((9, "left"),), ((9, "right"),)}


def test_limits_and_samples_say_that_they_are_not_all() -> None:
    world = CheckedWorld([Notebook() for _ in range(4)], [(0, 3, n) for n in range(9)], MODEL)
    assert not explore(world, lambda living: "", most_states=3).complete
    found = sample_runs(world, lambda living: "wrong", Random(1), 5)
    assert (found.ends, found.failures, found.states, found.complete) == (5, 5, 45, False)


def test_a_model_without_deaths_refuses_them() -> None:
    world = CheckedWorld([Notebook(), Notebook()], [], NodeModel[Notebook](take), [0], 1)
    with pytest.raises(SimulationError, match="does not say"):
        explore(replace(world, messages=[(0, 1, "a")]), lambda living: "")


def compare_with_plain(world: CheckedWorld[Any], judge: Callable[[dict[int, Any]], str]) -> None:
    """No more states, the same ends, the same verdicts as one state at a time."""
    plain = explore_plainly(world, judge)
    ends: list[Hashable] = []

    def note(living: dict[int, Any]) -> str:
        ends.append(tuple((at, node.key()) for at, node in sorted(living.items())))
        return judge(living)

    found = explore(world, note)
    # An end of the plain search has its channels and kills beside the nodes.
    assert sorted(ends, key=str) == sorted((nodes for nodes, _, _ in plain.ends), key=str)
    assert 0 < found.states <= plain.states
    assert (found.failures, found.endless, found.complete) == (plain.failures, plain.endless, True)


@dataclass
class Automaton:
    """A node whose steps are drawn, but always the same for the same state and message."""

    number: int
    count: int
    seed: int
    state: int = 0
    steps: int = 0

    def copy(self) -> Automaton:
        return replace(self)

    def key(self) -> Hashable:
        return self.number, self.state, self.steps

    def step(self, *event: Hashable) -> list[tuple[int, Hashable]]:
        """As long as it has steps left, it may send on."""
        random = Random(f"{self.seed} {self.number} {self.state} {event}")
        self.state = random.randrange(3)
        if self.steps == 0:
            return []
        receivers = random.sample(range(self.count), min(random.choice((0, 0, 1, 2)), self.count))
        self.steps -= bool(receivers)
        return [(to, random.randrange(2)) for to in receivers]


DRAWN = NodeModel[Automaton](
    lambda node, sender, message: node.step("takes", sender, message),
    lambda node: ("wakes",) if node.state and node.steps else (),
    lambda node, choice: node.step(choice),
    lambda node, dead: node.step("misses", dead),
)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_drawn_machines_have_the_states_of_a_plain_search(seed: int, count: int) -> None:
    nodes = [Automaton(at, count, seed, steps=2 if count < 3 else 1) for at in range(count)]
    messages = [(at, (at + 1) % count, at % 2) for at in range(count - count // 4)]
    mortal = list(range(count // 2 + 1))
    kills = seed % 3 if count < 3 else seed % 2
    world = CheckedWorld(nodes, messages, DRAWN, mortal, kills)
    compare_with_plain(
        world, lambda living: "odd" if sum(n.state for n in living.values()) % 2 else ""
    )


def test_some_drawn_machines_run_for_ever() -> None:
    """Else the comparison of what is endless would show nothing."""
    endless = 0
    for seed in range(100):
        nodes = [Automaton(at, 2, seed, steps=2) for at in range(2)]
        found = explore(CheckedWorld(nodes, [(0, 1, 1)], DRAWN), lambda living: "")
        endless += found.endless
    assert 0 < endless < 100
