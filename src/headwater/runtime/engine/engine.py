"""The engine: ingests from sources, lets units step, delivers to sinks, and commits all of it.

A step reads segments, writes one file, and ends in one catalog transaction that registers the file
and moves the cursors, guarded by the lease of the process that ran it. Killed anywhere, it leaves at
most a file that nothing names, and the next run makes the same step again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock

from pyspark.sql import SparkSession

from headwater.cost.operators import SECOND_COSTS, CostTable, read_costs
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
    Json,
    UnitRow,
    ingest_owner,
    is_in_future,
    log_copy,
    panes_log,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.connectors.sender import SinkSender
from headwater.runtime.engine.failures import MAX_RETRY_SECONDS, UnitFailures
from headwater.runtime.engine.hand_over import UnitRewiring
from headwater.runtime.engine.housekeeping import Housekeeping
from headwater.runtime.engine.isolation import move_queries
from headwater.runtime.engine.planned_units import RunningUnits
from headwater.runtime.engine.round import PATIENCE_SECONDS, Round
from headwater.runtime.engine.scheduler import SCHEDULE, Scheduler, StepPredictions, Turns
from headwater.runtime.engine.spark_restart import SparkRecovery
from headwater.runtime.engine.steps.stepper import Stepper
from headwater.runtime.engine.unit import Unit
from headwater.runtime.engine.unit_steps import UnitSteps
from headwater.runtime.ingest.ingestion import Ingestion
from headwater.runtime.leases import ProcessLeases, process_name
from headwater.runtime.lifecycle import input_streams, settle_ends
from headwater.runtime.metrics.cost_model import cost_statistics
from headwater.runtime.metrics.sharing import SharingSummary, store_sharing
from headwater.runtime.metrics.sharing_loads import summarize_sharing
from headwater.runtime.metrics.step_estimates import StepEstimate
from headwater.runtime.metrics.step_meter import StepMeter
from headwater.runtime.results.sink_progress import has_deliveries_to_await, sink_owner
from headwater.runtime.settings import Settings, SettingValue, effective_settings
from headwater.runtime.sites.local_site import LocalSite
from headwater.runtime.sites.single_site import ProcessSite, SingleSite
from headwater.runtime.spark.errors import raise_if_spark_ended
from headwater.schedule import find_policy

log = logging.getLogger("headwater")

COSTS_FILE = "costs.toml"
"""What operators cost, in the state directory, if `headwater calibrate` measured it."""
TIDY_SECONDS = 30.0
REVISIT_SECONDS = 60.0
"""Seconds between two looks at what units read."""
COLD_PATIENCE = 20.0
"""Seconds that units wait for streams in the first round, in which Spark is cold and all is slow."""


@dataclass
class Engine:
    """Runs the streams and units of one catalog in one Spark session."""

    catalog: Catalog
    state_dir: Path
    spark: SparkSession
    settings: Settings = field(default_factory=Settings)
    overrides: Mapping[str, SettingValue] = field(default_factory=dict)
    """Settings that `SET` does not change in this run."""
    holder: str = field(default_factory=process_name)
    at_point: Callable[[str], None] = lambda point: None
    """Called at each named point of a step, so that a test can stop the process there."""
    clock: Callable[[], float] = time.time
    """The time of day, by which failed steps are tried again."""
    revisit: Callable[[], object] = lambda: None
    """Asks for hand-overs of units where these pay, now and then; returns whether there are any."""
    site: InitVar[LocalSite | None] = None
    """The site that this process runs, if there are several; else it does all work there is."""
    restart_spark: InitVar[Callable[[], SparkSession] | None] = None
    """Starts Spark again after it has ended; without it, a run ends too."""

    def __post_init__(
        self, site: LocalSite | None, restart_spark: Callable[[], SparkSession] | None
    ) -> None:
        catalog, clock, at_point = self.catalog, self.clock, self._at_point
        self.local_site: ProcessSite = SingleSite(self.state_dir) if site is None else site
        self.definitions = definitions = Definitions(catalog)
        self.meter = StepMeter(catalog)
        self.scheduler = Scheduler(catalog)
        self.units = RunningUnits(catalog, definitions, UnitPlanner(definitions))
        self.predictions = StepPredictions(catalog, self.units.planner)
        self.leases = ProcessLeases(catalog, self.holder, self.settings.lease_seconds)
        self.stepper = Stepper(
            catalog,
            self.local_site.store,
            self.spark,
            definitions,
            self.settings,
            at_point,
            self.meter,
            read_state_costs(self.state_dir),
            self.local_site.local_log,
        )
        if self.stepper.costs is not SECOND_COSTS:
            # Into the catalog, so that whoever submits queries prices them alike.
            catalog.set_statistics(cost_statistics(self.stepper.costs))
        self.unit_steps = UnitSteps(catalog, self.leases, self.meter, lambda: self.stepper)
        self.ingestion = Ingestion(
            catalog,
            definitions,
            self.spark,
            self.leases,
            self.settings,
            at_point,
            self.local_site,
            clock,
        )
        self.sinks = SinkSender(catalog, definitions, self.spark, at_point, clock=clock)
        self.recovery = SparkRecovery(
            catalog, self.holder, self.spark, restart_spark, self._use_session
        )
        describe = self.recovery.describe_trial_error
        self.failures = UnitFailures(
            catalog, self.leases, self.units, lambda: self.stepper, describe, clock
        )
        self.rewiring = UnitRewiring(catalog, self.units, self.leases, self._step_until, at_point)
        self.housekeeping = Housekeeping(
            catalog, self.units, self.ingestion, self.local_site, at_point, self._report_trouble
        )
        self.waiting_for: dict[str, str] = {}
        self.stop_requested = Event()
        self.steps = 0  # that were committed since the engine was made
        self._base_settings = self.settings
        self._count_lock = Lock()
        self._round_started_at = self._run_began_at = 0.0
        self._busy_at = time.monotonic()
        self._patience = COLD_PATIENCE

    def _at_point(self, point: str) -> None:
        self.at_point(point)  # looked up each time, as a test sets it while the engine runs

    def _use_session(self, spark: SparkSession) -> None:
        """Go on with a new Spark session."""
        self.spark = self.ingestion.spark = self.sinks.spark = spark
        self.stepper = replace(self.stepper, spark=spark)
        self.units.clear()  # they hold objects of the session before
        self._patience = COLD_PATIENCE

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
        self._run_began_at = self.clock()
        self._tidied_at = self._revisited_at = self._busy_at = time.monotonic()
        with self.leases.keep_alive(), self.local_site.send_heartbeats():
            while not is_stopping():
                started = time.monotonic()
                worked = False
                try:
                    worked = self.tick()
                    on_tick()
                    self._tidy_if_due()
                    self._revisit_if_due()
                    if self.local_site.has_others and not worked:
                        worked = self._yield_to_others()
                    waits_for_more = waits_for_more and self.idle_seconds <= patience
                    may_end = until_idle and not worked and not waits_for_more
                    if may_end and not self._may_get_work():
                        worked = self.end_finite_streams()
                        if not worked:
                            return
                    # The catalog has answered, so its next absence is news again.
                    self._report_trouble("catalog", "")
                except CatalogUnavailable as error:
                    self._report_trouble("catalog", str(error))
                except CommitConflict as error:  # it acted on what others have changed meanwhile
                    log.info("a round begins again: %s", error)
                    worked = True
                except SparkEnded as error:
                    if is_stopping():  # the signal that stops us may have gone to Java too
                        raise
                    self.recovery.suspect_active(error)
                    worked = True
                if not worked:
                    pause = self.settings.interval if interval is None else interval
                    _wait_until(started + pause, is_stopping)

    def _yield_to_others(self) -> bool:
        """End the streams that have no more, if this site is to, and give back the leases that other
        sites may wait for; returns whether a stream ended."""
        ends = self.local_site.ends_finite_streams and not self._may_get_work()
        if ends and self.end_finite_streams():
            return True
        self.leases.release_all()
        return False

    def _report_trouble(self, about: str, trouble: str) -> None:
        """Log what keeps the engine from working when it begins, and not again in every round."""
        if trouble and trouble != self.waiting_for.get(about):
            log.warning("%s; waiting", trouble)
        self.waiting_for[about] = trouble

    def _may_get_work(self) -> bool:
        """Whether there may be more to do without any new input: a source is to bring more,
        another process is working, a sink has to be sent rows, or what failed is to be tried again."""
        if (
            self.ingestion.expects_more()
            or has_deliveries_to_await(self.catalog, self.settings.retries, self._run_began_at)
            or self._others_are_working()
        ):
            return True
        return any(
            row.state == "running"
            and is_in_future(row.not_before, self._round_started_at, MAX_RETRY_SECONDS)
            and row.retries <= self.settings.retries
            for row in self.catalog.units()
            if self.local_site.owns(unit_log(row.id))
        )

    def _others_are_working(self) -> bool:
        """Whether another process holds a stream or unit; the leases of this one are given back then,
        as the other may be waiting for them."""
        others = self.leases.pop_contended()
        name, holder = min(others.items(), default=("", ""))
        self._report_trouble("others", f"{holder} works on {name}" if others else "")
        if others:
            self.leases.release_all()
            time.sleep(random.random() / 10)  # so that two processes do not retry in step
        return bool(others)

    # ---- a round

    def tick(self) -> bool:
        """One round: streams ingest and units step concurrently, then sinks get the new results.
        Returns whether anything was done."""
        self._round_started_at = self.clock()
        self.settings = effective_settings(
            self._base_settings, self.catalog.options(), self.overrides
        )
        self.stepper = replace(self.stepper, settings=self.settings)
        self.ingestion.settings = self.settings
        if self.local_site.refresh():
            self.leases.release_all()  # of what is assigned to others now
        streams = self.ingestion.refresh()
        settle_ends(self.catalog)
        self.ingestion.reopen_streams()  # before units step: at its end they finish queries
        worked = self.recovery.try_suspects(self)
        worked |= self._run_round(streams)
        # Between rounds, as nothing else steps a unit then.
        worked |= not self.stop_requested.is_set() and self.rewiring.advance()
        ready = [
            partial(self.deliver, query) for query in self.sinks.ready_queries(self.local_site.owns)
        ]
        worked |= Round(ready).run(self.settings.max_concurrency)
        if worked:
            self._busy_at = time.monotonic()
        return worked

    def _run_round(self, streams: Sequence[str]) -> bool:
        """Let streams ingest, and units step in the order that the policy gives them."""
        rows = {
            row.id: row
            for row in self.catalog.units()
            if row.state == "running"
            if not is_in_future(row.not_before, self._round_started_at, MAX_RETRY_SECONDS)
            if self.local_site.owns(unit_log(row.id))
        }
        turns = Turns(
            self.scheduler,
            find_policy(self.settings.scheduler),
            self.settings.max_wait_seconds,
            rows,
            self._estimate_step,
        )

        def step(unit: str) -> bool:
            row = self.catalog.unit(unit)  # as it is by now: it may have failed in this round
            if row is None or row.state != "running":
                return False
            if is_in_future(row.not_before, self.clock(), MAX_RETRY_SECONDS):
                return False
            worked = self.try_step(row)
            if worked:
                turns.note_worked(unit)
            return worked

        before = self.scheduler.last_choice
        jobs = [partial(self.ingest, name) for name in streams]
        jobs += [partial(self._try_ship_log, log) for log in self.local_site.incoming_logs]
        round = Round(jobs, set(rows), turns.choose, step, patience=self._patience)
        self._patience = PATIENCE_SECONDS
        worked = round.run(1 if self.recovery.is_serial else self.settings.max_concurrency)
        if self.scheduler.last_choice is not None and self.scheduler.last_choice is not before:
            self.catalog.set_profile(SCHEDULE, self.scheduler.last_choice.as_data())
        return worked

    def _estimate_step(self, unit_id: str) -> StepEstimate | None:
        """The estimate of a unit's next step: as measured, or else as predicted."""
        return self.meter.estimate(unit_id) or self.predictions.predict(unit_id)

    # ---- streams and sinks

    def ingest(self, name: str) -> bool:
        """Let a stream ingest one batch; returns whether there was one."""
        if self.stop_requested.is_set():
            return False
        with self.recovery.track(ingest_owner(name)):
            return self.ingestion.try_ingest(name)

    def end_finite_streams(self) -> bool:
        """Declare ended what cannot bring more; returns whether that changed anything."""
        return not self.stop_requested.is_set() and self.ingestion.end_finite_streams()

    def deliver(self, query: str) -> bool:
        """Send a query's new results to its sink; returns whether there were any."""
        if self.stop_requested.is_set():
            return False
        owner = sink_owner(query)
        lease = self.leases.acquire(owner)
        try:
            return lease is not None and self.sinks.deliver(query, lease)
        except LeaseLost:
            self.leases.mark_lost(owner)
            return False

    def _try_ship_log(self, log: str) -> bool:
        """Copy the new segments of a log to this site; a failure is reported, and tried again."""
        if self.stop_requested.is_set():
            return False
        site = self.local_site
        owner = log_copy(log, site.name)
        try:
            lease = self.leases.acquire(owner)
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

    def _step_until(self, row: UnitRow, until: Mapping[str, int]) -> bool:
        """Step a unit as it is now, until these sequence numbers, unless it waits to be tried again."""
        current = self.catalog.unit(row.id)
        if current is None or current.state != "running":
            return False
        if is_in_future(current.not_before, self.clock(), MAX_RETRY_SECONDS):
            return False
        return self.try_step(current, until)

    def try_step(self, row: UnitRow, until: Mapping[str, int] | None = None) -> bool:
        """Step a unit, `until` these sequence numbers; a failure is noted and tried again later, and
        parks it in the end."""
        if self.stop_requested.is_set():
            return False
        owner = unit_log(row.id)
        with self.recovery.track(owner):
            try:
                lease = self.leases.acquire(owner)
                if lease is None:
                    return False  # the process that holds it steps it
                if not self.local_site.has_inputs(row):
                    return False
                # Panes are read from the own store alone; a unit that has moved here has them
                # elsewhere.
                self.local_site.adopt_segments(owner, panes_log(row.id), lease)
                unit = self.units.current(row)
                streams = input_streams(
                    self.catalog, row
                )  # before the step: a later end counts next
                worked = self.step(unit) if until is None else self.unit_steps.step(unit, until)
                # Several threads step units, and += is not atomic.
                with self._count_lock:
                    self.steps += worked
                self.unit_steps.finish_queries(unit, streams, idle=not worked)
                return worked
            except CatalogUnavailable:
                raise
            except CommitConflict as error:
                # Counts as work, so that the round goes on with the unit as it is now.
                log.info("unit %s begins its step again: %s", row.id, error)
                return True
            except LeaseLost as error:
                log.info("unit %s: %s", row.id, error)
                self.leases.mark_lost(owner)
                return False
            except Exception as error:
                raise_if_spark_ended(self.spark, error)
                return self.failures.handle(row, error)

    def step(self, unit: Unit) -> bool:
        """Let a unit read what is new, and commit; returns whether there was anything."""
        return self.unit_steps.step(unit)

    def move_queries(self, unit_id: str, names: Sequence[str], why: Mapping[str, Json]) -> bool:
        """Move queries to a unit of their own, which goes on where theirs is; returns whether that was
        possible. Not to be called during a round."""
        lease = self.leases.acquire(unit_log(unit_id))
        row = self.catalog.unit(unit_id)
        if lease is None or row is None or row.state == "dropped":
            return False
        try:
            move_queries(self.catalog, self.stepper.store, lease, row, names, why)
        except CommitConflict as error:
            log.info("unit %s: %s", unit_id, error)
            return False
        self._at_point("unit: moved")
        self.units.discard(unit_id)
        return True

    # ---- housekeeping

    def tidy(self) -> None:
        """Remove what is no longer needed, compact what is small, sweep what nothing names."""
        lease = self.leases.acquire(self.local_site.housekeeping_owner)
        if lease is not None:
            self.housekeeping.tidy(lease, self.settings.results_keep or None)
            self._forget_dropped()

    def record_sharing(self) -> SharingSummary:
        """Compute what sharing saves, and keep that in the catalog."""
        summary = summarize_sharing(self.catalog, self.units.planner)
        store_sharing(self.catalog, summary)
        return summary

    def _tidy_if_due(self) -> None:
        if time.monotonic() - self._tidied_at <= TIDY_SECONDS:
            return
        # Before it runs, so that what fails is tried again after the usual time and not at once.
        self._tidied_at = time.monotonic()
        try:
            self.tidy()
            self.record_sharing()
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.leases.mark_lost(self.local_site.housekeeping_owner)
        except Exception:
            log.exception("housekeeping failed, and is tried again")

    def _revisit_if_due(self) -> None:
        if time.monotonic() - self._revisited_at <= REVISIT_SECONDS:
            return
        self._revisited_at = time.monotonic()
        try:
            if self.revisit():
                self._at_point("hand-over: requested")
        except CatalogUnavailable:
            raise
        except Exception:
            log.exception("what units read is looked at again later")

    def _forget_dropped(self) -> None:
        """Keep nothing in memory of units that are gone."""
        units = {row.id for row in self.catalog.units()}
        self.units.forget_all_but(units)
        self.meter.forget_all_but(units)
        self.scheduler.forget_all_but(units)
        self.predictions.forget_all_but(units)
        self.units.planner.forget_all_but({row.digest for row in self.catalog.queries()})
        self.leases.release_where(lambda name: name.startswith("unit:") and name[5:] not in units)

    def release(self) -> None:
        """Close the sources and give back all leases, so that another process can go on."""
        self.ingestion.close()
        self.leases.release_all()


def read_state_costs(state: Path) -> CostTable:
    """What operators cost where a state runs; raises InputError for a file that is not right."""
    path = state / COSTS_FILE
    return read_costs(path, SECOND_COSTS) if path.exists() else SECOND_COSTS


def _wait_until(moment: float, stopping: Callable[[], bool]) -> None:
    """Sleep until the monotonic clock reaches a moment, or `stopping` says so."""
    # In short sleeps: Python sleeps on after it has handled a signal.
    while (left := moment - time.monotonic()) > 0 and not stopping():
        time.sleep(min(left, 0.1))
