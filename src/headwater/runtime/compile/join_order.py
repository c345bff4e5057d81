"""In which order a term of a delta join joins its sources: `SET OPTIMISE` chooses how.

The delta is first. `throughput` chooses of all orders the one that costs least, by what operators
cost (`headwater calibrate`) and by the rows that joins were measured to leave; what was not measured in the
unit is asked of the cost model. `greedy` joins next what leaves the fewest rows; `written` follows the join
tree that the query was written with. All compute the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod

from headwater.algebra.canonical import Block
from headwater.algebra.conditions.predicate import to_expr
from headwater.algebra.expressions import Call, columns_of, conjuncts
from headwater.algebra.nodes import Query, Relation, Scan, TableScan
from headwater.cost.model import CostModel
from headwater.cost.rates import DEFAULT_DISTINCT
from headwater.reuse.load import pair_share, source_share
from headwater.runtime.catalog import Json
from headwater.runtime.compile.plan import PARTIAL_JOIN

TABLE_ROWS = round(DEFAULT_DISTINCT)
"""The rows that a table counts as, so that joining one that was not measured yet leaves as many rows."""

NO_LOG = "Scan nothing"
"""What a scan of rows is called that no log holds: see `spark.plan_metrics`."""

MAX_COMPARED_SOURCES = 10
"""Of more sources than these not all orders are compared: then `throughput` is greedy."""

JoinTree = str | tuple["JoinTree", ...]
"""The streams and tables of a query as its joins nest them."""


@dataclass(frozen=True)
class JoinOrdering:
    """How orders are chosen, what is known of costs, and how the query nests its joins."""

    mode: str = "throughput"
    model: CostModel = field(default_factory=CostModel)
    written_joins: JoinTree = ()


@dataclass(frozen=True)
class Term:
    """A term as it is run: its sources in order, and how many rows are read of each stream."""

    block: Block
    order: tuple[str, ...]
    rows: Mapping[str, int]
    prejoined: frozenset[str] = frozenset()
    prefix: str = ""
    """What the names of measured joins begin with, where several lanes have the same."""
    expected: tuple[float, ...] = ()
    """What each join is expected to leave, for a row that is joined and a row that is read."""
    span: float | None = None
    """The seconds between the first and the last tuple of the delta; None if that is not known."""
    is_whole: bool = True
    """Whether its joins leave all pairs that the block's conditions do."""

    def join_names(self) -> list[str]:
        """A name for each join of the term, the same for the same source and conditions."""
        links = _condition_sources(self.block, self.prejoined)
        return [_join_name(a, self.order[: n + 1], links) for n, a in enumerate(self.order[1:])]


def order_term(
    block: Block,
    first: str,
    rows: Mapping[str, int],
    measured: Mapping[str, float],
    prejoined: frozenset[str] = frozenset(),
    ordering: JoinOrdering | None = None,
) -> Term:
    """The term of a delta of that source; a source is joined when a condition ties it to others.

    The sources of a partial join count as one, as they were joined before.
    """
    ordering = ordering or JoinOrdering()
    own = (s.alias for s in block.sources if isinstance(s, Scan | TableScan))
    aliases = [
        *([PARTIAL_JOIN] if prejoined else []),
        *(alias for alias in own if alias not in prejoined),
    ]
    joins = _JoinEstimates(
        block,
        prejoined,
        _condition_sources(block, prejoined),
        _equijoin_sources(block, prejoined),
        rows,
        measured,
        ordering.model,
    )
    left = frozenset(aliases) - {first}
    if ordering.mode == "written":
        ranks = _source_ranks(block, first, prejoined, ordering.written_joins)
        order = joins.follow_order(first, sorted(left, key=lambda a: (ranks.get(a, len(ranks)), a)))
    elif ordering.mode == "throughput" and len(left) < MAX_COMPARED_SOURCES:
        order = joins.cheapest_order(first, left)
    else:
        order = joins.greedy_order(first, aliases)
    expected = tuple(joins.selectivity(a, order[: n + 1]) for n, a in enumerate(order[1:]))
    return Term(block, order, rows, prejoined, expected=expected)


