"""Asks for hand-overs: which unit is to read the rows of which other, from when, or its streams again.

Whoever decides that it pays (`revisit`) calls these functions; an engine carries it out. A hand-over that
could lose or double a row of some query, or that nothing here can carry out, is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from headwater.algebra.canonical import canonicalize
from headwater.algebra.nodes import Query, TableScan
from headwater.cql import CreateQuery, unparse
from headwater.errors import HeadwaterError
from headwater.reuse import (
    Operator,
    QuerySignature,
    SharingKind,
    minimal_operator,
    partial_join_queries,
    relax,
    signature_of,
)
from headwater.reuse.definition import operator_definition, operator_signature
from headwater.reuse.operator import window_reach
from headwater.runtime.catalog import (
    Catalog,
    Json,
    LogPosition,
    NewPartialJoin,
    NewQuery,
    NewUnit,
    UnitRow,
    is_log,
    partial_join_name,
    requesting_unit,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import current_deployment
from headwater.runtime.engine.alignment import rows_needed_from
from headwater.runtime.submit.statements import (
    earlier_start,
    start_cursor,
    stored_columns,
    unit_inputs,
)
from headwater.runtime.submit.unit_index import (
    UnitIndex,
    reads_partial_join,
    starts_by,
    unit_index,
)


class HandOverRefused(HeadwaterError):
    """A hand-over is not possible; the message says why."""


def request_rewire(
    catalog: Catalog,
    definitions: Definitions,
    unit_id: str,
    source_id: str,
    reason: str,
    detail: Json = None,
) -> None:
    """Ask that a unit read what another one joins already, which is relaxed if it has to be.

    Raises HandOverRefused, and CommitConflict if one of the units has changed meanwhile.
    """
    index = unit_index(catalog, definitions)
    unit, operator = _reader(index, unit_id)
    source = _running_unit(index, source_id)
    running = index.unit_planner.operator(source)
    if reads_partial_join(source) or _is_to_read_rows(catalog, source_id):
        raise HandOverRefused(f"unit {source_id} itself reads the rows of a unit")
    found = None if running is None else matching_part(operator, running)
    if running is None or found is None:
        raise HandOverRefused(f"unit {source_id} joins no part of what unit {unit_id} joins")
    part, signature = found
    start = _rows_from(catalog, unit, signature)
    source_start = catalog.cursor(source_id, "start")
    # An earlier begin must not change the results of the queries that it has.
    if not starts_by(source_start, start) and not index.subscribers_look_back(source):
        raise HandOverRefused(f"unit {source_id} cannot begin earlier than it did")
    relaxed = relax(running, signature)
    definition = None if relaxed is running else operator_definition(relaxed, signature.output)
    cursors = start_cursor(source_id, earlier_start(source_start, start))
    query = _hidden_query(unit_id, part, start)
    partial_join = NewPartialJoin(query, source_id, source.version, definition, cursors)
    catalog.request_rewire(unit, partial_join, reason, detail)


def request_split(
    catalog: Catalog,
    definitions: Definitions,
    unit_id: str,
    part: Query,
    reason: str,
    detail: Json = None,
) -> str:
    """Ask that a unit read one of its partial joins from a new unit; returns the id of that.

    Raises as `request_rewire` does.
    """
    index = unit_index(catalog, definitions)
    unit, operator = _reader(index, unit_id)
    canonical = canonicalize(part)
    signature = signature_of(canonical)
    if matching_part(operator, minimal_operator(signature)) is None:
        raise HandOverRefused(f"that is no part of what unit {unit_id} joins")
    definition = operator_definition(minimal_operator(signature), signature.output)
    new = NewUnit(canonical.digest, definition, unit_inputs(canonical))
    start = _rows_from(catalog, unit, signature)
    partial_join = NewPartialJoin(
        _hidden_query(unit_id, part, start), new.id, new.version, None, start_cursor(new.id, start)
    )
    catalog.request_rewire(unit, partial_join, reason, detail, new)
    return new.id


def request_unshare(
    catalog: Catalog,
    definitions: Definitions,
    unit_id: str,
    reason: str,
    detail: Json = None,
) -> None:
    """Ask that a unit which reads the rows of another read its streams itself again. Raises as
    `request_rewire` does."""
    index = unit_index(catalog, definitions)
    unit = _running_unit(index, unit_id)
    if not reads_partial_join(unit):
        raise HandOverRefused(f"unit {unit_id} reads the rows of no unit")
    partial_query, awaited = catalog.partial_joins(unit_id)
    assert partial_query is not None
    if awaited is not None:
        raise HandOverRefused(f"unit {unit_id} waits for more rows of the unit that it reads")
    if _has_table(index.unit_planner.signature(partial_query)):
        raise HandOverRefused(f"unit {unit_id} reads rows that were joined with a table of then")
    _check_single_site(catalog)
    catalog.request_unshare(unit, reason, detail)


def matching_part(operator: Operator, running: Operator) -> Part | None:
    """The part of a join that another computes, if it is relaxed; None if there is none."""
    return parts_of(operator).get(running.sharing_key)


Part = tuple[Query, QuerySignature]
"""A join of some sources of another, as a query and its signature."""


@lru_cache(maxsize=4096)
def parts_of(operator: Operator) -> Mapping[str, Part]:
    """The parts of a join that have no tables, by sharing key, larger ones first."""
    parts: dict[str, Part] = {}
    for query in partial_join_queries(operator_signature(operator)):
        signature = signature_of(canonicalize(query))
        if not _has_table(signature):
            parts.setdefault(signature.sharing_key, (query, signature))
    return parts


def _reader(index: UnitIndex, unit_id: str) -> tuple[UnitRow, Operator]:
    """A unit that could read the rows of another, and its operator."""
    catalog = index.catalog
    unit = _running_unit(index, unit_id)
    operator = index.unit_planner.operator(unit)
    if operator is None or operator.kind is not SharingKind.JOIN:
        raise HandOverRefused(f"unit {unit_id} does not only join")
    if reads_partial_join(unit):
        raise HandOverRefused(f"unit {unit_id} reads the rows of a unit already")
    if any(requesting_unit(name) for name in catalog.hidden_subscribers(unit_id)):
        raise HandOverRefused(f"unit {unit_id} is itself read by a unit")
    # One that looks back further than its streams keep depends on when it began, as no other does.
    if not index.subscribers_look_back(unit):
        raise HandOverRefused(f"unit {unit_id} looks back further than its streams keep")
    _check_single_site(catalog)
    return unit, operator


def _running_unit(index: UnitIndex, unit_id: str) -> UnitRow:
    """A unit that runs, with its definition."""
    unit = index.catalog.unit(unit_id)
    if unit is None or unit.state != "running":
        raise HandOverRefused(f"unit {unit_id} does not run")
    return index.unit_planner.ensure_definition(index.catalog, unit)


def _check_single_site(catalog: Catalog) -> None:
    if current_deployment(catalog) is not None:
        raise HandOverRefused(
            "several sites run this state: what a unit reads is planned with them"
        )


def _is_to_read_rows(catalog: Catalog, unit_id: str) -> bool:
    query = catalog.query(partial_join_name(unit_id))
    return query is not None and query.state != "dropped"


def _has_table(signature: QuerySignature) -> bool:
    """Whether a table is joined: its rows are those of the step that reads it, and that would differ."""
    return any(isinstance(source, TableScan) for source in signature.content.sources)


def _rows_from(catalog: Catalog, unit: UnitRow, part: QuerySignature) -> int | None:
    """The time after which a unit needs the rows of a partial join, from where it stands."""
    cursors = catalog.cursors(unit.id)
    marks = {
        name: LogPosition.from_json(cursors.get(name)).watermark
        for name in unit.inputs
        if is_log(name)
    }
    return rows_needed_from(marks, window_reach(part))


def _hidden_query(unit_id: str, part: Query, start: int | None) -> NewQuery:
    """The query by which a unit subscribes to a partial join.

    It is equal to none that runs: the rows of such a one may begin later, and some may have expired.
    """
    name, canonical = partial_join_name(unit_id), canonicalize(part)
    return NewQuery(
        name=name,
        definition=unparse(CreateQuery(name, part)),
        digest=canonical.digest,
        columns=stored_columns(part, canonical),
        start_at=start,
    )
