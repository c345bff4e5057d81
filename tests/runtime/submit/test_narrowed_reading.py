"""What a unit asks of another shrinks when its queries leave, in one transaction and under the same result key; and
it does not where others rely on its rows. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.reuse import Containment, classify_containment, minimal_operator
from headwater.runtime.api import Headwater, open_state
from headwater.runtime.catalog import QueryRow, UnitRow, partial_join_name
from headwater.runtime.compile.unit_plans import UnitPlanner
from headwater.runtime.submit.unit_index import unit_index

STREAMS = """
CREATE STREAM bids (item INT, price INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM asks (item INT, cost INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
CREATE STREAM fees (item INT, fee INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
"""
TWO = "SELECT b.price FROM bids [RANGE {} SEC] b, asks [RANGE 3 SEC] a WHERE b.item = a.item{}"
THREE = """SELECT b.price, f.fee FROM bids [RANGE {} SEC] b, asks [RANGE 3 SEC] a, fees [RANGE 3 SEC] f
  WHERE b.item = a.item AND b.item = f.item{}"""


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Headwater]:
    """A join of two, and a unit of joins of three that reads its rows."""
    with open_state(tmp_path) as headwater:
        headwater.execute(STREAMS)
        ask(headwater, "two", TWO.format(3, " AND b.price > 2"))
        ask(headwater, "wide", THREE.format(3, ""))
        assert len(reader(headwater).inputs) == 2
        yield headwater


def ask(headwater: Headwater, name: str, text: str) -> None:
    headwater.execute(f"CREATE QUERY {name} AS {text}")


def unit_of(headwater: Headwater, query: str) -> UnitRow:
    row = headwater.catalog.unit(headwater.query(query).row.unit_id)
    assert row is not None
    return UnitPlanner(headwater.definitions).ensure_definition(headwater.catalog, row)


def reader(headwater: Headwater) -> UnitRow:
    (row,) = (
        row for row in headwater.catalog.units() if any("unit:" in name for name in row.inputs)
    )
    return UnitPlanner(headwater.definitions).ensure_definition(headwater.catalog, row)


def hidden(headwater: Headwater) -> QueryRow:
    row = headwater.catalog.query(partial_join_name(reader(headwater).id))
    assert row is not None
    return row


def narrowed(headwater: Headwater) -> int:
    return len(headwater.catalog.events(kind="reading narrowed"))


def test_conditions_and_windows_shrink_with_the_queries(headwater: Headwater) -> None:
    planner = UnitPlanner(headwater.definitions)
    ask(headwater, "narrow", THREE.format(1, " AND b.item = 1"))
    before, source = hidden(headwater), unit_of(headwater, "two")
    versions = reader(headwater).version, source.version
    headwater.execute("DROP QUERY wide")
    after = hidden(headwater)
    (event,) = headwater.catalog.events(kind="reading narrowed")
    assert event.subject == reader(headwater).id and event.detail["reads"] == source.id
    assert "bids [RANGE 3 SECONDS] -> [RANGE 1 SECOND]" in event.detail["changes"]
    assert (after.result_key, after.columns) == (before.result_key, before.columns)
    assert classify_containment(
        planner.signature(after), minimal_operator(planner.signature(before))
    ) is (Containment.CONTAINED)
    # What it asks for is the part of what is left, and the other unit computes no more than that.
    ask(headwater, "part", TWO.format(1, " AND b.item = 1"))
    wanted = minimal_operator(planner.signature(headwater.query("part").row))
    read = minimal_operator(planner.signature(after))
    assert (read.where, read.sources) == (wanted.where, wanted.sources)
    headwater.execute("DROP QUERY part; DROP QUERY two")
    operator = planner.operator(planner.ensure_definition(headwater.catalog, source_of(headwater)))
    assert operator is not None
    assert (operator.where, operator.sources) == (read.where, read.sources)
    assert reader(headwater).version > versions[0] and source_of(headwater).version > versions[1]


def source_of(headwater: Headwater) -> UnitRow:
    row = headwater.catalog.unit(hidden(headwater).unit_id)
    assert row is not None
    return row


def test_an_equal_query_that_comes_has_rows_of_its_own(headwater: Headwater) -> None:
    """Under the key of the narrowed one there are more rows than it wants."""
    ask(headwater, "narrow", THREE.format(3, " AND b.item = 1"))
    headwater.execute("DROP QUERY wide")
    read = hidden(headwater)
    assert narrowed(headwater) == 1
    ask(headwater, "equal", read.definition.partition("AS\n")[2])
    equal = headwater.query("equal").row
    signatures = UnitPlanner(headwater.definitions).signatures([equal, read])
    one, other = (signature.content for signature in signatures)
    assert (one.where, one.sources) == (other.where, other.sources)
    assert equal.unit_id == read.unit_id and equal.result_key != read.result_key


def test_a_query_with_the_same_rows_keeps_them(headwater: Headwater) -> None:
    read = hidden(headwater)
    ask(headwater, "equal", read.definition.partition("AS\n")[2])
    assert headwater.query("equal").row.result_key == read.result_key
    ask(headwater, "narrow", THREE.format(1, " AND b.item = 1"))
    headwater.execute("DROP QUERY wide")
    assert hidden(headwater) == read and not narrowed(headwater)


def test_nothing_changes_while_all_is_needed(headwater: Headwater) -> None:
    ask(headwater, "narrow", THREE.format(1, " AND b.item = 1"))
    read = hidden(headwater)
    headwater.execute("DROP QUERY narrow")
    assert hidden(headwater) == read and not narrowed(headwater)


def test_who_needs_more_afterwards_gets_more(headwater: Headwater) -> None:
    ask(headwater, "narrow", THREE.format(3, " AND b.item = 1"))
    headwater.execute("DROP QUERY wide")
    read = hidden(headwater)
    ask(headwater, "again", THREE.format(3, " AND b.item = 2"))
    assert headwater.query("again").row.unit_id == headwater.query("narrow").row.unit_id
    _, awaited = headwater.catalog.partial_joins(reader(headwater).id)
    assert awaited is not None and awaited.result_key != read.result_key
    headwater.execute("DROP QUERY again")
    assert hidden(headwater) == awaited, "what is awaited is left as it is"


def test_who_relied_on_more_is_not_accepted(headwater: Headwater) -> None:
    """A query was to join by what is read; before it is accepted, that is narrowed."""
    ask(headwater, "narrow", THREE.format(3, " AND b.item = 1"))
    accept = headwater.catalog.accept_query
    calls: list[int] = []

    def overtaken(*args: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            with open_state(headwater.state) as other:
                other.execute("DROP QUERY wide")
                hidden(other)
        return accept(*args, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headwater.catalog, "accept_query", overtaken)
        ask(headwater, "late", THREE.format(3, " AND b.item = 2"))
    assert len(calls) == 2 and narrowed(headwater) == 1
    _, awaited = headwater.catalog.partial_joins(reader(headwater).id)
    assert awaited is not None, "it has what it needs read as well"
    unit_index(headwater.catalog, headwater.definitions).refresh()
