"""The engine: takes in what sources have, lets units step, and commits both.

A step reads segments, writes one file, and ends in one catalog transaction that registers the file
and moves the cursors, guarded by the lease of whoever ran it. Killed anywhere, it leaves at most a
file that nothing names, and the next run does the same step again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Stream
from headwater.algebra.nodes import Scan
from headwater.cql import CreateStream
from headwater.errors import CatalogUnavailable, LeaseLost, RuntimeFailure
from headwater.runtime import files
from headwater.runtime.catalog import (
    Catalog,
    Lease,
    Rejects,
    Segment,
    StreamRow,
    UnitRow,
    stream_log,
    unit_log,
)
from headwater.runtime.claims import Claims, this_process
from headwater.runtime.compile import ARRIVAL, TIME, Delta, Instants, compiled
from headwater.runtime.definitions import Definitions
from headwater.runtime.faults import is_full, is_gone, reason
from headwater.runtime.housekeeping import Reader, compact, readers_of, retain, sweep
from headwater.runtime.push import append, segment, stream_folder
from headwater.runtime.sources import MALFORMED, Files, Source, open_source, read_table
from headwater.runtime.sparksql import quoted
from headwater.runtime.steps import Input, delta_step, instants_step, overlapping
from headwater.runtime.unreadable import Unreadable, left_aside, unreadable

log = logging.getLogger("headwater")

FOREVER = 2**62
REJECTS_KEPT_PER_BATCH = 1_000
TIDY_SECONDS = 30.0
LONGEST_BACKOFF = 60.0


@dataclass(frozen=True)
class Limits:
    """How much one step may take on, how often it is tried, and for how long it is claimed."""

    rows_per_step: int = 500_000
    instants_per_step: int = 2_000
    at_once: int = 4
    retries: int = 5
    backoff: float = 1.0
    lease_seconds: float = 60.0


@dataclass
class Unit:
    """A unit as it runs: its plan and the streams it reads."""

    row: UnitRow
    plan: Delta | Instants
    streams: dict[str, Stream]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The logs of its streams."""
        return tuple(stream_log(name) for name in self.streams)


@dataclass(frozen=True)
class Unread:
    """Why a stream could not be read, and how many times in a row."""

    message: str
    failures: int


