"""Queries as sharing sees them: the sharing key that two must have in common, and what may differ.

The sharing key of a select-project-join is its sources and join conditions; predicates, columns and
time windows may differ. Grouped queries must also agree on whether their windows slide, and over a join
on the windows themselves. Any other query has to read the same sources as a whole (`families`); one whose
aggregates need all rows shares only with equal ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import combinations, groupby, permutations, product
from math import factorial, prod

from headwater.algebra.canonical import Block, CanonicalQuery, Group
from headwater.algebra.canonical.block import Body
from headwater.algebra.canonical.relation import RelationBuilder
from headwater.algebra.conditions.box import Constraint, constraint_conjuncts
from headwater.algebra.conditions.domain import Domain, domain_of
from headwater.algebra.conditions.predicate import Box, normalize, rename_columns
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import (
    Call,
    Column,
    Expr,
    columns_of,
    conjunction,
    substitute,
)
from headwater.algebra.functions import AggregateCall, is_mergeable
from headwater.algebra.nodes import Output, Query, Scan, TableScan, find_column, walk_relations
from headwater.algebra.types import BOOLEAN
from headwater.algebra.windows import Range

MAX_ORDERS = 24
"""If sources of the same name have more orders than these, they stay in the order they have."""

MAX_SOURCES = 6
"""Joins of more sources than these are not searched for partial joins."""

TRUE_DOMAIN = domain_of(BOOLEAN, [True])


class SharingKind(Enum):
    """How a query can share: as a join, as groups kept in panes, as one of several relations of the same
    sources, or only with its equals."""

    JOIN = "join"
    GROUP = "group"
    RELATION = "relation"
    EXACT = "whole"


@dataclass(frozen=True)
class Bound:
    """The values of a term that a query accepts."""

    term: Expr
    domain: Domain


MAX_LISTED_VALUES = 64
"""A condition with more values than these makes panes grouped by whether it holds, not by its term."""


def has_few_values(bound: Bound) -> bool:
    return bound.domain.count_values(MAX_LISTED_VALUES) is not None


def bound_condition(bound: Bound) -> Expr:
    """Whether a row is within a bound."""
    condition = bound.domain.as_expr(bound.term)
    assert condition is not None
    return condition


@dataclass(frozen=True)
class QuerySignature:
    """A query with its sources in the order of its sharing key; `block` is None if it is neither a join nor
    groups, and `relation` then is the query in canonical form if it may share."""

    digest: str
    kind: SharingKind
    sharing_key: str
    output: Output
    block: Block | None
    bounds: tuple[Bound, ...] = ()
    relation: Query | None = None

    @property
    def content(self) -> Block:
        assert self.block is not None
        return self.block

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        if self.relation is not None:
            return tuple(n for n in walk_relations(self.relation.root) if isinstance(n, Scan))
        return () if self.block is None else scans_of(self.block)

    @cached_property
    def keys(self) -> tuple[Expr, ...]:
        """What its rows are grouped by: all items, if there is no GROUP BY."""
        block = self.content
        return block.items if block.group is None else block.group.keys

    @cached_property
    def calls(self) -> tuple[AggregateCall, ...]:
        group = self.content.group
        return () if group is None else group.calls

    @property
    def panes_can_be_rebuilt(self) -> bool:
        """Whether its panes can be made again at any time, from what its streams keep."""
        return can_rebuild_panes(self.content.sources)

    @cached_property
    def columns(self) -> frozenset[Column]:
        """The columns of its sources that are read above the join."""
        exprs: list[Expr] = [bound.term for bound in self.bounds]
        if self.kind is SharingKind.GROUP:
            exprs += self.keys
            exprs += [e for c in self.calls for e in (c.arg, c.filter) if e is not None]
        else:
            exprs += self.content.items
        return frozenset(column for expr in exprs for column in columns_of(expr))


def leaves_of(block: Block) -> tuple[Scan | TableScan, ...]:
    """The streams and tables among the sources of a block; for a signature's block, all of them."""
    return tuple(source for source in block.sources if isinstance(source, Scan | TableScan))


def can_rebuild_panes(sources: Iterable[object]) -> bool:
    """Whether panes over these sources can be made again from what streams keep.

    Not over a table, as a tuple was joined with the table as it was when the tuple was taken in; nor over
    a window without an end, which would need all tuples there ever were.
    """
    return all(
        isinstance(source, Scan)
        and isinstance(source.window, Range)
        and source.window.size is not None
        for source in sources
    )


