"""`headwater explain` of queries of a state: the unit they run in and why, or their measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import typer

from headwater.cli.cql_files import fail, is_query_name, read_source, report_errors
from headwater.cli.output.formats import Format, print_json
from headwater.cli.output.listing import format_count, format_factor, format_seconds
from headwater.cli.output.listing import format_names as names_of
from headwater.cli.output.tables import console, table
from headwater.cli.queries import queries_of, select_queries
from headwater.cli.state import open_catalog, run_command_line, state_exists
from headwater.cql import parse
from headwater.errors import suggest
from headwater.runtime.catalog import Catalog, QueryRow
from headwater.runtime.inspect.explain import describe_placement
from headwater.runtime.inspect.explain import format_placement as placement_lines
from headwater.runtime.inspect.explain_analyze import analyze_query, format_analysis
from headwater.runtime.inspect.schedule import last_choice
from headwater.runtime.inspect.views import View, format_clock_time

QueryView = TypeVar("QueryView", bound=View)


def explain_analysis(
    what: Path, names: Sequence[str], state: Path, url: str | None, format: Format
) -> None:
    """Print the measurements of a query by name, or of the queries of a file."""
    if not state_exists(state, url):
        fail(
            f"--analyze shows measurements of queries that have run, and there is no state in "
            f"{state}: run {run_command_line(state, url, 'FILE.cql')}, then headwater explain NAME --analyze"
        )
    _print_explanations(
        _query_names(what, names), state, url, format, analyze_query, format_analysis
    )


def explain_placement(
    name: str, names: Sequence[str], state: Path, url: str | None, format: Format
) -> None:
    """Print which unit queries run in, the queries that share it, and why."""
    _print_explanations([name, *names], state, url, format, describe_placement, placement_lines)


def explain_schedule(state: Path, url: str | None, format: Format) -> None:
    """Print which unit was scheduled last, by which policy, and how the others ranked."""
    with open_catalog(state, url) as catalog:
        choice = last_choice(catalog)
    if choice is None:
        fail("no unit has been scheduled yet: nothing has run on this state")
    if format is Format.json:
        print_json(choice.as_json())
        return
    at = format_clock_time(choice.at)
    typer.echo(f"{at}, by {choice.policy} (highest {choice.formula} first):")
    typer.echo(f"  {choice.why}\n")
    heading = [("unit", False), ("queries", False), ("rank", True), ("backlog", True)]
    heading += [("wait", True), ("slowdown", True), ("", False)]
    rows = [
        [
            unit.name,
            names_of(unit.queries),
            f"{unit.rank:.4g}",
            format_count(unit.pending),
            format_seconds(unit.wait),
            format_factor(unit.slowdown),
            "overdue" if unit.overdue else "",
        ]
        for unit in choice.ranking
    ]
    console().print(table("", heading, rows))


def _print_explanations(
    names: Sequence[str],
    state: Path,
    url: str | None,
    format: Format,
    describe: Callable[[Catalog, QueryRow], QueryView],
    as_lines: Callable[[QueryView], list[str]],
) -> None:
    # All names are checked first, so that no output is printed before one is refused.
    with open_catalog(state, url) as catalog:
        rows_by_name = {row.name: row for row in catalog.queries()}
        for name in names:
            if name.lower() not in rows_by_name:
                spelled = [row.spelled for row in rows_by_name.values()]
                fail(f"there is no query {name} in {state}; {suggest(name, spelled)}")
        for position, name in enumerate(names):
            description = describe(catalog, rows_by_name[name.lower()])
            if format is Format.json:
                print_json(description.as_json())
            else:
                typer.echo("\n" * (position > 0) + "\n".join(as_lines(description)))


def _query_names(what: Path, names: Sequence[str]) -> list[str]:
    """The named query, or the queries of a file."""
    if is_query_name(what):
        return [str(what), *names]
    source = read_source(what)
    with report_errors(source):
        return [named.name for named in select_queries(queries_of(parse(source.text)), names)]
