"""check(): a good plan passes, and each constraint, broken in turn, is named with its excess."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.errors import PlanError
from headwater.network.model import Site
from headwater.plan.placement.check import CONSTRAINTS, ensure_valid, find_violations
from headwater.plan.placement.model import (
    Links,
    PlacementOperator,
    PlacementPlan,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
    RunOperator,
    SendStream,
    ServeStream,
)

A, B, AB = 0, 1, 2
LEFT, RIGHT, SPARE = 0, 1, 2

PROBLEM = PlacementProblem(
    tuple(
        Site(n, cpu=20, memory=5, bandwidth_in=10, bandwidth_out=10)
        for n in ("left", "right", "spare")
    ),
    (
        PlacementStream("a", frozenset("a"), 8, (LEFT,)),
        PlacementStream("b", frozenset("b"), 6, (RIGHT,)),
        PlacementStream("ab", frozenset("ab"), 2),
    ),
    (PlacementOperator((A, B), AB, cpu=14, memory=4),),
    (PlacementQuery("q", AB), PlacementQuery("r", AB), PlacementQuery("raw", A)),
    Links(9),
)
GOOD = PlacementPlan(
    frozenset({RunOperator(LEFT, 0)}),
    frozenset({SendStream(RIGHT, LEFT, B)}),
    frozenset({ServeStream(LEFT, AB)}),
    frozenset({0}),
)


def site(place: int, **changes: float) -> PlacementProblem:
    sites = list(PROBLEM.sites)
    sites[place] = replace(sites[place], **changes)
    return replace(PROBLEM, sites=tuple(sites))


def test_a_good_plan_passes() -> None:
    assert find_violations(PROBLEM, GOOD) == ()
    assert find_violations(PROBLEM, replace(GOOD, admitted=frozenset({0, 1})), GOOD) == ()
    assert find_violations(PROBLEM, PlacementPlan()) == ()
    ensure_valid(PROBLEM, GOOD)


def test_what_is_just_full_is_not_too_full() -> None:
    full = site(LEFT, cpu=14, memory=4, bandwidth_in=6, bandwidth_out=2)
    assert find_violations(replace(full, links=Links(6)), GOOD) == ()


BROKEN = {
    "cpu": (site(LEFT, cpu=11), GOOD, 3),
    "memory": (site(LEFT, memory=3), GOOD, 1),
    "bandwidth in": (site(LEFT, bandwidth_in=5), GOOD, 1),
    "bandwidth out": (site(RIGHT, bandwidth_out=4), GOOD, 2),
    "link": (replace(PROBLEM, links=Links(9, {(RIGHT, LEFT): 5})), GOOD, 1),
    "availability": (PROBLEM, replace(GOOD, sends=frozenset()), 1),
    "causality": (
        PROBLEM,
        replace(
            GOOD,
            runs=frozenset(),
            sends=frozenset({SendStream(LEFT, SPARE, AB), SendStream(SPARE, LEFT, AB)}),
        ),
        1,
    ),
    "demand": (PROBLEM, replace(GOOD, serves=frozenset()), 1),
}


@pytest.mark.parametrize("constraint", BROKEN)
def test_each_constraint_by_itself(constraint: str) -> None:
    problem, plan, by = BROKEN[constraint]
    broken = find_violations(problem, plan)
    assert {one.constraint for one in broken} == {constraint}
    assert broken[0].excess == pytest.approx(by)
    with pytest.raises(PlanError, match=f"{constraint} of"):
        ensure_valid(problem, plan)


def test_results_count_as_sent() -> None:
    (broken,) = find_violations(site(LEFT, bandwidth_out=1), GOOD)
    assert (broken.constraint, broken.where, broken.excess) == ("bandwidth out", "left", 1)


def test_an_admitted_query_is_not_dropped() -> None:
    (broken,) = find_violations(PROBLEM, PlacementPlan(), GOOD)
    assert (broken.constraint, broken.where) == ("admitted", "q")


def test_nobody_is_served_twice_or_unasked() -> None:
    twice = replace(
        GOOD,
        sends=GOOD.sends | {SendStream(LEFT, SPARE, AB)},
        serves=GOOD.serves | {ServeStream(SPARE, AB)},
    )
    assert [b.constraint for b in find_violations(PROBLEM, twice)] == ["demand"]
    unasked = replace(GOOD, serves=GOOD.serves | {ServeStream(LEFT, A)})
    assert [b.where for b in find_violations(PROBLEM, unasked)] == ["a"]


def test_every_constraint_has_a_test() -> None:
    assert {*BROKEN, "admitted"} == set(CONSTRAINTS)


def test_a_stream_that_goes_round_in_operators_is_refused() -> None:
    round_about = replace(
        PROBLEM,
        operators=(PlacementOperator((A, B), AB, 1), PlacementOperator((AB,), B, 1)),
        queries=(PlacementQuery("q", AB),),
    )
    with pytest.raises(PlanError, match="made of itself"):
        round_about.scope(AB)


@pytest.mark.parametrize(
    "change",
    [
        {"operators": (PlacementOperator((), AB, 1),)},
        {"operators": (PlacementOperator((A, 7), AB, 1),)},
        {"operators": (PlacementOperator((A, B), AB, -1),)},
        {"queries": (PlacementQuery("q", 9),)},
        {"streams": (PlacementStream("a", frozenset("a"), -1),), "operators": (), "queries": ()},
        {
            "streams": (PlacementStream("a", frozenset("a"), 1, (5,)),),
            "operators": (),
            "queries": (),
        },
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        replace(PROBLEM, **change)
