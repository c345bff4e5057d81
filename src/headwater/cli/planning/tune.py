"""`headwater tune`: find the operator order and placement with the highest throughput."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from headwater.cli.cql_files import CqlSource, fail
from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.tables import console, table
from headwater.cli.queries import queries_of, select_queries
from headwater.cost.operators import CostTable, read_costs
from headwater.cql import parse
from headwater.errors import PlanError, suggest
from headwater.network.sites import read_network
from headwater.plan.throughput.local_search import PHYSICAL
from headwater.plan.throughput.model import Configuration, ThroughputProblem
from headwater.plan.throughput.polynomial import add, value
from headwater.plan.throughput.profile import build_problem, read_profile
from headwater.plan.throughput.quality import Quality, quality
from headwater.plan.throughput.rates import OperatorFlow, operator_flows
from headwater.plan.throughput.search import SEARCHES, SearchResult, reactive_tabu, run_search


@dataclass(frozen=True)
class TuneOptions:
    """How to search: algorithm, time limit, random seed, and maximum sites per operator."""

    search: str
    seconds: float
    seed: int
    copies: int


@dataclass(frozen=True)
class TuneResult:
    """The best configuration, and the quality of the plan as written: all of it on the first site (`written`),
    and with the best placement (`placed`)."""

    problem: ThroughputProblem
    found: SearchResult
    quality: Quality
    written: float
    placed: float


def tune_file(
    source: CqlSource,
    sites: Path,
    profile: Path,
    costs: Path | None,
    names: Sequence[str],
    options: TuneOptions,
    format: Format,
) -> None:
    """Print the best configuration for the named queries, or for all, tuned together."""
    if options.search not in SEARCHES:
        fail(f"there is no search {options.search}; {suggest(options.search, SEARCHES)}")
    queries = queries_of(parse(source.text))
    if not queries:
        fail(f"{source.name} has no query")
    chosen = [named.query for named in select_queries(queries, names)]
    table_of_costs = read_costs(costs) if costs else CostTable()
    target, network = read_profile(profile), read_network(sites)
    problem, _ = build_problem(chosen, target, network, table_of_costs, options.copies)
    tuned = tune_problem(problem, options)
    if format is Format.json:
        print_json(as_json(tuned))
    else:
        print_tuning(tuned)


def tune_problem(problem: ThroughputProblem, options: TuneOptions) -> TuneResult:
    """Search; raises PlanError if no configuration is possible."""
    start = problem.initial_configuration()
    best_found = run_search(
        SEARCHES[options.search], problem, start, options.seed, seconds=options.seconds
    )
    best = quality(problem, best_found.configuration)
    if best.value == 0:
        raise PlanError(f"no configuration fits; the last one exceeds the {best.binding}")
    # The baseline may move operators but not reorder them.
    placed = run_search(partial(reactive_tabu, alpha=PHYSICAL), problem, start, options.seed)
    return TuneResult(problem, best_found, best, quality(problem, start).value, placed.quality)


def as_json(tuned: TuneResult) -> dict[str, object]:
    """The whole result; an unlimited rate is null."""
    limited = tuned.quality.binding is not None
    return {
        "operators": [
            {
                "operator": position,
                "kind": operator.kind.name.lower(),
                "name": operator.name,
                "inputs": list(tuned.found.configuration.inputs[position]),
                "sites": _sites(tuned, position),
            }
            for position, operator in enumerate(tuned.problem.operators)
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


def print_tuning(tuned: TuneResult) -> None:
    """Print the plan with its sites, then the rate, the bottleneck and the gain."""
    best = tuned.quality
    at = best.value if best.binding else 1.0  # an unlimited rate is shown at the profile's rates
    flow_list = operator_flows(tuned.problem, tuned.found.configuration, best.point)
    rows = [
        (
            "  " * depth + tuned.problem.operators[position].name,
            tuned.problem.operators[position].kind.name.lower(),
            ", ".join(_sites(tuned, position)),
            f"{_arrival_rate(tuned.found.configuration, flow_list, position, at):,.0f}",
        )
        for depth, position in _tree(tuned.found.configuration)
    ]
    columns = [("operator", False), ("kind", False), ("site", False), ("tuples/s in", True)]
    console().print(table("", columns, rows))
    typer.echo()
    if best.binding is None:
        typer.echo("nothing limits the rate: give the capacities of sites in the sites file")
        return
    rates = ", ".join(f"{r:,.0f} of {s}" for s, r in best.rates(tuned.problem).items())
    typer.echo(f"rate        {rates} tuples/s: {best.value:,.3g} times the profile")
    typer.echo(f"bottleneck  {best.binding}")
    typer.echo(
        f"gain        {_format_gain(best.value, tuned.written)} over the plan as written on the first site,"
        f" {_format_gain(best.value, tuned.placed)} over it with the best placement"
    )
    proven = "proven optimal" if tuned.found.proven else "best found"
    typer.echo(f"search      {tuned.found.seen:,} configurations, {proven}")


def _format_gain(now: float, before: float) -> str:
    return f"{now / before:,.3g}x" if before else "infinite"


def _sites(tuned: TuneResult, position: int) -> list[str]:
    sites = tuned.problem.network.sites
    return [sites[host].name for host in tuned.found.configuration.hosts[position]]


def _arrival_rate(
    configuration: Configuration, flow_list: Sequence[OperatorFlow], position: int, at: float
) -> float:
    below = configuration.inputs[position] or (position,)
    return value(add(*(flow_list[i].rate for i in below)), at)


def _tree(configuration: Configuration) -> Iterator[tuple[int, int]]:
    """The depth and position of each operator below the outputs, each operator once."""
    seen: set[int] = set()

    def visit(position: int, depth: int) -> Iterator[tuple[int, int]]:
        # What several queries share is below each of them, and would be listed again with all it
        # reads.
        if position not in seen:
            seen.add(position)
            yield depth, position
            for below in configuration.inputs[position]:
                yield from visit(below, depth + 1)

    for output in configuration.outputs:
        yield from visit(output, 0)
