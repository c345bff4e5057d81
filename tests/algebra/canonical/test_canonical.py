"""Canonical form: equal for queries of equal meaning, different otherwise, and itself a query."""

from __future__ import annotations

import pytest

from headwater.algebra.canonical import canonicalize
from headwater.algebra.catalog import Namespace
from headwater.cql import parse, parse_query
from headwater.cql.statements import CreateStream, CreateTable

DECLARED = parse(
    """
    CREATE STREAM s (v INT, w INT, name STRING, p DECIMAL(10,2), d DOUBLE, ts TIMESTAMP)
      TIMESTAMP BY ts FROM CLIENT;
    CREATE STREAM r (v INT, w INT, name STRING, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;
    CREATE TABLE t (v INT, label STRING) FROM files(path => 't.csv', format => 'csv');
    """
)
NAMES = Namespace.of(
    statement.stream if isinstance(statement, CreateStream) else statement.table
    for statement in DECLARED
    if isinstance(statement, CreateStream | CreateTable)
)


def digest(text: str) -> str:
    return canonicalize(parse_query(text, NAMES)).digest


EQUAL = [
    ("spelling", "SELECT v FROM s", "select  V from S as x -- same"),
    ("constant on the left", "SELECT v FROM s WHERE v > 5", "SELECT v FROM s WHERE 5 < v"),
    ("linear", "SELECT v FROM s WHERE v > 5", "SELECT v FROM s WHERE v + 1 > 6"),
    ("integers", "SELECT v FROM s WHERE v > 5", "SELECT v FROM s WHERE v >= 6"),
    ("decimal bound", "SELECT v FROM s WHERE v > 5", "SELECT v FROM s WHERE v > 5.5"),
    (
        "outer join of which one side is not read",
        "SELECT r.w FROM (SELECT v AS x, w AS y FROM s [ROWS 2]) a LEFT JOIN r ON r.v > 3",
        "SELECT r.w FROM (SELECT w AS y, v AS x FROM s [ROWS 2]) a LEFT JOIN r ON r.v > 3",
    ),
    (
        "union of which nothing is read",
        "SELECT r.w FROM r, (SELECT v, w FROM s UNION ALL SELECT v, w FROM r) u",
        "SELECT r.w FROM r, (SELECT w, v FROM s UNION ALL SELECT w, v FROM r) u",
    ),
    (
        "conjuncts",
        "SELECT v FROM s WHERE v > 5 AND name = 'a'",
        "SELECT v FROM s WHERE name = 'a' AND v > 5",
    ),
    (
        "between",
        "SELECT v FROM s WHERE v BETWEEN 1 AND 9",
        "SELECT v FROM s WHERE v <= 9 AND v >= 1",
    ),
    ("in", "SELECT v FROM s WHERE v IN (3, 1, 3)", "SELECT v FROM s WHERE v = 1 OR v = 3"),
    ("not", "SELECT v FROM s WHERE NOT v > 5", "SELECT v FROM s WHERE v <= 5"),
    ("implied", "SELECT v FROM s WHERE v > 5 AND v > 3", "SELECT v FROM s WHERE v > 5"),
    ("aliases of outputs", "SELECT v, w FROM s", "SELECT w AS a, v AS b FROM s"),
    (
        "inputs that can be exchanged, below an outer join that compares one of them",
        "SELECT a.v AS x, b.v AS y, r.w FROM (s [NOW] a CROSS JOIN s [NOW] b) LEFT JOIN r ON a.v = r.v",
        "SELECT b.v AS x, a.v AS y, r.w FROM (s [NOW] a CROSS JOIN s [NOW] b) LEFT JOIN r ON b.v = r.v",
    ),
    (
        "inputs that can be exchanged, two levels down and on both sides",
        "SELECT d.x FROM (SELECT a.v AS x, b.v AS y, c.w AS z FROM (s a CROSS JOIN s b) LEFT JOIN"
        " (r c CROSS JOIN r e) ON a.w = e.w) AS d LEFT JOIN t ON d.y = t.v AND d.z = t.v",
        "SELECT d.x FROM (SELECT b.v AS x, a.v AS y, e.w AS z FROM (s a CROSS JOIN s b) LEFT JOIN"
        " (r c CROSS JOIN r e) ON b.w = c.w) AS d LEFT JOIN t ON t.v = d.z AND d.y = t.v",
    ),
    (
        "inputs that can be exchanged, in a branch of a union",
        "SELECT a.v, b.v AS y FROM s a, s b UNION ALL SELECT v, w FROM r",
        "SELECT b.v, a.v AS y FROM s a, s b UNION ALL SELECT v, w FROM r",
    ),
    (
        "columns of a union in another order",
        "SELECT a.v, b.v AS y FROM s a, s b UNION ALL SELECT v, w FROM r",
        "SELECT w, v FROM r UNION ALL SELECT a.v, b.v AS y FROM s a, s b",
    ),
    (
        "inputs that can be exchanged, inside EXISTS",
        "SELECT v FROM r WHERE EXISTS (SELECT 1 FROM (SELECT DISTINCT a.v AS x, b.v AS y FROM s a, s b)"
        " AS d WHERE d.x = r.v AND d.y < r.w)",
        "SELECT v FROM r WHERE EXISTS (SELECT 1 FROM (SELECT DISTINCT a.v AS x, b.v AS y FROM s a, s b)"
        " AS d WHERE d.y = r.v AND d.x < r.w)",
    ),
    (
        "sides of a full join",
        "SELECT a.v, b.w FROM s a FULL JOIN s b ON a.v < b.w",
        "SELECT a.v, b.w FROM s b FULL JOIN s a ON b.w > a.v",
    ),
    (
        "a chain of more inputs than there are orders to try",
        "SELECT a1.v FROM s a1, s a2, s a3, s a4, s a5, s a6, s a7, s a8 WHERE a1.v = a2.w AND a2.v = a3.w"
        " AND a3.v = a4.w AND a4.v = a5.w AND a5.v = a6.w AND a6.v = a7.w AND a7.v = a8.w",
        "SELECT a8.v FROM s a1, s a2, s a3, s a4, s a5, s a6, s a7, s a8 WHERE a8.v = a7.w AND a7.v = a6.w"
        " AND a6.v = a5.w AND a5.v = a4.w AND a4.v = a3.w AND a3.v = a2.w AND a2.v = a1.w",
    ),
    (
        "order of inputs",
        "SELECT s.v FROM s [RANGE 5 MIN], r [NOW] WHERE s.v = r.v",
        "SELECT a.v FROM r [NOW] b, s [RANGE 300 SECONDS] a WHERE b.v = a.v",
    ),
    (
        "join syntax",
        "SELECT s.v FROM s, r WHERE s.v = r.v AND s.w > 2",
        "SELECT s.v FROM s JOIN r ON s.v = r.v WHERE s.w > 2",
    ),
    (
        "equality classes",
        "SELECT s.v FROM s, r WHERE s.v = r.v AND s.v > 2",
        "SELECT r.v FROM s, r WHERE s.v = r.v AND r.v > 2",
    ),
    (
        "transitive equality",
        "SELECT 1 AS one FROM s a, s b, r WHERE a.v = b.v AND b.v = r.v",
        "SELECT 1 AS one FROM s a, s b, r WHERE a.v = r.v AND b.v = r.v",
    ),
    (
        "self-join",
        "SELECT a.v, b.w FROM s a, s b WHERE a.name = b.name AND a.v > 5",
        "SELECT x.v, y.w FROM s y, s x WHERE x.name = y.name AND x.v > 5",
    ),
    (
        "self-join, only outputs differ",
        "SELECT a.v, b.w FROM s a, s b WHERE a.name = b.name",
        "SELECT b.v, a.w FROM s a, s b WHERE a.name = b.name",
    ),
    (
        "subquery",
        "SELECT x.v FROM (SELECT v, w FROM s WHERE w > 1) x WHERE x.v > 2",
        "SELECT v FROM s WHERE v > 2 AND w > 1",
    ),
    (
        "with",
        "WITH x AS (SELECT v AS a FROM s) SELECT a FROM x WHERE a = 1",
        "SELECT v FROM s WHERE v = 1",
    ),
    (
        "having on a key",
        "SELECT v, COUNT(*) AS n FROM s GROUP BY v HAVING v > 3",
        "SELECT v, COUNT(*) AS n FROM s WHERE v > 3 GROUP BY v",
    ),
    (
        "having from outside",
        "SELECT v, n FROM (SELECT v, COUNT(*) AS n FROM s GROUP BY v) x WHERE n > 3",
        "SELECT v, COUNT(*) AS n FROM s GROUP BY v HAVING COUNT(*) >= 4",
    ),
    (
        "order of keys",
        "SELECT v, w, SUM(v) AS a FROM s GROUP BY v, w",
        "SELECT SUM(v) AS a, w, v FROM s GROUP BY w, v",
    ),
    ("count of what is never null", "SELECT COUNT(ts) AS n FROM s", "SELECT COUNT(*) AS n FROM s"),
    (
        "in and exists",
        "SELECT v FROM s WHERE v IN (SELECT v FROM r [NOW])",
        "SELECT v FROM s WHERE EXISTS (SELECT 1 FROM r [NOW] x WHERE x.v = s.v)",
    ),
    (
        "distinct in a subquery of in",
        "SELECT v FROM s WHERE v IN (SELECT DISTINCT v FROM r)",
        "SELECT v FROM s WHERE v IN (SELECT v FROM r)",
    ),
    (
        "distinct over all keys",
        "SELECT DISTINCT v, COUNT(*) AS n FROM s GROUP BY v",
        "SELECT v, COUNT(*) AS n FROM s GROUP BY v",
    ),
    (
        "union branches",
        "SELECT v, w FROM s UNION ALL SELECT v, w FROM r",
        "SELECT w, v FROM r UNION ALL SELECT w, v FROM s",
    ),
    (
        "unused column of a subquery, where all rows are emitted",
        "RSTREAM(SELECT n FROM (SELECT v, COUNT(*) AS n, SUM(w) AS m FROM s GROUP BY v) x)",
        "RSTREAM(SELECT COUNT(*) AS n FROM s GROUP BY v)",
    ),
    (
        "time difference",
        "SELECT s.v FROM s, r WHERE s.ts - r.ts <= INTERVAL 5 MINUTES",
        "SELECT s.v FROM s, r WHERE r.ts >= s.ts - INTERVAL 5 MINUTES",
    ),
    ("istream is the default", "SELECT v FROM s", "ISTREAM(SELECT v FROM s)"),
    ("now", "SELECT v FROM s [NOW]", "SELECT v FROM s [RANGE 0 SECONDS]"),
    ("unbounded", "SELECT v FROM s", "SELECT v FROM s [RANGE UNBOUNDED]"),
]

