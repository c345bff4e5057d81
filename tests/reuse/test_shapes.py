"""Tables of constants against trying every query on every row."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.conditions.domain import (
    Domain,
    comparison_domain,
    domain_of,
    empty_domain,
    full_domain,
    null_domain,
)
from headwater.algebra.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, Type, Value
from headwater.reuse import shapes
from headwater.reuse.shapes import Axis, ShapeTable, build_tables, merge_ranges
from strategies import MONEY, UNIVERSE, domains_of

TYPES = [BOOLEAN, INT, BIGINT, DOUBLE, STRING, MONEY]


def holds(domain: Domain, value: Value) -> bool:
    return domain_of(domain.type, [value]) <= domain


def wanting(found: list[ShapeTable[int]], row: tuple[Value, ...]) -> list[int]:
    """The queries that want a row, by its class in each table."""
    result = []
    for table in found:
        number = table.row_class_of(row)
        for key, ranges in table.row_classes.items():
            if number is not None and any(low <= number <= high for low, high in ranges):
                result.append(key)
    return sorted(result)


def check(types: list[Type], wanted: dict[int, list[Domain]], rows: list[Any]) -> None:
    found = build_tables(types, wanted)
    assert sorted(key for table in found for key in table.row_classes) == sorted(wanted)
    for row in rows:
        brute = [k for k, domains in wanted.items() if all(map(holds, domains, row))]
        assert wanting(found, row) == brute


@st.composite
def wishes(draw: st.DrawFn, most: int = 3) -> tuple[list[Type], dict[int, list[Domain]]]:
    types = draw(st.lists(st.sampled_from(TYPES), max_size=most))
    boxes = draw(st.lists(st.tuples(*map(domains_of, types)), max_size=6))
    return types, {key: list(box) for key, box in enumerate(boxes)}


@settings(deadline=None, max_examples=30)
@given(wishes(), st.data())
def test_a_class_is_wanted_by_those_whose_domains_hold_the_row(
    wished: tuple[list[Type], dict[int, list[Domain]]], data: st.DataObject
) -> None:
    types, wanted = wished
    values = st.tuples(*(st.sampled_from(UNIVERSE[type_]) for type_ in types))
    check(types, wanted, data.draw(st.lists(values, max_size=12)))


@settings(deadline=None, max_examples=20)
@given(wishes(), st.integers(1, 12), st.data())
def test_the_same_with_tables_of_few_cells(
    wished: tuple[list[Type], dict[int, list[Domain]]], most: int, data: st.DataObject
) -> None:
    types, wanted = wished
    values = st.tuples(*(st.sampled_from(UNIVERSE[type_]) for type_ in types))
    rows = data.draw(st.lists(values, max_size=12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "MAX_CELLS", most)
        check(types, wanted, rows)


@pytest.mark.parametrize("type_", TYPES)
def test_null_and_the_ends_of_types(type_: Type) -> None:
    wanted = {
        0: [full_domain(type_)],
        1: [full_domain(type_, null=False)],
        2: [null_domain(type_)],
        3: [empty_domain(type_)],
        4: [domain_of(type_, UNIVERSE[type_][1:2])],
        5: [domain_of(type_, UNIVERSE[type_][-1:])],
    }
    check([type_], wanted, [(value,) for value in UNIVERSE[type_]])


def test_nan_is_the_largest_number() -> None:
    above = comparison_domain(DOUBLE, ">", 2.0)
    (table,) = build_tables([DOUBLE], {0: [above], 1: [domain_of(DOUBLE, [float("nan")])]})
    assert wanting([table], (float("nan"),)) == [0, 1]
    assert wanting([table], (float("inf"),)) == [0]


def test_no_terms_make_one_class() -> None:
    (table,) = build_tables([], {0: [], 1: []})
    assert table.row_class_of(()) == 0
    assert table.row_classes == {0: ((0, 0),), 1: ((0, 0),)}


def test_no_queries_make_no_table() -> None:
    assert build_tables([INT], {}) == []


def test_equal_queries_have_equal_classes_and_cost_no_cells() -> None:
    box = [comparison_domain(INT, ">", 5), comparison_domain(INT, "<", 3)]
    (one,) = build_tables([INT, INT], {0: box})
    (many,) = build_tables([INT, INT], dict.fromkeys(range(100), box))
    assert many.cells == one.cells
    assert len(set(many.row_classes.values())) == 1


def test_one_term_is_one_table_whatever_the_number_of_queries() -> None:
    wanted = {n: [comparison_domain(INT, ">", n)] for n in range(2_000)}
    (table,) = build_tables([INT], wanted)
    assert len(table.cells) == 2_000
    assert wanting([table], (1_000,)) == list(range(1_000))
    assert wanting([table], (0,)) == []


def test_stretches_of_several_terms_are_told_apart_in_several_tables() -> None:
    sides = [
        comparison_domain(INT, ">", n).intersect(comparison_domain(INT, "<", n + 500))
        for n in range(60)
    ]
    wanted = {n: [side, side, side, side] for n, side in enumerate(sides)}
    found = build_tables([INT] * 4, wanted)
    assert len(found) > 1
    assert all(len(table.cells) <= shapes.MAX_CELLS for table in found)
    for value in (0, 1, 30, 59, 300, 520, 560):
        brute = [n for n, side in enumerate(sides) if holds(side, value)]
        assert wanting(found, (value,) * 4) == brute


def test_an_axis_finds_the_interval_of_every_value() -> None:
    axis = Axis(INT, (3, 6, 8))
    assert [axis.interval(v) for v in (None, -9, 2, 3, 5, 6, 7, 8, 99)] == [
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    assert axis.intervals(domain_of(INT, [None, 3, 4, 5])) == [range(1), range(2, 3)]
    assert axis.intervals(comparison_domain(INT, "<", 6)) == [range(1, 3)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4))))
def test_merged_stretches_hold_the_same_numbers(given: list[tuple[int, int]]) -> None:
    runs = sorted((first, first + more) for first, more in given)
    found = merge_ranges(runs)
    numbers = {n for first, last in runs for n in range(first, last + 1)}
    assert {n for first, last in found for n in range(first, last + 1)} == numbers
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))


def test_classes_of_two_terms_by_hand() -> None:
    low, high = comparison_domain(INT, "<=", 1), comparison_domain(INT, ">=", 2)
    (table,) = build_tables([INT, INT], {"a": [low, low], "b": [high, full_domain(INT)]})
    rows = {row: table.row_class_of(row) for row in product((1, 2, None), repeat=2)}
    assert rows[1, 1] is not None and rows[2, 1] is not None and rows[2, None] is not None
    assert rows[1, 2] is None and rows[1, None] is None and rows[None, 1] is None
