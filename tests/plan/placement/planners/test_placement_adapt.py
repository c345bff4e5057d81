"""Changes of every kind, in any order: nobody who is admitted is dropped."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.plan.placement.check import find_violations
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementPlan
from headwater.plan.placement.planner import Budget, remove_queries
from headwater.plan.placement.planners.adapt import (
    adapt,
    apply_measurements,
    find_strayed_queries,
    without_site,
)
from headwater.plan.placement.planners.ladder import LadderPlanner
from headwater.plan.placement.samples import SampleSetting, sample_problem
from placement_systems import random_system

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "rate", "lose", "return"]),
        st.integers(0, 3),
        st.sampled_from([0.5, 1.5, 2.0]),
    ),
    min_size=3,
    max_size=8,
)
BUDGET = Budget(5.0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 200), changes=CHANGES)
def test_nobody_is_dropped(seed: int, changes: list[tuple[str, int, float]]) -> None:
    whole = random_system(seed)
    problem, plan, waiting, expected = whole, PlacementPlan(), frozenset[int](), set[int]()
    ladder = LadderPlanner()
    lost: set[int] = set()
    for what, number, factor in changes:
        query, site = number % len(whole.queries), number % len(whole.sites)
        if what == "add" and query not in expected:
            ledger = Ledger(problem, plan)
            (decision,) = ladder(ledger, [query], BUDGET)
            assert find_violations(problem, ledger.plan(), plan) == ()
            plan = ledger.plan()
            expected |= {query} if decision.admitted else set()
        elif what == "remove":
            ledger = Ledger(problem, plan)
            remove_queries(ledger, [query])
            plan, waiting = ledger.plan(), waiting - {query}
            expected.discard(query)
        elif what == "rate":
            stream = number % len(whole.streams)
            whole = apply_measurements(whole, {}, {stream: whole.streams[stream].rate * factor})
        elif what == "lose":
            lost.add(site)
        elif what == "return":
            lost.discard(site)
        problem = whole
        for away in lost:
            problem = without_site(problem, away)
        adapted = adapt(problem, plan, ladder, BUDGET, waiting)
        plan, waiting = adapted.plan, adapted.waiting
        assert find_violations(problem, plan) == ()
        assert plan.admitted | waiting == expected
        assert not plan.admitted & waiting


def test_those_who_wait_come_back_with_their_site() -> None:
    problem = sample_problem(SampleSetting(hosts=4, base_streams=8, queries=10, ways=(2,)), 1)
    ledger, ladder = Ledger(problem), LadderPlanner()
    decisions = list(ladder(ledger, range(10), BUDGET))
    plan = ledger.plan()
    smaller = without_site(problem, 0)
    meanwhile = adapt(smaller, plan, ladder, BUDGET)
    assert meanwhile.waiting
    assert find_violations(smaller, meanwhile.plan) == ()
    after = adapt(problem, meanwhile.plan, ladder, BUDGET, meanwhile.waiting)
    assert not after.waiting
    assert after.plan.admitted == {d.query for d in decisions if d.admitted}


def test_queries_that_stray_are_found_and_planned_again_within_the_limit() -> None:
    problem = sample_problem(SampleSetting(hosts=4, base_streams=8, queries=10, ways=(2,)), 2)
    ledger, ladder = Ledger(problem), LadderPlanner()
    list(ladder(ledger, range(6), BUDGET))
    plan = ledger.plan()
    assert find_strayed_queries(problem, plan, {}, {}) == []
    heavy = {run.operator: problem.operators[run.operator].cpu * 3 for run in list(plan.runs)[:1]}
    suspects = find_strayed_queries(problem, plan, heavy, {})
    assert 1 <= len(suspects) < len(plan.admitted)
    measured = apply_measurements(problem, heavy, {})
    adapted = adapt(measured, plan, ladder, BUDGET, suspects=suspects, most=1)
    assert find_violations(measured, adapted.plan, plan) == ()
    assert set(suspects[:1]) <= adapted.replanned
    assert adapt(measured, plan, ladder, BUDGET, suspects=suspects, most=0).replanned == frozenset()


def test_a_rate_that_grows_moves_what_does_not_fit() -> None:
    problem = sample_problem(
        SampleSetting(hosts=4, base_streams=8, queries=12, ways=(2,), cpu=60), 3
    )
    ledger, ladder = Ledger(problem), LadderPlanner()
    list(ladder(ledger, range(12), BUDGET))
    smaller = replace(problem, sites=tuple(replace(s, cpu=s.cpu * 0.7) for s in problem.sites))
    adapted = adapt(smaller, ledger.plan(), ladder, BUDGET)
    assert find_violations(smaller, adapted.plan) == ()
    assert adapted.plan.admitted | adapted.waiting == ledger.admitted
    plenty = replace(problem, sites=tuple(replace(s, cpu=math.inf) for s in problem.sites))
    assert not adapt(plenty, adapted.plan, ladder, BUDGET, adapted.waiting).waiting


def test_a_planner_that_is_kept_sees_new_rates() -> None:
    problem = sample_problem(SampleSetting(hosts=4, base_streams=8, queries=10, ways=(2,)), 4)
    ladder = LadderPlanner(steps=("dynamic",))
    list(ladder(Ledger(problem), [0], BUDGET))
    dear = apply_measurements(problem, dict.fromkeys(range(len(problem.operators)), 1e6), {})
    (decision,) = ladder(Ledger(dear), [0], BUDGET)
    assert not decision.admitted
