"""`headwater up` and `headwater site`: one state that several sites run.

`up` keeps the books: it admits queries, sees which sites are there and says what each has to do. A
site is a process with a Spark of its own that does what it finds assigned to it in the catalog; it may
be started by `up`, or by hand on another machine.
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
from headwater.cli.formats import pluralize
from headwater.cli.live_view import show_progress
from headwater.cli.log_rotation import rotate_periodically
from headwater.cli.run import (
    ENGINE_LOG,
    handle_signals,
    hold_lease,
    log_to_files,
    summarize_outcomes,
)
from headwater.cql import parse
from headwater.errors import CatalogUnavailable, suggest
from headwater.network.sites import Deployment, read_deployment
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog
from headwater.runtime.catalog.deployment import current_deployment, deploy
from headwater.runtime.durability import make_folder, owner_only_opener
from headwater.runtime.inspect.status import Observer
from headwater.runtime.sites.controller import Controller
from headwater.runtime.sites.local_site import LocalSite
from headwater.runtime.sites.planner import ReplanResult, SitePlanner
from headwater.runtime.spark.cluster import master_problem
from headwater.runtime.storage.paths import file_name
from headwater.runtime.submit.scripts import execute

log = logging.getLogger("headwater")

CHECK_SECONDS = 0.5
STARTUP_SECONDS = 120.0
"""For so long after its start a worker counts as there before it gives a sign."""

STOPPING_SECONDS = 60.0


@dataclass(frozen=True)
class UpOptions:
    """What was asked for on the command line."""

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

    def echo(self, words: str) -> None:
        if not self.quiet:
            typer.echo(words)


def run_sites(options: UpOptions) -> None:
    """Run a state on sites until it is told to stop, or all is done; ends with an exit status."""
    deployment = read_deployment(options.sites, master_problem)
    names = [deployed_site.name for deployed_site in deployment.network.sites]
    for name in options.only or ():
        if name not in names:
            fail(f"{options.sites} has no site {name}; {suggest(name, names)}")
    if options.source is not None and not states.state_exists(options.state, options.catalog):
        parse(options.source.text)  # before anything is made
    opened_state = open_state(
        options.state,
        catalog=options.catalog,
        settings=options.spark_settings,
        allow_paths=options.allow_paths,
    )
    with (
        opened_state as headwater,
        hold_lease(headwater.catalog, "run"),
        log_to_files(options.state),
    ):
        deploy(headwater.catalog, deployment)
        if options.planner is not None:
            # In the catalog, because whoever submits a query plans for it, in any process.
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
        _report_totals(headwater.catalog, options)
        if refused:
            raise typer.Exit(EXIT_WRONG)


def _execute_source(headwater: Headwater, source: CqlSource, options: UpOptions) -> bool:
    """Carry out the statements of a file; returns whether a query was refused."""
    folder = None if source.is_stdin else source.path.resolve().parent
    done = execute(headwater.catalog, headwater.definitions, source.text, folder)
    options.echo(summarize_outcomes(source, done))
    for outcome in done:
        if outcome.refused:
            typer.echo(f"headwater: {outcome.sentence}", err=True)
    return any(outcome.refused for outcome in done)


# ---- workers


@dataclass
class Workers:
    """The processes of sites that were started here."""

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
        more = ["--drain"] if self.options.until_idle else []
        more += [] if self.options.memory is None else ["--memory", self.options.memory]
        more += [f"--conf={key}={value}" for key, value in self.options.spark_settings.items()]
        command = [sys.executable, "-m", "headwater", "site", name, "--state", state, *more]
        environment = dict(os.environ)
        if self.options.catalog is not None:  # it may hold a password, which others could see
            environment["HEADWATER_CATALOG"] = self.options.catalog
        log = self.options.state / f"site-{file_name(name)}.log"
        with open(log, "ab", opener=owner_only_opener) as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def starting(self, catalog: Catalog) -> set[str]:
        """Those that live but had no time yet to give a sign of it."""
        if time.monotonic() - self._started_at > STARTUP_SECONDS:
            return set()
        never = {
            deployed_site.name for deployed_site in catalog.sites() if deployed_site.seen_at == 0
        }
        return {name for name in self.names if name in never and name not in self.exit_statuses()}

    def exit_statuses(self) -> dict[str, int]:
        """The status of those that have ended."""
        statuses = {name: process.poll() for name, process in self._processes.items()}
        return {name: status for name, status in statuses.items() if status is not None}

    def _stop(self) -> None:
        for process in self._processes.values():
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
    """Look after sites and units, until told to stop or all is done."""
    ended: set[str] = set()
    while not stop.wait(CHECK_SECONDS):
        try:
            change = controller.tick()
        except CatalogUnavailable as error:
            log.warning("%s; waiting", error)
            continue
        if change is not None:
            _report_change(controller, change, options)
        for name, status in workers.exit_statuses().items():
            if name not in ended:
                ended.add(name)
                controller.catalog.mark_site_gone(name)
                words = options.state / f"site-{name}.log"
                typer.echo(f"headwater: site {name} has ended ({status}); see {words}", err=True)
        if len(ended) == len(workers.names) and workers.names and not controller.alive:
            fail("no site is left", EXIT_FAILED)
        if options.until_idle and _is_done(controller.catalog):
            return


def _report_change(controller: Controller, change: ReplanResult, options: UpOptions) -> None:
    alive = ", ".join(sorted(controller.alive)) or "none"
    options.echo(f"sites {alive}: {pluralize(len(change.moved), 'unit')} placed anew")
    for unit in change.waiting:
        typer.echo(f"headwater: unit {unit} waits: no site can have what it reads", err=True)


def _is_done(catalog: Catalog) -> bool:
    """Whether all streams have ended and all queries are finished."""
    streams, queries = catalog.streams(), catalog.queries()
    over = all(row.ended for row in streams) and all(row.state != "running" for row in queries)
    return over and not Observer(catalog).overview().undelivered


def _report_totals(catalog: Catalog, options: UpOptions) -> None:
    now = Observer(catalog).overview()
    rows, out = sum(view.rows for view in now.streams), sum(view.rows for view in now.queries)
    options.echo(
        f"{pluralize(rows, 'row')} of {pluralize(len(now.streams), 'stream')}, "
        f"{pluralize(out, 'row')} of {pluralize(len(now.queries), 'query')} "
        f"in {pluralize(len(now.units), 'unit')}; headwater show sites tells who did what"
    )


# ---- a site


def run_site(
    name: str,
    state: Path,
    catalog: str | None,
    drain: bool,
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Be a site until told to stop."""
    from headwater.cli.spark import start_spark
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
            typer.echo(f"site {name}: at work; more is in {local_site.store / ENGINE_LOG}")
            try:
                with handle_signals(engine.stop_requested):
                    engine.run()
            finally:
                engine.release()
                headwater.catalog.mark_site_gone(name)
            with suppress(Exception):  # of Java that has ended already
                engine.spark.stop()


def _require_deployment(catalog: Catalog, name: str, state: Path) -> Deployment:
    deployment = current_deployment(catalog)
    if deployment is None:
        fail(f"{state} is not run by sites: headwater up SITES.toml makes it so")
    names = [deployed_site.name for deployed_site in deployment.network.sites]
    if name not in names:
        fail(f"there is no site {name}; {suggest(name, names)}")
    return deployment
