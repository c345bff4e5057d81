"""Warnings when an unusual share of what comes to a stream is late or refused.

Recent tuples are counted with weights that fade within a minute, in the statistics of the stream's log, so
that all processes that take in a stream count together. A warning is raised once, and again only
after the share has been below half of its limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.runtime.catalog import Json, Rejects, Statistic
from headwater.runtime.limits import Limits
from headwater.runtime.rates import decayed

SHARE_SECONDS = 60.0
"""What came so long ago counts about a third of what comes now."""

LEAST_ROWS = 20.0
"""Of fewer tuples no share is told."""

ROWS, LATE, REFUSED = "recent_rows", "recent_late", "recent_refused"


@dataclass(frozen=True)
class Alarm:
    """An event about a stream, and the same in a sentence."""

    kind: str
    detail: dict[str, Json]
    sentence: str


def recent(
    known: Mapping[str, Statistic], rows: int, refused: Rejects, now: float
) -> dict[str, float]:
    """The counts of recent tuples, of late and of refused ones, with a batch that comes now."""
    come = {
        ROWS: rows + refused.late + refused.malformed,
        LATE: refused.late,
        REFUSED: refused.malformed,
    }
    return {
        name: decayed(known.get(name), now, SHARE_SECONDS) + count
        for name, count in come.items()
        if count or name in known
    }


def share_alarms(
    known: Mapping[str, Statistic], counted: Mapping[str, float], limits: Limits, refused: Rejects
) -> tuple[list[Alarm], dict[str, float]]:
    """The warnings to raise, and for each kind whether it is raised, where that has changed."""
    alarms: list[Alarm] = []
    changed: dict[str, float] = {}
    rows = counted.get(ROWS, 0.0)
    for kind, name, limit, word in (
        ("late-share", LATE, limits.late_share, "late"),
        ("reject-share", REFUSED, limits.reject_share, "refused"),
    ):
        count = counted.get(name, 0.0)
        raised = kind in known and known[kind].value > 0
        if not raised and rows >= LEAST_ROWS and count > limit * rows:
            alarms.append(_alarm(kind, word, count / rows, limit, refused))
            changed[kind] = 1.0
        elif raised and count < limit / 2 * rows:
            changed[kind] = 0.0
    return alarms, changed


def _alarm(kind: str, word: str, share: float, limit: float, refused: Rejects) -> Alarm:
    reasons = [one.reason for one in refused.records if (one.reason == "late") == (word == "late")]
    last = f"; the last reason: {reasons[-1]}" if reasons and word != "late" else ""
    detail: dict[str, Json] = {"share": round(share, 4), "limit": limit}
    if last:
        detail["reason"] = reasons[-1]
    sentence = f"{share:.0%} of recent tuples were {word}, more than {limit:.0%}{last}"
    return Alarm(kind, detail, sentence)
