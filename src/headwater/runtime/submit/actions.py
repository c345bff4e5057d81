"""What each statement does to a state: one record for each, which CONTRIBUTING.md says how to add.

A record says what can be checked of the statement by itself, what in a state, and how it is carried out;
`headwater check`, `submit`, `run` and `Headwater.execute` all go by it. How the statement is read and
written is the other half, in `headwater.cql.statement_syntax`; `register_statement` adds both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, NoReturn, TypeVar

from headwater.algebra.canonical import CanonicalQuery, canonicalize
from headwater.cql import unparse
from headwater.cql.statement_syntax import StatementSyntax, add_syntax, remove_syntax
from headwater.cql.statements import (
    BareQuery,
    CreateQuery,
    CreateStream,
    CreateTable,
    DropQuery,
    DropStream,
    DropTable,
    EndStream,
    Explain,
    PauseQuery,
    RestartStream,
    ResumeQuery,
    RewindStream,
    SetOption,
    Show,
    Statement,
)
from headwater.errors import HeadwaterError, suggest
from headwater.runtime.catalog import Catalog, unit_log
from headwater.runtime.catalog.declarations import still_read
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile import compile_query
from headwater.runtime.connectors.registry import check_sink, check_source, check_table
from headwater.runtime.lifecycle import restart_stream
from headwater.runtime.settings import Settings, parse_setting
from headwater.runtime.submit.statements import (
    describe_source,
    drop_query,
    pause_query,
    resume_query,
    submit,
)

S = TypeVar("S", bound=Statement)


@dataclass
class ScriptState:
    """The names of a state as a text finds them, and as its statements would leave them.

    They are read when a statement first asks: creating one query among ten thousand reads neither the
    other queries nor the declarations.
    """

    catalog: Catalog
    query_names: set[str] = field(default_factory=set)

    @cached_property
    def declarations(self) -> dict[str, str]:
        """Streams and tables by name, each as the statement that declares it."""
        return self.catalog.declarations()

    @cached_property
    def queries(self) -> dict[str, str]:
        """Of the queries that the text names, those that exist, each as its statement."""
        rows = self.catalog.queries(named=self.query_names)
        return {row.name: row.definition for row in rows}

    def require_declared(self, kind: str, name: str) -> None:
        """Raises HeadwaterError if there is no such stream or table."""
        _require(kind, name, self.declarations)

    def require_unread(self, name: str) -> None:
        """Raises HeadwaterError if queries read a stream or table that the text does not drop before."""
        readers = [
            reader
            for reader in self.catalog.readers(name)
            if reader.lower() not in self.query_names or reader.lower() in self.queries
        ]
        if readers:
            raise still_read(name, readers)

    def require_query(self, name: str) -> None:
        """Raises HeadwaterError if there is no such query."""
        if name.lower() not in self.queries:
            _require("query", name, {row.name: "" for row in self.catalog.queries()})


def _require(kind: str, name: str, existing: Mapping[str, str]) -> None:
    if name.lower() not in existing:
        raise HeadwaterError(f"there is no {kind} {name}; {suggest(name, existing)}")


@dataclass(frozen=True)
class StatementContext:
    """What a statement is carried out on; `canonical` is what `check` returned."""

    catalog: Catalog
    definitions: Definitions
    canonical: CanonicalQuery | None = None


def _check_nothing(_statement: Statement) -> None:
    return None


def _always_new(_statement: Statement, _state: ScriptState) -> bool:
    return True


@dataclass(frozen=True)
class StatementAction(Generic[S]):
    """What a statement does.

    `check` raises HeadwaterError if it could be carried out in no state, and returns the canonical form
    of a query. `prepare` raises it if that cannot be done in this state, and returns whether anything is
    left to do; it changes the names in the `ScriptState` as the statement would. `apply` does it and
    returns one sentence. `query_name` is the query that the statement is about. A statement with a source or a sink has it in the field `connector`, whose paths
    are made absolute and compared with the allowed ones.
    """

    type: type[S]
    apply: Callable[[StatementContext, S], str]
    prepare: Callable[[S, ScriptState], bool] = _always_new
    check: Callable[[S], CanonicalQuery | None] = _check_nothing
    query_name: Callable[[S], str] | None = None
    connector: str | None = None


# ---- declarations


def declared_name(statement: CreateStream | CreateTable | CreateQuery) -> str:
    """The name that a statement gives to what it creates."""
    if isinstance(statement, CreateStream):
        return statement.stream.name
    return statement.table.name if isinstance(statement, CreateTable) else statement.name


def _is_new(
    statement: CreateStream | CreateTable | CreateQuery, definitions_by_name: dict[str, str]
) -> bool:
    """Whether the name is new; raises HeadwaterError if it is declared as something else."""
    name, definition = declared_name(statement), unparse(statement)
    before = definitions_by_name.get(name.lower())
    definitions_by_name[name.lower()] = definition
    if before is not None and before != definition:
        kind = before.split(maxsplit=2)[1].lower()
        raise HeadwaterError(
            f"there is a {kind} {name} already, and it is not the same: "
            f"drop it first, or choose another name. It is\n\n{_indent(before)}\n\n"
            f"and the text says\n\n{_indent(definition)}"
        )
    return before is None


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _prepare_declaration(statement: CreateStream | CreateTable, state: ScriptState) -> bool:
    return _is_new(statement, state.declarations)


def _check_create_stream(statement: CreateStream) -> None:
    check_source(statement.source, statement.stream)


def _create_stream(context: StatementContext, statement: CreateStream) -> str:
    stream = statement.stream
    context.catalog.declare_stream(
        stream.name,
        unparse(statement),
        lateness=stream.lateness,
        keep=stream.keep,
        source=describe_source(statement),
    )
    return f"stream {stream.name} declared"


def _check_create_table(statement: CreateTable) -> None:
    check_table(statement.source)


def _create_table(context: StatementContext, statement: CreateTable) -> str:
    text, source = unparse(statement), describe_source(statement)
    context.catalog.declare_table(statement.table.name, text, source=source)
    return f"table {statement.table.name} declared"


def _prepare_drop(statement: DropStream | DropTable, state: ScriptState) -> bool:
    state.require_declared("stream or table", statement.name)
    state.require_unread(statement.name)
    del state.declarations[statement.name.lower()]
    return True


def _drop_stream(context: StatementContext, statement: DropStream) -> str:
    context.catalog.drop_stream(statement.name)
    return f"stream {statement.name} dropped"


def _drop_table(context: StatementContext, statement: DropTable) -> str:
    context.catalog.drop_table(statement.name)
    return f"table {statement.name} dropped"


# ---- streams


def _prepare_stream(
    statement: EndStream | RestartStream | RewindStream, state: ScriptState
) -> bool:
    state.require_declared("stream", statement.name)
    return True


def _end_stream(context: StatementContext, statement: EndStream) -> str:
    context.catalog.end_stream(statement.name)
    return f"stream {statement.name} has ended"


def _rewind_stream(context: StatementContext, statement: RewindStream) -> str:
    from headwater.runtime.submit.rewind import rewind  # loads pyarrow, which no other one needs

    return rewind(context.catalog, context.definitions, statement)


def _restart_stream(context: StatementContext, statement: RestartStream) -> str:
    restart_stream(context.catalog, statement.name)
    return f"stream {statement.name} reads on from what its source has now"


# ---- queries


def _check_create_query(statement: CreateQuery) -> CanonicalQuery:
    check_sink(statement.sink)
    try:
        canonical = canonicalize(statement.query)
        compile_query(canonical)
        return canonical
    except HeadwaterError as error:
        raise HeadwaterError(f"query {statement.name}: {error}") from error


def _prepare_create_query(statement: CreateQuery, state: ScriptState) -> bool:
    return _is_new(statement, state.queries)


def _create_query(context: StatementContext, statement: CreateQuery) -> str:
    catalog = context.catalog
    row = submit(catalog, context.definitions, statement, context.canonical)
    with catalog.snapshot():
        others, number = catalog.other_queries(row, 3)
        where = _site_phrase(catalog, row.unit_id)
    also = f", shared with {', '.join(others)}" if others else ""
    more = f" and {number - len(others):,} more" if number > len(others) else ""
    return f"query {row.spelled} runs in unit {row.unit_id}{where}{also}{more}"


def _site_phrase(catalog: Catalog, unit_id: str) -> str:
    """The site of a unit and what it is estimated to take there; nothing if there are no sites."""
    cpu = catalog.statistic(unit_id, "estimated_cpu")
    site = None if cpu is None else catalog.assignment().owners.get(unit_log(unit_id))
    if site is None or cpu is None:
        return ""
    return f" at site {site}, estimated load {cpu.value:.2g} cores"


def _prepare_drop_query(statement: DropQuery, state: ScriptState) -> bool:
    state.require_query(statement.name)
    del state.queries[statement.name.lower()]
    return True


def _drop_query(context: StatementContext, statement: DropQuery) -> str:
    drop_query(context.catalog, statement.name)
    return f"query {statement.name} dropped"


def _prepare_query(statement: PauseQuery | ResumeQuery, state: ScriptState) -> bool:
    state.require_query(statement.name)
    return True


def _pause_query(context: StatementContext, statement: PauseQuery) -> str:
    pause_query(context.catalog, statement.name)
    return f"query {statement.name} paused"


def _resume_query(context: StatementContext, statement: ResumeQuery) -> str:
    resume_query(context.catalog, statement.name)
    return f"query {statement.name} runs again"


# ---- the others


def _check_set(statement: SetOption) -> None:
    name, value = statement.name, statement.value
    parse_setting(name, getattr(Settings(), name, 1) if value is None else value)


def _set_option(context: StatementContext, statement: SetOption) -> str:
    if statement.value is None:
        context.catalog.set_option(statement.name, None)
        return f"{statement.name} is as it was, {getattr(Settings(), statement.name)}"
    value = parse_setting(statement.name, statement.value)
    context.catalog.set_option(statement.name, str(value))
    return f"{statement.name} = {value}"


def _refuse_bare_query(_statement: BareQuery, _state: ScriptState) -> NoReturn:
    raise HeadwaterError("name the query to run it: CREATE QUERY name AS SELECT ..")


def _refuse_explain(_statement: Explain, _state: ScriptState) -> NoReturn:
    raise HeadwaterError("EXPLAIN changes nothing: use headwater explain FILE.cql")


def _refuse_show(statement: Show, _state: ScriptState) -> NoReturn:
    raise HeadwaterError(f"SHOW changes nothing: use headwater show {statement.what.lower()}")


def _not_applicable(_context: StatementContext, statement: Statement) -> NoReturn:
    raise HeadwaterError(f"{type(statement).__name__} is not a statement to carry out")


# ---- the registry

_actions: dict[type[Statement], StatementAction[Any]] = {
    action.type: action
    for action in (
        StatementAction(
            CreateStream,
            _create_stream,
            _prepare_declaration,
            _check_create_stream,
            connector="source",
        ),
        StatementAction(
            CreateTable,
            _create_table,
            _prepare_declaration,
            _check_create_table,
            connector="source",
        ),
        StatementAction(
            CreateQuery,
            _create_query,
            _prepare_create_query,
            _check_create_query,
            query_name=lambda statement: statement.name,
            connector="sink",
        ),
        StatementAction(DropStream, _drop_stream, _prepare_drop),
        StatementAction(DropTable, _drop_table, _prepare_drop),
        StatementAction(
            DropQuery, _drop_query, _prepare_drop_query, query_name=lambda statement: statement.name
        ),
        StatementAction(
            PauseQuery, _pause_query, _prepare_query, query_name=lambda statement: statement.name
        ),
        StatementAction(
            ResumeQuery, _resume_query, _prepare_query, query_name=lambda statement: statement.name
        ),
        StatementAction(EndStream, _end_stream, _prepare_stream),
        StatementAction(RewindStream, _rewind_stream, _prepare_stream),
        StatementAction(RestartStream, _restart_stream, _prepare_stream),
        StatementAction(SetOption, _set_option, check=_check_set),
        StatementAction(BareQuery, _not_applicable, _refuse_bare_query),
        StatementAction(Explain, _not_applicable, _refuse_explain),
        StatementAction(Show, _not_applicable, _refuse_show),
    )
}

STATEMENT_ACTIONS: Mapping[type[Statement], StatementAction[Any]] = MappingProxyType(_actions)
"""What every type of statement does."""


def register_statement(syntax: StatementSyntax[S], action: StatementAction[S]) -> None:
    """Add a statement, which is read, checked and carried out from then on; raises HeadwaterError if
    another one has its type or its words."""
    if syntax.type is not action.type:
        raise HeadwaterError(
            f"{syntax.type.__name__} and {action.type.__name__} are two statements"
        )
    add_syntax(syntax)
    _actions[action.type] = action


def unregister_statement(type: type[Statement]) -> None:
    """Remove a statement."""
    remove_syntax(type)
    del _actions[type]


def find_action(statement: Statement) -> StatementAction[Any]:
    """What a statement does; raises HeadwaterError for one that is not registered."""
    action = STATEMENT_ACTIONS.get(type(statement))
    if action is None:
        raise HeadwaterError(f"{type(statement).__name__} is not a statement to carry out")
    return action


def named_queries(statements: Sequence[Statement]) -> set[str]:
    """The queries that statements name, in small letters."""
    actions = [(statement, find_action(statement)) for statement in statements]
    return {
        action.query_name(statement).lower()
        for statement, action in actions
        if action.query_name is not None
    }
