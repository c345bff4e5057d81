"""Every function with extreme arguments: Spark gives what the reference evaluator gives, and nothing
that is accepted fails there. Patterns and formats are compared with Java itself."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from headwater.algebra.expressions import Column, Expr, Literal
from headwater.algebra.functions import FUNCTIONS, build_call, cast
from headwater.algebra.patterns import FORMAT_PARTS, compile_regex, like_parts
from headwater.algebra.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    Type,
    decimal,
)
from headwater.errors import AlgebraError
from headwater.reference.scalar import compile_expr
from headwater.reference.values import normalize_row
from headwater.runtime.spark.sql import expression_sql, quote_identifier, quote_text, spark_type

LONG = decimal(38, 6)
TYPES = {
    "i": INT, "j": INT, "l": BIGINT, "m": BIGINT, "x": DOUBLE, "p": LONG, "b": BOOLEAN,
    "s": STRING, "r": STRING, "t": TIMESTAMP, "u": TIMESTAMP, "d": DATE, "v": INTERVAL,
}  # fmt: skip
COLUMNS = [Column("", name, type_) for name, type_ in TYPES.items()]
EXTREMES: dict[Type, list[Any]] = {
    INT: [0, 1, -1, 7, 2**31 - 1, -(2**31), None],
    BIGINT: [0, 1, -1, 2**31, -(2**31) - 1, 2**32 + 1, 2**63 - 1, -(2**63), 9_223_372_036_854, None],
    DOUBLE: [0.0, 1.5, -2.5, 1e308, -1e308, 1e-300, 1e19, float("nan"), float("inf"), None],
    LONG: [Decimal("0"), Decimal("1.5"), Decimal("-" + "9" * 32), Decimal("9" * 32), None],
    BOOLEAN: [True, False, None],
    STRING: ["", "a", "aaaa", "%_\\", "é ü", "a\nb", "y" * 2_000, "y" * 600_000, "2026-01-01", None],
    TIMESTAMP: [0, 1, -1, 1_793_534_421_458_000, 2**63 - 1, -(2**63), -(2**63) + 86_400_000_000, None],
    DATE: [0, -1, 20_000, 2**31 - 1, -(2**31), 106_751_991, 106_751_992, -106_751_992, None],
    INTERVAL: [0, 1, -1, 86_400_000_000, 2**63 - 1, -(2**63), None],
}  # fmt: skip
CONSTANTS = [
    Literal(0, INT), Literal(-1, INT), Literal(3, INT), Literal(1_000_000, INT), Literal(-(2**31), INT),
    Literal(-1, BIGINT), Literal("a", STRING), Literal("", STRING), Literal("yy", STRING),
    Literal("week", STRING), Literal("YEAR", STRING), Literal("%a%_%y%", STRING), Literal("EEE h", STRING),
]  # fmt: skip
INEXACT = ("exp", "ln", "log10", "log2", "pow", "sqrt")
"""Where the last digit is the library's."""


