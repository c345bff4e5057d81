"""The one cost model: rate, bytes, CPU and memory of what a query is made of.

A node is a scan, a filter, a join or a group. What a node costs follows from rates, shares and costs of
operators, each the best that is known: assumed, declared, calibrated, or measured (`provenance`).
More tuples, longer windows and more groups never cost less, so widening what is computed never does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod

from headwater.cost.conditions import MeasuredShare
from headwater.cost.operators import SECOND_COSTS, CostTable
from headwater.cost.provenance import Estimate, Known, Provenance
from headwater.cost.rates import (
    DEFAULT_DISTINCT,
    ColumnStatistics,
    JoinInput,
    grouped_rate,
    join_rate,
)

HORIZON_SECONDS = 3_600.0
"""The length at which a window without an end is priced: a finite one keeps prices comparable."""

DEFAULT_TUPLE_BYTES = 100.0


@dataclass(frozen=True)
class StreamModel:
    """What is known of a stream: tuples in a second, bytes of a tuple, and its columns by name."""

    rate: Estimate = field(default_factory=lambda: Estimate(0.0))
    tuple_bytes: Estimate = field(default_factory=lambda: Estimate(DEFAULT_TUPLE_BYTES))
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)


@dataclass(frozen=True)
class CostModel:
    """What is known of streams and conditions, and what operators cost in seconds of a core.

    `joins` are measured shares of pairs that join, by what `join_name` calls them; `filters` what was
    measured to pass conditions, by stream; `costs_known` says whether the costs are this machine's, and
    `steps_known` whether those of steps are known better than that.
    """

    streams: Mapping[str, StreamModel] = field(default_factory=dict)
    joins: Mapping[str, Estimate] = field(default_factory=dict)
    filters: Mapping[str, tuple[MeasuredShare, ...]] = field(default_factory=dict)
    costs: CostTable = SECOND_COSTS
    costs_known: Provenance = Provenance.DEFAULT
    steps_known: Provenance | None = None
    steps_per_second: Estimate = field(default_factory=lambda: Estimate(1.0))

    def stream(self, name: str) -> StreamModel:
        return self.streams.get(name.lower(), UNKNOWN_STREAM)

    def step_seconds(self, sources: int, keeps_panes: bool = False) -> float:
        """The CPU seconds of a step, however little it reads: each source has a term, and each term
        reads every source."""
        panes = self.costs["panes"].per_tuple if keeps_panes else 0.0
        return self.costs["step"].per_tuple + self.costs["term"].per_tuple * sources**2 + panes


UNKNOWN_STREAM = StreamModel()


@dataclass(frozen=True)
class NodeEstimate:
    """Rows and bytes in a second, CPU seconds in a second, bytes held; and how that is known.

    `cpu` is of the node alone, not of those below it.
    """

    kind: str
    label: str
    rate: float
    bytes: float
    cpu: float
    memory: float
    known: Known
    confidence: float

    @property
    def row_bytes(self) -> float:
        return self.bytes / self.rate if self.rate else DEFAULT_TUPLE_BYTES


@dataclass(frozen=True)
class FilteredSource:
    """A source as a join sees it: its new rows, and what its window holds that they can meet."""

    node: NodeEstimate
    held: float


def window_seconds(size: int | None) -> float:
    """The seconds of a window of so many microseconds, as it is priced."""
    return HORIZON_SECONDS if size is None else size / 1e6


def scan_node(model: CostModel, stream: str, seconds: float, others: int) -> NodeEstimate:
    """Reading a stream: its new tuples and, for every other source, those of its window at each step."""
    known = model.stream(stream)
    rate, size = known.rate.value, known.tuple_bytes.value
    held = rate * seconds
    read = rate + held * others * model.steps_per_second.value
    return NodeEstimate(
        "scan",
        stream,
        rate,
        rate * size,
        model.costs["read"].per_tuple * read,
        held * size if others else 0.0,
        {"rate": known.rate.provenance},
        known.rate.confidence,
    )


def filter_node(model: CostModel, below: NodeEstimate, share: Estimate, label: str) -> NodeEstimate:
    """The rows that meet a condition. Whether there is one makes no difference to the price: else
    an operator that is widened until it has none would become cheaper."""
    return NodeEstimate(
        "filter",
        label,
        below.rate * share.value,
        below.bytes * share.value,
        model.costs["select"].per_tuple * below.rate,
        0.0,
        # That all tuples pass where there is no condition is certain, and not worth saying.
        {**below.known, **({} if share.confidence == 1 else {"selectivity": share.provenance})},
        min(below.confidence, share.confidence),
    )


def join_node(
    model: CostModel, sources: Sequence[FilteredSource], share: Estimate, label: str
) -> NodeEstimate:
    """Each new row meets what the windows of the others hold."""
    nodes = [source.node for source in sources]
    inputs = [JoinInput(source.node.rate, source.held) for source in sources]
    rate = join_rate(inputs, share.value)
    held = sum(source.held for source in sources)
    built = held * (len(sources) - 1) * model.steps_per_second.value
    cost = model.costs["join"]
    return NodeEstimate(
        "join",
        label,
        rate,
        rate * sum(node.row_bytes for node in nodes),
        cost.per_tuple * sum(node.rate for node in nodes)
        + model.costs["read"].per_tuple * built
        + cost.per_result * rate,
        sum(source.held * source.node.row_bytes for source in sources),
        _known_together(nodes, share),
        min(share.confidence, *(node.confidence for node in nodes)),
    )


def group_node(
    model: CostModel,
    below: NodeEstimate,
    groups: Estimate,
    slide: float | None,
    seconds: float,
    label: str,
) -> NodeEstimate:
    """Groups of a window, emitted at each slide or whenever they change."""
    held = min(groups.value, below.rate * seconds)
    rate = grouped_rate(below.rate, held, slide)
    panes = below.rate * seconds if not slide else held * max(1.0, seconds / slide)
    cost = model.costs["aggregate"]
    return NodeEstimate(
        "group",
        label,
        rate,
        rate * below.row_bytes,
        cost.per_tuple * below.rate
        + cost.per_result * rate
        + model.costs["read"].per_tuple * panes * model.steps_per_second.value,
        panes * below.row_bytes,
        {**below.known, "groups": groups.provenance},
        min(below.confidence, groups.confidence),
    )


def emit_node(model: CostModel, below: NodeEstimate) -> NodeEstimate:
    """Computing the items of rows, and writing them to the log of the unit."""
    cost = model.costs["project"].per_tuple + model.costs["write"].per_tuple
    return replace(below, kind="emit", label="rows", cpu=cost * below.rate, memory=0.0)


def join_name(conditions: Sequence[str]) -> str:
    """What the equalities of a join are called, in whatever order they are."""
    return " AND ".join(sorted(conditions))


def join_share(
    model: CostModel, name: str, columns: Sequence[Sequence[ColumnStatistics | None]]
) -> Estimate:
    """The share of pairs that meet equalities, of which each has these columns: as it was measured, or
    as follows from the numbers of values."""
    if name in model.joins:
        return model.joins[name]
    widest = [
        max((c.distinct for c in one if c is not None), default=DEFAULT_DISTINCT) for one in columns
    ]
    is_declared = bool(columns) and all(any(c is not None for c in one) for one in columns)
    # Of the values of the larger column, the smaller one has a part: `rates.selectivity`.
    share = prod(1 / max(1.0, distinct) for distinct in widest)
    return Estimate(share, Provenance.DECLARED if is_declared else Provenance.DEFAULT)


def group_count(columns: Sequence[ColumnStatistics | None]) -> Estimate:
    """How many groups keys make, of which each has the values of a column."""
    count = prod((DEFAULT_DISTINCT if c is None else c.distinct) for c in columns)
    is_declared = all(c is not None for c in columns)
    return Estimate(min(count, inf), Provenance.DECLARED if is_declared else Provenance.DEFAULT)


def _known_together(nodes: Sequence[NodeEstimate], share: Estimate) -> Known:
    """How what several nodes have in common is known: as the worst of them."""
    known: dict[str, Provenance] = {}
    for node in nodes:
        for name, provenance in node.known.items():
            known[name] = min(known.get(name, provenance), provenance)
    return {**known, "join": share.provenance}
