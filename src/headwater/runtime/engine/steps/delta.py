"""Steps of a join whose new results follow from new tuples: they are emitted on arrival."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.operator import serving_operator
from headwater.runtime.compile.frames import StepInput, delta_frame, overlapping_segments
from headwater.runtime.compile.plan import DeltaPlan
from headwater.runtime.compile.shared_join import SharedJoin
from headwater.runtime.engine.steps.step import StepDraft, count_input_rows
from headwater.runtime.results.subscribers import SUBSCRIBERS, subscribers_at


@dataclass(frozen=True)
class DeltaStep:
    """A step of a delta join."""

    plan: DeltaPlan
    draft: StepDraft

    def update_subscribers(self) -> bool:
        """Emit to new queries what they missed, and write the subscriber table, if the queries of
        the unit have changed; returns whether they have."""
        subscribers = self.plan.subscribers
        if subscribers is None or self.draft.has_current_subscribers(subscribers):
            return False
        self.draft.update_subscribers(subscribers, self._emit_missed(subscribers) + 1)
        return True

    def run(self) -> bool:
        """Emit what the new tuples add; returns whether there are any."""
        draft = self.draft
        if (
            not draft.progress.new_rows
        ):  # a watermark alone changes nothing that is emitted on arrival
            return False
        draft.ingest()
        version = None if self.plan.subscribers is None else draft.subscriber_version
        draft.emit(draft.delta_frame(self.plan), draft.progress.new_rows, version)
        return True

    def compact(self) -> bool:
        """Nothing: such a unit keeps no panes."""
        return False

    # ---- queries that are new to the unit

    def _emit_missed(self, subscribers: JoinSubscribers) -> int:
        """Emit to new queries the results of tuples that were ingested before they were accepted;
        returns the last version of the subscriber table that was written.

        These rows have a version of their own, in which the new queries are alone: the others have
        got theirs.
        """
        draft = self.draft
        unit, version = draft.unit, draft.subscriber_version
        before = (
            subscribers_at(draft.context.catalog, unit.row.id, version)
            if SUBSCRIBERS in draft.progress.cursors
            else {unit.row.digest}
        )
        new = tuple(s for s in subscribers.signatures if s.digest not in before)
        if new and any(position.seq for position in draft.progress.positions.values()):
            missing = JoinSubscribers(serving_operator(new), new)
            frame, rows = self._missed_results(SharedJoin(missing, self.plan.partial_join))
            if frame is not None:
                version += 1
                draft.write_subscribers(missing)
                draft.emit_all(frame, rows, version)
        return version

    def _missed_results(self, plan: SharedJoin) -> tuple[DataFrame | None, int]:
        """The results, after their starts, that queries have of tuples ingested already; and how many
        rows are read for them."""
        draft, context = self.draft, self.draft.context
        digests = {signature.digest for signature in plan.subscribers.signatures}
        starts = [query.start_at for query in draft.unit.queries if query.result_key in digests]
        known_starts = [start for start in starts if start is not None]
        start = min(known_starts) if len(known_starts) == len(starts) else None
        least_time = None if start is None else start - _entry_delay(plan.subscribers)
        inputs = {}
        for alias, name in draft.unit.feeds:
            reached = draft.progress.positions[name].seq
            ingested = context.input_segments(name, 0, reached)
            # Results after the start have a tuple of these; the rest is what such a tuple may meet.
            late = overlapping_segments(ingested, least_time, None)
            early = tuple(s for s in ingested if s.rows and s not in late)
            inputs[alias] = StepInput(early, late, None)
        rows = count_input_rows(inputs)
        spark = context.session(rows)
        tables = draft.read_tables(spark)
        read_partial = context.partial_join_reader(plan.partial_join, spark)
        frame, _ = delta_frame(spark, plan, inputs, tables, {}, read_partial)
        return (frame if frame is None or start is None else frame.where(f"_tau > {start}")), rows


def _entry_delay(subscribers: JoinSubscribers) -> int:
    """How long after its own time a tuple can first be part of a result."""
    return max((slide or 0 for s in subscribers.shapes for slide in s.slides), default=0)
