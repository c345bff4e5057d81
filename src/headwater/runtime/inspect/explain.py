"""Where a query runs and why: `headwater explain NAME`, read from the catalog alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.algebra.canonical import CanonicalQuery, canonicalize
from headwater.cql import CreateQuery, parse, tree
from headwater.reuse import QuerySignature, SharingKind, minimal_operator, signature_of
from headwater.reuse.describe import (
    count_noun,
    describe_bounds,
    describe_lanes,
    describe_operator,
    describe_shape,
    describe_terms,
)
from headwater.reuse.group_subscribers import GroupSubscribers
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.operator import Operator
from headwater.reuse.relation_subscribers import RelationSubscribers
from headwater.runtime.catalog import (
    Catalog,
    Json,
    QueryRow,
    UnitRow,
    is_log,
    requesting_unit,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.compile import Lifetimes, compile_query
from headwater.runtime.compile.lifetimes.describe import describe_steps
from headwater.runtime.compile.plan import Plan
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.inspect.loads import LoadView, describe_load, format_load
from headwater.runtime.inspect.views import JsonRecord, to_plain
from headwater.runtime.lifecycle import input_streams, plannable_queries, upstream_units
from headwater.runtime.results.subscribers import SUBSCRIBERS, has_rows_of, served_keys

if TYPE_CHECKING:
    from headwater.runtime.inspect.sites import UnitLocation

MAX_NAMED = 5
"""How many of the queries that share a unit are named."""

MAX_SHAPED_QUERIES = 500
"""Lanes and shapes are computed from all queries of a unit; for units with more than this, they are not
shown."""

RELATIONS = {
    "new": "no running operator could serve it for less: new operator",
    "new with sharing equal": "sharing was set to equal, and no equal query ran: new operator",
    "new with sharing none": "sharing was set to none: new operator",
    "equal": "the operator emitted exactly its rows already",
    "contained": "the operator emitted its rows already, and more",
    "overlapping": "the operator was relaxed for it",
    "moved": "moved to a unit of its own from one that failed",
    "moved apart": "moved to a unit of its own, as that costs less",
    "exact": "shares with equal queries only",
    "apart": "no running operator could compute it beside its own queries: new operator",
    "beside": "computed beside the other queries of an operator that reads its sources",
    None: "why is no longer recorded",
}


@dataclass(frozen=True)
class UnitSummary:
    """A unit, some of the queries that it computes, and how many it computes besides those."""

    unit: str
    queries: tuple[str, ...]
    others: int


@dataclass(frozen=True)
class OperatorView:
    """The operator that the next step of a unit computes, line by line, the lanes in which it is
    computed, its shapes, and what one query keeps of its rows; None where that is not known or there is
    nothing to say. `waits_for` is the unit of which more rows are awaited before all queries are served.
    """

    operator: tuple[str, ...] | None = None
    lanes: tuple[str, ...] | None = None
    shapes: tuple[str, ...] | None = None
    part: str | None = None
    load: LoadView | None = None
    waits_for: str | None = None


@dataclass(frozen=True)
class Placement:
    """A query with its unit, the queries that share the unit, how it was assigned to it, and its part
    of the unit's rows.

    `relation` is a key of RELATIONS. `added` and `alone` were estimated when the query was submitted:
    the load that it added, and the load that it would have had in a unit of its own; `alternatives` are the
    next best plans with what they would have added, and `revisit` says that the rate of a stream was not
    known, so that the decision was careful and should be made again. `reads` are the
    units whose rows its unit reads, `read_by` those that read the rows of its unit. `waits_for` is the unit
    that is to emit more rows before the unit can serve all its queries. `rewired` says why
    the unit reads something else than at first. `tables` has the version of each table that the last
    step read. `load` is that of the whole unit as it is now. `steps` says what a step reads and computes again,
    of a query that is computed by the lifetimes of its rows.
    """

    query: str
    state: str
    unit: str
    shared_with: tuple[str, ...]
    others: int
    tree: tuple[str, ...]
    relation: str | None
    relaxed: tuple[str, ...]
    added: float | None
    alone: float | None
    alternatives: tuple[tuple[str, float], ...]
    revisit: bool
    operator: tuple[str, ...] | None
    lanes: tuple[str, ...] | None
    shapes: tuple[str, ...] | None
    part: str | None
    load: LoadView | None
    reads: tuple[UnitSummary, ...]
    read_by: tuple[UnitSummary, ...]
    waits_for: str | None
    rewired: str | None
    tables: Mapping[str, int]
    steps: tuple[str, ...]
    location: UnitLocation | None

    def as_json(self) -> JsonRecord:
        record: JsonRecord = to_plain(self)
        record["place"] = record.pop("location")
        return record


def describe_placement(catalog: Catalog, query: QueryRow) -> Placement:
    """Where a query runs and why."""
    definitions = Definitions(catalog)
    (statement,) = parse(query.definition, definitions.namespace)
    assert isinstance(statement, CreateQuery)
    canonical = canonicalize(statement.query)
    note = _assignment_note(catalog, query)
    signature = signature_of(canonical)
    unit = catalog.unit(query.unit_id)
    if unit is not None and unit.state == "dropped":
        unit = None
    sharing = () if unit is None else _other_queries(catalog, unit, query.name)
    shown = (
        OperatorView()
        if unit is None
        else _describe_operator(catalog, definitions, unit, query, signature)
    )
    return Placement(
        query=query.spelled,
        state=query.state,
        unit=query.unit_id,
        shared_with=sharing[:MAX_NAMED],
        others=len(sharing),
        tree=tuple(tree(canonical.query)),
        relation="exact" if signature.kind is SharingKind.EXACT else note.get("relation"),
        relaxed=tuple(note.get("relaxed", ())),
        added=note.get("added"),
        alone=note.get("alone"),
        alternatives=tuple((plan, load) for plan, load in note.get("alternatives", ())),
        revisit=bool(note.get("revisit")),
        operator=shown.operator,
        lanes=shown.lanes,
        shapes=shown.shapes,
        part=shown.part,
        load=shown.load,
        reads=() if unit is None else _summarize(catalog, upstream_units(catalog, unit)),
        read_by=() if unit is None else _summarize(catalog, _reading_units(catalog, unit)),
        waits_for=shown.waits_for,
        rewired=None if unit is None else _rewiring_reason(catalog, unit),
        tables=_table_versions(catalog, query),
        steps=_describe_steps(canonical),
        location=_location(catalog, definitions, query),
    )


def _describe_steps(canonical: CanonicalQuery) -> tuple[str, ...]:
    plan = compile_query(canonical)
    return tuple(describe_steps(plan)) if isinstance(plan, Lifetimes) else ()


def _location(catalog: Catalog, definitions: Definitions, query: QueryRow) -> UnitLocation | None:
    """The site of a query's unit and what the unit uses there; None where there are no sites."""
    unit = catalog.unit(query.unit_id)
    if unit is None or current_deployment(catalog) is None:
        return None
    # Only a state with sites needs the planner, which is slow to load.
    from headwater.runtime.inspect.sites import locate_unit

    return locate_unit(catalog, definitions, unit)


