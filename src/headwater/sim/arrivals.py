"""When tuples arrive: Poisson, on and off with heavy tails, or as a trace says.

Arrivals come in chunks, so that a long run needs no more memory than a short one. The same seed
gives the same times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from headwater.errors import SimulationError
from headwater.sim.metrics import Floats

CHUNK = 4096


class Arrivals(Protocol):
    """A stream of times in ascending order."""

    def chunks(self, seed: int, /) -> Iterator[Floats]:
        """The times, some thousands at once."""

    def __hash__(self) -> int:
        """Equal arrivals have equal hashes, so that runs can be kept by them."""


@dataclass(frozen=True)
class FixedTimes:
    """Given times."""

    times: tuple[float, ...]

    def chunks(self, _seed: int, /) -> Iterator[Floats]:
        yield np.array(self.times)


@dataclass(frozen=True)
class Poisson:
    """A number of independent tuples with a mean time between them."""

    tuples: int
    gap: float = 1.0

    def chunks(self, seed: int) -> Iterator[Floats]:
        # A second number for each use of a seed keeps the random streams of a run independent.
        rng = np.random.default_rng((seed, 1))
        now = 0.0
        for size in _chunk_sizes(self.tuples):
            times = now + np.cumsum(rng.exponential(self.gap, size))
            now = float(times[-1])
            yield times


@dataclass(frozen=True)
class OnOff:
    """Traffic of sources that are on and off in turns, for Pareto times: bursts on every scale.

    A source that is on sends a tuple every `spacing`. The times have the means `on` and `off` and fall
    off with the exponent `shape`; below 2 their variance is infinite.
    """

    tuples: int
    sources: int = 1
    on: float = 10.0
    off: float = 10.0
    shape: float = 1.5
    spacing: float = 0.5

    def __post_init__(self) -> None:
        # At a shape of 1 or less the mean is infinite, and `on` and `off` could not be its values.
        if self.shape <= 1:
            raise SimulationError(f"a Pareto time has a mean for a shape above 1, not {self.shape}")

    def chunks(self, seed: int) -> Iterator[Floats]:
        streams = [self._bursts(seed, number) for number in range(self.sources)]
        bursts = [next(stream) for stream in streams]
        left = self.tuples
        horizon = 0.0
        rest = np.empty(0)
        while left:
            # Bursts of all sources are only in order up to a common horizon: what lies beyond waits
            # for more.
            horizon += CHUNK * self.spacing / self.sources
            parts = [rest]
            for number, stream in enumerate(streams):
                while bursts[number][0] < horizon:
                    parts.append(bursts[number])
                    bursts[number] = next(stream)
            times = np.sort(np.concatenate(parts), kind="stable")
            ready = int(np.searchsorted(times, horizon))
            chunk, rest = times[: min(ready, left)], times[ready:]
            left -= len(chunk)
            if len(chunk):
                yield chunk

    def _bursts(self, seed: int, number: int) -> Iterator[Floats]:
        """The bursts of one source; each has at least one tuple."""
        rng = np.random.default_rng((seed, 2, number))
        # A Pareto time of minimum m has the mean m shape / (shape - 1): this is the m of mean 1.
        # numpy's `pareto` is the Lomax form, one less than the classic one.
        scale = (self.shape - 1) / self.shape
        now = float(rng.uniform(0.0, self.on + self.off))
        while True:
            length = self.on * scale * (1.0 + rng.pareto(self.shape))
            yield now + self.spacing * np.arange(max(1, int(length / self.spacing)), dtype=float)
            now += length + self.off * scale * (1.0 + rng.pareto(self.shape))


@dataclass(frozen=True)
class RequestTrace:
    """The times of a log of web requests: `host [DD:HH:MM:SS] "request" status bytes`.

    Requests of the same second are spread evenly over it.
    """

    path: Path
    tuples: int | None = None

    def chunks(self, _seed: int, /) -> Iterator[Floats]:
        for begin in range(0, len(self._times), CHUNK):
            yield self._times[begin : begin + CHUNK]

    @cached_property
    def _times(self) -> Floats:
        try:
            # Old logs have bytes of any encoding, and latin-1 reads all of them; only the times
            # matter.
            text = self.path.read_text(encoding="latin-1")
        except OSError as error:
            raise SimulationError(
                f"{self.path} cannot be read: {error.strerror}; name a trace with --data"
            ) from error
        matches = re.findall(r"\[(\d+):(\d+):(\d+):(\d+)\]", text)
        if not matches:
            raise SimulationError(f"{self.path} has no line with a time like [30:23:59:59]")
        seconds = np.array(matches, dtype=np.int64) @ np.array([86_400, 3_600, 60, 1])
        seconds = np.sort(seconds - seconds.min())[: self.tuples]
        _, first, count = np.unique(seconds, return_index=True, return_counts=True)
        rank_in_second = np.arange(len(seconds)) - np.repeat(first, count)
        return np.asarray(seconds + rank_in_second / np.repeat(count, count), dtype=np.float64)


def mean_gap(arrivals: Arrivals, seed: int) -> float:
    """The mean time between the tuples of a stream, measured over the entire stream."""
    count, first, last = 0, 0.0, 0.0
    for chunk in arrivals.chunks(seed):
        first = first if count else float(chunk[0])
        count += len(chunk)
        last = float(chunk[-1])
    if count < 2:
        raise SimulationError("a stream of fewer than two tuples has no mean gap; ask for more")
    return (last - first) / (count - 1)


def _chunk_sizes(tuples: int) -> Iterator[int]:
    for begin in range(0, tuples, CHUNK):
        yield min(CHUNK, tuples - begin)
