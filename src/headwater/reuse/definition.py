"""An operator as the text of a query, and back: the form in which the catalog stores it.

Reading returns exactly the operator that was written, with its sources in the same order: canonicalising
the text could swap two sources of one stream, and the operator would then no longer cover the queries
that it was made for.
"""

from __future__ import annotations

from headwater.algebra.canonical import Block, Group, canonicalize
from headwater.algebra.canonical.relation import RelationBuilder
from headwater.algebra.conditions.predicate import ANYTHING, normalize
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import (
    Aggregate,
    Join,
    Output,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    TableScan,
)
from headwater.cql import unparse
from headwater.reuse.operator import Operator, grouped_columns, minimal_operator
from headwater.reuse.signature import (
    QuerySignature,
    SharingKind,
    bounds_of,
    sharing_key_of,
    signature_of,
)


def operator_block(operator: Operator) -> Block:
    """An operator as the block of a query."""
    if operator.kind is SharingKind.JOIN:
        # Sorted, as a set has no order: the same operator is the same text in every process.
        items = tuple(sorted(operator.columns, key=canonical_text))
        return Block(operator.sources, operator.where, (), None, items, False)
    group = Group(operator.keys, operator.calls, ANYTHING)
    keys = [Column("$agg", f"k{n}", key.type) for n, key in enumerate(operator.keys)]
    calls = [Column("$agg", f"a{n}", call.type) for n, call in enumerate(operator.calls)]
    return Block(operator.sources, operator.where, (), group, (*keys, *calls), False)


def operator_signature(operator: Operator) -> QuerySignature:
    """A join operator as the query that wants all its rows; its sources keep their aliases, which
    canonicalising its text could exchange."""
    block = operator_block(operator)
    bounds = bounds_of(operator.kind, block)
    return QuerySignature("", operator.kind, operator.sharing_key, Output.ISTREAM, block, bounds)


def operator_definition(operator: Operator, output: Output) -> str:
    """An operator as the text of a query."""
    return unparse(Query(output, RelationBuilder().build(operator_block(operator))))


def operator_from_definition(query: Query) -> Operator | None:
    """The operator that a query is the definition of; None if it is neither a join nor groups."""
    signature = signature_of(canonicalize(query))
    if signature.block is None:
        return None
    # The signature is the fallback, for a text without the form that `operator_definition` writes.
    operator = _read_operator(query.root)
    return (
        operator
        if operator is not None and operator.sharing_key == signature.sharing_key
        else minimal_operator(signature)
    )


def _read_operator(root: Relation) -> Operator | None:
    """The operator as it was written; None for a text that is not of that form."""
    if not isinstance(root, Project):
        return None
    below = root.input
    group = below if isinstance(below, Aggregate) else None
    below = below if group is None else group.input
    condition = below.condition if isinstance(below, Select) else None
    below = below.input if isinstance(below, Select) else below
    inputs = below.inputs if isinstance(below, Join) else (below,)
    sources = tuple(source for source in inputs if isinstance(source, Scan | TableScan))
    if len(sources) < len(inputs):
        return None
    kind = SharingKind.JOIN if group is None else SharingKind.GROUP
    where = normalize(condition)
    keys, calls = ((), ()) if group is None else (group.keys, group.calls)
    columns = grouped_columns(keys, calls) if group else frozenset(_projected_columns(root))
    sharing_key = sharing_key_of(kind, Block(sources, where, (), None, (), False))
    return Operator(kind, sharing_key, sources, where, columns, keys, calls)


def _projected_columns(root: Project) -> list[Column]:
    return [item.expr for item in root.items if isinstance(item.expr, Column)]
