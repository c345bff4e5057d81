"""Adaptation: flows balance, rounds end, a stationary world stops moving, and changes are followed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from federations import FAST, home_loving_federation, small_federation, tiny_problem
from hypothesis import given
from hypothesis import strategies as st

from headwater.federation.distribution import baselines
from headwater.federation.distribution.adaptation import (
    AdaptationSettings,
    adapt,
    diffusion,
    leave_provider,
    redistribute,
)
from headwater.federation.distribution.hierarchy import (
    OUTSIDE,
    Federation,
    distribute,
)
from headwater.federation.distribution.mapping import MappingSettings
from headwater.federation.distribution.model import Indices, QueryGraph, Substreams
from headwater.federation.distribution.objective import Objective, check, cost
from headwater.federation.distribution.printed import printed_balance

SETTINGS = AdaptationSettings(FAST["wec"])


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 10)), min_size=2, max_size=11),
)
def test_rows_of_the_flow_sum_to_the_surplus(children: list[tuple[float, float]]) -> None:
    load, capability = np.array(children).T
    flow = diffusion(load, capability)
    surplus = load - capability * load.sum() / capability.sum()
    assert np.allclose(flow.sum(axis=1), surplus, atol=1e-9)
    assert np.allclose(flow, -flow.T)


@given(st.integers(0, 10**6))
def test_redistribution_ends_and_never_violates_more(seed: int) -> None:
    problem = tiny_problem(seed)
    generator = np.random.default_rng(seed)
    before = generator.integers(-1, len(problem.places), len(problem.queries)).astype(np.int32)
    after = redistribute(problem, before, SETTINGS, generator)
    assert np.all((after >= 0) & (after < len(problem.places)))
    if OUTSIDE not in before:
        assert check(problem, after).violation <= check(problem, before).violation + 1e-9


def test_the_printed_balance_does_not_end() -> None:
    problem = tiny_problem(3)
    start = np.zeros(len(problem.queries), np.int32)
    assert not printed_balance(problem, start).ended


def test_a_balanced_world_stops_moving() -> None:
    """A short form: rounds without a change of the world end with rounds without a move."""
    federation, queries = small_federation(1, 150)
    assert _last_moves(federation, queries, rounds=12, quiet=2, objective="traffic") == 0


@pytest.mark.long
@pytest.mark.parametrize("objective", ["wec", "traffic"])
def test_a_stationary_world_of_50_rounds_stops_moving(objective: Objective) -> None:
    federation, queries = small_federation(1, 400)
    assert _last_moves(federation, queries, rounds=50, quiet=20, objective=objective) == 0


def _last_moves(
    federation: Federation, queries: QueryGraph, rounds: int, quiet: int, objective: Objective
) -> int:
    """Migrations in the last rounds, from a random mapping."""
    place = baselines.random_mapping(federation.problem(queries), 1)
    moves = []
    for _ in range(rounds):
        done = adapt(federation, queries, place, AdaptationSettings(FAST[objective]))
        moves.append(done.migrations)
        place = done.place
    assert moves[0] > 0
    assert check(federation.problem(queries), place).feasible
    return sum(moves[-quiet:])


@pytest.mark.parametrize("objective", FAST)
def test_no_round_makes_a_mapping_worse(objective: Objective) -> None:
    """From homes where it is best to stay, and from anywhere."""
    federation, queries = home_loving_federation(1, 0.5)
    problem = federation.problem(queries)
    moved = 0
    for place in (baselines.naive(problem), baselines.random_mapping(problem, 1)):
        for seed in range(3):
            done = adapt(federation, queries, place, AdaptationSettings(FAST[objective]), seed)
            above = check(problem, place).violation, check(problem, done.place).violation
            assert above[1] <= above[0] + 1e-6
            if above[1] == above[0]:
                assert cost(problem, done.place, objective) <= cost(problem, place, objective)
            place, moved = done.place, moved + done.migrations
    assert moved > 0


def perturbed(federation: Federation, seed: int) -> Federation:
    """Some substreams five times as fast."""
    generator = np.random.default_rng(seed)
    rate = federation.substreams.rate.copy()
    rate[generator.permutation(len(rate))[: len(rate) // 25]] *= 5
    return replace(federation, substreams=Substreams(rate, federation.substreams.origin))


def reloaded(federation: Federation, queries: QueryGraph) -> QueryGraph:
    return replace(queries, load=queries.input_rates(federation.substreams))


@pytest.mark.long
@pytest.mark.parametrize("seed", [11, 12])
def test_adaptive_is_near_remapping_with_few_migrations(seed: int) -> None:
    federation, queries = small_federation(seed, 400, fewest=40)
    place = remapped = distribute(federation, queries, FAST["wec"]).place
    migrations = remapping_migrations = 0
    for number in range(3):
        federation = perturbed(federation, seed + number)
        queries = reloaded(federation, queries)
        problem = federation.problem(queries)
        done = adapt(federation, queries, place, SETTINGS)
        place, migrations = done.place, migrations + done.migrations
        again = baselines.remapping(problem, MappingSettings("wec", rounds=4), seed=number)
        remapping_migrations += _changed(remapped, again)
        remapped = again
        assert check(problem, place).feasible
        assert check(problem, place).traffic <= 1.10 * check(problem, remapped).traffic
    assert 5 * migrations <= remapping_migrations


def _changed(before: Indices, after: Indices) -> int:
    return int(np.count_nonzero(before != after))


@pytest.mark.long
def test_a_move_has_to_pay_for_its_state() -> None:
    federation, queries = small_federation(2, 200)
    place = distribute(federation, queries, replace(FAST["wec"], vertices=20)).place
    heavy = replace(queries, state=np.full(len(queries), 1e12))
    assert check(federation.problem(queries), place).feasible
    assert adapt(federation, heavy, place, SETTINGS).migrations == 0
    light = replace(queries, state=np.zeros(len(queries)))
    assert adapt(federation, light, place, SETTINGS).migrations > 0


def test_an_overloaded_provider_gives_load_away() -> None:
    federation, queries = small_federation(3, 200)
    place = np.zeros(len(queries), np.int32)
    for _ in range(3):
        place = adapt(federation, queries, place, SETTINGS).place
    assert check(federation.problem(queries), place).feasible


@pytest.mark.long
def test_a_provider_that_leaves_hands_over_its_queries_alone() -> None:
    federation, queries = small_federation(4, 200)
    place = distribute(federation, queries, FAST["wec"]).place
    for provider in (0, 7):
        after = leave_provider(federation, queries, place, provider, SETTINGS)
        assert np.all(after != provider)
        assert np.array_equal(after[place != provider], place[place != provider])
        able = federation.places.capability.copy()
        able[provider] = 0.0
        rest = replace(federation, places=replace(federation.places, capability=able))
        assert check(rest.problem(queries), after).feasible
