"""What was measured of a query: `explain --analyze`, read from the catalog alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, parse, tree
from headwater.runtime.catalog import Catalog, Json, QueryRow, plan_owner
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.inspect.views import JsonRecord, to_plain
from headwater.runtime.metrics.step_meter import STEP_PARTS


@dataclass(frozen=True)
class StepLatency:
    """The seconds of the last steps, from begin to end: median, 95th percentile, and of how many."""

    median: float | None
    p95: float | None
    of_steps: int


@dataclass(frozen=True)
class MeasuredOperator:
    """An operator of a plan that Spark ran, with its rows; None is what Spark did not measure.

    `selectivity` is rows out per row in, of a join per pair of rows.
    """

    kind: str
    label: str
    rows_in: int | None
    rows_out: int | None
    selectivity: float | None
    seconds: float | None
    stage: int | None
    inputs: tuple[MeasuredOperator, ...]


@dataclass(frozen=True)
class StageTime:
    """The seconds of all tasks of a stage."""

    stage: int
    seconds: float


@dataclass(frozen=True)
class MeasuredJob:
    """A Spark job of a step: its operators, those that give its rows first, and its stages."""

    operators: tuple[MeasuredOperator, ...]
    stages: tuple[StageTime, ...]


@dataclass(frozen=True)
class MeasuredPlan:
    """The jobs of the step that was measured last."""

    step: int
    jobs: tuple[MeasuredJob, ...]


@dataclass(frozen=True)
class Analysis:
    """A query, and what its unit was measured to do; `seconds` are those of a usual step by part.

    `plan` is None until a step that computes something was measured.
    """

    query: str
    state: str
    unit: str
    shared_with: tuple[str, ...]
    tree: tuple[str, ...]
    steps: int
    rows_in: int
    rows_out: int
    latency: StepLatency
    seconds: Mapping[str, float | None]
    plan: MeasuredPlan | None

    def as_json(self) -> JsonRecord:
        record: JsonRecord = to_plain(self)
        return record


def canonical_tree(catalog: Catalog, query: QueryRow) -> list[str]:
    """The lines of the canonical tree of a query."""
    (statement,) = parse(query.definition, Definitions(catalog).namespace)
    assert isinstance(statement, CreateQuery)
    return tree(canonicalize(statement.query).query)


def analyze_query(catalog: Catalog, query: QueryRow) -> Analysis:
    """What the unit of a query was measured to do."""
    statistics = {name: s.value for name, s in catalog.statistics(query.unit_id).items()}
    profile = catalog.profile(query.unit_id)
    recent = [] if profile is None else profile.value["recent"]
    plan = catalog.profile(plan_owner(query.unit_id))
    queries = catalog.subscribers(query.unit_id)
    return Analysis(
        query=query.spelled,
        state=query.state,
        unit=query.unit_id,
        shared_with=tuple(other.spelled for other in queries if other.name != query.name),
        tree=tuple(canonical_tree(catalog, query)),
        steps=int(statistics.get("steps", 0)),
        rows_in=int(statistics.get("rows_in", 0)),
        rows_out=int(statistics.get("rows_out", 0)),
        latency=StepLatency(quantile(recent, 0.5), quantile(recent, 0.95), len(recent)),
        seconds={part: statistics.get(f"{part}_seconds") for part in STEP_PARTS},
        plan=None if plan is None else _read_plan(plan.value),
    )


def _read_plan(stored: Json) -> MeasuredPlan:
    return MeasuredPlan(stored["step"], tuple(map(_read_job, stored["jobs"])))


def _read_job(stored: Json) -> MeasuredJob:
    stages = (StageTime(stage["stage"], stage["seconds"]) for stage in stored["stages"])
    return MeasuredJob(tuple(map(_read_operator, stored["operators"])), tuple(stages))


def _read_operator(stored: Json) -> MeasuredOperator:
    return MeasuredOperator(
        kind=stored["kind"],
        label=stored["label"],
        rows_in=stored["rows_in"],
        rows_out=stored["rows_out"],
        selectivity=stored["selectivity"],
        seconds=stored["seconds"],
        stage=stored["stage"],
        inputs=tuple(map(_read_operator, stored["inputs"])),
    )


def quantile(values: Sequence[float], fraction: float) -> float | None:
    """The least value that at least this fraction of all values does not exceed; None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


# ---- for people


def format_analysis(analysis: Analysis) -> list[str]:
    """The same as text."""
    others = analysis.shared_with
    shared = f", shared with {', '.join(others)}" if others else ""
    text = [f"{analysis.query}: {analysis.state}, in unit {analysis.unit}{shared}"]
    text += [f"  {line}" for line in analysis.tree]
    if not analysis.steps:
        return [*text, "  no step has run yet: headwater run starts the engine"]
    text += [f"  {title:<9} {figure}" for title, figure in _format_figures(analysis)]
    if analysis.plan is None:
        return [*text, "  no step has computed anything yet: no operator was measured"]
    return [*text, "", *_format_plan(analysis.plan)]


def _format_figures(analysis: Analysis) -> Iterator[tuple[str, str]]:
    rows_in, rows_out = _format_rows(analysis.rows_in), _format_rows(analysis.rows_out)
    yield "steps", f"{analysis.steps:,}: {rows_in} in, {rows_out} out"
    latency = analysis.latency
    yield (
        "latency",
        f"median {_format_seconds(latency.median)}, p95 {_format_seconds(latency.p95)} "
        f"of the last {latency.of_steps:,}",
    )
    parts = (f"{part} {_format_seconds(seconds)}" for part, seconds in analysis.seconds.items())
    yield "of which", ", ".join(parts)


HEADINGS = ("rows in", "rows out", "selectivity", "time", "stage", "operator")


def _format_plan(plan: MeasuredPlan) -> list[str]:
    """The operators of the measured step, inputs below what reads them, one tree for each job."""
    cells: list[tuple[str, ...]] = [HEADINGS]
    for job in plan.jobs:
        for operator in job.operators:
            cells += _operator_rows(operator, "", "")
    widths = [max(len(row[n]) for row in cells) for n in range(len(HEADINGS) - 1)]
    text = [f"  measured in step {plan.step:,}"]
    for row in cells:
        # The last column is a tree, which is not padded: strict=False leaves it out.
        numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        text.append(f"  {'  '.join(numbers)}  {row[-1]}".rstrip())
    for number, job in enumerate(plan.jobs, 1):
        stages = ", ".join(f"{s.stage}: {_format_seconds(s.seconds)}" for s in job.stages)
        of = "" if len(plan.jobs) == 1 else f" of job {number}"
        text += [f"  task seconds by stage{of}: {stages}"] if stages else []
    return text


def _operator_rows(operator: MeasuredOperator, first: str, rest: str) -> list[tuple[str, ...]]:
    """An operator and its inputs, `first` and `rest` being the branches drawn before them."""
    row: tuple[str, ...] = (
        _format_count(operator.rows_in),
        _format_count(operator.rows_out),
        "" if operator.selectivity is None else f"{operator.selectivity:.4g}",
        _format_seconds(operator.seconds),
        "" if operator.stage is None else str(operator.stage),
        first + operator.label,
    )
    rows = [row]
    for number, below in enumerate(operator.inputs):
        last = number == len(operator.inputs) - 1
        rows += _operator_rows(
            below, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )
    return rows


def _format_rows(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _format_count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _format_seconds(number: float | None) -> str:
    return "" if number is None else f"{number:.3f} s"
