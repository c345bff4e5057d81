"""Logical queries as operators that moves may reorder, and configurations as logical queries again.

A column gets one name for good where it is born (by a scan, a computed column, an aggregate); renaming it
costs nothing and becomes no operator. Conditions are cut at their ANDs, one selection for each, and
a join of many inputs becomes joins of two that share a condition where there is one. Queries, and
parts of them, that are the same become the same operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.algebra.expressions import (
    Call,
    Column,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
    literal,
    substitute,
)
from headwater.algebra.functions import AggregateCall, build_call, cast
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Item,
    Join,
    OuterJoin,
    Output,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
    slides,
)
from headwater.algebra.types import INT, STRING, Type, common_type
from headwater.algebra.windows import Rows
from headwater.cost.operators import CostTable
from headwater.cql.writer import call_text, expr_text
from headwater.plan.throughput.model import Configuration, Inputs, OperatorKind, ThroughputOperator

ColumnNames = Mapping[Column, str]
"""The lasting name of each column of a relation, in the order of its columns."""

NOW_SECONDS = 1e-6
"""The seconds that [NOW] counts as."""


@dataclass(frozen=True)
class Statistics:
    """What is known of the data: shares, groups, windows that never end, sizes.

    `share` gives the share of rows, or of pairs of rows, that meet a condition, whose columns are
    identified by the stream or table and the column they come from.
    """

    share: Callable[[Expr, Mapping[Column, tuple[str, str]]], float]
    groups: Callable[[Sequence[tuple[str, str] | None]], float]
    rows: Callable[[str], float]
    horizon: float = 3600.0
    distinct: float = 0.5
    text_width: float = 20.0


@dataclass(frozen=True)
class OperatorDefinition:
    """What an operator does in the algebra, and the lasting names of the columns it reads and gives.

    A selection or join has its part of a condition, a join the `key` by which it can be split, if
    any, a projection what it computes; others have the node they come from, of which the inputs do
    not count. A union has the columns of each of its parts.
    """

    reads: ColumnNames
    output_names: tuple[str, ...] = ()
    node: Relation | None = None
    condition: Expr | None = None
    key: tuple[Expr, Expr] | None = None
    computed: tuple[Expr, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class OperatorGraph:
    """Queries as operators: who reads whom, what each does, and what each query shows."""

    queries: tuple[Query, ...]
    operators: tuple[ThroughputOperator, ...]
    inputs: Inputs
    outputs: tuple[int, ...]
    definitions: tuple[OperatorDefinition, ...]
    shown_names: tuple[ColumnNames, ...]
    widths: Mapping[str, float]

    def is_clonable(self, position: int) -> bool:
        """Whether an operator's input may be split: it keeps no state, or keeps it by key."""
        operator, step = self.operators[position], self.definitions[position]
        match operator.kind:
            case OperatorKind.SELECT | OperatorKind.PROJECT:
                return True
            case OperatorKind.DISTINCT:
                return isinstance(step.node, Distinct)
            case OperatorKind.JOIN:
                return step.key is not None
            case OperatorKind.AGGREGATE:
                outputs = {query.output for query in self.queries}
                return bool(operator.keys) and outputs == {Output.RSTREAM}
        return False


def build_operator_graph(
    queries: Sequence[Query], statistics: Statistics, costs: CostTable
) -> OperatorGraph:
    """The operators of queries, in the order in which they are written."""
    draft = _GraphBuilder(statistics, costs)
    roots, shown = [], []
    for query in queries:
        steps = slides(query.root)
        draft.period = min(steps) / 1e6 if steps else None
        position, names = draft.add(query.root)
        roots.append(position)
        shown.append({column: names[column] for column in query.columns})
    return OperatorGraph(
        tuple(queries),
        tuple(draft.operators),
        tuple(draft.inputs),
        tuple(roots),
        tuple(draft.definitions),
        tuple(shown),
        draft.widths,
    )


