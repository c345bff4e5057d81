"""CQL queries as a placement problem: what they read, all orders of their joins, what they emit.

A source with its own conditions is a part, and so is a condition between sources. A join is identified
by its parts, so queries that join the same in another order, or beside other things, share the
stream. Rates follow from the parts alone, whatever the order. Queries that are no plain join, or
one of very many sources, are one operator over what they read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

from headwater.algebra.canonical import Block, CanonicalQuery, canonicalize
from headwater.algebra.canonical.block import source_text
from headwater.algebra.conditions.box import Box, Constraint, constraint_conjuncts
from headwater.algebra.expressions import Call, Column, Expr, columns_of, substitute
from headwater.algebra.nodes import Query as Asked
from headwater.algebra.nodes import Scan, TableScan, slides, walk_relations
from headwater.algebra.types import BOOLEAN
from headwater.cost.operators import CostTable
from headwater.cost.rates import JoinInput, grouped_rate, join_rate, tuples_in_window
from headwater.errors import InputError
from headwater.network.model import Network
from headwater.plan.placement.model import (
    ObjectiveWeights,
    PlacementOperator,
    PlacementProblem,
    PlacementQuery,
    PlacementStream,
    build_links,
)
from headwater.plan.placement.samples import bipartitions
from headwater.plan.throughput.from_cql import Statistics, condition_text, type_width
from headwater.plan.throughput.profile import WorkloadProfile, build_statistics, stream_rate

MAX_SOURCES = 7
"""The join orders of queries with more sources than these are not enumerated."""

ASSUMED_RATE = 1000.0
"""Tuples per second of a stream without a profile."""

TEXT_WIDTH = 20.0


@dataclass(frozen=True)
class SourcePart:
    """A source of a query behind its own conditions: what it is, its stream, and how much passes."""

    label: str
    stream: int
    rate: float
    held: float
    width: float


@dataclass(frozen=True)
class JoinCondition:
    """What some of a query's sources have to meet together: the share of combinations that do.

    Conditions of one `family` follow from each other: a = b and b = c, so a = c.
    """

    label: str
    sources: frozenset[int]
    share: float
    family: int


def build_placement_problem(
    queries: Sequence[tuple[str, Asked]],
    network: Network,
    profile: WorkloadProfile | None = None,
    costs: CostTable | None = None,
    weights: ObjectiveWeights | None = None,
) -> PlacementProblem:
    """The problem of running named queries on sites.

    Raises InputError if the profile lacks a stream or names a site that does not exist.
    """
    draft = _ProblemBuilder(network, profile or _assumed_profile(queries), costs or CostTable())
    placed_queries = tuple(PlacementQuery(name, draft.add(query)) for name, query in queries)
    return PlacementProblem(
        network.sites,
        tuple(draft.streams),
        tuple(draft.operators),
        placed_queries,
        build_links(network),
        weights or ObjectiveWeights(),
    )


def _assumed_profile(queries: Sequence[tuple[str, Asked]]) -> WorkloadProfile:
    """The same rate for all streams, at the first site."""
    names = {
        node.stream.lower()
        for _, query in queries
        for node in walk_relations(query.root)
        if isinstance(node, Scan)
    }
    return WorkloadProfile("no profile", (dict.fromkeys(names, ASSUMED_RATE),))


@dataclass
class _ProblemBuilder:
    network: Network
    profile: WorkloadProfile
    costs: CostTable
    streams: list[PlacementStream] = field(default_factory=list)
    operators: list[PlacementOperator] = field(default_factory=list)
    stream_of: dict[frozenset[str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.statistics: Statistics = build_statistics(self.profile, [])

    def add(self, query: Asked) -> int:
        """The stream that a query asks for, with all ways to produce it."""
        canonical = canonicalize(query)
        result = frozenset({f"result {canonical.digest}"})
        if result in self.stream_of:
            return self.stream_of[result]
        body = canonical.body
        if not isinstance(body, Block) or not _is_plain(body):
            return self._single_operator(canonical, result)
        parts = [self._source_part(body, position) for position in range(len(body.sources))]
        parts = _number_duplicates(parts)
        joins = self._conditions(body, parts)
        top = self._join(tuple(range(len(parts))), parts, joins)
        rate = _combined_rate(parts, joins)
        if body.group is None:
            kind, out = ("distinct" if body.distinct else "project"), rate
        else:
            steps = slides(query.root)
            keys = [self._source_column(key, body) for key in body.group.keys]
            groups = self.statistics.groups(keys) if keys else 1.0
            kind, out = "aggregate", grouped_rate(rate, groups, min(steps) / 1e6 if steps else None)
        width = sum(type_width(item.type, TEXT_WIDTH) for item in body.items)
        stream = self._add_stream(f"result of {_short_name(parts)}", result, out * width)
        cpu = self.costs[kind].per_tuple * rate + self.costs[kind].per_result * out
        self.operators.append(PlacementOperator((top,), stream, cpu))
        return stream

    def _add_stream(self, name: str, parts: frozenset[str], rate: float, *sites: int) -> int:
        self.stream_of[parts] = len(self.streams)
        self.streams.append(PlacementStream(name, parts, rate, sites))
        return self.stream_of[parts]

    def _base_stream(self, source: Scan | TableScan) -> tuple[int, float, float]:
        """A stream or table as it comes in: its stream, tuples a second, and bytes of a tuple."""
        width = sum(type_width(column.type, TEXT_WIDTH) for column in source.columns)
        if isinstance(source, TableScan):
            parts = frozenset({f"table {source.table.lower()}"})
            if parts not in self.stream_of:
                # A table is a file that every site reads: it is everywhere, and nothing is sent.
                self._add_stream(source.table, parts, 0.0, *range(len(self.network.sites)))
            return self.stream_of[parts], 0.0, width
        name = source.stream.lower()
        rate = stream_rate(self.profile, self.profile.points[0], source.stream)
        parts = frozenset({f"stream {name}"})
        if parts not in self.stream_of:
            home = self.profile.sites.get(name)
            site = 0 if home is None else self.network.position_of(home)
            self._add_stream(source.stream, parts, rate * width, site)
        return self.stream_of[parts], rate, width

    def _source_part(self, body: Block, position: int) -> SourcePart:
        """A source with the conditions that refer to it alone."""
        source = body.sources[position]
        assert isinstance(source, Scan | TableScan)
        base, rate, width = self._base_stream(source)
        own = _source_conditions(body.where, source.alias)
        share = 1.0
        for condition in own:
            share *= self._selectivity(condition, body)
        rows = self.statistics.rows(source.table) if isinstance(source, TableScan) else 0.0
        holds = rows if isinstance(source, TableScan) else tuples_in_window(source.window, rate)
        # An unbounded window is priced by the horizon of the profile: infinite memory would fit
        # nowhere.
        if holds == inf:
            holds = rate * self.statistics.horizon
        label = source_text(source)
        stream = base
        if own:
            name = source.stream if isinstance(source, Scan) else source.table
            texts = sorted(condition_text(_requalify(c, {source.alias: name})) for c in own)
            label = f"{label} where {' and '.join(texts)}"
        # A table is filtered where it is read, at every site, so no stream of its rows is sent.
        if own and isinstance(source, Scan):
            parts = frozenset({f"stream {name.lower()}", *texts})
            if parts not in self.stream_of:
                cost = self.costs["select"]
                cpu = cost.per_tuple * rate + cost.per_result * rate * share
                passed = self._add_stream(
                    f"{name} if {' and '.join(texts)}", parts, rate * share * width
                )
                self.operators.append(PlacementOperator((base,), passed, cpu))
            stream = self.stream_of[parts]
        return SourcePart(label, stream, rate * share, holds * share, width)

    def _conditions(self, body: Block, parts: Sequence[SourcePart]) -> list[JoinCondition]:
        """What sources have to meet together; columns that are all equal are so pair by pair."""
        position_of = {_alias(source): i for i, source in enumerate(body.sources)}
        names = {
            _alias(source): part.label for source, part in zip(body.sources, parts, strict=True)
        }
        collected: list[JoinCondition] = []
        for constraint in body.where.constraints:
            # All pairs of one constraint are a family, numbered by where the first of them stands.
            equal = len(constraint.terms) > 1
            pairs: list[Expr] = (
                [Call("=", pair, BOOLEAN) for pair in combinations(constraint.terms, 2)]
                if equal
                else constraint_conjuncts(constraint)
            )
            collected += [
                self._condition(expr, body, position_of, names, len(collected))
                for expr in pairs
                if len(_relations(expr)) > 1
            ]
        for term in body.where.terms:
            if len(_relations(term)) > 1:
                collected.append(self._condition(term, body, position_of, names, len(collected)))
        return collected

    def _condition(
        self,
        expr: Expr,
        body: Block,
        position_of: Mapping[str, int],
        names: Mapping[str, str],
        family: int,
    ) -> JoinCondition:
        sources = frozenset(position_of[column.relation] for column in columns_of(expr))
        return JoinCondition(
            condition_text(_requalify(expr, names)), sources, self._selectivity(expr, body), family
        )

    def _selectivity(self, expr: Expr, body: Block) -> float:
        sources = {column: self._source_column(column, body) for column in columns_of(expr)}
        return self.statistics.share(expr, {c: s for c, s in sources.items() if s is not None})

    def _source_column(self, expr: Expr, body: Block) -> tuple[str, str] | None:
        """The stream or table, and the column, that a column comes from."""
        if isinstance(expr, Column):
            for source in body.sources:
                if _alias(source) == expr.relation:
                    assert isinstance(source, Scan | TableScan)
                    name = source.stream if isinstance(source, Scan) else source.table
                    return name, expr.name
        return None

    def _join(
        self, chosen: tuple[int, ...], parts: Sequence[SourcePart], joins: Sequence[JoinCondition]
    ) -> int:
        """The stream over some sources, with the joins that compute it."""
        if len(chosen) == 1:
            return parts[chosen[0]].stream
        inside = [j for j in joins if j.sources <= set(chosen)]
        key = frozenset({*(parts[p].label for p in chosen), *(j.label for j in inside)})
        if key in self.stream_of:
            return self.stream_of[key]
        cuts = list(bipartitions(chosen))
        # Products are left out wherever the sources can be joined by conditions, as in System R.
        linked = [cut for cut in cuts if all(_is_connected(half, joins) for half in cut)]
        ways = [
            (left, right, self._join(left, parts, joins), self._join(right, parts, joins))
            for left, right in linked or cuts
        ]
        mine = [parts[p] for p in chosen]
        rate = _combined_rate(mine, inside)
        width = sum(part.width for part in mine)
        stream = self._add_stream(_short_name(mine), key, rate * width)
        cost = self.costs["join"]
        memory = sum(part.held * part.width for part in mine)
        for left, right, left_stream, right_stream in ways:
            arriving = sum(
                _combined_rate(
                    [parts[p] for p in half], [j for j in joins if j.sources <= set(half)]
                )
                for half in (left, right)
            )
            cpu = cost.per_tuple * arriving + cost.per_result * rate
            self.operators.append(
                PlacementOperator((left_stream, right_stream), stream, cpu, memory)
            )
        return stream

    def _single_operator(self, canonical: CanonicalQuery, result: frozenset[str]) -> int:
        """A query of another kind: one operator over the streams that it reads."""
        scans = [n for n in walk_relations(canonical.query.root) if isinstance(n, Scan | TableScan)]
        base = [self._base_stream(scan) for scan in scans]
        if not base:
            raise InputError("a query reads nothing, so there is nothing to place")
        inputs = tuple(dict.fromkeys(stream for stream, _, _ in base))
        rate = sum(rate for _, rate, _ in base)
        width = sum(type_width(c.type, TEXT_WIDTH) for c in canonical.query.columns)
        name = f"result of {', '.join(self.streams[s].name for s in inputs)}"
        output = self._add_stream(name, result, rate * width)
        self.operators.append(
            PlacementOperator(inputs, output, self.costs["join"].per_tuple * rate)
        )
        return output


def _is_plain(body: Block) -> bool:
    return (
        0 < len(body.sources) <= MAX_SOURCES
        and not body.semis
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
    )


def _number_duplicates(parts: Sequence[SourcePart]) -> list[SourcePart]:
    """Number the sources that occur more than once."""
    seen: Counter[str] = Counter()
    numbered = []
    for part in parts:
        seen[part.label] += 1
        number = seen[part.label]
        label = part.label if number == 1 else f"{part.label} #{number}"
        numbered.append(SourcePart(label, part.stream, part.rate, part.held, part.width))
    return numbered


def _source_conditions(box: Box, alias: str) -> list[Expr]:
    """The conditions of a box on one source alone; columns of it that equal another's are equal."""
    collected: list[Expr] = []
    for constraint in box.constraints:
        terms = tuple(term for term in constraint.terms if _relations(term) == {alias})
        # What is joined on a column and has no other condition on it: not NULL follows from the
        # join.
        is_joined = len(terms) == 1 < len(constraint.terms) and constraint.domain.has_all_values
        if terms and not is_joined:
            collected += constraint_conjuncts(Constraint(terms, constraint.domain))
    return [*collected, *(term for term in box.terms if _relations(term) == {alias})]


