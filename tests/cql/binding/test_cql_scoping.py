"""What a name in a nested query stands for, judged by DuckDB and by Spark, which share no binder with
the evaluator and the runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, parse_query, unparse
from headwater.cql.statements import CreateStream
from headwater.errors import CqlError
from headwater.reference import evaluate
from scoping_texts import COLUMNS, DECLARED, rows, scoping_texts

NAMES = Namespace.of(s.stream for s in parse(DECLARED) if isinstance(s, CreateStream))
QUICK = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
Data = dict[str, list[Any]]
DATA: Data = {
    "s": [(0, 1), (1, 2), (2, 2), (2, 3), (None, 3)],
    "t": [(0, 0), (1, 3), (2, None), (3, 1), (2, 2)],
}
CLASHES = [
    "SELECT s.u FROM s WHERE NOT EXISTS (SELECT * FROM s AS e WHERE e.u = s.u AND e.v > s.v)",
    "SELECT s.u FROM s WHERE s.v IN (SELECT e.u FROM s AS e WHERE e.v > s.v)",
    "SELECT s.u FROM s WHERE s.v NOT IN (SELECT t.u FROM s AS t WHERE t.u IS NOT NULL AND t.v = s.u)",
    "SELECT u FROM s WHERE EXISTS (SELECT 1 FROM t AS s WHERE s.w = v)",
    "SELECT u FROM s WHERE EXISTS (SELECT 1 FROM t AS s WHERE s.w = s.v)",
    "SELECT u FROM s AS t WHERE EXISTS (SELECT 1 FROM t AS s, t AS e WHERE s.w = v AND e.u = t.v)",
    "SELECT s.u FROM s JOIN t USING (u) WHERE EXISTS (SELECT 1 FROM t AS s WHERE s.w = v)",
    "WITH s AS (SELECT u, w AS v FROM t) SELECT s.v FROM s WHERE EXISTS (SELECT 1 FROM s AS e"
    " WHERE e.v > s.v)",
    "WITH s AS (SELECT u, v FROM s WHERE v > 1) SELECT s.u FROM s JOIN t AS e ON s.u = e.u",
    "WITH s AS (SELECT u FROM t) SELECT x.u FROM (WITH s AS (SELECT u FROM s WHERE u > 1)"
    " SELECT s.u FROM s) AS x WHERE EXISTS (SELECT 1 FROM t AS x WHERE x.u = w)",
    "SELECT t.v FROM s AS t JOIN t AS s ON t.u = s.u",
    "SELECT t.u FROM (SELECT s.v AS u FROM s) AS t WHERE EXISTS (SELECT 1 FROM t AS e WHERE e.u = t.u)",
]
REFUSED = [
    ("SELECT s.u FROM s AS e", "no stream or alias s in this FROM"),
    ("SELECT s.* FROM s AS e", "no stream or alias s in this FROM"),
    ("SELECT a.u FROM s AS a JOIN s AS b ON s.u = b.u", "no stream or alias s in this FROM"),
    (
        "SELECT e.u FROM s AS e WHERE EXISTS (SELECT 1 FROM t WHERE t.u = s.u)",
        "no stream or alias s",
    ),
    ("SELECT c.u FROM (SELECT u FROM s) AS c WHERE s.u = 1", "no stream or alias s in this FROM"),
    ("WITH c AS (SELECT u FROM s) SELECT s.u FROM c", "no stream or alias s in this FROM"),
]


def answer(text: str, data: Data) -> list[Any] | CqlError:
    """The rows at the one instant at which all tuples happen, or why there are none."""
    try:
        query = parse_query(f"RSTREAM({text})", NAMES)
    except CqlError as refusal:
        return refusal
    written = canonicalize(parse_query(unparse(query), NAMES))
    assert written.digest == canonicalize(query).digest
    streams = {name: [(*row, 0) for row in rows] for name, rows in data.items()}
    return sorted((result.values for result in evaluate(query, streams)), key=repr)


@cache
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def duckdb_answer(text: str, data: Data) -> list[Any] | duckdb.Error:
    for name, columns in COLUMNS.items():
        declared = ", ".join(f"{column} INT" for column in columns)
        connection().execute(f"CREATE OR REPLACE TABLE {name} ({declared}, ts TIMESTAMP)")
        connection().executemany(f"INSERT INTO {name} VALUES (?, ?, '1970-01-01')", data[name])
    try:
        return sorted(connection().execute(text).fetchall(), key=repr)
    except duckdb.Error as refusal:
        return refusal


def check_against_duckdb(text: str, data: Data) -> None:
    """Whoever answers, answers the same. DuckDB does not look at a WITH that is not used."""
    ours, theirs = answer(text, data), duckdb_answer(text, data)
    note(f"{text}\n{ours}\n{theirs}")
    if isinstance(ours, list):
        assert ours == theirs
    elif isinstance(theirs, list):
        assert "ambiguous" in str(ours) and "WITH" in text


@pytest.mark.parametrize("text", CLASHES)
def test_names_that_clash(text: str) -> None:
    ours = answer(text, DATA)
    assert isinstance(ours, list) and ours
    assert ours == duckdb_answer(text, DATA)


@pytest.mark.parametrize("text, message", REFUSED)
def test_an_alias_hides_the_name(text: str, message: str) -> None:
    assert message in str(answer(text, DATA))
    assert isinstance(duckdb_answer(text, DATA), duckdb.Error)


@given(scoping_texts(), rows())
@settings(QUICK, max_examples=150)
def test_names_are_duckdbs(text: str, data: Data) -> None:
    check_against_duckdb(text, data)


@pytest.mark.slow
@given(scoping_texts(), rows())
@settings(QUICK, max_examples=5_000)
def test_names_are_duckdbs_in_the_long_run(text: str, data: Data) -> None:
    check_against_duckdb(text, data)


@pytest.mark.spark
def test_names_are_sparks(spark: Any) -> None:
    """Spark answers what we answer, and refuses what we refuse; all questions go to one session."""
    for name, columns in COLUMNS.items():
        schema = "".join(f"{column} INT, " for column in columns) + "ts INT"
        frame = spark.createDataFrame([(*row, 0) for row in DATA[name]], schema)
        frame.createOrReplaceTempView(name)
    try:
        for text in [*CLASHES, *(text for text, _ in REFUSED)]:
            check_against_spark(spark, text)

        @given(st.lists(scoping_texts(), min_size=25, max_size=25))
        @settings(QUICK, max_examples=1)
        def some(texts: list[str]) -> None:
            for text in texts:
                check_against_spark(spark, text)

        some()
    finally:
        for name in COLUMNS:
            spark.catalog.dropTempView(name)


def check_against_spark(spark: Any, text: str) -> None:
    from pyspark.errors import AnalysisException

    ours = answer(text, DATA)
    try:
        theirs = sorted((tuple(row) for row in spark.sql(text).collect()), key=repr)
    except AnalysisException as refusal:
        assert isinstance(ours, CqlError), (text, refusal)
        return
    assert ours == theirs, text


def test_a_misspelt_column_of_the_enclosing_query_is_named() -> None:
    """The relation is there; only its column is not."""
    with pytest.raises(CqlError, match=r"no column vv in e[\s\S]*did you mean v\?"):
        parse_query("SELECT u FROM s AS e WHERE EXISTS (SELECT * FROM t WHERE t.u = e.vv)", NAMES)
    with pytest.raises(CqlError, match="no stream or alias x in this FROM"):
        parse_query("SELECT u FROM s AS e WHERE EXISTS (SELECT * FROM t WHERE t.u = x.v)", NAMES)
    with pytest.raises(CqlError, match="no stream or alias e in this FROM"):
        parse_query("SELECT e.u FROM s AS e, (SELECT t.u FROM t WHERE t.u = e.vv) AS n", NAMES)
