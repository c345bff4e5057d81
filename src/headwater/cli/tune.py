"""`headwater tune`: the order and the place of operators that take the highest input rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from headwater.cli.files import Source, fail
from headwater.cli.formats import Format, json_line
from headwater.cli.queries import queries_of, select
from headwater.cli.tables import console, table
from headwater.cost.operators import CostTable, read_costs
from headwater.cql import parse
from headwater.errors import PlanError, nearest
from headwater.network.sites import read_sites
from headwater.plan.throughput.model import Configuration, Problem
from headwater.plan.throughput.polynomial import add, value
from headwater.plan.throughput.profile import problem_of, read_profile
from headwater.plan.throughput.quality import Quality, quality
from headwater.plan.throughput.rates import Flow, flows
from headwater.plan.throughput.search import SEARCHES, Found, reactive_tabu, run
from headwater.plan.throughput.walks import PHYSICAL


@dataclass(frozen=True)
class Wanted:
    """How to search: which search, for how many seconds, with which seed, and how many copies."""

    search: str
    seconds: float
    seed: int
    copies: int


@dataclass(frozen=True)
class Tuned:
    """What was found, beside the plan as written: on the first site, and at the best places."""

    problem: Problem
    found: Found
    quality: Quality
    written: float
    placed: float


def tune_file(
    source: Source,
    sites: Path,
    profile: Path,
    costs: Path | None,
    names: Sequence[str],
    wanted: Wanted,
    format: Format,
) -> None:
    """Print the best configuration found for the queries of those names, or for all together."""
    if wanted.search not in SEARCHES:
        fail(f"there is no search {wanted.search}; {nearest(wanted.search, SEARCHES)}")
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    chosen = [named.query for named in select(queries, names)]
    table_of_costs = read_costs(costs) if costs else CostTable()
    target, network = read_profile(profile), read_sites(sites)
    problem, _ = problem_of(chosen, target, network, table_of_costs, wanted.copies)
    tuned = tune(problem, wanted)
    if format is Format.json:
        json_line(as_json(tuned))
    else:
        print_tuned(tuned)


def tune(problem: Problem, wanted: Wanted) -> Tuned:
    """Search; raises PlanError if no configuration is possible."""
    start = problem.start()
    found = run(SEARCHES[wanted.search], problem, start, wanted.seed, seconds=wanted.seconds)
    best = quality(problem, found.configuration)
    if best.value == 0:
        raise PlanError(
            f"no configuration was found that fits; the last one exceeds the {best.binding}"
        )
    placed = run(partial(reactive_tabu, alpha=PHYSICAL), problem, start, wanted.seed)
    return Tuned(problem, found, best, quality(problem, start).value, placed.quality)


def as_json(tuned: Tuned) -> dict[str, object]:
    """Everything, for programs; a rate that nothing limits is null."""
    limited = tuned.quality.binding is not None
    return {
        "operators": [
            {
                "operator": place,
                "kind": operator.kind.name.lower(),
                "name": operator.name,
                "inputs": list(tuned.found.configuration.inputs[place]),
                "sites": _sites(tuned, place),
            }
            for place, operator in enumerate(tuned.problem.operators)
        ],
        "outputs": list(tuned.found.configuration.outputs),
        "quality": tuned.quality.value if limited else None,
        "rates": tuned.quality.rates(tuned.problem) if limited else None,
        "binds": str(tuned.quality.binding) if limited else None,
        "as_written": tuned.written if limited else None,
        "as_written_placed": tuned.placed if limited else None,
        "seen": tuned.found.seen,
        "proven": tuned.found.proven,
    }


def print_tuned(tuned: Tuned) -> None:
    """The plan with its places, then the rate, what binds, and the gain."""
    best = tuned.quality
    at = best.value if best.binding else 1.0
    given = flows(tuned.problem, tuned.found.configuration, best.point)
    rows = [
        (
            "  " * depth + tuned.problem.operators[place].name,
            tuned.problem.operators[place].kind.name.lower(),
            ", ".join(_sites(tuned, place)),
            f"{_arriving(tuned.found.configuration, given, place, at):,.0f}",
        )
        for depth, place in _tree(tuned.found.configuration)
    ]
    columns = [("operator", False), ("kind", False), ("site", False), ("tuples/s in", True)]
    console().print(table("", columns, rows))
    typer.echo()
    if best.binding is None:
        typer.echo("nothing limits the rate; say in the file of sites what they can do")
        return
    rates = ", ".join(f"{r:,.0f} of {s}" for s, r in best.rates(tuned.problem).items())
    typer.echo(f"takes     {rates} tuples/s: {best.value:,.3g} times the profile")
    typer.echo(f"binds     {best.binding}")
    typer.echo(
        f"gain      {_gain(best.value, tuned.written)} over the plan as written on the first site,"
        f" {_gain(best.value, tuned.placed)} over it at the best places"
    )
    proven = "proven to be the best" if tuned.found.proven else "the best found"
    typer.echo(f"search    {tuned.found.seen:,} configurations, {proven}")


def _gain(now: float, before: float) -> str:
    return f"{now / before:,.3g}x" if before else "everything"


def _sites(tuned: Tuned, place: int) -> list[str]:
    sites = tuned.problem.network.sites
    return [sites[host].name for host in tuned.found.configuration.hosts[place]]


def _arriving(configuration: Configuration, given: Sequence[Flow], place: int, at: float) -> float:
    below = configuration.inputs[place] or (place,)
    return value(add(*(given[i].rate for i in below)), at)


def _tree(configuration: Configuration) -> Iterator[tuple[int, int]]:
    """The operators under each result, each once, with their depth."""
    seen: set[int] = set()

    def visit(place: int, depth: int) -> Iterator[tuple[int, int]]:
        if place not in seen:
            seen.add(place)
            yield depth, place
            for below in configuration.inputs[place]:
                yield from visit(below, depth + 1)

    for place in configuration.outputs:
        yield from visit(place, 0)
