"""A query prepared for planning: its signature, and those of all its parts that could be shared.

A part is the join of some of its streams. The part of a single stream is its feed: what the source
is asked to send. A bound on a column is applied by the source whose column the text compares, as
in the paper, or by all that are known to be equal to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headwater.algebra.canonical import Block, canonicalize
from headwater.algebra.conditions.predicate import Box, Constraint, rename_columns
from headwater.algebra.expressions import Call, Column, Expr, Literal, columns_of, walk
from headwater.algebra.nodes import Join, Output, Project, Query, Scan, Select
from headwater.cost import StreamStatistics
from headwater.reproduce.streamreuse.rates import Streams, output_rate, stream_names
from headwater.reuse import (
    Operator,
    QuerySignature,
    SharingKind,
    minimal_operator,
    partial_join_queries,
    signature_of,
)


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """The parts of a query by their streams: forms, operators for nothing else, and their rates.

    `joins` are the parts of two streams or more, small ones first.
    """

    streams: Streams
    joins: tuple[Streams, ...]
    parts: Mapping[Streams, QuerySignature]
    operators: Mapping[Streams, Operator]
    rates: Mapping[Streams, float]


def prepare_query(
    query: Query, statistics: Mapping[str, StreamStatistics], infer: bool = False
) -> PreparedQuery:
    """Prepare a join of different streams; with `infer`, bounds go to all equal columns."""
    signature = signature_of(canonicalize(query))
    assert signature.kind is SharingKind.JOIN and len(signature.scans) > 1
    all_streams = stream_names(signature.scans)
    # Parts are named by their streams.
    assert len(all_streams) == len(signature.scans), "each stream once"
    smaller = [signature_of(canonicalize(part)) for part in partial_join_queries(signature)]
    parts = {stream_names(part.scans): part for part in (signature, *smaller)}
    joins = tuple(sorted(parts, key=lambda streams: (len(streams), sorted(streams))))
    # As in the paper. With bounds on all equal columns NO REUSE is cheaper, and less can be saved.
    compared = None if infer else _compared_columns(query)
    parts |= {
        frozenset({scan.stream}): _feed_signature(signature, scan, compared)
        for scan in signature.scans
    }
    operators = {streams: minimal_operator(part) for streams, part in parts.items()}
    rates = {
        streams: output_rate(operator, streams, statistics)
        for streams, operator in operators.items()
    }
    return PreparedQuery(all_streams, joins, parts, operators, rates)


def _feed_signature(
    signature: QuerySignature, scan: Scan, compared: set[tuple[str, str]] | None
) -> QuerySignature:
    """The form of a stream within the bounds that its source applies."""
    constraints, terms = [], []
    for constraint in signature.content.where.constraints:
        for term in constraint.terms:
            own = {column.relation for column in columns_of(term)} == {scan.alias}
            if own and not constraint.domain.has_all_values and _is_applied(term, scan, compared):
                constraints.append(Constraint((term,), constraint.domain))
    for term in signature.content.where.terms:
        if {column.relation for column in columns_of(term)} == {scan.alias}:
            terms.append(term)
    needed = {
        c for e in _expressions_read(signature) for c in columns_of(e) if c.relation == scan.alias
    }
    names: dict[Expr, Expr] = {c: replace(c, relation="s0") for c in scan.columns}
    where = rename_columns(Box(tuple(constraints), tuple(terms)), names)
    items = tuple(names[c] for c in scan.columns if c in needed)
    block = Block((replace(scan, alias="s0"),), where, (), None, items, False)
    digest = f"feed {scan.stream} {scan.window} {where} {items}"
    return QuerySignature(digest, SharingKind.JOIN, f"feed {scan.stream}", Output.ISTREAM, block)


def _expressions_read(signature: QuerySignature) -> list[Expr]:
    """What is read above the sources."""
    where = signature.content.where
    return [*signature.columns, *(t for c in where.constraints for t in c.terms), *where.terms]


def _is_applied(term: Expr, scan: Scan, compared: set[tuple[str, str]] | None) -> bool:
    return compared is None or not isinstance(term, Column) or (scan.stream, term.name) in compared


def _compared_columns(query: Query) -> set[tuple[str, str]]:
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
