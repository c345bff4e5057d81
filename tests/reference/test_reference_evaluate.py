"""Small queries whose results were worked out by hand from the definition.

Times are in seconds throughout; a result is shown as (tau, values...).
"""

from __future__ import annotations

import pytest

from headwater.algebra.catalog import Stream, Table
from headwater.algebra.expressions import Column, Expr, literal
from headwater.algebra.functions import AggregateCall, build_aggregate, build_call
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
    Select,
    SemiJoin,
    UnionAll,
    find_column,
)
from headwater.algebra.types import DOUBLE, INT, STRING, TIMESTAMP, Field, Schema, Value
from headwater.algebra.windows import NOW, UNBOUNDED, Range, Rows, Window
from headwater.errors import EvaluationError
from headwater.reference import Row, evaluate

S = 1_000_000
ISTREAM, DSTREAM, RSTREAM = Output.ISTREAM, Output.DSTREAM, Output.RSTREAM

R = Stream("R", Schema((Field("a", INT), Field("x", DOUBLE), Field("ts", TIMESTAMP))), "ts")
Q = Stream("Q", Schema((Field("b", INT), Field("n", STRING), Field("at", TIMESTAMP))), "at")
NAMES = Table("names", Schema((Field("k", INT), Field("name", STRING))))


def seconds(count: int, slide: int | None = None) -> Range:
    return Range(count * S, None if slide is None else slide * S)


def r(*rows: tuple[int, Value, Value]) -> list[Row]:
    """Tuples of R from (time, a, x)."""
    return [(a, x, time * S) for time, a, x in rows]


def q(*rows: tuple[int, Value, Value]) -> list[Row]:
    return [(b, n, time * S) for time, b, n in rows]


def times(*at: int) -> list[Row]:
    """Tuples of R whose `a` is their time."""
    return r(*((time, time, None) for time in at))


def col(relation: Relation, name: str, alias: str | None = None) -> Column:
    return find_column(relation.columns, name, alias)


def project(relation: Relation, *names: str, alias: str = "") -> Project:
    return Project(relation, tuple(Item(n, col(relation, n)) for n in names), alias)


