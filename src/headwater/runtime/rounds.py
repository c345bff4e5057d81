"""A round of the engine: jobs that are done first, and units that are chosen one after the other.

Units are chosen when the jobs are through, as what these bring is worth waiting for; but not for long.
Several threads ask what is next. A round ends when nothing is left to do. Once something was done it
also ends a while after all jobs are begun, so that what is done between rounds is done in time; a
thread that is through by then goes on as long as a job from before is at work, so that a slow unit
keeps nobody waiting.
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

PATIENCE = 0.5
"""Seconds that units wait for the jobs of their round."""


@dataclass
class Round:
    """What there is to do in a round.

    The jobs are done first, and again where that was worth it while others are at work. `choose`
    names the unit to step next out of those that are not at work, None if none of them has anything
    to do; `step` steps it.
    """

    jobs: Iterable[Job] = ()
    units: Set[str] = frozenset()
    choose: Callable[[Set[str]], str | None] = lambda units: None
    step: Callable[[str], bool] = lambda unit: False
    seconds: float = 1.0
    patience: float = PATIENCE
    _changed: Condition = field(default_factory=Condition)

    def run(self, threads: int) -> bool:
        """Do it all, so many at once; whether anything was worth it. What a job raises is raised
        when the others are through."""
        self._first = deque(self.jobs)
        self._later: deque[Job] = deque()
        self._free = set(self.units)
        self._working = self._from_before = 0
        self._undone = len(self._first)
        self._patient_until = time.monotonic() + self.patience
        self._ends = math.inf if self._first else time.monotonic() + self.seconds
        self._broken = self._worked = False
        threads = max(1, min(threads, len(self._first) + len(self._free)))
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(self._work) for _ in range(threads)]:
                done.result()
        return self._worked

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Callable[[], None] | None:
        """What a thread does now, None if it is through; waits while others may leave it something."""
        with self._changed:
            while not self._broken:
                if self._worked and time.monotonic() > self._ends and not self._from_before:
                    return None
                found = self._found()
                if found is not None:
                    return found
                if not self._working:
                    return None
                self._changed.wait(self._patience)
            return None

    def _found(self) -> Callable[[], None] | None:
        if self._first:
            job = self._first.popleft()
            if not self._first:
                self._ends = time.monotonic() + self.seconds
            return self._job(job, first=True)
        if self._patience is not None:
            return None
        unit = self._chosen()
        if unit is not None:
            self._free.discard(unit)
            return self._begun(lambda: self.step(unit), lambda worked: self._free.add(unit))
        if self._later and self._working:
            return self._job(self._later.popleft())
        return None

    @property
    def _patience(self) -> float | None:
        """For how long units still wait; None if they do not."""
        left = self._patient_until - time.monotonic()
        return left if self._undone and left > 0 else None

    def _job(self, job: Job, first: bool = False) -> Callable[[], None]:
        def then(worked: bool) -> None:
            self._undone -= first
            if worked:
                self._later.append(job)

        return self._begun(job, then)

    def _chosen(self) -> str | None:
        try:
            return self.choose(self._free) if self._free else None
        except BaseException:
            self._broken = True
            self._changed.notify_all()
            raise

    def _begun(self, job: Job, then: Callable[[bool], None]) -> Callable[[], None]:
        """The job, and what is noted when it is done."""
        before = time.monotonic() <= self._ends
        self._working += 1
        self._from_before += before

        def done() -> None:
            worked = False
            try:
                worked = job()
            except BaseException:
                self._broken = True
                raise
            finally:
                with self._changed:
                    self._working -= 1
                    self._from_before -= before
                    self._worked |= worked
                    then(worked)
                    self._changed.notify_all()

        return done
