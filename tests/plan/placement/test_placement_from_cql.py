"""CQL queries as a placement problem: what is the same stream, and what is not."""

from __future__ import annotations

import pytest

from headwater.algebra.nodes import Query
from headwater.cql import parse
from headwater.cql.statements import CreateQuery
from headwater.errors import InputError
from headwater.network.model import Site
from headwater.network.sites import fully_connected
from headwater.plan.placement.check import find_violations
from headwater.plan.placement.from_cql import build_placement_problem
from headwater.plan.placement.ledger import Ledger
from headwater.plan.placement.model import PlacementProblem
from headwater.plan.placement.planner import Budget
from headwater.plan.placement.planners.ladder import LadderPlanner
from headwater.plan.throughput.profile import WorkloadProfile

STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, ts TIMESTAMP) TIMESTAMP BY ts FROM CLIENT;\n"
    for name in "abcd"
)
TABLE = "CREATE TABLE t (k INT, v INT) FROM files(path => 't.csv', format => 'csv');\n"
W = "[RANGE 10 SECONDS]"
ABC = f"SELECT a.v FROM a {W}, b {W}, c {W} WHERE a.k = b.k AND b.k = c.k"


def problem_of(*queries: str) -> PlacementProblem:
    text = STREAMS + TABLE + "".join(f"CREATE QUERY q{i} AS {q};\n" for i, q in enumerate(queries))
    found: list[tuple[str, Query]] = [
        (s.name, s.query) for s in parse(text) if isinstance(s, CreateQuery)
    ]
    sites = tuple(Site(n, cpu=1e15) for n in ("one", "two"))
    return build_placement_problem(found, fully_connected(sites))


def joins(problem: PlacementProblem) -> set[str]:
    return {s.name for s in problem.streams if " * " in s.name and "result" not in s.name}


def test_all_orders_of_a_join_are_operators() -> None:
    problem = problem_of(ABC)
    assert joins(problem) == {"a * b", "b * c", "a * c", "a * b * c"}
    made = [problem.streams[o.output].name for o in problem.operators]
    assert made.count("a * b * c") == 3


def test_orders_without_a_condition_are_left_out() -> None:
    chain = f"SELECT a.v FROM a {W}, b {W}, c {W} WHERE a.k = b.k AND b.v = c.v"
    assert joins(problem_of(chain)) == {"a * b", "b * c", "a * b * c"}


def test_the_same_join_in_another_query_and_order_is_the_same_stream() -> None:
    problem = problem_of(ABC, f"SELECT b.v, a.v FROM b {W}, a {W} WHERE b.k = a.k")
    assert sum(s.name == "a * b" for s in problem.streams) == 1
    ledger = Ledger(problem)
    assert all(d.admitted for d in LadderPlanner()(ledger, [0, 1], Budget()))
    assert find_violations(problem, ledger.plan()) == ()


@pytest.mark.parametrize(
    "other",
    [
        f"SELECT a.v FROM a {W}, b {W} WHERE a.v = b.v",
        f"SELECT a.v FROM a [RANGE 20 SECONDS], b {W} WHERE a.k = b.k",
        f"SELECT a.v FROM a {W}, b {W} WHERE a.k = b.k AND a.v > 5",
    ],
)
def test_another_condition_window_or_filter_is_another_stream(other: str) -> None:
    first = f"SELECT a.v FROM a {W}, b {W} WHERE a.k = b.k"
    problem = problem_of(first, other)
    assert sum(s.name == "a * b" for s in problem.streams) == 2


@pytest.mark.parametrize(
    ("sources", "joined", "own"),
    [
        (f"a {W}, b {W}", "TRUE", "a.k = a.v"),
        (f"a {W}, b {W}", "a.k = b.k", "a.k = a.v"),
        (f"a {W}, b {W}", "TRUE", "a.k IS NOT NULL"),
        (f"a {W}, t", "a.k = t.k", "t.v > 5"),
        (f"a {W}, t", "a.k = t.k", "t.k = t.v"),
    ],
)
def test_a_condition_of_one_source_is_part_of_the_join(sources: str, joined: str, own: str) -> None:
    without = f"SELECT a.v FROM {sources} WHERE {joined}"
    problem = problem_of(without, f"{without} AND {own}")
    assert len([s for s in problem.streams if s.name in ("a * b", "a * t")]) == 2


def test_equal_columns_of_one_source_are_a_selection_of_it() -> None:
    """One equality is implied by two others, whichever source has two of the columns."""
    product = f"SELECT a.v FROM a {W}, b {W}"
    rates = [
        next(s.rate for s in problem_of(product + where).streams if s.name == "a * b")
        for where in (
            "",
            " WHERE a.k = a.v",
            " WHERE a.k = b.k AND a.k = a.v",
            " WHERE a.k = b.k AND b.k = b.v",
        )
    ]
    distinct = 100
    expected = [1, 1 / distinct, 1 / distinct**2, 1 / distinct**2]
    assert [rate / rates[0] for rate in rates] == pytest.approx(expected)
    bounded = problem_of(f"{product} WHERE a.k = a.v AND a.k > 5")
    assert "a if a.k = a.v and a.k >= 6" in {s.name for s in bounded.streams}


def test_equal_queries_want_the_same_stream() -> None:
    problem = problem_of(ABC, ABC)
    assert problem.queries[0].stream == problem.queries[1].stream


def test_rates_do_not_depend_on_the_order_of_joins() -> None:
    problem = problem_of(ABC)
    rates = {s.name: s.rate for s in problem.streams}
    assert rates["a * b"] == pytest.approx(rates["b * c"]) == pytest.approx(rates["a * c"])


def test_groups_and_other_kinds_of_queries_have_a_place_too() -> None:
    problem = problem_of(
        f"SELECT a.k, count(*) AS n FROM a {W} GROUP BY a.k",
        f"SELECT a.k FROM a {W} WHERE EXISTS (SELECT 1 FROM b {W} WHERE b.k = a.k)",
        f"SELECT a.k FROM a {W} LEFT JOIN b {W} ON a.k = b.k",
        f"SELECT x.k FROM a {W} x JOIN a {W} y ON x.k = y.v",
    )
    ledger = Ledger(problem)
    assert all(d.admitted for d in LadderPlanner()(ledger, range(4), Budget()))
    assert find_violations(problem, ledger.plan()) == ()


def test_a_profile_without_a_stream_is_refused() -> None:
    (statement,) = [
        s for s in parse(STREAMS + f"CREATE QUERY q AS {ABC};") if isinstance(s, CreateQuery)
    ]
    with pytest.raises(InputError, match="no rate for the stream"):
        build_placement_problem(
            [("q", statement.query)],
            fully_connected((Site("one"),)),
            WorkloadProfile("p.toml", ({"a": 1.0, "b": 1.0},)),
        )