def run(
    output: Output,
    root: Relation,
    *,
    R: list[Row] | None = None,
    Q: list[Row] | None = None,
    names: list[Row] | None = None,
    start: int | None = None,
    end: int | None = None,
    keep: dict[str, int] | None = None,
) -> list[tuple[Value, ...]]:
    results = evaluate(
        Query(output, root),
        {"r": R or [], "Q": Q or []},
        {"NAMES": names or []},
        start=None if start is None else start * S,
        end=None if end is None else end * S,
        keep=None if keep is None else {name: length * S for name, length in keep.items()},
    )
    assert all(result.tau % S == 0 for result in results)
    return [(result.tau // S, *result.values) for result in results]


def grouped(relation: Relation, keys: tuple[Expr, ...], *calls: AggregateCall) -> Project:
    """SELECT keys, aggregates .. GROUP BY keys."""
    node = Aggregate(relation, keys, calls, "$agg")
    return Project(node, tuple(Item(c.name, c) for c in node.columns))


COUNT = build_aggregate("count", None)


# ---- windows


def windowed(window: Window, output: Output, rows: list[Row]) -> list[tuple[Value, ...]]:
    return run(output, project(R.scan(window), "a"), R=rows)


def test_range_holds_both_ends() -> None:
    rows = times(0, 1, 2, 3, 5)
    assert windowed(seconds(2), ISTREAM, rows) == [(0, 0), (1, 1), (2, 2), (3, 3), (5, 5)]
    assert windowed(seconds(2), DSTREAM, rows) == [(3, 0), (5, 1), (5, 2)]
    assert windowed(seconds(2), RSTREAM, times(0, 2, 3)) == [(0, 0), (2, 0), (2, 2), (3, 2), (3, 3)]


def test_now_holds_the_tuples_of_the_instant() -> None:
    assert windowed(NOW, RSTREAM, times(1, 1, 4)) == [(1, 1), (1, 1), (4, 4)]
    assert windowed(NOW, DSTREAM, times(1, 1, 4)) == [(4, 1), (4, 1)]


def test_unbounded_never_forgets() -> None:
    assert windowed(UNBOUNDED, DSTREAM, times(1, 1000)) == []
    assert windowed(UNBOUNDED, RSTREAM, times(1, 1000)) == [(1, 1), (1000, 1), (1000, 1000)]


def test_a_slide_moves_the_window_to_its_multiples() -> None:
    rows = times(1, 4, 5, 11)
    assert windowed(seconds(5, 5), ISTREAM, rows) == [(5, 1), (5, 4), (5, 5), (15, 11)]
    assert windowed(seconds(5, 5), DSTREAM, rows) == [(10, 1), (10, 4), (15, 5)]
    assert windowed(seconds(10, 5), RSTREAM, rows)[:3] == [(5, 1), (5, 4), (5, 5)]


def test_a_slide_may_miss_tuples() -> None:
    assert windowed(seconds(1, 5), ISTREAM, times(1, 3, 4, 5, 8)) == [(5, 4), (5, 5)]


def test_slides_before_the_epoch() -> None:
    assert windowed(seconds(5, 5), ISTREAM, times(-7, -1)) == [(-5, -7), (0, -1)]


def test_unbounded_with_a_slide() -> None:
    window = Range(None, 5 * S)
    assert windowed(window, RSTREAM, times(1, 7)) == [(5, 1), (10, 1), (10, 7)]


def test_rows_holds_the_latest_and_ties_break_by_arrival() -> None:
    rows = r((1, 10, None), (3, 30, None), (2, 20, None), (3, 31, None))
    assert windowed(Rows(2), RSTREAM, rows) == [(1, 10), (2, 10), (2, 20), (3, 30), (3, 31)]
    assert windowed(Rows(1), RSTREAM, rows) == [(1, 10), (2, 20), (3, 31)]
    assert windowed(Rows(1), ISTREAM, rows) == [(1, 10), (2, 20), (3, 31)]  # 30 is never seen
    assert windowed(Rows(2), DSTREAM, rows) == [(3, 10), (3, 20)]


def test_partitioned_rows() -> None:
    rows = r((1, 1, 0.5), (2, 2, 0.5), (3, 1, 1.5), (4, None, 2.5), (5, None, 3.5))
    root = project(R.scan(Rows(1, ("A",))), "a", "x")
    assert run(DSTREAM, root, R=rows) == [(3, 1, 0.5), (5, None, 2.5)]
    assert run(RSTREAM, root, R=rows)[-3:] == [(5, 1, 1.5), (5, 2, 0.5), (5, None, 3.5)]


def test_partitions_take_nan_and_zeros_as_equal() -> None:
    rows = r((1, 1, float("nan")), (2, 2, -0.0), (3, 3, float("nan")), (4, 4, 0.0))
    root = project(R.scan(Rows(1, ("x",))), "a")
    assert run(DSTREAM, root, R=rows) == [(3, 1), (4, 2)]


def test_arrival_out_of_order_does_not_matter() -> None:
    ordered, shuffled = times(1, 2, 3, 7), times(7, 2, 1, 3)
    for window in (seconds(2), seconds(4, 3), Rows(2), NOW):
        for output in Output:
            assert windowed(window, output, ordered) == windowed(window, output, shuffled)


def test_no_events_no_instants() -> None:
    assert windowed(seconds(5), RSTREAM, []) == []
    assert run(RSTREAM, grouped(R.scan(UNBOUNDED), (), COUNT), Q=q((1, 1, "x"))) == []


# ---- slides beside windows that do not slide


def test_all_windows_are_looked_at_at_the_multiples_only() -> None:
    sliding, still = R.scan(seconds(10, 5)), Q.scan(seconds(2))
    root = project(Join((sliding, still)), "a", "b")
    # Q's tuple of 6 has left its window at 10; that of 9 is still there; at 15 only R's 11 is new
    found = run(ISTREAM, root, R=times(1, 11), Q=q((6, 6, "x"), (9, 9, "y"), (14, 14, "z")))
    assert found == [(10, 1, 9), (15, 11, 14)]


def test_instants_are_the_union_of_all_multiples() -> None:
    root = project(Join((R.scan(seconds(4, 4)), Q.scan(seconds(6, 6)))), "a", "b")
    # at 8 the window of Q is still that of 6, at 6 the window of R still that of 4
    found = run(RSTREAM, root, R=times(3, 7), Q=q((5, 5, "x")))
    assert found == [(6, 3, 5), (8, 7, 5)]


def test_evaluation_ends_when_every_slide_has_passed_the_last_event() -> None:
    root = project(Join((R.scan(seconds(9, 3)), Q.scan(seconds(5, 5)))), "a", "b")
    # 9 is the first multiple after the last event, but the window of Q sees that event at 10
    assert run(ISTREAM, root, R=times(4), Q=q((7, 7, "x"))) == [(10, 4, 7)]


# ---- output


def test_an_equal_row_that_leaves_does_not_cancel_one_that_enters() -> None:
    rows = r((1, 7, None), (4, 7, None))
    root = project(R.scan(seconds(2)), "a")
    assert run(ISTREAM, root, R=rows) == [(1, 7), (4, 7)]
    assert run(DSTREAM, root, R=rows) == [(4, 7)]
    assert run(ISTREAM, Distinct(root), R=rows) == [(1, 7)]
    assert run(DSTREAM, Distinct(root), R=rows) == []


def test_aggregates_are_compared_by_value() -> None:
    counts = grouped(R.scan(seconds(2)), (), COUNT)
    rows = r((1, 7, None), (4, 7, None), (5, 7, None))
    assert run(RSTREAM, counts, R=rows) == [(1, 1), (4, 1), (5, 2)]
    assert run(ISTREAM, counts, R=rows) == [(1, 1), (5, 2)]
    assert run(DSTREAM, counts, R=rows) == [(5, 1)]


def test_aggregates_are_compared_by_what_is_selected() -> None:
    scan = R.scan(UNBOUNDED)
    node = Aggregate(scan, (col(scan, "a"),), (COUNT,), "$agg")
    having = Select(node, build_call(">", node.columns[1], literal(1)))
    rows = r((1, 7, None), (2, 7, None), (3, 7, None), (4, 8, None), (5, 8, None))
    # the count goes on, but SELECT a shows the same row
    assert run(ISTREAM, Project(having, (Item("a", node.columns[0]),)), R=rows) == [(2, 7), (5, 8)]
    # as a bag: two groups with the same count are two rows
    counts = Project(having, (Item("n", node.columns[1]),))
    assert run(ISTREAM, counts, R=rows) == [(2, 2), (3, 3), (5, 2)]
    assert run(DSTREAM, counts, R=rows) == [(3, 2)]
    del rows[2]
    assert run(ISTREAM, counts, R=rows) == [(2, 2), (5, 2)]


def test_before_the_first_instant_there_is_nothing() -> None:
    assert windowed(NOW, DSTREAM, times(3)) == []
    assert windowed(NOW, ISTREAM, times(3)) == [(3, 3)]


# ---- operators


def test_select_keeps_what_is_true() -> None:
    scan = R.scan(NOW)
    root = project(Select(scan, build_call(">", col(scan, "x"), literal(1.0))), "a")
    rows = r((1, 1, 0.5), (2, 2, None), (3, 3, 1.5), (4, 4, float("nan")))
    assert run(ISTREAM, root, R=rows) == [(3, 3), (4, 4)]


def test_join_finds_pairs_while_both_are_there() -> None:
    left, right = R.scan(seconds(5)), Q.scan(seconds(1))
    same = build_call("=", Column("R", "a", INT), Column("Q", "b", INT))
    for root in (Join((left, right), same), Select(Join((left, right)), same)):
        found = run(
            ISTREAM,
            project(root, "a", "n"),
            R=r((1, 1, None), (8, 2, None), (9, None, None)),
            Q=q((6, 1, "late"), (7, 1, "too late"), (7, 2, "before"), (9, None, "null")),
        )
        assert found == [(6, 1, "late"), (8, 2, "before")]


def test_join_of_three_in_any_order_of_conditions() -> None:
    a, b, c = R.scan(UNBOUNDED, "a"), R.scan(UNBOUNDED, "b"), Q.scan(UNBOUNDED, "c")
    on = build_call(
        "and",
        build_call("=", Column("a", "a", INT), Column("c", "b", INT)),
        build_call("=", Column("b", "x", DOUBLE), Column("c", "b", INT)),
        build_call("<", Column("a", "ts", TIMESTAMP), Column("b", "ts", TIMESTAMP)),
    )
    root = Join((a, b, c), on)
    items = tuple(Item(f"c{i}", column) for i, column in enumerate(root.columns))
    found = run(ISTREAM, Project(root, items), R=r((1, 2, 5.0), (2, 5, 2.0)), Q=q((3, 2, "z")))
    assert found == [(3, 2, 5.0, 1 * S, 5, 2.0, 2 * S, 2, "z", 3 * S)]


def test_self_join_has_each_pair_of_tuples() -> None:
    a, b = R.scan(NOW, "a"), R.scan(NOW, "b")
    root = Project(
        Join((a, b)), (Item("u", Column("a", "a", INT)), Item("v", Column("b", "a", INT)))
    )
    assert run(ISTREAM, root, R=r((1, 1, None), (1, 2, None))) == [
        (1, 1, 1),
        (1, 1, 2),
        (1, 2, 1),
        (1, 2, 2),
    ]


def test_join_with_a_table() -> None:
    scan, names = R.scan(NOW), NAMES.scan()
    join = Join((scan, names), build_call("=", col(scan, "a"), col(names, "k")))
    found = run(ISTREAM, project(join, "name"), R=times(1, 2), names=[(2, "two"), (2, "deux")])
    assert found == [(2, "deux"), (2, "two")]


def test_equality_of_an_integer_and_a_double_joins_as_doubles() -> None:
    left, right = R.scan(UNBOUNDED, "l"), R.scan(UNBOUNDED, "r")
    on = build_call("=", col(left, "a"), col(right, "x"))
    root = Project(Join((left, right), on), (Item("a", col(left, "a")),))
    assert run(RSTREAM, root, R=r((1, 3, 3.0), (1, 4, float("nan")))) == [(1, 3)]


@pytest.mark.parametrize("full", [False, True])
def test_outer_join(full: bool) -> None:
    left, right = R.scan(UNBOUNDED), Q.scan(seconds(3))
    join = OuterJoin(left, right, build_call("=", col(left, "a"), col(right, "b")), full)
    rows, others = r((1, 1, None), (2, None, None)), q((3, 1, "one"), (4, 5, "five"), (9, 6, "six"))
    lonely = [(4, None, "five"), (9, None, "six")] if full else []
    assert run(ISTREAM, project(join, "a", "n"), R=rows, Q=others) == sorted(
        [(1, 1, None), (2, None, None), (3, 1, "one"), (9, 1, None), *lonely],
        key=lambda row: (row[0], row[1] is None),
    )
    gone = [(9, None, "five")] if full else []
    assert run(DSTREAM, project(join, "a", "n"), R=rows, Q=others) == [
        (3, 1, None),
        (9, 1, "one"),
        *gone,
    ]


def test_a_condition_on_the_left_of_an_outer_join_keeps_the_row() -> None:
    left, right = R.scan(UNBOUNDED), Q.scan(UNBOUNDED)
    join = OuterJoin(left, right, build_call(">", col(left, "a"), literal(1)))
    found = run(RSTREAM, project(join, "a", "n"), R=r((1, 1, None), (1, 2, None)), Q=q((1, 0, "n")))
    assert found == [(1, 1, None), (1, 2, "n")]


def exists(anti: bool, right: Relation, condition: Expr | None) -> Project:
    inner = Project(right, tuple(Item(f"c{i}", c) for i, c in enumerate(right.columns)), "$exists0")
    return project(SemiJoin(R.scan(UNBOUNDED), inner, condition, anti), "a")


def test_semi_and_anti_join() -> None:
    a, b = Column("R", "a", INT), Column("$exists0", "c0", INT)
    rows, others = r((1, 1, None), (2, 2, None), (2, None, None)), q((3, 1, "x"), (3, 1, "y"))
    right = Q.scan(UNBOUNDED)
    assert run(ISTREAM, exists(False, right, build_call("=", a, b)), R=rows, Q=others) == [(3, 1)]
    anti = exists(True, right, build_call("=", a, b))
    assert run(RSTREAM, anti, R=rows, Q=others)[-2:] == [(3, 2), (3, None)]
    assert run(DSTREAM, anti, R=rows, Q=others) == [(3, 1)]
    assert run(ISTREAM, exists(False, right, None), R=rows, Q=others) == [(3, 1), (3, 2), (3, None)]


def test_not_in_with_nulls() -> None:
    a, b = Column("R", "a", INT), Column("$exists0", "c0", INT)
    not_in = build_call(
        "or", build_call("=", a, b), build_call("is_null", a), build_call("is_null", b)
    )
    root = exists(True, Q.scan(NOW), not_in)
    rows = r((1, 1, None), (1, 2, None), (1, None, None))
    found = run(RSTREAM, root, R=rows, Q=q((1, 1, "x"), (2, None, "null"), (3, 2, "y")))
    assert found == [(1, 2), (3, 1)]  # at 2 a NULL on the right makes NOT IN unknown for all
    assert run(RSTREAM, root, R=rows) == [(1, 1), (1, 2), (1, None)]  # nothing is in nothing


def test_groups_and_having() -> None:
    scan = R.scan(seconds(10))
    keys = (col(scan, "a"),)
    total = build_aggregate("sum", col(scan, "x"))
    rows = r((1, 1, 0.5), (2, None, 1.0), (3, None, 2.0), (4, 1, None))
    assert run(RSTREAM, grouped(scan, keys, COUNT, total), R=rows)[-2:] == [
        (4, 1, 2, 0.5),
        (4, None, 2, 3.0),
    ]


def test_groups_take_nan_and_zeros_as_equal() -> None:
    scan = R.scan(UNBOUNDED)
    rows = r((1, 1, float("nan")), (1, 2, -0.0), (1, 3, 0.0), (1, 4, float("nan")))
    found = run(RSTREAM, grouped(scan, (col(scan, "x"),), COUNT), R=rows)
    assert [row[2] for row in found] == [2, 2]
    assert len(run(RSTREAM, Distinct(project(scan, "x")), R=rows)) == 2


def test_a_global_aggregate_over_nothing_is_one_row() -> None:
    scan = Q.scan(NOW)
    root = Project(
        Join((R.scan(NOW), grouped(scan, (), COUNT, build_aggregate("max", col(scan, "n"))))),
        (Item("a", Column("R", "a", INT)), Item("n", Column("", "a0", COUNT.type))),
    )
    assert run(ISTREAM, root, R=times(1, 2), Q=q((2, 1, "x"))) == [(1, 1, 0), (2, 2, 1)]
    counts = grouped(scan, (), COUNT, build_aggregate("max", col(scan, "n")))
    root = Project(Join((R.scan(NOW), counts)), tuple(Item(c.name, c) for c in counts.columns))
    assert run(RSTREAM, root, R=times(1), Q=q((2, 1, "x"))) == [(1, 0, None)]


def test_union_all_distinguishes_its_branches() -> None:
    scan = R.scan(NOW)
    both = UnionAll((project(scan, "a"), project(scan, "x"), project(scan, "a")))
    assert run(ISTREAM, both, R=r((1, 1, 0.5), (2, None, None))) == [
        (1, 0.5),
        (1, 1.0),
        (1, 1.0),
        (2, None),
        (2, None),
        (2, None),
    ]
    counts = UnionAll(
        (grouped(R.scan(NOW), (), COUNT), grouped(Q.scan(NOW), (), build_aggregate("count", None)))
    )
    # 1 and 0, then 0 and 1: in each branch another row
    assert run(ISTREAM, counts, R=times(1), Q=q((2, 1, "x"))) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_rows_of_a_subquery_keep_their_identity() -> None:
    inner = project(R.scan(seconds(2)), "a", alias="s")
    outer = project(Select(inner, build_call(">", col(inner, "a"), literal(0))), "a")
    rows = r((1, 7, None), (4, 7, None))
    assert run(ISTREAM, outer, R=rows) == [(1, 7), (4, 7)]
    distinct = project(Distinct(inner), "a")
    assert run(ISTREAM, distinct, R=rows) == [(1, 7)]


# ---- start, end and keep


def test_start_and_end_cut_the_result() -> None:
    root = project(R.scan(seconds(2)), "a")
    rows = times(0, 1, 2, 3, 5, 6)
    assert run(ISTREAM, root, R=rows, start=2, end=5) == [(3, 3), (5, 5)]
    assert run(DSTREAM, root, R=rows, start=2, end=5) == [(3, 0), (5, 1), (5, 2)]
    assert run(RSTREAM, root, R=rows, end=1) == [(0, 0), (1, 0), (1, 1)]


def test_keep_bounds_what_is_looked_back_on() -> None:
    counts = grouped(R.scan(UNBOUNDED), (), COUNT)
    rows = times(0, 1, 2, 3, 5)
    assert run(ISTREAM, counts, R=rows, start=2) == [(3, 4), (5, 5)]
    assert run(ISTREAM, counts, R=rows, start=2, keep={"r": 1}) == [(3, 3), (5, 4)]
    assert run(ISTREAM, counts, R=rows, start=2, keep={"R": 0}) == [(3, 2), (5, 3)]
    assert run(ISTREAM, counts, R=rows, start=4, keep={"R": 0}) == [(5, 1)]


def test_a_start_does_not_report_what_was_there() -> None:
    root = project(R.scan(seconds(10)), "a")
    assert run(ISTREAM, root, R=times(1, 2, 3), start=2, keep={"R": 100}) == [(3, 3)]
    sliding = project(R.scan(seconds(10, 5)), "a")
    assert run(ISTREAM, sliding, R=times(1, 7, 11), start=5) == [(10, 7), (15, 11)]
    assert run(ISTREAM, sliding, R=times(1, 7, 11), start=7) == [(10, 7), (15, 11)]


# ---- refusals


def test_a_missing_input_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"no input for stream R; there is: S"):
        evaluate(Query(ISTREAM, project(R.scan(NOW), "a")), {"S": []})
    with pytest.raises(EvaluationError, match=r"more than one input for stream R"):
        evaluate(Query(ISTREAM, project(R.scan(NOW), "a")), {"R": [], "r": []})


def test_tuples_that_do_not_fit_are_refused() -> None:
    query = Query(ISTREAM, project(R.scan(NOW), "a"))
    with pytest.raises(EvaluationError, match=r"row 1 of R has 2 values, its schema 3"):
        evaluate(query, {"R": [(1, 1.0, 5), (1, 2)]})
    with pytest.raises(EvaluationError, match=r"tuple 0 of R has no event time: ts is None"):
        evaluate(query, {"R": [(1, 1.0, None)]})
