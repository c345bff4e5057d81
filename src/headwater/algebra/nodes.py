"""Logical queries: trees of relations, as frozen data.

Every relation has columns, qualified by the alias that is visible above it; an expression in a node
is over the columns of that node's inputs and is checked when the node is built. A query is a
relation that changes over time, and the operator that turns it into a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from headwater.algebra.expressions import Column, Expr, Literal, walk
from headwater.algebra.functions import AggregateCall
from headwater.algebra.types import BOOLEAN, NULL, Schema, common_type
from headwater.algebra.windows import Range, Rows, Window
from headwater.errors import AlgebraError, suggest


class Output(Enum):
    """Relation to stream: which rows of a changing relation are emitted."""

    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"


@dataclass(frozen=True)
class Item:
    """A named output column."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class Scan:
    """A window over a stream."""

    stream: str
    schema: Schema
    time: str
    window: Window
    alias: str

    def __post_init__(self) -> None:
        # Subscripts raise AlgebraError for a column that is not there.
        self.schema[self.time]
        if isinstance(self.window, Rows):
            for name in self.window.partition_by:
                self.schema[name]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return _schema_columns(self.alias, self.schema)


@dataclass(frozen=True)
class TableScan:
    """A stored table, with its content at the time when it is read."""

    table: str
    schema: Schema
    alias: str

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return _schema_columns(self.alias, self.schema)


@dataclass(frozen=True)
class Select:
    """The rows for which the condition is true."""

    input: Relation
    condition: Expr

    def __post_init__(self) -> None:
        _check_condition(self.condition, self.input.columns, "WHERE")

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class Project:
    """Computed columns, called `alias`.name above it."""

    input: Relation
    items: tuple[Item, ...]
    alias: str = ""

    def __post_init__(self) -> None:
        _check_names([item.name for item in self.items], "SELECT")
        for item in self.items:
            _check_columns(item.expr, self.input.columns, "SELECT")

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(self.alias, i.name, i.expr.type, is_nullable(i.expr)) for i in self.items
        )


@dataclass(frozen=True)
class Join:
    """All combinations of rows of two or more inputs for which the condition is true."""

    inputs: tuple[Relation, ...]
    condition: Expr | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise AlgebraError("a join needs at least two inputs")
        _check_aliases(self.inputs)
        _check_condition(self.condition, self.columns, "ON")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(c for relation in self.inputs for c in relation.columns)


@dataclass(frozen=True)
class OuterJoin:
    """A join that keeps every row of the left (and, if full, of the right), NULLs beside it."""

    left: Relation
    right: Relation
    condition: Expr
    full: bool = False

    def __post_init__(self) -> None:
        _check_aliases(self.inputs)
        _check_condition(self.condition, (*self.left.columns, *self.right.columns), "ON")

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        right = tuple(Column(c.relation, c.name, c.type) for c in self.right.columns)
        left = self.left.columns
        if self.full:
            left = tuple(Column(c.relation, c.name, c.type) for c in left)
        return left + right


@dataclass(frozen=True)
class SemiJoin:
    """The rows of the left that have (anti: have not) a partner on the right: [NOT] EXISTS.

    `x IN (SELECT y ..)` is the same with x = y as condition. `x NOT IN (..)` is an anti join whose
    condition is `x = y OR x IS NULL OR y IS NULL`, as SQL's three-valued logic requires.
    """

    left: Relation
    right: Relation
    condition: Expr | None
    anti: bool = False

    def __post_init__(self) -> None:
        _check_aliases(self.inputs)
        _check_condition(self.condition, (*self.left.columns, *self.right.columns), "EXISTS")

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.left, self.right)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.left.columns


@dataclass(frozen=True)
class Aggregate:
    """One row for each group of equal keys; without keys one row always.

    Above it a key is `alias`.k0, k1, .. and an aggregate `alias`.a0, a1, ..
    """

    input: Relation
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    alias: str

    def __post_init__(self) -> None:
        for expr in self.keys:
            _check_columns(expr, self.input.columns, "GROUP BY")
        for call in self.calls:
            for part in (call.arg, call.filter):
                if part is not None:
                    _check_columns(part, self.input.columns, call.name)
        if not self.keys and not self.calls:
            raise AlgebraError("an aggregation needs a key or an aggregate")

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        keys = [
            Column(self.alias, f"k{i}", e.type, is_nullable(e)) for i, e in enumerate(self.keys)
        ]
        # COUNT alone has a value for a group without rows: 0.
        calls = [
            Column(self.alias, f"a{i}", c.type, c.name != "count") for i, c in enumerate(self.calls)
        ]
        return (*keys, *calls)


