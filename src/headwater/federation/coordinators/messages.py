"""What the providers of a federation send each other about the tree of coordinators.

Every message is frozen data with plain values, so a simulator can pass it on as it is and a transport can write it
as JSON. Levels count from 1, the clusters of providers; the epoch of a cluster rises with every new parent.
"""

from __future__ import annotations

from dataclasses import dataclass

Names = tuple[str, ...]
Latencies = tuple[tuple[float, ...], ...]
"""A square: row and column i are those of the i-th of some members; NaN where no latency was measured."""


@dataclass(frozen=True, slots=True, order=True)
class TreeSummary:
    """A whole tree in a line; of two trees the lesser joins the greater.

    `has_root` is whether more than half of the root's cluster agree to its root.
    """

    has_root: bool
    depth: int
    providers: int
    root: str


@dataclass(frozen=True, slots=True)
class Quorum:
    """The root's cluster when it last had a root that more than half agreed to."""

    members: Names = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class SubtreeLoad:
    """What is below a member: itself, or all the providers whose coordinator it is."""

    capability: float
    providers: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer this at once; `sent` is the sender's time."""

    sent: float


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping, with the time it came with."""

    sent: float


@dataclass(frozen=True, slots=True)
class Introduce:
    """Which tree the sender is in; the answer is the same about the receiver."""

    tree: TreeSummary
    wants_answer: bool


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The sender wants to be a member of a cluster of `level`, and asks the coordinator of level `at`.

    `at` is 0 for the highest level of the receiver. `replaces` is the dead coordinator whose cluster elected
    the sender.
    """

    attempt: int
    level: int
    at: int
    epoch: int
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class ChildList:
    """The children of a coordinator of level `at`: ask the nearest of them."""

    attempt: int
    at: int
    children: Names


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """The sender is no coordinator of that level, or its cluster is full for now."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member lives; what is below it, and how far the other members are from it."""

    level: int
    epoch: int
    load: SubtreeLoad
    latencies: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Children:
    """A parent lives; its cluster as it is now. It also makes the receiver a member.

    `above` is the cluster above, its parent first: who confirms a successor of the sender.
    """

    level: int
    epoch: int
    members: Names
    latencies: Latencies
    above: Names
    tree: TreeSummary
    quorum: Quorum


@dataclass(frozen=True, slots=True)
class NotAMember:
    """The answer to a heartbeat of a provider that the receiver is not the parent of."""

    level: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The sender has a cluster of that level already, of that epoch."""

    level: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Elect:
    """Be the parent of these members from this epoch on; `quorum` is for who is the root then."""

    level: int
    epoch: int
    members: Names
    latencies: Latencies
    quorum: Quorum | None = None


@dataclass(frozen=True, slots=True)
class Replace:
    """In the receiver's cluster of that level, let the successors take the place of a member.

    After a split the sender may stay and have one beside it: then nobody leaves.
    """

    level: int
    former: str | None
    successors: Names


@dataclass(frozen=True, slots=True)
class Merge:
    """Take these members, who are too few for a cluster, into yours of the same level."""

    level: int
    epoch: int
    members: Names


@dataclass(frozen=True, slots=True)
class Vote:
    """The parent of that level is silent; the sender wants the receiver to succeed it."""

    level: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The sender is no longer a member of the receiver's cluster of that level."""

    level: int


@dataclass(frozen=True, slots=True)
class Dissolve:
    """The receiver's cluster of that level is no more: join that tree."""

    level: int
    tree: TreeSummary | None


Message = (
    Ping
    | Pong
    | Introduce
    | JoinRequest
    | ChildList
    | JoinRefused
    | Heartbeat
    | Children
    | NotAMember
    | Refuse
    | Elect
    | Replace
    | Merge
    | Vote
    | Leave
    | Dissolve
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message on its way; sender and number together identify it."""

    sender: str
    receiver: str
    number: int
    message: Message
