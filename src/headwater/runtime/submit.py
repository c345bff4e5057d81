"""Statements carried out on a catalog: declaring, submitting, dropping, pausing.

Nothing here needs Spark, so any process that reaches the catalog may submit to a running engine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from headwater.algebra.canonical import Canonical, canonicalize
from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Query, Scan, relations
from headwater.cql import Statement, unparse
from headwater.cql.statements import (
    Connector,
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropStream,
    DropTable,
    EndStream,
    PauseQuery,
    RestartStream,
    ResumeQuery,
    RewindStream,
    SetOption,
    Start,
)
from headwater.errors import HeadwaterError, Overtaken
from headwater.reuse import Form, Kind, form_of
from headwater.reuse.decide import Choice
from headwater.reuse.definition import definition
from headwater.reuse.form import leaves_of, source_name
from headwater.runtime.catalog import (
    Catalog,
    Json,
    NewPart,
    NewQuery,
    NewUnit,
    QueryRow,
    UnitRow,
    in_words,
    part_name,
    stream_log,
    table_input,
    unit_log,
)
from headwater.runtime.compile import Plan, compiled
from headwater.runtime.definitions import Definitions
from headwater.runtime.lifecycle import above, restart, running_equal, settle
from headwater.runtime.limits import Limits, checked
from headwater.runtime.placing import FOREVER_AGO, Built, Places, places, relaxed_definition
from headwater.runtime.sharing import looks_back
from headwater.runtime.sites.deployment import deployed

TRIES = 100
"""How often a query is placed anew because its unit went on meanwhile."""


def carry_out(
    catalog: Catalog,
    definitions: Definitions,
    statement: Statement,
    canonical: Canonical | None = None,
) -> str:
    """Do what a statement says; returns one sentence about it. The canonical form of a query is
    made unless it is given. Raises HeadwaterError."""
    match statement:
        case CreateStream():
            stream = statement.stream
            catalog.declare_stream(
                stream.name,
                unparse(statement),
                lateness=stream.lateness,
                keep=stream.keep,
                source=source_words(statement),
            )
            return f"stream {stream.name} declared"
        case CreateTable():
            text, source = unparse(statement), source_words(statement)
            catalog.declare_table(statement.table.name, text, source=source)
            return f"table {statement.table.name} declared"
        case CreateQuery():
            row = submit(catalog, definitions, statement, canonical)
            with catalog.snapshot():
                others, number = catalog.companions(row, 3)
                where = _where(catalog, row.unit_id)
            also = f", shared with {', '.join(others)}" if others else ""
            more = f" and {number - len(others):,} more" if number > len(others) else ""
            return f"query {row.spelled} runs in unit {row.unit_id}{where}{also}{more}"
        case DropQuery():
            drop(catalog, statement.name)
            return f"query {statement.name} dropped"
        case DropStream():
            catalog.drop_stream(statement.name)
            return f"stream {statement.name} dropped"
        case DropTable():
            catalog.drop_table(statement.name)
            return f"table {statement.name} dropped"
        case PauseQuery():
            pause(catalog, statement.name)
            return f"query {statement.name} paused"
        case ResumeQuery():
            resume(catalog, statement.name)
            return f"query {statement.name} runs again"
        case EndStream():
            catalog.end_stream(statement.name)
            return f"stream {statement.name} has ended"
        case RewindStream():
            from headwater.runtime.rewind import rewind

            return rewind(catalog, definitions, statement)
        case RestartStream():
            restart(catalog, statement.name)
            return f"stream {statement.name} reads on from what its source has now"
        case SetOption():
            return _set(catalog, statement)
    raise HeadwaterError(f"{type(statement).__name__} is not a statement to carry out")


def _where(catalog: Catalog, unit_id: str) -> str:
    """The site of a unit and what it is estimated to take there; nothing if there are no sites."""
    cpu = catalog.statistic(unit_id, "estimated_cpu")
    site = None if cpu is None else catalog.assignment().owners.get(unit_log(unit_id))
    if site is None or cpu is None:
        return ""
    return f" at site {site}, which takes {cpu.value:.2g} of a core there"


def _set(catalog: Catalog, statement: SetOption) -> str:
    if statement.value is None:
        catalog.set_option(statement.name, None)
        return f"{statement.name} is as it was, {getattr(Limits(), statement.name)}"
    value = checked(statement.name, statement.value)
    catalog.set_option(statement.name, str(value))
    return f"{statement.name} = {value}"


def submit(
    catalog: Catalog,
    definitions: Definitions,
    statement: CreateQuery,
    canonical: Canonical | None = None,
    definition: str | None = None,
) -> QueryRow:
    """Accept a query: into the unit that answers it already, or one of its own. It is kept by its
    definition, which is the statement unless it is given."""
    canonical = canonical or canonicalize(statement.query)
    query = NewQuery(
        name=statement.name,
        definition=definition or unparse(statement),
        digest=canonical.digest,
        lifetime=statement.lifetime,
        keep=statement.keep,
        columns=_columns(statement.query, canonical),
        sink=_sink(statement.sink),
    )
    plan, form = compiled(canonical), form_of(canonical)
    for _ in range(TRIES):
        with suppress(Overtaken):
            places(catalog, definitions).refresh()
            with catalog.snapshot():
                starting = _starting(catalog, plan, statement.start, query)
                place = _place(catalog, definitions, form, starting)
            if isinstance(place, Joining):
                return _joined(catalog, definitions, form, starting, place)
            return _founded(catalog, definitions, canonical, form, starting, place)
    raise HeadwaterError(f"{statement.name} was overtaken {TRIES} times by its unit; try again")


def _columns(query: Query, canonical: Canonical) -> Json:
    """The columns of a query as the catalog keeps them: name, place among the items, and type."""
    types = (str(column.type) for column in query.columns)
    return [[name, at, of] for (name, at), of in zip(canonical.columns, types, strict=True)]


@dataclass(frozen=True)
class Joining:
    """The unit that a query joins as it was seen, why, whether it has to begin earlier, and the name of
    a query with the same results; without one, it must not have told results of the query's time."""

    unit_id: str
    choice: Choice | str
    seen: UnitRow
    earlier: int | None
    equal_to: str | None
    untold: bool


