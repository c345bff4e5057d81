"""Exact planners against the search through all plans of small systems."""

from __future__ import annotations

import pytest

from headwater.plan.placement.check import find_violations
from headwater.plan.placement.fixed_load import ReplanScope
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import objective
from headwater.plan.placement.planner import Budget
from headwater.plan.placement.planners.flows import FlowFormulation, sqpr
from headwater.plan.placement.planners.ladder import LadderPlanner, plan_exactly
from headwater.plan.placement.program import SolverStatus
from headwater.plan.placement.solver import solve_highs
from placement_systems import exhaustive, random_system

NEAR = 1e-4


def compare(seed: int) -> tuple[int, int]:
    """Add the queries of a system one by one by the compact form; how many fit, and how many not."""
    problem = random_system(seed)
    ledger = Ledger(problem)
    fit = refused = 0
    for query in range(len(problem.queries)):
        before = ledger.plan()
        best = exhaustive(problem, before, [query])
        done, proven = plan_exactly(ledger, [query], seconds=20, gap=0.0)
        assert done == (best is not None), (seed, query)
        assert proven == (best is None), (seed, query)
        assert not find_violations(problem, ledger.plan(), before)
        if best is None:
            refused += 1
        else:
            fit += 1
            assert objective(problem, ledger.plan()) <= best + NEAR, (seed, query)
    return fit, refused


def compare_paper(seed: int) -> tuple[int, int]:
    """The same for the paper's form, where it ends in time."""
    problem = random_system(seed, hosts=3, queries=3)
    ledger = Ledger(problem)
    fit = refused = 0
    for query in range(len(problem.queries)):
        before = ledger.plan()
        best = exhaustive(problem, before, [query])
        wanted = [problem.queries[query].stream]
        form = FlowFormulation(ReplanScope(ledger, wanted), wanted)
        solution = solve_highs(form.program, 20.0)
        if solution.status is SolverStatus.INFEASIBLE:
            assert best is None, (seed, query)
            refused += 1
        elif solution.status is SolverStatus.OPTIMAL:
            plan = form.extract_plan(solution, [query])
            assert not find_violations(problem, plan, before), (seed, query)
            assert best is not None
            assert objective(problem, plan) == pytest.approx(best, abs=NEAR), (seed, query)
            fit += 1
            ledger.adopt(plan)
    return fit, refused


def total(counts: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(fit for fit, _ in counts), sum(refused for _, refused in counts)


def test_the_compact_form_equals_the_search_through_all_plans() -> None:
    fit, refused = total([compare(seed) for seed in range(15)])
    assert fit > 5
    assert refused > 5


def test_the_papers_form_equals_the_search_through_all_plans() -> None:
    fit, refused = total([compare_paper(seed) for seed in range(8)])
    assert fit > 2
    assert refused > 2


@pytest.mark.slow
def test_500_small_systems() -> None:
    fit, refused = total([compare(seed) for seed in range(1000, 1500)])
    assert min(fit, refused) > 200


@pytest.mark.slow
def test_the_papers_form_on_many_small_systems() -> None:
    fit, refused = total([compare_paper(seed) for seed in range(1000, 1500)])
    assert min(fit, refused) > 200


def test_a_batch_admits_as_many_as_possible() -> None:
    seen = set()
    for seed in range(7):
        problem = random_system(seed, hosts=3, queries=2, links=False)
        empty = Ledger(problem).plan()
        alone = [exhaustive(problem, empty, [q]) is not None for q in (0, 1)]
        both = exhaustive(problem, empty, [0, 1]) is not None
        most = 2 if both else int(any(alone))
        ledger = Ledger(problem)
        decided = list(sqpr(ledger, [0, 1], Budget(20.0)))
        assert sum(d.admitted for d in decided) == most, seed
        assert not find_violations(problem, ledger.plan())
        seen.add(most)
    assert seen >= {1, 2}


def test_sites_counted_as_one_prove_only_what_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.plan.placement.planners.ladder.MAX_SITES", 0)
    monkeypatch.setattr("headwater.plan.placement.fixed_load.MAX_CPU_SITES", 1)
    monkeypatch.setattr("headwater.plan.placement.fixed_load.MAX_BANDWIDTH_SITES", 0)
    admitted = proven = 0
    for seed in range(12):
        problem = random_system(seed, hosts=3, links=False)
        ledger = Ledger(problem)
        for query in range(len(problem.queries)):
            before = ledger.plan()
            possible = exhaustive(problem, before, [query]) is not None
            done, none = plan_exactly(ledger, [query], seconds=20)
            assert not find_violations(problem, ledger.plan(), before)
            assert possible or not done
            assert not (possible and none), (seed, query)
            admitted, proven = admitted + done, proven + none
    assert admitted > 5
    assert proven > 1


def test_the_ladder_refuses_only_what_is_proven_or_says_so() -> None:
    for seed in range(8):
        problem = random_system(seed)
        ledger, ladder = Ledger(problem), LadderPlanner()
        for query in range(len(problem.queries)):
            before = ledger.plan()
            (decision,) = ladder(ledger, [query], Budget(10.0))
            if not decision.admitted and decision.proven:
                assert exhaustive(problem, ledger.plan(), [query]) is None
            assert decision.admitted or decision.shortages
            assert not find_violations(problem, ledger.plan(), before)
