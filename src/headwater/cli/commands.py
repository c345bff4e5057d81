"""The commands and their options; what they do is in the modules beside this one.

A command imports what it needs when it runs, so that `--version` and `--help` do not wait for
parsers and data libraries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater import __version__
from headwater.cli import state_commands
from headwater.cli.cql_files import (
    EXIT_WRONG,
    describe_errors,
    fail,
    flatten_errors,
    is_query_name,
    read_source,
    report_errors,
)
from headwater.cli.formats import Format, RowFormat, pluralize, print_json
from headwater.cli.parameters import Commands
from headwater.cli.state import DEFAULT_STATE, CatalogUrl, State, report_failures, state_exists
from headwater.errors import CqlError

app = typer.Typer(
    name="headwater",
    cls=Commands,
    help="Many continuous queries for the price of few.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(state_commands.app)

File = Annotated[Path, typer.Argument(metavar="FILE.cql", help="Statements in CQL; - reads stdin.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--query", "-q", metavar="NAME", help="This query only; may be repeated."),
]
AsFormat = Annotated[Format, typer.Option("--format", "-f", help="For people or for programs.")]


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which this is.")
    ] = False,
) -> None:
    pass


@app.command()
def check(file: File, format: AsFormat = Format.table) -> None:
    """Report all the mistakes in a file, each with its place: what submit would refuse, too."""
    from headwater.cli.queries import queries_of
    from headwater.runtime.submit.checks import check_script

    source = read_source(file)
    try:
        statements = check_script(source.text)
    except CqlError as error:
        if format is Format.json:
            for mistake in flatten_errors(error):
                print_json(
                    {
                        "file": source.name,
                        "line": mistake.line,
                        "column": mistake.column,
                        "length": mistake.length,
                        "message": mistake.message,
                        "hint": mistake.hint,
                    }
                )
        else:
            messages = list(describe_errors(error, source.name))
            typer.echo("\n\n".join(messages))
            typer.echo(f"\n{pluralize(len(messages), 'mistake')}")
        raise typer.Exit(EXIT_WRONG) from None
    if not statements:
        fail(f"{source.name} has no statement")
    queries = len(queries_of(statements))
    if format is Format.table:
        typer.echo(f"{pluralize(len(statements), 'statement')}, {pluralize(queries, 'query')}: ok")


@app.command()
def format(
    file: File,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if it would.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Rewrite the file itself.")] = False,
) -> None:
    """Print a file in the one format; comments stay, those inside a statement move before it."""
    from headwater.cli.formatting import format_statements
    from headwater.cql import parse

    if check and write:
        fail("--check and --write exclude each other")
    source = read_source(file)
    with report_errors(source):
        statements = parse(source.text)
        if not statements:
            fail(f"{source.name} has no statement")
        result = format_statements(source.text, statements)
    changed = result != source.text
    if write and source.is_stdin:
        fail("--write needs a file, not standard input")
    if write and changed:
        source.replace(result)
    if check or write:
        state = "as it should be" if not changed else "rewritten" if write else "would be rewritten"
        typer.echo(f"{source.name}: {state}", err=True)
    else:
        typer.echo(result, nl=False)
    if check and changed:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def explain(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.cql|NAME",
            help="Statements in CQL, - reads stdin; or the name of a query of a state.",
            show_default=False,
        ),
    ] = None,
    query: Names = None,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each query.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="What was measured while the queries of a state ran.")
    ] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Why the unit that stepped last was chosen.")
    ] = False,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    format: AsFormat = Format.table,
) -> None:
    """Show what each query of a file means: its tree, its canonical form, which are the same; and of a
    query of a state where it runs, with whom and why."""
    if schedule:
        with report_failures():
            from headwater.cli.analyze import explain_schedule

        explain_schedule(state, catalog_url, format)
        return
    if file is None:
        fail("name a file with queries, or a query of a state; or ask for --schedule")
    if analyze:
        with report_failures():
            from headwater.cli.analyze import explain_analysis

        explain_analysis(file, query or [], state, catalog_url, format)
        return
    if is_query_name(file):
        with report_failures():
            from headwater.cli.analyze import explain_placement

        if state_exists(state, catalog_url):
            explain_placement(str(file), query or [], state, catalog_url, format)
            return
    from headwater.cli.explain import explain_file

    source = read_source(file)
    with report_errors(source):
        explain_file(source, query or [], brief, format)


@app.command(name="eval")
def evaluate(
    file: File,
    input: Annotated[
        Path,
        typer.Option("--input", "-i", metavar="DIR", help="Has STREAM.csv, .jsonl or .parquet."),
    ],
    query: Names = None,
    format: Annotated[
        RowFormat, typer.Option("--format", "-f", help="For people or for programs.")
    ] = RowFormat.table,
) -> None:
    """Compute the rows of each query with the reference evaluator, from files in a directory."""
    from headwater.cli.evaluate import evaluate_file

    source = read_source(file)
    with report_errors(source):
        evaluate_file(source, input, query or [], format)


@app.command()
def tune(
    file: File,
    sites: Annotated[Path, typer.Option("--sites", metavar="FILE.toml", help="Sites and links.")],
    profile: Annotated[
        Path, typer.Option("--profile", metavar="FILE.toml", help="Target rates; statistics.")
    ],
    costs: Annotated[
        Path | None,
        typer.Option("--costs", metavar="FILE.toml", help="Costs of operators.", show_default=""),
    ] = None,
    query: Names = None,
    copies: Annotated[
        int, typer.Option("--copies", min=1, help="On how many sites one operator may run.")
    ] = 1,
    search: Annotated[str, typer.Option("--search", help="Which search.")] = "portfolio",
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="For how long.")] = 5.0,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, another walk.")] = 0,
    format: AsFormat = Format.table,
) -> None:
    """Find the order and the place of operators that take the highest input rates."""
    from headwater.cli.tune import TuneOptions, tune_file

    source = read_source(file)
    with report_errors(source):
        options = TuneOptions(search, seconds, seed, copies)
        tune_file(source, sites, profile, costs, query or [], options, format)


@app.command()
def plan(
    file: File,
    sites: Annotated[Path, typer.Option("--sites", metavar="FILE.toml", help="Sites and links.")],
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE.toml",
            help="Rates and places of streams; statistics.",
            show_default="",
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option("--costs", metavar="FILE.toml", help="Costs of operators.", show_default=""),
    ] = None,
    query: Names = None,
    planner: Annotated[str, typer.Option("--planner", help="Which planner.")] = "headwater",
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="For each query.")] = 5.0,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other chances.")] = 0,
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="On as few sites as possible.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE.svg", help="Draw the plan.", show_default=""),
    ] = None,
    format: AsFormat = Format.table,
) -> None:
    """Say which queries sites could take, where they would run and what would be full; runs nothing."""
    from headwater.cli.plan import PlanOptions, plan_file

    source = read_source(file)
    with report_errors(source):
        options = PlanOptions(sites, profile, costs, planner, seconds, seed, consolidate, svg)
        plan_file(source, options, query or [], format)


@app.command()
def reproduce(
    figure: Annotated[
        str | None,
        typer.Argument(metavar="[FIGURE]", help="Its name; none: list them.", show_default=""),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the plots are drawn (PNG).")
    ] = Path("figures"),
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=1, help="How many runs, each with a seed of its own.", show_default=""
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A short run, to see whether it works.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="HEADWATER_DATA",
            show_envvar=False,
            help="Data from elsewhere, for figures that use some; HEADWATER_DATA names it too.",
        ),
    ] = None,
    format: AsFormat = Format.table,
) -> None:
    """Compute a figure of a paper anew, and show it beside the paper's claims."""
    with report_failures():
        from headwater.cli.reproduce import list_figures, reproduce_figure

        if figure is None:
            list_figures(format)
        else:
            reproduce_figure(figure, out, seeds, quick, data, format)
