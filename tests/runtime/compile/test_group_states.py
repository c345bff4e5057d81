"""The states of groups follow from panes of any lifetimes: at each instant they are the aggregates over the
rows of the panes that are there."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.algebra.expressions import Column
from headwater.algebra.functions import AggregateCall, build_aggregate
from headwater.algebra.types import DOUBLE, INT
from headwater.reference.aggregates import compile_aggregate
from headwater.reference.values import Row, normalize_row
from headwater.runtime.compile.group_states import FROM, TO, GroupStates, can_follow_changes
from headwater.runtime.compile.windows import FOREVER, next_multiple_of, with_views
from headwater.runtime.spark.aggregates import PartialAggregate, partial_aggregate

V, D = Column("s", "v", INT), Column("s", "d", DOUBLE)
CALLS = [
    build_aggregate("count", None),
    build_aggregate("sum", V),
    build_aggregate("min", V),
    build_aggregate("max", D),
    build_aggregate("sum", D),
    build_aggregate("avg", D),
    build_aggregate("stddev_pop", V),
    build_aggregate("count", V, distinct=True),
    build_aggregate("sum", V, distinct=True),
    build_aggregate("avg", V, distinct=True),
    build_aggregate("count", D, distinct=True),
]


def partials(calls: list[AggregateCall]) -> list[PartialAggregate]:
    known = [p for n, call in enumerate(calls) if (p := partial_aggregate(call, n)) is not None]
    assert len(known) == len(calls)
    return known


@dataclass(frozen=True)
class Tuple:
    """A row of a group, and when it is visible."""

    key: int | None
    begins: int
    ends: int
    values: Row


def random_tuples(rng: random.Random, instants: list[int], slides: frozenset[int]) -> list[Tuple]:
    """Most of a few lengths, some for ever; they begin at instants, or were there before."""
    lengths = [rng.randint(1, 40) for _ in range(3)]
    tuples = []
    for _ in range(rng.choice([0, 5, 40, 120])):
        begins = rng.choice([rng.randint(-50, instants[0]), *instants, *instants])
        if slides:
            begins = next_multiple_of(begins, rng.choice(sorted(slides)))
        length = rng.choice([*lengths, rng.randint(1, 60), FOREVER if rng.random() < 0.3 else 7])
        values = (rng.choice([None, 1, 2, 2, -7]), rng.choice([None, 0.25, -0.0, 0.0, 1e6]))
        ends = FOREVER if length == FOREVER else begins + length
        tuples.append(Tuple(rng.choice([None, 1, 2]), begins, ends, values))
    return tuples


def states(spark: Any, wanted: GroupStates, tuples: list[Tuple], instants: list[int]) -> list[Any]:
    """`_t`, `_next`, the key if there is one, and aggregates."""
    rows = [(t.key, t.begins, t.ends, *t.values) for t in tuples]
    frame = spark.createDataFrame(rows, f"k0 INT, {FROM} LONG, {TO} LONG, v INT, d DOUBLE")
    frame.createOrReplaceTempView("states_rows")
    spark.createDataFrame([(t,) for t in instants], "t LONG").createOrReplaceTempView(
        "instants_all"
    )
    arguments = ", ".join(f"{c.arg.name} AS x{n}" for n, c in enumerate(CALLS) if c.arg is not None)
    built = ", ".join(f"{p.build} AS {p.name}" for a in partials(CALLS) for p in a.columns)
    by = ", ".join([FROM, TO, *wanted.keys])
    views = {
        "instants": "SELECT t FROM instants_all",
        "panes": f"SELECT {by}, count(*) AS _n, {built} FROM (SELECT *, {arguments} FROM states_rows) GROUP BY {by}",
    }
    found = spark.sql(with_views({**views, **wanted.views}, wanted.states_sql)).toArrow()
    return list(zip(*(c.to_pylist() for c in found.columns), strict=True))


def check(spark: Any, seed: int, keyed: bool, slides: frozenset[int]) -> None:
    rng = random.Random(seed)
    instants = sorted(rng.sample(range(100), 12))
    if slides:
        instants = sorted({t for slide in slides for t in range(0, 60, slide)})
    only_changing, is_first = rng.random() < 0.7, rng.random() < 0.3
    before = None if is_first else instants[0]
    due = instants if is_first else instants[1:]
    tuples = random_tuples(rng, instants, slides)
    if is_first:
        tuples = [t for t in tuples if t.begins >= instants[0]]
    assert can_follow_changes(partials(CALLS))
    wanted = GroupStates(
        ["k0"] if keyed else [], partials(CALLS), slides, before, due[0], due[-1], only_changing
    )
    found = states(spark, wanted, tuples, instants)
    shown = [compile_aggregate(call, (V, D)) for call in CALLS]
    keys = {t.key for t in tuples} if keyed else {None}
    for key in keys:
        own = [t for t in tuples if not keyed or t.key == key]
        of_key = [row for row in found if not keyed or row[2] == key]
        at = {}
        for t in [*([] if before is None else [before]), *due]:
            rows = [one.values for one in own if one.begins <= t < one.ends]
            at[t] = normalize_row(tuple(a(rows) for a in shown)) if rows or not keyed else None
            there = [row for row in of_key if row[0] <= t and (row[1] is None or t < row[1])]
            values = [normalize_row(row[3 if keyed else 2 :]) for row in there]
            if of_key or not only_changing:
                assert values == ([] if at[t] is None else [at[t]]), (seed, key, t)
        if not of_key:
            assert len(set(at.values())) == 1, (seed, key)


@pytest.mark.spark
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("slides", [frozenset(), frozenset({5}), frozenset({4, 6})])
def test_states_are_the_aggregates_at_each_instant(
    spark: Any, keyed: bool, slides: frozenset[int]
) -> None:
    for seed in range(4):
        check(spark, seed, keyed, slides)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(4, 40))
def test_states_in_the_long_run(spark: Any, seed: int) -> None:
    for keyed in (True, False):
        for slides in (frozenset[int](), frozenset({5}), frozenset({4, 6})):
            check(spark, seed, keyed, slides)


@pytest.mark.parametrize("name, argument, follows", [("stddev_pop", D, False), ("sum", D, True)])
def test_what_has_no_running_form_is_looked_up(name: str, argument: Column, follows: bool) -> None:
    assert can_follow_changes(partials([build_aggregate(name, argument)])) is follows
