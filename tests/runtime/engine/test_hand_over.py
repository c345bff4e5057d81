"""A unit begins to read the rows of another while both run, and its streams again, step by step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import expected, opened, settle, told

from headwater.cql import CreateQuery, parse
from headwater.runtime.api import Headwater
from headwater.runtime.catalog import UnitRow, unit_log
from headwater.runtime.results import reader
from headwater.runtime.submit.hand_overs import request_rewire, request_unshare

pytestmark = pytest.mark.spark

SECOND = 1_000_000
STREAMS = "".join(
    f"CREATE STREAM {name} (item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
    for name in ("bids", "asks", "fees")
)
QUERIES = """
CREATE QUERY wide AS SELECT b.v AS b, a.v AS a, f.v AS f
  FROM bids [RANGE 3 SEC] b, asks [RANGE 2 SEC] a, fees [RANGE 2 SEC] f
  WHERE b.item = a.item AND b.item = f.item AND b.v > 1;
CREATE QUERY narrow AS SELECT b.v FROM bids [RANGE 2 SEC] b, asks [RANGE 2 SEC] a
  WHERE b.item = a.item AND a.v > 2;
"""


def unit_of(headwater: Headwater, query: str) -> UnitRow:
    found = headwater.catalog.unit(headwater.query(query).row.unit_id)
    assert found is not None
    return found


def test_to_the_rows_of_another_unit_and_back(spark: Any, tmp_path: Path) -> None:
    """Each time while one unit is ahead in one stream and the other in another one; a reader of the
    results goes on where it was."""
    rng = random.Random(4)
    pushed: dict[str, list[Any]] = {"bids": [], "asks": [], "fees": []}
    clock = 0
    with opened(tmp_path, spark) as headwater:
        headwater.execute(STREAMS + QUERIES)
        catalog = headwater.catalog

        def push(*names: str) -> None:
            nonlocal clock
            clock += 1
            for name in names:
                rows = [(rng.randrange(2), rng.randrange(4), clock * SECOND) for _ in range(4)]
                headwater.push(name, rows, timestamp_unit="us")
                pushed[name] += rows

        def step(query: str) -> None:
            assert headwater.engine.try_step(unit_of(headwater, query))

        push(*pushed)
        settle(headwater)
        before, position = reader.read(catalog, headwater.query("wide").row)
        wide, narrow = (unit_of(headwater, query).id for query in ("wide", "narrow"))

        push("bids")
        step("wide")
        push("asks")
        step("narrow")
        request_rewire(catalog, headwater.definitions, wide, narrow, "it pays")
        assert unit_log(narrow) not in unit_of(headwater, "wide").inputs
        settle(headwater)
        assert set(unit_of(headwater, "wide").inputs) == {unit_log(narrow), "stream:fees"}
        push("fees", "bids")
        settle(headwater)
        assert "to rows: it pays" in headwater.query("wide").explain()

        push("bids", "asks")
        step("narrow")
        push("fees")
        request_unshare(catalog, headwater.definitions, wide, "it does not pay")
        settle(headwater)
        assert set(unit_of(headwater, "wide").inputs) == {f"stream:{name}" for name in pushed}
        assert unit_of(headwater, "wide").id == wide
        push("asks", "fees", "bids")
        headwater.execute("".join(f"END STREAM {name};" for name in pushed))
        settle(headwater)

        for statement in parse(STREAMS + QUERIES):
            if isinstance(statement, CreateQuery):
                wanted = expected(statement.query, pushed, {})
                assert wanted and told(headwater, statement.name, statement.query) == wanted
        after, _ = reader.read(catalog, headwater.query("wide").row, position)
        assert before.num_rows and after.num_rows
        assert (
            before.num_rows + after.num_rows
            == reader.read(catalog, headwater.query("wide").row)[0].num_rows
        )
        assert [event.detail["reason"] for event in catalog.events(kind="unit rewired")] in (
            ["it pays", "it does not pay"],
            ["it does not pay", "it pays"],
        )
