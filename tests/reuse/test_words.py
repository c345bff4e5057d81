"""Operators in words."""

from __future__ import annotations

from compensated import form, serving

from headwater.reuse import minimal_operator, relax
from headwater.reuse.describe import (
    describe_bounds,
    describe_changes,
    describe_operator,
    describe_shape,
)
from headwater.reuse.join_subscribers import JoinSubscribers

JOIN = "FROM Bids [RANGE {} SEC] b, Asks [NOW] a WHERE b.item = a.item AND b.item = {}"
ONE = form(f"SELECT b.item {JOIN.format(1, 1)}")
OTHER = form(f"SELECT a.cost {JOIN.format(2, 3)} AND b.note LIKE 'a%'")


def test_changes() -> None:
    before = minimal_operator(ONE)
    assert describe_changes(before, relax(before, OTHER)) == [
        "Bids [RANGE 1 SECOND] -> [RANGE 2 SECONDS]",
        "Asks.item = 1 AND Bids.item = 1 -> Asks.item = Bids.item AND Asks.item IN (1, 3)",
        "+ Asks.cost, Bids.note",
    ]


def test_nothing_changed() -> None:
    assert describe_changes(minimal_operator(ONE), minimal_operator(ONE)) == []


def test_a_condition_that_is_lost() -> None:
    before = minimal_operator(form("SELECT item FROM Bids [NOW] WHERE price > 1"))
    assert describe_changes(before, relax(before, form("SELECT item FROM Bids [NOW]")))[0] == (
        "Bids.price > 1.0D -> no condition"
    )


def test_an_operator() -> None:
    assert describe_operator(serving([ONE, OTHER])) == [
        "reads Asks [NOW], Bids [RANGE 2 SECONDS]",
        "where Asks.item = Bids.item AND Asks.item IN (1, 3)",
        "emits Asks.cost, Asks.item, Bids.note",
    ]


def test_groups() -> None:
    grouped = "FROM Bids [RANGE 2 SEC SLIDE 1 SEC] GROUP BY item"
    one, other = (
        form(f"SELECT item, sum(price) {grouped}"),
        form(f"SELECT count(*) {grouped}, note"),
    )
    before = minimal_operator(one)
    assert describe_operator(before)[1:] == ["grouped by Bids.item", "emits sum(Bids.price)"]
    assert describe_changes(before, relax(before, other)) == [
        "+ Bids.note, count(*)",
        "+ GROUP BY Bids.note",
    ]


def test_a_stream_that_is_read_twice() -> None:
    one = form("SELECT x.price FROM Bids [NOW] x, Bids [NOW] y WHERE x.item = y.bidder")
    assert describe_operator(minimal_operator(one))[1] == "where Bids#1.bidder = Bids#2.item"


def test_what_a_query_wants() -> None:
    members = JoinSubscribers(serving([ONE, OTHER]), (ONE, OTHER))
    sources = members.operator.sources
    wishes = [describe_bounds(members.residual_bounds(one), sources) for one in members.signatures]
    assert wishes == [
        "Asks.item = 1 AND age of Bids <= 1 SECOND",
        "Asks.item = 3 AND Bids.note LIKE 'a%'",
    ]
    assert [describe_shape(shape, sources) for shape in members.shapes] == [
        "1 query by Asks.item, age of Bids: 1 row class",
        "1 query by Asks.item, Bids.note LIKE 'a%': 1 row class",
    ]
    alone = JoinSubscribers(minimal_operator(ONE), (ONE,))
    assert describe_bounds(alone.residual_bounds(ONE), sources) == "all rows"
