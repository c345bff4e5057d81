"""Domains: each operation against membership of single values, and the laws of a lattice."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from three_valued import compare as order
from three_valued import truths

from headwater.algebra.conditions.domain import (
    Domain,
    Interval,
    comparable_value,
    comparison_domain,
    domain_of,
    empty_domain,
    full_domain,
    null_domain,
    union_of,
)
from headwater.algebra.expressions import FALSE, Column, Expr, Literal, literal
from headwater.algebra.functions import build_call
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Type,
    Value,
)
from headwater.errors import AlgebraError
from strategies import MONEY, ORDER, UNIVERSE, domains_of

QUICK = settings(max_examples=100, deadline=None)
TYPES = st.sampled_from([BOOLEAN, TINYINT, INT, TIMESTAMP, MONEY, DOUBLE, STRING])


def members(domain: Domain) -> set[object]:
    """By texts, as NaN is not equal to itself in a set."""
    return {repr(value) for value in UNIVERSE[domain.type] if domain.contains(value)}


@QUICK
@given(st.data(), TYPES, st.sampled_from(ORDER))
def test_a_comparison_holds_the_values_that_compare_so(
    data: st.DataObject, type_: Type, op: str
) -> None:
    bound = data.draw(st.sampled_from([v for v in UNIVERSE[type_] if v is not None]))
    column = Column("a", "x", type_)
    table = {column: UNIVERSE[type_]}
    rows = truths(build_call(op, column, Literal(bound, type_)), table)
    domain = comparison_domain(type_, op, bound)
    assert [domain.contains(value) for value in UNIVERSE[type_]] == rows


@QUICK
@given(st.data(), TYPES)
def test_operations_are_those_of_sets(data: st.DataObject, type_: Type) -> None:
    a, b = data.draw(domains_of(type_)), data.draw(domains_of(type_))
    all_values = {repr(v) for v in UNIVERSE[type_]}
    assert members(a.intersect(b)) == members(a) & members(b)
    assert members(a.union(b)) == members(a) | members(b)
    assert members(a.outside()) == all_values - members(a)
    assert members(a.complement()) == all_values - members(a) - {"None"}
    assert (a <= b) == (a.intersect(b) == a)
    if a <= b:
        assert members(a) <= members(b)
    if a.is_empty:
        assert not members(a)
    assert a.is_all == (a == full_domain(type_))


@QUICK
@given(st.data(), TYPES)
def test_the_union_of_many(data: st.DataObject, type_: Type) -> None:
    some = data.draw(st.lists(domains_of(type_), min_size=1, max_size=7))
    assert union_of(some) == reduce(Domain.union, some)


@QUICK
@given(st.data(), TYPES, st.integers(1, 3))
def test_gaps_are_filled_until_there_are_few_pieces(
    data: st.DataObject, type_: Type, pieces: int
) -> None:
    domain = data.draw(domains_of(type_))
    filled = domain.fill_gaps(pieces)
    assert domain <= filled <= domain.hull()
    assert len(filled.intervals) <= max(pieces, 1)
    assert len(domain.intervals) > pieces or filled == domain


@QUICK
@given(st.lists(st.integers(0, 60), min_size=1, max_size=9), st.integers(1, 4))
def test_no_other_gaps_add_fewer_values(values: list[int], pieces: int) -> None:
    """Compared with all ways to take so many pieces from the least value to the largest."""
    domain = domain_of(INT, values)
    found = domain.fill_gaps(pieces).values(100)
    assert found is not None
    gaps = [high - low - 1 for low, high in pairwise(sorted(set(values))) if high > low + 1]
    left_open = max(map(sum, combinations(gaps, min(pieces - 1, len(gaps)))))
    assert len(found) == max(values) - min(values) + 1 - left_open


@QUICK
@given(st.data(), TYPES)
def test_the_laws_of_a_lattice(data: st.DataObject, type_: Type) -> None:
    a, b, c = (data.draw(domains_of(type_)) for _ in range(3))
    for join, meet in ((Domain.union, Domain.intersect), (Domain.intersect, Domain.union)):
        assert join(a, a) == a
        assert join(a, b) == join(b, a)
        assert join(a, join(b, c)) == join(join(a, b), c)
        assert join(a, meet(a, b)) == a
        assert join(a, meet(b, c)) == meet(join(a, b), join(a, c))
    assert a.outside().outside() == a
    assert a.union(b).outside() == a.outside().intersect(b.outside())
    assert a.union(a.outside()).is_all
    assert a.intersect(a.outside()).is_empty


@QUICK
@given(st.data(), TYPES)
def test_the_hull_is_the_least_interval(data: st.DataObject, type_: Type) -> None:
    a = data.draw(domains_of(type_))
    hull = a.hull()
    assert a <= hull and hull.hull() == hull and hull.null == a.null
    assert len(hull.intervals) <= 1
    for value in UNIVERSE[type_]:
        if value is not None and hull.contains(value):
            ups, downs = (
                comparison_domain(type_, ">=", value),
                comparison_domain(type_, "<=", value),
            )
            assert not a.with_null(False).intersect(ups).is_empty
            assert not a.with_null(False).intersect(downs).is_empty


@QUICK
@given(st.data(), TYPES, st.booleans())
def test_the_condition_of_a_domain(data: st.DataObject, type_: Type, nullable: bool) -> None:
    a = data.draw(domains_of(type_))
    column = Column("a", "x", type_, nullable)
    table = {column: [v for v in UNIVERSE[type_] if v is not None or nullable]}
    rows = truths(a.as_expr(column), table)
    assert rows == [a.contains(value) for value in table[column]]


@QUICK
@given(st.data(), TYPES)
def test_what_is_left_to_say_within_a_known_domain(data: st.DataObject, type_: Type) -> None:
    a, known = data.draw(domains_of(type_)), data.draw(domains_of(type_))
    said = a.simplify_within(known)
    assert said.intersect(known) == a.intersect(known)
    assert said.simplify_within(known) == said
    assert said.is_all or len(said.cuts) <= len(a.intersect(known).cuts)


@QUICK
@given(st.data(), TYPES)
def test_outcomes_of_comparing_values_of_two_domains(data: st.DataObject, type_: Type) -> None:
    a, b = data.draw(domains_of(type_)), data.draw(domains_of(type_))
    found = 0
    for x in UNIVERSE[type_]:
        for y in UNIVERSE[type_]:
            if x is not None and y is not None and a.contains(x) and b.contains(y):
                found |= {-1: 1, 0: 2, 1: 4}[order(x, y) or 0]
    assert found & ~a.outcomes(b) == 0
    assert a.outcomes(a) in (0, 2, 7)


# ---- normal form


X = Column("a", "x", INT)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (comparison_domain(INT, ">", 5), comparison_domain(INT, ">=", 6)),
        (comparison_domain(INT, "<", Fraction(9, 2)), comparison_domain(INT, "<=", 4)),
        (comparison_domain(INT, "=", Decimal("1.5")), empty_domain(INT)),
        (comparison_domain(INT, "<>", Decimal("1.5")), full_domain(INT, null=False)),
        (comparison_domain(TINYINT, "<=", 127), full_domain(TINYINT, null=False)),
        (comparison_domain(TINYINT, "<", 200), full_domain(TINYINT, null=False)),
        (comparison_domain(TINYINT, ">", 127), empty_domain(TINYINT)),
        (comparison_domain(TINYINT, ">=", 127), domain_of(TINYINT, [127])),
        (comparison_domain(BOOLEAN, "<>", True), domain_of(BOOLEAN, [False])),
        (comparison_domain(BOOLEAN, ">", False), domain_of(BOOLEAN, [True])),
        (domain_of(BOOLEAN, [True, False, None]), full_domain(BOOLEAN)),
        (comparison_domain(STRING, "<", ""), empty_domain(STRING)),
        (
            comparison_domain(STRING, ">", "a").intersect(comparison_domain(STRING, "<", "a\0")),
            empty_domain(STRING),
        ),
        (comparison_domain(DOUBLE, ">", math.inf), domain_of(DOUBLE, [math.nan])),
        (comparison_domain(DOUBLE, "<=", math.nan), full_domain(DOUBLE, null=False)),
        (comparison_domain(DOUBLE, ">=", -0.0), comparison_domain(DOUBLE, ">=", 0.0)),
        (
            comparison_domain(MONEY, ">", Decimal("1.25")),
            comparison_domain(MONEY, ">=", Decimal("1.3")),
        ),
        (comparison_domain(MONEY, "<", 1000), full_domain(MONEY, null=False)),
        (
            domain_of(INT, [3, 1, 2]),
            comparison_domain(INT, ">=", 1).intersect(comparison_domain(INT, "<=", 3)),
        ),
        (comparison_domain(TIMESTAMP, "<", 0), comparison_domain(TIMESTAMP, "<=", -1)),
        (comparison_domain(INT, "=", None), empty_domain(INT)),
    ],
)
def test_equal_sets_are_equal(a: Domain, b: Domain) -> None:
    assert a == b


def test_different_sets_are_different() -> None:
    assert comparison_domain(DOUBLE, ">", 1.0) != comparison_domain(DOUBLE, ">=", 1.0)
    assert comparison_domain(STRING, ">", "a") != comparison_domain(STRING, ">=", "b")
    assert null_domain(INT) != empty_domain(INT)
    assert not domain_of(INT, [1]).contains(2**40 + 1)
    assert not full_domain(INT).contains(2**40)


def parsed(name: str, *args: object) -> Expr:
    return build_call(
        name, *(arg if isinstance(arg, Column) else Literal(arg, INT) for arg in args)
    )


@pytest.mark.parametrize(
    ("domain", "condition"),
    [
        (full_domain(INT), None),
        (empty_domain(INT), FALSE),
        (null_domain(INT), build_call("is_null", X)),
        (full_domain(INT, null=False), build_call("not", build_call("is_null", X))),
        (domain_of(INT, [5]), parsed("=", X, 5)),
        (domain_of(INT, [5, 7, 9]), parsed("in", X, 5, 7, 9)),
        (domain_of(INT, [5, 6]), parsed("in", X, 5, 6)),
        (domain_of(INT, [5, 6, 7]), build_call("and", parsed(">=", X, 5), parsed("<=", X, 7))),
        (comparison_domain(INT, "<>", 5), parsed("<>", X, 5)),
        (domain_of(INT, [1, 5]).complement(), build_call("not", parsed("in", X, 1, 5))),
        (comparison_domain(INT, ">", 5), parsed(">=", X, 6)),
        (
            comparison_domain(INT, ">", 5).intersect(comparison_domain(INT, "<>", 9)),
            build_call("and", parsed(">=", X, 6), parsed("<>", X, 9)),
        ),
        (
            comparison_domain(INT, ">", 5).union(null_domain(INT)),
            build_call("or", parsed(">=", X, 6), build_call("is_null", X)),
        ),
        (
            comparison_domain(INT, ">", 90).union(comparison_domain(INT, "<", 5)),
            build_call("or", parsed("<=", X, 4), parsed(">=", X, 91)),
        ),
        (
            comparison_domain(INT, ">", 90).union(domain_of(INT, [3, 5])),
            build_call("or", parsed(">=", X, 91), parsed("in", X, 3, 5)),
        ),
    ],
    ids=str,
)
def test_the_shortest_condition(domain: Domain, condition: Expr | None) -> None:
    assert domain.as_expr(X) == condition


def test_conditions_of_other_types() -> None:
    text, real, flag = Column("a", "s", STRING), Column("a", "d", DOUBLE), Column("a", "f", BOOLEAN)
    assert comparison_domain(STRING, ">", "a").as_expr(text) == build_call(">", text, literal("a"))
    assert comparison_domain(STRING, "<=", "a").as_expr(text) == build_call(
        "<=", text, literal("a")
    )
    assert comparison_domain(DOUBLE, "<", 0.1).as_expr(real) == build_call("<", real, literal(0.1))
    assert comparison_domain(DOUBLE, "<=", 0.1).as_expr(real) == build_call(
        "<=", real, literal(0.1)
    )
    assert domain_of(BOOLEAN, [True]).as_expr(flag) == flag
    assert domain_of(BOOLEAN, [False]).as_expr(flag) == build_call("not", flag)
    assert full_domain(INT, null=False).as_expr(Column("a", "n", INT, nullable=False)) is None


def test_intervals() -> None:
    assert comparison_domain(INT, ">", 5).intervals == (Interval(6, None, True, False),)
    assert comparison_domain(STRING, ">", "a").intervals == (Interval("a", None, False, False),)
    assert domain_of(INT, [1, 2, 5]).intervals == (Interval(1, 2), Interval(5, 5))
    assert str(Interval("a", None, False, False)) == "(a..)"
    assert domain_of(INT, [1, 2, 5]).values(3) == tuple(Literal(n, INT) for n in (1, 2, 5))
    assert domain_of(INT, [1, 2, 5]).values(2) is None
    assert domain_of(INT, [4]).point == Literal(4, INT)
    assert domain_of(MONEY, [Decimal("1.5")]).point == Literal(Decimal("1.5"), MONEY)
    assert domain_of(INT, [4, 5]).point is None
    assert null_domain(INT).point == Literal(None, INT)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("[1..9]", ">= 3"),
        ("[3..9]", "everything"),
        ("[3..20]", "<= 9"),
        ("[1..20]", "[3..9]"),
        ("NULL or [3..9]", "not NULL"),
    ],
)
def test_three_to_nine_within(known: str, said: str) -> None:
    def between(low: int, high: int) -> Domain:
        return comparison_domain(INT, ">=", low).intersect(comparison_domain(INT, "<=", high))

    domains = {
        "[1..9]": between(1, 9),
        "[3..9]": between(3, 9),
        "[3..20]": between(3, 20),
        "[1..20]": between(1, 20),
        "NULL or [3..9]": between(3, 9).with_null(True),
        ">= 3": comparison_domain(INT, ">=", 3),
        "<= 9": comparison_domain(INT, "<=", 9),
        "not NULL": full_domain(INT, null=False),
        "everything": full_domain(INT),
    }
    assert between(3, 9).simplify_within(domains[known]) == domains[said]


def test_single_values_stay_what_they_are() -> None:
    assert domain_of(INT, [5]).simplify_within(domain_of(INT, [5, 7])) == domain_of(INT, [5])


@pytest.mark.parametrize(
    ("type_", "constant", "value"),
    [
        (INT, literal(5), 5),
        (BIGINT, literal(5), 5),
        (INT, literal(Decimal("1.5")), Decimal("1.5")),
        (BIGINT, literal(1.5), 1.5),
        (BIGINT, literal(2.0**53), None),
        (BIGINT, Literal(2.0**52, FLOAT), 2.0**52),
        (BIGINT, literal(math.inf), math.inf),
        (MONEY, literal(2), 2),
        (MONEY, literal(1.5), None),
        (DOUBLE, literal(2), 2.0),
        (DOUBLE, literal(Decimal("0.1")), 0.1),
        (FLOAT, literal(2**24 + 1), 2.0**24 + 1),
        (FLOAT, literal(0.1), 0.1),
        (TIMESTAMP, Literal(2, DATE), 2 * 86_400_000_000),
        (DATE, Literal(43_200_000_000, TIMESTAMP), Fraction(1, 2)),
        (INT, literal("5"), None),
        (STRING, literal("5"), "5"),
        (INT, literal(None), None),
    ],
)
def test_constants_of_other_types(type_: Type, constant: Literal, value: Value | Fraction) -> None:
    assert comparable_value(type_, constant) == value


def test_domains_of_different_types_do_not_meet() -> None:
    with pytest.raises(AlgebraError, match="INT does not meet one of BIGINT"):
        full_domain(INT).intersect(full_domain(BIGINT))


@given(st.data(), TYPES, st.integers(0, 6))
def test_the_number_of_values_is_that_of_the_values(
    data: st.DataObject, type_: Type, limit: int
) -> None:
    domain = data.draw(domains_of(type_))
    values = domain.values(limit)
    assert domain.count_values(limit) == (None if values is None else len(values))
