"""Coarsening: it ends, keeps weights and groups, and the WEC of a coarse mapping is that of the fine one."""

from __future__ import annotations

import numpy as np
import pytest
from federations import small_federation, tiny_problem
from hypothesis import given
from hypothesis import strategies as st

from headwater.federation.distribution.coarsening import ROOM, coarsen
from headwater.federation.distribution.model import make_query_graph
from headwater.federation.distribution.objective import check
from headwater.federation.distribution.printed import printed_coarsen


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_coarse_wec_equals_fine_wec(seed: int, vertices: int) -> None:
    problem = tiny_problem(seed)
    generator = np.random.default_rng(seed)
    coarse = coarsen(problem.queries, problem.substreams, vertices, generator)
    inner = problem.with_queries(coarse.graph)
    place = generator.integers(0, len(problem.places), len(coarse.graph)).astype(np.int32)
    above, below = check(inner, place), check(problem, place[coarse.label])
    assert above.wec == pytest.approx(below.wec, rel=1e-12)
    assert above.traffic == pytest.approx(below.traffic, rel=1e-12)
    assert np.allclose(above.load, below.load)
    assert coarse.graph.state.sum() == pytest.approx(problem.queries.state.sum())


@pytest.mark.parametrize("with_homes", [False, True])
def test_a_large_graph_becomes_small_within_the_weight_cap(with_homes: bool) -> None:
    federation, queries = small_federation(1, 600)
    homes = federation.home_latency if with_homes else None
    group = (np.arange(600) % 3).astype(np.int32)
    coarse = coarsen(
        queries, federation.substreams, 60, np.random.default_rng(1), group, homes, 0.01
    )
    assert 60 <= len(coarse.graph) < 120
    assert coarse.graph.load.max() <= ROOM * queries.load.sum() / 60
    for vertex in range(len(coarse.graph)):
        assert len(set(group[coarse.label == vertex])) == 1


def test_alike_queries_merge_first() -> None:
    """Two kinds of queries in one graph: every vertex is of one kind."""
    substreams = small_federation(1, 10)[0].substreams
    generator = np.random.default_rng(5)
    kinds = np.arange(40) % 2
    interests = [(kind * 500 + generator.permutation(40)[:20]).tolist() for kind in kinds]
    queries = make_query_graph(interests, [1.0] * 40, [0] * 40, [1.0] * 40)
    coarse = coarsen(queries, substreams, 10, generator)
    assert len(coarse.graph) == 10
    for vertex in range(10):
        assert len(set(kinds[coarse.label == vertex])) == 1


def test_queries_without_a_neighbour_end_it() -> None:
    problem = tiny_problem(1)
    size = min(4, len(problem.substreams))
    alone = make_query_graph([[s] for s in range(size)], [1.0] * size, [0] * size, [1.0] * size)
    coarse = coarsen(alone, problem.substreams, 1, np.random.default_rng(1))
    assert len(coarse.graph) == size
    assert not printed_coarsen(problem.with_queries(alone), 1).ended


def test_the_printed_algorithm_takes_queries_out_of_the_mapping() -> None:
    stuck = [printed_coarsen(tiny_problem(seed), 4).stuck_queries for seed in range(20)]
    assert sum(stuck) > 0
