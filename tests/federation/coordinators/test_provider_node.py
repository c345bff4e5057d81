"""The state machine of one provider, message by message."""

from __future__ import annotations

import math
from dataclasses import replace

from headwater.federation.coordinators.membership import TreeOptions
from headwater.federation.coordinators.messages import (
    ChildList,
    Children,
    Dissolve,
    Elect,
    Envelope,
    Heartbeat,
    Introduce,
    JoinRefused,
    JoinRequest,
    Message,
    NotAMember,
    Ping,
    Pong,
    Quorum,
    Refuse,
    SubtreeLoad,
    TreeSummary,
    Vote,
)
from headwater.federation.coordinators.provider import ProviderNode

TREE = TreeSummary(True, 1, 3, "a")


def cluster(epoch: int, *members: str) -> Children:
    square = tuple(tuple(float(a != b) for b in members) for a in members)
    return Children(1, epoch, members, square, (), TREE, Quorum(members, 1))


def send(
    node: ProviderNode, now: float, sender: str, number: int, message: Message
) -> list[Message]:
    """Deliver a message; returns the answers."""
    envelope = Envelope(sender, node.membership.name, number, message)
    return [answer.message for answer in node.receive(now, envelope)]


def member_of_a() -> ProviderNode:
    node = ProviderNode("b", TreeOptions(contacts=("a",)))
    send(node, 1.0, "a", 1, cluster(5, "a", "b", "c"))
    assert node.membership.seats[1].parent == "a" and not node.membership.roles
    return node


def test_a_ping_is_answered_and_measures_half_of_the_round_trip() -> None:
    node = ProviderNode("b", TreeOptions())
    assert send(node, 3.0, "a", 1, Ping(17.0)) == [Pong(17.0)]
    assert send(node, 4.5, "a", 2, Pong(4.0)) == []
    assert node.membership.latencies == {"a": 0.25}


def test_a_message_that_comes_twice_counts_once() -> None:
    node = ProviderNode("a", TreeOptions(founder=True))
    request = JoinRequest(1, 1, 0, 0)
    assert len(send(node, 1.0, "b", 1, request)) == 1
    before = replace(node.membership.roles[1])
    assert send(node, 2.0, "b", 1, request) == []
    assert node.membership.roles[1] == before


def test_a_repeated_request_under_another_number_changes_nothing() -> None:
    node = ProviderNode("a", TreeOptions(founder=True))
    first = send(node, 1.0, "b", 1, JoinRequest(1, 1, 0, 0))
    assert send(node, 1.0, "b", 2, JoinRequest(1, 1, 0, 0)) == first
    assert sorted(node.membership.roles[1].members) == ["a", "b"]


def test_a_stale_parent_is_refused() -> None:
    node = member_of_a()
    assert send(node, 2.0, "c", 1, cluster(5, "b", "c")) == [Refuse(1, 5)]
    assert node.membership.seats[1].parent == "a"
    send(node, 2.0, "a", 2, cluster(4, "a", "b"))
    assert node.membership.seats[1].members == ("a", "b", "c")


def test_a_later_epoch_is_followed() -> None:
    node = member_of_a()
    send(node, 2.0, "c", 1, cluster(6, "b", "c"))
    assert (node.membership.seats[1].parent, node.membership.seats[1].epoch) == ("c", 6)


def test_who_is_elected_in_a_stale_epoch_stays_a_member() -> None:
    node = member_of_a()
    send(node, 2.0, "c", 1, Elect(1, 5, ("b", "c"), ()))
    assert not node.membership.roles
    send(node, 2.0, "c", 2, Elect(1, 6, ("b", "c"), ()))
    assert sorted(node.membership.roles[1].members) == ["b", "c"]
    assert node.membership.roles[1].epoch == 6


def test_nobody_coordinates_a_level_without_the_one_below() -> None:
    node = member_of_a()
    send(node, 2.0, "c", 1, Elect(2, 9, ("b", "c"), ()))
    send(node, 2.0, "c", 2, replace(cluster(9, "b", "c"), level=2))
    assert not node.membership.roles and set(node.membership.seats) == {1}


def test_a_heartbeat_of_a_stranger_is_turned_away_and_it_starts_again() -> None:
    node = member_of_a()
    beat = Heartbeat(1, 3, SubtreeLoad(1.0, 1), ())
    assert send(node, 2.0, "c", 1, beat) == [NotAMember(1)]
    send(node, 2.0, "a", 2, NotAMember(1))
    assert node.membership.seats[1].parent == "b" and node.membership.is_alone
    assert send(node, 2.0, "c", 2, JoinRequest(1, 2, 2, 0)) == [JoinRefused(1)]


def test_who_is_turned_away_does_not_follow_what_was_sent_before() -> None:
    """Its own tree is a later epoch of the cluster that it was in; the parent may take it again."""
    node = member_of_a()
    send(node, 2.0, "a", 3, NotAMember(1))
    assert node.membership.seats[1].epoch == 6
    assert send(node, 2.1, "a", 2, cluster(5, "a", "b", "c")) == [Refuse(1, 6)]
    assert node.membership.is_alone
    send(node, 3.0, "a", 4, cluster(7, "a", "b", "c"))
    assert node.membership.seats[1].parent == "a"


