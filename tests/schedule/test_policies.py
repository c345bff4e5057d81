"""Which candidate a policy prefers, and by which formula."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ScheduleError
from headwater.schedule import (
    POLICIES,
    Candidate,
    WorkEstimate,
    estimate_chain,
    estimate_join,
    find_policy,
    next_candidate,
)

QUICK = settings(max_examples=50, deadline=None)

S, C, T, W = 0.25, 3.0, 8.0, 40.0


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("fcfs", W),
        ("srpt", 1 / T),
        ("hr", S / C),
        ("hnr", S / (C * T)),
        ("lsf", W / T),
        ("bsd", S / (C * T) * (W / T)),
        ("bsd-early", S / (C * T) * (W / T + 100)),
    ],
)
def test_ranks_are_the_formulas(name: str, rank: float) -> None:
    waiting = Candidate("q", 60.0, (WorkEstimate(S, C, T),))
    assert POLICIES[name].rank(waiting, 100.0)[0] == pytest.approx(rank)


def test_round_robin_takes_the_query_served_longest_ago_and_its_highest_rate() -> None:
    slow, fast = WorkEstimate(0.1, 1.0, 1.0), WorkEstimate(0.9, 1.0, 1.0)
    waiting = [
        Candidate("a", 0.0, (fast,), query="1", last_served=7),
        Candidate("b", 5.0, (slow,), query="2", last_served=3),
        Candidate("c", 6.0, (fast,), query="2", last_served=3),
    ]
    assert next_candidate(POLICIES["rr"], waiting, 10.0).name == "c"


def test_a_segment_from_its_operators() -> None:
    assert estimate_chain([(2.0, 0.5), (4.0, 0.25), (8.0, 1.0)]) == WorkEstimate(
        0.125, 2 + 2 + 1, 14.0
    )
    assert estimate_chain([(4.0, 0.25), (8.0, 1.0)], ideal=14.0) == WorkEstimate(0.25, 4 + 2, 14.0)


def test_a_segment_of_a_window_join() -> None:
    left, right, common = (
        estimate_chain([(1.0, 0.5)]),
        estimate_chain([(2.0, 0.25)]),
        estimate_chain([(3.0, 1.0)]),
    )
    measured = estimate_join(left, right, (4.0, 0.1), common, window=10.0, far_gap=0.5)
    pairs = 0.5 * 0.1 * (0.25 * 10 / 0.5)
    assert measured == WorkEstimate(pairs, 1 + 0.5 * 4 + pairs * 3, 1 + 2 + 2 * 4 + 3)
    bare = estimate_join(left, right, (4.0, 0.1), None, window=10.0, far_gap=0.5)
    assert bare == WorkEstimate(pairs, 3.0, 11.0)


certain = st.builds(  # costs that differ do so by more than is lost in a division
    lambda cost: WorkEstimate(1.0, cost / 1000, cost / 1000), st.integers(1, 1_000_000)
)


@QUICK
@given(st.lists(certain, min_size=1, max_size=8))
def test_where_everything_passes_hr_hnr_and_srpt_are_one(segments: list[WorkEstimate]) -> None:
    waiting = [Candidate(str(n), 0.0, (one,)) for n, one in enumerate(segments)]
    orders = []
    for name in ("srpt", "hr", "hnr"):
        key = POLICIES[name].static_priority
        orders.append([w.segments[0].cost for w in sorted(waiting, key=key, reverse=True)])
    assert orders[0] == orders[1] == orders[2]


measured = st.builds(
    lambda s, c, extra: WorkEstimate(s, c, c + extra),
    st.floats(0.01, 1.0),
    st.floats(0.1, 10.0),
    st.floats(0.0, 20.0),
)


def total(order: Sequence[WorkEstimate], weight: Callable[[WorkEstimate], float]) -> float:
    """What the results of segments cost that run in this order, all having arrived at 0."""
    now, loss = 0.0, 0.0
    for segment in order:
        loss += weight(segment) * (now + segment.ideal)
        now += segment.cost
    return loss


@pytest.mark.parametrize(
    ("name", "weight"),
    [("hr", lambda m: m.selectivity), ("hnr", lambda m: m.selectivity / m.ideal)],
    ids=["response", "slowdown"],
)
@QUICK
@given(segments=st.lists(measured, min_size=1, max_size=6))
def test_hr_and_hnr_are_optimal_for_what_has_arrived(
    name: str, weight: Callable[[WorkEstimate], float], segments: list[WorkEstimate]
) -> None:
    waiting = [Candidate(str(n), 0.0, (one,)) for n, one in enumerate(segments)]
    chosen = [
        w.segments[0] for w in sorted(waiting, key=POLICIES[name].static_priority, reverse=True)
    ]
    best = min(total(order, weight) for order in itertools.permutations(segments))
    assert total(chosen, weight) <= best * (1 + 1e-9)


@QUICK
@given(st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6))
def test_lsf_is_optimal_for_the_maximum_where_all_take_the_same_time(arrivals: list[float]) -> None:
    """All have arrived by now and take one unit; the order decides the largest slowdown."""
    waiting = [
        Candidate(str(n), at, (WorkEstimate(1.0, 1.0, 1.0),)) for n, at in enumerate(arrivals)
    ]
    left, order = list(waiting), []
    while left:
        order.append(next_candidate(POLICIES["lsf"], left, 50.0 + len(order)))
        left.remove(order[-1])

    def worst(some: Sequence[Candidate]) -> float:
        return max(51.0 + place - one.since for place, one in enumerate(some))

    assert worst(order) == pytest.approx(min(map(worst, itertools.permutations(waiting))))


pairs = st.lists(
    st.tuples(measured, st.floats(0.0, 1000.0)).map(lambda p: Candidate("", -p[1], (p[0],))),
    min_size=2,
    max_size=2,
)


@QUICK
@given(pairs)
def test_bsd_makes_the_better_of_two_where_waits_are_long(two: list[Candidate]) -> None:
    """Its derivation leaves out times that are short against the waits: so with these left out."""
    first = next_candidate(POLICIES["bsd"], two, 0.0)
    second = two[1] if first is two[0] else two[0]

    def harm(one: Candidate, other: Candidate) -> float:
        """The growth of the square of `other` by waiting for `one`, to the first order."""
        m = other.segments[0]
        return m.selectivity * -other.since / m.ideal**2 * one.segments[0].cost

    assert harm(first, second) <= harm(second, first) * (1 + 1e-9)


def test_a_name_that_is_no_policy_is_refused_with_the_names_that_are() -> None:
    assert find_policy("BSD") is POLICIES["bsd"]
    with pytest.raises(ScheduleError, match="did you mean hnr"):
        find_policy("hnrr")


@pytest.mark.parametrize(
    "values", [(-1.0, 1.0, 1.0), (math.nan, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, math.inf)]
)
def test_measurements_that_make_no_sense_are_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(ScheduleError, match="number"):
        WorkEstimate(*values)


def test_a_candidate_without_segments_or_tuples_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no segment"):
        Candidate("q", 0.0, ())
    with pytest.raises(ScheduleError, match="nothing pending"):
        Candidate("q", 0.0, (WorkEstimate(1.0, 1.0, 1.0),), pending=0)
