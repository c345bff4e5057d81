"""Boxes against brute force: which rows they hold, what they imply, how they are relaxed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from three_valued import columns_in, compare, rows_of, table_of, truths, within

from headwater.algebra.expressions import (
    Column,
    Expr,
    conjuncts,
    substitute,
)
from headwater.algebra.functions import call
from headwater.algebra.predicate import (
    NOTHING,
    Box,
    cover,
    covers,
    implies,
    intersect,
    normalize,
    rename,
    residue,
    to_expr,
    union,
)
from headwater.algebra.simplify import simplify
from strategies import (
    MIXED,
    PLAIN,
    UNIVERSE,
    conditions,
    plain_conjunctions,
    subsets,
)

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=4_000)

Check = Callable[[st.DataObject], None]


def draw_plain(data: st.DataObject, count: int) -> list[Box]:
    """Boxes of conditions for which everything is complete."""
    columns = data.draw(subsets(PLAIN))
    return [normalize(data.draw(plain_conjunctions(columns))) for _ in range(count)]


def draw_any(data: st.DataObject, count: int, depth: int = 1) -> list[Box]:
    columns = data.draw(subsets(MIXED))
    return [normalize(data.draw(conditions(columns, depth))) for _ in range(count)]


# ---- normal form


@QUICK
@given(st.data())
def test_a_box_holds_the_rows_for_which_the_condition_is_true(data: st.DataObject) -> None:
    condition = data.draw(conditions(data.draw(subsets(MIXED))))
    table = table_of(columns_in(condition))
    assert rows_of(normalize(condition), table) == truths(condition, table)


@QUICK
@given(st.data())
def test_a_box_and_its_condition_are_the_same(data: st.DataObject) -> None:
    condition = data.draw(conditions(data.draw(subsets(MIXED))))
    box = normalize(condition)
    assert normalize(to_expr(box)) == box
    assert normalize(simplify(condition)) == box


@QUICK
@given(st.data())
def test_a_conjunction_is_an_intersection(data: st.DataObject) -> None:
    columns = data.draw(subsets(MIXED))
    p, q = (data.draw(conditions(columns, 1)) for _ in range(2))
    a, b = normalize(p), normalize(q)
    both = intersect(a, b)
    assert both == normalize(call("and", p, q))
    assert both == intersect(b, a)
    table = table_of(columns_in(p, q))
    assert rows_of(both, table) == truths(call("and", p, q), table)


@QUICK
@given(st.data())
def test_renamed_columns(data: st.DataObject) -> None:
    columns = data.draw(subsets(MIXED))
    condition = data.draw(conditions(columns, 1))
    names = data.draw(st.permutations("opqrst"))
    mapping: dict[Expr, Expr] = {
        c: Column("z", names[i], c.type, c.nullable) for i, c in enumerate(columns)
    }
    renamed = rename(normalize(condition), mapping)
    assert renamed == normalize(substitute(condition, mapping))
    assert rename(renamed, {new: old for old, new in mapping.items()}) == normalize(condition)


# ---- implication


def check_soundness(data: st.DataObject) -> None:
    a, b = draw_any(data, 2)
    if implies(a, b):
        table = table_of(columns_in(a, b))
        assert within(rows_of(a, table), rows_of(b, table))


def check_completeness(data: st.DataObject) -> None:
    a, b = draw_plain(data, 2)
    table = table_of(columns_in(a, b))
    assert implies(a, b) == within(rows_of(a, table), rows_of(b, table))


def check_weakening(data: st.DataObject) -> None:
    """A conjunction implies each of its parts, also in pieces."""
    columns = data.draw(subsets(MIXED))
    p, q = (data.draw(conditions(columns, 1)) for _ in range(2))
    both = normalize(call("and", p, q))
    assert implies(both, normalize(p))
    assert implies(normalize(p), normalize(call("or", p, q)))


# ---- cover


def check_cover(data: st.DataObject) -> None:
    a, b = draw_any(data, 2)
    mode = data.draw(st.sampled_from(["hull", "set"]))
    around = cover(a, b, mode)
    assert around == cover(b, a, mode)
    assert implies(a, around) and implies(b, around)
    table = table_of(columns_in(a, b))
    both = [x or y for x, y in zip(rows_of(a, table), rows_of(b, table), strict=True)]
    assert within(both, rows_of(around, table))
    assert cover(a, a, mode) == a


def check_least_cover(data: st.DataObject) -> None:
    a, b = draw_plain(data, 2)
    table = table_of(columns_in(a, b))
    in_a, in_b = rows_of(a, table), rows_of(b, table)
    if not any(in_a) or not any(in_b):
        return
    sets, hulls = cover(a, b, "set"), cover(a, b, "hull")
    for column, values in table.items():
        of_a = {v for v, inside in zip(values, in_a, strict=True) if inside}
        of_b = {v for v, inside in zip(values, in_b, strict=True) if inside}
        wanted = of_a | of_b
        assert {v for v in UNIVERSE[column.type] if sets.known.domain(column).contains(v)} == wanted
        around = {v for v in UNIVERSE[column.type] if hulls.known.domain(column).contains(v)}
        assert around == (wanted if of_a == of_b else interval(column, wanted))
    for x in table:
        for y in table:
            if x.type == y.type:
                same = normalize(call("=", x, y))
                assert implies(sets, same) == (implies(a, same) and implies(b, same))


def interval(column: Column, values: set[object]) -> set[object]:
    present = [v for v in UNIVERSE[column.type] if v in values and v is not None]
    if not present:
        return values
    between = {
        v
        for v in UNIVERSE[column.type]
        if v is not None and (compare(present[0], v) or 0) <= 0 <= (compare(present[-1], v) or 0)
    }
    return between | (values & {None})


# ---- union


def check_union(data: st.DataObject) -> None:
    boxes = draw_any(data, 3)
    found = union(boxes)
    table = table_of(columns_in(*boxes))
    assert either(found, table) == either(boxes, table)
    assert union(found) == found
    assert union(data.draw(st.permutations(boxes))) == found
    assert not any(implies(x, y) for x in found for y in found if x is not y)


def check_covers(data: st.DataObject) -> None:
    box, *boxes = draw_plain(data, 4)
    table = table_of(columns_in(box, *boxes))
    assert covers(boxes, box) == within(rows_of(box, table), either(boxes, table))


def check_covers_any(data: st.DataObject) -> None:
    box, *boxes = draw_any(data, 3)
    table = table_of(columns_in(box, *boxes))
    if covers(boxes, box):
        assert within(rows_of(box, table), either(boxes, table))


def either(boxes: tuple[Box, ...] | list[Box], table: dict[Column, list[object]]) -> list[bool]:
    rows = [rows_of(box, table) for box in (NOTHING, *boxes)]
    return [any(row) for row in zip(*rows, strict=True)]


# ---- residue


def check_residue(data: st.DataObject) -> None:
    columns = data.draw(subsets(MIXED))
    outer = normalize(data.draw(conditions(columns, 1)))
    other = normalize(data.draw(conditions(columns, 1)))
    member = intersect(outer, other) if data.draw(st.booleans()) else other
    left = residue(member, outer)
    assert (left is None) == (not implies(member, outer))
    if left is not None:
        assert intersect(outer, left) == member
        table = table_of(columns_in(outer, member))
        rows = zip(rows_of(outer, table), rows_of(left, table), strict=True)
        assert [x and y for x, y in rows] == rows_of(member, table)


def check_weakest_residue(data: st.DataObject) -> None:
    a, b = draw_plain(data, 2)
    outer = cover(a, b, data.draw(st.sampled_from(["hull", "set"])))
    left = residue(a, outer)
    assert left is not None
    table = table_of(columns_in(a, b))
    wanted, around = rows_of(a, table), rows_of(outer, table)
    parts = conjuncts(to_expr(left))
    for i in range(len(parts)):
        rest = [truths(part, table) for j, part in enumerate(parts) if j != i]
        assert [all(row) for row in zip(around, *rest, strict=True)] != wanted
    rest = [truths(part, table) for part in parts]
    assert [all(row) for row in zip(around, *rest, strict=True)] == wanted


CHECKS: list[Check] = [
    check_soundness,
    check_completeness,
    check_weakening,
    check_cover,
    check_least_cover,
    check_union,
    check_covers,
    check_covers_any,
    check_residue,
    check_weakest_residue,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_calculus(check: Check) -> None:
    QUICK(given(st.data())(check))()


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_calculus_at_length(check: Check) -> None:
    LONG(given(st.data())(check))()
