"""Scalar expressions: what they are in the algebra, their types, and how they are written."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from headwater.algebra.catalog import Namespace, Stream
from headwater.algebra.expressions import FALSE, TRUE, Column, Expr, Literal, literal
from headwater.algebra.functions import build_call, cast
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
    ("i + j * 2", build_call("+", I, build_call("*", J, literal(2)))),
    ("(i + j) * 2", build_call("*", build_call("+", I, J), literal(2))),
    ("i - j - 1", build_call("-", build_call("-", I, J), literal(1))),
    ("i - (j - 1)", build_call("-", I, build_call("-", J, literal(1)))),
    ("i / j % 3", build_call("%", build_call("/", I, J), literal(3))),
    ("i DIV 2", build_call("div", I, literal(2))),
    ("mod(i, 2)", build_call("%", I, literal(2))),
    ("-i", build_call("neg", I)),
    ("-(5)", build_call("neg", literal(5))),
    ("- -i", build_call("neg", build_call("neg", I))),
    ("i - -5", build_call("-", I, literal(-5))),
    ("m * 2", build_call("*", M, literal(2))),
    ("ts + INTERVAL '1' DAY", build_call("+", TS, interval(1440 * MINUTE))),
    ("ts - ts > INTERVAL 5 MIN", build_call(">", build_call("-", TS, TS), interval(5 * MINUTE))),
    ("2 * INTERVAL '1' MINUTE", build_call("*", literal(2), interval(MINUTE))),
    ("day + 1", build_call("+", DAY, literal(1))),
    # comparisons and conditions
    ("i = 5", build_call("=", I, literal(5))),
    ("i == 5", build_call("=", I, literal(5))),
    ("i != 5", build_call("<>", I, literal(5))),
    ("i <> 5", build_call("<>", I, literal(5))),
    ("i <=> NULL", build_call("<=>", I, MISSING)),
    ("5 < i", build_call("<", literal(5), I)),
    ("i >= j", build_call(">=", I, J)),
    ("ts > '2026-01-31'", build_call(">", TS, literal("2026-01-31"))),
    ("i IS NULL", build_call("is_null", I)),
    ("i IS NOT NULL", build_call("not", build_call("is_null", I))),
    ("isnull(i)", build_call("is_null", I)),
    ("isnotnull(i)", build_call("not", build_call("is_null", I))),
    ("p IS TRUE", build_call("<=>", P, TRUE)),
    ("p IS NOT FALSE", build_call("not", build_call("<=>", P, FALSE))),
    ("i IS DISTINCT FROM j", build_call("not", build_call("<=>", I, J))),
    ("i IS NOT DISTINCT FROM j", build_call("<=>", I, J)),
    ("i IN (1, 2, j)", build_call("in", I, literal(1), literal(2), J)),
    ("i NOT IN (1)", build_call("not", build_call("in", I, literal(1)))),
    (
        "i BETWEEN 1 AND 5",
        build_call("and", build_call(">=", I, literal(1)), build_call("<=", I, literal(5))),
    ),
    (
        "i NOT BETWEEN 1 AND 5",
        build_call(
            "not",
            build_call("and", build_call(">=", I, literal(1)), build_call("<=", I, literal(5))),
        ),
    ),
    ("s LIKE 'a\\\\%%'", build_call("like", S, literal("a\\%%"))),
    ("s NOT LIKE ('a%')", build_call("not", build_call("like", S, literal("a%")))),
    ("s RLIKE '^a'", build_call("rlike", S, literal("^a"))),
    ("s REGEXP '^a'", build_call("rlike", S, literal("^a"))),
    ("regexp_like(s, '^a')", build_call("rlike", S, literal("^a"))),
    ("rlike(s, '^a')", build_call("rlike", S, literal("^a"))),
    ("NOT p", build_call("not", P)),
    ("! p", build_call("not", P)),
    ("NOT i = 5", build_call("not", build_call("=", I, literal(5)))),
    ("p AND q AND i = 1", build_call("and", P, Q, build_call("=", I, literal(1)))),
    ("p AND (q AND i = 1)", build_call("and", P, Q, build_call("=", I, literal(1)))),
    ("p OR q OR (p OR q)", build_call("or", P, Q, P, Q)),
    ("p OR q AND p", build_call("or", P, build_call("and", Q, P))),
    ("(p OR q) AND p", build_call("and", build_call("or", P, Q), P)),
    (
        "q AND i BETWEEN 1 AND 2",
        build_call("and", Q, build_call(">=", I, literal(1)), build_call("<=", I, literal(2))),
    ),
    # choices
    ("CASE WHEN p THEN 1 ELSE 2 END", build_call("case", P, literal(1), literal(2))),
    ("CASE WHEN p THEN 1 END", build_call("case", P, literal(1), MISSING)),
    (
        "CASE i WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END",
        build_call(
            "case",
            build_call("=", I, literal(1)),
            literal("a"),
            build_call("=", I, literal(2)),
            literal("b"),
            literal("c"),
        ),
    ),
    ("if(p, 1, 2)", build_call("case", P, literal(1), literal(2))),
    ("IF(p, 1)", build_call("case", P, literal(1), MISSING)),
    ("nvl(i, 0)", build_call("coalesce", I, literal(0))),
    ("ifnull(i, 0)", build_call("coalesce", I, literal(0))),
    ("coalesce(i, j, 0)", build_call("coalesce", I, J, literal(0))),
    ("nullif(i, 0)", build_call("nullif", I, literal(0))),
    ("greatest(i, j)", build_call("greatest", I, J)),
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
    ("power(i, 2)", build_call("pow", I, literal(2))),
    ("POW(i, 2)", build_call("pow", I, literal(2))),
    ("ceiling(d)", build_call("ceil", D)),
    ("round(d, 2)", build_call("round", D, literal(2))),
    ("log(d)", build_call("ln", D)),
    ("substr(s, 1, 2)", build_call("substring", S, literal(1), literal(2))),
    ("len(s)", build_call("length", S)),
    ("char_length(s)", build_call("length", S)),
    ("s || u || 'x'", build_call("concat", S, U, literal("x"))),
    ("concat(s, u)", build_call("concat", S, U)),
    ("left(s, 2)", build_call("left", S, literal(2))),
    ("replace(s, 'a', 'b')", build_call("replace", S, literal("a"), literal("b"))),
    ("upper(lower(s))", build_call("upper", build_call("lower", S))),
    ("year(ts)", build_call("year", TS)),
    ("dayofmonth(day)", build_call("day", DAY)),
    ("EXTRACT(HOUR FROM ts)", build_call("hour", TS)),
    ("extract(dow from day)", build_call("dayofweek", DAY)),
    ("date_trunc('HOUR', ts)", build_call("date_trunc", literal("HOUR"), TS)),
    ("unix_millis(ts)", build_call("unix_millis", TS)),
    ("pmod(i, 3)", build_call("pmod", I, literal(3))),
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
    (build_call("and", P, build_call("or", Q, P)), "t.p AND (t.q OR t.p)"),
    (build_call("or", P, build_call("and", Q, P)), "t.p OR t.q AND t.p"),
    (build_call("not", build_call("and", P, Q)), "NOT (t.p AND t.q)"),
    (build_call("not", build_call("=", I, J)), "NOT t.i = t.j"),
    (build_call("not", build_call("in", I, literal(1))), "t.i NOT IN (1)"),
    (build_call("not", build_call("like", S, literal("u%"))), "t.s NOT LIKE 'u%'"),
    (build_call("not", build_call("is_null", build_call("+", I, J))), "t.i + t.j IS NOT NULL"),
    (build_call("=", build_call("=", I, J), P), "(t.i = t.j) = t.p"),
    (build_call("is_null", build_call("=", I, J)), "(t.i = t.j) IS NULL"),
    (build_call("*", build_call("+", I, J), literal(-2)), "(t.i + t.j) * (-2)"),
    (build_call("-", I, build_call("-", J, I)), "t.i - (t.j - t.i)"),
    (build_call("+", literal(-1), I), "-1 + t.i"),
    (build_call("=", I, literal(-1)), "t.i = -1"),
    (build_call("neg", build_call("neg", I)), "-(-t.i)"),
    (build_call("div", I, build_call("%", J, I)), "t.i DIV (t.j % t.i)"),
    (build_call("concat", S, U), "concat(t.s, t.u)"),
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
