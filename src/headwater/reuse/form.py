"""Queries as reuse sees them: the base that two must have in common, and what may differ.

The base of a select-project-join is its sources and what joins them; predicates, columns and windows
by time may differ. Grouped queries also agree on whether their windows slide, and over a join on the
windows themselves. Any other query shares with equal ones alone: its base is its digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import combinations, groupby, permutations, product
from math import factorial, prod

from headwater.algebra.box import conditions
from headwater.algebra.canonical import Block, Canonical, Group
from headwater.algebra.canonical.relation import Rebuilding
from headwater.algebra.domain import Domain, of
from headwater.algebra.expressions import (
    Call,
    Column,
    Expr,
    columns_of,
    conjunction,
    substitute,
)
from headwater.algebra.functions import AggregateCall
from headwater.algebra.nodes import Output, Query, Scan, TableScan, find_column
from headwater.algebra.predicate import Box, normalize, rename
from headwater.algebra.simplify import text
from headwater.algebra.types import BOOLEAN
from headwater.algebra.windows import Range

MOST_ORDERS = 24
"""With more orders of sources of the same name, they stay as they are."""

MOST_SOURCES = 6
"""Of joins of more sources, no parts are looked for."""

YES = of(BOOLEAN, [True])


class Kind(Enum):
    """How a query can share: as a join, as groups kept in panes, or only with its equals."""

    JOIN = "join"
    GROUP = "group"
    WHOLE = "whole"


@dataclass(frozen=True)
class Bound:
    """The values of a term that a query wants."""

    term: Expr
    domain: Domain


@dataclass(frozen=True)
class Form:
    """A query with its sources in the order of its base; `block` is None where it shares whole."""

    digest: str
    kind: Kind
    base: str
    output: Output
    block: Block | None
    bounds: tuple[Bound, ...] = ()

    @property
    def content(self) -> Block:
        assert self.block is not None
        return self.block

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        return () if self.block is None else scans_of(self.block)

    @cached_property
    def keys(self) -> tuple[Expr, ...]:
        """What its rows are grouped by: all that is told, if there is no GROUP BY."""
        block = self.content
        return block.items if block.group is None else block.group.keys

    @cached_property
    def calls(self) -> tuple[AggregateCall, ...]:
        group = self.content.group
        return () if group is None else group.calls

    @cached_property
    def columns(self) -> frozenset[Column]:
        """The columns of its sources that are read above the join."""
        exprs: list[Expr] = [bound.term for bound in self.bounds]
        if self.kind is Kind.GROUP:
            exprs += self.keys
            exprs += [e for c in self.calls for e in (c.arg, c.filter) if e is not None]
        else:
            exprs += self.content.items
        return frozenset(column for expr in exprs for column in columns_of(expr))


def leaves_of(block: Block) -> tuple[Scan | TableScan, ...]:
    """The sources of a block that are streams and tables: of a form's, all."""
    return tuple(source for source in block.sources if isinstance(source, Scan | TableScan))


def scans_of(block: Block) -> tuple[Scan, ...]:
    return tuple(source for source in block.sources if isinstance(source, Scan))


def form_of(canonical: Canonical) -> Form:
    """The form of a canonical query."""
    body, digest, output = canonical.body, canonical.digest, canonical.output
    if not isinstance(body, Block) or not _is_simple(body):
        return Form(digest, Kind.WHOLE, digest, output, None)
    kind = Kind.JOIN
    if output is not Output.ISTREAM or body.group is not None or body.distinct:
        if not _is_kept_in_panes(body):
            return Form(digest, Kind.WHOLE, digest, output, None)
        kind = Kind.GROUP
    block = _aligned(body)
    return Form(digest, kind, base_of(kind, block), output, block, bounds_of(block.where))


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


def _is_kept_in_panes(body: Block) -> bool:
    """Whether groups can be made again from what a stream keeps, and be summed up from finer ones.

    A tuple met a table as it was then, and a window without an end needs all there ever was.
    """
    scans = scans_of(body)
    calls = () if body.group is None else body.group.calls
    return (
        len(scans) == len(body.sources)
        and all(isinstance(s.window, Range) and s.window.size is not None for s in scans)
        and all(map(_is_summed, calls))
    )


