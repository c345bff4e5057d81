"""A second oracle: continuous queries as plain SQL in DuckDB.

Time becomes a column. A table of instants is joined to every stream, so that one relation holds the
windows of all instants; every relation above carries its instant `t` and the identity `id` of its
rows; joins and groups are by instant; and ISTREAM is EXCEPT ALL between neighbouring instants. This
shares no code with the reference evaluator, not even the meaning of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache

import duckdb
import pyarrow as pa

from headwater.algebra.expressions import Call, Column, Expr, Literal
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
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
    walk_relations,
)
from headwater.algebra.types import (
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    Schema,
    Type,
    common_type,
)
from headwater.algebra.windows import Range
from headwater.reference import Result, Row


class Unsupported(Exception):
    """The query has a part that is not translated; says which."""


def supports(query: Query) -> bool:
    """Whether the query can be translated."""
    try:
        _Translation(query)
    except Unsupported:
        return False
    return True


def duckdb_evaluate(
    query: Query,
    streams: Mapping[str, Sequence[Row]],
    tables: Mapping[str, Sequence[Row]] | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    keep: Mapping[str, int] | None = None,
) -> list[Result]:
    """The result, in order of time; arguments as for the reference evaluator. Raises Unsupported."""
    translation = _Translation(query)
    kept = {name.lower(): length for name, length in (keep or {}).items()}
    connection = _connection()
    for name, scan in translation.sources.items():
        given = streams if isinstance(scan, Scan) else tables or {}
        key = (scan.stream if isinstance(scan, Scan) else scan.table).lower()
        rows = next(rows for given_name, rows in given.items() if given_name.lower() == key)
        numbered = list(enumerate(rows))
        if isinstance(scan, Scan) and start is not None and key in kept:
            time = _place(scan.schema, scan.time)
            numbered = [(i, r) for i, r in numbered if r[time] >= start - kept[key]]
        connection.register(name, _arrow(numbered, scan.schema))
    found = connection.execute(translation.sql).fetchall()
    return [
        Result(t, tuple(values))
        for t, *values in found
        if (start is None or t > start) and (end is None or t <= end)
    ]


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for all queries; each registers its own inputs."""
    return duckdb.connect(config={"threads": 1})


def _place(schema: Schema, name: str) -> int:
    return [n.lower() for n in schema.names].index(name.lower())


def _arrow(numbered: Sequence[tuple[int, Row]], schema: Schema) -> pa.Table:
    columns = {"arrival": pa.array([i for i, _ in numbered], pa.int64())}
    for place, column in enumerate(schema):
        values = [row[place] for _, row in numbered]
        columns[f"c{place}"] = pa.array(values, _arrow_type(column.type))
    return pa.table(columns)


def _arrow_type(type_: Type) -> pa.DataType:
    if type_.is_decimal:
        return pa.decimal128(type_.precision, type_.scale)
    return {"BOOLEAN": pa.bool_(), "STRING": pa.string(), "DOUBLE": pa.float64()}.get(
        type_.name, pa.int64()
    )


def _sql_type(type_: Type) -> str:
    """Integers and times are all BIGINT; a value outside its own type is not looked for."""
    if type_.is_decimal:
        return str(type_)
    names = {"BOOLEAN": "BOOLEAN", "STRING": "VARCHAR", "DOUBLE": "DOUBLE", "NULL": "INTEGER"}
    if type_.name == "FLOAT":
        raise Unsupported("FLOAT")
    return names.get(type_.name, "BIGINT")


# ---- relations


