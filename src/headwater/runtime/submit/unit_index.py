"""Chooses the unit that a new query joins, or a new one.

The operators of the running units are indexed by a lattice. It follows the catalog: units that other
processes have changed are read again, and assignments made here are added immediately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from weakref import WeakKeyDictionary

from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import is_empty_over_empty_windows
from headwater.algebra.windows import Range
from headwater.reuse import (
    Containment,
    Lattice,
    Operator,
    QuerySignature,
    SharingKind,
    minimal_operator,
)
from headwater.reuse.decide import SharingChoice
from headwater.reuse.definition import operator_definition
from headwater.reuse.load import SharingCosts
from headwater.reuse.operator import (
    depends_on_previous_event,
    looks_back,
    reaches_within_history,
    relax,
    window_reach,
)
from headwater.reuse.pane_keys import keys_multiply
from headwater.reuse.planning.graph import Graph, Node, Sources, source_labels
from headwater.reuse.planning.single_site import (
    DAY_SECONDS,
    QueryPart,
    QueryParts,
    SitePlan,
    SiteSetting,
    plan_at_site,
)
from headwater.reuse.signature import leaves_of
from headwater.runtime.catalog import (
    Catalog,
    LogPosition,
    QueryRow,
    UnitRow,
    partial_join_name,
    stream_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.compile.checkpoints import CARRIED
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.compile.windows import WINDOW
from headwater.runtime.lifecycle import equal_running_queries, is_stopped_for_good
from headwater.runtime.metrics.cost_model import LANES, read_cost_model
from headwater.runtime.results.subscribers import SUBSCRIBERS
from headwater.runtime.submit.relation_index import RelationIndex

MAX_LOOKED_AT = 16
"""The values of a column are looked up in so many segments of its stream."""


@dataclass
class UnitIndex:
    """The units of a catalog, indexed by what they could serve."""

    catalog: Catalog
    definitions: Definitions
    graph: Graph[Node] = field(default_factory=Graph)
    _units: dict[str, UnitRow] = field(default_factory=dict)
    _relations: RelationIndex = field(default_factory=RelationIndex)
    _readers: set[str] = field(default_factory=set)
    _unit_planner: UnitPlanner | None = None
    _version_sum: int = 0
    _newest: float = 0.0

    def refresh(self) -> None:
        """Read the units that have changed again."""
        # Comparing three numbers first: with ten thousand units, reading all of them for each
        # query would take most of the time of submitting it.
        if self.catalog.units_fingerprint() == self._mark():
            return
        rows = {row.id: row for row in self.catalog.units()}
        for removed in set(self._units) - set(rows):
            self._forget(removed)
        for row in rows.values():
            previous = self._units.get(row.id)
            # A definition says what an operator computes, but not which relations are computed beside
            # each other.
            is_known = (
                previous is not None
                and previous.definition == row.definition
                and (previous.version == row.version or row.id not in self._relations)
            )
            if not is_known:
                row = self._load(row)
            if row.state != "dropped":
                self._remember(row)
        # When all nodes are there: a reader may have been loaded before the unit that it reads.
        for unit_id in self._readers & set(self._units):
            self._link(unit_id)

    @property
    def lattice(self) -> Lattice:
        return self.graph.lattice

    @property
    def unit_planner(self) -> UnitPlanner:
        if self._unit_planner is None:
            self._unit_planner = UnitPlanner(self.definitions)
        return self._unit_planner

    @property
    def newest(self) -> float:
        """When the newest unit that `choose` has considered was created."""
        return self._newest

    def unit(self, unit_id: str) -> UnitRow:
        """A unit that `choose` returned, as it was then."""
        return self._units[unit_id]

    def record_assignment(
        self,
        unit_id: str,
        signature: QuerySignature,
        choice: SharingChoice | str | None,
        relaxed: str | None = None,
    ) -> None:
        """Record that a query was assigned to a unit, and the definition to which it was relaxed."""
        previous = self._units.get(unit_id)
        row = self.catalog.unit(unit_id) if previous is None else _next_version(previous, relaxed)
        if row is None:
            return
        if isinstance(choice, SharingChoice):
            self.record_operator(unit_id, choice.operator)
        else:
            self._relations.insert(unit_id, [signature])
        self._remember(row)
        self._link(unit_id)

    def record_change(self, unit_id: str, operator: Operator, definition: str | None) -> None:
        """Record that a unit has one more reader, with what it computes and its new definition."""
        self.record_operator(unit_id, operator)
        self._remember(_next_version(self._units[unit_id], definition))

    def record_operator(self, unit_id: str, operator: Operator) -> None:
        """Record what a unit computes."""
        node = self.graph[unit_id] if unit_id in self.graph else Node(unit_id, operator)
        node.operator = operator
        self.graph.insert(node)

    def _link(self, unit_id: str) -> None:
        """Connect the node of a unit with those of the units that it reads."""
        read = _units_read(self._units[unit_id])
        if unit_id in self.graph:
            self.graph[unit_id].inputs = tuple(self.graph[n] for n in read if n in self.graph)

    def _mark(self) -> tuple[int, int, float]:
        """The fingerprint that the catalog has if its units are the ones indexed here."""
        return len(self._units), self._version_sum, self._newest

    def _remember(self, row: UnitRow) -> None:
        previous = self._units.get(row.id)
        self._version_sum += row.version - (0 if previous is None else previous.version)
        self._newest = max(self._newest, row.created_at)
        self._units[row.id] = row
        if reads_partial_join(row):
            self._readers.add(row.id)
        elif row.id in self._readers:
            self._readers.discard(row.id)
            self._link(row.id)  # it reads streams again

    def _load(self, row: UnitRow) -> UnitRow:
        """Index the operator of a unit; returns the unit with its definition."""
        # The node stays the same object, as those that read it refer to it.
        self._forget(row.id, forget_node=False)
        row = self.unit_planner.ensure_definition(self.catalog, row)
        if row.state == "dropped":
            self._forget(row.id)
            return row
        operator = self.unit_planner.operator(row)
        if operator is None:
            queries = self.catalog.subscribers(row.id)
            self._relations.insert(row.id, self.unit_planner.signatures_by_content(queries))
        else:
            self.record_operator(row.id, operator)
        return row

    def _forget(self, unit_id: str, forget_node: bool = True) -> None:
        row = self._units.pop(unit_id, None)
        if forget_node and unit_id in self.graph:
            self.graph.remove(unit_id)
            self._readers.discard(unit_id)
        if row is not None:
            self._version_sum -= row.version
            self._relations.remove(unit_id)
            if row.created_at == self._newest:
                self._newest = max((r.created_at for r in self._units.values()), default=0.0)

    def choose(
        self,
        signature: QuerySignature,
        start: int | None,
        sharing: str = "all",
        lifetime: int | None = None,
    ) -> SitePlan | str | None:
        """The decision for a query with that start and lifetime; where units have no operator, the one that
        it joins, or None if there is none. `sharing` is one of `settings.SHARING_MODES`.

        Units are considered as they were at the last `refresh`; the commit that accepts the query
        fails if they have changed since.
        """
        if signature.block is None:
            return next(self._beside(signature, start, sharing), None)
        parts = QueryParts(signature)

        def candidates(sources: Sources, part: QuerySignature) -> Iterator[Node]:
            if sources == parts.whole:
                return self._joinable(signature, start, sharing)
            return self._readable(part, start)

        may_read = sharing == "all" and self._looks_back(signature)
        leaves = {parts.labels[s.alias]: s for s in leaves_of(signature.content)}

        def readable(sources: Sources) -> bool:
            return may_read and self.lattice.has_sources(leaves[label] for label in sources)

        @cache
        def lanes(node: Node) -> int:
            return self._count_lanes(node)

        seconds = DAY_SECONDS if lifetime is None else max(1.0, lifetime / 1e6)
        costs = self.prices(signature)
        return plan_at_site(SiteSetting(parts, candidates, costs, readable, lanes, seconds))

    def _beside(self, signature: QuerySignature, start: int | None, sharing: str) -> Iterator[str]:
        """The units without an operator that a query with that start can join."""
        if sharing == "all" and current_deployment(self.catalog) is not None:
            sharing = "equal"  # what a site has room for is known of single queries and operators
        for unit_id in self._relations.candidates(signature):
            if self._allows(sharing, unit_id, signature) and self._can_join(
                unit_id, signature, start
            ):
                yield unit_id

    def _joinable(
        self, signature: QuerySignature, start: int | None, sharing: str
    ) -> Iterator[Node]:
        """The units that a query with that start can join, relaxed if they have to be."""
        for node in self.graph.nearest(signature):
            if (
                self._allows(sharing, node.name, signature)
                and self._can_join(node.name, signature, start)
                and not keys_multiply(node.operator, signature, self._rate, self._count_values)
            ):
                yield node

    def _readable(self, part: QuerySignature, start: int | None) -> Iterator[Node]:
        """The units whose rows can be read for a part of a query with that start."""
        since = None if start is None else start - window_reach(part)
        for node in self.graph.nearest(part):
            # A unit waits for those that it reads: one below the other is as far as that goes.
            if not reads_partial_join(self._units[node.name]) and self._can_join(
                node.name, part, since
            ):
                yield node

    def _count_lanes(self, node: Node) -> int:
        """In how many lanes a unit is computed, as it was when its queries changed last."""
        return int(self.catalog.statistic_by_owner([node.name], LANES).get(node.name, 1))

    def _rate(self, stream: str) -> float:
        """The measured rate of a stream; 0 if there is none."""
        log = stream_log(stream)
        return self.catalog.statistic_by_owner([log], "rows_rate").get(log, 0.0)

    def _count_values(self, stream: str, column: str) -> float | None:
        """How many values a column has at most, by what was last ingested; None if it is unknown."""
        row = self.catalog.stream(stream)
        first = 0 if row is None else max(0, row.next_seq - 1 - MAX_LOOKED_AT)
        segments = self.catalog.segments(stream_log(stream), first)
        spans = [s.keys[column] for s in segments if s.keys and column in s.keys]
        if not spans:
            return None
        return float(max(high for _, high in spans) - min(low for low, _ in spans) + 1)

    def _allows(self, sharing: str, unit_id: str, signature: QuerySignature) -> bool:
        """Whether a mode of sharing lets a query join a unit, if that can serve it."""
        if sharing == "all":
            return True
        unit = self.catalog.unit(unit_id) if sharing == "equal" else None
        return unit is not None and bool(
            equal_running_queries(self.catalog, unit, signature.digest)
        )

    def _can_join(self, unit_id: str, signature: QuerySignature, start: int | None) -> bool:
        """Whether a query with that start can join a unit: all rows that it would get alone are among the
        unit's rows, or can still be computed."""
        # Read from the catalog, not from the index: the state of a unit changes without its version.
        unit = self.catalog.unit(unit_id)
        if unit is None or unit.state in ("dropped", "parked"):
            return False
        if unit.state != "running" and is_stopped_for_good(self.catalog, unit):
            return False
        if reads_partial_join(unit) and not self._can_read_enough(unit, signature, start):
            return False
        unit_start = self.catalog.cursor(unit_id, "start")
        equal_queries = self.equal_queries(unit, signature, start)
        if signature.kind is SharingKind.EXACT:
            lasting = unit_start == start or self._looks_back(signature)
            return bool(equal_queries) and starts_by(unit_start, start) and lasting
        if equal_queries:
            first_start = min(_start_or_forever_ago(query) for query in equal_queries)
            if (FOREVER_AGO if start is None else start) < first_start:
                return False
        independent = unit_start == start or self._is_independent_of_start(signature, start)
        if signature.kind is not SharingKind.JOIN:
            if equal_queries:
                return independent
            if not self._fits_state(unit, signature):
                return False
            # Each instant is evaluated once: those that are done lack the rows of this query.
            emitted_instant = self.catalog.cursor(unit_id, "instant")
            is_unemitted = emitted_instant is None or (
                start is not None and emitted_instant <= start
            )
            return is_unemitted and starts_by(unit_start, start) and independent
        if not independent:
            return False
        # The unit begins earlier for the new query: that must change nothing for the others.
        return starts_by(unit_start, start) or self.subscribers_look_back(unit)

    def equal_queries(
        self, unit: UnitRow, signature: QuerySignature, start: int | None
    ) -> list[QueryRow]:
        """The queries of a unit that may still get rows, and have those that a query with that start has after
        it: if its windows reach back beyond its start, those of the same start alone."""
        equal = equal_running_queries(self.catalog, unit, signature.digest)
        if self._is_bounded(signature):
            return [query for query in equal if query.start_at == start]
        return equal

    def _is_bounded(self, signature: QuerySignature) -> bool:
        """Whether a query computed beside others is told from when on it sees tuples."""
        return signature.relation is not None and not reaches_within_history(
            signature, self._streams()
        )

    def _fits_state(self, unit: UnitRow, signature: QuerySignature) -> bool:
        """Whether what a unit keeps is of use if a query joins: panes that serve it, or can be made again so
        that they do.

        Panes over a window without an end must have all that the query needs from the beginning, and
        a tuple joined with a table was joined with it as it was then.
        """
        if signature.kind is SharingKind.RELATION:
            # What ROWS windows hold was kept by alias in states of earlier versions, which a plan for
            # several queries does not have.
            kept = {n for n in self.catalog.cursors(unit.id) if n.startswith(CARRIED)}
            return all(name.startswith(f"{CARRIED}{WINDOW}") for name in kept)
        if signature.panes_can_be_rebuilt:
            return True
        logs = [stream_log(scan.stream) for scan in signature.scans]
        if not any(LogPosition.from_json(self.catalog.cursor(unit.id, log)).seq for log in logs):
            return True
        operator = self.lattice.operator(unit.id)
        return (
            len(signature.scans) == len(signature.content.sources)
            and self.catalog.cursor(unit.id, SUBSCRIBERS) is not None
            and relax(operator, signature) is operator
        )

    def _can_read_enough(self, unit: UnitRow, signature: QuerySignature, start: int | None) -> bool:
        """Whether what a unit reads of another has all rows for a query with that start, or can have."""
        need = self.reading_need(unit.id, signature, start)
        if need is None:
            return False
        if need.is_met:
            return True
        is_running = unit.state == "running" and need.hidden.state == "running"
        return is_running and self._can_join(need.hidden.unit_id, need.part.signature, need.since)

    def reading_need(
        self, unit_id: str, signature: QuerySignature, start: int | None
    ) -> ReadingNeed | None:
        """What a unit has to read of another for a query with that start as well as for those it has;
        None if it cannot serve the query by that."""
        hidden = self.catalog.query(partial_join_name(unit_id))
        if hidden is None or hidden.state == "dropped":
            return None
        read = minimal_operator(self.unit_planner.signature(hidden))
        parts = QueryParts(signature)
        sources = frozenset(source_labels(read.sources).values())
        part = parts.part(sources) if sources in parts.aliases else None
        if part is None or part.signature.sharing_key != read.sharing_key:
            return None
        since = None if start is None else start - window_reach(part.signature)
        if not starts_by(hidden.start_at, since):
            return None
        return ReadingNeed(hidden, part, read, relax(read, part.signature), since)

    def subscribers_look_back(self, unit: UnitRow) -> bool:
        """Whether each query of a unit has the same results if the unit begins earlier. The operator
        cannot say: its windows cover those of the queries, but hide how these slide."""
        signatures = self.unit_planner.signatures(self.catalog.subscribers(unit.id))
        return all(map(self._looks_back, signatures))

    def _looks_back(self, signature: QuerySignature) -> bool:
        return looks_back(signature, self._streams())

    def _is_independent_of_start(self, signature: QuerySignature, start: int | None) -> bool:
        """Whether a query of that start has the same results in a unit that begins earlier."""
        if signature.relation is not None and self._is_bounded(signature):
            # Where there is no tuple there is no row, so nothing depends on when that began.
            return is_empty_over_empty_windows(signature.relation.root)
        if not depends_on_previous_event(signature):
            return self._looks_back(signature)
        streams = self._streams()
        if start is None or not reaches_within_history(signature, streams):
            return False
        return self._has_event(signature, start - _history_to_spare(signature, streams), start)

    def _has_event(self, signature: QuerySignature, least: int, largest: int) -> bool:
        """Whether some stream of a query is known to have an event between two times: then that is
        the last event before the start, or a later one is, for whoever reads the streams."""
        names = {scan.stream.lower() for scan in signature.scans}
        return any(
            time is not None and least <= time <= largest
            for name in names
            for segment in self.catalog.segments(stream_log(name))
            for time in (segment.largest_time, segment.least_time)
        )

    def _streams(self) -> dict[str, Stream]:
        return {name: declared.stream for name, declared in self.definitions.streams.items()}

    def prices(self, signature: QuerySignature) -> SharingCosts:
        """What is known of the streams of a query: rates, what passes conditions, costs of operators."""
        names = {scan.stream for scan in signature.scans}
        return SharingCosts.of(read_cost_model(self.catalog, names, self.definitions.namespace))


