"""Tokens, locks and moves, message by message and in all interleavings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from headwater.federation.dissemination.protocol.adaptation import (
    ATTEMPT_SECONDS,
    ROUND_SECONDS,
    AdaptingMember,
    CommitRequest,
    NewParent,
    RoundToken,
)
from headwater.federation.dissemination.protocol.locks import (
    AttemptId,
    LockDenial,
    LockGrant,
    LockRelease,
    LockRequest,
)
from headwater.reproduce.cosmos.deadlock import CASES, FIVE_PROVIDERS, random_trees
from headwater.sim.checker.interleavings import explore, sample_runs, shortest_failure
from headwater.sim.trees.members import (
    Parents,
    all_moves,
    find_fault,
    judge_members,
    judge_printed,
    known_families,
    no_moves,
    ordered_world,
    place_members,
    possible_moves,
    printed_world,
)

LINE: Parents = {0: None, 1: 0, 2: 1, 3: 2}
FORK: Parents = {0: None, 1: 0, 2: 1, 3: 1}
TWO_FAMILIES: Parents = {0: None, 1: 0, 2: 0, 3: 1, 4: 2}


def deliver_all(
    members: dict[int, AdaptingMember], sent: list[tuple[int, int, Any]]
) -> list[tuple[int, int, Any]]:
    """Deliver messages in the order in which they were sent; returns all of them."""
    for sender, receiver, message in sent:
        if receiver in members:
            sent += [(receiver, *one) for one in members[receiver].handle(sender, message)]
    return sent


def run_move(tree: Parents, move: tuple[NewParent, ...]) -> dict[int, AdaptingMember]:
    members = place_members([tree])
    deliver_all(members, [(0, 0, RoundToken(0))])
    assert members[0].open_choices()
    deliver_all(members, [(0, *one) for one in members[0].decide(0, move)])
    while choosing := [one for one in members.values() if one.open_choices()]:
        deliver_all(members, [(choosing[0].number, *one) for one in choosing[0].decide(0, ())])
    return members


def test_every_move_of_a_holder_gives_the_tree_that_it_says() -> None:
    families = {1: (3,), 2: (4,)}
    for move in possible_moves(0, families):
        members = run_move(TWO_FAMILIES, move)
        expected = {**TWO_FAMILIES, **{change.child: change.new for change in move}}
        assert {n: m.places[0].parent for n, m in members.items()} == expected
        assert find_fault(members, {0: TWO_FAMILIES}) == ""


def test_as_many_moves_as_the_formula_says() -> None:
    """2 G + C(C-1) + half the sum of C_j (G - C_j) + 2 G (C-1)."""
    for sizes in ((3, 3, 3, 3), (0, 2), (1,), (4, 0, 1)):
        number = 100
        families = {}
        for child, size in enumerate(sizes):
            families[child] = tuple(range(number, number + size))
            number += size
        below, count = sum(sizes), len(sizes)
        cousins = sum(size * (below - size) for size in sizes) // 2
        expected = 2 * below + count * (count - 1) + cousins + 2 * below * (count - 1)
        assert len(list(possible_moves(-1, families))) == expected
    assert expected != 162 and len(set(possible_moves(-1, {0: (4, 5), 1: (6,)}))) == 16


def test_locks_are_taken_in_ascending_order_and_statistics_ride_on_grants() -> None:
    tree: Parents = {5: None, 9: 5, 2: 5, 7: 9}
    members = place_members([tree])
    sent = deliver_all(members, [(5, 5, RoundToken(0))])
    requests = [to for _, to, message in sent if isinstance(message, LockRequest)]
    assert requests == [2, 9]  # its own lock, between the two, needs no message
    (attempt,) = members[5].open_choices()
    assert attempt.held == (2, 5, 9)
    assert known_families(attempt) == {2: (), 9: (7,)}


def test_tokens_go_on_to_children_with_children() -> None:
    members = place_members([{0: None, 1: 0, 2: 0, 3: 1}])
    deliver_all(members, [(0, 0, RoundToken(0))])
    sent = members[0].decide(0, ())
    assert [to for to, message in sent if isinstance(message, RoundToken)] == [1]


def test_a_busy_holder_ignores_a_second_token() -> None:
    members = place_members([FORK])
    first = members[0].handle(0, RoundToken(0))
    assert first and members[0].handle(0, RoundToken(0)) == []


def test_a_try_lock_that_is_denied_ends_the_attempt() -> None:
    members = place_members([FORK])
    other = AttemptId(3, 7, 1)
    members[2].handle(3, LockRequest(other))
    deliver_all(members, [(0, 0, RoundToken(0))])
    sent = deliver_all(members, [(0, *one) for one in members[0].decide(0, (NewParent(2, 1, 0),))])
    assert [s for s, _, m in sent if isinstance(m, LockDenial)] == [2]
    assert members[2].places[0].parent == 1
    assert members[2].lock.owner == other
    assert members[0].lock.owner is None


def test_a_commit_that_nothing_was_prepared_for_changes_nothing() -> None:
    members = place_members([FORK])
    members[2].handle(0, CommitRequest(AttemptId(0, 0, 1)))
    assert members[2].places[0].parent == 1


def test_a_grant_that_comes_too_late_is_given_back() -> None:
    members = place_members([FORK])
    late = AttemptId(0, 0, 99)
    assert members[0].handle(1, LockGrant(late, None)) == [(1, LockRelease(late))]


def test_attempts_and_leases_end_without_answers() -> None:
    members = place_members([FORK])
    members[0].next_token = ROUND_SECONDS
    members[0].handle(0, RoundToken(0), 0.0)
    members[1].handle(0, LockRequest(AttemptId(0, 0, 1)), 0.0)
    members[1].tick(4.9)
    assert members[1].lock.owner
    members[1].tick(5.1)
    assert members[1].lock.owner is None
    members[0].heard[1] = ATTEMPT_SECONDS
    members[0].tick(ATTEMPT_SECONDS - 1)
    assert members[0].attempts
    members[0].heard[1] = ATTEMPT_SECONDS + 1
    members[0].tick(ATTEMPT_SECONDS + 1)
    assert not members[0].attempts and members[0].lock.owner is None


def test_the_origin_starts_a_round_every_two_hundred_seconds() -> None:
    members = place_members([FORK])
    origin = members[0]
    origin.tick(0.0)
    assert origin.serials == {0: 1}
    origin.attempts.clear()
    for second in range(1, 201):
        origin.heard[1] = float(second)
        origin.tick(float(second))
        assert origin.serials == {0: 1 if second < 200 else 2}


@pytest.mark.parametrize(("case", "stuck"), [("A", 2), ("B", 1)])
def test_the_printed_protocol_deadlocks(case: str, stuck: int) -> None:
    world = printed_world(CASES[case])
    found = explore(world, judge_printed)
    assert (found.failures, found.complete) == (stuck, True)
    way = shortest_failure(world, judge_printed)
    assert way is not None and len(way) == {"A": 8, "B": 9}[case]


def test_the_printed_protocol_ends_in_one_tree() -> None:
    """Its deadlocks are those of several trees, and not of the repairs made to it."""
    for tree in (LINE, FORK, TWO_FAMILIES):
        found = explore(printed_world([tree]), judge_printed)
        assert (found.failures, found.complete) == (0, True)


def test_find_fault_sees_what_is_wrong() -> None:
    members = place_members([LINE])
    assert find_fault(members, {0: LINE}) == ""
    members[1].places[0] = replace(members[1].places[0], parent=3)
    assert "cut off" in find_fault(members, {0: LINE})
    members = place_members([LINE])
    members[1].places.clear()
    assert "no place" in find_fault(members, {0: LINE})
    members = place_members([LINE])
    members[0].places[0] = members[0].places[0].without(1)
    assert "children" in find_fault(members, {0: LINE})
    members[3].handle(2, LockRequest(AttemptId(2, 0, 1)))
    assert "waits" in find_fault(members, {0: LINE})


@pytest.mark.parametrize("case", CASES)
def test_ordered_locks_in_all_interleavings_with_a_death(case: str) -> None:
    trees = CASES[case]
    found = explore(ordered_world(trees, no_moves, 1), judge_members(trees))
    assert (found.failures, found.first_failure, found.endless) == (0, "", False)
    assert found.complete and found.ends > 1


@pytest.mark.long
@pytest.mark.parametrize(
    "trees",
    [
        *CASES.values(),
        (FORK,),
        (LINE,),
        *FIVE_PROVIDERS.values(),
        *(random_trees(Random(seed), 5, 3) for seed in (4, 6, 7)),
    ],
)
def test_all_moves_in_all_interleavings_with_a_death(trees: Sequence[Parents]) -> None:
    found = explore(ordered_world(trees, all_moves, 1), judge_members(trees))
    assert (found.failures, found.first_failure, found.endless) == (0, "", False)
    assert found.complete and found.ends > 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_trees_of_five_in_all_interleavings_of_locks_with_a_death(seed: int) -> None:
    """Two trees for even seeds, three for odd ones."""
    trees = random_trees(Random(seed), 5, 2 + seed % 2)
    found = explore(ordered_world(trees, no_moves, 1), judge_members(trees))
    assert (found.failures, found.first_failure, found.endless, found.complete) == (
        0,
        "",
        False,
        True,
    )


@pytest.mark.long
def test_random_runs_of_five_providers_and_three_trees_with_two_deaths() -> None:
    for seed in range(10):
        random = Random(seed)
        trees = random_trees(random, 5, 3)
        found = sample_runs(ordered_world(trees, all_moves, 2), judge_members(trees), random, 100)
        assert (found.failures, found.first_failure) == (0, "")


def leaving(member: AdaptingMember) -> list[Any]:
    """All moves, and provider 1 may leave, 3 may join."""
    choices: list[Any] = list(all_moves(member))
    place = member.places.get(0)
    if member.number == 1 and place and not place.leaving:
        choices.append(("leave", 0))
    if member.number == 3 and place is None:
        choices.append(("join", 0, 0))
    return choices


@pytest.mark.long
def test_leaving_and_joining_during_a_round_in_all_interleavings() -> None:
    """With no heartbeats to repeat it, one that leaves may stay; but nobody is cut off."""
    tree: Parents = {0: None, 1: 0, 2: 1}
    world = ordered_world([tree, {3: None}], leaving)

    def judge(living: dict[int, AdaptingMember]) -> str:
        members = [number for number, member in living.items() if 0 in member.places]
        return find_fault(living, {0: members})

    found = explore(world, judge)
    assert (found.failures, found.first_failure, found.complete) == (0, "", True)
