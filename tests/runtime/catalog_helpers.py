"""What the tests of the catalog share, and what they run in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from itertools import count
from multiprocessing.synchronize import Barrier
from typing import Any

from sqlalchemy import Engine, event

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import (
    BatchRejects,
    Catalog,
    Lease,
    NewQuery,
    NewSegment,
    NewUnit,
    QueryRow,
    stream_log,
)
from headwater.testing import ManualClock

S = stream_log("s")
_paths = count()


class Clock(ManualClock):
    """A clock that begins at 1,000 seconds."""

    def __init__(self) -> None:
        super().__init__(1_000.0)


def segment(
    rows: int = 1, *, at: int | None = None, key: str | None = None, of: str = S
) -> NewSegment:
    return NewSegment(of, f"/log/{next(_paths)}", rows, 10 * rows, at, at, at, key=key)


def accept(catalog: Catalog, name: str, unit: str, *inputs: str) -> QueryRow:
    """A query of that name, in the unit if it is there, else in a new one with these inputs."""
    known = catalog.unit(unit)
    new = unit if known and known.state != "dropped" else NewUnit("d", "SELECT", inputs, id=unit)
    return catalog.accept_query(NewQuery(name, "SELECT 1", "d"), new)


_barrier: Barrier | None = None


def start(barrier: Barrier) -> None:
    """The first thing that runs in each process."""
    global _barrier
    _barrier = barrier


def _meet() -> None:
    """Go on when all are here."""
    assert _barrier is not None
    _barrier.wait(30)


def open_together(where: str) -> int:
    """Open a catalog at the same moment as the others; returns how many streams it has."""
    _meet()
    with Catalog.open(where) as catalog:
        return len(catalog.streams())


def submit_all(where: str, names: list[str]) -> list[str]:
    """Submit queries that others submit too; returns those that were accepted."""
    with Catalog.open(where) as catalog:
        _meet()
        accepted = []
        for name in names:
            try:
                catalog.accept_query(NewQuery(name, "", "d"), NewUnit("d", ""))
                accepted.append(name)
            except CatalogError as error:
                assert f"a query {name} already" in str(error), error
        return accepted


def replay_all(where: str, batches: int) -> list[int]:
    """Commit batches that others commit too; returns the sequence numbers they have."""
    with Catalog.open(where) as catalog:
        _meet()
        kept = [
            catalog.commit(
                None,
                segments=[segment(n, key=str(n))],
                rejects=[BatchRejects("s", malformed=1, records=(("bad", str(n)),))],
            )
            for n in range(batches)
        ]
        return [segments[0].seq for segments in kept]


def contend(where: str, holder: str, steps: int) -> tuple[int, int]:
    """Step a unit that others step too, now and then stalling for longer than the lease lasts.

    Returns how many steps were kept, and how many were refused because the lease had passed.
    """
    kept = lost = 0
    with Catalog.open(where) as catalog:
        _meet()
        while True:
            lease = catalog.acquire("unit:u", holder, ttl=0.03)
            if lease is None:
                time.sleep(0.002)
                continue
            for turn in range(4):
                position = catalog.cursor("u", S) or 0
                if position >= steps:
                    return kept, lost
                if turn == 3:
                    _stall(catalog, lease)
                try:
                    catalog.commit(
                        lease,
                        segments=[segment(position, of="unit:u")],
                        cursors={("u", S): position + 1},
                    )
                    kept += 1
                except LeaseLost:
                    lost += 1
                    break


def _stall(catalog: Catalog, lease: Lease) -> None:
    """Stand still until another has taken over."""
    deadline = time.monotonic() + 10
    while catalog.leases()[0].token == lease.token and time.monotonic() < deadline:
        time.sleep(0.01)


def crash_everywhere(where: str) -> list[tuple[int, ...]]:
    """Die at every point of a commit, then look; returns what there was after each death.

    The process is killed after its first statement, after its second, ..., and before the
    database is asked to commit; the last one of the children lives.
    """
    seen = [_state(where)]
    for point in count(1):
        child = os.fork()
        if child == 0:
            try:
                _commit_and_die(where, point)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        seen.append(_state(where))
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            return seen
    raise AssertionError


def _commit_and_die(where: str, point: int) -> None:
    with Catalog.open(where) as catalog:
        lease = catalog.acquire("x", "me", ttl=60)
        step = _state(where)[0] + 1
        die = _killer(point)
        event.listen(Engine, "after_cursor_execute", die)
        event.listen(Engine, "commit", die)
        catalog.commit(
            lease,
            segments=[segment(step, key=str(step))],
            cursors={("ingest:s", "files"): step},
            statistics={("s", "rate"): float(step)},
            stream_progress=("s", step),
            rejects=[BatchRejects("s", malformed=1, records=(("bad", "x"),))],
        )
        event.remove(Engine, "after_cursor_execute", die)
        event.remove(Engine, "commit", die)


def _killer(point: int) -> Callable[..., None]:
    passed = count(1)

    def die(*_: Any) -> None:
        if next(passed) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def _state(where: str) -> tuple[int, ...]:
    """All that a commit changes, as numbers that each commit makes larger by one."""
    with Catalog.open(where) as catalog:
        stream, rate = catalog.stream("s"), catalog.statistic("s", "rate")
        assert stream is not None
        return (
            len(catalog.segments(S)),
            catalog.log_ends()[S].seq,
            catalog.cursor("ingest:s", "files") or 0,
            int(rate.value) if rate else 0,
            stream.max_event_time or 0,
            stream.malformed,
            len(catalog.rejects("s")),
        )
