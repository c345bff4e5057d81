"""A provider's place in its trees: join, leave, the death of a neighbour, and the numbers of feeds.

A tree is nothing but the parents that its providers have, and only a provider itself changes its
parent: it asks another to adopt it, and keeps the parent it has until that one agrees. Children,
paths and missing messages are repeated by heartbeats, so that whatever was lost is put right.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from headwater.federation.dissemination.protocol.feeds import (
    CaughtUp,
    Feed,
    FeedMessage,
    ResumeRequest,
)

HEARTBEAT_SECONDS = 2.0
MISSED_HEARTBEATS = 3
"""A neighbour that is silent for this many heartbeats counts as dead."""


@dataclass(frozen=True)
class TreeJoinRequest:
    """Asks where to join: here, or below one of the children."""

    tree: int
    report: Hashable


@dataclass(frozen=True)
class JoinDirection:
    """It is cheaper below this child."""

    tree: int
    child: int


@dataclass(frozen=True)
class AttachRequest:
    """Asks the receiver to be the sender's parent and to send what follows a number (None: from now on)."""

    tree: int
    newest: int | None
    report: Hashable


@dataclass(frozen=True)
class Adoption:
    """The sender is the receiver's parent; its path to the origin, and the number its feed goes on from."""

    tree: int
    path: tuple[int, ...]
    newest: int


@dataclass(frozen=True)
class AttachRefusal:
    """The sender cannot be the receiver's parent: it is not in the tree, leaves it, or is below the receiver."""

    tree: int


@dataclass(frozen=True)
class ChildLeft:
    """The sender is not, or no longer, the receiver's child."""

    tree: int


@dataclass(frozen=True)
class LeaveRequest:
    """The sender wants to leave; where may its children go?"""

    tree: int
    children: tuple[tuple[int, Hashable], ...]


@dataclass(frozen=True)
class LeavePlan:
    """The parents for the children of one that leaves."""

    tree: int
    parents: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ParentLeaves:
    """The receiver's parent leaves; it should ask these to adopt it, in this order."""

    tree: int
    candidates: tuple[int, ...]


@dataclass(frozen=True)
class ParentBeat:
    """From parent to child: I live; this is the way to the origin, and the newest number."""

    tree: int
    path: tuple[int, ...]
    newest: int


@dataclass(frozen=True)
class ChildBeat:
    """From child to parent: I live; this is my newest number and what I report upward."""

    tree: int
    newest: int
    report: Hashable


@dataclass(frozen=True)
class TreeMembership:
    """What a provider knows of its place in one tree."""

    tree: int
    origin: int
    parent: int | None = None
    """None at the origin, and for one that has lost its parent or not joined yet."""
    path: tuple[int, ...] = ()
    """The ancestors, nearest first."""
    children: tuple[tuple[int, Hashable], ...] = ()
    """The children in ascending order, with what each has reported."""
    guests: tuple[int, ...] = ()
    """Those that get the feed in preparation of a move."""
    candidates: tuple[int, ...] = ()
    """Whom it asks to adopt it, the first now, the others if that one refuses or dies."""
    joining: bool = False
    """Whether the first candidate may direct it to a child."""
    leaving: bool = False
    started: bool = True
    """Whether its feed has begun: one that joins begins where its parent is."""
    feed: Feed = field(default_factory=Feed)

    def child_numbers(self) -> tuple[int, ...]:
        """The children, in ascending order."""
        return tuple(child for child, _ in self.children)

    def with_child(self, child: int, report: Hashable) -> TreeMembership:
        """The place with a child, or with a new report of it."""
        others = tuple(one for one in self.children if one[0] != child)
        children = tuple(sorted((*others, (child, report)), key=lambda one: one[0]))
        return replace(self, children=children)

    def without(self, provider: int) -> TreeMembership:
        """The place without a child or guest."""
        return replace(
            self,
            children=tuple(one for one in self.children if one[0] != provider),
            guests=tuple(guest for guest in self.guests if guest != provider),
        )


def no_report(place: TreeMembership) -> Hashable:
    """Nothing to report upward."""
    return None


def join_here(place: TreeMembership, number: int, newcomer: int, report: Hashable) -> int:
    """Every newcomer attaches where it asks."""
    return number


