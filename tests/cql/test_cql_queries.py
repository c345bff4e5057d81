"""Queries: the relations they become, how they are written out, and how they are drawn."""

from __future__ import annotations

import pytest
from cql_texts import NAMES

from golden import Case, cases, rewrite
from headwater.algebra.catalog import Stream, Table
from headwater.algebra.expressions import Column, Expr, literal
from headwater.algebra.functions import build_aggregate, build_call
from headwater.algebra.nodes import (
    Aggregate,
    Distinct,
    Item,
    Join,
    OuterJoin,
    Output,
    Project,
    Query,
    Relation,
    Scan,
    Select,
    SemiJoin,
    TableScan,
    UnionAll,
)
from headwater.algebra.types import BIGINT, INT, STRING
from headwater.algebra.windows import NOW, UNBOUNDED, UNITS, Range, Window
from headwater.cql import parse_query, tree, unparse


def drawn(case: Case) -> str:
    query = parse_query(case.input, NAMES)
    return "\n".join([unparse(query), "", *tree(query)])


CASES = cases("cql/queries.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_written_out_and_drawn(case: Case, update_golden: bool) -> None:
    if not update_golden:
        assert drawn(case) == case.outcome


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_reads_back(case: Case) -> None:
    query = parse_query(case.input, NAMES)
    assert parse_query(unparse(query), NAMES) == query


def test_golden_queries_are_written_again(update_golden: bool) -> None:
    if update_golden:
        rewrite("cql/queries.txt", drawn)


# ---- shapes, built by hand


def scan(name: str, alias: str = "", window: Window = UNBOUNDED) -> Scan:
    stream = NAMES[name]
    assert isinstance(stream, Stream)
    return stream.scan(window, alias)


def table(name: str, alias: str = "") -> TableScan:
    found = NAMES[name]
    assert isinstance(found, Table)
    return found.scan(alias)


def column(relation: Relation, name: str) -> Column:
    return next(c for c in relation.columns if c.name == name)


def root(text: str) -> Relation:
    return parse_query(text, NAMES).root


def project(relation: Relation, alias: str = "", **items: Expr) -> Project:
    return Project(relation, tuple(Item(name, expr) for name, expr in items.items()), alias)


FLIGHTS, BAGGAGE, WEATHER = scan("flights"), scan("baggage"), scan("weather")
NUM, GATE = column(FLIGHTS, "num"), column(FLIGHTS, "gate")
FLIGHT, AREA = column(BAGGAGE, "flight"), column(BAGGAGE, "area")


def test_a_block_from_top_to_bottom() -> None:
    text = (
        "SELECT DISTINCT gate, SUM(num) + 1 AS n FROM flights"
        " WHERE num > 5 AND num IN (SELECT flight FROM baggage)"
        " GROUP BY gate HAVING COUNT(*) > 2"
    )
    where = Select(FLIGHTS, build_call(">", NUM, literal(5)))
    semi = SemiJoin(
        where,
        project(BAGGAGE, "$exists0", c0=FLIGHT),
        build_call("=", NUM, Column("$exists0", "c0", INT)),
    )
    calls = (build_aggregate("sum", NUM), build_aggregate("count", None))
    group = Aggregate(semi, (GATE,), calls, "$agg")
    having = Select(group, build_call(">", Column("$agg", "a1", BIGINT, False), literal(2)))
    items = {
        "gate": Column("$agg", "k0", STRING),
        "n": build_call("+", Column("$agg", "a0", BIGINT), literal(1)),
    }
    assert root(text) == Distinct(project(having, **items))


def test_a_subquery_gives_its_alias_to_columns_and_groups() -> None:
    found = root("SELECT d.n FROM (SELECT COUNT(*) AS n FROM flights) AS d")
    group = Aggregate(FLIGHTS, (), (build_aggregate("count", None),), "d$agg")
    inner = project(group, "d", n=Column("d$agg", "a0", BIGINT, False))
    assert found == project(inner, n=Column("d", "n", BIGINT, False))


def test_a_join_is_flat_and_has_all_conditions() -> None:
    found = root(
        "SELECT f.num FROM flights f JOIN baggage b ON b.flight = f.num AND b.area = 'X', weather w"
        " JOIN airports a ON a.city = w.city"
    )
    f, b, w, a = (
        scan("flights", "f"),
        scan("baggage", "b"),
        scan("weather", "w"),
        table("airports", "a"),
    )
    condition = build_call(
        "and",
        build_call("=", column(b, "flight"), column(f, "num")),
        build_call("=", column(b, "area"), literal("X")),
        build_call("=", column(a, "city"), column(w, "city")),
    )
    num = column(f, "num")
    assert found == project(Join((f, b, w, a), condition), num=num)


def test_columns_beside_an_outer_join_may_be_null() -> None:
    found = root(
        "SELECT f.num, b.flight FROM flights f LEFT JOIN airports b0 LEFT JOIN baggage b ON TRUE"
    )
    assert isinstance(found, Project)
    assert [c.nullable for c in found.columns] == [False, True]
    found = root("SELECT f.num, b.flight FROM flights f RIGHT JOIN baggage b ON f.num = b.flight")
    assert isinstance(found, Project)
    assert isinstance(found.input, OuterJoin)
    assert found.input.left == scan("baggage", "b")
    assert [c.nullable for c in found.columns] == [True, True]


def test_not_in_is_true_to_null() -> None:
    found = root("SELECT num FROM flights WHERE num NOT IN (SELECT flight FROM baggage)")
    c0 = Column("$exists0", "c0", INT)
    condition = build_call(
        "or", build_call("=", NUM, c0), build_call("is_null", NUM), build_call("is_null", c0)
    )
    semi = SemiJoin(FLIGHTS, project(BAGGAGE, "$exists0", c0=FLIGHT), condition, anti=True)
    assert found == project(semi, num=NUM)


def test_exists_keeps_its_own_conditions_inside() -> None:
    found = root(
        "SELECT num FROM flights WHERE EXISTS"
        " (SELECT 1 FROM baggage WHERE area = 'X' AND flight + 1 = num AND status = gate)"
    )
    inner = Select(BAGGAGE, build_call("=", AREA, literal("X")))
    right = project(
        inner, "$exists0", c0=build_call("+", FLIGHT, literal(1)), c1=column(BAGGAGE, "status")
    )
    condition = build_call(
        "and",
        build_call("=", Column("$exists0", "c0", INT), NUM),
        build_call("=", Column("$exists0", "c1", STRING), GATE),
    )
    assert found == project(SemiJoin(FLIGHTS, right, condition), num=NUM)


def test_exists_that_shares_nothing() -> None:
    found = root("SELECT num FROM flights WHERE NOT EXISTS (SELECT area FROM baggage)")
    semi = SemiJoin(FLIGHTS, project(BAGGAGE, "$exists0", c0=literal(1)), None, anti=True)
    assert found == project(semi, num=NUM)


def test_the_operand_of_in_is_outside_even_if_inside_has_its_alias() -> None:
    found = root("SELECT num FROM flights WHERE num IN (SELECT num FROM flights [NOW])")
    right = project(scan("flights", window=NOW), "$exists0", c0=NUM)
    condition = build_call("=", NUM, Column("$exists0", "c0", INT))
    assert found == project(SemiJoin(FLIGHTS, right, condition), num=NUM)


def test_union_all() -> None:
    found = root("SELECT num AS n FROM flights UNION ALL SELECT flight FROM baggage")
    assert found == UnionAll((project(FLIGHTS, n=NUM), project(BAGGAGE, flight=FLIGHT)))
    assert [c.name for c in found.columns] == ["n"]


def test_a_window_on_a_query_is_one_on_its_stream() -> None:
    outside = root("SELECT d.num FROM (SELECT num FROM flights WHERE num > 5) AS d [RANGE 5 MIN]")
    inside = root("SELECT d.num FROM (SELECT num FROM flights [RANGE 5 MIN] WHERE num > 5) AS d")
    assert outside == inside


def test_no_window_is_all_that_came() -> None:
    assert root("SELECT num FROM flights") == root("SELECT num FROM flights [RANGE UNBOUNDED]")


OUTPUTS = [
    ("SELECT num FROM flights", Output.ISTREAM),
    ("SELECT num FROM flights [RANGE 1 MIN SLIDE 1 MIN]", Output.ISTREAM),
    ("SELECT COUNT(*) FROM flights [RANGE 1 MIN]", Output.ISTREAM),
    ("SELECT COUNT(*) FROM flights [RANGE 1 MIN SLIDE 1 MIN]", Output.RSTREAM),
    ("ISTREAM(SELECT COUNT(*) FROM flights [RANGE 1 MIN SLIDE 1 MIN])", Output.ISTREAM),
    ("SELECT ISTREAM(COUNT(*)) FROM flights [RANGE 1 MIN SLIDE 1 MIN]", Output.ISTREAM),
    ("SELECT DSTREAM num FROM flights", Output.DSTREAM),
    ("RSTREAM(WITH a AS (SELECT num FROM flights) SELECT num FROM a)", Output.RSTREAM),
]


@pytest.mark.parametrize(("text", "output"), OUTPUTS, ids=[text for text, _ in OUTPUTS])
def test_relation_to_stream(text: str, output: Output) -> None:
    assert parse_query(text, NAMES).output == output


def test_aliases_and_names_in_any_case() -> None:
    assert root("SELECT F.NUM FROM Flights F WHERE f.Num > 5") == root(
        "SELECT F.num FROM flights AS F WHERE F.num > 5"
    )


ALIKE = [
    "SELECT count(*) FILTER (WHERE num = {}) AS x, count(*) FILTER (WHERE num = {}) AS y FROM flights",
    "SELECT max(delay) AS x FROM flights GROUP BY num % {}, num % {}",
    "SELECT max(num + {}) AS x FROM flights GROUP BY gate HAVING max(num + {}) > 3",
    "SELECT num FROM flights f WHERE EXISTS"
    " (SELECT 1 FROM baggage WHERE flight + {} = f.num AND flight + {} < f.num)",
    "SELECT num FROM flights WHERE num > -{} AND num < {}",
]


@pytest.mark.parametrize("shape", ALIKE)
def test_a_text_is_read_the_same_whatever_was_read_before(shape: str) -> None:
    before = NAMES.copy()
    for one, other in ((1, 2), (3, 4), (5, 5), (7, 8), (0, 0)):
        text = shape.format(one, other)
        assert parse_query(text, before) == parse_query(text, NAMES.copy())


# ---- relations that no text gives, from other layers


def test_a_scan_alone() -> None:
    assert (
        unparse(Query(Output.ISTREAM, scan("flights", "f", NOW)))
        == "SELECT *\nFROM flights [NOW] AS f"
    )


def test_conditions_below_a_join() -> None:
    f = scan("flights", "f", Range(UNITS["MINUTE"]))
    below = Select(f, build_call(">", column(f, "num"), literal(5)))
    query = Query(Output.ISTREAM, project(Join((below, WEATHER)), num=column(f, "num")))
    again = parse_query(unparse(query), NAMES)
    assert [line.split(":")[0].strip(" │├└─") for line in tree(again)] == [
        "ISTREAM",
        "Project",
        "Join",
        "Project AS f",
        "Select f.num > 5",
        "Scan flights [RANGE 1 MINUTE] AS f",
        "Scan weather [RANGE UNBOUNDED]",
    ]


def test_an_aggregate_that_nothing_names() -> None:
    group = Aggregate(FLIGHTS, (), (build_aggregate("count", None),), "$agg")
    query = Query(Output.ISTREAM, project(group, one=literal(1)))
    again = parse_query(unparse(query), NAMES)
    assert isinstance(again.root, Project)
    assert isinstance(again.root.input, Select)
    assert again.root.input.input == group
