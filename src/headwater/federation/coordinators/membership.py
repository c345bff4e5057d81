"""What one provider knows of the tree: the clusters it is in, and the clusters whose parent it is.

A provider that coordinates levels 1..j is a member of a cluster of each level 1..j + 1, without the last if it is
the root. It knows nothing but what it was sent and measured. The rules that change this are in the modules beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from headwater.federation.coordinators.clusters import Floats, median_member
from headwater.federation.coordinators.messages import (
    Children,
    Envelope,
    Latencies,
    Message,
    Names,
    Quorum,
    SubtreeLoad,
    TreeSummary,
)
from headwater.federation.coordinators.tree import DEFAULT_K

HEARTBEAT_SECONDS = 2.0
DEAD_SECONDS = 3 * HEARTBEAT_SECONDS
"""Who was silent for so long counts as dead."""

SUPPORT_SECONDS = 2 * HEARTBEAT_SECONDS
"""For so long a provider counts as one that agrees to the root."""

GRACE_SECONDS = 3 * HEARTBEAT_SECONDS
"""For so long after a change of parents, messages of before are waited out."""

ELECTION_SECONDS = 60.0
MAX_CONTACTS = 64


@dataclass(frozen=True, slots=True)
class TreeOptions:
    """How a provider takes part: `contacts` are the providers it was given to begin with.

    A founder begins a federation: it is the root of a tree of its own.
    """

    k: int = DEFAULT_K
    capability: float = 1.0
    contacts: Names = ()
    founder: bool = False


@dataclass(slots=True)
class Seat:
    """A place in a cluster, as its parent last described it."""

    parent: str
    epoch: int
    heard: float
    members: Names
    latencies: Latencies = ()
    above: Names = ()
    silent_since: float | None = None


NO_LOAD = SubtreeLoad(0.0, 0)


@dataclass(slots=True)
class MemberRecord:
    """What a parent knows of a member."""

    heard: float
    load: SubtreeLoad = NO_LOAD
    latencies: dict[str, float] = field(default_factory=dict)
    has_answered: bool = False

    def note(self, now: float, load: SubtreeLoad, latencies: tuple[tuple[str, float], ...]) -> bool:
        """Take note of a heartbeat; returns whether a latency changed."""
        self.heard, self.has_answered, self.load = now, True, load
        changed = any(self.latencies.get(name) != latency for name, latency in latencies)
        if changed:
            self.latencies.update(latencies)
        return changed


@dataclass(slots=True)
class Role:
    """The cluster of one level whose parent the provider is."""

    epoch: int
    since: float
    members: dict[str, MemberRecord]
    elected: float
    merging_into: str | None = None
    merge_tries: int = 0
    overfull_since: float | None = None
    square: tuple[Names, Latencies] | None = None
    """What was last computed from the members; None if a latency changed since."""


@dataclass(slots=True)
class JoinAttempt:
    """A descent from a root to a cluster of `level`; `answers` are latencies of the children asked."""

    number: int
    level: int
    progress: float
    at: int = 0
    children: Names = ()
    answers: dict[str, float] = field(default_factory=dict)
    replaces: str | None = None
    confirming: Names = ()


class Membership:
    """The state of one provider, and what it is about to send."""

    def __init__(self, name: str, options: TreeOptions, now: float) -> None:
        self.name, self.options, self.now = name, options, now
        self.seats: dict[int, Seat] = {}
        self.roles: dict[int, Role] = {}
        self.latencies: dict[str, float] = {}
        self.measured: dict[str, float] = {}
        self.heard_from: dict[str, float] = {}
        self.votes: dict[int, dict[str, tuple[int, float]]] = {}
        self.supporters: dict[str, float] = {}
        self.contacts: dict[str, None] = dict.fromkeys(options.contacts)
        self.next_contact = 0
        self.leads: set[str] = set()
        self.introduced = now
        self.quorum = Quorum((name,), 1) if options.founder else Quorum()
        self.stepped_down: dict[int, float] = {}
        self.joining: JoinAttempt | None = None
        self.attempts = 0
        self.probes = 0
        self.outbox: list[Envelope] = []
        self.repeated: list[tuple[int, str, Message]] = []
        self._sent = 0
        self.tree = TreeSummary(options.founder, 1, 1, name)
        self.be_alone()

    # Sending

    def send(self, receiver: str, message: Message) -> None:
        if receiver == self.name:
            return
        self._sent += 1
        self.outbox.append(Envelope(self.name, receiver, self._sent, message))

    def send_repeatedly(self, receiver: str, message: Message, times: int = 2) -> None:
        """Send now and at the next ticks: the message is not acknowledged, and may be lost."""
        self.send(receiver, message)
        self.repeated.append((times, receiver, message))

    # Looking

    @property
    def top(self) -> int:
        """The highest level that the provider coordinates; 0 if none."""
        return max(self.roles, default=0)

    @property
    def is_top(self) -> bool:
        """Whether the provider has no parent."""
        return self.top > 0 and self.top + 1 not in self.seats

    @property
    def is_settled(self) -> bool:
        """Whether it is the top of a tree, and not only until the level above takes it."""
        if not self.is_top:
            return False
        role = self.roles[self.top]
        return self.is_alone or self.now - role.since >= GRACE_SECONDS

    @property
    def is_alone(self) -> bool:
        return self.top == 1 and len(self.roles[1].members) == 1

    def load(self, level: int) -> SubtreeLoad:
        """What is below the provider as a member of a cluster of that level."""
        if level == 1:
            return SubtreeLoad(self.options.capability, 1)
        loads = [record.load for record in self.roles[level - 1].members.values()]
        return SubtreeLoad(
            math.fsum(load.capability for load in loads), sum(load.providers for load in loads)
        )

    def above(self, level: int) -> Names:
        """The cluster above that of a level, its parent first; none above the highest."""
        seat = self.seats.get(level + 1)
        if seat is None:
            return ()
        return (seat.parent, *(member for member in seat.members if member != seat.parent))

    def square(self, level: int) -> tuple[Names, Latencies]:
        """The members of a role in order, and what is known of the latencies between them."""
        role = self.roles[level]
        names = tuple(sorted(role.members))
        # Every heartbeat is answered with the square, which seldom changes.
        if role.square is None or role.square[0] != names:
            rows = [role.members[name].latencies for name in names]
            role.square = (
                names,
                tuple(
                    tuple(
                        # Half of a way there and back is the same from both ends: either's
                        # measurement serves.
                        0.0 if a == b else rows[i].get(b, rows[j].get(a, math.nan))
                        for j, b in enumerate(names)
                    )
                    for i, a in enumerate(names)
                ),
            )
        return role.square

    def describe(self, level: int) -> Children:
        """The message that makes its receiver a member of the cluster of a level."""
        names, latencies = self.square(level)
        epoch = self.roles[level].epoch
        return Children(level, epoch, names, latencies, self.above(level), self.tree, self.quorum)

    # Changing

    def be_alone(self) -> None:
        """Be a tree of one provider."""
        # Above that of the last cluster: what its parent sent before counts as stale.
        epoch = self.seats[1].epoch + 1 if 1 in self.seats else 0
        self.seats.clear()
        self.roles.clear()
        self.take_role(1, epoch, (self.name,))

    def take_role(
        self, level: int, epoch: int, members: Iterable[str], known: Latencies = ()
    ) -> Role:
        """Be the parent of a cluster; those who are to be members are informed at every tick."""
        names = tuple(members)
        role = Role(epoch, self.now, {}, self.now)
        self.roles[level] = role
        for row, name in enumerate(names):
            role.members[name] = MemberRecord(self.now)
            if known:
                role.members[name].latencies = {
                    other: latency
                    for other, latency in zip(names, known[row], strict=True)
                    if not math.isnan(latency)
                }
        if self.name not in role.members:
            role.members[self.name] = MemberRecord(self.now)
        role.members[self.name].load = self.load(level)
        self.seats[level] = Seat(self.name, epoch, self.now, tuple(sorted(role.members)))
        return role

    def add_members(self, level: int, names: Iterable[str], epoch: int = -1) -> None:
        """Make others members of a cluster, whose epoch is then above the one given."""
        role = self.roles[level]
        role.epoch = max(role.epoch, epoch + 1)
        self.seats[level].epoch = role.epoch
        for name in names:
            if name not in role.members:
                role.members[name] = MemberRecord(self.now)
                self.send(name, self.describe(level))

    def remove_member(self, level: int, name: str) -> None:
        if level in self.roles and name != self.name:
            self.roles[level].members.pop(name, None)
            self.remember(name)

    def lose_seat(self, level: int) -> None:
        """Be in no cluster of a level: a tree of its own below it, or alone."""
        if level == 1:
            self.be_alone()
            return
        for higher in [h for h in self.roles if h >= level]:
            del self.roles[higher]
        for higher in [h for h in self.seats if h >= level]:
            del self.seats[higher]

    def remember(self, *names: str) -> None:
        """Keep providers as contacts, the newest of MAX_CONTACTS; those given at first for good."""
        for name in names:
            if name != self.name and name not in self.options.contacts:
                self.contacts.pop(name, None)
                self.contacts[name] = None
        while len(self.contacts) > MAX_CONTACTS + len(self.options.contacts):
            oldest = next(c for c in self.contacts if c not in self.options.contacts)
            del self.contacts[oldest]

    def admit_to_quorum(self, former: str, successor: str) -> None:
        """Let the one whom a cluster elected agree to the root in place of its dead parent."""
        if former in self.quorum.members:
            members = {*self.quorum.members, successor} - {former}
            self.quorum = Quorum(tuple(sorted(members)), self.quorum.version + 1)

    def update_summary(self) -> None:
        """As the top of a tree: count what is below, and whether more than half of the quorum agree."""
        # Shorter than the time after which a member is removed: when a network splits, the first
        # removal already finds the others silent, and the quorum does not shrink member by member.
        oldest = self.now - SUPPORT_SECONDS
        agree = {self.name, *(name for name, heard in self.supporters.items() if heard > oldest)}
        has_root = 2 * len(agree.intersection(self.quorum.members)) > len(self.quorum.members)
        members = self.roles[self.top].members
        electors = tuple(
            name for name in sorted(members) if name in agree or name in self.quorum.members
        )
        if has_root and electors != self.quorum.members:
            self.quorum = Quorum(electors, self.quorum.version + 1)
        self.tree = TreeSummary(has_root, self.top, self.load(self.top + 1).providers, self.name)


def complete_square(latencies: Latencies) -> Floats:
    """A square as an array; what was not measured counts as the largest that was."""
    array = np.array(latencies, np.float64)
    known = array[~np.isnan(array)]
    return np.nan_to_num(array, nan=float(known.max(initial=1e-9)))


def is_complete(latencies: Latencies) -> bool:
    return not any(math.isnan(latency) for row in latencies for latency in row)


def median_name(names: Names, latencies: Latencies, among: Iterable[str]) -> str:
    """The median of some of the members; who is unknown comes last."""
    chosen = sorted(among)
    known = [name for name in chosen if name in names]
    if not known or not latencies:
        return chosen[0]
    rows = [names.index(name) for name in known]
    square = complete_square(latencies)[np.ix_(rows, rows)]
    return known[median_member(square)]