@dataclass(frozen=True)
class _JoinEstimates:
    """What joining a source to others is expected to leave, and to cost."""

    block: Block
    prejoined: frozenset[str]
    condition_sources: Sequence[frozenset[str]]
    equijoin_sources: Sequence[frozenset[str]]
    rows: Mapping[str, int]
    selectivities: Mapping[str, float]
    model: CostModel
    _pairs: dict[tuple[str, str], tuple[float, bool]] = field(default_factory=dict)
    _filters: dict[str, float] = field(default_factory=dict)

    def connected(self, left: Iterable[str], order: Set[str]) -> list[str]:
        """Those that a condition ties to what is joined, or all if there is none."""
        left = list(left)
        return [
            a for a in left if any(a in k and k & order for k in self.condition_sources)
        ] or left

    def greedy_order(self, first: str, aliases: Sequence[str]) -> tuple[str, ...]:
        order = [first]
        while left := [a for a in aliases if a not in order]:
            growth = {a: self.rows.get(a, TABLE_ROWS) * self.selectivity(a, order) for a in left}
            order.append(min(self.connected(left, set(order)), key=lambda a: growth[a]))
        return tuple(order)

    def follow_order(self, first: str, preferred: Sequence[str]) -> tuple[str, ...]:
        """In the preferred order, except that a product is put off while a condition can be applied."""
        order = [first]
        while left := [a for a in preferred if a not in order]:
            order.append(self.connected(left, set(order))[0])
        return tuple(order)

    def cheapest_order(self, first: str, left: frozenset[str]) -> tuple[str, ...]:
        """The order of least cost: the best one of each set of sources, from smaller sets."""
        first_rows = self.rows.get(first, TABLE_ROWS) * self._filter_selectivity(first)
        best: dict[frozenset[str], tuple[float, float, tuple[str, ...]]] = {
            frozenset((first,)): (0.0, first_rows, (first,))
        }
        for _ in left:
            larger: dict[frozenset[str], tuple[float, float, tuple[str, ...]]] = {}
            for joined, (cost, before, order) in best.items():
                for alias in self.connected(sorted(left - joined), joined):
                    # Estimated rows: of the join so far, times those read, times the share of pairs
                    # that remain.
                    after = (
                        before * self.rows.get(alias, TABLE_ROWS) * self.selectivity(alias, order)
                    )
                    total = cost + self.join_cost(alias, joined, before, after)
                    candidate = (total, after, (*order, alias))
                    key = joined | {alias}
                    # Ties are broken by the order itself, so that every process joins alike.
                    if key not in larger or candidate < larger[key]:
                        larger[key] = candidate
            best = larger
        ((_, _, order),) = best.values()
        return order

    def join_cost(self, alias: str, joined: Set[str], before: float, after: float) -> float:
        """Of joining a source, but for reading it, which every order has to."""
        join = self.model.costs["join"]
        cost = join.per_tuple * before + join.per_result * after
        if any(alias in pair and pair & joined for pair in self.equijoin_sources):
            return cost
        return cost + self.model.costs["select"].per_tuple * before * self._filtered_rows(alias)

    def selectivity(self, alias: str, before: Sequence[str]) -> float:
        """Rows left for a row that is joined and a row that is read: as it was measured, or as it
        follows from how the source was joined to each of the others, in either direction."""
        name = _join_name(alias, before, self.condition_sources)
        if name in self.selectivities:
            return self.selectivities[name]
        tied = sorted(_connected_to(alias, before, self.condition_sources))
        pairs = [self._pair_selectivity(alias, other) for other in tied or before]
        # What was measured of some pairs says more than what is assumed of the others.
        measured = [share for share, is_measured in pairs if is_measured]
        chosen = measured or [min(share for share, _ in pairs)]
        return self._filter_selectivity(alias) * prod(chosen)

    def _pair_selectivity(self, alias: str, other: str) -> tuple[float, bool]:
        """The share of pairs that meet, of rows that each source by itself keeps; and whether it was
        measured in this unit."""
        if (alias, other) not in self._pairs:
            self._pairs[alias, other] = self._find_pair_selectivity(alias, other)
        return self._pairs[alias, other]

    def _find_pair_selectivity(self, alias: str, other: str) -> tuple[float, bool]:
        for a, b in ((alias, other), (other, alias)):
            measured = self.selectivities.get(_join_name(a, (b,), self.condition_sources))
            if measured is not None:
                # What was measured includes the filter on the source that was read; the pair alone
                # is without it.
                return measured / max(self._filter_selectivity(a), 1e-12), True
        one, rest = (self.prejoined if a == PARTIAL_JOIN else {a} for a in (alias, other))
        return pair_share(self.block.where, self._streams, one, rest, self.model).value, False

    @property
    def _streams(self) -> dict[str, str]:
        return {s.alias: s.stream.lower() for s in self.block.sources if isinstance(s, Scan)}

    def _filter_selectivity(self, alias: str) -> float:
        """Of the rows of a source, those that the conditions on it alone keep; a table's are assumed to be
        kept, and what was joined before is filtered already."""
        if alias not in self._filters:
            self._filters[alias] = self._find_filter_selectivity(alias)
        return self._filters[alias]

    def _find_filter_selectivity(self, alias: str) -> float:
        measured = self.selectivities.get(_filter_name(alias))
        scan = next(
            (s for s in self.block.sources if isinstance(s, Scan) and s.alias == alias), None
        )
        if measured is not None or scan is None:
            return 1.0 if measured is None else measured
        return source_share(self.block.where, scan, self.model).value

    def _filtered_rows(self, alias: str) -> float:
        return self.rows.get(alias, TABLE_ROWS) * self._filter_selectivity(alias)


def _condition_sources(block: Block, prejoined: frozenset[str]) -> list[frozenset[str]]:
    """The sources that each condition refers to."""
    parts = conjuncts(to_expr(block.where))
    relations = [{c.relation for c in columns_of(condition)} for condition in parts]
    return [frozenset(PARTIAL_JOIN if a in prejoined else a for a in link) for link in relations]


