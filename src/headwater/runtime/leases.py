"""The leases of one process: acquired when needed, renewed in the background, released at the end.

A lease may be lost at any time, to a process that waited for it to expire. The commit notices, and
is refused; so nothing here has to be exact.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Lock, Thread

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import MAX_LEASE_SECONDS, Catalog, Lease, is_in_future

log = logging.getLogger("headwater")


def process_name() -> str:
    """The name under which this process holds leases."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead_process(holder: str) -> bool:
    """Whether a holder of leases, `host:pid`, was a process of this machine that has ended."""
    host, _, pid = holder.rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return True
    except OSError:  # it exists and belongs to another user
        return False
    return False


@contextmanager
def run_periodically(action: Callable[[], object], every: float, name: str) -> Iterator[None]:
    """Call `action` every `every` seconds in a background thread until the block ends."""
    done = Event()

    def work() -> None:
        while not done.wait(every):
            action()

    thread = Thread(target=work, daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class ProcessLeases:
    """The leases of one holder; may be shared by threads.

    A lease is trusted for half of its time to live, then acquired again. That is measured by the
    monotonic clock, which nobody can set back.
    """

    def __init__(
        self,
        catalog: Catalog,
        holder: str,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog = catalog
        self._holder = holder
        self._seconds = seconds
        self._clock = clock
        self._held: dict[str, tuple[Lease, float]] = {}
        self._contended: dict[str, str] = {}
        self._lock = Lock()

    def acquire(self, name: str) -> Lease | None:
        """The lease of that name, held already or acquired now; None while another holds it."""
        with self._lock:
            current, fresh_until = self._held.get(name, (None, 0.0))
            if current is not None and fresh_until > self._clock():
                return current
        requested_at = (
            self._clock()
        )  # before the call, which may take long: the lease counts from there
        lease = self._catalog.acquire(name, self._holder, self._seconds)
        if lease is None and self._free_if_dead(name):
            lease = self._catalog.acquire(name, self._holder, self._seconds)
        with self._lock:
            if lease is None:
                self._held.pop(name, None)
                self._contended.setdefault(name, "another process")
            else:
                self._held[name] = lease, requested_at + self._seconds / 2
                self._contended.pop(name, None)
        return lease

    def _free_if_dead(self, name: str) -> bool:
        """Release the lease of a process of this machine that died; whether it is free now."""
        for lease in self._catalog.leases():
            if lease.name == name:
                with self._lock:
                    self._contended[name] = lease.holder
                return is_dead_process(lease.holder) and self._catalog.release(lease)
        return True

    def release_where(self, predicate: Callable[[str], bool]) -> None:
        """Release the leases whose names satisfy the predicate."""
        with self._lock:
            leases = [self._held.pop(name)[0] for name in list(self._held) if predicate(name)]
        for lease in leases:
            self._catalog.release(lease)

    def mark_lost(self, name: str) -> None:
        """Stop using a lease under which a commit was refused."""
        with self._lock:
            self._held.pop(name, None)
            self._contended.setdefault(name, "another process")

    def pop_contended(self) -> dict[str, str]:
        """The leases that were refused since the last call, each with its holder."""
        with self._lock:
            contended, self._contended = self._contended, {}
            return contended

    def keep_alive(self) -> AbstractContextManager[None]:
        """Renew all leases until the block ends, as a step may outlast a lease."""
        # Twice in the half of its time for which a lease is trusted, so that one failure is no
        # harm.
        return run_periodically(self._renew_all, self._seconds / 4, "leases")

    def _renew_all(self) -> None:
        with self._lock:
            due = [lease for lease, _ in self._held.values()]
        for lease in due:
            self._renew(lease)

    def _renew(self, lease: Lease) -> None:
        requested_at = self._clock()
        try:
            renewed = self._catalog.renew(lease, self._seconds)
        except LeaseLost:
            # Only if it is still the one in use: another thread may have acquired it again.
            if self._holds(lease):
                self.mark_lost(lease.name)
        except CatalogError as error:
            log.debug("%s cannot be renewed now: %s", lease.name, error)
        else:
            with self._lock:
                if self._holds(lease):
                    self._held[lease.name] = renewed, requested_at + self._seconds / 2

    def _holds(self, lease: Lease) -> bool:
        current, _ = self._held.get(lease.name, (None, 0.0))
        return current is not None and current.token == lease.token

    def release_all(self) -> None:
        """Release all leases, so that another process can continue immediately."""
        with self._lock:
            leases, self._held = [lease for lease, _ in self._held.values()], {}
        for lease in leases:
            # Without the catalog they expire by themselves.
            with suppress(CatalogError):
                self._catalog.release(lease)


def lease_holders(leases: Iterable[Lease], now: float | None = None) -> dict[str, float]:
    """The processes that run streams and units, and the seconds until their leases expire.

    Processes that are known to be dead are left out.
    """
    at = time.time() if now is None else now
    seconds_left: dict[str, float] = {}
    for lease in leases:
        if is_in_future(lease.expires_at, at, MAX_LEASE_SECONDS) and not is_dead_process(
            lease.holder
        ):
            seconds_left[lease.holder] = max(
                seconds_left.get(lease.holder, 0.0), lease.expires_at - at
            )
    return seconds_left
