"""Who coordinates instead: hand-over, split, merge, election by time, and by the members of a dead parent.

Who is no longer the parent of a cluster cannot stay in the cluster above, where it may be the parent too: `hand_over`
goes up level by level. A cluster whose parent is silent elects the median of the living; the level above
confirms by taking the new parent as a member in place of the dead one.
"""

from __future__ import annotations

from headwater.federation.coordinators.changes import HYSTERESIS
from headwater.federation.coordinators.clusters import best_split
from headwater.federation.coordinators.membership import (
    DEAD_SECONDS,
    ELECTION_SECONDS,
    GRACE_SECONDS,
    HEARTBEAT_SECONDS,
    JoinAttempt,
    Membership,
    Role,
    Seat,
    complete_square,
    is_complete,
    median_name,
)
from headwater.federation.coordinators.messages import (
    Children,
    Dissolve,
    Elect,
    JoinRequest,
    Latencies,
    Leave,
    Merge,
    Names,
    Ping,
    Quorum,
    Refuse,
    Replace,
    Vote,
)

PATIENCE_SECONDS = 10 * HEARTBEAT_SECONDS
"""After so long without a new parent a member joins again from the root."""

MERGE_TRIES = 3


def hand_over(me: Membership, level: int, successors: Names) -> None:
    """Let successors, or nobody, have the place above that comes with the parent of a level."""
    above = level + 1
    others = tuple(name for name in successors if name != me.name)
    stays = len(others) < len(successors)
    if above not in me.seats:
        _hand_over_top(me, above, successors, stays)
    elif above in me.roles:
        _hand_over_inside(me, above, others, stays)
    else:
        parent = me.seats[above].parent
        me.send_repeatedly(parent, Replace(above, None if stays else me.name, others))
        if not stays:
            del me.seats[above]


def _hand_over_top(me: Membership, above: int, successors: Names, stays: bool) -> None:
    """Two parts of the highest cluster need a level above; one has nobody above it as before."""
    if len(successors) < 2:
        return
    if stays:
        me.take_role(above, 1, successors)
        me.quorum = _next_quorum(me, successors)
    else:
        elect(me, above, successors[0], successors, 0, quorum=_next_quorum(me, successors))


def _hand_over_inside(me: Membership, above: int, others: Names, stays: bool) -> None:
    """The cluster above is the provider's own, too."""
    if stays:
        me.add_members(above, others)
        return
    role = me.roles[above]
    names, latencies = me.square(above)
    remaining = [name for name in names if name != me.name]
    del me.roles[above], me.seats[above]
    members = (*remaining, *others)
    if len(members) < 2 and above + 1 not in me.seats:
        # The highest level with one child or none goes.
        for name in remaining:
            me.send_repeatedly(name, Dissolve(above, None))
        return
    if not members:
        hand_over(me, above, ())
        return
    # Newcomers are chosen only if there is nobody else: they may not coordinate below as yet.
    parent = median_name(names, latencies, remaining or others)
    quorum = _quorum_of_root(me, above, members)
    elect(me, above, parent, members, role.epoch, names, latencies, quorum)
    hand_over(me, above, (parent,))


def elect(
    me: Membership,
    level: int,
    parent: str,
    members: Names,
    epoch: int,
    names: Names = (),
    latencies: Latencies = (),
    quorum: Quorum | None = None,
) -> None:
    """Make another provider the parent of a cluster, and with a quorum the root."""
    known = {(a, b): latencies[i][j] for i, a in enumerate(names) for j, b in enumerate(names)}
    square = tuple(
        tuple(known.get((a, b), 0.0 if a == b else float("nan")) for b in members) for a in members
    )
    me.send_repeatedly(parent, Elect(level, epoch + 1, members, square, quorum))


def _next_quorum(me: Membership, members: Names) -> Quorum:
    if not me.tree.has_root:
        return me.quorum
    return Quorum(tuple(sorted(members)), me.quorum.version + 1)


def _quorum_of_root(me: Membership, level: int, members: Names) -> Quorum | None:
    return None if level + 1 in me.seats else _next_quorum(me, members)


def on_elect(me: Membership, message: Elect) -> None:
    """Become a parent, unless that was decided before something that is known already."""
    level, seat = message.level, me.seats.get(message.level)
    is_member = level == 1 or level - 1 in me.roles
    if not is_member or level in me.roles or (seat is not None and seat.epoch >= message.epoch):
        return
    me.take_role(level, message.epoch, message.members, message.latencies)
    if message.quorum is not None and message.quorum.version > me.quorum.version:
        me.quorum = message.quorum
        me.supporters.update(dict.fromkeys(message.quorum.members, me.now))


def on_replace(me: Membership, sender: str, message: Replace) -> None:
    role = me.roles.get(message.level)
    if role is None:
        return
    if message.former is not None and message.former in role.members:
        replace_member(me, message.level, message.former, message.successors)
    elif message.former is None and sender in role.members:
        me.add_members(message.level, message.successors)