def _place(
    catalog: Catalog, definitions: Definitions, form: Form, query: NewQuery
) -> Joining | Choice | None:
    """The unit that a query joins; or why it gets one of its own, if there was anything to choose."""
    known = places(catalog, definitions)
    choice = known.choose(form, query.start_at)
    unit_id = choice.name if isinstance(choice, Choice) else choice
    if choice is None or unit_id is None:
        assert not isinstance(choice, str)
        return choice
    earlier = _earlier(catalog.cursor(unit_id, "start"), query.start_at)
    equal_to = _equal_to(catalog, unit_id, form.digest)
    untold = form.kind is Kind.GROUP and equal_to is None
    return Joining(unit_id, choice, known.unit(unit_id), earlier, equal_to, untold)


def _equal_to(catalog: Catalog, unit_id: str, digest: str) -> str | None:
    """The first query of a unit that has the same results, if it still writes them."""
    unit = catalog.unit(unit_id)
    equal = [] if unit is None else running_equal(catalog, unit, digest)
    first = min(equal, key=lambda query: query.start_at or FOREVER_AGO, default=None)
    return None if first is None else first.name


def _founded(
    catalog: Catalog,
    definitions: Definitions,
    canonical: Canonical,
    form: Form,
    query: NewQuery,
    choice: Choice | None,
) -> QueryRow:
    """A query in a unit of its own, which may read what another one joins already."""
    known = places(catalog, definitions)
    operator = None if choice is None else definition(choice.operator, form.output)
    unit = NewUnit(canonical.digest, operator or unparse(canonical.query), _inputs(canonical))
    part = None
    if choice is not None and looks_back(form, _streams(definitions)):
        part = known.part(form, query.start_at, choice.alone)
    if part is not None:
        unit = replace(unit, inputs=_inputs_behind(part, form))
    newest: float | None = known.newest
    if (sites := deployed(catalog)) is not None:
        from headwater.runtime.sites.planning import Room

        room = Room(catalog, definitions, sites)
        if part is not None and (relaxed := relaxed_definition(part.choice, part.form)):
            room.widen(query.name, str(part.choice.name), relaxed)
        room.admit(query.name, unit)
        newest = None  # what was planned for it stands, whoever came meanwhile
    asked = None if part is None else _asked(catalog, known, part, unit)
    row = catalog.accept_query(
        replace(query, noted=_note(unit.id, choice)),
        unit,
        _started(unit.id, query.start_at),
        newest=newest if asked is None else None,
        part=asked,
    )
    if asked is not None:
        assert part is not None
        known.placed(asked.unit_id, part.choice, asked.definition)
    known.placed(unit.id, choice)
    return row


def _joined(
    catalog: Catalog, definitions: Definitions, form: Form, query: NewQuery, place: Joining
) -> QueryRow:
    """A query as one more of a unit that is there."""
    unit_id, choice = place.unit_id, place.choice
    relaxed = relaxed_definition(choice, form) if isinstance(choice, Choice) else None
    if relaxed is not None and (sites := deployed(catalog)) is not None:
        from headwater.runtime.sites.planning import Room

        Room(catalog, definitions, sites).widen(query.name, unit_id, relaxed)
    row = catalog.accept_query(
        replace(query, noted=_note(unit_id, choice), equal_to=place.equal_to),
        unit_id,
        _started(unit_id, place.earlier),
        relaxed,
        place.untold,
        None if relaxed is None else place.seen.version,
        seen=None if relaxed is not None else place.seen.definition,
    )
    places(catalog, definitions).placed(unit_id, choice, relaxed)
    return row