DIFFERENT = [
    (
        "which of two equal inputs an outer join compares",
        "SELECT a.v AS x, a.w FROM (s [NOW] a CROSS JOIN s [NOW] b) LEFT JOIN r ON a.v = r.v",
        "SELECT a.v AS x, a.w FROM (s [NOW] a CROSS JOIN s [NOW] b) LEFT JOIN r ON b.v = r.v",
    ),
    (
        "which column of a union is beside which",
        "SELECT a.v, b.w AS y FROM s a, s b UNION ALL SELECT v, w FROM r",
        "SELECT a.v, b.w AS y FROM s a, s b UNION ALL SELECT w, v FROM r",
    ),
    ("constant", "SELECT v FROM s WHERE v > 5", "SELECT v FROM s WHERE v > 6"),
    ("doubles round", "SELECT v FROM s WHERE d > 5", "SELECT v FROM s WHERE d + 1 > 6"),
    ("window", "SELECT v FROM s [RANGE 5 MIN]", "SELECT v FROM s [RANGE 6 MIN]"),
    ("slide", "SELECT v FROM s [RANGE 5 MIN]", "SELECT v FROM s [RANGE 5 MIN SLIDE 1 MIN]"),
    ("output", "SELECT v FROM s [NOW]", "DSTREAM(SELECT v FROM s [NOW])"),
    ("column", "SELECT v FROM s", "SELECT w FROM s"),
    ("stream", "SELECT v FROM s", "SELECT v FROM r"),
    ("text or number", "SELECT 1 AS a FROM s", "SELECT '1' AS a FROM s"),
    ("number types", "SELECT 1 AS a FROM s", "SELECT 1.0 AS a FROM s"),
    ("and or", "SELECT v FROM s WHERE v = 1 AND w = 1", "SELECT v FROM s WHERE v = 1 OR w = 1"),
    ("null", "SELECT v FROM s WHERE v IS NOT NULL", "SELECT v FROM s"),
    ("not in", "SELECT v FROM s WHERE v IN (1, 2)", "SELECT v FROM s WHERE v NOT IN (1, 2)"),
    (
        "windows swapped between streams",
        "SELECT s.v FROM s [RANGE 5 MIN], r [NOW] WHERE s.v = r.v",
        "SELECT s.v FROM s [NOW], r [RANGE 5 MIN] WHERE s.v = r.v",
    ),
    (
        "self-join, other side emitted",
        "SELECT a.v FROM s a, s b WHERE a.name = b.name AND a.v > 5",
        "SELECT b.v FROM s a, s b WHERE a.name = b.name AND a.v > 5",
    ),
    (
        "left and inner",
        "SELECT s.v FROM s LEFT JOIN r ON s.v = r.v",
        "SELECT s.v FROM s JOIN r ON s.v = r.v",
    ),
    (
        "condition inside and above an outer join",
        "SELECT s.v FROM s LEFT JOIN r ON s.v = r.v AND r.w > 1",
        "SELECT s.v FROM s LEFT JOIN r ON s.v = r.v WHERE r.w > 1",
    ),
    ("distinct", "SELECT DISTINCT v FROM s", "SELECT v FROM s"),
    ("key", "SELECT COUNT(*) AS n FROM s GROUP BY v", "SELECT COUNT(*) AS n FROM s GROUP BY w"),
    ("global", "SELECT COUNT(*) AS n FROM s GROUP BY v", "SELECT COUNT(*) AS n FROM s"),
    (
        "having is not where",
        "SELECT MAX(v) AS m FROM s GROUP BY w HAVING MAX(v) > 3",
        "SELECT MAX(v) AS m FROM s WHERE v > 3 GROUP BY w",
    ),
    (
        "having on a constant group",
        "SELECT COUNT(*) AS n FROM s HAVING COUNT(*) > 0",
        "SELECT COUNT(*) AS n FROM s",
    ),
    (
        "unused column of a subquery, where changes are emitted",
        "SELECT n FROM (SELECT v, COUNT(*) AS n, SUM(w) AS m FROM s GROUP BY v) x",
        "SELECT COUNT(*) AS n FROM s GROUP BY v",
    ),
    ("count of what may be null", "SELECT COUNT(v) AS n FROM s", "SELECT COUNT(*) AS n FROM s"),
    ("sum distinct", "SELECT SUM(v) AS n FROM s", "SELECT SUM(DISTINCT v) AS n FROM s"),
    (
        "rows window then filter",
        "SELECT v FROM s [ROWS 5] WHERE v > 1",
        "SELECT v FROM s [ROWS 6] WHERE v > 1",
    ),
    (
        "exists and not exists",
        "SELECT v FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.v = s.v)",
        "SELECT v FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.v = s.v)",
    ),
    (
        "not in minds nulls",
        "SELECT v FROM s WHERE v NOT IN (SELECT v FROM r)",
        "SELECT v FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.v = s.v)",
    ),
    (
        "union columns crossed in one branch",
        "SELECT v, w FROM s UNION ALL SELECT v, w FROM r",
        "SELECT v, w FROM s UNION ALL SELECT w, v FROM r",
    ),
    ("table", "SELECT t.v FROM s, t WHERE s.v = t.v", "SELECT s.v FROM s, r AS t WHERE s.v = t.v"),
]


