"""A round of the engine: jobs that run first, and units that are chosen one after the other.

Units wait for the jobs, whose tuples they would otherwise leave to the next step; but not for long.
Several threads ask for the next task. A round ends when nothing is left to do. Once something was done
it also ends a while after all jobs have begun, so that what is due between rounds is done in time; until
then threads go on with other tasks while one that began earlier still runs, so that a slow unit does not
hold up the others.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Condition

Job = Callable[[], bool]
"""Does something; returns whether there was anything to do."""

PATIENCE_SECONDS = 0.5
"""Seconds that units wait for the jobs of their round."""


@dataclass
class Round:
    """What there is to do in a round.

    The jobs run first, and those that had something to do run again while other tasks are active.
    `choose` names the unit to step next out of those that are free, None if none of them has anything
    to do; `step` steps it.
    """

    jobs: Iterable[Job] = ()
    units: Set[str] = frozenset()
    choose: Callable[[Set[str]], str | None] = lambda units: None
    step: Callable[[str], bool] = lambda unit: False
    max_seconds: float = 1.0
    patience: float = PATIENCE_SECONDS
    _changed: Condition = field(default_factory=Condition)

    def run(self, threads: int) -> bool:
        """Run it in that many threads; returns whether there was anything to do. What a task raises is
        raised when the other threads have ended."""
        self._first_jobs = deque(self.jobs)
        self._repeat_jobs: deque[Job] = deque()
        self._free_units = set(self.units)
        self._active = self._active_from_before = 0
        self._unfinished_jobs = len(self._first_jobs)
        self._patient_until = time.monotonic() + self.patience
        # The time counts from the last job's begin, or a round of many streams would leave some
        # out.
        self._ends_at = math.inf if self._first_jobs else time.monotonic() + self.max_seconds
        self._has_failed = self._has_worked = False
        threads = max(1, min(threads, len(self._first_jobs) + len(self._free_units)))
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(self._work) for _ in range(threads)]:
                future.result()
        return self._has_worked

    def _work(self) -> None:
        while (job := self._next_task()) is not None:
            job()

    def _next_task(self) -> Callable[[], None] | None:
        """The next task of a thread, None if there is no more; waits while other tasks may lead to some."""
        with self._changed:
            while not self._has_failed:
                if (
                    self._has_worked
                    and time.monotonic() > self._ends_at
                    and not self._active_from_before
                ):
                    return None
                task = self._pick_task()
                if task is not None:
                    return task
                if not self._active:
                    return None
                # Until a task ends, or units need not wait for the jobs any longer.
                self._changed.wait(self._patience_left)
            return None

    def _pick_task(self) -> Callable[[], None] | None:
        if self._first_jobs:
            job = self._first_jobs.popleft()
            if not self._first_jobs:
                self._ends_at = time.monotonic() + self.max_seconds
            return self._begin_job(job, first=True)
        if self._patience_left is not None:
            return None
        unit = self._choose_unit()
        if unit is not None:
            # The lease of a unit is the process's, so threads have to keep apart by themselves.
            self._free_units.discard(unit)
            return self._begin_task(
                lambda: self.step(unit), lambda worked: self._free_units.add(unit)
            )
        # Only beside other tasks: a source that always has more would keep the round from ending.
        if self._repeat_jobs and self._active:
            return self._begin_job(self._repeat_jobs.popleft())
        return None

    @property
    def _patience_left(self) -> float | None:
        """For how long units still wait; None if they do not."""
        left = self._patient_until - time.monotonic()
        return left if self._unfinished_jobs and left > 0 else None

    def _begin_job(self, job: Job, first: bool = False) -> Callable[[], None]:
        def then(worked: bool) -> None:
            self._unfinished_jobs -= first
            if worked:
                self._repeat_jobs.append(job)

        return self._begin_task(job, then)

    def _choose_unit(self) -> str | None:
        try:
            # A failure has to wake the other threads, which would wait for this one's task to end.
            return self.choose(self._free_units) if self._free_units else None
        except BaseException:
            self._has_failed = True
            self._changed.notify_all()
            raise

    def _begin_task(self, job: Job, then: Callable[[bool], None]) -> Callable[[], None]:
        """The job, and what is recorded when it is done."""
        before = time.monotonic() <= self._ends_at
        self._active += 1
        self._active_from_before += before

        def done() -> None:
            worked = False
            try:
                worked = job()
            except BaseException:
                self._has_failed = True  # the other threads end after the task they have
                raise
            finally:
                with self._changed:
                    self._active -= 1
                    self._active_from_before -= before
                    self._has_worked |= worked
                    then(worked)
                    self._changed.notify_all()

        return done