@dataclass
class _GraphBuilder:
    statistics: Statistics
    costs: CostTable
    operators: list[ThroughputOperator] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    definitions: list[OperatorDefinition] = field(default_factory=list)
    widths: dict[str, float] = field(default_factory=dict)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    added: dict[tuple[Relation, float | None], tuple[int, ColumnNames]] = field(
        default_factory=dict
    )
    period: float | None = None

    def add(self, node: Relation) -> tuple[int, ColumnNames]:
        """Add a relation; its operator, and the lasting names of its columns."""
        # Groups that are emitted at other times are another operator.
        key = node, self.period
        if key not in self.added:
            self.added[key] = self._add(node)
        return self.added[key]

    def _add(self, node: Relation) -> tuple[int, ColumnNames]:
        match node:
            case Scan() | TableScan():
                return self._scan(node)
            case Select(input=Join() as join):
                apart = [c for c in conjuncts(node.condition) if not _spans(c, join)]
                # Part of the join: above it, the join would be priced as a product of its inputs.
                across = [c for c in conjuncts(node.condition) if _spans(c, join)]
                position, names = self._join(join, across)
                return self._select(apart, position, names), names
            case Select():
                position, names = self.add(node.input)
                return self._select(conjuncts(node.condition), position, names), names
            case Project():
                return self._project(node)
            case Join():
                return self._join(node, [])
            case OuterJoin() | SemiJoin():
                return self._side_join(node)
            case Aggregate():
                return self._aggregate(node)
            case Distinct():
                position, names = self.add(node.input)
                share = self.statistics.distinct
                operator = self._new_operator("distinct", OperatorKind.DISTINCT, selectivity=share)
                step = OperatorDefinition(names, tuple(names.values()), node)
                return self._append(operator, (position,), step), names
            case UnionAll():
                return self._union(node)

    def _scan(self, node: Scan | TableScan) -> tuple[int, ColumnNames]:
        source = node.stream if isinstance(node, Scan) else node.table
        names = {c: self._unique_name(f"{node.alias}.{c.name}", c.type) for c in node.columns}
        for column, name in names.items():
            self.sources[name] = (source, column.name)
        operator = self._new_operator(node.alias, OperatorKind.EMIT, adds=frozenset(names.values()))
        if isinstance(node, TableScan):
            operator = replace(operator, rows=self.statistics.rows(node.table))
        else:
            rows, window = _window_extent(node, self.statistics.horizon)
            operator = replace(operator, stream=node.stream, rows=rows, window=window)
        return self._append(
            operator, (), OperatorDefinition({}, tuple(names.values()), node)
        ), names

    def _select(self, conditions: Iterable[Expr], position: int, names: ColumnNames) -> int:
        for condition in conditions:
            share = self._share(condition, names)
            reads = frozenset(names[c] for c in columns_of(condition))
            operator = self._new_operator(
                condition_text(condition), OperatorKind.SELECT, selectivity=share, reads=reads
            )
            position = self._append(
                operator, (position,), OperatorDefinition(names, condition=condition)
            )
        return position

    def _project(self, node: Project) -> tuple[int, ColumnNames]:
        position, below = self.add(node.input)
        names: dict[Column, str] = {}
        computed: dict[str, Expr] = {}
        for column, item in zip(node.columns, node.items, strict=True):
            existing = below[item.expr] if isinstance(item.expr, Column) else None
            if existing is not None and existing not in names.values():
                names[column] = existing
                continue
            names[column] = self._unique_name(
                f"{node.alias or 'result'}.{column.name}", column.type
            )
            computed[names[column]] = item.expr
        drops = frozenset(below.values()) - frozenset(names.values())
        by_value = _is_aggregation(node.input)
        if not computed and not drops and not by_value:
            return position, names
        operator = self._new_operator(
            "project",
            OperatorKind.PROJECT,
            reads=frozenset(below[c] for expr in computed.values() for c in columns_of(expr)),
            drops=drops,
            adds=frozenset(computed),
        )
        if by_value:
            operator = replace(operator, kind=OperatorKind.DISTINCT)
        step = OperatorDefinition(below, tuple(computed), computed=tuple(computed.values()))
        return self._append(operator, (position,), step), names

    def _join(self, node: Join, more: Sequence[Expr]) -> tuple[int, ColumnNames]:
        """Joins of two, each with an input that shares a condition with what is joined if there is
        one, else with the next."""
        waiting = [self.add(below) for below in node.inputs]
        conditions = [*conjuncts(node.condition), *more]
        position, names = waiting.pop(0)
        while waiting:
            chosen = next(
                (candidate for candidate in waiting if _connects(conditions, names, candidate[1])),
                waiting[0],
            )
            waiting.remove(chosen)
            both = {**names, **chosen[1]}
            now = [c for c in conditions if columns_of(c) <= both.keys()]
            conditions = [c for c in conditions if c not in now]
            joined = self._join_pair((position, names), chosen, now)
            position, names = joined, both
        return position, {column: names[column] for column in node.columns}

    def _join_pair(
        self,
        left: tuple[int, ColumnNames],
        right: tuple[int, ColumnNames],
        conditions: Sequence[Expr],
    ) -> int:
        condition, names = conjunction(conditions), {**left[1], **right[1]}
        share = 1.0 if condition is None else self._share(condition, names)
        reads = frozenset(names[c] for part in conditions for c in columns_of(part))
        label = "cross join" if condition is None else f"join on {condition_text(condition)}"
        operator = self._new_operator(label, OperatorKind.JOIN, selectivity=share, reads=reads)
        step = OperatorDefinition(
            names, condition=condition, key=_equality_key(conditions, left[1], right[1])
        )
        return self._append(operator, (left[0], right[0]), step)

    def _side_join(self, node: OuterJoin | SemiJoin) -> tuple[int, ColumnNames]:
        left, right = self.add(node.left), self.add(node.right)
        below = {**left[1], **right[1]}
        parts = conjuncts(node.condition)
        share = self._share(node.condition, below) if node.condition is not None else 1.0
        reads = frozenset(below[c] for part in parts for c in columns_of(part))
        if isinstance(node, SemiJoin):
            kind, label, share = (
                OperatorKind.SEMIJOIN,
                "anti join" if node.anti else "semi join",
                0.5,
            )
        else:
            kind = OperatorKind.FULLJOIN if node.full else OperatorKind.OUTERJOIN
            label = "full join" if node.full else "left join"
        operator = self._new_operator(label, kind, selectivity=share, reads=reads)
        position = self._append(operator, (left[0], right[0]), OperatorDefinition(below, node=node))
        return position, {column: below[column] for column in node.columns}

    def _aggregate(self, node: Aggregate) -> tuple[int, ColumnNames]:
        position, below = self.add(node.input)
        expressions = [*node.keys, *(p for c in node.calls for p in _call_expressions(c))]
        names: dict[Column, str] = {}
        for column, key in zip(node.columns, node.keys, strict=False):
            existing = below[key] if isinstance(key, Column) else None
            fresh = existing is None or existing in names.values()
            label = f"{node.alias}.{column.name}"
            names[column] = self._unique_name(label, column.type) if fresh else str(existing)
        keys = frozenset(names.values()) & frozenset(below.values())
        for column in node.columns[len(node.keys) :]:
            names[column] = self._unique_name(f"{node.alias}.{column.name}", column.type)
        key_sources = [self._source(key, below) for key in node.keys]
        operator = self._new_operator(
            ", ".join(call_text(c, str) for c in node.calls) or "group",
            OperatorKind.AGGREGATE,
            rows=self.statistics.groups(key_sources),
            period=self.period,
            reads=frozenset(below[c] for e in expressions for c in columns_of(e)),
            keys=keys,
            drops=frozenset(below.values()) - keys,
            adds=frozenset(names.values()) - keys,
        )
        return self._append(
            operator, (position,), OperatorDefinition(below, tuple(names.values()), node)
        ), names

    def _union(self, node: UnionAll) -> tuple[int, ColumnNames]:
        added = [self.add(below) for below in node.inputs]
        parts = tuple(
            tuple(names[c] for c in below.columns)
            for below, (_, names) in zip(node.inputs, added, strict=True)
        )
        label = node.alias or "union"
        names = {c: self._unique_name(f"{label}.{c.name}", c.type) for c in node.columns}
        operator = self._new_operator(
            "union",
            OperatorKind.UNION,
            drops=frozenset(name for _, below in added for name in below.values()),
            adds=frozenset(names.values()),
        )
        step = OperatorDefinition({}, tuple(names.values()), node, parts=parts)
        return self._append(operator, tuple(position for position, _ in added), step), names

    def _share(self, condition: Expr, names: ColumnNames) -> float:
        sources = {
            column: self.sources[names[column]]
            for column in columns_of(condition)
            if names[column] in self.sources
        }
        return self.statistics.share(condition, sources)

    def _source(self, key: Expr, names: ColumnNames) -> tuple[str, str] | None:
        return self.sources.get(names[key]) if isinstance(key, Column) else None

    def _unique_name(self, preferred: str, type_: Type) -> str:
        """A name that no other column has."""
        name, number = preferred, 1
        while name in self.widths:
            number += 1
            name = f"{preferred}#{number}"
        self.widths[name] = type_width(type_, self.statistics.text_width)
        return name

    def _new_operator(self, name: str, kind: OperatorKind, **about: object) -> ThroughputOperator:
        cost = self.costs[kind.name.lower()]
        return ThroughputOperator(name, kind, cost.per_tuple, cost.per_result, **about)  # type: ignore[arg-type]

    def _append(
        self, operator: ThroughputOperator, below: tuple[int, ...], step: OperatorDefinition
    ) -> int:
        self.operators.append(operator)
        self.inputs.append(below)
        self.definitions.append(step)
        return len(self.operators) - 1