def _is_summed(call: AggregateCall) -> bool:
    """Whether an aggregate of all follows from those of parts."""
    if call.distinct:
        return False
    if call.name in ("count", "min", "max", "bool_and", "bool_or"):
        return True
    if call.name not in ("sum", "avg") or call.arg is None:
        return False
    type_ = call.arg.type
    if type_.is_decimal:
        return call.name == "sum" and type_.precision <= 28
    return type_.is_floating or type_.is_integer or type_.name == "INTERVAL"


# ---- the base


def base_of(kind: Kind, block: Block) -> str:
    """What two queries must have in common to share, as text."""
    parts = [
        kind.value,
        *(source_name(source) for source in block.sources),
        joins_text(block.where),
    ]
    if kind is Kind.GROUP:
        windows = [scan.window for scan in scans_of(block)]
        slides = any(isinstance(w, Range) and w.slide for w in windows)
        parts.append("slides" if slides else "flows")
        if len(windows) > 1:
            parts += map(str, windows)
    return " ".join(parts)


def source_name(source: object) -> str:
    """A stream or table, whatever it is called in a query."""
    if isinstance(source, Scan):
        return f"stream({source.stream.lower()!r})"
    assert isinstance(source, TableScan)
    return f"table({source.table.lower()!r})"


def joins_text(where: Box) -> str:
    """What joins sources: columns that are equal, and other conditions on several sources; without
    the constants that bound them."""
    found = ["=".join(map(text, c.terms)) for c in where.constraints if _is_joint(*c.terms)]
    found += [text(term) for term in where.terms if _is_joint(term)]
    return f"({','.join(sorted(found))})"


def _is_joint(*exprs: Expr) -> bool:
    return len({column.relation for expr in exprs for column in columns_of(expr)}) > 1


def bounds_of(where: Box) -> tuple[Bound, ...]:
    """What a condition asks of rows beyond what joins them."""
    found: list[Bound] = []
    for constraint in where.constraints:
        first, *others = constraint.terms
        if not (constraint.domain.has_all_values and (constraint.domain.null or others)):
            found.append(Bound(first, constraint.domain))
        if others and not _is_joint(*constraint.terms):
            found += [Bound(Call("=", (first, other), BOOLEAN), YES) for other in others]
    found += [Bound(term, YES) for term in where.terms if not _is_joint(term)]
    return tuple(found)


# ---- sources of the same name


def _aligned(block: Block) -> Block:
    """The block with its sources by name; those of one name so that the base comes first in order."""
    ranked = sorted(range(len(block.sources)), key=lambda at: source_name(block.sources[at]))
    alike = [list(g) for _, g in groupby(ranked, key=lambda at: source_name(block.sources[at]))]
    if prod(factorial(len(group)) for group in alike) > MOST_ORDERS:
        return block
    orders = [
        [at for group in choice for at in group]
        for choice in product(*(permutations(group) for group in alike))
    ]
    found = [_ordered(block, order) for order in orders]
    return min(found, key=lambda b: (joins_text(b.where), _windows_text(b)))


def _windows_text(block: Block) -> str:
    return " ".join(str(scan.window) for scan in scans_of(block))


def _ordered(block: Block, order: list[int]) -> Block:
    if order == sorted(order):
        return block
    alias = {f"s{old}": f"s{new}" for new, old in enumerate(order)}
    mapping = _renaming(block, alias)
    leaves = leaves_of(block)
    sources = tuple(replace(leaves[old], alias=f"s{new}") for new, old in enumerate(order))
    return renamed(replace(block, sources=sources), mapping)


def _renaming(block: Block, alias: Mapping[str, str]) -> dict[Expr, Expr]:
    columns = [c for source in leaves_of(block) for c in source.columns]
    return {c: replace(c, relation=alias[c.relation]) for c in columns if c.relation in alias}


def renamed(block: Block, mapping: Mapping[Expr, Expr]) -> Block:
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
    return replace(block, where=rename(block.where, mapping), group=group, items=items)


