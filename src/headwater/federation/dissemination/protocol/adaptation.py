"""Rounds of adaptation: a token comes down the tree, and each holder makes at most one move.

A move is one or two providers that change their parent, in an order in which the tree is a tree
after each of them. A provider changes its parent only when the new path delivers (prepare) and its
holder says so (commit); whatever fails before leaves it where it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self

from headwater.federation.dissemination.protocol.feeds import ResumeRequest
from headwater.federation.dissemination.protocol.locks import (
    AttemptId,
    LockDenial,
    LockGrant,
    LockRelease,
    LockRenewal,
    LockRequest,
    ProviderLock,
)
from headwater.federation.dissemination.protocol.membership import TreeMember, TreeMembership

ROUND_SECONDS = 200.0
ATTEMPT_SECONDS = 30.0
"""An attempt that has got no answer for so long is given up."""


@dataclass(frozen=True)
class NewParent:
    """One provider goes from one parent to another."""

    child: int
    old: int
    new: int


Changes = tuple[NewParent, ...]
"""A move, in an order in which the tree is a tree after each change: a provider rises before its parent goes below it."""


@dataclass(frozen=True)
class MemberStatistics:
    """What rides on a grant: the provider's own report, and its children with theirs."""

    report: Hashable
    children: tuple[tuple[int, Hashable], ...]


@dataclass(frozen=True)
class RoundToken:
    """Lets the receiver try to improve the tree below it."""

    tree: int


@dataclass(frozen=True)
class PrepareRequest:
    """To the new parent: connect to the child."""

    attempt: AttemptId
    change: NewParent


@dataclass(frozen=True)
class GuestOffer:
    """From the new parent to the child: from which number shall I deliver?"""

    attempt: AttemptId
    change: NewParent


@dataclass(frozen=True)
class MovePrepared:
    """From the child to the holder: the new path delivers."""

    attempt: AttemptId


@dataclass(frozen=True)
class MoveRefused:
    """To the holder: this change of parent will not happen."""

    attempt: AttemptId


@dataclass(frozen=True)
class CommitRequest:
    """To the child: change your parent now."""

    attempt: AttemptId


@dataclass(frozen=True)
class MoveCommitted:
    """From the child to the holder: it has its new parent."""

    attempt: AttemptId


class AttemptPhase(Enum):
    """What an attempt waits for."""

    ACQUIRING = "locks of itself and the children"
    CHOOSING = "the choice of a move"
    TRYING = "locks of grandchildren"
    PREPARING = "new paths that deliver"
    COMMITTING = "changes of parents"


@dataclass(frozen=True)
class MoveAttempt:
    """An attempt as its holder sees it."""

    name: AttemptId
    phase: AttemptPhase
    awaited: tuple[int, ...]
    """Whose answers are missing; while acquiring, those still to be locked, in ascending order."""
    held: tuple[int, ...] = ()
    """Whose locks it has, in ascending order."""
    statistics: tuple[tuple[int, MemberStatistics], ...] = ()
    move: Changes = ()

    def involved(self) -> set[int]:
        """Everybody without whom it cannot succeed."""
        return {*self.awaited, *self.held, *(change.new for change in self.move)}


@dataclass(frozen=True)
class PreparedChange:
    """A change of parent as the child sees it."""

    attempt: AttemptId
    change: NewParent
    committed: bool = False


