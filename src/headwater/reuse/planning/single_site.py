"""The decision for a query at a single site: the parts it could share there, and what they cost.

Prices are seconds of work in a second, of one core. A job's step costs the same whatever it does, and every
row that is read, joined or emitted a little more; what is done once is spread over the lifetime of the
query. Where no rate is known yet the decision is careful: it takes no relaxation by which an operator
could have many times the work of its queries alone, and says that it should be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from headwater.algebra.canonical import Block, CanonicalQuery, canonicalize
from headwater.algebra.canonical.relation import RelationBuilder
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Column
from headwater.algebra.nodes import Output, Project, Query, Scan, TableScan, walk_relations
from headwater.algebra.windows import Range
from headwater.cost.model import NodeEstimate, window_seconds
from headwater.reuse.decide import Alternative, SharingChoice, has_lanes, relaxing_load
from headwater.reuse.describe import describe_changes
from headwater.reuse.lanes import MAX_LANES
from headwater.reuse.load import OperatorLoad, SharingCosts, operator_load, reading_load
from headwater.reuse.operator import (
    Operator,
    classify_containment,
    minimal_operator,
    window_reach,
)
from headwater.reuse.planning.decision import (
    Costs,
    OnePlace,
    PlanChoice,
    PlanStep,
    Reuse,
    ReusePricing,
    decide,
)
from headwater.reuse.planning.graph import Node, Sources, source_labels
from headwater.reuse.signature import (
    QuerySignature,
    SharingKind,
    leaves_of,
    partial_join_aliases,
    partial_join_query,
    select_conditions,
    signature_of,
    source_name,
)

DAY_SECONDS = 86_400.0
"""The lifetime over which a query without one is priced."""

NOMINAL_RATE = 100.0
"""The rows in a second of a stream of which no rate is known."""

MAX_CAREFUL_GROWTH = 10.0
"""How many times as many pairs a relaxed operator may join as what it serves would have to, where a
rate is not known."""


@dataclass(frozen=True)
class QueryPart:
    """The join of some of a query's sources, as the query that a reader asks of another unit."""

    sources: Sources
    query: Query
    canonical: CanonicalQuery
    signature: QuerySignature


@dataclass(frozen=True, eq=False)
class QueryParts:
    """The joins of a query's sources that others could compute too, made when they are asked for."""

    signature: QuerySignature
    _parts: dict[Sources, QueryPart | None] = field(default_factory=dict)

    @cached_property
    def labels(self) -> dict[str, str]:
        return source_labels(leaves_of(self.signature.content))

    @cached_property
    def whole(self) -> Sources:
        return frozenset(self.labels.values())

    @cached_property
    def aliases(self) -> Mapping[Sources, tuple[str, ...]]:
        """The aliases of each set of sources that conditions connect, small sets first; not of all."""
        if self.signature.kind is not SharingKind.JOIN:
            return {}
        chosen = sorted(partial_join_aliases(self.signature), key=lambda names: (len(names), names))
        return {frozenset(self.labels[alias] for alias in names): names for names in chosen}

    def part(self, sources: Sources) -> QueryPart | None:
        """The join of some sources; None if it is not one that others can share."""
        if sources not in self._parts:
            query = partial_join_query(self.signature, self.aliases[sources])
            self._parts[sources] = None if query is None else query_part(sources, query)
        return self._parts[sources]

    def part_signature(self, sources: Sources) -> QuerySignature:
        """The signature of the whole, or of a part that can be shared."""
        if sources == self.whole:
            return self.signature
        part = self.part(sources)
        assert part is not None
        return part.signature


def query_part(sources: Sources, query: Query) -> QueryPart:
    canonical = canonicalize(query)
    return QueryPart(sources, query, canonical, signature_of(canonical))


