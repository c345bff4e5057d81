"""The commands that run queries on Spark, or speak to what runs; their work is in the modules beside.

As with the other commands, what is heavy is imported when a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.cql_files import EXIT_WRONG, CqlSource, fail, read_source
from headwater.cli.formats import Format, ListingKind, RowFormat, pluralize, print_json
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
        help="Sources and sinks may use files below it only, from now on; may be repeated.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a query.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
AsFormat = Annotated[Format, typer.Option("--format", "-f", help="For people or for programs.")]


Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory for Java, such as 2g.",
        show_default="a quarter of the machine's",
    ),
]


def parse_spark_settings(conf: list[str] | None) -> dict[str, str]:
    """The settings behind --conf; raises RuntimeFailure for one that is not a user's to choose."""
    if not conf:
        return {}
    from headwater.runtime.spark.session import check_user_settings

    settings = {}
    for entry in conf:
        key, equals, value = entry.partition("=")
        if not equals:
            fail(f"--conf takes KEY=VALUE, not {entry}")
        settings[key.strip()] = value.strip()
    check_user_settings(settings)
    return settings


@app.command()
def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.cql]",
            help="Statements to carry out first; none: go on.",
            show_default="",
        ),
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when all input is used up.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option(min=0, help="With --until-idle: seconds without input that count as its end."),
    ] = 0.0,
    interval: Annotated[
        float | None,
        typer.Option(min=0.01, help="Seconds between two looks for new input.", show_default="1"),
    ] = None,
    rows_per_step: Annotated[
        int | None,
        typer.Option(min=1, help="Rows that one step takes on.", show_default="500000"),
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Units that step together.", show_default="4")
    ] = None,
    max_backlog_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows that a stream may be ahead of its slowest unit.",
            show_default="5000000",
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(min=0, help="Failures after which a unit is parked.", show_default="5"),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="The policy by which units step.", show_default="bsd-early"),
    ] = None,
    optimise: Annotated[
        str | None,
        typer.Option(help="How joins are ordered.", show_default="throughput"),
    ] = None,
    max_wait_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help="Seconds after which a unit steps before all others, whatever the policy.",
            show_default="60",
        ),
    ] = None,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    memory: Memory = None,
    allow_paths: AllowPaths = None,
    conf: Conf = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but what is wrong.")] = False,
) -> None:
    """Take in streams and answer queries, until Ctrl-C; a file that ran before goes on."""
    source = None if file is None else read_source(file)
    with report_failures(source):
        from headwater.cli.run import RunOptions
        from headwater.cli.run import run as start
        from headwater.runtime.settings import parse_setting

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
    sites: Annotated[Path, typer.Argument(metavar="SITES.toml", help="The sites and their links.")],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE.cql]", help="Statements to carry out.", show_default=""),
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when all input is used up.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="NAME", help="Start these sites; others join from elsewhere."
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(help="The planner that places units, from now on.", show_default="headwater"),
    ] = None,
    memory: Memory = None,
    allow_paths: AllowPaths = None,
    conf: Conf = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but what is wrong.")] = False,
) -> None:
    """Run a state on several sites: start a worker for each, admit queries, place and move units."""
    source = None if file is None else read_source(file)
    with report_failures(source):
        from headwater.cli.up import UpOptions
        from headwater.cli.up import run_sites as start
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the site.")],
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Streams end when their sources have no more.")
    ] = False,
    memory: Memory = None,
    conf: Conf = None,
) -> None:
    """Be one of the sites that run a state, as `headwater up` has named them, until Ctrl-C."""
    with report_failures():
        from headwater.cli.up import run_site as join

        join(name, state, catalog_url, drain, memory, parse_spark_settings(conf))


@app.command()
def submit(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.cql]", help="Statements; - reads stdin.")
    ] = None,
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", metavar="CQL", help="Statements, right here.")
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
) -> None:
    """Carry out statements on a state, whether or not an engine runs on it now; the state is created if
    there is none."""
    if (file is None) == (execute is None):
        fail("name a file with statements, or give them with --execute")
    source = read_source(file) if file else CqlSource("--execute", execute or "", Path("-"))
    with report_failures(source):
        is_new = not state_exists(state, catalog_url)
        if is_new:
            from headwater.cql import CreateStream, CreateTable, parse

            # A text with a mistake, or about what is not there, creates nothing.
            if not any(isinstance(s, CreateStream | CreateTable) for s in parse(source.text)):
                fail_without_state(state, catalog_url)
    with open_catalog(state, catalog_url, source, create=is_new) as catalog:
        from headwater.runtime.catalog.definitions import Definitions
        from headwater.runtime.submit.scripts import execute as carry_out

        folder = None if source.is_stdin else source.path.resolve().parent
        done = carry_out(catalog, Definitions(catalog), source.text, folder)
        if not done:
            fail(f"{source.name} has no statement")
        for outcome in done:
            typer.echo(outcome.sentence, err=outcome.refused)
        if any(outcome.refused for outcome in done):
            raise typer.Exit(EXIT_WRONG)
        if is_new:
            typer.echo(f"created {state}; {run_command_line(state, catalog_url)} runs it", err=True)


