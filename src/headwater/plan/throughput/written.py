"""Logical queries as operators that moves may reorder, and configurations as logical queries again.

A column gets one name for good where it is born (by a scan, a computed column, an aggregate); renaming it
costs nothing and makes no operator. Conditions are cut at their ANDs, one selection for each, and
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
from headwater.algebra.functions import AggregateCall, call, cast
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
from headwater.plan.throughput.model import Configuration, Inputs, Kind, Operator

Names = Mapping[Column, str]
"""The lasting name of each column of a relation, in the order of its columns."""

INSTANT = 1e-6
"""The seconds that [NOW] counts as."""


@dataclass(frozen=True)
class Statistics:
    """What is known of the data: shares, groups, windows that never end, sizes.

    `share` gives the share of rows, or of pairs of rows, that meet a condition, whose columns are
    told apart by the stream or table and the column they come from.
    """

    share: Callable[[Expr, Mapping[Column, tuple[str, str]]], float]
    groups: Callable[[Sequence[tuple[str, str] | None]], float]
    rows: Callable[[str], float]
    horizon: float = 3600.0
    distinct: float = 0.5
    text_width: float = 20.0


@dataclass(frozen=True)
class Step:
    """What an operator does in the algebra, and the lasting names of the columns it reads and gives.

    A selection or join has its part of a condition, a join the `key` by which it can be split, if
    any, a projection what it computes; others have the node they come from, of which the inputs do
    not count. A union has the columns of each of its parts.
    """

    reads: Names
    gives: tuple[str, ...] = ()
    node: Relation | None = None
    condition: Expr | None = None
    key: tuple[Expr, Expr] | None = None
    computed: tuple[Expr, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Written:
    """Queries as operators: who reads whom, what each does, and what each query shows."""

    queries: tuple[Query, ...]
    operators: tuple[Operator, ...]
    inputs: Inputs
    outputs: tuple[int, ...]
    steps: tuple[Step, ...]
    shown: tuple[Names, ...]
    widths: Mapping[str, float]

    def clonable(self, place: int) -> bool:
        """Whether an operator's input may be split: it keeps no state, or keeps it by key."""
        operator, step = self.operators[place], self.steps[place]
        match operator.kind:
            case Kind.SELECT | Kind.PROJECT:
                return True
            case Kind.DISTINCT:
                return isinstance(step.node, Distinct)
            case Kind.JOIN:
                return step.key is not None
            case Kind.AGGREGATE:
                told = {query.output for query in self.queries}
                return bool(operator.keys) and told == {Output.RSTREAM}
        return False


def write(queries: Sequence[Query], statistics: Statistics, costs: CostTable) -> Written:
    """The operators of queries, in the order in which they are written."""
    draft = _Draft(statistics, costs)
    roots, shown = [], []
    for query in queries:
        steps = slides(query.root)
        draft.period = min(steps) / 1e6 if steps else None
        place, names = draft.add(query.root)
        roots.append(place)
        shown.append({column: names[column] for column in query.columns})
    return Written(
        tuple(queries),
        tuple(draft.operators),
        tuple(draft.inputs),
        tuple(roots),
        tuple(draft.steps),
        tuple(shown),
        draft.widths,
    )


