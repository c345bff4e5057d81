"""Text -> algebra -> text -> algebra gives the same, for random queries and statements."""

from __future__ import annotations

import random

import pytest
from cql_texts import NAMES, Writer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.algebra.expressions import Expr, Literal, columns_of, literal
from headwater.algebra.functions import build_call
from headwater.algebra.nodes import Aggregate, Output, Project, Query, Select, walk_relations
from headwater.algebra.types import DATE, INTERVAL, TIMESTAMP
from headwater.algebra.windows import Range, Rows, Window
from headwater.cql import expr_text, parse, parse_query, unparse
from strategies import MIXED, PLAIN, SOURCES, conditions, queries

QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(QUICK, max_examples=5_000)


# ---- algebra first


def is_written_out(query: Query) -> bool:
    """Every aggregate is named in its SELECT list or HAVING, as one that was read from a text is."""
    blocks = [node for node in walk_relations(query.root) if isinstance(node, Project)]
    return all(map(_names_its_calls, blocks))


def _names_its_calls(block: Project) -> bool:
    exprs = [item.expr for item in block.items]
    below = block.input
    if isinstance(below, Select):
        exprs.append(below.condition)
        below = below.input
    if not isinstance(below, Aggregate):
        return True
    named = {column for expr in exprs for column in columns_of(expr)}
    return set(below.columns[len(below.keys) :]) <= named


def check_query(query: Query) -> None:
    again = parse_query(unparse(query), SOURCES)
    if is_written_out(query):
        assert again == query
    else:
        assert parse_query(unparse(again), SOURCES) == again


@QUICK
@given(queries())
def test_a_query_reads_back_from_its_text(query: Query) -> None:
    check_query(query)


@pytest.mark.slow
@LONG
@given(queries())
def test_many_queries_read_back_from_their_texts(query: Query) -> None:
    check_query(query)


def bound(expr: Expr) -> Expr:
    """The expression as its text is read, over the columns that it names."""
    block = f"SELECT {expr_text(expr, lambda c: f'{c.relation}_{c.name}')} AS x FROM s"
    columns = {f"{c.relation}_{c.name}": c.type for c in [*PLAIN, *MIXED]}
    declared = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    text = f"CREATE STREAM s ({declared}, t TIMESTAMP) TIMESTAMP BY t FROM CLIENT; {block}"
    query = parse(text)[1].query  # type: ignore[union-attr]
    assert isinstance(query.root, Project)
    return query.root.items[0].expr


@QUICK
@given(conditions(MIXED, depth=3))
def test_a_condition_reads_back_from_its_text(condition: Expr) -> None:
    read = bound(condition)
    assert bound_text(read) == bound_text(flattened(condition))


def bound_text(expr: Expr) -> str:
    return expr_text(expr, lambda c: c.name if c.relation == "s" else f"{c.relation}_{c.name}")


def flattened(expr: Expr) -> Expr:
    """ANDs directly in ANDs and ORs in ORs written as one, as a text is read."""
    if not hasattr(expr, "args"):
        return expr
    args = [flattened(arg) for arg in expr.args]
    if expr.name in ("and", "or"):
        args = [p for a in args for p in (a.args if getattr(a, "name", "") == expr.name else (a,))]
        return build_call(expr.name, *args)
    return type(expr)(expr.name, tuple(args), expr.type)


LITERALS = st.one_of(
    st.booleans().map(literal),
    st.integers(-(2**63), 2**63 - 1).map(literal),
    st.text(max_size=20).map(literal),
    st.floats().map(literal),
    st.decimals(-(10**18), 10**18, places=6).map(literal),
    st.integers(-(10**15), 10**16).map(lambda v: Literal(v, TIMESTAMP)),
    st.integers(-20_000, 50_000).map(lambda v: Literal(v, DATE)),
    st.integers(-(2**50), 2**50).map(lambda v: Literal(v, INTERVAL)),
    st.sampled_from([TIMESTAMP, DATE]).map(lambda t: Literal(None, t)),
)


@settings(QUICK, max_examples=500)
@given(LITERALS)
def test_a_constant_reads_back_from_its_text(constant: Literal) -> None:
    read = bound(constant)
    assert read == constant
    assert read.type == constant.type


KEYWORDS = ("select", "from", "date", "time", "group", "order", "by", "now", "range", "if", "any")
ANY_NAME = st.one_of(
    st.text(min_size=1, max_size=12).filter(lambda name: name.strip() and "$" not in name),
    st.sampled_from([*KEYWORDS, "istream", "end", "in", "is", "left", "null", "sum", "case"]),
).filter(lambda name: name.lower() != "_tau")


@settings(QUICK, max_examples=300)
@given(st.lists(ANY_NAME, min_size=4, max_size=4, unique_by=str.lower))
def test_any_names_read_back(names: list[str]) -> None:
    """Names of streams, columns, aliases and outputs, whatever they are made of."""
    stream, column, alias, output = ("`" + name.replace("`", "``") + "`" for name in names)
    texts = [
        f"CREATE STREAM {stream} ({column} INT, zz_ts TIMESTAMP) TIMESTAMP BY zz_ts FROM CLIENT",
        f"CREATE QUERY {output} AS SELECT {alias}.{column} AS {output}, COUNT(*) AS zz_n"
        f" FROM {stream} [PARTITION BY {column} ROWS 5] AS {alias}, {stream} AS zz_alias"
        f" WHERE {alias}.{column} > 5 GROUP BY {alias}.{column}",
        f"CREATE QUERY zz_two AS SELECT {column} AS {output} FROM {stream} WHERE {column} > 5",
    ]
    statements = parse(";".join(texts))
    assert parse(";\n".join(map(unparse, statements))) == statements


WINDOWS = st.one_of(
    st.builds(
        Range,
        st.one_of(st.none(), st.integers(0, 2**60)),
        st.one_of(st.none(), st.integers(1, 2**60)),
    ),
    st.builds(Rows, st.integers(1, 2**31 - 1)),
    st.builds(Rows, st.integers(1, 9), st.sampled_from([("num",), ("gate", "num")])),
)


@QUICK
@given(WINDOWS)
def test_any_window_reads_back(window: Window) -> None:
    root = NAMES["flights"].scan(window)  # type: ignore[call-arg, arg-type]
    items = parse_query("SELECT num FROM flights", NAMES).root.items  # type: ignore[union-attr]
    query = Query(Output.ISTREAM, Project(root, items))
    assert parse_query(unparse(query), NAMES) == query


# ---- text first


def check_text(seed: int) -> None:
    text = Writer(random.Random(seed)).statement()
    statements = parse(text, NAMES)
    written = [unparse(statement) for statement in statements]
    assert parse(";\n".join(written), NAMES) == statements, text
    assert [unparse(s) for s in parse(";\n".join(written), NAMES)] == written


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(start, marks=pytest.mark.long) for start in range(100, 800, 100))]
)
def test_a_text_reads_back(start: int) -> None:
    for seed in range(start, start + 100):
        check_text(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1_000_000, 1_020_000, 1_000))
def test_many_texts_read_back(start: int) -> None:
    for seed in range(start, start + 1_000):
        check_text(seed)