def _history_to_spare(signature: QuerySignature, streams: Mapping[str, Stream]) -> int:
    """How long before its start an event may be, so that windows at the event's time, too, reach no
    further back than the histories of their streams."""
    return min(
        streams[scan.stream.lower()].keep - scan.window.size
        for scan in signature.scans
        if isinstance(scan.window, Range) and scan.window.size is not None
    )


FOREVER_AGO = -(2**62)
"""Before all event times: for a missing start, where starts are compared or one has to be stored."""


@dataclass(frozen=True)
class ReadingNeed:
    """What a unit reads of another by its `hidden` query, and what it has to read for a query more."""

    hidden: QueryRow
    part: QueryPart
    read: Operator
    wider: Operator
    since: int | None

    @property
    def is_met(self) -> bool:
        return self.wider is self.read


def _next_version(unit: UnitRow, definition: str | None) -> UnitRow:
    """A unit after one more query has joined it."""
    return replace(unit, version=unit.version + 1, definition=definition or unit.definition)


def reads_partial_join(unit: UnitRow) -> bool:
    """Whether a unit reads another unit's rows."""
    return bool(_units_read(unit))


def _units_read(unit: UnitRow) -> list[str]:
    """The units whose rows a unit reads."""
    return [name.partition(":")[2] for name in unit.inputs if name.startswith("unit:")]


def _start_or_forever_ago(query: QueryRow) -> int:
    return FOREVER_AGO if query.start_at is None else query.start_at


def starts_by(unit_start: int | None, start: int | None) -> bool:
    """Whether a unit emits all rows after a start."""
    return unit_start is None or (start is not None and unit_start <= start)


_indexes: WeakKeyDictionary[Catalog, UnitIndex] = WeakKeyDictionary()


def unit_index(catalog: Catalog, definitions: Definitions) -> UnitIndex:
    """The index of a catalog's units, kept for as long as the catalog is open."""
    if catalog not in _indexes:
        _indexes[catalog] = UnitIndex(catalog, definitions)
    return _indexes[catalog]


def relaxed_definition(choice: SharingChoice, signature: QuerySignature) -> str | None:
    """The new definition of the unit that a query joins; None if the unit need not change."""
    is_wider = choice.containment is Containment.OVERLAPPING
    return operator_definition(choice.operator, signature.output) if is_wider else None
