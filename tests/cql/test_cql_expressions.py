"""Scalar expressions: what they are in the algebra, their types, and how they are written."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.expressions import FALSE, TRUE, Column, Expr, Literal, literal
from headwater.algebra.functions import call, cast
from headwater.algebra.nodes import Project
from headwater.algebra.times import parse_date, parse_timestamp
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
    Field,
    Schema,
    Type,
    decimal,
)
from headwater.algebra.windows import UNITS
from headwater.cql import expr_text, parse_query
from headwater.errors import CqlError

FIELDS = {
    "i": INT,
    "j": INT,
    "l": BIGINT,
    "d": DOUBLE,
    "m": decimal(6, 2),
    "s": STRING,
    "u": STRING,
    "p": BOOLEAN,
    "q": BOOLEAN,
    "day": DATE,
    "ts": TIMESTAMP,
}
NAMES = Namespace.of(
    [Stream("t", Schema(tuple(Field(name, type_) for name, type_ in FIELDS.items())), "ts")]
)
MINUTE = UNITS["MINUTE"]


def column(name: str) -> Column:
    return Column("t", name, FIELDS[name])


I, J, L, D, M = (column(name) for name in ("i", "j", "l", "d", "m"))  # noqa: E741
S, U, P, Q = (column(name) for name in ("s", "u", "p", "q"))
DAY, TS = column("day"), column("ts")
MISSING = Literal(None, NULL)


def bound(text: str) -> Expr:
    root = parse_query(f"SELECT {text} AS x FROM t", NAMES).root
    assert isinstance(root, Project)
    return root.items[0].expr


def interval(micros: int) -> Literal:
    return Literal(micros, INTERVAL)


EXPRESSIONS: list[tuple[str, Expr]] = [
    # constants
    ("5", literal(5)),
    ("2147483647", literal(2**31 - 1)),
    ("2147483648", Literal(2**31, BIGINT)),
    ("-2147483648", Literal(-(2**31), INT)),
    ("9223372036854775808", literal(Decimal(2**63))),
    ("-9223372036854775808", Literal(-(2**63), BIGINT)),
    ("5.50", Literal(Decimal("5.50"), decimal(3, 2))),
    ("0.05", Literal(Decimal("0.05"), decimal(2, 2))),
    (".5", Literal(Decimal("0.5"), decimal(1, 1))),
    ("-0.0", Literal(Decimal("0.0"), decimal(1, 1))),
    ("5e0", literal(5.0)),
    ("1.5E-3", literal(0.0015)),
    ("5.5D", literal(5.5)),
    ("0.1F", Literal(0.10000000149011612, FLOAT)),
    ("5L", Literal(5, BIGINT)),
    ("5S", Literal(5, SMALLINT)),
    ("-128Y", Literal(-128, TINYINT)),
    ("5BD", Literal(Decimal(5), decimal(1, 0))),
    ("+5", literal(5)),
    ("- 5", literal(-5)),
    ("TRUE", TRUE),
    ("false", FALSE),
    ("NULL", MISSING),
    ("'it''s'", literal("it's")),
    ("'it\\'s'", literal("it's")),
    ('"both"', literal("both")),
    ("'a' 'b'", literal("ab")),
    ("'a\\nb\\\\'", literal("a\nb\\")),
    ("r'a\\nb'", literal("a\\nb")),
    ("DATE '2026-01-31'", Literal(parse_date("2026-01-31"), DATE)),
    ("TIMESTAMP '2026-01-31 12:30:00'", Literal(parse_timestamp("2026-01-31 12:30:00"), TIMESTAMP)),
    ("TIMESTAMP '2026-01-31T13:30+01:00'", Literal(parse_timestamp("2026-01-31 12:30"), TIMESTAMP)),
    ("INTERVAL '5' MINUTE", interval(5 * MINUTE)),
    ("INTERVAL 5 MINUTES", interval(5 * MINUTE)),
    ("INTERVAL '1.5' SECONDS", interval(1_500_000)),
    ("INTERVAL '-5' MINUTE", interval(-5 * MINUTE)),
    ("INTERVAL '2 HOURS'", interval(120 * MINUTE)),
    ("double('NaN')", literal(math.nan)),
    ("double('-Infinity')", literal(-math.inf)),
    ("CAST(NULL AS INT)", Literal(None, INT)),
    # columns
    ("i", I),
    ("T.I", I),
    ("`ts`", TS),
    ("((i))", I),
    # arithmetic
    ("i + j * 2", call("+", I, call("*", J, literal(2)))),
    ("(i + j) * 2", call("*", call("+", I, J), literal(2))),
    ("i - j - 1", call("-", call("-", I, J), literal(1))),
    ("i - (j - 1)", call("-", I, call("-", J, literal(1)))),
    ("i / j % 3", call("%", call("/", I, J), literal(3))),
    ("i DIV 2", call("div", I, literal(2))),
    ("mod(i, 2)", call("%", I, literal(2))),
    ("-i", call("neg", I)),
    ("-(5)", call("neg", literal(5))),
    ("- -i", call("neg", call("neg", I))),
    ("i - -5", call("-", I, literal(-5))),
    ("m * 2", call("*", M, literal(2))),
    ("ts + INTERVAL '1' DAY", call("+", TS, interval(1440 * MINUTE))),
    ("ts - ts > INTERVAL 5 MIN", call(">", call("-", TS, TS), interval(5 * MINUTE))),
    ("2 * INTERVAL '1' MINUTE", call("*", literal(2), interval(MINUTE))),
    ("day + 1", call("+", DAY, literal(1))),
    # comparisons and conditions
    ("i = 5", call("=", I, literal(5))),
    ("i == 5", call("=", I, literal(5))),
    ("i != 5", call("<>", I, literal(5))),
    ("i <> 5", call("<>", I, literal(5))),
    ("i <=> NULL", call("<=>", I, MISSING)),
    ("5 < i", call("<", literal(5), I)),
    ("i >= j", call(">=", I, J)),
    ("ts > '2026-01-31'", call(">", TS, literal("2026-01-31"))),
    ("i IS NULL", call("is_null", I)),
    ("i IS NOT NULL", call("not", call("is_null", I))),
    ("isnull(i)", call("is_null", I)),
    ("isnotnull(i)", call("not", call("is_null", I))),
    ("p IS TRUE", call("<=>", P, TRUE)),
    ("p IS NOT FALSE", call("not", call("<=>", P, FALSE))),
    ("i IS DISTINCT FROM j", call("not", call("<=>", I, J))),
    ("i IS NOT DISTINCT FROM j", call("<=>", I, J)),
    ("i IN (1, 2, j)", call("in", I, literal(1), literal(2), J)),
    ("i NOT IN (1)", call("not", call("in", I, literal(1)))),
    ("i BETWEEN 1 AND 5", call("and", call(">=", I, literal(1)), call("<=", I, literal(5)))),
    (
        "i NOT BETWEEN 1 AND 5",
        call("not", call("and", call(">=", I, literal(1)), call("<=", I, literal(5)))),
    ),
    ("s LIKE 'a\\\\%%'", call("like", S, literal("a\\%%"))),
    ("s NOT LIKE ('a%')", call("not", call("like", S, literal("a%")))),
    ("s RLIKE '^a'", call("rlike", S, literal("^a"))),
    ("s REGEXP '^a'", call("rlike", S, literal("^a"))),
    ("regexp_like(s, '^a')", call("rlike", S, literal("^a"))),
    ("rlike(s, '^a')", call("rlike", S, literal("^a"))),
    ("NOT p", call("not", P)),
    ("! p", call("not", P)),
    ("NOT i = 5", call("not", call("=", I, literal(5)))),
    ("p AND q AND i = 1", call("and", P, Q, call("=", I, literal(1)))),
    ("p AND (q AND i = 1)", call("and", P, Q, call("=", I, literal(1)))),
    ("p OR q OR (p OR q)", call("or", P, Q, P, Q)),
    ("p OR q AND p", call("or", P, call("and", Q, P))),
    ("(p OR q) AND p", call("and", call("or", P, Q), P)),
    (
        "q AND i BETWEEN 1 AND 2",
        call("and", Q, call(">=", I, literal(1)), call("<=", I, literal(2))),
    ),
    # choices
    ("CASE WHEN p THEN 1 ELSE 2 END", call("case", P, literal(1), literal(2))),
    ("CASE WHEN p THEN 1 END", call("case", P, literal(1), MISSING)),
    (
        "CASE i WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END",
        call(
            "case",
            call("=", I, literal(1)),
            literal("a"),
            call("=", I, literal(2)),
            literal("b"),
            literal("c"),
        ),
    ),
    ("if(p, 1, 2)", call("case", P, literal(1), literal(2))),
    ("IF(p, 1)", call("case", P, literal(1), MISSING)),
    ("nvl(i, 0)", call("coalesce", I, literal(0))),
    ("ifnull(i, 0)", call("coalesce", I, literal(0))),
    ("coalesce(i, j, 0)", call("coalesce", I, J, literal(0))),
    ("nullif(i, 0)", call("nullif", I, literal(0))),
    ("greatest(i, j)", call("greatest", I, J)),
    # casts
    ("CAST(i AS BIGINT)", cast(I, BIGINT)),
    ("TRY_CAST(s AS INT)", cast(S, INT)),
    ("s::int", cast(S, INT)),
    ("CAST(i AS INT)", I),
    ("CAST(d AS DECIMAL(10, 2))", cast(D, decimal(10, 2))),
    ("CAST(i AS VARCHAR(5))", cast(I, STRING)),
    ("CAST(s AS TIMESTAMP)", cast(S, TIMESTAMP)),
    ("CAST('2026-01-31' AS DATE)", cast(literal("2026-01-31"), DATE)),
    ("CAST(5.5 AS DOUBLE)", cast(literal(Decimal("5.5")), DOUBLE)),
    ("bigint(i)", cast(I, BIGINT)),
    ("string(i)", cast(I, STRING)),
    ("date(ts)", cast(TS, DATE)),
    ("to_timestamp(s)", cast(S, TIMESTAMP)),
    # functions, by any of their names
    ("power(i, 2)", call("pow", I, literal(2))),
    ("POW(i, 2)", call("pow", I, literal(2))),
    ("ceiling(d)", call("ceil", D)),
    ("round(d, 2)", call("round", D, literal(2))),
    ("log(d)", call("ln", D)),
    ("substr(s, 1, 2)", call("substring", S, literal(1), literal(2))),
    ("len(s)", call("length", S)),
    ("char_length(s)", call("length", S)),
    ("s || u || 'x'", call("concat", S, U, literal("x"))),
    ("concat(s, u)", call("concat", S, U)),
    ("left(s, 2)", call("left", S, literal(2))),
    ("replace(s, 'a', 'b')", call("replace", S, literal("a"), literal("b"))),
    ("upper(lower(s))", call("upper", call("lower", S))),
    ("year(ts)", call("year", TS)),
    ("dayofmonth(day)", call("day", DAY)),
    ("EXTRACT(HOUR FROM ts)", call("hour", TS)),
    ("extract(dow from day)", call("dayofweek", DAY)),
    ("date_trunc('HOUR', ts)", call("date_trunc", literal("HOUR"), TS)),
    ("unix_millis(ts)", call("unix_millis", TS)),
    ("pmod(i, 3)", call("pmod", I, literal(3))),
]
TEXTS = [text for text, _ in EXPRESSIONS]


@pytest.mark.parametrize(("text", "expr"), EXPRESSIONS, ids=TEXTS)
def test_an_expression_is_what_it_says(text: str, expr: Expr) -> None:
    found = bound(text)
    assert found == expr
    assert found.type == expr.type


@pytest.mark.parametrize(("text", "expr"), EXPRESSIONS, ids=TEXTS)
def test_an_expression_reads_back(text: str, expr: Expr) -> None:
    assert bound(expr_text(expr)) == expr


WRITTEN = [
    (call("and", P, call("or", Q, P)), "t.p AND (t.q OR t.p)"),
    (call("or", P, call("and", Q, P)), "t.p OR t.q AND t.p"),
    (call("not", call("and", P, Q)), "NOT (t.p AND t.q)"),
    (call("not", call("=", I, J)), "NOT t.i = t.j"),
    (call("not", call("in", I, literal(1))), "t.i NOT IN (1)"),
    (call("not", call("like", S, literal("u%"))), "t.s NOT LIKE 'u%'"),
    (call("not", call("is_null", call("+", I, J))), "t.i + t.j IS NOT NULL"),
    (call("=", call("=", I, J), P), "(t.i = t.j) = t.p"),
    (call("is_null", call("=", I, J)), "(t.i = t.j) IS NULL"),
    (call("*", call("+", I, J), literal(-2)), "(t.i + t.j) * (-2)"),
    (call("-", I, call("-", J, I)), "t.i - (t.j - t.i)"),
    (call("+", literal(-1), I), "-1 + t.i"),
    (call("=", I, literal(-1)), "t.i = -1"),
    (call("neg", call("neg", I)), "-(-t.i)"),
    (call("div", I, call("%", J, I)), "t.i DIV (t.j % t.i)"),
    (call("concat", S, U), "concat(t.s, t.u)"),
    (cast(I, decimal(5, 1)), "CAST(t.i AS DECIMAL(5,1))"),
    (literal(1e300), "1e300"),
    (literal(100.0), "100.0D"),
    (literal(5), "5"),
    (Literal(5, BIGINT), "5L"),
    (Literal(5_000_000, INTERVAL), "INTERVAL '5' SECOND"),
    (Literal(0, TIMESTAMP), "TIMESTAMP '1970-01-01 00:00:00'"),
    (Literal(Decimal("1.5"), decimal(10, 4)), "CAST(1.5 AS DECIMAL(10,4))"),
    (Column("check-ins", "select", INT), "`check-ins`.`select`"),
    (Column("", "a", INT), "a"),
]


@pytest.mark.parametrize(("expr", "text"), WRITTEN, ids=[text for _, text in WRITTEN])
def test_an_expression_as_text(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text


SIGNATURES: list[tuple[str, Type]] = [
    ("5 / 2", DOUBLE),
    ("i + l", BIGINT),
    ("i + 5.5", decimal(12, 1)),
    ("m + m", decimal(7, 2)),
    ("count(*)", BIGINT),
    ("sum(i)", BIGINT),
    ("sum(m)", decimal(16, 2)),
    ("avg(i)", DOUBLE),
    ("mean(m)", decimal(10, 6)),
    ("min(s)", STRING),
    ("max(ts)", TIMESTAMP),
    ("stddev(d)", DOUBLE),
    ("every(p)", BOOLEAN),
    ("some(p)", BOOLEAN),
    ("any(p)", BOOLEAN),
]


@pytest.mark.parametrize(("text", "type_"), SIGNATURES, ids=[text for text, _ in SIGNATURES])
def test_types(text: str, type_: Type) -> None:
    assert bound(text).type == type_


@pytest.mark.parametrize("name", ["is_null", "neg", "case_", "in_", "cast_", "explode"])
def test_functions_that_are_not_of_the_language(name: str) -> None:
    with pytest.raises(CqlError, match=f"unknown function {name}"):
        bound(f"{name}(i)")


@pytest.mark.parametrize(
    "name", ["now()", "current_timestamp()", "current_date", "CURRENT_TIMESTAMP"]
)
def test_there_is_no_present(name: str) -> None:
    with pytest.raises(CqlError, match="no current time"):
        bound(name)