def scans_of(block: Block) -> tuple[Scan, ...]:
    return tuple(source for source in block.sources if isinstance(source, Scan))


def signature_of(canonical: CanonicalQuery) -> QuerySignature:
    """The signature of a canonical query."""
    body, digest, output = canonical.body, canonical.digest, canonical.output
    if not isinstance(body, Block) or not _is_simple(body):
        return _relation_signature(canonical)
    kind = SharingKind.JOIN
    if output is not Output.ISTREAM or body.group is not None or body.distinct:
        if not _fits_panes(body):
            return QuerySignature(digest, SharingKind.EXACT, digest, output, None)
        kind = SharingKind.GROUP
    block = _align_sources(kind, body)
    return QuerySignature(
        digest, kind, sharing_key_of(kind, block), output, block, bounds_of(kind, block)
    )


def _relation_signature(canonical: CanonicalQuery) -> QuerySignature:
    """The signature of a query that can be computed beside others over the same sources."""
    query, digest = canonical.query, canonical.digest
    leaves = [n for n in walk_relations(query.root) if isinstance(n, Scan | TableScan)]
    if _follows_from_tuples(canonical.body):
        return QuerySignature(digest, SharingKind.EXACT, digest, canonical.output, None)
    sources = sorted({source_name(leaf) for leaf in leaves})
    sharing_key = " ".join([SharingKind.RELATION.value, *sources])
    return QuerySignature(
        digest, SharingKind.RELATION, sharing_key, canonical.output, None, relation=query
    )


def _follows_from_tuples(body: Body) -> bool:
    """Whether a body is one block over windows by time, of which a unit keeps what only that query needs: it
    emits rows when tuples come, or keeps the rows of groups."""
    return (
        isinstance(body, Block)
        and not body.semis
        and not (body.group is not None and body.distinct)
        and all(
            isinstance(source, TableScan)
            or (isinstance(source, Scan) and isinstance(source.window, Range))
            for source in body.sources
        )
    )


def _is_simple(body: Block) -> bool:
    """Whether a block is made of windows by time and tables alone."""
    windows = [s.window for s in body.sources if isinstance(s, Scan)]
    return (
        bool(windows)
        and all(isinstance(window, Range) for window in windows)
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
        and not body.semis
        and not (body.group is not None and body.distinct)
        and not body.where.empty
    )


def _fits_panes(body: Block) -> bool:
    """Whether groups can be merged from finer ones."""
    return body.group is None or all(map(is_mergeable, body.group.calls))


# ---- the sharing key


def sharing_key_of(kind: SharingKind, block: Block) -> str:
    """What two queries must have in common to share, as text."""
    parts = [
        kind.value,
        *(source_name(source) for source in block.sources),
        _join_conditions_text(kind, block),
    ]
    if kind is SharingKind.GROUP:
        windows = [scan.window for scan in scans_of(block)]
        slides = any(isinstance(w, Range) and w.slide for w in windows)
        # With a slide, panes are cut at multiples of it; without, at every event. One set of panes
        # cannot be both.
        parts.append("slides" if slides else "flows")
        # Over a join a pane holds combinations of tuples: which ones there are depends on all
        # windows. Of a window without an end all panes before the last instant are one.
        if len(block.sources) > 1 or not can_rebuild_panes(block.sources):
            parts += map(str, windows)
    return " ".join(parts)


def source_name(source: object) -> str:
    """A stream or table, whatever it is called in a query."""
    if isinstance(source, Scan):
        return f"stream({source.stream.lower()!r})"
    assert isinstance(source, TableScan)
    return f"table({source.table.lower()!r})"


def _join_conditions_text(kind: SharingKind, block: Block) -> str:
    """What joins sources, without the constants that bound it."""
    joining = _join_conditions(kind, block)
    texts = ["=".join(map(canonical_text, c.terms)) for c in joining.constraints]
    return f"({','.join(sorted([*texts, *map(canonical_text, joining.terms)]))})"