def covering_part(sources: Sources, wider: Operator, queries: Iterable[Query]) -> QueryPart:
    """The query that has the rows of an operator, with all columns that any of some queries emits, each
    by its own name: of columns that are equal, an operator knows one."""
    alias = {source_name(source): source.alias for source in wider.sources}
    columns = set(wider.columns)
    for query in queries:
        names = {
            node.alias: source_name(node)
            for node in walk_relations(query.root)
            if isinstance(node, Scan | TableScan)
        }
        assert isinstance(query.root, Project)
        for item in query.root.items:
            if isinstance(item.expr, Column):
                columns.add(replace(item.expr, relation=alias[names[item.expr.relation]]))
    items = tuple(sorted(columns, key=canonical_text))
    block = Block(wider.sources, wider.where, (), None, items, False)
    return query_part(sources, Query(Output.ISTREAM, RelationBuilder().build(block)))


def narrowed_query(query: Query, narrower: Operator) -> Query | None:
    """The query with the rows of a narrower operator, in the same columns; None if its columns would
    be others, as conditions make some equal."""
    alias = {source_name(source): source.alias for source in narrower.sources}
    sources = [n for n in walk_relations(query.root) if isinstance(n, Scan | TableScan)]
    names = {source.alias: source_name(source) for source in sources}
    assert isinstance(query.root, Project)
    columns = [item.expr for item in query.root.items if isinstance(item.expr, Column)]
    items = tuple(replace(c, relation=alias[names[c.relation]]) for c in columns)
    block = Block(narrower.sources, narrower.where, (), None, items, False)
    narrowed = Query(query.output, RelationBuilder().build(block))
    before, after = canonicalize(query), canonicalize(narrowed)
    assert isinstance(before.body, Block) and isinstance(after.body, Block)
    named = [tuple(map(source_name, leaves_of(body))) for body in (before.body, after.body)]
    same = before.columns == after.columns and before.body.items == after.body.items
    return narrowed if same and named[0] == named[1] else None


Candidates = Callable[[Sources, QuerySignature], Iterable[Node]]
"""The nodes that may serve a part of a query, those first that do so as they are."""


