"""In which order a term of a delta join takes its sources in: `SET OPTIMISE` chooses how.

The delta comes first. `throughput` takes of all orders the one that costs least, by what operators
cost (`headwater calibrate`) and by the rows that joins were measured to leave. `greedy` takes next
what leaves the fewest rows; `written` follows the join tree that the query was written with. All give
the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod

from headwater.algebra.canonical import Block
from headwater.algebra.expressions import Call, columns_of, conjuncts
from headwater.algebra.nodes import Query, Relation, Scan, TableScan
from headwater.algebra.predicate import to_expr
from headwater.cost.operators import CostTable
from headwater.runtime.catalog import Json
from headwater.runtime.compile.delta import PART

UNMEASURED = 0.01
"""The selectivity of a join that was not seen yet."""

TABLE_ROWS = 100
"""The rows that a table counts as, so that joining one that was not seen yet leaves as many rows."""

MOST_COMPARED = 10
"""Of more sources than these not all orders are compared: then `throughput` is greedy."""

Tree = str | tuple["Tree", ...]
"""The streams and tables of a query as its joins nest them."""


@dataclass(frozen=True)
class Ordering:
    """How orders are chosen, what operators cost, and how the query nests its joins."""

    mode: str = "throughput"
    costs: CostTable = field(default_factory=CostTable)
    written: Tree = ()


@dataclass(frozen=True)
class Term:
    """A term as it is run: its sources in order, and how many rows are read of each stream."""

    block: Block
    order: tuple[str, ...]
    rows: Mapping[str, int]
    part: frozenset[str] = frozenset()

    def joins(self) -> list[str]:
        """A name for each join of the term, the same for the same source and conditions."""
        links = _links(self.block, self.part)
        return [_join(a, self.order[: n + 1], links) for n, a in enumerate(self.order[1:])]


def term(
    block: Block,
    first: str,
    rows: Mapping[str, int],
    known: Mapping[str, float],
    part: frozenset[str] = frozenset(),
    ordering: Ordering | None = None,
) -> Term:
    """The term of a delta of that source; a source is joined when a condition ties it to others.

    The sources of a part are one, as they were joined before.
    """
    ordering = ordering or Ordering()
    own = (s.alias for s in block.sources if isinstance(s, Scan | TableScan))
    aliases = [*([PART] if part else []), *(alias for alias in own if alias not in part)]
    joins = _Joins(_links(block, part), _equal(block, part), rows, known, ordering.costs)
    left = frozenset(aliases) - {first}
    if ordering.mode == "written":
        ranks = _ranks(block, first, part, ordering.written)
        order = joins.one_by_one(first, sorted(left, key=lambda a: (ranks.get(a, len(ranks)), a)))
    elif ordering.mode == "throughput" and len(left) < MOST_COMPARED:
        order = joins.cheapest(first, left)
    else:
        order = joins.greedy(first, aliases)
    return Term(block, order, rows, part)


@dataclass(frozen=True)
class _Joins:
    """What joining a source to others is expected to leave, and to cost."""

    links: Sequence[frozenset[str]]
    equal: Sequence[frozenset[str]]
    rows: Mapping[str, int]
    known: Mapping[str, float]
    costs: CostTable

    def tied(self, left: Iterable[str], order: Set[str]) -> list[str]:
        """Those that a condition ties to what is joined, or all if there is none."""
        left = list(left)
        return [a for a in left if any(a in k and k & order for k in self.links)] or left

    def greedy(self, first: str, aliases: Sequence[str]) -> tuple[str, ...]:
        order = [first]
        while left := [a for a in aliases if a not in order]:
            growth = {a: self.rows.get(a, TABLE_ROWS) * self.selectivity(a, order) for a in left}
            order.append(min(self.tied(left, set(order)), key=lambda a: growth[a]))
        return tuple(order)

    def one_by_one(self, first: str, wanted: Sequence[str]) -> tuple[str, ...]:
        """As wanted, but for products where a condition could be met."""
        order = [first]
        while left := [a for a in wanted if a not in order]:
            order.append(self.tied(left, set(order))[0])
        return tuple(order)

    def cheapest(self, first: str, left: frozenset[str]) -> tuple[str, ...]:
        """The order of least cost: the best one of each set of sources, from smaller sets."""
        begun = self.rows.get(first, TABLE_ROWS) * self.known.get(_filter(first), 1.0)
        best: dict[frozenset[str], tuple[float, float, tuple[str, ...]]] = {
            frozenset((first,)): (0.0, begun, (first,))
        }
        for _ in left:
            larger: dict[frozenset[str], tuple[float, float, tuple[str, ...]]] = {}
            for joined, (cost, before, order) in best.items():
                for alias in self.tied(sorted(left - joined), joined):
                    after = (
                        before * self.rows.get(alias, TABLE_ROWS) * self.selectivity(alias, order)
                    )
                    total = cost + self.cost(alias, joined, before, after)
                    found = (total, after, (*order, alias))
                    key = joined | {alias}
                    if key not in larger or found < larger[key]:
                        larger[key] = found
            best = larger
        ((_, _, order),) = best.values()
        return order

    def cost(self, alias: str, joined: Set[str], before: float, after: float) -> float:
        """Of joining a source, but for reading it, which every order has to."""
        join = self.costs["join"]
        cost = join.tuple * before + join.result * after
        if any(alias in pair and pair & joined for pair in self.equal):
            return cost
        return cost + self.costs["select"].tuple * before * self._kept(alias)

    def selectivity(self, alias: str, before: Sequence[str]) -> float:
        """Rows left for a row that is joined and a row that is read: as it was measured, or as it
        follows from how the source was joined to each of the others, one way or the other."""
        name = _join(alias, before, self.links)
        if name in self.known:
            return self.known[name]
        pairs = [self._pair(alias, other) for other in sorted(_tied_to(alias, before, self.links))]
        found = [pair for pair in pairs if pair is not None]
        return self._share(alias) * prod(found) if found else UNMEASURED

    def _pair(self, alias: str, other: str) -> float | None:
        """The share of pairs that meet, of rows that each source by itself keeps."""
        for a, b in ((alias, other), (other, alias)):
            measured = self.known.get(_join(a, (b,), self.links))
            if measured is not None:
                return measured / max(self._share(a), 1e-12)
        return None

    def _share(self, alias: str) -> float:
        """Of the rows of a source, those that the conditions on it alone keep."""
        return self.known.get(_filter(alias), 1.0)

    def _kept(self, alias: str) -> float:
        return self.rows.get(alias, TABLE_ROWS) * self._share(alias)


def _links(block: Block, part: frozenset[str]) -> list[frozenset[str]]:
    """The sources that each condition speaks of."""
    parts = conjuncts(to_expr(block.where))
    found = [{c.relation for c in columns_of(condition)} for condition in parts]
    return [frozenset(PART if a in part else a for a in link) for link in found]


def _equal(block: Block, part: frozenset[str]) -> list[frozenset[str]]:
    """The sources of each condition that a join can look up by."""
    parts = conjuncts(to_expr(block.where))
    links = zip(parts, _links(block, part), strict=True)
    return [link for p, link in links if isinstance(p, Call) and p.name == "=" and len(link) == 2]


def _tied_to(alias: str, before: Iterable[str], links: Sequence[frozenset[str]]) -> set[str]:
    return {other for link in links if alias in link for other in link if other in before}


def _join(alias: str, before: Iterable[str], links: Sequence[frozenset[str]]) -> str:
    tied = _tied_to(alias, list(before), links)
    return f"join {alias} to {', '.join(sorted(tied)) or 'all'}"


def _filter(alias: str) -> str:
    return f"filter {alias}"


# ---- as it was written


def written_tree(query: Query) -> Tree:
    """How the joins of a query nest its streams and tables; of many in one FROM, the first two come
    first."""
    return _tree(query.root)


def _tree(node: Relation) -> Tree:
    if isinstance(node, Scan | TableScan):
        return (node.stream if isinstance(node, Scan) else node.table).lower()
    below = [found for one in node.inputs if (found := _tree(one)) != ()]
    nested = below[:1]
    for one in below[1:]:
        nested = [(*nested, one)]
    return nested[0] if nested else ()


def _ranks(block: Block, first: str, part: frozenset[str], written: Tree) -> dict[str, int]:
    """When each source comes in if a tuple of the first goes up the tree: what is nested with it
    before what is farther."""
    free = {
        s.alias: (s.stream if isinstance(s, Scan) else s.table).lower()
        for s in block.sources
        if isinstance(s, Scan | TableScan)
    }
    named: dict[str, str] = {}

    def aliases(tree: Tree) -> Tree:
        if not isinstance(tree, str):
            return tuple(aliases(one) for one in tree)
        alias = next((a for a, name in free.items() if name == tree and a not in named), tree)
        named[alias] = tree
        return PART if alias in part else alias

    order = [*_upwards(aliases(written), first)]
    return {alias: n for n, alias in reversed([*enumerate(order)])}


def _upwards(tree: Tree, first: str) -> list[str]:
    """The leaves of a tree, those nearest to the first before others."""
    if isinstance(tree, str):
        return [tree]
    below = [_upwards(one, first) for one in tree]
    below.sort(key=lambda leaves: first not in leaves)
    return [leaf for leaves in below for leaf in leaves]


# ---- what was measured


def selectivities(operators: Sequence[Json], terms: Sequence[Term]) -> dict[str, float]:
    """Rows out per row before and row read, of each join of the terms of a plan that Spark ran."""
    chains = [chain for operator in operators for chain in _chains(operator)]
    found: dict[str, float] = {}
    if len(chains) != len(terms):
        return found
    for chain, ran in zip(chains, terms, strict=True):
        names = ran.joins()
        if len(chain) == len(names):
            first = ran.order[0]
            if chain and ran.rows.get(first) and chain[0]["inputs"][0]["rows_out"] is not None:
                found[_filter(first)] = chain[0]["inputs"][0]["rows_out"] / ran.rows[first]
            for name, alias, join in zip(names, ran.order[1:], chain, strict=True):
                before, rows = join["inputs"][0]["rows_out"], ran.rows.get(alias, TABLE_ROWS)
                if before and rows and join["rows_out"] is not None:
                    found[name] = join["rows_out"] / (before * rows)
    return found


def _chains(operator: Json) -> Iterator[list[Json]]:
    """The joins of each term, the first one first."""
    if operator["kind"] == "join":
        chain = []
        while operator["kind"] in ("join", "filter"):
            if operator["kind"] == "join":
                chain.append(operator)
            operator = operator["inputs"][0]
        yield chain[::-1]
        return
    for below in operator["inputs"]:
        yield from _chains(below)
