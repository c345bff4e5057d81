"""Without delay nobody is ever out of tolerance, whatever the tree, the requirements and the values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.federation.dissemination.coherency import (
    AGE,
    CHANGES,
    DIFFERENCE,
    DIVERGENCES,
    Divergence,
    Forwarder,
    Reading,
    UpdateTagger,
    ValueHistory,
    effective_requirements,
    fidelity,
    forwarded_updates,
    forwarding_bound,
    printed_bound,
)
from headwater.reproduce.cosmos.coherency import load_ticks, random_parents, tree_histories

Bound = Callable[[float, float, bool], float]
LARGER_STEPS = Divergence("larger steps", lambda a, b: 2 * abs(a.value - b.value))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[int, int | None], dict[int, float]]:
    """A tree with requirements; some providers have none of their own."""
    count = draw(st.integers(2, 8))
    parents: dict[int, int | None] = {0: None}
    for provider in range(1, count):
        parents[provider] = draw(st.integers(0, provider - 1))
    wanted = st.one_of(st.floats(0, 0.2), st.sampled_from([0.0, 0.01, 0.05, 1.0, 3.0]))
    chosen = draw(st.lists(st.integers(1, count - 1), min_size=1, unique=True))
    return parents, {provider: draw(wanted) for provider in chosen}


def brute_force_effective(
    parents: dict[int, int | None], wanted: dict[int, float]
) -> dict[int, float]:
    def below(top: int) -> list[int]:
        return [top] + [n for child, p in parents.items() if p == top for n in below(child)]

    found = {p: min(wanted.get(n, np.inf) for n in below(p)) for p in parents}
    return {**found, 0: 0.0}


def violations(
    parents: dict[int, int | None],
    wanted: dict[int, float],
    readings: list[Reading],
    divergence: Divergence,
    bound: Bound = forwarding_bound,
) -> int:
    """How often somebody is out of tolerance when updates go down the tree at once."""
    effective = effective_requirements(parents, wanted)
    nodes = {
        provider: Forwarder(
            effective[provider],
            {child: effective[child] for child, parent in parents.items() if parent == provider},
            divergence,
            bound,
        )
        for provider in parents
    }
    count = 0
    for reading in readings:
        due = [0]
        for provider in due:
            due += nodes[provider].receive(reading)
        for provider, requirement in wanted.items():
            held = nodes[provider].current
            assert held is not None
            count += divergence.measure(reading, held) > requirement
    return count


@given(worlds())
def test_effective_requirement_is_the_strictest_below(
    world: tuple[dict[int, int | None], dict[int, float]],
) -> None:
    assert effective_requirements(*world) == brute_force_effective(*world)


@settings(max_examples=200)
@given(
    worlds(),
    st.lists(st.one_of(st.floats(-1, 1), st.sampled_from([0.01, -0.01, 0.1])), max_size=40),
    st.sampled_from([*DIVERGENCES.values(), LARGER_STEPS]),
)
def test_nobody_is_out_of_tolerance(
    world: tuple[dict[int, int | None], dict[int, float]],
    changes: list[float],
    divergence: Divergence,
) -> None:
    values = np.cumsum([48.0, *changes]).tolist()
    readings = [Reading(n, n * 0.3, value) for n, value in enumerate(values)]
    assert violations(*world, readings, divergence) == 0


def test_the_printed_rule_fails() -> None:
    """A parent within its 5 cents and a child within 6 of the parent: together up to 11."""
    readings = [Reading(n, n, value) for n, value in enumerate([0.0, 0.055, 0.1])]
    world: tuple[dict[int, int | None], dict[int, float]] = (
        {0: None, 1: 0, 2: 1},
        {1: 0.05, 2: 0.06},
    )
    assert violations(*world, readings, DIFFERENCE, printed_bound) == 1
    assert violations(*world, readings, DIFFERENCE) == 0


def test_whole_numbers_need_no_margin() -> None:
    assert forwarding_bound(3, 1, CHANGES.exact) == 2
    assert forwarding_bound(0.3, 0.1, AGE.exact) < 0.3 - 0.1
    assert forwarding_bound(0.1, 0.1) == 0
    assert forwarding_bound(np.inf, np.inf) == np.inf


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.sampled_from([0.0, 0.03, 0.5]))
def test_array_form_is_the_state_machine(values: list[float], requirement: float) -> None:
    node = Forwarder(0.0, {1: requirement})
    expected = [bool(node.receive(Reading(n, n, value))) for n, value in enumerate(values)]
    found = forwarded_updates(np.array(values), forwarding_bound(requirement, 0.0))
    assert found.tolist() == expected


def test_adopted_children_get_the_current_value_and_stricter_ones_an_update() -> None:
    node = Forwarder(0.0)
    assert node.receive(Reading(1, 0, 5.0)) == []
    assert node.adopt(7, 0.5) == [7]
    assert node.receive(Reading(2, 1, 5.4)) == []
    node.children[7] = 0.1
    assert node.due_children() == [7]
    assert node.due_children() == []
    node.drop(7)
    assert node.receive(Reading(3, 2, 9.0)) == []


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.2]), min_size=1),
)
def test_tags_keep_everybody_in_tolerance(values: list[float], requirements: list[float]) -> None:
    tagger = UpdateTagger(requirements)
    held: dict[float, Reading] = {}
    for number, value in enumerate(values):
        reading = Reading(number, number, value)
        tag = tagger.tag(reading)
        held |= {cr: reading for cr in requirements if tag is not None and cr <= tag}
        assert all(DIFFERENCE.measure(reading, held[cr]) <= cr for cr in requirements)


def test_tags_skip_what_nobody_needs() -> None:
    tagger = UpdateTagger((0.1, 0.5))
    tags = [tagger.tag(Reading(n, n, v)) for n, v in enumerate([0.0, 0.05, 0.2, 0.6])]
    assert tags == [0.5, None, 0.1, 0.5]


def history(*steps: tuple[float, float]) -> ValueHistory:
    times, values = zip(*steps, strict=True)
    return ValueHistory(np.array(times), np.array(values))


def test_fidelity_is_the_time_in_tolerance() -> None:
    source = history((0, 1.0), (4, 2.0), (8, 3.0))
    late = history((1, 1.0), (5, 2.0), (12, 3.0))
    # Without a value from 0 to 1; off by 1 from 4 to 5 and from 8 to the end.
    assert fidelity(source, late, 0.5, 10) == pytest.approx(0.6)
    assert fidelity(source, late, 1.0, 10) == pytest.approx(0.9)
    assert fidelity(source, source, 0.0, 10) == 1


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(0, 2),
)
def test_fidelity_equals_counting_the_seconds(
    one: list[tuple[int, int]], other: list[tuple[int, int]], requirement: int
) -> None:
    source, copy = ({**dict(steps)} for steps in (one, other))
    start, end = min(source), 40

    def at(steps: dict[int, int], second: int) -> float:
        known = [time for time in steps if time <= second]
        return steps[max(known)] if known else np.nan

    good = sum(abs(at(source, s) - at(copy, s)) <= requirement for s in range(start, end))
    found = fidelity(
        history(*sorted(source.items())), history(*sorted(copy.items())), requirement, end
    )
    assert found == pytest.approx(good / (end - start))


def tick_files() -> list[Path]:
    root = Path(__file__).parents[3].parent / "shared" / "data"
    folder = Path(os.environ.get("HEADWATER_DATA", root)) / "ticks"
    if not folder.exists():
        pytest.skip(f"{folder} is not here; HEADWATER_DATA names the folder of the shared data")
    return sorted(folder.glob("*.zip"))


@pytest.mark.long
def test_real_trades_keep_everybody_in_tolerance_and_the_printed_rule_does_not() -> None:
    for path in tick_files():
        source = load_ticks(path)
        random = np.random.default_rng(len(source.times))
        parents = random_parents(random, 20)
        wanted = {one: float(random.uniform(0.01, 0.1)) for one in list(parents)[1:]}
        effective = effective_requirements(parents, wanted)
        end = float(source.times[-1]) + 1
        worst = {}
        for bound in (forwarding_bound, printed_bound):
            found = tree_histories(source, parents, effective, bound)
            worst[bound] = min(fidelity(source, found[one], cr, end) for one, cr in wanted.items())
        assert worst[forwarding_bound] == 1
        assert worst[printed_bound] < 0.99