def _equijoin_sources(block: Block, prejoined: frozenset[str]) -> list[frozenset[str]]:
    """The sources of each condition that a join can look up by."""
    parts = conjuncts(to_expr(block.where))
    links = zip(parts, _condition_sources(block, prejoined), strict=True)
    return [link for p, link in links if isinstance(p, Call) and p.name == "=" and len(link) == 2]


def _connected_to(alias: str, before: Iterable[str], links: Sequence[frozenset[str]]) -> set[str]:
    return {other for link in links if alias in link for other in link if other in before}


def _join_name(alias: str, before: Iterable[str], links: Sequence[frozenset[str]]) -> str:
    tied = _connected_to(alias, list(before), links)
    return f"join {alias} to {', '.join(sorted(tied)) or 'all'}"


def _filter_name(alias: str) -> str:
    return f"filter {alias}"


# ---- as it was written


def written_join_tree(query: Query) -> JoinTree:
    """How the joins of a query nest its streams and tables; of many in one FROM, the first two
    are nested innermost."""
    return _join_tree(query.root)


def _join_tree(node: Relation) -> JoinTree:
    if isinstance(node, Scan | TableScan):
        return (node.stream if isinstance(node, Scan) else node.table).lower()
    below = [subtree for child in node.inputs if (subtree := _join_tree(child)) != ()]
    # Left-deep, as SQL reads a comma-separated FROM.
    nested = below[:1]
    for child in below[1:]:
        nested = [(*nested, child)]
    return nested[0] if nested else ()


def _source_ranks(
    block: Block, first: str, prejoined: frozenset[str], written_joins: JoinTree
) -> dict[str, int]:
    """The order in which a tuple of the first source meets the others on its way up the tree: those
    nested with it before those farther away."""
    free = {
        s.alias: (s.stream if isinstance(s, Scan) else s.table).lower()
        for s in block.sources
        if isinstance(s, Scan | TableScan)
    }
    named: dict[str, str] = {}

    def aliases(tree: JoinTree) -> JoinTree:
        if not isinstance(tree, str):
            return tuple(aliases(one) for one in tree)
        alias = next((a for a, name in free.items() if name == tree and a not in named), tree)
        named[alias] = tree
        return PARTIAL_JOIN if alias in prejoined else alias

    order = [*_leaves_nearest_first(aliases(written_joins), first)]
    return {alias: n for n, alias in reversed([*enumerate(order)])}


def _leaves_nearest_first(tree: JoinTree, first: str) -> list[str]:
    """The leaves of a tree, those nearest to the first before others."""
    if isinstance(tree, str):
        return [tree]
    below = [_leaves_nearest_first(child, first) for child in tree]
    below.sort(key=lambda leaves: first not in leaves)
    return [leaf for leaves in below for leaf in leaves]


# ---- what was measured


def compute_selectivities(operators: Sequence[Json], terms: Sequence[Term]) -> dict[str, float]:
    """Rows out per row before and row read, of each join of the terms of a plan that Spark ran."""
    chains = [chain for operator in operators for chain in join_chains(operator)]
    measured: dict[str, float] = {}
    if len(chains) != len(terms):  # Spark left some out: it is not known which are which
        return measured
    for chain, ran in zip(chains, terms, strict=True):
        names = ran.join_names()
        if len(chain) == len(names):
            first = ran.order[0]
            if chain and ran.rows.get(first) and chain[0]["inputs"][0]["rows_out"] is not None:
                measured[ran.prefix + _filter_name(first)] = (
                    chain[0]["inputs"][0]["rows_out"] / ran.rows[first]
                )
            for name, alias, join in zip(names, ran.order[1:], chain, strict=True):
                before, rows = join["inputs"][0]["rows_out"], ran.rows.get(alias, TABLE_ROWS)
                # Rows that meet an empty window say nothing of how many they would meet.
                other = join["inputs"][1]["rows_out"] if len(join["inputs"]) > 1 else None
                if before and rows and other != 0 and join["rows_out"] is not None:
                    measured[ran.prefix + name] = join["rows_out"] / (before * rows)
    return measured


def join_chains(operator: Json) -> Iterator[list[Json]]:
    """The joins of each term, the first one first. The join of a shared unit's rows with its table of
    constants is none of them."""
    below = _without_constants(operator)
    if below is not None:
        yield from join_chains(below)
        return
    if operator["kind"] == "join":
        chain = []
        while operator["kind"] in ("join", "filter"):
            if (below := _without_constants(operator)) is not None:
                operator = below
                continue
            if operator["kind"] == "join":
                chain.append(operator)
            operator = operator["inputs"][0]
        yield chain[::-1]
        return
    for below in operator["inputs"]:
        yield from join_chains(below)


def _without_constants(operator: Json) -> Json | None:
    """What a join joins with a row of constants, which no log holds; None if it is no such join."""
    if operator["kind"] != "join" or len(operator["inputs"]) != 2:
        return None
    others = [below for below in operator["inputs"] if below.get("label") != NO_LOG]
    return others[0] if len(others) == 1 else None
