"""Queries answered by an operator that they share, slowly: the operator by the reference evaluator,
each query's part of its rows in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from headwater.algebra.canonical import Block, CanonicalQuery, canonicalize
from headwater.algebra.canonical.relation import RelationBuilder
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Column, Expr
from headwater.algebra.nodes import Output, Query, Scan
from headwater.cql import parse_query
from headwater.reference import evaluate
from headwater.reference.scalar import compile_expr
from headwater.reference.values import Row, normalize_row, row_order_key
from headwater.reuse import Operator, QuerySignature, minimal_operator, relax, signature_of
from headwater.reuse.join_subscribers import JoinSubscribers, age_column
from strategies import SOURCES

Slides = Sequence[int | None]


@dataclass(frozen=True)
class Asked:
    """A query in the forms that it goes through."""

    query: Query
    canonical: CanonicalQuery
    form: QuerySignature


def asked(query: Query) -> Asked:
    canonical = canonicalize(query)
    return Asked(query, canonical, signature_of(canonical))


def form(text: str) -> QuerySignature:
    """The form of a query over the streams and tables of `strategies`."""
    return asked(parse_query(text, SOURCES)).form


def by_base(queries: Iterable[Asked]) -> list[list[Asked]]:
    """The queries in groups that could share."""
    found: dict[str, list[Asked]] = {}
    for one in queries:
        found.setdefault(one.form.sharing_key, []).append(one)
    return list(found.values())


def serving(forms: Sequence[QuerySignature]) -> Operator:
    """The operator that was made for the first and relaxed for the others."""
    return reduce(relax, forms[1:], minimal_operator(forms[0]))


def alone(one: Asked, streams: Any, tables: Any) -> list[Row]:
    """The rows of a query by its definition, each behind its instant."""
    return _in_order((r.tau, *r.values) for r in evaluate(one.query, streams, tables))


def shared(
    queries: Sequence[Asked], operator: Operator, streams: Any, tables: Any
) -> list[list[Row]]:
    """The rows of each query, of those that its lane of an operator tells."""
    members = JoinSubscribers(
        operator, tuple({one.form.digest: one.form for one in queries}.values())
    )
    told = [_told(lane.operator, streams, tables) for lane in members.lanes]
    found = []
    for one in queries:
        lane = members.shapes[members.subscribers[one.form.digest].shape].lane
        found.append(_part(members, one, *told[lane]))
    return found


def _told(operator: Operator, streams: Any, tables: Any) -> tuple[list[Column], list[Row]]:
    """The columns that an operator tells, the times of its tuples behind them; and its rows."""
    columns = [*sorted(operator.columns, key=canonical_text), *map(_time, operator.scans)]
    block = Block(operator.sources, operator.where, (), None, tuple(columns), False)
    query = Query(Output.ISTREAM, RelationBuilder().build(block))
    return columns, [r.values for r in evaluate(query, streams, tables)]


def _time(scan: Scan) -> Column:
    return next(c for c in scan.columns if c.name.lower() == scan.time.lower())


def _part(
    members: JoinSubscribers, one: Asked, columns: Sequence[Column], rows: Sequence[Row]
) -> list[Row]:
    member = members.subscribers[one.form.digest]
    shape = members.shapes[member.shape]
    scans = members.operator.scans
    known = [*columns, *map(age_column, scans)]
    terms = [compile_expr(term, known) for term in shape.terms]
    exprs: list[Expr] = [members.items[at] for at in member.item_columns]
    items = [compile_expr(exprs[at], known) for _, at in one.canonical.columns]
    found = []
    for row in rows:
        times: Any = row[len(row) - len(scans) :]
        tau = entry(times, shape.slides)
        wide = (*row, *(_held(t, tau, s) for t, s in zip(times, shape.slides, strict=True)))
        number = shape.table.row_class_of([term(wide) for term in terms])
        if number is not None and any(low <= number <= high for low, high in member.row_classes):
            found.append((tau, *(item(wide) for item in items)))
    return _in_order(found)


def entry(times: Sequence[int], slides: Slides) -> int:
    """The first instant at which windows that slide like that could hold tuples of those times."""
    every = {slide for slide in slides if slide is not None}

    def first(time: int, slide: int | None) -> int:
        if slide is None:
            return min((_next(time, other) for other in every), default=time)
        return _next(time, slide)

    return max(map(first, times, slides))


def _next(time: int, slide: int) -> int:
    return -(-time // slide) * slide


def _held(time: int, tau: int, slide: int | None) -> int:
    """How long before the window's last change a tuple came."""
    return (tau if slide is None else tau // slide * slide) - time


def _in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(map(normalize_row, rows), key=row_order_key)
