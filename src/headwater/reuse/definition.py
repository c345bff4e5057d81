"""An operator as the text of a query, and back: what a catalog keeps of it is what was written.

Reading gives exactly the operator that was written, sources in the same order: bringing the text into
canonical form could exchange two sources of one stream, and then what is kept of an operator would
no longer cover the queries that it was made for.
"""

from __future__ import annotations

from headwater.algebra.canonical import Block, Group, canonicalize
from headwater.algebra.canonical.relation import Rebuilding
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
from headwater.algebra.predicate import ANYTHING, normalize
from headwater.algebra.simplify import text
from headwater.cql import unparse
from headwater.reuse.form import Kind, base_of, form_of
from headwater.reuse.operator import Operator, columns_above, operator_of


def block_of(operator: Operator) -> Block:
    """An operator as the block of a query."""
    if operator.kind is Kind.JOIN:
        items = tuple(sorted(operator.columns, key=text))
        return Block(operator.sources, operator.where, (), None, items, False)
    group = Group(operator.keys, operator.calls, ANYTHING)
    keys = [Column("$agg", f"k{n}", key.type) for n, key in enumerate(operator.keys)]
    calls = [Column("$agg", f"a{n}", call.type) for n, call in enumerate(operator.calls)]
    return Block(operator.sources, operator.where, (), group, (*keys, *calls), False)


def definition(operator: Operator, output: Output) -> str:
    """An operator as the text of a query."""
    return unparse(Query(output, Rebuilding().relation(block_of(operator))))


def defined_operator(query: Query) -> Operator | None:
    """The operator that a query is the definition of; None if it shares whole."""
    form = form_of(canonicalize(query))
    if form.kind is Kind.WHOLE:
        return None
    found = _read(query.root)
    return found if found is not None and found.base == form.base else operator_of(form)


def _read(root: Relation) -> Operator | None:
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
    kind = Kind.JOIN if group is None else Kind.GROUP
    where = normalize(condition)
    keys, calls = ((), ()) if group is None else (group.keys, group.calls)
    told = columns_above(keys, calls) if group else frozenset(_columns(root))
    base = base_of(kind, Block(sources, where, (), None, (), False))
    return Operator(kind, base, sources, where, told, keys, calls)


def _columns(root: Project) -> list[Column]:
    return [item.expr for item in root.items if isinstance(item.expr, Column)]
