"""What was measured of a query: `explain --analyze`, read from the catalog alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from headwater.algebra.canonical import canonicalize
from headwater.cql import CreateQuery, parse, tree
from headwater.runtime.catalog import Catalog, Json, QueryRow, plan_owner
from headwater.runtime.definitions import Definitions
from headwater.runtime.measure import PARTS

Analysis = dict[str, Any]


def explained(catalog: Catalog, query: QueryRow) -> list[str]:
    """The lines of the canonical tree of a query."""
    (statement,) = parse(query.definition, Definitions(catalog).names)
    assert isinstance(statement, CreateQuery)
    return tree(canonicalize(statement.query).query)


def analysis(catalog: Catalog, query: QueryRow) -> Analysis:
    """A query with its plan, and what its unit was measured to do; `plan` is None if no step of it
    was measured yet."""
    statistics = {name: s.value for name, s in catalog.statistics(query.unit_id).items()}
    profile = catalog.profile(query.unit_id)
    recent = [] if profile is None else profile.value["recent"]
    plan = catalog.profile(plan_owner(query.unit_id))
    members = catalog.members(query.unit_id)
    return {
        "query": query.spelled,
        "state": query.state,
        "unit": query.unit_id,
        "shared_with": [other.spelled for other in members if other.name != query.name],
        "tree": explained(catalog, query),
        "steps": int(statistics.get("steps", 0)),
        "rows_in": int(statistics.get("rows_in", 0)),
        "rows_out": int(statistics.get("rows_out", 0)),
        "latency": {
            "median": quantile(recent, 0.5),
            "p95": quantile(recent, 0.95),
            "of_steps": len(recent),
        },
        "seconds": {part: statistics.get(f"{part}_seconds") for part in PARTS},
        "plan": None if plan is None else plan.value,
    }


def quantile(values: Sequence[float], part: float) -> float | None:
    """The least value that so large a part of all does not exceed; None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


# ---- for people


def lines(found: Analysis) -> list[str]:
    """The same as text."""
    others = found["shared_with"]
    shared = f", shared with {', '.join(others)}" if others else ""
    text = [f"{found['query']}: {found['state']}, in unit {found['unit']}{shared}"]
    text += [f"  {line}" for line in found["tree"]]
    if not found["steps"]:
        return [*text, "  no step was taken yet: headwater run lets it step"]
    text += [f"  {word:<9} {said}" for word, said in _figures(found)]
    if found["plan"] is None:
        return [*text, "  no step has computed anything yet, so no operator was measured"]
    return [*text, "", *_table(found["plan"])]


def _figures(found: Analysis) -> Iterator[tuple[str, str]]:
    rows_in, rows_out = _in_words(found["rows_in"]), _in_words(found["rows_out"])
    yield "steps", f"{found['steps']:,}: {rows_in} in, {rows_out} out"
    latency = found["latency"]
    yield (
        "latency",
        f"median {_seconds(latency['median'])}, p95 {_seconds(latency['p95'])} "
        f"of the last {latency['of_steps']:,}",
    )
    parts = (f"{part} {_seconds(seconds)}" for part, seconds in found["seconds"].items())
    yield "of which", ", ".join(parts)


HEADINGS = ("rows in", "rows out", "selectivity", "time", "stage", "operator")


def _table(plan: Json) -> list[str]:
    """The operators of the measured step, inputs below what reads them, one tree for each job."""
    cells: list[tuple[str, ...]] = [HEADINGS]
    for job in plan["jobs"]:
        for one in job["operators"]:
            cells += _rows(one, "", "")
    widths = [max(len(row[n]) for row in cells) for n in range(len(HEADINGS) - 1)]
    text = [f"  measured in step {plan['step']:,}"]
    for row in cells:
        numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        text.append(f"  {'  '.join(numbers)}  {row[-1]}".rstrip())
    for number, job in enumerate(plan["jobs"], 1):
        stages = ", ".join(f"{s['stage']}: {_seconds(s['seconds'])}" for s in job["stages"])
        of = "" if len(plan["jobs"]) == 1 else f" of job {number}"
        text += [f"  seconds of all tasks by stage{of}: {stages}"] if stages else []
    return text


def _rows(one: Json, first: str, rest: str) -> list[tuple[str, ...]]:
    row: tuple[str, ...] = (
        _count(one["rows_in"]),
        _count(one["rows_out"]),
        "" if one["selectivity"] is None else f"{one['selectivity']:.4g}",
        _seconds(one["seconds"]),
        "" if one["stage"] is None else str(one["stage"]),
        first + one["label"],
    )
    found = [row]
    for number, below in enumerate(one["inputs"]):
        last = number == len(one["inputs"]) - 1
        found += _rows(below, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return found


def _in_words(rows: int) -> str:
    return f"{rows:,} row{'' if rows == 1 else 's'}"


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _seconds(number: float | None) -> str:
    return "" if number is None else f"{number:.3f} s"
