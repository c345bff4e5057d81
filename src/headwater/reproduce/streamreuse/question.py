"""A query made ready for planning: its form, and the forms of all the parts that could be shared.

A part is the join of some of its streams. The part of a single stream is its feed: what the source
is asked to send. A bound on a column is applied by the source whose column the text compares, as
in the paper, or by all that are known to be equal to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headwater.algebra.canonical import Block, canonicalize
from headwater.algebra.canonical.block import box_text
from headwater.algebra.expressions import Call, Column, Expr, Literal, columns_of, walk
from headwater.algebra.nodes import Join, Output, Project, Query, Scan, Select
from headwater.algebra.predicate import Box, Constraint, rename
from headwater.cost import StreamStatistics
from headwater.reproduce.streamreuse.rates import Streams, rate, streams_of
from headwater.reuse import Form, Kind, Operator, form_of, operator_of, prefixes
from headwater.reuse.form import bounds_of, restricted


@dataclass(frozen=True, eq=False)
class Question:
    """The parts of a query by their streams: forms, operators for nothing else, and their rates.

    `joins` are the parts of two streams or more, small ones first.
    """

    streams: Streams
    joins: tuple[Streams, ...]
    parts: Mapping[Streams, Form]
    operators: Mapping[Streams, Operator]
    rates: Mapping[Streams, float]


def question(
    query: Query, statistics: Mapping[str, StreamStatistics], infer: bool = False
) -> Question:
    """Make a join of different streams ready; with `infer`, bounds go to all equal columns."""
    form = form_of(canonicalize(query))
    assert form.kind is Kind.JOIN and len(form.scans) > 1
    whole = streams_of(form.scans)
    assert len(whole) == len(form.scans), "each stream once"
    smaller = [_part(form, part) for part in prefixes(form)]
    parts = {streams_of(part.scans): part for part in (form, *smaller)}
    joins = tuple(sorted(parts, key=lambda streams: (len(streams), sorted(streams))))
    compared = None if infer else _compared(query)
    parts |= {frozenset({scan.stream}): _feed(form, scan, compared) for scan in form.scans}
    operators = {streams: operator_of(part) for streams, part in parts.items()}
    rates = {streams: rate(one, streams, statistics) for streams, one in operators.items()}
    return Question(whole, joins, parts, operators, rates)


def _part(form: Form, prefix: Query) -> Form:
    """The form of a join of some streams, within the bounds that the query has for them."""
    part = form_of(canonicalize(prefix))
    alias = {scan.stream: scan.alias for scan in part.scans}
    chosen = [scan for scan in form.scans if scan.stream in alias]
    names: dict[Expr, Expr] = {
        column: replace(column, relation=alias[scan.stream])
        for scan in chosen
        for column in scan.columns
    }
    where = rename(restricted(form.content.where, {scan.alias for scan in chosen}), names)
    return replace(
        part,
        digest=f"{part.digest} {box_text(where)}",
        block=replace(part.content, where=where),
        bounds=bounds_of(where),
    )


def _feed(form: Form, scan: Scan, compared: set[tuple[str, str]] | None) -> Form:
    """The form of a stream within the bounds that its source applies."""
    constraints, terms = [], []
    for constraint in form.content.where.constraints:
        for term in constraint.terms:
            own = {column.relation for column in columns_of(term)} == {scan.alias}
            if own and not constraint.domain.has_all_values and _applied(term, scan, compared):
                constraints.append(Constraint((term,), constraint.domain))
    for term in form.content.where.terms:
        if {column.relation for column in columns_of(term)} == {scan.alias}:
            terms.append(term)
    needed = {c for e in _told(form) for c in columns_of(e) if c.relation == scan.alias}
    names: dict[Expr, Expr] = {c: replace(c, relation="s0") for c in scan.columns}
    where = rename(Box(tuple(constraints), tuple(terms)), names)
    items = tuple(names[c] for c in scan.columns if c in needed)
    block = Block((replace(scan, alias="s0"),), where, (), None, items, False)
    digest = f"feed {scan.stream} {scan.window} {where} {items}"
    return Form(digest, Kind.JOIN, f"feed {scan.stream}", Output.ISTREAM, block)


def _told(form: Form) -> list[Expr]:
    """What is read above the sources."""
    where = form.content.where
    return [*form.columns, *(t for c in where.constraints for t in c.terms), *where.terms]


def _applied(term: Expr, scan: Scan, compared: set[tuple[str, str]] | None) -> bool:
    return compared is None or not isinstance(term, Column) or (scan.stream, term.name) in compared


def _compared(query: Query) -> set[tuple[str, str]]:
    """The columns, with their streams, that the text of a query compares with constants."""
    root = query.root
    assert isinstance(root, Project) and isinstance(root.input, Select)
    join = root.input.input
    scans = join.inputs if isinstance(join, Join) else (join,)
    called = {scan.alias: scan.stream for scan in scans if isinstance(scan, Scan)}
    return {
        (called[arg.relation], arg.name)
        for part in walk(root.input.condition)
        if isinstance(part, Call) and any(isinstance(arg, Literal) for arg in part.args)
        for arg in part.args
        if isinstance(arg, Column)
    }
