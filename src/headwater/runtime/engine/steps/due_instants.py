"""The instants that a step has to evaluate, and the windows that are read whole for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from headwater.algebra.windows import Rows
from headwater.runtime.catalog import Segment
from headwater.runtime.catalog.records import INSTANTS
from headwater.runtime.compile.checkpoints import CARRIED
from headwater.runtime.compile.evaluation_times import (
    DueInstants,
    due_instants,
    instants_cursor,
    last_instants,
    reset_new_slides,
    scanned_tuples,
)
from headwater.runtime.compile.frames import carried_tuples
from headwater.runtime.engine.steps.inputs import WindowTuples, count_rows
from headwater.runtime.engine.steps.step import StepDraft
from headwater.runtime.lifecycle import complete_until


@dataclass(frozen=True)
class DueStep:
    """The instants that are due for a step, for each set of slides, and what its scans read."""

    draft: StepDraft
    segments: Mapping[str, tuple[Segment, ...]]
    by_slides: Mapping[frozenset[int], DueInstants]
    has_more: bool
    """Whether more instants are due than one step evaluates."""

    @staticmethod
    def of(draft: StepDraft, limit: int) -> DueStep:
        """What is due for a unit, at most `limit` instants of each set of slides."""
        context, unit, progress = draft.context, draft.unit, draft.progress
        segments = context.scan_segments(unit, progress)
        tuples = [
            scanned_tuples(scan, segments[alias], unit.earliest_time(scan, progress.start))
            for alias, scan in unit.plan.scans
        ]
        rows = (context.catalog.stream(name) for name in unit.streams)
        ready = complete_until([row for row in rows if row is not None], progress.next_positions)
        slide_sets = unit.plan.slide_sets
        # A query that is new to the unit may have slides for which no instant was evaluated yet.
        before = reset_new_slides(
            last_instants(slide_sets, progress.cursors), progress.cursors, tuples
        )
        due, has_more = due_instants(slide_sets, tuples, before, ready, limit)
        return DueStep(draft, segments, due, has_more)

    @property
    def has_instants(self) -> bool:
        return any(due.instants for due in self.by_slides.values())

    @property
    def has_work(self) -> bool:
        """Whether an instant is due, or the input has grown."""
        return self.has_instants or self.draft.progress.has_new_segments

    @property
    def rows(self) -> int:
        """How many rows the scans may read."""
        return count_rows(self.segments)

    def advance(self) -> None:
        """Move the cursors of the unit to the last of the instants, and note whether more are due."""
        instant = self.draft.progress.last_instant
        last = [due.instants[-1] for due in self.by_slides.values() if due.instants]
        if last:
            self.draft.cursors["instant"] = max(last if instant is None else [instant, *last])
        self.draft.cursors[INSTANTS] = instants_cursor(self.by_slides, self.has_more)

    def read_windows(
        self, own: DueInstants, spark: SparkSession, aliases: Collection[str] | None = None
    ) -> dict[str, WindowTuples]:
        """The tuples that the windows, or some of them, hold at instants that are due."""
        draft = self.draft
        return draft.context.read_windows(
            draft.unit, draft.progress, self.segments, own, spark, aliases
        )

    def keep_windows(self, windows: Mapping[str, WindowTuples], instants: Sequence[int]) -> None:
        """Write what ROWS windows hold after these instants once that saves much reading.

        How many tuples such a window reaches back over is not known from their times, so without it
        a step would have to read the whole log.
        """
        draft = self.draft
        threshold = draft.context.settings.rows_window_checkpoint_rows
        kept = set()
        for alias, scan in draft.unit.plan.scans:
            window = windows.get(alias)
            # Two scans of one window hold the same.
            if window is None or window.name in kept or not isinstance(scan.window, Rows):
                continue
            kept.add(window.name)
            carried_rows = sum(s.rows for s in window.carried)
            if window.rows > threshold + 2 * carried_rows:
                carried = carried_tuples(scan.window, window.frame, instants[-1])
                draft.keep_window(window.name, carried, window.rows)
                draft.removed += window.carried
                draft.cursors[f"{CARRIED}{window.name}"] = instants[-1]
