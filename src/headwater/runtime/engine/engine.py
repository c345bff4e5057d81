"""The engine: takes in what sources have, lets units step, and commits both.

A step reads segments, writes one file, and ends in one catalog transaction that registers the file
and moves the cursors, guarded by the lease of whoever ran it. Killed anywhere, it leaves at most a
file that nothing names, and the next run does the same step again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import Any

from pyspark.sql import SparkSession

from headwater.cost.operators import CostTable, read_costs
from headwater.errors import (
    CatalogError,
    CatalogUnavailable,
    CommitConflict,
    DamagedFile,
    LeaseLost,
    SparkEnded,
)
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    QueryRow,
    StreamRow,
    UnitRow,
    ingest_owner,
    is_in_future,
    log_copy,
    panes_log,
    partial_join_name,
    stream_log,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile import FOREVER, Plan
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.connectors.sender import SinkSender
from headwater.runtime.engine.isolation import CulpritFinder
from headwater.runtime.engine.round import PATIENCE_SECONDS, Round
from headwater.runtime.engine.scheduler import SCHEDULE, Scheduler, Turns
from headwater.runtime.engine.step import Step
from headwater.runtime.engine.stepper import Stepper
from headwater.runtime.engine.unit import Unit
from headwater.runtime.ingest.ingestion import Ingestion
from headwater.runtime.leases import ProcessLeases, process_name
from headwater.runtime.lifecycle import (
    finish_queries,
    input_streams,
    is_stopped_for_good,
    plannable_queries,
    settle_ends,
)
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.maintenance.result_logs import (
    compact_results,
    expire_results,
    retention_seconds,
)
from headwater.runtime.maintenance.stream_logs import (
    LogReader,
    RetainedLog,
    compact_log,
    readers_of,
    remove_expired,
    sweep_orphans,
)
from headwater.runtime.metrics.step_meter import NO_MEASUREMENTS, StepMeasurements, StepMeter
from headwater.runtime.results.sink_progress import sink_owner
from headwater.runtime.results.subscribers import SUBSCRIBERS, emits_for
from headwater.runtime.settings import Settings, SettingValue, effective_settings
from headwater.runtime.sites.local_site import LocalSite
from headwater.runtime.spark.errors import (
    describe_error,
    is_damaged_file,
    is_disk_full,
    raise_if_spark_ended,
)
from headwater.runtime.spark.session import discard_session
from headwater.runtime.storage import segment_files
from headwater.runtime.storage.append import stream_folder
from headwater.schedule import find_policy

log = logging.getLogger("headwater")

COSTS_FILE = "costs.toml"
"""What operators cost, in the state directory, if `headwater calibrate` measured it."""
TIDY_SECONDS = 30.0
MAX_RETRY_SECONDS = 60.0
COLD_PATIENCE = 20.0
"""Seconds that units wait for streams in the first round, in which Spark is cold and all is slow."""
ISOLATE_AFTER_FAILURES = 2
"""After so many failures in a row, it is found out which of its queries make a unit fail."""
SERIAL_AFTER_SPARK_ENDS = 5
"""When Java has ended so often with several things at work, they are done one after the other."""
SPARK_ENDED_ERROR = "Java ended at work on it, as if out of memory: more is in spark.log"
"""The error of a unit that was at work when Spark ended: it is to step alone."""
MAX_DROPPED_KEPT = 1_000
"""How many dropped queries and units are remembered."""


@dataclass
class Engine:
    """Runs the streams and units of one catalog in one Spark session."""

    catalog: Catalog
    state_dir: Path
    spark: SparkSession
    settings: Settings = field(default_factory=Settings)
    overrides: Mapping[str, SettingValue] = field(default_factory=dict)
    """Limits that `SET` does not change in this run."""
    holder: str = field(default_factory=process_name)
    at_point: Callable[[str], None] = lambda point: None
    """Called at each named point of a step, so that a test can stop the process there."""
    clock: Callable[[], float] = time.time
    """The time of day, by which failed steps are tried again."""
    site: LocalSite | None = None
    """The site that this process runs, if there are several; else all there is to do is done here."""
    restart_spark: Callable[[], SparkSession] | None = None
    """Starts Spark again after it has ended; without it, a run ends too."""

    def __post_init__(self) -> None:
        self.definitions = Definitions(self.catalog)
        self.unit_planner = UnitPlanner(self.definitions)
        self.meter = StepMeter(self.catalog)
        self.scheduler = Scheduler(self.catalog)
        self.stepper = Stepper(
            self.catalog,
            self.store,
            self.spark,
            self.definitions,
            self.settings,
            self._at_point,
            self.meter,
            read_state_costs(self.state_dir),
            (lambda log: log) if self.site is None else self.site.local_log,
        )
        self.leases = ProcessLeases(self.catalog, self.holder, self.settings.lease_seconds)
        self._units: dict[str, Unit] = {}
        self.ingestion = Ingestion(
            self.catalog,
            self.definitions,
            self.spark,
            self.leases,
            self.store,
            self.settings,
            self._at_point,
            self.site,
            self.clock,
        )
        self.sinks = SinkSender(
            self.catalog, self.definitions, self.spark, self._at_point, clock=self.clock
        )
        self._round_started_at = 0.0
        self._patience = COLD_PATIENCE
        self.waiting_for: dict[str, str] = {}
        self._base_settings = self.settings
        self._active_work: set[str] = set()
        self._suspect_work: frozenset[str] = frozenset()
        self._work_lock = Lock()
        self._suspect_streams: set[str] = set()
        self._spark_ends = 0
        self.stop_requested = Event()
        self.steps = 0
        """How many steps were committed since the engine was made."""
        self._busy_at = time.monotonic()

    def _at_point(self, point: str) -> None:
        self.at_point(point)

    @property
    def store(self) -> Path:
        """Where segments are written."""
        return self.state_dir if self.site is None else self.site.store

    def _is_mine(self, owner: str) -> bool:
        """Whether some work is this process's to do, by the name of its lease."""
        return self.site is None or self.site.owns(owner)

    # ---- the loop

    def stop(self) -> None:
        """Begin nothing more: `run` returns after what is under way. Callable from any thread."""
        self.stop_requested.set()

    @property
    def idle_seconds(self) -> float:
        """How long ago the last round ended that had anything to do."""
        return time.monotonic() - self._busy_at

    def run(
        self,
        until_idle: bool = False,
        interval: float | None = None,
        stopping: Callable[[], bool] = lambda: False,
        on_tick: Callable[[], None] = lambda: None,
        patience: float = 0.0,
    ) -> None:
        """Run rounds until `stop` is called or `stopping` says so.

        With `until_idle` it also returns when nothing is left to do, after ending the finite sources;
        `patience` is how many idle seconds pass before that is considered. An unreachable catalog is
        waited for, and Spark is started again after it has ended; raises RuntimeFailure if it cannot be.
        """

        def is_stopping() -> bool:
            return self.stop_requested.is_set() or stopping()

        waits_for_more = patience > 0
        self._tidied_at = self._busy_at = time.monotonic()
        seen = nullcontext() if self.site is None else self.site.send_heartbeats()
        with self.leases.keep_alive(), seen:
            while not is_stopping():
                started = time.monotonic()
                worked = False
                try:
                    worked = self.tick()
                    on_tick()
                    self._tidy_if_due()
                    if self.site is not None and not worked:
                        worked = self._idle(self.site)
                    waits_for_more = waits_for_more and self.idle_seconds <= patience
                    may_end = until_idle and not worked and not waits_for_more
                    if may_end and not self._may_get_work():
                        worked = self.end_finite_streams()
                        if not worked:
                            return
                    self._report_trouble("catalog", "")
                except CatalogUnavailable as error:
                    self._report_trouble("catalog", str(error))
                except SparkEnded as error:
                    if is_stopping():  # the signal that stops us may have gone to Java too
                        raise
                    self._suspect_active_work(error)
                    worked = True
                if not worked:
                    pause = self.settings.interval if interval is None else interval
                    _wait_until(started + pause, is_stopping)

    def _idle(self, site: LocalSite) -> bool:
        """Nothing is to be done at present: end what has no more, if that is wanted, and give back what
        other sites may wait for. Returns whether anything changed."""
        if site.ends_finite_streams and not self._may_get_work() and self.end_finite_streams():
            return True
        self.leases.release_all()
        return False

    def _report_trouble(self, about: str, trouble: str) -> None:
        """Log what keeps the engine from working when it begins, and not again at every look."""
        if trouble and trouble != self.waiting_for.get(about):
            log.warning("%s; waiting", trouble)
        self.waiting_for[about] = trouble

    def _tidy_if_due(self) -> None:
        if time.monotonic() - self._tidied_at <= TIDY_SECONDS:
            return
        self._tidied_at = time.monotonic()
        try:
            self.tidy()
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.leases.mark_lost("housekeeping")
        except Exception:
            log.exception("housekeeping failed, and is tried again")

    def _may_get_work(self) -> bool:
        """Whether there may be more to do without any new input: a source is to bring more,
        another process is at work, or what failed is to be tried again."""
        if (
            self.ingestion.expects_more()
            or self.sinks.has_undelivered()
            or self._others_are_working()
        ):
            return True
        return any(
            row.state == "running"
            and is_in_future(row.not_before, self._round_started_at, MAX_RETRY_SECONDS)
            and row.retries <= self.settings.retries
            for row in self.catalog.units()
            if self._is_mine(f"unit:{row.id}")
        )

    def _others_are_working(self) -> bool:
        """Whether another process holds a stream or unit; what is held here is given up then, as
        the other may be waiting for it."""
        others = self.leases.pop_contended()
        name, holder = min(others.items(), default=("", ""))
        self._report_trouble("others", f"{holder} works on {name}" if others else "")
        if others:
            self.leases.release_all()
            time.sleep(random.random() / 10)
        return bool(others)

    def tick(self) -> bool:
        """One round: every stream takes in while every unit steps, then every sink gets what is new.
        Returns whether anything was done."""
        self._round_started_at = self.clock()
        self.settings = effective_settings(
            self._base_settings, self.catalog.options(), self.overrides
        )
        self.stepper = replace(self.stepper, settings=self.settings)
        self.ingestion.settings = self.settings
        if self.site is not None and self.site.refresh():
            self.leases.release_all()  # of what went to others
        streams = self.ingestion.refresh()
        settle_ends(self.catalog)
        self.ingestion.reopen_streams()
        worked = self._try_suspects() | self._run_round(streams)
        ready = [partial(self.deliver, query) for query in self.sinks.ready_queries(self._is_mine)]
        worked |= Round(ready).run(self.settings.max_concurrency)
        if worked:
            self._busy_at = time.monotonic()
        return worked

    def _run_round(self, streams: Sequence[str]) -> bool:
        """Let streams take in, and units step in the order that the policy gives them."""
        rows = {
            row.id: row
            for row in self.catalog.units()
            if row.state == "running"
            if not is_in_future(row.not_before, self._round_started_at, MAX_RETRY_SECONDS)
            if self._is_mine(f"unit:{row.id}")
        }
        turns = Turns(
            self.scheduler,
            find_policy(self.settings.scheduler),
            self.settings.max_wait_seconds,
            rows,
            self.meter.estimate,
        )

        def step(unit: str) -> bool:
            row = self.catalog.unit(unit)
            if row is None or row.state != "running":
                return False
            if is_in_future(row.not_before, self.clock(), MAX_RETRY_SECONDS):
                return False
            worked = self._try_step(row)
            if worked:
                turns.note_worked(unit)
            return worked

        before = self.scheduler.last_choice
        jobs = [partial(self.ingest, name) for name in streams]
        if self.site is not None:
            jobs += [partial(self._try_ship_log, self.site, log) for log in self.site.incoming_logs]
        round = Round(jobs, set(rows), turns.choose, step, patience=self._patience)
        self._patience = PATIENCE_SECONDS
        worked = round.run(
            self.settings.max_concurrency if self._spark_ends < SERIAL_AFTER_SPARK_ENDS else 1
        )
        if self.scheduler.last_choice is not None and self.scheduler.last_choice is not before:
            self.catalog.set_profile(SCHEDULE, self.scheduler.last_choice.as_data())
        return worked

    def ingest(self, name: str) -> bool:
        """Let a stream take in one batch; returns whether there was one."""
        if self.stop_requested.is_set():
            return False
        with self._track_work(ingest_owner(name)):
            return self.ingestion.try_ingest(name)

    def end_finite_streams(self) -> bool:
        """Declare ended what cannot bring more; returns whether that changed anything."""
        return not self.stop_requested.is_set() and self.ingestion.end_finite_streams()

    def deliver(self, query: str) -> bool:
        """Send a query's new results to its sink; returns whether there were any."""
        if self.stop_requested.is_set():
            return False
        owner = sink_owner(query)
        lease = self._acquire_lease(owner)
        try:
            return lease is not None and self.sinks.deliver(query, lease)
        except LeaseLost:
            self.leases.mark_lost(owner)
            return False

    def tidy(self) -> None:
        """Drop what is no longer needed, merge what is small, sweep what nobody names."""
        lease = self._acquire_lease(
            "housekeeping" if self.site is None else f"housekeeping:{self.site.name}"
        )
        if lease is None:
            return
        readers = [
            LogReader(self._current_unit(row).plan, self._reader_cursors(row))
            for row in self.catalog.units()
            if not is_stopped_for_good(self.catalog, row)
        ]
        logs = self._retained_logs()
        remove_expired(self.catalog, logs, readers, lease, self.at_point)
        for retained in logs:
            own_readers = readers_of(stream_log(retained.stream.name), readers)
            try:
                compact_log(self.catalog, retained, own_readers, lease, self.at_point)
                self._report_trouble(retained.log, "")
            except DamagedFile as error:  # the units that need it park; other logs are looked after
                self._report_trouble(retained.log, str(error))
        self._tidy_results(lease)
        sweep_orphans(self.catalog, self.store)
        self.catalog.forget_dropped(MAX_DROPPED_KEPT)
        self._forget_dropped()

    def _tidy_results(self, lease: Lease) -> None:
        """Merge the results of the units that are worked on here, and drop those that were kept long
        enough; only units with many segments, or a limit on their time, are looked at."""
        usual = self.settings.results_keep or None
        crowded = self.catalog.fragmented_logs("unit", stream_logs.MIN_COMPACTED_SEGMENTS)
        some_expire = usual is not None or any(q.keep is not None for q in self.catalog.queries())
        for row in self.catalog.units():
            if not self._is_mine(unit_log(row.id)):
                continue
            keep = (
                retention_seconds(self.catalog.subscribers(row.id), usual) if some_expire else None
            )
            if unit_log(row.id) in crowded:
                folder = self.store / "log" / "units" / row.id
                try:
                    compact_results(self.catalog, row, folder, lease, keep, self.at_point)
                    self._report_trouble(unit_log(row.id), "")
                except (
                    DamagedFile
                ) as error:  # whoever reads it is told; other logs are looked after
                    self._report_trouble(unit_log(row.id), str(error))
            if keep is not None:
                expire_results(self.catalog, row, lease, keep, time.time(), self.at_point)

    def _retained_logs(self) -> list[RetainedLog]:
        """The logs of streams that are looked after here: those taken in here, and copies."""
        rows = self.catalog.streams()
        mine = {row.name for row in self.ingestion.local_streams()}
        logs = [
            RetainedLog(row, stream_log(row.name), stream_folder(self.store, row.name))
            for row in rows
            if row.name in mine
        ]
        copied = [] if self.site is None else self.site.incoming_logs
        for row in rows:
            if self.site is not None and stream_log(row.name) in copied:
                copy = self.site.local_log(stream_log(row.name))
                logs.append(RetainedLog(row, copy, stream_folder(self.store, row.name)))
        return logs

    def _reader_cursors(self, row: UnitRow) -> dict[str, Any]:
        """How far a unit has come in its inputs, and those of the units that it reads."""
        upstream_ids = [name.partition(":")[2] for name in row.inputs if name.startswith("unit:")]
        cursors: dict[str, Any] = {}
        for unit_id in upstream_ids:
            cursors |= self.catalog.cursors(unit_id)
        return cursors | self.catalog.cursors(row.id)

    def _forget_dropped(self) -> None:
        """Keep nothing in memory of units and streams that are gone."""
        units = {row.id for row in self.catalog.units()}
        for unit in set(self._units) - units:
            del self._units[unit]
        self.meter.forget_all_but(units)
        self.scheduler.forget_all_but(units)
        self.unit_planner.forget_all_but({row.digest for row in self.catalog.queries()})
        self.leases.release_where(lambda name: name.startswith("unit:") and name[5:] not in units)

    # ---- copies of streams

    def _try_ship_log(self, site: LocalSite, log: str) -> bool:
        """Copy what is new of a log to this site; what fails is told, and tried again."""
        if self.stop_requested.is_set():
            return False
        owner = log_copy(log, site.name)
        try:
            lease = self._acquire_lease(owner)
            return lease is not None and site.ship_log(log, lease, self._at_point)
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.leases.mark_lost(owner)
            return False
        except (OSError, CatalogError, DamagedFile) as error:
            self._report_trouble(owner, f"{log} cannot be copied to {site.name}: {error}")
            return False

    # ---- units

    def _try_step(self, row: UnitRow) -> bool:
        """Step a unit; a failure is noted and tried again later, and parks it in the end."""
        if self.stop_requested.is_set():
            return False
        with self._track_work(unit_log(row.id)):
            try:
                lease = self._acquire_lease(f"unit:{row.id}")
                if lease is None:
                    return False  # whoever works on it knows when it is done
                if self.site is not None:
                    if not self.site.has_inputs(row):
                        return False
                    self.site.adopt_segments(f"unit:{row.id}", panes_log(row.id), lease)
                unit = self._current_unit(row)
                streams = input_streams(self.catalog, row)
                worked = self.step(unit)
                with self._work_lock:
                    self.steps += worked
                self._finish_queries(unit, streams, idle=not worked)
                return worked
            except CatalogUnavailable:
                raise
            except CommitConflict as error:
                log.info("unit %s begins its step again: %s", row.id, error)
                return True
            except LeaseLost as error:
                log.info("unit %s: %s", row.id, error)
                self.leases.mark_lost(f"unit:{row.id}")
                return False
            except Exception as error:
                raise_if_spark_ended(self.spark, error)
                return self._handle_failure(row, error)

    def _handle_failure(self, row: UnitRow, error: Exception) -> bool:
        """Note a failure and when to try again, or that it is not to be."""
        current = self.catalog.unit(row.id)
        if current is None or current.state == "dropped":
            return False
        log.error("unit %s failed", row.id, exc_info=error)
        message = describe_error(error)
        retries = row.retries + 1
        if is_damaged_file(error):  # no query is to blame, and trying again mends nothing
            self.catalog.park_unit(row.id, message, retries)
            return False
        last = retries > self.settings.retries and not is_disk_full(error)
        if (last or retries == ISOLATE_AFTER_FAILURES) and not is_disk_full(error):
            with self._tolerate_errors(row):
                is_isolated = self._isolate_culprits(current, retries)
                if is_isolated:
                    return True
                last &= is_isolated is not None or retries > self.settings.retries + 1
        if last:
            self.catalog.park_unit(row.id, message, retries)
        else:
            self._retry_later(row.id, message, retries)
        return False

    def _retry_later(self, unit_id: str, message: str, retries: int) -> None:
        """Note a failure, and that the unit waits before it is tried again."""
        wait = min(self.settings.backoff * 2 ** (retries - 1), MAX_RETRY_SECONDS)
        self.catalog.set_unit_state(
            unit_id, "running", error=message, retries=retries, not_before=self.clock() + wait
        )

    # ---- queries that make their unit fail

    @contextmanager
    def _tolerate_errors(self, row: UnitRow) -> Iterator[None]:
        """What goes wrong while culprits are looked for is told; the unit is tried again as it is."""
        try:
            yield
        except (CatalogUnavailable, SparkEnded):
            raise
        except LeaseLost as error:
            log.info("unit %s: %s", row.id, error)
            self.leases.mark_lost(unit_log(row.id))
        except Exception:
            log.exception("the queries of unit %s cannot be set apart", row.id)

    def _isolate_culprits(self, row: UnitRow, retries: int, why: str | None = None) -> bool | None:
        """Give a unit of their own to the queries that make a unit fail, and let the others go on from
        where they are; whether that was possible, None if none of them fails any more. `why` is
        known already of all together.

        Queries that fail only together are divided.
        """
        lease = self._acquire_lease(unit_log(row.id))
        if lease is None:
            return False
        self._units.pop(row.id, None)
        row, queries_of_unit = self._consistent_queries(row)
        queries = plannable_queries(queries_of_unit, input_streams(self.catalog, row))
        finder = CulpritFinder(
            self.catalog,
            self.store,
            lambda: self.stepper,
            self._plan_unit,
            self._describe_trial_error,
        )
        culprits = finder.find_culprits(row, queries, why)
        if culprits is None:
            return None
        digests = list(dict.fromkeys(query.digest for query in queries if not query.is_hidden))
        groups = [[digest] for digest in culprits] or [digests[: len(digests) // 2]]
        if len(culprits) == len({query.digest for query in queries}) or not any(groups):
            return False
        for group in groups:
            names = [query.name for query in queries if query.digest in group]
            new = finder.move_queries(lease, row, names)
            self.at_point("unit: moved")
            row = replace(row, version=row.version + 1)
            if culprits:
                log.error("unit %s fails by %s, now in unit %s", row.id, ", ".join(names), new)
                self._park_or_retry(new, culprits[group[0]], retries, why is not None)
        self.catalog.set_unit_state(row.id, "running")
        return True

    def _park_or_retry(self, unit_id: str, message: str, retries: int, deadly: bool) -> None:
        """Park a unit whose query is known to fail, unless it is to be tried some more."""
        if deadly or retries > self.settings.retries:
            self.catalog.park_unit(unit_id, message, retries)
        else:
            self._retry_later(unit_id, message, retries)

    def _describe_trial_error(self, error: Exception) -> str:
        """What is wrong with a step on trial; Spark that it ended is started again, if nothing else
        was at work."""
        if is_disk_full(error):
            raise error
        try:
            raise_if_spark_ended(self.spark, error)
        except SparkEnded as ended:
            if self._active_work:
                raise
            self._replace_spark(ended)
            return SPARK_ENDED_ERROR
        return describe_error(error)

    # ---- Spark that ends

    @contextmanager
    def _track_work(self, owner: str) -> Iterator[None]:
        """Know what is at work, so that all of it is suspected if Spark ends meanwhile."""
        with self._work_lock:
            self._active_work.add(owner)
        try:
            yield
        except SparkEnded:
            with self._work_lock:
                self._suspect_work |= self._active_work
            raise
        finally:
            with self._work_lock:
                self._active_work.discard(owner)

    def _replace_spark(self, error: SparkEnded) -> None:
        """A new Spark in the place of one that has ended; raises the error if there is to be none."""
        if self.restart_spark is None:
            raise error
        log.error("%s", error.args[0].replace("run it again to go on", "it is started again"))
        self.catalog.record_event("spark ended", self.holder, error=str(error))
        discard_session(self.spark)
        self.spark = self.restart_spark()
        self.stepper = replace(self.stepper, spark=self.spark)
        self.ingestion.spark = self.sinks.spark = self.spark
        self._units.clear()
        self._patience = COLD_PATIENCE

    def _suspect_active_work(self, error: SparkEnded) -> None:
        """Note what was at work when Spark ended, and start Spark again: each of it is tried alone
        before all else goes on."""
        witnessed, self._suspect_work = self._suspect_work, frozenset()
        self._spark_ends += len(witnessed) > 1
        for owner in sorted(witnessed):
            kind, _, name = owner.partition(":")
            row = self.catalog.unit(name) if kind == "unit" else None
            if kind != "unit":
                self._suspect_streams.add(name)
            elif row is not None and row.state == "running":
                self.catalog.set_unit_state(
                    name, "running", error=SPARK_ENDED_ERROR, retries=row.retries + 1
                )
        self._replace_spark(error)

    def _try_suspects(self) -> bool:
        """Let each stream and unit work alone that was at work when Spark ended; if it ends again, that
        one is to blame. Returns whether there was any."""
        suspects = [
            row
            for row in self.catalog.units()
            if row.state == "running"
            and row.error == SPARK_ENDED_ERROR
            and self._is_mine(f"unit:{row.id}")
        ]
        for row in suspects:
            try:
                self._try_step(row)
                self._clear_suspicion(row)
            except SparkEnded as error:
                if self.restart_spark is None:  # whoever starts the engine again has it run on
                    self.catalog.park_unit(row.id, SPARK_ENDED_ERROR, row.retries + 1)
                self._replace_spark_after_blame(error)
                with self._tolerate_errors(row):
                    if self._isolate_culprits(row, row.retries + 1, SPARK_ENDED_ERROR):
                        continue
                self.catalog.park_unit(row.id, SPARK_ENDED_ERROR, row.retries + 1)
        streams, self._suspect_streams = self._suspect_streams, set()
        for name in streams & self.definitions.streams.keys():
            try:
                self.ingest(name)
            except SparkEnded as error:
                self._replace_spark_after_blame(error)
                self.ingestion.abandon(name, SPARK_ENDED_ERROR)
        return bool(suspects or streams)

    def _replace_spark_after_blame(self, error: SparkEnded) -> None:
        """Start Spark again where it is known who is to blame."""
        self._suspect_work = frozenset()
        self._replace_spark(error)

    def _clear_suspicion(self, row: UnitRow) -> None:
        """A unit that stepped, or had nothing to do, and did no harm is not suspected any more."""
        current = self.catalog.unit(row.id)
        if (
            current is not None
            and current.state == "running"
            and current.error == SPARK_ENDED_ERROR
        ):
            self.catalog.set_unit_state(row.id, "running")

    def _finish_queries(self, unit: Unit, streams: Sequence[StreamRow], idle: bool) -> None:
        """Finish the queries of a unit that has told all of them."""
        on_arrival = unit.plan.emits_on_arrival
        last_instant = FOREVER if on_arrival else self.catalog.cursor(unit.row.id, "instant")
        finish_queries(
            self.catalog, unit.row, unit.served_keys, streams, last_instant, idle, self._emits_for
        )

    def _emits_for(self, row: UnitRow, query: str) -> bool:
        """Whether a unit tells the rows of a query by now."""
        query_row = self.catalog.query(query)
        return query_row is not None and emits_for(self.catalog, row, query_row.result_key)

    def _current_unit(self, row: UnitRow) -> Unit:
        unit = self._units.get(row.id)
        if unit is None or unit.row.version != row.version:
            row, queries_of_unit = self._consistent_queries(row)
            queries = plannable_queries(queries_of_unit, input_streams(self.catalog, row))
            before = None if unit is None else unit.plan
            unit = self._units[row.id] = self._plan_unit(row, queries, before)
        unit.row = row
        return unit

    def _plan_unit(
        self, row: UnitRow, queries: Sequence[QueryRow], before: Plan | None = None
    ) -> Unit:
        """A unit as it runs for these queries."""
        once_shared = self.catalog.cursor(row.id, SUBSCRIBERS) is not None
        partial_query = (
            self.catalog.query(partial_join_name(row.id)) if _reads_other_unit(row) else None
        )
        plan = self.unit_planner.plan(row, queries, once_shared, before, partial_query)
        streams = {
            scan.stream.lower(): self.definitions.streams[scan.stream.lower()].stream
            for _, scan in plan.scans
        }
        return Unit(row, plan, streams, tuple(queries))

    def _consistent_queries(self, row: UnitRow) -> tuple[UnitRow, tuple[QueryRow, ...]]:
        """A unit and its queries of one and the same version: rows that are told under the number of
        a version must be those of its queries, whoever comes meanwhile."""
        while True:
            row = self.unit_planner.ensure_definition(self.catalog, row)
            queries = tuple(self.catalog.subscribers(row.id))
            now = self.catalog.unit(row.id)
            if now is None or now.version == row.version:
                return row, queries
            row = now

    def step(self, unit: Unit) -> bool:
        """Let a unit take in what is new; returns whether there was anything."""
        lease = self._acquire_lease(f"unit:{unit.row.id}")
        if lease is None:
            return False
        step = self.stepper.step(unit)
        if step is None:
            return False
        # Counting whose rows these are reads the file again, so it is done for sampled steps only.
        sampled = bool(step.report.executed_plans)
        per_row = unit.subscribers_per_row(step.segments) if sampled else None
        measured = self.meter.record_step(unit.row.id, step.report, per_row)
        began = time.monotonic()
        self._commit(lease, step, measured, unit)
        seconds = {**step.report.seconds, "commit": time.monotonic() - began}
        self.meter.record_commit(unit.row.id, seconds["commit"])
        unit.last_report = replace(step.report, seconds=seconds)
        if (merged := self.stepper.compact_panes(unit)) is not None:
            self._commit(lease, merged)
        if unit.row.retries:
            self.catalog.set_unit_state(unit.row.id, "running")
        return True

    def _commit(
        self,
        lease: Lease,
        step: Step,
        measured: StepMeasurements = NO_MEASUREMENTS,
        unit: Unit | None = None,
    ) -> None:
        """Keep a step; one that told instants only if the queries of its unit are still the same:
        a query that comes counts on instants after its start not being told without it. So does one
        that read another unit, as by now it may have to read one more."""
        is_guarded = unit is not None and (unit.plan.needs_same_queries or unit.reads_other_unit)
        self.catalog.commit(
            lease,
            segments=step.segments,
            cursors=step.cursors,
            removed=[s.id for s in step.removed],
            statistics=measured.statistics,
            profiles=measured.profiles,
            unit_version=(unit.row.id, unit.row.version)
            if unit is not None and is_guarded
            else None,
        )
        self.at_point("unit: committed")
        for old in step.removed:
            segment_files.remove(old.path)

    # ---- leases

    def _acquire_lease(self, name: str) -> Lease | None:
        """The lease of that name; None while another holds it."""
        return self.leases.acquire(name)

    def release(self) -> None:
        """Give back all leases, so that another process may go on at once, and close the sources."""
        self.ingestion.close()
        self.leases.release_all()


def _reads_other_unit(row: UnitRow) -> bool:
    return any(name.startswith("unit:") for name in row.inputs)


def read_state_costs(state: Path) -> CostTable:
    """What operators cost where a state runs; raises InputError for a file that is not right."""
    path = state / COSTS_FILE
    return read_costs(path) if path.exists() else CostTable()


def _wait_until(moment: float, stopping: Callable[[], bool]) -> None:
    """Sleep until the monotonic clock is there, or there is word to stop."""
    while (left := moment - time.monotonic()) > 0 and not stopping():
        time.sleep(min(left, 0.1))
