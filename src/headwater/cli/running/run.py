"""`headwater run`: submit the statements of a file, then run the engine until it is stopped.

The first Ctrl-C (or TERM signal) stops it after the current steps, the second immediately. Neither loses
anything: the next run repeats what a step has not committed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

import typer

from headwater.cli import state as states
from headwater.cli.cql_files import EXIT_FAILED, CqlSource, fail
from headwater.cli.output.formats import pluralize
from headwater.cli.output.listing import format_names
from headwater.cli.output.live_view import show_progress
from headwater.cli.running.log_rotation import MAX_BYTES, MAX_ROTATED_FILES, rotate_periodically
from headwater.cli.statements import execute_source
from headwater.cql import CreateStream, CreateTable
from headwater.errors import CatalogError, HeadwaterError, RuntimeFailure
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import Catalog
from headwater.runtime.durability import owner_only_opener
from headwater.runtime.inspect.status import Observer, QueryView
from headwater.runtime.leases import is_dead_process, lease_holders, process_name, run_periodically
from headwater.runtime.metrics.sharing import describe_sharing
from headwater.runtime.settings import SettingValue
from headwater.runtime.spark.cluster import check_master
from headwater.runtime.submit.checks import check_script
from headwater.runtime.submit.scripts import StatementOutcome

if TYPE_CHECKING:
    from headwater.runtime.engine.engine import Engine

INTERRUPTED = 130
LEASE_SECONDS = 60.0
# The live view hides the cursor, and a hard exit gives Rich no chance to show it again.
SHOW_CURSOR = b"\x1b[?25h" if sys.stderr.isatty() else b""
ENGINE_LOG = "engine.log"
SPARK_LOG = "spark.log"


@dataclass(frozen=True)
class RunOptions:
    """The command line of `headwater run`."""

    state: Path
    catalog: str | None
    until_idle: bool
    patience: float
    master: str
    quiet: bool
    overrides: Mapping[str, SettingValue] = field(default_factory=dict)
    memory: str | None = None
    allow_paths: Sequence[Path] = ()
    spark_settings: Mapping[str, str] = field(default_factory=dict)

    def echo(self, message: str) -> None:
        if not self.quiet:
            typer.echo(message)


def run(source: CqlSource | None, options: RunOptions) -> None:
    """Run a state, after submitting the statements of a file if there is one; sets the exit status."""
    with states.report_failures(source):
        _check_runnable(source, options)
        opened_state = open_state(
            options.state,
            catalog=options.catalog,
            master=options.master,
            settings=options.spark_settings,
            memory=options.memory,
            allow_paths=options.allow_paths,
        )
        with (
            opened_state as headwater,
            exclusive_run(headwater.catalog),
            log_to_files(options.state),
        ):
            if source is not None:
                _execute_source(headwater, source, options)
            _warn_of_missing_files(headwater)
            try:
                with _interruptible_start():
                    engine = _start_engine(headwater, options)
            except KeyboardInterrupt:
                typer.echo(f"\nheadwater: stopped; {_resume_hint(options)}", err=True)
                raise typer.Exit(INTERRUPTED) from None
            _run_engine(engine, options)


def _check_runnable(source: CqlSource | None, options: RunOptions) -> None:
    """End the command before it creates a state, if it cannot run."""
    check_master(options.master)
    if states.state_exists(options.state, options.catalog):
        return
    if source is None:
        states.fail_without_state(options.state, options.catalog)
    check_script(source.text)  # raises on a mistake, so that no empty state is left behind


# ---- statements


def _execute_source(headwater: Headwater, source: CqlSource, options: RunOptions) -> None:
    done = execute_source(headwater.catalog, headwater.definitions, source)
    options.echo(summarize_outcomes(source, done))


def summarize_outcomes(source: CqlSource, done: list[StatementOutcome]) -> str:
    """`FILE.cql: 2 streams, 3 queries`: the statements that changed something."""
    new = [outcome for outcome in done if outcome.new]
    if not new:
        return f"{source.name}: no new statements; resuming"
    kinds = Counter(type(outcome.statement).__name__ for outcome in new)
    nouns = {"CreateStream": "stream", "CreateTable": "table", "CreateQuery": "query"}
    counts = [pluralize(kinds[kind], noun) for kind, noun in nouns.items() if kinds[kind]]
    others = len(new) - sum(kinds[kind] for kind in nouns)
    counts += [pluralize(others, "other statement")] if others else []
    return f"{source.name}: {', '.join(counts)}"


def _warn_of_missing_files(headwater: Headwater) -> None:
    declared: list[CreateStream | CreateTable] = [
        *headwater.definitions.streams.values(),
        *headwater.definitions.tables.values(),
    ]
    for declaration in declared:
        path = declaration.source.get("path") if declaration.source else None
        # A path with a scheme is refused elsewhere.
        if isinstance(path, str) and "://" not in path and not _path_exists(Path(path)):
            name = (
                declaration.stream.name
                if isinstance(declaration, CreateStream)
                else declaration.table.name
            )
            typer.echo(f"headwater: {name} reads {path}, which does not exist (yet)", err=True)


def _path_exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


# ---- other processes


@contextmanager
def exclusive_run(catalog: Catalog) -> Iterator[None]:
    """Hold the lease of this state; ends the command if another process is running it.

    Leases of dead processes of this machine are released.
    """
    for lease in catalog.leases():
        if is_dead_process(lease.holder):
            catalog.release(lease)
    for holder, left in lease_holders(catalog.leases()).items():
        fail(f"{holder} is already running this state: stop it, or wait {left:.0f} s if it is dead")
    with hold_lease(catalog, "run"):
        yield


@contextmanager
def hold_lease(catalog: Catalog, name: str) -> Iterator[None]:
    """Hold a lease until the block ends; ends the command if another process has it.

    It is renewed in the background, because a step may take longer than a lease lasts.
    """
    for lease in catalog.leases():
        if lease.name == name and is_dead_process(lease.holder):
            catalog.release(lease)
    own_lease = catalog.acquire(name, process_name(), LEASE_SECONDS)
    if own_lease is None:
        fail(f"another process has just acquired the lease {name} of this state: stop it first")

    def renew() -> None:
        # The next renewal tries again. If the lease expires meanwhile, commits under it are refused.
        with suppress(HeadwaterError):
            catalog.renew(own_lease, LEASE_SECONDS)

    catalog.record_event("engine started", name, process=process_name())
    try:
        # Two renewals in a row may fail before the lease expires.
        with run_periodically(renew, LEASE_SECONDS / 3, name):
            yield
    finally:
        # Without the catalog the lease expires by itself; what ended the block is to be raised, not this.
        with suppress(CatalogError):
            catalog.record_event("engine stopped", name, process=process_name())
        with suppress(CatalogError):
            catalog.release(own_lease)


# ---- logs


@contextmanager
def log_to_files(state: Path) -> Iterator[None]:
    """Log to a file in full, and the engine's own messages to standard error in short."""
    file_handler = _PrivateFileHandler(
        state / ENGINE_LOG, maxBytes=MAX_BYTES, backupCount=MAX_ROTATED_FILES, delay=True
    )
    file_handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    stderr_handler = logging.StreamHandler(sys.stderr)
    stderr_handler.setFormatter(_ShortFormatter())
    # The file gets the messages of libraries too, the terminal only those of Headwater.
    handlers = (
        (logging.getLogger(), file_handler),
        (logging.getLogger("headwater"), stderr_handler),
    )
    for logger, handler in handlers:
        logger.addHandler(handler)
    try:
        with rotate_periodically([state / SPARK_LOG]):
            yield
    finally:
        for logger, handler in handlers:
            logger.removeHandler(handler)
            handler.close()


