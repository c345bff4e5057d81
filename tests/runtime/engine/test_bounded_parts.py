"""Joins that read the rows of another one within their bounds: what is read grows with the queries that
come and is narrowed when they leave, while data flows, and everybody has the rows that it would have alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, opened, settle, told

from headwater.algebra.catalog import Namespace
from headwater.algebra.nodes import Query
from headwater.cql import CreateStream, parse, parse_query
from headwater.reuse.operator import minimal_operator
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import partial_join_name
from headwater.runtime.compile.unit_plans import UnitPlanner

SECOND = 1_000_000
STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
NAMES = Namespace.of(one.stream for one in parse(STREAMS) if isinstance(one, CreateStream))
TWO = "SELECT b.price FROM bids [RANGE 2 SEC] b, asks [RANGE 1 SEC] a WHERE b.item = a.item AND {}"
THREE = """SELECT {} FROM bids [RANGE {} SEC] b, asks [RANGE 1 SEC] a, fees [RANGE {} SEC] f
  WHERE b.item = a.item AND b.item = f.item AND {}"""
BOUNDS = (
    "b.item = {n}",
    "a.item IN ({n}, {m})",
    "b.price > {n}",
    "a.cost <= {n} AND f.fee > 0",
    "b.price <= a.cost",
    "f.fee = {n} AND b.item < 3",
    "b.price BETWEEN {n} AND {m} + 2",
)
SHOWN = ("b.price, f.fee", "a.cost AS c", "b.item, f.fee + 1 AS g", "a.cost, b.price, f.item")


def drawn(rng: random.Random, number: int) -> Query:
    bound = rng.choice(BOUNDS).format(n=rng.randrange(4), m=rng.randrange(4))
    if number == 0 or rng.random() < 0.15:
        # The first wants all, so that others read its rows.
        alone = "b.item >= 0" if number == 0 else bound.partition(" AND f")[0]
        return parse_query(TWO.format(alone.replace("f.fee", "b.price")), NAMES)
    sizes = (1 if number < 3 else rng.choice((1, 2, 4))), rng.choice((5, 6))
    return parse_query(THREE.format(rng.choice(SHOWN), *sizes, bound), NAMES)


def sample(rng: random.Random) -> dict[str, list[Any]]:
    return {
        name: [(rng.randrange(4), rng.randrange(5), n * SECOND // 2) for n in range(size)]
        for name, size in (("bids", 40), ("asks", 40), ("fees", 40))
    }


def lives(spark: Any, folder: Path, seed: int, size: int, leaving: float = 0.25) -> tuple[int, int]:
    """Queries come, and some leave, while the streams flow; returns how often what a unit reads was
    exchanged, and how often narrowed."""
    rng = random.Random(seed)
    data, queries, exchanged = sample(rng), dict[str, Query](), set[str]()
    with opened(folder / "state", spark) as headwater:
        headwater.execute(STREAMS)
        given = dict.fromkeys(data, 0)
        for number in range(size):
            name = f"q{number}"
            queries[name] = drawn(rng, number)
            headwater.execute(f"CREATE QUERY {name} {started(rng)} AS {text(queries[name])}")
            exchanged |= hidden_keys(headwater)
            if len(queries) > 3 and rng.random() < leaving:
                left = rng.choice(sorted(queries))
                headwater.execute(f"DROP QUERY {left}")
                del queries[left]
            for stream in rng.sample(sorted(data), 3):
                more = rng.randint(0, 2 * len(data[stream]) // size)
                rows = data[stream][given[stream] : given[stream] + more]
                given[stream] += len(rows)
                if rows:
                    headwater.push(stream, rows, timestamp_unit="us")
                for _ in range(rng.randint(0, 1)):
                    headwater.engine.tick()
            exchanged |= hidden_keys(headwater)
        for stream, rows in data.items():
            if rows[given[stream] :]:
                headwater.push(stream, rows[given[stream] :], timestamp_unit="us")
            headwater.execute(f"END STREAM {stream}")
        settle(headwater)
        for unit in headwater.catalog.units():
            assert headwater.catalog.partial_joins(unit.id)[1] is None
        for name, query in queries.items():
            row = headwater.query(name).row
            assert row.state == "finished"
            due = expected(query, data, {}, start=row.start_at)
            assert told(headwater, name, query) == due, f"{name}: {query}"
        narrowed = headwater.catalog.events(kind="reading narrowed", limit=100)
    return len(exchanged), len(narrowed)


def text(query: Query) -> str:
    from headwater.cql import unparse

    return unparse(query)


def started(rng: random.Random) -> str:
    return rng.choice(("", "", "STARTING AT EARLIEST"))


def hidden_keys(headwater: Headwater) -> set[str]:
    """What units read of others."""
    rows = (headwater.catalog.query(partial_join_name(u.id)) for u in headwater.catalog.units())
    return {row.result_key for row in rows if row is not None}


@pytest.mark.spark
def test_what_is_read_grows_with_the_queries(spark: Any, tmp_path: Path) -> None:
    exchanged, _ = lives(spark, tmp_path, seed=1, size=10)
    assert exchanged > 2


@pytest.mark.spark
def test_what_is_read_is_narrowed_when_queries_leave(spark: Any, tmp_path: Path) -> None:
    """Before and after it, rows are read that meet each other; more of them than are needed are in the log."""
    rng = random.Random(7)
    data = sample(rng)
    texts = {
        "two": TWO.format("b.item >= 0"),
        "wide": THREE.format("b.price, f.fee", 4, 6, "b.item >= 0"),
        "one": THREE.format("a.cost, f.fee", 2, 6, "b.item = 1"),
        "some": THREE.format("b.price AS p", 1, 5, "b.item IN (1, 2)"),
    }
    with opened(tmp_path / "state", spark) as headwater:
        headwater.execute(STREAMS)
        for name, text in texts.items():
            headwater.execute(f"CREATE QUERY {name} AS {text}")
        one, wide = headwater.query("one").row, headwater.query("wide").row
        assert one.unit_id == wide.unit_id != headwater.query("two").row.unit_id
        read = headwater.catalog.query(partial_join_name(one.unit_id))
        assert read is not None
        for part, leaves in enumerate(("wide", "two", "some", None)):
            for stream, rows in data.items():
                headwater.push(stream, rows[10 * part : 10 * part + 10], timestamp_unit="us")
                if part % 2:
                    headwater.engine.tick()
            settle(headwater)
            if leaves is not None:
                headwater.execute(f"DROP QUERY {leaves}")
        for stream in data:
            headwater.execute(f"END STREAM {stream}")
        settle(headwater)
        events = headwater.catalog.events(kind="reading narrowed", subject=one.unit_id)
        assert len(events) == 2, "when wide has left, and when some has"
        after = headwater.catalog.query(partial_join_name(one.unit_id))
        assert after is not None and after.result_key == read.result_key
        query = parse_query(texts["one"], NAMES)
        due = expected(query, data, {}, start=one.start_at)
        assert due and told(headwater, "one", query) == due


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 22))
def test_what_is_read_grows_with_the_queries_in_the_long_run(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    lives(spark, tmp_path, seed, size=14)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 60))
def test_what_is_read_is_narrowed_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    lives(spark, tmp_path, seed, size=20, leaving=0.6)


def test_a_part_keeps_the_bounds_of_its_query(tmp_path: Path) -> None:
    """A join of three for one item makes a join of two no wider than for that item."""
    from headwater.runtime.api import open_state

    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STREAMS)
        headwater.execute(f"CREATE QUERY two AS {TWO.format('b.item = 1')}")
        planner = UnitPlanner(headwater.definitions)
        (unit,) = headwater.catalog.units()
        before = planner.operator(unit)
        for number in (1, 2):
            three = THREE.format("b.price, f.fee", 3, 3, f"b.item = {number}")
            headwater.execute(f"CREATE QUERY three{number} AS {three}")
        two, built = headwater.catalog.units()
        read, awaited = headwater.catalog.partial_joins(built.id)
        assert read is not None and awaited is not None
        after = planner.operator(planner.ensure_definition(headwater.catalog, two))
        assert before is not None and after is not None
        wanted = minimal_operator(planner.signature(awaited))
        assert after.where == wanted.where
        assert before.where == minimal_operator(planner.signature(read)).where
