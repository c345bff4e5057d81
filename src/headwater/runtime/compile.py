"""A query as the Spark SQL of its steps.

There are two ways to run a query. A select-project-join whose results are known from the tuples
alone (`Delta`) joins only what is new: for inputs 1..k the sum over i of
N1 .. N(i-1) |x| delta_i |x| O(i+1) .. Ok, where N is all, O what was there before and delta the
difference. Everything else (`Instants`) waits for the watermark and evaluates the relation at each
new instant: every relation carries the instant `_t` it is seen at, so a window is a join with the
instants, a group is a group per instant, and what entered or left between two instants is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.algebra.canonical import Block, Canonical
from headwater.algebra.expressions import Column, Expr, columns_of, conjuncts
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
    relations,
    slides,
)
from headwater.algebra.predicate import to_expr
from headwater.algebra.windows import Range, Rows, Window
from headwater.runtime.sparksql import aggregate_sql, quoted, spark_type, sql

TIME = "_ts"
"""Event time in microseconds, in every segment of a stream."""

ARRIVAL = "_arrival"
"""Place in the source's own order, in every segment of a stream."""


def entry_instant(time: str, window: Window, all_slides: frozenset[int]) -> str:
    """SQL of the first instant at which a window could hold a tuple of that time."""
    own = window.slide if isinstance(window, Range) else None
    if own is not None:
        return _next_multiple(time, own)
    if all_slides:
        return _least([_next_multiple(time, slide) for slide in sorted(all_slides)])
    return time


def holds(time: str, instant: str, window: Range) -> str | None:
    """SQL: the window at that instant holds a tuple of that time, given it is not younger."""
    if window.size is None:
        return None
    at = instant if window.slide is None else _last_multiple(instant, window.slide)
    return f"{time} >= {at} - {window.size}L"


def window_start(scan: Scan, instant: int) -> int | None:
    """The least time a window can hold at that instant or later; None if there is none."""
    window = scan.window
    if not isinstance(window, Range) or window.size is None:
        return None
    return instant - window.size - (window.slide or 0)


def _next_multiple(time: str, slide: int) -> str:
    return f"({time} + pmod(-{time}, {slide}L))"


def _last_multiple(time: str, slide: int) -> str:
    return f"({time} - pmod({time}, {slide}L))"