@dataclass
class AdaptingMember(TreeMember):
    """A provider that takes part in rounds: one lock for all its trees, one attempt for each.

    When an attempt has all its locks, `open_choices` has it, and `decide` goes on with the move
    that whoever drives this machine has chosen by price.
    """

    lock: ProviderLock = field(default_factory=ProviderLock)
    attempts: dict[int, MoveAttempt] = field(default_factory=dict)
    prepared: PreparedChange | None = None
    serial: int = 0
    """Attempts are numbered above it: one that returns after a death must not use a number again."""
    serials: dict[int, int] = field(default_factory=dict)
    """The last attempt's in each tree. Trees count by themselves, so that it does not matter whose token came first."""
    answered: dict[int, float] = field(default_factory=dict)
    """When each attempt last got an answer."""
    round_seconds: float = ROUND_SECONDS
    next_token: float = 0.0

    def key(self) -> Hashable:
        """All of the state that messages change, without the clock."""
        attempts = tuple(sorted(self.attempts.items()))
        serials = tuple(sorted(self.serials.items()))
        return super().key(), self.lock, attempts, self.prepared, serials

    def copy(self) -> Self:
        """A member in the same state that changes by itself."""
        twin = super().copy()
        twin.attempts, twin.answered = dict(self.attempts), dict(self.answered)
        twin.serials = dict(self.serials)
        return twin

    def open_choices(self) -> list[MoveAttempt]:
        """The attempts that wait for `decide`."""
        return [one for one in self.attempts.values() if one.phase is AttemptPhase.CHOOSING]

    def decide(self, tree: int, move: Changes, now: float = 0.0) -> list[tuple[int, Any]]:
        """Make a move, or none. Returns as `handle`."""
        self.now = now
        attempt = self.attempts[tree]
        if not move:
            self._finish(attempt)
        else:
            touched = {one for change in move for one in (change.child, change.new)}
            missing = tuple(sorted(touched - set(attempt.held)))
            attempt = replace(attempt, move=move, phase=AttemptPhase.TRYING, awaited=missing)
            self._update(attempt)
            for provider in missing:
                # Grandchildren may have lower numbers than what is locked: to wait for one could
                # close a cycle.
                self.send(provider, LockRequest(attempt.name, impatient=True))
            self._go_on(attempt)
        return self.drain()

    def dispatch(self, sender: int, message: Any) -> None:
        """Take a message."""
        match message:
            case RoundToken(tree):
                self._start_attempt(tree)
            case LockRequest(attempt, impatient):
                self._handle_request(attempt, impatient)
            case LockRenewal(attempt):
                self.lock = self.lock.renew(attempt, self.now)
            case LockRelease(attempt):
                self._change_lock(self.lock.release(attempt, self.now))
            case LockGrant(attempt, statistics):
                self._handle_grant(sender, attempt, statistics)
            case LockDenial(attempt) | MoveRefused(attempt):
                if current := self._current(attempt):
                    self._finish(current)
            case PrepareRequest(attempt, change):
                self._handle_prepare(attempt, change)
            case GuestOffer(attempt, change):
                self._handle_offer(attempt, change)
            case MovePrepared(attempt) | MoveCommitted(attempt):
                self._note_answer(sender, attempt)
            case CommitRequest(attempt):
                self._handle_commit(attempt)
            case _:
                super().dispatch(sender, message)

    # The holder.

    def _start_attempt(self, tree: int) -> None:
        place = self.places.get(tree)
        # A second attempt in the tree would void the locks of the first.
        if place is None or place.leaving or not place.children or tree in self.attempts:
            return
        self.serials[tree] = self.serials.get(tree, self.serial) + 1
        name = AttemptId(self.number, tree, self.serials[tree])
        wanted = tuple(sorted((self.number, *place.child_numbers())))
        self._update(MoveAttempt(name, AttemptPhase.ACQUIRING, wanted))
        self.send(wanted[0], LockRequest(name))

    def _current(self, name: AttemptId) -> MoveAttempt | None:
        attempt = self.attempts.get(name.tree)
        return attempt if attempt and attempt.name == name else None

    def _update(self, attempt: MoveAttempt) -> None:
        self.attempts[attempt.name.tree] = attempt
        self.answered[attempt.name.tree] = self.now

    def _handle_grant(self, sender: int, name: AttemptId, statistics: Hashable) -> None:
        attempt = self._current(name)
        if attempt is None:
            # Given up meanwhile.
            self.send(sender, LockRelease(name))
            return
        # Owners are granted again when they ask again, so a grant may come twice.
        if sender not in attempt.awaited or sender in attempt.held:
            return
        assert isinstance(statistics, MemberStatistics)
        attempt = replace(attempt, held=tuple(sorted((*attempt.held, sender))))
        if attempt.phase is AttemptPhase.ACQUIRING:
            known = (*attempt.statistics, (sender, statistics))
            attempt = replace(attempt, statistics=known)
        self._advance(attempt, sender)

    def _note_answer(self, sender: int, name: AttemptId) -> None:
        attempt = self._current(name)
        if attempt and sender in attempt.awaited:
            self._advance(attempt, sender)

    def _advance(self, attempt: MoveAttempt, answerer: int) -> None:
        """One of those whose answers were missing has answered."""
        awaited = tuple(one for one in attempt.awaited if one != answerer)
        attempt = replace(attempt, awaited=awaited)
        self._update(attempt)
        if attempt.phase is AttemptPhase.ACQUIRING and awaited:
            # One at a time: whoever asked for several at once might get a higher one first.
            self.send(awaited[0], LockRequest(attempt.name))
        elif attempt.phase is AttemptPhase.COMMITTING and awaited:
            # In the order of the move: only so is the tree a tree after each change.
            self.send(awaited[0], CommitRequest(attempt.name))
        self._go_on(attempt)

    def _go_on(self, attempt: MoveAttempt) -> None:
        """Begin the next phase, if all answers of this one are there."""
        if attempt.awaited:
            return
        if attempt.phase is AttemptPhase.ACQUIRING:
            self._offer_choice(attempt)
        elif attempt.phase is AttemptPhase.TRYING:
            children = tuple(change.child for change in attempt.move)
            self._update(replace(attempt, phase=AttemptPhase.PREPARING, awaited=children))
            for change in attempt.move:
                self.send(change.new, PrepareRequest(attempt.name, change))
        elif attempt.phase is AttemptPhase.PREPARING:
            children = tuple(change.child for change in attempt.move)
            self._update(replace(attempt, phase=AttemptPhase.COMMITTING, awaited=children))
            self.send(children[0], CommitRequest(attempt.name))
        elif attempt.phase is AttemptPhase.COMMITTING:
            self._finish(attempt)

    def _offer_choice(self, attempt: MoveAttempt) -> None:
        """All is locked. If the children have changed since the start, the statistics are not theirs."""
        place = self.places.get(attempt.name.tree)
        if place is None or attempt.held != tuple(sorted((self.number, *place.child_numbers()))):
            self._finish(attempt)
        else:
            self._update(replace(attempt, phase=AttemptPhase.CHOOSING))

    def _finish(self, attempt: MoveAttempt) -> None:
        """Release everything, which also calls off what was only prepared, and pass the token on."""
        tree = attempt.name.tree
        del self.attempts[tree]
        self.answered.pop(tree, None)
        acquiring = attempt.phase is AttemptPhase.ACQUIRING
        # While it acquires, only the first of them has been asked.
        asked = attempt.awaited[:1] if acquiring else attempt.awaited
        for provider in sorted({*attempt.held, *asked}):
            self.send(provider, LockRelease(attempt.name))
        place = self.places.get(tree)
        if place is None:
            return
        leaves = {one for one, known in attempt.statistics if not known.children}
        # A leaf that has just got a child is none any more.
        leaves -= {change.new for change in attempt.move}
        for child in place.child_numbers():
            # Whose children are not known gets a token too: a leaf does nothing with it.
            if child not in leaves:
                self.send(child, RoundToken(tree))

    # One that is locked.

    def _handle_request(self, attempt: AttemptId, impatient: bool) -> None:
        if impatient and self.lock.owner not in (None, attempt):
            self.send(attempt.holder, LockDenial(attempt))
            return
        before = self.lock.owner
        self._change_lock(self.lock.request(attempt, self.now))
        if before == attempt:
            self._send_grant()

    def _change_lock(self, lock: ProviderLock) -> None:
        before, self.lock = self.lock, lock
        if lock.owner == before.owner:
            return
        # What was prepared under the lock ends with it: this provider stays where it is, unless it is being
        # adopted already, and no longer delivers to guests.
        self.prepared = None
        if before.owner and (place := self.places.get(before.owner.tree)):
            self.places[place.tree] = replace(place, guests=())
        if lock.owner is not None:
            self._send_grant()

    def _send_grant(self) -> None:
        owner = self.lock.owner
        assert owner is not None
        place = self.places.get(owner.tree, TreeMembership(owner.tree, owner.holder))
        statistics = MemberStatistics(self.policy.report(place), place.children)
        self.send(owner.holder, LockGrant(owner, statistics))

    def _handle_prepare(self, attempt: AttemptId, change: NewParent) -> None:
        """Deliver to the child of another as well, so that it can change over without a gap."""
        place = self.places.get(attempt.tree)
        if self.lock.owner != attempt or place is None or place.leaving or not place.started:
            self.send(attempt.holder, MoveRefused(attempt))
            return
        guests = tuple(sorted({*place.guests, change.child}))
        self.places[attempt.tree] = replace(place, guests=guests)
        self.heard[change.child] = self.now
        self.send(change.child, GuestOffer(attempt, change))

    def _handle_offer(self, attempt: AttemptId, change: NewParent) -> None:
        place = self.places.get(attempt.tree)
        # The choice was made for a child of the old parent: one that has left it, or is about to,
        # is not moved as well.
        fits = place and place.parent == change.old and not place.candidates and not place.leaving
        if self.lock.owner != attempt or not fits or place is None:
            self.send(attempt.holder, MoveRefused(attempt))
            return
        self.prepared = PreparedChange(attempt, change)
        self.send(change.new, ResumeRequest(attempt.tree, place.feed.newest))

    def note_caught_up(self, place: TreeMembership, sender: int) -> None:
        """The feed of the new parent has arrived up to now: report it to the holder."""
        prepared = self.prepared
        if prepared and (prepared.attempt.tree, prepared.change.new) == (place.tree, sender):
            self.send(prepared.attempt.holder, MovePrepared(prepared.attempt))

    def note_left(self, tree: int) -> None:
        """A move of this provider in a tree that it has left will not happen."""
        if self.prepared and self.prepared.attempt.tree == tree:
            name, self.prepared = self.prepared.attempt, None
            self.send(name.holder, MoveRefused(name))

    def _handle_commit(self, attempt: AttemptId) -> None:
        prepared, place = self.prepared, self.places.get(attempt.tree)
        if not prepared or prepared.attempt != attempt or not place or place.leaving:
            self.send(attempt.holder, MoveRefused(attempt))
        # A commit that comes again is answered when the new parent has agreed.
        elif not prepared.committed:
            if place.parent != prepared.change.old or place.candidates:
                self.prepared = None
                self.send(attempt.holder, MoveRefused(attempt))
            else:
                self.prepared = replace(prepared, committed=True)
                self._seek(attempt.tree, (prepared.change.new,))

    def finish_seeking(self, place: TreeMembership, found: bool) -> None:
        """If it was for a move, report to the holder how it ended."""
        prepared = self.prepared
        if prepared and prepared.attempt.tree == place.tree and prepared.committed:
            self.prepared = None
            answer = MoveCommitted if found else MoveRefused
            self.send(prepared.attempt.holder, answer(prepared.attempt))

    # Death and time.

    def forget_provider(self, provider: int) -> None:
        """Go on without a provider that is dead."""
        super().forget_provider(provider)
        if self.prepared and self.prepared.change.new == provider:
            name, self.prepared = self.prepared.attempt, None
            self.send(name.holder, MoveRefused(name))
        self._change_lock(self.lock.forget_holder(provider, self.now))
        for attempt in tuple(self.attempts.values()):
            if provider in attempt.involved():
                self._finish(attempt)

    def pass_time(self) -> None:
        """Also expire and renew leases, give up attempts without answers, and start rounds."""
        super().pass_time()
        self._change_lock(self.lock.expire(self.now))
        for attempt in tuple(self.attempts.values()):
            if self.now - self.answered[attempt.name.tree] > ATTEMPT_SECONDS:
                self._finish(attempt)
                continue
            for provider in attempt.held:
                # At every tick, several times a lease, so that the loss of one message does not end
                # it.
                self.send(provider, LockRenewal(attempt.name))
        if self.now >= self.next_token:
            self.next_token = self.now + self.round_seconds
            for tree, place in tuple(self.places.items()):
                if place.origin == self.number:
                    self._start_attempt(tree)
