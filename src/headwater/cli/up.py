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
from headwater.cli.files import FAILED, WRONG, Source, fail
from headwater.cli.formats import counted
from headwater.cli.logfiles import rotating
from headwater.cli.run import ENGINE_LOG, held, logged, signals, summary
from headwater.cli.view import shown
from headwater.cql import parse
from headwater.errors import CatalogUnavailable, nearest
from headwater.network.sites import Deployment, read_deployment
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog
from headwater.runtime.cluster import master_trouble
from headwater.runtime.durability import make_folder, owner_only
from headwater.runtime.overview import Observer
from headwater.runtime.paths import file_name
from headwater.runtime.scripts import execute
from headwater.runtime.sites.controller import Controller
from headwater.runtime.sites.deployment import deploy, deployed
from headwater.runtime.sites.here import Here
from headwater.runtime.sites.planning import Change, Room

log = logging.getLogger("headwater")

LOOK_SECONDS = 0.5
COMING_SECONDS = 120.0
"""For so long after its start a worker counts as there before it gives a sign."""

STOPPING_SECONDS = 60.0


@dataclass(frozen=True)
class Up:
    """What was asked for on the command line."""

    sites: Path
    source: Source | None
    state: Path
    catalog: str | None
    until_idle: bool
    only: list[str] | None
    quiet: bool
    memory: str | None = None
    allow_paths: Sequence[Path] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def say(self, words: str) -> None:
        if not self.quiet:
            typer.echo(words)


def up(asked: Up) -> None:
    """Run a state on sites until it is told to stop, or all is done; ends with an exit status."""
    deployment = read_deployment(asked.sites, master_trouble)
    names = [one.name for one in deployment.network.sites]
    for name in asked.only or ():
        if name not in names:
            fail(f"{asked.sites} has no site {name}; {nearest(name, names)}")
    if asked.source is not None and not states.exists(asked.state, asked.catalog):
        parse(asked.source.text)  # before anything is made
    opened = open_state(
        asked.state,
        catalog=asked.catalog,
        settings=asked.settings,
        allow_paths=asked.allow_paths,
    )
    with opened as headwater, held(headwater.catalog, "run"), logged(asked.state):
        deploy(headwater.catalog, deployment)
        refused = asked.source is not None and _execute(headwater, asked.source, asked)
        workers = Workers(asked, [n for n in names if asked.only is None or n in asked.only])
        room = Room(headwater.catalog, headwater.definitions, deployment)
        controller = Controller(room, lambda: workers.coming(headwater.catalog))
        stop = Event()
        with (
            workers.running(),
            rotating(asked.state / f"site-{name}.log" for name in workers.names),
            signals(stop),
            shown(Observer(headwater.catalog), asked.quiet),
        ):
            _control(controller, workers, asked, stop)
        _tell(headwater.catalog, asked)
        if refused:
            raise typer.Exit(WRONG)


def _execute(headwater: Headwater, source: Source, asked: Up) -> bool:
    """Carry out the statements of a file; returns whether a query was refused."""
    folder = None if source.is_stdin else source.path.resolve().parent
    done = execute(headwater.catalog, headwater.definitions, source.text, folder)
    asked.say(summary(source, done))
    for one in done:
        if one.refused:
            typer.echo(f"headwater: {one.sentence}", err=True)
    return any(one.refused for one in done)


# ---- workers