def condition_text(condition: Expr) -> str:
    """The condition as it is written in CQL."""
    return expr_text(condition, str)


def _is_aggregation(node: Relation) -> bool:
    """GROUP BY with or without HAVING: the projection above it is what its rows are compared by, so
    it may not move, and counts as an operator that compares rows like DISTINCT."""
    while isinstance(node, Select):
        node = node.input
    return isinstance(node, Aggregate)


def _spans(condition: Expr, join: Join) -> bool:
    """Whether a condition speaks of more than one input of a join."""
    read = columns_of(condition)
    return sum(bool(read & set(below.columns)) for below in join.inputs) > 1


def _connects(conditions: Sequence[Expr], left: ColumnNames, right: ColumnNames) -> bool:
    """Whether a condition ties two sides together, and needs nothing else."""
    both = left.keys() | right.keys()
    return any(
        columns_of(c) <= both and columns_of(c) & left.keys() and columns_of(c) & right.keys()
        for c in conditions
    )


def _equality_key(
    conditions: Sequence[Expr], left: ColumnNames, right: ColumnNames
) -> tuple[Expr, Expr] | None:
    """Columns of either side that must be equal, cast to one type; None if there are none."""
    for condition in conditions:
        if isinstance(condition, Call) and condition.name == "=":
            a, b = condition.args
            type_ = common_type(a.type, b.type)
            apart = (a in left and b in right) or (a in right and b in left)
            if apart and type_ is not None:
                return cast(a, type_), cast(b, type_)
    return None