class _PrivateFileHandler(RotatingFileHandler):
    """Writes to files that only their owner can read, like all of a state."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=owner_only_opener)


class _ShortFormatter(logging.Formatter):
    """One line, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {str(error).splitlines()[0]}" if error and str(error) else ""
        return f"headwater: {record.getMessage()}{why}"


# ---- the engine


def _start_engine(headwater: Headwater, options: RunOptions) -> Engine:
    """Create the engine with its Spark session."""
    from headwater.cli.running.spark import start_spark

    options.echo(f"starting Spark on {options.master}")
    start = partial(start_spark, options.state, options.master, headwater.session_settings)
    return headwater.start_engine(start(), start, options.overrides)


def _run_engine(engine: Engine, options: RunOptions) -> None:
    started = time.monotonic()
    observer = Observer(engine.catalog)
    try:
        with handle_signals(engine.stop_requested), show_progress(observer, options.quiet):
            engine.run(options.until_idle, patience=options.patience)
    except HeadwaterError:
        engine.release()
        if not engine.stop_requested.is_set():
            raise
        # A Ctrl-C reaches Java as well, so a step may fail on the way out; the next run repeats it.
    except Exception as error:
        engine.release()
        logging.getLogger("headwater").exception("the engine failed")
        raise RuntimeFailure(
            f"the engine failed: {str(error).splitlines()[0] if str(error) else type(error)}; "
            f"details are in {options.state / ENGINE_LOG}"
        ) from error
    engine.release()
    try:
        _report_outcome(engine, observer, options, time.monotonic() - started)
    finally:
        with suppress(Exception):  # Java may have exited already
            engine.spark.stop()