def test_what_others_say_of_a_root_is_asked_of_the_root_itself() -> None:
    """A tree is joined on its root's own word only: others may speak of one that is no more."""
    node = ProviderNode("b", TreeOptions(contacts=("c",)))
    assert send(node, 1.0, "c", 1, Introduce(TREE, wants_answer=False)) == []
    asked = {e.receiver for e in node.tick(2.0) if isinstance(e.message, Introduce)}
    assert asked == {"a", "c"}
    (answer,) = send(node, 3.0, "a", 1, Introduce(TREE, wants_answer=False))
    assert isinstance(answer, JoinRequest) and answer.level == 1


def test_the_lesser_of_two_trees_joins() -> None:
    node = ProviderNode("b", TreeOptions(founder=True))
    lesser = replace(TREE, has_root=False, depth=7)
    (answer,) = send(node, 1.0, "a", 1, Introduce(lesser, wants_answer=True))
    assert isinstance(answer, Introduce) and answer.tree.root == "b"


def test_members_of_a_silent_parent_elect_the_median_of_the_living() -> None:
    """Of b, c and d, where a and e are dead, c has the least total latency."""
    names, places = ("a", "b", "c", "d", "e"), (0.0, 1.0, 4.0, 9.0, 3.0)
    square = tuple(tuple(abs(x - y) for y in places) for x in places)
    message = Children(1, 5, names, square, (), TREE, Quorum(names, 1))
    nodes = {name: ProviderNode(name, TreeOptions(contacts=("a",))) for name in "bcd"}
    waiting = []
    for number, node in enumerate(nodes.values()):
        node.receive(1.0, Envelope("a", node.membership.name, number, message))
    for now in (3.0, 5.0, 7.0, 9.0, 11.0, 13.0):
        waiting = [envelope for node in nodes.values() for envelope in node.tick(now)]
        while waiting:
            envelope = waiting.pop(0)
            if envelope.receiver in nodes:
                waiting += nodes[envelope.receiver].receive(now + 0.1, envelope)
    assert {node.membership.seats[1].parent for node in nodes.values()} == {"c"}
    assert sorted(nodes["c"].membership.roles[1].members) == ["b", "c", "d"]
    assert nodes["c"].membership.roles[1].epoch == 6


def second_level(epoch: int) -> Children:
    return replace(cluster(epoch, "a", "c", "d"), level=2)


def hear_only(node: ProviderNode, start: int, message: Message) -> None:
    """Three heartbeats at which d sends this, and nobody else lives."""
    for now in (start, start + 2, start + 4):
        send(node, now, "d", now, message)
        node.tick(now)


def test_an_old_vote_does_not_count_whatever_its_epoch() -> None:
    """The cluster that it was for is no more; the epochs of the next one began anew."""
    node = ProviderNode("c", TreeOptions(contacts=("a",)))
    send(node, 1.0, "a", 1, second_level(7))
    send(node, 1.0, "d", 1, Vote(2, 7))
    send(node, 2.0, "a", 2, Dissolve(2, None))
    send(node, 3.0, "a", 3, second_level(1))
    hear_only(node, 10, Ping(10.0))
    assert node.membership.seats[2].parent == "a" and 2 not in node.membership.roles
    hear_only(node, 16, Vote(2, 1))
    assert node.membership.roles[2].epoch == 2


def test_a_successor_begins_above_the_epochs_of_its_voters() -> None:
    """Else those who voted for it would refuse it."""
    node = ProviderNode("c", TreeOptions(contacts=("a",)))
    send(node, 1.0, "a", 1, cluster(5, "a", "c", "d"))
    hear_only(node, 10, Vote(1, 7))
    assert sorted(node.membership.roles[1].members) == ["c", "d"]
    assert node.membership.roles[1].epoch == 8


def test_unknown_latencies_are_sent_as_such() -> None:
    node = ProviderNode("a", TreeOptions(founder=True))
    (answer,) = send(node, 1.0, "b", 1, JoinRequest(1, 1, 0, 0))
    assert isinstance(answer, Children)
    assert answer.latencies[0][0] == 0.0 and math.isnan(answer.latencies[0][1])


def test_a_root_without_a_quorum_is_declared_by_a_person() -> None:
    node = ProviderNode("a", TreeOptions(founder=True))
    me = node.membership
    me.quorum = Quorum(("a", "b", "c"), 3)
    node.tick(2.0)
    assert not me.tree.has_root
    node.declare_root()
    node.tick(4.0)
    assert me.tree.has_root


def test_a_join_that_is_not_answered_is_given_up() -> None:
    """The nearest child may be dead by the time it is asked: then the next introduction starts again."""
    node = ProviderNode("b", TreeOptions(contacts=("a",)))
    (request,) = send(node, 1.0, "a", 1, Introduce(TREE, wants_answer=False))
    assert isinstance(request, JoinRequest)
    pings = send(node, 1.1, "a", 2, ChildList(request.attempt, 2, ("a", "c")))
    assert pings == [Ping(1.1), Ping(1.1)]
    send(node, 1.2, "c", 1, Pong(1.1))
    asked = [e for e in node.tick(3.2) if isinstance(e.message, JoinRequest)]
    assert [(e.receiver, e.message.at) for e in asked] == [("c", 1)]  # type: ignore[union-attr]
    for now in (5.2, 7.2, 9.3):
        assert not [e for e in node.tick(now) if isinstance(e.message, JoinRequest)]
    assert node.membership.joining is None
