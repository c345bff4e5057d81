"""`headwater plan`: which queries sites can run, where, and the load of sites and links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from headwater.cli.cql_files import CqlSource, fail
from headwater.cli.output.formats import Format, pluralize, print_json
from headwater.cli.output.tables import console, table
from headwater.cli.queries import queries_of, select_queries
from headwater.cost.operators import CostTable, read_costs
from headwater.cql import parse
from headwater.errors import PlanError
from headwater.network.sites import read_network
from headwater.plan.placement.bound import certified_bound
from headwater.plan.placement.check import ensure_valid
from headwater.plan.placement.from_cql import build_placement_problem
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.plan.placement.model import (
    CONSOLIDATION_WEIGHTS,
    ObjectiveWeights,
    PlacementPlan,
    PlacementProblem,
)
from headwater.plan.placement.picture import render_svg
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.planners.registry import find_planner
from headwater.plan.throughput.profile import read_profile


@dataclass(frozen=True)
class PlanOptions:
    """The input files of a plan, and how to plan."""

    sites: Path
    profile: Path | None
    costs: Path | None
    planner: str
    seconds: float
    seed: int
    consolidate: bool
    svg: Path | None


@dataclass(frozen=True)
class PlanResult:
    """A decision for each query, the plan, and the number of queries that no plan can exceed."""

    problem: PlacementProblem
    plan: PlacementPlan
    decisions: tuple[Decision, ...]
    bound: int


def plan_file(
    source: CqlSource, options: PlanOptions, names: Sequence[str], format: Format
) -> None:
    """Plan the named queries, or all, in the order of the file, and print the plan."""
    try:
        find_planner(options.planner)
    except PlanError as error:
        fail(str(error))
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    problem = build_placement_problem(
        [(named.name, named.query) for named in select_queries(queries, names)],
        read_network(options.sites, must_be_connected=True),
        read_profile(options.profile) if options.profile else None,
        read_costs(options.costs) if options.costs else CostTable(),
        CONSOLIDATION_WEIGHTS if options.consolidate else ObjectiveWeights(),
    )
    planned = plan_queries(problem, options)
    if options.svg is not None:
        try:
            options.svg.write_text(render_svg(problem, planned.plan), encoding="utf-8")
        except OSError as error:
            fail(f"{options.svg}: cannot be written: {error.strerror or error}")
    if format is Format.json:
        print_json(as_json(planned))
    else:
        print_plan(planned, options.svg)


def plan_queries(problem: PlacementProblem, options: PlanOptions) -> PlanResult:
    """Plan all queries, one after the other as if they were submitted."""
    ledger, planner = Ledger(problem), find_planner(options.planner).make()
    decisions: list[Decision] = []
    for query in range(len(problem.queries)):
        decisions += planner(ledger, [query], Budget(options.seconds, options.seed))
    final_plan = ledger.plan()
    # Checked independently of the planner, so that a planner with a bug cannot print a wrong plan.
    ensure_valid(problem, final_plan)
    return PlanResult(
        problem, final_plan, tuple(decisions), certified_bound(problem, range(len(problem.queries)))
    )


def as_json(planned: PlanResult) -> dict[str, object]:
    """The whole result; an unlimited capacity is null."""
    problem, final_plan = planned.problem, planned.plan
    return {
        "queries": [
            {
                "query": problem.queries[decision.query].name,
                "admitted": decision.admitted,
                "by": decision.step,
                "site": _site(planned, decision),
                "proven": decision.proven,
                "short": [
                    {"constraint": b.constraint, "where": b.where, "by": b.excess}
                    for b in decision.shortages
                ],
            }
            for decision in planned.decisions
        ],
        "operators": [
            {
                "site": problem.sites[run.site].name,
                "makes": problem.streams[problem.operators[run.operator].output].name,
                "of": [problem.streams[s].name for s in problem.operators[run.operator].inputs],
                "cpu": problem.operators[run.operator].cpu,
            }
            for run in sorted(final_plan.runs)
        ],
        "sites": [
            {
                "site": site.site,
                "cpu": _load_numbers(site.cpu),
                "memory": _load_numbers(site.memory),
                "bandwidth_in": _load_numbers(site.bandwidth_in),
                "bandwidth_out": _load_numbers(site.bandwidth_out),
            }
            for site in site_loads(problem, final_plan)
        ],
        "links": [
            {
                "from": link.origin,
                "to": link.target,
                "bandwidth": _load_numbers(link.bandwidth),
                "streams": list(link.streams),
            }
            for link in link_loads(problem, final_plan)
        ],
        "admitted": sum(decision.admitted for decision in planned.decisions),
        "bound": planned.bound,
    }


def print_plan(planned: PlanResult, svg: Path | None) -> None:
    """Print tables of queries, sites and links, then the bound."""
    problem, out = planned.problem, console()
    rows = [
        (
            problem.queries[decision.query].name,
            f"admitted at {_site(planned, decision)}" if decision.admitted else "refused",
            "same as another query" if decision.step == "duplicate" else _reason(decision),
        )
        for decision in planned.decisions
    ]
    out.print(table("", [("query", False), ("decision", False), ("reason", False)], rows))
    typer.echo()
    headings = ("site", "cpu", "memory", "bytes/s in", "bytes/s out")
    columns = [(heading, heading != "site") for heading in headings]
    sites = [
        (s.site, *map(_format_load, (s.cpu, s.memory, s.bandwidth_in, s.bandwidth_out)))
        for s in site_loads(problem, planned.plan)
    ]
    out.print(table("", columns, sites))
    links = [
        (f"{link.origin} -> {link.target}", _format_load(link.bandwidth), ", ".join(link.streams))
        for link in link_loads(problem, planned.plan)
    ]
    if links:
        typer.echo()
        out.print(table("", [("link", False), ("bytes/s", True), ("streams", False)], links))
    typer.echo()
    admitted = sum(decision.admitted for decision in planned.decisions)
    typer.echo(f"admitted  {admitted} of {pluralize(len(planned.decisions), 'query')}")
    typer.echo(f"bound     {planned.bound}: no plan admits more")
    if svg is not None:
        typer.echo(f"wrote     {svg}")


def _site(planned: PlanResult, decision: Decision) -> str | None:
    stream = planned.problem.queries[decision.query].stream
    for serve in planned.plan.serves:
        if decision.admitted and serve.stream == stream:
            return planned.problem.sites[serve.site].name
    return None


def _reason(decision: Decision) -> str:
    if decision.admitted:
        return ""
    proof = "proven" if decision.proven else "not proven: more --seconds may help"
    return f"{'; '.join(map(str, decision.shortages)) or 'no placement found'} ({proof})"


def _format_load(load: Load) -> str:
    if math.isinf(load.capacity):
        return f"{load.used:,.3g}"
    return f"{load.used:,.3g} of {load.capacity:,.3g} ({load.share:.0%})"


def _load_numbers(load: Load) -> dict[str, float | None]:
    # JSON has no infinity.
    limit = None if math.isinf(load.capacity) else load.capacity
    return {"used": load.used, "capacity": limit}
