"""The metrics of an executed Spark plan, as a tree of operators.

Only operators that mean something to the author of a query are kept: scans, filters, joins,
aggregates and the like. What Spark puts between them (exchanges, sorts, projections, generated
code) is skipped. Generated code is timed per stage only, so each operator names the stage it ran
in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.runtime.catalog import Json

MAX_LABEL_LENGTH = 120
"""How many characters of an operator's description are kept."""

_IDS = re.compile(r"#\d+L?")
_LOG = re.compile(r"/log/(streams|panes)/([^/]+)/")
_TIME_METRICS = {
    "FileSourceScanExec": "scanTime",
    "BatchScanExec": "scanTime",
    "HashAggregateExec": "aggTime",
    "ObjectHashAggregateExec": "aggTime",
    "SortAggregateExec": "aggTime",
    "BroadcastExchangeExec": "buildTime",
    "ShuffledHashJoinExec": "buildTime",
    "SortExec": "sortTime",
}
"""The metric, in milliseconds, of the nodes that measure their own time."""

_JOINS = {
    "BroadcastHashJoinExec": "broadcast",
    "BroadcastNestedLoopJoinExec": "nested loop",
    "CartesianProductExec": "product",
    "ShuffledHashJoinExec": "hash",
    "SortMergeJoinExec": "merge",
}
_KINDS = {
    "FileSourceScanExec": "scan",
    "BatchScanExec": "scan",
    "RDDScanExec": "scan",
    "LocalTableScanExec": "scan",
    "FilterExec": "filter",
    "HashAggregateExec": "aggregate",
    "ObjectHashAggregateExec": "aggregate",
    "SortAggregateExec": "aggregate",
    "GenerateExec": "explode",
    "UnionExec": "union",
    "WindowExec": "window",
    **dict.fromkeys(_JOINS, "join"),
}


@dataclass(frozen=True)
class _PlanOperator:
    kind: str
    label: str
    rows_out: int | None
    seconds: float | None
    stage: int | None
    inputs: tuple[_PlanOperator, ...]


def read_plan_metrics(plan: Any) -> dict[str, Json]:
    """The operators of an executed plan and the seconds of its stages, as JSON."""
    reader = _PlanReader()
    operators, _ = reader.operators(plan, None)
    return {
        "operators": [_as_json(operator) for operator in operators],
        "stages": [{"stage": n, "seconds": s} for n, s in sorted(reader.stages.items())],
    }


def _as_json(operator: _PlanOperator) -> Json:
    rows_in = [below.rows_out for below in operator.inputs if below.rows_out is not None]
    return {
        "kind": operator.kind,
        "label": operator.label,
        "rows_in": sum(rows_in) if operator.inputs else None,
        "rows_out": operator.rows_out,
        "selectivity": _selectivity(operator, rows_in),
        "seconds": operator.seconds,
        "stage": operator.stage,
        "inputs": [_as_json(below) for below in operator.inputs],
    }


def _selectivity(operator: _PlanOperator, rows_in: Sequence[int]) -> float | None:
    """Rows out per row in; for a join, per pair of rows."""
    if operator.rows_out is None or not rows_in or operator.kind in ("union", "explode"):
        return None
    possible = 1
    for rows in rows_in:
        possible *= rows
    return operator.rows_out / possible if possible else None


@dataclass
class _PlanReader:
    """Walks a plan through Py4J, where every call costs a fraction of a millisecond."""

    stages: dict[int, float] = field(default_factory=dict)

    def operators(self, node: Any, stage: int | None) -> tuple[list[_PlanOperator], float]:
        """The topmost operators at or below a node, and the seconds of skipped nodes.

        Those seconds are counted for the operator above.
        """
        name = node.getClass().getSimpleName()
        if name == "WholeStageCodegenExec":
            stage = int(node.codegenStageId())
            self.stages[stage] = (_metric(node, "pipelineTime") or 0) / 1000
            return self.operators(node.child(), stage)
        if name == "InputAdapter":
            return self.operators(node.child(), None)
        if name == "ReusedExchangeExec":
            return self.operators(node.child(), stage)
        own = (_metric(node, _TIME_METRICS[name]) or 0) / 1000 if name in _TIME_METRICS else 0.0
        below: list[_PlanOperator] = []
        for child in _children(node):
            operators, spent = self.operators(child, stage)
            below += operators
            own += spent
        kind = _KINDS.get(name)
        # Spark aggregates in two phases; the partial one is counted as part of the final one.
        if kind is None or (kind == "aggregate" and _is_partial(node)):
            return below, own
        label = _label(node, name, kind)
        rows = _metric(node, "numOutputRows")
        if kind == "union":
            # Spark does not count them: a union emits what its inputs emit.
            rows = sum(operator.rows_out or 0 for operator in below)
        return [_PlanOperator(kind, label, rows, own or None, stage, tuple(below))], 0.0


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(n) for n in range(children.size())]


def _metric(node: Any, key: str) -> int | None:
    metric = node.metrics().get(key)
    return int(metric.get().value()) if metric.isDefined() else None


def _text(node: Any) -> str:
    return _IDS.sub("", str(node.simpleString(25)))


def _is_partial(node: Any) -> bool:
    return "partial_" in _text(node)


def _label(node: Any, name: str, kind: str) -> str:
    text = _text(node)
    match kind:
        case "scan":
            return _scan_label(node, name, text)
        case "filter":
            return f"Filter {text.removeprefix('Filter ')}"[:MAX_LABEL_LENGTH]
        case "join":
            words = text.partition(" ")[2].removesuffix(", false").removesuffix(", false")
            return f"Join ({_JOINS[name]}) {words}"[:MAX_LABEL_LENGTH]
        case "aggregate":
            return f"Aggregate{text[text.find('(') :]}"[:MAX_LABEL_LENGTH]
        case _:
            return kind.capitalize()


def _scan_label(node: Any, name: str, text: str) -> str:
    if name != "FileSourceScanExec":
        return "Scan instants" if "[t" in text else "Scan nothing"
    paths = node.relation().location().rootPaths()
    first = str(paths.apply(0))
    match = _LOG.search(first)
    if match is None:
        return f"Scan {first.rpartition('/')[2]}"
    name = match[2] if match[1] == "streams" else "panes"
    count = paths.size()
    return f"Scan {name}, {count} segment{'s' if count > 1 else ''}"
