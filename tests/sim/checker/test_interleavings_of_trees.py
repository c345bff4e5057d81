"""The model checker on the protocol of trees: what it finds is what a plain search finds, faults included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

import pytest
from plain_exploration import explore_plainly

from headwater.federation.dissemination.protocol.adaptation import (
    AdaptingMember,
    AttemptPhase,
    MoveAttempt,
)
from headwater.federation.dissemination.protocol.locks import LockDenial, LockRequest
from headwater.federation.dissemination.protocol.membership import TreeMember
from headwater.reproduce.cosmos.deadlock import CASES, random_trees
from headwater.sim.checker.interleavings import CheckedWorld, Exploration, explore
from headwater.sim.trees.members import (
    Parents,
    all_moves,
    judge_members,
    judge_printed,
    no_moves,
    ordered_world,
    printed_world,
)

FORK: Parents = {0: None, 1: 0, 2: 1, 3: 1}


def compare(world: CheckedWorld[Any], judge: Callable[[dict[int, Any]], str]) -> Exploration:
    """What both searches find: the same ends and verdicts, in no more states."""
    plain = explore_plainly(world, judge)
    ends = []

    def note(living: dict[int, Any]) -> str:
        ends.append(tuple((at, node.key()) for at, node in sorted(living.items())))
        return judge(living)

    found = explore(world, note)
    assert sorted(map(str, ends)) == sorted(str(nodes) for nodes, _, _ in plain.ends)
    assert 0 < found.states <= plain.states
    assert (found.failures, found.endless, found.complete) == (plain.failures, plain.endless, True)
    return found


@pytest.mark.parametrize(("case", "states", "stuck"), [("A", 153, 2), ("B", 172, 1)])
def test_the_printed_protocol_and_its_deadlocks(case: str, states: int, stuck: int) -> None:
    world = printed_world(CASES[case])
    assert compare(world, judge_printed).failures == stuck
    assert explore_plainly(world, judge_printed).states == states


@pytest.mark.long
@pytest.mark.parametrize(
    ("trees", "kills"),
    [
        (CASES["A"], 0),
        (CASES["B"], 0),
        ((FORK,), 0),
        pytest.param((FORK,), 1, marks=pytest.mark.slow),
        pytest.param(CASES["A"], 1, marks=pytest.mark.slow),
        pytest.param(CASES["B"], 1, marks=pytest.mark.slow),
    ],
)
def test_every_move(trees: tuple[Parents, ...], kills: int) -> None:
    assert not compare(ordered_world(trees, all_moves, kills), judge_members(trees)).failures


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_locks_of_two_random_trees_over_four(seed: int) -> None:
    trees = random_trees(Random(seed), 4, 2)
    assert not compare(ordered_world(trees, no_moves), judge_members(trees)).failures


class DescendingLocks(AdaptingMember):
    """Acquires the highest number first in every other tree, so that waits may close a circle."""

    def _start_attempt(self, tree: int) -> None:
        super()._start_attempt(tree)
        attempt = self.attempts.get(tree)
        if attempt and tree % 2 and len(attempt.awaited) > 1:
            # Not begun yet: the first request is the last message.
            (first, request) = self._outbox.pop()
            assert isinstance(request, LockRequest) and first == attempt.awaited[0]
            self.attempts[tree] = replace(attempt, awaited=attempt.awaited[::-1])
            self.send(attempt.awaited[-1], request)


class GreedyHolder(AdaptingMember):
    """Does not give back what it has when a try-lock is denied."""

    def dispatch(self, sender: int, message: Any) -> None:
        if not isinstance(message, LockDenial):
            super().dispatch(sender, message)


class Forgetful(AdaptingMember):
    """Goes on waiting for the locks of the dead."""

    def forget_provider(self, provider: int) -> None:
        TreeMember.forget_provider(self, provider)


class Stubborn(AdaptingMember):
    """Asks again for ever when a try-lock is denied."""

    def dispatch(self, sender: int, message: Any) -> None:
        attempt: MoveAttempt | None = None
        if isinstance(message, LockDenial):
            attempt = self._current(message.attempt)
        if attempt and attempt.phase is AttemptPhase.TRYING:
            self.send(sender, LockRequest(attempt.name, impatient=True))
        else:
            super().dispatch(sender, message)


@dataclass(frozen=True)
class Fault:
    """A faulty protocol, and where its fault shows."""

    member: type[AdaptingMember]
    trees: Sequence[Parents]
    kills: int = 0
    moves: bool = True


OPPOSED: tuple[Parents, ...] = ({0: None, 2: 0, 3: 0}, {1: None, 2: 1, 3: 1})
CROSSED: tuple[Parents, ...] = ({0: None, 1: 0, 2: 1}, {3: None, 2: 3})

FAULTS = {
    "locks in no order": Fault(DescendingLocks, OPPOSED, moves=False),
    "a denied try-lock": Fault(GreedyHolder, CROSSED),
    "locks of the dead": Fault(Forgetful, ({0: None, 1: 0, 2: 0},), 1, False),
    "tries for ever": Fault(Stubborn, CROSSED),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_planted_faults_are_found_by_both(fault: Fault) -> None:
    choices = all_moves if fault.moves else no_moves
    world = ordered_world(fault.trees, choices, fault.kills)
    nodes = [_as(fault.member, node) for node in world.nodes]
    found = compare(replace(world, nodes=nodes), judge_members(fault.trees))
    assert found.failures or found.endless
    right = compare(world, judge_members(fault.trees))
    assert not right.failures and not right.endless


def _as(member: type[AdaptingMember], node: AdaptingMember) -> AdaptingMember:
    values = {one.name: getattr(node, one.name) for one in fields(node)}
    return member(**values)