@dataclass(frozen=True, eq=False)
class SiteSetting:
    """A query, what runs at the site, and what both cost there.

    `readable` says of some sources whether anything that runs may have their join, so that others
    need not be looked up; `lanes` is in how many lanes a node is computed now.
    """

    parts: QueryParts
    candidates: Candidates
    costs: SharingCosts
    readable: Callable[[Sources], bool] = lambda _: False
    lanes: Callable[[Node], int] = lambda _: 1
    lifetime: float = DAY_SECONDS
    places: OnePlace = field(default_factory=OnePlace)
    max_reads: int = 1
    _part_loads: dict[Sources, OperatorLoad] = field(init=False, default_factory=dict)
    _restricted_loads: dict[Sources, OperatorLoad] = field(init=False, default_factory=dict)

    @property
    def whole(self) -> Sources:
        return self.parts.whole

    @cached_property
    def single_sources(self) -> Sequence[Sources]:
        return [frozenset({label}) for label in self.parts.labels.values()]

    @cached_property
    def joins(self) -> Sequence[Sources]:
        return [*self.parts.aliases, self.whole]

    # ---- prices

    @cached_property
    def is_careful(self) -> bool:
        """Whether the rate of a stream is not known yet."""
        return any(not self.costs.rates.get(name) for name in self._streams)

    @cached_property
    def _streams(self) -> set[str]:
        return {scan.stream.lower() for scan in self.parts.signature.scans}

    @cached_property
    def _priced(self) -> SharingCosts:
        """The costs, with a rate for every stream."""
        rates = {name: self.costs.rates.get(name) or NOMINAL_RATE for name in self._streams}
        return replace(self.costs, rates=rates)

    @cached_property
    def _own(self) -> Operator:
        return minimal_operator(self.parts.signature)

    @cached_property
    def _own_load(self) -> OperatorLoad:
        return self._load(self._own)

    @cached_property
    def _reading(self) -> dict[Sources, float]:
        """The work of reading each source."""
        nodes = [node for node in self._own_load.nodes if _is_reading(node)]
        work = dict.fromkeys(self.single_sources, 0.0)
        for number, scan in enumerate(self._own.scans):
            # Each is read and filtered, in the order of the operator.
            read, kept = nodes[2 * number : 2 * number + 2]
            work[frozenset({self.parts.labels[scan.alias]})] = read.cpu + kept.cpu
        return work

    def feed_costs(self, source: Sources) -> Costs:
        return (self._reading[source],)

    def sent(self, sources: Sources) -> float:  # noqa: ARG002
        return 0.0

    def join_price(self, sources: Sources) -> float:
        """The work of joining, and of the steps if it is the whole, which needs a job of its own."""
        if sources == self.whole:
            return self._own_load.cpu - sum(self._reading.values())
        return _making(self._restricted_load(sources))

    def result_costs(self) -> Costs:
        return (0.0,)

    @property
    def standalone_load(self) -> float:
        """The work of the query in a unit of its own, whatever the order of its joins."""
        return self._own_load.cpu

    def _load(self, operator: Operator) -> OperatorLoad:
        return operator_load(operator, self._priced.effective)

    def _restricted_load(self, sources: Sources) -> OperatorLoad:
        """The load of the query's own join of some sources, with the conditions as they are: what would
        follow from them for these sources alone makes little difference to a price."""
        if sources not in self._restricted_loads:
            part = restricted_operator(self._own, set(self.parts.aliases[sources]))
            self._restricted_loads[sources] = self._load(part)
        return self._restricted_loads[sources]

    # ---- what runs

    def offers(self, sources: Sources) -> Iterator[Reuse]:
        """What runs and may be used; what adds nothing ends the search."""
        if sources != self.whole:
            if len(sources) > 1 and self.readable(sources):
                yield from self._partial_offers(sources)
            return
        for node in self.candidates(sources, self.parts.signature):
            reuse = self._pricing.reuse(node)
            if self._is_acceptable(reuse):
                yield reuse
                if reuse.price <= 0.0:
                    return

    def _partial_offers(self, sources: Sources) -> Iterator[Reuse]:
        part = self.parts.part(sources)
        if part is None:
            return
        reading = self._rows_price(sources)
        for node in self.candidates(sources, part.signature):
            reuse = self._pricing.reuse(node)
            if self._is_acceptable(reuse):
                yield replace(reuse, price=reuse.price + reading)
                if reuse.price <= 0.0:
                    return

    def _rows_price(self, sources: Sources) -> float:
        """The work of reading what another unit emits for the query, as of a stream: the new rows, and
        those that windows still hold once for each other source in each step, which has fewer terms."""
        model = self._priced.effective
        others = len(self.whole) - len(sources)
        steps = model.steps_per_second.value
        rate = self._restricted_load(sources).result.rate
        spared = (model.step_seconds(len(self.whole)) - model.step_seconds(others + 1)) * steps
        held = rate * window_reach(self.parts.part_signature(sources)) / 1e6
        return model.costs["read"].per_tuple * (rate + held * others * steps) - spared

    @cached_property
    def _pricing(self) -> ReusePricing:
        return ReusePricing(self.parts.part_signature, self._serving_price)

    def _serving_price(self, node: Node, wider: Operator, sources: Sources) -> float:
        """What it adds to a node that it serves the query as well."""
        if wider is node.operator:
            return 0.0
        before, after = self._node_load(node, node.operator).cpu, self._node_load(node, wider).cpu
        own = None
        if self._has_lane_for(node, wider):
            own = self._node_load(node, self._own) if node.inputs else self._part_load(sources)
        more = relaxing_load(before, after, own)
        if sources != self.whole:
            # What the part's reader has not seen is computed for it once.
            more += self.join_price(sources) * self._window_seconds(sources) / self.lifetime
        return more

    def _part_load(self, sources: Sources) -> OperatorLoad:
        """The load of the query's own part of some sources, in a unit of its own."""
        if sources == self.whole:
            return self._own_load
        if sources not in self._part_loads:
            own = minimal_operator(self.parts.part_signature(sources))
            self._part_loads[sources] = self._load(own)
        return self._part_loads[sources]

    def _node_load(self, node: Node, operator: Operator) -> OperatorLoad:
        """What an operator costs where a node is: by reading what that reads instead of streams."""
        if not node.inputs:
            return self._load(operator)
        (feeder,) = node.inputs
        labels = source_labels(operator.sources)
        aliases = {alias for alias, label in labels.items() if label in feeder.sources}
        part = restricted_operator(operator, aliases)
        return reading_load(operator, part, self._priced.effective)

    def _has_lane_for(self, node: Node, wider: Operator) -> bool:
        """Whether a node can compute the query's pairs apart from those that it computes now."""
        return has_lanes(wider) and self.lanes(node) < MAX_LANES

    def _window_seconds(self, sources: Sources) -> float:
        windows = [s.window for s in self._own.scans if self.parts.labels[s.alias] in sources]
        sizes = [w.size for w in windows if isinstance(w, Range)]
        return sum(self.lifetime if n is None else window_seconds(n) for n in sizes)

    def _is_acceptable(self, reuse: Reuse) -> bool:
        """Whether no operator could have many times the work of what it serves, or rates tell."""
        if not self.is_careful:
            return True
        for node, wider in reuse.changes.items():
            if self._has_lane_for(node, wider):
                continue  # it joins at most the pairs of each
            own = _pairs(self._part_load(node.sources))
            alone = _pairs(self._load(node.operator)) + own
            if _pairs(self._load(wider)) > MAX_CAREFUL_GROWTH * alone:
                return False
        return True