def replace_member(me: Membership, level: int, former: str, successors: Names) -> None:
    """Let others be members instead of one, in the quorum too: their cluster decided it."""
    me.remove_member(level, former)
    me.add_members(level, successors)
    for successor in successors[:1]:
        me.admit_to_quorum(former, successor)


# Sizes and elections by time


def adjust_cluster(me: Membership, level: int) -> None:
    """Split, merge or re-elect, if it is time; the level above goes if it has one child only."""
    role = me.roles[level]
    size, is_top = len(role.members), level + 1 not in me.seats
    if me.now - role.since < GRACE_SECONDS:
        return
    if is_top and level > 1 and size == 1:
        quorum = _next_quorum(me, tuple(me.roles[level - 1].members))
        del me.roles[level], me.seats[level]
        me.quorum = quorum
    elif size > 3 * me.options.k - 1:
        _split(me, level)
    elif size < me.options.k and not is_top:
        _merge(me, level)
    else:
        role.merging_into = None
        if me.now - role.elected >= ELECTION_SECONDS:
            _elect_by_time(me, level)


def _split(me: Membership, level: int) -> None:
    role = me.roles[level]
    names, latencies = me.square(level)
    answered = [name for name in names if role.members[name].has_answered]
    if role.overfull_since is None:
        role.overfull_since = me.now
    # Waits until all is measured, but not for ever: one that never answers would keep the cluster
    # too large.
    is_known = len(answered) == len(names) and is_complete(latencies)
    if not is_known and me.now - role.overfull_since < PATIENCE_SECONDS:
        return
    role.overfull_since = None
    chosen = best_split(complete_square(latencies), me.options.k)
    parts = [
        tuple(n for n, first in zip(names, chosen, strict=True) if first == side)
        for side in (True, False)
    ]
    # One that never answered may be dead.
    parents = tuple(
        median_name(names, latencies, [n for n in part if n in answered] or part) for part in parts
    )
    for part, parent in zip(parts, parents, strict=True):
        if parent == me.name:
            _keep_part(me, level, part)
        else:
            elect(me, level, parent, part, role.epoch, names, latencies)
    if me.name not in parents:
        _step_down(me, level, parents[me.name in parts[1]])
    hand_over(me, level, parents)


def _keep_part(me: Membership, level: int, part: Names) -> None:
    role = me.roles[level]
    role.members = {name: role.members[name] for name in part}
    # What was sent about the whole cluster is from an earlier epoch now, and is dropped.
    role.epoch += 1
    role.since = role.elected = me.now
    me.seats[level].epoch = role.epoch


def _step_down(me: Membership, level: int, parent: str) -> None:
    """Be a plain member of a cluster that the provider was the parent of."""
    role = me.roles.pop(level)
    me.stepped_down[level] = me.now
    # The epoch stays, so that the new parent's first message, which is above it, is accepted.
    me.seats[level] = Seat(parent, role.epoch, me.now, tuple(sorted(role.members)))


def _elect_by_time(me: Membership, level: int) -> None:
    role = me.roles[level]
    names, latencies = me.square(level)
    # `elected` stays as it is, so the next tick tries again.
    if not is_complete(latencies):
        return
    role.elected = me.now
    totals = complete_square(latencies).sum(axis=1)
    best = int(totals.argmin())
    if totals[best] < HYSTERESIS * totals[names.index(me.name)]:
        quorum = _quorum_of_root(me, level, names)
        elect(me, level, names[best], names, role.epoch, names, latencies, quorum)
        _step_down(me, level, names[best])
        hand_over(me, level, (names[best],))


def _merge(me: Membership, level: int) -> None:
    role = me.roles[level]
    siblings = [name for name in me.seats[level + 1].members if name != me.name]
    near = sorted(siblings, key=lambda name: (me.latencies.get(name, float("inf")), name))
    if not near:
        return
    if role.merging_into not in siblings:
        role.merging_into, role.merge_tries = near[0], 0
    elif role.merge_tries >= MERGE_TRIES:
        after = near.index(role.merging_into) + 1
        role.merging_into, role.merge_tries = near[after % len(near)], 0
    role.merge_tries += 1
    me.send(role.merging_into, Merge(level, role.epoch, tuple(sorted(role.members))))


def on_merge(me: Membership, sender: str, message: Merge) -> None:
    role = me.roles.get(message.level)
    if role is None:
        me.send(sender, Refuse(message.level, message.epoch))
        return
    if role.merging_into == sender and sender < me.name:
        return  # Both are too small: the lesser name takes the members of the other.
    role.merging_into = None
    me.add_members(message.level, message.members, message.epoch)
    for name in message.members:
        me.send(name, me.describe(message.level))


def leave(me: Membership) -> None:
    """Leave every cluster; where the provider was the parent, the median of the others succeeds."""
    if 1 in me.roles:
        role = me.roles[1]
        names, latencies = me.square(1)
        remaining = tuple(name for name in names if name != me.name)
        successors: Names = ()
        if remaining:
            parent = median_name(names, latencies, remaining)
            quorum = _quorum_of_root(me, 1, remaining)
            elect(me, 1, parent, remaining, role.epoch, names, latencies, quorum)
            successors = (parent,)
        hand_over(me, 1, successors)
    else:
        me.send_repeatedly(me.seats[1].parent, Leave(1))


