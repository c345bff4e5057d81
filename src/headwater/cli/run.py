"""`headwater run`: carry out a file's statements, then let the engine work until it is told to stop.

The first Ctrl-C (or a TERM signal) ends it after the step that is under way, the second at once.
Neither loses anything: what a step has not committed is done again by the next run.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

import typer

from headwater.cli import state as states
from headwater.cli.files import FAILED, Source, fail
from headwater.cli.formats import counted
from headwater.cli.listing import names
from headwater.cli.logfiles import KEPT_FILES, MOST_BYTES, rotating
from headwater.cli.view import shown
from headwater.cql import CreateStream, CreateTable, parse
from headwater.errors import CatalogError, HeadwaterError, RuntimeFailure
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog
from headwater.runtime.claims import is_dead, repeated, this_process
from headwater.runtime.cluster import check_master
from headwater.runtime.limits import Setting
from headwater.runtime.overview import Observer, holders
from headwater.runtime.scripts import Outcome, execute

if TYPE_CHECKING:
    from headwater.cli.steering import SteeredEngine

INTERRUPTED = 130
CLAIM_SECONDS = 60.0
SHOW_CURSOR = b"\x1b[?25h" if sys.stderr.isatty() else b""
ENGINE_LOG = "engine.log"
SPARK_LOG = "spark.log"


@dataclass(frozen=True)
class Run:
    """What was asked for on the command line."""

    state: Path
    catalog: str | None
    until_idle: bool
    patience: float
    master: str
    quiet: bool
    limits: Mapping[str, Setting] = field(default_factory=dict)
    memory: str | None = None
    allow_paths: Sequence[Path] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def say(self, words: str) -> None:
        if not self.quiet:
            typer.echo(words)


def run(source: Source | None, asked: Run) -> None:
    """Run the statements of a file, or what the state holds already; ends with an exit status."""
    with states.failures(source):
        _check(source, asked)
        opened = open_state(
            asked.state,
            catalog=asked.catalog,
            master=asked.master,
            settings=asked.settings,
            memory=asked.memory,
            allow_paths=asked.allow_paths,
        )
        with opened as headwater, claimed(headwater.catalog), logged(asked.state):
            if source is not None:
                _execute(headwater, source, asked)
            _warn_of_missing_files(headwater)
            try:
                with _terminable():
                    engine = _start(headwater, asked)
            except KeyboardInterrupt:
                typer.echo(f"\nheadwater: stopped; {_go_on(asked)}", err=True)
                raise typer.Exit(INTERRUPTED) from None
            _work(engine, asked)


def _check(source: Source | None, asked: Run) -> None:
    """End the command before anything is made, if nothing can come of it."""
    check_master(asked.master)
    if states.exists(asked.state, asked.catalog):
        return
    if source is None:
        states.no_state(asked.state, asked.catalog)
    parse(source.text)


# ---- statements


def _execute(headwater: Headwater, source: Source, asked: Run) -> None:
    folder = None if source.is_stdin else source.path.resolve().parent
    done = execute(headwater.catalog, headwater.definitions, source.text, folder)
    asked.say(summary(source, done))


def summary(source: Source, done: list[Outcome]) -> str:
    new = [one for one in done if one.new]
    if not new:
        return f"{source.name}: all of it is there already; going on"
    kinds = Counter(type(one.statement).__name__ for one in new)
    words = {"CreateStream": "stream", "CreateTable": "table", "CreateQuery": "query"}
    made = [counted(kinds[kind], word) for kind, word in words.items() if kinds[kind]]
    others = len(new) - sum(kinds[kind] for kind in words)
    made += [counted(others, "other statement")] if others else []
    return f"{source.name}: {', '.join(made)}"


def _warn_of_missing_files(headwater: Headwater) -> None:
    declared: list[CreateStream | CreateTable] = [
        *headwater.definitions.streams.values(),
        *headwater.definitions.tables.values(),
    ]
    for one in declared:
        path = one.source.get("path") if one.source else None
        if isinstance(path, str) and "://" not in path and not _is_there(Path(path)):
            name = one.stream.name if isinstance(one, CreateStream) else one.table.name
            typer.echo(f"headwater: {name} reads {path}, which is not there (yet)", err=True)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


# ---- other processes


@contextmanager
def claimed(catalog: Catalog) -> Iterator[None]:
    """Be the one process that runs this state; ends the command if there is another.

    The claims of processes of this machine that died are freed.
    """
    for lease in catalog.leases():
        if is_dead(lease.holder):
            catalog.release(lease)
    for holder, left in holders(catalog.leases()).items():
        fail(f"{holder} runs this state already: stop it, or wait {left:.0f} s if it is dead")
    with held(catalog, "run"):
        yield


@contextmanager
def held(catalog: Catalog, name: str) -> Iterator[None]:
    """Hold a claim that only one process may have, renewed in the background, as a step may take
    longer than a claim lasts; ends the command if another has it."""
    for lease in catalog.leases():
        if lease.name == name and is_dead(lease.holder):
            catalog.release(lease)
    mine = catalog.acquire(name, this_process(), CLAIM_SECONDS)
    if mine is None:
        fail(f"another process has just claimed {name} of this state: stop it first")

    def renew() -> None:
        with suppress(HeadwaterError):
            catalog.renew(mine, CLAIM_SECONDS)

    catalog.record_event("engine started", name, process=this_process())
    try:
        with repeated(renew, CLAIM_SECONDS / 3, name):
            yield
    finally:
        with suppress(CatalogError):  # of a catalog that is away
            catalog.record_event("engine stopped", name, process=this_process())
        catalog.release(mine)


# ---- logs


@contextmanager
def logged(state: Path) -> Iterator[None]:
    """The engine's messages go to a file in full, and to standard error in short; those of the
    libraries below it go to the file alone."""
    kept = RotatingFileHandler(
        state / ENGINE_LOG, maxBytes=MOST_BYTES, backupCount=KEPT_FILES, delay=True
    )
    kept.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    told = logging.StreamHandler(sys.stderr)
    told.setFormatter(_Short())
    handlers = ((logging.getLogger(), kept), (logging.getLogger("headwater"), told))
    for logger, handler in handlers:
        logger.addHandler(handler)
    try:
        with rotating([state / SPARK_LOG]):
            yield
    finally:
        for logger, handler in handlers:
            logger.removeHandler(handler)
            handler.close()


class _Short(logging.Formatter):
    """One line, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {str(error).splitlines()[0]}" if error and str(error) else ""
        return f"headwater: {record.getMessage()}{why}"