def _join_conditions(kind: SharingKind, block: Block) -> Box:
    """The conditions on several sources that queries must have in common to share.

    For a join these are the equalities alone, if they lead from each source to all others: Spark joins
    by them, and tests every other condition (`p.paid < o.amount`, a band of times) on pairs that it
    has found already, so that such a condition is a bound on the joined row like any other. Panes of
    groups have to be divided by every bound, and for a difference of columns they would be as many as pairs.
    """
    where = block.where
    equalities = tuple(c for c in where.constraints if _is_equijoin(c))
    aliases = [source.alias for source in leaves_of(block)]
    if kind is SharingKind.JOIN and is_connected(equalities, aliases):
        return Box(equalities, ())
    return Box(
        tuple(c for c in where.constraints if spans_sources(*c.terms)),
        tuple(term for term in where.terms if spans_sources(term)),
    )


def _is_equijoin(constraint: Constraint) -> bool:
    """Whether a constraint says that expressions of different sources are equal."""
    relations = [{column.relation for column in columns_of(term)} for term in constraint.terms]
    return len(set().union(*(names for names in relations if len(names) == 1))) > 1


def spans_sources(*exprs: Expr) -> bool:
    """Whether expressions together read columns of several sources."""
    return len({column.relation for expr in exprs for column in columns_of(expr)}) > 1


def bounds_of(kind: SharingKind, block: Block) -> tuple[Bound, ...]:
    """What a block's condition asks of rows beyond what joins them."""
    joining = _join_conditions(kind, block)
    bounds: list[Bound] = []
    for constraint in block.where.constraints:
        first, *others = constraint.terms
        if not (constraint.domain.has_all_values and (constraint.domain.null or others)):
            bounds.append(Bound(first, constraint.domain))
        if others and constraint not in joining.constraints:
            bounds += [Bound(Call("=", (first, other), BOOLEAN), TRUE_DOMAIN) for other in others]
    bounds += [Bound(term, TRUE_DOMAIN) for term in block.where.terms if term not in joining.terms]
    return tuple(bounds)


# ---- sources of the same name


def _align_sources(kind: SharingKind, block: Block) -> Block:
    """The block with its sources by name; those of one name in the order whose sharing key sorts first."""
    ranked = sorted(range(len(block.sources)), key=lambda at: source_name(block.sources[at]))
    alike = [list(g) for _, g in groupby(ranked, key=lambda at: source_name(block.sources[at]))]
    if prod(factorial(len(group)) for group in alike) > MAX_ORDERS:
        return block
    orders = [
        [at for group in choice for at in group]
        for choice in product(*(permutations(group) for group in alike))
    ]
    candidates = [_reorder_sources(block, order) for order in orders]
    # Any rule would do that depends on the content alone: two queries that name the sources of one
    # stream in different orders then have the same sharing key.
    return min(candidates, key=lambda b: (_join_conditions_text(kind, b), _windows_text(b)))


def _windows_text(block: Block) -> str:
    return " ".join(str(scan.window) for scan in scans_of(block))


def _reorder_sources(block: Block, order: list[int]) -> Block:
    if order == sorted(order):
        return block
    alias = {f"s{old}": f"s{new}" for new, old in enumerate(order)}
    mapping = _column_mapping(block, alias)
    leaves = leaves_of(block)
    sources = tuple(replace(leaves[old], alias=f"s{new}") for new, old in enumerate(order))
    return rename_block_columns(replace(block, sources=sources), mapping)


def _column_mapping(block: Block, alias: Mapping[str, str]) -> dict[Expr, Expr]:
    columns = [c for source in leaves_of(block) for c in source.columns]
    return {c: replace(c, relation=alias[c.relation]) for c in columns if c.relation in alias}


def rename_block_columns(block: Block, mapping: Mapping[Expr, Expr]) -> Block:
    """The block with columns of its sources renamed in all that it says."""

    def change(expr: Expr) -> Expr:
        return substitute(expr, mapping)

    group = block.group
    if group is not None:
        calls = tuple(
            replace(
                call,
                arg=None if call.arg is None else change(call.arg),
                filter=None if call.filter is None else change(call.filter),
            )
            for call in group.calls
        )
        group = Group(tuple(map(change, group.keys)), calls, group.having)
    items = block.items if group is not None else tuple(map(change, block.items))
    return replace(block, where=rename_columns(block.where, mapping), group=group, items=items)


# ---- partial joins


def partial_join_queries(signature: QuerySignature) -> Iterator[Query]:
    """The joins of some of a query's sources, larger ones first, as queries: each within the bounds
    that the query has for its sources, and with all columns that joining the other sources needs,
    event times included.

    Every row of the query is made of a row of each of them.
    """
    for chosen in partial_join_aliases(signature):
        query = partial_join_query(signature, chosen)
        if query is not None:
            yield query


