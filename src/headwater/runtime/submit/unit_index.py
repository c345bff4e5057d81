"""Chooses the unit that a new query joins, or a new one.

The operators of the running units are indexed by a lattice. It follows the catalog: units that other
processes have changed are read again, and assignments made here are added immediately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from headwater.algebra.canonical import CanonicalQuery, canonicalize
from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Query
from headwater.algebra.windows import Range
from headwater.reuse import (
    Containment,
    Lattice,
    QuerySignature,
    SharingKind,
    signature_of,
)
from headwater.reuse.decide import SharingChoice, choose_operator
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
from headwater.runtime.catalog import (
    Catalog,
    LogPosition,
    QueryRow,
    UnitRow,
    partial_join_name,
    stream_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.lifecycle import equal_running_queries, is_stopped_for_good
from headwater.runtime.metrics.cost_model import read_cost_model
from headwater.runtime.results.subscribers import SUBSCRIBERS

MAX_LOOKED_AT = 16
"""The values of a column are looked up in so many segments of its stream."""


@dataclass
class UnitIndex:
    """The units of a catalog, indexed by what they could serve."""

    catalog: Catalog
    definitions: Definitions
    lattice: Lattice = field(default_factory=Lattice)
    _units: dict[str, UnitRow] = field(default_factory=dict)
    _exact_units: dict[str, set[str]] = field(default_factory=dict)
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
            if previous is None or previous.definition != row.definition:
                row = self._load(row)
            if row.state != "dropped":
                self._remember(row)

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
        self, unit_id: str, choice: SharingChoice | str | None, relaxed: str | None = None
    ) -> None:
        """Record that a query was assigned to a unit, and the definition to which it was relaxed."""
        previous = self._units.get(unit_id)
        row = self.catalog.unit(unit_id) if previous is None else _next_version(previous, relaxed)
        if row is None:
            return
        if isinstance(choice, SharingChoice):
            self.lattice.insert(unit_id, choice.operator)
        else:
            self._exact_units.setdefault(row.digest, set()).add(unit_id)
        self._remember(row)

    def _mark(self) -> tuple[int, int, float]:
        """The fingerprint that the catalog has if its units are the ones indexed here."""
        return len(self._units), self._version_sum, self._newest

    def _remember(self, row: UnitRow) -> None:
        previous = self._units.get(row.id)
        self._version_sum += row.version - (0 if previous is None else previous.version)
        self._newest = max(self._newest, row.created_at)
        self._units[row.id] = row

    def _load(self, row: UnitRow) -> UnitRow:
        """Index the operator of a unit; returns the unit with its definition."""
        self._forget(row.id)
        row = self.unit_planner.ensure_definition(self.catalog, row)
        if row.state == "dropped":
            return row
        operator = self.unit_planner.operator(row)
        if operator is None:
            self._exact_units.setdefault(row.digest, set()).add(row.id)
        else:
            self.lattice.insert(row.id, operator)
        return row

    def _forget(self, unit_id: str) -> None:
        row = self._units.pop(unit_id, None)
        if unit_id in self.lattice:
            self.lattice.remove(unit_id)
        if row is not None:
            self._version_sum -= row.version
            self._exact_units.get(row.digest, set()).discard(unit_id)
            if row.created_at == self._newest:
                self._newest = max((r.created_at for r in self._units.values()), default=0.0)

    def choose(
        self, signature: QuerySignature, start: int | None, sharing: str = "all"
    ) -> SharingChoice | str | None:
        """The unit of an equal query, or the cheapest choice among the units that could serve a query
        with that start; None for a query that can share only with equal ones, of which none runs.
        `sharing` is one of `settings.SHARING_MODES`.

        Units are considered as they were at the last `refresh`; the commit that accepts the query
        fails if they have changed since.
        """
        if signature.kind is SharingKind.EXACT:
            if sharing == "none":
                return None
            for unit_id in sorted(self._exact_units.get(signature.digest, ())):
                if self._can_join(unit_id, signature, start):
                    return unit_id
            return None
        running = (
            (unit_id, self.lattice.operator(unit_id))
            for unit_id in self.lattice.nearest(signature)
            if self._allows(sharing, unit_id, signature)
            and self._can_join(unit_id, signature, start)
            and not self._keys_multiply(unit_id, signature)
        )
        return choose_operator(signature, running, self.prices(signature))

    def _keys_multiply(self, unit_id: str, signature: QuerySignature) -> bool:
        """Whether a grouped query would make panes with a unit that are nearly as many as rows."""
        operator = self.lattice.operator(unit_id)
        return keys_multiply(operator, signature, self._rate, self._count_values)

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

    def find_partial_join(
        self, signature: QuerySignature, start: int | None, alone: float
    ) -> PartialJoinChoice | None:
        """A unit that joins some of a query's sources, or can when relaxed, if reading its rows in a unit
        that joins the rest costs less than the query would alone."""
        if signature.kind is not SharingKind.JOIN:
            return None
        for query, names in self.lattice.partial_joins(signature):
            canonical = canonicalize(query)
            part_signature = signature_of(canonical)
            since = None if start is None else start - window_reach(part_signature)
            running = [
                (unit_id, self.lattice.operator(unit_id))
                for unit_id in names
                if self._can_join(unit_id, part_signature, since)
                and not reads_partial_join(self._units[unit_id])
            ]
            choice = choose_operator(part_signature, running, self.prices(part_signature))
            # It joins what the other unit emits with the rest: at least two inputs.
            rest = self.prices(signature).model.step_seconds(2)
            if choice.name is not None and choice.added_load + rest <= alone:
                return PartialJoinChoice(query, canonical, part_signature, choice, since)
        return None

    def _can_join(self, unit_id: str, signature: QuerySignature, start: int | None) -> bool:
        """Whether a query with that start can join a unit: all rows that it would get alone are among the
        unit's rows, or can still be computed."""
        # Read from the catalog, not from the index: the state of a unit changes without its version.
        unit = self.catalog.unit(unit_id)
        if unit is None or unit.state in ("dropped", "parked"):
            return False
        if unit.state != "running" and is_stopped_for_good(self.catalog, unit):
            return False
        if reads_partial_join(unit) and not self._serves_with_partial_join(
            unit_id, signature, start
        ):
            return False
        unit_start = self.catalog.cursor(unit_id, "start")
        equal_queries = equal_running_queries(self.catalog, unit, signature.digest)
        if signature.kind is SharingKind.EXACT:
            lasting = unit_start == start or self._looks_back(signature)
            return bool(equal_queries) and starts_by(unit_start, start) and lasting
        if equal_queries:
            first_start = min(_start_or_forever_ago(query) for query in equal_queries)
            if (FOREVER_AGO if start is None else start) < first_start:
                return False
        independent = unit_start == start or self._is_independent_of_start(signature, start)
        if signature.kind is SharingKind.GROUP:
            if equal_queries:
                return independent
            if not self._fits_panes(unit, signature):
                return False
            emitted_instant = self.catalog.cursor(unit_id, "instant")
            is_unemitted = emitted_instant is None or (
                start is not None and emitted_instant <= start
            )
            return is_unemitted and starts_by(unit_start, start) and independent
        if not independent:
            return False
        # The unit begins earlier for the new query: that must change nothing for the others.
        return starts_by(unit_start, start) or self.subscribers_look_back(unit)

    def _fits_panes(self, unit: UnitRow, signature: QuerySignature) -> bool:
        """Whether a unit's panes serve a query, or can be made again so that they do.

        Those over a window without an end must have all that the query needs from the beginning, and
        a tuple joined with a table was joined with it as it was then.
        """
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

    def _serves_with_partial_join(
        self, unit_id: str, signature: QuerySignature, start: int | None
    ) -> bool:
        """Whether the partial join that a unit reads also serves a query of that start: it has no
        rows before its own start."""
        partial_query = self.catalog.query(partial_join_name(unit_id))
        if partial_query is None:
            return False
        part = self.unit_planner.part_served(partial_query, signature)
        if part is None:
            return False
        since = None if start is None else start - window_reach(part)
        return starts_by(partial_query.start_at, since)

    def subscribers_look_back(self, unit: UnitRow) -> bool:
        """Whether each query of a unit has the same results if the unit begins earlier. The operator
        cannot say: its windows cover those of the queries, but hide how these slide."""
        signatures = self.unit_planner.signatures(self.catalog.subscribers(unit.id))
        return all(map(self._looks_back, signatures))

    def _looks_back(self, signature: QuerySignature) -> bool:
        return looks_back(signature, self._streams())

    def _is_independent_of_start(self, signature: QuerySignature, start: int | None) -> bool:
        """Whether a query of that start has the same results in a unit that begins earlier."""
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
class PartialJoinChoice:
    """A join of some of a query's sources, and the unit that was chosen to compute it."""

    query: Query
    canonical: CanonicalQuery
    signature: QuerySignature
    choice: SharingChoice
    start: int | None


def _next_version(unit: UnitRow, definition: str | None) -> UnitRow:
    """A unit after one more query has joined it."""
    return replace(unit, version=unit.version + 1, definition=definition or unit.definition)


def reads_partial_join(unit: UnitRow) -> bool:
    """Whether a unit reads another unit's rows, which cover no more than what it was created for."""
    return any(name.startswith("unit:") for name in unit.inputs)


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
