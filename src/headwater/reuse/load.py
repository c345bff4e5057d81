"""The load of an operator: what it reads, joins and emits in a second, as nodes of the cost model.

This is an adapter: it says how many sources an operator has, how long their windows are and what of a
stream meets its condition; what that costs is said by `headwater.cost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import prod

from headwater.algebra.conditions.domain import Domain
from headwater.algebra.conditions.predicate import Box
from headwater.algebra.conditions.simplify import canonical_text
from headwater.algebra.expressions import Call, Column, Expr, columns_of, substitute
from headwater.algebra.nodes import Scan
from headwater.algebra.windows import Range
from headwater.cost.conditions import SourceCondition, bounded_share
from headwater.cost.model import (
    CostModel,
    FilteredSource,
    NodeEstimate,
    StreamModel,
    emit_node,
    filter_node,
    group_count,
    group_node,
    join_name,
    join_node,
    join_share,
    scan_node,
    window_seconds,
)
from headwater.cost.operators import SECOND_COSTS
from headwater.cost.provenance import Estimate, Provenance, declared
from headwater.cost.rates import (
    DEFAULT_DISTINCT,
    DEFAULT_SELECTIVITY,
    ColumnStatistics,
    domain_share,
)
from headwater.reuse.operator import Operator, window_reach
from headwater.reuse.signature import SharingKind, spans_sources

UNKNOWN_COLUMN = ColumnStatistics(DEFAULT_DISTINCT)

SOURCE = "s"
"""What the source of a condition is called in the texts by which conditions are compared."""


@dataclass(frozen=True)
class SharingCosts:
    """What sharing knows of costs: rates of streams that are given, and a cost model for all else.

    `step_seconds` are those of a step of one source; each further one adds terms, by the model.
    """

    step_seconds: float = SECOND_COSTS["step"].per_tuple
    steps_per_second: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    model: CostModel = field(default_factory=CostModel)

    @cached_property
    def effective(self) -> CostModel:
        """The model with these rates and steps."""
        model = self.model
        given = {
            name: replace(model.stream(name), rate=declared(rate))
            for name, rate in self.rates.items()
            if model.stream(name).rate.value != rate
        }
        costs = self.model.costs
        step = replace(costs["step"], per_tuple=self.step_seconds)
        steps = model.steps_per_second
        if steps.value != self.steps_per_second:
            steps = declared(self.steps_per_second)
        return replace(
            model,
            streams={**model.streams, **given},
            costs=replace(costs, costs={**costs.costs, "step": step}),
            steps_per_second=steps,
        )

    @staticmethod
    def of(model: CostModel) -> SharingCosts:
        """What a model says, and nothing else."""
        rates = {name: stream.rate.value for name, stream in model.streams.items()}
        step = model.costs["step"].per_tuple
        return SharingCosts(step, model.steps_per_second.value, rates, model)


@dataclass(frozen=True)
class OperatorLoad:
    """The nodes of an operator, each after those that it reads, and the CPU of its steps in a second."""

    nodes: tuple[NodeEstimate, ...]
    steps: float

    @property
    def cpu(self) -> float:
        """CPU seconds in a second."""
        return self.steps + sum(node.cpu for node in self.nodes)

    @property
    def result(self) -> NodeEstimate:
        """The node whose rows are emitted."""
        return self.nodes[-1]

    @property
    def memory(self) -> float:
        return sum(node.memory for node in self.nodes)

    @property
    def bytes_moved(self) -> float:
        """Bytes that are read from streams and written as results in a second."""
        return self.result.bytes + sum(node.bytes for node in self.nodes if node.kind == "scan")


def estimate_load(operator: Operator, costs: SharingCosts) -> float:
    """The work of an operator in a second, in seconds of a core; never less for a wider one."""
    return operator_load(operator, costs.effective).cpu


def operator_load(operator: Operator, model: CostModel) -> OperatorLoad:
    """What an operator is made of, node by node, and what each costs."""
    keeps_panes = operator.kind is SharingKind.GROUP
    steps = model.step_seconds(len(operator.sources), keeps_panes) * model.steps_per_second.value
    nodes = [*_joined_nodes(operator, model)]
    if keeps_panes:
        nodes.append(_group_node(operator, model, nodes[-1]))
    nodes.append(emit_node(model, nodes[-1]))
    return OperatorLoad(tuple(nodes), steps)


def reading_load(operator: Operator, part: Operator, model: CostModel) -> OperatorLoad:
    """The load of a join that reads the rows of a part, which another unit joins, as those of a stream."""
    whole = operator_load(operator, model)
    names = {scan.stream.lower() for scan in part.scans}
    rest = [scan for scan in operator.scans if scan.stream.lower() not in names]
    made = operator_load(part, model).result
    held = made.rate * window_reach(part) / 1e6
    built = held * len(rest) * model.steps_per_second.value
    rows = replace(
        made,
        kind="scan",
        label=" and ".join(scan.stream for scan in part.scans),
        cpu=model.costs["read"].per_tuple * (made.rate + built),
        memory=held * made.row_bytes,
    )
    # Rows of the part are held like tuples: as long as the windows reach, to meet the other
    # sources.
    nodes, sources = [rows], [FilteredSource(rows, held)]
    for scan in rest:
        source = _source_nodes(operator, scan, model, len(rest))
        nodes += source[:2]
        sources.append(source[2])
    joined = next(node for node in whole.nodes if node.kind == "join")
    found = join_node(model, sources, _join_estimate(operator, model), joined.label)
    # It has the rows that it would have by its streams.
    more = model.costs["join"].per_result * (joined.rate - found.rate)
    nodes.append(replace(joined, cpu=found.cpu + more, memory=found.memory))
    nodes += [node for node in whole.nodes if node.kind not in ("scan", "filter", "join")]
    steps = model.step_seconds(1 + len(rest)) * model.steps_per_second.value
    return OperatorLoad(tuple(nodes), steps)


def _joined_nodes(operator: Operator, model: CostModel) -> Iterator[NodeEstimate]:
    """Scans, filters and, if there are several sources, their join."""
    others = len(operator.scans) - 1
    sources = []
    for scan in operator.scans:
        read, kept, source = _source_nodes(operator, scan, model, others)
        sources.append(source)
        yield read
        yield kept
    if others:
        label = " and ".join(scan.stream for scan in operator.scans)
        yield join_node(model, sources, _join_estimate(operator, model), label)


def _source_nodes(
    operator: Operator, scan: Scan, model: CostModel, others: int
) -> tuple[NodeEstimate, NodeEstimate, FilteredSource]:
    """A stream as it is read and filtered, and as a join with so many others sees it."""
    assert isinstance(scan.window, Range)
    seconds = window_seconds(scan.window.size)
    read = scan_node(model, scan.stream, seconds, others)
    kept = filter_node(model, read, source_share(operator.where, scan, model), scan.stream)
    # Of the window, the row that arrives meets those with its own value in the join column: a bound on
    # that was counted for the row already.
    own = source_share(operator.where, scan, model, own_only=True)
    return read, kept, FilteredSource(kept, read.rate * seconds * own.value)


def _join_estimate(operator: Operator, model: CostModel) -> Estimate:
    """The share of combinations of tuples, one of each stream's window, that join."""
    name, columns = equijoin(operator, model)
    share = join_share(model, name, columns)
    pairs = _pair_selectivity(operator.where)
    return replace(share, value=share.value * pairs)