def _assignment_note(catalog: Catalog, query: QueryRow) -> Mapping[str, Json]:
    """What was recorded when the query was assigned to the unit that it is in."""
    for event in catalog.events(kind="query placed", subject=query.name, limit=1):
        if event.detail["unit"] == query.unit_id:
            return dict(event.detail)
    for event in catalog.events(kind="query moved", subject=query.name, limit=1):
        if event.detail["unit"] == query.unit_id:
            return {"relation": "moved apart" if "saves" in event.detail else "moved"}
    return {}


def _other_queries(catalog: Catalog, unit: UnitRow, excluding: str = "") -> tuple[str, ...]:
    """The queries of users that a unit computes, but for one: those that may still get rows."""
    planned = plannable_queries(catalog.subscribers(unit.id), input_streams(catalog, unit))
    return tuple(q.spelled for q in planned if not q.is_hidden and q.name != excluding)


def _describe_operator(
    catalog: Catalog,
    definitions: Definitions,
    unit: UnitRow,
    query: QueryRow,
    signature: QuerySignature,
) -> OperatorView:
    """The operator of a unit, and what a query with that signature keeps of its rows, if it has any."""
    planner = UnitPlanner(definitions)
    unit = planner.ensure_definition(catalog, unit)
    queries = plannable_queries(catalog.subscribers(unit.id), input_streams(catalog, unit))
    if not queries or signature.kind is SharingKind.EXACT:
        return OperatorView()
    _, awaited = catalog.partial_joins(unit.id)
    if awaited is not None:
        unit, queries = _while_waiting(catalog, unit, queries, awaited)
    if signature.kind is SharingKind.RELATION:
        beside = _next_plan(catalog, planner, unit, queries)
        return OperatorView(tuple(_describe_statements(beside, query)))
    if len(queries) > MAX_SHAPED_QUERIES:
        operator, plan = planner.operator(unit), None
    else:
        plan = _next_plan(catalog, planner, unit, queries)
        operator = _operator_of(plan, planner, queries)
    assert operator is not None
    lines = tuple(describe_operator(operator))
    load = describe_load(catalog, planner, unit, operator)
    waits_for = None if awaited is None or unit.definition else awaited.unit_id
    if signature.kind is not SharingKind.JOIN:
        return OperatorView(lines, load=load)
    lanes = shapes = None
    if plan is not None:
        subscribers = plan.subscribers or JoinSubscribers(operator, planner.signatures(queries[:1]))
        assert isinstance(subscribers, JoinSubscribers)
        lanes = tuple(describe_lanes(subscribers.lanes, operator))
        shapes = tuple(describe_shape(shape, operator.sources) for shape in subscribers.shapes)
    part = None
    if query.name in {served.name for served in queries}:
        bounds = JoinSubscribers(operator, (signature,)).residual_bounds(signature)
        part = describe_bounds(bounds, operator.sources)
    return OperatorView(lines, lanes, shapes, part, load, waits_for)


