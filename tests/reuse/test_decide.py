"""Where a query goes: always the cheapest, and never dearer than alone."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from compensated import asked, form
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cost.model import CostModel
from headwater.cost.operators import SECOND_COSTS, CostTable, OperatorCost
from headwater.reuse import (
    Containment,
    Lattice,
    Operator,
    QuerySignature,
    SharingKind,
    minimal_operator,
    relax,
)
from headwater.reuse.decide import LANE_STEP_SHARE
from headwater.reuse.load import SharingCosts, estimate_load, operator_load
from headwater.reuse.planning.single_site import choose_operator
from overlapping import random_join

RATES = {"bids": 1_000.0, "asks": 10.0}
PRICES = SharingCosts(rates=RATES)
JOIN = "FROM Bids [RANGE {} SEC] b, Asks [RANGE 4 SEC] a WHERE b.item = a.item"


def joined(more: str = "", size: int = 2, told: str = "b.price") -> QuerySignature:
    return form(f"SELECT {told} {JOIN.format(size)}{more}")


@pytest.mark.long
@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 10.0, 100_000.0]))
def test_the_cheapest_of_all(seed: int, rate: float) -> None:
    rng = random.Random(seed)
    prices = SharingCosts(rates={"bids": rate, "asks": rate})
    lattice = Lattice()
    for number in range(25):
        one = asked(random_join(rng)).form
        if one.kind is not SharingKind.JOIN:
            continue
        running = [(name, lattice.operator(name)) for name in lattice.nearest(one)]
        choice = choose_operator(one, running, prices)
        own = operator_load(minimal_operator(one), prices.effective)
        alone = own.cpu
        # In a lane of its own it costs what it costs alone, but for a part of what a step costs.
        lane = alone - (1 - LANE_STEP_SHARE) * own.steps
        added = [
            min(
                estimate_load(relax(operator, one), prices) - estimate_load(operator, prices),
                lane if len(operator.scans) > 1 else math.inf,
            )
            if relax(operator, one) is not operator
            else 0.0
            for _, operator in running
        ]
        # Joins of more than two also make the rows of smaller joins.
        assert choice.standalone_load >= alone * (1 - 1e-12)
        assert len(one.content.sources) > 2 or choice.standalone_load == pytest.approx(alone)
        assert choice.added_load == pytest.approx(max(0.0, min([*added, choice.standalone_load])))
        assert choice.added_load <= choice.standalone_load
        assert relax(choice.operator, one) is choice.operator
        lattice.insert(choice.name or f"o{number}", choice.operator)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32))
def test_relaxing_is_never_cheaper_than_before(seed: int) -> None:
    rng = random.Random(seed)
    known: dict[str, Operator] = {}
    for _ in range(25):
        one = asked(random_join(rng)).form
        if one.kind is not SharingKind.JOIN:
            continue
        before = known.get(one.sharing_key, minimal_operator(one))
        known[one.sharing_key] = relax(before, one)
        assert estimate_load(known[one.sharing_key], PRICES) >= estimate_load(before, PRICES)


def test_what_serves_already_costs_nothing() -> None:
    wide = minimal_operator(joined(" AND b.price > 5", told="b.price, b.item"))
    choice = choose_operator(joined(" AND b.price > 9"), [("wide", wide)], PRICES)
    assert (choice.name, choice.containment, choice.added_load) == (
        "wide",
        Containment.CONTAINED,
        0.0,
    )
    assert choice.operator is wide and choice.changes == ()
    equal = choose_operator(
        joined(" AND b.price > 5", told="b.item, b.price"), [("wide", wide)], PRICES
    )
    assert equal.containment is Containment.EQUAL


def test_relaxed_where_that_costs_less_than_another() -> None:
    narrow = minimal_operator(joined(" AND b.price > 9"))
    choice = choose_operator(joined(" AND b.price > 5"), [("narrow", narrow)], PRICES)
    assert (choice.name, choice.containment) == ("narrow", Containment.OVERLAPPING)
    assert choice.changes == ("Bids.price > 9.0D -> Bids.price > 5.0D",)
    assert 0.0 <= choice.added_load < choice.standalone_load


BUSY = replace(PRICES, rates={"bids": 10_000_000.0, "asks": 10.0}, step_seconds=1e-6)

DEAR_RESULTS = CostModel(costs=CostTable({**SECOND_COSTS.costs, "write": OperatorCost(1e-5)}))
"""Writing a row costs ten times what reading one does, so rows that nobody wants are dear."""


def test_alone_where_relaxing_costs_more() -> None:
    """Two rare values of two columns: the least cover of both is all that is bid."""
    running = minimal_operator(form("SELECT price FROM Bids WHERE note = 'a'"))
    other = form("SELECT price FROM Bids WHERE bidder = 1")
    costs = replace(BUSY, model=DEAR_RESULTS)
    choice = choose_operator(other, [("running", running)], costs)
    assert choice.name is None and choice.containment is None
    assert choice.added_load == choice.standalone_load


def test_a_join_has_a_lane_where_relaxing_would_cost_more() -> None:
    running = minimal_operator(joined(" AND b.note = 'a'"))
    choice = choose_operator(joined(" AND b.bidder = 1"), [("running", running)], BUSY)
    assert (choice.name, choice.containment) == ("running", Containment.OVERLAPPING)
    assert 0 < choice.added_load < choice.standalone_load


def test_none_running() -> None:
    choice = choose_operator(joined(), [], PRICES)
    assert choice.name is None and choice.added_load == choice.standalone_load == estimate_load(
        choice.operator, PRICES
    )


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
def test_prices_grow_with_windows_and_with_what_is_wanted(
    dear: QuerySignature, cheap: QuerySignature
) -> None:
    assert estimate_load(minimal_operator(dear), PRICES) > estimate_load(
        minimal_operator(cheap), PRICES
    )