def _inputs_behind(part: Built, form: Form) -> tuple[str, ...]:
    """What is left to read for a query of which another unit joins a part: its rows, and the rest."""
    assert part.choice.name is not None
    joined = {source_name(source) for source in leaves_of(part.form.content)}
    rest = [s for s in leaves_of(form.content) if source_name(s) not in joined]
    logs = [stream_log(s.stream) if isinstance(s, Scan) else table_input(s.table) for s in rest]
    return (unit_log(part.choice.name), *dict.fromkeys(logs))


def _asked(catalog: Catalog, known: Places, part: Built, unit: NewUnit) -> NewPart:
    """What a new unit has another one join of what it needs."""
    assert part.choice.name is not None
    name, upstream = part_name(unit.id), part.choice.name
    query = NewQuery(
        name=name,
        definition=unparse(CreateQuery(name, part.query)),
        digest=part.canonical.digest,
        columns=_columns(part.query, part.canonical),
        start_at=part.start,
        equal_to=_equal_to(catalog, upstream, part.canonical.digest),
    )
    return NewPart(
        query,
        upstream,
        known.unit(upstream).version,
        relaxed_definition(part.choice, part.form),
        _started(upstream, _earlier(catalog.cursor(upstream, "start"), part.start)),
    )


def _streams(definitions: Definitions) -> dict[str, Stream]:
    return {name: declared.stream for name, declared in definitions.streams.items()}


def _started(unit_id: str, start: int | None) -> dict[tuple[str, str], int]:
    return {} if start is None else {(unit_id, "start"): start}


def _earlier(unit_start: int | None, start: int | None) -> int | None:
    """The start of a unit, if it has to be another."""
    if unit_start is None or (start is not None and start >= unit_start):
        return None
    return FOREVER_AGO if start is None else start


def _note(unit_id: str, choice: Choice | str | None) -> Json:
    """Why a query is where it is, for those who ask."""
    if not isinstance(choice, Choice):
        return None
    return {
        "unit": unit_id,
        "relation": "new" if choice.relation is None else choice.relation.value,
        "relaxed": list(choice.relaxed),
        "added": choice.added,
        "alone": choice.alone,
    }


def drop(catalog: Catalog, name: str) -> list[str]:
    """Drop a query; returns the units that went with it. Raises CatalogError if there is none."""
    known = catalog.query(name)
    gone = catalog.drop_query(name)
    if known is not None and known.unit_id not in gone:
        settle(catalog, known.unit_id)
    return gone


def pause(catalog: Catalog, name: str) -> None:
    """Pause a query; its unit rests when all of its queries do, and keeps its place."""
    catalog.set_query_state(name, "paused")
    _settle_unit_of(catalog, name)


def resume(catalog: Catalog, name: str) -> None:
    """Let a query run again, and its unit from where it was, also one that was parked: then with all
    that was parked with it, in its unit, in those that it reads, and in those that read it."""
    before = catalog.query(name)
    catalog.set_query_state(name, "running")
    unit = None if before is None else catalog.unit(before.unit_id)
    if before is None or unit is None:
        return
    if unit.state == "parked":
        reading = [row for row in catalog.units() if unit_log(unit.id) in row.inputs]
        for one in (*above(catalog, unit), unit, *reading):
            for query in catalog.members(one.id):
                if query.state == "parked":
                    catalog.set_query_state(query.name, "running")
            settle(catalog, one.id)
    settle(catalog, unit.id)


def _settle_unit_of(catalog: Catalog, name: str) -> None:
    row = catalog.query(name)
    if row is not None:
        settle(catalog, row.unit_id)


def _starting(catalog: Catalog, plan: Plan, start: Start | None, query: NewQuery) -> NewQuery:
    """A query with its start, and if it has a lifetime its end, in event time."""
    begin = _start(catalog, plan, start)
    end = None if query.lifetime is None or begin is None else begin + query.lifetime
    return replace(query, start_at=begin, end_at=end)


def _start(catalog: Catalog, plan: Plan, start: Start | None) -> int | None:
    """The query's start in event time; None for all of the input."""
    if start is not None and start.kind == "EARLIEST":
        return None
    if start is not None and start.micros is not None:
        return start.micros
    names = {scan.stream.lower() for _, scan in plan.scans}
    marks = [row.watermark for row in catalog.streams(names)]
    known = [mark for mark in marks if mark is not None]
    return min(known) if known and len(known) == len(names) else None


def _inputs(canonical: Canonical) -> tuple[str, ...]:
    found = []
    for node in relations(canonical.query.root):
        if isinstance(node, Scan):
            found.append(stream_log(node.stream))
        elif hasattr(node, "table"):
            found.append(table_input(node.table))
    return tuple(dict.fromkeys(found))


def source_words(statement: CreateStream | CreateTable) -> str:
    """Where a stream or table reads from, in a few words."""
    source = statement.source
    return "client" if source is None else in_words(source.kind, dict(source.options))


def _sink(sink: Connector | None) -> object:
    if sink is None or sink.kind == "none":
        return None
    return {"kind": sink.kind, "options": dict(sink.options)}
