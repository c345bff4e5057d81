"""Searches, and the compiled code below them against its plain twin.

They are among the slow tests because the code is compiled when it first runs; after that they take
seconds.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest
from test_throughput_quality import grouped

from headwater.errors import PlanError
from headwater.network.model import Site
from headwater.network.sites import fully_connected
from headwater.plan.throughput import arrays, kernel
from headwater.plan.throughput.model import (
    EXTENDED_RULES,
    OperatorKind,
    ThroughputOperator,
    ThroughputProblem,
)
from headwater.plan.throughput.moves import Swap, apply_move, relocations, swaps
from headwater.plan.throughput.quality import quality
from headwater.plan.throughput.search import (
    PORTFOLIO_SEARCHES,
    SEARCHES,
    SearchResult,
    annealing,
    exhaustive,
    portfolio,
    random_placement,
    reactive_tabu,
    run_restarts,
    run_search,
)
from headwater.reproduce.throughput_samples import (
    introduction_problem,
    large_problem,
    small_problem,
    two_operators,
)

pytestmark = pytest.mark.slow


def every_kind() -> ThroughputProblem:
    """A plan with an operator of every kind, some of them cloned, and a limit to latency."""
    names = ("a", "b", "c", "d")
    streams = [
        ThroughputOperator(
            n, OperatorKind.EMIT, stream=n, window=3.0, adds=frozenset({f"{n}.x", f"{n}.y"})
        )
        for n in names
    ]
    unions = frozenset(f"{n}.{c}" for n in "ab" for c in "xy")
    upper = (
        ThroughputOperator(
            "union", OperatorKind.UNION, 2.0, drops=unions, adds=frozenset({"u.x", "u.y"})
        ),
        ThroughputOperator("distinct", OperatorKind.DISTINCT, 3.0, selectivity=0.5),
        ThroughputOperator(
            "semi", OperatorKind.SEMIJOIN, 9.0, selectivity=0.7, reads=frozenset({"u.x", "c.x"})
        ),
        ThroughputOperator(
            "outer", OperatorKind.OUTERJOIN, 9.0, selectivity=0.1, reads=frozenset({"u.x", "d.x"})
        ),
        ThroughputOperator(
            "s1", OperatorKind.SELECT, 1.0, selectivity=0.2, reads=frozenset({"u.y"})
        ),
        ThroughputOperator(
            "s2", OperatorKind.SELECT, 1.0, 0.5, selectivity=0.4, reads=frozenset({"u.x"})
        ),
        ThroughputOperator("project", OperatorKind.PROJECT, 2.0, drops=frozenset({"u.y", "d.y"})),
        ThroughputOperator(
            "full", OperatorKind.FULLJOIN, 9.0, selectivity=0.1, reads=frozenset({"u.x", "c.x"})
        ),
    )
    singles = ((0,), (1,))
    options = [singles] * 4 + [(*singles, (0, 1))] * len(upper)
    return ThroughputProblem(
        (*streams, *upper),
        ((), (), (), (), (0, 1), (4,), (5, 2), (6, 3), (7,), (8,), (9,), (10, 2)),
        (11, 10),
        tuple(options),
        fully_connected(
            (Site("N1", cpu=5e3, memory=1e5), Site("N2", cpu=8e3, bandwidth_in=1e5)), 1e6
        ),
        (dict.fromkeys(names, 1.0), dict(zip(names, (4.0, 3.0, 2.0, 1.0), strict=True))),
        rules=EXTENDED_RULES,
        latency=5.0,
    )


PROBLEMS = [
    *(pytest.param(small_problem(seed), id=f"small {seed}") for seed in range(5)),
    *(
        pytest.param(large_problem(seed).with_rules(EXTENDED_RULES), id=f"large {seed}")
        for seed in range(5)
    ),
    pytest.param(replace(large_problem(9), latency=0.3), id="late"),
    pytest.param(every_kind(), id="every kind"),
    pytest.param(grouped(None), id="aggregate"),
    pytest.param(grouped(4.0), id="aggregate that slides"),
]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_compiled_code_has_the_quality_and_the_moves_of_its_twin(
    problem: ThroughputProblem,
) -> None:
    rng = random.Random(1)
    configuration = problem.initial_configuration()
    facts = arrays.problem_arrays(problem)
    state = arrays.configuration_arrays(problem, facts, configuration)
    for step in range(40):
        expected = quality(problem, configuration)
        found, _, _ = kernel.evaluate(facts, state, -1.0)
        assert found == pytest.approx(expected.value, rel=1e-9)
        allowed = swaps(problem, configuration)
        arity = facts.op["arity"]
        assert {(s.top, s.bottom, s.slot) for s in allowed} == {
            (top, int(state.child[top, slot]), deep)
            for top in range(len(arity))
            for slot in range(arity[top])
            for deep in range(arity[state.child[top, slot]])
            if kernel.can_swap(facts, state, top, slot, deep)
        }
        moves = [*(allowed * 3), *relocations(problem, configuration)]
        if not moves:
            break
        move = rng.choice(moves)
        if isinstance(move, Swap) and step % 5:
            slot = configuration.inputs[move.top].index(move.bottom)
            kernel.swap(facts, state, move.top, slot, move.slot)
            configuration = apply_move(configuration, move)
            read = state.child, state.outputs, state.op["pick"]
            assert arrays.configuration_of(problem, facts, *read) == configuration
            mark = state.mark[0]
            arrays.load_configuration(problem, facts, state, configuration)
            assert state.mark[0] == mark
        else:
            configuration = apply_move(configuration, move)
            arrays.load_configuration(problem, facts, state, configuration)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_gives_what_it_says_and_never_loses(name: str) -> None:
    problem = small_problem(3)
    start = random_placement(problem, 1)
    best = 0.0
    for turns, found in enumerate(SEARCHES[name](problem, start, 1)):
        assert found.quality >= best
        best = found.quality
        assert quality(problem, found.configuration).value == pytest.approx(best, rel=1e-9)
        if turns > 60:
            break
    assert best >= quality(problem, start).value


@pytest.mark.parametrize("seed", range(8))
def test_no_search_is_better_than_the_exhaustive_one(seed: int) -> None:
    problem = small_problem(seed)
    start = random_placement(problem, seed)
    judge = run_search(SEARCHES["exhaustive"], problem, start)
    assert judge.proven
    exact = run_search(SEARCHES["branch-and-bound"], problem, start)
    assert exact.proven
    assert exact.quality == pytest.approx(judge.quality, rel=1e-8)
    for name in PORTFOLIO_SEARCHES:
        found = run_search(SEARCHES[name], problem, start, seed)
        assert found.quality <= judge.quality * (1 + 1e-9)
    several = run_search(SEARCHES["portfolio"], problem, start, seed, seconds=0.5)
    assert several.quality == pytest.approx(judge.quality, rel=1e-8)


def test_two_phases_miss_what_one_finds_in_figure_5() -> None:
    problem = two_operators()
    found = {
        name: run_search(SEARCHES[name], problem, problem.initial_configuration()).quality
        for name in ("exhaustive", "two-phase-exhaustive")
    }
    assert found == {"exhaustive": pytest.approx(500), "two-phase-exhaustive": pytest.approx(100)}


def test_seeds_repeat_and_budgets_end() -> None:
    problem = large_problem(5)
    one, two = (run_search(annealing, problem, seed=7) for _ in range(2))
    assert one == two
    first: list[SearchResult] = []
    stopped = run_search(reactive_tabu, problem, seed=7, max_seen=1000, progress=first.append)
    assert stopped == first[-1]
    assert stopped.seen >= 1000
    assert run_search(reactive_tabu, problem, seed=7).seen > stopped.seen
    run_search(portfolio, problem, seconds=0.2)


def test_restarts_are_as_good_as_the_best_of_them() -> None:
    problem = large_problem(6)
    seeds = range(4)
    alone = [run_search(annealing, problem, random_placement(problem, s), s).quality for s in seeds]
    together = run_restarts(annealing, problem, seeds)
    assert together.quality == max(alone)


def test_the_portfolio_is_never_worse_than_its_members() -> None:
    problem = large_problem(8)
    start = random_placement(problem, 8)
    alone = [
        run_search(SEARCHES[n], problem, start, 8)
        for n in PORTFOLIO_SEARCHES
        if n != "branch-and-bound"
    ]
    total = sum(found.seen for found in alone)
    assert run_search(portfolio, problem, start, 8, max_seen=total).quality >= max(
        a.quality for a in alone
    )


def test_too_many_plans_are_refused() -> None:
    with pytest.raises(PlanError, match="take another search"):
        run_search(partial(exhaustive, plans=5000), large_problem(0, 40).with_rules(EXTENDED_RULES))


@pytest.mark.parametrize("seed", range(3))
def test_the_example_of_the_introduction_is_proven(seed: int) -> None:
    problem = introduction_problem(seed)
    assert len(problem.operators) == 15
    found = run_search(SEARCHES["branch-and-bound"], problem)
    assert found.proven
    assert found.quality >= run_search(reactive_tabu, problem).quality * (1 - 1e-9)
