"""When a new query may join a running unit: never where a row of it, or of those that are there, would be
lost or doubled; and always where none would be. Decided from the catalog, without Spark.

The judge is the reference evaluator: a query has the rows after its start, over the tuples that are not
older than its start minus the history of their stream (`KEEP`). A unit has one start for all its queries.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from joining_worlds import (
    OTHER,
    OTHERS,
    SECOND,
    SPREAD,
    STARTS,
    World,
    alone,
    earlier_of,
    emitted,
    form,
    group,
    join,
    last_rows,
    lone,
)

from headwater.cql import CreateQuery, parse
from headwater.reuse.signature import QuerySignature
from headwater.runtime.catalog import (
    Catalog,
    QueryRow,
)
from headwater.runtime.lifecycle import (
    is_stopped_for_good,
)
from headwater.runtime.submit.statements import _equal_query
from headwater.runtime.submit.unit_index import (
    FOREVER_AGO,
    unit_index,
)

# ---- joins: what a unit has missed for a query is made up for


@pytest.mark.parametrize("own", [None, 25])
def test_a_join_joins_one_of_any_start_if_both_look_back(world: World, own: int | None) -> None:
    unit = world.ask("first", join(10), own)
    for start in STARTS:
        assert world.takes(unit, join(10, OTHER), start)
        # Nobody has another row for it.
        for text, begin in ((join(10), own), (join(10, OTHER), start)):
            assert emitted(text, begin, earlier_of(own, start)) == alone(text, begin)
    assert world.ask("second", join(10, OTHER), 25) == unit


@pytest.mark.parametrize("own", [None, 25])
def test_a_join_that_goes_beyond_a_history_joins_one_of_the_same_start_alone(
    world: World, own: int | None
) -> None:
    unit = world.ask("first", join(15), own)
    for start in STARTS:
        keeps_rows = all(
            emitted(text, begin, earlier_of(own, start)) == alone(text, begin)
            for text, begin in ((join(15), own), (join(15, OTHER), start))
        )
        assert world.takes(unit, join(15, OTHER), start) is keeps_rows is (own == start)
    assert (world.ask("second", join(15, OTHER), 25) == unit) is (own == 25)


@pytest.mark.parametrize("own", [25, 35])
def test_a_join_of_an_earlier_start_leaves_those_alone_that_go_beyond_a_history(
    world: World, own: int
) -> None:
    """The unit would have to begin earlier, and its query would look back on more than it may."""
    unit = world.ask("first", join(15), own)
    for start in (None, own - 10, own - 1):
        assert not world.takes(unit, join(10), start)
        assert emitted(join(15), own, start) != alone(join(15), own)
    assert world.takes(unit, join(10), own)


@pytest.mark.parametrize("own", [None, 25])
def test_a_join_that_goes_beyond_a_history_leaves_those_alone_that_do_not(
    world: World, own: int | None
) -> None:
    """It would see tuples in this unit that are too old for it."""
    unit = world.ask("first", join(10), own)
    assert not world.takes(unit, join(15), 35)
    assert emitted(join(15), 35, own) != alone(join(15), 35)
    assert world.takes(unit, join(15), own)


def test_rows_of_a_lone_stream_are_shared_whatever_their_windows_and_starts(world: World) -> None:
    unit = world.ask("first", lone(0), 25)
    for number, start in enumerate(STARTS):
        assert world.ask(f"q{number}", lone(number + 1), start) == unit


def test_who_begins_later_joins_though_others_go_beyond_a_history(world: World) -> None:
    """The unit begins where it began, so nothing changes for those that are there."""
    joins = world.ask("first", join(15), 15)
    groups = world.ask("second", group(14), 15)
    assert emitted(join(10), 25, 15) == alone(join(10), 25)
    assert emitted(group(8), 25, 15) == alone(group(8), 25)
    assert world.takes(joins, join(10), 25)
    assert world.takes(groups, group(8), 25)
    assert not world.takes(joins, join(10), 5), "the first would have rows of older tuples"


def test_a_slide_that_the_operator_hides(world: World) -> None:
    """With another window beside it, what slides is not seen in the operator's window; the rows of
    the query would still be others if the unit began earlier."""
    slid = "SELECT price FROM Bids [RANGE 1 SEC SLIDE 11 SEC]"
    unit = world.ask("first", slid, 25)
    assert world.ask("second", "SELECT item FROM Bids [RANGE 1 SEC]", 25) == unit
    assert not world.takes(unit, "SELECT price FROM Bids [NOW]", 15)
    assert world.takes(unit, "SELECT price FROM Bids [NOW]", 35)


# ---- equal queries: their rows are written once, so they must be there


@pytest.mark.parametrize(
    "text", [join(10), lone(3), group(8)], ids=["join", "lone stream", "groups"]
)
def test_an_equal_query_begins_no_earlier_than_the_first_that_is_there(
    world: World, text: str
) -> None:
    """Both have the same rows in the log. Those before the start of the first were never written."""
    unit = world.ask("first", text, 25)
    assert [start for start in (None, 0, 24, 25, 26) if world.takes(unit, text, start)] == [25, 26]
    assert world.ask("same", text, 25) == unit
    assert world.ask("later", text, 40) == unit
    assert world.ask("earlier", text, 24) != unit
    # The first that begins counts, not the last.
    assert world.takes(unit, text, 26)
    keys = {world.row(name).result_key for name in ("first", "same", "later")}
    assert len(keys) == 1


@pytest.mark.parametrize("text", [join(10), group(8)], ids=["join", "groups"])
def test_an_equal_query_of_all_input_has_every_row(world: World, text: str) -> None:
    """Times before 1970 are times like others, and so is 1970 itself."""
    unit = world.ask("first", text, None)
    assert all(world.takes(unit, text, start) for start in (None, -100, 0, 25))


@pytest.mark.parametrize("text", [join(10), group(8)], ids=["join", "groups"])
def test_an_equal_query_of_the_same_start_in_1970(world: World, text: str) -> None:
    unit = world.ask("first", text, 0)
    assert [world.takes(unit, text, start) for start in (None, -1, 0, 1)] == [
        False,
        False,
        True,
        True,
    ]


def test_what_counts_is_the_start_of_the_equal_one_and_not_of_its_unit(world: World) -> None:
    """The unit has emitted since 15, but rows of the second query only since 25."""
    for kind in (join, group):
        more = OTHER if kind is join else OTHERS
        unit = world.ask(f"{kind.__name__} 1", kind(8), 15)
        assert world.ask(f"{kind.__name__} 2", kind(8, more), 25) == unit
        assert not world.takes(unit, kind(8, more), 20)
        assert world.takes(unit, kind(8, more), 25)
        assert world.takes(unit, kind(8), 20)


def test_equal_groups_join_though_their_instants_were_evaluated(world: World) -> None:
    """Their rows are in the log already; those of other groups are not, and nobody makes up for them."""
    unit = world.ask("first", group(8), 15)
    world.evaluated(unit, 40)
    assert world.takes(unit, group(8), 20)
    assert world.ask("same", group(8), 20) == unit
    assert world.row("same").result_key == world.row("first").result_key
    assert not world.takes(unit, group(8, OTHERS), 20)


def test_equal_groups_that_go_beyond_a_history_need_the_same_start(world: World) -> None:
    unit = world.ask("first", group(9), 15)
    assert world.takes(unit, group(9), 15)
    assert not world.takes(unit, group(9), 25)
    assert emitted(group(14), 25, 15) != alone(group(14), 25)


def test_equal_groups_join_though_others_of_the_unit_go_beyond_a_history(world: World) -> None:
    """They have the rows of their equal, whatever else the unit does."""
    unit = world.ask("first", group(8), 15)
    assert world.ask("long", group(14), 15) == unit
    assert world.takes(unit, group(8), 25)
    assert not world.takes(unit, group(14), 25)


def equal_to(world: World, unit: str, signature: QuerySignature) -> str | None:
    """The query of a unit whose rows those of one more would be."""
    return _equal_query(unit_index(world.catalog, world.definitions), unit, signature, None)


def test_an_equal_query_that_is_over_is_none(world: World) -> None:
    """Its rows are still in the log: under the same key they would count twice."""
    unit = world.ask("other", join(10, OTHER), 15)
    assert world.ask("first", join(10), 30, lifetime=5) == unit
    assert world.catalog.unit(unit) is not None
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    assert equal_to(world, unit, form(join(10))) == "first"
    assert not world.takes(unit, join(10), 20)
    world.finish("first")
    assert equal_to(world, unit, form(join(10))) is None
    assert world.takes(unit, join(10), 20), "there is none whose rows it would have to do with"
    assert world.ask("again", join(10), 20) == unit
    assert world.row("again").result_key != world.row("first").result_key


def test_the_first_of_equal_queries_is_named(world: World) -> None:
    same = form(join(10))
    unit = world.ask("other", join(10, OTHER), 5)
    assert equal_to(world, unit, same) is None
    assert equal_to(world, "no unit", same) is None
    world.ask("b", join(10), 20)
    assert equal_to(world, unit, same) == "b"
    assert equal_to(world, unit, form(join(10, OTHER))) == "other"
    for name, start in (("a", 30), ("c", 25)):
        assert world.ask(name, join(10), start) == unit
    assert equal_to(world, unit, same) == "b", "neither the last nor by name"


def test_one_of_all_input_is_the_first_of_equal_queries(world: World) -> None:
    unit = world.ask("z", join(10), None)
    assert world.ask("a", join(10), -100) == unit
    assert equal_to(world, unit, form(join(10))) == "z"
    assert equal_to(world, unit, form(join(9))) is None


# ---- groups: nothing is made up for


@pytest.mark.parametrize(
    ("own", "earlier", "later"),
    [
        (None, [], [None, 0, 25]),  # the unit has all that a query can need
        (25, [None, 15, 23], [25, 35]),  # of 23, the row of instant 24 would be missing
    ],
)
def test_groups_join_a_unit_that_begins_no_later(
    world: World, own: int | None, earlier: list[int | None], later: list[int | None]
) -> None:
    unit, text = world.ask("first", group(8), own), group(8, OTHERS)
    for start in (*earlier, *later):
        assert world.takes(unit, text, start) is (start in later)
        rows = [r for r in emitted(text, start, own) if own is None or r.tau > own * SECOND]
        assert (rows == alone(text, start)) is (start in later)
    assert world.ask("second", text, 25) == unit
    assert (world.ask("third", group(8), 15) == unit) is (own is None)
    assert world.begins(unit) == own, "a unit of groups never begins earlier"


@pytest.mark.parametrize("own", [None, 15])
def test_groups_join_a_unit_that_has_evaluated_no_instant_of_theirs(
    world: World, own: int | None
) -> None:
    """A query has the rows after its start: an instant that is the start itself is none of its."""
    unit, text = world.ask("first", group(8), own), group(8, OTHERS)
    assert world.takes(unit, text, own)
    world.evaluated(unit, 24)
    assert [start for start in (None, 15, 23, 24, 25) if world.takes(unit, text, start)] == [24, 25]
    assert world.ask("second", text, 24) == unit
    assert world.ask("third", group(7, OTHERS), 23) != unit


@pytest.mark.parametrize("own", [None, 25])
def test_groups_that_go_beyond_a_history_join_one_of_the_same_start_alone(
    world: World, own: int | None
) -> None:
    """Their windows would hold more or less than they may, or rows would be missing."""
    unit, text = world.ask("first", group(14), own), group(14, OTHERS)
    for start in STARTS:
        rows = [r for r in emitted(text, start, own) if own is None or r.tau > own * SECOND]
        keeps_rows = rows == alone(text, start)
        assert world.takes(unit, text, start) is keeps_rows is (own == start)


@pytest.mark.parametrize("own", [None, 25])
def test_groups_that_go_beyond_a_history_leave_those_alone_that_do_not(
    world: World, own: int | None
) -> None:
    """Their windows would hold tuples in this unit that are too old for them."""
    unit, text = world.ask("first", group(8), own), group(14, OTHERS)
    assert not world.takes(unit, text, 35)
    assert emitted(text, 35, own) != alone(text, 35)
    assert world.takes(unit, text, own)


@pytest.mark.parametrize(("own", "start"), [(15, 25), (None, None)])
def test_an_instant_that_is_evaluated_meanwhile_makes_groups_choose_again(
    world: World, monkeypatch: pytest.MonkeyPatch, own: int | None, start: int | None
) -> None:
    """Between the choice and the acceptance the unit goes on: then the query would miss that instant."""
    unit = world.ask("first", group(8), own)
    accept = world.catalog.accept_query

    def overtaken(*args: Any, **named: Any) -> QueryRow:
        monkeypatch.setattr(world.catalog, "accept_query", accept)
        world.evaluated(unit, 26)
        return accept(*args, **named)

    monkeypatch.setattr(world.catalog, "accept_query", overtaken)
    assert world.ask("other", group(8, OTHERS), start) != unit


def test_an_instant_that_is_evaluated_meanwhile_is_there_for_equal_groups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = world.ask("first", group(8), 15)
    accept = world.catalog.accept_query

    def late(*args: Any, **named: Any) -> QueryRow:
        world.evaluated(unit, 26)
        return accept(*args, **named)

    monkeypatch.setattr(world.catalog, "accept_query", late)
    assert world.ask("equal", group(8), 25) == unit


def test_joins_join_whatever_was_evaluated(world: World) -> None:
    """What they have missed of tuples that were ingested before is made up for."""
    unit = world.ask("first", join(10), 15)
    world.evaluated(unit, 40)
    assert world.ask("second", join(10, OTHER), 25) == unit
    assert world.ask("third", join(9), None) == unit


# ---- queries that share with their equals alone


@pytest.mark.parametrize("own", [None, 25])
def test_the_last_rows_are_shared_by_equals_of_the_same_start(
    world: World, own: int | None
) -> None:
    """How far back they lie is not known, so with another start they may be others; and a row of all of them is
    there before the first one."""
    unit, text = world.ask("first", SPREAD, own), SPREAD
    for start in STARTS:
        rows = [r for r in emitted(text, start, own) if own is None or r.tau > own * SECOND]
        keeps_rows = rows == alone(text, start)
        assert world.takes(unit, text, start) is keeps_rows is (own == start)


def test_last_rows_of_other_starts_are_computed_beside_each_other(world: World) -> None:
    """Each sees the tuples since its start; those of one start are one."""
    unit = world.ask("first", last_rows(3), None)
    for start in (15, 25, 35):
        assert world.ask(f"q{start}", last_rows(3), start) == unit
        assert world.ask(f"same{start}", last_rows(3), start) == unit
        assert world.row(f"q{start}").result_key == world.row(f"same{start}").result_key
    keys = {world.row(name).result_key for name in ("first", "q15", "q25", "q35")}
    assert len(keys) == 4
    assert world.ask("other", last_rows(4), 15) == unit


def test_last_rows_do_not_join_a_unit_that_began_later(world: World) -> None:
    unit = world.ask("first", last_rows(3), 25)
    assert world.ask("second", last_rows(3), 15) != unit
    assert world.ask("third", last_rows(4), None) != unit


def test_a_row_of_all_last_rows_has_the_start_of_its_unit(world: World) -> None:
    """It is there where there is no tuple, so it depends on when the unit began."""
    text = "SELECT MAX(price) AS m FROM Bids [ROWS 3]"
    units = {start: world.ask(f"q{start}", text, start) for start in STARTS}
    assert len({*units.values()}) == len(STARTS)
    for start, unit in units.items():
        assert world.ask(f"same{start}", text, start) == unit


def test_last_rows_do_not_join_an_equal_that_is_over(world: World) -> None:
    """Its unit may not be at rest yet, but writes no row for it any more: it can be joined as that of any other
    query can, while nothing after the start was evaluated."""
    unit = world.ask("first", last_rows(3), 30, lifetime=5)
    world.arrived("bids", 50)
    assert world.takes(unit, last_rows(3), 30)
    world.catalog.finish_queries(unit, ["first"])
    assert world.unit(unit).state == "running"
    assert world.takes(unit, last_rows(3), 30)
    world.catalog.commit(None, cursors={(unit, "instant"): 31 * SECOND})
    assert not world.takes(unit, last_rows(3), 30)
    assert world.ask("again", last_rows(3), 30) != unit


# ---- units that rest

KINDS = {"joined": join(10), "grouped": group(8), "latest": last_rows(3)}


def test_a_paused_unit_is_joined_and_runs_again(world: World) -> None:
    """It has kept its place, so nothing is lost."""
    for kind, text in KINDS.items():
        unit = world.ask(kind, text, 15)
        world.execute(f"PAUSE QUERY {kind}")
        assert world.unit(unit).state == "paused"
        assert world.ask(f"{kind} too", text, 15) == unit
        assert world.unit(unit).state == "running"
        assert world.row(kind).state == "paused"


def test_a_parked_unit_is_left_alone(world: World) -> None:
    """Its steps fail: a query that joined it would fail with it."""
    for kind, text in KINDS.items():
        unit = world.ask(kind, text, 15)
        world.catalog.park_unit(unit, "it fails")
        assert not world.takes(unit, text, 15)
        assert world.ask(f"{kind} too", text, 15) != unit
        assert world.unit(unit).state == "parked"


def test_a_unit_that_is_gone_is_joined_by_nobody(world: World) -> None:
    """Also if it is dropped by another process, which the one that chooses does not know yet."""
    for kind, text in KINDS.items():
        unit = world.ask(kind, text, 15)
        known = world.known()
        assert known._can_join(unit, form(text), 15 * SECOND)
        world.catalog.drop_query(kind)
        assert not known._can_join(unit, form(text), 15 * SECOND)
        assert not known._can_join("no unit", form(text), 15 * SECOND)
        assert world.ask(f"{kind} again", text, 15) != unit


def test_a_unit_that_has_stopped_for_good_is_joined_by_nobody(world: World) -> None:
    """Its streams need not keep their tuples for it any more, so it could have missed some."""
    units = {kind: world.ask(kind, text, 30, lifetime=5) for kind, text in KINDS.items()}
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    for kind, text in KINDS.items():
        unit = units[kind]
        assert not is_stopped_for_good(world.catalog, world.unit(unit))
        world.finish(kind)
        assert world.unit(unit).state == "paused"
        assert is_stopped_for_good(world.catalog, world.unit(unit))
        assert not world.takes(unit, text, 30)
        assert not world.takes(unit, text, 60)
    assert world.ask("again", join(10), 60) != units["joined"]


def test_a_unit_whose_stream_may_be_reopened_is_joined(world: World) -> None:
    """The end of its input has finished its query, but it goes on when there is more."""
    units = {kind: world.ask(kind, text, 15) for kind, text in KINDS.items()}
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
        world.catalog.end_stream(stream, reopens=True)
    for kind, text in KINDS.items():
        world.finish(kind)
        assert world.unit(units[kind]).state == "paused"
        assert world.takes(units[kind], text, 15)
    for stream in ("bids", "asks"):
        world.catalog.end_stream(stream)
    for kind, text in KINDS.items():
        assert not world.takes(units[kind], text, 15), "now it is the end"


def test_a_unit_rests_for_good_only_with_all_its_queries(world: World) -> None:
    unit = world.ask("short", join(10), 30, lifetime=5)
    assert world.ask("long", join(10, OTHER), 30) == unit
    for stream in ("bids", "asks"):
        world.arrived(stream, 50)
    world.finish("short")
    world.execute("PAUSE QUERY long")
    assert world.unit(unit).state == "paused"
    assert world.takes(unit, join(9), 30)


def test_whoever_joins_a_running_unit_reads_none_of_its_queries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands, and a query is accepted in milliseconds."""
    unit = world.ask("first", join(10), 15)

    def members(self: Catalog, unit_id: str) -> list[QueryRow]:
        raise AssertionError(f"all queries of unit {unit_id} are read")

    monkeypatch.setattr(Catalog, "subscribers", members)
    assert world.ask("second", join(10, OTHER), 15) == unit
    assert world.ask("third", join(10), 15) == unit


# ---- all of it together


@pytest.mark.parametrize("kind", [join, group])
def test_who_is_in_a_unit_has_the_rows_it_would_have_alone(world: World, kind: Any) -> None:
    """Whatever came before, in whatever order of starts."""
    texts = [kind(size) for size in (6, 8, 15)]
    for number, (start, text) in enumerate(product((25, 15, None, 35), texts)):
        world.ask(f"q{number}", text, start)
    units = world.catalog.units()
    assert 1 < len(units) < 12
    for unit in units:
        own = world.catalog.cursor(unit.id, "start")
        begin = None if own in (None, FOREVER_AGO) else own // SECOND
        for query in world.catalog.subscribers(unit.id):
            (statement,) = parse(query.definition, world.definitions.namespace)
            assert isinstance(statement, CreateQuery)
            start = None if query.start_at is None else query.start_at // SECOND
            text = texts[int(query.name[1:]) % 3]
            assert emitted(text, start, begin) == alone(text, start)
            assert begin is None or (start is not None and begin <= start)
