"""What a plan says of itself, so that the engine and maintenance need not know which one it is.

Every plan says what it reads and when it emits. Beyond that there are three kinds, by how a step is
made: `DeltaPlan`, `PanePlan` and `LifetimePlan`. A plan hands itself to the method for its kind
(`make_step`), so that no caller has to ask for its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from headwater.algebra.canonical import Block
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Query, Scan, TableScan
from headwater.reuse.families import ConstantsTable
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.relation_subscribers import RelationSubscribers
from headwater.runtime.spark.sql import quote_identifier
from headwater.runtime.storage.columns import TIME

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.runtime.compile.lifetimes.rows import Timeline

PARTIAL_JOIN = "part"
"""The alias of rows that another unit has joined already; each source of them is a struct."""

Subscribers = JoinSubscribers | GroupSubscribers | RelationSubscribers
"""The queries of a unit, and which of its rows are whose."""

SlideSets = Mapping[frozenset[int], bool]
"""The sets of slides by which a plan is evaluated, and whether one of them emits at every instant."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class PartialJoin:
    """A join of some of a unit's sources that another unit emits, as the query of that name there.

    `columns` of its sources are items of the query; `positions` are theirs in its canonical form.
    """

    unit_id: str
    query: str
    columns: tuple[Column, ...]
    positions: tuple[int, ...]
    times: Mapping[str, str]
    """The time column of each source that is a stream."""

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.relation for column in self.columns))

    def struct_sql(self, names: Sequence[str]) -> list[str]:
        """SQL of the sources as structs, from the names that their columns have in the rows."""
        structs = []
        for alias in self.aliases:
            fields = [
                f"{quote_identifier(name)} AS {quote_identifier(column.name)}"
                for name, column in zip(names, self.columns, strict=True)
                if column.relation == alias
            ]
            if alias in self.times:
                at = [c.name for c in self.columns if c.relation == alias].index(self.times[alias])
                time = fields[at].split(" AS ")[0]
                # The rows of another unit have the stream's own TIMESTAMP column; windows compare
                # microseconds.
                fields.append(f"unix_micros({time}) AS {TIME}")
            structs.append(f"struct({', '.join(fields)}) AS {alias}")
        return structs


@dataclass(frozen=True)
class TermViews:
    """What a term reads: a view for each source, which of them are broadcast, and which are joined
    to the first one by a band of time."""

    names: Mapping[str, str]
    broadcast: Sequence[str] = ()
    banded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class KeptTotals:
    """Totals of groups that a unit keeps beside its panes: the slides by whose instants they are computed,
    and their SQL at an instant, from those at an earlier one or None."""

    slides: frozenset[int]
    sql: Callable[[int, int | None], str]
    constants: Mapping[str, Callable[[], pa.Table]] = field(default_factory=dict)
    """Views that the SQL reads beside those of panes and totals."""


# ---- the protocols


class Plan(Protocol):
    """A query, or several that share a unit, as the SQL of its steps."""

    @property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """The streams by alias, also those that are read as part of a partial join."""

    @property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        """The tables by alias, except those that were joined already by another unit."""

    @property
    def feeds(self) -> tuple[str, ...]:
        """What steps read, by alias: streams, and `PARTIAL_JOIN` if another unit joins some."""

    @property
    def partial_join(self) -> PartialJoin | None:
        """What another unit joins for this one."""

    @property
    def subscribers(self) -> Subscribers | None:
        """The queries whose rows are distinguished by row class, which needs a subscriber table;
        None if every row is for every query of the unit."""

    @property
    def emits_on_arrival(self) -> bool:
        """Whether rows are emitted as soon as tuples arrive; else when the watermark has passed."""

    @property
    def keeps_panes(self) -> bool:
        """Whether what was ingested is kept as panes, so that tuples need not be read again."""

    @property
    def needs_same_queries(self) -> bool:
        """Whether a step holds only for the queries that its unit had when it began: a query that
        is accepted meanwhile relies on later instants not being emitted without it."""

    @property
    def slide_sets(self) -> SlideSets:
        """The slides by which it is evaluated; none if it emits on arrival."""

    @property
    def equalities(self) -> tuple[tuple[Column, Column], ...]:
        """Columns of two sources that have to be equal, each pair both ways."""

    def reach(self, alias: str) -> tuple[int | None, int]:
        """How far before (None: any time) and after a tuple of another input one of `alias` may be
        to meet it in a result."""

    def make_step(self, steps: StepFactory[T]) -> T:
        """The step of its kind."""