@app.command()
def drop(name: Name, state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None) -> None:
    """Drop a query; its results go with it, unless another query has the same."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.runtime.submit.statements import drop_query as drop_query

        dropped_units = drop_query(catalog, name)
        typer.echo(
            f"query {name} dropped"
            + (f", and with it unit {dropped_units[0]}" if dropped_units else "")
        )


@app.command()
def pause(name: Name, state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None) -> None:
    """Let a query rest; nothing of its input is lost meanwhile."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.runtime.submit.statements import pause_query as pause_query

        pause_query(catalog, name)
        typer.echo(f"query {name} paused")


@app.command()
def resume(name: Name, state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None) -> None:
    """Let a query go on that was paused, or whose unit was parked after failures."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.runtime.submit.statements import resume_query as resume_query

        resume_query(catalog, name)
        typer.echo(f"query {name} runs again")


@app.command()
def rewind(
    stream: Annotated[str, typer.Argument(help="A stream.")],
    to: Annotated[str, typer.Argument(help="A time, as 2026-01-31T12:30:00Z.")],
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin queries again there that have read beyond it.")
    ] = False,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
) -> None:
    """Take a stream's watermark back: tuples after a time go to its rejects."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.algebra.times import parse_timestamp
        from headwater.cql import unparse
        from headwater.cql.statements import RewindStream
        from headwater.runtime.catalog.definitions import Definitions
        from headwater.runtime.submit.scripts import execute

        statement = unparse(RewindStream(stream, parse_timestamp(to), restart))
        (outcome,) = execute(catalog, Definitions(catalog), statement)
        typer.echo(outcome.sentence)


@app.command()
def show(
    what: Annotated[ListingKind, typer.Argument(help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="This stream, query, unit or site only.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="With events: of this kind only.")
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="With events: of the last ones only."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="With events: the latest so many.")] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", help="With events: also those to come, until Ctrl-C.")
    ] = False,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    format: AsFormat = Format.table,
) -> None:
    """List streams, tables, queries, units, segments, rejected records, sites, links or events."""
    if what is not ListingKind.events and (kind is not None or since is not None or follow):
        fail("--kind, --since and --follow are for headwater show events")
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli import listing

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
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Queries; none: all.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, help="At most so many rows of each query.")
    ] = None,
    state: State = DEFAULT_STATE,
    catalog_url: CatalogUrl = None,
    format: Annotated[
        RowFormat, typer.Option("--format", "-f", help="For people or for programs.")
    ] = RowFormat.table,
) -> None:
    """Print the rows that queries have given so far."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli.results import print_results

        try:
            print_results(catalog, names or [], format, limit, follow)
        except KeyboardInterrupt:
            raise typer.Exit from None


@app.command()
def status(
    state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None, format: AsFormat = Format.table
) -> None:
    """Show a summary of the state; ends with 1 while something is parked or fails."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli import listing

        ended = listing.show_status(catalog, state, format)
    raise typer.Exit(ended)


@app.command()
def health(
    state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None, format: AsFormat = Format.table
) -> None:
    """Report whether all is well: ends with 0 if so, 1 with the reasons if not, 2 if nothing runs."""
    with open_catalog(state, catalog_url) as catalog:
        from headwater.cli import listing

        ended = listing.show_health(catalog, format)
    raise typer.Exit(ended)


@app.command()
def calibrate(
    state: State = DEFAULT_STATE,
    rows: Annotated[
        int, typer.Option(min=20_000, help="Tuples of a stream; more take longer and tell better.")
    ] = 150_000,
    master: Annotated[str, typer.Option(help="Where Spark runs.")] = "local[*]",
    conf: Conf = None,
    format: AsFormat = Format.table,
) -> None:
    """Measure what each kind of operator costs on this machine, for `tune` and for the engine."""
    with report_failures():
        from headwater.cli.calibrate import calibrate_state

        calibrate_state(state, rows, master, parse_spark_settings(conf), format)


@app.command()
def verify(
    state: State = DEFAULT_STATE, catalog_url: CatalogUrl = None, format: AsFormat = Format.table
) -> None:
    """Compare every file of a state with what was written; exit status 1 if one is damaged."""
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
        typer.Option(min=0, metavar="SECONDS", help="Leave files that were touched since."),
    ] = 600.0,
    format: AsFormat = Format.table,
) -> None:
    """Remove the files of what was dropped, and those that a killed process left behind."""
    with open_catalog(state, catalog_url, files=True) as catalog:
        from headwater.cli.clean import clean_state as clean_state
        from headwater.cli.listing import format_size

        done = clean_state(catalog, state, older_than)
        if format is Format.json:
            print_json(vars(done))
            return
        units = f", with {pluralize(done.units, 'dropped unit')}" if done.units else ""
        typer.echo(f"removed {pluralize(done.files, 'file')}, {format_size(done.bytes)}{units}")
        if done.young:
            typer.echo(
                f"left {pluralize(done.young, 'file')} younger than {older_than:.0f} s that no "
                "segment names: a step may be about to register what it wrote"
            )
