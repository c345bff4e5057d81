"""The load of a unit by the cost model, node by node with how each is known, and as it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from headwater.cost.model import CostModel
from headwater.cost.provenance import Provenance, describe_known
from headwater.reuse.load import OperatorLoad, pair_share
from headwater.reuse.operator import Operator
from headwater.reuse.signature import is_connected
from headwater.runtime.catalog import Catalog, UnitRow
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.metrics.cost_model import measured_load
from headwater.runtime.metrics.sharing_loads import unit_load, unit_model
from headwater.runtime.metrics.step_estimates import estimate_step, predict_step


@dataclass(frozen=True)
class NodeView:
    """A node: its rows and bytes in a second, the CPU seconds of a second, the bytes that it holds;
    `known` says how each thing is known from which that follows."""

    kind: str
    label: str
    rate: float
    bytes: float
    cpu: float
    memory: float
    known: Mapping[str, str]
    confidence: float


@dataclass(frozen=True)
class PairView:
    """Two sources of a join, the share of their pairs that meet, by which orders of joins are compared,
    and how that is known."""

    sources: str
    share: float
    known: str


@dataclass(frozen=True)
class StepView:
    """The next step as the scheduler sees it: seconds however little it reads, seconds a row, rows out
    for each row in; and how that is known."""

    fixed: float
    per_row: float
    selectivity: float
    known: str


@dataclass(frozen=True)
class LoadView:
    """The nodes of a unit, and its load in cores: predicted, of that for steps however little they
    read, and measured while it ran (None if it was not). `pairs` are given for joins of more than two."""

    nodes: tuple[NodeView, ...]
    predicted: float
    steps: float
    costs_known: str
    steps_known: str
    measured: float | None
    pairs: tuple[PairView, ...]
    step: StepView


def describe_load(
    catalog: Catalog, planner: UnitPlanner, unit: UnitRow, operator: Operator
) -> LoadView:
    """What an operator is estimated to cost, and what its unit was measured to."""
    model = unit_model(catalog, planner, unit)
    load = unit_load(catalog, planner, unit, operator, model)
    values = {name: s.value for name, s in catalog.statistics(unit.id).items()}
    found = measured_load(values)
    return LoadView(
        tuple(
            NodeView(
                node.kind,
                node.label,
                node.rate,
                node.bytes,
                node.cpu,
                node.memory,
                {name: str(provenance) for name, provenance in node.known.items()},
                node.confidence,
            )
            for node in load.nodes
        ),
        load.cpu,
        load.steps,
        str(model.costs_known),
        str(model.costs_known if model.steps_known is None else model.steps_known),
        None if found is None else found.value,
        tuple(_pairs(operator, model)),
        _step(load, model, values),
    )


def _pairs(operator: Operator, model: CostModel) -> Iterator[PairView]:
    streams = {scan.alias: scan.stream for scan in operator.scans}
    # With two sources there is one order only.
    if len(operator.sources) < 3:
        return
    known = {alias: stream.lower() for alias, stream in streams.items()}
    for one, other in combinations(streams, 2):
        share = pair_share(operator.where, known, {one}, {other}, model)
        if is_connected(operator.where.constraints, (one, other)):
            label = f"{streams[one]} and {streams[other]}"
            yield PairView(label, share.value, str(share.provenance))


def _step(load: OperatorLoad, model: CostModel, values: Mapping[str, float]) -> StepView:
    measured = estimate_step(values)
    step = measured or predict_step(load, 1, model)
    steps_known = model.costs_known if model.steps_known is None else model.steps_known
    known = steps_known if measured is None else Provenance.MEASURED
    return StepView(step.fixed, step.per_row, step.selectivity, str(known))


def format_load(load: LoadView) -> list[str]:
    """The same as text."""
    text = [
        f"{node.kind} {node.label}: {_rate(node.rate)} ({_known(node.known)})"
        for node in load.nodes
        if node.kind != "emit" and (node.kind != "filter" or "selectivity" in node.known)
    ]
    text += [
        f"{pair.sources}: {pair.share:.2g} of pairs meet ({pair.known})" for pair in load.pairs
    ]
    step = load.step
    text.append(
        f"a step {step.fixed:.3g} s and {1_000 * step.per_row:.2g} ms a row, "
        f"{step.selectivity:.2g} rows out for each ({step.known})"
    )
    found = "" if load.measured is None else f"; measured {load.measured:.4f}"
    return [
        *text,
        f"{load.predicted:.4f} cores predicted (costs {load.costs_known}), "
        f"{load.steps:.4f} of them for steps ({load.steps_known}){found}",
    ]


def _rate(rate: float) -> str:
    number = f"{rate:,.0f}" if rate >= 100 or rate == 0 else f"{rate:.3g}"
    return f"{number} row{'' if number == '1' else 's'}/s"


def _known(known: Mapping[str, str]) -> str:
    return describe_known({name: Provenance[text.upper()] for name, text in known.items()})