@dataclass
class _Draft:
    statistics: Statistics
    costs: CostTable
    operators: list[Operator] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    widths: dict[str, float] = field(default_factory=dict)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)
    done: dict[tuple[Relation, float | None], tuple[int, Names]] = field(default_factory=dict)
    period: float | None = None

    def add(self, node: Relation) -> tuple[int, Names]:
        """Add a relation; its operator, and the lasting names of its columns."""
        key = node, self.period
        if key not in self.done:
            self.done[key] = self._add(node)
        return self.done[key]

    def _add(self, node: Relation) -> tuple[int, Names]:
        match node:
            case Scan() | TableScan():
                return self._scan(node)
            case Select(input=Join() as join):
                apart = [c for c in conjuncts(node.condition) if not _spans(c, join)]
                across = [c for c in conjuncts(node.condition) if _spans(c, join)]
                place, names = self._join(join, across)
                return self._select(apart, place, names), names
            case Select():
                place, names = self.add(node.input)
                return self._select(conjuncts(node.condition), place, names), names
            case Project():
                return self._project(node)
            case Join():
                return self._join(node, [])
            case OuterJoin() | SemiJoin():
                return self._side_join(node)
            case Aggregate():
                return self._aggregate(node)
            case Distinct():
                place, names = self.add(node.input)
                share = self.statistics.distinct
                made = self._operator("distinct", Kind.DISTINCT, selectivity=share)
                step = Step(names, tuple(names.values()), node)
                return self._put(made, (place,), step), names
            case UnionAll():
                return self._union(node)

    def _scan(self, node: Scan | TableScan) -> tuple[int, Names]:
        source = node.stream if isinstance(node, Scan) else node.table
        names = {c: self._name(f"{node.alias}.{c.name}", c.type) for c in node.columns}
        for column, name in names.items():
            self.sources[name] = (source, column.name)
        made = self._operator(node.alias, Kind.EMIT, adds=frozenset(names.values()))
        if isinstance(node, TableScan):
            made = replace(made, rows=self.statistics.rows(node.table))
        else:
            rows, window = _held(node, self.statistics.horizon)
            made = replace(made, stream=node.stream, rows=rows, window=window)
        return self._put(made, (), Step({}, tuple(names.values()), node)), names

    def _select(self, conditions: Iterable[Expr], place: int, names: Names) -> int:
        for condition in conditions:
            share = self._share(condition, names)
            reads = frozenset(names[c] for c in columns_of(condition))
            made = self._operator(text_of(condition), Kind.SELECT, selectivity=share, reads=reads)
            place = self._put(made, (place,), Step(names, condition=condition))
        return place

    def _project(self, node: Project) -> tuple[int, Names]:
        place, below = self.add(node.input)
        names: dict[Column, str] = {}
        computed: dict[str, Expr] = {}
        for column, item in zip(node.columns, node.items, strict=True):
            kept = below[item.expr] if isinstance(item.expr, Column) else None
            if kept is not None and kept not in names.values():
                names[column] = kept
                continue
            names[column] = self._name(f"{node.alias or 'result'}.{column.name}", column.type)
            computed[names[column]] = item.expr
        drops = frozenset(below.values()) - frozenset(names.values())
        by_value = _is_aggregation(node.input)
        if not computed and not drops and not by_value:
            return place, names
        made = self._operator(
            "project",
            Kind.PROJECT,
            reads=frozenset(below[c] for expr in computed.values() for c in columns_of(expr)),
            drops=drops,
            adds=frozenset(computed),
        )
        if by_value:
            made = replace(made, kind=Kind.DISTINCT)
        step = Step(below, tuple(computed), computed=tuple(computed.values()))
        return self._put(made, (place,), step), names

    def _join(self, node: Join, more: Sequence[Expr]) -> tuple[int, Names]:
        """Joins of two, each with an input that shares a condition with what is joined if there is
        one, else with the next."""
        waiting = [self.add(below) for below in node.inputs]
        conditions = [*conjuncts(node.condition), *more]
        place, names = waiting.pop(0)
        while waiting:
            chosen = next((one for one in waiting if _meets(conditions, names, one[1])), waiting[0])
            waiting.remove(chosen)
            both = {**names, **chosen[1]}
            now = [c for c in conditions if columns_of(c) <= both.keys()]
            conditions = [c for c in conditions if c not in now]
            made = self._pair((place, names), chosen, now)
            place, names = made, both
        return place, {column: names[column] for column in node.columns}

    def _pair(
        self, left: tuple[int, Names], right: tuple[int, Names], conditions: Sequence[Expr]
    ) -> int:
        condition, names = conjunction(conditions), {**left[1], **right[1]}
        share = 1.0 if condition is None else self._share(condition, names)
        reads = frozenset(names[c] for part in conditions for c in columns_of(part))
        label = "cross join" if condition is None else f"join on {text_of(condition)}"
        made = self._operator(label, Kind.JOIN, selectivity=share, reads=reads)
        step = Step(names, condition=condition, key=_equality(conditions, left[1], right[1]))
        return self._put(made, (left[0], right[0]), step)

    def _side_join(self, node: OuterJoin | SemiJoin) -> tuple[int, Names]:
        left, right = self.add(node.left), self.add(node.right)
        below = {**left[1], **right[1]}
        parts = conjuncts(node.condition)
        share = self._share(node.condition, below) if node.condition is not None else 1.0
        reads = frozenset(below[c] for part in parts for c in columns_of(part))
        if isinstance(node, SemiJoin):
            kind, label, share = Kind.SEMIJOIN, "anti join" if node.anti else "semi join", 0.5
        else:
            kind = Kind.FULLJOIN if node.full else Kind.OUTERJOIN
            label = "full join" if node.full else "left join"
        made = self._operator(label, kind, selectivity=share, reads=reads)
        place = self._put(made, (left[0], right[0]), Step(below, node=node))
        return place, {column: below[column] for column in node.columns}

    def _aggregate(self, node: Aggregate) -> tuple[int, Names]:
        place, below = self.add(node.input)
        expressions = [*node.keys, *(p for c in node.calls for p in _parts(c))]
        names: dict[Column, str] = {}
        for column, key in zip(node.columns, node.keys, strict=False):
            kept = below[key] if isinstance(key, Column) else None
            fresh = kept is None or kept in names.values()
            label = f"{node.alias}.{column.name}"
            names[column] = self._name(label, column.type) if fresh else str(kept)
        keys = frozenset(names.values()) & frozenset(below.values())
        for column in node.columns[len(node.keys) :]:
            names[column] = self._name(f"{node.alias}.{column.name}", column.type)
        known = [self._source(key, below) for key in node.keys]
        made = self._operator(
            ", ".join(call_text(c, str) for c in node.calls) or "group",
            Kind.AGGREGATE,
            rows=self.statistics.groups(known),
            period=self.period,
            reads=frozenset(below[c] for e in expressions for c in columns_of(e)),
            keys=keys,
            drops=frozenset(below.values()) - keys,
            adds=frozenset(names.values()) - keys,
        )
        return self._put(made, (place,), Step(below, tuple(names.values()), node)), names

    def _union(self, node: UnionAll) -> tuple[int, Names]:
        added = [self.add(below) for below in node.inputs]
        parts = tuple(
            tuple(names[c] for c in below.columns)
            for below, (_, names) in zip(node.inputs, added, strict=True)
        )
        label = node.alias or "union"
        names = {c: self._name(f"{label}.{c.name}", c.type) for c in node.columns}
        made = self._operator(
            "union",
            Kind.UNION,
            drops=frozenset(name for _, below in added for name in below.values()),
            adds=frozenset(names.values()),
        )
        step = Step({}, tuple(names.values()), node, parts=parts)
        return self._put(made, tuple(place for place, _ in added), step), names

    def _share(self, condition: Expr, names: Names) -> float:
        sources = {
            column: self.sources[names[column]]
            for column in columns_of(condition)
            if names[column] in self.sources
        }
        return self.statistics.share(condition, sources)

    def _source(self, key: Expr, names: Names) -> tuple[str, str] | None:
        return self.sources.get(names[key]) if isinstance(key, Column) else None

    def _name(self, wanted: str, type_: Type) -> str:
        """A name that no other column has."""
        name, number = wanted, 1
        while name in self.widths:
            number += 1
            name = f"{wanted}#{number}"
        self.widths[name] = width_of(type_, self.statistics.text_width)
        return name

    def _operator(self, name: str, kind: Kind, **about: object) -> Operator:
        cost = self.costs[kind.name.lower()]
        return Operator(name, kind, cost.tuple, cost.result, **about)  # type: ignore[arg-type]

    def _put(self, operator: Operator, below: tuple[int, ...], step: Step) -> int:
        self.operators.append(operator)
        self.inputs.append(below)
        self.steps.append(step)
        return len(self.operators) - 1


