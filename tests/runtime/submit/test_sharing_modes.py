"""`SET sharing`: what a new query may join, without Spark: units, what explain says of them, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.runtime.api import Headwater, open_state

STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE TABLE items (item INT, label STRING) FROM files(path => '{folder}/items.csv', format => 'csv');
"""
JOIN = "SELECT b.price FROM bids [RANGE {range} SEC] b, asks [NOW] a WHERE b.item = a.item"
THREE = """SELECT b.price, i.label FROM bids [RANGE 5 SEC] b, asks [NOW] a, items i
  WHERE b.item = a.item AND a.item = i.item"""
QUERIES = {
    "pairs": JOIN.format(range=5),
    "equal_join": "SELECT x.price FROM asks [NOW] y, bids [RANGE 5 SECONDS] x WHERE y.item = x.item",
    "longer_join": JOIN.format(range=9),
    "shorter_join": JOIN.format(range=3),
    "three": THREE,
    "count": "SELECT item, COUNT(*) AS n FROM bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
    "equal_count": "SELECT item AS i, COUNT(*) AS m FROM bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
    "sum": "SELECT item, SUM(price) AS n FROM bids [RANGE 4 SEC SLIDE 2 SEC] GROUP BY item",
    "last": "SELECT price FROM bids [ROWS 3]",
    "equal_last": "SELECT b.price FROM bids [ROWS 3] AS b",
}


def units(folder: Path, mode: str | None) -> dict[str, str]:
    """The unit of each query, submitted in one mode."""
    with open_state(folder / "state") as headwater:
        declare(headwater, folder)
        if mode is not None:
            headwater.execute(f"SET sharing = '{mode}'")
        for name, text in QUERIES.items():
            headwater.execute(f"CREATE QUERY {name} AS {text}")
        return {name: headwater.query(name).row.unit_id for name in QUERIES}


def declare(headwater: Headwater, folder: Path) -> None:
    (folder / "items.csv").write_text("item,label\n1,one\n")
    headwater.execute(STREAMS.format(folder=folder))


def together(units: dict[str, str]) -> set[frozenset[str]]:
    by_unit: dict[str, set[str]] = {}
    for name, unit in units.items():
        by_unit.setdefault(unit, set()).add(name)
    return {frozenset(names) for names in by_unit.values() if len(names) > 1}


@pytest.mark.parametrize("mode", [None, "all"])
def test_all_that_overlaps(tmp_path: Path, mode: str | None) -> None:
    assert together(units(tmp_path, mode)) == {
        frozenset({"pairs", "equal_join", "longer_join", "shorter_join"}),
        frozenset({"count", "equal_count", "sum"}),
        frozenset({"last", "equal_last"}),
    }


def test_equal_queries_alone(tmp_path: Path) -> None:
    assert together(units(tmp_path, "equal")) == {
        frozenset({"pairs", "equal_join"}),
        frozenset({"count", "equal_count"}),
        frozenset({"last", "equal_last"}),
    }


def test_nothing(tmp_path: Path) -> None:
    assert together(units(tmp_path, "none")) == set()


@pytest.mark.parametrize(("mode", "reads"), [("all", 1), ("equal", 0), ("none", 0)])
def test_a_join_that_is_built_on_another(tmp_path: Path, mode: str, reads: int) -> None:
    units(tmp_path, mode)
    with open_state(tmp_path / "state") as headwater:
        assert len(headwater.query("three").placement().reads) == reads


def test_explain_says_why(tmp_path: Path) -> None:
    with open_state(tmp_path / "state") as headwater:
        declare(headwater, tmp_path)
        relations = []
        for mode in ("all", "equal", "none"):
            headwater.execute(
                f"SET sharing = '{mode}'; CREATE QUERY {mode}_sums AS {QUERIES['sum']}"
            )
            relations.append(headwater.query(f"{mode}_sums").placement().relation)
        assert relations == ["new", "equal", "new with sharing none"]
        headwater.execute(f"SET sharing = 'equal'; CREATE QUERY other AS {QUERIES['count']}")
        assert (
            "sharing was set to equal, and no equal query ran" in headwater.query("other").explain()
        )
        assert "sharing was set to none: new operator" in headwater.query("none_sums").explain()


def test_a_mode_that_is_not_there(tmp_path: Path) -> None:
    with (
        open_state(tmp_path / "state") as headwater,
        pytest.raises(HeadwaterError, match="sharing is all, equal or none, not some"),
    ):
        headwater.execute("SET sharing = 'some'")