def _describe_statements(plan: Plan, query: QueryRow) -> Iterator[str]:
    """What a unit computes beside each other, and in which statement a query is."""
    names = sorted({*(s.stream for _, s in plan.scans), *(t.table for _, t in plan.tables)})
    subscribers = plan.subscribers
    if not isinstance(subscribers, RelationSubscribers):
        yield f"reads {', '.join(names)} for this query alone"
        return
    statements = subscribers.statements
    number = len({signature.digest for signature in subscribers.signatures})
    yield (
        f"reads {', '.join(names)} once for {count_noun(number, 'different query', 'different queries')}"
        f" in {count_noun(len(statements), 'statement', 'statements')}"
    )
    own = next((s for s in statements if query.result_key in s.digests), None)
    if own is None:
        return
    others = len(own.digests) - 1
    if not others:
        yield "the statement of this query serves no other one"
        return
    terms = ", ".join(describe_terms(own.family.terms, own.family.query.root))
    differ = f"they differ in {terms}" if terms else "they show other columns"
    yield f"its statement serves {count_noun(others, 'other query', 'other queries')}; {differ}"


def _while_waiting(
    catalog: Catalog, unit: UnitRow, queries: tuple[QueryRow, ...], awaited: QueryRow
) -> tuple[UnitRow, tuple[QueryRow, ...]]:
    """A unit that waits for more rows of another, with the queries that it serves until then; without a
    definition, as it computes only what these need."""
    served = served_keys(catalog, unit)
    still_served = tuple(query for query in queries if query.result_key in served)
    if not still_served or has_rows_of(catalog, unit, awaited):
        return unit, queries
    return replace(unit, definition=""), still_served


def _next_plan(
    catalog: Catalog, planner: UnitPlanner, unit: UnitRow, queries: Sequence[QueryRow]
) -> Plan:
    """The plan by which the next step of a unit is made."""
    once_shared = catalog.cursor(unit.id, SUBSCRIBERS) is not None
    partial_query = None
    if any(name.startswith("unit:") for name in unit.inputs):
        read, awaited = catalog.partial_joins(unit.id)
        partial_query = awaited if awaited is not None and unit.definition else read
    return planner.plan(unit, queries, once_shared, None, partial_query)


def _operator_of(plan: Plan, planner: UnitPlanner, queries: Sequence[QueryRow]) -> Operator:
    """What a plan computes; one that does not distinguish queries has the rows of one of them."""
    if isinstance(plan.subscribers, JoinSubscribers | GroupSubscribers):
        return plan.subscribers.operator
    return minimal_operator(planner.signature(queries[0]))


def _reading_units(catalog: Catalog, unit: UnitRow) -> list[UnitRow]:
    """The units that read the rows of a unit: each has a hidden query there that carries its id, but
    one that has only just subscribed still reads streams."""
    ids = dict.fromkeys(requesting_unit(name) for name in catalog.hidden_subscribers(unit.id))
    rows = (catalog.unit(reader) for reader in ids if reader is not None)
    return [row for row in rows if row is not None and unit_log(unit.id) in row.inputs]


