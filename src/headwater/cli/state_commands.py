"""The commands that work on a state, and their options: running queries on Spark, submitting, inspecting.

As with the other commands, heavy modules are imported when a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.cql_files import EXIT_WRONG, CqlSource, fail, read_source
from headwater.cli.output.formats import Format, ListingKind, RowFormat, pluralize, print_json
from headwater.cli.parameters import CommandWithRenamedOptions
from headwater.cli.state import (
    DEFAULT_STATE,
    CatalogUrl,
    State,
    fail_without_state,
    open_catalog,
    report_failures,
    run_command_line,
    state_exists,
)

app = typer.Typer()

AllowPaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--allow-path",
        metavar="ROOT",
        help="From now on, restrict sources and sinks to files below ROOT; can be repeated.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a query.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; can be repeated."),
]
AsFormat = Annotated[Format, typer.Option("--format", "-f", help="Output format.")]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Java heap, such as 2g.",
        show_default="a quarter of the machine's memory",
    ),
]


def parse_spark_settings(conf: list[str] | None) -> dict[str, str]:
    """Parse the values of --conf; raises RuntimeFailure for a setting that users may not change."""
    if not conf:
        return {}
    from headwater.runtime.spark.session import check_user_settings

    settings = {}
    for entry in conf:
        key, equals, value = entry.partition("=")
        if not equals:
            fail(f"--conf takes KEY=VALUE, not {entry}")
        settings[key.strip()] = value.strip()
    # Now, and not when Spark starts: a state is not to be created for a command that cannot run.
    check_user_settings(settings)
    return settings


@app.command(cls=CommandWithRenamedOptions)
def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.cql",
            help="CQL file to submit first; if omitted, the state continues as it is.",
            show_default=False,
        ),
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Exit when all input has been processed.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="With --until-idle: wait this long for more input."
        ),
    ] = 0.0,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.01, metavar="SECONDS", help="How often to poll for new input.", show_default="1"
        ),
    ] = None,
    rows_per_step: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Maximum rows per step.", show_default="500000"),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Maximum units that step concurrently.", show_default="4"
        ),
    ] = None,
    max_backlog_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Maximum rows that a stream may be ahead of its slowest unit.",
            show_default="5000000",
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Failures in a row before a unit is parked.", show_default="5"
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="Scheduling policy.", show_default="bsd-early"),
    ] = None,
    optimise: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Join order: throughput, greedy or written.",
            show_default="throughput",
        ),
    ] = None,
    max_wait_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            metavar="SECONDS",
            help="A unit that has waited this long steps first, whatever the policy.",
            show_default="60",
        ),
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    memory: Memory = None,
    allow_paths: AllowPaths = None,
    conf: Conf = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Ingest streams and run queries until Ctrl-C.

    Resumes where the last run stopped; statements of the file that were submitted before change nothing.
    """
    source = None if file is None else read_source(file)
    with report_failures(source):
        from headwater.cli.running.run import RunOptions
        from headwater.cli.running.run import run as start
        from headwater.runtime.settings import parse_setting

    # An option that is not given stays None, so that the value of SET, or the default, applies.
    flags = {
        "interval": interval,
        "rows_per_step": rows_per_step,
        "max_concurrency": max_concurrency,
        "max_backlog_rows": max_backlog_rows,
        "retries": retries,
        "scheduler": scheduler,
        "optimise": optimise,
        "max_wait_seconds": max_wait_seconds,
    }
    with report_failures(source):
        overrides = {
            name: parse_setting(name, value) for name, value in flags.items() if value is not None
        }
        settings = parse_spark_settings(conf)
    options = RunOptions(
        state,
        catalog_url,
        until_idle,
        patience,
        master,
        quiet,
        overrides,
        memory,
        allow_paths or (),
        settings,
    )
    start(source, options)


