"""The engine as `headwater run` drives it: it can be stopped between two steps, and counts them."""

from __future__ import annotations

import time
from threading import Event, Lock

from headwater.runtime.engine.engine import Engine
from headwater.runtime.engine.stepper import Unit


class SteeredEngine(Engine):
    """An engine that does nothing more once it was told to stop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stop = Event()
        self.steps = 0
        self._counting = Lock()
        self._busy_at = time.monotonic()

    def ingest(self, name: str) -> bool:
        return not self.stop.is_set() and super().ingest(name)

    def step(self, unit: Unit) -> bool:
        if self.stop.is_set():
            return False
        worked = super().step(unit)
        if worked:
            with self._counting:
                self.steps += 1
        return worked

    def deliver(self, query: str) -> bool:
        return not self.stop.is_set() and super().deliver(query)

    def tick(self) -> bool:
        worked = super().tick()
        if worked:
            self._busy_at = time.monotonic()
        return worked

    def end_finite_streams(self) -> bool:
        return not self.stop.is_set() and super().end_finite_streams()

    def go(self, until_idle: bool, patience: float, interval: float | None = None) -> None:
        """Run until told to stop, or until nothing came for so many seconds and all is done."""
        if not until_idle or patience:
            self.run(
                interval=interval,
                stopping=lambda: self.stop.is_set() or (until_idle and self._idle_for(patience)),
            )
        if until_idle and not self.stop.is_set():
            self.run(until_idle=True, interval=interval, stopping=self.stop.is_set)

    def _idle_for(self, patience: float) -> bool:
        return time.monotonic() - self._busy_at > patience
