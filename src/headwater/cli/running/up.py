"""`headwater up` and `headwater site`: a state that runs on several sites.

`up` is the controller: it admits queries, watches which sites are alive, and places units on them. A site
is a process with its own Spark that runs the units placed on it in the catalog; `up` starts it, or a user
on another machine.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event

import typer

from headwater.cli import state as states
from headwater.cli.cql_files import EXIT_FAILED, EXIT_WRONG, CqlSource, fail
from headwater.cli.output.formats import pluralize
from headwater.cli.output.live_view import show_progress
from headwater.cli.running.log_rotation import rotate_periodically
from headwater.cli.running.run import (
    ENGINE_LOG,
    handle_signals,
    hold_lease,
    log_to_files,
    report_failing_sinks,
    summarize_outcomes,
)
from headwater.cli.statements import execute_source
from headwater.errors import CatalogError, CatalogUnavailable, suggest
from headwater.network.sites import Deployment, read_deployment
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.deployment import current_deployment, deploy
from headwater.runtime.durability import make_folder, owner_only_opener
from headwater.runtime.inspect.status import Observer
from headwater.runtime.results.sink_progress import has_deliveries_to_await
from headwater.runtime.settings import Settings, effective_settings
from headwater.runtime.sites.controller import Controller
from headwater.runtime.sites.local_site import LocalSite
from headwater.runtime.sites.planner import ReplanResult, SitePlanner
from headwater.runtime.spark.cluster import master_problem
from headwater.runtime.storage.paths import file_name
from headwater.runtime.submit.checks import check_script

log = logging.getLogger("headwater")

CHECK_SECONDS = 0.5
STARTUP_SECONDS = 120.0
"""Seconds for which a worker counts as alive before its first heartbeat: Spark starts slowly."""

STOPPING_SECONDS = 60.0


@dataclass(frozen=True)
class UpOptions:
    """The command line of `headwater up`."""

    sites: Path
    source: CqlSource | None
    state: Path
    catalog: str | None
    until_idle: bool
    only: list[str] | None
    quiet: bool
    memory: str | None = None
    allow_paths: Sequence[Path] = ()
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    planner: str | None = None

    def echo(self, message: str) -> None:
        if not self.quiet:
            typer.echo(message)


def run_sites(options: UpOptions) -> None:
    """Run a state on sites until stopped, or until all is done; sets the exit status."""
    deployment = read_deployment(options.sites, master_problem)
    names = [site.name for site in deployment.network.sites]
    for name in options.only or ():
        if name not in names:
            fail(f"{options.sites} has no site {name}; {suggest(name, names)}")
    if options.source is not None and not states.state_exists(options.state, options.catalog):
        # Raises on a mistake, so that no empty state is left behind.
        check_script(options.source.text)
    opened_state = open_state(
        options.state,
        catalog=options.catalog,
        settings=options.spark_settings,
        allow_paths=options.allow_paths,
    )
    with (
        opened_state as headwater,
        hold_lease(
            headwater.catalog, "run"
        ),  # the lease of `headwater run`: one excludes the other
        log_to_files(options.state),
    ):
        # Before statements are submitted, as queries are admitted to these sites.
        deploy(headwater.catalog, deployment)
        if options.planner is not None:
            # In the catalog, because the process that submits a query plans for it, and may be another one.
            headwater.catalog.set_option("planner", options.planner)
        refused = options.source is not None and _execute_source(headwater, options.source, options)
        workers = Workers(options, [n for n in names if options.only is None or n in options.only])
        site_planner = SitePlanner(headwater.catalog, headwater.definitions, deployment)
        controller = Controller(site_planner, lambda: workers.starting(headwater.catalog))
        stop = Event()
        with (
            workers.running(),
            rotate_periodically(options.state / f"site-{name}.log" for name in workers.names),
            handle_signals(stop),
            show_progress(Observer(headwater.catalog), options.quiet),
        ):
            _run_controller(controller, workers, options, stop)
        has_failing_sink = _report_totals(headwater.catalog, options)
        if refused or has_failing_sink:
            raise typer.Exit(EXIT_WRONG if refused else EXIT_FAILED)


def _execute_source(headwater: Headwater, source: CqlSource, options: UpOptions) -> bool:
    """Submit the statements of a file; returns whether a query was refused."""
    done = execute_source(headwater.catalog, headwater.definitions, source)
    options.echo(summarize_outcomes(source, done))
    for outcome in done:
        if outcome.refused:
            typer.echo(f"headwater: {outcome.sentence}", err=True)
    return any(outcome.refused for outcome in done)


# ---- workers


@dataclass
class Workers:
    """The worker processes, one per site, that this process started."""

    options: UpOptions
    names: list[str]
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _started_at: float = field(default_factory=time.monotonic)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start them; stop them when the block ends."""
        self._started_at = time.monotonic()
        try:
            for name in self.names:
                self._start(name)
            self.options.echo(
                f"started {pluralize(len(self.names), 'site')}: {', '.join(self.names)}"
            )
            yield
        finally:
            self._stop()

    def _start(self, name: str) -> None:
        state = str(self.options.state.resolve())
        # Which sources are exhausted is known only to the sites that read them.
        flags = ["--drain"] if self.options.until_idle else []
        flags += [] if self.options.memory is None else ["--memory", self.options.memory]
        flags += [f"--conf={key}={value}" for key, value in self.options.spark_settings.items()]
        command = [sys.executable, "-m", "headwater", "site", name, "--state", state, *flags]
        environment = dict(os.environ)
        # Not as an argument: the URL may contain a password, and all users can see command lines.
        if self.options.catalog is not None:
            environment["HEADWATER_CATALOG"] = self.options.catalog
        log = self.options.state / f"site-{file_name(name)}.log"
        with open(log, "ab", opener=owner_only_opener) as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # a Ctrl-C is for `up`, which then stops the workers itself
            )

    def starting(self, catalog: Catalog) -> set[str]:
        """The workers that are alive but have not sent a heartbeat yet."""
        if time.monotonic() - self._started_at > STARTUP_SECONDS:
            return set()
        unseen = {site.name for site in catalog.sites() if site.seen_at == 0}
        return {name for name in self.names if name in unseen and name not in self.exit_statuses()}

    def exit_statuses(self) -> dict[str, int]:
        """The exit status of each worker that has exited."""
        statuses = {name: process.poll() for name, process in self._processes.items()}
        return {name: status for name, status in statuses.items() if status is not None}

    def _stop(self) -> None:
        for process in self._processes.values():
            # All are asked to stop before one is waited for, so that they stop side by side.
            process.terminate()
        deadline = time.monotonic() + STOPPING_SECONDS
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()


