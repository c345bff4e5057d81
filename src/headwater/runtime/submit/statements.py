"""Submitting, dropping, pausing and resuming queries of a catalog.

Nothing here needs Spark, so any process that reaches the catalog may submit to a running engine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from headwater.algebra.canonical import CanonicalQuery, canonicalize
from headwater.algebra.nodes import Output, Query, Scan, walk_relations
from headwater.cql import parse, unparse
from headwater.cql.statements import Connector, CreateQuery, CreateStream, CreateTable, Start
from headwater.errors import CommitConflict, HeadwaterError
from headwater.reuse import Operator, QuerySignature, SharingKind, relax, signature_of
from headwater.reuse.decide import SharingChoice
from headwater.reuse.definition import operator_definition
from headwater.reuse.operator import window_reach
from headwater.reuse.planning.single_site import QueryPart, SitePlan, covering_part
from headwater.reuse.signature import leaves_of, source_name
from headwater.runtime.catalog import (
    Catalog,
    Json,
    NewPartialJoin,
    NewQuery,
    NewUnit,
    QueryRow,
    UnitRow,
    describe_connector,
    partial_join_name,
    stream_log,
    table_input,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.compile import Plan, compile_query
from headwater.runtime.lifecycle import (
    update_unit_state,
    upstream_units,
)
from headwater.runtime.settings import Settings, effective_settings
from headwater.runtime.submit.unit_index import (
    FOREVER_AGO,
    ReadingNeed,
    UnitIndex,
    reads_partial_join,
    relaxed_definition,
    unit_index,
)

MAX_TRIES = 100
"""How often a query is assigned again because its unit has changed concurrently."""


def submit(
    catalog: Catalog,
    definitions: Definitions,
    statement: CreateQuery,
    canonical: CanonicalQuery | None = None,
    definition: str | None = None,
) -> QueryRow:
    """Accept a query: into a unit that can serve it, or one of its own. The catalog stores its
    `definition`, by default the text of the statement."""
    canonical = canonical or canonicalize(statement.query)
    query = NewQuery(
        name=statement.name,
        definition=definition or unparse(statement),
        digest=canonical.digest,
        lifetime=statement.lifetime,
        keep=statement.keep,
        columns=stored_columns(statement.query, canonical),
        sink=_stored_sink(statement.sink),
    )
    plan, signature = compile_query(canonical), signature_of(canonical)
    # The unit is chosen without a lock, from a snapshot. If it changes before the commit, the commit
    # fails and the choice is made again.
    for _ in range(MAX_TRIES):
        with suppress(CommitConflict):
            unit_index(catalog, definitions).refresh()
            with catalog.snapshot():
                starting = _with_start_and_end(catalog, plan, statement.start, query)
                sharing = effective_settings(Settings(), catalog.options(), {}).sharing
                assignment = _choose_unit(catalog, definitions, signature, starting, sharing)
            if isinstance(assignment, UnitAssignment):
                return _submit_to_unit(catalog, definitions, signature, starting, assignment)
            return _submit_to_new_unit(
                catalog, definitions, canonical, signature, starting, assignment, sharing
            )
    raise HeadwaterError(
        f"{statement.name}: its unit changed {MAX_TRIES} times meanwhile; try again"
    )


def stored_columns(query: Query, canonical: CanonicalQuery) -> Json:
    """The columns of a query as the catalog stores them: name, position among the items, and type."""
    types = (str(column.type) for column in query.columns)
    return [[name, at, of] for (name, at), of in zip(canonical.columns, types, strict=True)]


@dataclass(frozen=True)
class UnitAssignment:
    """The unit that a query joins, as it was when it was chosen.

    `earlier_start` is set if the unit has to start earlier for it. `equal_to` names a query with the
    same results; without one, `is_unemitted` demands that the unit has emitted nothing after the
    start of the query.
    """

    unit_id: str
    choice: SharingChoice | str
    unit: UnitRow
    earlier_start: int | None
    equal_to: str | None
    is_unemitted: bool
    need: ReadingNeed | None = None
    """What the unit has to read of another for the query, if it reads one."""


def _choose_unit(
    catalog: Catalog,
    definitions: Definitions,
    signature: QuerySignature,
    query: NewQuery,
    sharing: str,
) -> UnitAssignment | SitePlan | None:
    """The unit that a query joins; or the plan of a new unit, None if nothing could be shared."""
    index = unit_index(catalog, definitions)
    plan = index.choose(signature, query.start_at, sharing, query.lifetime)
    choice = plan.choice if isinstance(plan, SitePlan) else plan
    unit_id = choice.name if isinstance(choice, SharingChoice) else choice
    if choice is None or unit_id is None:
        assert not isinstance(plan, str)
        return plan
    earlier = earlier_start(catalog.cursor(unit_id, "start"), query.start_at)
    equal_to = _equal_query(index, unit_id, signature, query.start_at)
    # All but joins evaluate each instant once. A query that joins when an instant after its start
    # has been evaluated would miss the rows of that instant.
    is_unemitted = signature.kind is not SharingKind.JOIN and equal_to is None
    unit = index.unit(unit_id)
    need = None
    if reads_partial_join(unit):
        need = index.reading_need(unit_id, signature, query.start_at)
        assert need is not None
    return UnitAssignment(unit_id, choice, unit, earlier, equal_to, is_unemitted, need)


def _equal_query(
    index: UnitIndex, unit_id: str, signature: QuerySignature, start: int | None
) -> str | None:
    """The earliest query of a unit that has the same results, if the unit still writes them."""
    unit = index.catalog.unit(unit_id)
    equal = [] if unit is None else index.equal_queries(unit, signature, start)
    first = min(equal, key=lambda query: query.start_at or FOREVER_AGO, default=None)
    return None if first is None else first.name


def _submit_to_new_unit(
    catalog: Catalog,
    definitions: Definitions,
    canonical: CanonicalQuery,
    signature: QuerySignature,
    query: NewQuery,
    plan: SitePlan | None,
    sharing: str,
) -> QueryRow:
    """Accept a query in a new unit, which may read the rows of a unit that joins some of its sources."""
    index = unit_index(catalog, definitions)
    choice = None if plan is None else plan.choice
    operator = None if choice is None else operator_definition(choice.operator, signature.output)
    unit = NewUnit(canonical.digest, operator or unparse(canonical.query), unit_inputs(canonical))
    reading = None if plan is None else _planned_reading(plan, query.start_at)
    if reading is not None:
        unit = replace(unit, inputs=_remaining_inputs(reading, signature))
    newest: float | None = index.newest
    if (sites := current_deployment(catalog)) is not None:
        from headwater.runtime.sites.planner import SitePlanner

        site_planner = SitePlanner(catalog, definitions, sites)
        if reading is not None and reading.relaxed is not None:
            site_planner.admit_relaxed(query.name, reading.unit_id, reading.relaxed_text)
        site_planner.admit(query.name, unit)
        # Admission has assigned a site to this unit: it is created even if a unit that could serve
        # the query has been created meanwhile.
        newest = None
    partial_join = None if reading is None else _new_partial_join(catalog, index, reading, unit.id)
    row = catalog.accept_query(
        replace(query, placement_note=_assignment_note(unit.id, signature, choice, sharing)),
        unit,
        start_cursor(unit.id, query.start_at),
        newest_unit=newest if partial_join is None else None,
        partial_join=partial_join,
    )
    if partial_join is not None:
        assert reading is not None
        _record_reading(index, reading, partial_join)
    index.record_assignment(unit.id, signature, choice)
    return row


def _submit_to_unit(
    catalog: Catalog,
    definitions: Definitions,
    signature: QuerySignature,
    query: NewQuery,
    assignment: UnitAssignment,
) -> QueryRow:
    """Accept a query into a running unit, which is relaxed if it has to be."""
    unit_id, choice = assignment.unit_id, assignment.choice
    index = unit_index(catalog, definitions)
    relaxed = relaxed_definition(choice, signature) if isinstance(choice, SharingChoice) else None
    reading = None
    if assignment.need is not None and not assignment.need.is_met:
        reading = _wider_reading(index, definitions, assignment.need)
    _admit_relaxed(catalog, definitions, query.name, unit_id, relaxed, reading)
    partial_join = (
        None if reading is None else _new_partial_join(catalog, index, reading, unit_id, again=True)
    )
    row = catalog.accept_query(
        replace(
            query,
            placement_note=_joining_note(unit_id, signature, assignment),
            equal_to=assignment.equal_to,
        ),
        unit_id,
        start_cursor(unit_id, assignment.earlier_start),
        relaxed,
        assignment.is_unemitted,
        # What a unit reads is enough for the queries that it had when that was looked at.
        None if relaxed is None and assignment.need is None else assignment.unit.version,
        seen_definition=None if relaxed is not None else assignment.unit.definition,
        # What a unit reads says from when on it has all rows.
        seen_inputs=assignment.unit.inputs,
        partial_join=partial_join,
    )
    index.record_assignment(unit_id, signature, choice, relaxed)
    if reading is not None and partial_join is not None:
        _record_reading(index, reading, partial_join)
    return row


def _admit_relaxed(
    catalog: Catalog,
    definitions: Definitions,
    query: str,
    unit_id: str,
    relaxed: str | None,
    reading: JoinReading | None,
) -> None:
    """Check that the sites have room for a unit as it is relaxed, and for the one that it reads."""
    sites = current_deployment(catalog)
    if sites is None:
        return
    from headwater.runtime.sites.planner import SitePlanner

    site_planner = SitePlanner(catalog, definitions, sites)
    if reading is not None and reading.relaxed is not None:
        site_planner.admit_relaxed(query, reading.unit_id, reading.relaxed_text)
    if relaxed is not None:
        site_planner.admit_relaxed(query, unit_id, relaxed)


@dataclass(frozen=True)
class JoinReading:
    """What a unit reads of another: a join as a query, from when on, and what the other becomes for it."""

    unit_id: str
    part: QueryPart
    start: int | None
    relaxed: Operator | None

    @property
    def relaxed_text(self) -> str:
        assert self.relaxed is not None
        return operator_definition(self.relaxed, Output.ISTREAM)


def _planned_reading(plan: SitePlan, start: int | None) -> JoinReading | None:
    """What a new unit reads of another, as planned."""
    if plan.part is None or plan.reads is None:
        return None
    since = None if start is None else start - window_reach(plan.part.signature)
    return JoinReading(plan.reads.name, plan.part, since, plan.relaxed.get(plan.reads))


def _wider_reading(index: UnitIndex, definitions: Definitions, need: ReadingNeed) -> JoinReading:
    """What a unit is to read instead, so that it serves one query more."""
    (hidden,) = parse(need.hidden.definition, definitions.namespace)
    assert isinstance(hidden, CreateQuery)
    part = covering_part(need.part.sources, need.wider, [hidden.query, need.part.query])
    upstream = index.graph[need.hidden.unit_id]
    wider = relax(upstream.operator, part.signature)
    relaxed = None if wider is upstream.operator else wider
    return JoinReading(need.hidden.unit_id, part, need.hidden.start_at, relaxed)


def _remaining_inputs(reading: JoinReading, signature: QuerySignature) -> tuple[str, ...]:
    """The inputs of a unit that reads a partial join: the log of that, and the sources it does not
    cover."""
    joined = {source_name(source) for source in leaves_of(reading.part.signature.content)}
    rest = [s for s in leaves_of(signature.content) if source_name(s) not in joined]
    logs = [stream_log(s.stream) if isinstance(s, Scan) else table_input(s.table) for s in rest]
    return (unit_log(reading.unit_id), *dict.fromkeys(logs))


def _new_partial_join(
    catalog: Catalog, index: UnitIndex, reading: JoinReading, reader: str, again: bool = False
) -> NewPartialJoin:
    """The hidden query by which a unit reads the partial join of another; `again` if it has one that
    this is to replace."""
    name, upstream, digest = (
        partial_join_name(reader),
        reading.unit_id,
        reading.part.canonical.digest,
    )
    query = NewQuery(
        name=name,
        definition=unparse(CreateQuery(name, reading.part.query)),
        digest=digest,
        columns=stored_columns(reading.part.query, reading.part.canonical),
        start_at=reading.start,
        # What replaces another is told from it by its rows, and they may be equal.
        equal_to=None
        if again
        else _equal_query(index, upstream, reading.part.signature, reading.start),
    )
    return NewPartialJoin(
        query,
        upstream,
        index.unit(upstream).version,
        None if reading.relaxed is None else reading.relaxed_text,
        start_cursor(upstream, earlier_start(catalog.cursor(upstream, "start"), reading.start)),
    )


def _record_reading(index: UnitIndex, reading: JoinReading, partial_join: NewPartialJoin) -> None:
    """Record that a unit has one more reader, and what it computes for it."""
    operator = reading.relaxed or index.graph[reading.unit_id].operator
    index.record_change(reading.unit_id, operator, partial_join.definition)


def start_cursor(unit_id: str, start: int | None) -> dict[tuple[str, str], int]:
    return {} if start is None else {(unit_id, "start"): start}


def earlier_start(unit_start: int | None, start: int | None) -> int | None:
    """The start that a unit needs for a query; None if it starts early enough."""
    if unit_start is None or (start is not None and start >= unit_start):
        return None
    return FOREVER_AGO if start is None else start


def _joining_note(unit_id: str, signature: QuerySignature, assignment: UnitAssignment) -> Json:
    """Why a query joined a unit, which `explain` shows."""
    if isinstance(assignment.choice, SharingChoice):
        return _assignment_note(unit_id, signature, assignment.choice)
    return {"unit": unit_id, "relation": "beside" if assignment.equal_to is None else "equal"}


def _assignment_note(
    unit_id: str, signature: QuerySignature, choice: SharingChoice | None, sharing: str = "all"
) -> Json:
    """The reasons for an assignment, which `explain` shows."""
    if choice is None:
        if signature.kind is SharingKind.EXACT:
            return None
        relation = "apart" if sharing == "all" else f"new with sharing {sharing}"
        return {"unit": unit_id, "relation": relation}
    relation = "new" if sharing == "all" else f"new with sharing {sharing}"
    note = {
        "unit": unit_id,
        "relation": relation if choice.containment is None else choice.containment.value,
        "relaxed": list(choice.changes),
        "added": choice.added_load,
        "alone": choice.standalone_load,
        "alternatives": [[other.plan, other.load] for other in choice.alternatives],
    }
    return {**note, "revisit": True} if choice.revisit else note


def drop_query(catalog: Catalog, name: str) -> list[str]:
    """Drop a query; returns the units that were dropped with it. Raises CatalogError if there is no
    such query."""
    query = catalog.query(name)
    dropped_units = catalog.drop_query(name)
    # The queries that are left may all be paused or finished: then the unit stops too.
    if query is not None and query.unit_id not in dropped_units:
        update_unit_state(catalog, query.unit_id)
    return dropped_units


def pause_query(catalog: Catalog, name: str) -> None:
    """Pause a query; its unit stops when all of its queries are paused, and keeps its cursors."""
    catalog.set_query_state(name, "paused")
    _update_unit_of(catalog, name)


def resume_query(catalog: Catalog, name: str) -> None:
    """Resume a query, and its unit from its cursors. If the unit was parked, all queries that were
    parked with it are resumed: in its unit, in those that it reads, and in those that read it."""
    before = catalog.query(name)
    catalog.set_query_state(name, "running")
    unit = None if before is None else catalog.unit(before.unit_id)
    if before is None or unit is None:
        return
    if unit.state == "parked":
        reading = [row for row in catalog.units() if unit_log(unit.id) in row.inputs]
        for affected in (*upstream_units(catalog, unit), unit, *reading):
            for query in catalog.subscribers(affected.id):
                if query.state == "parked":
                    catalog.set_query_state(query.name, "running")
            update_unit_state(catalog, affected.id)
    update_unit_state(catalog, unit.id)


def _update_unit_of(catalog: Catalog, name: str) -> None:
    row = catalog.query(name)
    if row is not None:
        update_unit_state(catalog, row.unit_id)


def _with_start_and_end(
    catalog: Catalog, plan: Plan, start: Start | None, query: NewQuery
) -> NewQuery:
    """A query with its start, and if it has a lifetime its end, in event time."""
    begin = _start_time(catalog, plan, start)
    end = None if query.lifetime is None or begin is None else begin + query.lifetime
    return replace(query, start_at=begin, end_at=end)


def _start_time(catalog: Catalog, plan: Plan, start: Start | None) -> int | None:
    """The query's start in event time; None for all of the input."""
    if start is not None and start.kind == "EARLIEST":
        return None
    if start is not None and start.micros is not None:
        return start.micros
    names = {scan.stream.lower() for _, scan in plan.scans}
    # While a stream has no watermark, there is no time that all have reached: the query reads all
    # input.
    marks = [row.watermark for row in catalog.streams(names)]
    watermarks = [mark for mark in marks if mark is not None]
    return min(watermarks) if watermarks and len(watermarks) == len(names) else None


def unit_inputs(canonical: CanonicalQuery) -> tuple[str, ...]:
    inputs = []
    for node in walk_relations(canonical.query.root):
        if isinstance(node, Scan):
            inputs.append(stream_log(node.stream))
        elif hasattr(node, "table"):
            inputs.append(table_input(node.table))
    return tuple(dict.fromkeys(inputs))


def describe_source(statement: CreateStream | CreateTable) -> str:
    """Where a stream or table reads from, in a few words."""
    source = statement.source
    return "client" if source is None else describe_connector(source.kind, dict(source.options))


def _stored_sink(sink: Connector | None) -> object:
    if sink is None or sink.kind == "none":
        return None
    return {"kind": sink.kind, "options": dict(sink.options)}