def _call_expressions(called: AggregateCall) -> list[Expr]:
    return [part for part in (called.arg, called.filter) if part is not None]


def _window_extent(scan: Scan, horizon: float) -> tuple[float, float | None]:
    """The rows that a window holds at any rate, and the seconds of which it holds all."""
    if isinstance(scan.window, Rows):
        return float(scan.window.count), None
    size = scan.window.size
    return 0.0, horizon if size is None else max(size / 1e6, NOW_SECONDS)


def type_width(type_: Type, text: float) -> float:
    """The bytes of a value."""
    narrow = {"BOOLEAN": 1.0, "TINYINT": 1.0, "SMALLINT": 2.0, "INT": 4.0, "FLOAT": 4.0}
    return text if type_ == STRING else narrow.get(type_.name, 8.0)


# ---- back to the algebra

BuiltRelation = tuple[Relation, dict[str, Column]]


def rebuild_queries(graph: OperatorGraph, configuration: Configuration) -> tuple[Query, ...]:
    """The queries as a configuration runs them; a cloned operator is a union of its parts."""
    done: dict[int, BuiltRelation] = {}
    for position in configuration.order:
        below = [done[i] for i in configuration.inputs[position]]
        copies = len(configuration.hosts[position])
        if copies == 1 or not below:
            done[position] = _build_node(graph, position, below, f"_{position}")
            continue
        split = [_split_inputs(graph, position, below, copy, copies) for copy in range(copies)]
        done[position] = _union_copies(
            [
                _build_node(graph, position, part, f"_{position}_{copy}")
                for copy, part in enumerate(split)
            ],
            f"_{position}",
        )
    return tuple(
        _project_output(query, shown, done[position])
        for query, shown, position in zip(
            graph.queries, graph.shown_names, configuration.outputs, strict=True
        )
    )


def _project_output(query: Query, shown: ColumnNames, built: BuiltRelation) -> Query:
    relation, columns = built
    items = tuple(Item(column.name, columns[name]) for column, name in shown.items())
    return Query(query.output, Project(relation, items))