# ---- the engine


def _start(headwater: Headwater, asked: Run) -> SteeredEngine:
    """The engine with its Spark session."""
    from headwater.cli.spark import started
    from headwater.cli.steering import SteeredEngine

    asked.say(f"starting Spark on {asked.master}")
    start = partial(started, asked.state, asked.master, headwater.session_settings)
    return SteeredEngine(
        headwater.catalog, headwater.state, start(), given=asked.limits, restart=start
    )


def _work(engine: SteeredEngine, asked: Run) -> None:
    begun = time.monotonic()
    observer = Observer(engine.catalog)
    try:
        with signals(engine.stop), shown(observer, asked.quiet):
            engine.go(asked.until_idle, asked.patience)
    except HeadwaterError:
        engine.release()
        if not engine.stop.is_set():
            raise
        # Whoever stopped us may have stopped Java too; what was begun is done again.
    except Exception as error:
        engine.release()
        logging.getLogger("headwater").exception("the engine failed")
        raise RuntimeFailure(
            f"the engine failed: {str(error).splitlines()[0] if str(error) else type(error)}; "
            f"more is in {asked.state / ENGINE_LOG}"
        ) from error
    engine.release()
    try:
        _tell(engine, observer, asked, time.monotonic() - begun)
    finally:
        with suppress(Exception):  # of Java that has ended already
            engine.spark.stop()


@contextmanager
def _terminable() -> Iterator[None]:
    """An INT or TERM signal while Spark starts is a Ctrl-C, also if a library passed over it."""
    told = Event()

    def handle(number: int, frame: FrameType | None) -> None:
        told.set()
        raise KeyboardInterrupt

    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in watched]
    try:
        yield
        if told.is_set():
            raise KeyboardInterrupt
    finally:
        for number, handler in zip(watched, before, strict=True):
            signal.signal(number, handler)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a message is more than that Java, which got the signal too, no longer answers."""
    return "Exception while sending command" not in record.getMessage()


@contextmanager
def signals(stop: Event) -> Iterator[None]:
    """The first INT or TERM sets the word to stop, the second ends the process.

    A thread that waits for Spark cannot be interrupted, hence the hard end; the claims that are
    left are those of a dead process, which the next run frees.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            os.write(2, SHOW_CURSOR + b"\nheadwater: stopped at once; the next run goes on\n")
            os._exit(INTERRUPTED)
        stop.set()
        logging.getLogger().addFilter(_is_ours)
        os.write(2, b"\nheadwater: stopping after this step; once more to stop at once\n")

    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in watched]
    try:
        yield
    finally:
        for number, handler in zip(watched, before, strict=True):
            signal.signal(number, handler)


def _tell(engine: SteeredEngine, observer: Observer, asked: Run, spent: float) -> None:
    """Say what was done and what is left; ends the command if a unit cannot go on."""
    now = observer.overview()
    rows = sum(view.rows for view in now.streams)
    out = sum(view.rows for view in now.queries)
    asked.say(
        f"{'stopped' if engine.stop.is_set() else 'done'} after {spent:.1f} s: "
        f"{counted(rows, 'row')} of {counted(len(now.streams), 'stream')}, "
        f"{counted(engine.steps, 'step')} of {counted(len(now.units), 'unit')}, "
        f"{counted(out, 'row')} of {counted(len(now.queries), 'query')}"
    )
    if now.pending or now.units_due:
        due = f"instants of {counted(now.units_due, 'unit')}" if now.units_due else ""
        rows_left = counted(now.pending, "row") if now.pending else ""
        left = " and ".join(said for said in (rows_left, due) if said)
        asked.say(f"{left} left to work on; {_go_on(asked)}")
    elif engine.stop.is_set() and not now.undelivered:
        asked.say(f"nothing is left to work on; {_go_on(asked)}")
    if now.undelivered:
        asked.say(f"{counted(now.undelivered, 'row')} left to deliver; {_go_on(asked)}")
    for query in now.queries:
        if query.sink_error:
            typer.echo(
                f"headwater: the sink of {query.row.spelled} failed: {query.sink_error}", err=True
            )
    failed = [view for view in now.units if view.row.error]
    for view in failed:
        typer.echo(
            f"headwater: unit {view.row.id} ({names(view.queries)}) is {view.row.state} after "
            f"{counted(view.row.retries, 'failure')}: {view.row.error}",
            err=True,
        )
    troubles = engine.intake.troubles()
    for trouble in troubles:
        typer.echo(f"headwater: {trouble}", err=True)
    if failed or troubles:
        raise typer.Exit(FAILED)


def _go_on(asked: Run) -> str:
    return f"{states.run_again(asked.state, asked.catalog)} goes on from there"
