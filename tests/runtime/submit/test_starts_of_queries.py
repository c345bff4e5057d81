"""With which tuples units and queries begin, and when a lifetime ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joining_worlds import OTHER, SECOND, World, group, join, last_rows, lone, query_of

from headwater.cql import CreateQuery
from headwater.cql.statements import LATEST
from headwater.runtime.submit.statements import earlier_start, submit
from headwater.runtime.submit.unit_index import (
    FOREVER_AGO,
    starts_by,
)

# ---- the start of a unit

times = st.none() | st.integers(-5, 5)


def order(start: int | None) -> int:
    return FOREVER_AGO if start is None else start


@given(times, times)
@settings(max_examples=60)
def test_a_unit_begins_with_the_first_of_its_queries(own: int | None, start: int | None) -> None:
    """Later, and rows of one would be lost; earlier than needed, and it would look back for nothing."""
    earlier = earlier_start(own, start)
    now = order(own) if earlier is None else earlier
    assert now == min(order(own), order(start))
    assert (earlier is None) == (order(own) <= order(start)), "it is left as it is if it can be"
    assert starts_by(own, start) == (order(own) <= order(start))


def test_a_unit_begins_earlier_for_the_sake_of_a_join(world: World) -> None:
    unit = world.ask("first", join(10), 25)
    begins = []
    for number, start in enumerate((30, 25, 20, 22, 0, 5, -7)):
        assert world.ask(f"q{number}", join(10, f" AND b.price > {number}"), start) == unit
        begins.append(world.begins(unit))
    assert begins == [25, 25, 20, 20, 0, 0, -7]
    assert world.ask("all", join(9), None) == unit
    assert world.catalog.cursor(unit, "start") == FOREVER_AGO
    assert world.ask("late", join(9), 40) == unit
    assert world.catalog.cursor(unit, "start") == FOREVER_AGO


def test_a_unit_of_all_input_stays_so(world: World) -> None:
    unit = world.ask("first", join(10), None)
    assert world.begins(unit) is None
    assert world.ask("second", join(10, OTHER), 15) == unit
    assert world.begins(unit) is None


OF_THREE = "SELECT MAX(price) AS m FROM Bids [ROWS 3]"


def test_a_new_unit_begins_with_its_query(world: World) -> None:
    for start in (None, -1, 0, 15):
        for number, text in enumerate((join(15), group(9), OF_THREE)):
            unit = world.ask(f"q{number} {start}", text, start)
            assert world.begins(unit) == start
            (row,) = world.catalog.subscribers(unit)
            assert row.start_at == (None if start is None else start * SECOND)


# ---- the start and the end of a query


def test_a_query_begins_with_the_least_watermark_of_its_streams(world: World) -> None:
    """Up to there one of them may still bring tuples that would be missing from a join."""
    world.arrived("bids", 40)
    world.arrived("asks", 30)
    world.arrived("fees", 20)
    for name, at in (("unsaid", None), ("latest", LATEST)):
        for text, expected in ((join(10), 30), (lone(1), 40), (last_rows(3), 40)):
            statement = CreateQuery(f"{name} {text}", query_of(text), start=at)
            row = submit(world.catalog, world.definitions, statement)
            assert row.start_at == expected * SECOND


def test_a_stream_is_counted_once_however_often_it_is_read(world: World) -> None:
    world.arrived("bids", 40)
    text = "SELECT x.price FROM Bids [NOW] x, BIDS [NOW] y WHERE x.item = y.item"
    world.ask("q", text, at=LATEST)
    assert world.row("q").start_at == 40 * SECOND


@pytest.mark.parametrize("seen", [(), ("asks",), ("bids", "fees")])
def test_a_query_has_all_of_the_input_if_one_of_its_streams_has_not_begun(
    world: World, seen: tuple[str, ...]
) -> None:
    """That one may bring tuples of any time."""
    for stream in seen:
        world.arrived(stream, 40)
    world.ask("q", join(10), at=LATEST)
    assert world.row("q").start_at is None


def test_a_query_of_tables_alone_has_all_there_is(world: World, tmp_path: Path) -> None:
    """No stream has a watermark that it could begin with."""
    world.execute(f"""
        CREATE TABLE items (item INT) FROM files(path => '{tmp_path}', format => 'csv');
        CREATE QUERY q AS SELECT item FROM items;
    """)
    assert world.row("q").start_at is None


def test_what_is_said_of_the_start_goes_before_watermarks(world: World) -> None:
    for stream in ("bids", "asks"):
        world.arrived(stream, 40)
    for start in (None, -1, 0, 15, 100):
        world.ask(f"q{start}", join(10), start)
        assert world.row(f"q{start}").start_at == (None if start is None else start * SECOND)


def test_a_lifetime_counts_from_the_start(world: World) -> None:
    for number, (start, lifetime, end) in enumerate(
        [
            (15, 5, 20),
            (0, 5, 5),
            (-5, 5, 0),
            (15, None, None),  # for ever
            (None, 5, None),  # it counts from the first tuple, which has yet to come
            (None, None, None),
        ]
    ):
        world.ask(f"q{number}", lone(1), start, lifetime)
        row = world.row(f"q{number}")
        assert row.end_at == (None if end is None else end * SECOND)
        assert row.has_unknown_end is (lifetime is not None and end is None)
