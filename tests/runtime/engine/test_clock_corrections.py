"""A clock that was a day ahead and is set right leaves no wait behind that is longer than any wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catalog_helpers import Clock

from headwater.errors import LeaseLost
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import (
    MAX_LEASE_SECONDS,
    Catalog,
    Lease,
    NewSegment,
    Statistic,
    unit_log,
)
from headwater.runtime.connectors.options import RateOptions
from headwater.runtime.connectors.rate import RateSource
from headwater.runtime.connectors.sender import MAX_RETRY_WAIT
from headwater.runtime.engine.engine import MAX_RETRY_SECONDS, Engine, Settings
from headwater.runtime.engine.scheduler import Scheduler
from headwater.runtime.leases import ProcessLeases, lease_holders
from headwater.runtime.metrics.backlog import Backlog
from headwater.runtime.metrics.rates import current_rate
from headwater.runtime.metrics.step_estimates import StepEstimate
from headwater.runtime.results.sink_progress import read_delivery, sink_owner
from headwater.schedule import find_policy

DAY = 86_400.0


def test_a_lease_of_a_clock_that_was_ahead_is_void(stream: Catalog, clock: Clock) -> None:
    clock.now += DAY
    old = stream.acquire("x", "a", MAX_LEASE_SECONDS)
    assert old is not None
    clock.now -= DAY
    new = stream.acquire("x", "b", 10)
    assert new is not None and new.token == old.token + 1
    with pytest.raises(LeaseLost):
        stream.commit(old)
    stream.commit(new)
    assert stream.acquire("x", "a", 10) is None, "one that was taken since is respected"


def test_the_longest_lease_is_respected(catalog: Catalog, clock: Clock) -> None:
    assert catalog.acquire("x", "a", MAX_LEASE_SECONDS) is not None
    assert catalog.acquire("x", "b", 10) is None
    clock.now += MAX_LEASE_SECONDS
    assert catalog.acquire("x", "b", 10) is not None


def test_a_holder_asks_again_though_its_lease_seems_to_last(catalog: Catalog, clock: Clock) -> None:
    own = Clock()
    claims = ProcessLeases(catalog, "here:1", 60, own)
    clock.now += DAY
    first = claims.acquire("unit:u")
    assert first is not None and claims.acquire("unit:u") == first
    clock.now -= DAY
    own.now += 31
    second = claims.acquire("unit:u")
    assert second is not None and second.expires_at == clock.now + 60


def test_who_seems_to_run_a_state_for_another_day_does_not() -> None:
    def lease(left: float) -> Lease:
        return Lease("unit:u", "elsewhere:7", 1, 1_000.0 + left)

    assert lease_holders([lease(30)], 1_000.0) == {"elsewhere:7": 30.0}
    assert lease_holders([lease(DAY)], 1_000.0) == {} == lease_holders([lease(0)], 1_000.0)


def test_a_site_seen_in_the_future_is_away_until_it_is_seen(catalog: Catalog, clock: Clock) -> None:
    clock.now += DAY
    catalog.record_site("north", {})
    clock.now -= DAY
    assert catalog.recently_seen_sites(10) == set()
    catalog.touch_site("north")
    assert catalog.recently_seen_sites(10) == {"north"}


def test_rates_and_turns() -> None:
    assert current_rate(Statistic(5.0, 1_000.0 + DAY), 1_000.0) == 0.0
    assert current_rate(Statistic(5.0, 1_000.0), 1_000.0) == 5.0
    nobody: Any = None
    scheduler = Scheduler(nobody)
    tomorrow = Backlog(1, time.time() + DAY)
    scheduler.choose(find_policy("fcfs"), 60.0, {"u": tomorrow}, {"u": StepEstimate(1.0, 0.0, 1.0)})
    assert scheduler.last_choice is not None and scheduler.last_choice.ranking[0].wait >= 0


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    with open_state(tmp_path / "state") as opened:
        opened.execute(f"""
            CREATE STREAM s (a INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
            CREATE QUERY q TO files(path => '{tmp_path}/out') AS SELECT a FROM s;
            """)
        yield opened


def test_units_and_sinks_do_not_wait_for_a_day(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    spark: Any = None
    engine = Engine(headwater.catalog, headwater.state, spark, Settings(backoff=1.0), clock=clock)
    (unit,) = headwater.catalog.units()
    steps: list[float] = []

    def fails(engine: Engine, unit: Any) -> bool:
        steps.append(clock.now)
        raise OSError("no luck")

    monkeypatch.setattr(Engine, "step", fails)
    clock.now += DAY
    for _ in range(3):
        engine.tick()
        clock.now += MAX_RETRY_SECONDS + 1
    tried = len(steps)
    assert tried == 3
    clock.now -= DAY
    engine.tick()
    assert len(steps) == tried + 1, "what was noted a day ahead is void"
    engine.tick()
    assert len(steps) == tried + 1, "what was noted since is not"

    query = headwater.catalog.query("q")
    assert query is not None
    headwater.catalog.commit(None, segments=[NewSegment(unit_log(unit.id), "", 0, 0)])
    assert engine.sinks.ready_queries() == ["q"]
    for ahead, ready in ((0.5, []), (MAX_RETRY_WAIT, []), (DAY, ["q"]), (-1, ["q"])):
        failed = read_delivery(headwater.catalog, query).cursors_after_failure(
            "no disk", 1, clock.now, clock.now + ahead
        )
        headwater.catalog.commit(None, cursors=failed)
        assert (sink_owner("q"), "failure") in failed
        assert engine.sinks.ready_queries() == ready


@pytest.mark.spark
def test_a_rate_goes_on_at_once(spark: Any, headwater: Headwater) -> None:
    stream = headwater.engine.definitions.streams["s"].stream
    now = int(time.time()) * 1_000_000_000
    rate = RateSource(RateOptions(10), stream, clock=lambda: now)
    done = {"begin": now // 1000 + int(DAY) * 1_000_000, "rows": 40}
    batch = rate.poll(spark, done)
    assert batch is not None and batch.chunks is not None
    (row,) = [row for piece in batch.chunks for row in piece.table.to_pylist()]
    assert row["ts"].timestamp() == now / 1e9 and batch.position["rows"] == 41
    assert rate.poll(spark, {"begin": now // 1000, "rows": 40}) is None, (
        "four seconds are waited for"
    )