@pytest.mark.parametrize("one, other", [c[1:] for c in EQUAL], ids=[c[0] for c in EQUAL])
def test_equal_queries_have_one_digest(one: str, other: str) -> None:
    assert (
        canonicalize(parse_query(one, NAMES)).text == canonicalize(parse_query(other, NAMES)).text
    )
    assert digest(one) == digest(other)


@pytest.mark.parametrize("one, other", [c[1:] for c in DIFFERENT], ids=[c[0] for c in DIFFERENT])
def test_different_queries_have_two(one: str, other: str) -> None:
    assert digest(one) != digest(other)


def test_names_and_order_of_outputs_are_kept_apart() -> None:
    canonical = canonicalize(parse_query("SELECT w AS b, v AS a, w AS c FROM s", NAMES))
    assert canonical.columns == (("b", 1), ("a", 0), ("c", 1))
    assert [c.name for c in canonical.query.columns] == ["c0", "c1"]


@pytest.mark.parametrize("other", ["d", "i", "b"])
def test_a_condition_on_a_difference_of_floating_numbers(other: str) -> None:
    """Such a difference is rounded, so nothing is concluded from it; it was a crash once."""
    _, statement = parse(
        "CREATE STREAM f (d DOUBLE, e DOUBLE, i INT, b BIGINT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;"
        f"SELECT d FROM f [NOW] WHERE e - {other} > 1 AND {other} - e < 5"
    )
    assert canonicalize(statement.query).digest