@contextmanager
def _interruptible_start() -> Iterator[None]:
    """Raise KeyboardInterrupt on INT or TERM while Spark starts, even if a library swallows it."""
    interrupted = Event()

    def handle(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in watched]
    try:
        yield
        if interrupted.is_set():
            raise KeyboardInterrupt
    finally:
        for number, handler in zip(watched, before, strict=True):
            signal.signal(number, handler)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a message is not just py4j reporting that Java, which got the signal too, has gone."""
    return "Exception while sending command" not in record.getMessage()


@contextmanager
def handle_signals(stop: Event) -> Iterator[None]:
    """Set `stop` on the first INT or TERM, and exit immediately on the second.

    A thread that waits for Spark cannot be interrupted, hence the hard exit. The leases that are left
    belong to a dead process, so the next run releases them.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        # os.write, because a signal may interrupt a print, and buffered streams are not reentrant.
        if stop.is_set():
            os.write(2, SHOW_CURSOR + b"\nheadwater: stopped immediately; the next run resumes\n")
            os._exit(INTERRUPTED)
        stop.set()
        logging.getLogger().addFilter(_is_ours)
        os.write(2, b"\nheadwater: stopping after this step; interrupt again to stop immediately\n")

    watched = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in watched]
    try:
        yield
    finally:
        for number, handler in zip(watched, before, strict=True):
            signal.signal(number, handler)


def _report_outcome(engine: Engine, observer: Observer, options: RunOptions, spent: float) -> None:
    """Say what was done and what is left; ends the command if a unit cannot go on."""
    now = observer.overview()
    rows = sum(view.rows for view in now.streams)
    out = sum(view.rows for view in now.queries)
    options.echo(
        f"{'stopped' if engine.stop_requested.is_set() else 'done'} after {spent:.1f} s: "
        f"{pluralize(rows, 'row')} from {pluralize(len(now.streams), 'stream')}, "
        f"{pluralize(engine.steps, 'step')} of {pluralize(len(now.units), 'unit')}, "
        f"{pluralize(out, 'row')} from {pluralize(len(now.queries), 'query')}"
    )
    for text in describe_sharing(engine.record_sharing()):
        options.echo(text)
    if now.backlog or now.units_with_more_due:
        due = (
            f"instants of {pluralize(now.units_with_more_due, 'unit')}"
            if now.units_with_more_due
            else ""
        )
        rows_left = pluralize(now.backlog, "row") if now.backlog else ""
        left = " and ".join(phrase for phrase in (rows_left, due) if phrase)
        options.echo(f"{left} left to work on; {_resume_hint(options)}")
    elif engine.stop_requested.is_set() and not now.undelivered:
        options.echo(f"nothing is left to work on; {_resume_hint(options)}")
    if now.undelivered:
        options.echo(
            f"{pluralize(now.undelivered, 'row')} not delivered yet; {_resume_hint(options)}"
        )
    has_failing_sink = report_failing_sinks(now.queries)
    failed = [view for view in now.units if view.row.error]
    for view in failed:
        typer.echo(
            f"headwater: unit {view.row.id} ({format_names(view.queries)}) is {view.row.state} after "
            f"{pluralize(view.row.retries, 'failure')}: {view.row.error}",
            err=True,
        )
    problems = engine.ingestion.problems()
    for problem in problems:
        typer.echo(f"headwater: {problem}", err=True)
    if failed or problems or has_failing_sink:
        raise typer.Exit(EXIT_FAILED)


def report_failing_sinks(queries: Iterable[QueryView]) -> bool:
    """Say which sinks failed, and why; returns whether there is one."""
    failing = [query for query in queries if query.sink_error]
    for query in failing:
        typer.echo(
            f"headwater: the sink of {query.row.spelled} failed: {query.sink_error}", err=True
        )
    return bool(failing)


def _resume_hint(options: RunOptions) -> str:
    return f"resume with {states.run_command_line(options.state, options.catalog)}"