def _build_node(
    graph: OperatorGraph, position: int, below: Sequence[BuiltRelation], alias: str
) -> BuiltRelation:
    """The node of an operator over other inputs."""
    step, operator = graph.definitions[position], graph.operators[position]
    inputs = [relation for relation, _ in below]
    columns = {name: column for _, available in below for name, column in available.items()}
    mapping = {column: columns[name] for column, name in step.reads.items() if name in columns}

    def moved(expr: Expr) -> Expr:
        return substitute(expr, mapping)

    condition = None if step.condition is None else moved(step.condition)
    if operator.kind is OperatorKind.SELECT:
        assert condition is not None
        return Select(inputs[0], condition), columns
    if operator.kind is OperatorKind.JOIN:
        return Join(tuple(inputs), condition), columns
    if step.node is None:
        retained = {name: column for name, column in columns.items() if name not in operator.drops}
        computed = dict(zip(step.output_names, map(moved, step.computed), strict=True))
        return _project_values(inputs[0], {**retained, **computed}, alias)
    match step.node:
        case Scan() | TableScan():
            scan = replace(step.node, alias=alias)
            return scan, dict(zip(step.output_names, scan.columns, strict=True))
        case OuterJoin():
            outer = OuterJoin(inputs[0], inputs[1], moved(step.node.condition), step.node.full)
            renewed = {(c.relation, c.name): c for c in outer.columns}
            return outer, {n: renewed[c.relation, c.name] for n, c in columns.items()}
        case SemiJoin():
            on = None if step.node.condition is None else moved(step.node.condition)
            return SemiJoin(inputs[0], inputs[1], on, step.node.anti), below[0][1]
        case Distinct():
            return Distinct(inputs[0]), columns
        case Aggregate():
            calls = tuple(
                replace(
                    c,
                    arg=None if c.arg is None else moved(c.arg),
                    filter=None if c.filter is None else moved(c.filter),
                )
                for c in step.node.calls
            )
            keys = tuple(moved(key) for key in step.node.keys)
            grouped = Aggregate(inputs[0], keys, calls, alias)
            return grouped, dict(zip(step.output_names, grouped.columns, strict=True))
        case UnionAll():
            parts = [
                _project_values(
                    relation, {name: available[name] for name in names}, f"{alias}_{number}"
                )[0]
                for number, ((relation, available), names) in enumerate(
                    zip(below, step.parts, strict=True)
                )
            ]
            union = UnionAll(tuple(parts), alias)
            return union, dict(zip(step.output_names, union.columns, strict=True))
    raise AssertionError(operator.kind)


def _project_values(relation: Relation, values: Mapping[str, Expr], alias: str) -> BuiltRelation:
    """A projection to these values; if there are none, to a constant that is never read."""
    items = tuple(Item(f"c{i}", value) for i, value in enumerate(values.values()))
    projection = Project(relation, items or (Item("none", literal(1)),), alias)
    return projection, dict(zip(values, projection.columns, strict=False))


def _union_copies(parts: Sequence[BuiltRelation], alias: str) -> BuiltRelation:
    """The union of what the copies of an operator give."""
    names = list(parts[0][1])
    same = [
        _project_values(relation, {name: columns[name] for name in names}, f"{alias}_{i}m")[0]
        for i, (relation, columns) in enumerate(parts)
    ]
    union = UnionAll(tuple(same), alias)
    return union, dict(zip(names, union.columns, strict=True))


def _split_inputs(
    graph: OperatorGraph, position: int, below: Sequence[BuiltRelation], copy: int, copies: int
) -> list[BuiltRelation]:
    """The part of each input that goes to one of the copies: rows that must meet go together."""
    step = graph.definitions[position]
    columns = {name: column for _, available in below for name, column in available.items()}
    mapping = {column: columns[name] for column, name in step.reads.items() if name in columns}
    keys: Sequence[Expr]
    if step.key is not None:
        moved = [substitute(side, mapping) for side in step.key]
        left = columns_of(moved[0]) <= set(below[0][1].values())
        keys = moved if left else moved[::-1]
    elif isinstance(step.node, Aggregate):
        keys = [substitute(step.node.keys[0], mapping)]
    else:
        keys = [next(iter(below[0][1].values()), literal(1))]
    return [
        (Select(relation, _belongs_to_copy(key, copy, copies)), available)
        for (relation, available), key in zip(below, keys, strict=True)
    ]


def _belongs_to_copy(key: Expr, copy: int, copies: int) -> Expr:
    """Whether a row is one of this copy's; a key without value belongs to the first.

    Equal keys have equal texts, except for the two zeros of floating-point numbers, which are merged.
    """
    if key.type.is_floating:
        key = build_call("+", key, literal(0.0))
    size = build_call("length", cast(key, STRING))
    number = build_call("coalesce", build_call("%", size, literal(copies)), literal(0))
    return build_call("=", cast(number, INT), literal(copy))
