"""Signs of life between members and parents, and the latencies that members measure between each other.

A member reports to its parent every HEARTBEAT_SECONDS, and is answered with the cluster as it is. Whoever is silent for
DEAD_SECONDS is removed by its parent, or succeeded by its members.
"""

from __future__ import annotations

from headwater.federation.coordinators.membership import (
    DEAD_SECONDS,
    ELECTION_SECONDS,
    GRACE_SECONDS,
    MemberRecord,
    Membership,
)
from headwater.federation.coordinators.messages import Heartbeat, NotAMember, Ping

SMOOTHING = 0.3
"""The weight of a new measurement of a latency that was measured before."""


def report_to_parents(me: Membership) -> None:
    """Heartbeat to the parent of every cluster; to oneself without a message."""
    for level, seat in me.seats.items():
        near = tuple((m, me.latencies[m]) for m in seat.members if m in me.latencies)
        if seat.parent != me.name:
            me.send(seat.parent, Heartbeat(level, seat.epoch, me.load(level), near))
            continue
        role = me.roles[level]
        if role.members[me.name].note(me.now, me.load(level), near):
            role.square = None
        seat.heard, seat.members = me.now, tuple(sorted(role.members))


def measure_latencies(me: Membership) -> None:
    """Ping the other members of every cluster that were not measured since the last election."""
    # In order: what is sent must not depend on how the names happen to be hashed.
    for name in sorted({member for seat in me.seats.values() for member in seat.members}):
        if name != me.name and me.now - me.measured.get(name, -1e9) >= ELECTION_SECONDS / 2:
            me.send(name, Ping(me.now))


def record_latency(me: Membership, name: str, latency: float) -> None:
    before = me.latencies.get(name, latency)
    me.latencies[name] = before + SMOOTHING * (latency - before)
    me.measured[name] = me.now


def watch_members(me: Membership, level: int) -> None:
    """Remove the dead; inform those who have not answered since they were made members."""
    role = me.roles[level]
    for name, record in list(role.members.items()):
        if me.now - record.heard >= DEAD_SECONDS:
            me.remove_member(level, name)
        elif not record.has_answered:
            me.send(name, me.describe(level))


def on_heartbeat(me: Membership, sender: str, message: Heartbeat) -> None:
    """Take note of a member and answer; whoever is none is turned away."""
    role = me.roles.get(message.level)
    if role is None or sender not in role.members:
        if role is None and me.now - me.stepped_down.get(message.level, -1e9) < GRACE_SECONDS:
            return  # The successor is informing its members.
        if role is not None and me.now - role.since < GRACE_SECONDS:
            return
        if role is None or message.epoch != role.epoch:
            me.send(sender, NotAMember(message.level))
            return
        # It was taken for dead, and still counts itself as a member: so it is one.
        role.members[sender] = MemberRecord(me.now)
    if role.members[sender].note(me.now, message.load, message.latencies):
        role.square = None
    if message.level == me.top:
        me.supporters[sender] = me.now
    me.send(sender, me.describe(message.level))


def on_not_a_member(me: Membership, sender: str, message: NotAMember) -> None:
    seat = me.seats.get(message.level)
    if seat is not None and seat.parent == sender != me.name:
        me.lose_seat(message.level)
