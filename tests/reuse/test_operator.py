"""Operators relaxed for random queries: each query's part of their rows is what it has alone."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from compensated import Asked, alone, asked, by_base, form, serving, shared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.algebra.conditions.predicate import implies
from headwater.algebra.windows import Range
from headwater.reuse import (
    Containment,
    QuerySignature,
    SharingKind,
    classify_containment,
    minimal_operator,
    relax,
)
from headwater.reuse.join_subscribers import JoinSubscribers
from headwater.reuse.operator import MAX_PIECES, MAX_VALUES
from overlapping import random_join
from strategies import SECOND, streams, tables

SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**32)


def drawn(seed: int, size: int) -> list[list[Asked]]:
    """Random joins in groups that could share."""
    rng = random.Random(seed)
    groups = by_base(asked(random_join(rng)) for _ in range(size))
    return [group for group in groups if group[0].form.kind is SharingKind.JOIN]


# ---- never a wrong row


def check(seed: int, size: int, data: Any, rows: Any) -> None:
    for group in drawn(seed, size):
        found = shared(group, serving([one.form for one in group]), data, rows)
        for one, part in zip(group, found, strict=True):
            assert part == alone(one, data, rows), str(one.query)


@settings(SLOW, max_examples=8)
@given(SEEDS, streams(), tables())
def test_a_part_of_the_operator_is_the_query(seed: int, data: Any, rows: Any) -> None:
    check(seed, 12, data, rows)


@pytest.mark.slow
@settings(SLOW, max_examples=200)
@given(SEEDS, streams(), tables())
def test_a_part_of_the_operator_is_the_query_at_length(seed: int, data: Any, rows: Any) -> None:
    check(seed, 40, data, rows)


@settings(SLOW, max_examples=8)
@given(SEEDS, streams(), tables())
def test_a_query_said_to_be_contained_is(seed: int, data: Any, rows: Any) -> None:
    """An operator that was made for others serves it as it is."""
    for first, *others in drawn(seed, 24):
        operator = minimal_operator(first.form)
        for one in others:
            if classify_containment(one.form, operator) is Containment.CONTAINED:
                (part,) = shared([one], operator, data, rows)
                assert part == alone(one, data, rows), str(one.query)


# ---- laws


@settings(SLOW, max_examples=12)
@given(SEEDS)
def test_relaxing_serves_all_and_again_changes_nothing(seed: int) -> None:
    for group in drawn(seed, 16):
        forms = [one.form for one in group]
        operator = serving(forms)
        for one in forms:
            assert relax(operator, one) is operator
            assert classify_containment(one, operator) in (Containment.EQUAL, Containment.CONTAINED)
            assert implies(one.content.where, operator.where)


@settings(SLOW, max_examples=12)
@given(SEEDS)
def test_two_queries_make_the_same_operator_in_either_order(seed: int) -> None:
    for group in drawn(seed, 16):
        for one, other in permutations([a.form for a in group[:3]], 2):
            here, there = serving([one, other]), serving([other, one])
            assert implies(here.where, there.where) and implies(there.where, here.where)
            assert (here.sources, here.columns) == (there.sources, there.columns)


# ---- by hand

JOIN = "FROM Bids {} b, Asks {} a WHERE b.item = a.item"


def joined(windows: tuple[str, str], more: str = "", told: str = "b.item") -> QuerySignature:
    return form(f"SELECT {told} {JOIN.format(*windows)}{more}")


def windows(operator: Any) -> list[Range]:
    return [scan.window for scan in operator.scans]


def test_the_larger_of_each_pair_of_windows() -> None:
    one = joined(("[RANGE 1 SEC]", "[RANGE 4 SEC]"))
    other = joined(("[RANGE 2 SEC]", "[RANGE UNBOUNDED]"))
    assert windows(serving([one, other])) == [Range(None), Range(2 * SECOND)]


def test_windows_that_slide_alike_stay_so() -> None:
    slide = "[RANGE 2 SEC SLIDE 1 SEC]", "[RANGE 3 SEC SLIDE 1 SEC]"
    one, other = joined(slide), joined((slide[1], slide[0]))
    assert windows(serving([one, other])) == [Range(3 * SECOND, SECOND)] * 2


def test_windows_that_slide_apart_hold_as_long_as_a_slide_can() -> None:
    one = joined(("[RANGE 2 SEC SLIDE 1 SEC]", "[RANGE 2 SEC SLIDE 1 SEC]"))
    other = joined(("[RANGE 1 SEC]", "[RANGE 1 SEC]"))
    assert windows(serving([one, other])) == [Range(3 * SECOND)] * 2
    assert serving([one, other]) == serving([other, one])


def test_conditions_are_covered_term_by_term() -> None:
    now = "[NOW]", "[NOW]"
    found = serving([joined(now, " AND b.price > 5"), joined(now, " AND b.price > 9")])
    assert found.where == joined(now, " AND b.price > 5").content.where
    found = serving([joined(now, " AND b.item = 1"), joined(now, " AND b.item = 3")])
    assert found.where == joined(now, " AND b.item IN (1, 3)").content.where
    found = serving([joined(now, " AND b.item = 1"), joined(now, " AND a.open")])
    assert found.where == joined(now).content.where


def test_many_values_become_one_stretch() -> None:
    now = "[NOW]", "[NOW]"
    forms = [joined(now, f" AND b.item = {3 * n}") for n in range(MAX_VALUES + 1)]
    values = ", ".join(str(3 * n) for n in range(MAX_VALUES))
    assert serving(forms[:-1]).where == joined(now, f" AND b.item IN ({values})").content.where
    found = serving(forms)
    assert found.where == joined(now, f" AND b.item BETWEEN 0 AND {3 * MAX_VALUES}").content.where
    assert all(classify_containment(one, found) is Containment.CONTAINED for one in forms)


def test_many_ranges_become_one() -> None:
    now = "[NOW]", "[NOW]"
    ranges = [f" AND b.item BETWEEN {30 * n} AND {30 * n + 9}" for n in range(MAX_PIECES + 1)]
    forms = [joined(now, text) for text in ranges]
    assert len(serving(forms[:-1]).where.constraints[0].domain.intervals) == MAX_PIECES
    found = serving(forms)
    end = 30 * MAX_PIECES + 9
    assert found.where == joined(now, f" AND b.item BETWEEN 0 AND {end}").content.where


def test_relations() -> None:
    now = "[NOW]", "[NOW]"
    operator = minimal_operator(joined(now, " AND b.price > 5", "b.item, b.price"))
    assert (
        classify_containment(joined(now, " AND 5 < b.price", "b.price, b.item"), operator)
        is Containment.EQUAL
    )
    assert (
        classify_containment(joined(now, " AND b.price > 9", "b.item"), operator)
        is Containment.CONTAINED
    )
    assert (
        classify_containment(joined(now, " AND b.price > 4"), operator) is Containment.OVERLAPPING
    )
    assert (
        classify_containment(joined(now, " AND b.price > 9", "a.cost"), operator)
        is Containment.OVERLAPPING
    )
    assert classify_containment(form("SELECT item FROM Bids [NOW]"), operator) is None


# ---- members


def test_what_the_operator_sees_to_is_no_bound_of_its_queries() -> None:
    now = "[NOW]", "[NOW]"
    liked = " AND b.note LIKE 'a%' AND b.price > 1"
    forms = [joined(now, liked), joined(now, liked + " AND a.cost > 2")]
    (first, second) = JoinSubscribers(serving(forms), tuple(forms)).shapes
    assert [str(term) for term in first.terms] == []
    assert [str(term) for term in second.terms] == ["s0.cost"]


def test_queries_of_one_template_have_one_shape() -> None:
    forms = [
        joined(("[RANGE 4 SEC]", f"[RANGE {n % 3} SEC]"), f" AND b.price > {n}") for n in range(50)
    ]
    members = JoinSubscribers(serving(forms), tuple(forms))
    assert {shape.slides for shape in members.shapes} == {(None, None)}
    assert len(members.shapes) <= 4
    assert set(members.subscribers) == {one.digest for one in forms}


def test_an_item_is_told_once_for_all() -> None:
    now = "[NOW]", "[NOW]"
    forms = [joined(now, told="b.item + 1 AS x, a.cost"), joined(now, told="1 + b.item AS y")]
    members = JoinSubscribers(serving(forms), tuple(forms))
    assert len(members.items) == 2
    places = [members.subscribers[one.digest].item_columns for one in forms]
    assert set(places[1]) <= set(places[0])