def text_of(condition: Expr) -> str:
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


def _meets(conditions: Sequence[Expr], left: Names, right: Names) -> bool:
    """Whether a condition ties two sides together, and needs nothing else."""
    both = left.keys() | right.keys()
    return any(
        columns_of(c) <= both and columns_of(c) & left.keys() and columns_of(c) & right.keys()
        for c in conditions
    )


def _equality(conditions: Sequence[Expr], left: Names, right: Names) -> tuple[Expr, Expr] | None:
    """Columns of either side that must be equal, cast to one type; None if there are none."""
    for condition in conditions:
        if isinstance(condition, Call) and condition.name == "=":
            a, b = condition.args
            type_ = common_type(a.type, b.type)
            apart = (a in left and b in right) or (a in right and b in left)
            if apart and type_ is not None:
                return cast(a, type_), cast(b, type_)
    return None


def _parts(called: AggregateCall) -> list[Expr]:
    return [part for part in (called.arg, called.filter) if part is not None]


def _held(scan: Scan, horizon: float) -> tuple[float, float | None]:
    """The rows that a window holds at any rate, and the seconds of which it holds all."""
    if isinstance(scan.window, Rows):
        return float(scan.window.count), None
    size = scan.window.size
    return 0.0, horizon if size is None else max(size / 1e6, INSTANT)


def width_of(type_: Type, text: float) -> float:
    """The bytes of a value."""
    narrow = {"BOOLEAN": 1.0, "TINYINT": 1.0, "SMALLINT": 2.0, "INT": 4.0, "FLOAT": 4.0}
    return text if type_ == STRING else narrow.get(type_.name, 8.0)


# ---- back to the algebra

Found = tuple[Relation, dict[str, Column]]


