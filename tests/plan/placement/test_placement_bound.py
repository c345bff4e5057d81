"""No planner admits more than the certified bound."""

from __future__ import annotations

import pytest

from headwater.plan.placement.bound import certified_bound, optimistic_admissions
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementPlan
from headwater.plan.placement.planner import Budget
from headwater.plan.placement.planners.ladder import LadderPlanner
from headwater.plan.placement.samples import SampleSetting, sample_problem
from placement_systems import exhaustive, random_system


@pytest.mark.parametrize("seed", range(2))
def test_nobody_beats_the_certified_bound(seed: int) -> None:
    setting = SampleSetting(hosts=6, base_streams=12, queries=60, ways=(2, 3), cpu=105.0)
    problem = sample_problem(setting, seed)
    ledger = Ledger(problem)
    list(LadderPlanner(steps=("dynamic", "recreate"))(ledger, range(60), Budget(2.0)))
    bound = certified_bound(problem, range(60))
    assert len(ledger.admitted) <= bound <= 60
    assert bound < 60


def test_the_bound_holds_for_all_plans_of_small_systems() -> None:
    for seed in range(20):
        problem = random_system(seed, hosts=3, queries=2)
        possible = exhaustive(problem, PlacementPlan(), [0, 1]) is not None
        assert certified_bound(problem, [0, 1]) >= (2 if possible else 0)


def test_equal_queries_count_each() -> None:
    problem = random_system(0)
    assert certified_bound(problem, [0, 0, 0]) in (0, 3)


def test_the_optimistic_bound_takes_queries_as_they_come() -> None:
    problem = sample_problem(
        SampleSetting(hosts=2, base_streams=6, queries=30, ways=(2,), cpu=80.0), 1
    )
    admitted = optimistic_admissions(problem, range(30))
    assert admitted[0]
    assert 8 <= sum(admitted) < 30
