"""Grouped queries that differ only in constants run as one statement, and have the rows that each would
have alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, opened, told
from histories import tuples_in_log

from headwater.cql import CreateQuery, parse
from headwater.runtime.compile import SharedPanes

SECOND = 1_000_000
STREAM = """CREATE STREAM s (
  tenant INT, name STRING, price DOUBLE, cost DECIMAL(9, 2), open BOOLEAN, day DATE, ts TIMESTAMP
) TIMESTAMP BY ts FROM CLIENT;"""


def row(rng: random.Random, second: float) -> dict[str, Any]:
    """A tuple, now and then with NULLs."""

    def some(values: list[Any]) -> Any:
        return rng.choice([*values, None])

    return {
        "tenant": some([1, 2, 3, 4]),
        "name": some(["", "a", "ab", "b"]),
        "price": some([-1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
        "cost": some(["-1.00", "0.99", "1.00"]),
        "open": some([True, False]),
        "day": some(["2026-01-01", "2026-01-02"]),
        "ts": int(second * SECOND),
    }


CONDITIONS = [
    lambda rng: f"tenant = {rng.randint(1, 5)}",
    lambda rng: f"tenant > {rng.randint(0, 4)}",
    lambda rng: f"tenant IN ({rng.randint(1, 2)}, {rng.randint(3, 4)})",
    lambda rng: f"(tenant IS NULL OR tenant < {rng.randint(1, 4)})",
    lambda rng: f"tenant > {rng.randint(1, 3)} AND tenant < {rng.randint(2, 5)}",
    lambda rng: f"name >= '{rng.choice(['', 'a', 'aa', 'b'])}'",
    lambda rng: f"name <> '{rng.choice(['a', 'b'])}'",
    lambda rng: f"price {rng.choice(['>', '<=', '='])} {rng.choice(['0.0', '2.5', '-1.5'])}",
    lambda rng: f"cost < {rng.choice(['1.00', '0.99', '0.5'])}",
    lambda rng: f"open = {rng.choice(['TRUE', 'FALSE'])}",
    lambda rng: f"day > DATE '2026-01-0{rng.randint(1, 2)}'",
]
SHOWN = [
    ("COUNT(*) AS n, SUM(tenant) AS t", ""),
    ("COUNT(*) AS n, SUM(tenant) AS t", ""),
    ("MIN(cost) AS low, MAX(name) AS high", ""),
    ("name, COUNT(price) AS n", " GROUP BY name"),
    ("name, AVG(tenant) AS m", " GROUP BY name HAVING COUNT(*) > 1"),
    ("tenant, MAX(cost) AS n", " GROUP BY tenant"),
]


def queries(rng: random.Random) -> list[str]:
    """Some kinds of queries, each with several constants."""
    found = []
    for _ in range(4):
        shown, grouped = rng.choice(SHOWN)
        conditions = rng.sample(CONDITIONS, rng.randint(1, 2))
        output = rng.choice(["", "ISTREAM", "DSTREAM", "RSTREAM"])
        size, slide = rng.choice([(4, 2), (6, 2), (6, 3), (5, 5)])
        for _ in range(rng.randint(2, 5)):
            where = " AND ".join(condition(rng) for condition in conditions)
            text = (
                f"SELECT {shown} FROM s [RANGE {size} SEC SLIDE {slide} SEC] WHERE {where}{grouped}"
            )
            found.append(f"{output}({text})" if output else text)
    return found


def check(spark: Any, folder: Path, seed: int) -> int:
    """Run some queries, half of them from the middle on, and compare; returns the largest family."""
    rng = random.Random(seed)
    asked = {f"q{n}": text for n, text in enumerate(queries(rng))}
    late = set(rng.sample(sorted(asked), len(asked) // 2))
    with opened(folder / "state", spark) as headwater:
        headwater.execute(STREAM)
        rows: list[dict[str, Any]] = []
        second = 0.0
        for part in range(4):
            for name, text in asked.items():
                if part == (2 if name in late else 0):
                    headwater.execute(f"CREATE QUERY {name} AS {text}")
            second += rng.choice([5, 5, 25, 45])
            new = [row(rng, second + rng.choice([0, 0.5, 1, 2, 3.75])) for _ in range(8)]
            new.sort(key=lambda one: one["ts"])
            headwater.push("s", new, timestamp_unit="us")
            rows += new
            while headwater.engine.tick():
                pass
        plans = [unit.plan for unit in headwater.engine.units]
        shared = [plan for plan in plans if isinstance(plan, SharedPanes)]
        headwater.execute("END STREAM s")
        while headwater.engine.tick():
            pass
        stream = headwater.definitions.streams["s"].stream
        streams = {"s": tuples_in_log(headwater, stream)}
        assert len(streams["s"]) == len(rows)
        for name, text in asked.items():
            (statement,) = parse(f"CREATE QUERY {name} AS {text}", headwater.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            start = headwater.query(name).row.start_at
            due = expected(statement.query, streams, {}, start=start, keep={"s": stream.keep})
            assert told(headwater, name, statement.query) == due, f"{name}: {text}"
        return max((len(f.evaluations) for plan in shared for f in plan.families), default=0)


@pytest.mark.spark
def test_families_of_random_queries(spark: Any, tmp_path: Path) -> None:
    largest = [check(spark, tmp_path / str(seed), seed) for seed in range(4)]
    assert max(largest) > 2  # else there was nothing to test


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_families_in_the_long_run(spark: Any, tmp_path: Path, seed: int) -> None:
    check(spark, tmp_path, seed)