@dataclass
class Workers:
    """The processes of sites that were started here."""

    asked: Up
    names: list[str]
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start them; stop them when the block ends."""
        self._begun = time.monotonic()
        try:
            for name in self.names:
                self._start(name)
            self.asked.say(f"started {counted(len(self.names), 'site')}: {', '.join(self.names)}")
            yield
        finally:
            self._stop()

    def _start(self, name: str) -> None:
        state = str(self.asked.state.resolve())
        more = ["--drain"] if self.asked.until_idle else []
        more += [] if self.asked.memory is None else ["--memory", self.asked.memory]
        more += [f"--conf={key}={value}" for key, value in self.asked.settings.items()]
        command = [sys.executable, "-m", "headwater", "site", name, "--state", state, *more]
        environment = dict(os.environ)
        if self.asked.catalog is not None:  # it may hold a password, which others could see
            environment["HEADWATER_CATALOG"] = self.asked.catalog
        log = self.asked.state / f"site-{file_name(name)}.log"
        with open(log, "ab", opener=owner_only) as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def coming(self, catalog: Catalog) -> set[str]:
        """Those that live but had no time yet to give a sign of it."""
        if time.monotonic() - self._begun > COMING_SECONDS:
            return set()
        never = {one.name for one in catalog.sites() if one.seen_at == 0}
        return {name for name in self.names if name in never and name not in self.ended()}

    def ended(self) -> dict[str, int]:
        """The status of those that have ended."""
        found = {name: process.poll() for name, process in self._processes.items()}
        return {name: status for name, status in found.items() if status is not None}

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


def _control(controller: Controller, workers: Workers, asked: Up, stop: Event) -> None:
    """Look after sites and units, until told to stop or all is done."""
    gone: set[str] = set()
    while not stop.wait(LOOK_SECONDS):
        try:
            change = controller.tick()
        except CatalogUnavailable as error:
            log.warning("%s; waiting", error)
            continue
        if change is not None:
            _say_change(controller, change, asked)
        for name, status in workers.ended().items():
            if name not in gone:
                gone.add(name)
                controller.catalog.leave_site(name)
                words = asked.state / f"site-{name}.log"
                typer.echo(f"headwater: site {name} has ended ({status}); see {words}", err=True)
        if len(gone) == len(workers.names) and workers.names and not controller.there:
            fail("no site is left", FAILED)
        if asked.until_idle and _is_done(controller.catalog):
            return


def _say_change(controller: Controller, change: Change, asked: Up) -> None:
    there = ", ".join(sorted(controller.there)) or "none"
    asked.say(f"sites {there}: {counted(len(change.moved), 'unit')} placed anew")
    for unit in change.waiting:
        typer.echo(f"headwater: unit {unit} waits: no site can have what it reads", err=True)


def _is_done(catalog: Catalog) -> bool:
    """Whether all streams have ended and all queries are finished."""
    streams, queries = catalog.streams(), catalog.queries()
    over = all(row.ended for row in streams) and all(row.state != "running" for row in queries)
    return over and not Observer(catalog).overview().undelivered


def _tell(catalog: Catalog, asked: Up) -> None:
    now = Observer(catalog).overview()
    rows, out = sum(view.rows for view in now.streams), sum(view.rows for view in now.queries)
    asked.say(
        f"{counted(rows, 'row')} of {counted(len(now.streams), 'stream')}, "
        f"{counted(out, 'row')} of {counted(len(now.queries), 'query')} "
        f"in {counted(len(now.units), 'unit')}; headwater show sites tells who did what"
    )


# ---- a site


def site(
    name: str,
    state: Path,
    catalog: str | None,
    drain: bool,
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Be a site until told to stop."""
    from headwater.cli.spark import started
    from headwater.cli.steering import SteeredEngine

    with open_state(state, catalog=catalog, settings=settings, memory=memory) as headwater:
        deployment = _deployment(headwater.catalog, name, state)
        here = Here(headwater.catalog, name, headwater.state, deployment, drain)
        make_folder(here.store)
        with held(headwater.catalog, f"site:{name}"), logged(here.store):
            master = deployment.worker(name).master
            typer.echo(f"site {name}: starting Spark on {master}")
            start = partial(started, here.store, master, headwater.session_settings)
            engine = SteeredEngine(
                headwater.catalog, headwater.state, start(), site=here, restart=start
            )
            typer.echo(f"site {name}: at work; more is in {here.store / ENGINE_LOG}")
            try:
                with signals(engine.stop):
                    engine.go(until_idle=False, patience=0.0)
            finally:
                engine.release()
                headwater.catalog.leave_site(name)
            with suppress(Exception):  # of Java that has ended already
                engine.spark.stop()


def _deployment(catalog: Catalog, name: str, state: Path) -> Deployment:
    found = deployed(catalog)
    if found is None:
        fail(f"{state} is not run by sites: headwater up SITES.toml makes it so")
    names = [one.name for one in found.network.sites]
    if name not in names:
        fail(f"there is no site {name}; {nearest(name, names)}")
    return found
