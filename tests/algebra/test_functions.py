"""Which types functions, casts and aggregates take and give, and what they say when they refuse."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headwater.algebra.expressions import (
    FALSE,
    TRUE,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    literal,
    substitute,
    transform,
    walk,
)
from headwater.algebra.functions import FUNCTIONS, AggregateCall, build_aggregate, build_call, cast
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    NULL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    Type,
    decimal,
)
from headwater.errors import AlgebraError

MONEY = decimal(10, 2)
COLUMNS: dict[str, Column] = {
    name: Column("t", name, type_)
    for name, type_ in {
        "tiny": TINYINT,
        "small": SMALLINT,
        "i": INT,
        "big": BIGINT,
        "f": FLOAT,
        "d": DOUBLE,
        "m": MONEY,
        "s": STRING,
        "flag": BOOLEAN,
        "day": DATE,
        "ts": TIMESTAMP,
        "span": INTERVAL,
    }.items()
}


def args(names: str) -> list[Expr]:
    """Columns by name; a quoted word, a number, true or null is a constant."""
    return [COLUMNS[name] if name in COLUMNS else constant(name) for name in names.split()]


def constant(word: str) -> Literal:
    if word.startswith("'"):
        return literal(word.strip("'"))
    if word in ("true", "null"):
        return literal(True if word == "true" else None)
    return literal(Decimal(word) if "." in word else int(word))


GIVES: list[tuple[str, str, Type]] = [
    ("=", "i big", BOOLEAN),
    ("=", "i m", BOOLEAN),
    ("=", "day ts", BOOLEAN),
    ("<", "s 'a'", BOOLEAN),
    ("<=>", "i null", BOOLEAN),
    ("in", "i 1 2.5 null", BOOLEAN),
    ("and", "flag flag null", BOOLEAN),
    ("not", "flag", BOOLEAN),
    ("is_null", "span", BOOLEAN),
    ("+", "tiny small", SMALLINT),
    ("+", "i big", BIGINT),
    ("+", "i f", DOUBLE),
    ("+", "m f", DOUBLE),
    ("+", "i d", DOUBLE),
    ("+", "m m", decimal(11, 2)),
    ("+", "m i", decimal(13, 2)),
    ("+", "m 5", decimal(11, 2)),
    ("*", "m m", decimal(21, 4)),
    ("*", "m 2", decimal(12, 2)),
    ("/", "m m", decimal(23, 13)),
    ("%", "m i", decimal(10, 2)),
    ("/", "i i", DOUBLE),
    ("div", "i tiny", BIGINT),
    ("+", "ts span", TIMESTAMP),
    ("+", "span ts", TIMESTAMP),
    ("-", "ts span", TIMESTAMP),
    ("-", "ts ts", INTERVAL),
    ("-", "ts day", INTERVAL),
    ("-", "day day", INTERVAL),
    ("+", "day i", DATE),
    ("-", "day i", DATE),
    ("*", "span i", INTERVAL),
    ("*", "i span", INTERVAL),
    ("+", "span span", INTERVAL),
    ("+", "i null", INT),
    ("neg", "span", INTERVAL),
    ("neg", "tiny", TINYINT),
    ("abs", "m", MONEY),
    ("ceil", "d", BIGINT),
    ("floor", "m", decimal(9, 0)),
    ("round", "m 1", decimal(10, 1)),
    ("round", "d", DOUBLE),
    ("sqrt", "i", DOUBLE),
    ("greatest", "i big d", DOUBLE),
    ("least", "day ts", TIMESTAMP),
    ("coalesce", "null i m", decimal(12, 2)),
    ("nullif", "tiny i", TINYINT),
    ("case", "flag i flag big null", BIGINT),
    ("upper", "s", STRING),
    ("length", "s", INT),
    ("concat", "s s s", STRING),
    ("substring", "s 1 big", STRING),
    ("like", "s 'a%'", BOOLEAN),
    ("year", "day", INT),
    ("hour", "ts", INT),
    ("hour", "day", INT),
    ("date_trunc", "'HOUR' ts", TIMESTAMP),
    ("unix_micros", "ts", BIGINT),
    ("timestamp_millis", "big", TIMESTAMP),
]


@pytest.mark.parametrize(("name", "names", "type_"), GIVES)
def test_gives(name: str, names: str, type_: Type) -> None:
    assert build_call(name, *args(names)).type == type_


REFUSES: list[tuple[str, str, str]] = [
    ("upper", "i", "upper takes STRING, not INT"),
    ("uper", "s", "unknown function uper; did you mean upper?"),
    ("=", "i s", "INT and STRING have no common type; CAST one of them"),
    ("<", "flag i", "BOOLEAN and INT have no common type"),
    ("in", "i 'a'", "INT and STRING have no common type"),
    ("and", "flag i", "and takes conditions, not BOOLEAN, INT"),
    ("not", "s", "not takes conditions, not STRING"),
    ("+", "s i", r"\+ takes numbers, not STRING, INT"),
    ("+", "ts ts", r"\+ takes numbers"),
    ("+", "day span", r"\+ takes numbers"),
    ("-", "span ts", "- takes numbers"),
    ("*", "span span", r"\* takes numbers"),
    ("div", "d i", "div takes integers, not DOUBLE, INT"),
    ("neg", "s", "neg takes a number or an interval, not STRING"),
    ("ceil", "ts", "ceil takes a number"),
    ("round", "d i", "the number of digits is a constant from 0 to 30"),
    ("round", "d 31", "the number of digits is a constant from 0 to 30"),
    ("case", "i i i", "every WHEN is a condition"),
    ("case", "flag i s", "INT and STRING have no common type"),
    ("coalesce", "i s", "no common type"),
    ("nullif", "i s", "no common type"),
    ("substring", "s s", "substring takes STRING, INT, INT, not STRING, STRING"),
    ("date_trunc", "'fortnight' ts", "the unit is one of year, quarter"),
    ("date_trunc", "'hour' i", "date_trunc takes a unit and a TIMESTAMP"),
    ("hour", "s", "hour takes TIMESTAMP, not STRING"),
    ("length", "", "length takes 1 argument, not 0"),
    ("replace", "s s", "replace takes 3 arguments, not 2"),
    ("substring", "s", "substring takes 2 to 3 arguments, not 1"),
    ("greatest", "i", "greatest takes 2 arguments or more, not 1"),
    ("=", "ts 'yesterday'", "'yesterday' is not a timestamp"),
    ("=", "day '2026-13-01'", "'2026-13-01' is not a date"),
]


@pytest.mark.parametrize(("name", "names", "message"), REFUSES)
def test_refuses(name: str, names: str, message: str) -> None:
    with pytest.raises(AlgebraError, match=message):
        build_call(name, *args(names))


def test_every_function_has_a_count_and_a_rule() -> None:
    for name, function in FUNCTIONS.items():
        assert function.name == name
        assert function.max_args is None or function.min_args <= function.max_args


def test_a_text_beside_a_time_is_a_time() -> None:
    day = 86_400_000_000
    assert build_call("<", COLUMNS["ts"], literal("1970-01-02")).args[1] == Literal(day, TIMESTAMP)
    assert build_call("in", COLUMNS["day"], literal("1970-01-02")).args[1] == Literal(1, DATE)
    assert build_call("=", literal("1970-01-02T00:00:00+01:00"), COLUMNS["ts"]).args[0] == Literal(
        day - 3_600_000_000, TIMESTAMP
    )


# ---- casts


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("i", BIGINT),
        ("d", INT),
        ("flag", INT),
        ("i", BOOLEAN),
        ("s", decimal(5, 1)),
        ("s", TIMESTAMP),
        ("day", TIMESTAMP),
        ("ts", DATE),
        ("ts", STRING),
    ],
)
def test_casts(name: str, type_: Type) -> None:
    found = cast(COLUMNS[name], type_)
    assert found.type == type_ and found == found


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("ts", INT),
        ("i", TIMESTAMP),
        ("span", STRING),
        ("s", INTERVAL),
        ("flag", DATE),
        ("day", INT),
        ("span", BIGINT),
    ],
)
def test_casts_refused(name: str, type_: Type) -> None:
    with pytest.raises(AlgebraError, match="cannot be cast to"):
        cast(COLUMNS[name], type_)


def test_a_cast_to_the_same_type_is_none() -> None:
    assert cast(COLUMNS["i"], INT) is COLUMNS["i"]
    assert cast(literal(None), INTERVAL) == Literal(None, INTERVAL)


# ---- aggregates


@pytest.mark.parametrize(
    ("name", "column", "type_"),
    [
        ("count", "s", BIGINT),
        ("sum", "tiny", BIGINT),
        ("sum", "f", DOUBLE),
        ("sum", "m", decimal(20, 2)),
        ("sum", "span", INTERVAL),
        ("avg", "i", DOUBLE),
        ("avg", "m", decimal(14, 6)),
        ("min", "s", STRING),
        ("max", "ts", TIMESTAMP),
        ("stddev_pop", "m", DOUBLE),
        ("bool_and", "flag", BOOLEAN),
    ],
)
def test_aggregates(name: str, column: str, type_: Type) -> None:
    assert build_aggregate(name, COLUMNS[column]).type == type_


def test_count_of_all() -> None:
    assert build_aggregate("count", None) == AggregateCall("count", None, BIGINT)


def test_distinct_does_not_matter_to_the_least_and_largest() -> None:
    assert build_aggregate("max", COLUMNS["i"], distinct=True) == build_aggregate(
        "max", COLUMNS["i"]
    )
    assert build_aggregate("sum", COLUMNS["i"], distinct=True) != build_aggregate(
        "sum", COLUMNS["i"]
    )


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("median", "i", "unknown aggregate median; did you mean"),
        ("sum", "s", "sum takes a number, not STRING"),
        ("avg", "ts", "avg takes a number, not TIMESTAMP"),
        ("bool_or", "i", "bool_or takes conditions, not INT"),
        ("var_pop", "span", "var_pop takes a number, not INTERVAL"),
    ],
)
def test_aggregates_refused(name: str, column: str, message: str) -> None:
    with pytest.raises(AlgebraError, match=message.split("; did")[0]):
        build_aggregate(name, COLUMNS[column])


def test_aggregates_refused_for_their_form() -> None:
    with pytest.raises(AlgebraError, match=r"sum takes an expression, not \*"):
        build_aggregate("sum", None)
    with pytest.raises(AlgebraError, match="name the columns"):
        build_aggregate("count", None, distinct=True)
    with pytest.raises(AlgebraError, match="FILTER takes a condition, not INT"):
        build_aggregate("count", None, filter=COLUMNS["i"])
    assert build_aggregate("count", None, filter=literal(None)).filter == Literal(None, NULL)


# ---- expressions


def test_walking_and_changing() -> None:
    i, big = COLUMNS["i"], COLUMNS["big"]
    total = build_call("+", build_call("*", i, literal(2)), big)
    assert [str(part) for part in walk(total)][:2] == ["+(*(t.i, 2), t.big)", "*(t.i, 2)"]
    assert columns_of(total) == {i, big}
    assert substitute(total, {i: big, total.args[0]: i}) == build_call("+", i, big)
    doubled = transform(total, lambda part: literal(4) if part == literal(2) else part)
    assert str(doubled) == "+(*(t.i, 4), t.big)"
    assert transform(total, lambda part: part) is total


def test_conjunctions() -> None:
    flag, other = COLUMNS["flag"], build_call("<", COLUMNS["i"], literal(5))
    assert conjuncts(None) == conjuncts(TRUE) == ()
    assert conjuncts(build_call("and", flag, build_call("and", other, TRUE))) == (flag, other)
    assert conjunction([]) is None and conjunction([TRUE]) is None
    assert conjunction([flag]) == flag
    assert conjunction([flag, build_call("and", other, flag)]) == build_call(
        "and", flag, other, flag
    )
    assert conjunction([FALSE]) == FALSE


def test_types_of_constants() -> None:
    assert literal(2**31).type == BIGINT
    assert literal(Decimal("0.05")).type == decimal(2, 2)
    assert literal(Decimal("12.50")).type == decimal(4, 2)
    assert literal(1.5).type == DOUBLE
    assert literal(float("nan")) == literal(float("nan"))
    assert str(literal(-0.0)) == "0.0"
