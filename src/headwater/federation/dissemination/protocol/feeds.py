"""The messages of a tree as one provider has them: numbered without a gap, the last ones kept for children.

Whichever path brings a number first, it is taken once; so two parents may deliver during a move.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

RETENTION = 1000
"""How many messages of a feed a provider keeps for children that missed some."""


@dataclass(frozen=True)
class Feed:
    """The messages of a tree that a provider has: all numbers up to `newest`, the last ones with what they say."""

    newest: int = 0
    kept: tuple[Hashable, ...] = ()

    def append(self, payload: Hashable) -> Feed:
        """The feed with one more message."""
        return Feed(self.newest + 1, (*self.kept, payload)[-RETENTION:])

    def reaches(self, number: int) -> bool:
        """Whether everything behind a number is still kept."""
        return number >= self.newest - len(self.kept)

    def after(self, number: int) -> tuple[tuple[int, Hashable], ...]:
        """The messages behind a number that are still kept."""
        first = self.newest - len(self.kept) + 1
        skipped = max(0, number + 1 - first)
        return tuple(enumerate(self.kept[skipped:], first + skipped))


@dataclass(frozen=True)
class FeedMessage:
    """A message of the feed; a receiver that has its number drops it."""

    tree: int
    number: int
    payload: Hashable


@dataclass(frozen=True)
class ResumeRequest:
    """Asks for all messages behind a number."""

    tree: int
    newest: int


@dataclass(frozen=True)
class CaughtUp:
    """All that the receiver had asked for is sent."""

    tree: int
