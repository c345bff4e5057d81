"""Steps of grouped queries: new tuples are kept as panes, and results computed from panes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.algebra.nodes import Output
from headwater.errors import HeadwaterError
from headwater.reuse.definition import operator_definition, operator_from_definition
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.runtime.catalog import Json, panes_log, stream_log
from headwater.runtime.compile.evaluation_times import earliest_last_instant
from headwater.runtime.compile.frames import (
    StepInput,
    build_panes,
    compacted_panes,
    converted_panes,
    delta_frame,
    overlapping_segments,
    pane_results,
    panes_schema,
    read_panes,
)
from headwater.runtime.compile.group_states import TO
from headwater.runtime.compile.plan import PanePlan
from headwater.runtime.compile.shared_panes import SharedPanes
from headwater.runtime.engine.steps.due_instants import DueStep
from headwater.runtime.engine.steps.step import StepDraft, count_input_rows
from headwater.runtime.results.subscribers import SUBSCRIBERS
from headwater.runtime.storage.integrity import verify_paths


@dataclass(frozen=True)
class PaneStep:
    """A step of one or more grouped queries."""

    plan: PanePlan
    draft: StepDraft

    def update_subscribers(self) -> bool:
        """Write the subscriber table if the queries of the unit have changed, and build its panes
        again if these queries need others; returns whether they have changed."""
        subscribers, draft = self.plan.subscribers, self.draft
        if subscribers is None or draft.has_current_subscribers(subscribers, subscribers.layout):
            return False
        cursor = draft.progress.cursors.get(SUBSCRIBERS)
        if cursor is None or cursor["layout"] != subscribers.layout:
            self._change_panes(subscribers, cursor)
        definition = None
        if not subscribers.panes_can_be_rebuilt:
            definition = operator_definition(subscribers.operator, Output.RSTREAM)
        draft.update_subscribers(
            subscribers, draft.subscriber_version + 1, subscribers.layout, definition
        )
        return True

    def run(self) -> bool:
        """Keep what is new and emit what is due; returns whether there was either."""
        draft = self.draft
        due = DueStep.of(draft, self.plan.max_instants_per_step)
        if not due.has_work:
            return False
        draft.ingest()
        due.advance()
        if self.plan.keeps_panes:
            self._absorb_and_emit(due)
        elif due.has_instants:
            self._emit_from_windows(due)
        return True

    def compact(self) -> bool:
        """Replace the panes by fewer, without those that are not visible any more; returns whether
        there are many."""
        draft, context = self.draft, self.draft.context
        live = context.catalog.segments(panes_log(draft.unit.row.id))
        instant = earliest_last_instant(self.plan.slide_sets, draft.progress.cursors)
        if len(live) < context.settings.pane_compaction_threshold or instant is None:
            return False
        draft.removed += live
        visible = [s for s in live if s.largest_time is None or s.largest_time > instant]
        if visible:
            paths = verify_paths(visible)
            panes = context.read_panes(draft.unit, self.plan, paths, context.spark)
            frame = compacted_panes(context.spark, self.plan, panes, instant)
            draft.keep_panes(frame, sum(s.rows for s in visible))
        return True

    def _absorb_and_emit(self, due: DueStep) -> None:
        """Keep the new tuples as panes, and emit the results at the instants due from all panes."""
        draft, plan = self.draft, self.plan
        context, new_rows = draft.context, draft.progress.new_rows
        live = context.catalog.segments(panes_log(draft.unit.row.id))
        number = max(len(own.instants) for own in due.by_slides.values())
        paths = verify_paths(live) if number else []  # panes are read only to emit from them
        new = draft.delta_frame(plan) if new_rows else None
        if new is not None:
            paths += draft.keep_panes(new, new_rows)
            context.at_point("unit: absorbed")
        if number and (paths or plan.emits_without_panes):
            pane_rows = sum(s.rows for s in live) + sum(s.rows for s in draft.segments)
            spark = context.session(pane_rows)
            panes = context.read_panes(draft.unit, plan, paths, spark)
            version = None if plan.subscribers is None else draft.subscriber_version
            frame = pane_results(spark, plan, panes, due.by_slides)
            draft.emit(frame, pane_rows * min(number, 64), version)

    def _emit_from_windows(self, due: DueStep) -> None:
        """Emit what ROWS windows hold: when they let a tuple go is known only from later tuples, so
        panes over them cannot be kept."""
        draft = self.draft
        ((slides, own),) = due.by_slides.items()
        spark = draft.context.session(due.rows)
        windows = due.read_windows(own.instants, spark)
        frames = {alias: window.frame for alias, window in windows.items()}
        panes = build_panes(spark, self.plan, frames, draft.read_tables(spark))
        # The windows are read from the last instant of the unit on, so changes are since that one.
        since_last = {slides: replace(own, before=draft.progress.last_instant)}
        frame = pane_results(spark, self.plan, panes, since_last)
        due.emit(frame, windows, own.instants)

    def _change_panes(self, subscribers: GroupSubscribers, cursor: Json) -> None:
        """Make the panes that the queries need now, of the tuples ingested so far or of other panes."""
        before = None if cursor is None else self._plan_before(cursor.get("definition"))
        if subscribers.panes_can_be_rebuilt:
            self._rebuild_panes(subscribers)
        elif before is not None and subscribers.follows_from(before.subscribers):
            self._convert_panes(before)
        elif self._has_all_input():
            self._rebuild_panes(subscribers)
        else:
            raise HeadwaterError(
                f"the panes of unit {self.draft.unit.row.id} cannot be made again: its windows have no"
                " end, or read a table, and what it has read is gone; drop its queries, and submit them again"
            )

    def _plan_before(self, definition: str | None) -> SharedPanes | None:
        """The plan by which the unit's panes were made; None if they can be made again."""
        if definition is None:
            return None
        operator = operator_from_definition(self.draft.context.definitions.query(definition))
        return None if operator is None else SharedPanes(GroupSubscribers(operator, ()))

    def _has_all_input(self) -> bool:
        """Whether all that the unit has read is still there, and would be read as it was then."""
        draft, plan = self.draft, self.plan
        positions = draft.progress.positions
        names = [stream_log(scan.stream) for _, scan in plan.scans]
        if not any(positions[name].seq for name in names):
            return True
        ingested = [draft.context.input_segments(name, 0, positions[name].seq) for name in names]
        return not plan.tables and all(there and there[0].first_seq == 1 for there in ingested)

    def _convert_panes(self, before: SharedPanes) -> None:
        """Write the panes of the plan, from those of a plan for more queries."""
        draft, context, plan = self.draft, self.draft.context, self.plan
        assert isinstance(plan, SharedPanes)
        live = context.catalog.segments(panes_log(draft.unit.row.id))
        draft.removed += live
        if live:
            rows = sum(s.rows for s in live)
            spark = context.session(rows)
            panes = read_panes(spark, panes_schema(spark, before), verify_paths(live))
            draft.keep_panes(converted_panes(spark, plan, before, panes), rows)

    def _rebuild_panes(self, subscribers: GroupSubscribers) -> None:
        """Write panes as the queries need them now, from the tuples ingested so far."""
        draft, context = self.draft, self.draft.context
        progress = draft.progress
        # Panes of another layout mean something else: none of them is kept.
        draft.removed += context.catalog.segments(panes_log(draft.unit.row.id))
        seen_after = earliest_last_instant(self.plan.slide_sets, progress.cursors)
        least_time = None
        if seen_after is not None and subscribers.panes_can_be_rebuilt:
            least_time = seen_after - subscribers.reach
        inputs = {}
        for alias, scan in self.plan.scans:
            name = stream_log(scan.stream)
            ingested = context.input_segments(name, 0, progress.positions[name].seq)
            inputs[alias] = StepInput(
                (),
                overlapping_segments(ingested, least_time, None),
                draft.unit.earliest_time(scan, progress.start),
            )
        rows = count_input_rows(inputs)
        if not rows:
            return
        frame, _ = delta_frame(context.session(rows), self.plan, inputs, {}, {})
        if frame is not None:
            seen = "TRUE" if seen_after is None else f"{TO} > {seen_after}"
            draft.keep_panes(frame.where(seen), rows)
