"""Random values, expressions, conditions and queries for all tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import combinations, permutations
from typing import Any

from hypothesis import strategies as st

from headwater.algebra.catalog import Namespace, Stream, Table
from headwater.algebra.conditions import domain as domains
from headwater.algebra.conditions.domain import Domain
from headwater.algebra.expressions import TRUE, Column, Expr, Literal, conjunction, literal
from headwater.algebra.functions import COMPARISONS, AggregateCall, build_aggregate, build_call
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
    Select,
    SemiJoin,
    UnionAll,
    is_nullable,
)
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    TINYINT,
    Field,
    Schema,
    Type,
    Value,
    common_type,
    decimal,
)
from headwater.algebra.windows import NOW, UNBOUNDED, Range, Rows, Window

# ---- expressions and predicates

MONEY = decimal(3, 1)

UNIVERSE: dict[Type, list[Value]] = {
    BOOLEAN: [None, False, True],
    TINYINT: [None, -128, -127, -2, -1, 0, 1, 2, 126, 127],
    INT: [None, -2, -1, 0, 1, 2, 3, 4, 5],
    BIGINT: [None, -2, -1, 0, 1, 2, 3, 4, 5],
    TIMESTAMP: [None, -2, -1, 0, 1, 2, 3, 4, 5],
    INTERVAL: [None, -2, -1, 0, 1, 2, 3, 4, 5],
    DATE: [None, -2, -1, 0, 1, 2, 3, 4, 5],
    MONEY: [None, *(Decimal(n) / 10 for n in (-990, -999, -1, 0, 5, 10, 11, 15, 19, 20, 30, 999))],
    FLOAT: [None, -math.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf, math.nan],
    DOUBLE: [None, -math.inf, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf, math.nan],
    STRING: [None, "", "A", "a", "a\0", "aa", "b", "b\0", "c", "d"],
}
"""For each type values that distinguish conditions: below, at, between and above the constants."""

CONSTANTS: dict[Type, list[Value]] = {
    BOOLEAN: [False, True],
    TINYINT: [-128, -1, 0, 1, 127],
    INT: [0, 1, 2, 3],
    BIGINT: [0, 1, 2, 3],
    TIMESTAMP: [0, 1, 2, 3],
    INTERVAL: [0, 1, 2, 3],
    DATE: [0, 1, 2, 3],
    MONEY: [Decimal("0"), Decimal("1"), Decimal("1.5"), Decimal("2")],
    FLOAT: [0.0, 1.0, 1.5, 2.0, math.nan, math.inf],
    DOUBLE: [0.0, 1.0, 1.5, 2.0, math.nan, math.inf],
    STRING: ["a", "b", "c"],
}

ORDER = ("=", "<>", "<", "<=", ">", ">=")


def columns_named(type_: Type, *names: str, nullable: bool = True) -> list[Column]:
    return [Column(*name.split("."), type_, nullable) for name in names]


INTS = [*columns_named(INT, "a.i", "b.i", "a.j"), *columns_named(INT, "a.n", nullable=False)]
PLAIN = [*INTS, *columns_named(STRING, "a.s", "b.s"), *columns_named(BOOLEAN, "a.f", "b.f")]
MIXED = [
    *PLAIN,
    *columns_named(BIGINT, "a.l"),
    *columns_named(MONEY, "a.m", "b.m"),
    *columns_named(DOUBLE, "a.d", "b.d"),
    *columns_named(TIMESTAMP, "a.ts", "b.ts"),
    *columns_named(DATE, "a.day", "b.day"),
]


@cache
def constants(type_: Type) -> st.SearchStrategy[Literal]:
    return st.sampled_from(CONSTANTS[type_]).map(lambda value: Literal(value, type_))


@st.composite
def domains_of(draw: st.DrawFn, type_: Type) -> Domain:
    """A set of values of a type, made of comparisons and lists."""
    values = st.sampled_from([v for v in UNIVERSE[type_] if v is not None])
    parts = st.one_of(
        st.builds(domains.comparison_domain, st.just(type_), st.sampled_from(ORDER), values),
        st.builds(
            domains.domain_of, st.just(type_), st.lists(st.one_of(values, st.none()), max_size=4)
        ),
    )
    found = draw(parts)
    for _ in range(draw(st.integers(0, 2))):
        combine = draw(st.sampled_from((Domain.union, Domain.intersect)))
        found = combine(found, draw(parts))
    return found


@cache
def plain_about(column: Column) -> list[Expr]:
    """Comparisons of a column with constants, lists, tests for NULL."""
    values = [Literal(value, column.type) for value in CONSTANTS[column.type]]
    lists = [build_call("in", column, *some) for n in (1, 2, 3) for some in combinations(values, n)]
    is_null = build_call("is_null", column)
    return [
        *(build_call(op, column, value) for value in values for op in ORDER),
        *(test for found in (is_null, *lists) for test in (found, build_call("not", found))),
    ]


@cache
def about(column: Column) -> list[Expr]:
    """Conditions about one column, of any kind."""
    values = [Literal(value, column.type) for value in CONSTANTS[column.type]]
    found = [*plain_about(column)]
    found += (build_call(op, value, column) for value in values for op in ORDER)
    found += (build_call("<=>", column, value) for value in values)
    if column.type == BOOLEAN:
        found.append(column)
    if column.type.is_numeric:
        others = [literal(1.0), literal(1.5), literal(Decimal("1.5")), literal(2)]
        found += (build_call(op, column, value) for value in others for op in ORDER)
    if column.type.is_exact:
        sums = numbers(column)
        found += (build_call(op, total, values[1]) for total in sums for op in ORDER)
        found += (
            build_call(op, total, other) for total in sums for other in sums for op in ("<", "=")
        )
    if column.type == STRING:
        upper = build_call("upper", column)
        found += (build_call(op, upper, literal("A")) for op in ORDER)
        found += (build_call("is_null", upper), build_call("in", upper, literal("A"), literal("B")))
    for chosen in (
        build_call("coalesce", column, values[1]),
        build_call("nullif", column, values[1]),
    ):
        found += (
            *(build_call(op, chosen, values[0]) for op in ORDER),
            build_call("is_null", chosen),
        )
    return found


def numbers(column: Column) -> list[Expr]:
    """Expressions of the same kind as the column, most of them linear."""
    type_ = column.type
    step_type = INTERVAL if type_ == TIMESTAMP else INT if type_ == DATE else type_
    step = Literal(CONSTANTS[step_type][1], step_type)
    found: list[Expr] = [column, build_call("+", column, step), build_call("-", column, step)]
    if type_.is_numeric:
        found += [
            build_call("neg", column),
            build_call("-", step, column),
            build_call("*", literal(2), column),
            build_call("-", column, column),
            build_call("*", column, literal(0)),
        ]
    return found


@cache
def between(a: Column, b: Column) -> list[Expr]:
    """Conditions about two columns, of any kind."""
    found: list[Expr] = []
    if a.type == b.type or (a.type.is_numeric and b.type.is_numeric):
        found += (build_call(op, a, b) for op in COMPARISONS)
    if a.type != b.type:
        return found
    value = Literal(CONSTANTS[a.type][1], a.type)
    if a.type == STRING:
        found += (build_call(op, build_call("upper", a), b) for op in ORDER)
        found.append(build_call("startswith", a, b))
    if a.type.is_exact:
        found += (
            build_call(op, x, y) for x in numbers(a) for y in numbers(b) for op in ("<=", ">", "=")
        )
        found += differences(a, b)
    for chosen in (
        build_call("greatest", a, b),
        build_call("least", b, a, value),
        build_call("case", build_call("<", a, value), b, a),
    ):
        found += (*(build_call(op, chosen, value) for op in ORDER), build_call("is_null", chosen))
    return found


def differences(a: Column, b: Column) -> list[Expr]:
    if not a.type.is_numeric:
        limits = [Literal(value, INTERVAL) for value in CONSTANTS[INTERVAL]]
        return [build_call(op, build_call("-", a, b), limit) for limit in limits for op in ORDER]
    totals = [build_call(op, a, b) for op in ("+", "-", "*")]
    limits = [Literal(value, a.type) for value in CONSTANTS[a.type]]
    compared = [
        build_call(op, total, limit) for total in totals for limit in limits for op in ORDER
    ]
    return [*compared, *(build_call("is_null", total) for total in totals)]


def plain_conditions(columns: list[Column]) -> st.SearchStrategy[Expr]:
    """Comparisons with constants, lists, tests for NULL, and equalities of columns."""
    equalities = [build_call("=", a, b) for a, b in combinations(columns, 2) if a.type == b.type]
    plain = st.sampled_from([found for column in columns for found in plain_about(column)])
    return st.one_of(plain, st.sampled_from(equalities)) if equalities else plain


def plain_conjunctions(columns: list[Column], most: int = 4) -> st.SearchStrategy[Expr]:
    """The conditions for which implication is complete."""
    return st.lists(plain_conditions(columns), min_size=1, max_size=most).map(_and)


def _and(parts: list[Expr]) -> Expr:
    return parts[0] if len(parts) == 1 else build_call("and", *parts)


def subsets(columns: list[Column], size: int = 3) -> st.SearchStrategy[list[Column]]:
    """A few of the columns."""
    return st.lists(st.sampled_from(columns), min_size=1, max_size=size, unique=True)


def atoms(columns: list[Column]) -> st.SearchStrategy[Expr]:
    """Conditions without AND, OR and NOT, of any kind."""
    single = st.sampled_from([found for column in columns for found in about(column)])
    double = [found for a, b in permutations(columns, 2) for found in between(a, b)]
    return st.one_of(single, st.sampled_from(double)) if double else single


@st.composite
def conditions(draw: st.DrawFn, columns: list[Column], depth: int = 2) -> Expr:
    """Any condition, with AND, OR and NOT around others."""
    kind = draw(st.sampled_from(["atom", "and", "or", "not"])) if depth else "atom"
    if kind == "atom":
        return draw(atoms(columns))
    if kind == "not":
        return build_call("not", draw(conditions(columns, depth - 1)))
    parts = draw(st.lists(conditions(columns, depth - 1), min_size=2, max_size=3))
    return build_call(kind, *parts)


@st.composite
def scalars(draw: st.DrawFn, columns: list[Column], depth: int = 3) -> Expr:
    """An expression of TINYINT, so that arithmetic overflows, or a condition over such."""
    kinds = ["column", "constant", "compute", "neg", "choose", "case"]
    kind = draw(st.sampled_from(kinds if depth else kinds[:2]))
    deeper = scalars(columns, depth - 1)
    match kind:
        case "column":
            return draw(st.sampled_from(columns))
        case "constant":
            return draw(st.one_of(constants(TINYINT), st.just(Literal(None, TINYINT))))
        case "compute":
            op = draw(st.sampled_from(["+", "-", "*", "%"]))
            return build_call(op, draw(deeper), draw(deeper))
        case "neg":
            return build_call("neg", draw(deeper))
        case "choose":
            name = draw(st.sampled_from(["greatest", "least", "coalesce"]))
            return build_call(name, draw(deeper), draw(deeper))
        case _:
            return build_call("case", draw(logicals(columns, 1)), draw(deeper), draw(deeper))


@st.composite
def logicals(draw: st.DrawFn, columns: list[Column], depth: int = 3) -> Expr:
    """A condition over TINYINT expressions."""
    kinds = ["compare", "in", "null", "constant", "and", "or", "not", "is", "test"]
    kind = draw(st.sampled_from(kinds if depth else kinds[:4]))
    number = scalars(columns, min(depth, 2))
    deeper = logicals(columns, depth - 1)
    match kind:
        case "compare":
            return build_call(draw(st.sampled_from(COMPARISONS)), draw(number), draw(number))
        case "in":
            members = draw(st.lists(number, min_size=1, max_size=3))
            return build_call("in", draw(number), *members)
        case "null":
            return build_call("is_null", draw(number))
        case "constant":
            return draw(st.sampled_from([Literal(v, BOOLEAN) for v in (True, False, None)]))
        case "not":
            return build_call("not", draw(deeper))
        case "is":
            truth = Literal(draw(st.booleans()), BOOLEAN)
            return build_call(draw(st.sampled_from(["=", "<>", "<=>", "<"])), draw(deeper), truth)
        case "test":
            return build_call("is_null", draw(deeper))
        case _:
            return build_call(kind, *draw(st.lists(deeper, min_size=2, max_size=3)))


# ---- data and queries

SECOND = 1_000_000
COST = decimal(6, 2)

BIDS = Stream(
    "Bids",
    Schema(
        (
            Field("item", INT, nullable=False),
            Field("bidder", INT),
            Field("price", DOUBLE),
            Field("note", STRING),
            Field("ts", TIMESTAMP, nullable=False),
        )
    ),
    "ts",
)
ASKS = Stream(
    "Asks",
    Schema(
        (
            Field("item", INT),
            Field("open", BOOLEAN),
            Field("cost", COST),
            Field("note", STRING),
            Field("at", TIMESTAMP, nullable=False),
        )
    ),
    "at",
    lateness=2 * SECOND,
)
ITEMS = Table("Items", Schema((Field("item", INT), Field("label", STRING))))
SOURCES = Namespace.of([BIDS, ASKS, ITEMS])
"""What the random queries read; the data of `streams` and `tables` fits."""

_CELLS: dict[Type, list[Value]] = {
    INT: [0, 1, 2, 3, None],
    DOUBLE: [1.0, 0.25, 2.5, -0.5, 0.0, -0.0, math.nan, None],
    STRING: ["a", "b", "ab", "a%", "", None],
    BOOLEAN: [True, False, None],
    COST: [Decimal("1.00"), Decimal("0.50"), Decimal("1.25"), Decimal("10.00"), None],
}


def _rows(schema: Schema, most: int, last: int) -> st.SearchStrategy[list[tuple[Value, ...]]]:
    """Few distinct values, so that rows meet; times tie and arrive in any order."""

    def cells(field: Field) -> st.SearchStrategy[Value]:
        if field.type == TIMESTAMP:
            return st.integers(0, 2 * last).map(lambda halves: halves * SECOND // 2)
        return st.sampled_from([v for v in _CELLS[field.type] if v is not None or field.nullable])

    row = st.tuples(*map(cells, schema))
    return st.one_of(st.lists(row, min_size=most // 2, max_size=most), st.lists(row, max_size=2))


def streams(most: int = 8, last: int = 8) -> st.SearchStrategy[dict[str, list[Any]]]:
    """Tuples of every stream of SOURCES in order of arrival, in the first `last` seconds."""
    return st.fixed_dictionaries({s.name: _rows(s.schema, most, last) for s in (BIDS, ASKS)})


def tables(most: int = 4) -> st.SearchStrategy[dict[str, list[Any]]]:
    """Rows of every table of SOURCES."""
    return st.fixed_dictionaries({ITEMS.name: _rows(ITEMS.schema, most, 0)})


@dataclass(frozen=True)
class Features:
    """What random queries may use."""

    scans: int = 3
    nesting: int = 1
    outputs: tuple[Output, ...] = tuple(Output)
    slides: bool = True
    rows: bool = True
    tables: bool = True
    aggregates: bool = True
    distinct: bool = True
    unions: bool = True
    outer_joins: bool = True
    semi_joins: bool = True
    twins: bool = False
    """Whether all scans are of one stream with one window, so that they can be exchanged."""


EVERYTHING = Features()


@st.composite
def queries(draw: st.DrawFn, features: Features = EVERYTHING) -> Query:
    """A query over SOURCES in the shape that binding a text gives it: SELECT blocks of
    [Distinct] Project [Select] [Aggregate] SemiJoin* [Select] over joins, scans and blocks."""
    blocks = _Blocks(draw, features)
    root = blocks.blocks("", features.nesting)
    return Query(draw(st.sampled_from(features.outputs)), root)


@cache
def windows(schema: Schema, features: Features = EVERYTHING) -> st.SearchStrategy[Window]:
    """Windows of all kinds, of few seconds."""
    size = st.integers(0, 6).map(lambda n: n * SECOND)
    slide = st.sampled_from([SECOND, 2 * SECOND, 3 * SECOND, 5 * SECOND])
    kinds: list[st.SearchStrategy[Window]] = [
        st.builds(Range, size),
        st.just(UNBOUNDED),
        st.just(NOW),
    ]
    if features.slides:
        kinds.append(st.builds(Range, st.one_of(size, st.none()), slide))
    if features.rows:
        keys = st.lists(st.sampled_from(schema.names), max_size=2, unique=True).map(tuple)
        kinds.append(st.builds(Rows, st.integers(1, 3), st.one_of(st.just(()), keys)))
    return st.one_of(kinds)


class _Calls:
    """The aggregates of a block in the order they are first named, as columns of its alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.calls: list[AggregateCall] = []

    def column(self, found: AggregateCall) -> Column:
        if found not in self.calls:
            self.calls.append(found)
        place = self.calls.index(found)
        return Column(self.alias, f"a{place}", found.type, found.name != "count")


