"""The leases of a process: kept alive while it works, freed when it is dead, given up when lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from headwater.errors import LeaseLost
from headwater.runtime.catalog import Catalog, Lease
from headwater.runtime.leases import ProcessLeases, is_dead_process, process_name


@pytest.fixture
def catalog(where: str) -> Iterator[Catalog]:
    """With the database's own clock."""
    with Catalog.open(where) as opened:
        yield opened


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def held(catalog: Catalog) -> Lease:
    (lease,) = catalog.leases()
    return lease


def test_a_lease_is_taken_once_and_given_back(catalog: Catalog) -> None:
    mine, other = ProcessLeases(catalog, "here:1", 60), ProcessLeases(catalog, "there:2", 60)
    lease = mine.acquire("unit:u")
    assert lease is not None and mine.acquire("unit:u") == lease
    assert other.acquire("unit:u") is None
    assert other.pop_contended() == {"unit:u": "here:1"} and other.pop_contended() == {}
    mine.release_all()
    assert catalog.leases() == []
    assert other.acquire("unit:u") is not None and other.pop_contended() == {}


def test_the_lease_of_a_dead_process_is_free_at_once(catalog: Catalog) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead = f"{socket.gethostname()}:{process.pid}"
    assert is_dead_process(dead) and not is_dead_process(process_name())
    assert not is_dead_process(f"elsewhere:{process.pid}") and not is_dead_process("somebody")
    catalog.acquire("unit:u", dead, 600)
    assert ProcessLeases(catalog, process_name(), 60).acquire("unit:u") is not None
    catalog.acquire("unit:v", process_name(), 600)
    assert ProcessLeases(catalog, "other:1", 60).acquire("unit:v") is None, "this process lives"


def test_leases_are_kept_alive_under_the_same_token(catalog: Catalog) -> None:
    mine = ProcessLeases(catalog, "here:1", 0.2)
    lease = mine.acquire("unit:u")
    assert lease is not None
    with mine.keep_alive():
        until(lambda: held(catalog).expires_at > lease.expires_at + 0.4)
        assert held(catalog).token == lease.token
        catalog.commit(lease)
    until(lambda: catalog.acquire("unit:u", "there:2", 60) is not None)
    with pytest.raises(LeaseLost):
        catalog.commit(lease)


def test_a_lease_that_was_taken_away_is_noticed(catalog: Catalog) -> None:
    """As after a stop that lasted longer than the lease."""
    mine = ProcessLeases(catalog, "here:1", 0.05)
    lease = mine.acquire("unit:u")
    assert lease is not None
    until(lambda: catalog.acquire("unit:u", "there:2", 60) is not None)
    with mine.keep_alive():
        until(lambda: mine.pop_contended() == {"unit:u": "another process"})
    assert mine.acquire("unit:u") is None
    assert held(catalog).holder == "there:2"
