"""Moves keep what queries mean: random queries, random moves, real rows, and the oracle's answer.

Nothing here is compiled, so what is tested are the rules themselves; that the compiled code has the
same rules is tested beside the searches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.algebra.nodes import Output, Query, Scan
from headwater.algebra.nodes import walk_relations as below
from headwater.cost.operators import CostTable
from headwater.cql import parse_query
from headwater.network.model import Site
from headwater.network.sites import fully_connected
from headwater.plan.throughput.from_cql import (
    OperatorGraph,
    Statistics,
    build_operator_graph,
    rebuild_queries,
)
from headwater.plan.throughput.model import EXTENDED_RULES, TABLE_6, OperatorKind, ThroughputProblem
from headwater.plan.throughput.moves import (
    Relocation,
    Swap,
    apply_move,
    is_swap_allowed,
    neighbours,
    swaps,
)
from headwater.reference import evaluate
from strategies import SECOND, SOURCES, Features, queries, streams, tables

KNOWN = Statistics(
    share=lambda condition, sources: 0.25, groups=lambda keys: 4.0, rows=lambda table: 3.0
)
SITES = fully_connected((Site("a", cpu=1e6), Site("b", cpu=2e6)))


def problem_of(written: OperatorGraph, rules: Any = EXTENDED_RULES) -> ThroughputProblem:
    """The problem with two sites for every operator, both together where it can be split."""
    singles = ((0,), (1,))
    options = tuple(
        (*singles, (0, 1)) if written.is_clonable(place) else singles
        for place in range(len(written.operators))
    )
    rates = {o.stream: 1.0 for o in written.operators if o.stream}
    return ThroughputProblem(
        written.operators,
        written.inputs,
        written.outputs,
        options,
        SITES,
        (rates,),
        written.widths,
        rules=rules,
    )


def answer(query: Query, given_streams: Any, given_tables: Any) -> Counter[Any]:
    return Counter((r.tau, repr(r.values)) for r in evaluate(query, given_streams, given_tables))


def walked(problem: ThroughputProblem, data: st.DataObject, steps: int) -> Any:
    """The configuration after some random moves, logical ones first where there are any."""
    configuration = problem.initial_configuration()
    for _ in range(steps):
        logical: Sequence[Any] = swaps(problem, configuration)
        moves = logical or [m for m, _ in neighbours(problem, configuration)]
        if not moves:
            break
        move = data.draw(st.sampled_from(list(moves)))
        configuration = apply_move(configuration, move)
    for place, options in enumerate(problem.options):
        configuration = apply_move(
            configuration, Relocation(place, data.draw(st.sampled_from(options)))
        )
    return configuration


def check(query: Query, data: st.DataObject, rules: Any = EXTENDED_RULES) -> None:
    written = build_operator_graph([query], KNOWN, CostTable())
    configuration = walked(problem_of(written, rules), data, data.draw(st.integers(0, 6)))
    (moved,) = rebuild_queries(written, configuration)
    assert [c.name for c in moved.columns] == [c.name for c in query.columns]
    rows, stored = data.draw(streams()), data.draw(tables())
    assert answer(moved, rows, stored) == answer(query, rows, stored)


def joins_of(query: Query) -> int:
    return sum(isinstance(node, Scan) for node in below(query.root))


@settings(max_examples=15, deadline=None)
@given(queries(), st.data())
def test_random_moves_keep_the_answer_of_random_queries(query: Query, data: Any) -> None:
    check(query, data)


@settings(max_examples=20, deadline=None)
@given(
    queries(Features(scans=4, nesting=2, unions=False, distinct=False)).filter(
        lambda q: joins_of(q) > 1
    ),
    st.data(),
)
def test_random_moves_keep_the_answer_of_joins(query: Query, data: Any) -> None:
    check(query, data)


@settings(max_examples=15, deadline=None)
@given(queries(Features(outputs=(Output.RSTREAM,))), st.data())
def test_split_aggregates_keep_the_answer(query: Query, data: Any) -> None:
    check(query, data, TABLE_6)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(queries(Features(scans=4, nesting=2)), st.data())
def test_long_random_moves_keep_the_answer(query: Query, data: Any) -> None:
    check(query, data)


@settings(max_examples=15, deadline=None)
@given(st.lists(queries(Features(scans=2)), min_size=2, max_size=3), st.data())
def test_queries_that_share_operators_keep_their_answers(several: list[Query], data: Any) -> None:
    several = [*several, several[0]]
    written = build_operator_graph(several, KNOWN, CostTable())
    assert written.outputs[0] == written.outputs[-1]
    configuration = walked(problem_of(written), data, 4)
    rows, stored = data.draw(streams()), data.draw(tables())
    for query, moved in zip(several, rebuild_queries(written, configuration), strict=True):
        assert answer(moved, rows, stored) == answer(query, rows, stored)


SELECTED_GROUPS = (
    "RSTREAM (SELECT item, count(*) AS n FROM Bids [RANGE 3 SECONDS] WHERE item <> 1 GROUP BY item)"
)
SELECTED_SEMI_JOIN = (
    "SELECT d.item FROM (SELECT item, note FROM Bids [RANGE 3 SECONDS]"
    " WHERE item IN (SELECT item FROM Asks [RANGE 3 SECONDS])) d WHERE d.note = 'a'"
)
"""Selections that may change places with a grouping, and with a semi-join. Random queries that have
these come in clusters, so that among hundreds there may be none."""


@pytest.mark.parametrize(
    "text", [SELECTED_GROUPS, SELECTED_SEMI_JOIN], ids=["groups", "a semi-join"]
)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_moves_keep_the_answer_where_random_queries_are_rare(text: str, data: Any) -> None:
    check(parse_query(text, SOURCES), data)


@pytest.mark.long
def test_every_rule_is_met() -> None:
    """The tests of random moves say something about each rule: none is always refused."""
    met: set[tuple[OperatorKind, OperatorKind]] = set()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True)
    @given(queries(Features(scans=4, nesting=2)))
    @example(parse_query(SELECTED_GROUPS, SOURCES))
    @example(parse_query(SELECTED_SEMI_JOIN, SOURCES))
    def collect(query: Query) -> None:
        written = build_operator_graph([query], KNOWN, CostTable())
        problem = problem_of(written)
        configuration = problem.initial_configuration()
        for _ in range(4):
            found = swaps(problem, configuration)
            met.update(
                (problem.operators[s.top].kind, problem.operators[s.bottom].kind) for s in found
            )
            if not found:
                break
            configuration = apply_move(configuration, found[-1])

    collect()
    assert EXTENDED_RULES - met == set()


def test_inputs_of_a_join_commute() -> None:
    @settings(max_examples=20, deadline=None)
    @given(
        queries(Features(scans=3, outer_joins=False)).filter(lambda q: joins_of(q) > 1), st.data()
    )
    def commuted(query: Query, data: Any) -> None:
        written = build_operator_graph([query], KNOWN, CostTable())
        start = problem_of(written).initial_configuration()
        inputs = tuple(
            reads[::-1] if operator.kind is OperatorKind.JOIN else reads
            for operator, reads in zip(written.operators, start.inputs, strict=True)
        )
        (moved,) = rebuild_queries(written, replace(start, inputs=inputs))
        rows, stored = data.draw(streams()), data.draw(tables())
        assert answer(moved, rows, stored) == answer(query, rows, stored)

    commuted()


NO = [
    pytest.param(
        "SELECT b.item FROM Bids [RANGE 9 SECONDS] b LEFT JOIN Asks [RANGE 9 SECONDS] a"
        " ON b.item = a.item WHERE a.note = 'x'",
        Swap(3, 2, 1),
        id="a selection below the side of an outer join that may be missing",
    ),
    pytest.param(
        "RSTREAM (SELECT item, count(*) AS n FROM Bids [RANGE 9 SECONDS] GROUP BY item"
        " HAVING count(*) > 1)",
        Swap(2, 1, 0),
        id="a selection on a count below the count",
    ),
    pytest.param(
        "SELECT d.item FROM (SELECT item, price * 2 AS twice FROM Bids [RANGE 9 SECONDS]) d"
        " WHERE d.twice > 1",
        Swap(2, 1, 0),
        id="a selection below the column that it reads",
    ),
    pytest.param(
        "SELECT b.item FROM Bids [RANGE 9 SECONDS] b, Asks [RANGE 9 SECONDS] a"
        " WHERE b.item = a.item AND b.bidder > 1",
        Swap(3, 2, 1),
        id="a selection below the other side of a join",
    ),
    pytest.param(
        "SELECT b.item FROM Bids [RANGE 9 SECONDS] b, Asks [RANGE 9 SECONDS] a"
        " WHERE b.item = a.item",
        Swap(3, 2, 0),
        id="a projection that drops what the join below it reads",
    ),
    pytest.param(
        "SELECT u.item FROM (SELECT item FROM Bids [RANGE 9 SECONDS] UNION ALL"
        " SELECT item FROM Asks [RANGE 9 SECONDS]) u WHERE u.item = 1",
        Swap(5, 4, 0),
        id="a selection below one side of a union",
    ),
]


@pytest.mark.parametrize(("text", "swap"), NO)
def test_moves_that_would_change_the_meaning_are_refused(text: str, swap: Swap) -> None:
    problem = problem_of(build_operator_graph([parse_query(text, SOURCES)], KNOWN, CostTable()))
    start = problem.initial_configuration()
    assert swap.bottom in start.inputs[swap.top], problem.operators
    assert not is_swap_allowed(problem, start, swap)


def test_both_zeros_go_to_the_same_copy_of_a_join() -> None:
    query = parse_query(
        "SELECT l.item FROM Bids [RANGE 9 SECONDS] l, Bids [RANGE 9 SECONDS] r"
        " WHERE l.price = r.price",
        SOURCES,
    )
    written = build_operator_graph([query], KNOWN, CostTable())
    problem = problem_of(written)
    cloned = problem.initial_configuration()
    for place, options in enumerate(problem.options):
        cloned = apply_move(cloned, Relocation(place, options[-1]))
    (moved,) = rebuild_queries(written, cloned)
    rows = {"Bids": [(1, 1, 0.0, "x", SECOND), (2, 1, -0.0, "y", SECOND)]}
    assert answer(moved, rows, {}) == answer(query, rows, {})
    assert sum(answer(moved, rows, {}).values()) == 4


def test_a_refused_move_does_change_the_answer() -> None:
    (text, swap), *_ = [case.values for case in NO]
    query = parse_query(str(text), SOURCES)
    written = build_operator_graph([query], KNOWN, CostTable())
    assert isinstance(swap, Swap)
    (moved,) = rebuild_queries(
        written, apply_move(problem_of(written).initial_configuration(), swap)
    )
    rows = {"Bids": [(1, 1, 1.0, "x", SECOND)], "Asks": [(1, True, None, "y", SECOND)]}
    assert answer(moved, rows, {}) != answer(query, rows, {})