def equijoin(
    operator: Operator, model: CostModel
) -> tuple[str, list[list[ColumnStatistics | None]]]:
    """The equalities that join the streams of an operator, as the model knows them, and what is known
    of their columns; of many that say the same, only as many as make a difference."""
    streams = {scan.alias: scan.stream.lower() for scan in operator.scans}
    names, columns = [], []
    for terms in _equal_columns(operator.where):
        own = [t for t in terms if t.relation in streams]
        if len({t.relation for t in own}) > 1:
            names.append(" = ".join(sorted(f"{streams[t.relation]}.{t.name}" for t in own)))
            known = [model.stream(streams[t.relation]).columns.get(t.name.lower()) for t in own]
            columns += [known] * (len({t.relation for t in own}) - 1)
    # One that is not bound to others by an equality still meets few of them, as conditions that are
    # part of the sharing key tie it.
    missing = len(streams) - 1 - len(columns)
    columns += [[None]] * max(0, missing)
    return join_name(names), columns


def pair_share(
    where: Box, streams: Mapping[str, str], one: Set[str], other: Set[str], model: CostModel
) -> Estimate:
    """The share of pairs that meet the equalities between two sets of sources, given by their aliases;
    `streams` has the names of those that are streams. Without an equality, as between any columns."""
    names, columns = [], []
    for terms in _equal_columns(where):
        ends = [next((t for t in terms if t.relation in side), None) for side in (one, other)]
        tied = [term for term in ends if term is not None]
        if len(tied) == 2:
            known = [(streams.get(t.relation, ""), t.name) for t in tied]
            names.append(" = ".join(sorted(f"{stream}.{name}" for stream, name in known)))
            columns.append([model.stream(stream).columns.get(n.lower()) for stream, n in known])
    return join_share(model, join_name(names), columns or [[None]])


def _equal_columns(where: Box) -> Iterator[list[Column]]:
    for constraint in where.constraints:
        if len(constraint.terms) > 1:
            yield [term for term in constraint.terms if isinstance(term, Column)]
    for term in where.terms:
        if isinstance(term, Call) and term.name == "=":
            sides = [side for side in term.args if isinstance(side, Column)]
            if len(sides) == 2:
                yield sides


