"""What every planner has to do, whichever it is."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from headwater.network.model import Site
from headwater.plan.placement.check import find_violations
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import (
    CONSOLIDATION_WEIGHTS,
    Links,
    PlacementOperator,
    PlacementPlan,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
)
from headwater.plan.placement.planner import Budget, Decision, remove_queries
from headwater.plan.placement.planners.ladder import LadderPlanner
from headwater.plan.placement.planners.registry import PLANNERS, make_planner
from headwater.plan.placement.planners.soda import macro_w
from headwater.plan.placement.samples import SampleSetting, sample_problem
from placement_systems import random_system

SMALL = SampleSetting(hosts=6, base_streams=12, queries=40, ways=(2, 3), cpu=65.0, bandwidth=65.0)
SECONDS = {"sqpr": 0.3}


def run(
    name: str, problem: PlacementProblem, queries: int | None = None
) -> tuple[Ledger, list[Decision]]:
    """Submit queries one by one; every plan on the way is checked."""
    ledger, planner = Ledger(problem), make_planner(name)
    decisions: list[Decision] = []
    for query in range(queries or len(problem.queries)):
        before = ledger.plan()
        decisions += planner(ledger, [query], Budget(SECONDS.get(name, 2.0)))
        assert find_violations(problem, ledger.plan(), before) == ()
        assert (query in ledger.admitted) == decisions[-1].admitted
    return ledger, decisions


@pytest.mark.parametrize("name", [name for name in PLANNERS if name != "sqpr"])
def test_every_plan_is_one(name: str) -> None:
    ledger, decisions = run(name, sample_problem(SMALL, 1))
    assert 10 < len(ledger.admitted) < 40
    assert [d.query for d in decisions] == list(range(40))


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("seed", range(4))
def test_small_systems_with_narrow_links_and_little_memory(name: str, seed: int) -> None:
    run(name, random_system(seed, hosts=3, queries=3, links=True))


@pytest.mark.parametrize("name", [name for name in PLANNERS if name != "sqpr"])
def test_the_same_run_twice_decides_the_same(name: str) -> None:
    problem = sample_problem(SMALL, 2)
    first, second = run(name, problem, 24), run(name, problem, 24)
    assert first[1] == second[1]
    assert first[0].plan() == second[0].plan()


@pytest.mark.parametrize("name", PLANNERS)
def test_an_equal_query_costs_nothing(name: str) -> None:
    problem = sample_problem(replace(SMALL, queries=1), 3)
    twice = replace(problem, queries=problem.queries * 2)
    ledger, decisions = run(name, twice)
    assert [d.admitted for d in decisions] == [True, True]
    assert decisions[1].step == "duplicate"
    assert len(ledger.served) == 1


@pytest.mark.parametrize("name", PLANNERS)
def test_a_query_for_a_stream_as_it_comes_in_is_served(name: str) -> None:
    problem = replace(
        sample_problem(replace(SMALL, queries=1), 3),
        queries=(PlacementQuery("raw", 0), PlacementQuery("no", 1)),
    )
    rates = [
        replace(s, rate=s.rate * (100 if i == 1 else 1)) for i, s in enumerate(problem.streams)
    ]
    _, decisions = run(name, replace(problem, streams=tuple(rates)))
    assert [d.admitted for d in decisions] == [True, False]


@pytest.mark.parametrize("name", PLANNERS)
def test_a_batch_is_decided_together(name: str) -> None:
    problem = sample_problem(SMALL, 4)
    ledger = Ledger(problem)
    decisions = list(make_planner(name)(ledger, [3, 1, 2], Budget(SECONDS.get(name, 2.0))))
    assert [d.query for d in decisions] == [3, 1, 2]
    assert find_violations(problem, ledger.plan()) == ()
    assert ledger.admitted == {d.query for d in decisions if d.admitted}


@pytest.mark.parametrize("name", [name for name in PLANNERS if name != "sqpr"])
def test_what_is_removed_leaves_nothing_behind(name: str) -> None:
    problem = sample_problem(SMALL, 5)
    ledger, _ = run(name, problem, 15)
    gone = sorted(ledger.admitted)
    random.Random(5).shuffle(gone)
    for query in gone:
        before = ledger.plan()
        remove_queries(ledger, [query])
        assert find_violations(problem, ledger.plan()) == ()
        assert ledger.admitted == before.admitted - {query}
    assert ledger.plan() == PlacementPlan()
    assert ledger.free == pytest.approx(Ledger(problem).free)


def test_a_plan_written_down_again_is_the_same() -> None:
    problem = sample_problem(SMALL, 6)
    ledger, _ = run("headwater", problem, 20)
    again = Ledger(problem, ledger.plan())
    assert again.plan() == ledger.plan()
    assert again.free == pytest.approx(ledger.free)


@pytest.mark.long
def test_ours_admits_at_least_as_many_as_the_papers_baselines() -> None:
    problems = [sample_problem(SMALL, 7)]
    admitted = {
        name: sum(len(run(name, problem)[0].admitted) for problem in problems)
        for name in ("headwater", "heuristic", "soda")
    }
    assert admitted["headwater"] >= admitted["heuristic"] > admitted["soda"]


def chain(links: dict[tuple[int, int], float]) -> PlacementProblem:
    """Two streams at the ends of three sites in a row; the one in the middle cannot join."""
    sites = tuple(
        Site(n, cpu=cpu, bandwidth_in=100, bandwidth_out=100)
        for n, cpu in (("west", 0), ("middle", 0), ("east", 50))
    )
    streams = (
        PlacementStream("a", frozenset("a"), 10, (0,)),
        PlacementStream("b", frozenset("b"), 10, (2,)),
        PlacementStream("ab", frozenset("ab"), 1),
    )
    return PlacementProblem(
        sites,
        streams,
        (PlacementOperator((0, 1), 2, 20),),
        (PlacementQuery("q", 2),),
        Links(0.0, links),
    )


@pytest.mark.parametrize("name", ["headwater", "dynamic", "exact", "sqpr"])
def test_a_site_in_the_middle_relays(name: str) -> None:
    ledger, (decision,) = run(name, chain({(0, 1): 30.0, (1, 2): 30.0}))
    assert decision.admitted
    assert {(s.origin, s.target) for s in ledger.plan().sends} == {(0, 1), (1, 2)}


def test_soda_places_nothing_at_a_site_without_cpu() -> None:
    problem = chain({(0, 2): 30.0})
    assert macro_w(Ledger(problem), [0], 2, 10.0) == (2,)


def test_soda_is_even_beside_a_site_without_cpu() -> None:
    """One that only forwards does not count as full."""
    sites = tuple(Site(n, cpu=cpu) for n, cpu in (("relay", 0), ("one", 50), ("two", 50)))
    streams = (
        PlacementStream("a", frozenset("a"), 10, (1,)),
        PlacementStream("b", frozenset("b"), 10, (1,)),
        PlacementStream("ab", frozenset("ab"), 1),
        PlacementStream("ab + 1", frozenset(("ab", "1")), 1),
    )
    operators = tuple(PlacementOperator((0, 1), output, 20) for output in (2, 3))
    queries = tuple(PlacementQuery(f"q{output}", output) for output in (2, 3))
    ledger, _ = run("soda", PlacementProblem(sites, streams, operators, queries, Links()))
    assert {r.site for r in ledger.plan().runs} == {1, 2}


def test_a_refusal_says_what_is_short_and_that_it_is_proven() -> None:
    _, (decision,) = run("headwater", chain({(0, 1): 30.0, (1, 2): 4.0}))
    assert not decision.admitted
    assert decision.proven
    (short,) = decision.shortages
    assert (short.constraint, short.where, short.excess) == ("link", "middle -> east", 6.0)


def test_a_query_that_can_never_fit_says_why() -> None:
    _, (decision,) = run("headwater", chain({(0, 1): 30.0}))
    assert not decision.admitted
    assert decision.proven
    assert [b.constraint for b in decision.shortages] == ["availability"]


def test_consolidation_uses_fewer_sites() -> None:
    spread = sample_problem(replace(SMALL, bandwidth=math.inf, link=math.inf), 9)
    together = replace(spread, weights=CONSOLIDATION_WEIGHTS)
    used = [
        len({r.site for r in run("headwater", p, 6)[0].plan().runs}) for p in (spread, together)
    ]
    assert used[1] < used[0]


def test_a_budget_of_nothing_does_no_harm() -> None:
    problem = sample_problem(SMALL, 10)
    ledger, ladder = Ledger(problem), LadderPlanner()
    for query in range(40):
        (decision,) = ladder(ledger, [query], Budget(0.0))
        assert decision.admitted or not decision.proven
        assert find_violations(problem, ledger.plan()) == ()
