"""Steps of any query: its windows are read whole, and evaluated at each instant that is due."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.runtime.compile.frames import instant_results
from headwater.runtime.compile.plan import InstantPlan
from headwater.runtime.engine.steps.due_instants import DueStep
from headwater.runtime.engine.steps.step import StepDraft


@dataclass(frozen=True)
class InstantStep:
    """A step of a query that is evaluated at its instants."""

    plan: InstantPlan
    draft: StepDraft

    def update_subscribers(self) -> bool:
        """Nothing: the queries of such a unit are equal, so every row is for all of them."""
        return False

    def run(self) -> bool:
        """Evaluate the instants that are due; returns whether any is, or the input has grown."""
        draft = self.draft
        due = DueStep.of(draft, draft.context.settings.instants_per_step)
        if not due.has_work:
            return False
        draft.ingest()
        due.advance()
        (own,) = due.by_slides.values()
        if own.instants:
            spark = draft.context.session(due.rows)
            windows = due.read_windows(own.instants, spark)
            frames = {alias: window.frame for alias, window in windows.items()}
            tables = draft.read_tables(spark)
            last = draft.progress.last_instant
            frame = instant_results(spark, self.plan, frames, tables, last, own.instants)
            due.emit(frame, windows, own.instants)
        return True

    def compact(self) -> bool:
        """Nothing: such a unit keeps no panes."""
        return False
