"""The event times that a stream accepts: not behind its watermark, and not too far from the clock.

A single wrong time far in the future would move the watermark there and make all that follows late.
So a tuple further ahead of the clock than its stream declares is rejected, and moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.algebra.catalog import Stream
from headwater.algebra.times import format_timestamp
from headwater.algebra.windows import format_duration

LATE = "late"
SECOND = 1_000_000


@dataclass(frozen=True)
class EventTimeBounds:
    """The event times that a batch may have: behind the watermark they are late, too far from the
    clock they are rejected.

    The clock is read once per batch, at ingestion. Whether a tuple was accepted is recorded in the
    log and never decided again, so results do not depend on the clock.
    """

    watermark: int | None
    latest: int | None = None
    earliest: int | None = None
    too_late_reason: str = ""
    too_early_reason: str = ""

    @classmethod
    def of(cls, stream: Stream, watermark: int | None, now: float) -> EventTimeBounds:
        """The bounds of a stream when the clock shows `now` seconds."""
        at = int(now * SECOND)
        ahead, behind = stream.ahead, stream.behind
        shown = format_timestamp(at)
        return cls(
            watermark,
            None if ahead is None else at + ahead,
            None if behind is None else at - behind,
            _beyond_reason(ahead, "ahead of", shown),
            _beyond_reason(behind, "behind", shown),
        )

    def rejection_reason(self, time: int) -> str | None:
        """Why a tuple with this time is rejected or late; None if it is accepted."""
        if self.latest is not None and time > self.latest:
            return self.too_late_reason
        if self.earliest is not None and time < self.earliest:
            return self.too_early_reason
        return LATE if self.watermark is not None and time < self.watermark else None


def _beyond_reason(length: int | None, where: str, clock: str) -> str:
    if length is None:
        return ""
    clause = where.split()[0].upper()
    return f"more than {format_duration(length)} {where} the clock, {clock}; see {clause} of CREATE STREAM"