def relations(written: Written, configuration: Configuration) -> tuple[Query, ...]:
    """The queries as a configuration runs them; a cloned operator is a union of its parts."""
    done: dict[int, Found] = {}
    for place in configuration.order:
        below = [done[i] for i in configuration.inputs[place]]
        copies = len(configuration.hosts[place])
        if copies == 1 or not below:
            done[place] = _build(written, place, below, f"_{place}")
            continue
        split = [_split(written, place, below, copy, copies) for copy in range(copies)]
        done[place] = _merge(
            [_build(written, place, part, f"_{place}_{copy}") for copy, part in enumerate(split)],
            f"_{place}",
        )
    return tuple(
        _show(query, shown, done[place])
        for query, shown, place in zip(
            written.queries, written.shown, configuration.outputs, strict=True
        )
    )


def _show(query: Query, shown: Names, found: Found) -> Query:
    relation, columns = found
    items = tuple(Item(column.name, columns[name]) for column, name in shown.items())
    return Query(query.output, Project(relation, items))


def _build(written: Written, place: int, below: Sequence[Found], alias: str) -> Found:
    """The node of an operator over other inputs."""
    step, operator = written.steps[place], written.operators[place]
    inputs = [relation for relation, _ in below]
    columns = {name: column for _, found in below for name, column in found.items()}
    now = {column: columns[name] for column, name in step.reads.items() if name in columns}

    def moved(expr: Expr) -> Expr:
        return substitute(expr, now)

    condition = None if step.condition is None else moved(step.condition)
    if operator.kind is Kind.SELECT:
        assert condition is not None
        return Select(inputs[0], condition), columns
    if operator.kind is Kind.JOIN:
        return Join(tuple(inputs), condition), columns
    if step.node is None:
        kept = {name: column for name, column in columns.items() if name not in operator.drops}
        computed = dict(zip(step.gives, map(moved, step.computed), strict=True))
        return _renamed(inputs[0], {**kept, **computed}, alias)
    match step.node:
        case Scan() | TableScan():
            scan = replace(step.node, alias=alias)
            return scan, dict(zip(step.gives, scan.columns, strict=True))
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
            return grouped, dict(zip(step.gives, grouped.columns, strict=True))
        case UnionAll():
            parts = [
                _renamed(relation, {name: found[name] for name in names}, f"{alias}_{number}")[0]
                for number, ((relation, found), names) in enumerate(
                    zip(below, step.parts, strict=True)
                )
            ]
            union = UnionAll(tuple(parts), alias)
            return union, dict(zip(step.gives, union.columns, strict=True))
    raise AssertionError(operator.kind)


def _renamed(relation: Relation, values: Mapping[str, Expr], alias: str) -> Found:
    """A projection to these values; to a constant that nobody reads if there are none."""
    items = tuple(Item(f"c{i}", value) for i, value in enumerate(values.values()))
    made = Project(relation, items or (Item("none", literal(1)),), alias)
    return made, dict(zip(values, made.columns, strict=False))


def _merge(parts: Sequence[Found], alias: str) -> Found:
    """The union of what the copies of an operator give."""
    names = list(parts[0][1])
    same = [
        _renamed(relation, {name: columns[name] for name in names}, f"{alias}_{i}m")[0]
        for i, (relation, columns) in enumerate(parts)
    ]
    union = UnionAll(tuple(same), alias)
    return union, dict(zip(names, union.columns, strict=True))


def _split(
    written: Written, place: int, below: Sequence[Found], copy: int, copies: int
) -> list[Found]:
    """The part of each input that goes to one of the copies: rows that must meet go together."""
    step = written.steps[place]
    columns = {name: column for _, found in below for name, column in found.items()}
    now = {column: columns[name] for column, name in step.reads.items() if name in columns}
    keys: Sequence[Expr]
    if step.key is not None:
        moved = [substitute(side, now) for side in step.key]
        left = columns_of(moved[0]) <= set(below[0][1].values())
        keys = moved if left else moved[::-1]
    elif isinstance(step.node, Aggregate):
        keys = [substitute(step.node.keys[0], now)]
    else:
        keys = [next(iter(below[0][1].values()), literal(1))]
    return [
        (Select(relation, _belongs(key, copy, copies)), found)
        for (relation, found), key in zip(below, keys, strict=True)
    ]


def _belongs(key: Expr, copy: int, copies: int) -> Expr:
    """Whether a row is one of this copy's; a key without value belongs to the first.

    Equal keys have equal texts, but for the two zeros of floating numbers, which are made one.
    """
    if key.type.is_floating:
        key = call("+", key, literal(0.0))
    size = call("length", cast(key, STRING))
    number = call("coalesce", call("%", size, literal(copies)), literal(0))
    return call("=", cast(number, INT), literal(copy))
