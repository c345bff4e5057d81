"""Several processes on one catalog, and processes that die in the middle of a change."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest
from catalog_helpers import (
    S,
    accept,
    contend,
    crash_everywhere,
    open_together,
    replay_all,
    segment,
    start,
    submit_all,
)

from headwater.runtime.catalog import Catalog

# Each process starts Python and loads the catalog.
pytestmark = pytest.mark.long

PROCESSES = 3


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(PROCESSES)
    with ProcessPoolExecutor(PROCESSES, spawn, initializer=start, initargs=(barrier,)) as started:
        yield started


def results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result(60) for future in futures]


def everywhere(
    pool: ProcessPoolExecutor, work: Callable[..., Any], *arguments: Any
) -> list[Future[Any]]:
    """The same work in every process; it begins when all are there."""
    return [pool.submit(work, *arguments) for _ in range(PROCESSES)]


def test_a_new_catalog_is_made_once(pool: ProcessPoolExecutor, where: str) -> None:
    assert results(everywhere(pool, open_together, where)) == [0] * PROCESSES
    with Catalog.open(where) as catalog:
        assert catalog.change_count() == 0


def test_a_name_is_given_to_one_of_many(pool: ProcessPoolExecutor, where: str) -> None:
    names = [f"q{n}" for n in range(15)]
    Catalog.open(where).close()
    accepted = results(everywhere(pool, submit_all, where, names))
    assert sorted(name for some in accepted for name in some) == sorted(names)
    with Catalog.open(where) as catalog:
        assert len(catalog.queries()) == len(catalog.units()) == len(names)


def test_a_batch_is_kept_once(pool: ProcessPoolExecutor, where: str) -> None:
    batches = 25
    with Catalog.open(where) as catalog:
        catalog.declare_stream("s", "")
        running = everywhere(pool, replay_all, where, batches)
        while not all(future.done() for future in running):
            numbers = [found.seq for found in catalog.segments(S)]
            assert numbers == list(range(1, len(numbers) + 1)), "a reader saw a gap"
        assert results(running) == [list(range(1, batches + 1))] * PROCESSES
        assert [found.rows for found in catalog.segments(S)] == list(range(batches))
        stream = catalog.stream("s")
        assert stream is not None and stream.malformed == batches == len(catalog.rejects("s"))


def test_who_lost_the_lease_never_commits(pool: ProcessPoolExecutor, where: str) -> None:
    steps = 40
    with Catalog.open(where) as catalog:
        catalog.declare_stream("s", "")
        accept(catalog, "q", "u", S)
        holders = [pool.submit(contend, where, f"holder {n}", steps) for n in range(PROCESSES)]
        kept, lost = zip(*results(holders), strict=True)
        assert sum(kept) == steps == catalog.cursor("u", S)
        assert sum(lost) > 0, "no holder ever lost the lease"
        done = catalog.segments("unit:u")
        assert [found.rows for found in done] == list(range(steps)), "a step was done twice"
        assert [found.seq for found in done] == list(range(1, steps + 1))


def test_a_death_in_a_commit_leaves_nothing_half(pool: ProcessPoolExecutor, where: str) -> None:
    with Catalog.open(where) as catalog:
        catalog.declare_stream("s", "")
    seen = pool.submit(crash_everywhere, where).result(60)
    assert len(seen) > 10, "a commit has more statements than that"
    assert all(len(set(state)) == 1 for state in seen), "a commit was kept in part"
    assert seen == [(0,) * 7] * (len(seen) - 1) + [(1,) * 7]


def test_threads_share_a_catalog(where: str) -> None:
    with Catalog.open(where) as catalog:
        catalog.declare_stream("s", "")

        def work() -> None:
            for _ in range(10):
                catalog.commit(None, segments=[segment()])
                numbers = [found.seq for found in catalog.segments(S)]
                assert numbers == list(range(1, len(numbers) + 1))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert catalog.log_ends()[S].seq == 60