def _relations(expr: Expr) -> set[str]:
    return {column.relation for column in columns_of(expr)}


def _is_connected(half: Sequence[int], joins: Sequence[JoinCondition]) -> bool:
    """Whether conditions connect all of some sources."""
    seen = {half[0]}
    # Every pass reaches one more source at least, if any of them can be reached at all.
    for _ in half:
        for join in joins:
            if join.sources <= set(half) and join.sources & seen:
                seen |= join.sources
    return len(seen) == len(half)


def _combined_rate(parts: Sequence[SourcePart], joins: Sequence[JoinCondition]) -> float:
    """Tuples a second; of a family of conditions as many count as do not follow from others."""
    share = 1.0
    joined: dict[int, list[set[int]]] = defaultdict(list)
    # Most selective first: of conditions that follow from each other, those that remain are a
    # spanning tree, and the estimate is then the least of them.
    for join in sorted(joins, key=lambda j: j.share):
        groups = joined[join.family]
        touching = [group for group in groups if group & join.sources]
        if any(join.sources <= group for group in touching):
            continue
        share *= join.share
        untouched = [group for group in groups if group not in touching]
        joined[join.family] = [*untouched, set(join.sources).union(*touching)]
    return join_rate([JoinInput(part.rate, part.held) for part in parts], share)


def _requalify(expr: Expr, names: Mapping[str, str]) -> Expr:
    """An expression with its sources renamed."""
    return substitute(
        expr,
        {c: Column(names[c.relation], c.name, c.type, c.nullable) for c in columns_of(expr)},
    )


def _alias(source: object) -> str:
    return str(getattr(source, "alias", ""))


def _short_name(parts: Sequence[SourcePart]) -> str:
    return " * ".join(sorted(part.label.split("'")[1] for part in parts))
