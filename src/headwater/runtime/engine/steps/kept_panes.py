"""The log of a unit that keeps panes: segments of panes, and of totals of groups.

Totals are what all panes add up to at an instant. They follow from panes, so they may be missing at any time; while
they can be relied on, a step reads only the panes that begin or end later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from headwater.runtime.catalog import NewSegment, Segment
from headwater.runtime.engine.steps.step import TOTALS

SMALL_ROWS, SIZE_RATIO = 30_000, 8
"""Segments of panes with fewer rows are of the least size; the next sizes are so many times as large."""


@dataclass(frozen=True)
class KeptPanes:
    """The live segments of a unit's own log, and the panes that its step adds."""

    panes: Sequence[Segment]
    totals: Mapping[str, Segment]
    added: Sequence[NewSegment] = ()

    @staticmethod
    def of(segments: Iterable[Segment]) -> KeptPanes:
        panes, totals = [], {}
        for segment in segments:
            name = (segment.keys or {}).get(TOTALS)
            if name is None:
                panes.append(segment)
            else:
                totals[name] = segment
        return KeptPanes(panes, totals)

    def adding(self, segments: Sequence[NewSegment]) -> KeptPanes:
        return replace(self, added=segments)

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.panes) + sum(s.rows for s in self.added)

    def panes_after(self, totals: Segment) -> list[Segment | NewSegment]:
        """The panes that were written after some totals."""
        return [*(s for s in self.panes if s.first_seq > totals.seq), *self.added]

    def reliable_totals(self, name: str, by: int | None) -> Segment | None:
        """The totals of that name, if they are of an instant that is not after another, and no pane was
        added since that had begun by then."""
        totals = self.totals.get(name)
        if totals is None or totals.least_time is None or by is None or totals.least_time > by:
            return None
        added = (s.least_time for s in self.panes_after(totals))
        return totals if all(t is None or t > totals.least_time for t in added) else None

    def rows_with(self, totals: Collection[Segment]) -> int:
        """About how many rows a step reads that uses these totals: as many panes end as begin."""
        new = max((sum(s.rows for s in self.panes_after(t)) for t in totals), default=0)
        return sum(t.rows for t in totals) + 2 * new


def segments_to_merge(segments: Sequence[Segment], threshold: int) -> list[Segment]:
    """All segments up to a size of which there are so many; none if there is no such size.

    A row is so rewritten a few times while its window moves on, however many rows the window holds.
    """
    numbers = Counter(map(_size_class, segments))
    crowded = max((size for size, number in numbers.items() if number >= threshold), default=-1)
    return [s for s in segments if _size_class(s) <= crowded]


def _size_class(segment: Segment) -> int:
    return 0 if segment.rows < SMALL_ROWS else 1 + int(log(segment.rows / SMALL_ROWS, SIZE_RATIO))
