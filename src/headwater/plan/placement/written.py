"""CQL queries as a placement problem: what they read, all the orders of their joins, what they tell.

A source with its own conditions is a part, and so is a condition between sources. A join is told by the
parts it holds, so queries that join the same in another order, or beside other things, share the
stream. Rates follow from the parts alone, whatever the order. Queries that are no plain join, or
one of very many sources, are one operator over what they read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

from headwater.algebra.box import Box, Constraint, conditions
from headwater.algebra.canonical import Block, Canonical, canonicalize
from headwater.algebra.canonical.block import source_text
from headwater.algebra.expressions import Call, Column, Expr, columns_of, substitute
from headwater.algebra.nodes import Query as Asked
from headwater.algebra.nodes import Scan, TableScan, relations, slides
from headwater.algebra.types import BOOLEAN
from headwater.cost.operators import CostTable
from headwater.cost.rates import Input, grouped_rate, held, join_rate
from headwater.errors import InputError
from headwater.network.model import Network
from headwater.plan.placement.model import Operator, Problem, Query, Stream, Weights, links_of
from headwater.plan.placement.samples import halves
from headwater.plan.throughput.profile import Profile, rate_of, statistics_of
from headwater.plan.throughput.written import Statistics, text_of, width_of

MOST_SOURCES = 7
"""Of joins of more sources, the orders are not looked at."""

ASSUMED_RATE = 1000.0
"""Tuples a second of a stream of which nothing is said."""

TEXT_WIDTH = 20.0


@dataclass(frozen=True)
class Part:
    """A source of a query behind its own conditions: what it is, its stream, and how much passes."""

    label: str
    stream: int
    rate: float
    held: float
    width: float


@dataclass(frozen=True)
class Condition:
    """What some of a query's sources have to meet together: the share of combinations that do.

    Conditions of one `family` follow from each other: a = b and b = c, so a = c.
    """

    label: str
    sources: frozenset[int]
    share: float
    family: int


def placement_problem(
    queries: Sequence[tuple[str, Asked]],
    network: Network,
    profile: Profile | None = None,
    costs: CostTable | None = None,
    weights: Weights | None = None,
) -> Problem:
    """The problem of running named queries on sites.

    Raises InputError if the profile lacks a stream or names a site that does not exist.
    """
    draft = _Draft(network, profile or _assumed(queries), costs or CostTable())
    asked = tuple(Query(name, draft.add(query)) for name, query in queries)
    return Problem(
        network.sites,
        tuple(draft.streams),
        tuple(draft.operators),
        asked,
        links_of(network),
        weights or Weights(),
    )


def _assumed(queries: Sequence[tuple[str, Asked]]) -> Profile:
    """All streams alike, at the first site."""
    names = {
        node.stream.lower()
        for _, query in queries
        for node in relations(query.root)
        if isinstance(node, Scan)
    }
    return Profile("no profile", (dict.fromkeys(names, ASSUMED_RATE),))


@dataclass
class _Draft:
    network: Network
    profile: Profile
    costs: CostTable
    streams: list[Stream] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    known: dict[frozenset[str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.statistics: Statistics = statistics_of(self.profile, [])

    def add(self, query: Asked) -> int:
        """The stream that a query wants, with all the ways to make it."""
        canonical = canonicalize(query)
        result = frozenset({f"result {canonical.digest}"})
        if result in self.known:
            return self.known[result]
        body = canonical.body
        if not isinstance(body, Block) or not _is_plain(body):
            return self._whole(canonical, result)
        parts = [self._part(body, place) for place in range(len(body.sources))]
        parts = _told_apart(parts)
        joins = self._conditions(body, parts)
        top = self._join(tuple(range(len(parts))), parts, joins)
        rate = _rate(parts, joins)
        if body.group is None:
            kind, out = ("distinct" if body.distinct else "project"), rate
        else:
            steps = slides(query.root)
            keys = [self._source(key, body) for key in body.group.keys]
            groups = self.statistics.groups(keys) if keys else 1.0
            kind, out = "aggregate", grouped_rate(rate, groups, min(steps) / 1e6 if steps else None)
        width = sum(width_of(item.type, TEXT_WIDTH) for item in body.items)
        made = self._stream(f"result of {_short(parts)}", result, out * width)
        cpu = self.costs[kind].tuple * rate + self.costs[kind].result * out
        self.operators.append(Operator((top,), made, cpu))
        return made

    def _stream(self, name: str, parts: frozenset[str], rate: float, *sites: int) -> int:
        self.known[parts] = len(self.streams)
        self.streams.append(Stream(name, parts, rate, sites))
        return self.known[parts]

    def _base(self, source: Scan | TableScan) -> tuple[int, float, float]:
        """A stream or table as it comes in: its stream, tuples a second, and bytes of a tuple."""
        width = sum(width_of(column.type, TEXT_WIDTH) for column in source.columns)
        if isinstance(source, TableScan):
            parts = frozenset({f"table {source.table.lower()}"})
            if parts not in self.known:
                self._stream(source.table, parts, 0.0, *range(len(self.network.sites)))
            return self.known[parts], 0.0, width
        name = source.stream.lower()
        rate = rate_of(self.profile, self.profile.points[0], source.stream)
        parts = frozenset({f"stream {name}"})
        if parts not in self.known:
            home = self.profile.sites.get(name)
            site = 0 if home is None else self.network.place(home)
            self._stream(source.stream, parts, rate * width, site)
        return self.known[parts], rate, width

    def _part(self, body: Block, place: int) -> Part:
        """A source behind the conditions that speak of it alone."""
        source = body.sources[place]
        assert isinstance(source, Scan | TableScan)
        base, rate, width = self._base(source)
        own = [
            c
            for c in _conjuncts(body.where)
            if {x.relation for x in columns_of(c)} == {source.alias}
        ]
        share = 1.0
        for condition in own:
            share *= self._share(condition, body)
        rows = self.statistics.rows(source.table) if isinstance(source, TableScan) else 0.0
        holds = rows if isinstance(source, TableScan) else held(source.window, rate)
        if holds == inf:
            holds = rate * self.statistics.horizon
        label = source_text(source)
        stream = base
        if own and isinstance(source, Scan):
            name = source.stream
            texts = sorted(text_of(_at(c, {source.alias: name})) for c in own)
            parts = frozenset({f"stream {name.lower()}", *texts})
            label = f"{label} where {' and '.join(texts)}"
            if parts not in self.known:
                cost = self.costs["select"]
                cpu = cost.tuple * rate + cost.result * rate * share
                passed = self._stream(
                    f"{name} if {' and '.join(texts)}", parts, rate * share * width
                )
                self.operators.append(Operator((base,), passed, cpu))
            stream = self.known[parts]
        return Part(label, stream, rate * share, holds * share, width)

    def _conditions(self, body: Block, parts: Sequence[Part]) -> list[Condition]:
        """What sources have to meet together; columns that are all equal are so pair by pair."""
        place = {_alias(source): i for i, source in enumerate(body.sources)}
        names = {
            _alias(source): part.label for source, part in zip(body.sources, parts, strict=True)
        }
        found: list[Condition] = []
        for constraint in body.where.constraints:
            spread = {x.relation for term in constraint.terms for x in columns_of(term)}
            if len(spread) < 2:
                continue
            equal = len(constraint.terms) > 1
            pairs = (
                [Call("=", pair, BOOLEAN) for pair in combinations(constraint.terms, 2)]
                if equal
                else conditions(constraint)
            )
            found += [self._condition(one, body, place, names, len(found)) for one in pairs]
        for term in body.where.terms:
            if len({x.relation for x in columns_of(term)}) > 1:
                found.append(self._condition(term, body, place, names, len(found)))
        return found

    def _condition(
        self,
        expr: Expr,
        body: Block,
        place: Mapping[str, int],
        names: Mapping[str, str],
        family: int,
    ) -> Condition:
        sources = frozenset(place[column.relation] for column in columns_of(expr))
        return Condition(text_of(_at(expr, names)), sources, self._share(expr, body), family)

    def _share(self, expr: Expr, body: Block) -> float:
        sources = {column: self._source(column, body) for column in columns_of(expr)}
        return self.statistics.share(expr, {c: s for c, s in sources.items() if s is not None})

    def _source(self, expr: Expr, body: Block) -> tuple[str, str] | None:
        """The stream or table, and the column, that a column comes from."""
        if isinstance(expr, Column):
            for source in body.sources:
                if _alias(source) == expr.relation:
                    assert isinstance(source, Scan | TableScan)
                    name = source.stream if isinstance(source, Scan) else source.table
                    return name, expr.name
        return None

    def _join(
        self, chosen: tuple[int, ...], parts: Sequence[Part], joins: Sequence[Condition]
    ) -> int:
        """The stream over some sources, with the joins that make it."""
        if len(chosen) == 1:
            return parts[chosen[0]].stream
        inside = [j for j in joins if j.sources <= set(chosen)]
        key = frozenset({*(parts[p].label for p in chosen), *(j.label for j in inside)})
        if key in self.known:
            return self.known[key]
        cuts = list(halves(chosen))
        linked = [cut for cut in cuts if all(_linked(half, joins) for half in cut)]
        ways = [
            (left, right, self._join(left, parts, joins), self._join(right, parts, joins))
            for left, right in linked or cuts
        ]
        mine = [parts[p] for p in chosen]
        rate = _rate(mine, inside)
        width = sum(part.width for part in mine)
        made = self._stream(_short(mine), key, rate * width)
        cost = self.costs["join"]
        memory = sum(part.held * part.width for part in mine)
        for left, right, one, other in ways:
            arriving = sum(
                _rate([parts[p] for p in half], [j for j in joins if j.sources <= set(half)])
                for half in (left, right)
            )
            cpu = cost.tuple * arriving + cost.result * rate
            self.operators.append(Operator((one, other), made, cpu, memory))
        return made

    def _whole(self, canonical: Canonical, result: frozenset[str]) -> int:
        """A query of another kind: one operator over the streams that it reads."""
        scans = [n for n in relations(canonical.query.root) if isinstance(n, Scan | TableScan)]
        base = [self._base(scan) for scan in scans]
        if not base:
            raise InputError("a query reads nothing, so there is nothing to place")
        inputs = tuple(dict.fromkeys(stream for stream, _, _ in base))
        rate = sum(rate for _, rate, _ in base)
        width = sum(width_of(c.type, TEXT_WIDTH) for c in canonical.query.columns)
        name = f"result of {', '.join(self.streams[s].name for s in inputs)}"
        made = self._stream(name, result, rate * width)
        self.operators.append(Operator(inputs, made, self.costs["join"].tuple * rate))
        return made


def _is_plain(body: Block) -> bool:
    return (
        0 < len(body.sources) <= MOST_SOURCES
        and not body.semis
        and all(isinstance(source, Scan | TableScan) for source in body.sources)
    )


def _told_apart(parts: Sequence[Part]) -> list[Part]:
    """Sources that are the same get numbers."""
    seen: Counter[str] = Counter()
    found = []
    for part in parts:
        seen[part.label] += 1
        number = seen[part.label]
        label = part.label if number == 1 else f"{part.label} #{number}"
        found.append(Part(label, part.stream, part.rate, part.held, part.width))
    return found


def _conjuncts(box: Box) -> list[Expr]:
    """The conditions of a box on single terms, and its other terms."""
    found: list[Expr] = []
    for constraint in box.constraints:
        alone = [Constraint((term,), constraint.domain) for term in constraint.terms]
        if not constraint.domain.has_all_values:
            found += [condition for one in alone for condition in conditions(one)]
    return [*found, *box.terms]


def _linked(half: Sequence[int], joins: Sequence[Condition]) -> bool:
    """Whether conditions connect all of some sources."""
    seen = {half[0]}
    for _ in half:
        for join in joins:
            if join.sources <= set(half) and join.sources & seen:
                seen |= join.sources
    return len(seen) == len(half)


def _rate(parts: Sequence[Part], joins: Sequence[Condition]) -> float:
    """Tuples a second; of a family of conditions as many count as do not follow from others."""
    share = 1.0
    joined: dict[int, list[set[int]]] = defaultdict(list)
    for join in sorted(joins, key=lambda j: j.share):
        groups = joined[join.family]
        touching = [group for group in groups if group & join.sources]
        if any(join.sources <= group for group in touching):
            continue
        share *= join.share
        kept = [group for group in groups if group not in touching]
        joined[join.family] = [*kept, set(join.sources).union(*touching)]
    return join_rate([Input(part.rate, part.held) for part in parts], share)


def _at(expr: Expr, names: Mapping[str, str]) -> Expr:
    """An expression that speaks of sources by other names."""
    return substitute(
        expr,
        {c: Column(names[c.relation], c.name, c.type, c.nullable) for c in columns_of(expr)},
    )


def _alias(source: object) -> str:
    return str(getattr(source, "alias", ""))


def _short(parts: Sequence[Part]) -> str:
    return " * ".join(sorted(part.label.split("'")[1] for part in parts))
