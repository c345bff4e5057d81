"""Every scalar function against values worked out by hand (and seen in Spark SQL 4.3)."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from headwater.algebra.expressions import Column, Expr, Literal, literal
from headwater.algebra.functions import FUNCTIONS, AggregateCall, build_aggregate, build_call, cast
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
    Type,
    Value,
    decimal,
)
from headwater.errors import EvaluationError
from headwater.reference.scalar import compile_expr, supported_functions

INF, NAN = math.inf, math.nan
HOUR, DAY = 3_600_000_000, 86_400_000_000
MONEY = decimal(10, 2)

Case = tuple[Expr, Value]


def lit(value: Value, type_: Type) -> Literal:
    return Literal(value, type_)


def null(type_: Type = INT) -> Literal:
    return Literal(None, type_)


def ts(text: str) -> Literal:
    return Literal(parse_timestamp(text), TIMESTAMP)


def day(text: str) -> Literal:
    return Literal(parse_date(text), DATE)


def dec(text: str, precision: int, scale: int) -> Literal:
    return Literal(Decimal(text), decimal(precision, scale))


def f(name: str, *args: Value | Expr) -> Expr:
    return build_call(
        name,
        *(a if isinstance(a, Column | Literal) or hasattr(a, "args") else literal(a) for a in args),
    )


def to(value: Value | Expr, type_: Type) -> Expr:
    expr = (
        value if isinstance(value, Column | Literal) or hasattr(value, "args") else literal(value)
    )
    return cast(expr, type_)


T, F, N = literal(True), literal(False), null(BOOLEAN)
TINY = lit(-128, TINYINT)
LEAST, LARGEST = lit(-(2**63), BIGINT), lit(2**63 - 1, BIGINT)

LOGIC: list[Case] = [
    (f("and", T, T), True), (f("and", T, N), None), (f("and", N, F), False), (f("and", T, T, F), False),
    (f("or", F, F), False), (f("or", F, N), None), (f("or", N, T), True), (f("or", F, F, T), True),
    (f("not", T), False), (f("not", N), None),
    (f("is_null", N), True), (f("is_null", 1), False),
    (f("case", T, 1, 2), 1), (f("case", N, 1, 2), 2), (f("case", F, 1, T, 2, 3), 2),
    (f("case", F, 1, null()), None), (f("case", T, 1, 2.5), 1.0),
    (f("coalesce", null(), 2, 3), 2), (f("coalesce", null(), null()), None), (f("coalesce", null(), 2, 0.5), 2.0),
    (f("nullif", 1, 1), None), (f("nullif", 1, 2), 1), (f("nullif", 1, 1.0), None), (f("nullif", null(), 1), None),
    (f("nullif", 1, null()), 1), (f("nullif", NAN, NAN), None),
    (f("greatest", 1, null(), 3), 3), (f("greatest", null(), null()), None), (f("greatest", NAN, 3.0), NAN),
    (f("greatest", 1, 2.5), 2.5), (f("greatest", "a", "B"), "a"),
    (f("least", NAN, 3.0), 3.0), (f("least", 2, null(), 1), 1), (f("least", null(), null()), None),
]  # fmt: skip

COMPARISONS: list[Case] = [
    (f("=", 1, 1), True), (f("=", 1, null()), None), (f("=", 1, 1.0), True), (f("=", NAN, NAN), True),
    (f("=", 0.0, lit(-0.0, DOUBLE)), True), (f("=", dec("1.0", 3, 1), dec("1.00", 3, 2)), True),
    (f("=", lit(2**53 + 1, BIGINT), float(2**53)), True),  # as doubles they are equal
    (f("=", dec("0.1", 2, 1), 0.1), True), (f("=", "a", "A"), False),
    (f("=", to(0.1, FLOAT), 0.1), False),
    (f("<>", 1, 2), True), (f("<>", NAN, NAN), False), (f("<>", 1, null()), None),
    (f("<", 1, 2), True), (f("<", INF, NAN), True), (f("<", NAN, NAN), False), (f("<", NAN, 1.0), False),
    (f("<", "Z", "a"), True), (f("<", F, T), True), (f("<", null(), 2), None),
    (f("<=", NAN, NAN), True), (f("<=", NAN, 1.0), False), (f("<=", 2, 1), False), (f("<=", 1, null()), None),
    (f(">", NAN, INF), True), (f(">", 1, 1), False), (f(">", null(), 1), None),
    (f(">=", NAN, INF), True), (f(">=", INF, NAN), False), (f(">=", 1, 1), True), (f(">=", null(), null()), None),
    (f("<", day("2026-01-31"), ts("2026-01-31 00:00:01")), True),
    (f(">", ts("2026-01-31 10:00:00"), "2026-01-31"), True),
    (f("<=>", null(), null()), True), (f("<=>", 1, null()), False), (f("<=>", 1, 1), True), (f("<=>", NAN, NAN), True),
    (f("in", 1, 2, 1), True), (f("in", 1, 2, 3), False), (f("in", 1, 2, null()), None), (f("in", 1, 1, null()), True),
    (f("in", null(), 1), None), (f("in", 1, 1.0, 2.0), True), (f("in", NAN, NAN), True),
]  # fmt: skip

ARITHMETIC: list[Case] = [
    (f("+", 1, 2), 3), (f("+", 1, null()), None), (f("+", 2**31 - 1, 1), None),
    (f("+", lit(127, TINYINT), lit(1, TINYINT)), None), (f("+", lit(127, TINYINT), 1), 128),
    (f("+", LARGEST, 1), None), (f("+", 1, 0.5), 1.5), (f("+", INF, -INF), NAN),
    (f("+", dec("1.25", 3, 2), 1), Decimal("2.25")), (f("+", dec("1.5", 2, 1), 0.25), 1.75),
    (f("+", dec("9" * 38, 38, 0), dec("1", 38, 0)), None),
    (f("+", to(0.1, FLOAT), to(0.2, FLOAT)), 0.30000001192092896),
    (f("+", to(16777216, FLOAT), to(1, FLOAT)), 16777216.0), (f("+", to(16777216, FLOAT), 1), 16777217.0),
    (f("-", 1, 2), -1), (f("-", lit(-(2**31), INT), 1), None), (f("-", null(), 1), None),
    (f("-", dec("1.0", 2, 1), dec("0.25", 3, 2)), Decimal("0.75")),
    (f("*", 3, 4), 12), (f("*", 65536, 65536), None), (f("*", LEAST, -1), None), (f("*", 1e200, 1e200), INF),
    (f("*", dec("1.5", 2, 1), dec("1.5", 2, 1)), Decimal("2.25")), (f("*", null(), 1), None),
    (f("*", dec("9999999999", 38, 10), dec("99999999999999999999", 38, 10)),
     Decimal("999999999899999999990000000001")),
    (f("*", dec("9" * 20, 38, 10), dec("9" * 20, 38, 10)), None),
    (f("/", 7, 2), 3.5), (f("/", 1, 0), None), (f("/", 1.0, 0.0), None), (f("/", 0.0, 0.0), None), (f("/", null(), 2), None),
    (f("/", dec("1.00", 10, 2), 3), Decimal("0.333333")), (f("/", dec("2.00", 10, 2), 3), Decimal("0.666667")),
    (f("/", dec("-2.00", 10, 2), 3), Decimal("-0.666667")), (f("/", dec("1.00", 10, 2), dec("0", 1, 0)), None),
    (f("%", 7, 3), 1), (f("%", -7, 3), -1), (f("%", 7, -3), 1), (f("%", 7, 0), None), (f("%", -7.5, 2.0), -1.5),
    (f("%", INF, 2.0), NAN), (f("%", 5.0, INF), 5.0), (f("%", 5.0, 0.0), None), (f("%", null(), 3), None),
    (f("%", dec("-7.5", 4, 1), dec("2.0", 4, 1)), Decimal("-1.5")), (f("%", dec("1", 1, 0), dec("0", 1, 0)), None),
    (f("pmod", -7, 3), 2), (f("pmod", 7, -3), 1), (f("pmod", -7, -3), -1), (f("pmod", 7, 0), None), (f("pmod", null(), 1), None),
    (f("pmod", -7.5, 2.0), 0.5), (f("pmod", dec("-7.5", 4, 1), dec("2.0", 4, 1)), Decimal("0.5")),
    (f("div", 7, 2), 3), (f("div", -7, 2), -3), (f("div", 7, 0), None), (f("div", LEAST, -1), None), (f("div", null(), 1), None),
    (f("neg", 5), -5), (f("neg", TINY), None), (f("neg", null()), None), (f("neg", dec("1.5", 2, 1)), Decimal("-1.5")), (f("neg", 0.5), -0.5),
    (f("abs", -5), 5), (f("abs", TINY), None), (f("abs", -0.5), 0.5), (f("abs", dec("-1.5", 2, 1)), Decimal("1.5")), (f("abs", null()), None),
]  # fmt: skip

NUMBERS: list[Case] = [
    (f("ceil", 1.2), 2), (f("ceil", -1.2), -1), (f("ceil", 5), 5), (f("ceil", dec("-3.5", 10, 2)), Decimal("-3")),
    (f("ceil", NAN), 0), (f("ceil", 1e30), None), (f("ceil", 2.0**63), None), (f("ceil", INF), None), (f("ceil", null(DOUBLE)), None),
    (f("floor", -1.2), -2), (f("floor", dec("-0.5", 3, 3)), Decimal("-1")), (f("floor", -1e30), None), (f("floor", -(2.0**63)), -(2**63)), (f("floor", NAN), 0),
    (f("floor", -INF), None), (f("floor", null(DOUBLE)), None),
    (f("round", 2.5), 3.0), (f("round", -2.5), -3.0), (f("round", 0.15, 1), 0.2), (f("round", 2.675, 2), 2.68),
    (f("round", NAN), NAN), (f("round", 7, 2), 7), (f("round", dec("2.345", 10, 3), 2), Decimal("2.35")),
    (f("round", dec("99.5", 3, 1)), Decimal("100")), (f("round", to(0.15, FLOAT), 1), 0.20000000298023224),
    (f("round", 1e300, 2), 1e300), (f("round", null(DOUBLE)), None),
    (f("sign", -3), -1.0), (f("sign", 0.0), 0.0), (f("sign", NAN), NAN), (f("sign", dec("2.5", 2, 1)), 1.0), (f("sign", null()), None),
    (f("sqrt", 9), 3.0), (f("sqrt", -1.0), NAN), (f("sqrt", null()), None),
    (f("exp", 0), 1.0), (f("exp", 1000.0), INF), (f("exp", null()), None),
    (f("ln", 1.0), 0.0), (f("ln", 0.0), None), (f("ln", -1.0), None), (f("ln", NAN), NAN), (f("ln", null()), None),
    (f("log10", 1000.0), 3.0), (f("log10", 0.0), None), (f("log10", null()), None),
    (f("log2", 8.0), 3.0), (f("log2", -1.0), None), (f("log2", null()), None),
    (f("pow", 2, 10), 1024.0), (f("pow", 0, -1), INF), (f("pow", 1.0, NAN), NAN), (f("pow", -1.0, INF), NAN),
    (f("pow", -8.0, 0.5), NAN), (f("pow", 10, 400), INF), (f("pow", -10, 401), -INF), (f("pow", NAN, 0), 1.0), (f("pow", null(), 1), None),
]  # fmt: skip

TEXTS: list[Case] = [
    (f("upper", "straße"), "STRASSE"), (f("upper", null(STRING)), None), (f("lower", "ÀB"), "àb"), (f("lower", null(STRING)), None),
    (f("trim", " \ta  "), "\ta"), (f("trim", null(STRING)), None), (f("ltrim", "  a "), "a "), (f("ltrim", null(STRING)), None),
    (f("rtrim", " a  "), " a"), (f("rtrim", null(STRING)), None),
    (f("reverse", "aé😀"), "😀éa"), (f("reverse", null(STRING)), None),
    (f("initcap", "hello wORLD-foo 1abc  x"), "Hello World-foo 1abc  X"), (f("initcap", "ßb a\tb"), "Ssb A\tb"), (f("initcap", null(STRING)), None),
    (f("length", "aé😀"), 3), (f("length", ""), 0), (f("length", null(STRING)), None),
    (f("concat", "a", "b", "c"), "abc"), (f("concat", "a", null(STRING)), None),
    (f("replace", "aaa", "a", "bb"), "bbbbbb"), (f("replace", "abc", "", "x"), "abc"), (f("replace", null(STRING), "", "x"), None),
    (f("translate", "abcab", "ab", "x"), "xcx"), (f("translate", "abcab", "aa", "12"), "1bc1b"), (f("translate", "a", null(STRING), "x"), None),
    (f("substring", "abc", 2), "bc"), (f("substring", "abc", 0, 2), "ab"), (f("substring", "abc", -2), "bc"),
    (f("substring", "abc", -5, 3), "a"), (f("substring", "abc", 2, -1), ""), (f("substring", "abc", -5), "abc"),
    (f("substring", "abc", 9), ""), (f("substring", "abc", null()), None), (f("substring", "abc", lit(2**40, BIGINT)), None),
    (f("left", "abc", 2), "ab"), (f("left", "abc", -1), ""), (f("left", null(STRING), 1), None),
    (f("right", "abc", 2), "bc"), (f("right", "abc", 0), ""), (f("right", "abc", 5), "abc"), (f("right", "abc", null()), None),
    (f("repeat", "ab", 2), "abab"), (f("repeat", "ab", -1), ""), (f("repeat", null(STRING), 2), None),
    (f("lpad", "abc", 8, "xy"), "xyxyxabc"), (f("lpad", "abc", 2, "x"), "ab"), (f("lpad", "abc", -2, "x"), ""), (f("lpad", "abc", 6, ""), "abc"), (f("lpad", "a", null(), "x"), None),
    (f("rpad", "abc", 8, "xy"), "abcxyxyx"), (f("rpad", "abc", 2, "x"), "ab"), (f("rpad", "abc", 6, ""), "abc"), (f("rpad", "a", null(), "x"), None),
    (f("split_part", "a,b,c", ",", 2), "b"), (f("split_part", "a,b,c", ",", -1), "c"), (f("split_part", "a,b,c", ",", 5), ""),
    (f("split_part", "a,b,c", ",", -4), ""), (f("split_part", "a,b,c", ",", 0), None), (f("split_part", "a,b", "", 1), "a,b"), (f("split_part", "a,b", null(STRING), 1), None),
    (f("instr", "abc", "c"), 3), (f("instr", "abc", "x"), 0), (f("instr", "abc", ""), 1), (f("instr", "abc", null(STRING)), None),
    (f("like", "abc", "a%"), True), (f("like", "abc", "a_"), False), (f("like", "a\nb", "a_b"), True), (f("like", "a%b", "a\\%b"), True),
    (f("like", "axb", "a\\%b"), False), (f("like", "a.c", "abc"), False), (f("like", null(STRING), "%"), None),
    (f("rlike", "abc", "b."), True), (f("rlike", "abc", "^b"), False), (f("rlike", "٣", "\\d"), False), (f("rlike", "ab", "(?<x>b)"), True), (f("rlike", null(STRING), "a"), None),
    (f("startswith", "abc", "ab"), True), (f("startswith", "abc", "b"), False), (f("startswith", "abc", null(STRING)), None),
    (f("endswith", "abc", "bc"), True), (f("endswith", "abc", ""), True), (f("endswith", null(STRING), "a"), None),
    (f("contains", "abc", "b"), True), (f("contains", "abc", "B"), False), (f("contains", "abc", null(STRING)), None),
]  # fmt: skip

LAST = ts("1969-12-31 23:59:59.999999")
FIRST_OF_FEBRUARY = ts("2026-02-01 10:05:06.789123")  # a Sunday

TIMES: list[Case] = [
    (f("year", LAST), 1969), (f("year", day("2026-02-01")), 2026), (f("year", null(DATE)), None), (f("year", lit(4 * 10**17, TIMESTAMP)), 14645),
    (f("quarter", day("2026-04-01")), 2), (f("quarter", day("2026-12-01")), 4), (f("quarter", null(DATE)), None),
    (f("month", LAST), 12), (f("month", null(DATE)), None), (f("day", LAST), 31), (f("day", null(DATE)), None),
    (f("dayofweek", FIRST_OF_FEBRUARY), 1), (f("dayofweek", day("2026-01-31")), 7), (f("dayofweek", null(DATE)), None),
    (f("dayofyear", day("2024-12-31")), 366), (f("dayofyear", null(DATE)), None),
    (f("hour", LAST), 23), (f("hour", day("2026-01-01")), 0), (f("hour", null(TIMESTAMP)), None),
    (f("minute", FIRST_OF_FEBRUARY), 5), (f("minute", null(TIMESTAMP)), None),
    (f("second", LAST), 59), (f("second", null(TIMESTAMP)), None),
    (f("date_trunc", "YEAR", FIRST_OF_FEBRUARY), parse_timestamp("2026-01-01")),
    (f("date_trunc", "quarter", ts("2026-06-01 10:00:00")), parse_timestamp("2026-04-01")),
    (f("date_trunc", "month", LAST), parse_timestamp("1969-12-01")),
    (f("date_trunc", "week", FIRST_OF_FEBRUARY), parse_timestamp("2026-01-26")),
    (f("date_trunc", "week", LAST), parse_timestamp("1969-12-29")),
    (f("date_trunc", "day", LAST), parse_timestamp("1969-12-31")),
    (f("date_trunc", "hour", FIRST_OF_FEBRUARY), parse_timestamp("2026-02-01 10:00:00")),
    (f("date_trunc", "minute", FIRST_OF_FEBRUARY), parse_timestamp("2026-02-01 10:05:00")),
    (f("date_trunc", "second", FIRST_OF_FEBRUARY), parse_timestamp("2026-02-01 10:05:06")),
    (f("date_trunc", "millisecond", LAST), parse_timestamp("1969-12-31 23:59:59.999")),
    (f("date_trunc", "day", day("2026-02-01")), parse_timestamp("2026-02-01")), (f("date_trunc", "day", null(TIMESTAMP)), None),
    (f("date_format", FIRST_OF_FEBRUARY, "yyyy-MM-dd HH:mm:ss.SSS"), "2026-02-01 10:05:06.789"),
    (f("date_format", FIRST_OF_FEBRUARY, "yyyy''MM'T o''clock'"), "2026'02T o'clock"),
    (f("date_format", day("2026-02-01"), "HH yyyy"), "00 2026"), (f("date_format", null(TIMESTAMP), "yyyy"), None),
    (f("unix_seconds", LAST), -1), (f("unix_seconds", null(TIMESTAMP)), None), (f("unix_millis", LAST), -1), (f("unix_millis", null(TIMESTAMP)), None),
    (f("unix_micros", LAST), -1), (f("unix_micros", day("1970-01-02")), DAY), (f("unix_micros", null(TIMESTAMP)), None),
    (f("timestamp_seconds", 5), 5_000_000), (f("timestamp_seconds", 99999999999999), None), (f("timestamp_seconds", null()), None),
    (f("timestamp_millis", -5), -5_000), (f("timestamp_millis", LARGEST), None), (f("timestamp_millis", null()), None),
    (f("timestamp_micros", 7), 7), (f("timestamp_micros", null()), None),
    (f("-", ts("2026-02-01 10:00:00"), ts("2026-02-01 09:00:00")), HOUR), (f("-", day("2026-02-01"), day("2026-01-01")), 31 * DAY),
    (f("-", day("2026-02-01"), ts("2026-01-31 23:00:00")), HOUR),
    (f("+", day("2026-01-31"), 1), parse_date("2026-02-01")), (f("-", day("2026-02-01"), 1), parse_date("2026-01-31")),
    (f("+", lit(2**31 - 1, DATE), 1), None),
    (f("+", LAST, lit(1, INTERVAL)), 0), (f("+", lit(1, INTERVAL), LAST), 0), (f("-", LAST, lit(HOUR, INTERVAL)), -HOUR - 1),
    (f("+", lit(2**63 - 1, TIMESTAMP), lit(1, INTERVAL)), None),
    (f("*", lit(HOUR, INTERVAL), 2), 2 * HOUR), (f("*", 2, lit(HOUR, INTERVAL)), 2 * HOUR), (f("*", lit(2**62, INTERVAL), 2), None),
    (f("+", lit(HOUR, INTERVAL), lit(DAY, INTERVAL)), DAY + HOUR), (f("neg", lit(HOUR, INTERVAL)), -HOUR),
]  # fmt: skip

CASTS: list[Case] = [
    (to(1e10, STRING), "1.0E10"), (to(1234567.0, STRING), "1234567.0"), (to(12345678.0, STRING), "1.2345678E7"), (to(0.001, STRING), "0.001"),
    (to(0.0001, STRING), "1.0E-4"), (to(NAN, STRING), "NaN"), (to(-INF, STRING), "-Infinity"), (to(0.0, STRING), "0.0"), (to(-2.5, STRING), "-2.5"),
    (to(to(0.1, FLOAT), STRING), "0.1"), (to(to(16777216, FLOAT), STRING), "1.6777216E7"), (to(lit(3.4028234663852886e38, FLOAT), STRING), "3.4028235E38"),
    (to(dec("0.0000001", 10, 8), STRING), "0.00000010"), (to(dec("5", 38, 10), STRING), "5.0000000000"), (to(True, STRING), "true"), (to(-7, STRING), "-7"),
    (to(ts("2026-01-31 12:30:00.12"), STRING), "2026-01-31 12:30:00.12"), (to(ts("2026-01-31"), STRING), "2026-01-31 00:00:00"),
    (to(lit(4 * 10**17, TIMESTAMP), STRING), "+14645-06-30 15:06:40"), (to(lit(-99999999999999999, TIMESTAMP), STRING), "-1199-02-15 14:13:20.000001"),
    (to(day("0099-01-01"), STRING), "0099-01-01"), (to(null(), STRING), None),
    (to(" 12 ", INT), 12), (to("\t+12\n", INT), 12), (to("1.5", INT), None), (to("", INT), None), (to("99999999999", INT), None), (to("1_000", INT), None),
    (to("300", TINYINT), None), (to("300", SMALLINT), 300), (to("9223372036854775807", BIGINT), 2**63 - 1),
    (to(" 1.5e3 ", DOUBLE), 1500.0), (to("1.0d", DOUBLE), 1.0), (to("inf", DOUBLE), INF), (to("-Infinity", DOUBLE), -INF), (to("nan", DOUBLE), NAN),
    (to("+nan", DOUBLE), None), (to(".5", DOUBLE), 0.5), (to("5.", DOUBLE), 5.0), (to("1e400", DOUBLE), INF), (to("x", DOUBLE), None), (to("0.1", FLOAT), 0.10000000149011612),
    (to("1.005", MONEY), Decimal("1.01")), (to(" 1e2 ", MONEY), Decimal(100)), (to("123456789.1", MONEY), None), (to("abc", MONEY), None), (to("1e999999", MONEY), None),
    (to("T", BOOLEAN), True), (to(" yes ", BOOLEAN), True), (to("0", BOOLEAN), False), (to("on", BOOLEAN), None),
    (to(1e30, INT), None), (to(2147483647.9, INT), 2147483647), (to(2147483648.0, INT), None), (to(-1.9, INT), -1), (to(NAN, INT), None), (to(INF, BIGINT), None),
    (to(2.0**63, BIGINT), 2**63 - 1), (to(9.3e18, BIGINT), None), (to(300, TINYINT), None), (to(dec("-1.9", 5, 1), INT), -1), (to(dec("99999999999", 20, 1), INT), None),
    (to(1.005, MONEY), Decimal("1.01")), (to(1e30, MONEY), None), (to(NAN, MONEY), None), (to(12345, decimal(4, 0)), None), (to(dec("1.25", 5, 2), decimal(5, 1)), Decimal("1.3")),
    (to(dec("99.95", 4, 2), decimal(3, 1)), None), (to(0.1, FLOAT), 0.10000000149011612), (to(1e300, FLOAT), INF), (to(dec("0.1", 2, 1), DOUBLE), 0.1),
    (to(True, INT), 1), (to(True, DOUBLE), 1.0), (to(True, decimal(5, 2)), Decimal(1)), (to(0.5, BOOLEAN), True), (to(0, BOOLEAN), False), (to(NAN, BOOLEAN), True),
    (to("2026", DATE), parse_date("2026-01-01")), (to("2026-3-5", DATE), parse_date("2026-03-05")), (to("2026-03-05 foo", DATE), parse_date("2026-03-05")),
    (to("2026-02-30", DATE), None), (to("20260305", DATE), None), (to("2026-03-05x", DATE), None), (to(ts("2026-03-05 23:00:00"), DATE), parse_date("2026-03-05")), (to(LAST, DATE), -1),
    (to("2026-03-05 1:2:3", TIMESTAMP), parse_timestamp("2026-03-05 01:02:03")), (to("2026-03-05 10:30", TIMESTAMP), parse_timestamp("2026-03-05 10:30:00")),
    (to("2026-03-05 10:30:15.1234567", TIMESTAMP), parse_timestamp("2026-03-05 10:30:15.123456")), (to("2026-03-05T10:30:15 +02:00", TIMESTAMP), parse_timestamp("2026-03-05 08:30:15")),
    (to("2026-03-05T10:30:15Z", TIMESTAMP), parse_timestamp("2026-03-05 10:30:15")), (to("2026-03-05 24:00:00", TIMESTAMP), None), (to("2026", TIMESTAMP), parse_timestamp("2026-01-01")),
    (to("2026-03-05 10:30:", TIMESTAMP), None), (to("2026-03-05 10:30 +01:00", TIMESTAMP), None), (to("2026-03-05 10:30:15 UTC-1", TIMESTAMP), parse_timestamp("2026-03-05 11:30:15")), (to(day("2026-03-05"), TIMESTAMP), parse_timestamp("2026-03-05")), (to("x", TIMESTAMP), None), (to(null(NULL), TIMESTAMP), None),
]  # fmt: skip

ALL: list[Case] = [
    *LOGIC,
    *COMPARISONS,
    *ARITHMETIC,
    *NUMBERS,
    *TEXTS,
    *TIMES,
    *CASTS,
]


def value_of(expr: Expr) -> Value:
    return compile_expr(expr, ())(())


@pytest.mark.parametrize(("expr", "expected"), ALL, ids=lambda part: str(part)[:60])
def test_value(expr: Expr, expected: Value) -> None:
    value = value_of(expr)
    assert value == expected or (value != value and expected != expected)
    assert type(value) is type(expected)


WIDE, FINE = null(decimal(38, 0)), null(decimal(38, 38))
TYPES: list[tuple[Expr | AggregateCall, Type]] = [
    (f("+", 1, null(FLOAT)), DOUBLE),
    (f("coalesce", null(BIGINT), null(FLOAT)), DOUBLE),
    (f("+", null(FLOAT), null(FLOAT)), FLOAT),
    (f("coalesce", WIDE, FINE), decimal(38, 0)),
    (f("+", WIDE, FINE), decimal(38, 6)),
    (f("*", null(BIGINT), null(decimal(38, 30))), decimal(38, 9)),
    (f("/", null(MONEY), null(MONEY)), decimal(23, 13)),
    (f("%", null(MONEY), 3), decimal(3, 2)),
    (f("round", null(decimal(38, 10)), 10), decimal(38, 10)),
    (build_aggregate("sum", null(decimal(38, 30))), decimal(38, 30)),
    (build_aggregate("avg", null(decimal(38, 30))), decimal(38, 34)),
    (build_aggregate("avg", null(decimal(38, 2))), decimal(38, 6)),
]


@pytest.mark.parametrize(("expr", "expected"), TYPES, ids=lambda part: str(part)[:60])
def test_type(expr: Expr | AggregateCall, expected: Type) -> None:
    assert expr.type == expected


def test_every_function_has_a_meaning_and_a_case() -> None:
    assert supported_functions() - {"cast"} == set(FUNCTIONS)
    assert {expr.name for expr, _ in ALL if hasattr(expr, "name")} >= set(FUNCTIONS)


def test_columns_are_found_whatever_their_case() -> None:
    columns = (Column("r", "A", INT), Column("s", "a", INT))
    difference = compile_expr(
        build_call("-", Column("S", "a", INT), Column("R", "a", INT)), columns
    )
    assert difference((1, 5)) == 4


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"no column r\.b; did you mean r\.a\?"):
        compile_expr(Column("r", "b", INT), (Column("r", "a", INT),))
