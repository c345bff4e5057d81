"""Where a query goes: always the cheapest, and never dearer than alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from compensated import asked, form
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.reuse import Form, Kind, Lattice, Operator, Relation, operator_of, relaxed
from headwater.reuse.decide import Prices, decide, price
from overlapping import random_join

RATES = {"bids": 1_000.0, "asks": 10.0}
PRICES = Prices(rates=RATES)
JOIN = "FROM Bids [RANGE {} SEC] b, Asks [RANGE 4 SEC] a WHERE b.item = a.item"


def joined(more: str = "", size: int = 2, told: str = "b.price") -> Form:
    return form(f"SELECT {told} {JOIN.format(size)}{more}")


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 10.0, 100_000.0]))
def test_the_cheapest_of_all(seed: int, rate: float) -> None:
    rng = random.Random(seed)
    prices = Prices(rates={"bids": rate, "asks": rate})
    lattice = Lattice()
    for number in range(25):
        one = asked(random_join(rng)).form
        if one.kind is not Kind.JOIN:
            continue
        running = [(name, lattice.operator(name)) for name in lattice.nearest(one)]
        choice = decide(one, running, prices)
        added = [
            price(relaxed(operator, one), prices) - price(operator, prices)
            for _, operator in running
        ]
        assert choice.alone == price(operator_of(one), prices)
        assert choice.added == pytest.approx(max(0.0, min([*added, choice.alone])))
        assert choice.added <= choice.alone
        assert relaxed(choice.operator, one) is choice.operator
        lattice.insert(choice.name or f"o{number}", choice.operator)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32))
def test_relaxing_is_never_cheaper_than_before(seed: int) -> None:
    rng = random.Random(seed)
    known: dict[str, Operator] = {}
    for _ in range(25):
        one = asked(random_join(rng)).form
        if one.kind is not Kind.JOIN:
            continue
        before = known.get(one.base, operator_of(one))
        known[one.base] = relaxed(before, one)
        assert price(known[one.base], PRICES) >= price(before, PRICES)


def test_what_serves_already_costs_nothing() -> None:
    wide = operator_of(joined(" AND b.price > 5", told="b.price, b.item"))
    choice = decide(joined(" AND b.price > 9"), [("wide", wide)], PRICES)
    assert (choice.name, choice.relation, choice.added) == ("wide", Relation.CONTAINED, 0.0)
    assert choice.operator is wide and choice.relaxed == ()
    equal = decide(joined(" AND b.price > 5", told="b.item, b.price"), [("wide", wide)], PRICES)
    assert equal.relation is Relation.EQUAL


def test_relaxed_where_that_costs_less_than_another() -> None:
    narrow = operator_of(joined(" AND b.price > 9"))
    choice = decide(joined(" AND b.price > 5"), [("narrow", narrow)], PRICES)
    assert (choice.name, choice.relation) == ("narrow", Relation.OVERLAPPING)
    assert choice.relaxed == ("Bids.price > 9.0D -> Bids.price > 5.0D",)
    assert 0.0 <= choice.added < choice.alone


def test_alone_where_relaxing_costs_more() -> None:
    """Two rare values of two columns: the least cover of both is all that is bid."""
    busy = replace(PRICES, rates={"bids": 10_000_000.0, "asks": 10.0}, step=1e-6)
    running = operator_of(joined(" AND b.note = 'a'"))
    choice = decide(joined(" AND b.bidder = 1"), [("running", running)], busy)
    assert choice.name is None and choice.relation is None
    assert choice.added == choice.alone


def test_none_running() -> None:
    choice = decide(joined(), [], PRICES)
    assert choice.name is None and choice.added == choice.alone == price(choice.operator, PRICES)


@pytest.mark.parametrize(
    "dear, cheap",
    [
        (joined(size=9), joined(size=2)),
        (joined(), joined(" AND b.price > 5")),
        (joined(" AND b.price > 5"), joined(" AND b.item = 1")),
        (joined(" AND b.item IN (1, 2)"), joined(" AND b.item = 1")),
        (joined(), joined(" AND b.note LIKE 'a%'")),
        (
            form("SELECT b.item FROM Bids b, Asks a WHERE b.item = a.item"),
            joined(size=9),
        ),
    ],
)
def test_prices_grow_with_windows_and_with_what_is_wanted(dear: Form, cheap: Form) -> None:
    assert price(operator_of(dear), PRICES) > price(operator_of(cheap), PRICES)
