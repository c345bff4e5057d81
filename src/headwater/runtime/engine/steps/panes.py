"""Steps of grouped queries: new tuples are kept as panes, and results computed from panes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.nodes import Output
from headwater.errors import HeadwaterError
from headwater.reuse.definition import operator_definition, operator_from_definition
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.runtime.catalog import Json, Segment, panes_log, stream_log
from headwater.runtime.compile.evaluation_times import (
    earliest_last_instant,
    last_instant_until,
    last_instants,
)
from headwater.runtime.compile.frames import (
    StepInput,
    Totals,
    build_panes,
    compacted_panes,
    converted_panes,
    delta_frame,
    group_totals,
    overlapping_segments,
    pane_results,
    panes_schema,
    read_panes,
    read_totals,
)
from headwater.runtime.compile.group_states import TO
from headwater.runtime.compile.plan import PanePlan
from headwater.runtime.compile.shared_panes import SharedPanes
from headwater.runtime.engine.steps.due_instants import DueStep
from headwater.runtime.engine.steps.kept_panes import KeptPanes, segments_to_merge
from headwater.runtime.engine.steps.step import StepDraft, count_input_rows
from headwater.runtime.results.subscribers import SUBSCRIBERS
from headwater.runtime.storage.integrity import verify_file, verify_paths

MIN_ROWS_WITH_TOTALS = 20_000
"""With fewer rows of panes, reading all of them costs less than keeping totals."""

GROUP_ROWS = 8_192
"""Rows of a row group of merged panes, which are read in part."""


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
        """Replace panes by fewer, without those that are not visible any more, if there are many, and
        bring the totals of groups up to date; returns whether anything was done."""
        draft, context = self.draft, self.draft.context
        kept = self._kept_panes()
        instant = earliest_last_instant(self.plan.slide_sets, draft.progress.cursors)
        threshold = context.settings.pane_compaction_threshold
        if len(kept.panes) < threshold or instant is None:
            return False
        visible = [s for s in kept.panes if s.largest_time is None or s.largest_time > instant]
        merged = segments_to_merge(visible, threshold)
        draft.removed += [s for s in kept.panes if s not in visible or s in merged]
        if merged:
            rows = sum(s.rows for s in merged)
            panes = self._read_panes(merged, context.spark)
            frame = compacted_panes(context.spark, self.plan, panes, instant)
            # In order of their ends, so that of a large file only what ends is read.
            draft.keep_panes(frame.orderBy(TO), rows, GROUP_ROWS)
        self._renew_totals(replace(kept, panes=visible), threshold, bool(merged))
        return bool(draft.removed or draft.segments)

    def _renew_totals(self, kept: KeptPanes, threshold: int, merged: bool) -> None:
        """Write the totals of groups as they are at the last instant of each, where there are many panes
        and new ones. Later than merged panes, so that these do not count as new."""
        draft, spark = self.draft, self.draft.context.spark
        wanted = self._wanted_totals(kept)
        current = [kept.reliable_totals(name, at) for name, at in wanted.items()]
        is_new = [t is None or len(kept.panes_after(t)) >= threshold for t in current]
        stale = [t for name, t in kept.totals.items() if name not in wanted]
        if not merged and not any(is_new):
            draft.removed += stale
            return
        draft.removed += kept.totals.values()
        panes = self._read_panes(kept.panes, spark) if wanted else None
        for (name, at), segment in zip(wanted.items(), current, strict=True):
            assert panes is not None
            before = None if segment is None else self._read_totals(segment, spark)
            frame = group_totals(spark, self.plan, name, panes, at, before)
            draft.keep_totals(name, frame, kept.rows if segment is None else segment.rows)

    def _wanted_totals(self, kept: KeptPanes) -> dict[str, int]:
        """The names of the totals that are worth keeping, and the instants they can be of."""
        if kept.rows < MIN_ROWS_WITH_TOTALS:
            return {}
        reached = last_instants(self.plan.slide_sets, self.draft.progress.cursors)
        instants = {
            name: last_instant_until(totals.slides, reached[totals.slides])
            for name, totals in self.plan.kept_totals.items()
        }
        return {name: at for name, at in instants.items() if at is not None}

    def _kept_panes(self) -> KeptPanes:
        return KeptPanes.of(self.draft.context.catalog.segments(panes_log(self.draft.unit.row.id)))

    def _read_panes(self, segments: Sequence[Segment], spark: SparkSession) -> DataFrame:
        draft = self.draft
        return draft.context.read_panes(draft.unit, self.plan, verify_paths(segments), spark)

    def _read_totals(self, segment: Segment, spark: SparkSession) -> Totals:
        assert segment.least_time is not None
        return Totals(segment.least_time, read_totals(spark, verify_file(segment)))

    def _absorb_and_emit(self, due: DueStep) -> None:
        """Keep the new tuples as panes, and emit the results at the instants due from all panes, or from
        totals and the panes that have changed since."""
        draft, plan = self.draft, self.plan
        context, new_rows = draft.context, draft.progress.new_rows
        kept = self._kept_panes()
        number = max(len(own.instants) for own in due.by_slides.values())
        paths = verify_paths(kept.panes) if number else []  # read only to emit from them
        new = draft.delta_frame(plan) if new_rows else None
        if new is not None:
            paths += draft.keep_panes(new, new_rows)
            context.at_point("unit: absorbed")
        if number and (paths or plan.emits_without_panes):
            kept = kept.adding(draft.segments)
            usable = self._usable_totals(kept, due)
            serves_all = len(usable) == plan.number_of_statements
            pane_rows = kept.rows_with(usable.values()) if serves_all else kept.rows
            spark = context.session(pane_rows)
            panes = context.read_panes(draft.unit, plan, paths, spark)
            totals = {name: self._read_totals(s, spark) for name, s in usable.items()}
            version = None if plan.subscribers is None else draft.subscriber_version
            frame = pane_results(spark, plan, panes, due.by_slides, totals)
            draft.emit(frame, pane_rows * min(number, 64), version)

    def _usable_totals(self, kept: KeptPanes, due: DueStep) -> dict[str, Segment]:
        """The totals from which results at the due instants may be computed, by name."""
        before = {
            name: last_instant_until(totals.slides, due.by_slides[totals.slides].before)
            for name, totals in self.plan.kept_totals.items()
        }
        found = {name: kept.reliable_totals(name, by) for name, by in before.items()}
        return {name: segment for name, segment in found.items() if segment is not None}

    def _emit_from_windows(self, due: DueStep) -> None:
        """Emit what ROWS windows hold: when they let a tuple go is known only from later tuples, so
        panes over them cannot be kept."""
        draft = self.draft
        ((slides, own),) = due.by_slides.items()
        spark = draft.context.session(due.rows)
        # The windows are read from the last instant of the unit on, so changes are since that one.
        since_last = replace(own, before=draft.progress.last_instant)
        windows = due.read_windows(since_last, spark)
        frames = {alias: window.frame for alias, window in windows.items()}
        panes = build_panes(spark, self.plan, frames, draft.read_tables(spark))
        frame = pane_results(spark, self.plan, panes, {slides: since_last}, {})
        draft.emit(frame, sum(window.rows for window in windows.values()))
        due.keep_windows(windows, own.instants)

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
        kept = self._kept_panes()
        live = kept.panes
        draft.removed += [*live, *kept.totals.values()]
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