# A silent parent


def watch_parent(me: Membership, level: int) -> None:
    """Elect another parent if the present one was silent for too long."""
    seat = me.seats[level]
    if me.now - seat.heard < DEAD_SECONDS:
        seat.silent_since = None
        return
    if seat.silent_since is None:
        seat.silent_since = me.now
    elif me.heard_from.get(seat.parent, -1.0) >= seat.silent_since:
        # It lives: its next answer says whether it is the parent still.
        seat.heard, seat.silent_since = me.now, None
        return
    elif me.now - seat.silent_since > PATIENCE_SECONDS:
        me.lose_seat(level)
        return
    else:
        _vote(me, level, seat, seat.silent_since)
    for name in seat.members:
        if name != me.name and level in me.seats:
            me.send(name, Ping(me.now))


def _vote(me: Membership, level: int, seat: Seat, since: float) -> None:
    living = [
        name
        for name in seat.members
        if name == me.name or (name != seat.parent and me.heard_from.get(name, -1.0) >= since)
    ]
    candidate = median_name(seat.members, seat.latencies, living)
    if candidate != me.name:
        me.send(candidate, Vote(level, seat.epoch))
        return
    recent = me.now - 2 * HEARTBEAT_SECONDS
    votes = {
        name: epoch
        for name, (epoch, heard) in me.votes.get(level, {}).items()
        if name in living and epoch >= seat.epoch and heard >= recent
    }
    votes[me.name] = seat.epoch
    # Of the living and not of the cluster: which side of a cut has a root, the quorum decides.
    if 2 * len(votes) > len(living):
        # A voter may have heard of a later epoch, and would refuse one that is not above it.
        _succeed(me, level, seat, tuple(living), max(votes.values()) + 1)


def _succeed(me: Membership, level: int, seat: Seat, living: Names, epoch: int) -> None:
    """Take the place of a dead parent, and ask the level above to confirm it."""
    square: Latencies = ()
    if seat.latencies:
        places = [seat.members.index(name) for name in living]
        square = tuple(tuple(seat.latencies[a][b] for b in places) for a in places)
    me.take_role(level, epoch, living, square)
    me.remember(seat.parent)
    above = tuple(name for name in seat.above if name not in (seat.parent, me.name))
    if above:
        me.attempts += 1
        me.joining = JoinAttempt(
            me.attempts, level + 1, me.now, replaces=seat.parent, confirming=above
        )
        ask_to_confirm(me)


def ask_to_confirm(me: Membership) -> None:
    """Ask all of the cluster above: whoever is the parent there by now takes the provider."""
    attempt = me.joining
    if attempt is None or attempt.level - 1 not in me.roles:
        me.joining = None
        return
    epoch = me.roles[attempt.level - 1].epoch
    for name in attempt.confirming:
        me.send(
            name,
            JoinRequest(attempt.number, attempt.level, attempt.level, epoch, attempt.replaces),
        )


def on_vote(me: Membership, sender: str, message: Vote) -> None:
    me.votes.setdefault(message.level, {})[sender] = (message.epoch, me.now)


# Becoming a member


def on_children(me: Membership, sender: str, message: Children) -> None:
    """A parent describes its cluster: stay, change over to it, or refuse."""
    level, seat = message.level, me.seats.get(message.level)
    if (level > 1 and level - 1 not in me.roles) or me.name not in message.members:
        return
    if seat is not None and seat.parent == sender:
        if message.epoch >= seat.epoch:
            _sit_down(me, sender, message)
    elif seat is not None and message.epoch <= seat.epoch:
        me.send(sender, Refuse(level, seat.epoch))
    elif level in me.roles:
        _give_up_role(me, sender, message, me.roles[level])
    else:
        if seat is not None:
            me.send(seat.parent, Leave(level))
        _sit_down(me, sender, message)


def _give_up_role(me: Membership, sender: str, message: Children, role: Role) -> None:
    """Change over from a cluster of one's own: alone, or with all the members that are merged."""
    if role.merging_into != sender and len(role.members) > 1:
        me.send(sender, Refuse(message.level, role.epoch))
        return
    del me.roles[message.level]
    hand_over(me, message.level, ())
    _sit_down(me, sender, message)


def _sit_down(me: Membership, sender: str, message: Children) -> None:
    level, before = message.level, me.seats.get(message.level)
    if before is None or before.members != message.members:
        me.remember(*message.members)
    me.seats[level] = Seat(
        sender, message.epoch, me.now, message.members, message.latencies, message.above
    )
    if me.joining is not None and me.joining.level == level:
        me.joining = None
    if level > me.top:
        me.tree, me.quorum = message.tree, message.quorum
    me.remember(*message.above[:1])
