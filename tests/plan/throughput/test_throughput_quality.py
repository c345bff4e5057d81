"""The quality of configurations: Tables 2 to 4 of the paper, by hand and against slower twins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwater.errors import PlanError
from headwater.network.model import Site
from headwater.network.sites import fully_connected
from headwater.plan.throughput.model import (
    Configuration,
    OperatorKind,
    ThroughputOperator,
    ThroughputProblem,
)
from headwater.plan.throughput.moves import Swap, apply_move, reverse_move, swaps
from headwater.plan.throughput.polynomial import Polynomial, largest_within, value
from headwater.plan.throughput.quality import constraints, latency, quality, total_cpu_load
from headwater.plan.throughput.rates import operator_flows
from headwater.reproduce.throughput_samples import (
    large_problem,
    small_problem,
    three_streams,
    two_operators,
)


def bisection(load: Polynomial, capacity: float) -> float:
    """The largest x within the capacity, by halving."""
    low, high = 0.0, 1.0
    if value(load, 0.0) > capacity:
        return 0.0
    while value(load, high) <= capacity:
        high *= 2
        if high > 1e200:
            return math.inf
    for _ in range(400):
        middle = (low + high) / 2
        if value(load, middle) <= capacity:
            low = middle
        else:
            high = middle
    return low


coefficients = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))


@settings(deadline=None)
@given(st.lists(coefficients, min_size=1, max_size=13).map(tuple), st.floats(0, 1e9))
def test_the_root_is_that_of_bisection(load: Polynomial, capacity: float) -> None:
    assume(abs(capacity - load[0]) > 1e-3 * capacity)
    expected = bisection(load, capacity)
    assert largest_within(load, capacity) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None)
@given(st.lists(coefficients, min_size=2, max_size=13).map(tuple), st.floats(1e-3, 1e9))
def test_a_capacity_is_used_up_at_the_root(load: Polynomial, capacity: float) -> None:
    x = largest_within(load, capacity)
    if 0 < x < math.inf:
        assert value(load, x) == pytest.approx(capacity, rel=1e-9)


def test_nothing_to_bear_is_borne_for_ever() -> None:
    assert largest_within((), 1.0) == math.inf
    assert largest_within((1.0,), 1.0) == math.inf
    assert largest_within((2.0,), 1.0) == 0.0
    assert largest_within((0.0, 1.0), 0.0) == 0.0
    assert largest_within((0.0, 1.0), math.inf) == math.inf


def two(
    selectivities: tuple[float, float], swapped: bool
) -> tuple[ThroughputProblem, Configuration]:
    """Figure 1: two selections, the first on N1 and the second on N2, or the other way round."""
    columns = frozenset({"s.a"})
    problem = ThroughputProblem(
        (
            ThroughputOperator("s", OperatorKind.EMIT, stream="s", adds=columns),
            ThroughputOperator(
                "o1", OperatorKind.SELECT, 30.0, selectivity=selectivities[0], reads=columns
            ),
            ThroughputOperator(
                "o2", OperatorKind.SELECT, 70.0, selectivity=selectivities[1], reads=columns
            ),
        ),
        ((), (0,), (1,)),
        (2,),
        (((0,),), ((0,), (1,)), ((0,), (1,))),
        fully_connected((Site("N1", cpu=1000.0), Site("N2", cpu=4000.0))),
        ({"s": 1.0},),
    )
    hosts = ((0,), (1,), (0,)) if swapped else ((0,), (0,), (1,))
    return problem, replace(problem.initial_configuration(), hosts=hosts)


@settings(deadline=None)
@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.1, 100))
def test_the_three_measures_of_table_2(s1: float, s2: float, r: float) -> None:
    c1, c2, n1, n2 = 30.0, 70.0, 1000.0, 4000.0
    problem, first = two((s1, s2), swapped=False)
    _, second = two((s1, s2), swapped=True)
    assert latency(problem, first) == pytest.approx(c1 / n1 + c2 / n2)
    assert latency(problem, second) == pytest.approx(c1 / n2 + c2 / n1)
    for configuration in (first, second):
        assert total_cpu_load(problem, configuration, r) == pytest.approx(r * (c1 + s1 * c2))
    assert quality(problem, first).value == pytest.approx(min(n1 / c1, n2 / (s1 * c2)))
    assert quality(problem, second).value == pytest.approx(min(n2 / c1, n1 / (s1 * c2)))


def test_the_order_alone_makes_100_or_500_in_figure_5() -> None:
    problem = two_operators()
    forced = replace(problem.initial_configuration(), hosts=((0,), (0,), (1,)))
    worse = quality(problem, forced)
    better = quality(problem, apply_move(forced, Swap(2, 1, 0)))
    assert worse.value == pytest.approx(100, rel=1e-12)
    assert better.value == pytest.approx(500, rel=1e-12)
    assert str(worse.binding) == str(better.binding) == "cpu of N1"
    elsewhere = replace(forced, hosts=((0,), (1,), (1,)))
    assert str(quality(problem, elsewhere).binding) == "memory of N2"
    assert quality(problem, elsewhere).value == 0


def test_a_join_by_tables_3_and_4() -> None:
    problem = three_streams()
    given_ = operator_flows(problem, problem.initial_configuration())
    bc_cd = 2 * 5.0 * 1e-5
    assert given_[3].rate == pytest.approx((0, 0, bc_cd))
    assert given_[4].rate == pytest.approx((0, 0, 0, 2 * 5.0 * 1e-3 * bc_cd))
    held = {str(c): c for c in constraints(problem, problem.initial_configuration())}[
        "memory of N1"
    ]
    widths = 5.0 * (16 + 16) + 5.0 * 16
    assert held.load[1] == pytest.approx(widths)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_a_swap_changes_no_rate_above_it(seed: int) -> None:
    problem = large_problem(seed)
    start = problem.initial_configuration()
    before = operator_flows(problem, start)
    for swap in swaps(problem, start):
        moved = apply_move(start, swap)
        after = operator_flows(problem, moved)
        assert after[swap.bottom].rate == pytest.approx(before[swap.top].rate)
        assert after[swap.bottom].width == pytest.approx(before[swap.top].width)
        assert apply_move(moved, reverse_move(start, swap)) == start


def grouped(period: float | None) -> ThroughputProblem:
    """A selection on the key above an aggregate over a window, joined with a table and a union."""
    return ThroughputProblem(
        (
            ThroughputOperator(
                "s", OperatorKind.EMIT, stream="s", window=10.0, adds=frozenset({"s.k", "s.v"})
            ),
            ThroughputOperator(
                "sum",
                OperatorKind.AGGREGATE,
                5.0,
                rows=8.0,
                period=period,
                selectivity=0.5,
                reads=frozenset({"s.k", "s.v"}),
                keys=frozenset({"s.k"}),
                drops=frozenset({"s.v"}),
                adds=frozenset({"a.sum"}),
            ),
            ThroughputOperator(
                "k", OperatorKind.SELECT, 1.0, selectivity=0.25, reads=frozenset({"s.k"})
            ),
        ),
        ((), (0,), (1,)),
        (2,),
        (((0,),),) * 3,
        fully_connected((Site("N1", cpu=1000.0),)),
        ({"s": 2.0}, {"s": 20.0}),
        rules=frozenset(
            {
                (OperatorKind.SELECT, OperatorKind.AGGREGATE),
                (OperatorKind.AGGREGATE, OperatorKind.SELECT),
            }
        ),
    )


@pytest.mark.parametrize("period", [None, 4.0])
def test_a_selection_takes_its_share_of_the_groups_below_an_aggregate(period: float | None) -> None:
    problem = grouped(period)
    start = problem.initial_configuration()
    (push,) = swaps(problem, start)
    pushed = apply_move(start, push)
    above, beneath = operator_flows(problem, start), operator_flows(problem, pushed)
    assert beneath[1].rate == pytest.approx(above[2].rate)
    assert beneath[1].held == pytest.approx((2.0,))
    assert above[1].rate == pytest.approx((2.0,) if period else (0.0, 1.0))


def test_several_points_are_as_good_as_the_worst() -> None:
    problem = grouped(None)
    found = quality(problem, problem.initial_configuration())
    assert found.point == 1
    alone = quality(replace(problem, points=problem.points[1:]), problem.initial_configuration())
    assert found.value == alone.value
    assert found.rates(problem) == {"s": pytest.approx(found.value * 20.0)}


def test_unions_add_and_joins_of_three_follow_the_product_rule() -> None:
    streams = [
        ThroughputOperator(n, OperatorKind.EMIT, stream=n, window=w, adds=frozenset({f"{n}.x"}))
        for n, w in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    rates = {"a": 5.0, "b": 7.0, "c": 11.0}

    def flow(kind: OperatorKind, *inputs: tuple[int, ...]) -> Polynomial:
        drops = (
            frozenset(f"{n}.x" for n in "abc") if kind is OperatorKind.UNION else frozenset[str]()
        )
        operators = (
            *streams,
            *(ThroughputOperator(f"o{i}", kind, drops=drops) for i in range(len(inputs))),
        )
        problem = ThroughputProblem(
            operators,
            ((), (), (), *inputs),
            (len(operators) - 1,),
            (((0,),),) * len(operators),
            fully_connected((Site("N1"),)),
            (rates,),
        )
        return operator_flows(problem, problem.initial_configuration())[-1].rate

    assert flow(OperatorKind.UNION, (0, 1, 2)) == pytest.approx((0, 23.0))
    held = (5.0, 14.0, 33.0)
    three = 5 * held[1] * held[2] + held[0] * 7 * held[2] + held[0] * held[1] * 11
    assert flow(OperatorKind.JOIN, (0, 1, 2)) == pytest.approx((0, 0, 0, three))
    assert flow(OperatorKind.JOIN, (0, 1), (3, 2)) == pytest.approx((0, 0, 0, three))
    assert flow(OperatorKind.JOIN, (1, 2), (0, 3)) == pytest.approx((0, 0, 0, three))


def test_copies_share_the_work_and_split_the_traffic() -> None:
    problem = replace(
        two_operators(), network=fully_connected((Site("N1", cpu=100.0), Site("N2", cpu=100.0)))
    )
    alone = replace(problem.initial_configuration(), hosts=((0,), (0,), (1,)))
    cloned = replace(alone, hosts=((0,), (0, 1), (1,)))
    loads = {str(c): c.load for c in constraints(problem, cloned)}
    assert loads["cpu of N1"] == pytest.approx((0, 10.0))
    assert loads["cpu of N2"] == pytest.approx((0, 10.0 + 20.0))
    assert loads["link of N1 -> N2"] == pytest.approx((0, 16 / 2 + 16 / 2 / 2))


def test_a_latency_that_cannot_be_kept_is_worth_nothing() -> None:
    problem, configuration = two((0.5, 0.5), swapped=False)
    slowest = latency(problem, configuration)
    assert quality(replace(problem, latency=slowest), configuration).value > 0
    late = quality(replace(problem, latency=slowest * 0.99), configuration)
    assert late.value == 0
    assert str(late.binding) == "latency of the slowest path"


def test_sites_without_a_link_send_each_other_nothing() -> None:
    problem, configuration = two((0.5, 0.5), swapped=False)
    apart = replace(problem, network=replace(problem.network, links=()))
    assert str(quality(apart, configuration).binding) == "link of N1 -> N2"
    assert quality(apart, configuration).value == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"points": ()}, "at least one point"),
        ({"points": ({"t": 1.0},)}, "no rate above 0 for the stream s"),
        ({"initial_inputs": ((), (0,), (1, 0))}, "SELECT with 2 inputs"),
        ({"initial_inputs": ((), (2,), (1,))}, "reads its own result"),
        ({"options": (((0,),), (), ((0,),))}, "no site may host it"),
        ({"options": (((0,),), ((7,),), ((0,),))}, "is no set of sites"),
    ],
)
def test_problems_that_make_no_sense_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        replace(two_operators(), **change)  # type: ignore[arg-type]


def test_operators_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PlanError, match="selectivity is -1"):
        ThroughputOperator("o", OperatorKind.SELECT, selectivity=-1)
    problem = two_operators()
    lost = replace(problem.operators[1], reads=frozenset({"s.z"}))
    with pytest.raises(PlanError, match=r"o1: no column s\.z"):
        replace(problem, operators=(problem.operators[0], lost, problem.operators[2]))


def test_random_problems_are_those_of_the_paper() -> None:
    for seed in range(50):
        kinds = [o.kind for o in small_problem(seed).operators]
        assert kinds.count(OperatorKind.EMIT) <= 2
        assert len(kinds) - kinds.count(OperatorKind.EMIT) <= 5
        kinds = [o.kind for o in large_problem(seed).operators]
        assert 3 <= kinds.count(OperatorKind.EMIT) <= 13
        assert len(kinds) <= 40