class DeltaLane(Protocol):
    """A join whose new combinations of tuples are a part of a step, or all of it."""

    @property
    def block(self) -> Block: ...

    @property
    def prejoined(self) -> frozenset[str]:
        """The sources that are read together, as the rows of another unit."""

    @property
    def scans(self) -> tuple[tuple[str, Scan], ...]: ...

    @property
    def feeds(self) -> tuple[str, ...]: ...

    @property
    def equalities(self) -> tuple[tuple[Column, Column], ...]: ...

    def reach(self, alias: str) -> tuple[int | None, int]: ...

    def term_sql(self, order: Sequence[str], views: TermViews) -> str:
        """SQL of one term of the delta, its sources joined in that order."""

    def delta_sql(self, terms: Sequence[str]) -> str:
        """SQL of the rows or panes that a delta adds, from its terms."""


class IncrementalPlan(Plan, Protocol):
    """A plan whose steps join new tuples with those before."""

    @property
    def lanes(self) -> Sequence[DeltaLane]:
        """What is joined, each for itself: together the rows or panes that a delta adds."""

    @property
    def united(self) -> DeltaLane | None:
        """All lanes as one join, which has the same rows; None if there is but one lane."""

    @property
    def delta_constants(self) -> pa.Table | None:
        """The view of constants that the SQL of lanes reads, if it reads one."""


class DeltaPlan(IncrementalPlan, Protocol):
    """A plan whose delta is its result."""

    @property
    def subscribers(self) -> JoinSubscribers | None: ...


class PanePlan(IncrementalPlan, DeltaLane, Protocol):
    """A plan whose delta is panes, from which results are computed at instants."""

    @property
    def subscribers(self) -> GroupSubscribers | None: ...

    @property
    def emits_without_panes(self) -> bool:
        """Whether a row may be emitted though there is no pane: a count of nothing."""

    @property
    def max_instants_per_step(self) -> int: ...

    @property
    def number_of_statements(self) -> int:
        """In how many statements results are computed, each from totals or from panes alone."""

    @property
    def kept_totals(self) -> Mapping[str, KeptTotals]:
        """The totals of groups from which results may be computed instead of all panes, by a name that
        changes with their meaning."""

    def compaction_sql(self, before: int) -> str:
        """SQL of the view `panes` without what is not visible after that instant, in fewer panes."""


class LifetimePlan(Plan, Protocol):
    """A plan that reads its windows, and computes when the rows of its result enter and leave."""

    @property
    def subscribers(self) -> RelationSubscribers | None: ...

    def max_instants_per_step(self, configured: int) -> int:
        """How many instants one step may evaluate, of which the settings allow so many if it matters."""

    @property
    def statements(self) -> Sequence[LifetimeStatement]:
        """What is computed, each at the instants of its own slides; all emit the same columns."""


class LifetimeStatement(Protocol):
    """A relation that a step computes, and what of it is emitted."""

    @property
    def query(self) -> Query: ...

    @property
    def slides(self) -> frozenset[int]: ...

    @property
    def views(self) -> Mapping[str, str]:
        """What its SQL calls the scans and tables of the plan, with the alias that they have there."""

    @property
    def constants(self) -> Mapping[str, ConstantsTable]:
        """The tables that its SQL reads beside those."""

    def timeline(
        self, before: int | None, instants: Sequence[int], rows: int, new_rows: int
    ) -> Timeline:
        """The timeline of a step that reads about so many rows, of which so many are new."""

    def result_sql(self, timeline: Timeline, number: int) -> str:
        """SQL of the rows emitted at the instants of a step, which are so many."""


class StepFactory(Protocol[T_co]):
    """Makes the step of a plan: one method for each kind."""

    def delta_step(self, plan: DeltaPlan) -> T_co: ...

    def pane_step(self, plan: PanePlan) -> T_co: ...

    def lifetime_step(self, plan: LifetimePlan) -> T_co: ...
