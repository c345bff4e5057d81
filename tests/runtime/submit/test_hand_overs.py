"""Asking for hand-overs: what is asked for, what is refused, and what becomes of it when units change.
Without Spark: nothing is carried out here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from headwater.cql import parse_query
from headwater.errors import CatalogError, CommitConflict, LeaseLost
from headwater.network.sites import read_deployment
from headwater.runtime.catalog import (
    Catalog,
    HandOver,
    Lease,
    NewInputs,
    NewQuery,
    NewSegment,
    QueryRow,
    UnitRow,
    partial_join_name,
    stream_log,
    unit_log,
)
from headwater.runtime.catalog.definitions import Definitions
from headwater.runtime.catalog.deployment import deploy
from headwater.runtime.inspect.explain import describe_placement
from headwater.runtime.submit import scripts
from headwater.runtime.submit.hand_overs import (
    HandOverRefused,
    request_rewire,
    request_split,
    request_unshare,
)
from headwater.runtime.submit.unit_index import FOREVER_AGO

SECOND = 1_000_000
COLUMNS = "(item INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts KEEP 20 SECONDS FROM CLIENT;"
STREAMS = ("bids", "asks", "fees", "taxes")

SITES = """\
[[site]]
name = "here"
cpu = 1
"""

TWO = "SELECT b.v FROM bids [RANGE 5 SEC] b, asks [RANGE 2 SEC] a WHERE b.item = a.item AND b.v > 1"
THREE = (
    "SELECT b.v, f.v AS fee FROM bids [RANGE {} SEC] b, asks [RANGE 2 SEC] a, fees [RANGE 2 SEC] f "
    "WHERE b.item = a.item AND b.item = f.item{}"
)


@dataclass
class State:
    """A catalog in which queries are asked; units of three come before those of two."""

    catalog: Catalog
    definitions: Definitions

    def execute(self, text: str) -> None:
        scripts.execute(self.catalog, self.definitions, text)

    def ask(self, name: str, text: str, said: str = "") -> str:
        """Submit a query; returns its unit."""
        self.execute(f"CREATE QUERY {name} {said} AS {text};")
        return self.query(name).unit_id

    def query(self, name: str) -> QueryRow:
        found = self.catalog.query(name)
        assert found is not None
        return found

    def unit(self, unit_id: str) -> UnitRow:
        found = self.catalog.unit(unit_id)
        assert found is not None
        return found

    def part_of(self, unit_id: str) -> QueryRow:
        return self.query(partial_join_name(unit_id))

    def stands(self, unit_id: str, second: int, *streams: str) -> None:
        """Have a unit read streams up to a watermark."""
        cursors = {
            (unit_id, stream_log(name)): {"seq": 1, "watermark": second * SECOND}
            for name in streams
        }
        self.catalog.commit(None, cursors=cursors)

    def arrived(self, second: int) -> None:
        at = second * SECOND
        for name in STREAMS:
            segment = NewSegment(stream_log(name), f"{name} {second}", 1, 1, at, at, at)
            self.catalog.commit(None, segments=[segment], stream_progress=(name, at))

    def rewire(self, unit: str, source: str) -> None:
        request_rewire(self.catalog, self.definitions, unit, source, "a test")

    def happened(self, kind: str) -> list[str]:
        return [event.subject for event in self.catalog.events(kind=kind)]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    with Catalog.open(tmp_path) as catalog:
        state = State(catalog, Definitions(catalog))
        state.execute("".join(f"CREATE STREAM {name} {COLUMNS}" for name in STREAMS))
        yield state


@pytest.fixture
def units(state: State) -> tuple[str, str]:
    """A unit of three streams, and one of two of them that came later."""
    three, two = state.ask("three", THREE.format(5, "")), state.ask("two", TWO)
    assert not any(name.startswith("unit:") for name in state.unit(three).inputs)
    return three, two


def test_a_unit_subscribes_and_goes_on_as_it_is(state: State, units: tuple[str, str]) -> None:
    three, two = units
    state.stands(three, 30, "bids", "asks")
    state.stands(three, 28, "fees")
    before = state.unit(three)
    state.rewire(three, two)
    assert state.unit(three).inputs == before.inputs
    assert state.unit(three).definition == before.definition
    part = state.part_of(three)
    # A tuple of the slowest stream meets rows that were emitted up to the longest window before it.
    assert (part.unit_id, part.start_at) == (two, (28 - 5) * SECOND)
    assert "b.v" not in state.unit(two).definition.partition("WHERE")[2], "relaxed for it"
    assert state.catalog.hand_overs() == [HandOver(three, False, "a test")]
    assert state.happened("rewiring requested") == [three]


def test_a_stream_without_a_watermark_may_bring_a_tuple_of_any_time(
    state: State, units: tuple[str, str]
) -> None:
    three, two = units
    state.stands(three, 30, "bids", "asks")
    state.rewire(three, two)
    assert state.part_of(three).start_at is None


def test_the_source_begins_earlier_if_it_has_to(state: State) -> None:
    three = state.ask("three", THREE.format(5, ""))
    state.arrived(30)
    two = state.ask("two", TWO)
    assert state.catalog.cursor(two, "start") == 30 * SECOND
    state.stands(three, 30, "bids", "asks", "fees")
    state.rewire(three, two)
    assert state.catalog.cursor(two, "start") == 25 * SECOND


def test_the_source_may_have_to_begin_at_the_beginning(state: State) -> None:
    three = state.ask("three", THREE.format(5, ""))
    state.arrived(30)
    two = state.ask("two", TWO)
    state.rewire(three, two)
    assert state.catalog.cursor(two, "start") == FOREVER_AGO


def test_a_part_of_two_units_becomes_a_unit(state: State) -> None:
    one = state.ask("one", THREE.format(5, ""))
    other = state.ask("other", THREE.format(5, "").replace("fees", "taxes"))
    state.stands(one, 30, "bids", "asks", "fees")
    part = parse_query(
        "SELECT b.item, b.ts, b.v, a.item AS i, a.ts AS t FROM bids [RANGE 5 SEC] b, "
        "asks [RANGE 2 SEC] a WHERE b.item = a.item",
        state.definitions.namespace,
    )
    new = request_split(state.catalog, state.definitions, one, part, "a test")
    state.rewire(other, new)
    assert state.catalog.hidden_subscribers(new) == sorted(map(partial_join_name, (one, other)))
    assert set(state.unit(new).inputs) == {stream_log("bids"), stream_log("asks")}
    state.execute("DROP QUERY one")
    assert state.unit(new).state == "running" and state.unit(one).state == "dropped"
    state.execute("DROP QUERY other")
    assert state.unit(new).state == "dropped", "nobody needs it, though nobody has read it yet"
    assert state.catalog.hand_overs() == []


def test_a_unit_that_is_dropped_in_between_leaves_nothing(
    state: State, units: tuple[str, str]
) -> None:
    three, two = units
    state.rewire(three, two)
    state.execute("DROP QUERY two")
    assert state.unit(two).state == "running", "it is to be read"
    state.execute("DROP QUERY three")
    assert state.unit(two).state == "dropped"
    assert state.catalog.hand_overs() == []


def test_a_hand_over_that_is_withdrawn(state: State, units: tuple[str, str]) -> None:
    three, two = units
    state.rewire(three, two)
    (asked,) = state.catalog.hand_overs()
    state.catalog.withdraw_hand_over(asked, "a test")
    assert state.part_of(three).state == "dropped"
    assert state.unit(two).definition == "", "it may narrow again"
    assert state.catalog.hand_overs() == []
    assert state.happened("rewiring withdrawn") == [three]
    state.catalog.withdraw_hand_over(asked, "again")
    assert state.happened("rewiring withdrawn") == [three]
    state.rewire(three, two)


def test_a_rewind_withdraws_what_relies_on_positions(state: State, units: tuple[str, str]) -> None:
    three, two = units
    state.arrived(30)
    state.rewire(three, two)
    state.execute("REWIND STREAM fees TO TIMESTAMP '1970-01-01 00:00:30'")
    assert state.catalog.hand_overs() == []
    assert state.happened("rewiring withdrawn") == [three]


def test_explain_says_what_is_read_now(state: State, units: tuple[str, str]) -> None:
    three, two = units
    state.rewire(three, two)
    assert describe_placement(state.catalog, state.query("three")).reads == ()
    assert describe_placement(state.catalog, state.query("two")).read_by == ()
    (asked,) = state.catalog.hand_overs()
    new = NewInputs(
        state.unit(three), state.unit(two), (unit_log(two), stream_log("fees")), {}, {}, 0
    )
    assert state.catalog.hand_over([], asked, new) == []
    shown = describe_placement(state.catalog, state.query("three"))
    assert [unit.unit for unit in shown.reads] == [two]
    assert shown.rewired == "to rows: a test"
    read = describe_placement(state.catalog, state.query("two"))
    assert [unit.unit for unit in read.read_by] == [three] and read.rewired is None


# ---- what is exchanged in one transaction


def switch(state: State, of: str, onto: str, **changed: Any) -> NewInputs:
    rows = (unit_log(onto), stream_log("fees"))
    cursors = {unit_log(onto): {"seq": 0, "watermark": None}}
    new = NewInputs(state.unit(of), state.unit(onto), rows, cursors, {}, 0)
    return replace(new, **changed)


def test_all_of_a_switch_or_nothing(state: State, units: tuple[str, str]) -> None:
    """It is refused if anything is not as it was when it was decided."""
    three, two = units
    state.stands(three, 30, "bids", "asks", "fees")
    state.rewire(three, two)
    (asked,) = state.catalog.hand_overs()
    lease = state.catalog.acquire(unit_log(three), "me", 60)
    assert lease is not None
    before = (state.unit(three), state.catalog.cursors(three))
    wrong: list[tuple[type[Exception], str, list[Lease], NewInputs]] = [
        (LeaseLost, "no longer holds", [replace(lease, token=99)], switch(state, three, two)),
        (CommitConflict, "have changed", [lease], switch(state, three, two, unit=older(before[0]))),
        (
            CommitConflict,
            "have changed",
            [lease],
            switch(state, three, two, source=older(state.unit(two))),
        ),
        (CommitConflict, "has grown", [lease], switch(state, three, two, end=1)),
        (
            CommitConflict,
            "has advanced",
            [lease],
            switch(state, three, two, expected={(two, stream_log("bids")): {"seq": 1}}),
        ),
    ]
    for kind, message, leases, new in wrong:
        with pytest.raises(kind, match=message):
            state.catalog.hand_over(leases, asked, new)
        assert (state.unit(three), state.catalog.cursors(three)) == before
    state.catalog.hand_over([lease], asked, switch(state, three, two))
    assert set(state.catalog.cursors(three)) == {unit_log(two), stream_log("fees")}
    with pytest.raises(CommitConflict, match="any more"):
        state.catalog.hand_over([lease], asked, switch(state, three, two))


def test_the_way_back(state: State) -> None:
    """The part is dropped with the last unit that read it."""
    three = state.ask("three", THREE.format(5, ""))
    part = parse_query(
        "SELECT b.item, b.ts, b.v, a.item AS i, a.ts AS t FROM bids [RANGE 5 SEC] b, "
        "asks [RANGE 2 SEC] a WHERE b.item = a.item",
        state.definitions.namespace,
    )
    new = request_split(state.catalog, state.definitions, three, part, "a test")
    (asked,) = state.catalog.hand_overs()
    state.catalog.hand_over([], asked, switch(state, three, new))
    request_unshare(state.catalog, state.definitions, three, "a test")
    (asked,) = state.catalog.hand_overs()
    assert asked.to_streams
    streams = tuple(map(stream_log, ("bids", "asks", "fees")))
    taken = {stream_log("bids"): {"seq": 3}, stream_log("asks"): {"seq": 4}}
    back = switch(state, three, new, inputs=streams, cursors=taken)
    assert state.catalog.hand_over([], asked, back) == [new]
    assert state.unit(new).state == "dropped"
    assert state.unit(three).inputs == streams
    assert state.catalog.cursors(three) == taken


def older(unit: UnitRow) -> UnitRow:
    return replace(unit, version=unit.version - 1)


# ---- what is refused


def test_one_at_a_time(state: State, units: tuple[str, str]) -> None:
    three, two = units
    state.rewire(three, two)
    with pytest.raises(CatalogError, match="changing what it reads already"):
        state.rewire(three, two)


def test_a_unit_that_joins_no_part(state: State, units: tuple[str, str]) -> None:
    three, two = units
    other = state.ask("other", "SELECT f.v FROM fees [NOW] f, taxes [NOW] t WHERE f.item = t.item")
    for unit, source in ((three, other), (three, three), (two, three)):
        with pytest.raises(HandOverRefused, match="joins no part"):
            state.rewire(unit, source)


def test_a_unit_that_looks_back_further_than_its_streams_keep(
    state: State, units: tuple[str, str]
) -> None:
    long = state.ask("long", THREE.format(21, ""), "STARTING AT TIMESTAMP '2026-03-01 12:00:00'")
    assert long not in units
    with pytest.raises(HandOverRefused, match="looks back further"):
        state.rewire(long, units[1])


def test_units_that_read_or_are_read(state: State, units: tuple[str, str]) -> None:
    three, two = units
    reader = state.ask("reader", THREE.format(4, "").replace("fees", "taxes"))
    assert unit_log(two) in state.unit(reader).inputs
    with pytest.raises(HandOverRefused, match="reads the rows of a unit already"):
        state.rewire(reader, two)
    four = THREE.format(5, "").replace(
        "fees [RANGE 2 SEC] f", "fees [RANGE 2 SEC] f, taxes [NOW] t"
    )
    widest = state.ask("widest", four + " AND b.item = t.item")
    assert unit_log(three) in state.unit(widest).inputs
    with pytest.raises(HandOverRefused, match="is itself read"):
        state.rewire(three, two)
    with pytest.raises(HandOverRefused, match="reads the rows of no unit"):
        request_unshare(state.catalog, state.definitions, two, "a test")


def test_a_unit_that_waits_for_more_rows(state: State) -> None:
    """What it reads is changing already; once it has changed, it can be handed over."""
    state.ask("two", TWO)
    three = state.ask("three", THREE.format(5, ""))
    assert state.ask("more", THREE.format(6, "")) == three
    assert all(state.catalog.partial_joins(three))
    with pytest.raises(HandOverRefused, match="waits for more rows"):
        request_unshare(state.catalog, state.definitions, three, "a test")
    assert state.catalog.hand_overs() == []
    state.catalog.adopt_partial_join(state.unit(three))
    request_unshare(state.catalog, state.definitions, three, "a test")
    assert state.catalog.hand_overs() == [HandOver(three, True, "a test")]


def test_rows_joined_with_a_table(state: State, tmp_path: Path) -> None:
    """A table is what it is when a step reads it, and the two units step at other times."""
    state.execute(
        f"CREATE TABLE items (item INT, label STRING) FROM files(path => '{tmp_path}', "
        "format => 'csv');"
    )
    text = "SELECT b.v{} FROM bids [RANGE 5 SEC] b, items i{} WHERE b.item = i.item{}"
    more = (", f.v AS fee", ", fees [RANGE 2 SEC] f", " AND b.item = f.item")
    three, two = state.ask("three", text.format(*more)), state.ask("two", text.format("", "", ""))
    with pytest.raises(HandOverRefused, match="joins no part"):
        state.rewire(three, two)


def test_a_unit_that_rests(state: State, units: tuple[str, str]) -> None:
    three, two = units
    state.catalog.set_unit_state(two, "paused")
    with pytest.raises(HandOverRefused, match=f"unit {two} does not run"):
        state.rewire(three, two)


def test_several_sites(state: State, units: tuple[str, str], tmp_path: Path) -> None:
    three, two = units
    sites = tmp_path / "sites.toml"
    sites.write_text(SITES)
    deploy(state.catalog, read_deployment(sites))
    with pytest.raises(HandOverRefused, match="several sites"):
        state.rewire(three, two)


# ---- queries that come meanwhile


def test_a_query_that_was_assigned_before_its_unit_was_rewired(
    state: State, units: tuple[str, str]
) -> None:
    """What the unit reads by now may not go back as far."""
    three, _ = units
    unit = state.unit(three)
    with pytest.raises(CommitConflict, match="reads other logs"):
        state.catalog.accept_query(
            NewQuery("q", "", "d"), three, seen_inputs=(*unit.inputs, "stream:more")
        )
    state.catalog.accept_query(NewQuery("q", "", "d"), three, seen_inputs=unit.inputs)