@app.command()
def up(
    sites: Annotated[Path, typer.Argument(metavar="SITES.toml", help="Sites and links.")],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.cql", help="CQL file to submit first.", show_default=False),
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Exit when all input has been processed.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="NAME",
            help="Start only this site here; can be repeated.",
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="From now on, place units with this planning algorithm.",
            show_default="headwater",
        ),
    ] = None,
    memory: Memory = None,
    allow_paths: AllowPaths = None,
    conf: Conf = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
) -> None:
    """Run a state on several sites until Ctrl-C.

    Starts a worker process for each site, admits queries, and places units on sites. Other sites may join
    with `headwater site`.
    """
    source = None if file is None else read_source(file)
    with report_failures(source):
        from headwater.cli.running.up import UpOptions
        from headwater.cli.running.up import run_sites as start
        from headwater.runtime.settings import parse_setting

        start(
            UpOptions(
                sites,
                source,
                state,
                catalog_url,
                until_idle,
                only,
                quiet,
                memory,
                allow_paths or (),
                parse_spark_settings(conf),
                None if planner is None else str(parse_setting("planner", planner)),
            )
        )


@app.command()
def site(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the site.")],
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End streams when their sources have no more input.")
    ] = False,
    memory: Memory = None,
    conf: Conf = None,
) -> None:
    """Run one site of a state until Ctrl-C.

    The sites of a state are those of the file that `headwater up` was given.
    """
    with report_failures():
        from headwater.cli.running.up import run_site as join

        join(name, state, catalog_url, drain, memory, parse_spark_settings(conf))


@app.command()
def submit(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.cql", help="CQL file; - reads stdin.")
    ] = None,
    execute: Annotated[
        str | None,
        typer.Option("--execute", "-e", metavar="CQL", help="Statements, instead of a file."),
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
) -> None:
    """Submit statements to a state, running or not.

    A running engine picks them up in its next round. The state is created if it does not exist.
    """
    if (file is None) == (execute is None):
        fail("give a file of statements, or the statements with --execute")
    # The path "-" makes relative paths of --execute relative to the current folder, as for stdin.
    source = read_source(file) if file else CqlSource("--execute", execute or "", Path("-"))
    with report_failures(source):
        is_new = not state_exists(state, catalog_url)
        if is_new:
            from headwater.cql import CreateStream, CreateTable
            from headwater.runtime.submit.checks import check_script

            # A text with a mistake, or one that declares nothing to query, must not leave a state behind.
            if not any(
                isinstance(s, CreateStream | CreateTable) for s in check_script(source.text)
            ):
                fail_without_state(state, catalog_url)
    with open_catalog(state, catalog_url, source, create=is_new) as catalog:
        from headwater.cli.statements import execute_source
        from headwater.runtime.catalog.definitions import Definitions

        done = execute_source(catalog, Definitions(catalog), source)
        if not done:
            fail(f"{source.name} has no statements")
        for outcome in done:
            typer.echo(outcome.sentence, err=outcome.refused)
        if any(outcome.refused for outcome in done):
            raise typer.Exit(EXIT_WRONG)
        if is_new:
            typer.echo(
                f"created {state}; run it with {run_command_line(state, catalog_url)}", err=True
            )


@app.command()
def drop(name: Name, state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None) -> None:
    """Drop a query and its results.

    Results that other queries share are kept.
    """
    with open_catalog(state, catalog_url) as catalog:
        from headwater.runtime.submit.statements import drop_query

        dropped_units = drop_query(catalog, name)
        typer.echo(
            f"query {name} dropped" + (f", with unit {dropped_units[0]}" if dropped_units else "")
        )


@app.command()
def pause(name: Name, state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None) -> None:
    """Pause a query; its input is kept."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.runtime.submit.statements import pause_query

        pause_query(catalog, name)
        typer.echo(f"query {name} paused")


@app.command()
def resume(name: Name, state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None) -> None:
    """Resume a query that is paused or parked."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.runtime.submit.statements import resume_query

        resume_query(catalog, name)
        typer.echo(f"query {name} resumed")


@app.command()
def rewind(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Name of a stream.")],
    to: Annotated[
        str, typer.Argument(metavar="TIME", help="Event time, such as 2026-01-31T12:30:00Z.")
    ],
    restart: Annotated[
        bool, typer.Option("--restart", help="Restart queries that have read past that time.")
    ] = False,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
) -> None:
    """Move a stream's watermark back to a time.

    Rows after that time move to the rejects of the stream.
    """
    with open_catalog(state, catalog_url) as catalog:
        from headwater.algebra.times import parse_timestamp
        from headwater.cql import unparse
        from headwater.cql.statements import RewindStream
        from headwater.runtime.catalog.definitions import Definitions
        from headwater.runtime.submit.scripts import execute

        # As a statement, so that it passes the checks that one in a file does.
        statement = unparse(RewindStream(stream, parse_timestamp(to), restart))
        (outcome,) = execute(catalog, Definitions(catalog), statement)
        typer.echo(outcome.sentence)


