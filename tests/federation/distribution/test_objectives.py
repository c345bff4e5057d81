"""WEC and traffic: against explicit edges, against the links of paths, and kept up to date by moves."""

from __future__ import annotations

import numpy as np
import pytest
from federations import ORIGINS, small_federation, small_routes, tiny_problem
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import PlanError
from headwater.federation.distribution.kernel import fill_row, move, put, single_cost, take
from headwater.federation.distribution.model import Problem, make_problem, make_query_graph
from headwater.federation.distribution.objective import (
    OBJECTIVES,
    Objective,
    check,
    cost,
    empty_state,
    mapped_state,
    search_arrays,
)
from headwater.federation.distribution.printed import explicit_edges, explicit_wec
from headwater.federation.distribution.workload import choose_sites

objectives = pytest.mark.parametrize("objective", OBJECTIVES)


def random_places(problem: Problem, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.integers(0, len(problem.places), len(problem.queries)).astype(np.int32)


@given(st.integers(0, 10**6))
def test_wec_is_the_sum_over_explicit_edges(seed: int) -> None:
    problem = tiny_problem(seed)
    place = random_places(problem, seed)
    expected = explicit_wec(problem, explicit_edges(problem), place)
    assert check(problem, place).wec == pytest.approx(expected, rel=1e-12)


def test_traffic_is_what_the_links_carry() -> None:
    federation, queries = small_federation(3, 60)
    routes = small_routes()
    sites = choose_sites(routes, ORIGINS, len(federation.places), np.random.default_rng(3))
    problem = federation.problem(queries)
    place = random_places(problem, 1)
    carried: set[tuple[int, int]] = set()
    for query in range(len(queries)):
        host = int(sites.providers[place[query]])
        for s in queries.substream[queries.start[query] : queries.start[query + 1]]:
            origin = int(sites.origins[federation.substreams.origin[s]])
            carried |= {(int(s), link) for link in routes.links(origin, host)}
    data = sum(
        federation.substreams.rate[s] * routes.network.links[link].latency for s, link in carried
    )
    results = sum(
        queries.result[query]
        * routes.distance[
            sites.providers[place[query]], sites.providers[queries.home[query] - ORIGINS]
        ]
        for query in range(len(queries))
    )
    found = check(problem, place)
    assert found.traffic == pytest.approx(data + results, rel=1e-12)
    assert found.result_traffic == pytest.approx(results, rel=1e-12)


@objectives
@given(seed=st.integers(0, 10**6))
def test_a_row_is_what_the_cost_changes_by(objective: Objective, seed: int) -> None:
    problem = tiny_problem(seed)
    place = random_places(problem, seed)
    arrays = search_arrays(problem, objective)
    state = mapped_state(arrays, problem, objective, place)
    vertex = seed % len(place)
    row = np.empty(len(problem.places))
    fill_row(arrays, state, vertex, row)
    for k in range(len(row)):
        after = place.copy()
        after[vertex] = k
        change = cost(problem, after, objective) - cost(problem, place, objective)
        assert row[k] - row[place[vertex]] == pytest.approx(change, abs=1e-9)
        assert single_cost(arrays, state, vertex, k) == pytest.approx(row[k], abs=1e-9)


@objectives
@given(seed=st.integers(0, 10**6))
def test_moves_lead_to_the_state_of_the_mapping(objective: Objective, seed: int) -> None:
    problem = tiny_problem(seed)
    arrays = search_arrays(problem, objective)
    state = mapped_state(arrays, problem, objective, random_places(problem, seed))
    target = random_places(problem, seed + 1)
    for vertex, place in enumerate(target.tolist()):
        if vertex % 2 and place != state.place[vertex]:
            move(arrays, state, vertex, place)
        else:
            take(arrays, state, vertex)
            put(arrays, state, vertex, place)
    expected = mapped_state(arrays, problem, objective, target)
    for found, wanted in zip(state[:4], expected[:4], strict=True):
        assert np.allclose(found, wanted, atol=1e-9)
    fresh = empty_state(problem, objective)
    assert np.all(fresh.place == -1)
    assert fresh.used.sum() == 0


def test_a_mapping_that_is_none_is_refused() -> None:
    problem = tiny_problem(1)
    with pytest.raises(PlanError, match="places for them"):
        check(problem, np.zeros(1, np.int32))
    with pytest.raises(PlanError, match="places go from 0"):
        check(problem, np.full(len(problem.queries), len(problem.places), np.int32))


def test_loads_are_compared_with_shares_by_capability() -> None:
    problem = tiny_problem(1)
    size = len(problem.places)
    queries = make_query_graph(
        [[0]] * size, problem.places.capability.tolist(), [0] * size, [0.0] * size
    )
    balanced = make_problem(problem.substreams, queries, problem.places, 0.0)
    found = check(balanced, np.arange(size, dtype=np.int32))
    assert found.feasible
    assert found.relative_loads(balanced) == pytest.approx(np.ones(size))
    assert not check(balanced, np.zeros(size, np.int32)).feasible
