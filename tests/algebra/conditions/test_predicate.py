"""Boxes against brute force: which rows they hold, what they imply, how they are relaxed."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from three_valued import columns_in, compare, rows_of, table_of, truths, within

from headwater.algebra.conditions.domain import Domain
from headwater.algebra.conditions.predicate import (
    ANYTHING,
    NOTHING,
    Box,
    cover,
    cover_alike,
    covers,
    implies,
    intersect,
    normalize,
    rename_columns,
    residue,
    to_expr,
    union,
)
from headwater.algebra.conditions.simplify import simplify
from headwater.algebra.expressions import (
    FALSE,
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    conjunction,
    conjuncts,
    literal,
    substitute,
)
from headwater.algebra.functions import build_call, cast
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    TINYINT,
    decimal,
)
from strategies import (
    MIXED,
    PLAIN,
    UNIVERSE,
    columns_named,
    conditions,
    plain_conjunctions,
    subsets,
)

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=8_000)

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
    assert both == normalize(build_call("and", p, q))
    assert both == intersect(b, a)
    table = table_of(columns_in(p, q))
    assert rows_of(both, table) == truths(build_call("and", p, q), table)


@QUICK
@given(st.data())
def test_renamed_columns(data: st.DataObject) -> None:
    columns = data.draw(subsets(MIXED))
    condition = data.draw(conditions(columns, 1))
    names = data.draw(st.permutations("opqrst"))
    mapping: dict[Expr, Expr] = {
        c: Column("z", names[i], c.type, c.nullable) for i, c in enumerate(columns)
    }
    renamed = rename_columns(normalize(condition), mapping)
    assert renamed == normalize(substitute(condition, mapping))
    assert rename_columns(renamed, {new: old for old, new in mapping.items()}) == normalize(
        condition
    )


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
    both = normalize(build_call("and", p, q))
    assert implies(both, normalize(p))
    assert implies(normalize(p), normalize(build_call("or", p, q)))


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


def test_the_cover_of_many_alike_is_that_of_one_after_the_other() -> None:
    x, y = Column("a", "x", INT), Column("b", "y", INT)
    boxes = [
        normalize(conjunction([build_call("=", x, y), build_call(op, x, literal(n)), note]))
        for n in range(5)
        for op in ("=", "<>")
        for note in (build_call("is_null", Column("a", "n", STRING)), TRUE)
    ]
    alike: dict[object, list[Box]] = {}
    for box in boxes:
        alike.setdefault((tuple(c.terms for c in box.constraints), box.terms), []).append(box)
    assert any(len(group) > 2 for group in alike.values())
    for group in alike.values():
        assert cover_alike(group, lambda domain: domain) == reduce(
            lambda a, b: cover(a, b, "set"), group
        )
        wide = cover_alike(group, Domain.hull)
        assert all(implies(box, wide) for box in group)


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
        assert {v for v in UNIVERSE[column.type] if sets.index.domain(column).contains(v)} == wanted
        around = {v for v in UNIVERSE[column.type] if hulls.index.domain(column).contains(v)}
        assert around == (wanted if of_a == of_b else interval(column, wanted))
    for x in table:
        for y in table:
            if x.type == y.type:
                same = normalize(build_call("=", x, y))
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
@QUICK
@given(data=st.data())
def test_calculus(check: Check, data: st.DataObject) -> None:
    check(data)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@LONG
@given(data=st.data())
def test_calculus_at_length(check: Check, data: st.DataObject) -> None:
    check(data)


# ---- tables


V, W, N = *columns_named(INT, "t.v", "t.w"), Column("t", "n", INT, nullable=False)
BIG, WIDE = columns_named(BIGINT, "t.big", "u.big")
X, Y, Z = columns_named(INT, "a.x", "b.y", "c.z")
S, T = columns_named(STRING, "t.s", "t.t")
D, E = columns_named(DOUBLE, "t.d", "t.e")
F = Column("t", "f", BOOLEAN)
TINY = Column("t", "tiny", TINYINT)
MONEY = Column("t", "money", decimal(10, 2))
FROM, UNTIL = columns_named(TIMESTAMP, "a.ts", "b.ts")
DAY, NEXT = columns_named(DATE, "a.day", "b.day")
FIVE_MINUTES = Literal(300_000_000, INTERVAL)
A_DAY = Literal(86_400_000_000, INTERVAL)
NOON = Literal(43_200_000_000, TIMESTAMP)


def e(name: str, *args: Expr | int | float | str | bool | None) -> Expr:
    """A call, with constants written plainly."""
    return build_call(
        name, *(a if isinstance(a, Column | Literal | Call) else literal(a) for a in args)
    )


def decimal_of(text: str) -> Literal:
    return literal(Decimal(text))


def both(*parts: Expr) -> Expr:
    return build_call("and", *parts) if len(parts) > 1 else parts[0]


def either_of(*parts: Expr) -> Expr:
    return build_call("or", *parts)


def no(part: Expr) -> Expr:
    return build_call("not", part)


def is_null(part: Expr) -> Expr:
    return build_call("is_null", part)


SAME: dict[str, tuple[Expr, Expr]] = {
    "linear": (e("<", 6, e("+", V, 1)), e(">=", V, 6)),
    "doubled": (e("<=", e("*", 2, V), 9), e("<=", V, 4)),
    "taken from a constant": (e("<", e("-", 5, V), 3), e(">", V, 2)),
    "negated": (e(">", e("neg", V), 3), e("<", V, -3)),
    "times nothing": (e("=", e("*", V, 0), 0), no(is_null(V))),
    "less itself": (e("<", e("-", V, V), 1), no(is_null(V))),
    "both sides": (e("<", e("*", 3, V), e("+", V, 5)), e("<=", V, 2)),
    "decimal constant": (e(">", V, decimal_of("5.5")), e(">=", V, 6)),
    "decimal equality": (e("=", V, decimal_of("5.5")), FALSE),
    "double constant": (e(">", V, 5.5), e(">=", V, 6)),
    "beyond the limits": (e("<", V, 2**40), no(is_null(V))),
    "time and interval": (
        e(">", build_call("+", FROM, FIVE_MINUTES), NOON),
        e(">", FROM, Literal(42_900_000_000, TIMESTAMP)),
    ),
    "date beside a timestamp": (e(">", DAY, NOON), e(">=", DAY, Literal(1, DATE))),
    "cast that keeps all": (e("<", cast(V, BIGINT), 5), e("<", V, 5)),
    "money": (e(">", MONEY, decimal_of("1.005")), e(">=", MONEY, decimal_of("1.01"))),
    "integer in a double": (e("<", D, 5), e("<", D, 5.0)),
    "flag": (F, e("=", F, True)),
    "no flag": (no(F), both(e("<>", F, True))),
    "NULL or more": (
        either_of(is_null(V), e(">", V, 5)),
        either_of(e(">=", V, 6), e("<=>", V, None)),
    ),
    "either side": (either_of(e("<", V, 5), e(">=", V, 5)), no(is_null(V))),
    "IN without": (both(e("in", V, 1, 2, 3), e("<>", V, 2)), e("in", V, 1, 3)),
    "IN with NULL": (e("in", V, 1, None), e("=", V, 1)),
    "not IN with NULL": (no(e("in", V, 1, None)), FALSE),
    "null-safe": (e("<=>", V, 5), e("=", V, 5)),
    "not null-safe": (no(e("<=>", V, 5)), either_of(is_null(V), e("<>", V, 5))),
    "no common value": (both(e(">", V, 5), e("<", V, 3)), FALSE),
    "a column that is there": (is_null(N), FALSE),
    "itself": (e("=", V, V), no(is_null(V))),
    "equalities close": (
        both(e("=", X, Y), e("=", Y, Z), e(">", Z, 3)),
        both(e("=", Z, X), e("=", Z, Y), e(">=", X, 4)),
    ),
    "equality and a value": (both(e("=", X, Y), e("=", X, 5)), both(e("=", X, 5), e("=", Y, 5))),
    "a value twice is an equality": (
        both(e("=", X, 5), e("=", Y, 5), e("like", cast(Y, STRING), "5")),
        both(e("=", X, 5), e("=", Y, 5), e("like", cast(X, STRING), "5")),
    ),
    "equals for equals": (
        both(e("=", X, Y), e("<", Y, Z)),
        both(e("=", X, Y), e("<", X, Z)),
    ),
    "neither more nor less": (both(e("<=", X, Y), e(">=", X, Y)), e("=", X, Y)),
    "texts neither more nor less": (both(e("<=", S, T), e(">=", S, T)), e("=", S, T)),
    "less or equal": (either_of(e("<", X, Y), e("=", X, Y)), e("<=", X, Y)),
    "difference": (
        e("<=", FROM, build_call("+", UNTIL, FIVE_MINUTES)),
        e(">=", build_call("-", UNTIL, FROM), build_call("neg", FIVE_MINUTES)),
    ),
    "difference of integers": (e("<", e("-", X, Y), 3), e("<=", X, e("+", Y, 2))),
    "difference of wide integers": (e("<", e("-", BIG, WIDE), 3), e("<=", BIG, e("+", WIDE, 2))),
    "difference of two types": (e("<", V, BIG), e(">=", e("-", BIG, V), 1)),
    "difference of dates": (e("<", build_call("-", DAY, NEXT), A_DAY), e("<=", DAY, NEXT)),
    "difference that is decided": (
        both(e("<", X, 5), e(">", Y, 7), e("<", X, Y)),
        both(e("<", X, 5), e(">", Y, 7)),
    ),
    "difference that cannot be": (both(e("<", X, 5), e(">", Y, 7), e(">", X, Y)), FALSE),
    "comparison that is decided": (
        both(e("=", S, "a"), e("=", T, "b"), e("<", S, T)),
        both(e("=", S, "a"), e("=", T, "b")),
    ),
    "a comparison has both values": (both(e("<", S, T), no(is_null(S))), e("<", S, T)),
    "a function has its argument": (
        both(e("=", e("upper", S), "A"), no(is_null(S))),
        e("=", e("upper", S), "A"),
    ),
    "no argument, no value": (both(e("=", e("upper", S), "A"), is_null(S)), FALSE),
    "a condition and its contrary": (both(e("like", S, "a%"), no(e("like", S, "a%"))), FALSE),
    "smallest text": (e("<", S, ""), FALSE),
    "NaN is a value": (e("<=", D, float("nan")), no(is_null(D))),
    "floats are equal to themselves": (e("=", D, D), no(is_null(D))),
    "common part of branches": (
        either_of(both(e("=", V, 1), e("=", W, 2)), both(e("=", V, 1), e("=", S, "a"))),
        both(e("=", V, 1), either_of(e("=", W, 2), e("=", S, "a"))),
    ),
    "range of branches": (
        either_of(both(e("=", V, 1), e("=", W, 2)), both(e("=", V, 3), e("=", S, "a"))),
        both(
            e("in", V, 1, 3),
            either_of(both(e("=", V, 1), e("=", W, 2)), both(e("=", V, 3), e("=", S, "a"))),
        ),
    ),
    "impossible branch": (
        both(e("=", V, 1), either_of(both(e("=", V, 2), e("=", W, 2)), e("=", S, "a"))),
        both(e("=", V, 1), e("=", S, "a")),
    ),
    "list of a sum": (e("in", e("+", V, 1), 3, 5), e("in", V, 2, 4)),
    "list of columns": (e("in", V, W, 3), either_of(e("=", V, 3), e("=", V, W))),
    "tested condition": (is_null(e("<", V, W)), either_of(is_null(V), is_null(W))),
}


@pytest.mark.parametrize(("a", "b"), SAME.values(), ids=SAME.keys())
def test_conditions_with_one_normal_form(a: Expr, b: Expr) -> None:
    assert normalize(a) == normalize(b)


DIFFERENT: dict[str, tuple[Expr, Expr]] = {
    "floats are not regrouped": (e(">", e("+", D, 1.0), 6.0), e(">", D, 5.0)),
    "float equality is no class": (
        both(e("=", D, E), e(">", E, 1.0)),
        both(e("=", D, E), e(">", D, 1.0)),
    ),
    "a wide integer beside a double": (e("<", BIG, 2.0**60), no(is_null(BIG))),
    "NULL counts": (either_of(is_null(V), e(">", V, 5)), e(">", V, 5)),
    "a column that may be NULL": (e("=", V, V), TRUE),
}


@pytest.mark.parametrize(("a", "b"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_conditions_with_two_normal_forms(a: Expr, b: Expr) -> None:
    assert normalize(a) != normalize(b)


def test_shape_of_a_box() -> None:
    box = normalize(both(e("=", Y, X), e(">", X, 3), e("like", S, "a%"), e("in", V, 1, 5)))
    assert [c.terms for c in box.constraints] == [(X, Y), (V,)]
    assert str(box.constraints[0].domain) == "INT{4}"
    assert box.terms == (e("like", S, "a%"),)
    assert normalize(None) == normalize(TRUE) == ANYTHING
    assert normalize(FALSE) == normalize(Literal(None, BOOLEAN)) == NOTHING
    assert to_expr(ANYTHING) is None and to_expr(NOTHING) == FALSE


def test_differences_read_as_they_are_written() -> None:
    for condition in (e("<", X, Y), e("<>", X, Y), e(">=", FROM, UNTIL), e("<", DAY, NEXT)):
        assert to_expr(normalize(condition)) == condition
    assert to_expr(normalize(e("=", V, BIG))) == e("=", BIG, V)


IMPLIES: dict[str, tuple[Expr | None, Expr | None, bool]] = {
    "a smaller range": (e(">", V, 5), e(">", V, 3), True),
    "a larger range": (e(">", V, 3), e(">", V, 5), False),
    "anything": (e(">", V, 3), None, True),
    "from anything": (None, e(">", V, 3), False),
    "not NULL": (e(">", V, 3), no(is_null(V)), True),
    "impossible": (both(e("=", V, 1), e("=", V, 2)), e("=", W, 9), True),
    "equal values": (both(e("=", X, 5), e("=", Y, 5)), e("=", X, Y), True),
    "equal ranges": (both(e(">", X, 5), e(">", Y, 5)), e("=", X, Y), False),
    "equal values of two types": (both(e("=", V, 5), e("=", BIG, 5)), e("=", V, BIG), True),
    "equality carries": (both(e("=", X, Y), e(">", X, 5)), e(">", Y, 4), True),
    "equality of three": (both(e("=", X, Y), e("=", Y, Z)), e("=", X, Z), True),
    "equality does not follow": (e("=", X, Y), e("=", X, Z), False),
    "two values of a flag": (both(no(is_null(F)), e("<>", F, True)), no(F), True),
    "all of a small type": (e(">=", TINY, 127), e("=", TINY, 127), True),
    "list in a range": (e("in", V, 3, 5), both(e(">", V, 2), e("<", V, 6)), True),
    "range in a list": (both(e(">", V, 2), e("<", V, 5)), e("in", V, 3, 4), True),
    "text less, different": (e("<", S, T), e("<>", T, S), True),
    "text less, at most": (e("<", S, T), e(">=", T, S), True),
    "text at most, less": (e("<=", S, T), e("<", S, T), False),
    "float less, there": (e("<", D, E), no(is_null(D)), True),
    "longer difference": (
        e("<=", build_call("-", UNTIL, FROM), FIVE_MINUTES),
        e("<=", UNTIL, build_call("+", FROM, A_DAY)),
        True,
    ),
    "shorter difference": (
        e("<=", build_call("-", UNTIL, FROM), A_DAY),
        e("<=", UNTIL, build_call("+", FROM, FIVE_MINUTES)),
        False,
    ),
    "difference from ranges": (
        both(e("<=", X, 3), e(">=", Y, 4)),
        e("<", X, Y),
        True,
    ),
    "opaque stays": (both(e("like", S, "a%"), e("=", V, 1)), e("like", S, "a%"), True),
    "opaque is not known": (e("=", V, 1), e("like", S, "a%"), False),
    "opaque of equals": (
        both(e("=", X, Y), e("like", cast(X, STRING), "5%")),
        e("like", cast(Y, STRING), "5%"),
        True,
    ),
    "one branch": (e("=", V, 1), either_of(e("=", V, 1), e("=", S, "a")), True),
    "from branches": (
        either_of(both(e("=", V, 1), e("=", S, "a")), both(e("=", V, 2), e("=", W, 1))),
        e("<", V, 3),
        True,
    ),
    "by branches": (
        either_of(both(e("=", V, 1), e("=", S, "a")), both(e("=", W, 1), e("=", T, "a"))),
        either_of(e("=", V, 1), e("=", W, 1), F),
        True,
    ),
    "not by branches": (
        either_of(both(e("=", V, 1), e("=", S, "a")), e("=", T, "a")),
        either_of(e("=", V, 1), e("=", W, 1)),
        False,
    ),
}


@pytest.mark.parametrize(("a", "b", "answer"), IMPLIES.values(), ids=IMPLIES.keys())
def test_implication(a: Expr | None, b: Expr | None, answer: bool) -> None:
    assert implies(normalize(a), normalize(b)) == answer


COVERS: dict[str, tuple[Expr, Expr, Expr | None, Expr | None]] = {
    "values": (e("=", V, 3), e("=", V, 7), e("in", V, 3, 7), both(e(">=", V, 3), e("<=", V, 7))),
    "ranges that meet": (
        both(e(">=", V, 1), e("<", V, 5)),
        both(e(">=", V, 5), e("<", V, 9)),
        both(e(">=", V, 1), e("<", V, 9)),
        both(e(">=", V, 1), e("<", V, 9)),
    ),
    "equal lists stay": (
        both(e("in", V, 1, 9), e("=", W, 1)),
        both(e("in", V, 1, 9), e("=", W, 2)),
        both(e("in", V, 1, 9), e("in", W, 1, 2)),
        both(e("in", V, 1, 9), e("in", W, 1, 2)),
    ),
    "one says nothing": (both(e("=", V, 3), F), F, F, F),
    "NULL and values": (
        is_null(V),
        e("=", V, 3),
        either_of(is_null(V), e("=", V, 3)),
        either_of(is_null(V), e("=", V, 3)),
    ),
    "nothing in common": (e("=", V, 3), e("=", W, 3), None, None),
    "equality of both": (
        both(e("=", X, Y), e("=", X, 1)),
        both(e("=", X, Y), e(">", Y, 3)),
        both(e("=", X, Y), either_of(e("=", X, 1), e(">", X, 3))),
        both(e("=", X, Y), e(">=", X, 1)),
    ),
    "equality of one": (e("=", X, Y), e(">", X, 3), no(is_null(X)), no(is_null(X))),
    "equal or less": (e("<", S, T), e("=", S, T), e("<=", S, T), e("<=", S, T)),
    "opaque of both": (
        both(e("like", S, "a%"), e("=", V, 1)),
        both(e("like", S, "a%"), e("=", V, 5)),
        both(e("like", S, "a%"), e("in", V, 1, 5)),
        both(e("like", S, "a%"), e(">=", V, 1), e("<=", V, 5)),
    ),
    "longer of two differences": (
        e("<=", build_call("-", FROM, UNTIL), FIVE_MINUTES),
        e("<=", build_call("-", FROM, UNTIL), A_DAY),
        e("<=", build_call("-", FROM, UNTIL), A_DAY),
        e("<=", build_call("-", FROM, UNTIL), A_DAY),
    ),
    "with nothing": (e("in", V, 1, 9), FALSE, e("in", V, 1, 9), e("in", V, 1, 9)),
}


@pytest.mark.parametrize(("a", "b", "sets", "hull"), COVERS.values(), ids=COVERS.keys())
def test_covers(a: Expr, b: Expr, sets: Expr | None, hull: Expr | None) -> None:
    assert cover(normalize(a), normalize(b), "set") == normalize(sets)
    assert cover(normalize(a), normalize(b), "hull") == normalize(hull)


RESIDUES: dict[str, tuple[Expr | None, Expr | None, Expr | str | None]] = {
    "value of a range": (
        both(e("=", V, 3), e("=", W, 1)),
        both(e(">", V, 1), e("=", W, 1)),
        e("=", V, 3),
    ),
    "value of a list": (e("=", V, 5), e("in", V, 5, 7), e("=", V, 5)),
    "one end": (
        both(e(">=", V, 3), e("<=", V, 9)),
        both(e(">=", V, 1), e("<=", V, 9)),
        e(">=", V, 3),
    ),
    "the same gap": (both(e(">", V, 3), e("<>", V, 7)), e("<>", V, 7), e(">", V, 3)),
    "equality alone": (both(e("=", X, Y), e("<", X, 5)), e("<", Y, 5), e("=", X, Y)),
    "value of a class": (both(e("=", X, Y), e("=", X, 5)), e("=", X, Y), e("=", X, 5)),
    "values of two": (
        both(e("=", X, 5), e("=", Y, 5)),
        e("<", X, 9),
        both(e("=", X, 5), e("=", Y, 5)),
    ),
    "nothing left": (e("=", V, 3), e("=", V, 3), None),
    "not inside": (e(">", V, 3), e(">", V, 5), "no"),
    "another column": (e("=", V, 3), e("=", W, 3), "no"),
    "not NULL": (e("<", V, 3), either_of(is_null(V), e("<", V, 3)), no(is_null(V))),
    "not NULL is known": (both(e("<", S, T), no(is_null(S))), no(is_null(S)), e("<", S, T)),
    "opaque": (both(e("like", S, "a%"), e("=", V, 1)), e("=", V, 1), e("like", S, "a%")),
    "opaque is known": (both(e("like", S, "a%"), e("=", V, 1)), e("like", S, "a%"), e("=", V, 1)),
    "shorter difference": (
        e("<=", build_call("-", FROM, UNTIL), FIVE_MINUTES),
        e("<=", build_call("-", FROM, UNTIL), A_DAY),
        e("<=", build_call("-", FROM, UNTIL), FIVE_MINUTES),
    ),
    "branch": (
        both(e("=", V, 1), e("=", S, "a")),
        either_of(both(e("=", V, 1), e("=", S, "a")), both(e("=", V, 2), e("=", T, "b"))),
        e("=", V, 1),
    ),
    "nothing of nothing": (FALSE, FALSE, None),
    "nothing of something": (FALSE, e("=", V, 1), FALSE),
}


@pytest.mark.parametrize(("member", "outer", "left"), RESIDUES.values(), ids=RESIDUES.keys())
def test_residues(member: Expr | None, outer: Expr | None, left: Expr | str | None) -> None:
    found = residue(normalize(member), normalize(outer))
    assert found == (None if isinstance(left, str) else normalize(left))


def test_unions() -> None:
    def boxes(*exprs: Expr) -> tuple[Box, ...]:
        return union(normalize(expr) for expr in exprs)

    one = both(e("=", V, 1), e("=", W, 2))
    assert boxes() == boxes(FALSE) == ()
    assert boxes(one, both(e("=", V, 1), e("=", W, 3)), both(one, e("=", S, "a"))) == boxes(
        both(e("=", V, 1), e("in", W, 2, 3))
    )
    assert boxes(e("<", V, 5), e(">=", V, 5), is_null(V)) == (ANYTHING,)
    assert boxes(both(e("=", X, 5), e("=", Y, 5)), both(e("=", X, 5), e("=", Y, 6))) == boxes(
        both(e("=", X, 5), e("in", Y, 5, 6))
    )
    assert len(boxes(e("=", V, 1), e("=", W, 1))) == 2


def test_covering_by_many() -> None:
    quarters = [both(e(op, V, 0), e(other, W, 0)) for op in ("<", ">=") for other in ("<", ">=")]
    boxes = [normalize(quarter) for quarter in quarters]
    assert covers(boxes, normalize(both(e("<", V, 9), e(">", W, -9))))
    assert not covers(boxes[:3], normalize(both(e("<", V, 9), e(">", W, -9))))
    assert not covers(boxes, normalize(e("<", V, 9)))
    assert not covers((), normalize(e("<", V, 9)))
    assert covers((), NOTHING)


def test_a_limit_of_work_is_a_no() -> None:
    columns = [Column("t", f"c{i}", INT) for i in range(12)]
    halves = [normalize(e(op, column, 0)) for column in columns for op in ("<", ">")]
    zeros = [normalize(e("=", column, 0)) for column in columns]
    assert covers([*halves, *zeros], normalize(e("<", columns[0], 5)))
    corners = [
        normalize(both(e("<", a, 0), e("<", b, 0))) for a in columns for b in columns if a != b
    ]
    assert not covers(corners, normalize(both(*(e("<", c, 9) for c in columns))))


def test_renaming_moves_what_is_sorted() -> None:
    box = normalize(
        both(e("=", X, Y), e("<", X, Z), e("<=", FROM, build_call("+", UNTIL, FIVE_MINUTES)))
    )
    mapping: dict[Expr, Expr] = {X: Z, Z: X, FROM: UNTIL, UNTIL: FROM}
    assert rename_columns(box, mapping) == normalize(
        both(e("=", Z, Y), e("<", Z, X), e("<=", UNTIL, build_call("+", FROM, FIVE_MINUTES)))
    )
    assert rename_columns(NOTHING, mapping) == NOTHING


def test_renaming_to_a_column_that_is_there() -> None:
    box = normalize(either_of(is_null(V), e(">", V, 5)))
    assert rename_columns(box, {V: N}) == normalize(e(">", N, 5))


def test_what_may_be_null_is_not_remembered() -> None:
    strict = Column("q", "v", INT, nullable=False)
    loose = Column("q", "v", INT)
    for column in (strict, loose, strict):
        box = normalize(either_of(is_null(column), both(e("=", column, 1), e("=", S, "a"))))
        assert implies(box, normalize(e("=", column, 1))) == (not column.nullable)