# ---- the controller


def _run_controller(
    controller: Controller, workers: Workers, options: UpOptions, stop: Event
) -> None:
    """Watch sites and place units until stopped, or until all is done."""
    exited: set[str] = set()
    began = time.time()
    while not stop.wait(CHECK_SECONDS):
        try:
            _check_sites(controller, workers, options, exited)
            if options.until_idle and _is_done(controller.catalog, began):
                return
        except CatalogUnavailable as error:
            # Sites keep working without a controller, so it can wait for the catalog.
            log.warning("%s; waiting", error)


def _check_sites(
    controller: Controller, workers: Workers, options: UpOptions, exited: set[str]
) -> None:
    """Place units on the sites that are alive, and add the workers that have exited to `exited`; ends the
    command if no site is left."""
    change = controller.tick()
    if change is not None:
        _report_change(controller, change, options)
    for name, status in workers.exit_statuses().items():
        if name not in exited:
            # Its units can move immediately, without waiting for its heartbeat to time out.
            controller.catalog.mark_site_gone(name)
            exited.add(name)
            path = options.state / f"site-{name}.log"
            typer.echo(f"headwater: site {name} exited with status {status}; see {path}", err=True)
    # Sites that others have started may go on without those of this process.
    if len(exited) == len(workers.names) and workers.names and not controller.alive:
        fail("all sites have exited", EXIT_FAILED)


def _report_change(controller: Controller, change: ReplanResult, options: UpOptions) -> None:
    alive = ", ".join(sorted(controller.alive)) or "none"
    options.echo(f"sites up: {alive}; {pluralize(len(change.moved), 'unit')} placed")
    for unit in change.waiting:
        typer.echo(f"headwater: unit {unit} is waiting: no site can get its input", err=True)


def _is_done(catalog: Catalog, began: float) -> bool:
    """Whether all streams have ended, all queries are finished, and sinks have every row that they
    take."""
    streams, queries = catalog.streams(), catalog.queries()
    over = all(row.ended for row in streams) and all(row.state != "running" for row in queries)
    retries = effective_settings(Settings(), catalog.options(), {}).retries
    return over and not has_deliveries_to_await(catalog, retries, began)


def _report_totals(catalog: Catalog, options: UpOptions) -> bool:
    """Say what was done; returns whether a sink failed."""
    now = Observer(catalog).overview()
    rows, out = sum(view.rows for view in now.streams), sum(view.rows for view in now.queries)
    options.echo(
        f"{pluralize(rows, 'row')} from {pluralize(len(now.streams), 'stream')}, "
        f"{pluralize(out, 'row')} from {pluralize(len(now.queries), 'query')} "
        f"in {pluralize(len(now.units), 'unit')}; headwater show sites lists the units of each site"
    )
    return report_failing_sinks(now.queries)


# ---- a site


def run_site(
    name: str,
    state: Path,
    catalog: str | None,
    drain: bool,
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run a site until stopped."""
    from headwater.cli.running.spark import start_spark
    from headwater.runtime.engine.engine import Engine

    with open_state(state, catalog=catalog, settings=settings, memory=memory) as headwater:
        deployment = _require_deployment(headwater.catalog, name, state)
        local_site = LocalSite(headwater.catalog, name, headwater.state, deployment, drain)
        make_folder(local_site.store)
        with hold_lease(headwater.catalog, f"site:{name}"), log_to_files(local_site.store):
            master = deployment.worker(name).master
            typer.echo(f"site {name}: starting Spark on {master}")
            start = partial(start_spark, local_site.store, master, headwater.session_settings)
            engine = Engine(
                headwater.catalog, headwater.state, start(), site=local_site, restart_spark=start
            )
            typer.echo(f"site {name}: running; log in {local_site.store / ENGINE_LOG}")
            try:
                with handle_signals(engine.stop_requested):
                    engine.run()
            finally:
                # Given back at once, so that other sites need not wait for leases and heartbeats to
                # expire.
                engine.release()
                with suppress(CatalogError):
                    headwater.catalog.mark_site_gone(name)
            with suppress(Exception):  # Java may have exited already
                engine.spark.stop()


def _require_deployment(catalog: Catalog, name: str, state: Path) -> Deployment:
    deployment = current_deployment(catalog)
    if deployment is None:
        fail(f"{state} has no sites: start it with headwater up SITES.toml first")
    names = [site.name for site in deployment.network.sites]
    if name not in names:
        fail(f"there is no site {name}; {suggest(name, names)}")
    return deployment