def _least(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"least({', '.join(texts)})"


def _greatest(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"greatest({', '.join(texts)})"


# ---- delta joins


@dataclass(frozen=True)
class Delta:
    """A select-project-join: each new combination of tuples is told once, at its instant."""

    block: Block

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """The streams of the query by their place: (s0, scan), .."""
        return tuple((s.alias, s) for s in self.block.sources if isinstance(s, Scan))

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        return tuple((s.alias, s) for s in self.block.sources if isinstance(s, TableScan))

    @cached_property
    def slides(self) -> frozenset[int]:
        windows = [scan.window for _, scan in self.scans]
        return frozenset(w.slide for w in windows if isinstance(w, Range) and w.slide)

    @cached_property
    def tau(self) -> str:
        return _greatest(
            [entry_instant(f"{a}.{TIME}", scan.window, self.slides) for a, scan in self.scans]
        )

    def reach(self, alias: str) -> tuple[int | None, int]:
        """How far before (None: for ever) and after a tuple of another input one of `alias` may be
        to meet it in a result."""
        own = dict(self.scans)[alias].window
        others = [scan.window for a, scan in self.scans if a != alias]
        slack = max(self.slides, default=0)
        sizes = [w.size for w in others if isinstance(w, Range)]
        after = 2**62 if None in sizes else max((s for s in sizes if s is not None), default=0)
        before = own.size if isinstance(own, Range) else None
        return (None if before is None else before + slack, after + slack)

    def term(self, order: Sequence[str], views: dict[str, str], broadcast: Sequence[str]) -> str:
        """SQL of one term of the delta join: sources joined in that order from those views."""
        windows = [
            held
            for a, scan in self.scans
            if isinstance(scan.window, Range)
            and (held := holds(f"{a}.{TIME}", self.tau, scan.window)) is not None
            and not self._always_holds(scan.window)
        ]
        pending = [
            (columns_of(part), sql(part, _dotted)) for part in conjuncts(to_expr(self.block.where))
        ]
        bound: set[str] = set()
        lines: list[str] = []
        for alias in order:
            bound.add(alias)
            ready = [text for read, text in pending if {c.relation for c in read} <= bound]
            pending = [(r, t) for r, t in pending if not {c.relation for c in r} <= bound]
            if len(bound) == 1:
                first = ready
                lines.append(f"FROM {views[alias]} {alias}")
            else:
                lines.append(f"JOIN {views[alias]} {alias} ON {' AND '.join(ready) or 'TRUE'}")
        conditions = [*first, *windows]
        hint = f"/*+ BROADCAST({', '.join(broadcast)}) */ " if broadcast else ""
        items = [f"{sql(e, _dotted)} AS c{i}" for i, e in enumerate(self.block.items)]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {hint}{self.tau} AS _tau, {', '.join(items)}\n" + "\n".join([*lines, where])

    def _always_holds(self, window: Range) -> bool:
        """A lone stream's window holds its newest tuple, unless slides pass tuples by."""
        return len(self.scans) == 1 and window.slide is None and not self.slides


def _dotted(column: Column) -> str:
    return f"{column.relation}.{quoted(column.name)}"


# ---- evaluation at instants


@dataclass(frozen=True)
class Instants:
    """Any query: its relation at every new instant, and what of the changes is told.

    The SQL reads a view `instants(t, next)` and one view per scan and table. The instants are those
    of the step and before them the last one of the step before, if there was one.
    """

    query: Query

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """Every scan of the tree by its place: (v0, scan), .. (equal scans are told apart)."""
        found = [n for n in relations(self.query.root) if isinstance(n, Scan)]
        return tuple((f"v{i}", scan) for i, scan in enumerate(found))

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        found = [n for n in relations(self.query.root) if isinstance(n, TableScan)]
        return tuple((f"b{i}", table) for i, table in enumerate(found))

    @cached_property
    def slides(self) -> frozenset[int]:
        return slides(self.query.root)

    def text(self, after: int) -> str:
        """SQL of the rows told at instants later than `after`: `_tau`, c0, c1, .."""
        outer = self.query.output
        writer = _InstantWriter(self, outer is not Output.RSTREAM)
        body = writer.relation(self.query.root)
        names = [_flat(c) for c in self.query.columns]
        shown = ", ".join(f"{name} AS c{i}" for i, name in enumerate(names))
        if outer is Output.RSTREAM:
            return f"SELECT _t AS _tau, {shown} FROM {body} WHERE _t > {after}L"
        sign = 1 if outer is Output.ISTREAM else -1
        listed = ", ".join(names)
        return (
            f"WITH r AS (SELECT _t, _id, {listed} FROM {body}),\n"
            f"changes AS (\n"
            f"  SELECT r._t, _id, {listed}, {sign} AS w FROM r\n"
            f"  WHERE r._t > {after}L\n"
            f"  UNION ALL\n"
            f"  SELECT i.next, _id, {listed}, {-sign} AS w FROM r JOIN instants i ON r._t = i.t\n"
            f"  WHERE i.next IS NOT NULL),\n"
            f"told AS (SELECT _t, {listed}, sum(w) AS n FROM changes\n"
            f"  GROUP BY _t, _id, {listed} HAVING sum(w) > 0)\n"
            f"SELECT _t AS _tau, {shown} FROM told LATERAL VIEW explode(sequence(1L, n)) copies AS _n"
        )


def _flat(column: Column) -> str:
    return quoted(f"{column.relation}.{column.name}")


class _InstantWriter:
    """Writes relations with their instant `_t` and, where it is needed, their identity `_id`."""

    def __init__(self, plan: Instants, identified: bool) -> None:
        self.plan = plan
        self.identified = identified
        self._scans = iter(plan.scans)
        self._tables = iter(plan.tables)

    def relation(self, node: Relation) -> str:
        match node:
            case Scan():
                return self._scan(node)
            case TableScan():
                return self._table(node)
            case Select():
                below = self.relation(node.input)
                return f"(SELECT * FROM {below} WHERE {sql(node.condition, _flat)})"
            case Project():
                below = self.relation(node.input)
                items = ", ".join(
                    f"{sql(item.expr, _flat)} AS {_flat(column)}"
                    for item, column in zip(node.items, node.columns, strict=True)
                )
                rows = f"(SELECT _t, _id, {items} FROM {below})"
                if not (self.identified and _is_grouped(node.input)):
                    return rows
                columns = ", ".join(map(_flat, node.columns))
                return f"(SELECT _t, {self._value_id(node.columns)} AS _id, {columns} FROM {rows})"
            case Join():
                return self._join(node)
            case OuterJoin():
                return self._outer(node)
            case SemiJoin():
                left, right = self.relation(node.left), self.relation(node.right)
                kind = "ANTI" if node.anti else "SEMI"
                return f"(SELECT l.* FROM {left} l LEFT {kind} JOIN {right} r ON {self._on(node.condition)})"
            case Aggregate():
                return self._aggregate(node)
            case Distinct():
                below = self.relation(node.input)
                columns = ", ".join(map(_flat, node.columns))
                rows = f"(SELECT DISTINCT _t, {columns} FROM {below})"
                return f"(SELECT _t, {self._value_id(node.columns)} AS _id, {columns} FROM {rows})"
            case UnionAll():
                return self._union(node)

    def _scan(self, node: Scan) -> str:
        view, _ = next(self._scans)
        columns = ", ".join(f"s.{quoted(c.name)} AS {_flat(c)}" for c in node.columns)
        identity = self._identity(f"concat('{view}:', s.{ARRIVAL})")
        window = node.window
        if isinstance(window, Rows):
            keys = "".join(f", s.{quoted(name)}" for name in window.partition_by)
            rank = f"row_number() OVER (PARTITION BY i.t{keys} ORDER BY s.{TIME} DESC, s.{ARRIVAL} DESC)"
            inner = (
                f"SELECT i.t AS _t, {identity} AS _id, {columns}, {rank} AS _rank "
                f"FROM instants i JOIN {view} s ON s.{TIME} <= i.t"
            )
            names = ", ".join(map(_flat, node.columns))
            return f"(SELECT _t, _id, {names} FROM ({inner}) WHERE _rank <= {window.count})"
        at = "i.t" if window.slide is None else _last_multiple("i.t", window.slide)
        conditions = [f"s.{TIME} <= {at}"]
        if (held := holds(f"s.{TIME}", "i.t", window)) is not None:
            conditions.append(held)
        if len(self.plan.slides) == 1:
            return self._exploded(view, window, columns, identity)
        return (
            f"(SELECT i.t AS _t, {identity} AS _id, {columns} "
            f"FROM instants i JOIN {view} s ON {' AND '.join(conditions)})"
        )

    def _exploded(self, view: str, window: Range, columns: str, identity: str) -> str:
        """With one slide a tuple knows its instants: no join is needed."""
        (slide,) = self.plan.slides
        first = f"greatest({_next_multiple(f's.{TIME}', slide)}, bounds.first)"
        last = "bounds.last"
        if window.size is not None:
            last = f"least({_last_multiple(f'(s.{TIME} + {window.size}L)', slide)}, bounds.last)"
        seen = f"explode(sequence({first}, {last}, {slide}L))"
        inner = (
            f"SELECT {seen} AS _t, s.* FROM {view} s CROSS JOIN "
            f"(SELECT min(t) AS first, max(t) AS last FROM instants) bounds WHERE {first} <= {last}"
        )
        return f"(SELECT s._t, {identity} AS _id, {columns} FROM ({inner}) s)"

    def _table(self, node: TableScan) -> str:
        view, _ = next(self._tables)
        columns = ", ".join(f"s.{quoted(c.name)} AS {_flat(c)}" for c in node.columns)
        identity = self._identity(f"concat('{view}:', s.{ARRIVAL})")
        return (
            f"(SELECT i.t AS _t, {identity} AS _id, {columns} FROM instants i CROSS JOIN {view} s)"
        )

    def _join(self, node: Join) -> str:
        inputs = [self.relation(part) for part in node.inputs]
        columns = [f"j{n}.{_flat(c)}" for n, part in enumerate(node.inputs) for c in part.columns]
        identity = self._identity(
            f"concat_ws('|', {', '.join(f'j{n}._id' for n in range(len(inputs)))})"
        )
        lines = [f"{inputs[0]} j0"]
        lines += [f"JOIN {text} j{n} ON j0._t = j{n}._t" for n, text in enumerate(inputs) if n]
        where = "" if node.condition is None else f" WHERE {sql(node.condition, _flat)}"
        return (
            f"(SELECT j0._t AS _t, {identity} AS _id, {', '.join(columns)} "
            f"FROM {' '.join(lines)}{where})"
        )

    def _outer(self, node: OuterJoin) -> str:
        left, right = self.relation(node.left), self.relation(node.right)
        kind = "FULL" if node.full else "LEFT"
        columns = ", ".join(
            f"{side}.{_flat(c)}"
            for side, part in (("l", node.left), ("r", node.right))
            for c in part.columns
        )
        identity = self._identity("concat(coalesce(l._id, '-'), '|', coalesce(r._id, '-'))")
        return (
            f"(SELECT coalesce(l._t, r._t) AS _t, {identity} AS _id, {columns} "
            f"FROM {left} l {kind} JOIN {right} r ON {self._on(node.condition)})"
        )

    def _aggregate(self, node: Aggregate) -> str:
        below = self.relation(node.input)
        names = [quoted(f"{node.alias}.k{i}") for i in range(len(node.keys))]
        keys = [f"{sql(key, _flat)} AS {name}" for key, name in zip(node.keys, names, strict=True)]
        calls = [
            f"{aggregate_sql(call, _flat, '' if node.keys else 'x._t IS NOT NULL')} "
            f"AS {quoted(f'{node.alias}.a{i}')}"
            for i, call in enumerate(node.calls)
        ]
        if node.keys:
            grouped = ", ".join(sql(key, _flat) for key in node.keys)
            text = f"SELECT _t, {', '.join([*keys, *calls])} FROM {below} GROUP BY _t, {grouped}"
        else:
            text = (
                f"SELECT i.t AS _t, {', '.join(calls)} FROM instants i LEFT JOIN {below} x "
                f"ON i.t = x._t GROUP BY i.t"
            )
        columns = ", ".join(map(_flat, node.columns))
        return f"(SELECT _t, CAST(NULL AS STRING) AS _id, {columns} FROM ({text}))"

    def _union(self, node: UnionAll) -> str:
        parts = []
        for n, part in enumerate(node.inputs):
            columns = ", ".join(
                f"CAST({_flat(source)} AS {spark_type(target.type)}) AS {_flat(target)}"
                for source, target in zip(part.columns, node.columns, strict=True)
            )
            identity = self._identity(f"concat('{n}/', _id)")
            parts.append(f"SELECT _t, {identity} AS _id, {columns} FROM {self.relation(part)}")
        return f"({' UNION ALL '.join(parts)})"

    def _on(self, condition: Expr | None) -> str:
        return "l._t = r._t" + ("" if condition is None else f" AND {sql(condition, _flat)}")

    def _identity(self, text: str) -> str:
        return text if self.identified else "CAST(NULL AS STRING)"

    def _value_id(self, columns: Sequence[Column]) -> str:
        """Rows of groups (as they are told) and of DISTINCT are identified by value."""
        return self._identity(f"to_json(struct({', '.join(map(_flat, columns))}))")


def _is_grouped(relation: Relation) -> bool:
    while isinstance(relation, Select):
        relation = relation.input
    return isinstance(relation, Aggregate)


def compiled(canonical: Canonical) -> Delta | Instants:
    """The way to run a canonical query."""
    body = canonical.body
    if (
        canonical.output is Output.ISTREAM
        and isinstance(body, Block)
        and body.group is None
        and not body.distinct
        and not body.semis
        and all(_is_plain(source) for source in body.sources)
        and any(isinstance(source, Scan) for source in body.sources)
    ):
        return Delta(body)
    return Instants(canonical.query)


def _is_plain(source: object) -> bool:
    return isinstance(source, TableScan) or (
        isinstance(source, Scan) and isinstance(source.window, Range)
    )
