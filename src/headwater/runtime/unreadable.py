"""Files that cannot be read: found one by one after a batch has failed, and set aside.

A file that was set aside is passed over as long as it stays as it is. It is read when it changes (also
when only its permissions do), so it can be repaired where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.runtime.faults import is_full, is_gone, reason
from headwater.runtime.sources import Files, Position
from headwater.runtime.sources.files import ASIDE, mark


@dataclass(frozen=True)
class Unreadable:
    """Files with what is wrong with each, and the position that passes over them."""

    reasons: Mapping[str, str]
    position: Position

    @property
    def records(self) -> tuple[tuple[str, str], ...]:
        """What the reject log says of them."""
        return tuple((f"unreadable file: {why}", path) for path, why in self.reasons.items())


def unreadable(spark: SparkSession, source: Files, position: Position) -> Unreadable | None:
    """Those of the next files that Spark cannot read by themselves; None if it can read them all.

    Then the failure had another cause, which is none of theirs.
    """
    found: dict[str, str] = {}
    marks: dict[str, Any] = {}
    try:
        names = source.fresh(position)
    except OSError:  # the folder itself
        return None
    for name in names:
        before = mark(name)
        why = _trial(spark, source, name)
        if why is not None and before is not None and before == mark(name):
            found[name], marks[name] = why, before
    if not found or is_gone(spark):
        return None
    aside = {**position.get(ASIDE, {}), **marks}
    return Unreadable(found, {**position, ASIDE: aside})


def _trial(spark: SparkSession, source: Files, name: str) -> str | None:
    """Why a file cannot be read to its end; None if it can."""
    try:
        source.read(spark, [name]).write.format("noop").mode("overwrite").save()
    except Exception as error:
        return None if is_full(error) else reason(error)
    return None


def left_aside(position: Position) -> list[str]:
    """The files that were set aside and are there as they were."""
    kept: Mapping[str, Any] = position.get(ASIDE, {})
    return [name for name, before in kept.items() if Path(name).exists() and mark(name) == before]
