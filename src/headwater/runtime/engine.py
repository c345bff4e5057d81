"""The engine: takes in what sources have, lets units step, and commits both.

A step reads segments, writes one file, and ends in one catalog transaction that registers the file
and moves the cursors, guarded by the lease of whoever ran it. Killed anywhere, it leaves at most a
file that nothing names, and the next run does the same step again.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

from headwater.cost.operators import CostTable, read_costs
from headwater.errors import (
    CatalogError,
    CatalogUnavailable,
    DamagedFile,
    LeaseLost,
    Overtaken,
    SparkEnded,
)
from headwater.runtime import files, housekeeping
from headwater.runtime.apart import Apart
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    QueryRow,
    StreamRow,
    UnitRow,
    copy_log,
    ingest_owner,
    is_ahead,
    panes_log,
    part_name,
    stream_log,
    unit_log,
)
from headwater.runtime.claims import Claims, this_process
from headwater.runtime.compile import FOREVER, Delta, Panes, Plan, Shared, SharedPanes
from headwater.runtime.definitions import Definitions
from headwater.runtime.delivery import sink_owner
from headwater.runtime.faults import check, is_damage, is_full, reason
from headwater.runtime.housekeeping import Kept, Reader, compact, readers_of, retain, sweep
from headwater.runtime.intake import Intake
from headwater.runtime.lifecycle import (
    finish,
    in_plan,
    inputs_of,
    settle_ends,
    stopped_for_good,
)
from headwater.runtime.limits import Limits, Setting, effective
from headwater.runtime.measure import UNMEASURED, Measured, Meter
from headwater.runtime.push import stream_folder
from headwater.runtime.retention import expire_results, kept_for, merge_results
from headwater.runtime.rounds import PATIENCE, Round
from headwater.runtime.rowcounts import count_rows
from headwater.runtime.scheduling import SCHEDULE, Scheduler, Turns
from headwater.runtime.session import discard
from headwater.runtime.sharing import Sharing
from headwater.runtime.sinks import Sinks
from headwater.runtime.sites.here import Here
from headwater.runtime.stepping import Step, Stepper, Unit
from headwater.runtime.subscribers import MEMBERS, tells
from headwater.schedule import policy_named

log = logging.getLogger("headwater")

COSTS = "costs.toml"
"""What operators cost, in the state directory, if `headwater calibrate` measured it."""
TIDY_SECONDS = 30.0
LONGEST_BACKOFF = 60.0
COLD_PATIENCE = 20.0
"""Seconds that units wait for streams in the first round, in which Spark is cold and all is slow."""
APART_AT = 2
"""After so many failures in a row, it is found out which of its queries make a unit fail."""
ALONE_AT = 5
"""When Java has ended so often with several things at work, they are done one after the other."""
DEADLY = "Java ended at work on it, as if out of memory: more is in spark.log"
"""The error of a unit that was at work when Spark ended: it is to step alone."""
KEPT_DROPPED = 1_000
"""How many dropped queries and units are remembered."""


@dataclass
class Engine:
    """Runs the streams and units of one catalog in one Spark session."""

    catalog: Catalog
    state: Path
    spark: SparkSession
    limits: Limits = field(default_factory=Limits)
    given: Mapping[str, Setting] = field(default_factory=dict)
    """Limits that `SET` does not change in this run."""
    holder: str = field(default_factory=this_process)
    at_point: Callable[[str], None] = lambda point: None
    """Called at each named point of a step, so that a test can stop the process there."""
    clock: Callable[[], float] = time.time
    """The time of day, by which failed steps are tried again."""
    site: Here | None = None
    """The site that this process runs, if there are several; else all there is to do is done here."""
    restart: Callable[[], SparkSession] | None = None
    """Starts Spark again after it has ended; without it, a run ends too."""

    def __post_init__(self) -> None:
        self.definitions = Definitions(self.catalog)
        self.sharing = Sharing(self.definitions)
        self.meter = Meter(self.catalog)
        self.scheduler = Scheduler(self.catalog)
        self.stepper = Stepper(
            self.catalog,
            self.store,
            self.spark,
            self.definitions,
            self.limits,
            self._at_point,
            self.meter,
            costs_of(self.state),
            (lambda log: log) if self.site is None else self.site.reads,
        )
        self.claims = Claims(self.catalog, self.holder, self.limits.lease_seconds)
        self._units: dict[str, Unit] = {}
        self.intake = Intake(
            self.catalog,
            self.definitions,
            self.spark,
            self.claims,
            self.store,
            self.limits,
            self._at_point,
            self.site,
            self.clock,
        )
        self.sinks = Sinks(
            self.catalog, self.definitions, self.spark, self._at_point, clock=self.clock
        )
        self._round_at = 0.0
        self._patience = COLD_PATIENCE
        self.waiting_for: dict[str, str] = {}
        self._base = self.limits
        self._at_work: set[str] = set()
        self._witnessed: frozenset[str] = frozenset()
        self._tracking = Lock()
        self._suspected: set[str] = set()
        self._ends = 0

    def _at_point(self, point: str) -> None:
        self.at_point(point)

    @property
    def store(self) -> Path:
        """Where segments are written."""
        return self.state if self.site is None else self.site.store

    def _is_mine(self, owner: str) -> bool:
        """Whether some work is this process's to do, by the name of its lease."""
        return self.site is None or self.site.has(owner)

    # ---- the loop

    def run(
        self,
        until_idle: bool = False,
        interval: float | None = None,
        stopping: Callable[[], bool] = lambda: False,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Step until told to stop; `until_idle` ends finite sources when nothing is left to do.

        A catalog that cannot be reached is waited for, and Spark that has ended is started again.
        Raises RuntimeFailure if that cannot be.
        """
        self._tidied = time.monotonic()
        seen = nullcontext() if self.site is None else self.site.seen()
        with self.claims.kept_alive(), seen:
            while not stopping():
                begun = time.monotonic()
                worked = False
                try:
                    worked = self.tick()
                    on_tick()
                    self._tidy_now_and_then()
                    if self.site is not None and not worked:
                        worked = self._rest(self.site)
                    if until_idle and not worked and not self._waits():
                        worked = self.end_finite_streams()
                        if not worked:
                            return
                    self._tell("catalog", "")
                except CatalogUnavailable as error:
                    self._tell("catalog", str(error))
                except SparkEnded as error:
                    if stopping():  # whoever told us may have told Java too
                        raise
                    self._suspect(error)
                    worked = True
                if not worked:
                    pause = self.limits.interval if interval is None else interval
                    _wait_until(begun + pause, stopping)

    def _rest(self, site: Here) -> bool:
        """Nothing is to be done at present: end what has no more, if that is wanted, and give back what
        other sites may wait for. Returns whether anything changed."""
        if site.drains and not self._waits() and self.end_finite_streams():
            return True
        self.claims.release()
        return False

    def _tell(self, about: str, trouble: str) -> None:
        """Log what keeps the engine from working when it begins, and not again at every look."""
        if trouble and trouble != self.waiting_for.get(about):
            log.warning("%s; waiting", trouble)
        self.waiting_for[about] = trouble

    def _tidy_now_and_then(self) -> None:
        if time.monotonic() - self._tidied <= TIDY_SECONDS:
            return
        self._tidied = time.monotonic()
        try:
            self.tidy()
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.claims.lost("housekeeping")
        except Exception:
            log.exception("housekeeping failed, and is tried again")

    def _waits(self) -> bool:
        """Whether there may be more to do without any new input: a source is to bring more,
        another process is at work, or what failed is to be tried again."""
        if self.intake.waits() or self.sinks.undelivered() or self._others_work():
            return True
        return any(
            row.state == "running"
            and is_ahead(row.not_before, self._round_at, LONGEST_BACKOFF)
            and row.retries <= self.limits.retries
            for row in self.catalog.units()
            if self._is_mine(f"unit:{row.id}")
        )

    def _others_work(self) -> bool:
        """Whether another process holds a stream or unit; what is held here is given up then, as
        the other may be waiting for it."""
        others = self.claims.others()
        name, holder = min(others.items(), default=("", ""))
        self._tell("others", f"{holder} works on {name}" if others else "")
        if others:
            self.claims.release()
            time.sleep(random.random() / 10)
        return bool(others)

    def tick(self) -> bool:
        """One round: every stream takes in while every unit steps, then every sink gets what is new.
        Returns whether anything was done."""
        self._round_at = self.clock()
        self.limits = effective(self._base, self.catalog.options(), self.given)
        self.stepper = replace(self.stepper, limits=self.limits)
        self.intake.limits = self.limits
        if self.site is not None and self.site.refresh():
            self.claims.release()  # of what went to others
        streams = self.intake.refresh()
        settle_ends(self.catalog)
        self.intake.reopen()
        worked = self._try_suspects() | self._round(streams)
        ready = [partial(self.deliver, query) for query in self.sinks.ready(self._is_mine)]
        return Round(ready).run(self.limits.at_once) or worked

    def _round(self, streams: Sequence[str]) -> bool:
        """Let streams take in, and units step in the order that the policy gives them."""
        rows = {
            row.id: row
            for row in self.catalog.units()
            if row.state == "running"
            if not is_ahead(row.not_before, self._round_at, LONGEST_BACKOFF)
            if self._is_mine(f"unit:{row.id}")
        }
        turns = Turns(
            self.scheduler,
            policy_named(self.limits.scheduler),
            self.limits.longest_wait,
            rows,
            self.meter.expected,
        )

        def step(unit: str) -> bool:
            row = self.catalog.unit(unit)
            if row is None or row.state != "running":
                return False
            if is_ahead(row.not_before, self.clock(), LONGEST_BACKOFF):
                return False
            worked = self._try_step(row)
            if worked:
                turns.worked(unit)
            return worked

        before = self.scheduler.last
        jobs = [partial(self.ingest, name) for name in streams]
        if self.site is not None:
            jobs += [partial(self._try_ship, self.site, log) for log in self.site.incoming]
        round = Round(jobs, set(rows), turns.choose, step, patience=self._patience)
        self._patience = PATIENCE
        worked = round.run(self.limits.at_once if self._ends < ALONE_AT else 1)
        if self.scheduler.last is not None and self.scheduler.last is not before:
            self.catalog.set_profile(SCHEDULE, self.scheduler.last.as_data())
        return worked

    def ingest(self, name: str) -> bool:
        """Let a stream take in one batch; returns whether there was one."""
        with self._working_on(ingest_owner(name)):
            return self.intake.try_to_take(name)

    def end_finite_streams(self) -> bool:
        """Declare ended what cannot bring more; returns whether that changed anything."""
        return self.intake.end_finite()

    def deliver(self, query: str) -> bool:
        """Send a query's new results to its sink; returns whether there were any."""
        owner = sink_owner(query)
        lease = self._lease(owner)
        try:
            return lease is not None and self.sinks.deliver(query, lease)
        except LeaseLost:
            self.claims.lost(owner)
            return False

    def tidy(self) -> None:
        """Drop what is no longer needed, merge what is small, sweep what nobody names."""
        lease = self._lease(
            "housekeeping" if self.site is None else f"housekeeping:{self.site.name}"
        )
        if lease is None:
            return
        readers = [
            Reader(self._unit(row).plan, self._cursors(row))
            for row in self.catalog.units()
            if not stopped_for_good(self.catalog, row)
        ]
        logs = self._kept()
        retain(self.catalog, logs, readers, lease, self.at_point)
        for kept in logs:
            own = readers_of(stream_log(kept.stream.name), readers)
            try:
                compact(self.catalog, kept, own, lease, self.at_point)
                self._tell(kept.log, "")
            except DamagedFile as error:  # the units that need it park; other logs are looked after
                self._tell(kept.log, str(error))
        self._tidy_results(lease)
        sweep(self.catalog, self.store)
        self.catalog.forget_dropped(KEPT_DROPPED)
        self._forget()

    def _tidy_results(self, lease: Lease) -> None:
        """Merge the results of the units that are worked on here, and drop those that were kept long
        enough; only units with many segments, or a limit on their time, are looked at."""
        usual = self.limits.results_keep or None
        crowded = self.catalog.crowded_logs("unit", housekeeping.MERGED_AT_LEAST)
        some_expire = usual is not None or any(q.keep is not None for q in self.catalog.queries())
        for row in self.catalog.units():
            if not self._is_mine(unit_log(row.id)):
                continue
            keep = kept_for(self.catalog.members(row.id), usual) if some_expire else None
            if unit_log(row.id) in crowded:
                folder = self.store / "log" / "units" / row.id
                try:
                    merge_results(self.catalog, row, folder, lease, keep, self.at_point)
                    self._tell(unit_log(row.id), "")
                except (
                    DamagedFile
                ) as error:  # whoever reads it is told; other logs are looked after
                    self._tell(unit_log(row.id), str(error))
            if keep is not None:
                expire_results(self.catalog, row, lease, keep, time.time(), self.at_point)

    def _kept(self) -> list[Kept]:
        """The logs of streams that are looked after here: those taken in here, and copies."""
        rows = self.catalog.streams()
        mine = {row.name for row in self.intake.rows()}
        logs = [
            Kept(row, stream_log(row.name), stream_folder(self.store, row.name))
            for row in rows
            if row.name in mine
        ]
        copied = [] if self.site is None else self.site.incoming
        for row in rows:
            if self.site is not None and stream_log(row.name) in copied:
                copy = self.site.reads(stream_log(row.name))
                logs.append(Kept(row, copy, stream_folder(self.store, row.name)))
        return logs

    def _cursors(self, row: UnitRow) -> dict[str, Any]:
        """How far a unit has come in its inputs, and those of the units that it reads."""
        above = [name.partition(":")[2] for name in row.inputs if name.startswith("unit:")]
        found: dict[str, Any] = {}
        for unit_id in above:
            found |= self.catalog.cursors(unit_id)
        return found | self.catalog.cursors(row.id)

    def _forget(self) -> None:
        """Keep nothing in memory of units and streams that are gone."""
        units = {row.id for row in self.catalog.units()}
        for unit in set(self._units) - units:
            del self._units[unit]
        self.meter.forget_all_but(units)
        self.scheduler.forget_all_but(units)
        self.sharing.forget_all_but({row.digest for row in self.catalog.queries()})
        self.claims.forget(lambda name: name.startswith("unit:") and name[5:] not in units)

    # ---- copies of streams

    def _try_ship(self, site: Here, log: str) -> bool:
        """Copy what is new of a log to this site; what fails is told, and tried again."""
        owner = copy_log(log, site.name)
        try:
            lease = self._lease(owner)
            return lease is not None and site.ship(log, lease, self._at_point)
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.claims.lost(owner)
            return False
        except (OSError, CatalogError, DamagedFile) as error:
            self._tell(owner, f"{log} cannot be copied to {site.name}: {error}")
            return False

    # ---- units

    def _try_step(self, row: UnitRow) -> bool:
        """Step a unit; a failure is noted and tried again later, and parks it in the end."""
        with self._working_on(unit_log(row.id)):
            try:
                lease = self._lease(f"unit:{row.id}")
                if lease is None:
                    return False  # whoever works on it knows when it is done
                if self.site is not None:
                    if not self.site.has_inputs(row):
                        return False
                    self.site.adopt(f"unit:{row.id}", panes_log(row.id), lease)
                unit = self._unit(row)
                streams = inputs_of(self.catalog, row)
                worked = self.step(unit)
                self._finish(unit, streams, idle=not worked)
                return worked
            except CatalogUnavailable:
                raise
            except Overtaken as error:
                log.info("unit %s begins its step again: %s", row.id, error)
                return True
            except LeaseLost as error:
                log.info("unit %s: %s", row.id, error)
                self.claims.lost(f"unit:{row.id}")
                return False
            except Exception as error:
                check(self.spark, error)
                return self._failed(row, error)

    def _failed(self, row: UnitRow, error: Exception) -> bool:
        """Note a failure and when to try again, or that it is not to be."""
        known = self.catalog.unit(row.id)
        if known is None or known.state == "dropped":
            return False
        log.error("unit %s failed", row.id, exc_info=error)
        message = reason(error)
        retries = row.retries + 1
        if is_damage(error):  # no query is to blame, and trying again mends nothing
            self.catalog.park_unit(row.id, message, retries)
            return False
        last = retries > self.limits.retries and not is_full(error)
        if (last or retries == APART_AT) and not is_full(error):
            with self._tolerating(row):
                apart = self._set_apart(known, retries)
                if apart:
                    return True
                last &= apart is not None or retries > self.limits.retries + 1
        if last:
            self.catalog.park_unit(row.id, message, retries)
        else:
            self._wait(row.id, message, retries)
        return False

    def _wait(self, unit_id: str, message: str, retries: int) -> None:
        """Note a failure, and that the unit waits before it is tried again."""
        wait = min(self.limits.backoff * 2 ** (retries - 1), LONGEST_BACKOFF)
        self.catalog.set_unit_state(
            unit_id, "running", error=message, retries=retries, not_before=self.clock() + wait
        )

    # ---- queries that make their unit fail

    @contextmanager
    def _tolerating(self, row: UnitRow) -> Iterator[None]:
        """What goes wrong while culprits are looked for is told; the unit is tried again as it is."""
        try:
            yield
        except (CatalogUnavailable, SparkEnded):
            raise
        except LeaseLost as error:
            log.info("unit %s: %s", row.id, error)
            self.claims.lost(unit_log(row.id))
        except Exception:
            log.exception("the queries of unit %s cannot be set apart", row.id)

    def _set_apart(self, row: UnitRow, retries: int, why: str | None = None) -> bool | None:
        """Give a unit of their own to the queries that make a unit fail, and let the others go on from
        where they are; whether that was possible, None if none of them fails any more. `why` is
        known already of all together.

        Queries that fail only together are divided.
        """
        lease = self._lease(unit_log(row.id))
        if lease is None:
            return False
        self._units.pop(row.id, None)
        row, members = self._members(row)
        queries = in_plan(members, inputs_of(self.catalog, row))
        apart = Apart(self.catalog, self.store, lambda: self.stepper, self._planned, self._survived)
        blamed = apart.blamed(row, queries, why)
        if blamed is None:
            return None
        digests = list(dict.fromkeys(query.digest for query in queries if not query.hidden))
        groups = [[digest] for digest in blamed] or [digests[: len(digests) // 2]]
        if len(blamed) == len({query.digest for query in queries}) or not any(groups):
            return False
        for group in groups:
            names = [query.name for query in queries if query.digest in group]
            new = apart.moved(lease, row, names)
            self.at_point("unit: moved")
            row = replace(row, version=row.version + 1)
            if blamed:
                log.error("unit %s fails by %s, now in unit %s", row.id, ", ".join(names), new)
                self._blame(new, blamed[group[0]], retries, why is not None)
        self.catalog.set_unit_state(row.id, "running")
        return True

    def _blame(self, unit_id: str, message: str, retries: int, deadly: bool) -> None:
        """Park a unit whose query is known to fail, unless it is to be tried some more."""
        if deadly or retries > self.limits.retries:
            self.catalog.park_unit(unit_id, message, retries)
        else:
            self._wait(unit_id, message, retries)

    def _survived(self, error: Exception) -> str:
        """What is wrong with a step on trial; Spark that it ended is started again, if nothing else
        was at work."""
        if is_full(error):
            raise error
        try:
            check(self.spark, error)
        except SparkEnded as ended:
            if self._at_work:
                raise
            self._start_again(ended)
            return DEADLY
        return reason(error)

    # ---- Spark that ends

    @contextmanager
    def _working_on(self, owner: str) -> Iterator[None]:
        """Know what is at work, so that all of it is suspected if Spark ends meanwhile."""
        with self._tracking:
            self._at_work.add(owner)
        try:
            yield
        except SparkEnded:
            with self._tracking:
                self._witnessed |= self._at_work
            raise
        finally:
            with self._tracking:
                self._at_work.discard(owner)

    def _start_again(self, error: SparkEnded) -> None:
        """A new Spark in the place of one that has ended; raises the error if there is to be none."""
        if self.restart is None:
            raise error
        log.error("%s", error.args[0].replace("run it again to go on", "it is started again"))
        self.catalog.record_event("spark ended", self.holder, error=str(error))
        discard(self.spark)
        self.spark = self.restart()
        self.stepper = replace(self.stepper, spark=self.spark)
        self.intake.spark = self.sinks.spark = self.spark
        self._units.clear()
        self._patience = COLD_PATIENCE

    def _suspect(self, error: SparkEnded) -> None:
        """Note what was at work when Spark ended, and start Spark again: each of it is tried alone
        before all else goes on."""
        witnessed, self._witnessed = self._witnessed, frozenset()
        self._ends += len(witnessed) > 1
        for owner in sorted(witnessed):
            kind, _, name = owner.partition(":")
            row = self.catalog.unit(name) if kind == "unit" else None
            if kind != "unit":
                self._suspected.add(name)
            elif row is not None and row.state == "running":
                self.catalog.set_unit_state(name, "running", error=DEADLY, retries=row.retries + 1)
        self._start_again(error)

    def _try_suspects(self) -> bool:
        """Let each stream and unit work alone that was at work when Spark ended; if it ends again, that
        one is to blame. Returns whether there was any."""
        suspects = [
            row
            for row in self.catalog.units()
            if row.state == "running" and row.error == DEADLY and self._is_mine(f"unit:{row.id}")
        ]
        for row in suspects:
            try:
                self._try_step(row)
                self._clear(row)
            except SparkEnded as error:
                if self.restart is None:  # whoever starts the engine again has it run on
                    self.catalog.park_unit(row.id, DEADLY, row.retries + 1)
                self._begin_anew(error)
                with self._tolerating(row):
                    if self._set_apart(row, row.retries + 1, DEADLY):
                        continue
                self.catalog.park_unit(row.id, DEADLY, row.retries + 1)
        streams, self._suspected = self._suspected, set()
        for name in streams & self.definitions.streams.keys():
            try:
                self.ingest(name)
            except SparkEnded as error:
                self._begin_anew(error)
                self.intake.leave(name, DEADLY)
        return bool(suspects or streams)

    def _begin_anew(self, error: SparkEnded) -> None:
        """Start Spark again where it is known who is to blame."""
        self._witnessed = frozenset()
        self._start_again(error)

    def _clear(self, row: UnitRow) -> None:
        """A unit that stepped, or had nothing to do, and did no harm is not suspected any more."""
        known = self.catalog.unit(row.id)
        if known is not None and known.state == "running" and known.error == DEADLY:
            self.catalog.set_unit_state(row.id, "running")

    def _finish(self, unit: Unit, streams: Sequence[StreamRow], idle: bool) -> None:
        """Finish the queries of a unit that has told all of them."""
        at_once = isinstance(unit.plan, Delta | Shared)
        told = FOREVER if at_once else self.catalog.cursor(unit.row.id, "instant")
        finish(self.catalog, unit.row, unit.serves, streams, told, idle, self._tells)

    def _tells(self, row: UnitRow, query: str) -> bool:
        """Whether a unit tells the rows of a query by now."""
        asked = self.catalog.query(query)
        return asked is not None and tells(self.catalog, row, asked.result_key)

    def _unit(self, row: UnitRow) -> Unit:
        unit = self._units.get(row.id)
        if unit is None or unit.row.version != row.version:
            row, members = self._members(row)
            queries = in_plan(members, inputs_of(self.catalog, row))
            before = None if unit is None else unit.plan
            unit = self._units[row.id] = self._planned(row, queries, before)
        unit.row = row
        return unit

    def _planned(
        self, row: UnitRow, queries: Sequence[QueryRow], before: Plan | None = None
    ) -> Unit:
        """A unit as it runs for these queries."""
        once_shared = self.catalog.cursor(row.id, MEMBERS) is not None
        asked = self.catalog.query(part_name(row.id)) if _reads_a_unit(row) else None
        plan = self.sharing.plan(row, queries, once_shared, before, asked)
        streams = {
            scan.stream.lower(): self.definitions.streams[scan.stream.lower()].stream
            for _, scan in plan.scans
        }
        return Unit(row, plan, streams, tuple(queries))

    def _members(self, row: UnitRow) -> tuple[UnitRow, tuple[QueryRow, ...]]:
        """A unit and its queries of one and the same version: rows that are told under the number of
        a version must be those of its queries, whoever comes meanwhile."""
        while True:
            row = self.sharing.defined(self.catalog, row)
            queries = tuple(self.catalog.members(row.id))
            now = self.catalog.unit(row.id)
            if now is None or now.version == row.version:
                return row, queries
            row = now

    def step(self, unit: Unit) -> bool:
        """Let a unit take in what is new; returns whether there was anything."""
        lease = self._lease(f"unit:{unit.row.id}")
        if lease is None:
            return False
        step = self.stepper.step(unit)
        if step is None:
            return False
        measured = self.meter.step(
            unit.row.id,
            unit.watch,
            step.rows_in,
            step.rows_out,
            unit.ran,
            unit.terms,
            step.arrived,
            told_to(unit, step) if unit.ran else None,
            sum(s.bytes for s in step.segments if s.log == unit_log(unit.row.id)),
        )
        unit.watch.skip()
        self._commit(lease, step, measured, unit)
        self.meter.committed(unit.row.id, unit.watch)
        if (merged := self.stepper.merge(unit)) is not None:
            self._commit(lease, merged)
        if unit.row.retries:
            self.catalog.set_unit_state(unit.row.id, "running")
        return True

    def _commit(
        self, lease: Lease, step: Step, measured: Measured = UNMEASURED, unit: Unit | None = None
    ) -> None:
        """Keep a step; one that told instants only if the queries of its unit are still the same:
        a query that comes counts on instants after its start not being told without it. So does one
        that read another unit, as by now it may have to read one more."""
        tells = unit is not None and (
            isinstance(unit.plan, Panes | SharedPanes) or _reads_a_unit(unit.row)
        )
        self.catalog.commit(
            lease,
            segments=step.segments,
            cursors=step.cursors,
            removed=[s.id for s in step.removed],
            statistics=measured.statistics,
            profiles=measured.profiles,
            unit_version=(unit.row.id, unit.row.version) if unit is not None and tells else None,
        )
        self.at_point("unit: committed")
        for old in step.removed:
            files.remove(old.path)

    # ---- leases

    def _lease(self, name: str) -> Lease | None:
        """The lease of that name; None while another holds it."""
        return self.claims.take(name)

    def release(self) -> None:
        """Give back all leases, so that another process may go on at once, and close the sources."""
        self.intake.close()
        self.claims.release()


def told_to(unit: Unit, step: Step) -> float | None:
    """To how many queries a row of a step's results is told, another unit that reads it being one;
    None if there are no results."""
    results = [s for s in step.segments if s.log == unit_log(unit.row.id)]
    if not results:
        return None
    asked = Counter(query.result_key for query in unit.queries)
    if not isinstance(unit.plan, Shared | SharedPanes):
        return float(asked.total())
    members = [(asked[digest], member) for digest, member in unit.plan.members.members.items()]
    counts = [count_rows(s, None, None, shared=True) for s in results]
    told = sum(number * counted.of(member) for counted in counts for number, member in members)
    return told / sum(s.rows for s in results)


def _reads_a_unit(row: UnitRow) -> bool:
    return any(name.startswith("unit:") for name in row.inputs)


def costs_of(state: Path) -> CostTable:
    """What operators cost where a state runs; raises InputError for a file that is not right."""
    path = state / COSTS
    return read_costs(path) if path.exists() else CostTable()


def _wait_until(moment: float, stopping: Callable[[], bool]) -> None:
    """Sleep until the monotonic clock is there, or there is word to stop."""
    while (left := moment - time.monotonic()) > 0 and not stopping():
        time.sleep(min(left, 0.1))
