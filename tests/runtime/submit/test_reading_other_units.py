"""When a unit reads the rows that another one joins instead of joining them again."""

from __future__ import annotations

from joining_worlds import SECOND, World, form

from headwater.runtime.catalog import (
    partial_join_name,
    replaced_partial_join_name,
    stream_log,
    unit_log,
)

TWO = "SELECT b.price, a.cost FROM Bids [RANGE 5 SEC] b, Asks [RANGE 2 SEC] a WHERE b.item = a.item"


def three(bids: int, fees: int = 2, more: str = "") -> str:
    return (
        f"SELECT b.price, f.fee FROM Bids [RANGE {bids} SEC] b, Asks [RANGE 2 SEC] a, "
        f"Fees [RANGE {fees} SEC] f WHERE b.item = a.item AND b.item = f.item{more}"
    )


def test_a_join_of_three_reads_a_join_of_two(world: World) -> None:
    """It needs rows that were made of older tuples: a row of two that is 5 s old when the third comes."""
    two = world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    assert set(world.unit(unit).inputs) == {unit_log(two), stream_log("fees")}
    asked = world.row(partial_join_name(unit))
    assert (asked.unit_id, asked.start_at) == (two, 20 * SECOND)
    assert (world.begins(two), world.begins(unit)) == (20, 25)


def test_a_part_of_one_that_begins_in_1970_begins_before_that(world: World) -> None:
    two = world.ask("two", TWO, 0)
    unit = world.ask("three", three(5), 0)
    assert world.row(partial_join_name(unit)).start_at == -5 * SECOND
    assert (world.begins(two), world.begins(unit)) == (-5, 0)


def test_groups_read_their_streams_themselves(world: World) -> None:
    """Their panes are made of tuples, and made again from them when queries come and go."""
    two = world.ask("two", TWO, 25)
    text = three(5).replace("b.price, f.fee", "b.item, sum(f.fee) AS s") + " GROUP BY b.item"
    unit = world.ask("sums", text, 25)
    assert unit_log(two) not in world.unit(unit).inputs


def test_a_part_of_all_input_is_asked_for_all_input(world: World) -> None:
    two = world.ask("two", TWO, None)
    unit = world.ask("three", three(5), None)
    assert world.row(partial_join_name(unit)).start_at is None
    assert world.begins(two) is None
    later = world.ask("later", three(5, more=" AND f.fee > 1"), 25)
    assert later == unit


def test_the_slide_of_a_part_counts_too(world: World) -> None:
    """A window that slides lags behind by as much."""
    text = (
        "SELECT b.price{} FROM Bids [RANGE 5 SEC SLIDE 2 SEC] b, Asks [RANGE 2 SEC SLIDE 2 SEC] a{} "
        "WHERE b.item = a.item{}"
    )
    two = world.ask("two", text.format("", "", ""), 25)
    more = (", f.fee", ", Fees [RANGE 2 SEC SLIDE 2 SEC] f", " AND b.item = f.item")
    unit = world.ask("three", text.format(*more), 25)
    assert unit_log(two) in world.unit(unit).inputs
    assert world.row(partial_join_name(unit)).start_at == (25 - 5 - 2) * SECOND


def test_a_join_that_goes_beyond_a_history_reads_no_other(world: World) -> None:
    """How far it looks back depends on its start, and the other has one of its own."""
    two = world.ask("two", TWO, 25)
    unit = world.ask("three", three(5, fees=21), 25)
    assert unit_log(two) not in world.unit(unit).inputs


def test_a_unit_that_goes_beyond_a_history_is_read_by_no_other(world: World) -> None:
    """It would have to begin earlier."""
    two = world.ask("two", TWO.replace("5 SEC", "15 SEC"), 25)
    unit = world.ask("three", three(5), 25)
    assert unit_log(two) not in world.unit(unit).inputs
    assert world.begins(two) == 25


def test_a_unit_that_reads_another_reads_more_for_those_who_need_more(world: World) -> None:
    """What it reads is relaxed with it, and what it has read so far is kept until it can change."""
    two = world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    asked = world.row(partial_join_name(unit))
    assert world.takes(unit, three(5, more=" AND f.fee > 1"), 30)
    assert world.takes(unit, three(4), 30)
    assert world.takes(unit, three(5, fees=4), 30), "of fees it reads all"
    assert world.takes(unit, three(6), 30)
    assert world.ask("same", three(5, more=" AND f.fee > 1"), 30) == unit
    assert world.row(partial_join_name(unit)) == asked
    assert world.ask("other", three(6), 30) == unit
    more = world.row(partial_join_name(unit))
    assert more.result_key != asked.result_key and more.unit_id == two
    read, awaited = world.catalog.partial_joins(unit)
    assert read is not None and (read.name, read.result_key) == (
        replaced_partial_join_name(unit),
        asked.result_key,
    )
    assert awaited == more
    assert world.ask("third", three(7), 30) == unit
    read, awaited = world.catalog.partial_joins(unit)
    assert read is not None and awaited is not None
    assert read.result_key == asked.result_key and awaited.result_key != more.result_key
    assert len(world.catalog.hidden_subscribers(two)) == 2
    world.catalog.adopt_partial_join(world.unit(unit))
    read, awaited = world.catalog.partial_joins(unit)
    assert read == world.row(partial_join_name(unit)) and awaited is None
    assert len(world.catalog.hidden_subscribers(two)) == 1


def test_a_unit_reads_no_more_of_one_that_cannot_give_it(world: World) -> None:
    """A longer window would need tuples from before the history of the stream."""
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    assert not world.takes(unit, three(11), 30)
    assert world.ask("other", three(11), 30) != unit


def test_a_unit_goes_on_if_a_stream_may_be_reopened_that_another_reads_for_it(
    world: World,
) -> None:
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    for stream in ("bids", "asks", "fees"):
        world.arrived(stream, 50)
        world.catalog.end_stream(stream, reopens=stream != "fees")
    world.finish("three")
    assert world.unit(unit).state == "paused"
    assert world.takes(unit, three(5), 25)


def test_a_unit_whose_part_is_unknown_is_joined_by_nobody(world: World) -> None:
    """What it can serve is not known then."""
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    known = world.known()
    need = known.reading_need(unit, form(three(5)), 25 * SECOND)
    assert need is not None and need.is_met
    assert known.reading_need("no unit", form(three(5)), 25 * SECOND) is None


def test_a_unit_that_reads_another_is_not_joined_by_an_earlier_start(world: World) -> None:
    """The other has no rows from before the start that was asked of it."""
    world.ask("two", TWO, 25)
    unit = world.ask("three", three(5), 25)
    assert not world.takes(unit, three(5, more=" AND f.fee > 1"), 15)
    assert not world.takes(unit, three(5, more=" AND f.fee > 1"), None)
    assert world.takes(unit, three(4), 24), "a shorter window reaches back less"


def test_units_that_read_others_are_read_by_none(world: World) -> None:
    """A unit waits for those that it reads: one below the other is as far as that goes."""
    two = world.ask("two", TWO, 25)
    built = world.ask("three", three(5), 25)
    four = three(5).replace(
        "Fees [RANGE 2 SEC] f", "Fees [RANGE 2 SEC] f, Taxes [RANGE 2 SEC] t"
    ) + (" AND b.item = t.item")
    unit = world.ask("four", four, 25)
    assert unit_log(built) not in world.unit(unit).inputs
    assert unit_log(two) in world.unit(unit).inputs
