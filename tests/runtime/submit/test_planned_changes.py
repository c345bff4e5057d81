"""A state says what its units should change, now that others came later. Without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.reuse.rewiring import Merging, Rewiring
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import stream_log, unit_log
from headwater.runtime.submit.unit_index import UnitIndex, unit_index

STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
TWO = "SELECT b.price FROM bids [RANGE 5 SEC] b, asks [RANGE 5 SEC] a WHERE b.item = a.item"
THREE = """SELECT b.price, f.fee FROM bids [RANGE 5 SEC] b, asks [RANGE 5 SEC] a, fees [RANGE 5 SEC] f
  WHERE b.item = a.item AND b.item = f.item"""


def measured(headwater: Headwater, **rates: float) -> UnitIndex:
    """The units of a state whose streams have these rates."""
    found = {(stream_log(name), "rows_rate"): rate for name, rate in rates.items()}
    headwater.catalog.commit(None, statistics=found)
    index = unit_index(headwater.catalog, headwater.definitions)
    index.refresh()
    return index


def unit_of(headwater: Headwater, query: str) -> str:
    return headwater.query(query).row.unit_id


@pytest.mark.parametrize("again", [False, True])
def test_three_before_two_is_to_read_two(tmp_path: Path, again: bool) -> None:
    """Also in the eyes of a process that has just begun."""
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STREAMS)
        measured(headwater, bids=400, asks=100, fees=4_000)
        headwater.execute(f"CREATE QUERY three AS {THREE}; CREATE QUERY two AS {TWO}")
        if not again:
            index = measured(headwater)
            (change,) = index.planned_changes(unit_of(headwater, "two"))
            assert isinstance(change, Rewiring)
            assert change.readers == (unit_of(headwater, "three"),)
            assert change.reads == unit_of(headwater, "two")
            return
    with open_state(tmp_path / "state") as headwater:
        (change,) = measured(headwater).planned_changes(unit_of(headwater, "two"))
        assert isinstance(change, Rewiring) and change.reads == unit_of(headwater, "two")


def test_two_before_three_needs_no_change(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STREAMS)
        measured(headwater, bids=400, asks=100, fees=4_000)
        headwater.execute(f"CREATE QUERY two AS {TWO}; CREATE QUERY three AS {THREE}")
        index = measured(headwater)
        three = headwater.catalog.unit(unit_of(headwater, "three"))
        assert three is not None and unit_log(unit_of(headwater, "two")) in three.inputs
        assert index.planned_changes(unit_of(headwater, "two")) == []
        assert index.planned_changes("no unit") == []


def test_selective_joins_are_to_be_served_by_a_wide_one(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        headwater.execute(STREAMS)
        measured(headwater, bids=40_000, asks=10_000)
        for name, bound in (("one", "b.price = 1"), ("other", "a.cost = 2")):
            headwater.execute(f"CREATE QUERY {name} AS {TWO} AND {bound}")
        assert len(headwater.catalog.units()) == 2
        headwater.execute(f"CREATE QUERY wide AS {TWO}")
        changes = measured(headwater).planned_changes(unit_of(headwater, "wide"))
        assert [type(change) for change in changes] == [Merging]