@dataclass(frozen=True)
class MembershipPolicy:
    """The decisions that depend on prices.

    `report` sums up a subtree for the parent. `choose_parent` gets the place and number of a provider, a newcomer and its
    report, and answers that provider or one of its children.
    """

    report: Callable[[TreeMembership], Hashable] = no_report
    choose_parent: Callable[[TreeMembership, int, int, Hashable], int] = join_here


@dataclass
class TreeMember:
    """A provider with its places in all its trees: messages in, messages out, time passed in."""

    number: int
    places: dict[int, TreeMembership] = field(default_factory=dict)
    policy: MembershipPolicy = MembershipPolicy()
    heard: dict[int, float] = field(default_factory=dict)
    """When neighbours were last heard of."""
    next_beat: float = 0.0
    now: float = 0.0
    _outbox: list[tuple[int, Any]] = field(default_factory=list)

    def key(self) -> Hashable:
        """All of the state that messages change, without the clock."""
        return self.number, tuple(sorted(self.places.items()))

    def copy(self) -> Self:
        """A member in the same state that changes by itself."""
        return replace(self, places=dict(self.places), heard=dict(self.heard), _outbox=[])

    def handle(self, sender: int, message: Any, now: float = 0.0) -> list[tuple[int, Any]]:
        """Take a message. Returns receivers with messages."""
        self.now = now
        if sender in self.heard:
            self.heard[sender] = now
        self.dispatch(sender, message)
        return self.drain()

    def tick(self, now: float) -> list[tuple[int, Any]]:
        """Let time pass: send heartbeats, notice silence. Returns as `handle`; call it every second or so."""
        self.now = now
        self.pass_time()
        return self.drain()

    def note_death(self, provider: int, now: float = 0.0) -> list[tuple[int, Any]]:
        """Learn that a provider is dead, for instance by a connection that was reset. Returns as `handle`."""
        self.now = now
        self.forget_provider(provider)
        return self.drain()

    def create_tree(self, tree: int) -> None:
        """Become the origin of a tree."""
        self.places[tree] = TreeMembership(tree, self.number)

    def join(self, tree: int, origin: int, now: float = 0.0) -> list[tuple[int, Any]]:
        """Ask for a place in a tree, from its origin down. Returns as `handle`."""
        self.now = now
        if tree not in self.places:
            self.places[tree] = TreeMembership(tree, origin, path=(origin,), started=False)
            self._seek(tree, (origin,), joining=True)
        return self.drain()

    def leave(self, tree: int, now: float = 0.0) -> list[tuple[int, Any]]:
        """Leave a tree once all children have another parent. Returns as `handle`."""
        self.now = now
        place = self.places.get(tree)
        if place and place.origin != self.number:
            self.places[tree] = replace(place, leaving=True)
            self._request_leave(tree)
        return self.drain()

    def publish(self, tree: int, payload: Hashable, now: float = 0.0) -> list[tuple[int, Any]]:
        """Emit the next message of a tree, at its origin. Returns as `handle`."""
        self.now = now
        self._append(self.places[tree], payload)
        return self.drain()

    # What subclasses add to.

    def dispatch(self, sender: int, message: Any) -> None:
        """Take a message."""
        place = self.places.get(message.tree)
        if place is None:
            self._answer_stranger(sender, message)
            return
        match message:
            case FeedMessage():
                self._receive(place, sender, message)
            case ResumeRequest():
                self._handle_resume(place, sender, message.newest)
            case CaughtUp():
                self.note_caught_up(place, sender)
            case TreeJoinRequest():
                self._handle_join(place, sender, message)
            case JoinDirection():
                self._handle_direction(place, sender, message.child)
            case AttachRequest():
                self._handle_attach(place, sender, message)
            case Adoption():
                self._handle_adoption(place, sender, message)
            case AttachRefusal():
                self._handle_refusal(place, sender)
            case ChildLeft():
                self.places[message.tree] = place.without(sender)
                self._finish_leaving(message.tree)
            case LeaveRequest():
                self._handle_leave(place, sender, message)
            case LeavePlan():
                self._handle_plan(place, message)
            case ParentLeaves():
                if sender == place.parent and not place.candidates:
                    self._seek(place.tree, message.candidates)
            case ParentBeat():
                self._handle_parent_beat(place, sender, message)
            case ChildBeat():
                self._handle_child_beat(place, sender, message)

    def note_caught_up(self, place: TreeMembership, sender: int) -> None:
        """The feed of a future parent has arrived up to now."""

    def note_left(self, tree: int) -> None:
        """This provider is no longer in a tree."""

    def finish_seeking(self, place: TreeMembership, found: bool) -> None:
        """The first candidate has adopted this provider, or has not."""

    def forget_provider(self, provider: int) -> None:
        """Go on without a provider that is dead."""
        self.heard.pop(provider, None)
        for tree, place in tuple(self.places.items()):
            self.places[tree] = place.without(provider)
            self._follow_path(tree, tuple(one for one in place.path if one != provider))
            place = self.places[tree]
            asked = place.candidates[:1] == (provider,)
            if provider == place.parent:
                self._lose_parent(place)
            elif asked:
                self._ask_next(tree)
            else:
                others = tuple(one for one in place.candidates if one != provider)
                self.places[tree] = replace(place, candidates=others)
            self._finish_leaving(tree)

    def pass_time(self) -> None:
        """Send heartbeats, and notice neighbours that are silent."""
        if self.now < self.next_beat:
            return
        self.next_beat = self.now + HEARTBEAT_SECONDS
        limit = self.now - HEARTBEAT_SECONDS * MISSED_HEARTBEATS
        neighbours = self.neighbours()
        # A new neighbour has the whole time before it; who is none any more does not come back as
        # silent.
        self.heard = {one: self.heard.get(one, self.now) for one in sorted(neighbours)}
        for silent in [one for one, heard in self.heard.items() if heard < limit]:
            self.forget_provider(silent)
        for tree in tuple(self.places):
            self._beat(tree)

    def neighbours(self) -> set[int]:
        """Those whose silence matters: parents, children, and whoever was asked for adoption."""
        found = set[int]()
        for place in self.places.values():
            found.update(place.child_numbers(), place.guests, place.candidates[:1])
            found.update(() if place.parent is None else (place.parent,))
        return found - {self.number}

    def send(self, receiver: int, message: Any) -> None:
        """Send a message; one to oneself is taken before anything else happens."""
        self._outbox.append((receiver, message))

    def drain(self) -> list[tuple[int, Any]]:
        """The messages to send."""
        sent: list[tuple[int, Any]] = []
        while self._outbox:
            receiver, message = self._outbox.pop(0)
            if receiver == self.number:
                self.dispatch(self.number, message)
            else:
                sent.append((receiver, message))
        return sent

    # The feed.

    def _append(self, place: TreeMembership, payload: Hashable) -> None:
        place = replace(place, feed=place.feed.append(payload))
        self.places[place.tree] = place
        message = FeedMessage(place.tree, place.feed.newest, payload)
        for receiver in sorted({*place.child_numbers(), *place.guests}):
            self.send(receiver, message)

    def _receive(self, place: TreeMembership, sender: int, message: FeedMessage) -> None:
        """Take the next message from whoever brings it first; ask for those that were skipped."""
        # Before its adoption a provider does not know at which number its feed begins.
        if not place.started or message.number <= place.feed.newest:
            return
        if message.number == place.feed.newest + 1:
            self._append(place, message.payload)
        else:
            self.send(sender, ResumeRequest(place.tree, place.feed.newest))

    def _handle_resume(self, place: TreeMembership, sender: int, newest: int) -> None:
        if place.feed.reaches(newest):
            self._send_after(place, sender, newest)
        # Nobody has more than the origin: adoption says from which number there is something.
        elif self.number == place.origin:
            self._adopt(place, sender, newest)
        else:
            # Somebody further up has more.
            self.send(sender, AttachRefusal(place.tree))

    def _send_after(self, place: TreeMembership, receiver: int, newest: int) -> None:
        for number, payload in place.feed.after(newest):
            self.send(receiver, FeedMessage(place.tree, number, payload))
        if receiver in place.guests:
            self.send(receiver, CaughtUp(place.tree))

    # Getting a parent.

    def _seek(self, tree: int, candidates: Iterable[int], joining: bool = False) -> None:
        """Ask the candidates one after another to adopt this provider."""
        place = self.places[tree]
        unique = tuple(one for one in dict.fromkeys(candidates) if one != self.number)
        self.places[tree] = replace(place, candidates=unique, joining=joining)
        self._ask(tree)

    def _ask(self, tree: int) -> None:
        place = self.places[tree]
        if not place.candidates:
            return
        report = self.policy.report(place)
        # Of the first question, not of its repetitions: else one that is dead would be asked for ever.
        self.heard.setdefault(place.candidates[0], self.now)
        if place.joining:
            self.send(place.candidates[0], TreeJoinRequest(tree, report))
        else:
            newest = place.feed.newest if place.started else None
            self.send(place.candidates[0], AttachRequest(tree, newest, report))

    def _ask_next(self, tree: int) -> None:
        """The first candidate is of no use: ask the next, if one is still needed."""
        useless, *others = self.places[tree].candidates
        place = replace(self.places[tree], candidates=tuple(others))
        self.places[tree] = replace(place, joining=False)
        self.finish_seeking(place, False)
        place = self.places[tree]
        # There is nobody left but the origin, which is asked until it agrees.
        if not place.candidates and place.parent is None and place.origin != self.number:
            place = replace(place, candidates=(place.origin,))
        self.places[tree] = place
        # If it was the origin that refused, or is dead, it is asked with the next heartbeat: at once,
        # its answers would keep the network busy until it is in the tree again.
        if place.candidates != (useless,):
            self._ask(tree)

    def _lose_parent(self, place: TreeMembership) -> None:
        """Go to the nearest ancestor that lives, unless a new parent is being asked already."""
        self.places[place.tree] = replace(place, parent=None)
        asked = tuple(one for one in place.candidates if one != place.parent)
        rest = (*asked, *place.path, place.origin)
        if asked and asked == place.candidates:
            unique = tuple(one for one in dict.fromkeys(rest) if one != self.number)
            self.places[place.tree] = replace(place, parent=None, candidates=unique)
        else:
            self._seek(place.tree, rest)

    def _handle_join(self, place: TreeMembership, newcomer: int, message: TreeJoinRequest) -> None:
        # An ancestor that attaches below would close a circle.
        if place.leaving or newcomer in place.path:
            self.send(newcomer, AttachRefusal(place.tree))
            return
        # A newcomer that is a child already has come back before its death was noticed.
        known = place.without(newcomer)
        chosen = self.policy.choose_parent(known, self.number, newcomer, message.report)
        if chosen in known.child_numbers():
            self.places[place.tree] = known
            self.send(newcomer, JoinDirection(place.tree, chosen))
        else:
            self._handle_attach(place, newcomer, AttachRequest(place.tree, None, message.report))

    def _handle_direction(self, place: TreeMembership, sender: int, child: int) -> None:
        if place.joining and place.candidates[:1] == (sender,):
            self._seek(place.tree, (child, *place.candidates), joining=True)

    def _handle_attach(self, place: TreeMembership, sender: int, message: AttachRequest) -> None:
        newest = place.feed.newest if message.newest is None else message.newest
        # A parent that no longer has what the child missed would leave a gap in its feed.
        complete = place.feed.reaches(newest) or self.number == place.origin
        if not place.started or not complete or place.leaving or sender in place.path:
            self.send(sender, AttachRefusal(place.tree))
            return
        place = place.without(sender).with_child(sender, message.report)
        self.places[place.tree] = place
        self.heard[sender] = self.now
        self._adopt(place, sender, newest)

    def _adopt(self, place: TreeMembership, child: int, newest: int) -> None:
        """Send a child where it is and what it has missed; what even the origin no longer has is gone."""
        newest = max(newest, place.feed.newest - len(place.feed.kept))
        self.send(child, Adoption(place.tree, (self.number, *place.path), newest))
        self._send_after(place, child, newest)

    def _handle_adoption(self, place: TreeMembership, sender: int, message: Adoption) -> None:
        # The answer to a question that was given up: the sender counts a child that it does not
        # have.
        if sender not in (place.parent, *place.candidates[:1]):
            self.send(sender, ChildLeft(place.tree))
            return
        if not place.started or message.newest > place.feed.newest:
            # What lies between is gone for good, even at the origin.
            place = replace(place, started=True, feed=Feed(message.newest))
        if place.candidates[:1] != (sender,):
            self.places[place.tree] = place
            return
        former = place.parent
        place = replace(place, parent=sender, candidates=(), joining=False)
        self.places[place.tree] = place
        # Only now: until the new parent had agreed, the former one had to deliver.
        if former not in (None, sender):
            self.send(former, ChildLeft(place.tree))
        self.finish_seeking(place, True)
        self._follow_path(place.tree, message.path)
        self._request_leave(place.tree)

    def _handle_refusal(self, place: TreeMembership, sender: int) -> None:
        if place.candidates[:1] == (sender,):
            self._ask_next(place.tree)
        elif sender == place.parent:
            self._follow_path(place.tree, tuple(one for one in place.path if one != sender))
            self._lose_parent(self.places[place.tree])

    def _follow_path(self, tree: int, path: tuple[int, ...]) -> None:
        """Take over the way to the origin, and send it down. One that leads through here is a circle."""
        place = self.places[tree]
        if self.number in path:
            parent = place.parent
            self.places[tree] = replace(place, parent=None, path=(place.origin,))
            if parent is not None:
                self.send(parent, ChildLeft(tree))
            self._seek(tree, (place.origin,))
        elif path != place.path:
            self.places[tree] = replace(place, path=path)
            for child in place.child_numbers():
                self.send(child, ParentBeat(tree, (self.number, *path), place.feed.newest))

    def _answer_stranger(self, sender: int, message: Any) -> None:
        """A message about a tree that this provider is not in."""
        if isinstance(message, AttachRequest | TreeJoinRequest | ChildBeat):
            self.send(sender, AttachRefusal(message.tree))
        elif isinstance(message, ParentBeat | Adoption | FeedMessage):
            self.send(sender, ChildLeft(message.tree))

    # Leaving.

    def _request_leave(self, tree: int) -> None:
        place = self.places[tree]
        if place.leaving and place.children and place.parent is not None:
            self.send(place.parent, LeaveRequest(tree, place.children))
        self._finish_leaving(tree)

    def _finish_leaving(self, tree: int) -> None:
        """Leave, if no provider depends on this one any more."""
        place = self.places[tree]
        if not place.leaving or place.children or place.guests:
            return
        if place.parent is not None:
            self.send(place.parent, ChildLeft(tree))
            del self.places[tree]
            self.note_left(tree)

    def _handle_leave(self, place: TreeMembership, sender: int, message: LeaveRequest) -> None:
        """Choose for each child of one that leaves: this provider, or a sibling of the one that leaves."""
        without = place.without(sender)
        parents = tuple(
            (child, self.policy.choose_parent(without, self.number, child, report))
            for child, report in message.children
        )
        self.send(sender, LeavePlan(place.tree, parents))

    def _handle_plan(self, place: TreeMembership, message: LeavePlan) -> None:
        for child, parent in message.parents:
            if place.leaving and child in place.child_numbers():
                self.send(child, ParentLeaves(place.tree, (parent, *place.path)))

    # Heartbeats.

    def _beat(self, tree: int) -> None:
        place = self.places.get(tree)
        if place is None:
            return
        if place.parent is not None:
            report = self.policy.report(place)
            self.send(place.parent, ChildBeat(tree, place.feed.newest, report))
        for child in place.child_numbers():
            self.send(child, ParentBeat(tree, (self.number, *place.path), place.feed.newest))
        # Questions and answers may be lost, so the question is repeated.
        if place.candidates:
            self._ask(tree)
        elif place.parent is None and place.origin != self.number:
            self._seek(tree, (*place.path, place.origin))
        self._request_leave(tree)

    def _handle_parent_beat(self, place: TreeMembership, sender: int, message: ParentBeat) -> None:
        if sender == place.parent:
            self._follow_path(place.tree, message.path)
            if place.started and message.newest > place.feed.newest:
                self.send(sender, ResumeRequest(place.tree, place.feed.newest))
        elif place.candidates[:1] != (sender,):
            self.send(sender, ChildLeft(place.tree))

    def _handle_child_beat(self, place: TreeMembership, sender: int, message: ChildBeat) -> None:
        if place.leaving and sender not in place.child_numbers():
            self.send(sender, ParentLeaves(place.tree, place.path))
            return
        if not place.feed.reaches(message.newest) and self.number != place.origin:
            self.send(sender, AttachRefusal(place.tree))
            return
        self.places[place.tree] = place.with_child(sender, message.report)
        self.heard[sender] = self.now