def restricted_operator(operator: Operator, aliases: set[str]) -> Operator:
    """The join of some sources of an operator, without columns, for its price."""
    sources = tuple(source for source in operator.sources if source.alias in aliases)
    where = select_conditions(operator.where, aliases)
    return replace(operator, sources=sources, where=where, columns=frozenset())


def _making(load: OperatorLoad) -> float:
    """The work of making rows of what was read, without steps."""
    return sum(node.cpu for node in load.nodes if not _is_reading(node))


def _pairs(load: OperatorLoad) -> float:
    """The rows that an operator joins in a second: reading more of a stream multiplies nothing."""
    return sum(node.rate for node in load.nodes if node.kind == "join")


def _is_reading(node: NodeEstimate) -> bool:
    return node.kind in ("scan", "filter")


@dataclass(frozen=True)
class SitePlan:
    """What was decided for a query: `choice` is the unit that it joins, or a new one; a new one may read
    `part` from a node that runs. `relaxed` are all nodes that change, with what they compute then."""

    choice: SharingChoice
    decision: PlanChoice
    part: QueryPart | None = None
    reads: Node | None = None
    relaxed: Mapping[Node, Operator] = field(default_factory=dict)


def plan_at_site(setting: SiteSetting) -> SitePlan:
    """The decision for a query at a single site."""
    decision = decide(setting)
    signature, step = setting.parts.signature, decision.best.step
    own = minimal_operator(signature)
    alone = decision.unshared
    if alone is None:  # nothing else was looked at, as a unit serves it for nothing
        alone = setting.standalone_load
    kept = tuple(Alternative(_described(p.step), p.price) for p in decision.alternatives)
    price, revisit = decision.best.price, setting.is_careful
    if step.reuse is None:
        choice = SharingChoice(None, None, own, (), price, alone, kept, revisit)
        if not step.reused:
            return SitePlan(choice, decision)
        (read,) = step.reused
        part = setting.parts.part(read.node.sources)
        return SitePlan(choice, decision, part, read.node, read.changes)
    node = step.reuse.node
    after = step.reuse.changes.get(node, node.operator)
    changes = () if after is node.operator else tuple(describe_changes(node.operator, after))
    containment = classify_containment(signature, node.operator)
    choice = SharingChoice(node.name, containment, after, changes, price, alone, kept, revisit)
    return SitePlan(choice, decision, relaxed=step.reuse.changes)


def choose_operator(
    signature: QuerySignature, running: Iterable[tuple[str, Operator]], costs: SharingCosts
) -> SharingChoice:
    """The decision where only whole queries are shared, among these operators."""
    nodes = (Node(name, operator) for name, operator in running)
    return plan_at_site(SiteSetting(QueryParts(signature), lambda *_: nodes, costs)).choice


def _described(step: PlanStep) -> str:
    """A plan in a few words."""
    if step.reuse is not None:
        verb = "relax" if step.reuse.changes else "join"
        return f"{verb} unit {step.reuse.node.name}"
    if not step.reused:
        return "a new unit"
    (read,) = step.reused
    relaxed = ", relaxed for it" if read.changes else ""
    return f"a new unit that reads unit {read.node.name}{relaxed}"
