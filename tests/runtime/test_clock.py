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
from headwater.runtime.catalog import LONGEST_LEASE, Catalog, Lease, NewSegment, Statistic, unit_log
from headwater.runtime.claims import Claims
from headwater.runtime.connectors import RateOptions
from headwater.runtime.delivery import delivery, sink_owner
from headwater.runtime.engine import LONGEST_BACKOFF, Engine, Limits
from headwater.runtime.overview import holders
from headwater.runtime.rates import decayed
from headwater.runtime.scheduling import Expected, Pending, Scheduler
from headwater.runtime.sinks import LONGEST_WAIT
from headwater.runtime.sources.rate import Rate
from headwater.schedule import policy_named

DAY = 86_400.0


def test_a_lease_of_a_clock_that_was_ahead_is_void(stream: Catalog, clock: Clock) -> None:
    clock.now += DAY
    old = stream.acquire("x", "a", LONGEST_LEASE)
    assert old is not None
    clock.now -= DAY
    new = stream.acquire("x", "b", 10)
    assert new is not None and new.token == old.token + 1
    with pytest.raises(LeaseLost):
        stream.commit(old)
    stream.commit(new)
    assert stream.acquire("x", "a", 10) is None, "one that was taken since is respected"


def test_the_longest_lease_is_respected(catalog: Catalog, clock: Clock) -> None:
    assert catalog.acquire("x", "a", LONGEST_LEASE) is not None
    assert catalog.acquire("x", "b", 10) is None
    clock.now += LONGEST_LEASE
    assert catalog.acquire("x", "b", 10) is not None


def test_a_holder_asks_again_though_its_lease_seems_to_last(catalog: Catalog, clock: Clock) -> None:
    own = Clock()
    claims = Claims(catalog, "here:1", 60, own)
    clock.now += DAY
    first = claims.take("unit:u")
    assert first is not None and claims.take("unit:u") == first
    clock.now -= DAY
    own.now += 31
    second = claims.take("unit:u")
    assert second is not None and second.expires_at == clock.now + 60


def test_who_seems_to_run_a_state_for_another_day_does_not() -> None:
    def lease(left: float) -> Lease:
        return Lease("unit:u", "elsewhere:7", 1, 1_000.0 + left)

    assert holders([lease(30)], 1_000.0) == {"elsewhere:7": 30.0}
    assert holders([lease(DAY)], 1_000.0) == {} == holders([lease(0)], 1_000.0)


def test_a_site_seen_in_the_future_is_away_until_it_is_seen(catalog: Catalog, clock: Clock) -> None:
    clock.now += DAY
    catalog.record_site("north", {})
    clock.now -= DAY
    assert catalog.sites_seen(10) == set()
    catalog.see_site("north")
    assert catalog.sites_seen(10) == {"north"}


def test_rates_and_turns() -> None:
    assert decayed(Statistic(5.0, 1_000.0 + DAY), 1_000.0) == 0.0
    assert decayed(Statistic(5.0, 1_000.0), 1_000.0) == 5.0
    nobody: Any = None
    scheduler = Scheduler(nobody)
    tomorrow = Pending(1, time.time() + DAY)
    scheduler.choose(policy_named("fcfs"), 60.0, {"u": tomorrow}, {"u": Expected(1.0, 0.0, 1.0)})
    assert scheduler.last is not None and scheduler.last.ranking[0].wait >= 0


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
    engine = Engine(headwater.catalog, headwater.state, spark, Limits(backoff=1.0), clock=clock)
    (unit,) = headwater.catalog.units()
    steps: list[float] = []

    def fails(engine: Engine, unit: Any) -> bool:
        steps.append(clock.now)
        raise OSError("no luck")

    monkeypatch.setattr(Engine, "step", fails)
    clock.now += DAY
    for _ in range(3):
        engine.tick()
        clock.now += LONGEST_BACKOFF + 1
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
    assert engine.sinks.ready() == ["q"]
    for ahead, ready in ((0.5, []), (LONGEST_WAIT, []), (DAY, ["q"]), (-1, ["q"])):
        failed = delivery(headwater.catalog, query).failed("no disk", 1, clock.now + ahead)
        headwater.catalog.commit(None, cursors=failed)
        assert (sink_owner("q"), "failure") in failed
        assert engine.sinks.ready() == ready


@pytest.mark.spark
def test_a_rate_goes_on_at_once(spark: Any, headwater: Headwater) -> None:
    stream = headwater.engine.definitions.streams["s"].stream
    now = int(time.time()) * 1_000_000_000
    rate = Rate(RateOptions(10), stream, clock=lambda: now)
    done = {"begin": now // 1000 + int(DAY) * 1_000_000, "rows": 40}
    batch = rate.poll(spark, done)
    assert batch is not None and batch.pieces is not None
    (row,) = [row for piece in batch.pieces for row in piece.table.to_pylist()]
    assert row["ts"].timestamp() == now / 1e9 and batch.position["rows"] == 41
    assert rate.poll(spark, {"begin": now // 1000, "rows": 40}) is None, (
        "four seconds are waited for"
    )