class _Blocks:
    """Draws the parts of one query; counts aliases and subqueries through all of it."""

    def __init__(self, draw: st.DrawFn, features: Features) -> None:
        self.draw = draw
        self.features = features
        self.scans = features.scans
        self.aliases = 0
        self.exists = 0

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def alias(self, stem: str) -> str:
        self.aliases += 1
        return f"{stem}{self.aliases}"

    # blocks and their sources

    def blocks(self, alias: str, nesting: int) -> Relation:
        """SELECT .. [UNION ALL SELECT ..]"""
        if not self.features.unions or not self.chance(15):
            return self.block(alias, nesting)
        first = self.block("", nesting)
        more = [self.block("", 0, first.columns) for _ in range(self.choose(1, 1, 2))]
        return UnionAll((first, *more), alias)

    def block(self, alias: str, nesting: int, like: Sequence[Column] = ()) -> Relation:
        """SELECT ..; with columns that can stand under those of `like`, in a UNION ALL."""
        relation = self.source(nesting)
        if self.chance(40):
            relation = Select(relation, self.condition(relation.columns))
        while self.features.semi_joins and self.scans > 0 and self.chance(25):
            relation = self.semi_join(relation)
        if self.features.aggregates and self.chance(35):
            relation, exprs = self.aggregation(relation, alias, like)
        else:
            exprs = [self.like(c.type, relation.columns) for c in like] or [
                self.value(relation.columns) for _ in range(self.choose(1, 2, 3))
            ]
        items = tuple(Item(f"v{i}", expr) for i, expr in enumerate(exprs))
        project = Project(relation, items, alias)
        return Distinct(project) if self.features.distinct and self.chance(15) else project

    def source(self, nesting: int) -> Relation:
        kind = self.choose("one", "join", "outer") if self.scans > 1 else "one"
        if kind == "one":
            return self.leaf(nesting, first=True)
        if kind == "join" or not self.features.outer_joins:
            return self.join(nesting)
        left = (
            self.join(nesting) if self.scans > 2 and self.chance(30) else self.leaf(nesting, True)
        )
        relation: Relation = left
        while True:
            right = self.leaf(nesting, first=False)
            on = self.join_condition(relation.columns, right.columns)
            relation = OuterJoin(relation, right, on, full=self.chance(30))
            if self.scans < 1 or self.chance(75):
                return relation

    def join(self, nesting: int) -> Relation:
        inputs = [self.leaf(nesting, first=True)]
        on: list[Expr] = []
        for _ in range(self.choose(1, 2) if self.scans > 1 else 1):
            joined = [c for relation in inputs for c in relation.columns]
            inputs.append(self.leaf(nesting, first=False))
            if self.chance(80):
                on.append(self.join_condition(joined, inputs[-1].columns))
        return Join(tuple(inputs), conjunction(on))

    def leaf(self, nesting: int, first: bool) -> Relation:
        if nesting and self.scans > 1 and self.chance(25):
            return self.blocks(self.alias("d"), nesting - 1)
        if not first and self.features.tables and self.chance(20):
            return ITEMS.scan(self.alias("i"))
        return self.scan()

    def scan(self) -> Relation:
        self.scans -= 1
        if self.features.twins:
            return BIDS.scan(Range(5 * SECOND), self.alias("b"))
        stream: Stream = self.choose(BIDS, ASKS)
        window = self.draw(windows(stream.schema, self.features))
        return stream.scan(window, self.alias(stream.name[0].lower()))

    def semi_join(self, left: Relation) -> SemiJoin:
        """[NOT] EXISTS and [NOT] IN, which need some columns of the right, by their places."""
        name = f"$exists{self.exists}"
        self.exists += 1
        right: Relation = self.scan()
        if self.scans > 0 and self.chance(20):
            right = Join((right, self.scan()))
        if self.chance(40):
            right = Select(right, self.condition(right.columns))
        needed: list[Column] = []

        def outside(column: Column) -> Column:
            if column not in needed:
                needed.append(column)
            return Column(name, f"c{needed.index(column)}", column.type, column.nullable)

        condition: Expr | None = None
        pairs = _pairs(left.columns, right.columns)
        kind = self.choose("exists", "with", "in", "not in") if pairs else "exists"
        if kind == "with":
            conditions = []
            for _ in range(self.choose(1, 2)):
                a, b = self.choose(*pairs)
                conditions.append(build_call(self.choose("=", "=", "<", ">="), a, outside(b)))
            condition = conjunction(dict.fromkeys(conditions))
        elif kind != "exists":
            a, b = self.choose(*pairs)
            condition = build_call("=", a, outside(b))
            if kind == "not in":
                nulls = build_call("is_null", a), build_call("is_null", outside(b))
                condition = build_call("or", condition, *nulls)
        items = tuple(Item(f"c{i}", c) for i, c in enumerate(needed)) or (Item("c0", literal(1)),)
        anti = kind == "not in" or (kind in ("exists", "with") and self.chance(50))
        return SemiJoin(left, Project(right, items, name), condition, anti)

    def aggregation(
        self, relation: Relation, alias: str, like: Sequence[Column]
    ) -> tuple[Relation, list[Expr]]:
        """GROUP BY .. [HAVING ..] and the expressions of the SELECT list above it."""
        keys: list[Expr] = []
        for _ in range(self.choose(0, 1, 1, 2)):
            key = self.choose(*relation.columns)
            if key.type == INT and self.chance(30):
                key = build_call("%", key, literal(2))
            keys += [] if key in keys else [key]
        calls = _Calls(f"{alias}$agg")
        columns = [Column(calls.alias, f"k{i}", k.type, is_nullable(k)) for i, k in enumerate(keys)]

        def shown(wanted: Type) -> Expr:
            alike = [c for c in columns if common_type(c.type, wanted) is not None]
            if alike and self.chance(40):
                return self.choose(*alike)
            drawn = self.aggregate(relation.columns)
            if common_type(drawn.type, wanted) is None:
                return _constant(wanted)
            found = calls.column(drawn)
            if found.type.is_numeric and not found.type.is_decimal and self.chance(20):
                return build_call("+", found, literal(1))
            return found

        wanted = [c.type for c in like] or [NULL] * self.choose(1, 2, 3)
        exprs = [shown(type_) for type_ in wanted]
        if not columns and not calls.calls:
            count = calls.column(build_aggregate("count", None))
            constant = _constant(wanted[0])
            exprs[0] = build_call("case", build_call(">", count, literal(1)), constant, constant)
        having = None
        if self.chance(30):
            found = self.choose(*columns) if columns and self.chance(20) else None
            found = found or calls.column(self.aggregate(relation.columns))
            having = self.comparison(found)
        node: Relation = Aggregate(relation, tuple(keys), tuple(calls.calls), calls.alias)
        return (node if having is None else Select(node, having)), exprs

    def aggregate(self, columns: Sequence[Column]) -> AggregateCall:
        filter_ = self.condition(columns, depth=0) if self.chance(20) else None
        if self.chance(30):
            return build_aggregate("count", None, filter=filter_)
        arg = self.value(columns)
        names = ["count", "min", "max"]
        if arg.type.is_numeric:
            names += ["sum", "sum"] + ([] if arg.type.is_decimal else ["avg"])
        if arg.type == BOOLEAN:
            names = ["count", "bool_and", "bool_or"]
        return build_aggregate(self.choose(*names), arg, self.chance(25), filter_)

    # expressions

    def value(self, columns: Sequence[Column], depth: int = 1) -> Expr:
        column = self.choose(*columns)
        return column if self.chance(60) else self.like(column.type, columns, depth)

    def like(self, type_: Type, columns: Sequence[Column], depth: int = 1) -> Expr:
        """An expression that has a type in common with this one."""
        alike = [c for c in columns if common_type(c.type, type_) is not None]
        if not alike or self.chance(15):
            return _constant(type_) if not alike else _literal_of(self, type_)
        column: Column = self.choose(*alike)
        if depth == 0 or self.chance(40):
            return column
        if self.chance(25):
            return self.choice(column, self.like(column.type, columns, depth - 1), columns)
        return self.computed(column, self.like(column.type, columns, depth - 1))

    def choice(self, a: Column, b: Expr, columns: Sequence[Column]) -> Expr:
        match self.choose("case", "coalesce", "greatest", "nullif"):
            case "case":
                return build_call("case", self.condition(columns, depth=0), a, b)
            case "coalesce":
                return build_call("coalesce", a, b)
            case "greatest":
                return build_call(self.choose("greatest", "least"), a, b)
            case _:
                return build_call("nullif", a, b)

    def computed(self, a: Column, b: Expr) -> Expr:
        """Arithmetic that is exact in every engine, and functions of texts and times."""
        if a.type.is_decimal or (a.type.is_numeric and b.type.is_decimal):
            return build_call(self.choose("+", "-"), a, b)
        if a.type.is_integer:
            return self.choose(
                build_call("+", a, b),
                build_call("-", a, b),
                build_call("*", a, literal(2)),
                build_call("%", a, literal(3)),
                build_call("pmod", a, literal(2)),
                build_call("/", a, literal(4)),
                build_call("neg", a),
                build_call("abs", a),
            )
        if a.type.is_numeric:
            return self.choose(
                build_call("+", a, b), build_call("*", a, literal(0.5)), build_call("abs", a)
            )
        if a.type == STRING:
            return self.choose(
                build_call("upper", a), build_call("concat", a, b), build_call("lower", a)
            )
        if a.type == TIMESTAMP:
            return self.choose(
                build_call("+", a, Literal(SECOND, INTERVAL)),
                build_call("date_trunc", literal("minute"), a),
            )
        return a

    def comparison(self, column: Column) -> Expr:
        if column.type == BOOLEAN:
            return self.choose(column, build_call("not", column), build_call("is_null", column))
        value = _literal_of(self, column.type)
        op = self.choose("<>", ">=", "<=", "<", ">", "=", "<=>")
        return build_call(op, column, value)

    def condition(self, columns: Sequence[Column], depth: int = 1) -> Expr:
        """A condition, with ANDs and ORs that hold none of their own kind."""
        kind = self.choose("one", "and", "or", "not") if depth else "one"
        if kind == "one":
            return self.atom(columns)
        first = self.condition(columns, depth - 1)
        if kind == "not":
            return first if first == TRUE else build_call("not", first)
        return build_call(kind, first, self.condition(columns, depth - 1))

    def atom(self, columns: Sequence[Column]) -> Expr:
        column: Column = self.choose(*columns)
        match self.choose("compare", "compare", "pair", "null", "in", "special"):
            case "pair" if pairs := [p for p in _pairs([column], columns) if p[1] != column]:
                a, b = self.choose(*pairs)
                return build_call(self.choose("=", "<", "<>", "<=>"), a, b)
            case "null":
                is_null = build_call("is_null", column)
                return build_call("not", is_null) if self.chance(60) else is_null
            case "in" if column.type in (INT, STRING, DOUBLE):
                members = [_literal_of(self, column.type) for _ in range(self.choose(1, 2, 3))]
                found = build_call("in", column, *members)
                return build_call("not", found) if self.chance(30) else found
            case "special" if column.type == STRING:
                return self.choose(
                    build_call("like", column, literal(self.choose("a%", "%b", "_", "a\\%", "%"))),
                    build_call("startswith", column, literal("a")),
                    build_call(">", build_call("length", column), literal(1)),
                )
            case "special" if column.type.is_numeric and not column.type.is_decimal:
                return build_call(
                    ">", build_call("+", column, literal(1)), _literal_of(self, column.type)
                )
            case _:
                return self.comparison(column)

    def join_condition(self, left: Sequence[Column], right: Sequence[Column]) -> Expr:
        pairs = _pairs(left, right)
        if not pairs:
            return self.condition([*left, *right], depth=0)
        a, b = self.choose(*pairs)
        first = build_call(self.choose("=", "=", "=", "<", ">="), a, b)
        if self.chance(75):
            return first
        return build_call("and", first, self.atom([*left, *right]))


def _pairs(left: Sequence[Column], right: Sequence[Column]) -> list[tuple[Column, Column]]:
    """Columns that can be compared; those of one name come first."""
    found = [(a, b) for a in left for b in right if common_type(a.type, b.type) is not None]
    return sorted(found, key=lambda pair: pair[0].name != pair[1].name)


def _constant(type_: Type) -> Literal:
    """A constant that has a type in common with this one."""
    if type_.is_numeric:
        return literal(1)
    if type_ in (STRING, BOOLEAN):
        return literal("a" if type_ == STRING else True)
    return Literal(2 * SECOND, type_)


def _literal_of(blocks: _Blocks, type_: Type) -> Literal:
    if type_ == DOUBLE:
        return literal(blocks.choose(1.0, 0.25, -0.5, 0.0, 2.5))
    if type_.is_decimal:
        return literal(blocks.choose(Decimal("1.25"), Decimal("0.5"), Decimal("10")))
    if type_.is_integer:
        return literal(blocks.choose(1, 0, 2, -1))
    if type_ == STRING:
        return literal(blocks.choose("a", "b", "ab", ""))
    if type_ == BOOLEAN:
        return literal(blocks.choose(True, False))
    return Literal(blocks.choose(2, 5, 0) * SECOND, type_)