@dataclass(frozen=True)
class Distinct:
    """Equal rows once; compared by value."""

    input: Relation

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True)
class UnionAll:
    """All rows of all inputs; columns correspond by position and have the names of the first."""

    inputs: tuple[Relation, ...]
    alias: str = ""

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise AlgebraError("UNION ALL needs at least two inputs")
        widths = {len(relation.columns) for relation in self.inputs}
        if len(widths) > 1:
            raise AlgebraError(f"UNION ALL of {' and '.join(map(str, sorted(widths)))} columns")
        _ = self.columns  # refuses columns without a common type now, not when first read

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        result = []
        for parts in zip(*(relation.columns for relation in self.inputs), strict=True):
            type_ = parts[0].type
            for part in parts[1:]:
                common = common_type(type_, part.type)
                if common is None:
                    raise AlgebraError(
                        f"UNION ALL: column {parts[0].name} is {type_} in one part and {part.type}"
                        " in another; CAST one of them"
                    )
                type_ = common
            result.append(Column(self.alias, parts[0].name, type_, any(p.nullable for p in parts)))
        return tuple(result)


Relation = (
    Scan
    | TableScan
    | Select
    | Project
    | Join
    | OuterJoin
    | SemiJoin
    | Aggregate
    | Distinct
    | UnionAll
)


@dataclass(frozen=True)
class Query:
    """A continuous query: a relation, and which rows of it are emitted as it changes."""

    output: Output
    root: Relation

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.root.columns


def find_column(columns: Sequence[Column], name: str, relation: str | None = None) -> Column:
    """The only column of that name (and alias); raises AlgebraError that lists the candidates."""
    matches = [
        c
        for c in columns
        if c.name.lower() == name.lower()
        and (relation is None or c.relation.lower() == relation.lower())
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AlgebraError(f"{name} is ambiguous: {', '.join(map(str, matches))}")
    raise AlgebraError(f"no column {name}; {suggest(name, map(str, columns))}")


def walk_relations(root: Relation) -> Iterator[Relation]:
    """The relation and all below it, parents first, inputs in order."""
    yield root
    for below in root.inputs:
        yield from walk_relations(below)


def slides(root: Relation) -> frozenset[int]:
    """The slides of all windows; empty if the query is evaluated at every event."""
    return frozenset(
        node.window.slide
        for node in walk_relations(root)
        if isinstance(node, Scan) and isinstance(node.window, Range) and node.window.slide
    )


def default_output(root: Relation) -> Output:
    """RSTREAM where there is an aggregate and a window slides, else ISTREAM."""
    aggregates = any(isinstance(node, Aggregate) for node in walk_relations(root))
    return Output.RSTREAM if aggregates and slides(root) else Output.ISTREAM


def is_spj(root: Relation) -> bool:
    """Whether all rows are identified by the tuples that they were joined from."""
    return not any(isinstance(n, Aggregate | Distinct) for n in walk_relations(root))


def is_empty_over_empty_windows(relation: Relation) -> bool:
    """Whether a relation has no row for certain while all its windows are empty."""
    match relation:
        case Scan():
            return True
        case TableScan():
            return False
        case Join():
            return any(map(is_empty_over_empty_windows, relation.inputs))
        case OuterJoin():
            left = is_empty_over_empty_windows(relation.left)
            return left and (not relation.full or is_empty_over_empty_windows(relation.right))
        case SemiJoin():
            return is_empty_over_empty_windows(relation.left)
        case Aggregate():
            return bool(relation.keys) and is_empty_over_empty_windows(relation.input)
        case _:
            return all(map(is_empty_over_empty_windows, relation.inputs))


def is_nullable(expr: Expr) -> bool:
    """Whether an expression may be NULL; True if that is not known."""
    if isinstance(expr, Column):
        return expr.nullable
    if isinstance(expr, Literal):
        return expr.value is None
    return expr.name not in ("is_null", "<=>")


def _schema_columns(alias: str, schema: Schema) -> tuple[Column, ...]:
    return tuple(Column(alias, f.name, f.type, f.nullable) for f in schema)


def _check_columns(expr: Expr, available: tuple[Column, ...], where: str) -> None:
    for part in walk(expr):
        if isinstance(part, Column) and part not in available:
            raise AlgebraError(
                f"{where}: no column {part}; {suggest(str(part), map(str, available))}"
            )


def _check_condition(expr: Expr | None, available: tuple[Column, ...], where: str) -> None:
    if expr is None:
        return
    if expr.type not in (BOOLEAN, NULL):
        raise AlgebraError(f"{where} takes a condition, this is {expr.type}")
    _check_columns(expr, available, where)


def _check_aliases(inputs: tuple[Relation, ...]) -> None:
    seen: set[str] = set()
    for relation in inputs:
        aliases = {c.relation.lower() for c in relation.columns}
        if both := seen & aliases:
            raise AlgebraError(
                f"{', '.join(sorted(both))} is joined twice; give each an alias of its own"
            )
        seen |= aliases


def _check_names(names: list[str], where: str) -> None:
    if not names:
        raise AlgebraError(f"{where} needs at least one column")
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise AlgebraError(f"{where}: two columns are called {name}; rename one with AS")
        seen.add(name.lower())
