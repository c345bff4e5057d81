"""`headwater plan`: which queries sites could take, where they would run, and what would be full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from headwater.cli.files import Source, fail
from headwater.cli.formats import Format, counted, json_line
from headwater.cli.queries import queries_of, select
from headwater.cli.tables import console, table
from headwater.cost.operators import CostTable, read_costs
from headwater.cql import parse
from headwater.errors import nearest
from headwater.network.sites import read_sites
from headwater.plan.placement.bound import certified
from headwater.plan.placement.check import prove
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.loads import Load, link_loads, site_loads
from headwater.plan.placement.model import CONSOLIDATE, Plan, Problem, Weights
from headwater.plan.placement.picture import picture
from headwater.plan.placement.planner import Budget, Decision
from headwater.plan.placement.planners import PLANNERS
from headwater.plan.placement.written import placement_problem
from headwater.plan.throughput.profile import read_profile


@dataclass(frozen=True)
class Given:
    """The files and settings of a question: sites, what is known of streams, and how to plan."""

    sites: Path
    profile: Path | None
    costs: Path | None
    planner: str
    seconds: float
    seed: int
    consolidate: bool
    svg: Path | None


@dataclass(frozen=True)
class Planned:
    """The answer: a decision for each query, the plan, and what no plan could exceed."""

    problem: Problem
    plan: Plan
    decisions: tuple[Decision, ...]
    bound: int


def plan_file(source: Source, given: Given, names: Sequence[str], format: Format) -> None:
    """Print what becomes of the queries of those names, or of all, submitted in their order."""
    if given.planner not in PLANNERS:
        fail(f"there is no planner {given.planner}; {nearest(given.planner, PLANNERS)}")
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    problem = placement_problem(
        [(named.name, named.query) for named in select(queries, names)],
        read_sites(given.sites, whole=True),
        read_profile(given.profile) if given.profile else None,
        read_costs(given.costs) if given.costs else CostTable(),
        CONSOLIDATE if given.consolidate else Weights(),
    )
    planned = plan(problem, given)
    if given.svg is not None:
        try:
            given.svg.write_text(picture(problem, planned.plan), encoding="utf-8")
        except OSError as error:
            fail(f"{given.svg}: cannot be written: {error.strerror or error}")
    if format is Format.json:
        json_line(as_json(planned))
    else:
        print_planned(planned, given.svg)


def plan(problem: Problem, given: Given) -> Planned:
    """Submit all queries, one by one."""
    ledger, planner = Ledger(problem), PLANNERS[given.planner]()
    decisions: list[Decision] = []
    for query in range(len(problem.queries)):
        decisions += planner(ledger, [query], Budget(given.seconds, given.seed))
    found = ledger.plan()
    prove(problem, found)
    return Planned(
        problem, found, tuple(decisions), certified(problem, range(len(problem.queries)))
    )


def as_json(planned: Planned) -> dict[str, object]:
    """Everything, for programs; what is not limited is null."""
    problem, found = planned.problem, planned.plan
    return {
        "queries": [
            {
                "query": problem.queries[decision.query].name,
                "admitted": decision.admitted,
                "by": decision.by,
                "site": _site(planned, decision),
                "proven": decision.proven,
                "short": [
                    {"constraint": b.constraint, "where": b.where, "by": b.by}
                    for b in decision.short
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
            for run in sorted(found.runs)
        ],
        "sites": [
            {
                "site": site.site,
                "cpu": _numbers(site.cpu),
                "memory": _numbers(site.memory),
                "bandwidth_in": _numbers(site.bandwidth_in),
                "bandwidth_out": _numbers(site.bandwidth_out),
            }
            for site in site_loads(problem, found)
        ],
        "links": [
            {
                "from": link.origin,
                "to": link.target,
                "bandwidth": _numbers(link.bandwidth),
                "streams": list(link.streams),
            }
            for link in link_loads(problem, found)
        ],
        "admitted": sum(decision.admitted for decision in planned.decisions),
        "bound": planned.bound,
    }


def print_planned(planned: Planned, svg: Path | None) -> None:
    """Queries, sites and links as tables, then the bound."""
    problem, out = planned.problem, console()
    rows = [
        (
            problem.queries[decision.query].name,
            f"admitted at {_site(planned, decision)}" if decision.admitted else "refused",
            "shares all" if decision.by == "duplicate" else _reason(decision),
        )
        for decision in planned.decisions
    ]
    out.print(table("", [("query", False), ("answer", False), ("why", False)], rows))
    typer.echo()
    columns = [(name, name != "site") for name in ("site", "cpu", "memory", "in", "out")]
    sites = [
        (s.site, *map(_text, (s.cpu, s.memory, s.bandwidth_in, s.bandwidth_out)))
        for s in site_loads(problem, planned.plan)
    ]
    out.print(table("", columns, sites))
    links = [
        (f"{link.origin} -> {link.target}", _text(link.bandwidth), ", ".join(link.streams))
        for link in link_loads(problem, planned.plan)
    ]
    if links:
        typer.echo()
        out.print(table("", [("link", False), ("bytes/s", True), ("carries", False)], links))
    typer.echo()
    admitted = sum(decision.admitted for decision in planned.decisions)
    typer.echo(f"admitted  {admitted} of {counted(len(planned.decisions), 'query')}")
    typer.echo(f"bound     {planned.bound}: no plan admits more")
    if svg is not None:
        typer.echo(f"drawn     {svg}")


def _site(planned: Planned, decision: Decision) -> str | None:
    stream = planned.problem.queries[decision.query].stream
    for serve in planned.plan.serves:
        if decision.admitted and serve.stream == stream:
            return planned.problem.sites[serve.site].name
    return None


def _reason(decision: Decision) -> str:
    if decision.admitted:
        return ""
    proof = "proven" if decision.proven else "not proven: more time may help"
    return f"{'; '.join(map(str, decision.short)) or 'no place was found'} ({proof})"


def _text(load: Load) -> str:
    if math.isinf(load.capacity):
        return f"{load.used:,.3g}"
    return f"{load.used:,.3g} of {load.capacity:,.3g} ({load.share:.0%})"


def _numbers(load: Load) -> dict[str, float | None]:
    limit = None if math.isinf(load.capacity) else load.capacity
    return {"used": load.used, "capacity": limit}
