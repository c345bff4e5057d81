"""Choices with their reasons, and the bound that no policy can break."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ScheduleError
from headwater.schedule import POLICIES, Candidate, WorkEstimate, choose, next_candidate

QUICK = settings(max_examples=50, deadline=None)

CHEAP, DEAR = WorkEstimate(1.0, 1.0, 1.0), WorkEstimate(0.1, 50.0, 60.0)


def test_a_choice_says_why() -> None:
    waiting = [Candidate("dear", 0.0, (DEAR,), 4), Candidate("cheap", 9.0, (CHEAP,))]
    choice = choose(POLICIES["hnr"], waiting, 10.0)
    assert choice.name == "cheap"
    assert choice.why == "cheap ranks highest by S/(C T): 1, before dear with 3.333e-05"
    data = json.loads(json.dumps(choice.as_data()))
    assert [(r["name"], r["wait"], r["pending"]) for r in data["ranking"]] == [
        ("cheap", 1.0, 1),
        ("dear", 10.0, 4),
    ]
    assert data["why"] == choice.why


def test_the_other_reasons() -> None:
    one, two = Candidate("one", 0.0, (CHEAP,)), Candidate("two", 0.0, (CHEAP,))
    assert choose(POLICIES["hr"], [one], 5.0).why == "one is the only one with something pending"
    assert choose(POLICIES["hr"], [one, two], 5.0).why == "one and two rank equal by S/C: 1"
    late = Candidate("late", -90.0, (DEAR,))
    assert choose(POLICIES["hr"], [one, late], 5.0, bound=60.0).why == (
        "late has waited 95 s, longer than the bound of 60 s, and of those that have it is the oldest"
    )


def test_nothing_to_choose_from_and_no_bound_are_refused() -> None:
    with pytest.raises(ScheduleError, match="nothing to choose"):
        choose(POLICIES["bsd"], [], 0.0)
    with pytest.raises(ScheduleError, match="bound"):
        choose(POLICIES["bsd"], [Candidate("q", 0.0, (CHEAP,))], 0.0, bound=0.0)


segments = st.builds(
    WorkEstimate, st.floats(0.001, 1.0), st.floats(0.01, 100.0), st.floats(0.01, 100.0)
)


@QUICK
@given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(segments, min_size=2, max_size=6),
    st.floats(1.0, 50.0),
    st.randoms(use_true_random=False),
)
def test_nothing_starves_under_any_policy(
    name: str, measured: list[WorkEstimate], bound: float, random: Random
) -> None:
    """Each unit always has something new. None is passed over for longer than the bound and what
    it takes to run the others once."""
    now = 0.0
    waiting = {str(n): Candidate(str(n), 0.0, (m,), query=str(n)) for n, m in enumerate(measured)}
    costs = [m.cost for m in measured]
    for step in range(30):
        chosen = next_candidate(POLICIES[name], list(waiting.values()), now, bound)
        assert now - chosen.since <= bound + sum(costs) + max(costs)
        now += chosen.segments[0].cost * random.random()
        waiting[chosen.name] = replace(chosen, since=now, last_served=step + 1)


@QUICK
@given(st.sampled_from(sorted(POLICIES)), st.lists(segments, min_size=1, max_size=6))
def test_the_choice_with_reasons_is_the_choice_without(
    name: str, measured: list[WorkEstimate]
) -> None:
    waiting = [Candidate(str(n), float(n % 3), (m,)) for n, m in enumerate(measured)]
    for bound in (None, 8.5):
        found = next_candidate(POLICIES[name], waiting, 10.0, bound)
        assert choose(POLICIES[name], waiting, 10.0, bound).name == found.name
