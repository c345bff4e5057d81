"""Joining, leaving, death and what a feed delivers, by the messages of a few members and by histories."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SimulationError
from headwater.federation.dissemination.protocol.feeds import (
    RETENTION,
    Feed,
    FeedMessage,
    ResumeRequest,
)
from headwater.federation.dissemination.protocol.membership import (
    AttachRefusal,
    AttachRequest,
    ChildLeft,
    MembershipPolicy,
    ParentBeat,
    TreeMember,
    TreeMembership,
)
from headwater.sim.trees.histories import HistorySettings, TreeHistory


class Net:
    """Members whose messages arrive at once, in order."""

    def __init__(self, count: int, policy: MembershipPolicy | None = None) -> None:
        policy = policy or MembershipPolicy()
        self.members = {number: TreeMember(number, policy=policy) for number in range(count)}
        self.members[0].create_tree(0)

    def settle(self, sender: int, sent: list[tuple[int, Any]]) -> None:
        waiting = deque((sender, *one) for one in sent)
        while waiting:
            source, target, message = waiting.popleft()
            if target in self.members:
                replies = self.members[target].handle(source, message)
                waiting += [(target, *one) for one in replies]

    def join(self, *numbers: int) -> None:
        for number in numbers:
            self.settle(number, self.members[number].join(0, 0))

    def kill(self, dead: int) -> None:
        del self.members[dead]
        for number, member in self.members.items():
            self.settle(number, member.note_death(dead))

    def parents(self) -> dict[int, int | None]:
        return {n: m.places[0].parent for n, m in self.members.items() if 0 in m.places}


def chain(place: TreeMembership, number: int, newcomer: int, report: object) -> int:
    """Below the only child, if there is one."""
    return place.child_numbers()[0] if place.children else number


def test_joining_goes_down_to_where_it_is_cheapest() -> None:
    net = Net(4, MembershipPolicy(choose_parent=chain))
    net.join(1, 2, 3)
    assert net.parents() == {0: None, 1: 0, 2: 1, 3: 2}
    assert net.members[3].places[0].path == (2, 1, 0)


def test_orphans_go_to_the_nearest_ancestor_that_lives() -> None:
    net = Net(5, MembershipPolicy(choose_parent=chain))
    net.join(1, 2, 3, 4)
    net.kill(2)
    assert net.parents() == {0: None, 1: 0, 3: 1, 4: 3}
    assert net.members[4].places[0].path == (3, 1, 0)
    del net.members[1], net.members[3]
    net.settle(4, net.members[4].note_death(3))
    net.settle(4, net.members[4].note_death(1))
    assert net.parents() == {0: None, 4: 0}


def test_a_provider_that_returns_joins_like_a_new_one() -> None:
    net = Net(4, MembershipPolicy(choose_parent=chain))
    net.join(1, 2, 3)
    net.kill(1)
    net.members[1] = TreeMember(1, policy=MembershipPolicy(choose_parent=chain))
    net.join(1)
    assert net.parents() == {0: None, 2: 0, 3: 2, 1: 3}


def test_children_of_one_that_leaves_go_where_the_parent_says() -> None:
    def below_four(place: TreeMembership, number: int, newcomer: int, report: object) -> int:
        return 4 if newcomer == 3 and 4 in place.child_numbers() else number

    net = Net(5)
    net.join(1, 4)
    for child in (2, 3):
        net.members[child].places[0] = TreeMembership(0, 0, started=False)
        net.members[child]._seek(0, (1,))
        net.settle(child, net.members[child].drain())
    net.members[0].policy = MembershipPolicy(choose_parent=below_four)
    net.settle(1, net.members[1].leave(0))
    assert net.parents() == {0: None, 4: 0, 2: 0, 3: 4}
    assert net.members[0].places[0].child_numbers() == (2, 4)


def test_a_circle_is_broken_by_whoever_finds_itself_on_its_way() -> None:
    net = Net(3, MembershipPolicy(choose_parent=chain))
    net.join(1, 2)
    # 1 is below 2 and 2 below 1, and neither has noticed.
    net.members[1].places[0] = TreeMembership(0, 0, 2, (2, 0), ((2, None),))
    net.members[2].places[0] = TreeMembership(0, 0, 1, (1, 0), ((1, None),))
    net.members[0].places[0] = TreeMembership(0, 0)
    net.settle(2, [(1, ParentBeat(0, (2, 1, 0), 0))])
    assert net.parents() == {0: None, 1: 0, 2: 1}
    assert net.members[2].places[0].path == (1, 0)
    assert net.members[2].places[0].children == ()


def test_nobody_adopts_one_of_its_ancestors() -> None:
    net = Net(3, MembershipPolicy(choose_parent=chain))
    net.join(1, 2)
    assert net.members[2].handle(1, AttachRequest(0, 0, None)) == [(1, AttachRefusal(0))]


def test_silence_of_three_heartbeats_is_death_and_beats_are_sent() -> None:
    net = Net(2)
    net.join(1)
    child = net.members[1]
    sent = child.tick(0.0)
    assert [to for to, _ in sent] == [0]
    child.tick(6.0)
    assert child.places[0].parent == 0
    child.tick(8.1)
    assert child.places[0].parent is None
    assert child.places[0].candidates == (0,)


def test_an_origin_that_refuses_or_is_dead_is_asked_again_with_the_next_heartbeat() -> None:
    net = Net(2)
    net.join(1)
    child = net.members[1]
    question = (0, AttachRequest(0, 0, None))
    # Its parent does not know it any more: perhaps only as a parent.
    assert child.handle(0, AttachRefusal(0), 1.0) == [question]
    assert child.handle(0, AttachRefusal(0), 1.1) == []
    assert child.tick(2.0) == [question]
    assert child.note_death(0, 2.1) == []
    net.settle(1, child.tick(4.0))
    assert net.parents() == {0: None, 1: 0}


def test_an_ancestor_that_does_not_answer_is_given_up() -> None:
    """Two that die together are noticed by their silence alone, one after the other."""
    net = Net(4, MembershipPolicy(choose_parent=chain))
    net.join(1, 2, 3)
    del net.members[1], net.members[2]
    for second in range(25):
        for number, member in net.members.items():
            net.settle(number, member.tick(float(second)))
    assert net.parents() == {0: None, 3: 0}
    assert net.members[0].places[0].child_numbers() == (3,)


def test_both_paths_deliver_and_duplicates_fall_by_number() -> None:
    net = Net(2)
    net.join(1)
    child = net.members[1]
    for sender in (0, 7):
        child.handle(sender, FeedMessage(0, 1, "a"))
    assert (child.places[0].feed.newest, child.places[0].feed.kept) == (1, ("a",))
    assert child.handle(0, FeedMessage(0, 3, "c")) == [(0, ResumeRequest(0, 1))]
    assert child.places[0].feed.newest == 1


def test_a_stranger_is_answered() -> None:
    stranger = TreeMember(9)
    assert stranger.handle(0, ParentBeat(0, (0,), 3)) == [(0, ChildLeft(0))]


@given(st.integers(0, RETENTION + 50), st.integers(0, RETENTION + 60))
def test_feeds_resume_behind_any_number_they_reach(count: int, number: int) -> None:
    feed = Feed()
    for payload in range(1, count + 1):
        feed = feed.append(payload)
    kept = [n for n in range(1, count + 1) if n > count - RETENTION]
    assert feed.after(number) == tuple((n, n) for n in kept if n > number)
    assert feed.reaches(number) == all(n in kept for n in range(number + 1, count + 1))


def test_a_quiet_history_has_no_losses_and_delivers_everything() -> None:
    quiet = HistorySettings(6, 2, 20, death=0, leave=0, loss=0, settle_seconds=10)
    outcome = TreeHistory(quiet, 1).run()
    assert outcome.fault == "" and outcome.lost == outcome.deaths == 0
    again = TreeHistory(quiet, 1).run()
    assert again == outcome
    assert TreeHistory(quiet, 2).run() != outcome


def test_histories_refuse_more_trees_than_providers() -> None:
    with pytest.raises(SimulationError):
        HistorySettings(providers=3, trees=3)


STORMY = HistorySettings(12, 3, 60, death=0.02, rejoin=0.1, leave=0.01, loss=0.05)


@pytest.mark.long
def test_random_histories_end_with_trees_that_span_the_living() -> None:
    deaths = moves = 0
    for seed in range(12):
        outcome = TreeHistory(STORMY, seed).run()
        assert (outcome.fault, outcome.disorder) == ("", [])
        deaths, moves = deaths + outcome.deaths, moves + outcome.moves
    assert deaths > 50 and moves > 100


@pytest.mark.slow
def test_hundreds_of_providers() -> None:
    settings = HistorySettings(300, 3, 120, death=0.002, leave=0.001, loss=0.02)
    outcome = TreeHistory(settings, 1).run()
    assert (outcome.fault, outcome.disorder) == ("", [])
    assert outcome.deaths > 30 and outcome.moves > 100