def _group_node(operator: Operator, model: CostModel, below: NodeEstimate) -> NodeEstimate:
    windows = [scan.window for scan in operator.scans if isinstance(scan.window, Range)]
    slides = [window.slide for window in windows if window.slide]
    columns = {scan.alias: model.stream(scan.stream).columns for scan in operator.scans}
    known = [
        columns.get(key.relation, {}).get(key.name.lower()) if isinstance(key, Column) else None
        for key in operator.keys
    ]
    seconds = max(window_seconds(window.size) for window in windows)
    slide = min(slides) / 1e6 if slides else None
    label = ", ".join(map(canonical_text, operator.keys)) or "all rows"
    return group_node(model, below, group_count(known), slide, seconds, label)


# ---- conditions


def source_share(where: Box, scan: Scan, model: CostModel, own_only: bool = False) -> Estimate:
    """The part of a stream's tuples that meets what a condition says of that source, or of it alone;
    never smaller for a condition that covers another."""
    stream = model.stream(scan.stream)
    assumed = _assumed_share(where, scan.alias, stream, own_only)
    seen = model.filters.get(scan.stream.lower())
    if not seen:
        return assumed
    return bounded_share(source_condition(where, scan.alias, own_only), assumed, seen)


def _assumed_share(where: Box, alias: str, stream: StreamModel, own_only: bool) -> Estimate:
    """By numbers of values, as far as they are declared."""
    is_declared = True
    shares = []
    for term, domain in _bounds(where, alias, own_only):
        known = stream.columns.get(term.name.lower()) if isinstance(term, Column) else None
        is_declared &= known is not None
        shares.append(_domain_share(domain, known or UNKNOWN_COLUMN))
    opaque = sum(1 for _ in _opaque_terms(where, alias, own_only))
    value = prod(shares) * DEFAULT_SELECTIVITY**opaque
    if not shares and not opaque:
        # Without a condition all tuples pass, which is no guess.
        return Estimate(1.0, Provenance.DECLARED, 1.0)
    return declared(value) if is_declared and not opaque else Estimate(value)


@lru_cache(maxsize=1024)
def source_condition(where: Box, alias: str, own_only: bool = False) -> SourceCondition:
    """What a condition says of a source, in texts that are the same whatever the source is called."""
    return SourceCondition(
        {_text(term): domain for term, domain in _bounds(where, alias, own_only)},
        frozenset(_text(*terms) for terms in _opaque_terms(where, alias, own_only)),
    )


def _bounds(where: Box, alias: str, own_only: bool) -> Iterator[tuple[Expr, Domain]]:
    for constraint in where.constraints:
        own = [term for term in constraint.terms if _refers_only_to(term, alias)]
        # With `own_only`, a bound on a join column is left out.
        is_joined = len(own) < len(constraint.terms)
        if own and not (own_only and is_joined) and not constraint.domain.has_all_values:
            yield own[0], constraint.domain


def _opaque_terms(where: Box, alias: str, own_only: bool) -> Iterator[tuple[Expr, ...]]:
    """Conditions that are no bound of a term, and columns of the source that must be equal."""
    for constraint in where.constraints:
        own = [term for term in constraint.terms if _refers_only_to(term, alias)]
        if not (own_only and len(own) < len(constraint.terms)):
            yield from ((own[0], other) for other in own[1:])
    yield from ((term,) for term in where.terms if _refers_only_to(term, alias))


def _text(*terms: Expr) -> str:
    renamed = (
        substitute(t, {c: replace(c, relation=SOURCE) for c in columns_of(t)}) for t in terms
    )
    return " = ".join(canonical_text(term) for term in renamed)


def _pair_selectivity(where: Box) -> float:
    """The part of joined rows that meets the conditions on several sources beside equalities."""
    equal = {tuple(columns) for columns in _equal_columns(where)}
    shares = [
        DEFAULT_SELECTIVITY
        for term in where.terms
        if spans_sources(term) and not (isinstance(term, Call) and term.args in equal)
    ]
    shares += [
        _domain_share(constraint.domain, UNKNOWN_COLUMN)
        for constraint in where.constraints
        if len(constraint.terms) == 1 and spans_sources(constraint.terms[0])
    ]
    return prod(shares)


def _refers_only_to(term: Expr, alias: str) -> bool:
    if isinstance(term, Column):
        return term.relation == alias
    return {column.relation for column in columns_of(term)} == {alias}


@lru_cache(maxsize=4096)
def _domain_share(domain: Domain, column: ColumnStatistics) -> float:
    return domain_share(domain, column)
