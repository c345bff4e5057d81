"""The compiled functions and the same functions interpreted by Python give the same bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest
from federations import small_federation, tiny_problem

from headwater import jit
from headwater.federation.distribution import (
    adaptation,
    coarsening,
    hierarchy,
    kernel,
    mapping,
    objective,
    routing,
)
from headwater.federation.distribution.objective import OBJECTIVES, Objective

# In the order of their imports.
MODULES: tuple[ModuleType, ...] = (
    kernel,
    objective,
    coarsening,
    mapping,
    hierarchy,
    routing,
    adaptation,
)


@contextmanager
def interpreted() -> Iterator[dict[str, ModuleType]]:
    """The modules once more, executed from their sources without compiling any function."""
    twins = {}
    compiled, jit.cached_njit = jit.cached_njit, lambda function: function
    try:
        for module in MODULES:
            twin = ModuleType(module.__name__)
            sys.modules[module.__name__] = twin
            source = module.__spec__.loader.get_source(module.__name__)  # type: ignore[union-attr]
            exec(compile(source, module.__file__ or "", "exec"), twin.__dict__)
            twins[module.__name__.rpartition(".")[2]] = twin
        yield twins
    finally:
        jit.cached_njit = compiled
        sys.modules.update({module.__name__: module for module in MODULES})


@pytest.mark.long
@pytest.mark.parametrize("name", OBJECTIVES)
def test_mappings_are_the_same_bytes(name: Objective) -> None:
    settings = mapping.MappingSettings(name, rounds=2, kicks=1)
    with interpreted() as twins:
        assert not hasattr(twins["kernel"].climb, "signatures")
        for seed in range(3):
            problem = tiny_problem(seed)
            assert np.array_equal(
                mapping.map_queries(problem, settings),
                twins["mapping"].map_queries(problem, settings),
            )
            place = mapping.map_queries(problem, settings)
            assert objective.cost(problem, place, name) == twins["objective"].cost(
                problem, place, name
            )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_states_are_the_same_bytes(name: Objective) -> None:
    problem = tiny_problem(7)
    place = np.zeros(len(problem.queries), np.int32)
    with interpreted() as twins:
        arrays = objective.search_arrays(problem, name)
        ours = objective.mapped_state(arrays, problem, name, place)
        twin = twins["objective"].mapped_state(arrays, problem, name, place)
        for vertex in range(len(place)):
            kernel.move(arrays, ours, vertex, vertex % 2)
            twins["kernel"].move(arrays, twin, vertex, vertex % 2)
    for one, other in zip(ours, twin, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.long
@pytest.mark.parametrize("name", OBJECTIVES)
def test_distribution_routing_and_rounds_are_the_same_bytes(name: Objective) -> None:
    federation, queries = small_federation(1, 24, k=2, providers=6)
    settings = hierarchy.HierarchySettings(
        mapping.MappingSettings(name, starts=("greedy",), rounds=1, kicks=0), vertices=8
    )
    with interpreted() as twins:
        found = hierarchy.distribute(federation, queries, settings)
        twin = twins["hierarchy"].distribute(federation, queries, settings)
        assert np.array_equal(found.place, twin.place)
        place = np.zeros(len(queries), np.int32)
        rounds = adaptation.AdaptationSettings(settings)
        ours = adaptation.adapt(federation, queries, place, rounds)
        assert np.array_equal(
            ours.place, twins["adaptation"].adapt(federation, queries, place, rounds).place
        )
        routed = routing.OnlineRouter(federation, queries, found.place, name).route(queries)
        twin_router = twins["routing"].OnlineRouter(federation, queries, found.place, name)
        assert np.array_equal(routed, twin_router.route(queries))
