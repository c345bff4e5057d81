"""A join that was measured to leave few rows comes first, whatever the sizes say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_helpers import opened, settle

from headwater.algebra.types import INT, Field, Schema
from headwater.runtime.session import derived
from headwater.runtime.sources.files import READERS, UNPACKED, with_arrival

pytestmark = pytest.mark.spark

QUERY = """CREATE QUERY q AS SELECT a.x, b.x AS y, c.x AS z
    FROM a [RANGE 100 SECONDS], b [RANGE 100 SECONDS], c [RANGE 100 SECONDS]
    WHERE a.k = b.k AND a.m = c.m"""
SECOND = 1_000_000


def test_the_order_follows_what_was_measured(spark: Any, tmp_path: Path) -> None:
    """b has fewer tuples than c, but every tuple of a meets all of b, and few meet one of c."""
    with opened(tmp_path, spark) as headwater:
        for name in "abc":
            headwater.execute(
                f"CREATE STREAM {name} (k INT, m INT, x INT, ts TIMESTAMP) TIMESTAMP BY ts "
                "LATENESS 1 HOUR FROM CLIENT"
            )
        headwater.execute(QUERY)
        headwater.push("b", [(0, 0, x, SECOND) for x in range(20)])
        headwater.push("c", [(0, 10 + x, x, SECOND) for x in range(60)])
        settle(headwater)
        (row,) = headwater.catalog.units()
        unit, engine = headwater.engine._unit(row), headwater.engine
        headwater.push("a", [(0, x, x, SECOND) for x in range(30)])
        engine.step(unit)
        (first,) = [one.order for one in unit.terms]
        measured = dict(engine.meter.values(row.id))
        headwater.push("a", [(0, x, 100 + x, SECOND) for x in range(30)])
        engine.step(unit)
        (second,) = [one.order for one in unit.terms]
        names = {scan.stream.lower(): alias for alias, scan in unit.plan.scans}
        assert first == (names["a"], names["b"], names["c"])
        assert second == (names["a"], names["c"], names["b"])
        assert measured[f"join {names['b']} to {names['a']}"] == 1.0
        assert len(headwater.query("q").arrow()) == 2 * 20 * 20


def test_places_of_rows_are_unique_in_a_file_that_several_tasks_read(
    spark: Any, tmp_path: Path
) -> None:
    rows = 700_000
    path = tmp_path / "large.json"
    path.write_text("\n".join(f'{{"n": {n}}}' for n in range(rows)))
    small = tmp_path / "it's 1+1.json"
    small.write_text('{"n": -1}')
    files = [str(small), str(path)]
    conf = derived(spark, *UNPACKED).conf
    conf.set("spark.sql.files.maxPartitionBytes", "4000000")
    try:
        frame = READERS["json"](spark, files, Schema((Field("n", INT),)))
        assert frame.rdd.getNumPartitions() > 2
        placed = with_arrival(frame, files, 0).toArrow().sort_by("_arrival")
    finally:
        conf.unset("spark.sql.files.maxPartitionBytes")
    assert placed["n"].to_pylist() == list(range(-1, rows))
    assert len(set(placed["_arrival"].to_pylist())) == rows + 1
