"""Locks for moves in several trees: every provider is one lock with a queue, first come, first served.

A holder acquires itself and its children one after another in ascending number and never waits for
a lower number than one it has, so all waits point upward and none can close a cycle. Locks are
leases: a holder that dies or is cut off loses them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, replace

LEASE_SECONDS = 5.0


def provider_number(name: str) -> int:
    """The number by which providers are ordered: the same everywhere, without an agreement."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


@dataclass(frozen=True, order=True)
class AttemptId:
    """Names one attempt of a holder to improve one tree; a later attempt in the same tree has a higher serial."""

    holder: int
    tree: int
    serial: int


@dataclass(frozen=True)
class LockRequest:
    """Asks for the lock of the receiver; an impatient request is denied instead of queued."""

    attempt: AttemptId
    impatient: bool = False


@dataclass(frozen=True)
class LockGrant:
    """The lock is the attempt's; what the holder needs of the receiver's place in the tree rides on it."""

    attempt: AttemptId
    statistics: Hashable


@dataclass(frozen=True)
class LockDenial:
    """The lock is another's, and the request was impatient."""

    attempt: AttemptId


@dataclass(frozen=True)
class LockRenewal:
    """Extends the lease of a lock that the attempt has."""

    attempt: AttemptId


@dataclass(frozen=True)
class LockRelease:
    """Gives the lock back, or withdraws the request for it; whatever the attempt prepared is void."""

    attempt: AttemptId


@dataclass(frozen=True)
class ProviderLock:
    """The lock of one provider: who has it until when, and who waits.

    Every method returns the lock afterwards; `owner` differs from before if somebody has to be sent a grant.
    """

    owner: AttemptId | None = None
    expires: float = 0.0
    queue: tuple[AttemptId, ...] = ()

    def request(self, attempt: AttemptId, now: float) -> ProviderLock:
        """Give the lock to an attempt, or queue it behind those that came before.

        A holder runs one attempt a tree, so that a new one voids what it had of an earlier one.
        """
        lock = self
        for stale in (lock.owner, *lock.queue):
            if stale and (stale.holder, stale.tree) == (attempt.holder, attempt.tree):
                lock = lock.release(stale, now) if stale != attempt else lock
        if attempt == lock.owner or attempt in lock.queue:
            return lock
        return replace(lock, queue=(*lock.queue, attempt))._advance(now)

    def renew(self, attempt: AttemptId, now: float) -> ProviderLock:
        """Extend the lease, if it is the attempt's."""
        if attempt != self.owner:
            return self
        return replace(self, expires=now + LEASE_SECONDS)

    def release(self, attempt: AttemptId, now: float) -> ProviderLock:
        """Take the lock, or the place in the queue, from an attempt."""
        owner = None if attempt == self.owner else self.owner
        queue = tuple(waiting for waiting in self.queue if waiting != attempt)
        return replace(self, owner=owner, queue=queue)._advance(now)

    def expire(self, now: float) -> ProviderLock:
        """Take the lock from an owner whose lease has run out."""
        if self.owner is None or now < self.expires:
            return self
        return self.release(self.owner, now)

    def forget_holder(self, holder: int, now: float) -> ProviderLock:
        """Take everything from a holder that is dead."""
        queue = tuple(waiting for waiting in self.queue if waiting.holder != holder)
        lock = replace(self, queue=queue)
        if self.owner is not None and self.owner.holder == holder:
            return lock.release(self.owner, now)
        return lock

    def _advance(self, now: float) -> ProviderLock:
        if self.owner is not None or not self.queue:
            return self
        return ProviderLock(self.queue[0], now + LEASE_SECONDS, self.queue[1:])