# ---- parts of a join


def prefixes(form: Form) -> Iterator[Query]:
    """The joins of some of a query's sources, larger ones first, as queries that tell all that the
    others need to know of them, event times included.

    Every row of the query is made of a row of each of them. They have what joins their sources and
    none of the query's bounds, so that they serve others like it too.
    """
    if form.block is None or not 2 < len(form.block.sources) <= MOST_SOURCES:
        return
    aliases = [source.alias for source in leaves_of(form.block)]
    for size in range(len(aliases) - 1, 1, -1):
        for chosen in combinations(aliases, size):
            part = _part(form, chosen)
            if part is not None:
                yield part


def _part(form: Form, chosen: tuple[str, ...]) -> Query | None:
    block = form.content
    sources = [source for source in leaves_of(block) if source.alias in chosen]
    if not _connected(block.where, chosen) or not any(isinstance(s, Scan) for s in sources):
        return None
    if _slides(sources) != _slides(block.sources) or not _are_unlike(block, sources):
        return None
    where = _unbounded(restricted(block.where, set(chosen)))
    alias = {old: f"s{new}" for new, old in enumerate(chosen)}
    items = tuple(sorted(_needed(form, set(chosen)), key=text))
    part = Block(tuple(sources), where, (), None, items, False)
    part = renamed(replace(part, sources=_aliased(sources, alias)), _renaming(block, alias))
    return Query(Output.ISTREAM, Rebuilding().relation(part))


def _unbounded(where: Box) -> Box:
    """What joins sources, without bounds on the columns that do."""
    found: list[Expr] = []
    for constraint in where.constraints:
        if _is_joint(*constraint.terms):
            first, *others = constraint.terms
            if others:
                found += [Call("=", (first, other), BOOLEAN) for other in others]
            else:
                found += conditions(constraint)
    return normalize(conjunction([*found, *(term for term in where.terms if _is_joint(term))]))


def _are_unlike(block: Block, chosen: Sequence[Scan | TableScan]) -> bool:
    """Whether no source of a block has the name of one of the chosen, but for itself."""
    names = [source_name(source) for source in block.sources]
    return all(names.count(source_name(source)) == 1 for source in chosen)


def _aliased(
    sources: Iterable[Scan | TableScan], alias: Mapping[str, str]
) -> tuple[Scan | TableScan, ...]:
    return tuple(replace(source, alias=alias[source.alias]) for source in sources)


def _slides(sources: Iterable[object]) -> set[int]:
    windows = [s.window for s in sources if isinstance(s, Scan)]
    return {w.slide for w in windows if isinstance(w, Range) and w.slide}


def restricted(where: Box, aliases: set[str]) -> Box:
    """What a condition says of some sources alone."""
    found: list[Expr] = []
    for constraint in where.constraints:
        terms = tuple(t for t in constraint.terms if _speaks_of(t, aliases))
        if terms:
            found += conditions(replace(constraint, terms=terms))
    found += [term for term in where.terms if _speaks_of(term, aliases)]
    return normalize(conjunction(found))


def _speaks_of(expr: Expr, aliases: set[str]) -> bool:
    return {column.relation for column in columns_of(expr)} <= aliases


def _needed(form: Form, aliases: set[str]) -> set[Column]:
    """The columns of some sources that are told, or joined with the others."""
    exprs: list[Expr] = list(form.columns)
    exprs += [find_column(s.columns, s.time) for s in form.scans]
    exprs += [t for c in form.content.where.constraints for t in c.terms]
    exprs += form.content.where.terms
    return {c for expr in exprs for c in columns_of(expr) if c.relation in aliases}


def _connected(where: Box, chosen: tuple[str, ...]) -> bool:
    """Whether equal columns lead from each of the sources to all of them."""
    reached, links = {chosen[0]}, []
    for constraint in where.constraints:
        links.append({c.relation for t in constraint.terms for c in columns_of(t)} & set(chosen))
    grown = True
    while grown:
        grown = False
        for link in links:
            if link & reached and not link <= reached:
                reached |= link
                grown = True
    return reached == set(chosen)
