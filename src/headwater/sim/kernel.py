"""The event kernel: a clock, and things that happen at times.

Events that happen at the same time happen in the order in which they were set, so a run repeats
exactly. A process is a generator that yields how long it waits each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from headwater.errors import SimulationError

Process = Generator[float, None, None]


@dataclass(order=True)
class SimulationEvent:
    """Something that will happen at a time, unless it is cancelled before."""

    time: float
    sequence: int
    action: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Prevent the event."""
        # Left in the heap and skipped at the top: removing from the middle of a heap costs a
        # rebuild.
        self.cancelled = True


class Simulation:
    """A clock and the events to come."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.event_count = 0
        self._events: list[SimulationEvent] = []
        self._next_sequence = 0

    def schedule_at(self, time: float, action: Callable[[], None]) -> SimulationEvent:
        """Let something happen at a time. Raises SimulationError for a time that is past or none."""
        if not self.now <= time < math.inf:
            raise SimulationError(f"it is {self.now}: nothing can be set for {time}")
        event = SimulationEvent(time, self._next_sequence, action)
        self._next_sequence += 1
        heappush(self._events, event)
        return event

    def schedule_after(self, delay: float, action: Callable[[], None]) -> SimulationEvent:
        """Let something happen after a delay."""
        return self.schedule_at(self.now + delay, action)

    def start_process(self, process: Process) -> None:
        """Run a process from now on: up to its next wait each time."""

        def resume() -> None:
            delay = next(process, None)
            if delay is not None:
                self.schedule_after(delay, resume)

        self.schedule_at(self.now, resume)

    def next_time(self) -> float:
        """When the next event happens; infinity if there is none."""
        while self._events and self._events[0].cancelled:
            heappop(self._events)
        return self._events[0].time if self._events else math.inf

    def step(self) -> None:
        """Let the next event happen. Raises SimulationError if there is none."""
        time = self.next_time()
        if time == math.inf:
            raise SimulationError("nothing is left to happen; set an event first")
        self.now = time
        self.event_count += 1
        heappop(self._events).action()

    def run(self, until: float = math.inf) -> None:
        """Let everything happen up to a time, which is included and which it then is."""
        # Without events the next time is infinite, which is not beyond an infinite `until`.
        while self.next_time() <= until and self._events:
            self.step()
        if until < math.inf:
            self.now = max(self.now, until)
