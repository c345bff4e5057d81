"""Warnings when an unusual share of the tuples of a stream is late or rejected.

Recent tuples are counted with weights that decay within a minute, in the statistics of the stream's
log, so that all processes that ingest a stream count together. A warning is raised once, and again
only after the share has fallen below half of its limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.runtime.catalog import BatchRejects, Json, Statistic
from headwater.runtime.metrics.rates import current_rate
from headwater.runtime.settings import Settings

SHARE_SECONDS = 60.0
"""Age at which a tuple counts about a third (1/e) of a new one."""

MIN_ROWS = 20.0
"""With fewer recent tuples no share is computed."""

RECENT_ROWS, RECENT_LATE, RECENT_REJECTED = "recent_rows", "recent_late", "recent_refused"


@dataclass(frozen=True)
class ShareAlarm:
    """An event about a stream, and the sentence for the log."""

    kind: str
    detail: dict[str, Json]
    sentence: str


def recent_counts(
    statistics: Mapping[str, Statistic], rows: int, rejects: BatchRejects, now: float
) -> dict[str, float]:
    """The decayed counts of recent, late and rejected tuples, including a new batch."""
    counts = {
        RECENT_ROWS: rows + rejects.late + rejects.malformed,
        RECENT_LATE: rejects.late,
        RECENT_REJECTED: rejects.malformed,
    }
    return {
        name: current_rate(statistics.get(name), now, SHARE_SECONDS) + count
        for name, count in counts.items()
        if count or name in statistics
    }


def share_alarms(
    statistics: Mapping[str, Statistic],
    counts: Mapping[str, float],
    settings: Settings,
    rejects: BatchRejects,
) -> tuple[list[ShareAlarm], dict[str, float]]:
    """The warnings to raise, and the kinds whose state has changed: 1 raised, 0 cleared."""
    alarms: list[ShareAlarm] = []
    changed: dict[str, float] = {}
    rows = counts.get(RECENT_ROWS, 0.0)
    for kind, name, limit, word in (
        ("late-share", RECENT_LATE, settings.late_share, "late"),
        ("reject-share", RECENT_REJECTED, settings.reject_share, "rejected"),
    ):
        count = counts.get(name, 0.0)
        raised = kind in statistics and statistics[kind].value > 0
        if not raised and rows >= MIN_ROWS and count > limit * rows:
            alarms.append(_build_alarm(kind, word, count / rows, limit, rejects))
            changed[kind] = 1.0
        elif raised and count < limit / 2 * rows:
            changed[kind] = 0.0
    return alarms, changed


def _build_alarm(
    kind: str, word: str, share: float, limit: float, rejects: BatchRejects
) -> ShareAlarm:
    reasons = [
        record.reason for record in rejects.records if (record.reason == "late") == (word == "late")
    ]
    last = f"; the last reason: {reasons[-1]}" if reasons and word != "late" else ""
    detail: dict[str, Json] = {"share": round(share, 4), "limit": limit}
    if last:
        detail["reason"] = reasons[-1]
    sentence = f"{share:.0%} of recent tuples were {word}, more than {limit:.0%}{last}"
    return ShareAlarm(kind, detail, sentence)
