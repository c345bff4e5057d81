"""A unit as it runs: its plan, the logs that it reads, and what is remembered between its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Scan
from headwater.cost.model import CostModel
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.operator import looks_back
from headwater.runtime.catalog import NewSegment, QueryRow, UnitRow, stream_log, unit_log
from headwater.runtime.compile.join_order import JoinTree
from headwater.runtime.compile.plan import PARTIAL_JOIN, Plan
from headwater.runtime.metrics.step_meter import StepReport
from headwater.runtime.results.row_counts import count_rows


@dataclass
class Unit:
    """A unit with the plan that serves its queries at one version of it."""

    row: UnitRow
    plan: Plan
    streams: dict[str, Stream]
    queries: tuple[QueryRow, ...] = ()
    """Those that the plan serves."""
    waits: bool = False
    """Whether it is to read another partial join as soon as that has the rows of the same tuples."""
    panes_schema: StructType | None = None
    written_joins: JoinTree | None = None
    """The joins of its first query as written; None until they are needed."""
    cost_model: CostModel | None = None
    """What is known of its costs; None until that is needed."""
    growth: float = 1.0
    """Rows out per row in, of its last step."""
    has_current_subscribers: bool = False
    """Whether the last version of the subscriber table is known to be what the plan says."""
    last_report: StepReport | None = None
    """What its last step did, with the seconds of its commit."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs that its steps read."""
        # A stream that is joined with itself is one log by two aliases.
        return tuple(dict.fromkeys(log for _, log in self.feeds))

    @property
    def feeds(self) -> tuple[tuple[str, str], ...]:
        """What its steps read, by alias, and the log of each."""
        logs = {alias: stream_log(scan.stream) for alias, scan in self.plan.scans}
        if self.plan.partial_join is not None:
            logs[PARTIAL_JOIN] = unit_log(self.plan.partial_join.unit_id)
        return tuple((alias, logs[alias]) for alias in self.plan.feeds)

    @property
    def lanes(self) -> int:
        """In how many joins its steps are computed."""
        subscribers = self.plan.subscribers
        return len(subscribers.lanes) if isinstance(subscribers, JoinSubscribers) else 1

    @property
    def reads_other_unit(self) -> bool:
        return any(name.startswith("unit:") for name in self.row.inputs)

    @property
    def served_keys(self) -> frozenset[str]:
        """The result keys of the queries whose results it emits."""
        if self.plan.subscribers is None:
            return frozenset((self.row.digest,))
        return frozenset(signature.digest for signature in self.plan.subscribers.signatures)

    def earliest_time(self, scan: Scan, start: int | None) -> int | None:
        """The least time of a tuple that its queries may look back on."""
        subscribers = self.plan.subscribers
        if subscribers is not None and all(
            looks_back(signature, self.streams) for signature in subscribers.signatures
        ):
            return None
        return None if start is None else start - self.streams[scan.stream.lower()].keep

    def subscribers_per_row(self, segments: Sequence[NewSegment]) -> float | None:
        """To how many queries a row of a step's results goes, on average, another unit that reads it
        being one; None if there are no results."""
        results = [s for s in segments if s.log == unit_log(self.row.id)]
        if not results:
            return None
        query_counts = Counter(query.result_key for query in self.queries)
        if self.plan.subscribers is None:
            return float(query_counts.total())
        by_digest = self.plan.subscribers.subscribers
        counts = [count_rows(s, None, None, shared=True) for s in results]
        emitted = sum(
            query_counts[digest] * counted.count_for(subscriber)
            for counted in counts
            for digest, subscriber in by_digest.items()
        )
        return emitted / sum(s.rows for s in results)