def partial_join_aliases(signature: QuerySignature) -> Iterator[tuple[str, ...]]:
    """The sources of a query that conditions connect, but for all of them; larger sets first."""
    if signature.block is None or not 2 < len(signature.block.sources) <= MAX_SOURCES:
        return
    aliases = [source.alias for source in leaves_of(signature.block)]
    for size in range(len(aliases) - 1, 1, -1):
        for chosen in combinations(aliases, size):
            if is_connected(signature.block.where.constraints, chosen):
                yield chosen


def partial_join_query(signature: QuerySignature, chosen: tuple[str, ...]) -> Query | None:
    """The join of sources that conditions connect, as a query; None if others cannot share it."""
    block = signature.content
    sources = [source for source in leaves_of(block) if source.alias in chosen]
    if not any(isinstance(s, Scan) for s in sources):
        return None
    # The instants of a query are the multiples of *all* its slides, so a part with fewer slides
    # would emit at other times. Sources of the same name could be assigned in two ways.
    if _slides(sources) != _slides(block.sources) or not _have_unique_names(block, sources):
        return None
    where = restrict_to_sources(block.where, set(chosen))
    alias = {old: f"s{new}" for new, old in enumerate(chosen)}
    items = tuple(sorted(_needed_columns(signature, set(chosen)), key=canonical_text))
    part = Block(tuple(sources), where, (), None, items, False)
    part = rename_block_columns(
        replace(part, sources=_with_aliases(sources, alias)), _column_mapping(block, alias)
    )
    return Query(Output.ISTREAM, RelationBuilder().build(part))


def _have_unique_names(block: Block, chosen: Sequence[Scan | TableScan]) -> bool:
    """Whether no source of a block has the name of one of the chosen, but for itself."""
    names = [source_name(source) for source in block.sources]
    return all(names.count(source_name(source)) == 1 for source in chosen)


def _with_aliases(
    sources: Iterable[Scan | TableScan], alias: Mapping[str, str]
) -> tuple[Scan | TableScan, ...]:
    return tuple(replace(source, alias=alias[source.alias]) for source in sources)


def _slides(sources: Iterable[object]) -> set[int]:
    windows = [s.window for s in sources if isinstance(s, Scan)]
    return {w.slide for w in windows if isinstance(w, Range) and w.slide}


def restrict_to_sources(where: Box, aliases: set[str]) -> Box:
    """What a condition says of some sources alone."""
    selected = select_conditions(where, aliases)
    exprs = [
        part for constraint in selected.constraints for part in constraint_conjuncts(constraint)
    ]
    return normalize(conjunction([*exprs, *selected.terms]))


def select_conditions(where: Box, aliases: set[str]) -> Box:
    """The conditions on some sources alone, as they are; not in normal form."""
    constraints = []
    for constraint in where.constraints:
        terms = tuple(t for t in constraint.terms if _refers_only_to(t, aliases))
        if terms:
            constraints.append(replace(constraint, terms=terms))
    return Box(
        tuple(constraints), tuple(term for term in where.terms if _refers_only_to(term, aliases))
    )


def _refers_only_to(expr: Expr, aliases: set[str]) -> bool:
    return {column.relation for column in columns_of(expr)} <= aliases


def _needed_columns(signature: QuerySignature, aliases: set[str]) -> set[Column]:
    """The columns of some sources that are emitted, or joined with the others."""
    exprs: list[Expr] = list(signature.columns)
    exprs += [find_column(s.columns, s.time) for s in signature.scans]
    exprs += [t for c in signature.content.where.constraints for t in c.terms]
    exprs += signature.content.where.terms
    return {c for expr in exprs for c in columns_of(expr) if c.relation in aliases}


def is_connected(constraints: Iterable[Constraint], chosen: Sequence[str]) -> bool:
    """Whether constraints lead from each of the sources to all of them."""
    reached, links = {chosen[0]}, []
    for constraint in constraints:
        links.append({c.relation for t in constraint.terms for c in columns_of(t)} & set(chosen))
    grown = True
    while grown:
        grown = False
        for link in links:
            if link & reached and not link <= reached:
                reached |= link
                grown = True
    return reached == set(chosen)
