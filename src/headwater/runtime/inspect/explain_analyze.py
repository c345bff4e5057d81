"""What was measured of a query: `explain --analyze`, read from the catalog alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, parse, tree
from headwater.runtime.catalog import Catalog, Json, QueryRow, plan_owner
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.metrics.step_meter import STEP_PARTS

Analysis = dict[str, Any]


def canonical_tree(catalog: Catalog, query: QueryRow) -> list[str]:
    """The lines of the canonical tree of a query."""
    (statement,) = parse(query.definition, Definitions(catalog).namespace)
    assert isinstance(statement, CreateQuery)
    return tree(canonicalize(statement.query).query)


def analyze_query(catalog: Catalog, query: QueryRow) -> Analysis:
    """A query with its plan, and what its unit was measured to do; `plan` is None if no step of it
    was measured yet."""
    statistics = {name: s.value for name, s in catalog.statistics(query.unit_id).items()}
    profile = catalog.profile(query.unit_id)
    recent = [] if profile is None else profile.value["recent"]
    plan = catalog.profile(plan_owner(query.unit_id))
    queries = catalog.subscribers(query.unit_id)
    return {
        "query": query.spelled,
        "state": query.state,
        "unit": query.unit_id,
        "shared_with": [other.spelled for other in queries if other.name != query.name],
        "tree": canonical_tree(catalog, query),
        "steps": int(statistics.get("steps", 0)),
        "rows_in": int(statistics.get("rows_in", 0)),
        "rows_out": int(statistics.get("rows_out", 0)),
        "latency": {
            "median": quantile(recent, 0.5),
            "p95": quantile(recent, 0.95),
            "of_steps": len(recent),
        },
        "seconds": {part: statistics.get(f"{part}_seconds") for part in STEP_PARTS},
        "plan": None if plan is None else plan.value,
    }


def quantile(values: Sequence[float], fraction: float) -> float | None:
    """The least value that so large a part of all does not exceed; None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


# ---- for people


def format_analysis(analysis: Analysis) -> list[str]:
    """The same as text."""
    others = analysis["shared_with"]
    shared = f", shared with {', '.join(others)}" if others else ""
    text = [f"{analysis['query']}: {analysis['state']}, in unit {analysis['unit']}{shared}"]
    text += [f"  {line}" for line in analysis["tree"]]
    if not analysis["steps"]:
        return [*text, "  no step was taken yet: headwater run lets it step"]
    text += [f"  {word:<9} {figure}" for word, figure in _format_figures(analysis)]
    if analysis["plan"] is None:
        return [*text, "  no step has computed anything yet, so no operator was measured"]
    return [*text, "", *_format_operators(analysis["plan"])]


def _format_figures(analysis: Analysis) -> Iterator[tuple[str, str]]:
    rows_in, rows_out = _format_rows(analysis["rows_in"]), _format_rows(analysis["rows_out"])
    yield "steps", f"{analysis['steps']:,}: {rows_in} in, {rows_out} out"
    latency = analysis["latency"]
    yield (
        "latency",
        f"median {_format_seconds(latency['median'])}, p95 {_format_seconds(latency['p95'])} "
        f"of the last {latency['of_steps']:,}",
    )
    parts = (f"{part} {_format_seconds(seconds)}" for part, seconds in analysis["seconds"].items())
    yield "of which", ", ".join(parts)


HEADINGS = ("rows in", "rows out", "selectivity", "time", "stage", "operator")


def _format_operators(plan: Json) -> list[str]:
    """The operators of the measured step, inputs below what reads them, one tree for each job."""
    cells: list[tuple[str, ...]] = [HEADINGS]
    for job in plan["jobs"]:
        for operator in job["operators"]:
            cells += _operator_rows(operator, "", "")
    widths = [max(len(row[n]) for row in cells) for n in range(len(HEADINGS) - 1)]
    text = [f"  measured in step {plan['step']:,}"]
    for row in cells:
        numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        text.append(f"  {'  '.join(numbers)}  {row[-1]}".rstrip())
    for number, job in enumerate(plan["jobs"], 1):
        stages = ", ".join(f"{s['stage']}: {_format_seconds(s['seconds'])}" for s in job["stages"])
        of = "" if len(plan["jobs"]) == 1 else f" of job {number}"
        text += [f"  seconds of all tasks by stage{of}: {stages}"] if stages else []
    return text


def _operator_rows(operator: Json, first: str, rest: str) -> list[tuple[str, ...]]:
    row: tuple[str, ...] = (
        _format_count(operator["rows_in"]),
        _format_count(operator["rows_out"]),
        "" if operator["selectivity"] is None else f"{operator['selectivity']:.4g}",
        _format_seconds(operator["seconds"]),
        "" if operator["stage"] is None else str(operator["stage"]),
        first + operator["label"],
    )
    rows = [row]
    for number, below in enumerate(operator["inputs"]):
        last = number == len(operator["inputs"]) - 1
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
