"""Any query, evaluated at its instants.

It waits for the watermark and evaluates the relation at each new instant: every relation carries the
instant `_t` it is seen at, so a window is a join with the instants, a group is a group per instant,
and what entered or left between two instants is a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headwater.algebra.expressions import Column, Expr
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
    slides,
    walk_relations,
)
from headwater.algebra.windows import Range, Rows
from headwater.runtime.compile.plan import PartialJoin, SlideSets, StepFactory, T
from headwater.runtime.compile.windows import (
    FOREVER,
    UNTIL,
    holds_sql,
    last_multiple_sql,
    next_multiple_sql,
    rows_window_sql,
)
from headwater.runtime.spark.aggregates import aggregate_sql
from headwater.runtime.spark.sql import (
    expression_sql,
    quote_identifier,
    spark_type,
)
from headwater.runtime.storage.columns import ARRIVAL, TIME


@dataclass(frozen=True)
class InstantEvaluation:
    """Any query: its relation at every new instant, and which changes of it are emitted.

    The SQL reads a view `instants(t, next)` and one view per scan and table. The instants are those
    of the step and before them the last one of the step before, if there was one.
    """

    query: Query

    emits_on_arrival: ClassVar[bool] = False
    keeps_panes: ClassVar[bool] = False
    needs_same_queries: ClassVar[bool] = False
    subscribers: ClassVar[None] = None
    partial_join: ClassVar[PartialJoin | None] = None
    equalities: ClassVar[tuple[tuple[Column, Column], ...]] = ()

    def make_step(self, steps: StepFactory[T]) -> T:
        return steps.instant_step(self)

    def reach(self, alias: str) -> tuple[int | None, int]:  # noqa: ARG002
        """Any: windows are read whole, and nothing is known of what meets what."""
        return None, FOREVER

    @cached_property
    def scans(self) -> tuple[tuple[str, Scan], ...]:
        """Every scan of the tree by its position: (v0, scan), .. (equal scans have different names)."""
        stream_scans = [n for n in walk_relations(self.query.root) if isinstance(n, Scan)]
        return tuple((f"v{i}", scan) for i, scan in enumerate(stream_scans))

    @cached_property
    def tables(self) -> tuple[tuple[str, TableScan], ...]:
        table_scans = [n for n in walk_relations(self.query.root) if isinstance(n, TableScan)]
        return tuple((f"b{i}", table) for i, table in enumerate(table_scans))

    @cached_property
    def feeds(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.scans)

    @cached_property
    def slides(self) -> frozenset[int]:
        return slides(self.query.root)

    @property
    def slide_sets(self) -> SlideSets:
        """Its slides, and whether it emits rows at every instant, also where all windows are empty."""
        emits = self.query.output is Output.RSTREAM and not _is_empty_over_empty_windows(
            self.query.root
        )
        return {self.slides: emits}

    def result_sql(self, after: int) -> str:
        """SQL of the rows emitted at instants later than `after`: `_tau`, c0, c1, .."""
        body = _InstantWriter(self, self.query.output is not Output.RSTREAM).relation_sql(
            self.query.root
        )
        names = [_flat_name(c) for c in self.query.columns]
        shown = ", ".join(f"{name} AS c{i}" for i, name in enumerate(names))
        if self.query.output is Output.RSTREAM:
            return f"SELECT _t AS _tau, {shown} FROM {body} WHERE _t > {after}L"
        listed = ", ".join(["_id", *names])
        states = (
            f"SELECT r._t, i.next AS _next, {listed} FROM {body} r JOIN instants i ON r._t = i.t"
        )
        return changes_sql(self.query.output, states, names, after, identity=["_id"])


def _is_empty_over_empty_windows(relation: Relation) -> bool:
    """Whether a relation has no row for certain while all its windows are empty."""
    match relation:
        case Scan():
            return True
        case TableScan():
            return False
        case Join():
            return any(map(_is_empty_over_empty_windows, relation.inputs))
        case OuterJoin():
            left = _is_empty_over_empty_windows(relation.left)
            return left and (not relation.full or _is_empty_over_empty_windows(relation.right))
        case SemiJoin():
            return _is_empty_over_empty_windows(relation.left)
        case Aggregate():
            return bool(relation.keys) and _is_empty_over_empty_windows(relation.input)
        case _:
            return all(map(_is_empty_over_empty_windows, relation.inputs))


def _flat_name(column: Column) -> str:
    return quote_identifier(f"{column.relation}.{column.name}")


class _InstantWriter:
    """Writes relations with their instant `_t` and, where it is needed, their identity `_id`."""

    def __init__(self, plan: InstantEvaluation, identified: bool) -> None:
        self.plan = plan
        self.has_identity = identified
        self._scans = iter(plan.scans)
        self._tables = iter(plan.tables)

    def relation_sql(self, node: Relation) -> str:
        match node:
            case Scan():
                return self._scan(node)
            case TableScan():
                return self._table(node)
            case Select():
                below = self.relation_sql(node.input)
                return f"(SELECT * FROM {below} WHERE {expression_sql(node.condition, _flat_name)})"
            case Project():
                below = self.relation_sql(node.input)
                items = ", ".join(
                    f"{expression_sql(item.expr, _flat_name)} AS {_flat_name(column)}"
                    for item, column in zip(node.items, node.columns, strict=True)
                )
                rows = f"(SELECT _t, _id, {items} FROM {below})"
                if not (self.has_identity and _is_grouped(node.input)):
                    return rows  # its rows are those below it, and have their identity
                columns = ", ".join(map(_flat_name, node.columns))
                return f"(SELECT _t, {self._value_id(node.columns)} AS _id, {columns} FROM {rows})"
            case Join():
                return self._join(node)
            case OuterJoin():
                return self._outer(node)
            case SemiJoin():
                left, right = self.relation_sql(node.left), self.relation_sql(node.right)
                kind = "ANTI" if node.anti else "SEMI"
                return f"(SELECT l.* FROM {left} l LEFT {kind} JOIN {right} r ON {self._on(node.condition)})"
            case Aggregate():
                return self._aggregate(node)
            case Distinct():
                below = self.relation_sql(node.input)
                columns = ", ".join(map(_flat_name, node.columns))
                rows = f"(SELECT DISTINCT _t, {columns} FROM {below})"
                return f"(SELECT _t, {self._value_id(node.columns)} AS _id, {columns} FROM {rows})"
            case UnionAll():
                return self._union(node)

    def _scan(self, node: Scan) -> str:
        view, _ = next(self._scans)
        columns = ", ".join(
            f"s.{quote_identifier(c.name)} AS {_flat_name(c)}" for c in node.columns
        )
        identity = self._identity(f"concat('{view}:', s.{ARRIVAL})")
        window = node.window
        if isinstance(window, Rows):
            return (
                f"(SELECT i.t AS _t, {identity} AS _id, {columns} FROM instants i "
                f"JOIN {rows_window_sql(view, window)} s ON s.{TIME} <= i.t AND i.t < s.{UNTIL})"
            )
        at = "i.t" if window.slide is None else last_multiple_sql("i.t", window.slide)
        conditions = [f"s.{TIME} <= {at}"]
        if (condition := holds_sql(f"s.{TIME}", "i.t", window)) is not None:
            conditions.append(condition)
        # A tuple is copied to its own instants, instead of joining all tuples with all instants by
        # a range, which Spark would do as a product.
        if len(self.plan.slides) == 1:
            return self._explode_instants(view, window, columns, identity)
        return (
            f"(SELECT i.t AS _t, {identity} AS _id, {columns} "
            f"FROM instants i JOIN {view} s ON {' AND '.join(conditions)})"
        )

    def _explode_instants(self, view: str, window: Range, columns: str, identity: str) -> str:
        """With one slide the instants of a tuple follow from its time: no join is needed."""
        (slide,) = self.plan.slides
        first = f"greatest({next_multiple_sql(f's.{TIME}', slide)}, bounds.first)"
        last = "bounds.last"
        if window.size is not None:
            last = f"least({last_multiple_sql(f'(s.{TIME} + {window.size}L)', slide)}, bounds.last)"
        seen = f"explode(sequence({first}, {last}, {slide}L))"
        inner = (
            f"SELECT {seen} AS _t, s.* FROM {view} s CROSS JOIN "
            f"(SELECT min(t) AS first, max(t) AS last FROM instants) bounds WHERE {first} <= {last}"
        )
        return f"(SELECT s._t, {identity} AS _id, {columns} FROM ({inner}) s)"

    def _table(self, node: TableScan) -> str:
        view, _ = next(self._tables)
        columns = ", ".join(
            f"s.{quote_identifier(c.name)} AS {_flat_name(c)}" for c in node.columns
        )
        identity = self._identity(f"concat('{view}:', s.{ARRIVAL})")
        return (
            f"(SELECT i.t AS _t, {identity} AS _id, {columns} FROM instants i CROSS JOIN {view} s)"
        )

    def _join(self, node: Join) -> str:
        inputs = [self.relation_sql(part) for part in node.inputs]
        columns = [
            f"j{n}.{_flat_name(c)}" for n, part in enumerate(node.inputs) for c in part.columns
        ]
        identity = self._identity(
            f"concat_ws('|', {', '.join(f'j{n}._id' for n in range(len(inputs)))})"
        )
        lines = [f"{inputs[0]} j0"]
        lines += [f"JOIN {text} j{n} ON j0._t = j{n}._t" for n, text in enumerate(inputs) if n]
        where = (
            "" if node.condition is None else f" WHERE {expression_sql(node.condition, _flat_name)}"
        )
        return (
            f"(SELECT j0._t AS _t, {identity} AS _id, {', '.join(columns)} "
            f"FROM {' '.join(lines)}{where})"
        )

    def _outer(self, node: OuterJoin) -> str:
        left, right = self.relation_sql(node.left), self.relation_sql(node.right)
        kind = "FULL" if node.full else "LEFT"
        columns = ", ".join(
            f"{side}.{_flat_name(c)}"
            for side, part in (("l", node.left), ("r", node.right))
            for c in part.columns
        )
        identity = self._identity("concat(coalesce(l._id, '-'), '|', coalesce(r._id, '-'))")
        return (
            f"(SELECT coalesce(l._t, r._t) AS _t, {identity} AS _id, {columns} "
            f"FROM {left} l {kind} JOIN {right} r ON {self._on(node.condition)})"
        )

    def _aggregate(self, node: Aggregate) -> str:
        below = self.relation_sql(node.input)
        names = [quote_identifier(f"{node.alias}.k{i}") for i in range(len(node.keys))]
        keys = [
            f"{expression_sql(key, _flat_name)} AS {name}"
            for key, name in zip(node.keys, names, strict=True)
        ]
        # Without keys there is a row at every instant: the LEFT JOIN yields a row of NULLs where
        # the input is empty, and `x._t IS NOT NULL` keeps aggregates such as count(*) from counting
        # it.
        calls = [
            f"{aggregate_sql(call, _flat_name, '' if node.keys else 'x._t IS NOT NULL')} "
            f"AS {quote_identifier(f'{node.alias}.a{i}')}"
            for i, call in enumerate(node.calls)
        ]
        if node.keys:
            grouped = ", ".join(expression_sql(key, _flat_name) for key in node.keys)
            text = f"SELECT _t, {', '.join([*keys, *calls])} FROM {below} GROUP BY _t, {grouped}"
        else:
            text = (
                f"SELECT i.t AS _t, {', '.join(calls)} FROM instants i LEFT JOIN {below} x "
                f"ON i.t = x._t GROUP BY i.t"
            )
        columns = ", ".join(map(_flat_name, node.columns))
        return f"(SELECT _t, CAST(NULL AS STRING) AS _id, {columns} FROM ({text}))"

    def _union(self, node: UnionAll) -> str:
        parts = []
        for n, part in enumerate(node.inputs):
            columns = ", ".join(
                f"CAST({_flat_name(source)} AS {spark_type(target.type)}) AS {_flat_name(target)}"
                for source, target in zip(part.columns, node.columns, strict=True)
            )
            identity = self._identity(f"concat('{n}/', _id)")
            parts.append(f"SELECT _t, {identity} AS _id, {columns} FROM {self.relation_sql(part)}")
        return f"({' UNION ALL '.join(parts)})"

    def _on(self, condition: Expr | None) -> str:
        return "l._t = r._t" + (
            "" if condition is None else f" AND {expression_sql(condition, _flat_name)}"
        )

    def _identity(self, text: str) -> str:
        return text if self.has_identity else "CAST(NULL AS STRING)"

    def _value_id(self, columns: Sequence[Column]) -> str:
        """Rows of groups (as they are emitted) and of DISTINCT are identified by value."""
        return self._identity(f"to_json(struct({', '.join(map(_flat_name, columns))}))")


def _is_grouped(relation: Relation) -> bool:
    while isinstance(relation, Select):
        relation = relation.input
    return isinstance(relation, Aggregate)


def changes_sql(
    output: Output, states: str, names: Sequence[str], after: int, identity: Sequence[str] = ()
) -> str:
    """SQL of what enters or leaves between instants: `_tau`, c0, c1, ..

    `states` selects `_t`, the next instant `_next` at which the row may have changed (or NULL), the
    columns of `identity` and `names`.
    """
    sign = 1 if output is Output.ISTREAM else -1
    listed = ", ".join([*identity, *names])
    shown = ", ".join(f"{name} AS c{i}" for i, name in enumerate(names))
    return (
        f"WITH states AS ({states}),\n"
        f"changes AS (\n"
        f"  SELECT _t, {listed}, {sign} AS w FROM states WHERE _t > {after}L\n"
        f"  UNION ALL\n"
        f"  SELECT _next, {listed}, {-sign} AS w FROM states WHERE _next IS NOT NULL),\n"
        f"emitted AS (SELECT _t, {', '.join(names)}, sum(w) AS n FROM changes\n"
        f"  GROUP BY _t, {listed} HAVING sum(w) > 0)\n"
        f"SELECT _t AS _tau, {shown} FROM emitted LATERAL VIEW explode(sequence(1L, n)) copies AS _n"
    )
