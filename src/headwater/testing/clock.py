"""A clock that does not advance until a test sets it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock for `headwater.open(clock=...)`: calling it returns `now`, in seconds since 1970.

    Leases, retries, and the bounds on event times that AHEAD and BEHIND declare go by it.
    """

    def __init__(self, now: datetime | float = START) -> None:
        self.now = _seconds(now)

    def __call__(self) -> float:
        return self.now

    def set(self, now: datetime | float) -> None:
        """Set the clock, also back."""
        self.now = _seconds(now)

    def advance(self, by: timedelta | float) -> None:
        """Let time pass, in seconds or as a timedelta."""
        self.now += by.total_seconds() if isinstance(by, timedelta) else by


def _seconds(at: datetime | float) -> float:
    if not isinstance(at, datetime):
        return at
    if at.tzinfo is None:
        # Python would read it as local time, and the test would depend on where it runs.
        raise ValueError(f"{at} has no time zone: datetime(..., tzinfo=UTC)")
    return at.timestamp()
