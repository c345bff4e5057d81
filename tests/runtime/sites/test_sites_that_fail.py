"""Several sites that run one state: whatever moves where and when, each query has the rows it would
have alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import (
    HOUR,
    Stop,
    as_csv_keeps,
    declare,
    expected,
    pieces,
    result_rows,
    stop_at,
    submit,
)
from sample_queries import sample

from headwater.algebra.nodes import Query
from headwater.errors import QueryRefused
from headwater.network.sites import read_deployment
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog.deployment import current_deployment, deploy
from headwater.runtime.engine.engine import Engine
from headwater.runtime.maintenance import stream_logs
from headwater.runtime.sites.local_site import LocalSite
from headwater.runtime.sites.planner import SitePlanner
from overlapping import random_group, random_join, random_query

pytestmark = pytest.mark.spark

TABLES = {"Items": [(0, "zero"), (1, "one"), (2, "two"), (None, "none")]}
POINTS = (
    "ship: written",
    "ship: committed",
    "unit: written",
    "unit: committed",
    "unit: absorbed",
    "compact: replaced",
)


@pytest.fixture(autouse=True)
def eager_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_logs, "MIN_COMPACTED_SEGMENTS", 2)
    monkeypatch.setattr(stream_logs, "COMPACTED_GROUP_ROWS", 4)


def sites_of(rng: random.Random, folder: Path) -> Path:
    """Three sites in a row or all connected, with stores of their own or some together; each has room
    for a few units."""
    stores = [rng.choice(["a", "b", "c", None]) for _ in "abc"]
    text = ""
    for name, store in zip("abc", stores, strict=True):
        text += f'[[site]]\nname = "{name}"\ncpu = {rng.choice([0.45, 0.7, 5])}\n'
        text += f'store = "stores/{store}"\n' if store else ""
    if rng.random() < 0.5:
        text += '[[link]]\nfrom = "a"\nto = "b"\n[[link]]\nfrom = "b"\nto = "c"\n'
    if rng.random() < 0.5:
        text += '[[stream]]\nname = "Bids"\nsites = ["c", "a", "b"]\n'
    path = folder / "sites.toml"
    path.write_text(text)
    return path


class Sites:
    """The sites of a state as engines of this process, which share its session."""

    def __init__(self, headwater: Headwater, spark: Any) -> None:
        deployment = current_deployment(headwater.catalog)
        assert deployment is not None
        self.headwater, self.spark, self.deployment = headwater, spark, deployment
        self.room = SitePlanner(headwater.catalog, headwater.definitions, deployment)
        self.engines: dict[str, Engine] = {}
        for name in "abc":
            self.come(name)

    def come(self, name: str) -> None:
        catalog, state = self.headwater.catalog, self.headwater.state
        catalog.touch_site(name)
        here = LocalSite(catalog, name, state, self.deployment)
        holder = f"site {name}"
        self.engines[name] = Engine(catalog, state, self.spark, site=here, holder=holder)
        self.room.replan(set(self.engines))

    def go(self, name: str) -> None:
        """A site dies; its claims are freed as those of a dead process are."""
        self.headwater.catalog.mark_site_gone(name)
        self.engines.pop(name).leases.release_all()
        self.room.replan(set(self.engines))

    def tick(self, rng: random.Random, crash: bool) -> None:
        name = rng.choice(sorted(self.engines))
        engine = self.engines[name]
        if not crash or len(self.engines) == 1:
            engine.tick()
            if rng.random() < 0.3:
                engine.tidy()
            return
        engine.at_point = stop_at(rng.choice(POINTS), rng.randint(1, 2))
        try:
            engine.tick()
            engine.tidy()
        except Stop:
            pass
        self.go(name)

    def settle(self) -> None:
        """Let all work until none of them has anything to do, also after others gave back what moved."""
        idle = 0
        while idle < 3:
            worked = [engine.tick() for engine in self.engines.values()]
            idle = 0 if any(worked) else idle + 1
        for unit in self.headwater.catalog.units():
            assert not unit.error, unit.error


def check(
    spark: Any, folder: Path, seed: int, size: int, query: Callable[[random.Random], Query]
) -> tuple[int, int]:
    """Queries that come while sites come and go; returns how many were admitted, and how many
    segments were copied from site to site."""
    rng = random.Random(seed)
    queries = {f"q{n}": query(rng) for n in range(size)}
    streams, tables = sample(seed), as_csv_keeps(TABLES)
    waiting, admitted = list(queries), []
    copied = 0
    with open_state(folder / "state") as headwater:
        deploy(headwater.catalog, read_deployment(sites_of(rng, folder)))
        declare(headwater, folder / "items", tables)
        sites = Sites(headwater, spark)
        for name, rows in pieces(rng, streams):
            for _ in range(rng.randint(0, size // 2)):
                if waiting:
                    try:
                        submit(headwater, waiting[-1], queries[waiting[-1]])
                        admitted.append(waiting[-1])
                    except QueryRefused:
                        assert headwater.catalog.query(waiting[-1]) is None
                    waiting.pop()
            headwater.push(name, rows, timestamp_unit="us")
            for _ in range(rng.randint(0, 4)):
                sites.tick(rng, crash=rng.random() < 0.3)
            for absent in set("abc") - set(sites.engines):
                if rng.random() < 0.4:
                    sites.come(absent)
        for name in streams:
            headwater.execute(f"END STREAM {name}")
        sites.settle()
        for absent in set("abc") - set(sites.engines):  # without it some may have no way to go
            sites.come(absent)
        sites.settle()
        ends = headwater.catalog.log_ends()
        copied = sum(end.seq for log, end in ends.items() if log.startswith("copy:"))
        for name in admitted:
            row = headwater.query(name).row
            keep = {"Bids": HOUR, "Asks": HOUR}
            wanted = expected(queries[name], streams, tables, start=row.start_at, keep=keep)
            unit, now = headwater.catalog.unit(row.unit_id), headwater.catalog.assignment()
            assert result_rows(headwater, name, queries[name]) == wanted, (seed, name, unit, now)
            assert row.state == "finished", name
    return len(admitted), copied


@pytest.mark.parametrize(
    ("seed", "query"),
    [(1, random_query), (2, random_join), (3, random_group), (4, random_query), (5, random_join)],
)
def test_sites_that_come_and_go(spark: Any, tmp_path: Path, seed: int, query: Any) -> None:
    admitted, _ = check(spark, tmp_path, seed, 6, query)
    assert admitted


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_sites_in_the_long_run(spark: Any, tmp_path: Path, part: int) -> None:
    copied = 0
    for seed in range(100 * part, 100 * part + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        copied += check(spark, folder, seed, 8, random_query)[1]
    assert copied
