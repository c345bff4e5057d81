"""What happens to a unit whose step fails: it is tried again, ever later, and parked in the end.

A query that makes its unit fail is found by steps on trial and moved to a unit of its own, so that the
other queries go on. Files that are damaged park the unit immediately; a full disk never does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headwater.errors import CatalogUnavailable, LeaseLost, SparkEnded
from headwater.runtime.catalog import Catalog, UnitRow, unit_log
from headwater.runtime.engine.isolation import CulpritFinder, move_queries
from headwater.runtime.engine.planned_units import RunningUnits
from headwater.runtime.engine.steps.stepper import Stepper
from headwater.runtime.leases import ProcessLeases
from headwater.runtime.spark.errors import describe_error, is_damaged_file, is_disk_full

log = logging.getLogger("headwater")

MAX_RETRY_SECONDS = 60.0
ISOLATE_AFTER_FAILURES = 2
"""After this many failures in a row, the queries that make a unit fail are looked for."""


@dataclass(frozen=True)
class UnitFailures:
    """Notes failures in the catalog, and moves the queries that cause them."""

    catalog: Catalog
    leases: ProcessLeases
    units: RunningUnits
    stepper: Callable[[], Stepper]
    """The stepper as it is now: its settings and its Spark session change between rounds."""
    describe_trial_error: Callable[[Exception], str]
    """Why a step on trial failed; raises if that is not the fault of its queries."""
    clock: Callable[[], float]

    def handle(self, row: UnitRow, error: Exception) -> bool:
        """Note a failure, and when to try again or that it is parked; returns whether there
        is something to do immediately."""
        current = self.catalog.unit(row.id)
        if current is None or current.state == "dropped":
            return False
        log.error("unit %s failed", row.id, exc_info=error)
        message = describe_error(error)
        retries = row.retries + 1
        max_retries = self.stepper().settings.retries
        if is_damaged_file(error):  # no query is to blame, and trying again repairs nothing
            self.catalog.park_unit(row.id, message, retries)
            return False
        last = retries > max_retries and not is_disk_full(error)
        # Not at the first failure: many pass by themselves, and each trial costs as much as a step.
        if (last or retries == ISOLATE_AFTER_FAILURES) and not is_disk_full(error):
            with self._tolerate_errors(row):
                is_isolated = self._isolate_culprits(current, retries)
                if is_isolated:
                    return True
                # On trial nothing failed: what was wrong may have passed, so it is tried once more.
                last &= is_isolated is not None or retries > max_retries + 1
        if last:
            self.catalog.park_unit(row.id, message, retries)
        else:
            self._retry_later(row.id, message, retries)
        return False

    def isolate_or_park(self, row: UnitRow, why: str) -> None:
        """Move the queries that make a unit fail for a reason that is known; else park all of it."""
        with self._tolerate_errors(row):
            if self._isolate_culprits(row, row.retries + 1, why):
                return
        self.catalog.park_unit(row.id, why, row.retries + 1)

    def _retry_later(self, unit_id: str, message: str, retries: int) -> None:
        """Note a failure, and that the unit waits before it is tried again."""
        backoff = self.stepper().settings.backoff
        wait = min(backoff * 2 ** (retries - 1), MAX_RETRY_SECONDS)
        self.catalog.set_unit_state(
            unit_id, "running", error=message, retries=retries, not_before=self.clock() + wait
        )

    @contextmanager
    def _tolerate_errors(self, row: UnitRow) -> Iterator[None]:
        """Log what goes wrong while culprits are looked for; the unit is tried again as it is."""
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
        """Move the queries that make a unit fail to units of their own, and let the others go on from
        where they are; whether that was possible, None if none of them fails any more. `why` is the
        reason if it is known already that they fail together.

        Queries that fail only together are divided.
        """
        lease = self.leases.acquire(unit_log(row.id))
        if lease is None:
            return False
        self.units.discard(row.id)
        row, queries = self.units.with_queries(row)
        finder = CulpritFinder(self.stepper, self.units.plan, self.describe_trial_error)
        culprits = finder.find_culprits(row, queries, why)
        if culprits is None:
            return None
        digests = list(dict.fromkeys(query.digest for query in queries if not query.is_hidden))
        groups = [[digest] for digest in culprits] or [digests[: len(digests) // 2]]
        # Where each fails by itself they share the cause, say a missing table: the unit stays whole.
        if len(culprits) == len({query.digest for query in queries}) or not any(groups):
            return False
        for group in groups:
            names = [query.name for query in queries if query.digest in group]
            new = move_queries(self.catalog, self.stepper().store, lease, row, names)
            self.stepper().at_point("unit: moved")
            # A move raises the version, and the next one expects it.
            row = replace(row, version=row.version + 1)
            if culprits:
                log.error("unit %s fails by %s, now in unit %s", row.id, ", ".join(names), new)
                self._park_or_retry(new, culprits[group[0]], retries, why is not None)
        self.catalog.set_unit_state(row.id, "running")
        return True

    def _park_or_retry(self, unit_id: str, message: str, retries: int, deadly: bool) -> None:
        """Park a unit whose query is known to fail, unless it is to be tried some more."""
        if deadly or retries > self.stepper().settings.retries:
            self.catalog.park_unit(unit_id, message, retries)
        else:
            self._retry_later(unit_id, message, retries)
