"""Steps of any query: its windows are read, and what enters and leaves at the instants due is emitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from headwater.runtime.catalog import panes_log
from headwater.runtime.compile.checkpoints import CARRIED, checkpoint_names
from headwater.runtime.compile.evaluation_times import DueInstants
from headwater.runtime.compile.frames import lifetime_results
from headwater.runtime.compile.plan import LifetimePlan
from headwater.runtime.compile.windows import FOREVER
from headwater.runtime.engine.steps.due_instants import DueStep
from headwater.runtime.engine.steps.inputs import INTERPRETED_ROWS
from headwater.runtime.engine.steps.step import StepDraft

MAX_COPIED_INSTANTS = 2_000
"""A step over at most this many instants may run without generated code."""


@dataclass(frozen=True)
class LifetimeStep:
    """A step of queries that are computed by the lifetimes of their rows."""

    plan: LifetimePlan
    draft: StepDraft

    def update_subscribers(self) -> bool:
        """Write the subscriber table if the queries of the unit have changed, and drop what was kept for
        windows that none of them has; returns whether they have changed."""
        subscribers, draft = self.plan.subscribers, self.draft
        if subscribers is None or draft.has_current_subscribers(subscribers):
            return False
        names = {*checkpoint_names(self.plan).values()}
        own_segments = draft.context.catalog.segments(panes_log(draft.unit.row.id))
        draft.removed += [s for s in own_segments if s.keys is None or s.keys["scan"] not in names]
        gone = {f"{CARRIED}{s.keys['scan']}" for s in draft.removed if s.keys}
        # Else a query that comes with such a window later would be taken to have it.
        draft.cursors |= dict.fromkeys(gone, -FOREVER)
        draft.update_subscribers(subscribers, draft.subscriber_version + 1)
        return True

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
        if due.has_instants:
            # Without generated code Spark copies the array of instants into every row of a result.
            number = max(len(own.instants) for own in due.by_slides.values())
            is_long = number > MAX_COPIED_INSTANTS
            spark = draft.context.session(INTERPRETED_ROWS + 1 if is_long else due.rows)
            tables = draft.read_tables(spark)
            frames: list[DataFrame] = []
            rows = 0
            for slides, own in due.by_slides.items():
                if own.instants:
                    frame, read = self._evaluate(due, slides, own, tables, spark)
                    frames.append(frame)
                    rows += read
            version = None if self.plan.subscribers is None else draft.subscriber_version
            draft.emit(reduce(DataFrame.unionAll, frames), rows, version)
        return True

    def _evaluate(
        self,
        due: DueStep,
        slides: frozenset[int],
        own: DueInstants,
        tables: dict[str, DataFrame],
        spark: SparkSession,
    ) -> tuple[DataFrame, int]:
        """What the statements of some slides emit at their instants, and how many rows they read."""
        statements = [s for s in self.plan.statements if s.slides == slides]
        needed = {alias for statement in statements for alias in statement.views.values()}
        windows = due.read_windows(own, spark, needed)
        frame = lifetime_results(
            spark,
            statements,
            {alias: window.frame for alias, window in windows.items()},
            {alias: window.rows for alias, window in windows.items()},
            tables,
            own,
            self.draft.progress.new_rows,
        )
        due.keep_windows(windows, own.instants)
        return frame, sum(window.rows for window in windows.values())

    def compact(self) -> bool:
        """Nothing: such a unit keeps no panes."""
        return False
