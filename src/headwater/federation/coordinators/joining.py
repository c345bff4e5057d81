"""How a provider, or a tree that was cut off, joins another tree.

A provider begins as a tree of its own. The top of a tree introduces itself to its contacts; of two trees
the lesser joins the greater: as a whole under a coordinator of the level above, or, if its highest cluster is too small or the other tree
too low, member by member. Each descends from the root, measures the children it is sent, and asks the nearest.
"""

from __future__ import annotations

from headwater.federation.coordinators.membership import (
    HEARTBEAT_SECONDS,
    JoinAttempt,
    Membership,
)
from headwater.federation.coordinators.messages import (
    ChildList,
    Dissolve,
    Introduce,
    JoinRefused,
    JoinRequest,
    Ping,
    TreeSummary,
)
from headwater.federation.coordinators.succession import ask_to_confirm, replace_member

ANSWER_SECONDS = 3 * HEARTBEAT_SECONDS
CONTACTS_ASKED = 3
"""How many contacts the top of a tree asks at each tick, by turns."""

INTRODUCE_SECONDS = 5 * HEARTBEAT_SECONDS
"""How often any other provider asks one."""


def look_for_trees(me: Membership) -> None:
    """Introduce the tree to contacts: its top to several, and to the quorum, every other provider to one now and then.

    After a part of the network was cut off, it may be that a single provider knows one of another tree.
    """
    if me.is_settled:
        me.update_summary()
        asked = {name for name in me.quorum.members if name not in me.roles[me.top].members}
        asked |= me.leads
        asked.update(_next_contacts(me, CONTACTS_ASKED))
        me.leads = set()
    elif not me.is_top and me.now - me.introduced >= INTRODUCE_SECONDS:
        me.introduced = me.now
        asked = {*_next_contacts(me, 1)}
    else:
        return
    for name in sorted(asked):
        me.send(name, Introduce(me.tree, wants_answer=True))


def _next_contacts(me: Membership, count: int) -> list[str]:
    """The next contacts by turns."""
    contacts = list(me.contacts)
    first, me.next_contact = me.next_contact, me.next_contact + count
    return [contacts[(first + n) % len(contacts)] for n in range(min(count, len(contacts)))]


def on_introduce(me: Membership, sender: str, message: Introduce) -> None:
    """Compare the trees: join the other, let it join, or note that both are the same.

    Only what a root says of itself counts: others may speak of a tree that is no more, and of a root that now is in
    the same tree.
    """
    other = message.tree
    if other.root == me.name:
        me.supporters[sender] = me.now
    elif me.is_settled and me.joining is None:
        # The contacts given at first may be dead by the time they are asked again.
        me.remember(other.root)
        me.update_summary()
        if sender != other.root:
            me.leads.add(other.root)
        elif me.tree < other:
            join(me, other)
            return
    elif message.wants_answer and other.root != me.tree.root:
        # Only a root decides about joining, so the root gets this, and asks the other root itself.
        me.send(me.tree.root, Introduce(other, wants_answer=False))
    if message.wants_answer:
        me.send(sender, Introduce(me.tree, wants_answer=False))


def join(me: Membership, other: TreeSummary) -> None:
    """Join another tree with all that is below, or dissolve the highest cluster so that each member does."""
    top, role = me.top, me.roles[me.top]
    if len(role.members) >= me.options.k and other.depth > top:
        _begin(me, other.root, top + 1)
    elif me.is_alone:
        _begin(me, other.root, 1)
    else:
        dissolve(me, other)


def dissolve(me: Membership, other: TreeSummary) -> None:
    top = me.top
    for name in me.roles[top].members:
        if name != me.name:
            me.send_repeatedly(name, Dissolve(top, other))
    me.remember(other.root)
    me.lose_seat(top)


def on_dissolve(me: Membership, sender: str, message: Dissolve) -> None:
    seat = me.seats.get(message.level)
    if seat is None or seat.parent != sender:
        return
    me.lose_seat(message.level)
    if message.tree is not None:
        me.remember(message.tree.root)
        if me.is_top and me.joining is None:
            join(me, message.tree)


def _begin(me: Membership, root: str, level: int) -> None:
    me.attempts += 1
    me.joining = JoinAttempt(me.attempts, level, me.now)
    _ask(me, root, 0)


def _ask(me: Membership, coordinator: str, at: int) -> None:
    attempt = me.joining
    if attempt is not None:
        attempt.children, attempt.answers, attempt.progress = (), {}, me.now
        epoch = me.seats[attempt.level].epoch if attempt.level in me.seats else 0
        me.send(coordinator, JoinRequest(attempt.number, attempt.level, at, epoch))


def on_join_request(me: Membership, sender: str, message: JoinRequest) -> None:
    """Take the sender as a member, or send it the children among which the nearest is to be asked."""
    at = message.at or me.top
    if at not in me.roles or at < message.level:
        me.send(sender, JoinRefused(message.attempt))
    elif at > message.level:
        me.send(sender, ChildList(message.attempt, at, tuple(sorted(me.roles[at].members))))
    elif sender in me.roles[at].members:
        me.send(sender, me.describe(at))
    # One that replaces a dead coordinator does not make the cluster larger.
    elif message.replaces is None and _is_full(me, at):
        me.send(sender, JoinRefused(message.attempt))
    else:
        if message.replaces is not None:
            replace_member(me, at, message.replaces, (sender,))
        me.add_members(at, (sender,), message.epoch)


def _is_full(me: Membership, level: int) -> bool:
    """Whether a cluster has to split before it takes more.

    Members measure each other, so a crowd that joins faster than it can measure would never be split.
    """
    return len(me.roles[level].members) >= 2 * (3 * me.options.k - 1)


def on_child_list(me: Membership, message: ChildList) -> None:
    attempt = me.joining
    # Answers to attempts that were given up carry their numbers.
    if attempt is None or attempt.number != message.attempt or attempt.children:
        return
    attempt.at, attempt.children, attempt.progress = message.at, message.children, me.now
    me.remember(*message.children)
    for name in message.children:
        me.probes += 1
        me.send(name, Ping(me.now))


def note_answer(me: Membership, name: str, latency: float) -> None:
    """A child that was asked has answered; when all have, the nearest is asked to take the provider."""
    attempt = me.joining
    if attempt is not None and name in attempt.children:
        attempt.answers[name] = latency
        if len(attempt.answers) == len(attempt.children):
            _descend(me, attempt)


def _descend(me: Membership, attempt: JoinAttempt) -> None:
    nearest = min(attempt.answers, key=lambda name: (attempt.answers[name], name))
    _ask(me, nearest, attempt.at - 1)


def on_join_refused(me: Membership, message: JoinRefused) -> None:
    attempt = me.joining
    if attempt is not None and attempt.number == message.attempt and not attempt.confirming:
        me.joining = None


def continue_joining(me: Membership) -> None:
    """At a tick: go on without those who do not answer, or give up and wait for another introduction."""
    attempt = me.joining
    if attempt is None:
        return
    # Meanwhile another parent may have taken this provider, or its own tree may have changed.
    is_needed = me.is_top and (attempt.level == me.top + 1 or me.is_alone)
    if not is_needed or me.now - attempt.progress >= ANSWER_SECONDS:
        me.joining = None
    elif attempt.confirming:
        ask_to_confirm(me)
    elif attempt.answers and me.now - attempt.progress >= HEARTBEAT_SECONDS:
        _descend(me, attempt)
