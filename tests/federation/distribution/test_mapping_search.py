"""Mapping against all mappings there are, against greedy and naive, and the printed algorithm beside it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from federations import all_mappings, small_federation, tiny_problem, violation_of

from headwater.federation.distribution import baselines
from headwater.federation.distribution.kernel import pack
from headwater.federation.distribution.mapping import MappingSettings, map_queries
from headwater.federation.distribution.model import Indices, Problem
from headwater.federation.distribution.objective import OBJECTIVES, Objective, check, cost
from headwater.federation.distribution.printed import printed_map

objectives = pytest.mark.parametrize("objective", OBJECTIVES)


def best_of_all(problem: Problem, objective: Objective) -> tuple[float, float]:
    best = (np.inf, np.inf)
    for place in all_mappings(problem):
        violation = violation_of(problem, place)
        if violation <= best[0]:
            best = min(best, (violation, cost(problem, place, objective)))
    return best


def value(problem: Problem, place: Indices, objective: Objective) -> tuple[float, float]:
    return round(violation_of(problem, place), 9), cost(problem, place, objective) * (1 - 1e-9)


def compare_with_all(seeds: range, objective: Objective) -> list[float]:
    """The costs by the least possible, where bounds can be kept; the rest is asserted for each."""
    ratios = []
    for seed in seeds:
        problem = tiny_problem(seed, 6)
        violation, least = best_of_all(problem, objective)
        found = map_queries(problem, MappingSettings(objective))
        greedy = baselines.greedy(problem, objective)
        above, most = violation_of(problem, greedy), cost(problem, greedy, objective)
        assert value(problem, found, objective) <= (round(above, 9), most)
        if violation == 0:
            assert check(problem, found).feasible, f"seed {seed}: a feasible mapping was missed"
            ratios.append(cost(problem, found, objective) / max(least, 1e-300))
        naive = baselines.naive(problem)
        if objective == "traffic" and check(problem, naive).feasible:
            assert check(problem, found).traffic <= check(problem, naive).traffic * (1 + 1e-9)
    return ratios


@objectives
def test_few_small_instances_against_all_mappings(objective: Objective) -> None:
    ratios = compare_with_all(range(1000, 1012), objective)
    assert len(ratios) > 4
    assert np.mean(np.array(ratios) <= 1.05) >= 0.9


@pytest.mark.long
@objectives
def test_500_small_instances_against_all_mappings(objective: Objective) -> None:
    ratios = compare_with_all(range(500), objective)
    assert len(ratios) > 200
    assert np.mean(np.array(ratios) <= 1.05) >= 0.95


def test_packing_finds_a_mapping_or_proves_that_there_is_none() -> None:
    outcomes = set()
    for seed in range(200):
        generator = np.random.default_rng(seed)
        load, bound = generator.integers(1, 9, 6).astype(float), np.array([9.0, 9.0, 8.0])
        possible = any(
            np.all(np.bincount(places, load, 3) <= bound)
            for places in itertools.product(range(3), repeat=6)
        )
        order = np.argsort(-load, kind="stable")
        fits, place = pack(load, bound, order, 100_000)
        assert fits == possible
        assert not fits or np.all(np.bincount(place, load, 3) <= bound)
        outcomes.add(bool(fits))
    assert outcomes == {True, False}


def test_naive_is_never_beaten_by_a_worse_mapping() -> None:
    """Where the homes keep the bounds, and results cost a lot, the mapping stays near home."""
    for share in (0.0, 0.1, 1.0):
        federation, queries = small_federation(2, 150, result_share=share)
        problem = federation.problem(queries)
        loose = Problem(problem.substreams, queries, problem.places, 2 * problem.bound)
        naive = check(loose, baselines.naive(loose))
        assert naive.feasible
        found = check(loose, map_queries(loose, MappingSettings("traffic", rounds=3)))
        assert found.feasible
        assert found.traffic <= naive.traffic * (1 + 1e-9)


def test_the_mapping_beats_sorting_by_group() -> None:
    federation, queries = small_federation(4, 300)
    problem = federation.problem(queries)
    hottest = queries.substream[queries.start[:-1]]
    by_sorting = check(problem, baselines.sorted_by_group(problem, hottest))
    found = check(problem, map_queries(problem, MappingSettings("wec", rounds=4)))
    assert found.feasible
    assert found.wec < by_sorting.wec


@pytest.mark.long
def test_the_printed_algorithm_keeps_violations_that_could_be_mended() -> None:
    """A start that violates stays the best as long as everything else has a larger WEC."""
    assert any(_keeps_a_violation(tiny_problem(seed, 5)) for seed in range(300))


def _keeps_a_violation(problem: Problem) -> bool:
    start = baselines.greedy(problem, "wec")
    if check(problem, start).feasible or check(problem, printed_map(problem, start).place).feasible:
        return False
    return check(problem, map_queries(problem, MappingSettings("wec"))).feasible


def test_the_printed_algorithm_loses_where_it_keeps_the_bounds() -> None:
    lost, compared = 0, 0
    for seed in range(12):
        problem = tiny_problem(seed, 6)
        ours = map_queries(problem, MappingSettings("wec"))
        printed = printed_map(problem, baselines.greedy(problem, "wec")).place
        if check(problem, ours).feasible and check(problem, printed).feasible:
            compared += 1
            lost += cost(problem, printed, "wec") > cost(problem, ours, "wec") * 1.001
    assert compared > 4
    assert lost > 0


def test_nothing_to_map_is_no_mistake() -> None:
    problem = tiny_problem(1)
    empty = problem.with_queries(problem.queries.select(np.zeros(0, np.int32)))
    assert len(map_queries(empty)) == 0
