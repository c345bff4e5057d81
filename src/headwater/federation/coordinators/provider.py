"""A provider as a state machine: a message or a tick in, messages out.

It has no clock: the time comes with every call. Whoever drives it, a simulator or a transport, calls `tick` every
HEARTBEAT_SECONDS and `receive` for every message, and delivers what they return, or loses it.
"""

from __future__ import annotations

from collections import OrderedDict

from headwater.federation.coordinators.heartbeats import (
    measure_latencies,
    on_heartbeat,
    on_not_a_member,
    record_latency,
    report_to_parents,
    watch_members,
)
from headwater.federation.coordinators.joining import (
    continue_joining,
    look_for_trees,
    note_answer,
    on_child_list,
    on_dissolve,
    on_introduce,
    on_join_refused,
    on_join_request,
)
from headwater.federation.coordinators.membership import Membership, TreeOptions
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
    Leave,
    Merge,
    Message,
    NotAMember,
    Ping,
    Pong,
    Quorum,
    Refuse,
    Replace,
    Vote,
)
from headwater.federation.coordinators.succession import (
    adjust_cluster,
    leave,
    on_children,
    on_elect,
    on_merge,
    on_replace,
    on_vote,
    watch_parent,
)

REMEMBERED_MESSAGES = 1024


class ProviderNode:
    """One provider of a federation, with its part of the tree of coordinators."""

    def __init__(self, name: str, options: TreeOptions, now: float = 0.0) -> None:
        self.membership = Membership(name, options, now)
        self.is_leaving = False
        self._received: OrderedDict[tuple[str, int], None] = OrderedDict()

    def tick(self, now: float) -> list[Envelope]:
        """Periodic work, every HEARTBEAT_SECONDS."""
        me = self.membership
        me.now = now
        repeated, me.repeated = me.repeated, []
        for times, receiver, message in repeated:
            me.send(receiver, message)
            if times > 1:
                me.repeated.append((times - 1, receiver, message))
        if not self.is_leaving:
            self._keep_the_tree()
        return self._collect()

    def receive(self, now: float, envelope: Envelope) -> list[Envelope]:
        """Handle a message; one that came before is dropped."""
        key = (envelope.sender, envelope.number)
        if key in self._received or self.is_leaving:
            return []
        self._received[key] = None
        # A copy that comes after so many others would be taken for new: the price of bounded
        # memory.
        if len(self._received) > REMEMBERED_MESSAGES:
            self._received.popitem(last=False)
        me = self.membership
        me.now = now
        me.heard_from[envelope.sender] = now
        self._handle(envelope.sender, envelope.message)
        return self._collect()

    def leave(self, now: float) -> list[Envelope]:
        """Leave the federation; a few more ticks repeat what was sent."""
        me = self.membership
        me.now, self.is_leaving = now, True
        # What was being repeated speaks of clusters that the provider is about to leave.
        me.repeated.clear()
        leave(me)
        return self._collect()

    def declare_root(self) -> None:
        """As the top of a tree: be its root, though more than half of its last quorum are gone for good.

        For an administrator who knows that they do not merely sit on the other side of a cut.
        """
        me = self.membership
        if me.is_top:
            members = tuple(sorted(me.roles[me.top].members))
            me.quorum = Quorum(members, me.quorum.version + 1)

    def _collect(self) -> list[Envelope]:
        outbox, self.membership.outbox = self.membership.outbox, []
        return outbox

    def _keep_the_tree(self) -> None:
        me = self.membership
        # A copy of the levels: what is done for one of them may end places in others.
        for level in sorted(me.seats):
            if level in me.seats and me.seats[level].parent != me.name:
                watch_parent(me, level)
        for level in sorted(me.roles):
            if level in me.roles:
                watch_members(me, level)
                adjust_cluster(me, level)
        continue_joining(me)
        look_for_trees(me)
        report_to_parents(me)
        measure_latencies(me)

    def _handle(self, sender: str, message: Message) -> None:
        me = self.membership
        match message:
            case Ping():
                me.send(sender, Pong(message.sent))
            case Pong():
                latency = (me.now - message.sent) / 2
                record_latency(me, sender, latency)
                note_answer(me, sender, latency)
            case Heartbeat():
                on_heartbeat(me, sender, message)
            case Children():
                on_children(me, sender, message)
            case NotAMember():
                on_not_a_member(me, sender, message)
            case Introduce():
                on_introduce(me, sender, message)
            case JoinRequest():
                on_join_request(me, sender, message)
            case ChildList():
                on_child_list(me, message)
            case JoinRefused():
                on_join_refused(me, message)
            case Refuse():
                _on_refuse(me, sender, message)
            case Elect():
                on_elect(me, message)
            case Replace():
                on_replace(me, sender, message)
            case Merge():
                on_merge(me, sender, message)
            case Vote():
                on_vote(me, sender, message)
            case Leave():
                me.remove_member(message.level, sender)
            case Dissolve():
                on_dissolve(me, sender, message)


def _on_refuse(me: Membership, sender: str, message: Refuse) -> None:
    """A member that has another cluster, or a sibling that cannot merge."""
    role = me.roles.get(message.level)
    if role is not None and role.merging_into == sender:
        role.merging_into = None
    elif role is not None and message.epoch >= role.epoch:
        me.remove_member(message.level, sender)