def data(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows of extremes; every extreme of every column occurs. Spark takes minutes for a separator of
    many characters, so only one of the texts is very long."""
    values = {name: EXTREMES[type_] for name, type_ in TYPES.items()}
    values["r"] = [text for text in EXTREMES[STRING] if text is None or len(text) <= 2_000]
    return [
        tuple(some[n] if n < len(some) else rng.choice(some) for some in values.values())
        for n in range(count)
    ]


def calls(rng: random.Random, most: int) -> Iterator[Expr]:
    """Some calls of every function, and of a function in a function."""
    args: list[Expr] = [*COLUMNS, *CONSTANTS]
    for name, function in FUNCTIONS.items():
        found: list[Expr] = []
        for _ in range(4_000):
            arity = rng.randint(function.min_args, min(function.max_args or 3, 3))
            try:
                found.append(build_call(name, *rng.choices(args, k=arity)))
            except AlgebraError:
                continue
            if len(found) == most:
                break
        assert found or name in ("case",), f"no call of {name} was found"
        yield from found
        texts = [expr for expr in found if expr.type == STRING][:2]
        yield from (build_call("repeat", text, COLUMNS[0]) for text in texts)
        pad = Literal("é", STRING)
        yield from (
            build_call("concat", text, build_call("lpad", text, COLUMNS[1], pad)) for text in texts
        )
    for source, target in product(COLUMNS, dict.fromkeys(TYPES.values())):
        try:
            yield cast(source, target)
        except AlgebraError:
            continue


def shown(type_: Type, text: str) -> str:
    """A value as what Python can hold; long texts by their length."""
    if type_ == TIMESTAMP:
        return f"unix_micros({text})"
    if type_ == DATE:
        return f"unix_date({text})"
    if type_ == STRING:
        return f"CASE WHEN length({text}) > 300 THEN concat('#', length({text})) ELSE {text} END"
    return text


def expected(expr: Expr, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    function = compile_expr(expr, COLUMNS)
    values = [function(row) for row in rows]
    return [f"#{len(v)}" if isinstance(v, str) and len(v) > 300 else v for v in values]


def near(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and one == one and other == other:
        return one == other or abs(one - other) <= 1e-12 * max(abs(one), abs(other))
    return normalize_row((one,)) == normalize_row((other,))


def load(spark: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    literals = (
        ", ".join(
            expression_sql(Literal(v, t), quote_identifier)
            for v, t in zip(row, TYPES.values(), strict=True)
        )
        for row in rows
    )
    names = ", ".join(TYPES)
    values = ", ".join(f"({n}, {row})" for n, row in enumerate(literals))
    casts = ", ".join(f"CAST({name} AS {spark_type(t)}) AS {name}" for name, t in TYPES.items())
    text = f"SELECT n, {casts} FROM VALUES {values} AS extremes(n, {names})"
    spark.sql(text).cache().createOrReplaceTempView("extremes")


def on_spark(spark: Any, exprs: Sequence[Expr]) -> list[list[Any]]:
    columns = (shown(e.type, expression_sql(e, lambda c: quote_identifier(c.name))) for e in exprs)
    listed = ", ".join(f"{column} AS c{n}" for n, column in enumerate(columns))
    rows = spark.sql(f"SELECT {listed} FROM extremes ORDER BY n").collect()
    return [list(column) for column in zip(*map(tuple, rows), strict=True)]


@pytest.mark.spark
def test_every_function_has_a_value_for_extremes(spark: Any) -> None:
    rng = random.Random(8)
    rows = data(rng, 24)
    load(spark, rows)
    try:
        differ = []
        exprs = list(dict.fromkeys(calls(rng, 6)))
        for start in range(0, len(exprs), 60):
            some = exprs[start : start + 60]
            for expr, found in zip(some, on_spark(spark, some), strict=True):
                for row, one, other in zip(rows, found, expected(expr, rows), strict=True):
                    if not near(one, other):
                        differ.append(f"{expr}: Spark {one!r}, reference {other!r}, {row!r}"[:600])
        assert not differ, "\n".join(differ[:40])
    finally:
        spark.catalog.dropTempView("extremes")


@pytest.mark.spark
def test_whether_a_chain_overflows_depends_on_its_order(spark: Any) -> None:
    """Sums, differences and products of a column and two constants, some alike but for the order: Spark
    must neither gather the constants nor take one chain for another."""
    rng = random.Random(9)
    rows = data(rng, 24)
    values: dict[str, tuple[Any, ...]] = {
        "i": (2**31 - 1, -(2**31), -1, 2, 0),
        "l": (2**63 - 1, -(2**63), -1, 2, 0),
        "x": (1e16, -1e16, 0.1, 1e308, -1e308),
        "p": (
            Decimal("9" * 32),
            Decimal("-" + "9" * 32),
            Decimal("0.000001"),
            Decimal(2),
            Decimal(0),
        ),
    }
    chains = []
    for name, some in values.items():
        type_ = TYPES[name]
        constants = [Literal(value, type_) for value in some]
        for one, other, c, d in product("+-*", "+-*", constants, constants):
            column = Column("", name, type_)
            chains.append(build_call(other, build_call(one, column, c), d))
            chains.append(build_call(other, d, build_call(one, c, column)))
    gathered = "+", build_call("+", COLUMNS[0], Literal(2**31 - 1, INT)), Literal(-(2**31) + 1, INT)
    chains = [build_call(*gathered), *rng.sample(chains, 299)]
    load(spark, rows)
    try:
        found = on_spark(spark, chains)
    finally:
        spark.catalog.dropTempView("extremes")
    wanted = [expected(chain, rows) for chain in chains]
    differ = [
        f"{chain} of {row}: Spark {one!r}, reference {other!r}"
        for chain, *columns in zip(chains, found, wanted, strict=True)
        for row, one, other in zip(rows, *columns, strict=True)
        if not near(one, other)
    ]
    assert not differ, "\n".join(differ[:40])
    assert {value is None for column in wanted for value in column} == {True, False}


# ---- patterns


@pytest.mark.spark
def test_like_is_sparks(spark: Any) -> None:
    """All short patterns, on texts that they may match."""
    texts = ["", "a", "b", "ab", "a\nb", "%", "_", "\\", "a%", "aab", "\\a", "baab"]
    patterns = ["".join(p) for n in range(5) for p in product("a%_\\", repeat=n)]
    patterns += ["%a%b%", "a%a%b", "%a%_%b%a", "%%%%", "%a\\%%b%_", "%b%b%b%b"]
    accepted = []
    for pattern in patterns:
        try:
            like_parts(pattern)
        except AlgebraError:
            continue
        accepted.append(pattern)
    column = Column("", "s", STRING)
    tests = [build_call("like", column, Literal(pattern, STRING)) for pattern in accepted]
    values = ", ".join(f"({n}, {quote_text(text)})" for n, text in enumerate(texts))
    for start in range(0, len(tests), 100):
        some = tests[start : start + 100]
        listed = ", ".join(
            expression_sql(test, lambda c: quote_identifier(c.name)) for test in some
        )
        rows = spark.sql(f"SELECT {listed} FROM VALUES {values} AS x(n, s) ORDER BY n").collect()
        for text, row in zip(texts, rows, strict=True):
            wanted = [compile_expr(test, [column])((text,)) for test in some]
            assert list(row) == wanted, (text, accepted[start : start + 100])


PIECES = [
    *"ab.^$|()[]{}*+?\\-,&", "[a-c]", "[^ab]", r"\d", r"\w", r"\s", r"\.", r"[\d.-]", "(?:", "(?<x>", "(?i)",
    "{2}", "{1,3}", "{2,}", "{,2}", "*?", "++", "?+", r"\b", r"\1", r"\Q", r"\x41", r"\p{L}", "(?=a)", "é", "A", "\n",
    "[a&&b]", "[[a]", "[]a]", r"\-", r"\]", "a+", "b*", "(ab)?", "(a|b){2}",
]  # fmt: skip
SEARCHED = [
    "",
    "a",
    "ab",
    "abba",
    "A.b",
    "a\n",
    "ab\r\n",
    "\na",
    "é",
    "1 b",
    "-",
    "a{2}",
    "aab\u2028",
    "b]",
]


def random_patterns(count: int) -> list[str]:
    rng = random.Random(15)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 6))) for _ in range(count)]


@pytest.mark.spark
def test_regular_expressions_are_javas(spark: Any) -> None:
    """Java reads every pattern that is accepted, and finds with it what the evaluator finds."""
    java = spark._jvm.java.util.regex.Pattern
    accepted = 0
    for pattern in random_patterns(3_000):
        try:
            ours = compile_regex(pattern)
        except AlgebraError:
            continue
        accepted += 1
        if accepted > 400:
            break
        theirs = java.compile(pattern)
        for text in SEARCHED:
            found = theirs.matcher(text).find()
            assert found == (ours.search(text) is not None), (pattern, text)
    assert accepted > 300


@pytest.mark.spark
def test_formats_are_sparks(spark: Any) -> None:
    rng = random.Random(16)
    letters = [chr(n) for n in (*range(65, 91), *range(97, 123))]
    pieces = [*FORMAT_PARTS * 4, *"-:/ .,é1T", "'T'", "''", "'o''clock'", *"[]{}#'"]
    pieces += [letter * rng.randint(1, 8) for letter in letters]
    times = [0, -1, 1_793_534_421_458_123, 951_782_400_000_000, -62_135_596_800_000_001, 2**62]
    column = Column("", "t", TIMESTAMP)
    tests = []
    while len(tests) < 250:
        text = "".join(rng.choices(pieces, k=rng.randint(1, 5)))
        try:
            tests.append(build_call("date_format", column, Literal(text, STRING)))
        except AlgebraError:
            continue
    values = ", ".join(f"({n}, timestamp_micros({time}L))" for n, time in enumerate(times))
    for start in range(0, len(tests), 125):
        some = tests[start : start + 125]
        listed = ", ".join(
            expression_sql(test, lambda c: quote_identifier(c.name)) for test in some
        )
        rows = spark.sql(f"SELECT {listed} FROM VALUES {values} AS x(n, t) ORDER BY n").collect()
        for time, row in zip(times, rows, strict=True):
            for test, found in zip(some, row, strict=True):
                assert found == compile_expr(test, [column])((time,)), (str(test), time)
