"""The commands that work on files, and their options; each command's work is in a module of its own.

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
from headwater.cli.output.formats import Format, RowFormat, pluralize, print_json
from headwater.cli.parameters import Commands
from headwater.cli.state import DEFAULT_STATE, CatalogUrl, State, report_failures, state_exists
from headwater.errors import CqlError

app = typer.Typer(
    name="headwater",
    cls=Commands,
    help="Run many continuous queries on Spark and compute what they share once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# Without a name, so that its commands stand beside those of files.
app.add_typer(state_commands.app)

File = Annotated[Path, typer.Argument(metavar="FILE.cql", help="CQL file; - reads stdin.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--query", "-q", metavar="NAME", help="Only this query; can be repeated."),
]
AsFormat = Annotated[Format, typer.Option("--format", "-f", help="Output format.")]


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def check(file: File, format: AsFormat = Format.table) -> None:
    """Report every mistake in a file, with its line and column.

    This includes everything that `headwater submit` would refuse. Exit status 1 if there is a mistake.
    """
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
        fail(f"{source.name} has no statements")
    queries = len(queries_of(statements))
    if format is Format.table:
        typer.echo(f"{pluralize(len(statements), 'statement')}, {pluralize(queries, 'query')}: ok")


@app.command()
def format(
    file: File,
    check: Annotated[
        bool, typer.Option("--check", help="Only check; exit status 1 if the file would change.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Rewrite the file in place.")] = False,
) -> None:
    """Print a file in the standard format.

    Comments are kept; those inside a statement move before it.
    """
    from headwater.cli.output.formatting import format_statements
    from headwater.cql import parse

    if check and write:
        fail("--check and --write cannot be used together")
    source = read_source(file)
    with report_errors(source):
        statements = parse(source.text)
        if not statements:
            fail(f"{source.name} has no statements")
        result = format_statements(source.text, statements)
    changed = result != source.text
    if write and source.is_stdin:
        fail("--write needs a file, not standard input")
    if write and changed:
        source.replace(result)
    if check or write:
        outcome = "unchanged" if not changed else "reformatted" if write else "would be reformatted"
        typer.echo(f"{source.name}: {outcome}", err=True)
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
            help="CQL file (- reads stdin), or the name of a query of a state.",
            show_default=False,
        ),
    ] = None,
    query: Names = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print one line per query.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Show measurements of queries of a state.")
    ] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Show why the last unit to step was chosen.")
    ] = False,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    format: AsFormat = Format.table,
) -> None:
    """Explain the queries of a file, or a query of a state.

    For a file: the tree of each query, its canonical form, and which queries are the same.

    For a query of a state: its unit, the queries that share the unit, and why it was assigned to it.
    """
    if schedule:
        with report_failures():
            from headwater.cli.analyze import explain_schedule

        explain_schedule(state, catalog_url, format)
        return
    if file is None:
        fail("give a file of queries or the name of a query of a state, or use --schedule")
    if analyze:
        with report_failures():
            from headwater.cli.analyze import explain_analysis

        explain_analysis(file, query or [], state, catalog_url, format)
        return
    if is_query_name(file):
        with report_failures():
            from headwater.cli.analyze import explain_placement

        # Without a state, reading it as a file below reports that there is no such file.
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
        typer.Option(
            "--input",
            "-i",
            metavar="DIR",
            help="Directory with NAME.csv, .jsonl or .parquet for each stream and table.",
        ),
    ],
    query: Names = None,
    format: Annotated[
        RowFormat, typer.Option("--format", "-f", help="Output format.")
    ] = RowFormat.table,
) -> None:
    """Compute query results from files with the reference evaluator."""
    from headwater.cli.evaluate import evaluate_file

    source = read_source(file)
    with report_errors(source):
        evaluate_file(source, input, query or [], format)


@app.command()
def tune(
    file: File,
    sites: Annotated[Path, typer.Option("--sites", metavar="FILE.toml", help="Sites and links.")],
    profile: Annotated[
        Path,
        typer.Option("--profile", metavar="FILE.toml", help="Target rates and data statistics."),
    ],
    costs: Annotated[
        Path | None,
        typer.Option("--costs", metavar="FILE.toml", help="Operator costs.", show_default=False),
    ] = None,
    query: Names = None,
    copies: Annotated[
        int,
        typer.Option("--copies", min=1, metavar="N", help="Maximum sites that run one operator."),
    ] = 1,
    search: Annotated[
        str, typer.Option("--search", metavar="NAME", help="Search algorithm.")
    ] = "portfolio",
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, metavar="SECONDS", help="Time limit.")
    ] = 5.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    format: AsFormat = Format.table,
) -> None:
    """Find the operator order and placement for the highest rates."""
    from headwater.cli.planning.tune import TuneOptions, tune_file

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
            help="Rates and sites of streams, and data statistics.",
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option("--costs", metavar="FILE.toml", help="Operator costs.", show_default=False),
    ] = None,
    query: Names = None,
    planner: Annotated[
        str, typer.Option("--planner", metavar="NAME", help="Planning algorithm.")
    ] = "headwater",
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, metavar="SECONDS", help="Time limit per query.")
    ] = 5.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Random seed.")] = 0,
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="Use as few sites as possible.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="FILE.svg", help="Draw the plan to a file.", show_default=False
        ),
    ] = None,
    format: AsFormat = Format.table,
) -> None:
    """Plan which queries a set of sites can run, and where.

    Shows which queries are admitted, where they run, and the load of sites and links. Nothing is run.
    """
    from headwater.cli.planning.plan import PlanOptions, plan_file

    source = read_source(file)
    with report_errors(source):
        options = PlanOptions(sites, profile, costs, planner, seconds, seed, consolidate, svg)
        plan_file(source, options, query or [], format)


@app.command()
def simulate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="World to simulate (docs/federation.md).")
    ],
    plots: Annotated[
        Path | None,
        typer.Option(
            "--plots", metavar="DIR", help="Directory for plots (PNG).", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, metavar="N", help="Random seed.", show_default="those of the file"
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")] = False,
    format: AsFormat = Format.table,
) -> None:
    """Simulate a federation of providers and compare policies.

    The file describes a network, queries or objects to disseminate, policies, and failures.
    """
    with report_failures():
        from headwater.cli.planning.simulate import simulate_file

        simulate_file(file, plots, seed, quiet, format)


@app.command()
def reproduce(
    figure: Annotated[
        str | None,
        typer.Argument(
            metavar="FIGURE", help="Name of a figure; lists all if omitted.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory for plots (PNG).")
    ] = Path("figures"),
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            min=1,
            metavar="N",
            help="Number of runs, each with its own seed.",
            show_default="by figure",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a small version, as a smoke test.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="HEADWATER_DATA",
            show_envvar=False,
            help="Directory of external data, for figures that need it, or set HEADWATER_DATA.",
        ),
    ] = None,
    format: AsFormat = Format.table,
) -> None:
    """Reproduce a figure of a paper and compare it with its claims."""
    with report_failures():
        from headwater.cli.planning.reproduce import list_figures, reproduce_figure

        if figure is None:
            list_figures(format)
        else:
            reproduce_figure(figure, out, seeds, quick, data, format)