@dataclass
class _Translation:
    query: Query
    parts: list[str] = field(default_factory=list)
    sources: dict[str, Scan | TableScan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add(_instants(self), "instants")
        root = self.relation(self.query.root)
        columns = ", ".join(f"c{i}" for i in range(len(self.query.columns)))
        now = f"SELECT t, id, {columns} FROM {root}"
        steps = "(SELECT t, lead(t) OVER (ORDER BY t) AS following FROM instants) i"
        before = (
            f"SELECT i.following AS t, r.id, {columns} FROM {root} r JOIN {steps} ON i.t = r.t"
            " WHERE i.following IS NOT NULL"
        )
        emitted = {
            Output.RSTREAM: now,
            Output.ISTREAM: f"({now}) EXCEPT ALL ({before})",
            Output.DSTREAM: f"({before}) EXCEPT ALL ({now})",
        }[self.query.output]
        self.add(emitted, "emitted")
        self.sql = (
            f"WITH {', '.join(self.parts)} SELECT t, {columns} FROM emitted ORDER BY t, {columns}"
        )

    def add(self, sql: str, name: str = "") -> str:
        name = name or f"r{len(self.parts)}"
        self.parts.append(f"{name} AS MATERIALIZED ({sql})")
        return name

    def source(self, scan: Scan | TableScan) -> str:
        name = f"{'s' if isinstance(scan, Scan) else 't'}_{len(self.sources)}"
        self.sources[name] = scan
        return name

    def relation(self, node: Relation) -> str:
        match node:
            case Scan():
                return self.add(self.scan(node))
            case TableScan():
                name = self.source(node)
                return self.add(
                    f"SELECT i.t, '{name}:' || s.arrival AS id, {_all(node, 's')}"
                    f" FROM instants i, {name} s"
                )
            case Select():
                x = self.relation(node.input)
                condition = _Printer.of(x=node.input).text(node.condition)
                return self.add(f"SELECT * FROM {x} x WHERE {condition}")
            case Project():
                return self.add(self.project(node))
            case Join():
                return self.add(self.join(node))
            case OuterJoin():
                return self.add(self.outer_join(node))
            case SemiJoin():
                return self.add(self.semi_join(node))
            case Aggregate():
                return self.add(self.aggregate(node))
            case Distinct():
                x = self.relation(node.input)
                values = [_key(f"x.c{i}", column.type) for i, column in enumerate(node.columns)]
                return self.add(
                    f"SELECT DISTINCT t, {_identity(values)} AS id, {_named(values)} FROM {x} x"
                )
            case UnionAll():
                return self.add(self.union_all(node))

    def scan(self, scan: Scan) -> str:
        name = self.source(scan)
        time = f"s.c{_place(scan.schema, scan.time)}"
        head = f"SELECT i.t, '{name}:' || s.arrival AS id, {_all(scan, 's')}"
        window = scan.window
        if isinstance(window, Range):
            slide = window.slide
            at = "i.t" if slide is None else f"({slide} * CAST(floor(i.t / {slide}) AS BIGINT))"
            since = "" if window.size is None else f" AND {time} >= {at} - {window.size}"
            return f"{head} FROM instants i JOIN {name} s ON {time} <= {at}{since}"
        keys = "".join(
            f", {_key(f's.c{_place(scan.schema, key)}', scan.schema[key].type)}"
            for key in window.partition_by
        )
        return (
            f"{head} FROM instants i JOIN {name} s ON {time} <= i.t"
            f" QUALIFY row_number() OVER (PARTITION BY i.t{keys}"
            f" ORDER BY {time} DESC, s.arrival DESC) <= {window.count}"
        )

    def project(self, node: Project) -> str:
        x = self.relation(node.input)
        printer = _Printer.of(x=node.input)
        values = [printer.text(item.expr) for item in node.items]
        below: Relation = node.input
        while isinstance(below, Select):
            below = below.input
        identity = "id"
        if isinstance(below, Aggregate):
            keys = [_key(v, i.expr.type) for v, i in zip(values, node.items, strict=True)]
            identity = _identity(keys)
        return f"SELECT t, {identity} AS id, {_named(values)} FROM {x} x"

    def join(self, node: Join) -> str:
        names = [f"x{i}" for i in range(len(node.inputs))]
        sources = [self.relation(relation) for relation in node.inputs]
        tables = f"{sources[0]} x0" + "".join(
            f" JOIN {source} {name} ON {name}.t = x0.t"
            for name, source in zip(names[1:], sources[1:], strict=True)
        )
        printer = _Printer.of(**dict(zip(names, node.inputs, strict=True)))
        columns = _named([printer.text(column) for column in node.columns])
        where = "" if node.condition is None else f" WHERE {printer.text(node.condition)}"
        identity = " || ',' || ".join(f"{name}.id" for name in names)
        return f"SELECT x0.t, '(' || {identity} || ')' AS id, {columns} FROM {tables}{where}"

    def outer_join(self, node: OuterJoin) -> str:
        left, right = self.relation(node.left), self.relation(node.right)
        printer = _Printer.of(x=node.left, y=node.right)
        columns = [printer.text(column) for column in node.columns]
        condition = printer.text(node.condition)
        identity = "'(' || x.id || ',' || coalesce(y.id, '-') || ')'"
        sql = (
            f"SELECT x.t, {identity} AS id, {_named(columns)} FROM {left} x"
            f" LEFT JOIN {right} y ON x.t = y.t AND {condition}"
        )
        if not node.full:
            return sql
        width = len(node.left.columns)
        lonely = [
            f"CAST(NULL AS {_sql_type(column.type)})" if i < width else columns[i]
            for i, column in enumerate(node.columns)
        ]
        return (
            f"{sql} UNION ALL SELECT y.t, '(-,' || y.id || ')' AS id, {_named(lonely)}"
            f" FROM {right} y"
            f" WHERE NOT EXISTS (SELECT 1 FROM {left} x WHERE x.t = y.t AND {condition})"
        )

    def semi_join(self, node: SemiJoin) -> str:
        left, right = self.relation(node.left), self.relation(node.right)
        printer = _Printer.of(x=node.left, y=node.right)
        condition = "" if node.condition is None else f" AND {printer.text(node.condition)}"
        negated = "NOT " if node.anti else ""
        return (
            f"SELECT * FROM {left} x"
            f" WHERE {negated}EXISTS (SELECT 1 FROM {right} y WHERE y.t = x.t{condition})"
        )

    def aggregate(self, node: Aggregate) -> str:
        x = self.relation(node.input)
        printer = _Printer.of(x=node.input)
        keys = [_key(printer.text(key), key.type) for key in node.keys]
        calls = [_aggregate(call, printer) for call in node.calls]
        values = _named([*keys, *calls])
        if keys:
            groups = ", ".join(str(i + 1) for i in range(len(keys) + 1))
            sql = f"SELECT x.t, {values} FROM {x} x GROUP BY {groups}"
        else:
            sql = f"SELECT i.t, {values} FROM instants i LEFT JOIN {x} x ON i.t = x.t GROUP BY i.t"
        types = [c.type for c in node.columns]
        identity = _identity([_key(f"g.c{i}", t) for i, t in enumerate(types)])
        columns = ", ".join(f"c{i}" for i in range(len(types)))
        return f"SELECT t, {identity} AS id, {columns} FROM ({sql}) g"

    def union_all(self, node: UnionAll) -> str:
        branches = []
        for number, relation in enumerate(node.inputs):
            x = self.relation(relation)
            values = [
                f"CAST(c{i} AS {_sql_type(column.type)})" for i, column in enumerate(node.columns)
            ]
            branches.append(f"SELECT t, '{number}/' || id AS id, {_named(values)} FROM {x}")
        return " UNION ALL ".join(branches)


def _all(scan: Scan | TableScan, alias: str) -> str:
    return ", ".join(f"{alias}.c{i}" for i in range(len(scan.columns)))


def _named(values: Sequence[str]) -> str:
    return ", ".join(f"{value} AS c{i}" for i, value in enumerate(values))


def _key(text: str, type_: Type) -> str:
    """Zero without a sign."""
    return f"CASE WHEN {text} = 0 THEN 0.0::DOUBLE ELSE {text} END" if type_ == DOUBLE else text


def _identity(values: Sequence[str]) -> str:
    """A text that two rows share only if they have the same values."""
    texts = [f"CAST({value} AS VARCHAR)" for value in values]
    return " || ".join(f"coalesce(length({t}) || ':' || {t}, 'n')" for t in texts)


def _instants(translation: _Translation) -> str:
    """Instants are a matter of the inputs, so this reads the streams on its own."""
    scans = [n for n in walk_relations(translation.query.root) if isinstance(n, Scan)]
    if not scans:
        raise Unsupported("a query without a stream")
    events = " UNION ".join(
        f"SELECT c{_place(scan.schema, scan.time)} AS ts FROM {translation.source(scan)}"
        for scan in scans
    )
    slides = {
        scan.window.slide
        for scan in scans
        if isinstance(scan.window, Range) and scan.window.slide is not None
    }
    if not slides:
        return f"SELECT DISTINCT ts AS t FROM ({events})"
    ends = ", ".join(f"{s} * CAST(ceil(max(ts) / {s}) AS BIGINT)" for s in slides)
    bounds = f"SELECT min(ts) AS lo, greatest({ends}, -9223372036854775807) AS hi FROM ({events})"
    ticks = " UNION ".join(
        f"SELECT unnest(range({s} * CAST(ceil(lo / {s}) AS BIGINT), hi + 1, {s})) AS t"
        f" FROM ({bounds}) WHERE lo IS NOT NULL"
        for s in slides
    )
    return f"SELECT DISTINCT t FROM ({ticks})"


# ---- expressions


@dataclass
class _Printer:
    """Writes expressions over the columns of relations that have aliases in the SQL."""

    names: dict[tuple[str, str], str]

    @classmethod
    def of(cls, **inputs: Relation) -> _Printer:
        return cls(
            {
                (column.relation.lower(), column.name.lower()): f"{alias}.c{i}"
                for alias, relation in inputs.items()
                for i, column in enumerate(relation.columns)
            }
        )

    def text(self, expr: Expr) -> str:
        if isinstance(expr, Column):
            return self.names[expr.relation.lower(), expr.name.lower()]
        if isinstance(expr, Literal):
            return _literal(expr)
        if expr.name == "cast":
            return self.cast(expr)
        write = _FUNCTIONS.get(expr.name)
        if write is None:
            raise Unsupported(expr.name)
        return f"({write(self, expr)})"

    def cast(self, expr: Call) -> str:
        source, target, text = expr.args[0].type, expr.type, self.text(expr.args[0])
        if (source.is_integer and target == DOUBLE) or source == NULL:
            return f"CAST({text} AS {_sql_type(target)})"
        if source.is_integer and target == STRING:
            return f"CAST({text} AS VARCHAR)"
        if source == BOOLEAN and target.is_integer:
            return f"CAST({text} AS BIGINT)"
        if source.is_integer and target.name == "BIGINT":
            return text
        raise Unsupported(f"cast {source} to {target}")

    def alike(self, args: Sequence[Expr]) -> list[str]:
        """The arguments in their common type."""
        type_ = args[0].type
        for arg in args[1:]:
            type_ = common_type(type_, arg.type) or type_
        return [
            self.text(a) if a.type == type_ else f"CAST({self.text(a)} AS {_sql_type(type_)})"
            for a in args
        ]


def _literal(expr: Literal) -> str:
    value, type_ = expr.value, expr.type
    if value is None:
        return f"CAST(NULL AS {_sql_type(type_)})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS {_sql_type(type_)})"
    return f"CAST({value} AS {_sql_type(type_)})"


Write = Callable[[_Printer, Call], str]


def _between(operator: str, alike: bool = False) -> Write:
    def write(printer: _Printer, call: Call) -> str:
        texts = printer.alike(call.args) if alike else [printer.text(a) for a in call.args]
        return f" {operator} ".join(texts)

    return write


def _arithmetic(printer: _Printer, call: Call) -> str:
    if call.type.is_decimal and call.name not in ("+", "-"):
        raise Unsupported(f"{call.name} of decimals")
    target = _sql_type(call.type)
    a, b = (
        text if arg.type.is_decimal and call.type.is_decimal else f"CAST({text} AS {target})"
        for text, arg in ((printer.text(arg), arg) for arg in call.args)
    )
    if call.name in ("+", "-", "*"):
        return f"CAST({a} {call.name} {b} AS {target})"
    if call.name == "pmod":
        rest = f"({a} % {b})"
        return (
            f"CASE WHEN {b} = 0 THEN NULL WHEN {rest} < 0 THEN ({rest} + {b}) % {b} ELSE {rest} END"
        )
    operator = "//" if call.name == "div" else call.name
    return f"CASE WHEN {b} = 0 THEN NULL ELSE {a} {operator} {b} END"


def _function(name: str, alike: bool = False) -> Write:
    def write(printer: _Printer, call: Call) -> str:
        texts = printer.alike(call.args) if alike else [printer.text(a) for a in call.args]
        return f"{name}({', '.join(texts)})"

    return write


def _case(printer: _Printer, call: Call) -> str:
    *branches, otherwise = call.args
    target = _sql_type(call.type)
    whens = " ".join(
        f"WHEN {printer.text(c)} THEN CAST({printer.text(v)} AS {target})"
        for c, v in zip(branches[::2], branches[1::2], strict=True)
    )
    return f"CASE {whens} ELSE CAST({printer.text(otherwise)} AS {target}) END"


def _in(printer: _Printer, call: Call) -> str:
    value, *members = printer.alike(call.args)
    return f"{value} IN ({', '.join(members)})"


def _nullif(printer: _Printer, call: Call) -> str:
    a, b = printer.alike(call.args)
    return f"CASE WHEN {a} = {b} THEN NULL ELSE {printer.text(call.args[0])} END"


def _part(template: str) -> Write:
    """A function of one moment, which is declared as one to DuckDB."""

    def write(printer: _Printer, call: Call) -> str:
        return template.format(f"make_timestamp({printer.text(call.args[0])})")

    return write


_FUNCTIONS: dict[str, Write] = {
    **{op: _between(op, alike=True) for op in ("=", "<>", "<", "<=", ">", ">=")},
    "<=>": _between("IS NOT DISTINCT FROM", alike=True),
    "and": _between("AND"),
    "or": _between("OR"),
    "not": lambda p, c: f"NOT {p.text(c.args[0])}",
    "is_null": lambda p, c: f"{p.text(c.args[0])} IS NULL",
    "in": _in,
    "case": _case,
    **dict.fromkeys(("+", "-", "*", "/", "%", "pmod", "div"), _arithmetic),
    "neg": lambda p, c: f"- {p.text(c.args[0])}",
    "abs": _function("abs"),
    "ceil": lambda p, c: f"CAST(ceil({p.text(c.args[0])}) AS {_sql_type(c.type)})",
    "floor": lambda p, c: f"CAST(floor({p.text(c.args[0])}) AS {_sql_type(c.type)})",
    "coalesce": _function("coalesce", alike=True),
    "greatest": _function("greatest", alike=True),
    "least": _function("least", alike=True),
    "nullif": _nullif,
    "upper": _function("upper"),
    "lower": _function("lower"),
    "length": _function("length"),
    "concat": _between("||"),
    "startswith": _function("starts_with"),
    "endswith": _function("ends_with"),
    "contains": _function("contains"),
    "like": lambda p, c: f"{p.text(c.args[0])} LIKE {p.text(c.args[1])} ESCAPE '\\'",
    "second": _part("CAST(second({}) AS BIGINT)"),
    "minute": _part("minute({})"),
    "date_trunc": lambda p, c: (
        f"epoch_us(CAST(date_trunc({p.text(c.args[0])}, make_timestamp({p.text(c.args[1])}))"
        " AS TIMESTAMP))"
    ),
    "unix_seconds": lambda p, c: f"CAST(floor({p.text(c.args[0])} / 1000000) AS BIGINT)",
}


def _aggregate(call: AggregateCall, printer: _Printer) -> str:
    condition = "x.id IS NOT NULL"
    if call.filter is not None:
        condition += f" AND {printer.text(call.filter)}"
    where = f"FILTER (WHERE {condition})"
    if call.arg is None:
        return f"count(*) {where}"
    argument = _key(printer.text(call.arg), call.arg.type)
    distinct = "DISTINCT " if call.distinct else ""
    if call.name == "avg" and not call.type.is_decimal:
        total = f"CAST(sum({distinct}{argument}) {where} AS DOUBLE)"
        return f"{total} / nullif(count({distinct}{argument}) {where}, 0)"
    if call.name not in ("count", "sum", "min", "max", "bool_and", "bool_or"):
        raise Unsupported(f"{call.name} of {call.arg.type}")
    return f"CAST({call.name}({distinct}{argument}) {where} AS {_sql_type(call.type)})"
