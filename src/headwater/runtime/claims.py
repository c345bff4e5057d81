"""The leases of one process: taken when needed, kept alive in the background, given back at the end.

A lease may be lost at any time, to another process that waited for its end. That is noticed by the
commit, which is refused; so nothing here has to be exact.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Lock, Thread

from headwater.errors import CatalogError, LeaseLost
from headwater.runtime.catalog import Catalog, Lease

log = logging.getLogger("headwater")


def this_process() -> str:
    """The name under which this process holds leases."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_dead(holder: str) -> bool:
    """Whether a holder of leases, `host:pid`, was a process of this machine that is no more."""
    host, _, pid = holder.rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def repeated(do: Callable[[], object], every: float, name: str) -> Iterator[None]:
    """Do something every so many seconds in the background, until the block ends."""
    done = Event()

    def work() -> None:
        while not done.wait(every):
            do()

    thread = Thread(target=work, daemon=True, name=name)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Claims:
    """What one holder has claimed; may be shared by threads. A claim is used for half of its time,
    then asked for again: by the clock of the process, which nobody can set."""

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
        self._others: dict[str, str] = {}
        self._lock = Lock()

    def take(self, name: str) -> Lease | None:
        """The lease of that name, held already or taken now; None while another holds it."""
        with self._lock:
            held, fresh_until = self._held.get(name, (None, 0.0))
            if held is not None and fresh_until > self._clock():
                return held
        asked = self._clock()
        lease = self._catalog.acquire(name, self._holder, self._seconds)
        if lease is None and self._free(name):
            lease = self._catalog.acquire(name, self._holder, self._seconds)
        with self._lock:
            if lease is None:
                self._held.pop(name, None)
                self._others.setdefault(name, "another process")
            else:
                self._held[name] = lease, asked + self._seconds / 2
                self._others.pop(name, None)
        return lease

    def _free(self, name: str) -> bool:
        """Free the lease of a process that died; whether it was one."""
        for lease in self._catalog.leases():
            if lease.name == name:
                with self._lock:
                    self._others[name] = lease.holder
                return is_dead(lease.holder) and self._catalog.release(lease)
        return True

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Give back the leases whose names are of things that are gone."""
        with self._lock:
            leases = [self._held.pop(name)[0] for name in list(self._held) if gone(name)]
        for lease in leases:
            self._catalog.release(lease)

    def lost(self, name: str) -> None:
        """Do not trust a lease any more under which a commit was refused."""
        with self._lock:
            self._held.pop(name, None)
            self._others.setdefault(name, "another process")

    def others(self) -> dict[str, str]:
        """What was refused since the last call because another holds it, and who that is."""
        with self._lock:
            found, self._others = self._others, {}
            return found

    def kept_alive(self) -> AbstractContextManager[None]:
        """Renew what is held until the block ends, as a step may take longer than a lease lasts."""
        return repeated(self._keep, self._seconds / 4, "leases")

    def _keep(self) -> None:
        with self._lock:
            due = [lease for lease, _ in self._held.values()]
        for lease in due:
            self._renew(lease)

    def _renew(self, lease: Lease) -> None:
        asked = self._clock()
        try:
            renewed = self._catalog.renew(lease, self._seconds)
        except LeaseLost:
            if self._holds(lease):
                self.lost(lease.name)
        except CatalogError as error:
            log.debug("%s cannot be renewed now: %s", lease.name, error)
        else:
            with self._lock:
                if self._holds(lease):
                    self._held[lease.name] = renewed, asked + self._seconds / 2

    def _holds(self, lease: Lease) -> bool:
        held, _ = self._held.get(lease.name, (None, 0.0))
        return held is not None and held.token == lease.token

    def release(self) -> None:
        """Give back all leases, so that another process may go on at once."""
        with self._lock:
            held, self._held = [lease for lease, _ in self._held.values()], {}
        for lease in held:
            with suppress(CatalogError):
                self._catalog.release(lease)