@dataclass
class Engine:
    """Runs the streams and units of one catalog in one Spark session."""

    catalog: Catalog
    state: Path
    spark: SparkSession
    limits: Limits = field(default_factory=Limits)
    holder: str = field(default_factory=this_process)
    at_point: Callable[[str], None] = lambda point: None
    """Called at each named point of a step, so that a test can stop the process there."""

    def __post_init__(self) -> None:
        self.definitions = Definitions(self.catalog)
        self.claims = Claims(self.catalog, self.holder, self.limits.lease_seconds)
        self._units: dict[str, Unit] = {}
        self._sources: dict[str, tuple[CreateStream, Source]] = {}
        self._unread: dict[str, Unread] = {}
        self._round_at = 0.0
        self.waiting_for: dict[str, str] = {}

    # ---- the loop

    def run(
        self,
        until_idle: bool = False,
        interval: float = 1.0,
        stopping: Callable[[], bool] = lambda: False,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Step until told to stop; `until_idle` ends finite sources when nothing is left to do.

        A catalog that cannot be reached is waited for. Raises RuntimeFailure if Spark has ended.
        """
        self._tidied = time.monotonic()
        with self.claims.kept_alive():
            while not stopping():
                begun = time.monotonic()
                worked = False
                try:
                    worked = self.tick()
                    on_tick()
                    self._tidy_now_and_then()
                    if until_idle and not worked and not self._waits():
                        worked = self.end_finite_streams()
                        if not worked:
                            return
                    self._tell("catalog", "")
                except CatalogUnavailable as error:
                    self._tell("catalog", str(error))
                if not worked:
                    _wait_until(begun + interval, stopping)

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
        """Whether there may be more to do without any new input: another process is at work, or
        something that failed is to be tried again."""
        if self._others_work():
            return True
        if any(unread.failures <= self.limits.retries for unread in self._unread.values()):
            return True
        return any(
            row.state == "running"
            and row.not_before > self._round_at
            and row.retries <= self.limits.retries
            for row in self.catalog.units()
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
        """One round: every stream takes in, every unit steps. Returns whether anything was done."""
        self._round_at = time.time()
        streams = list(self.definitions.streams)
        self._unread = {name: why for name, why in self._unread.items() if name in streams}
        worked = self._all(self._try_ingest, streams)
        ready = [
            row
            for row in self.catalog.units()
            if row.state == "running" and row.not_before <= time.time()
        ]
        return self._all(self._try_step, ready) or worked

    def _all(self, work: Callable[[Any], bool], items: Sequence[Any]) -> bool:
        """The work for all items, several at once; whether any of it was worth it."""
        if len(items) < 2:
            return any(work(item) for item in items)
        with ThreadPoolExecutor(min(len(items), self.limits.at_once)) as pool:
            return any(list(pool.map(work, items)))

    def tidy(self) -> None:
        """Drop what is no longer needed, merge what is small, sweep what nobody names."""
        lease = self._lease("housekeeping")
        if lease is None:
            return
        readers = [
            Reader(self._unit(row).plan, self.catalog.cursors(row.id))
            for row in self.catalog.units()
        ]
        retain(self.catalog, readers, lease, self.at_point)
        for stream in self.catalog.streams():
            own = readers_of(stream_log(stream.name), readers)
            folder = stream_folder(self.state, stream.name)
            compact(self.catalog, stream, own, folder, lease, self.at_point)
        sweep(self.catalog, self.state)

    def end_finite_streams(self) -> bool:
        """Declare ended what cannot bring more; returns whether that changed anything.

        A stream that could not be read, or of which a file was set aside, is left open.
        """
        changed = False
        for row in self.catalog.streams():
            source = self._source(row.name)
            if row.ended or source is None or not source.finite or row.name in self._unread:
                continue
            lease = self._lease(f"ingest:{row.name}")
            if lease is None or self._aside(row.name):
                continue
            self.catalog.commit(lease, ended=row.name)
            changed = True
        return changed

    # ---- streams

    def _try_ingest(self, name: str) -> bool:
        """Take in one batch; what cannot be read is told, and the other streams go on."""
        try:
            taken = self.ingest(name)
            self._unread.pop(name, None)
            return taken
        except CatalogUnavailable:
            raise
        except LeaseLost:
            self.claims.lost(f"ingest:{name}")
            return False
        except Exception as error:
            self._check_spark(error)
            return self._set_aside(name) or self._not_read(name, error)

    def _not_read(self, name: str, error: Exception) -> bool:
        message = reason(error)
        before = self._unread.get(name)
        if before is None or before.message != message:
            log.error("stream %s cannot be read: %s", name, message, exc_info=error)
            self.catalog.record_event("stream unread", name, error=message)
        self._unread[name] = Unread(message, before.failures + 1 if before else 1)
        return False

    def _set_aside(self, name: str) -> bool:
        """Pass over the files of a stream that cannot be read; returns whether there are any.

        They stay where they are and are named in the reject log; one that is changed is read.
        """
        source, lease = self._source(name), self._lease(f"ingest:{name}")
        if not isinstance(source, Files) or lease is None:
            return False
        owner = f"ingest:{name}"
        found = unreadable(self.spark, source, self.catalog.cursor(owner, "source") or {})
        if found is None:
            return False
        self._tell_unreadable(name, found)
        self.catalog.commit(
            lease,
            cursors={(owner, "source"): found.position},
            rejects=[Rejects(name, len(found.reasons), 0, found.records)],
        )
        return True

    def _tell_unreadable(self, name: str, found: Unreadable) -> None:
        for path, why in found.reasons.items():
            log.error("stream %s: %s cannot be read and is set aside: %s", name, path, why)
            self.catalog.record_event("file set aside", name, path=path, error=why)

    def _aside(self, name: str) -> list[str]:
        """The files of a stream that were set aside and are there as they were."""
        return left_aside(self.catalog.cursor(f"ingest:{name}", "source") or {})

    def troubles(self) -> list[str]:
        """What of the input could not be read, in a sentence each."""
        found = [f"stream {name}: {unread.message}" for name, unread in self._unread.items()]
        for row in self.catalog.streams():
            if aside := self._aside(row.name):
                more = f" and {len(aside) - 1} more" if len(aside) > 1 else ""
                found.append(
                    f"stream {row.spelled} stays open: {aside[0]}{more} cannot be read; repair or "
                    "remove it and run again (headwater show rejects says what is wrong)"
                )
        return found

    def _check_spark(self, error: Exception) -> None:
        """Raises RuntimeFailure if a failure is that of Spark itself, and no unit's or stream's."""
        if is_gone(self.spark):
            raise RuntimeFailure(
                f"Spark has ended ({reason(error)}); nothing is lost: run it again to go on"
            ) from error

    def ingest(self, name: str) -> bool:
        """Take in one batch of a stream; returns whether there was one."""
        source = self._source(name)
        if source is None or not self._open(name):
            return False
        owner = f"ingest:{name}"
        lease = self._lease(owner)
        row = self._open(name)  # as it is under the lease
        if lease is None or row is None:
            return False
        position = self.catalog.cursor(owner, "source") or {}
        batch = source.poll(self.spark, position)
        if batch is None:
            return False
        stream = self.definitions.streams[row.name].stream
        flagged = _flagged(batch.frame, stream, row.watermark)
        seen = Observation()
        flagged = flagged.observe(
            seen,
            F.count(F.when(F.col("_reason") == "late", 1)).alias("late"),
            F.count(F.when(F.col("_reason").isNotNull(), 1)).alias("refused"),
        )
        good = flagged.where("_reason IS NULL").drop("_reason", MALFORMED)
        written = files.write(good, stream_folder(self.state, row.name), TIME, batch.small)
        self.at_point("ingest: written")
        counted = seen.get
        refused = Rejects(
            row.name,
            counted["refused"] - counted["late"],
            counted["late"],
            tuple(_refused_records(flagged, stream)) if counted["refused"] else (),
        )
        append(self.catalog, lease, row, written, {(owner, "source"): batch.position}, refused)
        self.at_point("ingest: committed")
        return True

    def _open(self, name: str) -> StreamRow | None:
        """The stream as it stands, unless it has ended or was dropped."""
        row = self.catalog.stream(name)
        return None if row is None or row.ended else row

    def _source(self, name: str) -> Source | None:
        """What a stream reads from, as it is declared now; None for one that clients push to."""
        declared = self.definitions.streams[name]
        if declared.source is None:
            return None
        known = self._sources.get(name)
        if known is None or known[0] != declared:
            known = (declared, open_source(declared.source, declared.stream.schema))
            self._sources[name] = known
        return known[1]

    # ---- units

    def _try_step(self, row: UnitRow) -> bool:
        """Step a unit; a failure is noted and tried again later, and parks it in the end."""
        try:
            unit = self._unit(row)
            return self.step(unit)
        except CatalogUnavailable:
            raise
        except LeaseLost as error:
            log.info("unit %s: %s", row.id, error)
            self.claims.lost(f"unit:{row.id}")
            return False
        except Exception as error:
            self._check_spark(error)
            return self._failed(row, error)

    def _failed(self, row: UnitRow, error: Exception) -> bool:
        """Note a failure and when to try again, or that it is not to be."""
        known = self.catalog.unit(row.id)
        if known is None or known.state == "dropped":
            return False
        log.exception("unit %s failed", row.id)
        message = reason(error)
        retries = row.retries + 1
        if retries > self.limits.retries and not is_full(error):
            self.catalog.set_unit_state(row.id, "parked", error=message, retries=retries)
            self.catalog.record_event("unit parked", row.id, error=message)
        else:
            wait = min(self.limits.backoff * 2 ** (retries - 1), LONGEST_BACKOFF)
            self.catalog.set_unit_state(
                row.id, "running", error=message, retries=retries, not_before=time.time() + wait
            )
        return False

    def _unit(self, row: UnitRow) -> Unit:
        if row.id not in self._units:
            query = self.definitions.query(row.definition)
            plan = compiled(canonicalize(query))
            streams = {
                scan.stream.lower(): self.definitions.streams[scan.stream.lower()].stream
                for _, scan in plan.scans
            }
            self._units[row.id] = Unit(row, plan, streams)
        unit = self._units[row.id]
        unit.row = row
        return unit

    def step(self, unit: Unit) -> bool:
        """Let a unit take in what is new; returns whether there was anything."""
        lease = self._lease(f"unit:{unit.row.id}")
        if lease is None:
            return False
        known = self.catalog.cursors(unit.row.id)
        reached = {name: known.get(name, {"seq": 0, "watermark": None}) for name in unit.inputs}
        fresh = {
            name: self._within_limit(self.catalog.segments(name, reached[name]["seq"]))
            for name in unit.inputs
        }
        if isinstance(unit.plan, Delta):
            return self._delta(unit, lease, known, reached, fresh)
        return self._instants(unit, lease, known, reached, fresh)

    def _within_limit(self, segments: Sequence[Segment]) -> list[Segment]:
        chosen: list[Segment] = []
        rows = 0
        for found in segments:
            rows += found.rows
            if chosen and rows > self.limits.rows_per_step:
                break
            chosen.append(found)
        return chosen

    def _delta(
        self,
        unit: Unit,
        lease: Lease,
        known: Mapping[str, Any],
        reached: Mapping[str, Any],
        fresh: Mapping[str, list[Segment]],
    ) -> bool:
        if not any(fresh.values()):
            return False
        assert isinstance(unit.plan, Delta)
        start = known.get("start")
        inputs = {}
        for alias, scan in unit.plan.scans:
            name = stream_log(scan.stream)
            since = self._since(unit, scan, start)
            old = (
                self.catalog.segments(name, 0, reached[name]["seq"]) if reached[name]["seq"] else []
            )
            inputs[alias] = Input(
                overlapping(old, since, None), overlapping(fresh[name], since, None), since
            )
        frame = delta_step(self.spark, unit.plan, inputs, self._tables(unit))
        rows = sum(s.rows for found in fresh.values() for s in found)
        cursors = {
            (unit.row.id, name): _position(reached[name], fresh[name]) for name in unit.inputs
        }
        if frame is not None and start is not None:
            frame = frame.where(f"_tau > {start}")
        self._commit(unit, lease, frame, rows, cursors)
        return True

    def _instants(
        self,
        unit: Unit,
        lease: Lease,
        known: Mapping[str, Any],
        reached: Mapping[str, Any],
        fresh: Mapping[str, list[Segment]],
    ) -> bool:
        assert isinstance(unit.plan, Instants)
        start = known.get("start")
        before: int | None = known.get("instant")
        after = {name: _position(reached[name], fresh[name]) for name in unit.inputs}
        segments = {
            name: self.catalog.segments(name, 0, after[name]["seq"]) for name in unit.inputs
        }
        ready = self._complete_until(unit, after)
        views: dict[str, tuple[Segment, ...]] = {}
        since: dict[str, int | None] = {}
        for view, scan in unit.plan.scans:
            since[view] = self._since(unit, scan, start)
            views[view] = overlapping(segments[stream_log(scan.stream)], since[view], None)
        instants = next_instants(
            unit.plan, views, since, before, ready, self.limits.instants_per_step
        )
        moved = any(fresh.values())
        if not instants and not moved:
            return False
        cursors: dict[tuple[str, str], Any] = {
            (unit.row.id, name): position for name, position in after.items()
        }
        frame: DataFrame | None = None
        if instants:
            frame = instants_step(
                self.spark, unit.plan, views, since, self._tables(unit), before, instants
            )
            cursors[unit.row.id, "instant"] = instants[-1]
            if start is not None:
                frame = frame.where(f"_tau > {start}")
        rows = sum(s.rows for found in views.values() for s in found)
        self._commit(unit, lease, frame, rows, cursors)
        return True

    def _commit(
        self,
        unit: Unit,
        lease: Lease,
        frame: DataFrame | None,
        rows: int,
        cursors: Mapping[tuple[str, str], Any],
    ) -> None:
        written = None
        if frame is not None:
            folder = self._unit_folder(unit.row.id)
            written = files.write(frame, folder, "_tau", rows <= files.SMALL_ROWS)
            self.at_point("unit: written")
        segments = [] if written is None else [segment(unit_log(unit.row.id), written, None)]
        self.catalog.commit(lease, segments=segments, cursors=cursors)
        self.at_point("unit: committed")
        if unit.row.retries:
            self.catalog.set_unit_state(unit.row.id, "running")

    def _complete_until(self, unit: Unit, positions: Mapping[str, Any]) -> int | None:
        """The last time of which all tuples are here; None if an input has not begun."""
        ready = FOREVER
        for name in unit.streams:
            row = self.catalog.stream(name)
            position = positions[stream_log(name)]
            assert row is not None
            if row.ended and position["seq"] >= row.next_seq - 1:
                continue
            if position["watermark"] is None:
                return None
            ready = min(ready, position["watermark"] - 1)
        return ready

    def _since(self, unit: Unit, scan: Scan, start: int | None) -> int | None:
        """The least time of a tuple that the query may look back on."""
        if start is None:
            return None
        return start - unit.streams[scan.stream.lower()].keep

    def _tables(self, unit: Unit) -> dict[str, DataFrame]:
        frames = {}
        for view, scan in unit.plan.tables:
            declared = self.definitions.tables[scan.table.lower()]
            frames[view] = read_table(self.spark, declared.source, declared.table.schema)
        return frames

    def _unit_folder(self, unit_id: str) -> Path:
        return self.state / "log" / "units" / unit_id

    # ---- leases

    def _lease(self, name: str) -> Lease | None:
        """The lease of that name; None while another holds it."""
        return self.claims.take(name)

    def release(self) -> None:
        """Give back all leases, so that another process may go on at once."""
        self.claims.release()


def _wait_until(moment: float, stopping: Callable[[], bool]) -> None:
    """Sleep until the monotonic clock is there, or there is word to stop."""
    while (left := moment - time.monotonic()) > 0 and not stopping():
        time.sleep(min(left, 0.1))


def next_instants(
    plan: Instants,
    segments: Mapping[str, Sequence[Segment]],
    since: Mapping[str, int | None],
    before: int | None,
    ready: int | None,
    limit: int,
) -> list[int]:
    """The instants after `before` whose input is complete, at most `limit` of them."""
    held = [(s, since[view]) for view, found in segments.items() for s in found if s.rows]
    if ready is None or not held:
        return []
    last = max(s.largest_time or 0 for s, _ in held)
    if not plan.slides:
        return _event_instants(held, before, min(ready, last), limit)
    end = min(ready, max(_up_to_multiple(last, slide) for slide in plan.slides))
    first = _first_event(held) if before is None else before + 1
    found: set[int] = set()
    for slide in plan.slides:
        found |= set(range(_up_to_multiple(first, slide), end + 1, slide)[:limit])
    return sorted(found)[:limit]


def _first_event(held: Sequence[tuple[Segment, int | None]]) -> int:
    """The time of the first tuple that is not too old to be looked back on."""
    times: list[int] = []
    for held_segment, low in held:
        least = held_segment.least_time or 0
        if low is not None and least < low:
            column = files.read_arrow(held_segment.path, [TIME])[TIME]
            least = pc.min(column.filter(pc.greater_equal(column, low))).as_py()
        times.append(least)
    return min(times)


def _up_to_multiple(time_: int, slide: int) -> int:
    return time_ + -time_ % slide


def _event_instants(
    held: Sequence[tuple[Segment, int | None]], before: int | None, until: int, limit: int
) -> list[int]:
    times: set[int] = set()
    for held_segment, low in held:
        if before is not None and (held_segment.largest_time or 0) <= before:
            continue
        column = files.read_arrow(held_segment.path, [TIME])[TIME]
        values = pc.unique(column).to_pylist()
        times |= {
            t
            for t in values
            if t <= until and (before is None or t > before) and (low is None or t >= low)
        }
    return sorted(times)[:limit]


def _position(reached: Mapping[str, Any], fresh: Sequence[Segment]) -> dict[str, Any]:
    if not fresh:
        return dict(reached)
    return {"seq": fresh[-1].seq, "watermark": fresh[-1].watermark}


def _flagged(frame: DataFrame, stream: Stream, watermark: int | None) -> DataFrame:
    """The batch with event times in microseconds, and for each refused tuple the reason."""
    time_ = F.unix_micros(F.col(quoted(stream.time)))
    reason = F.when(F.col(MALFORMED).isNotNull(), F.lit("malformed"))
    for column in stream.schema:
        if not column.nullable:
            reason = reason.when(
                F.col(quoted(column.name)).isNull(), F.lit(f"{column.name} is NULL")
            )
    if watermark is not None:
        reason = reason.when(time_ < F.lit(watermark), F.lit("late"))
    names = [F.col(quoted(f.name)) for f in stream.schema]
    return frame.select(
        *names, time_.alias(TIME), F.col(ARRIVAL), F.col(MALFORMED), reason.alias("_reason")
    )


def _refused_records(flagged: DataFrame, stream: Stream) -> list[tuple[str, str]]:
    names = ", ".join(quoted(f.name) for f in stream.schema)
    rows = (
        flagged.where("_reason IS NOT NULL")
        .selectExpr("_reason", f"coalesce({MALFORMED}, to_json(struct({names}))) AS record")
        .limit(REJECTS_KEPT_PER_BATCH)
        .collect()
    )
    return [(row["_reason"], row["record"]) for row in rows]