def _rewiring_reason(catalog: Catalog, unit: UnitRow) -> str | None:
    """Why a unit was made to read what it reads, when it was changed last; None if it never was."""
    for event in catalog.events(kind="unit rewired", subject=unit.id, limit=1):
        rows = any(name.startswith("unit:") for name in event.detail["to"])
        return f"to {'rows' if rows else 'its streams again'}: {event.detail['reason']}"
    return None


def _table_versions(catalog: Catalog, query: QueryRow) -> dict[str, int]:
    """The versions of the tables that the last step of a query's unit has read."""
    cursors = catalog.cursors(query.unit_id)
    at = {name.partition(":")[2]: read for name, read in cursors.items() if not is_log(name)}
    return {name: read["version"] for name, read in sorted(at.items())}


def _summarize(catalog: Catalog, units: Iterable[UnitRow]) -> tuple[UnitSummary, ...]:
    served = ((unit.id, _other_queries(catalog, unit)) for unit in units)
    return tuple(UnitSummary(id, names[:MAX_NAMED], len(names[MAX_NAMED:])) for id, names in served)


# ---- for people


def format_placement(placement: Placement) -> list[str]:
    """The same as text."""
    unit = f"in unit {placement.unit}{_format_sharing(placement)}"
    text = [f"{placement.query}: {placement.state}, {unit}"]
    text += [f"  {line}" for line in placement.tree]
    text += _with_title("assigned", [RELATIONS[placement.relation], *_format_cost(placement)])
    text += _with_title("relaxed", placement.relaxed)
    text += _with_title("site", _format_location(placement.location) if placement.location else ())
    text += _with_title("operator", placement.operator or ())
    text += _with_title("", placement.lanes or ())
    text += _with_title("load", format_load(placement.load) if placement.load else ())
    text += _with_title("steps", placement.steps)
    text += _with_title("tables", [f"{name}, version {n}" for name, n in placement.tables.items()])
    text += _with_title(
        "reads", [f"the rows of {_format_unit(other)}" for other in placement.reads]
    )
    if placement.waits_for is not None:
        line = (
            f"for more rows of unit {placement.waits_for}; until then only for some of its queries"
        )
        text += _with_title("waits", [line])
    text += _with_title("read by", map(_format_unit, placement.read_by))
    text += _with_title("rewired", () if placement.rewired is None else [placement.rewired])
    text += _with_title("shapes", placement.shapes or ())
    return text + _with_title("keeps", () if placement.part is None else [placement.part])


def _format_sharing(placement: Placement) -> str:
    if not placement.others:
        return ", not shared"
    more = placement.others - len(placement.shared_with)
    rest = f" and {count_noun(more, 'other', 'others')}" if more else ""
    return f", shared with {', '.join(placement.shared_with)}{rest}"


def _format_unit(unit: UnitSummary) -> str:
    """A unit, and the queries that it serves."""
    more = f" and {count_noun(unit.others, 'other', 'others')}" if unit.others else ""
    serves = f", which serves {', '.join(unit.queries)}{more}" if unit.queries else ""
    return f"unit {unit.unit}{serves}"


def _format_cost(placement: Placement) -> list[str]:
    """The load that was estimated when the query was submitted."""
    if placement.alone is None:
        return []
    added = f"{placement.added:.4f}" if placement.added else "nothing"
    lines = [f"estimated load, in cores: adds {added}, alone {placement.alone:.4f}"]
    lines += [f"instead of {plan}: adds {load:.4f}" for plan, load in placement.alternatives]
    if placement.revisit:
        lines.append("decided with care, as no rate was known: to be looked at again")
    return lines


def _format_location(location: UnitLocation) -> list[str]:
    """Where the unit runs, where its inputs come from, and what it uses, as estimated and measured."""
    if location.site is None:
        return ["none at present: no living site can get all that it reads"]
    text = [location.site, *(f"reads {input_text}" for input_text in location.reads)]
    for name, usage in (("estimated", location.estimated), ("measured", location.measured)):
        if usage is not None:
            text.append(
                f"{name}: {usage.cpu:.3f} cores, {usage.memory:,.0f} bytes of memory, "
                f"emits {usage.rate:,.0f} bytes a second"
            )
    return text


def _with_title(title: str, texts: Iterable[str]) -> list[str]:
    return [f"  {title if n == 0 else '':<9} {line}" for n, line in enumerate(texts)]