@app.command()
def show(
    what: Annotated[ListingKind, typer.Argument(metavar="WHAT", help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this stream, query, unit or site.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="With events: only this kind.")
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With events: only the last SECONDS."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="With events: only the latest N.")
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", help="With events: keep printing new ones until Ctrl-C.")
    ] = False,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    format: AsFormat = Format.table,
) -> None:
    """List streams, queries, units, rejects, sites, events and more."""
    if what is not ListingKind.events and (kind is not None or since is not None or follow):
        fail("--kind, --since and --follow work with headwater show events only")
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli.output import listing

        if what is not ListingKind.events:
            listing.show_listing(catalog, what, name, format)
            return
        from headwater.runtime.inspect.events import EventFilter

        try:
            listing.show_events(catalog, EventFilter(kind, name, since, limit), follow, format)
        except KeyboardInterrupt:
            raise typer.Exit from None


@app.command()
def results(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names of queries; all if omitted."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep printing new rows until Ctrl-C.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Maximum rows per query.")
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    format: Annotated[
        RowFormat, typer.Option("--format", "-f", help="Output format.")
    ] = RowFormat.table,
) -> None:
    """Print the results of queries."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli.results import print_results

        try:
            # Ctrl-C is how --follow is ended, and no failure.
            print_results(catalog, names or [], format, limit, follow)
        except KeyboardInterrupt:
            raise typer.Exit from None


@app.command()
def status(
    state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None, format: AsFormat = Format.table
) -> None:
    """Show a status summary.

    Exit status 1 while something is parked or failing.
    """
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli.output import listing

        exit_status = listing.show_status(catalog, state, format)
    raise typer.Exit(exit_status)


@app.command()
def health(
    state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None, format: AsFormat = Format.table
) -> None:
    """Check whether a state is healthy.

    Exit status 0 if it is, 1 if something is wrong, 2 if no engine is running. Prints the reasons.
    """
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli.output import listing

        exit_status = listing.show_health(catalog, format)
    raise typer.Exit(exit_status)


@app.command()
def calibrate(
    state: State = DEFAULT_STATE,
    rows: Annotated[
        int,
        typer.Option(
            min=20_000, metavar="N", help="Rows per trial; more are slower and more accurate."
        ),
    ] = 150_000,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    conf: Conf = None,
    format: AsFormat = Format.table,
) -> None:
    """Measure what operators cost on this machine.

    The engine and `headwater tune --costs` use the result.
    """
    with report_failures():
        from headwater.cli.planning.calibrate import calibrate_state

        calibrate_state(state, rows, master, parse_spark_settings(conf), format)


@app.command()
def verify(
    state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None, format: AsFormat = Format.table
) -> None:
    """Check the files of a state for damage.

    Exit status 1 if a file is damaged. May run beside an engine.
    """
    with open_catalog(state, catalog_url, files=True) as catalog:
        from headwater.cli.verify import print_verification
        from headwater.runtime.inspect.verify import verify as verify_files

        done = verify_files(catalog)
        print_verification(done, format)
        if not done.is_sound:
            raise typer.Exit(EXIT_WRONG)


@app.command()
def clean(
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    older_than: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Keep files modified within this time."),
    ] = 600.0,
    format: AsFormat = Format.table,
) -> None:
    """Remove files that are no longer needed.

    These are files of dropped queries, and files that a killed process left behind.
    """
    with open_catalog(state, catalog_url, files=True) as catalog:
        from headwater.cli.clean import clean_state
        from headwater.cli.output.listing import format_size

        done = clean_state(catalog, state, older_than)
        if format is Format.json:
            print_json(vars(done))
            return
        units = f", with {pluralize(done.units, 'dropped unit')}" if done.units else ""
        typer.echo(f"removed {pluralize(done.files, 'file')}, {format_size(done.bytes)}{units}")
        if done.young:
            typer.echo(
                f"kept {pluralize(done.young, 'file')} newer than {older_than:.0f} s that no segment "
                "refers to: a step may be about to register them"
            )
