"""Steps of any query: its windows are read, and what enters and leaves at the instants due is emitted."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.runtime.compile.frames import lifetime_results
from headwater.runtime.compile.plan import LifetimePlan
from headwater.runtime.engine.steps.due_instants import DueStep
from headwater.runtime.engine.steps.inputs import INTERPRETED_ROWS
from headwater.runtime.engine.steps.step import StepDraft

MAX_COPIED_INSTANTS = 2_000
"""A step over at most this many instants may run without generated code."""


@dataclass(frozen=True)
class LifetimeStep:
    """A step of a query that is computed by the lifetimes of its rows."""

    plan: LifetimePlan
    draft: StepDraft

    def update_subscribers(self) -> bool:
        """Nothing: the queries of such a unit are equal, so every row is for all of them."""
        return False

    def run(self) -> bool:
        """Emit what is due; returns whether any instant is, or the input has grown."""
        draft = self.draft
        due = DueStep.of(
            draft, self.plan.max_instants_per_step(draft.context.settings.instants_per_step)
        )
        if not due.has_work:
            return False
        draft.ingest()
        due.advance()
        (own,) = due.by_slides.values()
        if own.instants:
            # Without generated code Spark copies the array of instants into every row of a result.
            is_long = len(own.instants) > MAX_COPIED_INSTANTS
            spark = draft.context.session(INTERPRETED_ROWS + 1 if is_long else due.rows)
            windows = due.read_windows(own.instants, spark)
            frames = {alias: window.frame for alias, window in windows.items()}
            tables = draft.read_tables(spark)
            last = draft.progress.last_instant
            rows = sum(window.rows for window in windows.values())
            frame = lifetime_results(
                spark, self.plan, frames, tables, last, own.instants, rows, draft.progress.new_rows
            )
            due.emit(frame, windows, own.instants)
        return True

    def compact(self) -> bool:
        """Nothing: such a unit keeps no panes."""
        return False
