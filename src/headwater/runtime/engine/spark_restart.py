"""Spark that ends while it works, as if out of memory: it is started again, and the culprit found.

Java takes all work with it, so whatever was active is suspected. Each suspect then works alone before
the rest goes on: if Spark ends again, that one is to blame. A unit stays suspected in the catalog, so
that this also works where the whole process is started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from pyspark.sql import SparkSession

from headwater.errors import SparkEnded
from headwater.runtime.catalog import Catalog, UnitRow, unit_log
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.engine.failures import UnitFailures
from headwater.runtime.ingest.ingestion import Ingestion
from headwater.runtime.sites.single_site import ProcessSite
from headwater.runtime.spark.errors import describe_error, is_disk_full, raise_if_spark_ended
from headwater.runtime.spark.session import discard_session

log = logging.getLogger("headwater")

SERIAL_AFTER_SPARK_ENDS = 5
"""When Java has ended this often with several things active, these run one after the other."""
SPARK_ENDED_ERROR = "Java ended at work on it, as if out of memory: more is in spark.log"
"""The error of a unit that was active when Spark ended: it steps alone next."""


class SuspectWork(Protocol):
    """The parts of an engine that let one suspect work alone, and deal with a culprit."""

    definitions: Definitions
    ingestion: Ingestion
    failures: UnitFailures
    local_site: ProcessSite

    def try_step(self, row: UnitRow) -> bool: ...

    def ingest(self, name: str) -> bool: ...


@dataclass
class SparkRecovery:
    """Holds the session, what is active in it, and what is suspected of having ended one."""

    catalog: Catalog
    holder: str
    session: SparkSession
    restart: Callable[[], SparkSession] | None
    """Starts Spark again after it has ended; without it, a run ends too."""
    use_session: Callable[[SparkSession], None]
    """Called with each new session."""
    _active: set[str] = field(default_factory=set)
    _suspects: frozenset[str] = frozenset()
    _suspect_streams: set[str] = field(default_factory=set)
    _ends_of_several: int = 0
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_serial(self) -> bool:
        """Whether Java ended so often under concurrent work that it has to be done in turn."""
        return self._ends_of_several >= SERIAL_AFTER_SPARK_ENDS

    @contextmanager
    def track(self, owner: str) -> Iterator[None]:
        """Count some work as active, so that it is suspected if Spark ends meanwhile."""
        with self._lock:
            self._active.add(owner)
        try:
            yield
        except SparkEnded:
            with self._lock:
                self._suspects |= self._active
            raise
        finally:
            with self._lock:
                self._active.discard(owner)

    def describe_trial_error(self, error: Exception) -> str:
        """Why a step on trial failed; Spark is started again if the step ended it and nothing else
        was active. Raises what is not the fault of the step."""
        if is_disk_full(error):
            raise error
        try:
            raise_if_spark_ended(self.session, error)
        except SparkEnded as ended:
            if self._active:  # one of these may have ended it: each is tried alone first
                raise
            self._start_again(ended)
            return SPARK_ENDED_ERROR
        return describe_error(error)

    def suspect_active(self, error: SparkEnded) -> None:
        """Suspect what was active when Spark ended, and start Spark again; raises the error if it is
        not to be."""
        suspects, self._suspects = self._suspects, frozenset()
        # One suspect is a culprit that is dealt with; several may only be too much together.
        self._ends_of_several += len(suspects) > 1
        for owner in sorted(suspects):
            kind, _, name = owner.partition(":")
            row = self.catalog.unit(name) if kind == "unit" else None
            if kind != "unit":
                self._suspect_streams.add(name)
            elif row is not None and row.state == "running":
                self.catalog.set_unit_state(
                    name, "running", error=SPARK_ENDED_ERROR, retries=row.retries + 1
                )
        self._start_again(error)

    def try_suspects(self, work: SuspectWork) -> bool:
        """Let each suspect work alone: if Spark ends again, that one is to blame, and is parked or
        read no more. Returns whether there was any."""
        suspects = [
            row
            for row in self.catalog.units()
            if row.state == "running"
            and row.error == SPARK_ENDED_ERROR
            and work.local_site.owns(unit_log(row.id))
        ]
        for row in suspects:
            try:
                work.try_step(row)
                self._clear_suspicion(row)
            except SparkEnded as error:
                if self.restart is None:  # parked now, so that the next run gets past it
                    self.catalog.park_unit(row.id, SPARK_ENDED_ERROR, row.retries + 1)
                self._start_after_blame(error)
                # After the start, as steps on trial need Spark.
                work.failures.isolate_or_park(row, SPARK_ENDED_ERROR)
        streams, self._suspect_streams = self._suspect_streams, set()
        for name in streams & work.definitions.streams.keys():
            try:
                work.ingest(name)
            except SparkEnded as error:
                self._start_after_blame(error)
                work.ingestion.abandon(name, SPARK_ENDED_ERROR)
        return bool(suspects or streams)

    def _clear_suspicion(self, row: UnitRow) -> None:
        """A unit that stepped, or had nothing to do, and did no harm is not suspected any more."""
        current = self.catalog.unit(row.id)
        if (
            current is not None
            and current.state == "running"
            and current.error == SPARK_ENDED_ERROR
        ):
            self.catalog.set_unit_state(row.id, "running")

    def _start_after_blame(self, error: SparkEnded) -> None:
        """Start Spark again where it is known what is to blame, so that nothing else is suspected."""
        self._suspects = frozenset()
        self._start_again(error)

    def _start_again(self, error: SparkEnded) -> None:
        if self.restart is None:
            raise error
        message = str(error).replace("run it again to go on", "it is started again")
        log.error("%s", message)
        self.catalog.record_event("spark ended", self.holder, error=message)
        discard_session(self.session)
        self.session = self.restart()
        self.use_session(self.session)
